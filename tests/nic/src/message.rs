//! What queue pairs say to each other over the wire.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::Serialize;

/// The address of a port: the 16 bytes of its GID.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
pub struct Address(pub [u8; 16]);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

/// A message between queue pairs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Message {
    /// The sender's port.
    pub from: Address,
    /// The receiver's.
    pub to: Address,
    /// The queue pair that sent it.
    pub from_qp: u32,
    /// The queue pair that it is for.
    pub to_qp: u32,
    /// The sender's number for it; an answer has that of the message which it answers.
    pub id: u64,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Body {
    /// Take this into a receive.
    Send {
        /// The bytes.
        data: Arc<[u8]>,
        /// Immediate data, as the wire has it.
        immediate: Option<u32>,
        /// The queue key.
        key: u32,
        /// Whether the sender waits for an answer.
        reliable: bool,
        /// Whether who waits for solicited completions is told.
        solicited: bool,
        /// The key of a region of the receiver's that ends with this.
        invalidate: Option<u32>,
    },
    /// Write this to memory.
    Write {
        /// The key of the memory region.
        rkey: u32,
        /// The address in it.
        address: u64,
        /// The bytes.
        data: Arc<[u8]>,
        /// Immediate data, which takes a receive.
        immediate: Option<u32>,
        /// The queue key.
        key: u32,
        /// Whether who waits for solicited completions is told.
        solicited: bool,
    },
    /// Answer with what is in memory.
    Read {
        /// The key of the memory region.
        rkey: u32,
        /// The address in it.
        address: u64,
        /// How much.
        length: usize,
        /// The queue key.
        key: u32,
    },
    /// Change eight bytes of memory, and answer with what they were.
    Atomic {
        /// The key of the memory region.
        rkey: u32,
        /// The address in it, a multiple of eight.
        address: u64,
        /// How.
        change: Change,
    },
    /// What became of a message.
    Answer {
        /// A status of the model's.
        status: u8,
        /// What was read.
        data: Arc<[u8]>,
    },
}

/// How an atomic operation changes a number.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub enum Change {
    /// Adds this.
    Add(u64),
    /// Becomes the second, if it is the first.
    CompareSwap(u64, u64),
}
