//! Commands that make and end queues and memory keys.

use std::collections::VecDeque;

use super::Device;
use super::admin::Answer;
use super::admin::Refusal;
use super::admin::Reply;
use super::admin::Request;
use super::bits::Field;
use super::devx::InUmem;
use super::layout::command::CONTEXT;
use super::layout::command::CONTEXT_END;
use super::layout::command::PAGES;
use super::layout::command::WQ;
use super::layout::cqc;
use super::layout::eqc;
use super::layout::mkc;
use super::layout::srqc;
use super::layout::wq;
use super::limits;
use super::memory::Buffer;
use super::memory::Key;
use super::objects::Armed;
use super::objects::CompletionQueue;
use super::objects::EventQueue;
use super::objects::SharedQueue;
use crate::region::Region;

/// The place of a queue in its first page counts 64ths of a page; and the smallest page, as powers of two.
const LOG_UNITS: u32 = 6;
const LOG_PAGE: u32 = 12;
/// `MLX5_MKC_ACCESS_MODE_PA` and `MLX5_MKC_ACCESS_MODE_MTT`.
const PHYSICAL: u32 = 0;
const TRANSLATED: u32 = 1;
/// `MLX5_MKC_ACCESS_MODE_MEMIC`, of memory on the device.
const ON_THE_DEVICE: u32 = 5;
/// A queue is in memory that a program has registered for that: in which, and where.
const CQ_IN_UMEM: InUmem = InUmem {
    valid: Field::new(0x2e0, 1),
    id: Field::new(0x2c0, 0x20),
    at: Field::new(0x280, 0x40),
};
/// Bits of a translation that are no address.
const PRESENT: u64 = 7;
/// The size of an entry of a completion queue: 64, or 128 of which the second half is used.
const LARGE: u32 = 1;

impl Device {
    /// A queue whose pages are at the end of the command.
    pub(super) fn buffer(
        request: &Request,
        list: usize,
        bytes: u64,
        log_page: u32,
        offset: u32,
    ) -> Result<Buffer, Refusal> {
        let shift = log_page + LOG_PAGE;
        let offset = u64::from(offset) << (shift - LOG_UNITS);
        let count = Buffer::pages_of(bytes, shift, offset).ok_or(Refusal::Parameter)?;
        Ok(Buffer::new(&request.addresses(list, count)?, shift, offset))
    }

    pub(super) fn create_eq(&mut self, request: &Request) -> Answer {
        let context = request.part(CONTEXT, CONTEXT_END)?;
        let log_size = eqc::LOG_EQ_SIZE.word(context);
        let (uar, vector) = (eqc::UAR_PAGE.word(context), eqc::INTR.word(context));
        if u64::from(log_size) > limits::LOG_EQ_SIZE || vector >= limits::VECTORS.into() {
            return Err(Refusal::Parameter);
        }
        if !self.uars.has(uar) {
            return Err(Refusal::Object);
        }
        let log_page = eqc::LOG_PAGE_SIZE.word(context);
        let buffer = Self::buffer(request, PAGES, 64 << log_size, log_page, 0)?;
        let eqn = self.eq_numbers.take().ok_or(Refusal::Limit)?;
        let queue = EventQueue {
            buffer,
            log_size,
            vector: usize::try_from(vector).map_err(|_| Refusal::Parameter)?,
            uar,
            events: request.get(eqc::EVENTS),
            produced: 0,
            consumed: 0,
            armed: false,
            waiting: VecDeque::new(),
        };
        self.eqs.insert(eqn, queue);
        Reply::sized(16).with(eqc::NUMBER, eqn.into()).ok()
    }

    pub(super) fn destroy_eq(&mut self, request: &Request) -> Answer {
        let eqn = request.word(eqc::NUMBER);
        if self.cqs.values().any(|queue| queue.eqn == eqn) {
            return Err(Refusal::Busy);
        }
        self.eqs.remove(&eqn).ok_or(Refusal::Object)?;
        self.eq_numbers.release(eqn);
        Reply::done()
    }

