//! What commands make: protection domains, address handles, memory regions, and queues.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use super::layout::Status;
use crate::region::Region;
use crate::wire::Address;

/// Objects of one kind, by number. A number is not given again before all others were.
#[derive(Debug)]
pub(super) struct Slots<T> {
    most: u16,
    last: u16,
    used: BTreeMap<u16, T>,
}

impl<T> Slots<T> {
    /// At most so many, numbered from 1.
    pub(super) fn new(most: u16) -> Self {
        Self { most, last: 0, used: BTreeMap::new() }
    }

    /// Takes one more, made for its number.
    pub(super) fn insert(&mut self, make: impl FnOnce(u16) -> T) -> Result<u16, Status> {
        for _ in 0..self.most {
            self.last = self.last % self.most + 1;
            if !self.used.contains_key(&self.last) {
                self.used.insert(self.last, make(self.last));
                return Ok(self.last);
            }
        }
        Err(Status::ResourceAllocationFailure)
    }

    pub(super) fn get(&self, number: u16) -> Option<&T> {
        self.used.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u16) -> Option<&mut T> {
        self.used.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u16) -> Result<T, Status> {
        self.used.remove(&number).ok_or(Status::IllegalParameter)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.used.iter().map(|(number, object)| (*number, object))
    }

    pub(super) fn len(&self) -> usize {
        self.used.len()
    }
}

/// An address handle. Made again for the same address and protection domain, it is the same one.
#[derive(Debug)]
pub(super) struct AddressHandle {
    pub(super) address: Address,
    pub(super) pd: u16,
    pub(super) users: u32,
}

/// A completion queue: a ring in guest memory.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) base: u64,
    pub(super) depth: u32,
    pub(super) entry: usize,
    pub(super) source_addresses: bool,
    /// The event queue that is told when the program asked for it.
    pub(super) eqn: Option<u16>,
    pub(super) armed: bool,
    /// Counts entries, and never goes back.
    pub(super) produced: u32,
}

/// An event queue: a ring in guest memory, and an interrupt.
#[derive(Debug)]
pub(super) struct EventQueue {
    pub(super) base: u64,
    pub(super) depth: u32,
    pub(super) vector: usize,
    pub(super) produced: u32,
    pub(super) armed: bool,
    /// There are events that no interrupt has told of.
    pub(super) untold: bool,
}

/// Of what kind a queue pair is: `efa_admin_qp_type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Datagrams that may be lost.
    Datagram,
    /// Scalable reliable datagrams.
    Reliable,
}

/// `efa_admin_qp_state`.
pub(super) mod state {
    pub(crate) const RTR: u32 = 2;
    pub(crate) const RTS: u32 = 3;
    pub(crate) const SQD: u32 = 4;
    pub(crate) const ERR: u32 = 6;
}

/// How often a send is tried at a queue pair without receives: for ever.
pub(super) const RETRY_FOR_EVER: u8 = 7;

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    /// The slot in the lower bits, a generation above.
    pub(super) number: u16,
    pub(super) kind: Kind,
    pub(super) pd: u16,
    pub(super) send_cq: u16,
    pub(super) receive_cq: u16,
    pub(super) state: u32,
    pub(super) key: u32,
    pub(super) psn: u32,
    pub(super) rnr_retry: u8,
    /// Incoming writes with immediate data take no receive.
    pub(super) unsolicited: bool,
    /// The ring of send work requests, as the program wrote it.
    pub(super) ring: Vec<u8>,
    /// Counts as doorbells do: in 16 bits.
    pub(super) sent: u16,
    /// The ring of receive descriptors, in guest memory.
    pub(super) receives: u64,
    pub(super) receive_entries: u32,
    pub(super) posted: u16,
    pub(super) taken: u16,
    /// Answers to what was executed lately, so that a message that comes again is not again executed.
    pub(super) answered: VecDeque<(Address, u64, u8)>,
}

impl QueuePair {
    /// Whether it takes messages.
    pub(super) fn receives(&self) -> bool {
        [state::RTR, state::RTS, state::SQD].contains(&self.state)
    }

    /// How many receive descriptors are posted and not taken.
    pub(super) fn ready(&self) -> u16 {
        self.posted.wrapping_sub(self.taken)
    }
}

/// Memory regions, by key. A key is not given again before all others were.
#[derive(Debug, Default)]
pub(super) struct Regions {
    last: u32,
    used: BTreeMap<u32, Region>,
}

/// Keys are 24 bits wide in work requests.
const KEYS: u32 = 1 << 24;

impl Regions {
    pub(super) fn insert(&mut self, most: u32, region: Region) -> Result<u32, Status> {
        if u32::try_from(self.used.len()).is_ok_and(|count| count >= most) {
            return Err(Status::ResourceAllocationFailure);
        }
        loop {
            self.last = (self.last + 1) % KEYS;
            if self.last != 0 && !self.used.contains_key(&self.last) {
                self.used.insert(self.last, region);
                return Ok(self.last);
            }
        }
    }

    pub(super) fn get(&self, key: u32) -> Option<&Region> {
        self.used.get(&key)
    }

    pub(super) fn remove(&mut self, key: u32) -> Result<Region, Status> {
        self.used.remove(&key).ok_or(Status::IllegalParameter)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Region> {
        self.used.values()
    }

    pub(super) fn len(&self) -> usize {
        self.used.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_last() {
        let mut slots = Slots::new(3);
        let add = |slots: &mut Slots<()>| slots.insert(|_| ());
        assert_eq!([add(&mut slots), add(&mut slots), add(&mut slots)], [Ok(1), Ok(2), Ok(3)]);
        assert_eq!(add(&mut slots), Err(Status::ResourceAllocationFailure));
        slots.remove(1).unwrap();
        slots.remove(3).unwrap();
        assert_eq!(add(&mut slots), Ok(1));
        assert_eq!(add(&mut slots), Ok(3));
        assert_eq!(slots.remove(9), Err(Status::IllegalParameter));
    }
}
