//! What a run counts: the outcome of each stage, and the table and the closing line of all.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use roxmltree::Document;
use roxmltree::Node;
use verbgate_tests::table::Table;

/// What a test that cannot run here prints, before the reason.
const MARK: &str = "SKIPPED: ";
/// Lines of a report that are said again at the end.
const REPORT: usize = 60;

/// How many tests passed, failed, and were skipped. Prints as the closing line of a run, in which
/// flaky ones are not: they are listed before it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Tests that failed once and passed once.
    pub(crate) flaky: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.flaky += other.flaky;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, flaky: _ } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// What became of a stage.
#[derive(Clone, Debug, Default)]
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
    pub(crate) fn of(passed: bool) -> Self {
        let tally =
            Tally { passed: usize::from(passed), failed: usize::from(!passed), ..Tally::default() };
        Self { tally, ..Self::default() }
    }

    /// One failure, which is said at the end.
    pub(crate) fn failed(report: String) -> Self {
        Self { reports: vec![report], ..Self::of(false) }
    }

    pub(crate) fn skipped(reason: &str) -> Self {
        let tally = Tally { skipped: 1, ..Tally::default() };
        Self { tally, skipped: vec![reason.to_owned()], ..Self::default() }
    }

    fn add(&mut self, other: Self) {
        self.tally += other.tally;
        self.skipped.extend(other.skipped);
        self.flaky.extend(other.flaky);
        self.reports.extend(other.reports);
    }
}

/// A part of a run: its time is the wall's, or that of its tests one after another.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// Reports of what failed, since what others keep of a long output is its end; what was skipped; the table, flaky
/// tests by name, and the sum, which is the closing line.
pub(crate) fn close(stages: &[Stage]) -> (String, Tally) {
    let mut table = Table::new(&["", "passed", "failed", "skipped", "flaky", "time"]);
    let (mut all, mut lines) = (Tally::default(), String::new());
    let mut flaky = String::new();
    for Stage { name, outcome, took } in stages {
        let Tally { passed, failed, skipped, flaky: again } = outcome.tally;
        let counts = [passed, failed, skipped, again].map(|n| n.to_string());
        let [passed, failed, skipped, again] = counts;
        let time = format!("{} s", took.as_secs());
        table.row(&[name.clone(), passed, failed, skipped, again, time]);
        all += outcome.tally;
        for reason in &outcome.skipped {
            lines += &format!("skipped: {name}: {reason}\n");
        }
        for report in &outcome.reports {
            let report: Vec<&str> = report.lines().take(REPORT).map(str::trim_end).collect();
            lines += &format!("\n{name}: {}\n", report.join("\n    "));
        }
        for test in &outcome.flaky {
            flaky += &format!("flaky: {name} {test} failed once and passed once\n");
        }
    }
    (format!("{lines}\n{table}\n{flaky}{all}\n"), all)
}

/// Reads nextest's record of a run, in JUnit's XML: a stage for each test program, for container engines, and for
/// each device of each kernel of the lab.
pub(crate) fn of_junit(xml: &str) -> Result<Vec<Stage>, roxmltree::Error> {
    let mut stages: Vec<Stage> = Vec::new();
    let document = Document::parse(xml)?;
    for case in document.descendants().filter(|node| node.has_tag_name("testcase")) {
        let attribute = |name| case.attribute(name).unwrap_or_default();
        let (program, test) = (attribute("classname"), attribute("name"));
        let name = match program.ends_with("::lab") {
            true => test.rsplit_once("::").map_or(test, |(of, _)| of),
            false if test.starts_with("engines::") => "engines",
            false => program,
        };
        let took = attribute("time").parse().ok();
        let took = took.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let at = stages.iter().position(|stage| stage.name == name).unwrap_or_else(|| {
            let (outcome, took) = (Outcome::default(), Duration::ZERO);
            stages.push(Stage { name: name.to_owned(), outcome, took });
            stages.len() - 1
        });
        if let Some(stage) = stages.get_mut(at) {
            stage.outcome.add(of_case(case, test));
            stage.took += took.unwrap_or_default();
        }
    }
    Ok(stages)
}

fn of_case(case: Node<'_, '_>, test: &str) -> Outcome {
    let has = |tags: &[&str]| case.children().any(|node| tags.contains(&node.tag_name().name()));
    let said: Vec<&str> = case
        .descendants()
        .filter(|node| ["system-err", "system-out"].contains(&node.tag_name().name()))
        .filter_map(|node| node.text())
        .collect();
    let said = said.join("\n");
    let report = || format!("{test}:\n{}", said.trim());
    if has(&["failure", "error"]) {
        return Outcome::failed(report());
    }
    if has(&["flakyFailure", "flakyError"]) {
        let tally = Tally { flaky: 1, ..Tally::default() };
        let (flaky, reports) = (vec![test.to_owned()], vec![report()]);
        return Outcome { tally, flaky, reports, ..Outcome::default() };
    }
    match said.lines().find_map(|line| line.split_once(MARK)) {
        Some((_, reason)) => Outcome::skipped(&format!("{test}: {reason}")),
        None => Outcome::of(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<?xml version="1.0"?>
<testsuites name="nextest-run" tests="4" failures="1">
    <testsuite name="verbgate::sandbox" tests="3">
        <testcase name="passes" classname="verbgate::sandbox" time="61.5"/>
        <testcase name="fails" classname="verbgate::sandbox" time="0.1">
            <failure type="test failure">x</failure>
            <system-err>thread 'fails' panicked</system-err>
        </testcase>
        <testcase name="needs" classname="verbgate::sandbox" time="0.1">
            <system-out>SKIPPED: needs root, it&apos;s &quot;so&quot;</system-out>
        </testcase>
    </testsuite>
    <testsuite name="verbgate-tests::lab" tests="1">
        <testcase name="6.12::rxe::rping" classname="verbgate-tests::lab" time="2.5">
            <flakyFailure timestamp="" time="1" type="test failure"><system-err>no event</system-err></flakyFailure>
        </testcase>
    </testsuite>
</testsuites>"#;

    #[test]
    fn each_outcome_is_counted_and_the_closing_line_is_alone() {
        let stages = of_junit(XML).unwrap();
        let [sandbox, lab] = stages.as_slice() else { panic!("{stages:?}") };
        let tally = Tally { passed: 1, failed: 1, skipped: 1, flaky: 0 };
        assert_eq!((sandbox.outcome.tally, sandbox.took.as_millis()), (tally, 61_700));
        assert_eq!(sandbox.outcome.reports, ["fails:\nthread 'fails' panicked"]);
        assert_eq!(sandbox.outcome.skipped, ["needs: needs root, it's \"so\""]);
        assert_eq!((&*lab.name, lab.outcome.tally.flaky), ("6.12::rxe", 1));
        let (text, all) = close(&stages);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last(), Some(&"1 passed, 1 failed, 1 skipped"), "{text}");
        let flaky = "flaky: 6.12::rxe 6.12::rxe::rping failed once and passed once";
        assert_eq!(lines.iter().rev().nth(1), Some(&flaky), "{text}");
        assert_eq!((all.failed, all.flaky), (1, 1));
        assert!(text.contains("no event"), "{text}");
    }
}
