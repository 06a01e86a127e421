//! The trial: the ranks connect the sound rails, and try them in rounds of disjoint pairs.

use std::collections::BTreeSet;
use std::time::Duration;

use super::DiagnoseReport;
use crate::cause::Cause;
use crate::connect::Mesh;
use crate::connect::Open;
use crate::counters;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::exchange::Fault;
use crate::exchange::INTERRUPTED;
use crate::exchange::Injection;
use crate::exchange::Trouble;
use crate::findings;
use crate::findings::Finding;
use crate::hardware::Hardware;
use crate::options::DiagnoseOptions;
use crate::options::Identity;
use crate::preflight;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::rendezvous::Link;
use crate::report::PathReport;
use crate::steps::rounds;
use crate::verify;

/// How long connections may take. Neighbours and routes have been resolved before.
const CONNECT: Duration = Duration::from_secs(15);
/// `rnr_retry` of ibv_modify_qp(3).
const FOR_EVER: u8 = 7;

/// What is tried, by one rank.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    pub(super) args: &'a DiagnoseOptions,
    pub(super) me: &'a Identity,
    pub(super) sizes: Vec<usize>,
}

impl Trial<'_> {
    /// What all that was found comes to, unless it was interrupted. What was found so far is in the
    /// report, also when it ends with an error.
    pub(super) fn run(
        &self,
        report: &mut DiagnoseReport,
        link: &mut Link,
        hardware: Option<Vec<Hardware>>,
    ) -> Result<Option<Vec<Finding>>, Error> {
        let (rank, ranks, patience) = (self.me.rank, self.me.ranks, self.me.patience);
        // All have the same checks before them, and so leave out the same.
        let sound = Sound::new(&report.preflight);
        let mut mesh = Mesh::new(rank, ranks, hardware.unwrap_or_default());
        mesh.retain(|peer, rail| sound.path(rank, peer, rail));
        if self.args.inject == Some(Injection::Patient) {
            mesh.tuning.rnr_retry = FOR_EVER;
        }
        let open = mesh.connect_some(link, "connect", patience.min(CONNECT))?;
        self.exchanges(report, &mut mesh, link, &open)?;
        let wait = patience * ranks;
        let own = std::mem::take(&mut report.paths);
        report.paths = own.clone();
        let all =
            link.collect("diagnose", &own, wait, |link, from, body| mesh.hear(link, from, body));
        match all {
            Ok(all) => report.paths = all.unwrap_or(own),
            // The others do not end: what this rank has seen is better than nothing.
            Err(Error::Interrupted) => return Ok(None),
            Err(error) => return Err(error),
        }
        // Rank 0 alone has the paths of all.
        let causes = match rank {
            0 => findings::all(&report.preflight, &report.paths),
            _ => Vec::new(),
        };
        let brief: Vec<Finding> = causes.iter().cloned().map(Finding::brief).collect();
        let told =
            link.gather("causes", &brief, wait, |link, from, body| mesh.hear(link, from, body))?;
        let told = told.into_iter().next().filter(|_| rank != 0);
        mesh.close(link, "close", patience)?;
        Ok(Some(told.unwrap_or(causes)))
    }

    /// In each round a rank has one partner, so whatever moves on its rails is of that pair.
    fn exchanges(
        &self,
        report: &mut DiagnoseReport,
        mesh: &mut Mesh,
        link: &mut Link,
        open: &[(u32, Open)],
    ) -> Result<(), Error> {
        let rank = self.me.rank;
        for partner in rounds(rank, self.me.ranks) {
            for rail in 0..mesh.hardware.len() {
                let not = unconnected(open, rank, partner, rail);
                let of = |peer: &crate::connect::Peer| (peer.rank, peer.rail) == (partner, rail);
                let Some(peer) = mesh.peers.iter().position(of) else { continue };
                let before = verify::counted(mesh, rail);
                let (mut steps, mut bytes) = (0, 0);
                let trouble = match not {
                    Some(trouble) => Some(trouble),
                    None => {
                        let (patience, injection) = (self.me.patience, self.args.inject);
                        let mut exchange = Exchange { mesh, link, peer, patience, injection };
                        if exchange.link.interrupt.has_come() {
                            exchange.give_up(INTERRUPTED)?;
                            continue;
                        }
                        match exchange.run(&self.sizes) {
                            Ok((s, b)) => {
                                (steps, bytes) = (s, b);
                                None
                            }
                            Err(Fault::All(error)) => return Err(error),
                            Err(Fault::Step(why)) => {
                                if !why.heard {
                                    exchange.give_up(&why.words)?;
                                }
                                Some(why)
                            }
                        }
                    }
                };
                let moved = counters::moved(&before, &verify::counted(mesh, rail));
                let evidence = counters::telling(moved, trouble.is_some());
                let entry =
                    usize::try_from(partner).ok().and_then(|at| report.table.entries.get(at));
                let state = match (&trouble, mesh.hardware.get(rail), entry) {
                    (Some(_), Some(hardware), Some(entry)) => {
                        preflight::again(rank, rail, &hardware.rail, entry)
                    }
                    _ => Vec::new(),
                };
                let (rank, peer) = (rank, partner);
                let path = PathReport { rank, peer, rail, steps, bytes, trouble, evidence, state };
                report.paths.push(path);
            }
        }
        Ok(())
    }
}

