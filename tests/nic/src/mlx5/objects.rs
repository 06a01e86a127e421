//! What commands make.

use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::bits::Field;
use super::layout::qpc;
use super::memory::Buffer;
use crate::wire::Address;
use crate::wire::Message;

/// Numbers of one kind of object, each used once at a time.
#[derive(Debug)]
pub(super) struct Numbers {
    used: BTreeSet<u32>,
    first: u32,
    end: u32,
    next: u32,
}

impl Numbers {
    /// Numbers from the first on, so many.
    pub(super) fn new(first: u32, count: u32) -> Self {
        Self { used: BTreeSet::new(), first, end: first.saturating_add(count), next: first }
    }

    /// One that nobody has; after all others were used, those that came back.
    pub(super) fn take(&mut self) -> Option<u32> {
        let mut later = (self.next..self.end).chain(self.first..self.next);
        let number = later.find(|number| !self.used.contains(number))?;
        self.used.insert(number);
        self.next = number + 1;
        Some(number)
    }

    /// Gives one back.
    pub(super) fn release(&mut self, number: u32) -> bool {
        self.used.remove(&number)
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.used.contains(&number)
    }

    pub(super) fn len(&self) -> usize {
        self.used.len()
    }
}

/// An event queue: a ring in guest memory, and an interrupt.
#[derive(Debug)]
pub(super) struct EventQueue {
    pub(super) buffer: Buffer,
    pub(super) log_size: u32,
    pub(super) vector: usize,
    pub(super) uar: u32,
    /// The types of event that go here; of completions the queue says itself where they go.
    pub(super) events: u64,
    pub(super) produced: u32,
    /// How many the driver has handled.
    pub(super) consumed: u32,
    /// The next event interrupts.
    pub(super) armed: bool,
    /// Events that have no place in the ring yet.
    pub(super) waiting: VecDeque<[u8; 64]>,
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
    pub(super) context: Vec<u8>,
    pub(super) buffer: Buffer,
    /// Memory of a program's that the queue is in.
    pub(super) umems: Vec<u32>,
    pub(super) log_size: u32,
    /// The size of an entry, 64 or 128.
    pub(super) entry: u64,
    pub(super) eqn: u32,
    pub(super) uar: u32,
    pub(super) armed: Armed,
    /// Counts entries, and never goes back.
    pub(super) produced: u32,
    /// How many there were when the last solicited one came.
    pub(super) solicited: u32,
}

/// A shared receive queue: a list of receives, each of which says which is next.
#[derive(Debug)]
pub(super) struct SharedQueue {
    pub(super) context: Vec<u8>,
    pub(super) buffer: Buffer,
    pub(super) stride: u64,
    pub(super) size: u32,
    pub(super) pd: u32,
    pub(super) record: u64,
    /// The next receive.
    pub(super) head: u16,
    /// How many were taken, as its record of doorbells counts them.
    pub(super) taken: u16,
    /// Fewer than this are told of, once.
    pub(super) limit: u16,
}

/// What a queue pair does, as `mlx5_qp_state` numbers it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(super) enum State {
    Reset = 0,
    Init = 1,
    Receives = 2,
    Sends = 3,
    Error = 6,
}

/// A work request that has begun.
#[derive(Debug)]
pub(super) struct Flight {
    /// The block that it begins with.
    pub(super) index: u16,
    pub(super) opcode: u8,
    /// The program wants a completion also if nothing is wrong.
    pub(super) signaled: bool,
    /// Nothing if it failed before it was sent, or needs no answer.
    pub(super) message: Option<Message>,
    /// Where what was read goes.
    pub(super) into: Vec<(u64, usize)>,
    pub(super) length: u32,
    /// How it ended.
    pub(super) result: Option<u8>,
}

/// An answer, for a message that arrives again.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) id: u64,
    pub(super) status: u8,
    pub(super) data: Arc<[u8]>,
}

