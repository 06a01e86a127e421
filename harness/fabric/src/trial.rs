//! The trial of all paths: the ranks connect what passed the preflight, probe all of that at once,
//! and exchange data in rounds of disjoint pairs. What fails is looked at once more while it fails,
//! and nothing that fails ends the rest.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

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
use crate::exchange::OVER;
use crate::exchange::Trouble;
use crate::options::Identity;
use crate::pairs;
use crate::pairs::Choosing;
use crate::pairs::Pairs;
use crate::preflight;
use crate::probe;
use crate::probe::Probed;
use crate::progress::Progress;
use crate::rendezvous::Link;
use crate::rendezvous::Table;
use crate::report::PathReport;
use crate::report::Tally;
use crate::sound::Sound;
use verbgate_host::output::say;

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
    pub(crate) choosing: &'a Choosing,
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

/// Sizes by default, verbs of each size, and other steps: about, for the time that they take.
const SIZES: usize = 13;
const VERBS: usize = 5;
const OTHERS: usize = 7;

/// What was found before the exchanges, and when the first began.
#[derive(Debug)]
struct Before<'a> {
    open: &'a Unconnected,
    probed: &'a Probed,
    began: Instant,
}

impl Before<'_> {
    /// What is wrong with a path, and what counters say of it.
    fn trouble(
        &self,
        rank: u32,
        partner: u32,
        rail: usize,
    ) -> Option<(Trouble, BTreeMap<String, u64>)> {
        if let Some(trouble) = unconnected(self.open, rank, partner, rail) {
            return Some((trouble, BTreeMap::new()));
        }
        let trouble = self.probed.troubles.get(&(partner, rail))?.clone();
        Some((trouble, self.probed.evidence.get(&rail).cloned().unwrap_or_default()))
    }
}

