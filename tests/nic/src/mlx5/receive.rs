//! The receiving half: messages for queue pairs, and answers to them.

use std::sync::Arc;

use super::Device;
use super::complete::Completion;
use super::complete::Of;
use super::complete::syndrome;
use super::count::Count;
use super::layout::qpc;
use super::memory::access;
use super::memory::word;
use super::objects::Answered;
use super::objects::MANAGEMENT;
use super::objects::State;
use super::objects::address;
use super::objects::lid;
use super::request::Sge;
use super::send::UNNUMBERED;
use super::send::WINDOW;
use crate::wire::Address;
use crate::wire::Body;
use crate::wire::Change;
use crate::wire::Message;

/// An answer for want of a receive. No syndrome has this number.
pub(super) const NOT_READY: u8 = 0xff;
/// The number of the queue pair for management, whatever number it was made with.
const MANAGEMENT_QP: u32 = 1;
/// The end of a receive's list.
const END_OF_LIST: u32 = 0x100;
const SEGMENT: usize = 16;
/// The header that a datagram has before its bytes.
const HEADER: usize = 40;

/// A receive: its number, and where it goes.
#[derive(Debug)]
struct Posted {
    index: u16,
    list: Vec<Sge>,
}

impl Device {
    /// Takes a message, or an answer.
    pub(super) fn receive(&mut self, message: Message) {
        let Message { from, to_qp, from_qp, id, body, .. } = message;
        let qpn = match to_qp {
            MANAGEMENT_QP => {
                let of_management = |qpn: &&u32| {
                    self.qps.get(*qpn).is_some_and(|pair| pair.get(qpc::ST) == MANAGEMENT)
                };
                self.qps.keys().find(of_management).copied().unwrap_or(to_qp)
            }
            _ => to_qp,
        };
        if let Body::Answer { status, data } = &body {
            return self.answered(qpn, from, id, *status, data);
        }
        let Some(pair) = self.qps.get_mut(&qpn).filter(|pair| pair.listens()) else { return };
        if pair.datagrams() {
            return self.datagram(qpn, from, from_qp, body);
        }
        let theirs = u16::try_from(pair.get(qpc::RLID)).unwrap_or(0);
        let known = pair.connected() || pair.unreliable();
        if !known || address(theirs) != from || pair.get(qpc::REMOTE_QPN) != from_qp {
            return;
        }
        if pair.unreliable() {
            if id == UNNUMBERED {
                self.unanswered(qpn, body);
            }
            return;
        }
        if id > pair.receive_id {
            return;
        }
        if id < pair.receive_id {
            let before = pair.answered.iter().find(|answered| answered.id == id).cloned();
            self.counters.ignored += 1;
            self.count(qpn, Count::Duplicates);
            if let Some(before) = before {
                self.answer(from, qpn, from_qp, before);
            }
            return;
        }
        let length = carried(&body);
        let of = counted(&body);
        let (status, data) = self.execute(qpn, body);
        if let Some(what) = if status == NOT_READY { Some(Count::OutOfBuffer) } else { of } {
            self.count(qpn, what);
        }
        if status != NOT_READY {
            self.statistics.received += 1;
            self.statistics.received_bytes += length;
        }
        let answered = Answered { id, status, data };
        if status != NOT_READY
            && let Some(pair) = self.qps.get_mut(&qpn)
        {
            pair.receive_id += 1;
            pair.answered.push_back(answered.clone());
            if pair.answered.len() > WINDOW {
                pair.answered.pop_front();
            }
        }
        self.answer(from, qpn, from_qp, answered);
        if !matches!(status, syndrome::OK | NOT_READY) {
            self.fail(qpn);
            self.trouble(qpn);
        }
    }

    /// A message of an unreliable connection: what nobody has a receive or a right for is lost. A receive that
    /// cannot take its message ends the queue pair.
    fn unanswered(&mut self, qpn: u32, body: Body) {
        let sends = matches!(body, Body::Send { .. });
        if !sends && !matches!(body, Body::Write { .. }) {
            return;
        }
        let (length, of) = (carried(&body), counted(&body));
        if let Some(what) = of {
            self.count(qpn, what);
        }
        match self.execute(qpn, body).0 {
            syndrome::OK => {
                self.statistics.received += 1;
                self.statistics.received_bytes += length;
            }
            status if sends && status != NOT_READY => {
                self.fail(qpn);
                self.trouble(qpn);
            }
            _ => {}
        }
    }

    fn answer(&mut self, to: Address, from_qp: u32, to_qp: u32, answered: Answered) {
        let Answered { id, status, data } = answered;
        let from = address(self.lid);
        let body = Body::Answer { status, data };
        self.outbox.push(Message { from, to, from_qp, to_qp, id, body });
    }

