//! What arrives: messages of others, and answers to our own.

use std::net::Ipv6Addr;
use std::sync::Arc;

use zerocopy::FromBytes as _;

use super::Device;
use super::complete::Completion;
use super::complete::Queue;
use super::complete::Trouble;
use super::complete::Word;
use super::layout::RQE;
use super::layout::Rqe;
use super::layout::Sge;
use super::layout::opcode;
use super::layout::status;
use super::objects::Answered;
use super::objects::Kind;
use super::objects::State;
use super::request::access;
use super::send::WINDOW;
use super::send::nothing;
use crate::wire::Address;
use crate::wire::Body;
use crate::wire::Change;
use crate::wire::Message;

/// An answer: there is no receive, try again.
pub(super) const NO_RECEIVE: u8 = 0xff;
/// The header before a datagram, in a receive.
const HEADER: usize = 40;
/// Where IPv4 has its header in that place, and UDP's number.
const IPV4: usize = 20;
const UDP: u8 = 17;
/// The next header of an IPv6 header that carries RoCE, and how far packets go.
const IB_NEXT_HEADER: u8 = 0x1b;
const HOPS: u8 = 64;
/// `ERDMA_CQE_NTYPE_MASK`.
const IPV6_INFO: u32 = 1 << 31;

impl Device {
    /// A message arrives.
    pub(super) fn receive(&mut self, message: Message) {
        let Message { from, to, from_qp, id, body, .. } = message;
        let qpn = self.streams.get(&to).copied().unwrap_or(message.to_qp);
        if let Body::Answer { status, data } = body {
            return self.answered(qpn, from, id, status, &data);
        }
        let Some(pair) = self.qps.get(&qpn).filter(|pair| pair.listens()) else { return };
        if pair.kind == Kind::Datagram {
            return self.datagram(qpn, from, to, from_qp, body);
        }
        // Of others than the peer nothing is taken.
        let peer = pair.peer.filter(|peer| peer.to == from && peer.from == to);
        if peer.is_none_or(|peer| peer.qpn.is_some_and(|own| own != from_qp)) {
            return;
        }
        let (expected, known) = (pair.receive_id, pair.answered.iter().find(|old| old.id == id));
        let (status, data) = if id == expected {
            self.execute(qpn, body)
        } else if id < expected {
            self.counters.ignored += 1;
            match (known.cloned(), body) {
                (Some(Answered { status: status::OK, .. }), body @ Body::Read { .. }) => {
                    self.execute(qpn, body)
                }
                (Some(old), _) => (old.status, old.data),
                (None, _) => return,
            }
        } else {
            // Something before it is missing and will come again, and this after it.
            self.counters.ignored += 1;
            return;
        };
        if id == expected
            && status != NO_RECEIVE
            && let Some(pair) = self.qps.get_mut(&qpn)
        {
            pair.receive_id += 1;
            // What was read is read again.
            let kept = if data.len() > size_of::<u64>() { nothing() } else { Arc::clone(&data) };
            pair.answered.push_back(Answered { id, status, data: kept });
            if pair.answered.len() > WINDOW {
                pair.answered.pop_front();
            }
        }
        let body = Body::Answer { status, data };
        self.outbox.push(Message { from: to, to: from, from_qp: qpn, to_qp: from_qp, id, body });
        if !matches!(status, status::OK | NO_RECEIVE) {
            self.trouble(qpn, Trouble::Access);
            self.fail(qpn);
        }
    }

