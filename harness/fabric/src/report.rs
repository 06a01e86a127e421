//! The report on the exchange between two ranks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::exchange::Trouble;
use crate::preflight::Check;

/// One pair on one rail, as one of them saw it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PathReport {
    pub rank: u32,
    pub(crate) peer: u32,
    pub rail: usize,
    pub(crate) steps: usize,
    pub bytes: usize,
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
        Self { rank, peer, rail, steps: 1, bytes: 1, trouble, evidence, state: Vec::new() }
    }
}
