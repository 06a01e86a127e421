//! Findings: all that the ranks found, as causes. Each cause is named once, with place, evidence
//! and remedy.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use crate::blame;
use crate::blame::Blamed;
use crate::cause::Cause;
use crate::counters;
use crate::counters::Sign;
use crate::exchange::INTERRUPTED;
use crate::exchange::Trouble;
use crate::explain;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::report::PathReport;

/// `IBV_WC_WR_FLUSH_ERR`: of those that follow an error.
const FLUSHED: u32 = 5;
/// So many packets that were repeated are no accident of one path.
const LOSSES: u64 = 3;
/// Lines of evidence of one cause; the report has all.
const EVIDENCE: usize = 12;

/// A cause, where it is, and what points to it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Finding {
    pub(crate) cause: Cause,
    pub what: String,
    pub evidence: Vec<String>,
    pub remedy: String,
    /// Whom it is about.
    pub ranks: BTreeSet<u32>,
    /// None: all of them.
    pub rail: Option<usize>,
}

impl Finding {
    /// What other ranks are told: rank 0 has the rest.
    pub(crate) fn brief(mut self) -> Self {
        if let more @ 1.. = self.evidence.len().saturating_sub(EVIDENCE) {
            self.evidence.truncate(EVIDENCE);
            self.evidence.push(format!("and {more} more, which rank 0 has"));
        }
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CAUSE {}: {}", self.cause, self.what)?;
        for evidence in self.evidence.iter().take(EVIDENCE) {
            write!(f, "\n        evidence: {evidence}")?;
        }
        if let more @ 1.. = self.evidence.len().saturating_sub(EVIDENCE) {
            write!(f, "\n        evidence: and {more} more")?;
        }
        write!(f, "\n        remedy: {}", self.remedy)
    }
}

/// All causes, what explains the others first.
pub(crate) fn all(checks: &[Check], paths: &[PathReport]) -> Vec<Finding> {
    let mut findings = of_checks(checks);
    findings.extend(of(paths));
    findings.sort_by_key(|finding| finding.cause);
    fold(findings)
}

/// What is explained by a cause that came before is evidence of that.
fn fold(findings: Vec<Finding>) -> Vec<Finding> {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        let explains = |earlier: &&mut Finding| {
            earlier.cause <= Cause::ArpFlux
                && (earlier.rail.is_none() || earlier.rail == finding.rail)
                && !earlier.ranks.is_disjoint(&finding.ranks)
        };
        match kept.iter_mut().find(explains) {
            Some(earlier) => {
                earlier.evidence.push(format!("hence {}: {}", finding.cause, finding.what));
            }
            None => kept.push(finding),
        }
    }
    kept
}

/// The causes that failed checks name.
fn of_checks(checks: &[Check]) -> Vec<Finding> {
    type Key = (Cause, Option<u32>, Option<usize>);
    let mut groups: BTreeMap<Key, Vec<&Check>> = BTreeMap::new();
    for check in checks.iter().filter(|check| check.verdict == Verdict::Fail) {
        let cause = check.cause.unwrap_or(Cause::Failed);
        let key = match cause {
            // Which of them differs is told by all; with most of them, by each.
            Cause::GidTypeMismatch
            | Cause::AddressFamilyMismatch
            | Cause::MtuMismatch
            | Cause::RailDown => (cause, None, check.rail),
            Cause::AsymmetricRails => (cause, None, None),
            Cause::MemlockTooSmall => (cause, Some(check.rank), None),
            // It is the one that is asked for who answers wrongly, or not at all.
            Cause::ArpFlux => (cause, check.peer, None),
            // A gateway is that of the rank that asks.
            Cause::NoNeighbour => (cause, check.peer.or(Some(check.rank)), check.rail),
            _ => (cause, Some(check.rank), check.rail),
        };
        groups.entry(key).or_default().push(check);
    }
    groups
        .into_iter()
        .map(|((cause, rank, rail), checks)| of_group(cause, rank, rail, &checks))
        .collect()
}

