//! The tests that need no device: form, lints, tables, and the tests of every crate.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use serde::Deserialize;
use verbgate_lab::ENGINE_SUITES;
use verbgate_lab::Engines;
use verbgate_lab::Limit;
use verbgate_lab::Progress;
use verbgate_lab::require_programs;
use verbgate_tests::tally::Tally;

use crate::abi;
use crate::api;
use crate::house;
use crate::image;
use crate::junit;
use crate::lane;
use crate::stream;
use crate::stream::cargo;

/// How long a step may go on without a sign of progress: a line, or a process that begins or ends.
pub(crate) const LIMIT: Limit = Limit::Silence(Duration::from_secs(20 * 60));

/// A step: what it is called, and what does it.
pub(crate) type Step = (&'static str, fn() -> Result<Outcome>);

/// Those that run nothing of ours.
pub(crate) const CHECKS: &[Step] = &[
    ("formatting", formatting),
    ("generated ABI tables", tables),
    ("lints", lints),
    ("public API", public_api),
];

/// Of the whole house: what takes longer than the checks, and runs nothing of ours either.
pub(crate) const HOUSE: &[Step] = &[
    ("dependencies", house::dependencies),
    ("documentation without warnings", house::documentation),
    ("compiling for aarch64", house::other_processor),
    ("the oldest compiler", house::oldest_compiler),
];

pub(crate) const STEPS: &[Step] =
    &[("a sandbox on this machine", sandbox), ("tests of the crates", || tests(&[]))];

/// What runs code of ours and measures no time.
pub(crate) const EXAMPLES: &[Step] = &[("examples in the documentation", examples)];

/// What became of a step.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// A line for each thing that was skipped, with the reason.
    pub(crate) skipped: Vec<String>,
    /// The names of those that failed once and passed once.
    pub(crate) flaky: Vec<String>,
    /// What those said that failed, at least once, with their names first.
    pub(crate) reports: Vec<String>,
}

impl Outcome {
    /// Nothing that counts.
    pub(crate) const NOTHING: Self = Self::counting(Tally::NONE);
    /// One failure.
    pub(crate) const FAILED: Self = Self::counting(Tally::FAILED);

    const fn counting(tally: Tally) -> Self {
        Self { tally, skipped: Vec::new(), flaky: Vec::new(), reports: Vec::new() }
    }

    pub(crate) fn of(passed: bool) -> Self {
        Self::counting(if passed { Tally::PASSED } else { Tally::FAILED })
    }

    /// One failure, which is said now and at the end.
    pub(crate) fn failed(report: String) -> Self {
        show(&report.replace('\n', "\n    "));
        Self { reports: vec![report], ..Self::FAILED }
    }

    pub(crate) fn skipped(reason: &str) -> Self {
        Self { skipped: vec![reason.to_owned()], ..Self::counting(Tally::SKIPPED) }
    }
}

pub(crate) fn show(line: &str) {
    lane::say(&format!("    {line}"));
}

/// Whether cargo has this command: a minimal toolchain lacks some.
pub(crate) fn has(subcommand: &str) -> bool {
    stream::answer(cargo().args([subcommand, "--version"])).is_some()
}

fn formatting() -> Result<Outcome> {
    if !has("fmt") {
        return Ok(Outcome::skipped("needs rustfmt: rustup component add rustfmt"));
    }
    let mut command = cargo();
    command.args(["fmt", "--all", "--", "--check", "--files-with-diff"]);
    Ok(Outcome::of(stream::lines(command, LIMIT, show)?))
}

fn tables() -> Result<Outcome> {
    let done = abi::generate(true);
    if let Err(error) = &done {
        show(&format!("{error:#}"));
    }
    Ok(Outcome::of(done.is_ok()))
}

fn public_api() -> Result<Outcome> {
    let current = api::lists(true, show);
    if let Err(error) = &current {
        show(&format!("{error:#}"));
    }
    Ok(Outcome::of(current.unwrap_or(false)))
}

fn lints() -> Result<Outcome> {
    if !has("clippy") {
        return Ok(Outcome::skipped("needs clippy: rustup component add clippy"));
    }
    let mut command = cargo();
    command.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
    command.args(["--", "-D", "warnings"]);
    Ok(Outcome::of(stream::lines(command, LIMIT, show)?))
}

/// Without it most tests of the crates fail, and none says as plainly why.
fn sandbox() -> Result<Outcome> {
    let mut command = cargo();
    command.args([
        "run",
        "--quiet",
        "-p",
        "verbgate",
        "--",
        "run",
        "--device",
        "uverbs9=/dev/null",
    ]);
    command.args(["--", "cat", "/proc/self/status"]);
    let mut status = Vec::new();
    let started = stream::lines(command, LIMIT, |line| status.push(line.to_owned()))?;
    if !started {
        status.iter().for_each(|line| show(line));
        let mut features = cargo();
        features.args(["run", "--quiet", "-p", "verbgate", "--", "features"]);
        stream::lines(features, LIMIT, show)?;
    }
    Ok(Outcome::of(started))
}

/// Programs that tests run, and the packages they come from.
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    // The declarations of ours are compared with it.
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
    ("crun", "crun"),
    ("runc", "runc"),
    ("strace", "strace"),
    ("mandoc", "mandoc"),
    ("shellcheck", "shellcheck"),
    ("zsh", "zsh"),
    ("systemd-analyze", "systemd"),
    // By which Kubernetes' files are read.
    ("/usr/lib/python3/dist-packages/yaml/__init__.py", "python3-yaml"),
    ("lstopo-no-graphics", "hwloc-nox"),
    ("ibv_devices", "ibverbs-utils"),
    // By which the package says what it depends on.
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("rpmbuild", "rpm"),
    // By which a chart is rendered.
    ("go", "golang-go"),
    // Which looks at the pages of `fabric`.
    ("chromium-headless-shell", "chromium-headless-shell"),
    // Two launchers of ranks.
    ("mpirun.openmpi", "openmpi-bin"),
    ("mpiexec.hydra", "mpich"),
    ("checkmodule", "checkpolicy"),
    ("semodule_package", "semodule-utils"),
    // By which libibverbs knows ConnectX devices.
    ("/etc/libibverbs.d/mlx5.driver", "ibverbs-providers"),
];

