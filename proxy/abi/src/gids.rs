//! The source addresses of a request: entries of a port's GID table that the request speaks by
//! ([`crate::values`]).

use crate::request::Request;
use crate::values::Meaning;
use crate::wire::GidIndex;

/// An entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceGid {
    /// The port, from 1.
    pub port: u32,
    /// The entry.
    pub index: GidIndex,
}

impl Request {
    /// The entries that it speaks by.
    pub fn source_gids(&self) -> impl Iterator<Item = SourceGid> {
        let of = |value: &crate::values::Value| value.meaning == Meaning::SourceGid;
        self.values().filter(of).map(|value| SourceGid {
            port: value.port.unwrap_or(u32::MAX),
            index: GidIndex(u32::try_from(value.number).unwrap_or(u32::MAX)),
        })
    }
}
