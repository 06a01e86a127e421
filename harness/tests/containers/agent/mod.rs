//! `verbgate agent`: containers of crun and runc that were given a seccomp profile and nothing else.

mod tenants;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use tempfile::TempDir;
use verbgate_wait::until;

use crate::common::NULL_AS_UVERBS;
use crate::common::bundle;
use crate::common::bundle::Bundle;
use crate::common::bundle::Runtime;
use crate::common::bundle::runtimes;
use crate::common::guest;
use crate::common::guest::DEVICE;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::oci::storm;

/// A running agent.
struct Agent {
    dir: TempDir,
    process: Child,
}

impl Agent {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Self {
        Self::of(Path::new(verbgate()), options)
    }

    /// The agent of another file than the tests' own.
    fn of(program: &Path, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let process = Command::new(program)
            .arg("--root")
            .arg(dir.path())
            .args(["agent", "--stand-in", NULL_AS_UVERBS])
            .args(options)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let agent = Self { dir, process };
        // Its mode is the last that it changes.
        until("its socket", || {
            fs::metadata(agent.socket())
                .is_ok_and(|meta| meta.permissions().mode() & 0o777 == 0o600)
        });
        agent
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn profile(&self, options: &[&str]) -> Value {
        let output = Command::new(verbgate())
            .args(["oci", "profile", "--listener"])
            .arg(self.socket())
            .args(options)
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    fn containers(&self) -> Vec<Value> {
        let output = Command::new(verbgate())
            .arg("--root")
            .arg(self.dir.path())
            .args(["ps", "--json"])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    /// A container of this profile.
    fn bundle(&self, runtime: &'static Runtime, args: &[&str]) -> Bundle {
        let mut bundle = Bundle::new(runtime, args);
        bundle.edit(|config| config["linux"]["seccomp"] = self.profile(&[]));
        bundle
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        if std::thread::panicking() {
            eprintln!("the agent: {}", self.log());
        }
    }
}

fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    stdout(output)
}

/// What a container says that makes requests, good and bad ones; the container's supervisor is gone then.
fn answers(
    agent: &Agent,
    runtime: &'static Runtime,
    edit: impl FnOnce(&mut Map<String, Value>),
) -> String {
    let mut bundle = agent.bundle(runtime, &["/guest", "errors", DEVICE]);
    bundle.bind(guest::program(), "/guest");
    bundle.edit(edit);
    let text = ok(&bundle.run_natively());
    assert!(text.contains("good: ENOTTY"), "{text}\n{}", agent.log());
    until("its supervisor's end", || agent.containers().is_empty());
    text
}

#[test]
fn requests_of_a_container_with_the_profile_are_served() {
    let agent = Agent::start();
    for runtime in runtimes() {
        let text = answers(&agent, runtime, |_| ());
        for line in ["method not granted: EPROTONOSUPPORT", "QP type granted: ENOTTY"] {
            assert!(text.contains(line), "{text}\n{}", agent.log());
        }
    }
    assert!(!agent.log().contains("error"), "{}", agent.log());
}

#[test]
fn an_agent_serves_after_an_upgrade_has_replaced_its_program() {
    let dir = tempfile::tempdir().unwrap();
    let [installed, next] = ["verbgate", "verbgate.new"].map(|name| dir.path().join(name));
    fs::copy(verbgate(), &installed).unwrap();
    let agent = Agent::of(&installed, &[]);
    // As a package's upgrade does it; nobody needs the new one yet.
    fs::write(&next, "").unwrap();
    fs::rename(&next, &installed).unwrap();
    for runtime in runtimes() {
        answers(&agent, runtime, |_| ());
    }
    assert!(!agent.log().contains("error"), "{}", agent.log());
}

#[test]
fn a_container_with_the_engines_default_capabilities_is_served_and_warned_of() {
    let agent = Agent::start();
    for runtime in runtimes() {
        answers(&agent, runtime, |config| {
            let all = config["process"]["capabilities"]["bounding"].as_array_mut().unwrap();
            all.push("CAP_NET_RAW".into());
        });
        let log = agent.log();
        let warned = |line: &str| line.contains("CAP_NET_RAW") && line.contains("--cap-drop");
        assert!(log.lines().any(warned), "{log}");
    }
}

#[test]
fn what_is_executed_later_is_served_by_the_same_supervisor() {
    let agent = Agent::start();
    for runtime in runtimes() {
        let bundle = agent.bundle(runtime, &["sleep", "infinity"]);
        bundle.natively("create", &["--bundle", bundle.path().to_str().unwrap()], &[]);
        ok(&bundle.natively("start", &[], &[]));
        until("its start", || agent.containers().first().is_some_and(|one| one["started"] == true));
        let script = "exec 3<>/dev/infiniband/uverbs9 && echo opened; exit 7";
        let output = bundle.natively("exec", &[], &["sh", "-c", script]);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("opened", Some(7)));
        assert_eq!(agent.containers().len(), 1);
        bundle.natively("delete", &["--force"], &[]);
        until("its supervisor's end", || agent.containers().is_empty());
    }
    assert_eq!(agent.log(), "");
}

/// What one was granted, the next of its name is not.
#[test]
fn a_container_of_the_same_name_is_another_one() {
    let agent = Agent::start();
    for runtime in runtimes() {
        let mut bundle = agent.bundle(runtime, &["sh", "-c", "exec 3<>/dev/infiniband/uverbs9"]);
        for _ in 0..5 {
            ok(&bundle.run_natively());
        }
        bundle.edit(|config| drop(config.remove("annotations")));
        assert!(!bundle.run_natively().status.success());
        bundle.edit(|config| {
            config.insert("annotations".into(), json!({"org.verbgate.devices": "uverbs9"}));
        });
        ok(&bundle.run_natively());
    }
    assert_eq!(agent.log(), "");
}

#[test]
fn signals_and_new_programs_are_survived() {
    let agent = Agent::start();
    for runtime in runtimes() {
        for (name, lines) in [
            ("signals", vec!["restarting: ENOTTY 5000; signals came: true"]),
            ("stops-at-first", vec![r#"{"Code(0)": 60}"#]),
            ("executes", vec!["first program: ENOTTY", "ENOTTY with 1 stubs"]),
            ("becomes", vec!["before: ENOTTY", "after: ENOTTY"]),
        ] {
            let mut bundle = agent.bundle(runtime, &["/guest", name, DEVICE]);
            bundle.bind(guest::program(), "/guest");
            let text = ok(&bundle.run_natively());
            for line in lines {
                assert!(text.lines().any(|known| known == line), "{name}: {text}");
            }
        }
    }
}

#[test]
fn other_programs_run_under_the_profile_as_without() {
    let agent = Agent::start();
    let script = "id -u; dd if=/dev/zero of=/tmp/f bs=1M count=8 2>&1 | tail -1 | cut -d, -f1; \
                  perl -e '$x = \"a\" x (5 << 30 >> 8); print length $x'";
    for runtime in runtimes() {
        let without = Bundle::new(runtime, &["sh", "-c", script]);
        let with = agent.bundle(runtime, &["sh", "-c", script]);
        assert_eq!(ok(&with.run_natively()), ok(&without.run_natively()));
    }
}

#[test]
fn a_container_that_cannot_be_served_says_why_in_the_log() {
    type Edit = fn(&mut bundle::Object);
    let cases: [(&str, Edit); 6] = [
        ("org.verbgate.netdevs", |c| c["annotations"]["org.verbgate.netdevs"] = "eth1".into()),
        ("linux.resources.devices", |c| {
            c["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
        }),
        ("CAP_SYS_ADMIN", |c| {
            c["process"]["capabilities"]["bounding"] = json!(["CAP_SYS_ADMIN"]);
        }),
        ("mlx5_77", |c| c["annotations"]["org.verbgate.devices"] = "mlx5_77".into()),
        ("org.verbgate.profile", |c| c["annotations"]["org.verbgate.profile"] = "full".into()),
        ("print the profile again", |c| c["linux"]["seccomp"]["listenerMetadata"] = "{}".into()),
    ];
    for runtime in runtimes() {
        for (needle, edit) in &cases {
            let agent = Agent::start();
            let mut bundle = agent.bundle(runtime, &["sh", "-c", "exec 3<>/tmp/x && echo reached"]);
            bundle.edit(edit);
            let output = bundle.run_natively();
            assert_eq!(stdout(&output), "", "{output:?}");
            until("a line of the log", || agent.log().contains(needle));
            assert_eq!(agent.log().lines().count(), 1, "{}", agent.log());
        }
    }
}

#[test]
fn a_container_that_asks_for_nothing_runs_and_has_nothing() {
    let agent = Agent::start();
    for runtime in runtimes() {
        let script =
            "echo x <>/tmp/x && (exec 3<>/dev/infiniband/uverbs9) 2>/dev/null || echo none";
        let mut bundle = agent.bundle(runtime, &["sh", "-c", script]);
        bundle.edit(|config| drop(config.remove("annotations")));
        assert_eq!(ok(&bundle.run_natively()), "x\nnone");
    }
}

#[test]
fn nonsense_from_a_runtime_is_one_line_of_the_log() {
    let agent = Agent::start();
    for (at, text) in ["{\"fds\": 1}", "xxx"].iter().enumerate() {
        UnixStream::connect(agent.socket()).unwrap().write_all(text.as_bytes()).unwrap();
        until("a line of the log", || agent.log().lines().count() == at + 1);
    }
    assert_eq!(agent.log().matches("not a container process state").count(), 2, "{}", agent.log());
    let second = Command::new(verbgate()).arg("agent").arg("--socket").arg(agent.socket()).output();
    let second = second.unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("another agent listens"), "{second:?}");
}

#[test]
fn a_thousand_processes_of_an_agents_container_are_served_at_once() {
    let agent = Agent::start();
    for runtime in runtimes().take(1) {
        let mut bundle = agent.bundle(runtime, &[]);
        storm::storm(&mut bundle, ["1000", "1", "1"]);
        storm::assert_served(&bundle.run_natively(), "1000");
    }
}

#[test]
fn an_agent_outlives_a_shortage_of_descriptors() {
    let agent = Agent::start();
    let pid = rustix::process::Pid::from_child(&agent.process);
    let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = |current| {
        let limits = rustix::process::Rlimit { current, maximum };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limits).unwrap();
    };
    limit(Some(16));
    let silent: Vec<_> = (0..32).filter_map(|_| UnixStream::connect(agent.socket()).ok()).collect();
    until("the shortage", || agent.log().contains("cannot accept connections of runtimes now"));
    limit(maximum);
    // Runtimes do not wait for the silent connections, either.
    for runtime in runtimes().take(1) {
        let text = answers(&agent, runtime, |_| ());
        assert!(text.contains("QP type granted: ENOTTY"), "{text}");
    }
    drop(silent);
}

#[test]
fn connections_that_tell_nothing_have_a_bound() {
    let agent = Agent::start();
    let silent: Vec<_> = (0..260).map(|_| UnixStream::connect(agent.socket()).unwrap()).collect();
    let told = |words: &str| agent.log().matches(words).count();
    until("the end of those beyond the bound", || told("have connected and told nothing") == 4);
    drop(silent);
    until("the end of the others", || told("not a container process state") == 256);
    for runtime in runtimes().take(1) {
        assert!(answers(&agent, runtime, |_| ()).contains("QP type granted: ENOTTY"));
    }
}

/// As systemd starts it: the socket is there before the agent, and it says when it is ready.
#[test]
fn a_socket_is_taken_over_and_readiness_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let notified = std::os::unix::net::UnixDatagram::bind(dir.path().join("notify")).unwrap();
    notified.set_nonblocking(true).unwrap();
    let passed = std::os::unix::net::UnixListener::bind(dir.path().join("passed")).unwrap();
    // Of the shell, because its process id is told to whom it becomes.
    let mut process = Command::new("sh")
        .args(["-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0", "sh", verbgate(), "--root"])
        .arg(dir.path())
        .arg("agent")
        .env("NOTIFY_SOCKET", dir.path().join("notify"))
        .stdin(std::os::fd::OwnedFd::from(passed))
        .stderr(fs::File::create(dir.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut word = [0; 64];
    let len = until("readiness", || notified.recv(&mut word).ok());
    assert_eq!(String::from_utf8_lossy(&word[..len]).trim(), "READY=1");
    UnixStream::connect(dir.path().join("passed")).unwrap().write_all(b"x").unwrap();
    let log = || fs::read_to_string(dir.path().join("log")).unwrap();
    until("a line of the log", || log().contains("process state"));
    assert!(!dir.path().join("agent.sock").exists());
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Why `write` is in the profile only if it is wanted: the runtimes differ.
#[test]
fn crun_takes_rules_about_write_and_runc_refuses_them() {
    let agent = Agent::start();
    for runtime in runtimes() {
        let mut bundle = Bundle::new(runtime, &["/guest", "errors", DEVICE]);
        bundle.bind(guest::program(), "/guest");
        bundle.edit(|config| config["linux"]["seccomp"] = agent.profile(&["--write"]));
        let output = bundle.run_natively();
        if runtime.name == "crun" {
            assert!(ok(&output).contains("good: ENOTTY"));
        } else {
            assert!(stderr(&output).contains("cannot be used for the write syscall"), "{output:?}");
        }
    }
}
