//! Blame: what bad paths have in common. Pairs meet in disjoint rounds, so a rank's rail carries
//! one pair at a time: a rank that fails with all partners is at fault itself, a pair that fails
//! alone points to its link, and a rail that fails everywhere points to the rail's switch.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

/// A pair of ranks, the lower first, and a rail.
pub(crate) type RailPath = (u32, u32, usize);

/// What is at fault.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Blamed {
    /// Every path there is.
    Everything,
    /// A rail, of all ranks.
    Rail(usize),
    /// A rank, with all others.
    Rank(u32),
    /// A rail of one rank.
    RailOfRank(usize, u32),
    /// All rails between two ranks.
    Between(u32, u32),
    /// One path.
    Link(u32, u32, usize),
}

impl fmt::Display for Blamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => write!(f, "all paths of all ranks"),
            Self::Rail(rail) => write!(f, "rail {rail}, of all ranks"),
            Self::Rank(rank) => write!(f, "rank {rank}, with all others"),
            Self::RailOfRank(rail, rank) => write!(f, "rail {rail} of rank {rank}"),
            Self::Between(a, b) => write!(f, "the way between ranks {a} and {b}"),
            Self::Link(a, b, rail) => {
                write!(f, "the way between ranks {a} and {b} on rail {rail}")
            }
        }
    }
}

impl Blamed {
    /// Whether a path belongs to it.
    pub(crate) fn holds(self, (a, b, r): RailPath) -> bool {
        match self {
            Self::Everything => true,
            Self::Rail(rail) => r == rail,
            Self::Rank(rank) => a == rank || b == rank,
            Self::RailOfRank(rail, rank) => r == rail && (a == rank || b == rank),
            Self::Between(one, other) => (a, b) == (one, other),
            Self::Link(one, other, rail) => (a, b, r) == (one, other, rail),
        }
    }
}

/// The fewest places that hold all bad paths and no good one, the largest first.
///
/// `paths`: each that was tried, and whether it is bad.
pub(crate) fn of(paths: &BTreeMap<RailPath, bool>) -> Vec<Blamed> {
    let mut left: BTreeSet<RailPath> =
        paths.iter().filter(|(_, bad)| **bad).map(|(path, _)| *path).collect();
    // A place of a single path is that path, and where all is one place nothing is told apart.
    let guilty = |place: &Blamed| {
        let of: Vec<bool> =
            paths.iter().filter(|(path, _)| place.holds(**path)).map(|(_, bad)| *bad).collect();
        let link = matches!(place, Blamed::Link(..));
        of.iter().all(|bad| *bad) && (link || (of.len() > 1 && of.len() < paths.len()))
    };
    let all = paths.len() > 1 && left.len() == paths.len();
    if all && paths.keys().any(|(a, b, _)| paths.keys().any(|(c, d, _)| (a, b) != (c, d))) {
        return vec![Blamed::Everything];
    }
    let mut candidates = candidates(paths);
    candidates.retain(|place| {
        let between = matches!(place, Blamed::Between(..));
        // With two ranks, all rails between them are the ranks.
        guilty(place) || (between && all)
    });
    let mut found = Vec::new();
    while !left.is_empty() {
        let covered = |place: &Blamed| left.iter().filter(|path| place.holds(**path)).count();
        // Of those that hold equally many the first: larger places come before smaller ones.
        let best = candidates.iter().copied().rev().max_by_key(covered);
        let Some(best) = best.filter(|place| covered(place) > 0) else { break };
        left.retain(|path| !best.holds(*path));
        found.push(best);
    }
    found
}

fn candidates(paths: &BTreeMap<RailPath, bool>) -> Vec<Blamed> {
    let mut places = BTreeSet::new();
    for (a, b, rail) in paths.keys().copied() {
        places.extend([
            Blamed::Rail(rail),
            Blamed::Rank(a),
            Blamed::Rank(b),
            Blamed::RailOfRank(rail, a),
            Blamed::RailOfRank(rail, b),
            Blamed::Between(a, b),
            Blamed::Link(a, b, rail),
        ]);
    }
    places.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ranks: u32, rails: usize, bad: impl Fn(u32, u32, usize) -> bool) -> Vec<String> {
        let mut paths = BTreeMap::new();
        for a in 0..ranks {
            for b in a + 1..ranks {
                for rail in 0..rails {
                    paths.insert((a, b, rail), bad(a, b, rail));
                }
            }
        }
        of(&paths).iter().map(Blamed::to_string).collect()
    }

    #[test]
    fn the_node_the_rail_or_the_link_is_named() {
        let of = |a, b, rank| a == rank || b == rank;
        assert_eq!(found(4, 2, |_, _, _| false), Vec::<String>::new());
        assert_eq!(found(4, 2, |_, _, _| true), ["all paths of all ranks"]);
        assert_eq!(found(4, 2, |a, b, _| of(a, b, 2)), ["rank 2, with all others"]);
        assert_eq!(found(4, 2, |_, _, r| r == 1), ["rail 1, of all ranks"]);
        assert_eq!(found(4, 2, |a, b, r| r == 1 && of(a, b, 3)), ["rail 1 of rank 3"]);
        let between = "the way between ranks 1 and 3";
        assert_eq!(found(4, 2, |a, b, _| (a, b) == (1, 3)), [between]);
        let link = "the way between ranks 1 and 3 on rail 0";
        assert_eq!(found(4, 2, |a, b, r| (a, b, r) == (1, 3, 0)), [link]);
    }

    #[test]
    fn several_at_once_are_told_apart() {
        let two = found(6, 2, |a, b, r| (r == 1) || a == 4 || b == 4);
        assert_eq!(two, ["rail 1, of all ranks", "rank 4, with all others"]);
        let two = found(5, 1, |a, b, _| (a, b) == (0, 1) || (a, b) == (2, 3));
        let links = [(0, 1), (2, 3)].map(|(a, b)| format!("the way between ranks {a} and {b}"));
        assert_eq!(two.len(), 2);
        assert!(two.iter().zip(&links).all(|(found, link)| found.starts_with(link)), "{two:?}");
    }

    #[test]
    fn two_ranks_can_be_told_by_rails_alone() {
        assert_eq!(found(2, 1, |_, _, _| true), ["the way between ranks 0 and 1 on rail 0"]);
        assert_eq!(found(2, 2, |_, _, _| true), ["the way between ranks 0 and 1"]);
        assert_eq!(found(2, 2, |_, _, r| r == 1), ["the way between ranks 0 and 1 on rail 1"]);
    }
}
