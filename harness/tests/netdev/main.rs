//! Moves of NICs into a container's namespace and back: veth devices in namespaces that the test
//! makes, with a directory tree that stands for sysfs and ties the devices to RDMA devices.

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

mod arp;
mod cluster;
mod containers;
mod crash;
mod fixtures;
mod kubernetes;
mod machine;
mod nodes;
mod oci;
mod preflight;
mod refusals;
mod round_trip;
mod routed;
mod selection;
mod share;
mod units;
mod world;
