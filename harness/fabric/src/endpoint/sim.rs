//! A simulation of two ends. Each seed is one interleaving: the ends start, restart, fail and are
//! ticked, and messages are lost, repeated and reordered. Then the network turns fair, and both
//! ends must get connected to each other, once.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng as _;
use rand_xoshiro::rand_core::SeedableRng as _;

use super::Action;
use super::Body;
use super::Endpoint;
use super::Message;
use super::Sid;
use super::State;
use crate::random::hash;
use crate::steps;

/// How many interleavings, unless this variable names a number.
const VARIABLE: &str = "VERBGATE_INTERLEAVINGS";
const INTERLEAVINGS: u64 = 20_000;
/// How many rounds of 999, unless this variable names a number.
const ROUNDS_VARIABLE: &str = "VERBGATE_ROUNDS";
const ROUNDS: usize = 10;
/// How many things may go wrong in one.
const CHAOS: u64 = 60;
/// How long a fair network may take. An attempt takes ten seconds to fail, and a pause four.
const FAIR: Duration = Duration::from_secs(60);

type Qp = u64;

struct Side {
    end: Endpoint<Qp>,
    /// The queue pairs that there are.
    live: BTreeSet<Sid>,
    /// Those that await their end.
    discarding: Vec<Sid>,
}

struct World {
    random: SplitMix64,
    now: Duration,
    sides: [Side; 2],
    /// In flight, and to which side.
    flying: Vec<(usize, Message<Qp>)>,
    /// Which session was ever joined to which.
    joined: BTreeMap<Sid, Sid>,
    trace: Vec<u8>,
}

impl Side {
    fn new() -> Self {
        Self { end: Endpoint::new(), live: BTreeSet::new(), discarding: Vec::new() }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::seed_from_u64(seed),
            now: Duration::ZERO,
            sides: [Side::new(), Side::new()],
            flying: Vec::new(),
            joined: BTreeMap::new(),
            trace: Vec::new(),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.next_u64() % u64::try_from(limit).unwrap()).unwrap()
    }

    /// Lets one end act, and does what it asks for.
    fn act(
        &mut self,
        side: usize,
        act: impl FnOnce(&mut Endpoint<Qp>, Duration, super::Fresh<'_, Qp>) -> Vec<Action<Qp>>,
    ) {
        let (random, Side { end, live, .. }) = (&mut self.random, &mut self.sides[side]);
        let mut fresh = || {
            let sid = Sid(random.next_u64());
            live.insert(sid);
            Some((sid, sid.0))
        };
        let actions = act(end, self.now, &mut fresh);
        for action in actions {
            match action {
                Action::Send(message) => self.flying.push((1 - side, message)),
                Action::Join { mine, theirs, qp } => {
                    assert_eq!(qp, theirs.0, "joined to another session's queue pair");
                    assert!(self.sides[side].live.contains(&mine), "joined what is gone");
                    assert_eq!(self.joined.insert(mine, theirs), None, "used twice");
                }
                Action::Discard(sid) => self.sides[side].discarding.push(sid),
            }
        }
        self.check(side);
    }

    fn check(&self, side: usize) {
        let Side { end, live, discarding, .. } = &self.sides[side];
        assert!(live.len() <= 1, "two queue pairs: {live:?}");
        assert!(discarding.iter().all(|sid| live.contains(sid)));
        if end.state() == State::Connected {
            let (mine, theirs) = end.pair().unwrap();
            assert_eq!(self.joined.get(&mine), Some(&theirs));
            // It may send, so the peer's queue pair must have been connected to this one.
            assert_eq!(self.joined.get(&theirs), Some(&mine), "may send too early");
        }
    }

    fn deliver(&mut self, index: usize, keep: bool) {
        let (side, message) =
            if keep { self.flying[index].clone() } else { self.flying.swap_remove(index) };
        let nonce = self.random.next_u64();
        self.act(side, |end, now, fresh| end.receive(message, now, fresh, nonce));
    }

    fn discard(&mut self, side: usize) {
        if let Some(sid) = self.sides[side].discarding.pop() {
            self.sides[side].live.remove(&sid);
            self.act(side, |end, now, fresh| end.discarded(sid, now, fresh));
        }
    }

    fn chaos(&mut self) {
        for _ in 0..self.random.next_u64() % CHAOS {
            let (side, choice) = (self.below(2), self.below(16));
            self.trace.push(u8::try_from(side << 4 | choice).unwrap());
            match (choice, self.flying.len()) {
                (0..=6, flying @ 1..) => {
                    let index = self.below(flying);
                    self.trace.push(u8::try_from(index).unwrap_or(u8::MAX));
                    self.deliver(index, choice == 6);
                }
                (7, flying @ 1..) => {
                    let index = self.below(flying);
                    self.trace.push(u8::try_from(index).unwrap_or(u8::MAX));
                    self.flying.swap_remove(index);
                }
                (8..=9, _) => self.act(side, |end, now, fresh| end.start(now, fresh)),
                (10..=11, _) => self.discard(side),
                (12, _) => {
                    // The kernel destroys the queue pairs of a process that dies.
                    self.sides[side] = Side::new();
                    self.act(side, |end, now, fresh| end.start(now, fresh));
                }
                (13, _) => {
                    let sid = self.sides[side].live.first().copied().unwrap_or(Sid(0));
                    self.act(side, |end, now, _| end.fail(sid, now));
                }
                _ => {
                    self.now += Duration::from_millis(self.random.next_u64() % 3000);
                    self.act(side, |end, now, fresh| end.tick(now, fresh));
                }
            }
        }
    }

    /// Nothing is lost any more; what is in flight arrives in any order.
    fn settle(&mut self) {
        for side in 0..2 {
            self.act(side, |end, now, fresh| end.start(now, fresh));
        }
        let deadline = self.now + FAIR;
        let mut delivered = 0;
        while !self.is_settled() {
            if !self.flying.is_empty() {
                let index = self.below(self.flying.len());
                self.deliver(index, false);
                delivered += 1;
                assert!(delivered < 2000, "they talk for ever");
                continue;
            }
            for side in 0..2 {
                self.discard(side);
                self.act(side, |end, now, fresh| end.tick(now, fresh));
            }
            self.now += Duration::from_millis(50);
            assert!(self.now < deadline, "stuck: {:?}", self.states());
        }
        let [a, b] = [&self.sides[0], &self.sides[1]];
        assert_eq!((a.live.len(), b.live.len()), (1, 1), "a queue pair is left over");
    }

    fn states(&self) -> [(State, Option<(Sid, Sid)>); 2] {
        [0, 1].map(|side: usize| (self.sides[side].end.state(), self.sides[side].end.pair()))
    }

    fn is_settled(&self) -> bool {
        let [(a, ours), (b, theirs)] = self.states();
        let both = a == State::Connected && b == State::Connected && self.flying.is_empty();
        both && ours == theirs.map(|(mine, yours)| (yours, mine))
    }
}

