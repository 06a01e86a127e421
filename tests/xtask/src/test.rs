//! `cargo xtask test`: everything that can be tested here, and a closing line that counts.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use verbgate_lab::Kernel;
use verbgate_lab::StaleBreakpoint;
use verbgate_tests::runner::CLOSING;
use verbgate_tests::table::Table;
use verbgate_tests::tally::Tally;

use crate::guest::Lines;
use crate::guest::Programs;
use crate::guest::TESTS;
use crate::host;
use crate::host::Outcome;

/// The kernels that everything is tested on, each with the userland of its distribution.
const TESTED: &[&str] = &["6.1", "6.12", "7.2"];
/// How long one kernel's cases may take. They take two minutes; a busy machine three times that.
const LAB_LIMIT: Duration = Duration::from_secs(20 * 60);
/// How long all may take, with nothing fetched or built. It is a last resort: steps and cases have
/// limits of their own.
const LIMIT: Duration = Duration::from_secs(85 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only what runs on this machine as it is: no virtual machine.
    #[arg(long, visible_alias = "host")]
    no_lab: bool,
    /// Only what runs in the lab.
    #[arg(long, conflicts_with = "no_lab")]
    no_host: bool,
    /// Only this kernel of the lab; may be repeated. [default: 6.1, 6.12, 7.2]
    #[arg(long = "kernel", value_name = "K", conflicts_with = "no_lab")]
    kernels: Vec<String>,
    /// Only tests of the crates and cases of the lab whose names hold this; may be repeated.
    #[arg(long = "case", value_name = "WORD")]
    cases: Vec<String>,
}

/// What was done so far; shared, because the watchdog prints it if the rest does not end.
#[derive(Debug, Default)]
struct Record {
    stages: Vec<(String, Tally, Duration)>,
}

impl Record {
    fn close(&self) -> Tally {
        let mut table = Table::new(&["", "passed", "failed", "skipped", "time"]);
        let mut all = Tally::default();
        for (name, tally, took) in &self.stages {
            let seconds = format!("{} s", took.as_secs());
            let counts = [tally.passed, tally.failed, tally.skipped].map(|n| n.to_string());
            let [passed, failed, skipped] = counts;
            table.row(&[name.clone(), passed, failed, skipped, seconds]);
            all += *tally;
        }
        print!("\n{table}\n{all}\n");
        all
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kernels: Result<Vec<&Kernel>> = match args.kernels.as_slice() {
        [] => TESTED.iter().map(|name| Kernel::find(name)).collect(),
        named => named.iter().map(|name| Kernel::find(name)).collect(),
    };
    let kernels = kernels?;
    let record = Arc::new(Mutex::new(Record::default()));
    watch(Arc::clone(&record));
    let stage = |name: &str, work: &mut dyn FnMut() -> Result<Outcome>| {
        println!("== {name}");
        let start = Instant::now();
        let outcome = work().unwrap_or_else(|error| {
            println!("    FAILED: {error:#}");
            Outcome::FAILED
        });
        for line in &outcome.skipped {
            println!("    skipped {line}");
        }
        println!("    {}", outcome.tally);
        let entry = (name.to_owned(), outcome.tally, start.elapsed());
        record.lock().unwrap_or_else(PoisonError::into_inner).stages.push(entry);
    };

    if !args.no_host && !args.cases.is_empty() {
        stage("tests of the crates", &mut || host::tests_called(&args.cases));
    } else if !args.no_host {
        for (name, step) in host::STEPS {
            stage(name, &mut || step());
        }
    }
    if !args.no_lab {
        let mut programs = None;
        stage("building for the lab", &mut || {
            programs = Some(Programs::build()?);
            Ok(Outcome::NOTHING)
        });
        for kernel in kernels {
            let name = format!("Linux {} with {}", kernel.name, kernel.userland);
            if let Some(programs) = &programs {
                stage(&name, &mut || lab(programs, kernel, &args.cases));
            }
        }
    }
    let all = record.lock().unwrap_or_else(PoisonError::into_inner).close();
    Ok(ExitCode::from(u8::from(all.failed > 0)))
}

/// Runs the cases in one lab; once more if the emulator failed, which says nothing of them.
fn lab(programs: &Programs, kernel: &'static Kernel, cases: &[String]) -> Result<Outcome> {
    match cases_in(programs, kernel, cases) {
        Err(error) if error.is::<StaleBreakpoint>() => {
            println!("    again: {error:#}");
            cases_in(programs, kernel, cases)
        }
        other => other,
    }
}

/// Runs the cases in one lab, and reads what they count.
fn cases_in(programs: &Programs, kernel: &'static Kernel, cases: &[String]) -> Result<Outcome> {
    let mut argv = vec![TESTS, "run"];
    argv.extend(cases.iter().map(String::as_str));
    let mut tally = None;
    let mut output = Lines::new(|line| match line.strip_prefix(CLOSING) {
        Some(counts) => tally = counts.parse().ok(),
        None => println!("    {line}"),
    });
    let status = programs.run_in_lab(kernel, &argv, LAB_LIMIT, &mut output)?;
    drop(output);
    let mut outcome = Outcome::NOTHING;
    match tally {
        Some(tally) => outcome.tally = tally,
        None => println!("    FAILED: the cases were not counted; they ended with status {status}"),
    }
    if outcome.tally.failed == 0 && (status != 0 || tally.is_none()) {
        outcome.tally += Tally::FAILED;
    }
    Ok(outcome)
}

/// Ends the process when it takes too long: whoever waits for the closing line gets it.
fn watch(record: Arc<Mutex<Record>>) {
    thread::spawn(move || {
        thread::sleep(LIMIT);
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        println!("FAILED: not all was done in {} min", LIMIT.as_secs() / 60);
        record.stages.push(("the rest".to_owned(), Tally::FAILED, LIMIT));
        record.close();
        std::process::exit(1);
    });
}