fn of_group(cause: Cause, rank: Option<u32>, rail: Option<usize>, checks: &[&Check]) -> Finding {
    let mut place: Vec<String> = Vec::new();
    place.extend(rank.map(|rank| format!("rank {rank}")));
    place.extend(rail.map(|rail| format!("rail {rail}")));
    // The odd one out says it best: few are like it.
    let fewest = checks.iter().min_by_key(|check| {
        let alike = |other: &&&Check| other.detail == check.detail;
        (checks.iter().filter(alike).count(), check.detail.contains("no carrier"))
    });
    let detail = fewest.map_or_else(String::new, |check| match rank {
        Some(rank) if rank == check.rank => check.detail.clone(),
        Some(_) => format!("as rank {} sees it: {}", check.rank, check.detail),
        None => format!("rank {}: {}", check.rank, check.detail),
    });
    place.push(detail);
    // Those who ask are not those who answer.
    let asked = cause == Cause::ArpFlux;
    let ranks = checks.iter().map(|check| check.rank).filter(|_| !asked).chain(rank).collect();
    let of = |check: &&Check| {
        let rail = check.rail.map_or_else(String::new, |rail| format!(", rail {rail}"));
        format!("rank {}{rail}: {}: {}", check.rank, check.check, check.detail)
    };
    let evidence = checks.iter().map(of).collect();
    Finding {
        cause,
        what: place.join(": "),
        evidence,
        remedy: cause.remedy().to_owned(),
        ranks,
        rail,
    }
}

/// Both ends of a path.
#[derive(Debug, Default)]
struct Ends<'a> {
    of: Vec<&'a PathReport>,
}

/// What one path's trouble comes to.
#[derive(Debug)]
struct Charge<'a> {
    cause: Cause,
    /// The rank whose fault it is, if the error tells.
    accused: Option<u32>,
    /// The end that tells.
    teller: &'a PathReport,
    trouble: Option<&'a Trouble>,
}

/// The causes that paths name.
pub(crate) fn of(paths: &[PathReport]) -> Vec<Finding> {
    let mut ends: BTreeMap<blame::RailPath, Ends<'_>> = BTreeMap::new();
    for path in paths {
        let key = (path.rank.min(path.peer), path.rank.max(path.peer), path.rail);
        ends.entry(key).or_default().of.push(path);
    }
    let charges: BTreeMap<blame::RailPath, Charge<'_>> =
        ends.iter().filter_map(|(key, ends)| Some((*key, charge(ends)?))).collect();
    let mut causes: BTreeMap<(Cause, Option<u32>), Vec<blame::RailPath>> = BTreeMap::new();
    for (key, charge) in &charges {
        causes.entry((charge.cause, charge.accused)).or_default().push(*key);
    }
    let mut findings = Vec::new();
    for ((cause, accused), bad) in causes {
        let of: Vec<(blame::RailPath, &Charge<'_>, &Ends<'_>)> =
            bad.iter().filter_map(|key| Some((*key, charges.get(key)?, ends.get(key)?))).collect();
        if let Some(rank) = accused {
            findings.push(finding(cause, &format!("rank {rank}"), BTreeSet::from([rank]), &of));
            continue;
        }
        let tried = ends.keys().map(|key| (*key, bad.contains(key))).collect();
        for place in blame::of(&tried) {
            let of: Vec<_> = of.iter().filter(|(key, ..)| place.holds(*key)).copied().collect();
            let ranks = match place {
                Blamed::Rank(rank) | Blamed::RailOfRank(_, rank) => BTreeSet::from([rank]),
                _ => of.iter().flat_map(|((a, b, _), ..)| [*a, *b]).collect(),
            };
            findings.push(finding(cause, &place.to_string(), ranks, &of));
        }
    }
    findings
}

/// What went wrong between two ends, if anything.
fn charge<'a>(ends: &Ends<'a>) -> Option<Charge<'a>> {
    // Whoever was interrupted has no fault.
    let troubles = || {
        let of = ends.of.iter().filter_map(|end| Some((*end, end.trouble.as_ref()?)));
        of.filter(|(_, trouble)| !trouble.words.ends_with(INTERRUPTED))
    };
    // What one hears of the other, the other tells; and what is flushed came after.
    let first = troubles()
        .filter(|(_, trouble)| !trouble.heard && trouble.status != Some(FLUSHED))
        .min_by_key(|(_, trouble)| (trouble.hangs, trouble.at));
    let any = || troubles().next();
    let Some((teller, trouble)) = first.or_else(any) else {
        let teller = *ends.of.first()?;
        let cause = Cause::PacketLoss;
        let lost = losses(ends) >= LOSSES;
        return lost.then_some(Charge { cause, accused: None, teller, trouble: None });
    };
    let PathReport { rank, peer, .. } = teller;
    let cause = trouble.cause.unwrap_or(Cause::Failed);
    let cause = match cause {
        Cause::NothingArrives | Cause::CannotConnect | Cause::Stall => {
            // What has changed since the preflight explains it.
            let failed = ends.of.iter().flat_map(|end| &end.state);
            let failed = failed.filter(|check| check.verdict == Verdict::Fail);
            let found = failed.filter_map(|check| check.cause).min();
            let unready = total(ends, Sign::Unready);
            match (cause, found) {
                (_, Some(found)) => found,
                (Cause::NothingArrives, None) if trouble.at > 0 => Cause::PacketLoss,
                (Cause::Stall, None) if unready > 0 => Cause::NoReceives,
                // Soft-RoCE repeats for ever what is not acknowledged (retry_cnt 7, rxe_comp.c).
                (Cause::Stall, None) if losses(ends) > 0 && trouble.at > 0 => Cause::PacketLoss,
                (Cause::Stall, None) if losses(ends) > 0 => Cause::NothingArrives,
                _ => cause,
            }
        }
        _ => cause,
    };
    let accused = match cause {
        Cause::NoReceives | Cause::PeerHangs | Cause::SegmentCount => Some(*peer),
        Cause::WrongRkey | Cause::LocalError => Some(*rank),
        _ => None,
    };
    Some(Charge { cause, accused, teller, trouble: Some(trouble) })
}

