#![forbid(unsafe_code)]
//! Tests, demonstration and measurements end to end: with real programs, on a real uverbs device.
//!
//! All of it is in one program, `verbgate-lab-tests`, that runs where the device is: inside the
//! lab's virtual machine, or on a host with an RDMA device of its own. `cargo xtask test`, `demo`
//! and `bench` build it, take it there, and read what it prints.

pub mod bench;
pub mod bundle;
pub mod cases;
pub mod clients;
mod cm_probe;
pub mod demo;
pub mod differential;
pub mod exec;
pub mod many;
pub mod pair;
pub mod probe;
pub mod report;
pub mod runner;
pub mod said;
pub mod shape;
pub mod soak;
pub mod table;
pub mod trial;
pub mod world;
mod written;
