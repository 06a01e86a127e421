//! Blame: what bad paths have in common. Pairs meet in disjoint rounds, so a rank's rail carries
//! one pair at a time: a rank that fails with all partners is at fault itself, a pair that fails
//! alone points to its link, and a rail that fails everywhere points to the rail's switch.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

/// A pair of ranks, the lower first, and a rail.
pub(crate) type RailPath = (u32, u32, usize);

/// What is at fault.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
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

/// How many paths were tried, in all and of each place. Whoever has no list of all paths, of which
/// large clusters have millions, has these.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    all: usize,
    pairs: usize,
    places: HashMap<Blamed, usize>,
}

impl Totals {
    /// Of each rank's rails: how many paths were tried there. `pairs`: the pairs of ranks whose rails
    /// are to be told apart, and how many rails were tried between them.
    pub(crate) fn of_rails(
        tried: &BTreeMap<(u32, usize), usize>,
        pairs: &BTreeMap<(u32, u32), usize>,
    ) -> Self {
        let mut places: HashMap<Blamed, usize> = HashMap::new();
        for ((rank, rail), count) in tried {
            *places.entry(Blamed::Rail(*rail)).or_default() += count;
            *places.entry(Blamed::Rank(*rank)).or_default() += count;
            *places.entry(Blamed::RailOfRank(*rail, *rank)).or_default() += count;
        }
        // Both ends of a path have counted it.
        for (place, count) in &mut places {
            if matches!(place, Blamed::Rail(_)) {
                *count = count.div_ceil(2);
            }
        }
        places.extend(pairs.iter().map(|((a, b), rails)| (Blamed::Between(*a, *b), *rails)));
        let all = tried.values().sum::<usize>().div_ceil(2);
        let ranks = tried.iter().filter(|(_, count)| **count > 0).map(|((rank, _), _)| *rank);
        let ranks = ranks.collect::<BTreeSet<u32>>().len();
        Self { all, pairs: ranks * ranks.saturating_sub(1) / 2, places }
    }

    /// Without these, of which nothing is known.
    pub(crate) fn without<'a>(&self, paths: impl Iterator<Item = &'a RailPath>) -> Self {
        let mut totals = self.clone();
        for path in paths {
            totals.all = totals.all.saturating_sub(1);
            for place in places(*path) {
                totals.places.entry(place).and_modify(|count| *count = count.saturating_sub(1));
            }
        }
        totals
    }

    fn of(&self, place: Blamed) -> usize {
        match place {
            Blamed::Everything => self.all,
            Blamed::Link(..) => 1,
            _ => self.places.get(&place).copied().unwrap_or(0),
        }
    }
}

/// All places that a path belongs to, but everything.
fn places((a, b, rail): RailPath) -> [Blamed; 7] {
    [
        Blamed::Rail(rail),
        Blamed::Rank(a),
        Blamed::Rank(b),
        Blamed::RailOfRank(rail, a),
        Blamed::RailOfRank(rail, b),
        Blamed::Between(a, b),
        Blamed::Link(a, b, rail),
    ]
}

/// Of ten paths of a place that is at fault, so many are bad.
const MOST: usize = 9;
/// A place of which only some paths are bad is at fault if that is one in so many, and so many at
/// least: what drops packets now and then does not hit every path while it is tried.
const SOME: (usize, usize) = (5, 5);
/// Places are about as bad as the worst above this part of its badness.
const ALIKE: f64 = 0.7;

