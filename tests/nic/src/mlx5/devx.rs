//! Commands of objects that programs make by themselves (DEVX): contexts, memory for queues, general objects
//! and rates.
//!
//! A program's commands carry the number of its context, which the kernel puts there. What belongs to one
//! context is nothing to another.

use super::Device;
use super::admin::Answer;
use super::admin::Refusal;
use super::admin::Reply;
use super::admin::Request;
use super::bits::Field;
use super::device::take_back;
use super::layout::command;
use super::layout::umem;
use super::limits;
use super::memory::Buffer;

/// `MLX5_OBJ_TYPE_GENEVE_TLV_OPT`, the general objects that this device has: each names an option of
/// tunnelled packets, of which a device without Ethernet meets none.
pub(super) const TUNNEL_OPTION: u32 = 0xb;
/// Of a general object: its type, its number, and where what the program says of it begins and ends.
const TYPE: Field = Field::new(0x30, 0x10);
const OBJECT: Field = Field::new(0x40, 0x20);
const BODY: usize = 0x80;
const BODY_END: usize = 0x280;
/// The number of a context, in an answer and in a command.
const CONTEXT: Field = Field::new(0x50, 0x10);
/// Which rate; and what is said of the rate, which begins with the rate itself.
const RATE: Field = Field::new(0x50, 0x10);
const RATE_BODY: usize = 0x80;
const RATE_END: usize = 0x200;
/// A record of doorbells has two words, and does not straddle pages.
const RECORD: u64 = 8;
const LOG_PAGE: u32 = 12;

/// Where a command says that a queue is in memory which a program has registered for that.
#[derive(Debug)]
pub(super) struct InUmem {
    pub(super) valid: Field,
    pub(super) id: Field,
    pub(super) at: Field,
}

/// Memory of a program's, for queues and records of doorbells.
#[derive(Debug)]
pub(super) struct Umem {
    /// The context of the program.
    owner: u32,
    pages: Vec<u64>,
    shift: u32,
    /// Where in its first page it begins.
    offset: u64,
}

impl Umem {
    /// So many bytes of it, if it has so many from there on.
    fn part(&self, at: u64, bytes: u64) -> Option<Buffer> {
        let buffer = Buffer::new(&self.pages, self.shift, self.offset.checked_add(at)?);
        buffer.at(bytes.checked_sub(1)?)?;
        Some(buffer)
    }
}

/// A general object.
#[derive(Debug)]
pub(super) struct General {
    owner: u32,
    body: Vec<u8>,
}

impl Device {
    /// The context whose command this is; zero is the kernel itself.
    fn owner(&self, request: &Request) -> Result<u32, Refusal> {
        let owner = request.word(command::UID);
        let known = owner == 0 || self.contexts.has(owner);
        known.then_some(owner).ok_or(Refusal::Object)
    }

    fn umem(&self, request: &Request, number: u32) -> Result<&Umem, Refusal> {
        let owner = self.owner(request)?;
        let umem = self.umems.get(&number).filter(|umem| umem.owner == owner);
        umem.ok_or(Refusal::Object)
    }

    /// The queue of a command that says that the queue is in memory of a program's, and in which.
    pub(super) fn of_a_program(
        &self,
        request: &Request,
        place: &InUmem,
        bytes: u64,
    ) -> Result<Option<(Buffer, u32)>, Refusal> {
        if request.get(place.valid) == 0 {
            return Ok(None);
        }
        let number = request.word(place.id);
        let part = self.umem(request, number)?.part(request.get(place.at), bytes);
        Ok(Some((part.ok_or(Refusal::Parameter)?, number)))
    }

    /// Where a record of doorbells is that is in memory of a program's.
    pub(super) fn record(&self, request: &Request, number: u32, at: u64) -> Result<u64, Refusal> {
        let part = self.umem(request, number)?.part(at, RECORD).ok_or(Refusal::Parameter)?;
        let record = part.at(0).ok_or(Refusal::Parameter)?;
        if !record.is_multiple_of(RECORD) {
            return Err(Refusal::Parameter);
        }
        Ok(record)
    }

