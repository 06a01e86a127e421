//! `verbgate run` as a command: exit codes, streams, leftovers, errors.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::process::Stdio;

use crate::common;
use crate::common::code;
use crate::common::output;
use crate::common::run;
use crate::common::run_sh;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

#[test]
fn the_exit_code_is_the_programs() {
    assert_eq!(code(&mut run(&["true"])), 0);
    assert_eq!(code(&mut run_sh("exit 3")), 3);
    assert_eq!(code(&mut run_sh("kill -TERM $$")), 128 + 15);
    assert_eq!(code(&mut run_sh("kill -KILL $$")), 128 + 9);
}

#[test]
fn programs_that_cannot_be_run_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cases = [
        ("no-such-program".to_owned(), 127),
        ("/no/such/program".to_owned(), 127),
        (file("no-interpreter", "#!/no/such/sh\n", 0o755), 127),
        (file("data", "hello\n", 0o644), 126),
        (file("no-format", "hello\n", 0o755), 126),
        (dir.path().to_str().unwrap().to_owned(), 126),
    ];
    for (program, expected) in cases {
        let output = output(&mut run(&[&program]));
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(expected), "{program}: {line}");
        assert!(line.starts_with("verbgate: ") && line.contains(&program), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn failures_of_its_own_are_125_and_one_line() {
    let cases: [(&[&str], &str); 5] = [
        (&["run", "--device", "no-such0", "--", "true"], "no-such0"),
        (&["run", "--device", "uverbs9=/tmp", "--", "true"], "character device"),
        (&["run", "--netns", "/no/such/ns", "--", "true"], "/no/such/ns"),
        (&["run", "--nonsense", "--", "true"], "--nonsense"),
        (&["run"], "CMD"),
    ];
    for (args, needle) in cases {
        let output = output(Command::new(verbgate()).args(args));
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {line}");
        assert!(line.starts_with("verbgate: ") && line.contains(needle), "{line}");
        assert_eq!(line.lines().filter(|l| !l.contains("warn")).count(), 1, "{line}");
    }
    assert_eq!(code(Command::new(verbgate()).arg("nonsense")), 2);
    for args in [&[][..], &["cdi"][..], &["fabric"][..]] {
        let output = output(Command::new(verbgate()).args(args));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains("a command is missing"), "{}", stderr(&output));
    }
    assert_eq!(code(Command::new(verbgate()).args(["features", "--nonsense"])), 2);
    assert_eq!(code(Command::new(verbgate()).args(["run", "--help"])), 0);
}

#[test]
fn streams_are_the_programs() {
    let mut child = run(&["sh", "-c", "tr a-z A-Z; echo talk >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"HELLO");
    assert_eq!(output.stderr, b"talk\n");
}

#[test]
fn the_program_starts_as_it_would_without() {
    let dir = tempfile::tempdir().unwrap();
    let script = "pwd; echo $MARK; umask; ulimit -a; \
                  grep -E '^(SigBlk|SigIgn|NoNewPrivs)' /proc/self/status";
    let shell = || {
        let mut native = Command::new("sh");
        native.args(["-c", script]);
        native
    };
    let both = [shell(), run_sh(script)].map(|mut command| {
        let command = command.current_dir(dir.path()).env("MARK", "kept").stdin(Stdio::null());
        stdout(&output(command))
    });
    assert_eq!(both[0], both[1]);
    assert!(both[0].contains("kept"), "{}", both[0]);
}

#[test]
fn renames_and_links_across_directories_work() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mkdir a b && echo x > a/f && ln a/f b/g && mv -T a/f b/f && cat b/f b/g";
    let output = output(run_sh(script).current_dir(dir.path()));
    assert_eq!(stdout(&output), "x\nx", "{}", stderr(&output));
}

#[test]
fn what_the_program_leaves_behind_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    // A child of a child in another session, which would write later; its parents are gone.
    let script = "(setsid sh -c 'echo $$ > pid; sleep infinity' </dev/null >/dev/null 2>&1 &) \
                  ; while ! [ -s pid ]; do sleep 0.01; done; exit 5";
    assert_eq!(code(run_sh(script).current_dir(dir.path())), 5);
    let pid = fs::read_to_string(dir.path().join("pid")).unwrap();
    assert!(!fs::exists(format!("/proc/{}", pid.trim())).unwrap());
}

