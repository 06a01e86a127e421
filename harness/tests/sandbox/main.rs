//! Programs under `verbgate run` and `verbgate trace`, with the null device for an RDMA one.

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

mod abi;
mod attacks;
mod containment;
mod descriptors;
mod grants;
mod job;
mod lifecycle;
mod memory;
mod names;
mod policy;
mod programs;
mod requests;
mod run;
mod shortage;
mod stops;
mod sysfs;
mod ucontexts;
