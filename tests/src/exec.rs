//! Programs that are started, waited for, and never left behind.

use std::fmt;
use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io::Read;
use std::io::Seek;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::process::Pid;
use rustix::process::Signal;
pub use verbgate_wait::TICK;
use verbgate_wait::Wait;
pub use verbgate_wait::descendants;
pub use verbgate_wait::is_alive;
pub use verbgate_wait::kill;
pub use verbgate_wait::signal;
pub use verbgate_wait::threads_in_state;

/// How long nothing happens before a wait gives up: drivers give a device a minute for each command, and the
/// connection manager gives a peer as much.
const QUIET: Duration = Duration::from_secs(150);
/// The processor time of a program with all that it starts, on emulated processors: these count the time, too, in
/// which others are on the processors below.
const USUAL: Duration = Duration::from_secs(120);
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

    /// The output so far, for an error.
    pub fn describe(&mut self) -> Result<String> {
        let (stdout, stderr) = (self.stdout_so_far()?, self.stderr_so_far()?);
        Ok(format!("has said{}{}", Quoted("stdout", &stdout), Quoted("stderr", &stderr)))
    }

    /// Waits for its end; a program that does nothing any more is an error, and is killed.
    pub fn wait(self) -> Result<Ended> {
        self.wait_usually(USUAL)
    }

    /// Waits for the end of a program that usually takes so much processor time.
    pub fn wait_usually(mut self, usual: Duration) -> Result<Ended> {
        let wait = wait_for(&format!("the end of `{}`", self.name));
        // `rping` may hang, and is run again then (`pair::by_manager`).
        let wait = if self.name.contains("rping ") { wait.quiet(QUIET / 10) } else { wait };
        let status = match wait.usual(usual).try_until(|| anyhow::Ok(self.child.try_wait()?)) {
            Ok(status) => shell_status(status),
            Err(error) => return Err(error.context(format!("the program {}", self.describe()?))),
        };
        Ok(Ended {
            name: self.name.clone(),
            status,
            stdout: content(&mut self.stdout)?,
            stderr: content(&mut self.stderr)?,
            took: self.start.elapsed(),
        })
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

/// The guest of a `verbgate run`, which has children that share its memory, too: the one that executes another program.
pub fn guest_of(supervisor: &mut Program) -> Result<u32> {
    let executes = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = executes(supervisor.pid());
    let is_guest = |pid: &u32| executes(*pid).is_some_and(|program| Some(program) != own);
    match descendants(supervisor.pid()).into_iter().find(is_guest) {
        Some(pid) => Ok(pid),
        None => bail!("a `verbgate run` has no guest; it {}", supervisor.describe()?),
    }
}

/// Runs a program to its end.
pub fn run(command: Command) -> Result<Ended> {
    Program::start(command)?.wait()
}

/// Polls until it is so, or nothing happens any more.
pub fn wait_until(what: &str, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(what).try_until(is_so)
}

fn wait_for(what: &str) -> Wait {
    Wait::new(what).quiet(QUIET)
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
