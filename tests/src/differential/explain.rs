//! The differences that are known, each with its reason, and as narrow as can be.

use std::collections::BTreeSet;

/// A difference.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The script's line.
    pub line: &'a str,
    /// The result natively.
    pub native: i64,
    /// The result in the sandbox.
    pub inside: i64,
    /// Words of memory that differ.
    pub words: &'a BTreeSet<u64>,
}

/// The reason of a difference, if it is a known one.
pub fn explain(_side: &Side<'_>) -> Option<&'static str> {
    None
}
