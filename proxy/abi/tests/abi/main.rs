#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! Tests of the tables, the decoder and the encoder, from outside.

mod commands;
mod common;
mod properties;
mod residue;
mod rules;
mod tables;
mod text;
mod writes;
