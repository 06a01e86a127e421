//! NICs go into a container's namespace and come back: veth devices in namespaces of the test's
//! own, tied to RDMA devices by a directory tree that stands for sysfs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

#[path = "../common/mod.rs"]
mod common;

mod arp;
mod cluster;
mod crash;
mod refusals;
mod round_trip;
mod selection;
mod world;
