//! The trial of all paths: the ranks connect what passed the preflight, probe all of that at once,
//! and exchange data in rounds of disjoint pairs. What fails is looked at once more while it fails,
//! and nothing that fails ends the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cause::Cause;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::connect::Open;
use crate::counters;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::exchange::Fault;
use crate::exchange::INTERRUPTED;
use crate::exchange::Injection;
use crate::exchange::KNOWN;
use crate::exchange::Trouble;
use crate::options::Identity;
use crate::preflight;
use crate::probe;
use crate::probe::Probed;
use crate::progress::Progress;
use crate::rendezvous::Link;
use crate::rendezvous::Table;
use crate::report::PathReport;
use crate::report::Tally;
use crate::sound::Sound;
use crate::steps::rounds;

/// What a busy machine may be late.
const SLACK: Duration = Duration::from_secs(20);

/// What is tried, by one rank.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    /// The command, for people who watch.
    pub(crate) what: &'static str,
    pub(crate) me: &'a Identity,
    pub(crate) table: &'a Table,
    pub(crate) sizes: &'a [usize],
    pub(crate) injection: Option<Injection>,
}

/// What one rank has tried, or all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    pub(crate) tallies: Vec<Tally>,
    /// Paths that are bad, or whose counters tell something.
    pub(crate) paths: Vec<PathReport>,
}

/// Both ends of what is bad, one per path.
type Unconnected = [(u32, Open)];

impl Trial<'_> {
    /// Leaves out what failed in the preflight, and ranks that are not there.
    pub(crate) fn leave_out(&self, mesh: &mut Mesh, link: &Link, sound: &Sound) {
        mesh.retain(|peer, rail| link.has(peer) && sound.path(self.me.rank, peer, rail));
    }

    /// Connects and tries; what this rank has found so far is in `tried`, also after an error.
    pub(crate) fn run(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        tried: &mut Tried,
    ) -> Result<(), Error> {
        let (rank, wait) = (self.me.rank, wait(self.me, mesh));
        let open = mesh.connect_some(link, "connect", self.me.patience)?;
        let probed = probe::run(self.me, mesh, link, wait)?;
        let rails = 0..mesh.hardware.len();
        tried.tallies = rails.map(|rail| Tally { rank, rail, ..Tally::default() }).collect();
        self.exchanges(mesh, link, (&open, &probed), tried)
    }

    /// All that all ranks have found, on rank 0 alone.
    pub(crate) fn collect(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        tried: &Tried,
    ) -> Result<Option<Tried>, Error> {
        let wait = wait(self.me, mesh);
        let tallies = link.collect("tallies", &tried.tallies, wait, |link, from, body| {
            mesh.hear(link, from, body)
        })?;
        let paths = link.collect(self.what, &tried.paths, wait, |link, from, body| {
            mesh.hear(link, from, body)
        })?;
        Ok(tallies.zip(paths).map(|(tallies, paths)| Tried { tallies, paths }))
    }

    /// In each round a rank has one partner, so whatever moves on its rails is of that pair.
    fn exchanges(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        before: (&Unconnected, &Probed),
        tried: &mut Tried,
    ) -> Result<(), Error> {
        let rank = self.me.rank;
        let rounds = rounds(rank, self.me.ranks);
        let mut progress = Progress::new(self.what, rounds.len(), rank == 0);
        for (number, partner) in rounds.into_iter().enumerate() {
            progress.step(number, bad(tried).max(mesh.failures()));
            let first = tried.paths.len();
            let mut rails = 0;
            for rail in 0..mesh.hardware.len() {
                if !link.has(partner) {
                    break;
                }
                let of = |peer: &crate::connect::Peer| (peer.rank, peer.rail) == (partner, rail);
                let Some(peer) = mesh.peers.iter().position(of) else { continue };
                rails += usize::from(self.path(mesh, link, before, peer, tried)?);
            }
            let of = tried.paths.get_mut(first..).unwrap_or_default();
            of.iter_mut().for_each(|path| path.rails = rails);
        }
        mesh.done = true;
        Ok(())
    }

    /// One path; whether anything can be said of it.
    fn path(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        (open, probed): (&Unconnected, &Probed),
        peer: usize,
        tried: &mut Tried,
    ) -> Result<bool, Error> {
        let rank = self.me.rank;
        let Some((partner, rail)) = mesh.peers.get(peer).map(|peer| (peer.rank, peer.rail)) else {
            return Ok(false);
        };
        let known = mesh.is_known(partner, rail);
        let earlier = unconnected(open, rank, partner, rail)
            .map(|trouble| (trouble, BTreeMap::new()))
            .or_else(|| {
                let trouble = probed.troubles.get(&(partner, rail))?.clone();
                Some((trouble, probed.evidence.get(&rail).cloned().unwrap_or_default()))
            });
        let (mut steps, mut bytes) = (0, 0);
        let (trouble, evidence) = match earlier {
            Some((trouble, evidence)) => (Some(trouble), evidence),
            None => {
                let before = counted(mesh, rail);
                let (patience, injection) = (self.me.patience, self.injection);
                let mut exchange = Exchange { mesh, link, peer, patience, injection };
                let stopped = exchange.link.interrupt.has_come();
                if stopped || known {
                    exchange.give_up(if stopped { INTERRUPTED } else { KNOWN })?;
                    return Ok(false);
                }
                let trouble = match exchange.run(self.sizes) {
                    Ok(done) => {
                        (steps, bytes) = done;
                        None
                    }
                    Err(Fault::All(error)) => return Err(error),
                    Err(Fault::Step(why)) => {
                        if !why.heard {
                            exchange.give_up(&why.words)?;
                        }
                        Some(why)
                    }
                };
                let moved = counters::moved(&before, &counted(mesh, rail));
                (trouble.clone(), counters::telling(moved, trouble.is_some()))
            }
        };
        let not =
            |words: &str| trouble.as_ref().is_some_and(|trouble| trouble.words.ends_with(words));
        if not(KNOWN) || not(INTERRUPTED) {
            return Ok(false);
        }
        if let Some(Trouble { heard: false, hangs: false, .. }) = &trouble
            && evidence_of_network(trouble.as_ref())
        {
            mesh.note_failure(rank, partner, rail);
            mesh.tell_all(link, &Control::Failed { peer: partner, rail })?;
        }
        if let Some(tally) = tried.tallies.get_mut(rail) {
            tally.tried += 1;
            tally.good += usize::from(trouble.is_none());
            (tally.steps, tally.bytes) = (tally.steps + steps, tally.bytes + bytes);
        }
        if trouble.is_some() || !evidence.is_empty() {
            let entry = self.table.entries.iter().find(|entry| entry.rank == partner);
            let state = match (&trouble, mesh.hardware.get(rail), entry) {
                // Whoever is gone is not looked for.
                (Some(trouble), Some(hardware), Some(entry)) if !trouble.hangs => {
                    preflight::again(rank, rail, &hardware.rail, entry)
                }
                _ => Vec::new(),
            };
            let peer = partner;
            tried.paths.push(PathReport { rank, peer, rail, rails: 1, trouble, evidence, state });
        }
        Ok(true)
    }
}