/// A queue pair. Its context is as the driver wrote it, and as later commands changed it.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) context: Vec<u8>,
    pub(super) state: State,
    /// Both queues: receives come first.
    pub(super) buffer: Buffer,
    /// Its record of doorbells: how many receives were posted, and after that how many blocks.
    pub(super) record: u64,
    /// Memory of a program's that both are in.
    pub(super) umems: Vec<u32>,
    /// Blocks that were begun; and receives that were taken.
    pub(super) sent: u16,
    pub(super) taken: u16,
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
    pub(super) fn get(&self, field: Field) -> u32 {
        field.word(&self.context)
    }

    pub(super) fn pd(&self) -> u32 {
        self.get(qpc::PD)
    }

    /// Bytes of a receive's description; and how many receives there are.
    pub(super) fn receives(&self) -> (u64, u32) {
        match self.get(qpc::RQ_TYPE) {
            0 => (16 << self.get(qpc::LOG_RQ_STRIDE), 1 << self.get(qpc::LOG_RQ_SIZE)),
            _ => (0, 0),
        }
    }

    /// Blocks of the send queue.
    pub(super) fn blocks(&self) -> u32 {
        match self.get(qpc::NO_SQ) {
            0 => 1 << self.get(qpc::LOG_SQ_SIZE),
            _ => 0,
        }
    }

    /// Whether it takes messages.
    pub(super) fn listens(&self) -> bool {
        matches!(self.state, State::Receives | State::Sends)
    }

    /// The shared receive queue.
    pub(super) fn shared(&self) -> Option<u32> {
        (self.get(qpc::RQ_TYPE) == SHARED).then(|| self.get(qpc::SRQN))
    }

    /// Whether it is a reliable connection.
    pub(super) fn connected(&self) -> bool {
        self.get(qpc::ST) == RELIABLE
    }

    /// Whether it is an unreliable connection: nothing is answered, and nothing is sent again.
    pub(super) fn unreliable(&self) -> bool {
        self.get(qpc::ST) == UNRELIABLE
    }

    /// Whether it sends and takes datagrams.
    pub(super) fn datagrams(&self) -> bool {
        matches!(self.get(qpc::ST), DATAGRAM | SUBNET | MANAGEMENT)
    }

    /// Nothing is posted, begun or connected any more.
    pub(super) fn clear(&mut self) {
        (self.sent, self.taken) = (0, 0);
        (self.send_id, self.receive_id) = (0, 0);
        (self.again, self.tries, self.refusals) = (None, 0, 0);
        self.flight.clear();
        self.answered.clear();
    }
}

/// `MLX5_QP_ST_RC`, `MLX5_QP_ST_UC`, `MLX5_QP_ST_UD`, `MLX5_QP_ST_QP0`, `MLX5_QP_ST_QP1` and `MLX5_QP_ST_REG_UMR`.
pub(super) const RELIABLE: u32 = 0x0;
pub(super) const UNRELIABLE: u32 = 0x1;
pub(super) const DATAGRAM: u32 = 0x2;
pub(super) const SUBNET: u32 = 0x7;
pub(super) const MANAGEMENT: u32 = 0x8;
pub(super) const MEMORY: u32 = 0xc;
/// `MLX5_SRQ_RQ`.
const SHARED: u32 = 1;

/// Where a port is on the wire: the link-local GID whose last bytes are its LID.
pub(super) fn address(lid: u16) -> Address {
    let [high, low] = lid.to_be_bytes();
    Address([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low])
}

/// The LID of an address.
pub(super) fn lid(address: Address) -> u16 {
    let [.., high, low] = address.0;
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_last() {
        let mut numbers = Numbers::new(5, 2);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [Some(5), Some(6), None]);
        assert!(numbers.release(5) && !numbers.release(5) && numbers.has(6));
        assert_eq!((numbers.take(), numbers.len()), (Some(5), 2));
    }

    #[test]
    fn addresses_hold_lids() {
        assert_eq!(lid(address(0x1234)), 0x1234);
    }
}
