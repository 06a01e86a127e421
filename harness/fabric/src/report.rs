//! The report on the exchange between two ranks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::exchange::Trouble;
use crate::preflight::Check;

/// What one rank has tried on one rail.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Tally {
    pub rank: u32,
    pub rail: usize,
    /// Paths, and those of them that are well.
    pub(crate) tried: usize,
    pub(crate) good: usize,
    /// Of those that are well.
    pub(crate) steps: usize,
    pub bytes: usize,
}

/// One pair on one rail, as one of them saw it, if something is to be told of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PathReport {
    pub rank: u32,
    pub(crate) peer: u32,
    pub rail: usize,
    /// Rails that were tried between the two.
    pub(crate) rails: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<Trouble>,
    /// Counters of the rail that moved meanwhile, of those that tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evidence: BTreeMap<String, u64>,
    /// What was looked at once more after it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) state: Vec<Check>,
}

#[cfg(test)]
impl PathReport {
    /// One for tests.
    pub(crate) fn of(
        rank: u32,
        peer: u32,
        rail: usize,
        trouble: Option<Trouble>,
        evidence: BTreeMap<String, u64>,
    ) -> Self {
        Self { rank, peer, rail, rails: 1, trouble, evidence, state: Vec::new() }
    }
}