/// The tests of the crates: those whose names hold one of these words, or all.
pub(crate) fn tests(words: &[String]) -> Result<Outcome> {
    if let Err(error) = require_programs(PROGRAMS, &Progress::stderr()) {
        // The tests that need one of them say so and skip themselves.
        show(&format!("{error:#}"));
    }
    // Before the tests' own time runs.
    for suite in ENGINE_SUITES {
        if let Err(error) = Engines::of(suite, &Progress::stderr()) {
            show(&format!("{error:#}"));
        }
    }
    if let Err(error) = image::prepare() {
        show(&format!("{error:#}"));
    }
    if has("nextest") {
        return nextest(words);
    }
    show("by cargo test, because there is no cargo-nextest here");
    let mut command = cargo();
    command.args(["test", "--quiet", "--workspace", "--all-targets", "--no-fail-fast"]);
    command.args(["--", "--show-output"]).args(words);
    counted(command)
}

fn nextest(words: &[String]) -> Result<Outcome> {
    // Not in cargo's target folder, wherever that is: nextest's own default.
    let report = Path::new(stream::workspace()).join("target/nextest/default/junit.xml");
    // An older one must not be taken for this run's.
    let _ = fs::remove_file(&report);
    let mut command = cargo();
    command.args(["nextest", "run", "--workspace", "--no-fail-fast", "--color", "never"]);
    command.args(["--cargo-quiet", "--status-level", "fail", "--final-status-level", "fail"]);
    command.args(["--show-progress", "none"]);
    // Tests wait two thirds of their time: for processes, links and attacks that come late.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    command.args(["--test-threads", &(2 * processors).to_string()]);
    if !words.is_empty() {
        // Words may be of the lab's cases only.
        command.args(["--no-tests", "pass"]).args(words);
    }
    // A failed test says why in its own words.
    command.env("RUST_BACKTRACE", "0");
    let passed = stream::lines(command, LIMIT, show)?;
    let Ok(text) = fs::read_to_string(&report) else {
        // It did not come so far: cargo has said why. Or nothing is called like these words.
        let nothing = passed && !words.is_empty();
        return Ok(if nothing { Outcome::NOTHING } else { Outcome::FAILED });
    };
    let junit::Results { mut tally, skipped, reports, engines } = junit::read(&text);
    if !engines.is_zero() {
        let seconds = engines.as_secs();
        show(&format!("of this, container engines: {} min {} s", seconds / 60, seconds % 60));
    }
    if !passed && tally.failed == 0 {
        tally += Tally::FAILED;
    }
    Ok(Outcome { tally, skipped, flaky: Vec::new(), reports })
}

fn examples() -> Result<Outcome> {
    let mut command = cargo();
    command.args(["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    counted(command)
}

/// Runs `cargo test` and adds up what the test programs count.
fn counted(command: std::process::Command) -> Result<Outcome> {
    let mut outcome = Outcome::NOTHING;
    let mut told = String::new();
    // The lists of tests that passed.
    let mut boring = false;
    let passed = stream::lines(command, LIMIT, |line| {
        boring = match line {
            "successes:" => true,
            _ => boring && line != "failures:" && !line.starts_with("test result: "),
        };
        if let Some(tally) = libtest(line) {
            outcome.tally += tally;
        }
        if let Some(name) = line.strip_prefix("---- ") {
            told = name.trim_end_matches(" stdout ----").to_owned();
        }
        if let Some(reason) = junit::reason(line) {
            outcome.skipped.push(format!("{told}: {reason}"));
        } else if !boring && !is_of_nothing(line) {
            show(line);
        }
    })?;
    let Outcome { tally, skipped, .. } = &mut outcome;
    // Those that skipped themselves have passed, as libtest sees it.
    let themselves = skipped.len().min(tally.passed);
    tally.passed -= themselves;
    tally.skipped += themselves;
    if !passed && tally.failed == 0 {
        *tally += Tally::FAILED;
    }
    Ok(outcome)
}

/// What libtest says of a crate without tests.
fn is_of_nothing(line: &str) -> bool {
    line.is_empty() || line == "running 0 tests" || libtest(line) == Some(Tally::NONE)
}

/// `test result: ok. 12 passed; 0 failed; 1 ignored; ...`
fn libtest(line: &str) -> Option<Tally> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |word: &str| {
        let part = counts.split("; ").find_map(|p| p.strip_suffix(word))?;
        part.trim().parse().ok()
    };
    let (passed, failed, skipped) = (count("passed")?, count("failed")?, count("ignored")?);
    Some(Tally { passed, failed, skipped, flaky: 0 })
}

#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
}

/// Where cargo builds, whatever says so.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let text = stream::answer(&mut command).context("`cargo metadata` failed")?;
    Ok(serde_json::from_str::<Metadata>(&text)?.target_directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtests_closing_lines_are_read() {
        let line = "test result: FAILED. 8 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out";
        let expected = Tally { passed: 8, failed: 1, skipped: 2, flaky: 0 };
        assert_eq!(libtest(line), Some(expected));
        assert_eq!(libtest("test result: ok."), None);
        assert_eq!(libtest("8 passed"), None);
    }
}
