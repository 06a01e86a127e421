//! `verbgate oci` for containers of pods: names, control groups, what becomes of a container whose supervisor
//! dies, and checkpoints.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use verbgate_wait::until;

use crate::common;
use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::guest::DEVICE;
use crate::common::stderr;

/// The folders of a name in the control groups.
fn groups(name: &str) -> Vec<PathBuf> {
    let found = Command::new("find").args(["/sys/fs/cgroup", "-name", name]).output().unwrap();
    common::stdout(&found).lines().map(PathBuf::from).collect()
}

/// A pod's control groups, which a kubelet would make and remove.
struct PodGroup(String);

impl Drop for PodGroup {
    fn drop(&mut self) {
        for group in groups(&self.0) {
            let _ = fs::remove_dir(group);
        }
    }
}

#[test]
fn a_supervisor_counts_in_its_pod_and_is_named_after_it() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        let uid = format!("test-{}-{}", std::process::id(), runtime.name);
        let pod = PodGroup(format!("pod{uid}"));
        bundle.edit(|config| {
            config["annotations"] = json!({
                "org.verbgate.devices": "uverbs9",
                "io.kubernetes.cri.container-type": "container",
                "io.kubernetes.cri.sandbox-namespace": "ml",
                "io.kubernetes.cri.sandbox-name": "rank-0",
                "io.kubernetes.cri.sandbox-uid": uid,
                "io.kubernetes.cri.container-name": "main",
            });
            config["linux"]["cgroupsPath"] = format!("/{}/container", pod.0).into();
        });
        bundle.start();
        let shown = bundle.ps();
        let named = json!({"namespace": "ml", "name": "rank-0", "uid": uid, "container": "main"});
        assert_eq!(shown[0]["pod"], named);
        let supervisor = &shown[0]["supervisor"];
        let own = fs::read_to_string(format!("/proc/{supervisor}/cgroup")).unwrap();
        let inside = format!("/{}/verbgate-", pod.0);
        let joined: Vec<&str> = own.lines().filter(|line| line.contains(&inside)).collect();
        let memory = |line: &&&str| line.contains(":memory:") || line.starts_with("0::");
        assert!(joined.iter().any(|line| memory(&line)), "{own}");
        let name = format!("verbgate-{}*", shown[0]["id"].as_str().unwrap());
        assert!(!groups(&name).is_empty());
        bundle.delete();
        bundle.assert_nothing_left();
        assert_eq!(groups(&name), Vec::<PathBuf>::new());

        // Whoever removes what a killed supervisor has left removes the groups, too.
        bundle.start();
        kill(&bundle);
        let name = format!("verbgate-{}*", shown[0]["id"].as_str().unwrap());
        assert!(!groups(&name).is_empty());
        bundle.delete();
        bundle.assert_nothing_left();
        assert_eq!(groups(&name), Vec::<PathBuf>::new());
    }
}

/// The supervisor of a container of no pod, and the warden, are in a group beside the container's, whose
/// memory is bounded.
#[test]
fn a_supervisor_and_its_warden_are_in_a_bounded_group_beside_the_containers() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.options = ["--without-supervisor", "end"].map(Into::into).to_vec();
        let tenants = PodGroup(format!("tenant-{}-{}", std::process::id(), runtime.name));
        bundle.edit(|config| {
            config["linux"]["cgroupsPath"] = format!("/{}/container", tenants.0).into();
        });
        bundle.start();
        let shown = bundle.ps();
        let name = format!("verbgate-{}", shown[0]["id"].as_str().unwrap());
        let of = |pid: &str| {
            let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
            let inside = format!("/{}/{name}", tenants.0);
            let is_it = |line: &&str| line.ends_with(&inside);
            own.lines().filter(is_it).map(str::to_owned).collect::<Vec<_>>()
        };
        let joined = of(&shown[0]["supervisor"].to_string());
        assert!(!joined.is_empty());
        assert_eq!(of(&bundle.processes("oci-warden")[0]), joined);
        let limits: Vec<String> = groups(&name)
            .iter()
            .flat_map(|group| ["memory.max", "memory.limit_in_bytes"].map(|file| group.join(file)))
            .filter_map(|file| fs::read_to_string(file).ok())
            .collect();
        assert!(limits.iter().any(|bytes| bytes.trim() == "268435456"), "{limits:?}");
        bundle.delete();
        bundle.assert_nothing_left();
        assert_eq!(groups(&name), Vec::<PathBuf>::new());

        // The group is there before the container runs, and goes when the container never does.
        bundle.create();
        assert!(!groups(&name).is_empty());
        bundle.delete();
        bundle.assert_nothing_left();
        assert_eq!(groups(&name), Vec::<PathBuf>::new());
    }
}