impl Trial<'_> {
    /// The rounds of pairs, which rank 0 says before the first.
    ///
    /// # Errors
    /// When the time is too short.
    pub(crate) fn plan(&self) -> Result<Vec<Pairs>, Error> {
        let rails = self.table.entries.iter().map(|entry| entry.rails.len()).max().unwrap_or(1);
        let sizes = if self.sizes.is_empty() { SIZES } else { self.sizes.len() };
        let steps = rails * 2 * (sizes * VERBS + OTHERS);
        let (rounds, words) = self.choosing.plan(self.me.ranks, steps)?;
        if self.me.rank == 0 && self.me.ranks > 1 {
            say(&format!("{}: {words}", self.what));
        }
        Ok(rounds)
    }

    /// Leaves out what failed in the preflight, ranks that are not there, and pairs that are not chosen.
    /// After a quick round any pair may be.
    pub(crate) fn leave_out(&self, mesh: &mut Mesh, link: &Link, sound: &Sound, rounds: &[Pairs]) {
        let Identity { rank, ranks, .. } = *self.me;
        let partners: BTreeSet<u32> =
            rounds.iter().filter_map(|pairs| pairs.partner(rank, ranks)).collect();
        let chosen = |peer: u32| self.choosing.quick || partners.contains(&peer);
        mesh.retain(|peer, rail| {
            link.has(peer) && chosen(peer) && sound.path(self.me.rank, peer, rail)
        });
    }

    /// Connects and tries; what this rank has found so far is in `tried`, also after an error.
    pub(crate) fn run(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        rounds: Vec<Pairs>,
        tried: &mut Tried,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let (rank, wait) = (self.me.rank, wait(self.me, mesh));
        let open = mesh.connect_some(link, "connect", self.me.patience)?;
        let probed = probe::run(self.me, mesh, link, wait)?;
        let rails = 0..mesh.hardware.len();
        tried.tallies = rails.map(|rail| Tally { rank, rail, ..Tally::default() }).collect();
        let before = Before { open: &open, probed: &probed, began };
        let mut met = self.exchanges(mesh, link, &before, rounds, tried)?;
        if self.choosing.quick {
            // What is bad may be of either end: each is tried with others.
            self.untried(mesh, link, &before, &met, tried)?;
            let own: Vec<(u32, u32)> =
                bad_paths(tried).map(|path| (path.rank, path.peer)).collect();
            let told = link.gather("more", &(own, met.clone()), wait, |link, from, body| {
                mesh.hear(link, from, body)
            })?;
            let all: BTreeSet<u32> = told.keys().copied().collect();
            let bad = told.values().flat_map(|(bad, _)| bad.iter().flat_map(|(a, b)| [*a, *b]));
            let bad: BTreeSet<u32> = bad.filter(|rank| all.contains(rank)).collect();
            let pairs =
                told.iter().flat_map(|(rank, (_, met))| met.iter().map(move |m| (*rank, *m)));
            let more = pairs::disjoint(&pairs::again(&bad, &all, &pairs.collect()));
            met.extend(self.exchanges(mesh, link, &before, more, tried)?);
        }
        mesh.done = true;
        Ok(())
    }

    /// What is known to be bad and was in no round.
    fn untried(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        before: &Before<'_>,
        met: &BTreeSet<u32>,
        tried: &mut Tried,
    ) -> Result<(), Error> {
        for peer in 0..mesh.peers.len() {
            let Some((partner, rail)) = mesh.peers.get(peer).map(|peer| (peer.rank, peer.rail))
            else {
                continue;
            };
            if !met.contains(&partner) && before.trouble(self.me.rank, partner, rail).is_some() {
                self.path(mesh, link, before, peer, tried)?;
            }
        }
        Ok(())
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
        before: &Before<'_>,
        rounds: Vec<Pairs>,
        tried: &mut Tried,
    ) -> Result<BTreeSet<u32>, Error> {
        let Identity { rank, ranks, .. } = *self.me;
        let mut met = BTreeSet::new();
        let partners = rounds.iter().filter_map(|pairs| pairs.partner(rank, ranks));
        let mut progress = Progress::new(self.what, rounds.len(), rank == 0);
        for (number, partner) in partners.enumerate() {
            met.insert(partner);
            progress.step(number, bad_paths(tried).count().max(mesh.known.failures()));
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
        Ok(met)
    }

    /// One path; whether anything can be said of it.
    fn path(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        before: &Before<'_>,
        peer: usize,
        tried: &mut Tried,
    ) -> Result<bool, Error> {
        let rank = self.me.rank;
        let Some((partner, rail)) = mesh.peers.get(peer).map(|peer| (peer.rank, peer.rail)) else {
            return Ok(false);
        };
        let known = mesh.known.is_enough(rank, partner, rail);
        let earlier = before.trouble(rank, partner, rail);
        let over = self
            .choosing
            .within
            .is_some_and(|within| before.began.elapsed().as_secs_f64() >= within);
        let (mut steps, mut bytes) = (0, 0);
        let (trouble, evidence) = match earlier {
            Some((trouble, evidence)) => (Some(trouble), evidence),
            None => {
                let counters_before = counted(mesh, rail);
                let (patience, injection) = (self.me.patience, self.injection);
                let mut exchange = Exchange { mesh, link, peer, patience, injection };
                let stopped = exchange.link.interrupt.has_come();
                let why = match (stopped, known, over) {
                    (true, ..) => Some(INTERRUPTED),
                    (_, true, _) => Some(KNOWN),
                    (.., true) => Some(OVER),
                    _ => None,
                };
                if let Some(why) = why {
                    exchange.give_up(why)?;
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
                let moved = counters::moved(&counters_before, &counted(mesh, rail));
                (trouble.clone(), counters::telling(moved, trouble.is_some()))
            }
        };
        let not =
            |words: &str| trouble.as_ref().is_some_and(|trouble| trouble.words.ends_with(words));
        if not(KNOWN) || not(INTERRUPTED) || not(OVER) {
            return Ok(false);
        }
        if let Some(Trouble { heard: false, hangs: false, .. }) = &trouble
            && evidence_of_network(trouble.as_ref())
        {
            mesh.known.note(rank, partner, rail);
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

fn bad_paths(tried: &Tried) -> impl Iterator<Item = &PathReport> {
    tried.paths.iter().filter(|path| path.trouble.is_some())
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
