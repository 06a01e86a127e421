//! Containers of runtimes and of engines, with the null device for an RDMA one.

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

mod agent;
mod configure;
mod engines;
mod nvidia;
mod oci;
mod show;
