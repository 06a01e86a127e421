//! Other programs, found by name, logged, never silent for long, and clear when they fail.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::elapsed::seconds;
use crate::progress::Progress;

/// How often long work says that it is still alive.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How many lines of a log an error quotes.
const QUOTED_LINES: usize = 15;
/// How much of a line it quotes: apt prints command lines of many kilobytes.
const QUOTED_WIDTH: usize = 400;
/// Where system tools live that are not in everybody's `PATH`.
const SYSTEM_PATH: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where `program` is, in `PATH` or among the system's tools.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_PATH.iter().map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// A command of `program`, with the C locale (its output is parsed) and nothing on stdin.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)));
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command
}

/// Runs to the end and gives stdout; a failure quotes stderr.
pub(crate) fn capture(command: &mut Command) -> Result<Vec<u8>> {
    let name = name(command);
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} failed ({}): {}",
            output.status,
            tail(&String::from_utf8_lossy(&output.stderr), QUOTED_LINES)
        );
    }
    Ok(output.stdout)
}

/// [`capture`], as text.
pub(crate) fn capture_text(command: &mut Command) -> Result<String> {
    String::from_utf8(capture(command)?)
        .with_context(|| format!("{} printed something that is not UTF-8", name(command)))
}

/// Runs to the end with all output in the file `log`; says now and then that it still runs. A
/// failure quotes the log's end.
pub(crate) fn run_logged(
    command: &mut Command,
    what: &str,
    log: &Path,
    progress: &Progress,
) -> Result<()> {
    let name = name(command);
    let out = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let err = out.try_clone()?;
    let mut child =
        command.stdout(out).stderr(err).spawn().with_context(|| format!("cannot run {name}"))?;
    let start = Instant::now();
    let mut said = start;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if said.elapsed() >= HEARTBEAT {
            said = Instant::now();
            progress.say(&format!("  still {what} ({})", seconds(start.elapsed())));
        }
        thread::sleep(Duration::from_millis(50));
    };
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    bail!(
        "{what}: {name} failed ({status}). The last lines of output:\n{}",
        tail(&text, QUOTED_LINES)
    )
}

/// The last `count` lines, the long ones cut.
pub(crate) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let cut = |line: &&str| line.chars().take(QUOTED_WIDTH).collect::<String>();
    let last = lines.iter().skip(lines.len().saturating_sub(count));
    last.map(cut).collect::<Vec<_>>().join("\n")
}

fn name(command: &Command) -> String {
    Path::new(command.get_program())
        .file_name()
        .unwrap_or(OsStr::new("?"))
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
        assert_eq!(tail("", 5), "");
    }

    #[test]
    fn a_failure_quotes_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let error = run_logged(
            command("sh").args(["-c", "echo no luck; exit 3"]),
            "trying",
            &log,
            &Progress::silent(),
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("trying") && error.contains("no luck") && error.contains('3'),
            "{error}"
        );
    }
}
