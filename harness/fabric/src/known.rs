//! What is known of rails that have failed after a while: each failure takes many seconds, so a rail that
//! has failed with several others is not tried with all of them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// A rail that has failed with so many partners is not tried with the others.
const ENOUGH: usize = 3;

/// A path from this rank: the peer and the rail.
pub(crate) type PathTo = (u32, usize);

/// With whom each rank's rail has failed, as far as a rank has heard.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<(u32, usize), BTreeSet<u32>>);

impl Known {
    /// A path has failed after a while.
    pub(crate) fn note(&mut self, a: u32, b: u32, rail: usize) {
        self.0.entry((a, rail)).or_default().insert(b);
        self.0.entry((b, rail)).or_default().insert(a);
    }

    /// Whether enough is known of a path's ends.
    pub(crate) fn is_enough(&self, a: u32, b: u32, rail: usize) -> bool {
        let known = |rank| self.0.get(&(rank, rail)).is_some_and(|with| with.len() >= ENOUGH);
        known(a) || known(b)
    }

    /// How many paths have failed.
    pub(crate) fn failures(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum::<usize>() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_that_fails_with_several_is_known_and_its_neighbours_are_not() {
        let mut known = Known::default();
        for (other, enough) in [(1, false), (2, false), (2, false), (7, true)] {
            known.note(5, other, 1);
            assert_eq!(known.is_enough(5, 9, 1), enough, "{other}");
        }
        // Whoever is at the other end of the path.
        assert!(known.is_enough(9, 5, 1));
        // Another rail, and those that failed with one bad rank alone.
        assert!(
            !known.is_enough(5, 9, 0) && !known.is_enough(1, 2, 1) && !known.is_enough(7, 9, 1)
        );
        // A path that failed twice, or that both ends tell of, counts once.
        known.note(2, 5, 1);
        assert_eq!(known.failures(), 3);
    }
}
