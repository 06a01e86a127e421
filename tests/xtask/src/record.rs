//! The record of the work done so far, in stages, some of which run at the same time.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use verbgate_tests::table::Table;
use verbgate_tests::tally::Tally;

use crate::host::Outcome;
use crate::lane;

/// How long nothing at all may be heard: no step that ends, no case. It is a last resort: steps and
/// cases have limits of their own.
const SILENCE: Duration = Duration::from_secs(85 * 60);
/// So many lines of a report are said again at the end.
const REPORT: usize = 60;
/// How often the last resort looks.
const LOOK: Duration = Duration::from_secs(10);

/// The stages, shared by the lanes and by the last resort, which prints them if the rest does not end.
#[derive(Clone, Debug)]
pub(crate) struct Stages(Arc<Mutex<Record>>);

impl Stages {
    /// None yet; from now on, something must be heard.
    pub(crate) fn watched() -> Self {
        let stages = Self(Arc::new(Mutex::new(Record::new())));
        watch(stages.clone());
        stages
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one; an error is a failure. The work is given what takes its counts as they change.
    pub(crate) fn run(
        &self,
        name: &str,
        work: impl FnOnce(&mut dyn FnMut(Tally)) -> Result<Outcome>,
    ) {
        lane::say(&format!("== {name}"));
        self.lock().begin(name);
        let outcome = work(&mut |tally| self.lock().count(name, tally))
            .unwrap_or_else(|error| Outcome::failed(format!("FAILED: {error:#}")));
        for line in &outcome.skipped {
            lane::say(&format!("    skipped {line}"));
        }
        lane::say(&format!("    {}", outcome.tally));
        self.lock().end(name, outcome);
    }

    /// See [`Record::close`].
    pub(crate) fn close(&self) -> (String, Tally) {
        self.lock().close()
    }
}

/// The stages that have ended, and those that run.
#[derive(Debug)]
struct Record {
    stages: Vec<Stage>,
    /// With what they have counted so far.
    running: Vec<Stage>,
    /// When something was heard.
    heard: Instant,
}

/// A part of the tests.
#[derive(Clone, Debug)]
struct Stage {
    name: String,
    tally: Tally,
    flaky: Vec<String>,
    reports: Vec<String>,
    start: Instant,
    took: Duration,
}

impl Record {
    fn new() -> Self {
        Self { stages: Vec::new(), running: Vec::new(), heard: Instant::now() }
    }

    fn begin(&mut self, name: &str) {
        let (name, start) = (name.to_owned(), Instant::now());
        let (flaky, reports, took) = (Vec::new(), Vec::new(), Duration::ZERO);
        self.running.push(Stage { name, tally: Tally::NONE, flaky, reports, start, took });
        self.heard = start;
    }

    fn count(&mut self, name: &str, tally: Tally) {
        self.heard = Instant::now();
        if let Some(stage) = self.running.iter_mut().find(|stage| stage.name == name) {
            stage.tally = tally;
        }
    }

    fn end(&mut self, name: &str, outcome: Outcome) {
        self.count(name, outcome.tally);
        if let Some(at) = self.running.iter().position(|stage| stage.name == name) {
            let stage = self.running.remove(at);
            let took = stage.start.elapsed();
            let Outcome { flaky, reports, .. } = outcome;
            self.stages.push(Stage { flaky, reports, took, ..stage });
        }
    }

    /// What runs has failed, with what it has counted.
    fn give_up(&mut self) {
        for mut stage in std::mem::take(&mut self.running) {
            stage.tally += Tally::FAILED;
            stage.took = stage.start.elapsed();
            self.stages.push(stage);
        }
    }

    /// Reports of what failed, since what others keep of a long output is its end; the table, flaky cases by name,
    /// and the sum, which is the closing line.
    fn close(&self) -> (String, Tally) {
        let mut table = Table::new(&["", "passed", "failed", "skipped", "flaky", "time"]);
        let (mut all, mut flaky, mut reports) = (Tally::NONE, String::new(), String::new());
        for stage in &self.stages {
            let Tally { passed, failed, skipped, flaky: again } = stage.tally;
            let [passed, failed, skipped, again] =
                [passed, failed, skipped, again].map(|n| n.to_string());
            let seconds = format!("{} s", stage.took.as_secs());
            table.row(&[stage.name.clone(), passed, failed, skipped, again, seconds]);
            all += stage.tally;
            for report in &stage.reports {
                let lines: Vec<&str> = report.lines().take(REPORT).map(str::trim_end).collect();
                reports += &format!("\n{}: {}\n", stage.name, lines.join("\n    "));
            }
            for name in &stage.flaky {
                flaky += &format!("flaky: {name} ({}) failed once and passed once\n", stage.name);
            }
        }
        (format!("{reports}\n{table}\n{flaky}{all}\n"), all)
    }
}

/// Ends the process when nothing is heard for too long: whoever waits for the closing line gets it,
/// and what has passed by then is counted.
fn watch(stages: Stages) {
    thread::spawn(move || {
        loop {
            thread::sleep(LOOK);
            let mut record = stages.lock();
            if record.heard.elapsed() < SILENCE {
                continue;
            }
            println!("FAILED: nothing was heard for {} min", SILENCE.as_secs() / 60);
            record.give_up();
            print!("{}", record.close().0);
            std::process::exit(1);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_is_alone_and_flaky_cases_are_before_it() {
        let mut record = Record::new();
        record.begin("tests of the crates");
        record.begin("Linux 6.12 with trixie");
        let crates = Outcome { tally: Tally { passed: 40, ..Tally::NONE }, ..Outcome::NOTHING };
        record.end("tests of the crates", crates);
        let tally = Tally { passed: 94, skipped: 1, flaky: 1, failed: 0 };
        let flaky = vec!["ping_pong".to_owned()];
        let reports = vec!["flaky ping_pong [2.0 s]\n    no event".to_owned()];
        record.end("Linux 6.12 with trixie", Outcome { tally, flaky, reports, ..Outcome::NOTHING });
        let (text, all) = record.close();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last(), Some(&"134 passed, 0 failed, 1 skipped"), "{text}");
        let flaky = "flaky: ping_pong (Linux 6.12 with trixie) failed once and passed once";
        assert_eq!(lines.iter().rev().nth(1), Some(&flaky), "{text}");
        assert_eq!(all.total(), 136);
        let report = "\nLinux 6.12 with trixie: flaky ping_pong [2.0 s]\n        no event\n\n";
        assert!(text.starts_with(report), "{text}");
    }

    #[test]
    fn what_stages_have_counted_is_not_lost_when_they_are_given_up() {
        let mut record = Record::new();
        record.begin("tests of the crates");
        record.begin("Linux 6.12 with trixie");
        record.count("tests of the crates", Tally { passed: 4, ..Tally::NONE });
        record.count("Linux 6.12 with trixie", Tally { passed: 96, ..Tally::NONE });
        record.give_up();
        let (_, all) = record.close();
        assert_eq!(all, Tally { passed: 100, failed: 2, ..Tally::NONE });
    }
}
