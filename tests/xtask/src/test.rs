//! `cargo xtask test`: everything that can be tested here, and a closing line that counts.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Kernel;
use verbgate_tests::cases::Setting;
use verbgate_tests::table::Table;
use verbgate_tests::tally::Tally;

use crate::cases;
use crate::guest::Programs;
use crate::host;
use crate::host::Outcome;

/// The kernels that everything is tested on, each with the userland of its distribution.
const TESTED: &[&str] = &["6.1", "6.12", "7.2"];
/// How long nothing at all may be heard: no step that ends, no case. It is a last resort: steps and
/// cases have limits of their own.
const SILENCE: Duration = Duration::from_secs(85 * 60);
/// How often the last resort looks.
const LOOK: Duration = Duration::from_secs(10);

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
    /// Only tests of this machine, and cases of the lab, whose names hold this; may be repeated.
    #[arg(long = "case", value_name = "WORD")]
    cases: Vec<String>,
}

/// What was done so far; shared, because the watchdog prints it if the rest does not end.
#[derive(Debug)]
struct Record {
    stages: Vec<Stage>,
    /// The one that runs, with what it has counted so far.
    running: Option<Stage>,
    /// When something was heard.
    heard: Instant,
}

/// A part of the tests.
#[derive(Clone, Debug)]
struct Stage {
    name: String,
    tally: Tally,
    flaky: Vec<String>,
    start: Instant,
    took: Duration,
}

impl Record {
    fn new() -> Self {
        Self { stages: Vec::new(), running: None, heard: Instant::now() }
    }

    fn begin(&mut self, name: &str) {
        let (name, start) = (name.to_owned(), Instant::now());
        let stage =
            Stage { name, tally: Tally::NONE, flaky: Vec::new(), start, took: Duration::ZERO };
        self.running = Some(stage);
        self.heard = start;
    }

    fn count(&mut self, tally: Tally) {
        self.heard = Instant::now();
        if let Some(stage) = &mut self.running {
            stage.tally = tally;
        }
    }

    fn end(&mut self, tally: Tally, flaky: Vec<String>) {
        self.count(tally);
        if let Some(stage) = self.running.take() {
            let took = stage.start.elapsed();
            self.stages.push(Stage { flaky, took, ..stage });
        }
    }

    /// The table, flaky cases by name, and the sum, which is the closing line.
    fn close(&self) -> (String, Tally) {
        let mut table = Table::new(&["", "passed", "failed", "skipped", "flaky", "time"]);
        let (mut all, mut flaky) = (Tally::NONE, String::new());
        for stage in &self.stages {
            let Tally { passed, failed, skipped, flaky: again } = stage.tally;
            let [passed, failed, skipped, again] =
                [passed, failed, skipped, again].map(|n| n.to_string());
            let seconds = format!("{} s", stage.took.as_secs());
            table.row(&[stage.name.clone(), passed, failed, skipped, again, seconds]);
            all += stage.tally;
            for name in &stage.flaky {
                flaky += &format!("flaky: {name} ({}) failed once and passed once\n", stage.name);
            }
        }
        (format!("\n{table}\n{flaky}{all}\n"), all)
    }
}

