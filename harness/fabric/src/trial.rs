//! The trial of all paths: the ranks connect what passed the preflight, probe all of that at once,
//! and exchange data in rounds of disjoint pairs. What fails is looked at once more while it fails,
//! and nothing that fails ends the rest.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use crate::abreast;
use crate::abreast::Evident;
use crate::abreast::Found;
use crate::abreast::Job;
use crate::cause::Cause;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::connect::Open;
use crate::connect::Peer;
use crate::error::Error;
use crate::exchange::Desk;
use crate::exchange::Exchange;
use crate::exchange::INTERRUPTED;
use crate::exchange::KNOWN;
use crate::exchange::OVER;
use crate::exchange::Trouble;
use crate::injection::Injection;
use crate::options::Identity;
use crate::pairs;
use crate::pairs::Choosing;
use crate::pairs::Pairs;
use crate::probe;
use crate::probe::Probed;
use crate::progress::Progress;
use crate::rail::Rail;
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
    fn trouble(&self, rank: u32, partner: u32, rail: usize) -> Option<Evident> {
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
        let rails = self.table.entries.iter().map(|entry| in_turn(&entry.rails)).max().unwrap_or(1);
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
        let bad = |peer: &&Peer| before.trouble(self.me.rank, peer.rank, peer.rail).is_some();
        let of = mesh.peers.iter().filter(|peer| !met.contains(&peer.rank)).filter(bad);
        let mut rails: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        of.for_each(|peer| rails.entry(peer.rank).or_default().push(peer.rail));
        rails.into_iter().try_for_each(|(partner, rails)| {
            self.pair(mesh, link, before, (partner, &rails), tried)
        })
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
            if link.has(partner) {
                let rails: Vec<usize> = (0..mesh.hardware.len()).collect();
                self.pair(mesh, link, before, (partner, &rails), tried)?;
            }
        }
        Ok(met)
    }

    /// All of these rails with one partner, at once; what is said of them is in the rails' order.
    fn pair(
        &self,
        mesh: &mut Mesh,
        link: &mut Link,
        before: &Before<'_>,
        (partner, rails): (u32, &[usize]),
        tried: &mut Tried,
    ) -> Result<(), Error> {
        let rank = self.me.rank;
        let desk = Desk::new(partner, link);
        if self.injection == Some(Injection::Disconnect) {
            disconnect(mesh, partner);
        }
        let mut jobs = BTreeMap::new();
        for peer in mesh.peers.iter().filter(|peer| peer.rank == partner) {
            let exchange = Exchange::new(mesh, peer, &desk, self.injection);
            let earlier = before.trouble(rank, partner, peer.rail);
            let why = self.why_not(mesh, link, before, (partner, peer.rail));
            match why.filter(|_| earlier.is_none()) {
                _ if !rails.contains(&peer.rail) => {}
                Some(why) => exchange.give_up(why)?,
                None => drop(jobs.insert(peer.rail, Job { exchange, earlier })),
            }
        }
        let entry = |rank| self.table.entries.iter().find(|entry| entry.rank == rank);
        let theirs = entry(partner);
        let [ours, others] = [entry(rank), theirs].map(|of| of.map_or(&[][..], |of| &of.rails));
        let open: Vec<usize> = jobs.keys().copied().collect();
        let turns = abreast::turns(ours, others, &open).into_iter();
        let turns = turns.map(|turn| turn.iter().filter_map(|rail| jobs.remove(rail)).collect());
        let turns = turns.collect();
        let run = |job: Job<'_>| job.run(self.sizes, theirs);
        let mut found = told(abreast::run(turns, &desk, self.me.patience, (mesh, link), run)?);
        for found in &mut found {
            disconnected(mesh, partner, found)?;
        }
        let rails = found.len();
        for found in found {
            self.note(mesh, link, (partner, rails), found, tried)?;
        }
        Ok(())
    }

    /// Why a path is not tried.
    fn why_not(
        &self,
        mesh: &Mesh,
        link: &Link,
        before: &Before<'_>,
        (partner, rail): (u32, usize),
    ) -> Option<&'static str> {
        let within = self.choosing.within;
        let over = within.is_some_and(|within| before.began.elapsed().as_secs_f64() >= within);
        match () {
            () if link.interrupt.has_come() => Some(INTERRUPTED),
            () if mesh.known.is_enough(self.me.rank, partner, rail) => Some(KNOWN),
            () if over => Some(OVER),
            () => None,
        }
    }

    /// Keeps what can be said of a path, and tells the others what spares them a failure.
    fn note(
        &self,
        mesh: &mut Mesh,
        link: &Link,
        (partner, rails): (u32, usize),
        found: Found,
        tried: &mut Tried,
    ) -> Result<(), Error> {
        let Found { rail, trouble, evidence, steps, bytes, state } = found;
        let (rank, peer) = (self.me.rank, partner);
        if let Some(Trouble { heard: false, hangs: false, .. }) = &trouble
            && evidence_of_network(trouble.as_ref())
        {
            mesh.known.note(rank, partner, rail);
            mesh.tell_all(link, &Control::Failed { peer, rail })?;
        }
        if let Some(tally) = tried.tallies.get_mut(rail) {
            tally.tried += 1;
            tally.good += usize::from(trouble.is_none());
            (tally.steps, tally.bytes) = (tally.steps + steps, tally.bytes + bytes);
        }
        if trouble.is_some() || !evidence.is_empty() {
            tried.paths.push(PathReport { rank, peer, rail, rails, trouble, evidence, state });
        }
        Ok(())
    }
}

