//! Bundles that others change after Verbgate has judged them: a program between Verbgate and the runtime, and hooks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::common::bundle::Bundle;
use crate::common::bundle::Runtime;
use crate::common::bundle::runtimes;
use crate::common::stderr;
use crate::common::stdout;

/// A number of uverbs nodes. No driver has it here, so an open that the control group allows fails with ENXIO.
const NODE: &str = "/dev/verbs";
const OPENED: &str = "No such device or address";
const OPEN: [&str; 3] = ["sh", "-c", "for node in /dev/verbs /srv; do (: <>$node); done"];

/// Becomes the runtime, after the bundle has got what the script says: a node with its rule.
const EDITS: &str = r#"
import json, os, sys
words = sys.argv[1:]
if {'create', 'run'} & set(words):
    file = words[words.index('--bundle') + 1] + '/config.json'
    config = json.load(open(file))
    number = {'type': 'c', 'major': 231, 'minor': 199}
    config['linux'].setdefault('devices', []).append(number | {'path': NODE, 'fileMode': 0o666})
    config['linux']['resources']['devices'].append(number | {'allow': True, 'access': 'rwm'})
    MORE
    json.dump(config, open(file, 'w'))
os.execvp(RUNTIME, [RUNTIME] + words)
"#;

/// Makes a node and a mount of it in the container, and lets the container's first process open every device.
const HOOK: &str = r#"#!/bin/sh
pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
[ "$1" = createRuntime ] || pid=self
in_container() { if [ $pid = self ]; then "$@"; else nsenter --mount --target $pid "$@"; fi; }
mkdir -p $2/node && [ -e $2/node/verbs ] || mknod -m 666 $2/node/verbs c 231 199
in_container sh -c "touch $2/rootfs/$3 && mount --bind $2/node/verbs $2/rootfs/$3"
[ $pid != self ] || pid=$PPID
for all in /sys/fs/cgroup/devices /sys/fs/cgroup; do
    [ ! -e $all/cgroup.procs ] || { echo $pid >$all/cgroup.procs; exit; }
done
"#;

fn program(bundle: &Bundle, name: &str, text: &str) -> String {
    let path = bundle.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A bundle whose runtime is a program that edits the bundle; with a wish for a device, or none.
fn edited(runtime: &'static Runtime, wishes: bool, more: &str) -> Bundle {
    let mut bundle = Bundle::new(runtime, &OPEN);
    if !wishes {
        bundle.edit(|config| drop(config.remove("annotations")));
    }
    let values = [("NODE", NODE), ("MORE", more), ("RUNTIME", runtime.name)];
    let text = values.iter().fold(EDITS.to_owned(), |text, (name, value)| {
        let value = if *name == "MORE" { (*value).to_owned() } else { format!("{value:?}") };
        text.replace(name, &value)
    });
    let path = program(&bundle, "edits", &format!("#!/usr/bin/python3{text}"));
    bundle.instead = Some(path.into());
    bundle
}

/// The container is refused, and why is told, whichever way it is made.
fn assert_refused(bundle: &Bundle, needles: &[&str]) {
    let dir = bundle.path().to_str().unwrap();
    let before = bundle.config();
    let created = bundle.verb_with("create", &["--bundle", dir], &[]);
    bundle.assert_nothing_left();
    fs::write(bundle.path().join("config.json"), before).unwrap();
    let ran = bundle.run();
    // A supervisor that was confined for the start leaves a directory.
    bundle.assert_gc_leaves_nothing_of_ours();
    for output in [created, ran] {
        let why = stderr(&output);
        assert_eq!((output.status.success(), stdout(&output).as_str()), (false, ""), "{why}");
        assert!(!why.contains(OPENED), "{why}");
        for needle in needles {
            assert!(why.contains(needle), "{needle}: {why}");
        }
    }
}

#[test]
fn a_program_that_edits_the_bundle_later_is_caught() {
    for runtime in runtimes() {
        // Without Verbgate, the container opens the device.
        let bundle = edited(runtime, false, "");
        let native = bundle.run_natively();
        assert!(stderr(&native).contains(OPENED), "{native:?}");
        let remedy = "have that program call Verbgate instead";
        assert_refused(
            &edited(runtime, true, ""),
            &["config.json: ", "has changed linux.", remedy],
        );
        let remedy = "have the program call Verbgate instead";
        assert_refused(&edited(runtime, false, ""), &[NODE, "unsupervised", remedy]);
    }
}

/// Hooks that are taken away tell nothing.
#[test]
fn a_container_without_verbgates_hooks_is_not_started() {
    for runtime in runtimes() {
        let bundle = edited(runtime, true, "del config['hooks']");
        bundle.create();
        let output = bundle.verb("start", &[]);
        assert!(!output.status.success(), "{output:?}");
        assert!(stderr(&output).contains("not created"), "{output:?}");
        bundle.delete();
        bundle.assert_nothing_of_ours_left();
    }
}

#[test]
fn a_device_that_a_hook_brings_is_caught() {
    for runtime in runtimes() {
        for kind in ["createRuntime", "createContainer"] {
            for (wishes, path) in [(true, "dev/verbs"), (false, "dev/verbs"), (false, "srv")] {
                let bundle = with_hook(runtime, wishes, kind, path);
                if !wishes {
                    let native = bundle.run_natively();
                    assert!(stderr(&native).contains(OPENED), "{kind} {path}: {native:?}");
                }
                let path = format!("/{path}: ");
                assert_refused(&bundle, &[&path, "unsupervised", "remove the hook"]);
            }
        }
    }
}

fn with_hook(runtime: &'static Runtime, wishes: bool, kind: &str, path: &str) -> Bundle {
    let mut bundle = edited(runtime, wishes, "");
    bundle.instead = None;
    let program = program(&bundle, "hook", HOOK);
    let dir = bundle.path().to_str().unwrap().to_owned();
    let hook = json!({"path": program, "args": ["hook", kind, dir, path], "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]});
    let hooks = json!({kind: [hook]});
    bundle.edit(|config| drop(config.insert("hooks".to_owned(), hooks)));
    bundle
}

/// Containers that nobody changes run, and see their devices.
#[test]
fn hooks_that_bring_no_device_are_let_be() {
    for runtime in runtimes() {
        for wishes in [true, false] {
            let mut bundle = with_hook(runtime, wishes, "createRuntime", "srv");
            fs::write(bundle.path().join("hook"), "#!/bin/sh\ncat >/dev/null\n").unwrap();
            bundle.edit(|config| config["process"]["args"] = json!(["echo", "ran"]));
            let output = bundle.run();
            assert_eq!(stdout(&output), "ran", "{output:?}");
            bundle.assert_nothing_left();
        }
    }
}
