//! `cargo xtask test`: runs every test that this machine can run, and counts in the closing line.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Arch;
use verbgate_lab::Kernel;
use verbgate_tests::trial;
use verbgate_wait::Sight;

use crate::broker;
use crate::broker::Broker;
use crate::guest::Programs;
use crate::guestbin;
use crate::host;
use crate::nextest;
use crate::outcome;
use crate::outcome::Outcome;
use crate::outcome::Stage;
use crate::stream;

/// The time that a run may take on two idle processors, less what is fetched: from a fresh clone, and `--quick` when
/// warm.
const BUDGET: Duration = Duration::from_secs(30 * 60);
const BUDGET_QUICK: Duration = Duration::from_secs(4 * 60);
/// How often tests are looked at, and for how long nothing happens before a test is killed: longer than a wait of the
/// test itself waits.
const LOOK: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_secs(5 * 60);
/// Ignored tests that another test runs in a process or a namespace of their own.
const RUN_BY_OTHERS: &str =
    "test(/::(a_million_cells_leave_a_few_numbers_of_each_path|where_no_program_is_found)$/)";
/// The kernel of another processor, whose programs are built beside the first tests.
const ARM64: &str = "arm64-6.12";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only the tests of this machine, and no virtual machine.
    #[arg(long, visible_alias = "host")]
    no_lab: bool,
    /// Run only the cases of the lab.
    #[arg(long, conflicts_with = "no_lab")]
    no_host: bool,
    /// Kernel of the lab to run the cases on; may be repeated. [default: each case on the kernels that it depends on]
    #[arg(long = "kernel", value_name = "K", conflicts_with = "no_lab")]
    kernels: Vec<String>,
    /// Part of a name: run only the tests and cases whose names hold WORD, on every kernel; may be repeated.
    #[arg(long = "case", value_name = "WORD")]
    cases: Vec<String>,
    /// Run what one runs before a commit: the tests of this machine but those of attacks, netdevs and engines, and the
    /// slowest, which are named.
    #[arg(long, conflicts_with_all = ["no_host", "kernels", "cases", "all"])]
    quick: bool,
    /// Run every case on every kernel: hours, in parts.
    #[arg(long)]
    all: bool,
    /// Part of what is chosen, as 1/3: the first of three that take as long.
    #[arg(long, value_name = "N/M", requires = "all")]
    part: Option<String>,
}

impl Args {
    /// Whether trials run that do not by default: these are ignored tests.
    fn runs_ignored(&self) -> bool {
        self.all || !self.cases.is_empty()
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Also dependencies, documentation, aarch64 and the oldest compiler, as `test` does.
    #[arg(long)]
    house: bool,
}

/// What does not run the project's code: what a change is held against every minute.
pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let stages = Stages::default();
    stages.each(host::CHECKS);
    if args.house {
        stages.each(host::HOUSE);
        stages.each(host::ARM64);
    }
    Ok(stages.close(None))
}

/// The stages that have ended, in the order of their ends.
#[derive(Default)]
struct Stages(Mutex<Vec<Stage>>);

impl Stages {
    /// Runs one; an error is a failure.
    fn run(&self, name: &str, work: impl FnOnce() -> Result<Outcome>) {
        println!("== {name}");
        let start = Instant::now();
        let outcome = work().unwrap_or_else(|error| Outcome::failed(format!("FAILED: {error:#}")));
        let took = start.elapsed();
        println!("== {name}: {} in {} s", outcome.tally, took.as_secs());
        self.add([Stage { name: name.to_owned(), outcome, took }]);
    }

    fn each(&self, steps: &[host::Step]) {
        steps.iter().for_each(|(name, step)| self.run(name, step));
    }

    fn add(&self, stages: impl IntoIterator<Item = Stage>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(stages);
    }