/// What is said of the rails of a pair, in their order: nothing of what was not tried, and of a partner who is
/// gone, which each rail finds that waits, the first alone.
fn told(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_by_key(|found| found.rail);
    let mut gone = false;
    found.retain(|Found { trouble, .. }| {
        let Some(Trouble { words, hangs, .. }) = trouble else { return true };
        let again = *hangs && std::mem::replace(&mut gone, true);
        !again && ![KNOWN, INTERRUPTED, OVER].iter().any(|not| words.ends_with(not))
    });
    found
}

/// What librdmacm does when a program ends a connection: the peer is told, and the queue pair is in error.
fn disconnect(mesh: &mut Mesh, partner: u32) {
    mesh.cm.iter_mut().for_each(|cm| cm.end(partner));
    let of = mesh.peers.iter().filter(|peer| peer.rank == partner);
    // A queue pair in error already is what is wanted.
    of.filter_map(|peer| peer.made.as_ref()).for_each(|made| drop(made.qp.abort()));
}

/// Names the event that explains why a path has failed, if the path's peer has ended the connection.
fn disconnected(mesh: &mut Mesh, partner: u32, found: &mut Found) -> Result<(), Error> {
    let (Some(cm), Some(trouble)) = (&mut mesh.cm, &mut found.trouble) else { return Ok(()) };
    if !trouble.hangs && cm.has_ended((partner, found.rail))? {
        let words = format!("RDMA_CM_EVENT_DISCONNECTED: {}", trouble.words);
        let cause = Some(Cause::Disconnected);
        *trouble = Trouble { words, cause, at: trouble.at, ..Trouble::default() };
    }
    Ok(())
}

/// How many of a rank's rails are of one port at most, and so are tried in turn.
fn in_turn(rails: &[Rail]) -> usize {
    let all: Vec<usize> = (0..rails.len()).collect();
    abreast::turns(rails, &[], &all).iter().map(Vec::len).max().unwrap_or(1)
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
    fn of_rails_that_were_tried_at_once_those_are_told_that_found_something_of_their_own() {
        let found = |rail, words: &str, hangs| {
            let trouble = Trouble { words: words.to_owned(), hangs, ..Trouble::default() };
            let trouble = Some(trouble).filter(|_| !words.is_empty());
            Found { rail, trouble, ..Found::default() }
        };
        let all = vec![
            found(4, "rank 1 has ended", true),
            found(2, "rank 1 has ended", true),
            found(5, &format!("rank 1 says: {OVER}"), false),
            found(3, "the data differs", false),
            found(0, "", false),
            found(1, KNOWN, false),
        ];
        let told: Vec<usize> = told(all).iter().map(|found| found.rail).collect();
        assert_eq!(told, [0, 2, 3]);
    }

    #[test]
    fn a_plan_is_as_long_as_the_rails_of_one_port() {
        let rail = |device: &str, port| Rail { device: device.into(), port, ..Rail::default() };
        let eight: Vec<Rail> = (0..8).map(|at| rail(&format!("mlx5_{at}"), 1)).collect();
        assert_eq!((in_turn(&eight), in_turn(&eight[..1]), in_turn(&[])), (1, 1, 1));
        let shared = [rail("mlx5_0", 1), rail("mlx5_0", 2), rail("mlx5_0", 1)];
        assert_eq!(in_turn(&shared), 2);
    }

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