/// What does not run the project's code: what a change is held against every minute.
pub(crate) fn check() -> Result<ExitCode> {
    let mut all = Tally::NONE;
    for (name, step) in host::CHECKS {
        println!("== {name}");
        let outcome = step()?;
        outcome.skipped.iter().for_each(|line| println!("    skipped {line}"));
        all += outcome.tally;
    }
    println!("{all}");
    Ok(ExitCode::from(u8::from(all.failed > 0)))
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kernels: Result<Vec<&Kernel>> = match args.kernels.as_slice() {
        [] => TESTED.iter().map(|name| Kernel::find(name)).collect(),
        named => named.iter().map(|name| Kernel::find(name)).collect(),
    };
    let kernels = kernels?;
    let record = Arc::new(Mutex::new(Record::new()));
    let recorded = || record.lock().unwrap_or_else(PoisonError::into_inner);
    watch(Arc::clone(&record));
    let stage = |name: &str, work: &mut dyn FnMut() -> Result<Outcome>| {
        println!("== {name}");
        recorded().begin(name);
        let outcome = work().unwrap_or_else(|error| {
            println!("    FAILED: {error:#}");
            Outcome::FAILED
        });
        for line in &outcome.skipped {
            println!("    skipped {line}");
        }
        println!("    {}", outcome.tally);
        recorded().end(outcome.tally, outcome.flaky);
    };

    if !args.no_host {
        if args.cases.is_empty() {
            for (name, step) in host::CHECKS.iter().chain(host::STEPS) {
                stage(name, &mut || step());
            }
        } else {
            stage("tests of the crates", &mut || host::tests(&args.cases));
        }
    }
    let settings = [Setting::Software, Setting::Nics];
    let settings = settings.map(|it| cases::are_there(it, &args.cases).then_some(it));
    if !args.no_lab && settings.iter().any(Option::is_some) {
        let mut programs = None;
        stage("building for the lab", &mut || {
            programs = Some(Programs::build()?);
            Ok(Outcome::NOTHING)
        });
        for (kernel, setting) in kernels
            .into_iter()
            .flat_map(|kernel| settings.into_iter().flatten().map(move |it| (kernel, it)))
        {
            let with = if setting == Setting::Nics { "NICs" } else { kernel.userland };
            let name = format!("Linux {} with {with}", kernel.name);
            let Some(programs) = &programs else { continue };
            stage(&name, &mut || {
                let told = &mut |tally| recorded().count(tally);
                Ok(cases::in_lab(programs, kernel, setting, &args.cases, told))
            });
        }
    }
    let (text, all) = recorded().close();
    print!("{text}");
    if !args.cases.is_empty() && all.total() == 0 {
        bail!("no test and no case is called like {}", args.cases.join(" or "));
    }
    Ok(ExitCode::from(u8::from(all.failed > 0)))
}

/// Ends the process when nothing is heard for too long: whoever waits for the closing line gets it,
/// and what has passed by then is counted.
fn watch(record: Arc<Mutex<Record>>) {
    thread::spawn(move || {
        loop {
            thread::sleep(LOOK);
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            if record.heard.elapsed() < SILENCE {
                continue;
            }
            println!("FAILED: nothing was heard for {} min", SILENCE.as_secs() / 60);
            give_up(&mut record);
            print!("{}", record.close().0);
            std::process::exit(1);
        }
    });
}

/// The stage that runs has failed, with what it has counted.
fn give_up(record: &mut Record) {
    let mut tally = record.running.as_ref().map_or(Tally::NONE, |stage| stage.tally);
    tally += Tally::FAILED;
    record.end(tally, Vec::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_is_alone_and_flaky_cases_are_before_it() {
        let mut record = Record::new();
        record.begin("tests of the crates");
        record.end(Tally { passed: 40, ..Tally::NONE }, Vec::new());
        record.begin("Linux 6.12 with trixie");
        let tally = Tally { passed: 94, skipped: 1, flaky: 1, failed: 0 };
        record.end(tally, vec!["ping_pong".to_owned()]);
        let (text, all) = record.close();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last(), Some(&"134 passed, 0 failed, 1 skipped"), "{text}");
        let flaky = "flaky: ping_pong (Linux 6.12 with trixie) failed once and passed once";
        assert_eq!(lines.iter().rev().nth(1), Some(&flaky), "{text}");
        assert_eq!(all.total(), 136);
    }

    #[test]
    fn what_a_stage_has_counted_is_not_lost_when_it_is_given_up() {
        let mut record = Record::new();
        record.begin("Linux 6.12 with trixie");
        record.count(Tally { passed: 96, ..Tally::NONE });
        give_up(&mut record);
        let (_, all) = record.close();
        assert_eq!(all, Tally { passed: 96, failed: 1, ..Tally::NONE });
    }
}