/// A path that is not connected: what this end says of it, or that the other end says it.
fn unconnected(open: &[(u32, Open)], rank: u32, partner: u32, rail: usize) -> Option<Trouble> {
    let of = |(teller, open): &&(u32, Open)| {
        let pair = (*teller, open.peer);
        open.rail == rail && (pair == (rank, partner) || pair == (partner, rank))
    };
    let all: Vec<&(u32, Open)> = open.iter().filter(of).collect();
    let mine = all.iter().find(|(teller, _)| *teller == rank);
    let (teller, told) = mine.or(all.first())?;
    let heard = *teller != rank || (!told.failed && all.iter().any(|(_, open)| open.failed));
    let words = format!("cannot connect: {}", told.why);
    Some(Trouble { words, heard, cause: Some(Cause::CannotConnect), ..Trouble::default() })
}

/// Which paths passed the preflight.
#[derive(Debug)]
struct Sound {
    /// Ranks that have not all of their rails.
    ranks: BTreeSet<u32>,
    rails: BTreeSet<(u32, usize)>,
    pairs: BTreeSet<(u32, u32, usize)>,
}

impl Sound {
    fn new(checks: &[Check]) -> Self {
        let mut bad =
            Self { ranks: BTreeSet::new(), rails: BTreeSet::new(), pairs: BTreeSet::new() };
        for check in checks.iter().filter(|check| check.verdict == Verdict::Fail) {
            let opens = check.check == "device opens" || check.check == "memory registers";
            match (check.rail, check.peer) {
                (Some(rail), Some(peer)) => {
                    bad.pairs.insert((check.rank.min(peer), check.rank.max(peer), rail));
                }
                (Some(rail), None) if !opens => {
                    bad.rails.insert((check.rank, rail));
                }
                _ => {
                    bad.ranks.insert(check.rank);
                }
            }
        }
        bad
    }

    fn path(&self, a: u32, b: u32, rail: usize) -> bool {
        let good = |rank| !self.ranks.contains(&rank) && !self.rails.contains(&(rank, rail));
        good(a) && good(b) && !self.pairs.contains(&(a.min(b), a.max(b), rail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_before_is_not_tried_and_the_rest_is() {
        let check = |rank, rail, name: &str, peer| Check {
            rank,
            rail,
            check: name.to_owned(),
            verdict: Verdict::Fail,
            detail: String::new(),
            cause: None,
            peer,
        };
        let sound = Sound::new(&[
            check(0, Some(1), "port active", None),
            check(1, Some(0), "neighbours", Some(2)),
            check(3, Some(0), "device opens", None),
            check(4, None, "rails symmetric", None),
        ]);
        assert!(!sound.path(0, 1, 1) && sound.path(0, 1, 0));
        assert!(!sound.path(2, 1, 0) && sound.path(2, 1, 1) && sound.path(2, 0, 0));
        assert!(!sound.path(3, 0, 1) && !sound.path(1, 4, 1));
    }

    #[test]
    fn of_a_path_that_is_not_connected_the_end_tells_where_a_verb_failed() {
        let open = |peer, failed| Open { peer, rail: 0, failed, why: "why".to_owned() };
        let both = [(0, open(1, false)), (1, open(0, true))];
        assert!(unconnected(&both, 0, 1, 0).unwrap().heard);
        assert!(!unconnected(&both, 1, 0, 0).unwrap().heard);
        assert!(unconnected(&both[1..], 0, 1, 0).unwrap().heard);
        assert_eq!(unconnected(&both, 0, 2, 0), None);
        assert_eq!(unconnected(&both, 0, 1, 1), None);
    }
}
