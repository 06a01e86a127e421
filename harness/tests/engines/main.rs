//! Container engines as Debian ships them, each in a world of its own with a stand-in for a device.
//!
//! Needs root. The packages are fetched once, into the lab's cache.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

#[path = "../common/mod.rs"]
mod common;
mod containerd;
mod cri;
mod docker;
#[path = "../guest/mod.rs"]
mod guest;
mod image;
mod package;
mod pods;
mod world;
