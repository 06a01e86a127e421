//! The house itself: its crates, errors, examples in documents, and packages.

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

mod dist;
mod errors;
mod examples;
mod rooms;
