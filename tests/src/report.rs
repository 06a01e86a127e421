//! The report of a supervisor, as `verbgate run --report FILE` writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use serde::Deserialize;

/// The counts of one sandbox.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Report {
    /// Requests that were executed, by the kernel's names.
    #[serde(default)]
    pub requests: BTreeMap<String, u64>,
    /// Requests that were executed.
    #[serde(default)]
    pub executed: u64,
    /// Of these, requests that the kernel refused.
    #[serde(default)]
    pub failed: u64,
    /// Requests that the supervisor refused, by reason.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Devices opened.
    #[serde(default)]
    pub opened: u64,
    /// Threads planted in guests.
    #[serde(default)]
    pub planted: u64,
    /// Notifications received.
    #[serde(default)]
    pub notifications: u64,
    /// System calls made.
    #[serde(default)]
    pub calls: u64,
    /// Served files of `/sys` that were opened.
    #[serde(default)]
    pub sysfs_files: u64,
}

impl Report {
    /// Reads one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("the supervisor wrote no report to {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is no report: {text}", path.display()))
    }

    /// Requests that the supervisor refused, whatever the reason.
    pub fn refused_in_all(&self) -> u64 {
        self.refused.values().sum()
    }
}
