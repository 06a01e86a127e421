#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! Policies, over the whole table: a policy that does not name a thing never lets the thing pass.
//!
//! The table is finite, so most of this is a proof where `kani` would only be another way to write it. For
//! each name there are a policy that names all but it, and one that names it alone; every request with that
//! name must fail the one, for being not named, and not fail the other for that. `random` puts profiles
//! together as operators do, and compares the verdict on every request with a model of a few lines.

mod build;
mod named;
mod random;
mod values;
