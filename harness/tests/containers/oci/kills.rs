//! Kills of any process while a container is made: no stuck container, nothing left, and the next
//! create of the same id works.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::time::Duration;

use verbgate_wait::until;

use crate::common::bundle::Bundle;
use crate::common::bundle::runtimes;
use crate::common::stderr;

/// A program that says that it runs, and waits until it may go on.
struct Hold {
    program: PathBuf,
    reached: PathBuf,
    held: PathBuf,
}

impl Hold {
    fn new(dir: &Path, then: &str) -> Self {
        let hold = Self {
            program: dir.join("hold"),
            reached: dir.join("reached"),
            held: dir.join("held"),
        };
        let (reached, held) = (hold.reached.display(), hold.held.display());
        let script = format!(
            "#!/bin/sh\n: >{reached}\nwhile [ -e {held} ]; do /bin/sleep 0.02; done\n{then}\n"
        );
        fs::write(&hold.program, script).unwrap();
        fs::set_permissions(&hold.program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&hold.held, "").unwrap();
        hold
    }

    fn release(&self) {
        let _ = fs::remove_file(&self.held);
        let _ = fs::remove_file(&self.reached);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release();
    }
}

fn kill_runtime(creating: &mut Child) {
    creating.kill().unwrap();
    creating.wait().unwrap();
}

/// Collects what nobody is left to remove: also what is made by those who have outlived the runtime for a while.
fn collect(bundle: &Bundle) {
    bundle.delete_if_there();
    bundle.assert_gc_leaves_nothing_of_ours();
}

/// As an engine does after a failed create, and the next one of the same id.
fn works_again(bundle: &mut Bundle) {
    bundle.instead = None;
    bundle.delete_if_there();
    bundle.assert_nothing_of_ours_left();
    bundle.edit(|config| {
        for event in ["createRuntime", "createContainer"] {
            let hooks = config["hooks"].as_object_mut().unwrap();
            let all = hooks.entry(event).or_insert_with(|| serde_json::json!([]));
            let ours =
                |hook: &serde_json::Value| !hook["path"].as_str().unwrap().ends_with("/hold");
            all.as_array_mut().unwrap().retain(ours);
        }
    });
    bundle.start();
    let output = bundle.verb("exec", &["sh", "-c", "exec 3<>/dev/infiniband/uverbs9 && exit 5"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    bundle.delete();
    bundle.assert_nothing_left();
}

#[test]
fn a_runtime_that_is_killed_before_it_begins_leaves_nothing() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.edit(|config| drop(config.insert("hooks".into(), serde_json::json!({}))));
        let hold = Hold::new(bundle.path(), &format!("exec {} \"$@\"", runtime.name));
        bundle.instead = Some(hold.program.clone());
        let mut creating = bundle.begin_to_create();
        until("the runtime", || hold.reached.exists());
        assert_eq!(bundle.ps()[0]["started"], false);
        kill_runtime(&mut creating);
        // By itself: nobody tells, and nobody collects.
        bundle.assert_nothing_of_ours_left();
        hold.release();
        works_again(&mut bundle);
    }
}

#[test]
fn a_runtime_that_is_killed_in_a_hook_leaves_nothing() {
    for runtime in runtimes() {
        // Before the supervisor knows the container, and after.
        for event in ["createRuntime", "createContainer"] {
            let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
            let hold = Hold::new(bundle.path(), "exit 0");
            let program = hold.program.to_str().unwrap().to_owned();
            bundle.edit(|config| {
                config.insert("hooks".into(), serde_json::json!({ event: [{"path": program}] }));
            });
            let mut creating = bundle.begin_to_create();
            until("the hook", || hold.reached.exists());
            kill_runtime(&mut creating);
            hold.release();
            works_again(&mut bundle);
        }
    }
}

#[test]
fn whoever_is_killed_at_any_time_leaves_nothing() {
    for runtime in runtimes() {
        for delay in [0, 5, 10, 20, 40, 80] {
            let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
            bundle.edit(|config| drop(config.insert("hooks".into(), serde_json::json!({}))));
            let mut creating = bundle.begin_to_create();
            std::thread::sleep(Duration::from_millis(delay));
            kill_runtime(&mut creating);
            // It may have been killed before there was a supervisor.
            collect(&bundle);
            works_again(&mut bundle);
        }
    }
}

#[test]
fn a_supervisor_that_is_killed_before_the_start_refuses_it() {
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["sleep", "infinity"]);
        bundle.edit(|config| drop(config.insert("hooks".into(), serde_json::json!({}))));
        bundle.create();
        let shown = bundle.ps();
        let supervisor = shown[0]["supervisor"].to_string();
        let killed = Command::new("kill").args(["-KILL", &supervisor]).status().unwrap();
        assert!(killed.success());
        until("its end", || !Path::new(&format!("/proc/{supervisor}/fd/0")).exists());
        let output = bundle.verb("start", &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("the container's supervisor is gone"), "{output:?}");
        works_again(&mut bundle);
    }
}