    /// The identity of a context.
    pub(super) fn create_uctx(&mut self, _: &Request) -> Answer {
        let uid = self.contexts.take().ok_or(Refusal::Limit)?;
        Reply::sized(16).with(CONTEXT, uid.into()).ok()
    }

    pub(super) fn destroy_uctx(&mut self, request: &Request) -> Answer {
        let uid = request.word(CONTEXT);
        let used = self.umems.values().any(|umem| umem.owner == uid)
            || self.generals.values().any(|object| object.owner == uid);
        if used {
            return Err(Refusal::Busy);
        }
        take_back(&mut self.contexts, uid)
    }

    pub(super) fn create_umem(&mut self, request: &Request) -> Answer {
        let owner = self.owner(request)?;
        let shift = request.word(umem::LOG_PAGE_SIZE) + LOG_PAGE;
        let offset = request.get(umem::PAGE_OFFSET);
        let count = usize::try_from(request.get(umem::COUNT)).map_err(|_| Refusal::Parameter)?;
        let pages = request.addresses(umem::LIST, count)?;
        if offset >> shift != 0 || pages.is_empty() {
            return Err(Refusal::Parameter);
        }
        let number = self.umem_numbers.take().ok_or(Refusal::Limit)?;
        self.umems.insert(number, Umem { owner, pages, shift, offset });
        Reply::number(number)
    }

    pub(super) fn destroy_umem(&mut self, request: &Request) -> Answer {
        let number = request.number();
        self.umem(request, number)?;
        let used = self.cqs.values().any(|queue| queue.umems.contains(&number))
            || self.qps.values().any(|pair| pair.umems.contains(&number));
        if used {
            return Err(Refusal::Busy);
        }
        self.umems.remove(&number);
        take_back(&mut self.umem_numbers, number)
    }

    pub(super) fn create_general(&mut self, request: &Request) -> Answer {
        let owner = self.owner(request)?;
        if request.word(TYPE) != TUNNEL_OPTION {
            return Err(Refusal::Parameter);
        }
        let body = request.part(BODY, BODY_END)?.to_vec();
        let number = self.general_numbers.take().ok_or(Refusal::Limit)?;
        self.generals.insert(number, General { owner, body });
        Reply::sized(16).with(OBJECT, number.into()).ok()
    }

    fn general(&self, request: &Request) -> Result<&General, Refusal> {
        let owner = self.owner(request)?;
        let found = self.generals.get(&request.word(OBJECT));
        let found = found.filter(|object| object.owner == owner);
        found.filter(|_| request.word(TYPE) == TUNNEL_OPTION).ok_or(Refusal::Object)
    }

    pub(super) fn query_general(&mut self, request: &Request) -> Answer {
        let body = &self.general(request)?.body;
        let number = request.get(OBJECT);
        Reply::sized(BODY_END / 8).with(OBJECT, number).put(BODY / 8, body).ok()
    }

    pub(super) fn destroy_general(&mut self, request: &Request) -> Answer {
        self.general(request)?;
        let number = request.word(OBJECT);
        self.generals.remove(&number);
        take_back(&mut self.general_numbers, number)
    }

    /// A rate that packets may be paced with; zero ends one. No queue pair of this device has any.
    pub(super) fn set_rate(&mut self, request: &Request) -> Answer {
        let index = request.word(RATE);
        let body = request.part(RATE_BODY, RATE_END)?;
        if !(1..limits::RATES).contains(&index) {
            return Err(Refusal::Parameter);
        }
        match Field::new(0, 0x20).get(body) {
            0 => self.rates.remove(&index),
            _ => self.rates.insert(index, body.to_vec()),
        };
        Reply::done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_ends_where_its_pages_end() {
        let umem = Umem { owner: 1, pages: vec![0x1_0003, 0x5003], shift: 12, offset: 0x40 };
        assert_eq!(umem.part(8, 8).unwrap().at(0), Some(0x1_0048));
        assert_eq!(umem.part(0xfc0, 0x1000).unwrap().at(0), Some(0x5000));
        assert!(umem.part(0xfc1, 0x1000).is_none());
        assert!(umem.part(u64::MAX, 8).is_none() && umem.part(0, 0).is_none());
        assert!(umem.part(0, u64::MAX).is_none());
    }
}