#[test]
fn a_program_that_forks_and_dies_is_killed_to_its_last() {
    // Each generation leaves two: a race with the killer, which must win.
    let script = "f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 77.25; }; \
                  f 4 & sleep 0.2; exit 0";
    assert_eq!(code(run_sh(script).stdout(Stdio::null())), 0);
    let left = output(Command::new("pgrep").args(["-fx", "sleep 77.25"]));
    assert_eq!(stdout(&left), "");
}

#[test]
fn a_tracer_around_it_is_told_where_to_go() {
    if !common::has("strace") {
        return;
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", verbgate(), "run"]);
    let output = output(command.args(["--device", common::NULL_AS_UVERBS, "--", "true"]));
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(stderr(&output).contains("verbgate trace"), "{}", stderr(&output));
}

#[test]
fn one_inside_another_is_refused_with_the_reason() {
    let inner = [verbgate(), "run", "--device", common::NULL_AS_UVERBS, "--", "true"];
    let output = output(&mut run(&inner));
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let stderr = stderr(&output);
    assert!(stderr.contains("inside another"), "{stderr}");
}

/// A program that asked for RDMA and leaves the device aside: it is ended, and the journal has the
/// audit's line, with the tenant of the operator's policy or else with the user.
#[test]
fn a_program_without_queue_pairs_is_ended_if_rdma_is_required_and_the_journal_hears() {
    if !common::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy");
    fs::create_dir(&policy).unwrap();
    let text = "version = 1\n[tenant.own]\nmatch.uid = 0\nprofile = \"standard\"\n\
                devices = [{ name = \"uverbs9\" }]\n";
    fs::write(policy.join("own.toml"), text).unwrap();
    let journal = UnixDatagram::bind(dir.path().join("socket")).unwrap();
    journal.set_nonblocking(true).unwrap();
    let inside = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                  mount --bind $1 /run/systemd/journal && shift && exec \"$@\"";
    for (policy, tenant) in [(policy, "own"), (dir.path().join("none"), "uid 0")] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", inside, "sh"]).arg(dir.path());
        command.args([verbgate(), "run", "--audit", "journald", "--require-rdma"]);
        command.args(["--rdma-within", "1", "--policy-dir"]).arg(policy);
        command.args(["--device", common::NULL_AS_UVERBS, "--", "sleep", "infinity"]);
        let ended = output(&mut command);
        assert_eq!(ended.status.code(), Some(128 + 9), "{ended:?}");
        assert!(stderr(&ended).contains("verbgate ends it (--require-rdma)"), "{ended:?}");
        let mut bytes = [0; 4096];
        let length = verbgate_wait::until("the event", || journal.recv(&mut bytes).ok());
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let message = text.strip_prefix("SYSLOG_IDENTIFIER=verbgate-audit\nPRIORITY=5\nMESSAGE=");
        let event: serde_json::Value =
            serde_json::from_str(message.unwrap().strip_suffix('\n').unwrap()).unwrap();
        assert_eq!((&event["event"], &event["tenant"]), (&"rdma_unused".into(), &tenant.into()));
        assert!(event["remedy"].is_string() && event["ended"] == true, "{event}");
    }
}

#[test]
fn features_are_json_on_request() {
    let output = output(Command::new(verbgate()).args(["features", "--json"]));
    assert!(output.status.success());
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["kernel_features"].as_array().is_some_and(|a| a.len() > 10));
    assert!(value["devices"].is_array());
}