fn total(ends: &Ends<'_>, sign: Sign) -> u64 {
    ends.of.iter().map(|end| counters::total(&end.evidence, sign)).sum()
}

fn losses(ends: &Ends<'_>) -> u64 {
    total(ends, Sign::Loss)
}

fn finding(
    cause: Cause,
    place: &str,
    ranks: BTreeSet<u32>,
    of: &[(blame::RailPath, &Charge<'_>, &Ends<'_>)],
) -> Finding {
    let mut evidence = Vec::new();
    let mut entry = None;
    let mut words = None;
    for (_, charge, ends) in of {
        let PathReport { rank, peer, rail, .. } = charge.teller;
        match charge.trouble {
            Some(trouble) => {
                evidence.push(format!("rank {rank} with {peer}, rail {rail}: {}", trouble.words));
                words = words.or(Some(trouble.words.clone()));
                entry = entry.or(trouble.status.and_then(explain::completion));
            }
            None => evidence.push(format!(
                "ranks {rank} and {peer}, rail {rail}: all arrived in the end, and {} packets were \
                 lost or repeated",
                losses(ends)
            )),
        }
        evidence.extend(ends.of.iter().flat_map(|end| beside(end)));
    }
    let rails: BTreeSet<usize> = of.iter().map(|((_, _, rail), ..)| *rail).collect();
    let rail = rails.first().copied().filter(|_| rails.len() == 1);
    let what = match (entry, words) {
        (Some(entry), _) => {
            let likely = entry.causes.first().copied().filter(|_| cause != Cause::PacketLoss);
            let likely = likely.map_or_else(String::new, |likely| format!(": {likely}"));
            format!("{place}: {}: {}{likely}", entry.class, entry.name)
        }
        (None, Some(words)) => format!("{place}: {words}"),
        (None, None) => format!("{place}: packets are lost on the way"),
    };
    let more = entry.map_or_else(String::new, |entry| {
        format!(" (other causes: `verbgate explain {}`)", entry.name)
    });
    let remedy = format!("{}{more}", cause.remedy());
    Finding { cause, what, evidence, remedy, ranks, rail }
}