#[test]
fn no_interleaving_is_stuck_or_connects_twice() {
    let count = std::env::var(VARIABLE).map_or(INTERLEAVINGS, |n| n.parse().unwrap());
    let mut distinct = BTreeSet::new();
    let mut most = 0;
    for seed in 0..count {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.chaos();
            world.settle();
            (hash(&world.trace), world.joined.len())
        });
        let Ok((trace, joined)) = run else { panic!("seed {seed}") };
        distinct.insert(trace);
        most = most.max(joined);
    }
    println!("{count} interleavings, {} of them distinct, at most {most} joins", distinct.len());
    // Short ones repeat.
    assert!(u64::try_from(distinct.len()).unwrap() > count * 9 / 10);
    assert!(most > 4, "nothing went wrong");
}

/// A thousand ranks connect all to all by the rounds of a tournament, both ends of each pair at the
/// same time; a rank has one pair in the making at a time, whatever their number.
#[test]
fn a_thousand_ranks_connect_by_rounds() {
    let ranks = 1000;
    let rounds: usize = std::env::var(ROUNDS_VARIABLE).map_or(ROUNDS, |n| n.parse().unwrap());
    let partners: Vec<Vec<u32>> = (0..ranks).map(|rank| steps::rounds(rank, ranks)).collect();
    let mut connected = BTreeSet::new();
    for round in 0..rounds {
        for (rank, partners) in (0..ranks).zip(&partners) {
            let partner = partners[round];
            if rank < partner {
                let pair = u64::from(rank) << 32 | u64::from(partner);
                World::new(pair).settle();
                assert!(connected.insert(pair), "they met before");
            }
        }
    }
    assert_eq!(connected.len(), rounds * 500);
    println!("{} pairs of {ranks} ranks in {rounds} rounds", connected.len());
}

/// A late message of a dead session neither disturbs a connection nor is taken for a restart.
#[test]
fn the_dead_are_told_from_the_restarted() {
    let mut world = World::new(1);
    world.settle();
    let before = world.states();
    let late =
        Message { sid: Sid(77), echo: before[0].1.map(|(mine, _)| mine), body: Body::Hello(77) };
    world.flying.push((0, late));
    while !world.flying.is_empty() {
        world.deliver(0, false);
    }
    assert_eq!(world.states(), before);
    let counts = world.sides[0].end.counts();
    assert_eq!((counts.strangers, counts.restarts), (1, 0));

    world.sides[1] = Side::new();
    world.act(1, |end, now, fresh| end.start(now, fresh));
    world.settle();
    assert_ne!(world.states(), before);
    assert_eq!(world.sides[0].end.counts().restarts, 1);
}
