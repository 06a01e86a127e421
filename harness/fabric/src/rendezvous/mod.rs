//! The rendezvous: one TCP connection from each rank to rank 0. Rank 0 checks that the ranks fit
//! together, gives all ranks the same table, and passes their messages on until they are done.

mod client;
mod frame;
mod server;
mod stages;
#[cfg(test)]
pub(crate) mod tests;
mod voice;

pub(crate) use client::Link;
pub(crate) use server::Server;
pub(crate) use voice::Voice;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::rail::Rail;
use crate::random;

/// Counts changes of what ranks tell each other.
pub(crate) const VERSION: u32 = 5;

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

/// Why a rank is not there any more.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Loss {
    /// It never came.
    Absent,
    /// Its process ended, or its connection did.
    Ended,
    /// It had ended, and another process is that rank now.
    Restarted,
    /// It said nothing for as long as the others wait.
    Silent,
}

impl Loss {
    /// For people, after the rank's name.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Absent => "did not come to the rendezvous",
            Self::Ended => "ended before the others were done",
            Self::Restarted => "was restarted in the middle",
            Self::Silent => "hangs: the rank has said nothing for as long as --timeout",
        }
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
        /// Ranks that did not come.
        absent: Vec<u32>,
    },
    Refused {
        code: u8,
        reason: String,
    },
    Relay {
        from: u32,
        body: Value,
    },
    /// Of those ranks that are there, in their order, in pieces.
    Gathered {
        stage: String,
        values: Vec<(u32, Value)>,
        last: bool,
    },
    /// So many have yet to give their values.
    Waiting {
        stage: String,
        missing: usize,
    },
    Part {
        stage: String,
        from: u32,
        items: Box<RawValue>,
    },
    /// The others go on without the rank.
    Lost {
        rank: u32,
        why: Loss,
    },
}
