//! `cargo xtask fuzz`: runs libFuzzer on all code that reads a guest's bytes, with the installed
//! toolchain.
//!
//! The fuzzers start from the checked-in corpora and never write to them: new inputs stay under
//! cargo's target folder, where the next run goes on.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_fuzz_targets::MAX_LEN;
use verbgate_fuzz_targets::TARGETS;
use verbgate_fuzz_targets::Target;
use verbgate_lab::Progress;
use verbgate_tests::table::Table;

use crate::host::target_directory;
use crate::stream;

/// The fuzzers' own workspace.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz");
/// What `cargo fuzz` gives rustc for libFuzzer, without the sanitizers that need a nightly one:
/// what runs here is safe Rust, and panics are what it can find.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];
/// Seconds that one input may take. It takes microseconds: more is a hang on any machine.
const HANG: u32 = 60;
/// How often the fuzzers' state is told.
const TICK: Duration = Duration::from_secs(20);
/// How many lines of its output tell what a fuzzer died of.
const QUOTED_LINES: usize = 6;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Minutes that each target runs.
    #[arg(long, default_value = "1", value_name = "N")]
    minutes: NonZero<u32>,
    /// Fuzz targets to run: decoder, commands, frame, way, filter. [default: all]
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// The numbers of a fuzzer, as it says them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Status {
    executions: u64,
    /// Edges of the control flow that some input took.
    coverage: u64,
    /// Inputs that each show something which no other shows.
    corpus: u64,
}

impl Status {
    /// `#4194304 pulse  cov: 2301 ft: 9018 corp: 812/90Kb lim: 6000 exec/s: 82265 rss: 31Mb`
    fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix('#')?.split_ascii_whitespace();
        let executions = words.next()?.parse().ok()?;
        let words: Vec<&str> = words.collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.split('/').next()?.parse().ok()
        };
        Some(Self { executions, coverage: value("cov:")?, corpus: value("corp:").unwrap_or(0) })
    }
}

/// How a fuzzer ended that did not end well.
#[derive(Debug, Default)]
struct Crash {
    /// The input, if there is one.
    input: Option<PathBuf>,
    why: Vec<String>,
}

impl Crash {
    fn hear(&mut self, line: &str) {
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.input = Some(path.into());
        }
        let begins = line.contains("panicked at") || line.contains("ERROR: libFuzzer");
        if (begins || !self.why.is_empty()) && self.why.len() < QUOTED_LINES && !line.is_empty() {
            self.why.push(line.to_owned());
        }
    }
}

/// What a target's run brought.
#[derive(Debug)]
struct Ended {
    status: Status,
    took: Duration,
    crash: Option<Crash>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let targets = choose(&args.targets)?;
    let time = Duration::from_secs(60 * u64::from(args.minutes.get()));
    let fuzzers = Fuzzers::build(time)?;
    let ended = fuzzers.run(&targets)?;
    let mut table =
        Table::new(&["target", "executions", "a second", "coverage", "corpus", "crashes"]);
    let (mut executions, mut crashes) = (0, 0);
    for (target, ended) in targets.iter().zip(&ended) {
        let Status { executions: runs, coverage, corpus } = ended.status;
        let rate = u128::from(runs) * 1000 / ended.took.as_millis().max(1);
        let crashed = u32::from(ended.crash.is_some());
        let numbers = [runs.to_string(), rate.to_string(), coverage.to_string()];
        let [runs_cell, rate, coverage] = numbers;
        let cells = [runs_cell, rate, coverage, corpus.to_string(), crashed.to_string()];
        table.row(&[&[target.name.to_owned()], cells.as_slice()].concat());
        executions += runs;
        crashes += crashed;
    }
    print!("\n{table}");
    for (target, ended) in targets.iter().zip(&ended) {
        if let Some(crash) = &ended.crash {
            fuzzers.describe(target, crash);
        }
    }
    println!("\nfuzz: {} targets, {executions} executions, {crashes} crashes", targets.len());
    Ok(if crashes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    if let Some(name) = names.iter().find(|name| TARGETS.iter().all(|t| t.name != **name)) {
        let known = TARGETS.map(|target| target.name).join(", ");
        bail!("there is no fuzz target {name:?}; the targets are {known}");
    }
    Ok(TARGETS.iter().filter(|target| names.iter().any(|name| name == target.name)).collect())
}

/// The fuzzers, built, and where they work.
#[derive(Debug)]
struct Fuzzers {
    folder: PathBuf,
    programs: PathBuf,
    time: Duration,
}

impl Fuzzers {
    fn build(time: Duration) -> Result<Self> {
        // libFuzzer itself is C++.
        verbgate_lab::require_program("c++", "g++", &Progress::stderr())?;
        let triple = stream::answer(Command::new("rustc").args(["--print", "host-tuple"]))
            .context("`rustc --print host-tuple` does not name rustc's target")?;
        let folder = target_directory()?.join("fuzz");
        eprintln!("building the fuzzers");
        let mut command = stream::cargo();
        command.current_dir(FOLDER);
        // Naming the target keeps the flags away from build scripts and procedural macros.
        command.args([
            "build",
            "--locked",
            "--release",
            "--bins",
            "--target",
            &triple,
            "--target-dir",
        ]);
        command.arg(&folder).args(["--color", "never"]);
        // Before all other flags that cargo may be told of.
        command.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
        if !stream::lines(command, |line| eprintln!("    {line}"))? {
            bail!("cargo could not build the fuzzers: cargo's output above says why");
        }
        let programs = folder.join(triple).join("release");
        Ok(Self { folder, programs, time })
    }

