//! Programs that are started, waited for with a limit, and never left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io::Read;
use std::io::Seek;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::process::Pid;
use rustix::process::Signal;

/// How often a wait looks.
pub const TICK: Duration = Duration::from_millis(10);
/// Names the file by which the lab tells for how many milliseconds its machine was kept from its
/// processors.
const LOST: &str = "LAB_LOST";
/// How much of a program's output an error quotes.
const QUOTED_LINES: usize = 30;

/// A program that has been started. It, and what it has started, is killed when this is dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    // Files, not pipes: what a program leaves behind cannot keep a reader waiting.
    stdout: File,
    stderr: File,
    start: Instant,
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its command line.
    pub name: String,
    /// Its status as a shell gives it: 128+n for signal n.
    pub status: i32,
    /// What it wrote.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Ended {
    /// An error with all that is known, unless the status is this one.
    pub fn expect_status(self, status: i32) -> Result<Self> {
        if self.status != status {
            bail!("{} instead of {status}: {self}", self.status);
        }
        Ok(self)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ended with status {}", self.name, self.status)?;
        write!(f, "{}", Quoted("stdout", &self.stdout))?;
        write!(f, "{}", Quoted("stderr", &self.stderr))
    }
}

/// The end of an output under its name; nothing at all if it is empty.
#[derive(Debug)]
struct Quoted<'a>(&'a str, &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(what, text) = *self;
        let text = text.trim_end();
        if text.is_empty() {
            return Ok(());
        }
        let lines: Vec<&str> = text.lines().collect();
        let skipped = lines.len().saturating_sub(QUOTED_LINES);
        write!(f, "\n{what}:")?;
        if skipped > 0 {
            write!(f, " (without the first {skipped} lines)")?;
        }
        let mut shown = lines.iter().skip(skipped);
        shown.try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl Program {
    /// Starts it, without input, in a process group of its own.
    pub fn start(mut command: Command) -> Result<Self> {
        let name = command_line(&command);
        let (write_stdout, stdout) = output().context("cannot make a temporary file")?;
        let (write_stderr, stderr) = output().context("cannot make a temporary file")?;
        let start = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(write_stdout)
            .stderr(write_stderr)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start `{name}`"))?;
        Ok(Self { name, child, stdout, stderr, start })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.status()?.is_some())
    }

    /// Its status as a shell gives it, if it has ended.
    pub fn status(&mut self) -> Result<Option<i32>> {
        Ok(self.child.try_wait()?.map(shell_status))
    }

    /// What it has written to stdout so far.
    pub fn stdout_so_far(&mut self) -> Result<String> {
        content(&mut self.stdout)
    }

    /// The same of stderr.
    pub fn stderr_so_far(&mut self) -> Result<String> {
        content(&mut self.stderr)
    }

    /// For an error: what it has said so far, and where it is.
    pub fn describe(&mut self) -> Result<String> {
        let mut text = String::new();
        for (what, file) in [("stdout", &mut self.stdout), ("stderr", &mut self.stderr)] {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", Quoted(what, &content(file)?));
        }
        let tasks = where_it_waits(self.pid());
        Ok(format!("has said{text}\nand waits at{tasks}"))
    }

    /// Waits until it ends; one that takes longer than the limit is an error, and is killed.
    pub fn wait(mut self, limit: Duration) -> Result<Ended> {
        let mut deadline = Deadline::after(limit);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Ended {
                    name: self.name.clone(),
                    status: shell_status(status),
                    stdout: content(&mut self.stdout)?,
                    stderr: content(&mut self.stderr)?,
                    took: self.start.elapsed(),
                });
            }
            if deadline.is_over() {
                let (name, seconds) = (self.name.clone(), limit.as_secs());
                bail!("`{name}` did not end in {seconds} s; it {}", self.describe()?);
            }
            thread::sleep(TICK);
        }
    }

    /// Asks the process to end.
    pub fn terminate(&self) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        Ok(rustix::process::kill_process(pid.context("a process without a number")?, Signal::TERM)?)
    }

    /// Kills this process alone, and waits for it; what it started goes on.
    pub fn kill_alone(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Children first: once their parent is gone they are nobody's.
        for pid in descendants(self.child.id()) {
            kill(pid);
        }
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A moment by which something must have happened. In the lab it is put off by as long as the
/// machine below kept this one from its processors: under emulation, clocks run on meanwhile.
#[derive(Debug)]
pub struct Deadline {
    at: Instant,
    /// What was lost by the time for which `at` was computed.
    lost: Duration,
    tells: Option<PathBuf>,
}

impl Deadline {
    /// After so much time from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self::told_by(std::env::var_os(LOST).map(PathBuf::from), limit)
    }

    fn told_by(tells: Option<PathBuf>, limit: Duration) -> Self {
        Self { at: Instant::now() + limit, lost: lost(tells.as_deref()), tells }
    }

    /// Whether it is over.
    pub fn is_over(&mut self) -> bool {
        if Instant::now() < self.at {
            return false;
        }
        // Asked only now: the file is the host's, and reading it takes a millisecond.
        let lost = lost(self.tells.as_deref());
        self.at += lost.saturating_sub(self.lost);
        self.lost = lost;
        Instant::now() >= self.at
    }
}

