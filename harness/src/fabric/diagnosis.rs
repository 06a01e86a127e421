//! What failed paths come to: what the first errors mean, whose they are, and what the bad paths
//! have in common.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::fabric::exchange::Trouble;
use crate::fabric::explain;
use crate::fabric::verify::PathReport;

/// `IBV_WC_WR_FLUSH_ERR`: of those that follow an error.
const FLUSHED: u32 = 5;

/// A cause, and what points to it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Finding {
    what: String,
    evidence: Vec<String>,
    remedy: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CAUSE {}", self.what)?;
        for evidence in &self.evidence {
            write!(f, "\n        evidence: {evidence}")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, "\n        remedy: {remedy}"),
            None => Ok(()),
        }
    }
}

/// The causes, the surest first.
pub(crate) fn of(paths: &[PathReport]) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(in_common(paths));
    let mut seen = BTreeSet::new();
    for (path, trouble) in troubles(paths) {
        // What one hears of the other, the other tells; and what is flushed came after.
        if trouble.heard || trouble.status == Some(FLUSHED) {
            continue;
        }
        let finding = cause(path, trouble);
        if seen.insert(finding.what.clone()) {
            findings.push(finding);
        }
    }
    findings
}

fn troubles(paths: &[PathReport]) -> impl Iterator<Item = (&PathReport, &Trouble)> {
    paths.iter().filter_map(|path| Some((path, path.trouble.as_ref()?)))
}

/// What one end's error means.
fn cause(path: &PathReport, trouble: &Trouble) -> Finding {
    let PathReport { rank, peer, rail, evidence, .. } = path;
    let between = format!("between ranks {rank} and {peer} on rail {rail}");
    let words = trouble.words.clone();
    let Some(entry) = trouble.status.and_then(explain::completion) else {
        let what = if trouble.hangs {
            format!("rank {peer} hangs: it says nothing to rank {rank}")
        } else {
            format!("{between}: {words}")
        };
        return Finding { what, evidence: vec![words], remedy: None };
    };
    let likely = entry.causes.first().unwrap_or(&"unknown");
    let whose = match entry.class {
        "local application" => format!("rank {rank}"),
        "receiving application" | "remote application" => format!("rank {peer}"),
        _ => between.clone(),
    };
    let mut found = vec![format!("rank {rank}, rail {rail}: {words}")];
    let moved = entry.counters.iter().filter_map(|name| Some((name, evidence.get(*name)?)));
    found.extend(moved.map(|(name, delta)| format!("{name} of rank {rank} rose by {delta}")));
    let what = format!("{whose}: {}: {}: {likely}", entry.class, entry.name);
    let more = match entry.causes.len() {
        0 | 1 => String::new(),
        _ => format!(" (other causes: `verbgate explain {}`)", entry.name),
    };
    Finding { what, evidence: found, remedy: Some(format!("{}{more}", entry.remedy)) }
}

/// The rank or the rail that all bad paths share, when others are good.
fn in_common(paths: &[PathReport]) -> Option<Finding> {
    let key = |path: &PathReport| (path.rank.min(path.peer), path.rank.max(path.peer), path.rail);
    let mut bad: BTreeMap<(u32, u32, usize), bool> = BTreeMap::new();
    for path in paths {
        *bad.entry(key(path)).or_default() |= path.trouble.is_some();
    }
    let all = bad.len();
    let count = |is: &dyn Fn(&(u32, u32, usize)) -> bool| {
        let of = bad.iter().filter(|(key, _)| is(key));
        of.fold((0, 0), |(broken, of), (_, bad)| (broken + usize::from(*bad), of + 1))
    };
    let (broken, _) = count(&|_| true);
    if broken == 0 || broken == all {
        return None;
    }
    let ranks = bad.keys().flat_map(|(a, b, _)| [*a, *b]).collect::<BTreeSet<u32>>();
    let rails = bad.keys().map(|(.., rail)| *rail).collect::<BTreeSet<usize>>();
    let found = |what: String| {
        let evidence = vec![format!("{broken} of {all} paths are bad: these and no others")];
        Finding { what, evidence, remedy: None }
    };
    let exactly = |(hits, of): (usize, usize)| hits == broken && of == broken;
    for rail in rails.iter().filter(|_| rails.len() > 1) {
        if exactly(count(&|(.., r)| r == rail)) {
            return Some(found(format!("rail {rail}, of all ranks")));
        }
    }
    for rank in ranks.iter().filter(|_| ranks.len() > 2) {
        if exactly(count(&|(a, b, _)| a == rank || b == rank)) {
            return Some(found(format!("rank {rank}, with all others")));
        }
        for rail in rails.iter().filter(|_| rails.len() > 1) {
            if exactly(count(&|(a, b, r)| r == rail && (a == rank || b == rank))) {
                return Some(found(format!("rail {rail} of rank {rank}")));
            }
        }
    }
    for (a, b, _) in bad.iter().filter(|(_, bad)| **bad).map(|(key, _)| key) {
        if count(&|key| (key.0, key.1) == (*a, *b)).0 == broken {
            return Some(found(format!("the way between ranks {a} and {b}")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All paths between four ranks on two rails; those for which it says so are bad.
    fn paths(bad: impl Fn(u32, u32, usize) -> Option<u32>) -> Vec<PathReport> {
        let mut paths = Vec::new();
        for rank in 0..4 {
            for peer in (0..4).filter(|peer| *peer != rank) {
                for rail in 0..2 {
                    let status = bad(rank, peer, rail);
                    let trouble = status.map(|status| Trouble {
                        status: Some(status),
                        words: "words".to_owned(),
                        ..Trouble::default()
                    });
                    let evidence = BTreeMap::from([("rcvd_rnr_err".to_owned(), 7)]);
                    paths.push(PathReport::of(rank, peer, rail, trouble, evidence));
                }
            }
        }
        paths
    }

    fn first(bad: impl Fn(u32, u32, usize) -> bool) -> Option<String> {
        let paths = paths(|a, b, rail| bad(a, b, rail).then_some(12));
        of(&paths).first().map(|finding| finding.what.clone())
    }

    #[test]
    fn what_bad_paths_share_is_named() {
        assert_eq!(first(|_, _, _| false), None);
        let found = |bad: &dyn Fn(u32, u32, usize) -> bool| first(bad).unwrap();
        assert_eq!(found(&|a, b, _| a == 2 || b == 2), "rank 2, with all others");
        assert_eq!(found(&|_, _, rail| rail == 1), "rail 1, of all ranks");
        assert_eq!(found(&|a, b, r| r == 1 && (a == 3 || b == 3)), "rail 1 of rank 3");
        assert_eq!(found(&|a, b, _| (a, b) == (1, 3)), "the way between ranks 1 and 3");
        // Everything is bad: nothing is in common but the error.
        assert!(found(&|_, _, _| true).contains("RETRY_EXC_ERR"));
    }

    #[test]
    fn an_error_is_laid_at_the_door_of_its_class() {
        let findings = of(&paths(|a, b, _| (a == 0 && b == 1).then_some(13)));
        let text = findings.iter().map(Finding::to_string).collect::<String>();
        assert!(text.contains("CAUSE rank 1: receiving application: RNR_RETRY_EXC_ERR"), "{text}");
        assert!(text.contains("rcvd_rnr_err of rank 0 rose by 7"), "{text}");
        assert!(text.contains("remedy: post receives"), "{text}");
        // What follows an error is none.
        let flushed = of(&paths(|_, _, _| Some(FLUSHED)));
        assert_eq!(flushed, []);
    }
}
