//! BAR 0: registers and doorbells. Offsets and fields are those of `erdma_hw.h`.

use std::collections::BTreeMap;

use super::Device;
use super::Protocol;
use super::layout::bits64;
use super::limits;
use super::objects::Armed;
use super::objects::Buffer;
use super::objects::CompletionQueue;
use super::objects::EventQueue;

const VERSION: u64 = 0x00;
const PROTOCOL: u64 = 0x0c;
const CONTROL: u64 = 0x10;
const STATUS: u64 = 0x14;
const MAC_LOW: u64 = 0x18;
const MAC_HIGH: u64 = 0x1c;
// The two halves of an address are in either order.
const SQ_LOW: u64 = 0x20;
const SQ_HIGH: u64 = 0x24;
const CQ_LOW: u64 = 0x28;
const CQ_HIGH: u64 = 0x2c;
const SQ_DEPTH: u64 = 0x30;
const EQ_DEPTH: u64 = 0x34;
const EQ_LOW: u64 = 0x38;
const EQ_HIGH: u64 = 0x3c;
const AEQ_LOW: u64 = 0x40;
const AEQ_HIGH: u64 = 0x44;
const AEQ_DEPTH: u64 = 0x48;
const AEQ_DOORBELL: u64 = 0x50;
const EQ_DOORBELLS: u64 = 0x100;
const SQ_DOORBELL: u64 = 0x200;
const CQ_DOORBELL: u64 = 0x300;

/// A device that works. (Of version 0 the driver lets go.)
const VERSION_IS: u32 = 1;
const RESET: u32 = 1;
const INIT: u32 = 2;
const RESET_DONE: u32 = 1;
const INIT_DONE: u32 = 2;
/// `ERDMA_EQDB_ARM_MASK` and `ERDMA_CQDB_ARM_MASK`, and how much was handled.
const ARM: u64 = 1 << 31;
const SOLICITED: u64 = 1 << 30;
const CONSUMED: u32 = 0xff_ffff;

/// The event queue of the command queue; and the one of asynchronous events, which has no number.
pub(super) const COMMAND_EQ: u8 = 0;
pub(super) const ASYNCHRONOUS_EQ: u8 = u8::MAX;
/// The completion queue of the command queue.
pub(super) const COMMAND_CQ: u32 = 0;

/// What the driver has written, and how far the command queue is.
#[derive(Debug, Default)]
pub(super) struct Registers {
    written: BTreeMap<u64, u32>,
    status: u32,
    /// Blocks of commands that were taken, and that were rung.
    pub(super) taken: u16,
    pub(super) rung: u16,
}

impl Registers {
    fn get(&self, offset: u64) -> u32 {
        self.written.get(&offset).copied().unwrap_or(0)
    }

    fn address(&self, low: u64, high: u64) -> u64 {
        u64::from(self.get(low)) | u64::from(self.get(high)) << 32
    }

    /// The ring of commands, and how many blocks it has.
    pub(super) fn commands(&self) -> (Buffer, u32) {
        (Buffer::flat(self.address(SQ_LOW, SQ_HIGH)), self.get(SQ_DEPTH))
    }
}

impl Device {
    pub(super) fn load_register(&self, offset: u64, data: &mut [u8]) {
        let [_, _, mac @ ..] = self.mac;
        let word = match offset {
            VERSION => VERSION_IS,
            PROTOCOL => u32::from(self.protocol == Protocol::Roce),
            STATUS => self.registers.status,
            MAC_LOW => u32::from_be_bytes(mac),
            MAC_HIGH => u32::from(u16::from_be_bytes([self.mac[0], self.mac[1]])),
            _ => self.registers.get(offset),
        };
        for (to, from) in data.iter_mut().zip(word.to_le_bytes()) {
            *to = from;
        }
    }

    /// A store to the registers: of four bytes, or of eight.
    pub(super) fn store_register(&mut self, offset: u64, data: &[u8]) {
        if let Ok(word) = <[u8; 8]>::try_from(data).map(u64::from_le_bytes) {
            return match offset {
                SQ_DOORBELL => {
                    self.registers.rung = u16::try_from(word & 0xffff).unwrap_or(0);
                    self.commands();
                }
                CQ_DOORBELL => self.consumed(COMMAND_CQ, word),
                AEQ_DOORBELL => self.handled(ASYNCHRONOUS_EQ, word),
                EQ_DOORBELLS..SQ_DOORBELL => {
                    self.handled(u8::try_from((offset - EQ_DOORBELLS) / 8).unwrap_or(0), word);
                }
                // Where records of doorbells are: the device goes by the doorbells themselves.
                _ => {}
            };
        }
        let Ok(word) = <[u8; 4]>::try_from(data).map(u32::from_le_bytes) else { return };
        match offset {
            CONTROL if word & RESET != 0 => {
                self.reset();
                self.registers.status = RESET_DONE;
            }
            CONTROL if word & INIT != 0 && self.registers.status & INIT_DONE == 0 => self.init(),
            CONTROL => {}
            _ => {
                self.registers.written.insert(offset, word);
            }
        }
    }

