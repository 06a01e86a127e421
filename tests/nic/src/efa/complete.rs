//! Doorbells of completion queues, completions, and the events that tell of them.

use zerocopy::IntoBytes as _;

use super::Device;
use super::layout::Cdesc;
use super::layout::EQE;
use super::layout::Eqe;
use super::layout::RxCdesc;
use super::limits;
use crate::ring::place;
use crate::ring::publish;

/// The doorbell of a completion queue: how many the program has seen, and that it wants an event.
const CONSUMED: u32 = 0xffff;
const ARM: u32 = 1 << 31;
/// `efa_io_cdesc_common.flags`: the queue's kind.
const SEND_QUEUE: u8 = 1 << 1;
const RECEIVE_QUEUE: u8 = 2 << 1;
const HAS_IMMEDIATE: u8 = 1 << 3;
const OPERATION: u32 = 4;
const UNSOLICITED: u8 = 1 << 7;
/// There is no address handle for the sender.
pub(super) const UNKNOWN_HANDLE: u16 = 0xffff;

/// What a work request did: `efa_io_send_op_type`.
pub(super) mod operation {
    pub(crate) const SEND: u8 = 0;
    pub(crate) const READ: u8 = 1;
    pub(crate) const WRITE: u8 = 2;
}

/// A receive that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) request: u16,
    pub(super) status: u8,
    pub(super) operation: u8,
    pub(super) length: usize,
    pub(super) handle: u16,
    pub(super) source: crate::wire::Address,
    pub(super) source_qp: u16,
    pub(super) immediate: Option<u32>,
    /// No receive was taken.
    pub(super) unsolicited: bool,
}

impl Device {
    /// A program rings one of its doorbells.
    pub(super) fn doorbell(&mut self, at: u64, word: u32) {
        self.counters.doorbells += 1;
        let (page, offset) = (at / limits::DOORBELL_PAGE, at % limits::DOORBELL_PAGE);
        let [low, high, ..] = word.to_le_bytes();
        let count = u16::from_le_bytes([low, high]);
        let first_cq = limits::CQ_DOORBELLS / limits::DOORBELL_PAGE;
        match (page.checked_sub(first_cq), offset) {
            (Some(cq), 0) => self.consumed(u16::try_from(cq).unwrap_or(0), word),
            (None, 0) => self.send_posted(u16::try_from(page).unwrap_or(0), count),
            (None, limits::RQ_DOORBELL) => {
                if let Some(pair) = self.qps.get_mut(u16::try_from(page).unwrap_or(0)) {
                    pair.posted = count;
                }
            }
            _ => {}
        }
    }

    /// The program has seen so many completions, and wants to be told of the next.
    fn consumed(&mut self, cq: u16, word: u32) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        if word & ARM == 0 {
            return;
        }
        queue.armed = true;
        if queue.produced & CONSUMED != word & CONSUMED {
            self.tell(cq);
        }
    }

    /// A send, read or write has ended.
    pub(super) fn complete_send(&mut self, qp: u16, request: u16, operation: u8, status: u8) {
        let Some(cq) = self.pair(qp).map(|pair| pair.send_cq) else { return };
        let common = Cdesc {
            req_id: request.into(),
            status,
            flags: SEND_QUEUE | operation << OPERATION,
            qp_num: qp.into(),
        };
        self.complete(cq, common, &[]);
    }

    /// A receive has ended.
    pub(super) fn complete_receive(&mut self, qp: u16, done: Received) {
        let Some(cq) = self.pair(qp).map(|pair| pair.receive_cq) else { return };
        let Some(queue) = self.cqs.get(cq) else { return };
        let immediate = if done.immediate.is_some() { HAS_IMMEDIATE } else { 0 };
        let unsolicited = if done.unsolicited { UNSOLICITED } else { 0 };
        let common = Cdesc {
            req_id: done.request.into(),
            status: done.status,
            flags: RECEIVE_QUEUE | immediate | unsolicited | done.operation << OPERATION,
            qp_num: qp.into(),
        };
        let [low, low2, high, high2, ..] = done.length.to_le_bytes();
        let mut extension = [0; 16];
        if done.operation == operation::WRITE {
            [extension[0], extension[1]] = [high, high2];
        } else if queue.source_addresses && done.handle == UNKNOWN_HANDLE {
            extension = done.source.0;
        }
        let rest = RxCdesc {
            length: u16::from_le_bytes([low, low2]).into(),
            ah: done.handle.into(),
            src_qp_num: done.source_qp.into(),
            imm: done.immediate.unwrap_or(0).into(),
            extension,
        };
        self.complete(cq, common, rest.as_bytes());
    }

    fn complete(&mut self, cq: u16, mut common: Cdesc, rest: &[u8]) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        let (to, phase) = place(queue.base, queue.produced, queue.depth, queue.entry);
        queue.produced = queue.produced.wrapping_add(1);
        common.flags |= phase;
        let mut entry = [common.as_bytes(), rest].concat();
        entry.resize(queue.entry, 0);
        if let Err(error) = publish(&self.bus, to, &entry) {
            log::error!("a completion is lost: {error}");
        }
        self.tell(cq);
    }

    /// Writes a completion event, if the program has asked for one.
    fn tell(&mut self, cq: u16) {
        let Some(queue) = self.cqs.get_mut(cq).filter(|queue| queue.armed) else { return };
        queue.armed = false;
        let Some(events) = queue.eqn.and_then(|eqn| self.eqs.get_mut(eqn)) else { return };
        let (to, phase) = place(events.base, events.produced, events.depth, EQE);
        events.produced = events.produced.wrapping_add(1);
        let entry = Eqe {
            common: u32::from(phase).into(),
            reserved: 0.into(),
            cqn: cq.into(),
            reserved2: 0.into(),
            reserved3: 0.into(),
        };
        if let Err(error) = publish(&self.bus, to, entry.as_bytes()) {
            log::error!("an event is lost: {error}");
        }
        events.untold = !events.armed;
        if std::mem::take(&mut events.armed) {
            self.bus.interrupt(events.vector);
        }
    }

    /// The driver has handled an event queue and waits for an interrupt again.
    pub(super) fn arm_events(&mut self, word: u32) {
        let eqn = u16::try_from(word & CONSUMED).unwrap_or(0);
        let Some(events) = self.eqs.get_mut(eqn) else { return };
        events.armed = !events.untold;
        if std::mem::take(&mut events.untold) {
            self.bus.interrupt(events.vector);
        }
    }
}