    pub(super) fn create_cq(&mut self, request: &Request) -> Answer {
        let context = request.part(CONTEXT, CONTEXT_END)?;
        let log_size = cqc::LOG_CQ_SIZE.word(context);
        let (uar, eqn) = (cqc::UAR_PAGE.word(context), cqc::EQN.word(context));
        let entry = match cqc::CQE_SZ.word(context) {
            0 => 64,
            LARGE => 128,
            _ => return Err(Refusal::Parameter),
        };
        if u64::from(log_size) > limits::LOG_CQ_SIZE {
            return Err(Refusal::Parameter);
        }
        if !self.uars.has(uar) || !self.eqs.contains_key(&eqn) {
            return Err(Refusal::Object);
        }
        let (log_page, offset) = (cqc::LOG_PAGE_SIZE.word(context), cqc::PAGE_OFFSET.word(context));
        let own = self.of_a_program(request, &CQ_IN_UMEM, entry << log_size)?;
        let (buffer, mut umems) = match own {
            Some((buffer, umem)) => (buffer, vec![umem]),
            None => {
                (Self::buffer(request, PAGES, entry << log_size, log_page, offset)?, Vec::new())
            }
        };
        if cqc::DBR_UMEM_VALID.is_set(context) {
            let number = cqc::DBR_UMEM_ID.word(context);
            self.record(request, number, cqc::DBR_ADDR.get(context))?;
            umems.push(number);
        }
        let cqn = self.cq_numbers.take().ok_or(Refusal::Limit)?;
        let queue = CompletionQueue {
            context: context.to_vec(),
            buffer,
            umems,
            log_size,
            entry,
            eqn,
            uar,
            armed: Armed::No,
            produced: 0,
            solicited: 0,
        };
        self.cqs.insert(cqn, queue);
        Reply::number(cqn)
    }

    pub(super) fn destroy_cq(&mut self, request: &Request) -> Answer {
        let cqn = request.number();
        let used = self.qps.values().any(|pair| pair.cqs().contains(&cqn));
        if used {
            return Err(Refusal::Busy);
        }
        self.cqs.remove(&cqn).ok_or(Refusal::Object)?;
        self.cq_numbers.release(cqn);
        Reply::done()
    }

    pub(super) fn query_cq(&mut self, request: &Request) -> Answer {
        let queue = self.cqs.get(&request.number()).ok_or(Refusal::Object)?;
        Reply::sized(PAGES / 8).put(CONTEXT / 8, &queue.context).ok()
    }

    /// Moderation of events, which this device does not do more of than to take note. A queue keeps its size.
    pub(super) fn modify_cq(&mut self, request: &Request) -> Answer {
        const PERIOD_AND_COUNT: Field = Field::new(0x84, 0x1c);
        if request.op_mod() != 0 {
            return Err(Refusal::Parameter);
        }
        let context = request.part(CONTEXT, CONTEXT_END)?;
        let queue = self.cqs.get_mut(&request.number()).ok_or(Refusal::Object)?;
        PERIOD_AND_COUNT.copy(context, &mut queue.context);
        Reply::done()
    }

    /// A key: of all memory, of pages that are in the command, or one that is free.
    pub(super) fn create_mkey(&mut self, request: &Request) -> Answer {
        let context = request.part(CONTEXT, CONTEXT_END)?;
        let mode = mkc::MODE_HIGH.word(context) << 2 | mkc::MODE_LOW.word(context);
        let free = mkc::FREE.is_set(context);
        let shift = mkc::LOG_PAGE_SIZE.word(context);
        let pd = mkc::PD.word(context);
        if !self.pds.has(pd) {
            return Err(Refusal::Object);
        }
        let pages = match mode {
            _ if free => Vec::new(),
            PHYSICAL | ON_THE_DEVICE => Vec::new(),
            TRANSLATED if (LOG_PAGE..=31).contains(&shift) => {
                let count = usize::try_from(request.get(mkc::ACTUAL)).unwrap_or(usize::MAX);
                let count = count.checked_mul(2).ok_or(Refusal::Length)?;
                let mut pages = request.addresses(PAGES, count)?;
                pages.iter_mut().for_each(|page| *page &= !PRESENT);
                pages
            }
            _ => return Err(Refusal::Parameter),
        };
        let all = mkc::LENGTH64.is_set(context);
        let region = Region {
            pd,
            permissions: u8::try_from(mkc::RIGHTS.get(context)).unwrap_or(0),
            start: mkc::START.get(context),
            length: if all { u64::MAX } else { mkc::LENGTH.get(context) },
            shift,
            pages,
        };
        let number = self.key_numbers.take().ok_or(Refusal::Limit)?;
        let key = Key {
            context: context.to_vec(),
            variant: u8::try_from(mkc::VARIANT.get(context)).unwrap_or(0),
            valid: !free,
            physical: mode == PHYSICAL,
            own: (mode == ON_THE_DEVICE).then_some(region.start),
            region,
        };
        self.keys.insert(number, key);
        Reply::number(number)
    }

    pub(super) fn query_mkey(&mut self, request: &Request) -> Answer {
        let key = self.keys.get(&request.number()).ok_or(Refusal::Object)?;
        Reply::sized(PAGES / 8).put(CONTEXT / 8, &key.context).ok()
    }

