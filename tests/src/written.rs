//! Files that `verbgate fabric` writes for other programs, read as these programs read them: JUnit as XML,
//! metrics by Prometheus' text format. Both must say what the baseline (`--save`) of the same run says.

#![allow(
    clippy::indexing_slicing,
    reason = "serde_json's indexing never panics: what is not there is null"
)]

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use roxmltree::Document;
use roxmltree::Node;
use serde_json::Value;

/// Labels and their values.
type Labels = BTreeMap<String, String>;
/// All series of each metric.
type Metrics = BTreeMap<String, BTreeMap<Labels, f64>>;

/// The files of a run.
#[derive(Debug)]
pub(crate) struct Written {
    files: [(&'static str, PathBuf); 4],
}

impl Written {
    /// Files in a folder, whose names begin alike.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        Self {
            files: [
                ("--html", file("html")),
                ("--junit", file("xml")),
                ("--prometheus", file("prom")),
                ("--save", file("json")),
            ],
        }
    }

    /// For the rank that writes them.
    pub(crate) fn options(&self) -> Vec<String> {
        let pair =
            |(option, file): &(&str, PathBuf)| [(*option).to_owned(), file.display().to_string()];
        self.files.iter().flat_map(pair).collect()
    }

    /// Compares the files of a run with each other; `rails` are those of all ranks together.
    ///
    /// Returns the number of paths in the baseline, which are paths that were measured or are bad.
    pub(crate) fn check(&self, command: &str, rails: usize, passed: bool) -> Result<usize> {
        let [html, junit, prometheus, save] = self.files.each_ref().map(|(_, file)| {
            fs::read_to_string(file).with_context(|| format!("{}", file.display()))
        });
        let outcome: Value = serde_json::from_str(&save?)?;
        let paths = outcome["paths"].as_array().context("a baseline without paths")?;
        ensure!(outcome["passed"] == passed && outcome["command"] == command, "{outcome}");
        let verdict = if passed { ">all is well<" } else { ">FAILED<" };
        ensure!(html?.contains(verdict), "the page has another verdict");
        let cases = junit_cases(&junit?)?;
        ensure!(cases.len() == rails + 1, "{rails} rails, and {cases:?}");
        ensure!(passed == cases.values().all(|failed| !failed), "passed: {passed}; {cases:?}");
        compare(&metrics(&prometheus?)?, command, paths, passed)?;
        Ok(paths.len())
    }
}

/// The metrics have each path of the baseline, with the same numbers, and no other.
fn compare(metrics: &Metrics, command: &str, paths: &[Value], passed: bool) -> Result<()> {
    let series = |name: &str| metrics.get(name).with_context(|| format!("no metric {name}"));
    let run = series("verbgate_fabric_passed")?;
    let of_run = Labels::from([("command".to_owned(), command.to_owned())]);
    ensure!(run.get(&of_run) == Some(&f64::from(u8::from(passed))), "{run:?}");
    for (metric, field, unit) in [
        ("verbgate_fabric_path_gigabits_per_second", "gbps", 1.0),
        ("verbgate_fabric_path_latency_seconds", "p50_us", 1e6),
    ] {
        let all = series(metric)?;
        let told = paths.iter().filter_map(|path| Some((path, path[field].as_f64()?)));
        let told: Vec<(&Value, f64)> = told.collect();
        ensure!(all.len() == told.len(), "{metric}: {} of {}", all.len(), told.len());
        for (path, value) in told {
            let at = |labels: &&Labels| {
                ["from", "to", "rail"]
                    .iter()
                    .all(|name| labels.get(*name) == Some(&path[*name].to_string()))
            };
            let labels = all.keys().find(at).with_context(|| format!("{metric}: no {path}"))?;
            let found = all.get(labels).copied().unwrap_or(f64::NAN) * unit;
            ensure!((found / value - 1.0).abs() < 1e-6, "{metric}: {found}, not {value}");
        }
    }
    Ok(())
}

/// Each test of a JUnit file, and whether it failed; what the file counts is so.
fn junit_cases(text: &str) -> Result<BTreeMap<String, bool>> {
    let document = Document::parse(text)?;
    let root = document.root_element();
    ensure!(root.has_tag_name("testsuites"), "{text}");
    let elements = |node: Node<'_, '_>| node.children().filter(Node::is_element).count();
    let suite = root.first_element_child().context("no suite")?;
    ensure!(suite.has_tag_name("testsuite") && elements(root) == 1, "{text}");
    let mut cases = BTreeMap::new();
    for case in suite.children().filter(Node::is_element) {
        let attribute = |name| case.attribute(name).with_context(|| format!("no {name}: {text}"));
        let name = format!("{} {}", attribute("classname")?, attribute("name")?);
        let failure = case.first_element_child();
        ensure!(case.has_tag_name("testcase") && elements(case) <= 1, "{text}");
        if let Some(failure) = failure {
            let why = failure.attribute("message").unwrap_or_default();
            ensure!(failure.has_tag_name("failure") && !why.is_empty(), "{text}");
        }
        ensure!(cases.insert(name, failure.is_some()).is_none(), "twice: {text}");
    }
    let count = |name| suite.attribute(name).and_then(|count| count.parse().ok());
    let failures = cases.values().filter(|failed| **failed).count();
    ensure!(count("tests") == Some(cases.len()) && count("failures") == Some(failures), "{text}");
    Ok(cases)
}

