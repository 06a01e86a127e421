//! The files that rank 0 writes in the end.

use std::path::PathBuf;

/// Files that rank 0 writes in the end.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// A page with a matrix of all paths (HTML, self-contained).
    pub html: Option<PathBuf>,
    /// JUnit XML: a test for each rail of each rank.
    pub junit: Option<PathBuf>,
    /// Metrics in Prometheus' text format, for the textfile collector of node_exporter.
    pub prometheus: Option<PathBuf>,
    /// A baseline, for `against`.
    pub save: Option<PathBuf>,
    /// A baseline to compare with.
    pub against: Option<PathBuf>,
}