    pub(super) fn destroy_mkey(&mut self, request: &Request) -> Answer {
        let number = request.number();
        self.keys.remove(&number).ok_or(Refusal::Object)?;
        self.key_numbers.release(number);
        Reply::done()
    }

    /// The kernel makes shared receive queues of XRC's, and one for each connection without any.
    pub(super) fn create_xrc_srq(&mut self, request: &Request) -> Answer {
        let context = request.part(CONTEXT, CONTEXT_END)?;
        let (log_size, stride) =
            (srqc::LOG_SIZE.word(context), 16 << srqc::LOG_STRIDE.word(context));
        let (log_page, offset) =
            (srqc::LOG_PAGE_SIZE.word(context), srqc::PAGE_OFFSET.word(context));
        let buffer = Self::buffer(request, PAGES, stride << log_size, log_page, offset)?;
        let queue = SharedQueue {
            context: context.to_vec(),
            buffer,
            stride,
            size: 1 << log_size,
            pd: srqc::PD.word(context),
            record: srqc::DBR_ADDR.get(context),
            head: 0,
            taken: 0,
            limit: 0,
        };
        self.share(queue)
    }

    /// All other shared receive queues.
    pub(super) fn create_rmp(&mut self, request: &Request) -> Answer {
        let context = request.part(WQ, PAGES)?;
        let (log_size, stride) = (wq::LOG_SIZE.word(context), wq::LOG_STRIDE.word(context));
        if u64::from(log_size) > limits::LOG_SRQ_SIZE || stride > 12 {
            return Err(Refusal::Parameter);
        }
        let (log_page, offset) = (wq::LOG_PAGE_SIZE.word(context), wq::PAGE_OFFSET.word(context));
        let bytes = 1 << (stride + log_size);
        let buffer = Self::buffer(request, PAGES, bytes, log_page, offset)?;
        let queue = SharedQueue {
            context: context.to_vec(),
            buffer,
            stride: 1 << stride,
            size: 1 << log_size,
            pd: wq::PD.word(context),
            record: wq::DBR_ADDR.get(context),
            head: 0,
            taken: 0,
            limit: 0,
        };
        self.share(queue)
    }

    fn share(&mut self, queue: SharedQueue) -> Answer {
        if !self.pds.has(queue.pd) {
            return Err(Refusal::Object);
        }
        let number = self.srq_numbers.take().ok_or(Refusal::Limit)?;
        self.srqs.insert(number, queue);
        Reply::number(number)
    }

    pub(super) fn destroy_srq(&mut self, request: &Request) -> Answer {
        let number = request.number();
        if self.qps.values().any(|pair| pair.shared() == Some(number)) {
            return Err(Refusal::Busy);
        }
        self.srqs.remove(&number).ok_or(Refusal::Object)?;
        self.srq_numbers.release(number);
        Reply::done()
    }

    pub(super) fn query_xrc_srq(&mut self, request: &Request) -> Answer {
        const LIMIT: Field = Field::new(0xe0, 0x10);
        let queue = self.srqs.get(&request.number()).ok_or(Refusal::Object)?;
        let mut context = queue.context.clone();
        LIMIT.set(&mut context, queue.limit.into());
        Reply::sized(PAGES / 8).put(CONTEXT / 8, &context).ok()
    }

    pub(super) fn query_rmp(&mut self, request: &Request) -> Answer {
        /// The context begins with a state, ready; the queue follows.
        const STATE: Field = Field::new(0x108, 4);
        const READY: u64 = 1;
        let queue = self.srqs.get(&request.number()).ok_or(Refusal::Object)?;
        let mut context = queue.context.clone();
        wq::LWM.set(&mut context, queue.limit.into());
        Reply::sized(PAGES / 8).put(WQ / 8, &context).with(STATE, READY).ok()
    }

    /// Sets the limit below which the program is told.
    pub(super) fn arm_srq(&mut self, request: &Request) -> Answer {
        const LIMIT: Field = Field::new(0x70, 0x10);
        self.set_limit(request.number(), request.word(LIMIT))
    }

    pub(super) fn modify_rmp(&mut self, request: &Request) -> Answer {
        let context = request.part(WQ, PAGES)?;
        self.set_limit(request.number(), wq::LWM.word(context))
    }

    fn set_limit(&mut self, number: u32, limit: u32) -> Answer {
        let queue = self.srqs.get_mut(&number).ok_or(Refusal::Object)?;
        queue.limit = u16::try_from(limit).map_err(|_| Refusal::Parameter)?;
        self.look_at_limit(number);
        Reply::done()
    }
}
