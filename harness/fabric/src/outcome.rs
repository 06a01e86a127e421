//! The outcome of a run, path by path: what baselines keep and compare, and what all other forms of
//! output are made of.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;

use crate::error::Error;
use crate::findings::Finding;
use crate::rendezvous::Loss;
use crate::rendezvous::Table;
use crate::report::PathReport;
use crate::report::Tally;

/// Counts changes of the form of baselines.
const FORM: u32 = 1;

/// What is known of one path.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct PathView {
    pub from: u32,
    pub to: u32,
    pub rail: usize,
    pub(crate) good: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// The latency of the smallest size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) p50_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) why: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Outcome {
    form: u32,
    pub(crate) command: String,
    /// The hosts of all ranks that came.
    pub(crate) hosts: BTreeMap<u32, String>,
    pub(crate) rails: usize,
    /// Rails of ranks that were tried with others.
    pub(crate) tested: BTreeSet<(u32, usize)>,
    /// All that were measured; of commands that do not measure those that are bad.
    pub(crate) paths: Vec<PathView>,
    /// What is wrong: the place, and the words.
    pub(crate) findings: Vec<String>,
    pub(crate) passed: bool,
}

impl Outcome {
    pub(crate) fn new(command: &str, table: &Table, passed: bool) -> Self {
        let hosts = table.entries.iter().map(|entry| (entry.rank, entry.host.clone())).collect();
        let rails = table.entries.iter().map(|entry| entry.rails.len()).max().unwrap_or(0);
        let command = command.to_owned();
        Self { form: FORM, command, hosts, rails, passed, ..Self::default() }
    }

    /// Of paths that were tried and not measured.
    pub(crate) fn tried(
        mut self,
        tallies: &[Tally],
        paths: &[PathReport],
        lost: &BTreeMap<u32, Loss>,
        findings: &[Finding],
    ) -> Self {
        let tested = tallies.iter().filter(|tally| tally.tried > 0);
        self.tested = tested.map(|tally| (tally.rank, tally.rail)).collect();
        let bad = paths.iter().filter_map(|path| Some((path, path.trouble.as_ref()?)));
        let view = |(path, trouble): (&PathReport, &crate::exchange::Trouble)| PathView {
            from: path.rank,
            to: path.peer,
            rail: path.rail,
            why: vec![trouble.words.clone()],
            ..PathView::default()
        };
        self.paths = bad.map(view).collect();
        let lost = lost.iter().map(|(rank, why)| format!("rank {rank} {}", why.words()));
        self.findings =
            lost.chain(findings.iter().map(|f| format!("{}: {}", f.cause, f.what))).collect();
        self
    }

    /// Writes it, to be compared with later.
    pub(crate) fn save(&self, file: &Path) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(|e| Error::Check(e.to_string()))?;
        fs::write(file, text + "\n").map_err(|error| Error::Io {
            what: format!("cannot write the baseline {}", file.display()),
            error,
        })
    }

    /// Reads what an earlier run has saved.
    pub(crate) fn load(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(|error| Error::Io {
            what: format!("cannot read the baseline {}", file.display()),
            error,
        })?;
        let usage = |why: String| {
            let file = file.display();
            Error::Usage(format!("{file} is no baseline of --save: {why}"))
        };
        let outcome: Self = serde_json::from_str(&text).map_err(|e| usage(e.to_string()))?;
        if outcome.form != FORM {
            return Err(usage(format!(
                "its form is {}, and this program's is {FORM}",
                outcome.form
            )));
        }
        Ok(outcome)
    }

    /// What has changed since an earlier run: what is worse, and what is not.
    pub(crate) fn changes(&self, before: &Self, tolerance: f64) -> Changes {
        let mut changes = Changes::default();
        for (rank, host) in &self.hosts {
            match before.hosts.get(rank) {
                Some(other) if other != host => {
                    changes.other.push(format!("rank {rank} is on {host}, and was on {other}"));
                }
                None => changes.other.push(format!("rank {rank} on {host} is new")),
                _ => {}
            }
        }
        for rank in before.hosts.keys().filter(|rank| !self.hosts.contains_key(rank)) {
            changes.worse.push(format!("rank {rank} is missing"));
        }
        let key = |path: &PathView| (path.from, path.to, path.rail);
        let earlier: BTreeMap<_, &PathView> =
            before.paths.iter().map(|path| (key(path), path)).collect();
        let now: BTreeMap<_, &PathView> = self.paths.iter().map(|path| (key(path), path)).collect();
        for (key, path) in &now {
            let (from, to, rail) = key;
            let name = format!("rank {from} to {to}, rail {rail}");
            let known = earlier.get(key);
            let was_good = known.map_or_else(
                || before.tested.contains(&(*from, *rail)) && before.tested.contains(&(*to, *rail)),
                |path| path.good,
            );
            if !path.good && was_good {
                changes.worse.push(format!("{name}: was well: {}", path.why.join("; ")));
            }
            let Some(known) = known else { continue };
            if path.good && !known.good {
                changes.better.push(format!("{name}: is well now"));
            }
            let pairs = [
                ("Gb/s", path.gbps.zip(known.gbps), 1.0),
                ("us", path.p50_us.zip(known.p50_us), -1.0),
            ];
            for (unit, values, sign) in pairs {
                let Some((now, then)) = values.filter(|(_, then)| *then > 0.0) else { continue };
                let change = (now / then - 1.0) * 100.0;
                let words = format!("{name}: {now:.3} {unit}, was {then:.3} ({change:+.0} %)");
                if change * sign < -tolerance {
                    changes.worse.push(words);
                } else if change * sign > tolerance {
                    changes.better.push(words);
                }
            }
        }
        for (key, path) in earlier.iter().filter(|(key, path)| !path.good && !now.contains_key(key))
        {
            let (from, to, rail) = key;
            if self.tested.contains(&(*from, *rail)) && self.tested.contains(&(*to, *rail)) {
                changes.better.push(format!("rank {from} to {to}, rail {rail}: is well now"));
            } else {
                let why = path.why.join("; ");
                changes.other.push(format!("rank {from} to {to}, rail {rail}: not tried ({why})"));
            }
        }
        changes
    }
}