    /// Prints the table and the closing line, and a line if the run took longer than it may.
    fn close(&self, run: Option<(Duration, Duration)>) -> ExitCode {
        let (text, all) = outcome::close(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((took, budget)) = run {
            let minutes = |time: Duration| format!("{:.1} min", time.as_secs_f64() / 60.0);
            let over = if took > budget { "OVER ITS BUDGET: " } else { "" };
            println!(
                "\n{over}the run took {} of {}, less what was fetched",
                minutes(took),
                minutes(budget)
            );
        }
        print!("{text}");
        ExitCode::from(u8::from(all.failed > 0))
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    for kernel in &args.kernels {
        if !trial::KERNELS.contains(&kernel.as_str()) {
            bail!(
                "no case runs on the kernel {kernel:?}: use one of {}",
                trial::KERNELS.join(", ")
            );
        }
    }
    let is_whole = args.kernels.is_empty() && args.cases.is_empty() && !args.no_host && !args.quick;
    let with_lab = !args.no_lab && !args.quick;
    let stages = Stages::default();
    if !args.no_host {
        stages.run("what tests need, fetched", || Ok(host::prepare()));
    }
    if with_lab {
        stages.run("machines of the lab, fetched", || Ok(fetch(args)));
    }
    let start = Instant::now();
    let broker = Broker::start()?;
    // All tests are built, or each test program would be linked anew for the lab.
    stages.run("building", || built(&broker, Arch::Amd64));
    thread::scope(|scope| {
        scope.spawn(|| {
            // On Linux the priority is the thread's own, and of the processes that it starts.
            let _ = rustix::process::setpriority_process(None, 19);
            if with_lab
                && args.cases.is_empty()
                && (args.kernels.is_empty() || args.kernels.iter().any(|k| k == ARM64))
            {
                stages.run("building for arm64", || match guestbin::cross() {
                    Err(missing) => Ok(Outcome::skipped(&format!("{missing:#}"))),
                    Ok(()) => built(&broker, Arch::Arm64),
                });
            }
            if is_whole {
                let arm64 = if with_lab { &[] } else { host::ARM64 };
                [host::CHECKS, host::EXAMPLES, host::HOUSE, arm64]
                    .iter()
                    .for_each(|steps| stages.each(steps));
            }
        });
        let beginning = Instant::now();
        match tests(args) {
            Ok(tested) => stages.add(tested),
            Err(error) => stages.run("tests", || Err(error)),
        }
        let (name, outcome) = ("all tests, beside each other".to_owned(), Outcome::default());
        stages.add([Stage { name, outcome, took: beginning.elapsed() }]);
    });
    let budget = if args.quick { BUDGET_QUICK } else { BUDGET };
    Ok(stages.close((is_whole && !args.all || args.quick).then_some((start.elapsed(), budget))))
}

fn built(broker: &Broker, arch: Arch) -> Result<Outcome> {
    broker.programs(arch).map(|_| Outcome::default()).map_err(anyhow::Error::msg)
}

/// Fetches and builds what the machines of the chosen trials take.
fn fetch(args: &Args) -> Outcome {
    let mut outcome = Outcome::default();
    let mut known = Vec::new();
    for trial in trial::all() {
        let machine = (trial.kernel, trial.device);
        let is_chosen = args.all || !args.cases.is_empty() || trial.why.is_some();
        let is_of = args.kernels.is_empty() || args.kernels.iter().any(|name| name == trial.kernel);
        let is_named = args.cases.is_empty()
            || args.cases.iter().any(|word| trial.to_string().contains(word.as_str()));
        if !is_chosen || !is_of || !is_named || known.contains(&machine) {
            continue;
        }
        known.push(machine);
        let lab = Kernel::find(trial.kernel)
            .and_then(|kernel| Programs::lab_for(kernel, broker::nics(trial.device)));
        if let Err(error) = lab {
            outcome.skipped.push(format!("{}::{}: {error:#}", trial.kernel, trial.device.name()));
        }
    }
    outcome
}

/// Runs nextest, and reads its record.
fn tests(args: &Args) -> Result<Vec<Stage>> {
    let profile = if args.quick { "quick" } else { "default" };
    // nextest writes here by default, wherever cargo's target folder is.
    let report =
        Path::new(stream::workspace()).join("target/nextest").join(profile).join("junit.xml");
    // An older one must not be taken for this run's.
    let _ = fs::remove_file(&report);
    let mut command = nextest::command()?;
    command.args(["run", "--workspace", "--no-fail-fast", "--color", "never", "--cargo-quiet"]);
    command.args(["--status-level", "pass", "--final-status-level", "none"]);
    command.args(["--show-progress", "none", "--profile", profile, "--no-tests", "pass"]);
    // Tests wait most of their time: for processes, links, machines and attacks that come late.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    command.args(["--test-threads", &(3 * processors + 2).to_string()]);
    command.args(["-E", &filterset(args)]);
    if args.runs_ignored() {
        command.args(["--run-ignored", "all"]);
    }
    if let Some(part) = &args.part {
        command.args(["--partition", &format!("slice:{part}")]);
    }
    // A failed test says why in its own words.
    command.env("RUST_BACKTRACE", "0").env("VERBGATE_TESTS_BUILT", "1");
    println!("== tests");
    if args.quick {
        println!("    left out, see profile.quick in .config/nextest.toml:");
        left_out().iter().for_each(|line| println!("        {line}"));
    }
    let passed =
        stream::attended(command, |pid| drop(thread::spawn(move || guard(pid))), host::show)?;
    let text = fs::read_to_string(&report);
    let text = text.context("nextest wrote no record: its output above says why")?;
    let mut stages = outcome::of_junit(&text).context("cannot read nextest's record")?;
    let count =
        |stages: &[Stage]| -> usize { stages.iter().map(|of| of.outcome.tally.failed).sum() };
    if !passed && count(&stages) == 0 {
        let outcome = Outcome::failed("nextest failed, and its record has no failure".to_owned());
        stages.push(Stage { name: "nextest".to_owned(), outcome, took: Duration::ZERO });
    }
    if stages.is_empty() {
        let near = args.cases.first().and_then(|word| broker::find(word).err());
        let near = near.map(|error| format!("; {error}")).unwrap_or_default();
        bail!("no name of a test or a case holds {}{near}", args.cases.join(" or "));
    }
    Ok(stages)
}

/// Kills each test in which nothing happens any more, and that does not find out by itself; nextest counts a failure.
fn guard(nextest: u32) {
    let mut known: BTreeMap<u32, (Sight, Duration)> = BTreeMap::new();
    while verbgate_wait::is_alive(nextest) {
        thread::sleep(LOOK);
        let mut now = BTreeMap::new();
        for (test, sight) in Sight::of_children(nextest) {
            // Looks are counted, not seconds, as in tests/wait.
            let quiet = match known.remove(&test) {
                Some((last, quiet)) if !sight.progressed_since(&last) => quiet + LOOK,
                _ => Duration::ZERO,
            };
            // The broker ends what a test of the lab waits for.
            let program = fs::read_link(format!("/proc/{test}/exe")).unwrap_or_default();
            let is_of_lab = program.to_string_lossy().contains("/deps/lab-");
            if quiet >= QUIET && !is_of_lab {
                host::show(&format!(
                    "process {test} is killed: nothing happens any more in its test"
                ));
                verbgate_wait::kill_tree(test);
            }
            now.insert(test, (sight, quiet));
        }
        known = now;
    }
}

/// The tests that are meant, in nextest's language.
fn filterset(args: &Args) -> String {
    let mut all = Vec::new();
    if args.no_lab || args.quick {
        all.push("not binary(lab)".to_owned());
    }
    if args.no_host {
        all.push("binary(lab)".to_owned());
    }
    let one_of = |parts: Vec<String>| format!("({})", parts.join(" | "));
    if !args.kernels.is_empty() {
        let kernels =
            args.kernels.iter().map(|name| format!("test(/^{}::/)", name.replace('.', r"\.")));
        all.push(one_of(std::iter::once("not binary(lab)".to_owned()).chain(kernels).collect()));
    }
    if !args.cases.is_empty() {
        all.push(one_of(args.cases.iter().map(|word| format!("test(~{word})")).collect()));
    }
    if args.runs_ignored() {
        all.push(format!("not {RUN_BY_OTHERS}"));
    }
    if all.is_empty() { "all()".to_owned() } else { all.join(" & ") }
}

/// What the quick profile leaves out, a line each.
fn left_out() -> Vec<String> {
    let text = include_str!("../../../.config/nextest.toml");
    let lines = text.lines().skip_while(|line| *line != "[profile.quick]");
    let lines = lines.skip(1).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.trim().strip_prefix("| ")).map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn what_is_typed_becomes_a_filterset() {
        let of = |words: &[&str]| filterset(&Typed::parse_from([&["test"], words].concat()).args);
        assert_eq!(of(&[]), "all()");
        assert_eq!(of(&["--no-lab"]), "not binary(lab)");
        let kernel = r"binary(lab) & (not binary(lab) | test(/^6\.1::/))";
        assert_eq!(of(&["--no-host", "--kernel", "6.1"]), kernel);
        let words = format!("(test(~rping) | test(~udaddy)) & not {RUN_BY_OTHERS}");
        assert_eq!(of(&["--case", "rping", "--case", "udaddy"]), words);
    }

    #[test]
    fn ignored_tests_that_others_run_are_there() {
        let sums = include_str!("../../../harness/fabric/src/bench/sums.rs");
        let reach = include_str!("../../../harness/fabric/src/preflight/reach/tests.rs");
        for (text, name) in [
            (sums, "a_million_cells_leave_a_few_numbers_of_each_path"),
            (reach, "where_no_program_is_found"),
        ] {
            assert!(text.contains(&format!("fn {name}()")) && RUN_BY_OTHERS.contains(name));
        }
    }

    #[test]
    fn the_quick_profile_names_what_it_leaves_out() {
        let left_out = left_out();
        assert!(left_out.iter().any(|line| line.contains("verbgate-hostile")), "{left_out:?}");
        assert!(left_out.len() > 12, "{left_out:?}");
    }
}