/// What the lab says it lost so far; nothing elsewhere.
fn lost(file: Option<&Path>) -> Duration {
    let text = file.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    Duration::from_millis(text.trim().parse().unwrap_or(0))
}

/// Runs a program to its end.
pub fn run(command: Command, limit: Duration) -> Result<Ended> {
    Program::start(command)?.wait(limit)
}

/// Polls until it is so, or the limit is reached.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let mut deadline = Deadline::after(limit);
    while !is_so()? {
        if deadline.is_over() {
            bail!("waited {} s for {what}", limit.as_secs());
        }
        thread::sleep(TICK);
    }
    Ok(())
}

/// Kills a process, if it is there.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Sends a process a signal, if it is there.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// How many threads of a process are in a state (proc_pid_stat(5)).
pub fn threads_in_state(pid: u32, state: char) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.filter(|tid| stat(*tid).is_some_and(|(found, _)| found == state)).count()
}

/// Whether a process is there and not a corpse.
pub fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// The children of a process, and theirs.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid: Option<u32> = entry.file_name().to_str().and_then(|n| n.parse().ok());
        if let Some(pid) = pid
            && let Some((_, parent)) = stat(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let of_it = children.remove(&pid).unwrap_or_default();
        found.extend_from_slice(&of_it);
        next.extend(of_it);
    }
    found
}

/// State and parent.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

/// For an error about a program that hangs: each of its tasks, and what it waits for.
fn where_it_waits(root: u32) -> String {
    let mut text = String::new();
    for pid in std::iter::once(root).chain(descendants(root)) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |file: &str| {
                let text = fs::read_to_string(task.path().join(file)).unwrap_or_default();
                text.trim().to_owned()
            };
            let stack: Vec<String> = read("stack")
                .lines()
                .filter_map(|line| line.split_ascii_whitespace().nth(1))
                .filter_map(|frame| frame.split('+').next().map(ToOwned::to_owned))
                .take(6)
                .collect();
            text.push_str(&format!(
                "\ntask {} ({}) of {pid}: syscall {} {}",
                task.file_name().to_string_lossy(),
                read("comm"),
                read("syscall"),
                stack.join(" < ")
            ));
        }
    }
    text
}

/// A file without a name: one end to write and one to read, each with a position of its own.
fn output() -> std::io::Result<(File, File)> {
    let named = tempfile::NamedTempFile::new()?;
    let write = OpenOptions::new().append(true).open(named.path())?;
    Ok((write, named.reopen()?))
}

fn content(file: &mut File) -> Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn shell_status(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|w| w.to_string_lossy()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_put_off_by_what_the_machine_lost() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let limit = Duration::from_millis(200);
        let tells = Some(file.path().to_owned());
        fs::write(file.path(), "5000").unwrap();
        let (mut late, mut plain) =
            (Deadline::told_by(tells, limit), Deadline::told_by(None, limit));
        // Lost before is no reason; what is lost now is.
        fs::write(file.path(), "65000").unwrap();
        thread::sleep(limit);
        assert!(plain.is_over());
        assert!(!late.is_over() && late.at > Instant::now() + Duration::from_secs(50));
    }
}
