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

#[path = "../chart/mod.rs"]
mod chart;
mod claims;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod containerd;
mod cri;
mod docker;
mod doctor;
mod drivers;
#[path = "../guest/mod.rs"]
mod guest;
mod image;
mod matrix;
mod node;
mod nri;
mod package;
mod podman;
mod pods;
mod shared;
mod world;
mod wrapped;