    /// The driver has said where its queues are.
    fn init(&mut self) {
        let registers = &self.registers;
        let queue = |base, depth| EventQueue {
            base,
            depth,
            vector: 0,
            produced: 0,
            consumed: 0,
            armed: true,
            waiting: std::collections::VecDeque::new(),
        };
        let commands = queue(registers.address(EQ_LOW, EQ_HIGH), registers.get(EQ_DEPTH));
        let asynchronous = queue(registers.address(AEQ_LOW, AEQ_HIGH), registers.get(AEQ_DEPTH));
        let completions = CompletionQueue {
            buffer: Buffer::flat(registers.address(CQ_LOW, CQ_HIGH)),
            depth: registers.get(SQ_DEPTH),
            eqn: COMMAND_EQ,
            armed: Armed::No,
            produced: 0,
            solicited: 0,
            page: None,
        };
        self.eqs.insert(COMMAND_EQ, commands);
        self.eqs.insert(ASYNCHRONOUS_EQ, asynchronous);
        self.cqs.insert(COMMAND_CQ, completions);
        self.registers.status |= INIT_DONE;
    }

    /// A program, or the kernel, rings a doorbell on a page.
    pub(super) fn doorbell(&mut self, page: u64, word: u64) {
        self.counters.doorbells += 1;
        let page = u16::try_from(page).unwrap_or(0);
        match self.use_of(page) {
            Some(Use::Send) => {
                // `ERDMA_SQE_HDR_QPN_MASK` and `ERDMA_SQE_HDR_WQEBB_INDEX_MASK`.
                let (qpn, rung) = (bits64(word, 32, 20), u16::try_from(word & 0xffff).unwrap_or(0));
                let Some(pair) = self.qps.get_mut(&qpn) else { return };
                if pair.pages.is_none_or(|[own, _]| own == page) {
                    pair.rung = rung;
                    self.pump(qpn);
                }
            }
            Some(Use::Receive) => {
                // The first eight bytes of an `erdma_rqe`: the count after it, and the number.
                let (qpn, posted) = (bits64(word, 32, 20), bits64(word, 0, 16));
                let Some(pair) = self.qps.get_mut(&qpn) else { return };
                if pair.pages.is_none_or(|[_, own]| own == page) {
                    pair.posted = u16::try_from(posted).unwrap_or(0);
                    self.flush_receives(qpn);
                }
            }
            Some(Use::Complete) => {
                let cqn = bits64(word, 32, 24);
                let own = self.cqs.get(&cqn).and_then(|queue| queue.page);
                if cqn != COMMAND_CQ && own.is_none_or(|own| own == page) {
                    self.consumed(cqn, word);
                }
            }
            None => log::warn!("a doorbell on page {page}, which is of nobody"),
        }
    }

    /// What a page of doorbells is for.
    ///
    /// The driver maps the second page that it gets for completions, and the third for receives,
    /// whatever it calls them (`alloc_db_resources`).
    fn use_of(&self, page: u16) -> Option<Use> {
        let at = u64::from(page);
        if let Some(own) = at.checked_sub(limits::OWN_PAGES) {
            let context = u16::try_from(own / 3).ok()?;
            self.contexts.contains(&context).then_some(())?;
            return [Use::Send, Use::Complete, Use::Receive]
                .get(usize::try_from(own % 3).ok()?)
                .copied();
        }
        Some(match at {
            limits::SHARED_SEND..limits::SHARED_RECEIVE => Use::Send,
            limits::SHARED_RECEIVE..limits::SHARED_COMPLETION => Use::Receive,
            _ => Use::Complete,
        })
    }

    /// So many completions were seen, and the next is to be told of.
    fn consumed(&mut self, cqn: u32, word: u64) {
        let Some(queue) = self.cqs.get_mut(&cqn) else { return };
        if word & ARM == 0 {
            return;
        }
        let solicited = word & SOLICITED != 0;
        queue.armed = if solicited { Armed::Solicited } else { Armed::Any };
        let newest = if solicited { queue.solicited } else { queue.produced };
        let seen = bits64(word, 0, 24);
        // More were written than seen: half of the numbers are ahead.
        let ahead = newest.wrapping_sub(seen) & CONSUMED;
        if ahead != 0 && ahead <= CONSUMED / 2 {
            self.tell(cqn);
        }
    }

    /// So many events were handled, and the next interrupts again.
    fn handled(&mut self, eqn: u8, word: u64) {
        let Some(queue) = self.eqs.get_mut(&eqn) else { return };
        let behind = queue.produced.wrapping_sub(bits64(word, 0, 24)) & CONSUMED;
        queue.consumed = queue.produced.wrapping_sub(behind);
        queue.armed = word & ARM != 0;
        let waiting = std::mem::take(&mut queue.waiting);
        for event in waiting {
            self.event(eqn, event);
        }
        if let Some(queue) = self.eqs.get_mut(&eqn)
            && queue.armed
            && queue.produced != queue.consumed
        {
            queue.armed = false;
            self.bus.interrupt(queue.vector);
        }
    }
}

/// What a page of doorbells is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    Send,
    Receive,
    Complete,
}
