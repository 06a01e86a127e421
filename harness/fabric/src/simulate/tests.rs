//! Faults of a simulated cluster, alone and in pairs: the right place is named, and never an innocent
//! one.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread;

use super::cluster::checks;
use super::cluster::entry;
use super::cluster::tried;
use super::faults::FaultPlace;
use super::faults::SimulatedFault;
use crate::cause::Cause;
use crate::diagnose;
use crate::findings;
use crate::findings::Finding;
use crate::preflight::Check;
use crate::rendezvous::Entry;
use crate::rendezvous::Loss;
use crate::rendezvous::Table;
use crate::sound::Failed;
use crate::sound::Sound;
use crate::trial::Tried;

/// No two are at one place, so that none hides another.
const FAULTS: [&str; 47] = [
    "nothing-arrives@rank=1",
    "nothing-arrives@rail=0",
    "nothing-arrives@rank=2,rail=1",
    "nothing-arrives@pair=3-19",
    "nothing-arrives@pair=4-20,rail=2",
    "packet-loss@rank=5",
    "packet-loss@rail=3",
    "packet-loss@rank=6,rail=1",
    "packet-loss@pair=7-23",
    "packet-loss@pair=8-24,rail=2",
    "path-mtu@rank=9",
    "path-mtu@rail=4",
    "path-mtu@rank=10,rail=1",
    "path-mtu@pair=11-27,rail=2",
    "stall@rank=12,rail=1",
    "stall@pair=13-29,rail=2",
    "cannot-connect@rank=14,rail=1",
    "cannot-connect@rail=5",
    "data-differs@rank=15,rail=1",
    "failed@rank=16,rail=1",
    "no-receives@rank=17",
    "wrong-rkey@rank=18",
    "local-error@rank=21",
    "segment-count@rank=22",
    "peer-hangs@rank=25",
    "no-device@rank=26,rail=1",
    "rail-down@rank=28,rail=1",
    "wrong-gid@rank=30,rail=1",
    "gid-type-mismatch@rank=31,rail=6",
    "address-family-mismatch@rank=0,rail=6",
    "mtu-mismatch@rank=3,rail=6",
    "memlock-too-small@rank=33",
    "no-neighbour@rank=7,rail=6",
    "arp-flux@rank=8,rail=6",
    "wrong-route@rank=9,rail=6",
    "wrong-pkey@rank=10,rail=6",
    "lossy-class@rank=11,rail=6",
    "asymmetric-rails@rank=34",
    "peer-absent@rank=35",
    "peer-restarted@rank=24",
    "peer-killed@rank=32",
    "addr-error@rank=12,rail=7",
    "route-error@pair=13-28,rail=7",
    "unreachable@pair=14-27",
    "connect-error@rail=7",
    "rejected@rank=20",
    "disconnected@rank=23",
];

/// At one place, in one another, or across: ranks 5 and 9, and rail 3.
const CROWDED: [&str; 42] = [
    "nothing-arrives@rank=5",
    "nothing-arrives@rail=3",
    "nothing-arrives@rank=5,rail=3",
    "nothing-arrives@pair=5-9",
    "nothing-arrives@pair=5-9,rail=3",
    "packet-loss@rank=5",
    "packet-loss@rail=3",
    "packet-loss@rank=5,rail=3",
    "packet-loss@pair=5-9",
    "packet-loss@pair=5-9,rail=3",
    "cannot-connect@rank=5",
    "cannot-connect@rail=3",
    "cannot-connect@rank=5,rail=3",
    "cannot-connect@pair=5-9",
    "cannot-connect@pair=5-9,rail=3",
    "path-mtu@rank=5,rail=3",
    "stall@pair=5-9",
    "data-differs@pair=5-9,rail=3",
    "unreachable@rank=5,rail=3",
    "no-receives@rank=5",
    "wrong-rkey@rank=5",
    "local-error@rank=5",
    "segment-count@rank=5",
    "peer-hangs@rank=5",
    "rejected@rank=5",
    "disconnected@rank=5",
    "peer-killed@rank=5",
    "peer-absent@rank=5",
    "peer-restarted@rank=5",
    "memlock-too-small@rank=5",
    "asymmetric-rails@rank=5",
    "no-device@rank=5,rail=3",
    "rail-down@rank=5,rail=3",
    "wrong-gid@rank=5,rail=3",
    "gid-type-mismatch@rank=5,rail=3",
    "address-family-mismatch@rank=5,rail=3",
    "mtu-mismatch@rank=5,rail=3",
    "no-neighbour@rank=5,rail=3",
    "arp-flux@rank=5,rail=3",
    "wrong-route@rank=5,rail=3",
    "wrong-pkey@rank=5,rail=3",
    "lossy-class@rank=5,rail=3",
];

