//! The record that nextest writes of a run, in JUnit's XML.

use std::time::Duration;

use verbgate_tests::tally::Tally;

/// What a test that cannot run here prints, before the reason.
const MARK: &str = "SKIPPED: ";

/// Tests of container engines, each of which runs alone.
const ENGINES: &str = "verbgate::containers engines::";

/// The outcome of a run: counts, and for each skipped test its name and reason.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Results {
    pub(crate) tally: Tally,
    pub(crate) skipped: Vec<String>,
    /// The name of each failed test, and what the test wrote, on stderr first.
    pub(crate) reports: Vec<String>,
    /// What the tests of engines took, one after another.
    pub(crate) engines: Duration,
}

/// Reads it. Only what nextest writes is understood: no comments, no CDATA.
pub(crate) fn read(xml: &str) -> Results {
    let mut results = Results::default();
    for case in xml.split("<testcase ").skip(1) {
        let (head, rest) = case.split_once('>').unwrap_or((case, ""));
        let name =
            || ["classname", "name"].map(|of| attribute(head, of).unwrap_or_default()).join(" ");
        if name().starts_with(ENGINES) {
            let seconds = attribute(head, "time").and_then(|time| time.parse().ok());
            let took = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            results.engines += took.unwrap_or_default();
        }
        let body = match head.ends_with('/') {
            true => "",
            false => rest.split("</testcase>").next().unwrap_or(""),
        };
        if body.contains("<failure") || body.contains("<error") {
            let said = |tag| body.split_once(tag).and_then(|(_, rest)| rest.split("</").next());
            let said =
                ["<system-err>", "<system-out>"].map(|tag| said(tag).unwrap_or_default().trim());
            results.reports.push(format!("{}:\n{}", name(), unescaped(said.join("\n").trim())));
            results.tally += Tally::FAILED;
        } else if let Some(reason) = reason(body) {
            results.skipped.push(format!("{}: {reason}", name()));
            results.tally += Tally::SKIPPED;
        } else {
            results.tally += Tally::PASSED;
        }
    }
    results
}

/// The reason of a test that skipped itself.
pub(crate) fn reason(output: &str) -> Option<String> {
    let line = output.lines().find_map(|line| line.split_once(MARK))?.1;
    let text = line.split('<').next().unwrap_or(line);
    Some(unescaped(text))
}

fn attribute(head: &str, name: &str) -> Option<String> {
    let value = head.split(&format!("{name}=\"")).nth(1)?;
    Some(unescaped(value.split('"').next()?))
}

fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    // The last one last, or `&amp;lt;` would become `<`.
    for (escape, plain) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(escape, plain);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_counted() {
        let xml = r#"<?xml version="1.0"?>
<testsuites name="nextest-run" tests="4" failures="1">
    <testsuite name="verbgate::containers" tests="2">
        <testcase name="engines::one" classname="verbgate::containers" time="61.5"/>
        <testcase name="engines::two" classname="verbgate::containers" time="8.75">
        </testcase>
    </testsuite>
    <testsuite name="verbgate::sandbox" tests="4">
        <testcase name="plain" classname="verbgate::sandbox" time="0.1"/>
        <testcase name="talks" classname="verbgate::sandbox" time="0.1">
            <system-out>running 1 test
ok &lt;failure</system-out>
        </testcase>
        <testcase name="fails" classname="verbgate::sandbox" time="0.1">
            <failure type="test failure">no</failure>
            <system-err>
thread &apos;fails&apos; panicked
</system-err>
        </testcase>
        <testcase name="needs" classname="verbgate::sandbox" time="0.1">
            <system-err>SKIPPED: needs root, it&apos;s &quot;so&quot;</system-err>
        </testcase>
    </testsuite>
</testsuites>"#;
        let results = read(xml);
        assert_eq!(results.tally, Tally { passed: 4, failed: 1, skipped: 1, flaky: 0 });
        assert_eq!(results.engines, Duration::from_millis(70_250));
        assert_eq!(results.reports, ["verbgate::sandbox fails:\nthread 'fails' panicked"]);
        assert_eq!(results.skipped, ["verbgate::sandbox needs: needs root, it's \"so\""]);
    }
}