/// Opens are refused while the supervisor's group is nearly full, and served when there is room again.
#[test]
fn opens_fail_before_the_supervisors_group_is_full() {
    let script = format!(
        "wait_for() {{ until [ -e /tmp/$1 ]; do sleep 0.02; done; }}; exec 3<>{DEVICE} && : >/tmp/opened; \
         wait_for full; (exec 4<>{DEVICE}) 2>/tmp/error; : >/tmp/refused; wait_for room; \
         (exec 4<>{DEVICE}) && : >/tmp/again; sleep infinity"
    );
    for runtime in runtimes() {
        let bundle = Bundle::new(runtime, &["sh", "-c", &script]);
        bundle.start();
        let shown = bundle.ps();
        let tmp = PathBuf::from(format!("/proc/{}/root/tmp", shown[0]["pid"]));
        until("the first open", || tmp.join("opened").exists());
        let groups = groups(&format!("verbgate-{}", shown[0]["id"].as_str().unwrap()));
        let files = [
            ("memory.current", "memory.high", 15),
            ("memory.usage_in_bytes", "memory.limit_in_bytes", 11),
        ];
        let mut known = groups.iter().flat_map(|group| {
            files.map(|(used, limit, part)| (group.join(used), group.join(limit), part))
        });
        let (used, limit, part) = known.find(|(used, ..)| used.exists()).unwrap();
        let before = fs::read_to_string(&limit).unwrap();
        let used: u64 = fs::read_to_string(used).unwrap().trim().parse().unwrap();
        fs::write(&limit, (used / part * 16).to_string()).unwrap();
        fs::write(tmp.join("full"), "").unwrap();
        until("the refusal", || tmp.join("refused").exists());
        let error = fs::read_to_string(tmp.join("error")).unwrap();
        assert!(error.contains("Cannot allocate memory"), "{error}");
        fs::write(&limit, before.trim()).unwrap();
        fs::write(tmp.join("room"), "").unwrap();
        until("another open", || tmp.join("again").exists());
        bundle.delete();
        bundle.assert_nothing_left();
    }
}

/// Kills the supervisor of the only container, and waits for its end.
fn kill(bundle: &Bundle) {
    let supervisor = bundle.ps()[0]["supervisor"].to_string();
    let killed = Command::new("kill").args(["-KILL", &supervisor]).status().unwrap();
    assert!(killed.success());
    until("its end", || !Path::new(&format!("/proc/{supervisor}/fd/0")).exists());
}

fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

#[test]
fn a_container_ends_with_its_supervisor_if_that_is_asked_for() {
    for runtime in runtimes() {
        for ends in [true, false] {
            let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
            if ends {
                bundle.options = ["--without-supervisor", "end"].map(Into::into).to_vec();
            }
            bundle.start();
            let first = bundle.ps()[0]["pid"].to_string();
            assert_eq!(bundle.processes("oci-warden").len(), usize::from(ends));
            kill(&bundle);
            if ends {
                until("the container's end", || !lives(&first));
                until("the warden's end", || bundle.processes("oci-warden").is_empty());
            } else {
                // Nobody is there who could end the container; that nothing happens needs no wait.
                assert!(lives(&first));
                assert!(bundle.ps()[0]["supervisor"].is_null());
                let output = bundle.verb("exec", &["true"]);
                assert!(
                    stderr(&output).contains("the container's supervisor is gone"),
                    "{output:?}"
                );
            }
            bundle.delete();
            bundle.assert_nothing_left();
        }
    }
}

/// A warden ends with its container, whose supervisor ends right after it.
#[test]
fn a_warden_ends_nothing_that_ends_by_itself() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sh", "-c", "exit 3"]);
        bundle.options = ["--without-supervisor", "end"].map(Into::into).to_vec();
        assert_eq!(bundle.run().status.code(), Some(3));
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_checkpoint_is_refused_in_words() {
    for runtime in runtimes() {
        let bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.start();
        let image = bundle.path().join("image").to_str().unwrap().to_owned();
        let output = bundle.verb_with("checkpoint", &["--image-path", &image], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("cannot be checkpointed"), "{output:?}");
        let at = bundle.path().to_str().unwrap();
        let output = bundle.verb_with("restore", &["--image-path", &image, "--bundle", at], &[]);
        assert!(stderr(&output).contains("cannot be restored"), "{output:?}");
        bundle.delete();
        bundle.assert_nothing_left();
    }
}
