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
    /// Of those, the paths of which nothing is known.
    unknown: HashMap<Blamed, usize>,
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
        let pairs = ranks * ranks.saturating_sub(1) / 2;
        Self { all, pairs, places, unknown: HashMap::new() }
    }

    /// Without these, of which nothing is known.
    pub(crate) fn without<'a>(&self, paths: impl Iterator<Item = &'a RailPath>) -> Self {
        let mut totals = self.clone();
        for path in paths {
            totals.all = totals.all.saturating_sub(1);
            for place in places(*path) {
                *totals.unknown.entry(place).or_default() += 1;
            }
        }
        totals
    }

    fn of(&self, place: Blamed) -> usize {
        match place {
            Blamed::Everything => self.all,
            Blamed::Link(..) => 1,
            _ => {
                let all = self.places.get(&place).copied().unwrap_or(0);
                all.saturating_sub(self.unknown(place))
            }
        }
    }

    /// The paths of a place of which nothing is known.
    fn unknown(&self, place: Blamed) -> usize {
        self.unknown.get(&place).copied().unwrap_or(0)
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
/// this takes grows with the number of bad paths, and with the square of the places that are bad now and
/// then: of ranks, rails, and ranks' rails.
pub(crate) fn of(totals: &Totals, bad: &BTreeSet<RailPath>) -> Vec<Blamed> {
    let mut search = Search::new(bad);
    let all = totals.all > 1 && bad.len() >= totals.all;
    if all && totals.pairs > 1 {
        return vec![Blamed::Everything];
    }
    // A place of a single path is that path, and where all is one place nothing is told apart.
    let mostly = |place: &Blamed, bad: usize| {
        let total = totals.of(*place);
        let between = all && matches!(place, Blamed::Between(..));
        bad * 10 >= total * MOST && total > 1 && (total < totals.all || between)
    };
    search.cover(totals, mostly);
    search.now_and_then(totals);
    let Search { mut found, left, .. } = search;
    found.extend(left.into_iter().map(|(a, b, rail)| Blamed::Link(a, b, rail)));
    found
}

/// The search, as far as it has come.
#[derive(Debug, Default)]
struct Search {
    /// The bad paths of each place.
    of: HashMap<Blamed, Vec<RailPath>>,
    /// Bad paths that no place explains yet, and how many of them each place has.
    left: BTreeSet<RailPath>,
    held: HashMap<Blamed, usize>,
    found: Vec<Blamed>,
    /// How often a path of a place, or a place, was looked at.
    steps: usize,
}

impl Search {
    fn new(bad: &BTreeSet<RailPath>) -> Self {
        let mut search = Self { left: bad.clone(), ..Self::default() };
        for path in bad {
            for place in places(*path) {
                search.of.entry(place).or_default().push(*path);
                *search.held.entry(place).or_default() += 1;
                search.steps += 1;
            }
        }
        search
    }

    fn held(&self, place: Blamed) -> usize {
        self.held.get(&place).copied().unwrap_or(0)
    }

    /// This place is at fault, which explains its paths.
    fn take(&mut self, place: Blamed) {
        // Each path is taken once, whatever place takes it.
        for path in self.of.get(&place).cloned().unwrap_or_default() {
            self.steps += 1;
            if self.left.remove(&path) {
                for place in places(path) {
                    self.held.entry(place).and_modify(|held| *held = held.saturating_sub(1));
                    self.steps += 1;
                }
            }
        }
        self.found.push(place);
    }

    /// Takes the place that holds most of what is left, again and again.
    fn cover(&mut self, totals: &Totals, guilty: impl Fn(&Blamed, usize) -> bool) {
        // Of those that hold equally many the one of which most is known, and then the first: larger
        // places come before smaller ones.
        let size = |place: Blamed| Reverse((totals.unknown(place), place));
        let guilty = self.held.iter().filter(|(place, bad)| guilty(place, **bad));
        let mut heap: BinaryHeap<(usize, Reverse<(usize, Blamed)>)> =
            guilty.map(|(place, bad)| (*bad, size(*place))).collect();
        while let Some((count, Reverse((_, place)))) = heap.pop() {
            self.steps += 1;
            let all = self.of.get(&place).map_or(0, Vec::len);
            // What was taken since is not its own any more. One path alone is that path.
            match self.held(place) {
                0 => {}
                now if now < count => heap.push((now, size(place))),
                1 if all > 1 => {}
                _ => self.take(place),
            }
        }
    }

    /// Of what is left, takes the place of whose paths the largest part is bad, again and again.
    fn now_and_then(&mut self, totals: &Totals) {
        let part = |place: Blamed, bad: usize| bad as f64 / totals.of(place).max(1) as f64;
        let mut some: Vec<Blamed> = self.held.keys().copied().collect();
        loop {
            // What is taken only makes them fewer.
            some.retain(|place| {
                let bad = self.held.get(place).copied().unwrap_or(0);
                !matches!(place, Blamed::Link(..))
                    && bad >= SOME.1
                    && bad * SOME.0 >= totals.of(*place)
                    && totals.of(*place) < totals.all
            });
            self.steps += some.len();
            let each = || some.iter().map(|place| (*place, self.held(*place)));
            let most = each().map(|(place, bad)| part(place, bad)).fold(0.0, f64::max);
            // Of those that are about as bad the largest.
            let alike = each().filter(|(place, bad)| part(*place, *bad) >= most * ALIKE);
            let best =
                alike.max_by_key(|(place, bad)| (*bad, Reverse((totals.unknown(*place), *place))));
            let Some((best, _)) = best else { break };
            self.take(best);
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

    /// With twice as many ranks there are four times as many paths, and four times as much to do: no time
    /// is measured.
    #[test]
    fn the_work_grows_with_the_bad_paths() {
        type Bad = fn(u32, u32, usize) -> bool;
        // A rail, a rank and many links; and every rail of every rank now and then.
        let worlds: [Bad; 2] = [
            |a, b, rail| rail == 3 || a == 5 || b == 5 || (a * 31 + b * 17).is_multiple_of(40),
            |a, b, rail| (u64::from(a * 7 + b * 13) + rail as u64 * 5).is_multiple_of(4),
        ];
        for bad in worlds {
            let work = |ranks: u32| {
                let each =
                    |a| (a + 1..ranks).flat_map(move |b| (0..8).map(move |rail| (a, b, rail)));
                let all = (0..ranks).flat_map(each);
                let of_bad: BTreeSet<RailPath> = all.filter(|(a, b, r)| bad(*a, *b, *r)).collect();
                let tried = (0..ranks)
                    .flat_map(|rank| (0..8).map(move |rail| ((rank, rail), ranks as usize - 1)));
                let pairs = of_bad.iter().map(|(a, b, _)| ((*a, *b), 8)).collect();
                let totals = Totals::of_rails(&tried.collect(), &pairs);
                let mut search = Search::new(&of_bad);
                search.cover(&totals, |place, bad| {
                    let total = totals.of(*place);
                    bad * 10 >= total * MOST && total > 1 && total < totals.all
                });
                search.now_and_then(&totals);
                (of_bad.len(), search.steps)
            };
            let (few, many) = (work(32), work(128));
            let grown = |(few, many): (usize, usize)| many as f64 / few as f64;
            let (paths, steps) = (grown((few.0, many.0)), grown((few.1, many.1)));
            assert!(steps < paths * 1.5, "{few:?} {many:?}: {steps} times the work for {paths}");
        }
    }
}