/// The text format of Prometheus: a type before each metric's series, the series of a metric together,
/// none twice, and a line feed at the end.
fn metrics(text: &str) -> Result<Metrics> {
    ensure!(text.ends_with('\n'), "no line feed at the end: {text}");
    let (mut all, mut typed) = (Metrics::new(), BTreeSet::new());
    let mut current = String::new();
    for line in text.lines() {
        let wrong = || format!("not of the text format: {line:?}");
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').with_context(wrong)?;
            ensure!(kind == "gauge" && is_name(name) && typed.insert(name.to_owned()), wrong());
            current = name.to_owned();
            all.entry(current.clone()).or_default();
            continue;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            ensure!(rest.split_once(' ').is_some_and(|(name, _)| is_name(name)), wrong());
            continue;
        }
        let (name, rest) = line.split_once('{').with_context(wrong)?;
        ensure!(name == current, "{line:?} stands among those of {current}");
        let (labels, rest) = labels(rest).with_context(wrong)?;
        let value: f64 = rest.strip_prefix(' ').with_context(wrong)?.parse().with_context(wrong)?;
        let series = all.entry(name.to_owned()).or_default();
        ensure!(series.insert(labels, value).is_none(), "twice: {line:?}");
    }
    Ok(all)
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.chars().all(plain) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Of `a="1",b="2"} 3`: the labels, and what is behind them.
fn labels(text: &str) -> Result<(Labels, &str)> {
    let (mut labels, mut rest) = (Labels::new(), text);
    loop {
        let (name, after) = rest.split_once("=\"").context("no label")?;
        ensure!(is_name(name), "{name:?} is no label's name");
        let (mut value, mut escaped, mut end) = (String::new(), false, None);
        for (at, c) in after.char_indices() {
            match (escaped, c) {
                (false, '\\') => escaped = true,
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                (false, c) | (true, c @ ('\\' | '"')) => (value.push(c), escaped = false).1,
                (true, 'n') => (value.push('\n'), escaped = false).1,
                (true, c) => bail!("\\{c} is no escape"),
            }
        }
        let (_, after) = after.split_at(end.context("a label without an end")?);
        ensure!(labels.insert(name.to_owned(), value).is_none(), "{name} twice");
        let after = after.strip_prefix('"').unwrap_or(after);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok((labels, after.strip_prefix('}').context("no }")?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_as_prometheus_reads_them() {
        let text =
            "# HELP a An a.\n# TYPE a gauge\na{x=\"1,\\\"\\\\\\n\",y=\"}\"} 2.5\na{x=\"2\"} 1e-6\n";
        let all = metrics(text).unwrap();
        let labels = Labels::from([("x".into(), "1,\"\\\n".into()), ("y".into(), "}".into())]);
        assert_eq!(all["a"][&labels], 2.5);
        assert_eq!(all["a"].len(), 2);
        for wrong in [
            "a{x=\"1\"} 2\n",
            "# TYPE a gauge\na{x=\"1\"} 2",
            "# TYPE a gauge\na{x=\"1\"} two\n",
            "# TYPE a gauge\na{x=\"1\"} 2\na{x=\"1\"} 3\n",
            "# TYPE a gauge\n# TYPE b gauge\na{x=\"1\"} 2\n",
            "# TYPE a gauge\na{x=\"\\q\"} 2\n",
            "# TYPE a gauge\na{x=\"1\" 2\n",
        ] {
            assert!(metrics(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn tests_are_read_as_build_servers_read_them() {
        let suite = |inner: &str| {
            format!(
                "<testsuites><testsuite name=\"n\" tests=\"2\" failures=\"1\">{inner}</testsuite></testsuites>"
            )
        };
        let good = "<testcase classname=\"c\" name=\"a\"/><testcase classname=\"c\" name=\"b\">\
                    <failure message=\"&lt;why&gt;\">x</failure></testcase>";
        let cases = junit_cases(&suite(good)).unwrap();
        assert_eq!(
            cases.into_iter().collect::<Vec<_>>(),
            [("c a".to_owned(), false), ("c b".to_owned(), true)]
        );
        for wrong in ["", "<testcase classname=\"c\" name=\"a\"/>", &good.replace("&lt;", "<")] {
            assert!(junit_cases(&suite(wrong)).is_err(), "{wrong}");
        }
    }
}