    /// Runs the targets, as many at a time as there are processors.
    fn run(&self, targets: &[&'static Target]) -> Result<Vec<Ended>> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<Result<Ended>>>> =
            targets.iter().map(|_| Mutex::new(None)).collect();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..processors.min(targets.len()) {
                let sender = sender.clone();
                let (next, results) = (&next, &results);
                scope.spawn(move || {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(target), Some(result)) = (targets.get(at), results.get(at))
                        else {
                            break;
                        };
                        let ended = self.one(target, |status| {
                            // Nobody listens only when all is over.
                            let _ = sender.send((at, status));
                        });
                        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
                    }
                });
            }
            drop(sender);
            tell(targets, &receiver);
        });
        let taken = results.into_iter().map(|result| {
            let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
            result.context("a target was not run")?
        });
        taken.collect()
    }

    fn one(&self, target: &Target, mut hear: impl FnMut(Option<Status>)) -> Result<Ended> {
        let corpus = made(self.folder.join("corpus").join(target.name))?;
        let crashes = made(self.folder.join("crashes").join(target.name))?;
        // The kernel ends it when we end.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(self.programs.join(target.name));
        command.arg(format!("-max_total_time={}", self.time.as_secs()));
        command.args([format!("-max_len={MAX_LEN}"), format!("-timeout={HANG}")]);
        // A folder: it ends with a slash.
        command.arg(format!("-artifact_prefix={}/", crashes.display()));
        // Only the first corpus is written to.
        command.arg(corpus).arg(Path::new(FOLDER).join("corpus").join(target.corpus));
        // The panic's own words; who plays it again may ask for more.
        command.env("RUST_BACKTRACE", "0");
        let start = Instant::now();
        let (mut status, mut crash) = (Status::default(), Crash::default());
        let passed = stream::lines(command, |line| match Status::read(line) {
            Some(new) => {
                status = new;
                hear(Some(new));
            }
            None => crash.hear(line),
        })?;
        hear(None);
        Ok(Ended { status, took: start.elapsed(), crash: (!passed).then_some(crash) })
    }

    fn describe(&self, target: &Target, crash: &Crash) {
        println!("\nFAILED: {}", target.name);
        crash.why.iter().for_each(|line| println!("    {line}"));
        match &crash.input {
            Some(path) => {
                println!("the input:   {}", path.display());
                let program = self.programs.join(target.name);
                println!("once again:  {} {}", program.display(), path.display());
            }
            None => println!("no input was left"),
        }
    }
}

/// The folder, made if it is not there.
fn made(folder: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Says now and then how the running fuzzers are doing, until all have ended.
fn tell(targets: &[&'static Target], receiver: &mpsc::Receiver<(usize, Option<Status>)>) {
    let mut running: Vec<Option<Status>> = vec![None; targets.len()];
    let start = Instant::now();
    let mut due = start + TICK;
    loop {
        match receiver.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok((at, status)) => {
                if let Some(known) = running.get_mut(at) {
                    *known = status;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if Instant::now() >= due {
            due += TICK;
            let each = targets.iter().zip(&running).filter_map(|(target, status)| {
                let Status { executions, coverage, .. } = (*status)?;
                Some(format!("{} {executions} runs, coverage {coverage}", target.name))
            });
            let each: Vec<String> = each.collect();
            eprintln!("fuzz [{:>4} s] {}", start.elapsed().as_secs(), each.join("; "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_read() {
        let line =
            "#4194304\tpulse  cov: 2301 ft: 9018 corp: 812/90Kb lim: 6000 exec/s: 8 rss: 31Mb";
        let expected = Status { executions: 4_194_304, coverage: 2301, corpus: 812 };
        assert_eq!(Status::read(line), Some(expected));
        assert_eq!(Status::read("#2\tINITED exec/s: 0 rss: 26Mb"), None);
        assert_eq!(Status::read("INFO: seed corpus: files: 131"), None);
    }

    #[test]
    fn a_crash_has_a_reason_and_an_input() {
        let mut crash = Crash::default();
        for line in [
            "INFO: Seed: 1",
            "thread '<unnamed>' (7) panicked at proxy/abi/src/decode.rs:1:2:",
            "attempt to add with overflow",
            "artifact_prefix='c/decoder/'; Test unit written to c/decoder/crash-0a",
        ] {
            crash.hear(line);
        }
        assert_eq!(crash.input.as_deref(), Some(Path::new("c/decoder/crash-0a")));
        assert_eq!(crash.why[1], "attempt to add with overflow");
    }

    #[test]
    fn targets_are_chosen_by_name() {
        let names = |words: &[&str]| -> Result<Vec<&str>> {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            Ok(choose(&words)?.iter().map(|target| target.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), TARGETS.len());
        assert_eq!(names(&["frame"]).unwrap(), ["frame"]);
        assert!(names(&["fram"]).unwrap_err().to_string().contains("decoder, commands"));
    }
}
