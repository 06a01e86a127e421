#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: a panic is how it says what it found"
)]
//! Fuzz targets: the functions that the fuzzers call with their bytes.
//!
//! A target is a function that takes any bytes, and panics when a statement that must hold does not
//! hold. libFuzzer calls the target (`../fuzz_targets`). A test with a mutator of its own calls the
//! target too, in stable Rust, on machines where no fuzzer can be built.

pub mod commands;
pub mod corpus;
pub mod decoder;
mod exercise;
pub mod filter;
pub mod frame;
pub mod mutate;
pub mod way;

/// The longest input worth trying: a request that fills its page, and payloads.
pub const MAX_LEN: usize = 6000;

/// A target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its fuzzer and of its corpus.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// Whose seeds it starts from.
    pub corpus: &'static str,
    /// Seeds by name, as they are checked in under `corpus`.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

/// All targets.
pub const TARGETS: [Target; 5] = [
    Target { name: "decoder", run: decoder::run, corpus: "decoder", seeds: corpus::requests },
    Target { name: "commands", run: commands::run, corpus: "commands", seeds: corpus::writes },
    // The same bytes are a request here, too.
    Target { name: "frame", run: frame::run, corpus: "decoder", seeds: corpus::requests },
    // And here it goes all the way to its answer.
    Target { name: "way", run: way::run, corpus: "decoder", seeds: corpus::requests },
    Target { name: "filter", run: filter::run, corpus: "filter", seeds: corpus::calls },
];