    /// Does what a message says: gives its status at the sender, and what it asked for.
    fn execute(&mut self, qpn: u32, body: Body) -> (u8, Arc<[u8]>) {
        let Some(pair) = self.qps.get(&qpn) else { return (status::GENERAL, nothing()) };
        let (pd, ready) = (pair.pd, pair.posted != pair.taken);
        self.statistics.received += 1;
        match body {
            Body::Send { data, immediate, solicited, invalidate, .. } => {
                if !ready {
                    return (NO_RECEIVE, nothing());
                }
                let (opcode, word) = match (immediate, invalidate) {
                    (Some(word), _) => (opcode::RECEIVE_SEND_IMMEDIATE, Word::Immediate(word)),
                    (None, Some(key)) => (opcode::RECEIVE_INVALIDATE, Word::Invalidated(key)),
                    (None, None) => (opcode::RECEIVE, Word::None),
                };
                if let Some(key) = invalidate
                    && let Some(mapped) = self.regions.get_mut(&key)
                    && mapped.region.pd == pd
                {
                    mapped.valid = false;
                }
                let template =
                    Completion { opcode, word, solicited, ..Completion::of(Queue::Receives) };
                (self.take(qpn, &data, template), nothing())
            }
            Body::Write { rkey, address, data, immediate, solicited, .. } => {
                if immediate.is_some() && !ready {
                    return (NO_RECEIVE, nothing());
                }
                self.statistics.received_bytes += data.len() as u64;
                let place = self.remote(pd, rkey, access::REMOTE_WRITE, address, data.len());
                if place.and_then(|pieces| self.spread(&pieces, &data)).is_none() {
                    return (status::RECEIVE_KEY, nothing());
                }
                if let Some(word) = immediate {
                    let template = Completion {
                        opcode: opcode::RECEIVE_WRITE_IMMEDIATE,
                        word: Word::Immediate(word),
                        solicited,
                        length: u32::try_from(data.len()).unwrap_or(u32::MAX),
                        ..Completion::of(Queue::Receives)
                    };
                    self.taken(qpn, template);
                }
                (status::OK, nothing())
            }
            Body::Read { rkey, address, length, .. } => {
                let place = self.remote(pd, rkey, access::REMOTE_READ, address, length);
                match place.and_then(|pieces| self.collect(&pieces)) {
                    Some(data) => (status::OK, data.into()),
                    None => (status::RECEIVE_KEY, nothing()),
                }
            }
            Body::Atomic { rkey, address, change } => {
                let size = size_of::<u64>();
                let place = self.remote(pd, rkey, access::REMOTE_ATOMIC, address, size);
                match place.and_then(|pieces| self.change(&pieces, change)) {
                    Some(old) => (status::OK, Arc::new(old.to_le_bytes())),
                    None => (status::RECEIVE_KEY, nothing()),
                }
            }
            Body::Answer { .. } => (status::GENERAL, nothing()),
        }
    }

    /// The guest memory that a peer names. Of no bytes, any address will do.
    fn remote(
        &self,
        pd: u32,
        key: u32,
        access: u8,
        address: u64,
        length: usize,
    ) -> Option<Vec<(u64, usize)>> {
        if length == 0 {
            return Some(Vec::new());
        }
        self.behind(pd, key, access, address, length)
    }

    fn collect(&self, pieces: &[(u64, usize)]) -> Option<Vec<u8>> {
        let mut data = vec![0; pieces.iter().map(|(_, length)| length).sum()];
        let mut rest = &mut data[..];
        for (at, length) in pieces {
            let (here, next) = rest.split_at_mut_checked(*length)?;
            self.bus.read(*at, here).ok()?;
            rest = next;
        }
        Some(data)
    }

    /// Changes eight bytes, and gives what they were. All of this device's operations are in turns, so that
    /// they are atomic to each other (`IB_ATOMIC_GLOB` would be to processors, too).
    fn change(&self, pieces: &[(u64, usize)], change: Change) -> Option<u64> {
        let old = u64::from_le_bytes(self.collect(pieces)?.try_into().ok()?);
        let new = match change {
            Change::Add(more) => old.wrapping_add(more),
            Change::CompareSwap(is, becomes) if old == is => becomes,
            Change::CompareSwap(..) => old,
        };
        self.spread(pieces, &new.to_le_bytes())?;
        Some(old)
    }

