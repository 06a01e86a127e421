//! What commands make: queues, memory regions, address handles.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::layout::Sge;
use crate::Bus;
use crate::region::Region;
use crate::wire::Address;
use crate::wire::Message;

/// A queue in guest memory, whose pages need not be neighbours.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) pages: Vec<u64>,
    pub(super) shift: u32,
    /// Where in the first page it begins.
    pub(super) offset: u64,
}

impl Buffer {
    /// Memory whose pages are neighbours.
    pub(super) fn flat(address: u64) -> Self {
        Self { pages: vec![address], shift: 63, offset: 0 }
    }

    /// Where a byte of it is. Entries do not straddle pages.
    pub(super) fn at(&self, position: u64) -> Option<u64> {
        let position = self.offset.checked_add(position)?;
        let page = self.pages.get(usize::try_from(position >> self.shift).ok()?)?;
        page.checked_add(position & ((1 << self.shift) - 1))
    }

    /// An entry of a ring of so many, each of `N` bytes.
    pub(super) fn entry<const N: usize>(
        &self,
        bus: &Bus,
        index: u32,
        depth: u32,
    ) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let at = self.at(u64::from(index.checked_rem(depth)?) * N as u64)?;
        bus.read(at, &mut bytes).ok()?;
        Some(bytes)
    }
}

/// What a program waits for at a completion queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Armed {
    No,
    Solicited,
    Any,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) buffer: Buffer,
    pub(super) depth: u32,
    pub(super) eqn: u8,
    pub(super) armed: Armed,
    /// Counts entries, and never goes back.
    pub(super) produced: u32,
    /// How many there were when the last solicited one came.
    pub(super) solicited: u32,
    pub(super) page: Option<u16>,
}

/// An event queue: a ring in guest memory, and an interrupt.
#[derive(Debug)]
pub(super) struct EventQueue {
    pub(super) base: u64,
    pub(super) depth: u32,
    pub(super) vector: usize,
    pub(super) produced: u32,
    /// How many the driver has handled.
    pub(super) consumed: u32,
    /// The next event interrupts.
    pub(super) armed: bool,
    /// Events that have no place in the ring yet.
    pub(super) waiting: VecDeque<[u8; 16]>,
}

/// Of what kind a queue pair is: `erdma_qp_type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A reliable connection.
    Connected,
    /// Datagrams that may be lost.
    Datagram,
}

/// What a queue pair does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// It takes receives, and nothing arrives.
    Idle,
    /// Messages arrive.
    Receives,
    /// Messages are sent, too.
    Sends,
    /// All that is posted is flushed.
    Error,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Peer {
    pub(super) from: Address,
    pub(super) to: Address,
    /// The peer's number; a stream of TCP has none, its addresses are of this connection alone.
    pub(super) qpn: Option<u32>,
}

/// A work request that has begun.
#[derive(Debug)]
pub(super) struct Flight {
    /// The block that it begins with.
    pub(super) index: u16,
    pub(super) opcode: u8,
    /// The program wants a completion also if nothing is wrong.
    pub(super) signaled: bool,
    /// Nothing if it failed before it was sent.
    pub(super) message: Option<Message>,
    /// Where what was read goes.
    pub(super) into: Option<Sge>,
    pub(super) length: u32,
    /// How it ended.
    pub(super) result: Option<u8>,
}

/// An answer, for a message that arrives again; the data of a read is not kept, it is read again.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) id: u64,
    pub(super) status: u8,
    pub(super) data: Arc<[u8]>,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) kind: Kind,
    pub(super) pd: u32,
    pub(super) send_cq: u32,
    pub(super) receive_cq: u32,
    /// Of the kernel: its keys may be bus addresses.
    pub(super) privileged: bool,
    /// The pages that it is rung on: for sends, and for receives.
    pub(super) pages: Option<[u16; 2]>,
    pub(super) state: State,
    /// The state as the driver numbers it.
    pub(super) number: u8,
    pub(super) sends: Buffer,
    pub(super) send_depth: u32,
    pub(super) receives: Buffer,
    pub(super) receive_depth: u32,
    /// Blocks that were begun, and that were rung, as doorbells count them.
    pub(super) sent: u16,
    pub(super) rung: u16,
    /// Receives that were taken, and that were posted.
    pub(super) taken: u16,
    pub(super) posted: u16,
    pub(super) peer: Option<Peer>,
    pub(super) gid_index: u16,
    pub(super) key: u32,
    /// The number of the next message, and of the next that is expected.
    pub(super) send_id: u64,
    pub(super) receive_id: u64,
    pub(super) flight: VecDeque<Flight>,
    pub(super) answered: VecDeque<Answered>,
    /// When what has no answer is sent again.
    pub(super) again: Option<Instant>,
    pub(super) tries: u32,
    /// How often in a row the peer had no receive.
    pub(super) refusals: u32,
}

impl QueuePair {
    /// Whether it takes messages.
    pub(super) fn listens(&self) -> bool {
        matches!(self.state, State::Receives | State::Sends)
    }

    /// Nothing is posted, begun or connected any more.
    pub(super) fn clear(&mut self) {
        (self.sent, self.rung, self.taken, self.posted) = (0, 0, 0, 0);
        (self.again, self.tries, self.refusals, self.peer) = (None, 0, 0, None);
        self.flight.clear();
        self.answered.clear();
    }
}

/// A memory region, or the place of one.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) region: Region,
    /// A key that was invalidated, or not yet made valid, names nothing.
    pub(super) valid: bool,
    /// The region is all memory, and its addresses are those of the bus.
    pub(super) physical: bool,
}

/// An address handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressHandle {
    pub(super) pd: u32,
    pub(super) gid_index: u16,
    pub(super) to: Address,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_queue_need_not_be_neighbours() {
        let buffer = Buffer { pages: vec![0x1_0000, 0x5000], shift: 12, offset: 0x800 };
        assert_eq!(buffer.at(0), Some(0x1_0800));
        assert_eq!(buffer.at(0x7e0), Some(0x1_0fe0));
        assert_eq!(buffer.at(0x800), Some(0x5000));
        assert_eq!(buffer.at(0x1800), None);
        assert_eq!(Buffer::flat(0x7000).at(0x12_3456), Some(0x12_a456));
    }
}
