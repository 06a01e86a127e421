//! Commands whose output is read line by line, with a limit.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Limit;
use verbgate_tests::exec;

use crate::lane;

/// How long the output of a process that it left behind may still come.
const DRAIN: Duration = Duration::from_secs(2);
/// How often it is looked which processes there are.
const LOOK: Duration = Duration::from_millis(500);

/// The cargo that runs us, in our workspace.
pub(crate) fn cargo() -> Command {
    let mut command = lane::command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    if verbgate_lab::may_install() {
        // Tests fetch engines.
        command.env(verbgate_lab::INSTALL, "1");
    }
    command
}

/// The root of the workspace.
pub(crate) fn workspace() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..")
}

/// Runs a command, hands on each line of its stdout and stderr as it comes, and tells whether it
/// succeeded. One whose limit is over is killed, and is an error; signs of progress are a line, and
/// a process below it that begins or ends, such as a compiler or a test.
pub(crate) fn lines(
    mut command: Command,
    limit: Limit,
    mut line: impl FnMut(&str),
) -> Result<bool> {
    let name = format!("{command:?}").replace('"', "");
    let (read, write) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(write.try_clone()?).stderr(write).process_group(0);
    let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let mut child = KillOnDrop(child);
    // It holds the pipe's other end.
    drop(command);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(read);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    let mut deadline = Instant::now() + limit.time();
    let mut ended = None;
    let mut family = Family::default();
    loop {
        let mut progress = false;
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(text) => {
                progress = true;
                line(&text);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if ended.is_none() {
            ended = child.0.try_wait()?;
            if ended.is_some() {
                deadline = Instant::now() + DRAIN;
            }
        }
        if ended.is_none() && matches!(limit, Limit::Silence(_)) {
            progress |= family.has_changed(child.0.id());
            if progress {
                deadline = Instant::now() + limit.time();
            }
        }
        if Instant::now() >= deadline {
            match (ended, limit) {
                (Some(_), _) => break,
                (None, Limit::Whole(time)) => bail!("{name} did not end in {} s", time.as_secs()),
                (None, Limit::Silence(time)) => {
                    bail!("{name} is stuck: no output for {} s", time.as_secs())
                }
            }
        }
    }
    let status = match ended {
        Some(status) => status,
        None => child.0.wait()?,
    };
    Ok(status.success())
}

/// The processes below one, looked at now and then: reading all of /proc takes milliseconds.
#[derive(Default)]
struct Family {
    known: BTreeSet<u32>,
    looked: Option<Instant>,
}

impl Family {
    fn has_changed(&mut self, root: u32) -> bool {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return false;
        }
        self.looked = Some(Instant::now());
        let now = exec::descendants(root).into_iter().collect();
        std::mem::replace(&mut self.known, now) != self.known
    }
}

/// What a short command prints; none if it is not there or fails.
pub(crate) fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// A process group that does not outlive its reader.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let pid = i32::try_from(self.0.id()).ok();
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_of_both_streams_come() {
        let mut seen = Vec::new();
        let limit = Limit::Whole(Duration::from_secs(20));
        let ok = lines(sh("echo a; echo b >&2; printf c; exit 3"), limit, |line| {
            seen.push(line.to_owned());
        });
        assert!(!ok.unwrap());
        assert_eq!(seen, ["a", "b", "c"]);
    }

    #[test]
    fn what_takes_too_long_is_killed() {
        let start = Instant::now();
        let limit = Duration::from_secs(1);
        for (limit, words) in
            [(Limit::Whole(limit), "did not end in 1 s"), (Limit::Silence(limit), "is stuck")]
        {
            let stuck = lines(sh("echo begun; sleep 60 & sleep 60"), limit, |_| {});
            let error = stuck.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(start.elapsed() < Duration::from_secs(40));
    }

    #[test]
    fn what_says_nothing_but_goes_on_may_go_on() {
        let start = Instant::now();
        let limit = Duration::from_secs(4);
        assert!(
            lines(sh("sleep 2; sleep 2; sleep 2; true"), Limit::Silence(limit), |_| {}).unwrap()
        );
        assert!(start.elapsed() > limit);
    }

    #[test]
    fn what_is_left_behind_is_not_waited_for() {
        let start = Instant::now();
        assert!(
            lines(sh("sleep 30 & exit 0"), Limit::Whole(Duration::from_secs(20)), |_| {}).unwrap()
        );
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}
