//! Memory on the device: part of BAR 0, which programs map, and which keys name as they name a guest's.

use super::Device;
use super::admin::Answer;
use super::admin::Refusal;
use super::admin::Reply;
use super::admin::Request;
use super::bits::Field;
use super::limits::DEVICE_MEMORY;
use super::limits::DEVICE_MEMORY_SIZE;
use super::limits::INCREMENTS;
use super::limits::PAGE;

/// Where the driver wants it, how long, and how much of that is used.
const RANGE_START: Field = Field::new(0x80, 0x40);
const RANGE_SIZE: Field = Field::new(0xc0, 0x20);
const SIZE: Field = Field::new(0xe0, 0x20);
/// What to give back.
const START: Field = Field::new(0x80, 0x40);
/// In the answer: where it is in the BAR.
const GIVEN: Field = Field::new(0x40, 0x40);

/// An operation on it, by what is stored at another place; which; and whether the driver wants it, or is done.
const OPERATION: Field = Field::new(0x78, 8);
const WANTED: u32 = 0;
const DONE: u32 = 1;
/// In the answer: where to store.
const OPERATION_ADDRESS: Field = Field::new(0x80, 0x40);
/// What is stored is added to what is there.
pub(super) const INCREMENT: u32 = 0;

/// Addresses of pieces of memory from here on are of the device's own. No guest has memory there.
pub(super) const OWN: u64 = 1 << 63;

/// The memory, and who has which part.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: Vec<u8>,
    /// Where each part begins in the BAR, and how long it is.
    parts: Vec<(u64, u64)>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let size = usize::try_from(DEVICE_MEMORY_SIZE).unwrap_or(0);
        Self { bytes: vec![0; size], parts: Vec::new() }
    }

    /// Bytes at an offset in the BAR that are all in one part which was given out.
    fn range(&self, at: u64, length: usize) -> Option<std::ops::Range<usize>> {
        let end = at.checked_add(u64::try_from(length).ok()?)?;
        let given = self.parts.iter().any(|(start, size)| *start <= at && end <= start + size);
        let first = usize::try_from(at.checked_sub(DEVICE_MEMORY)?).ok()?;
        given.then_some(first..first + length)
    }

    /// Reads at an offset in the BAR. What nobody has reads as nothing.
    pub(super) fn load(&self, at: u64, data: &mut [u8]) -> Option<()> {
        data.copy_from_slice(self.bytes.get(self.range(at, data.len())?)?);
        Some(())
    }

    pub(super) fn store(&mut self, at: u64, data: &[u8]) -> Option<()> {
        let range = self.range(at, data.len())?;
        self.bytes.get_mut(range)?.copy_from_slice(data);
        Some(())
    }
}

impl Memory {
    /// Adds what is stored where such stores go.
    pub(super) fn increment(&mut self, at: u64, data: &[u8]) -> Option<()> {
        let at = at.checked_sub(INCREMENTS)?.checked_add(DEVICE_MEMORY)?;
        let range = self.range(at, data.len())?;
        let mut carry = 0;
        for (byte, more) in self.bytes.get_mut(range)?.iter_mut().zip(data) {
            let sum = u16::from(*byte) + u16::from(*more) + carry;
            [*byte, _] = sum.to_le_bytes();
            carry = sum >> 8;
        }
        Some(())
    }
}

impl Device {
    /// Gives out the part that the driver has chosen, without what was there before.
    pub(super) fn alloc_memic(&mut self, request: &Request) -> Answer {
        let (start, size) = (request.get(RANGE_START), request.get(RANGE_SIZE));
        let end = start.checked_add(size).ok_or(Refusal::Parameter)?;
        let inside = start >= DEVICE_MEMORY && end <= DEVICE_MEMORY + DEVICE_MEMORY_SIZE;
        let used = request.get(SIZE);
        if !inside || !start.is_multiple_of(PAGE) || used == 0 || used > size {
            return Err(Refusal::Parameter);
        }
        let memory = &mut self.memory;
        if memory.parts.iter().any(|(other, length)| *other < end && start < other + length) {
            return Err(Refusal::Busy);
        }
        memory.parts.push((start, size));
        let range = memory.range(start, usize::try_from(size).unwrap_or(0));
        range.and_then(|range| memory.bytes.get_mut(range)).ok_or(Refusal::Limit)?.fill(0);
        Reply::sized(16).with(GIVEN, start).ok()
    }

    /// Tells where to store for an operation on a part, which the driver names by where it begins.
    pub(super) fn modify_memic(&mut self, request: &Request) -> Answer {
        let start = request.get(START);
        if !self.memory.parts.iter().any(|(at, _)| *at == start) {
            return Err(Refusal::Object);
        }
        match (request.word(OPERATION), request.op_mod()) {
            (INCREMENT, WANTED) => {
                Reply::sized(64).with(OPERATION_ADDRESS, start - DEVICE_MEMORY + INCREMENTS).ok()
            }
            (INCREMENT, DONE) => Reply::done(),
            _ => Err(Refusal::Parameter),
        }
    }

    pub(super) fn dealloc_memic(&mut self, request: &Request) -> Answer {
        let start = request.get(START);
        let parts = &mut self.memory.parts;
        let found = parts.iter().position(|(at, _)| *at == start).ok_or(Refusal::Object)?;
        parts.swap_remove(found);
        Reply::done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_out_is_there() {
        let mut memory = Memory::new();
        let mut byte = [9];
        assert!(memory.load(DEVICE_MEMORY, &mut byte).is_none());
        memory.parts.push((DEVICE_MEMORY, PAGE));
        assert!(memory.store(DEVICE_MEMORY + PAGE - 1, &[7]).is_some());
        assert!(memory.store(DEVICE_MEMORY + PAGE - 1, &[7, 7]).is_none());
        assert!(memory.store(DEVICE_MEMORY - 1, &[7]).is_none());
        assert!(memory.store(u64::MAX, &[7]).is_none());
        memory.load(DEVICE_MEMORY + PAGE - 1, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        // What is stored elsewhere is added, and nothing beyond the part.
        memory.store(DEVICE_MEMORY, &[0xff, 0xff, 1, 0]).unwrap();
        memory.increment(INCREMENTS, &[2, 0, 0, 0]).unwrap();
        let mut bytes = [0; 4];
        memory.load(DEVICE_MEMORY, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 0, 2, 0]);
        assert!(memory.increment(INCREMENTS + PAGE, &[1]).is_none());
    }
}
