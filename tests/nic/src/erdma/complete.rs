//! Completions, and the events that tell of them.

use zerocopy::IntoBytes as _;

use super::Device;
use super::layout::CQE;
use super::layout::Cqe;
use super::layout::EQE;
use super::objects::Armed;
use super::registers::ASYNCHRONOUS_EQ;
use crate::ring::place;
use crate::ring::publish;

/// Of which queue an entry is: `ERDMA_CQE_QTYPE_SQ` and the two after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Queue {
    Sends = 0,
    Receives = 1,
    Commands = 2,
}

/// What has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) queue: Queue,
    /// The block, or the receive, as doorbells count them.
    pub(super) index: u16,
    pub(super) opcode: u8,
    pub(super) status: u8,
    pub(super) length: u32,
    /// Immediate data in the processor's order, or a key that was invalidated.
    pub(super) word: Word,
    pub(super) solicited: bool,
    /// `ERDMA_CQE_NTYPE_MASK` and `ERDMA_CQE_SQPN_MASK`, of a datagram.
    pub(super) info: u32,
}

/// The word that comes with a receive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Word {
    None,
    Immediate(u32),
    Invalidated(u32),
}

impl Completion {
    /// Nothing but the queue.
    pub(super) fn of(queue: Queue) -> Self {
        Self {
            queue,
            index: 0,
            opcode: 0,
            status: 0,
            length: 0,
            word: Word::None,
            solicited: false,
            info: 0,
        }
    }
}

/// `ERDMA_CQE_HDR_OWNER_MASK` and the fields below.
const OWNER: u32 = 31;
const OPCODE: u32 = 16;
const QUEUE: u32 = 8;
/// `ERDMA_CEQE_HDR_O_MASK` and `ERDMA_AEQE_HDR_O_MASK`.
const EVENT_OWNER: u32 = 31;
/// `ERDMA_AEQE_HDR_TYPE_MASK`.
const EVENT_TYPE: u32 = 16;

/// What an asynchronous event is about: `ERDMA_AE_TYPE_QP_FATAL_EVENT` and others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Trouble {
    Fatal = 0,
    Access = 2,
}

impl Device {
    /// Writes a completion. That of a command has an answer in the place of what a work request has.
    pub(super) fn complete(&mut self, cqn: u32, qpn: u32, done: Completion, answer: [u64; 2]) {
        let Some(queue) = self.cqs.get_mut(&cqn) else { return };
        let (offset, phase) = place(0, queue.produced, queue.depth, CQE);
        queue.produced = queue.produced.wrapping_add(1);
        if done.solicited || done.status != 0 {
            queue.solicited = queue.produced;
        }
        let head = u32::from(phase) << OWNER
            | u32::from(done.opcode) << OPCODE
            | u32::from(done.queue as u8) << QUEUE
            | u32::from(done.status);
        let immediate = match done.word {
            Word::None => 0,
            Word::Immediate(word) => word,
            Word::Invalidated(key) => key.swap_bytes(),
        };
        let mut entry = Cqe {
            head: head.into(),
            index: u32::from(done.index).into(),
            qpn: qpn.into(),
            immediate: immediate.into(),
            size: done.length.into(),
            reserved: [0.into(); 2],
            info: done.info.into(),
        };
        if done.queue == Queue::Commands {
            let [low, high] = answer;
            let half = |word: u64, shift: u32| (word >> shift & 0xffff_ffff) as u32;
            entry.qpn = half(low, 0).into();
            entry.immediate = half(low, 32).swap_bytes().into();
            entry.size = half(high, 0).into();
            entry.reserved = [half(high, 32).into(), 0.into()];
        }
        log::debug!("completion {done:?} of queue pair {qpn:#x} in {cqn} at {offset:#x}");
        let written = queue.buffer.at(offset).map(|to| publish(&self.bus, to, entry.as_bytes()));
        if !matches!(written, Some(Ok(()))) {
            log::error!("completion queue {cqn}: a completion is lost");
        }
        let wanted = match queue.armed {
            Armed::No => false,
            Armed::Solicited => done.solicited || done.status != 0,
            Armed::Any => true,
        };
        if wanted {
            self.tell(cqn);
        }
    }

    /// Writes the event that a program has asked for.
    pub(super) fn tell(&mut self, cqn: u32) {
        let Some(queue) = self.cqs.get_mut(&cqn) else { return };
        queue.armed = Armed::No;
        let eqn = queue.eqn;
        let mut entry = [0; EQE];
        if let Some(word) = entry.first_chunk_mut::<4>() {
            *word = cqn.to_le_bytes();
        }
        self.event(eqn, entry);
    }

    /// Tells the driver of trouble with a queue pair.
    pub(super) fn trouble(&mut self, qpn: u32, trouble: Trouble) {
        let mut entry = [0; EQE];
        let head = u32::from(trouble as u8) << EVENT_TYPE;
        for (to, from) in entry.iter_mut().zip([head.to_le_bytes(), qpn.to_le_bytes()].concat()) {
            *to = from;
        }
        self.event(ASYNCHRONOUS_EQ, entry);
    }

    /// Writes an event, whose owner bit is set here, and interrupts if the driver waits.
    pub(super) fn event(&mut self, eqn: u8, mut entry: [u8; EQE]) {
        let Some(queue) = self.eqs.get_mut(&eqn) else { return };
        if queue.produced.wrapping_sub(queue.consumed) >= queue.depth {
            queue.waiting.push_back(entry);
            return;
        }
        let (to, phase) = place(queue.base, queue.produced, queue.depth, EQE);
        queue.produced = queue.produced.wrapping_add(1);
        if let Some(word) = entry.first_chunk_mut::<4>() {
            *word = (u32::from_le_bytes(*word) | u32::from(phase) << EVENT_OWNER).to_le_bytes();
        }
        if let Err(error) = publish(&self.bus, to, &entry) {
            log::error!("an event is lost: {error}");
        }
        if std::mem::take(&mut queue.armed) {
            self.bus.interrupt(queue.vector);
        }
    }
}