/// What an end saw besides: counters that tell, and how the peer is reached now.
fn beside(end: &PathReport) -> Vec<String> {
    let PathReport { rank, rail, evidence, state, .. } = end;
    let moved = evidence.iter().filter(|(name, _)| counters::sign(name).is_some());
    let mut lines: Vec<String> = moved
        .map(|(name, delta)| format!("{name} of rank {rank}, rail {rail}, rose by {delta}"))
        .collect();
    lines.extend(state.iter().map(|check| {
        format!("rank {rank}, rail {rail}, afterwards: {}: {}", check.check, check.detail)
    }));
    lines
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
                        cause: Some(Cause::of_status(status)),
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
        of(&paths).first().map(Finding::to_string)
    }

    #[test]
    fn what_bad_paths_share_is_named() {
        assert_eq!(first(|_, _, _| false), None);
        let found = |place: &str, bad: &dyn Fn(u32, u32, usize) -> bool| {
            let first = first(bad).unwrap();
            assert!(first.starts_with(&format!("CAUSE nothing-arrives: {place}: ")), "{first}");
        };
        found("rank 2, with all others", &|a, b, _| a == 2 || b == 2);
        found("rail 1, of all ranks", &|_, _, rail| rail == 1);
        found("rail 1 of rank 3", &|a, b, r| r == 1 && (a == 3 || b == 3));
        found("the way between ranks 1 and 3", &|a, b, _| (a, b) == (1, 3));
        found("all paths of all ranks", &|_, _, _| true);
    }

    #[test]
    fn an_error_is_laid_at_the_door_of_its_class() {
        let findings = of(&paths(|a, b, _| (a == 0 && b == 1).then_some(13)));
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        let text = finding.to_string();
        let begin = "CAUSE no-receives: rank 1: receiving application: RNR_RETRY_EXC_ERR: ";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("rcvd_rnr_err of rank 0, rail 0, rose by 7"), "{text}");
        assert!(text.contains("remedy: post receives"), "{text}");
    }

    #[test]
    fn what_is_lost_without_an_error_and_what_has_changed_since_are_found() {
        let mut lossy = paths(|_, _, _| None);
        for path in &mut lossy {
            if (path.rank, path.peer, path.rail) == (1, 2, 0) {
                path.evidence.insert("out_of_seq_request".to_owned(), 9);
            }
        }
        let [finding] = &of(&lossy)[..] else { panic!() };
        assert_eq!(finding.cause, Cause::PacketLoss);
        assert!(finding.what.starts_with("the way between ranks 1 and 2 on rail 0"));

        let mut changed = paths(|a, b, r| ((a, b, r) == (0, 1, 0)).then_some(12));
        let check = Check {
            rank: 0,
            rail: Some(0),
            check: "neighbours".to_owned(),
            verdict: Verdict::Fail,
            detail: "resolves to another".to_owned(),
            cause: Some(Cause::ArpFlux),
            peer: Some(1),
        };
        changed.iter_mut().filter(|path| path.trouble.is_some()).for_each(|path| {
            path.state = vec![check.clone()];
        });
        let [finding] = &of(&changed)[..] else { panic!() };
        assert_eq!(finding.cause, Cause::ArpFlux);
        assert!(finding.evidence.iter().any(|line| line.contains("resolves to another")));
    }

    #[test]
    fn what_is_repeated_for_ever_does_not_arrive() {
        let mut stalled = paths(|a, b, r| ((a, b, r) == (0, 1, 0)).then_some(12));
        for path in stalled.iter_mut().filter(|path| path.trouble.is_some()) {
            path.evidence = BTreeMap::from([("completer_retry_err".to_owned(), 36)]);
            path.trouble.iter_mut().for_each(|t| (t.status, t.cause) = (None, Some(Cause::Stall)));
        }
        for path in &mut stalled {
            path.evidence.remove("rcvd_rnr_err");
        }
        let [finding] = &of(&stalled)[..] else { panic!() };
        assert_eq!(finding.cause, Cause::NothingArrives);
    }

    #[test]
    fn failed_checks_are_one_cause_each_and_what_follows_is_evidence() {
        let check = |rank, rail, cause, detail: &str, peer| Check {
            rank,
            rail,
            check: "check".to_owned(),
            verdict: Verdict::Fail,
            detail: detail.to_owned(),
            cause: Some(cause),
            peer,
        };
        let checks = [
            check(0, Some(0), Cause::RailDown, "fa is up and has no carrier", None),
            check(1, Some(0), Cause::RailDown, "fb is set down", None),
            check(0, Some(0), Cause::NoNeighbour, "10.0.0.2 does not answer", Some(1)),
            check(2, None, Cause::MemlockTooSmall, "RLIMIT_MEMLOCK is 1", None),
            check(2, Some(0), Cause::MemlockTooSmall, "ibv_reg_mr failed", None),
        ];
        let found = all(&checks, &[]);
        let [memory, rail] = &found[..] else { panic!("{found:?}") };
        assert_eq!((memory.cause, rail.cause), (Cause::MemlockTooSmall, Cause::RailDown));
        assert_eq!(rail.what, "rail 0: rank 1: fb is set down");
        assert!(rail.evidence.iter().any(|line| line.starts_with("hence no-neighbour")));
        // The one that differs is named, not those that are alike.
        let odd = [0, 1, 2].map(|rank| {
            let detail = if rank == 1 { "MTU is 1024" } else { "MTU is 4096" };
            check(rank, Some(0), Cause::MtuMismatch, detail, None)
        });
        let [mtu] = &all(&odd, &[])[..] else { panic!() };
        assert_eq!(mtu.what, "rail 0: rank 1: MTU is 1024");
    }
}