    /// Does what a message of a connection says: gives the status, and what was read.
    fn execute(&mut self, qpn: u32, body: Body) -> (u8, Arc<[u8]>) {
        let nothing = || -> Arc<[u8]> { Arc::new([]) };
        let Some(pair) = self.qps.get(&qpn) else { return (NOT_READY, nothing()) };
        let pd = pair.pd();
        let may = |field| pair.get(field) == 1;
        let (reads, writes, atomics) = (may(qpc::RRE), may(qpc::RWE), may(qpc::RAE));
        match body {
            Body::Send { data, immediate, solicited, invalidate, .. } => {
                let (of, word) = match (immediate, invalidate) {
                    (Some(word), _) => (Of::SendImmediate, word),
                    (None, Some(key)) => (Of::SendInvalidate, key),
                    (None, None) => (Of::Send, 0),
                };
                if let Some(key) = invalidate
                    && let Some(found) = self.keys.get_mut(&(key >> 8))
                {
                    found.valid &= found.region.pd != pd;
                }
                let template = Completion { word, solicited, ..Completion::of(of) };
                (self.take(qpn, &[], &data, template), nothing())
            }
            Body::Write { rkey, address, data, immediate, solicited, .. } => {
                if immediate.is_some() && !self.ready(qpn) {
                    return (NOT_READY, nothing());
                }
                let rights = access::REMOTE_WRITE;
                let place = self.behind(pd, rkey, rights, address, data.len()).filter(|_| writes);
                if place.and_then(|place| self.spread(&place, &data)).is_none() {
                    return (syndrome::REMOTE_ACCESS, nothing());
                }
                if let Some(word) = immediate
                    && let Some(posted) = self.next_receive(qpn)
                {
                    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                    let of = Completion::of(Of::WriteImmediate);
                    let index = posted.index;
                    self.complete(qpn, Completion { index, word, length, solicited, ..of });
                }
                (syndrome::OK, nothing())
            }
            Body::Read { rkey, address, length, .. } => {
                let place = self.behind(pd, rkey, access::REMOTE_READ, address, length);
                match place.filter(|_| reads).and_then(|place| self.collect(&place)) {
                    Some(data) => (syndrome::OK, data.into()),
                    None => (syndrome::REMOTE_ACCESS, nothing()),
                }
            }
            Body::Atomic { address, .. } if !address.is_multiple_of(8) => {
                (syndrome::REMOTE_REQUEST, nothing())
            }
            Body::Atomic { rkey, address, change } => {
                let place = self.behind(pd, rkey, access::ATOMIC, address, size_of::<u64>());
                match place.filter(|_| atomics).and_then(|place| self.change(&place, change)) {
                    Some(old) => (syndrome::OK, Arc::new(old.to_le_bytes())),
                    None => (syndrome::REMOTE_ACCESS, nothing()),
                }
            }
            Body::Answer { .. } => (syndrome::REMOTE_REQUEST, nothing()),
        }
    }

    /// Changes eight bytes, and gives what they were. All of this device's operations are in turns, so that
    /// they are atomic to each other.
    fn change(&mut self, pieces: &[(u64, usize)], change: Change) -> Option<u64> {
        let old = u64::from_le_bytes(self.collect(pieces)?.try_into().ok()?);
        let new = match change {
            Change::Add(more) => old.wrapping_add(more),
            Change::CompareSwap(is, becomes) if old == is => becomes,
            Change::CompareSwap(..) => old,
        };
        self.spread(pieces, &new.to_le_bytes())?;
        Some(old)
    }

    /// Takes bytes into the next receive: gives the status at the sender.
    fn take(&mut self, qpn: u32, header: &[u8], data: &[u8], template: Completion) -> u8 {
        let Some(pd) = self.qps.get(&qpn).map(|pair| match pair.shared() {
            Some(srq) => self.srqs.get(&srq).map_or(pair.pd(), |queue| queue.pd),
            None => pair.pd(),
        }) else {
            return NOT_READY;
        };
        let Some(posted) = self.next_receive(qpn) else { return NOT_READY };
        let bytes = [header, data].concat();
        let room: usize = posted.list.iter().map(|sge| sge.length).sum();
        let mut pieces = Vec::new();
        let mut kept = if room < bytes.len() {
            Err((syndrome::LENGTH, syndrome::REMOTE_REQUEST))
        } else {
            Ok(())
        };
        let mut left = bytes.len();
        for sge in &posted.list {
            let here = Sge { length: sge.length.min(left), ..*sge };
            left -= here.length;
            match self.local(pd, &here, access::LOCAL_WRITE) {
                Ok(found) => pieces.extend(found),
                Err(status) if kept.is_ok() => kept = Err((status, syndrome::REMOTE_OPERATION)),
                Err(_) => {}
            }
        }
        if kept.is_ok() && self.spread(&pieces, &bytes).is_none() {
            kept = Err((syndrome::PROTECTION, syndrome::REMOTE_OPERATION));
        }
        if kept.is_err() {
            log::warn!("{qpn:#x}: {} bytes do not fit: {posted:x?}", bytes.len());
        }
        let (own, theirs) = kept.err().unwrap_or((syndrome::OK, syndrome::OK));
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let index = posted.index;
        self.complete(qpn, Completion { index, syndrome: own, length, ..template });
        theirs
    }

