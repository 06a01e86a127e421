//! The rails of a pair, all tried at once: they are different NICs, as `bench` measures them. A thread tries
//! the rails of one port, and the rank's own thread listens to the others.

use std::collections::BTreeMap;
use std::panic;
use std::thread;
use std::time::Duration;

use crate::connect::Mesh;
use crate::counters;
use crate::error::Error;
use crate::exchange::Desk;
use crate::exchange::Exchange;
use crate::exchange::Fault;
use crate::exchange::Trouble;
use crate::preflight;
use crate::preflight::Check;
use crate::rail::Rail;
use crate::rendezvous::Entry;
use crate::rendezvous::Link;

/// What is wrong with a path, and which counters tell of that.
pub(crate) type Evident = (Trouble, BTreeMap<String, u64>);

/// One path that is to be tried, or that is known to be bad.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) exchange: Exchange<'a>,
    pub(crate) earlier: Option<Evident>,
}

/// What came of one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) rail: usize,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) evidence: BTreeMap<String, u64>,
    pub(crate) steps: usize,
    pub(crate) bytes: usize,
    pub(crate) state: Vec<Check>,
}

impl Job<'_> {
    /// Tries the path, and looks at it once more if it fails, while it fails.
    pub(crate) fn run(mut self, sizes: &[usize], peer: Option<&Entry>) -> Result<Found, Error> {
        let (rank, rail) = (self.exchange.rank, self.exchange.rail);
        let hardware = self.exchange.hardware.clone();
        let mine = hardware.as_deref().map(|hardware| &hardware.rail);
        let mut found = Found { rail, ..Found::default() };
        match self.earlier.take() {
            Some((trouble, evidence)) => {
                (found.trouble, found.evidence) = (Some(trouble), evidence)
            }
            None => {
                let counted = || mine.map(counters::of).unwrap_or_default();
                let before = counted();
                match self.exchange.run(sizes) {
                    Ok(done) => (found.steps, found.bytes) = done,
                    Err(Fault::All(error)) => return Err(error),
                    Err(Fault::Step(why)) => {
                        if !why.heard {
                            self.exchange.give_up(&why.words)?;
                        }
                        found.trouble = Some(why);
                    }
                }
                let moved = counters::moved(&before, &counted());
                found.evidence = counters::telling(moved, found.trouble.is_some());
            }
        }
        // Whoever is gone is not looked for.
        let fails = found.trouble.as_ref().is_some_and(|trouble| !trouble.hangs);
        if let (true, Some(mine), Some(peer)) = (fails, mine, peer) {
            found.state = preflight::again(rank, rail, mine, peer);
        }
        Ok(found)
    }
}

/// Which of a pair's rails are tried in turn, by their numbers; those of different turns are tried at once.
/// Rails of one port, at either end, are counted by the same counters, which would tell of both.
pub(crate) fn turns(mine: &[Rail], theirs: &[Rail], rails: &[usize]) -> Vec<Vec<usize>> {
    let same = |of: &[Rail], a: usize, b: usize| {
        let port = |rail: usize| of.get(rail).map(|rail| (&rail.device, rail.port));
        port(a).is_some_and(|a| port(b) == Some(a))
    };
    let mut turns: Vec<Vec<usize>> = Vec::new();
    for rail in rails.iter().copied() {
        let shares = |other: &usize| same(mine, rail, *other) || same(theirs, rail, *other);
        // A rail may join those of two ports, one at each end.
        let (joined, rest): (Vec<_>, Vec<_>) =
            turns.into_iter().partition(|turn| turn.iter().any(shares));
        turns = rest;
        let mut turn: Vec<usize> = joined.into_iter().flatten().chain([rail]).collect();
        // In one order at both ends, or each would wait for the other.
        turn.sort_unstable();
        turns.push(turn);
    }
    turns
}

