//! Outputs beside what is printed: a page for people, JUnit for build servers, Prometheus for
//! monitoring, and a baseline for the next run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use crate::error::Error;
use crate::files::Outputs;
use crate::matrix;
use crate::matrix::escaped;
use crate::outcome::Changes;
use crate::outcome::Outcome;

impl Outputs {
    /// The baseline to compare with, before anything is measured: a wrong name is told at once.
    pub(crate) fn baseline(&self, rank: u32) -> Result<Option<Outcome>, Error> {
        self.against.as_deref().filter(|_| rank == 0).map(Outcome::load).transpose()
    }

    /// Writes all that is asked for; what has changed since the baseline.
    pub(crate) fn write(
        &self,
        outcome: &Outcome,
        baseline: Option<&Outcome>,
        tolerance: f64,
    ) -> Result<Option<Changes>, Error> {
        let changes = baseline.map(|baseline| outcome.changes(baseline, tolerance));
        let write = |file: &Option<PathBuf>, text: &dyn Fn() -> String| match file {
            Some(file) => fs::write(file, text()).map_err(|error| cannot_write(file, error)),
            None => Ok(()),
        };
        write(&self.html, &|| matrix::html(outcome, changes.as_ref()))?;
        write(&self.junit, &|| junit(outcome))?;
        write(&self.prometheus, &|| prometheus(outcome))?;
        if let Some(file) = &self.save {
            outcome.save(file)?;
        }
        Ok(changes)
    }
}

fn cannot_write(file: &Path, error: std::io::Error) -> Error {
    Error::Io { what: format!("cannot write {}", file.display()), error }
}

/// A test for each rail of each rank, which fails with the words of all its bad paths; and one for
/// the run as a whole.
fn junit(outcome: &Outcome) -> String {
    let Outcome { command, hosts, tested, paths, findings, passed, .. } = outcome;
    let mut bad: BTreeMap<(u32, usize), Vec<String>> = BTreeMap::new();
    for path in paths.iter().filter(|path| !path.good) {
        let words = format!("to rank {}: {}", path.to, path.why.join("; "));
        bad.entry((path.from, path.rail)).or_default().push(words);
    }
    let all = tested.iter().chain(bad.keys()).collect::<std::collections::BTreeSet<_>>();
    let (tests, failures) = (all.len() + 1, bad.len() + usize::from(!passed));
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "<testsuites><testsuite name=\"verbgate fabric {}\" tests=\"{tests}\" \
         failures=\"{failures}\">",
        escaped(command)
    );
    let mut case = |class: &str, name: &str, failed: Option<String>| {
        let (class, name) = (escaped(class), escaped(name));
        let _ = match failed {
            None => writeln!(text, "<testcase classname=\"{class}\" name=\"{name}\"/>"),
            Some(why) => writeln!(
                text,
                "<testcase classname=\"{class}\" name=\"{name}\"><failure message=\"{}\">{}</failure>\
                 </testcase>",
                escaped(why.lines().next().unwrap_or_default()),
                escaped(&why)
            ),
        };
    };
    let why = || match findings.is_empty() {
        true => "see the other tests".to_owned(),
        false => findings.join("\n"),
    };
    case("run", command, (!passed).then(why));
    for (rank, rail) in all {
        let host = hosts.get(rank).map_or("", String::as_str);
        let class = format!("rank {rank} on {host}");
        let why = bad.get(&(*rank, *rail)).map(|why| why.join("\n"));
        case(&class, &format!("rail {rail}"), why);
    }
    text + "</testsuite></testsuites>\n"
}