    /// Whether there is a receive.
    fn ready(&self, qpn: u32) -> bool {
        let Some(pair) = self.qps.get(&qpn) else { return false };
        match pair.shared() {
            Some(srq) => self.left(srq).is_some_and(|left| left > 0),
            None => {
                let posted = word(&self.bus, pair.record).unwrap_or(0);
                pair.receives().1 > 0 && posted.wrapping_sub(pair.taken.into()) & 0xffff != 0
            }
        }
    }

    /// How many receives a shared queue has.
    pub(super) fn left(&self, srq: u32) -> Option<u16> {
        let queue = self.srqs.get(&srq)?;
        let posted = word(&self.bus, queue.record)?;
        u16::try_from(posted.wrapping_sub(queue.taken.into()) & 0xffff).ok()
    }

    /// Takes the next receive.
    fn next_receive(&mut self, qpn: u32) -> Option<Posted> {
        if !self.ready(qpn) {
            return None;
        }
        let pair = self.qps.get_mut(&qpn)?;
        if let Some(number) = pair.shared() {
            let queue = self.srqs.get_mut(&number)?;
            let index = queue.head;
            let at = u64::from(index).checked_rem(queue.size.into())? * queue.stride;
            let bytes = lines(&self.bus, &queue.buffer, at, queue.stride)?;
            // `mlx5_wqe_srq_next_seg`: the next one, after two bytes.
            let [_, _, high, low, ..] = *bytes.first()?;
            queue.head = u16::from_be_bytes([high, low]);
            queue.taken = queue.taken.wrapping_add(1);
            let list = list(bytes.get(1..).unwrap_or_default());
            self.look_at_limit(number);
            return Some(Posted { index, list });
        }
        let (stride, count) = pair.receives();
        let index = pair.taken;
        let at = u64::from(u32::from(index) & (count - 1)) * stride;
        let bytes = lines(&self.bus, &pair.buffer, at, stride)?;
        pair.taken = index.wrapping_add(1);
        Some(Posted { index, list: list(&bytes) })
    }

    /// A datagram arrives: with a header before it, or not at all.
    fn datagram(&mut self, qpn: u32, from: Address, from_qp: u32, body: Body) {
        let Some(pair) = self.qps.get(&qpn) else { return };
        let own = pair.get(qpc::Q_KEY);
        let management = pair.get(qpc::ST) == MANAGEMENT;
        let Body::Send { data, immediate, key, solicited, reliable: false, .. } = body else {
            return;
        };
        if key != own && !management {
            return;
        }
        let from_qp = if management { MANAGEMENT_QP } else { from_qp };
        self.statistics.received += 1;
        self.statistics.received_bytes += data.len() as u64;
        let of = if immediate.is_some() { Of::SendImmediate } else { Of::Send };
        let template = Completion {
            word: immediate.unwrap_or(0),
            solicited,
            source: Some((from_qp, lid(from))),
            ..Completion::of(of)
        };
        self.take(qpn, &[0; HEADER], &data, template);
    }

    /// Ends all receives of a queue pair that is in error. Those of a shared queue are not its own.
    pub(super) fn flush_receives(&mut self, qpn: u32) {
        while let Some(pair) = self.qps.get(&qpn)
            && pair.state == State::Error
            && pair.shared().is_none()
            && let Some(posted) = self.next_receive(qpn)
        {
            let of = Completion::of(Of::Send);
            let (index, syndrome) = (posted.index, syndrome::FLUSHED);
            self.complete(qpn, Completion { index, syndrome, ..of });
        }
    }
}

/// How many bytes a message brings.
fn carried(body: &Body) -> u64 {
    match body {
        Body::Send { data, .. } | Body::Write { data, .. } => data.len() as u64,
        _ => 0,
    }
}

/// What a request counts as, of those that are counted.
fn counted(body: &Body) -> Option<Count> {
    match body {
        Body::Write { .. } => Some(Count::Writes),
        Body::Read { .. } => Some(Count::Reads),
        Body::Atomic { .. } => Some(Count::Atomics),
        Body::Send { .. } | Body::Answer { .. } => None,
    }
}

/// The segments of a receive.
fn lines(
    bus: &crate::Bus,
    buffer: &super::memory::Buffer,
    at: u64,
    stride: u64,
) -> Option<Vec<[u8; SEGMENT]>> {
    (0..stride).step_by(SEGMENT).map(|offset| buffer.load(bus, at + offset)).collect()
}

/// The list of a receive, up to its end.
fn list(segments: &[[u8; SEGMENT]]) -> Vec<Sge> {
    let sges = segments.iter().map(|segment| Sge::read(segment));
    sges.take_while(|sge| sge.key != END_OF_LIST && sge.length != 0).collect()
}