/// Tries these paths, of which each inner list is in turn, and waits for all of them.
pub(crate) fn run<J: Send, T: Send>(
    turns: Vec<Vec<J>>,
    desk: &Desk,
    patience: Duration,
    (mesh, link): (&mut Mesh, &mut Link),
    run: impl Fn(J) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    thread::scope(|scope| {
        let run = &run;
        let each = |turn: Vec<J>| {
            scope.spawn(move || {
                let all: Result<Vec<T>, Error> = turn.into_iter().map(run).collect();
                // The others' ends are of no use then.
                all.inspect_err(|_| desk.stop())
            })
        };
        let threads: Vec<_> = turns.into_iter().map(each).collect();
        let is_done = || threads.iter().all(thread::ScopedJoinHandle::is_finished);
        let listened = desk.listen(mesh, link, patience, is_done);
        if listened.is_err() {
            desk.stop();
        }
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?);
        }
        listened.map(|()| all)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::hardware::Rails;
    use crate::rendezvous::tests::pair;

    const PATIENCE: Duration = Duration::from_secs(600);

    #[test]
    fn rails_that_share_a_port_at_either_end_are_in_one_turn() {
        let rail = |device: &str, port| Rail { device: device.into(), port, ..Rail::default() };
        let of = |devices: &[&str]| devices.iter().map(|d| rail(d, 1)).collect::<Vec<_>>();
        let apart = of(&["a", "b", "c", "d"]);
        assert_eq!(turns(&apart, &apart, &[0, 1, 3]), [[0], [1], [3]]);
        // Both ends make the same turns, in the same order.
        let shared = of(&["a", "b", "a", "d"]);
        for (mine, theirs) in [(&shared, &apart), (&apart, &shared)] {
            assert_eq!(turns(mine, theirs, &[0, 1, 2, 3]), [vec![1], vec![0, 2], vec![3]]);
        }
        let other = of(&["a", "b", "c", "a"]);
        assert_eq!(turns(&shared, &other, &[0, 1, 2, 3]), [vec![1], vec![0, 2, 3]]);
        let (a, b) = (of(&["a", "b", "a", "c"]), of(&["d", "e", "f", "e"]));
        assert_eq!(turns(&a, &b, &[0, 1, 2, 3]), [[0, 2], [1, 3]]);
        let late = of(&["e", "d", "f", "d", "d"]);
        assert_eq!(
            turns(&of(&["a", "b", "a", "c", "a"]), &late, &[0, 1, 2, 3, 4]),
            [[0, 1, 2, 3, 4]]
        );
        // Two ports of one device have counters each; and a peer may have fewer rails.
        let ports = [rail("a", 1), rail("a", 2)];
        assert_eq!(turns(&ports, &[], &[0, 1]), [[0], [1]]);
    }

    #[test]
    fn rails_of_different_ports_are_tried_at_the_same_time_and_those_of_one_are_not() {
        let (server, mut link, other) = pair();
        let mut mesh = Mesh::new(0, 2, Rails::default());
        let desk = Desk::new(1, &link);
        // Nobody passes before all three are there: in turn, the first would wait for ever.
        let (all, busy) = (Barrier::new(3), AtomicBool::new(false));
        let rails = vec![vec![0], vec![1, 3], vec![2]];
        let mut found = run(rails, &desk, PATIENCE, (&mut mesh, &mut link), |rail| {
            if rail == 1 {
                busy.store(true, Ordering::SeqCst);
            }
            if rail == 3 {
                assert!(!busy.load(Ordering::SeqCst), "rail 1 is not done");
            } else {
                all.wait();
            }
            if rail == 1 {
                busy.store(false, Ordering::SeqCst);
            }
            Ok(rail)
        })
        .unwrap();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3]);
        // One that cannot go on ends those that wait for the peer.
        let desk = Desk::new(1, &link);
        let rails = vec![vec![0], vec![1]];
        let one = |rail| match rail {
            0 => Err(Error::Check("of rail 0".to_owned())),
            _ => Ok(desk.word(rail).is_err()),
        };
        let error = run(rails, &desk, PATIENCE, (&mut mesh, &mut link), one).unwrap_err();
        assert!(matches!(&error, Error::Check(words) if words == "of rail 0"), "{error}");
        link.leave().unwrap();
        other.leave().unwrap();
        server.finish();
    }
}