/// Metrics by path, as far as paths were measured, and of the run.
fn prometheus(outcome: &Outcome) -> String {
    let Outcome { command, hosts, paths, findings, passed, .. } = outcome;
    // A label's value: backslash, quote and line feed are escaped (the exposition format).
    let label = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let command = label(command);
    let mut text = String::new();
    let mut family = |name: &str, help: &str, lines: Vec<String>| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        lines.iter().for_each(|line| {
            let _ = writeln!(text, "{name}{line}");
        });
    };
    let run = |value: usize| vec![format!("{{command=\"{command}\"}} {value}")];
    family("verbgate_fabric_passed", "1 if all is well.", run(usize::from(*passed)));
    family("verbgate_fabric_findings", "Causes that were found.", run(findings.len()));
    let bad = paths.iter().filter(|path| !path.good).count();
    family("verbgate_fabric_bad_paths", "Ends of paths that are bad.", run(bad));
    let of = |value: &dyn Fn(&crate::outcome::PathView) -> Option<f64>| -> Vec<String> {
        let line = |path: &crate::outcome::PathView| {
            let host = |rank| label(hosts.get(&rank).map_or("", String::as_str));
            Some(format!(
                "{{command=\"{command}\",from=\"{}\",from_host=\"{}\",to=\"{}\",to_host=\"{}\",\
                 rail=\"{}\"}} {}",
                path.from,
                host(path.from),
                path.to,
                host(path.to),
                path.rail,
                value(path)?
            ))
        };
        paths.iter().filter_map(line).collect()
    };
    let good = of(&|path| Some(f64::from(u8::from(path.good))));
    family("verbgate_fabric_path_good", "1 if the path is well.", good);
    let gbps = of(&|path| path.gbps);
    family("verbgate_fabric_path_gigabits_per_second", "The best of the path.", gbps);
    let seconds = of(&|path| Some(path.p50_us? / 1e6));
    family("verbgate_fabric_path_latency_seconds", "The median of the smallest size.", seconds);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::example;

    #[test]
    fn build_servers_and_monitoring_get_what_they_can_read() {
        let xml = junit(&example());
        assert!(xml.contains("tests=\"4\" failures=\"2\""), "{xml}");
        assert!(xml.contains("classname=\"rank 1 on node1\" name=\"rail 0\"/>"), "{xml}");
        let failed =
            "<failure message=\"to rank 2: RETRY_EXC_ERR &lt;12&gt; &amp; &quot;more&quot;\">";
        assert!(xml.contains(failed), "{xml}");
        // An XML reader finds them, with the words as they were said.
        let document = roxmltree::Document::parse(&xml).unwrap();
        let all = document.descendants();
        assert_eq!(all.clone().filter(|node| node.has_tag_name("testcase")).count(), 4);
        let why: Vec<&str> = all
            .filter(|node| node.has_tag_name("failure"))
            .filter_map(|node| node.attribute("message"))
            .collect();
        assert_eq!(why[1], "to rank 2: RETRY_EXC_ERR <12> & \"more\"", "{xml}");
        let text = prometheus(&example());
        assert!(text.contains("verbgate_fabric_passed{command=\"bench\"} 0\n"), "{text}");
        let line = "verbgate_fabric_path_gigabits_per_second{command=\"bench\",from=\"1\",\
                    from_host=\"node1\",to=\"0\",to_host=\"node0\",rail=\"0\"} 13\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("rail=\"0\"} 0.000003\n"), "{text}");
        // What failed has no numbers, never zeroes.
        assert_eq!(text.matches("gigabits_per_second{").count(), 2);
    }

    #[test]
    fn files_are_written_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(folder.path().join(name));
        let outputs = Outputs {
            html: at("p.html"),
            junit: at("j.xml"),
            prometheus: at("m.prom"),
            save: at("b.json"),
            against: None,
        };
        assert_eq!(outputs.write(&example(), None, 10.0).unwrap(), None);
        for name in ["p.html", "j.xml", "m.prom", "b.json"] {
            assert!(fs::metadata(folder.path().join(name)).unwrap().len() > 100, "{name}");
        }
        let again = Outputs { against: at("b.json"), ..Outputs::default() };
        let baseline = again.baseline(0).unwrap();
        let changes = again.write(&example(), baseline.as_ref(), 10.0).unwrap();
        assert_eq!(changes, Some(Changes::default()));
        let nowhere = Outputs { junit: at("none/j.xml"), ..Outputs::default() };
        let error = nowhere.write(&example(), None, 10.0).unwrap_err();
        assert!(error.to_string().contains("cannot write "), "{error}");
    }
}
