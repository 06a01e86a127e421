//! Signals and the terminal: `verbgate run` as a job of a shell.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;
use std::time::Instant;

use verbgate_wait::until;

use crate::common;
use crate::common::run_sh;

/// Starts a guest and waits for the line `ready`; the output that follows stays unread.
fn started(script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = run_sh(script)
        .stdout(Stdio::piped())
        // Not the test runner's: some of these signal their group.
        .process_group(0)
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

fn rest(mut out: impl Read) -> String {
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_session_from_outside_of_the_pid_namespace_is_no_hindrance() {
    if !common::is_root() {
        return;
    }
    // As under a container's first process: the session's leader has no number in here.
    let mut outside = Command::new("unshare");
    outside.args(["--pid", "--fork", "--mount-proc", common::verbgate(), "run", "--"]);
    let output = common::output(outside.args([
        "sh",
        "-c",
        "read -r _ _ _ _ _ sid _ </proc/$$/stat; echo $sid; exit 7",
    ]));
    assert_eq!(output.status.code(), Some(7), "{}", common::stderr(&output));
    assert_eq!(common::stdout(&output), "0");
}

#[test]
fn signals_to_the_supervisor_reach_the_program_once() {
    for name in ["TERM", "INT", "HUP", "USR1", "QUIT"] {
        let script = format!(
            "n=0; trap 'n=$((n+1))' {name}; echo ready; \
             while [ $n = 0 ]; do sleep 0.05; done; sleep 0.2; echo $n; exit 9"
        );
        let (mut child, out) = started(&script);
        signal(&child, name);
        assert_eq!(rest(out), "1\n", "{name}");
        assert_eq!(child.wait().unwrap().code(), Some(9));
    }
}

#[test]
fn a_program_without_a_handler_dies_and_the_code_says_so() {
    let (mut child, _out) = started("echo ready; exec sleep infinity");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn a_guest_that_signals_its_group_gets_it_once() {
    let script = "n=0; trap 'n=$((n+1))' USR1; echo ready; kill -USR1 0; sleep 0.2; echo $n";
    let (mut child, out) = started(script);
    assert_eq!(rest(out), "1\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_killed_supervisor_leaves_the_program_running() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let (mut child, _out) =
        started(&format!("echo ready; sleep 0.3; echo on > {}", mark.display()));
    signal(&child, "KILL");
    child.wait().unwrap();
    until("the program's end", || fs::read_to_string(&mark).is_ok_and(|text| text == "on\n"));
}

#[test]
fn a_stop_by_pid_does_not_stop_the_supervisor() {
    // Without a shell above, nothing would continue it.
    let (mut child, out) = started(
        "echo ready; (while sleep 0.3; do kill -CONT $$; done) & kill -TSTP $$; echo on; kill $!",
    );
    assert_eq!(rest(out), "on\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_shell_stops_continues_and_interrupts_it() {
    if !common::has("script") || !common::has("bash") {
        return;
    }
    let shell = Command::new("script")
        .args(["-qec", "bash --norc --noprofile -i", "/dev/null"])
        .env("PS1", "$ ")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut typist = Typist::at(shell);
    let run = format!(
        "{} run --device {} -- sh -c 'trap \"echo INT; exit 4\" INT; echo on; read x; echo got $x; \
         while :; do sleep 0.05; done'\n",
        common::verbgate(),
        common::NULL_AS_UVERBS
    );
    let ends_with = |end: &'static str| move |line: &str| line.ends_with(end);
    typist.enters(&run, ends_with("on"));
    typist.enters("\x1a", |line| line.contains("Stopped")); // Ctrl-Z
    typist.enters("jobs; echo state=$?\n", ends_with("state=0"));
    // The shell says what it continues.
    typist.enters("fg\n", |line| line.contains(" run --device "));
    typist.enters("word\n", ends_with("got word")); // read from the terminal
    typist.enters("\x03", ends_with("INT")); // Ctrl-C
    typist.enters("echo code=$?\n", ends_with("code=4"));
    typist.enters("exit\n", |line| line.ends_with("exit"));
    assert!(typist.shell.wait().unwrap().success());
}

/// Who types at a shell, one thing after the other.
struct Typist {
    shell: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Typist {
    fn at(mut shell: Child) -> Self {
        let lines = BufReader::new(shell.stdout.take().unwrap());
        Self { shell, lines }
    }

    /// Types, and reads on until the answer. The test's own limit is that of an answer that does not come.
    fn enters(&mut self, keys: &str, is_answer: impl Fn(&str) -> bool) {
        self.shell.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        let mut text = String::new();
        loop {
            let mut line = Vec::new();
            assert!(self.lines.read_until(b'\n', &mut line).unwrap() > 0, "after {keys:?}: {text}");
            let line = String::from_utf8_lossy(&line);
            text += &line;
            if is_answer(line.trim_end()) {
                return;
            }
        }
    }
}

/// A guest that does this at SIGTERM, and nothing else.
fn stays(at_sigterm: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    started(&format!("trap '{at_sigterm}' TERM; echo ready; while :; do sleep 0.1; done"))
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_after_a_while() {
    let (mut child, _out) = stays("");
    let begun = Instant::now();
    signal(&child, "TERM");
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 9));
    assert!(begun.elapsed().as_secs() >= 2, "after {:?}", begun.elapsed());
}

/// A shell blocks all signals while it starts a program: four of six such shells stayed for ever.
#[test]
fn a_shell_that_blocks_signals_for_moments_is_killed_as_well() {
    let script = "trap '' TERM; echo ready; while :; do /bin/true; done";
    let mut all: Vec<(Child, _)> = (0..4).map(|_| started(script)).collect();
    all.iter().for_each(|(child, _)| signal(child, "TERM"));
    for (child, _) in &mut all {
        assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
    }
}

#[test]
fn a_program_that_handles_sigterm_has_its_time_until_another_comes() {
    let asked_twice = || {
        let (mut child, mut out) = stays("echo asked");
        let begun = Instant::now();
        signal(&child, "TERM");
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "asked\n");
        // A second signal at once means the same.
        signal(&child, "TERM");
        if begun.elapsed() < Duration::from_secs(1) {
            return Some((child, out));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        None
    };
    let (mut child, _out) = until("two signals at once", asked_twice);
    sleep(Duration::from_millis(4500));
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
}
