//! Findings: all that the ranks found, as causes. Each cause is named once, with place, evidence
//! and remedy.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use crate::blame;
use crate::blame::Blamed;
use crate::blame::RailPath;
use crate::blame::Totals;
use crate::cause::Cause;
use crate::counters;
use crate::counters::Sign;
use crate::exchange::INTERRUPTED;
use crate::exchange::Trouble;
use crate::explain;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::report::PathReport;
use crate::report::Tally;
use crate::trial::Tried;

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

/// All causes, what explains the others first. `lost`: ranks that are not there any more, which
/// explains whatever happened on their paths.
pub(crate) fn all(checks: &[Check], tried: &Tried, lost: Vec<Finding>) -> Vec<Finding> {
    let gone: BTreeSet<u32> =
        lost.iter().flat_map(|finding| finding.ranks.iter().copied()).collect();
    let mut findings = of_checks(checks);
    findings.extend(of_paths(tried, &gone));
    findings.extend(lost);
    findings.sort_by_key(|finding| finding.cause);
    fold(findings)
}

/// What is explained by a cause that came before is evidence of that.
fn fold(findings: Vec<Finding>) -> Vec<Finding> {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        // What concerns many ranks does not come of one of them.
        let explains = |earlier: &&mut Finding| {
            let one_path = finding.ranks.len() <= 2 && !earlier.ranks.is_disjoint(&finding.ranks);
            earlier.cause <= Cause::ArpFlux
                && (earlier.rail.is_none() || earlier.rail == finding.rail)
                && (one_path || finding.ranks.is_subset(&earlier.ranks))
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
    let ranks: BTreeSet<u32> =
        checks.iter().flat_map(|c| [Some(c.rank), c.peer]).flatten().collect();
    // Two ends that are joined by a cable see the same fault.
    let two = ranks.len() <= 2;
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
    let (unanswered, failed): (Vec<&Check>, Vec<&Check>) = failed
        .partition(|check| !two && check.cause == Some(Cause::NoNeighbour) && check.peer.is_some());
    for check in failed {
        let cause = check.cause.unwrap_or(Cause::Failed);
        let key = match cause {
            Cause::GidTypeMismatch
            | Cause::AddressFamilyMismatch
            | Cause::MtuMismatch
            | Cause::RailDown
                if two =>
            {
                (cause, None, check.rail)
            }
            // Whole clusters have the same setting.
            Cause::LossyClass => (cause, None, check.rail),
            Cause::AsymmetricRails if two => (cause, None, None),
            Cause::AsymmetricRails | Cause::MemlockTooSmall => (cause, Some(check.rank), None),
            // It is the one that is asked for who answers wrongly, or not at all.
            Cause::ArpFlux => (cause, check.peer, None),
            // A gateway is that of the rank that asks.
            Cause::NoNeighbour => (cause, check.peer.or(Some(check.rank)), check.rail),
            _ => (cause, Some(check.rank), check.rail),
        };
        groups.entry(key).or_default().push(check);
    }
    let of_groups = groups.into_iter().map(|((cause, rank, rail), checks)| {
        let mut finding = of_group(cause, rank, rail, &checks);
        // Found on one rail alone, it says nothing of the others.
        let first = checks.first().and_then(|check| check.rail);
        finding.rail = rail.or(first.filter(|_| checks.iter().all(|check| check.rail == first)));
        finding
    });
    of_groups.chain(unanswered_by(&unanswered, &ranks, checks)).collect()
}

/// Whoever does not answer, or does not hear the answers: what the pairs have in common.
fn unanswered_by(failed: &[&Check], ranks: &BTreeSet<u32>, checks: &[Check]) -> Vec<Finding> {
    let path = |check: &Check| -> Option<RailPath> {
        let (peer, rail) = (check.peer?, check.rail?);
        Some((check.rank.min(peer), check.rank.max(peer), rail))
    };
    let bad: BTreeSet<RailPath> = failed.iter().filter_map(|check| path(check)).collect();
    let rails: BTreeSet<usize> = checks.iter().filter_map(|check| check.rail).collect();
    let each = |rank: &u32| {
        let others = ranks.len().saturating_sub(1);
        rails.iter().map(|rail| ((*rank, *rail), others)).collect::<Vec<_>>()
    };
    let of_rails = ranks.iter().flat_map(each).collect();
    let pairs = bad.iter().map(|(a, b, _)| ((*a, *b), rails.len())).collect();
    let mut findings = Vec::new();
    for place in blame::of(&Totals::of_rails(&of_rails, &pairs), &bad) {
        let holds = |check: &&&Check| path(check).is_some_and(|path| place.holds(path));
        let of: Vec<&Check> = failed.iter().filter(holds).copied().collect();
        let rail = of.first().and_then(|check| check.rail);
        let rail = rail.filter(|rail| of.iter().all(|check| check.rail == Some(*rail)));
        let mut finding = of_group(Cause::NoNeighbour, None, rail, &of);
        finding.ranks = match place {
            Blamed::Rank(rank) | Blamed::RailOfRank(_, rank) => BTreeSet::from([rank]),
            _ => of.iter().flat_map(|check| [Some(check.rank), check.peer]).flatten().collect(),
        };
        finding.what = format!("{place}: {}", finding.what);
        findings.push(finding);
    }
    findings
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
    let asked = rank.is_some() && matches!(cause, Cause::ArpFlux | Cause::NoNeighbour);
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

impl Charge<'_> {
    /// The accused says nothing at all.
    fn silent(&self) -> bool {
        self.cause == Cause::PeerHangs && self.trouble.is_some_and(|trouble| trouble.hangs)
    }
}

/// The causes that paths name.
pub(crate) fn of(tried: &Tried) -> Vec<Finding> {
    of_paths(tried, &BTreeSet::new())
}

fn of_paths(tried: &Tried, gone: &BTreeSet<u32>) -> Vec<Finding> {
    let (mut ends, mut between) = (BTreeMap::<RailPath, Ends<'_>>::new(), BTreeMap::new());
    for path in &tried.paths {
        let pair = (path.rank.min(path.peer), path.rank.max(path.peer));
        ends.entry((pair.0, pair.1, path.rail)).or_default().of.push(path);
        let rails: &mut usize = between.entry(pair).or_default();
        *rails = path.rails.max(*rails);
    }
    let mut of_rails = BTreeMap::new();
    for Tally { rank, rail, tried, .. } in &tried.tallies {
        *of_rails.entry((*rank, *rail)).or_default() += tried;
    }
    let totals = Totals::of_rails(&of_rails, &between);
    let all: BTreeMap<RailPath, Charge<'_>> =
        ends.iter().filter_map(|(key, ends)| Some((*key, charge(ends)?))).collect();
    // Whatever happens with a rank that has gone, or hangs, comes of that.
    let accused =
        all.values().filter(|charge| charge.cause == Cause::PeerKilled || charge.silent());
    let dead: BTreeSet<u32> = accused.filter_map(|charge| charge.accused).collect();
    let comes_of_it = |(a, b, _): &RailPath, charge: &Charge<'_>| {
        let of = |ranks: &BTreeSet<u32>| ranks.contains(a) || ranks.contains(b);
        of(gone) || (of(&dead) && charge.accused.is_none_or(|rank| !dead.contains(&rank)))
    };
    let mut causes: BTreeMap<(Cause, Option<u32>), BTreeSet<RailPath>> = BTreeMap::new();
    for (key, charge) in all.iter().filter(|(key, charge)| !comes_of_it(key, charge)) {
        causes.entry((charge.cause, charge.accused)).or_default().insert(*key);
    }
    let mut findings = Vec::new();
    for ((cause, accused), bad) in causes {
        let of: Vec<(RailPath, &Charge<'_>, &Ends<'_>)> =
            bad.iter().filter_map(|key| Some((*key, all.get(key)?, ends.get(key)?))).collect();
        if let Some(rank) = accused {
            findings.push(finding(cause, &format!("rank {rank}"), BTreeSet::from([rank]), &of));
            continue;
        }
        // Of a path with another fault it is not known whether it has this one, too.
        let totals = totals.without(all.keys().filter(|key| !bad.contains(*key)));
        let mut left = of;
        for place in blame::of(&totals, &bad) {
            let (held, rest) = left.into_iter().partition(|(key, ..)| place.holds(*key));
            let of: Vec<_> = held;
            left = rest;
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
        Cause::NothingArrives
        | Cause::CannotConnect
        | Cause::AddrError
        | Cause::RouteError
        | Cause::Unreachable
        | Cause::Stall => {
            // What has changed since the preflight explains it.
            let found = failed_now(ends).filter_map(|check| check.cause).min();
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
    // A gateway that does not answer is that of the rank that asks, whomever the path leads to.
    let own = of_state(ends, cause).find(|check| check.peer.is_none());
    let accused = match cause {
        Cause::NoNeighbour => own.map(|check| check.rank),
        Cause::NoReceives
        | Cause::PeerHangs
        | Cause::PeerKilled
        | Cause::SegmentCount
        | Cause::Rejected
        | Cause::Disconnected => Some(*peer),
        Cause::WrongRkey | Cause::LocalError => Some(*rank),
        _ => None,
    };
    Some(Charge { cause, accused, teller, trouble: Some(trouble) })
}

/// Checks that failed after the path had failed.
fn failed_now<'a>(ends: &Ends<'a>) -> impl Iterator<Item = &'a Check> + use<'a> {
    let ends: Vec<&PathReport> = ends.of.clone();
    ends.into_iter().flat_map(|end| &end.state).filter(|check| check.verdict == Verdict::Fail)
}

/// Those of them that name this cause.
fn of_state<'a>(ends: &Ends<'a>, cause: Cause) -> impl Iterator<Item = &'a Check> + use<'a> {
    failed_now(ends).filter(move |check| check.cause == Some(cause))
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
    of: &[(RailPath, &Charge<'_>, &Ends<'_>)],
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
    // What the failed check says is nearer to the fault than the completion's status.
    let state = of.iter().find_map(|(_, _, ends)| of_state(ends, cause).next());
    let state = state.map(|check| format!("{place}: {}", check.detail));
    let what = match (entry, words) {
        _ if state.is_some() => state.unwrap_or_default(),
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
mod tests;
