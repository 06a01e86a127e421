//! Faults of a simulated cluster, alone and in pairs: the right place is named, and never an innocent
//! one.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::cluster::checks;
use super::cluster::entry;
use super::cluster::tried;
use super::faults::FaultPlace;
use super::faults::SimulatedFault;
use crate::findings;
use crate::findings::Finding;
use crate::rendezvous::Table;
use crate::sound::Failed;
use crate::sound::Sound;
use crate::trial::Tried;

/// No two are at one place, so that none hides another.
const FAULTS: [&str; 37] = [
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
];

/// What rank 0 finds.
fn found(ranks: u32, rails: usize, faults: &[SimulatedFault]) -> Vec<Finding> {
    let entries = (0..ranks).map(|rank| entry(rank, rails, faults)).collect();
    let table = Table { entries };
    let of = |rank: usize| checks(&table.entries[rank], &table, ranks, faults);
    // `alike` compares with all others: whoever is asked once for each kind of rank says all there is.
    let all: Vec<_> = (0..table.entries.len()).map(of).collect();
    let failed: BTreeMap<u32, BTreeSet<Failed>> =
        (0..).zip(&all).map(|(rank, checks)| (rank, Failed::of(checks))).collect();
    let sound = Sound::new(&failed);
    let mut whole = Tried::default();
    for rank in 0..ranks {
        let one = tried(rank, ranks, rails, faults, &|peer, rail| sound.path(rank, peer, rail));
        whole.tallies.extend(one.tallies);
        whole.paths.extend(one.paths);
    }
    findings::all(&all.concat(), &whole, Vec::new())
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

fn check(ranks: u32, rails: usize, faults: &[SimulatedFault]) {
    let found = found(ranks, rails, faults);
    let brief = || -> Vec<String> {
        let of = |f: &Finding| format!("{} {} {:?} {:?}", f.cause, f.what, f.ranks.len(), f.rail);
        found.iter().map(of).collect()
    };
    for fault in faults {
        assert!(found.iter().any(|one| is_of(one, fault)), "{faults:?} is not in {:#?}", brief());
    }
    for one in &found {
        let innocent = !faults.iter().any(|fault| is_of(one, fault));
        assert!(!innocent, "{faults:?}: an innocent is named: {:#?}", brief());
    }
}

fn faults() -> Vec<SimulatedFault> {
    FAULTS.iter().map(|fault| fault.parse().unwrap()).collect()
}

#[test]
fn each_fault_is_named_alone() {
    assert!(found(128, 8, &[]).is_empty());
    for fault in faults() {
        check(128, 8, &[fault]);
    }
}

/// The same causes, so that what two have in common is not taken for one, and different ones.
#[test]
fn each_pair_of_faults_is_told_apart() {
    let faults = faults();
    for (index, one) in faults.iter().enumerate() {
        for other in faults.iter().skip(index + 1) {
            check(36, 8, &[*one, *other]);
        }
    }
}

#[test]
fn what_is_no_fault_is_said() {
    for wrong in ["", "stall", "stall@", "nonsense@rank=1", "stall@rank=x", "stall@pair=1"] {
        let error = wrong.parse::<SimulatedFault>().unwrap_err();
        assert!(error.contains("write CAUSE@PLACE"), "{error}");
    }
}