/// The fewest places that hold all bad paths and hardly a good one, the largest first. The time that
/// this takes grows with the number of bad paths alone.
pub(crate) fn of(totals: &Totals, bad: &BTreeSet<RailPath>) -> Vec<Blamed> {
    let mut of: HashMap<Blamed, Vec<RailPath>> = HashMap::new();
    for path in bad {
        places(*path).into_iter().for_each(|place| of.entry(place).or_default().push(*path));
    }
    let all = totals.all > 1 && bad.len() >= totals.all;
    if all && totals.pairs > 1 {
        return vec![Blamed::Everything];
    }
    let mut left = bad.clone();
    let mut found = Vec::new();
    // A place of a single path is that path, and where all is one place nothing is told apart.
    let mostly = |place: &Blamed, bad: usize| {
        let total = totals.of(*place);
        let between = all && matches!(place, Blamed::Between(..));
        bad * 10 >= total * MOST && total > 1 && (total < totals.all || between)
    };
    cover(&of, &mut left, &mut found, |place, held| mostly(&place, held));
    // Of what is left, the place of whose paths the largest part is bad.
    loop {
        let mut held: HashMap<Blamed, usize> = HashMap::new();
        for path in &left {
            places(*path).into_iter().for_each(|place| *held.entry(place).or_default() += 1);
        }
        let part = |place: Blamed, bad: usize| bad as f64 / totals.of(place).max(1) as f64;
        let some = held.into_iter().filter(|(place, bad)| {
            !matches!(place, Blamed::Link(..))
                && *bad >= SOME.1
                && bad * SOME.0 >= totals.of(*place)
                && totals.of(*place) < totals.all
        });
        let some: Vec<(Blamed, usize)> = some.collect();
        let most = some.iter().map(|(place, bad)| part(*place, *bad)).fold(0.0, f64::max);
        // Of those that are about as bad the largest.
        let alike = some.iter().filter(|(place, bad)| part(*place, *bad) >= most * ALIKE);
        let best = alike.max_by_key(|(place, bad)| (*bad, Reverse(*place)));
        let Some((best, _)) = best.copied() else { break };
        left.retain(|path| !best.holds(*path));
        found.push(best);
    }
    found.extend(left.into_iter().map(|(a, b, rail)| Blamed::Link(a, b, rail)));
    found
}

/// Takes the place that holds most of what is left, again and again.
fn cover(
    of: &HashMap<Blamed, Vec<RailPath>>,
    left: &mut BTreeSet<RailPath>,
    found: &mut Vec<Blamed>,
    guilty: impl Fn(Blamed, usize) -> bool,
) {
    // Of those that hold equally many the first: larger places come before smaller ones.
    let guilty = of.iter().filter(|(place, bad)| guilty(**place, bad.len()));
    let mut heap: BinaryHeap<(usize, Reverse<Blamed>)> =
        guilty.map(|(place, bad)| (bad.len(), Reverse(*place))).collect();
    while let Some((count, Reverse(place))) = heap.pop() {
        let paths = of.get(&place).map_or(&[][..], Vec::as_slice);
        let now = paths.iter().filter(|path| left.contains(*path)).count();
        // What was taken since is not its own any more. One path alone is that path.
        match now {
            0 => {}
            _ if now < count => heap.push((now, Reverse(place))),
            1 if paths.len() > 1 => {}
            _ => {
                left.retain(|path| !place.holds(*path));
                found.push(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ranks: u32, rails: usize, bad: impl Fn(u32, u32, usize) -> bool) -> Vec<String> {
        let (mut tried, mut pairs, mut of_bad) =
            (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        for a in 0..ranks {
            for b in a + 1..ranks {
                pairs.insert((a, b), rails);
                for rail in 0..rails {
                    *tried.entry((a, rail)).or_default() += 1;
                    *tried.entry((b, rail)).or_default() += 1;
                    of_bad.extend(bad(a, b, rail).then_some((a, b, rail)));
                }
            }
        }
        of(&Totals::of_rails(&tried, &pairs), &of_bad).iter().map(Blamed::to_string).collect()
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

    /// What drops packets hits most paths, or many, and not each.
    #[test]
    fn a_place_is_named_that_is_bad_now_and_then() {
        let hit = |a: u32, b: u32, rail: usize, one_in: u32| {
            (a * 7 + b * 3 + u32::try_from(rail).unwrap()).is_multiple_of(one_in)
        };
        let often = found(32, 4, |a, b, r| r == 2 && (a == 5 || b == 5) && !hit(a, b, r, 12));
        assert_eq!(often, ["rail 2 of rank 5"]);
        let half = found(32, 4, |a, b, r| r == 2 && (a == 5 || b == 5) && hit(a, b, r, 2));
        assert_eq!(half, ["rail 2 of rank 5"]);
        let rank = found(32, 4, |a, b, r| (a == 5 || b == 5) && hit(a, b, r, 2));
        assert_eq!(rank, ["rank 5, with all others"]);
    }
}
