//! The test guest (`verbgate-guest`, in `proxy/sys/guest`), run by the built `verbgate` and alone.
//!
//! Every wait here ends: a test of hostile programs must not hang with the programs.

use std::fs;
use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::TryRecvError;

use verbgate_wait::Stalled;
use verbgate_wait::Wait;
use verbgate_wait::until;

use crate::common::NULL_AS_UVERBS;
use crate::common::verbgate;

/// The device's path in the sandbox.
pub(crate) const DEVICE: &str = "/dev/infiniband/uverbs9";

/// The guest's program, built now if it is not: cargo builds another crate's programs only with
/// that crate's own tests.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let beside = Path::new(verbgate()).with_file_name("verbgate-guest");
        // `cargo xtask test` has built all programs, and lints that run meanwhile hold cargo's lock for minutes.
        if std::env::var_os("VERBGATE_TESTS_BUILT").is_some() {
            return beside;
        }
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // The whole workspace is built, as for its tests: another set of features would build another program.
        build.args(["test", "--quiet", "--no-run", "--workspace", "--test", "plant"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        if let Some(target) = beside.parent().and_then(Path::parent) {
            build.arg("--target-dir").arg(target);
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        // Where the tests run without cargo, it has been put beside them.
        assert!(built.is_ok_and(|s| s.success()) || beside.exists(), "no verbgate-guest");
        beside
    })
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) lines: Vec<String>,
    /// Standard error: the guest's own, and the supervisor's log.
    pub(crate) errors: String,
    /// What the supervisor did (`--report`), if there was one.
    pub(crate) report: serde_json::Value,
}

impl Ran {
    /// What follows `name: ` in the line that begins so.
    pub(crate) fn line(&self, name: &str) -> &str {
        let found = self.lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.unwrap_or_else(|| panic!("no line {name:?}: {self:#?}"))
    }

    /// The lines as `name`, `rest`.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        self.lines.iter().filter_map(|line| line.split_once(": ")).collect()
    }

    /// A number of the report.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.report[name].as_u64().unwrap_or_else(|| panic!("no count {name:?}: {self:#?}"))
    }

    /// Lines of the supervisor's log.
    pub(crate) fn log(&self) -> Vec<&str> {
        self.errors.lines().filter(|line| line.starts_with("verbgate: ")).collect()
    }

    /// The same, for a guest that is meant to have ended well and unremarked.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        self.well_with(0)
    }

    /// The same with an exit code of its own.
    #[track_caller]
    pub(crate) fn well_with(self, expected: i32) -> Self {
        assert!(code(self.status) == expected && self.log().is_empty(), "{self:#?}");
        self
    }
}

/// The guest in its sandbox.
#[track_caller]
pub(crate) fn run(args: &[&str]) -> Ran {
    run_with(&["--device", NULL_AS_UVERBS], args)
}

/// The same with options for `verbgate run`.
#[track_caller]
pub(crate) fn run_with(options: &[&str], args: &[&str]) -> Ran {
    run_by(Command::new(verbgate()), options, args)
}

/// The same by a command that executes `verbgate`.
#[track_caller]
pub(crate) fn run_by(mut command: Command, options: &[&str], args: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    command.arg("run").args(options).arg("--report").arg(&report);
    let mut ran = finish(command.arg("--").arg(program()).args(args));
    if let Ok(text) = fs::read_to_string(report) {
        // An empty one is what a supervisor leaves that could not begin, or was killed.
        ran.report = serde_json::from_str(&text).unwrap_or_default();
    }
    ran
}

/// The guest without a sandbox, on the null device itself.
#[track_caller]
pub(crate) fn native(args: &[&str]) -> Ran {
    let args = args.iter().map(|arg| if *arg == DEVICE { "/dev/null" } else { arg });
    finish(Command::new(program()).args(args))
}

/// Runs a command to its end, which must come.
#[track_caller]
pub(crate) fn finish(command: &mut Command) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    // Files, because whoever is left behind keeps a pipe open.
    let [out, err] = ["out", "err"].map(|name| dir.path().join(name));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .process_group(0)
        .spawn()
        .unwrap();
    let ended =
        Wait::new("the guest's end").try_until(|| Ok::<_, Stalled>(child.try_wait().unwrap()));
    if ended.is_err() {
        kill_group(child.id());
    }
    let [lines, errors] =
        [out, err].map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
    let status = ended.unwrap_or_else(|stalled| {
        panic!("{command:?}: {stalled}; so far:\n{lines}\n{errors}");
    });
    let lines = lines.lines().map(str::to_owned).collect();
    Ran { status, lines, errors, report: serde_json::Value::Null }
}

/// The code of an exit, or 128 and the signal.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn kill_group(group: u32) {
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).status();
}

/// A program that answers lines with lines; killed with all of its group in the end.
#[derive(Debug)]
pub(crate) struct Talk {
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    child: Child,
}

impl Talk {
    /// Starts it.
    pub(crate) fn with(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Self { stdin, lines, child }
    }

    /// The guest in its sandbox, with a device `PATH`.
    pub(crate) fn with_guest(device: &str, args: &[&str]) -> Self {
        let device = format!("uverbs9={device}");
        let mut command = Command::new(verbgate());
        Self::with(command.args(["run", "--device", &device, "--"]).arg(program()).args(args))
    }

    /// The guest's program without a sandbox.
    pub(crate) fn with_native(args: &[&str]) -> Self {
        Self::with(Command::new(program()).args(args))
    }

    /// The next line that it prints.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        until("a line", || match self.lines.try_recv() {
            Err(TryRecvError::Disconnected) => panic!("no line came"),
            line => line.ok(),
        })
    }

    /// Tells it something.
    #[track_caller]
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Tells it something, and waits for its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }

    /// Id of the process: the supervisor's, of a guest.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends its input, and waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> ExitStatus {
        self.stdin = None;
        verbgate_wait::end(&mut self.child)
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        kill_group(self.child.id());
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually<T: std::fmt::Debug>(what: &str, mut look: impl FnMut() -> Result<(), T>) {
    let mut last = None;
    let is_so = Wait::new(what).try_until(|| match look() {
        Ok(()) => Ok::<_, Stalled>(true),
        Err(seen) => {
            last = Some(seen);
            Ok(false)
        }
    });
    if let Err(stalled) = is_so {
        panic!("{stalled}\nlast seen: {last:?}");
    }
}
