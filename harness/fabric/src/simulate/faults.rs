//! Faults of a simulated cluster: what each makes ranks say of themselves, what checks find, and
//! what becomes of each path. No verbs are needed below the exchange.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::cause::Cause;
use crate::exchange::Trouble;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::rendezvous::Entry;
use crate::rendezvous::Loss;

/// Where a fault is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FaultPlace {
    Rank(u32),
    Rail(usize),
    RailOfRank(usize, u32),
    Between(u32, u32),
    Link(u32, u32, usize),
}

/// A fault: `nothing-arrives@rank=5,rail=2`, `packet-loss@pair=3-9`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SimulatedFault {
    pub(crate) cause: Cause,
    pub(crate) place: FaultPlace,
}

impl FromStr for SimulatedFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no fault: write CAUSE@PLACE, as in nothing-arrives@rank=5,rail=2 or \
                 packet-loss@pair=3-9"
            )
        };
        let (cause, place) = text.split_once('@').ok_or_else(wrong)?;
        let cause = serde_json::from_value(cause.into()).map_err(|_| wrong())?;
        let (mut rank, mut rail, mut pair) = (None, None, None);
        for part in place.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            match name {
                "rank" => rank = Some(value.parse().map_err(|_| wrong())?),
                "rail" => rail = Some(value.parse().map_err(|_| wrong())?),
                "pair" => {
                    let (a, b) = value.split_once('-').ok_or_else(wrong)?;
                    let end = |end: &str| end.parse::<u32>().map_err(|_| wrong());
                    let (a, b) = (end(a)?, end(b)?);
                    pair = Some((a.min(b), a.max(b)));
                }
                _ => return Err(wrong()),
            }
        }
        let place = match (rank, rail, pair) {
            (Some(rank), None, None) => FaultPlace::Rank(rank),
            (None, Some(rail), None) => FaultPlace::Rail(rail),
            (Some(rank), Some(rail), None) => FaultPlace::RailOfRank(rail, rank),
            (None, None, Some((a, b))) => FaultPlace::Between(a, b),
            (None, Some(rail), Some((a, b))) => FaultPlace::Link(a, b, rail),
            _ => return Err(wrong()),
        };
        Ok(Self { cause, place })
    }
}

impl SimulatedFault {
    /// The rank that this fault ends, or keeps away.
    pub(crate) fn lost(self) -> Option<(u32, Loss)> {
        let FaultPlace::Rank(rank) = self.place else { return None };
        let why = match self.cause {
            Cause::PeerAbsent => Loss::Absent,
            Cause::PeerKilled => Loss::Ended,
            Cause::PeerRestarted => Loss::Restarted,
            _ => return None,
        };
        Some((rank, why))
    }

    /// Whether a path is hit.
    fn hits(self, a: u32, b: u32, of: usize) -> bool {
        let pair = (a.min(b), a.max(b));
        match self.place {
            FaultPlace::Rank(rank) => a == rank || b == rank,
            FaultPlace::Rail(rail) => of == rail,
            FaultPlace::RailOfRank(rail, rank) => of == rail && (a == rank || b == rank),
            FaultPlace::Between(one, other) => pair == (one, other),
            FaultPlace::Link(one, other, rail) => pair == (one, other) && of == rail,
        }
    }

    fn is_at(self, rank: u32, rail: usize) -> bool {
        match self.place {
            FaultPlace::Rank(of) => of == rank,
            FaultPlace::Rail(of) => of == rail,
            FaultPlace::RailOfRank(of, at) => (of, at) == (rail, rank),
            FaultPlace::Between(..) | FaultPlace::Link(..) => false,
        }
    }

    /// Whether a rank hangs, on a rail.
    pub(crate) fn hangs(self, rank: u32, rail: usize) -> bool {
        self.cause == Cause::PeerHangs && self.is_at(rank, rail)
    }

    /// Whether a rank says something else of itself.
    #[cfg(test)]
    pub(crate) fn changes(self, ranks: u32, rails: usize) -> bool {
        let entry = |rank| super::cluster::entry(rank, rails, &[]);
        (0..ranks).map(entry).any(|is| {
            let mut then = is.clone();
            self.change(&mut then);
            then != is
        })
    }

