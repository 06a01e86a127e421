//! Commands for nodes and clusters: the fabric's checks, the package's units, and what Kubernetes is told.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

#[path = "../common/mod.rs"]
mod common;

mod admission;
mod diagnose;
mod dra;
mod fabric;
mod launchers;
mod page;
mod units;
