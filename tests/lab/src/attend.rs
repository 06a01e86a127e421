//! Attendance of a running machine: its output is passed on, and its limit kept.

use std::fmt;
use std::io::Read as _;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;

use crate::pace::Limit;
use crate::pace::Pace;
use crate::pace::Patience;

/// How often a run looks at its limit and its machine.
const TICK: Duration = Duration::from_millis(100);
/// How often the pace of the machine is measured.
const MEASURE: Duration = Duration::from_secs(1);
/// How long a machine that has reported its status may take to power off.
const POWER_OFF: Duration = Duration::from_secs(15);
/// The file by which the guest reports its command's status.
pub(crate) const STATUS: &str = "status";

/// How the attendance ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attended {
    /// Whether the machine ended by itself, and not by its limit.
    pub ended: bool,
    /// How long it ran.
    pub elapsed: Duration,
    /// How much of this it waited for a processor.
    pub lost: Duration,
}

/// Starts a machine's command and copies its output until it ends or its limit is used up; then it
/// is killed. Output is the sign of progress: a console is not, because a kernel in which nothing
/// goes on complains of that for ever.
///
/// `control` is the run's folder of files that the guest reads and writes: when `status` appears, the machine has some
/// seconds to power off. The machine reads the lines of `input`, and is killed when nobody can send any more.
pub fn attend(
    mut command: Command,
    control: &Path,
    limit: Limit,
    input: Option<&Receiver<String>>,
    output: &mut dyn Write,
) -> Result<Attended> {
    let start = Instant::now();
    let mut child = KillOnDrop(command.spawn().context("cannot start the lab's machine")?);
    let mut pipe = child.0.stdout.take().context("the lab's machine has no output")?;
    // Kept open without input, too: at its end QEMU would close the output port.
    let mut stdin = child.0.stdin.take();
    let (sender, chunks) = mpsc::channel();
    // Ends when the machine closes its end, which it does when it is killed.
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count) = pipe.read(&mut buffer) {
            match buffer.get(..count) {
                Some(bytes) if !bytes.is_empty() && sender.send(bytes.to_vec()).is_ok() => {}
                _ => break,
            }
        }
    });
    let (mut pace, mut patience) = (Pace::default(), Patience::new(limit));
    let mut measured = Duration::ZERO;
    let mut powering_off = None;
    let mut open = true;
    loop {
        if open {
            match chunks.recv_timeout(TICK) {
                Ok(chunk) => {
                    patience.progress(&pace);
                    output
                        .write_all(&chunk)
                        .and_then(|()| output.flush())
                        .context("cannot pass on the guest's output")?;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        } else if child.0.try_wait()?.is_some() {
            return Ok(Attended { ended: true, elapsed: start.elapsed(), lost: pace.lost() });
        } else {
            thread::sleep(Duration::from_millis(5));
        }
        match (input.map(Receiver::try_recv), &mut stdin) {
            (Some(Ok(line)), Some(stdin)) => {
                // A machine that has died says so below.
                let _ = writeln!(stdin, "{line}");
                patience.progress(&pace);
            }
            (Some(Err(TryRecvError::Disconnected)), _) => {
                return Ok(Attended { ended: false, elapsed: start.elapsed(), lost: pace.lost() });
            }
            _ => {}
        }
        let elapsed = start.elapsed();
        if elapsed >= measured + MEASURE {
            measured = elapsed;
            pace.look(child.0.id(), elapsed);
        }
        // The work is done: a machine that cannot power off is not waited for.
        if powering_off.is_none() && control.join(STATUS).exists() {
            powering_off = Some(pace.counted());
        }
        let is_over = match powering_off {
            Some(since) => pace.counted().saturating_sub(since) >= POWER_OFF,
            None => patience.is_over(&pace),
        };
        if is_over {
            return Ok(Attended { ended: false, elapsed, lost: pace.lost() });
        }
    }
}

/// A machine that does not outlive its run.
#[derive(Debug)]
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The machine ended before its command did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MachineDied {
    /// The guest's kernel died of a breakpoint that it had set in order to change its own code
    /// (arch/x86/kernel/alternative.c, `text_poke_bp`) and had taken away: QEMU's translator can run
    /// code that it has translated before the change. Processors do not.
    OfStaleCode,
    /// For another reason: the console may tell.
    OfItself,
}

impl fmt::Display for MachineDied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OfStaleCode => {
                "the emulator ran code that the guest's kernel had changed; run the command again"
            }
            Self::OfItself => "the lab's machine ended before its command did",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Stdio;

    use super::*;

    fn run(script: &str, limit: Limit) -> (Attended, String) {
        let control = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut output = Vec::new();
        let attended = attend(command, control.path(), limit, None, &mut output).unwrap();
        (attended, String::from_utf8(output).unwrap())
    }

    #[test]
    fn what_goes_on_slowly_goes_on() {
        let script = "for i in 1 2 3 4 5 6 7; do echo $i; sleep 1; done";
        let (attended, said) = run(script, Limit::Silence(Duration::from_secs(5)));
        assert!(attended.ended && attended.elapsed > Duration::from_secs(5), "{attended:?}");
        assert_eq!(said, "1\n2\n3\n4\n5\n6\n7\n");
    }

    #[test]
    fn what_hangs_is_killed_and_what_it_said_is_kept() {
        for limit in [Limit::Silence(Duration::from_secs(2)), Limit::Whole(Duration::from_secs(2))]
        {
            let (attended, said) = run("echo begun; exec sleep infinity", limit);
            assert!(!attended.ended, "{attended:?}");
            assert_eq!(said, "begun\n");
        }
    }

    #[test]
    fn a_machine_that_has_reported_may_power_off() {
        let control = tempfile::tempdir().unwrap();
        fs::write(control.path().join(STATUS), "0").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 2; echo off"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let limit = Limit::Whole(Duration::from_millis(500));
        let mut output = Vec::new();
        let attended = attend(command, control.path(), limit, None, &mut output).unwrap();
        assert!(attended.ended && output == b"off\n", "{attended:?}");
    }
}
