//! The paths that passed the preflight: what failed is left out, and the rest goes on.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde::Serialize;

use crate::cause::Cause;
use crate::preflight::Check;
use crate::preflight::Verdict;

/// What a failed check is of: a rail, or the rank; with one other rank, or with all.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Failed {
    pub rail: Option<usize>,
    pub(crate) peer: Option<u32>,
    /// It is told, and the path is used.
    #[serde(default)]
    pub(crate) usable: bool,
}

impl Failed {
    /// Those of one rank's checks; each once.
    pub(crate) fn of(checks: &[Check]) -> BTreeSet<Self> {
        let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
        let usable = |check: &Check| check.cause.is_some_and(Cause::is_usable);
        failed
            .map(|check| Self { rail: check.rail, peer: check.peer, usable: usable(check) })
            .collect()
    }
}

/// Which paths passed the preflight. All ranks know the same.
#[derive(Debug, Default)]
pub(crate) struct Sound {
    /// Ranks of which nothing is tried.
    ranks: BTreeSet<u32>,
    rails: BTreeSet<(u32, usize)>,
    pairs: BTreeSet<(u32, u32, usize)>,
    checks: usize,
}

impl Sound {
    pub(crate) fn new(failed: &BTreeMap<u32, BTreeSet<Failed>>) -> Self {
        let mut bad = Self::default();
        for (rank, failed) in
            failed.iter().flat_map(|(rank, all)| all.iter().map(move |f| (*rank, f)))
        {
            bad.checks += 1;
            if failed.usable {
                continue;
            }
            match (failed.rail, failed.peer) {
                (Some(rail), Some(peer)) => {
                    bad.pairs.insert((rank.min(peer), rank.max(peer), rail));
                }
                (Some(rail), None) => {
                    bad.rails.insert((rank, rail));
                }
                _ => {
                    bad.ranks.insert(rank);
                }
            }
        }
        bad
    }

    /// No check failed anywhere.
    pub(crate) fn is_whole(&self) -> bool {
        self.checks == 0
    }

    pub(crate) fn path(&self, a: u32, b: u32, rail: usize) -> bool {
        let good = |rank| !self.ranks.contains(&rank) && !self.rails.contains(&(rank, rail));
        good(a) && good(b) && !self.pairs.contains(&(a.min(b), a.max(b), rail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_before_is_not_tried_and_the_rest_is() {
        let failed = |rail, peer| Failed { rail, peer, usable: false };
        let sound = Sound::new(&BTreeMap::from([
            (0, BTreeSet::from([failed(Some(1), None)])),
            (1, BTreeSet::from([failed(Some(0), Some(2))])),
            (4, BTreeSet::from([failed(None, None)])),
        ]));
        assert!(!sound.is_whole());
        assert!(!sound.path(0, 1, 1) && sound.path(0, 1, 0));
        assert!(!sound.path(2, 1, 0) && sound.path(2, 1, 1) && sound.path(2, 0, 0));
        assert!(!sound.path(1, 4, 1));
        assert!(Sound::new(&BTreeMap::from([(0, BTreeSet::new())])).is_whole());
        let told = Failed { usable: true, ..failed(Some(0), None) };
        let told = Sound::new(&BTreeMap::from([(0, BTreeSet::from([told]))]));
        assert!(!told.is_whole() && told.path(0, 1, 0));
    }
}
