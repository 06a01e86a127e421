//! The rendezvous: one TCP connection from each rank to rank 0. Rank 0 checks that the ranks fit
//! together, gives all ranks the same table, and passes their messages on until they are done.

mod client;
mod frame;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use client::Link;
pub(crate) use server::Server;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::rail::Rail;
use crate::random;

/// Counts changes of what ranks tell each other.
pub(crate) const VERSION: u32 = 2;

/// What a rank says first.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub rank: u32,
    pub ranks: u32,
    /// What must be the same everywhere, in words.
    pub(crate) parameters: String,
    pub(crate) entry: Entry,
}

/// A rank, in the table.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Entry {
    pub rank: u32,
    pub host: String,
    pub rails: Vec<Rail>,
}

/// All ranks, in order.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
}

impl Table {
    /// As every rank prints it.
    pub(crate) fn hash(text: &str) -> String {
        format!("{:016x}", random::hash(text.as_bytes()))
    }
}

#[derive(Debug, Deserialize, Serialize)]
enum ToServer {
    Hello(Hello),
    Relay {
        to: u32,
        body: Value,
    },
    Gather {
        stage: String,
        value: Value,
        seconds: u64,
    },
    /// A list, or the next piece of it, for rank 0 alone.
    Part {
        stage: String,
        items: Box<RawValue>,
    },
    Bye,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
enum ToRank {
    /// The table is text, so that its hash is of the same bytes everywhere.
    Welcome {
        table: String,
        strays: u64,
    },
    Refused {
        code: u8,
        reason: String,
    },
    Relay {
        from: u32,
        body: Value,
    },
    /// In the order of ranks, in pieces.
    Gathered {
        stage: String,
        values: Vec<Value>,
        last: bool,
    },
    Part {
        stage: String,
        from: u32,
        items: Box<RawValue>,
    },
    Missing {
        stage: String,
        ranks: Vec<u32>,
        seconds: u64,
    },
    Gone {
        rank: u32,
    },
    /// It had gone, and another process is that rank now.
    Restarted {
        rank: u32,
        host: String,
    },
}