/// All checks of ranks that are alike, once somebody has made them.
static HEALTHY: OnceLock<Vec<Vec<Check>>> = OnceLock::new();

/// What rank 0 finds.
fn found(ranks: u32, rails: usize, faults: &[SimulatedFault]) -> Vec<Finding> {
    let lost: BTreeMap<u32, Loss> = faults.iter().filter_map(|fault| fault.lost()).collect();
    let came = (0..ranks).filter(|rank| lost.get(rank) != Some(&Loss::Absent));
    let table = Table { entries: came.map(|rank| entry(rank, rails, faults)).collect() };
    // Whoever is gone says nothing, and nobody looks for it.
    let here = |rank: u32| !lost.contains_key(&rank);
    // Of 128 ranks that are alike each compares itself with all others, and finds the same each time.
    let alike = !faults.iter().any(|f| f.lost().is_some() || f.changes(ranks, rails));
    let of = |entry: &Entry| -> Vec<Check> {
        let all = match (alike, HEALTHY.get()) {
            (true, Some(healthy)) if healthy.len() == table.entries.len() => {
                let own = healthy[entry.rank as usize].iter().cloned();
                own.chain(faults.iter().flat_map(|fault| fault.checks(entry, ranks))).collect()
            }
            _ => checks(entry, &table, ranks, faults),
        };
        all.into_iter().filter(|check| check.peer.is_none_or(here)).collect()
    };
    let present: Vec<&Entry> = table.entries.iter().filter(|entry| here(entry.rank)).collect();
    let all: Vec<Vec<Check>> = present.iter().map(|entry| of(entry)).collect();
    let failed: BTreeMap<u32, BTreeSet<Failed>> =
        present.iter().zip(&all).map(|(entry, checks)| (entry.rank, Failed::of(checks))).collect();
    if faults.is_empty() {
        let _ = HEALTHY.set(all.clone());
    }
    let sound = Sound::new(&failed);
    let mut whole = Tried::default();
    for Entry { rank, .. } in &present {
        let path = |peer, rail| here(peer) && sound.path(*rank, peer, rail);
        let one = tried(*rank, ranks, rails, faults, &path);
        whole.tallies.extend(one.tallies);
        whole.paths.extend(one.paths);
    }
    findings::all(&all.concat(), &whole, diagnose::lost(&lost, &table))
}

/// Whether a finding is of a fault: its cause, and its place, neither larger nor smaller.
fn is_of(finding: &Finding, fault: &SimulatedFault) -> bool {
    let ranks: Vec<u32> = finding.ranks.iter().copied().collect();
    let place = match fault.place {
        FaultPlace::Rank(rank) => ranks == [rank] && finding.rail.is_none(),
        FaultPlace::Rail(rail) => ranks.len() > 2 && finding.rail == Some(rail),
        // Of memory and NICs that answer for others the rank is named.
        FaultPlace::RailOfRank(rail, rank) => {
            ranks == [rank] && finding.rail.is_none_or(|of| of == rail)
        }
        FaultPlace::Between(a, b) => ranks == [a, b] && finding.rail.is_none(),
        FaultPlace::Link(a, b, rail) => ranks == [a, b] && finding.rail == Some(rail),
    };
    place && finding.cause == fault.cause
}

/// Whether all of a place is in another.
fn is_within(place: FaultPlace, other: FaultPlace) -> bool {
    let rank = |of: u32| match place {
        FaultPlace::Rank(rank) | FaultPlace::RailOfRank(_, rank) => rank == of,
        FaultPlace::Between(a, b) | FaultPlace::Link(a, b, _) => a == of || b == of,
        FaultPlace::Rail(_) => false,
    };
    let rail = |of: usize| match place {
        FaultPlace::Rail(rail) | FaultPlace::RailOfRank(rail, _) | FaultPlace::Link(.., rail) => {
            rail == of
        }
        FaultPlace::Rank(_) | FaultPlace::Between(..) => false,
    };
    match other {
        FaultPlace::Rank(of) => rank(of),
        FaultPlace::Rail(of) => rail(of),
        FaultPlace::RailOfRank(of, at) => rail(of) && rank(at),
        FaultPlace::Between(a, b) => rank(a) && rank(b),
        FaultPlace::Link(..) => place == other,
    }
}