/// How long a rank may say nothing: longer than whatever fails takes to fail.
pub(crate) fn wait(me: &Identity, mesh: &Mesh) -> Duration {
    me.patience.max(mesh.tuning.gives_up_after() + SLACK)
}

/// Whether others would find the same with this rail, after many seconds.
fn evidence_of_network(trouble: Option<&Trouble>) -> bool {
    let cause = trouble.and_then(|trouble| trouble.cause);
    matches!(cause, Some(Cause::NothingArrives | Cause::Stall | Cause::PathMtu))
}

fn bad(tried: &Tried) -> usize {
    tried.paths.iter().filter(|path| path.trouble.is_some()).count()
}

fn counted(mesh: &Mesh, rail: usize) -> BTreeMap<String, u64> {
    mesh.hardware.get(rail).map(|hardware| counters::of(&hardware.rail)).unwrap_or_default()
}

/// A path that is not connected: what this end says of it, or that the other end says it.
fn unconnected(open: &Unconnected, rank: u32, partner: u32, rail: usize) -> Option<Trouble> {
    let of = |(teller, open): &&(u32, Open)| {
        let pair = (*teller, open.peer);
        open.rail == rail && (pair == (rank, partner) || pair == (partner, rank))
    };
    let all: Vec<&(u32, Open)> = open.iter().filter(of).collect();
    let mine = all.iter().find(|(teller, _)| *teller == rank);
    let (teller, told) = mine.or(all.first())?;
    let heard = *teller != rank || (!told.failed && all.iter().any(|(_, open)| open.failed));
    let words = format!("cannot connect: {}", told.why);
    Some(Trouble {
        words,
        heard,
        cause: told.cause.or(Some(Cause::CannotConnect)),
        ..Trouble::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_path_that_is_not_connected_the_end_tells_where_a_verb_failed() {
        let open =
            |peer, failed| Open { peer, rail: 0, failed, why: "why".to_owned(), cause: None };
        let both = [(0, open(1, false)), (1, open(0, true))];
        assert!(unconnected(&both, 0, 1, 0).unwrap().heard);
        assert!(!unconnected(&both, 1, 0, 0).unwrap().heard);
        assert!(unconnected(&both[1..], 0, 1, 0).unwrap().heard);
        assert_eq!(unconnected(&both, 0, 2, 0), None);
        assert_eq!(unconnected(&both, 0, 1, 1), None);
    }
}