    /// What a rank says of itself.
    pub(crate) fn change(self, entry: &mut Entry) {
        let me = entry.rank;
        if (self.cause, self.place) == (Cause::AsymmetricRails, FaultPlace::Rank(me)) {
            entry.rails.pop();
        }
        for (index, rail) in
            entry.rails.iter_mut().enumerate().filter(|(at, _)| self.is_at(me, *at))
        {
            match self.cause {
                Cause::NoDevice => {
                    rail.fault = Some("cannot open the device".to_owned());
                    rail.link_layer = String::new();
                }
                Cause::RailDown => rail.active = false,
                Cause::WrongGid => rail.netdev = None,
                Cause::GidTypeMismatch => rail.gid_type = "IB/RoCE v1".to_owned(),
                Cause::AddressFamilyMismatch => rail.gid = format!("fd00::{index:x}:{me:x}"),
                Cause::MtuMismatch => rail.mtu = 3,
                _ => {}
            }
        }
    }

    /// What checks of a rank find that look beyond what ranks say.
    pub(crate) fn checks(self, me: &Entry, ranks: u32) -> Vec<Check> {
        let check = |rail: Option<usize>, name: &str, peer: Option<u32>| Check {
            rank: me.rank,
            rail,
            check: name.to_owned(),
            verdict: Verdict::Fail,
            detail: "injected".to_owned(),
            cause: Some(self.cause),
            peer,
        };
        let rails = 0..me.rails.len();
        let mine = rails.clone().filter(|rail| self.is_at(me.rank, *rail));
        match self.cause {
            Cause::MemlockTooSmall if self.place == FaultPlace::Rank(me.rank) => {
                vec![check(None, "locked memory", None)]
            }
            Cause::WrongRoute => mine.map(|rail| check(Some(rail), "routes", None)).collect(),
            Cause::LossyClass => {
                mine.map(|rail| check(Some(rail), "lossless class", None)).collect()
            }
            Cause::WrongPkey => mine.map(|rail| check(Some(rail), "partition", None)).collect(),
            // The others see that another NIC of the rank answers.
            Cause::ArpFlux => {
                let others = (0..ranks).filter(|other| *other != me.rank);
                let hit = |(other, rail): &(u32, usize)| self.is_at(*other, *rail);
                let all = others.flat_map(|other| rails.clone().map(move |rail| (other, rail)));
                let found = all.filter(hit);
                found.map(|(other, rail)| check(Some(rail), "neighbours", Some(other))).collect()
            }
            Cause::NoNeighbour => {
                let others = (0..ranks).filter(|other| *other != me.rank);
                let all = others.flat_map(|other| rails.clone().map(move |rail| (other, rail)));
                let found = all.filter(|(other, rail)| self.hits(me.rank, *other, *rail));
                found.map(|(other, rail)| check(Some(rail), "neighbours", Some(other))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What becomes of a path, as one end sees it: an error, and counters that move.
    pub(crate) fn path(
        self,
        rank: u32,
        peer: u32,
        rail: usize,
    ) -> Option<(Option<Trouble>, BTreeMap<String, u64>)> {
        if !self.hits(rank, peer, rail) {
            return None;
        }
        let mine = self.is_at(rank, rail);
        let words = format!("injected {}", self.cause);
        let trouble = |status, heard| {
            let (words, cause) = (words.clone(), Some(self.cause));
            Some(Trouble { words, status, heard, cause, at: 3, ..Trouble::default() })
        };
        let counters = |name: &str| BTreeMap::from([(name.to_owned(), 9)]);
        Some(match self.cause {
            Cause::PacketLoss => (None, counters("out_of_sequence")),
            Cause::NothingArrives => {
                let found = trouble(Some(12), false);
                (found.map(|found| Trouble { at: 0, ..found }), counters("local_ack_timeout_err"))
            }
            Cause::PathMtu => (trouble(Some(12), false), BTreeMap::new()),
            Cause::Stall | Cause::CannotConnect | Cause::DataDiffers => {
                (trouble(None, rank > peer), BTreeMap::new())
            }
            Cause::Failed => (trouble(Some(21), rank > peer), BTreeMap::new()),
            // The other end tells, and this one hears of it.
            Cause::NoReceives => (trouble(Some(13), mine), counters("rcvd_rnr_err")),
            Cause::SegmentCount => (trouble(None, mine), BTreeMap::new()),
            Cause::PeerHangs if !mine => (
                trouble(None, false).map(|found| Trouble { hangs: true, ..found }),
                BTreeMap::new(),
            ),
            // Events of rdma_cm, of which the end that asks hears.
            Cause::AddrError | Cause::RouteError | Cause::Unreachable | Cause::ConnectError => {
                (trouble(None, rank > peer), BTreeMap::new())
            }
            // Whoever refuses, or leaves, is the other.
            Cause::Rejected | Cause::Disconnected => (trouble(None, mine), BTreeMap::new()),
            Cause::WrongRkey => (trouble(Some(10), !mine), BTreeMap::new()),
            Cause::LocalError => (trouble(Some(4), !mine), BTreeMap::new()),
            _ => return None,
        })
    }
}
