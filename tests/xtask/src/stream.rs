//! Commands of a run: cargo in our workspace, and output that is read line by line.

use std::io::BufRead;
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context as _;
use anyhow::Result;

/// The cargo that runs us, in our workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
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
/// succeeded.
pub(crate) fn lines(command: Command, line: impl FnMut(&str)) -> Result<bool> {
    attended(command, |_| (), line)
}

/// The same; `begun` gets the number of the command's process.
pub(crate) fn attended(
    mut command: Command,
    begun: impl FnOnce(u32),
    mut line: impl FnMut(&str),
) -> Result<bool> {
    let name = format!("{command:?}").replace('"', "");
    let (read, write) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(write.try_clone()?).stderr(write).process_group(0);
    let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let mut child = KillOnDrop(child);
    begun(child.0.id());
    // The command holds the pipe's other end.
    drop(command);
    let mut reader = BufReader::new(read);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
        line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    Ok(child.0.wait()?.success())
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
            let _ = self.0.wait();
        }
    }
}