/// What differs between two runs.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Changes {
    pub(crate) worse: Vec<String>,
    pub(crate) better: Vec<String>,
    pub(crate) other: Vec<String>,
}

impl Changes {
    pub(crate) fn text(&self) -> String {
        let lines = |mark: &str, of: &[String]| -> String {
            of.iter().map(|line| format!("{mark:<6} {line}\n")).collect()
        };
        let text = lines("WORSE", &self.worse)
            + &lines("BETTER", &self.better)
            + &lines("NOTE", &self.other);
        if text.is_empty() { "nothing has changed since the baseline\n".to_owned() } else { text }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Outcome {
        let path = |from, to, rail, gbps: Option<f64>| PathView {
            from,
            to,
            rail,
            good: gbps.is_some(),
            gbps,
            p50_us: gbps.map(|_| 3.0),
            why: gbps
                .is_none()
                .then(|| "RETRY_EXC_ERR <12> & \"more\"".to_owned())
                .into_iter()
                .collect(),
        };
        Outcome {
            form: FORM,
            command: "bench".to_owned(),
            hosts: (0..3).map(|rank| (rank, format!("node{rank}"))).collect(),
            rails: 1,
            tested: (0..3).map(|rank| (rank, 0)).collect(),
            paths: vec![path(0, 1, 0, Some(390.0)), path(1, 0, 0, Some(13.0)), path(0, 2, 0, None)],
            findings: vec!["rank 1 to 0, rail 0: 3 % of the wire".to_owned()],
            passed: false,
        }
    }

    #[test]
    fn what_has_changed_is_told_and_what_has_not_is_not() {
        let before = example();
        let nothing = before.changes(&before, 10.0);
        assert_eq!(nothing, Changes::default());
        assert_eq!(nothing.text(), "nothing has changed since the baseline\n");
        let mut after = before.clone();
        after.hosts.insert(2, "spare".to_owned());
        after.hosts.insert(3, "node3".to_owned());
        after.paths[0].gbps = Some(200.0);
        after.paths[0].p50_us = Some(9.0);
        after.paths[1].gbps = Some(385.0);
        after.paths[2].good = true;
        let changes = after.changes(&before, 10.0);
        assert_eq!(
            changes.worse,
            [
                "rank 0 to 1, rail 0: 200.000 Gb/s, was 390.000 (-49 %)",
                "rank 0 to 1, rail 0: 9.000 us, was 3.000 (+200 %)"
            ]
        );
        assert_eq!(changes.better.len(), 2, "{changes:?}");
        assert_eq!(
            changes.other,
            ["rank 2 is on spare, and was on node2", "rank 3 on node3 is new"]
        );
        let back = before.changes(&after, 10.0);
        assert!(back.worse.iter().any(|line| line == "rank 3 is missing"), "{back:?}");
        assert!(back.worse.iter().any(|line| line.contains("0 to 2, rail 0: was well: RETRY")));
    }

    #[test]
    fn baselines_are_written_and_read_and_what_is_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("base.json");
        example().save(&file).unwrap();
        assert_eq!(Outcome::load(&file).unwrap(), example());
        fs::write(&file, "{}").unwrap();
        let error = Outcome::load(&file).unwrap_err();
        assert!(error.to_string().contains("is no baseline of --save"), "{error}");
        assert_eq!(error.exit_code(), 2);
        let error = Outcome::load(&folder.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("cannot read the baseline"), "{error}");
    }
}