/// What is found first: who is not there, then what checks find, then what stops a path, and last what
/// only counters tell.
fn stage(fault: &SimulatedFault) -> u8 {
    match fault.cause {
        _ if fault.lost().is_some() => 0,
        Cause::PacketLoss => 3,
        // It is told, and the path is used.
        Cause::LossyClass => 1,
        cause if cause <= Cause::ArpFlux => 1,
        Cause::WrongRoute | Cause::NoNeighbour => 1,
        _ => 2,
    }
}

/// Whether nobody can see a fault while there is the other one at its whole place, or whether it comes of
/// the other.
fn is_hidden(fault: &SimulatedFault, by: &SimulatedFault) -> bool {
    let within = is_within(fault.place, by.place);
    match (stage(by), stage(fault)) {
        _ if fault == by || !within || by.cause == Cause::LossyClass => false,
        // Of two that are gone the rank is gone once: no two of these are at one place.
        (0, _) => true,
        // One check looks at both, and at the type first.
        (1, 1) if fault.cause == Cause::WrongGid => {
            by.cause == Cause::GidTypeMismatch || by.cause < fault.cause
        }
        (1, 1) if (by.cause, fault.cause) == (Cause::WrongGid, Cause::GidTypeMismatch) => false,
        (1, 1) => by.cause < fault.cause && by.cause <= Cause::ArpFlux,
        (2, 2) => by.cause < fault.cause || (by.cause == fault.cause && by.place != fault.place),
        (3, 3) => by.place != fault.place,
        (first, then) => first < then,
    }
}

/// What is wrong with what is found, if anything.
fn wrong(ranks: u32, faults: &[SimulatedFault]) -> Option<String> {
    let found = found(ranks, 8, faults);
    let seen = |fault: &&SimulatedFault| !faults.iter().any(|by| is_hidden(fault, by));
    let seen: Vec<&SimulatedFault> = faults.iter().filter(seen).collect();
    let missing = |fault: &&&SimulatedFault| !found.iter().any(|one| is_of(one, fault));
    let innocent = |one: &&Finding| !seen.iter().any(|fault| is_of(one, fault));
    let of = |f: &Finding| format!("{} {} {:?} {:?}", f.cause, f.what, f.ranks.len(), f.rail);
    let missing: Vec<_> = seen.iter().filter(missing).collect();
    let innocent: Vec<String> = found.iter().filter(innocent).map(of).collect();
    let is_wrong = seen.is_empty() || !missing.is_empty() || !innocent.is_empty();
    is_wrong.then(|| format!("{faults:?}: not named: {missing:?}; no fault: {innocent:#?}"))
}

/// All pairs, on two processors.
fn check_pairs(ranks: u32, faults: &[&str], but: impl Fn(&[SimulatedFault; 2]) -> bool + Sync) {
    assert!(found(ranks, 8, &[]).is_empty());
    let faults: Vec<SimulatedFault> = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    let of = |index: usize| faults.iter().skip(index + 1).map(move |other| (index, *other));
    let pairs: Vec<[SimulatedFault; 2]> =
        (0..faults.len()).flat_map(of).map(|(one, other)| [faults[one], other]).collect();
    let half = |half: usize| -> Vec<String> {
        let of = pairs.iter().skip(half).step_by(2).filter(|pair| !but(pair));
        of.filter_map(|pair| wrong(ranks, pair)).collect()
    };
    let wrong = thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        [half(0), other.join().unwrap()].concat()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), pairs.len(), wrong.join("\n"));
}

#[test]
fn each_fault_is_named_alone() {
    assert!(found(128, 8, &[]).is_empty());
    for fault in FAULTS.iter().chain(&CROWDED) {
        assert_eq!(wrong(128, &[fault.parse().unwrap()]), None);
    }
}

/// The same causes, so that what two have in common is not taken for one, and different ones.
#[test]
fn each_pair_of_faults_is_told_apart() {
    check_pairs(128, &FAULTS, |_| false);
}

/// Two faults at one place: what can be seen is named, at its place, and what the other hides is not.
#[test]
fn of_two_faults_at_one_place_each_that_shows_is_named() {
    // A rank is gone once.
    check_pairs(128, &CROWDED, |pair| pair.iter().all(|fault| fault.lost().is_some()));
}

#[test]
fn what_is_no_fault_is_said() {
    for wrong in ["", "stall", "stall@", "nonsense@rank=1", "stall@rank=x", "stall@pair=1"] {
        let error = wrong.parse::<SimulatedFault>().unwrap_err();
        assert!(error.contains("write CAUSE@PLACE"), "{error}");
    }
}