    /// Takes data into the next receive: gives its status at the sender.
    fn take(&mut self, qpn: u32, data: &[u8], template: Completion) -> u8 {
        self.statistics.received_bytes += data.len() as u64;
        let Some(pair) = self.qps.get(&qpn) else { return status::GENERAL };
        let posted: Option<[u8; RQE]> =
            pair.receives.entry(&self.bus, pair.taken.into(), pair.receive_depth);
        let posted = posted.and_then(|bytes| Rqe::read_from_bytes(&bytes).ok());
        let Some(posted) = posted.filter(|posted| posted.qpn.get() == qpn) else {
            self.taken(qpn, Completion { status: status::GENERAL, ..template });
            return status::GENERAL;
        };
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let buffer = Sge { address: posted.address, length: posted.length, key: posted.key };
        let kept = match posted.length.get() {
            room if room < length => Err((status::RECEIVE_RANGE, status::GENERAL)),
            _ if data.is_empty() => Ok(()),
            _ => self.keep(qpn, &buffer, data).ok_or((status::RECEIVE_KEY, status::GENERAL)),
        };
        let (own, theirs) = kept.err().unwrap_or((status::OK, status::OK));
        self.taken(qpn, Completion { status: own, length, ..template });
        theirs
    }

    /// The next receive has ended.
    fn taken(&mut self, qpn: u32, template: Completion) {
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        let (cqn, index) = (pair.receive_cq, pair.taken);
        pair.taken = index.wrapping_add(1);
        self.complete(cqn, qpn, Completion { index, ..template }, [0; 2]);
    }

    /// A datagram arrives: with a header before it, or not at all.
    fn datagram(&mut self, qpn: u32, from: Address, to: Address, from_qp: u32, body: Body) {
        let Some(pair) = self.qps.get(&qpn) else { return };
        let (key, ready) = (pair.key, pair.posted != pair.taken);
        let Body::Send { data, immediate, key: theirs, solicited, reliable: false, .. } = body
        else {
            return;
        };
        if theirs != key || !ready {
            return;
        }
        self.statistics.received += 1;
        let (opcode, word) = match immediate {
            Some(word) => (opcode::RECEIVE_SEND_IMMEDIATE, Word::Immediate(word)),
            None => (opcode::RECEIVE, Word::None),
        };
        let family = if is_ipv4(to) { 0 } else { IPV6_INFO };
        let info = family | from_qp & 0xf_ffff;
        let template =
            Completion { opcode, word, solicited, info, ..Completion::of(Queue::Receives) };
        let bytes = [&header(from, to, data.len())[..], &data].concat();
        self.take(qpn, &bytes, template);
    }

    /// Ends all receives of a queue pair that is in error.
    pub(super) fn flush_receives(&mut self, qpn: u32) {
        while let Some(pair) = self.qps.get(&qpn)
            && pair.state == State::Error
            && pair.taken != pair.posted
        {
            let flushed = Completion {
                opcode: opcode::RECEIVE,
                status: status::FLUSHED,
                ..Completion::of(Queue::Receives)
            };
            self.taken(qpn, flushed);
        }
    }
}

fn is_ipv4(address: Address) -> bool {
    Ipv6Addr::from(address.0).to_ipv4_mapped().is_some()
}

/// What a receive has before a datagram: a GRH, or in its second half an IPv4 header.
fn header(from: Address, to: Address, length: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let [_, _, _, _, _, _, low, high] = (length as u64).to_be_bytes();
    let mut put = |at: usize, bytes: &[u8]| {
        for (into, byte) in header.iter_mut().skip(at).zip(bytes) {
            *into = *byte;
        }
    };
    if is_ipv4(to) {
        put(IPV4, &[0x45, 0, low, high, 0, 0, 0, 0, HOPS, UDP]);
        put(IPV4 + 12, from.0.get(12..).unwrap_or_default());
        put(IPV4 + 16, to.0.get(12..).unwrap_or_default());
    } else {
        put(0, &[6 << 4, 0, 0, 0, low, high, IB_NEXT_HEADER, HOPS]);
        put(8, &from.0);
        put(24, &to.0);
    }
    header
}
