//! Queues in guest memory, and what memory keys name.

use super::device_memory::OWN;
use crate::Bus;
use crate::region::Region;

/// A queue in guest memory, whose pages need not be neighbours.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pages: Vec<u64>,
    shift: u32,
    /// Where in the first page it begins.
    offset: u64,
}

impl Buffer {
    /// Pages of a size that is a power of two. Their addresses have no bits below that.
    pub(super) fn new(pages: &[u64], shift: u32, offset: u64) -> Self {
        let clean = |page: &u64| page & !((1 << shift.min(63)) - 1);
        Self { pages: pages.iter().map(clean).collect(), shift, offset }
    }

    /// How many pages so many bytes take.
    pub(super) fn pages_of(bytes: u64, shift: u32, offset: u64) -> Option<usize> {
        let bytes = bytes.checked_add(offset)?;
        usize::try_from(bytes.div_ceil(1u64.checked_shl(shift)?)).ok()
    }

    /// Where a byte of it is. Entries do not straddle pages.
    pub(super) fn at(&self, position: u64) -> Option<u64> {
        let position = self.offset.checked_add(position)?;
        let page = self.pages.get(usize::try_from(position >> self.shift).ok()?)?;
        page.checked_add(position & ((1 << self.shift) - 1))
    }

    /// Reads an entry.
    pub(super) fn load<const N: usize>(&self, bus: &Bus, position: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        bus.read(self.at(position)?, &mut bytes).ok()?;
        Some(bytes)
    }
}

/// Reads a big-endian word: a record of doorbells has two.
pub(super) fn word(bus: &Bus, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    bus.read(at, &mut bytes).ok()?;
    Some(u32::from_be_bytes(bytes))
}

/// Rights of a key, in the order of `mkc`.
pub(super) mod access {
    pub(in super::super) const LOCAL_READ: u8 = 1;
    pub(in super::super) const LOCAL_WRITE: u8 = 1 << 1;
    pub(in super::super) const REMOTE_READ: u8 = 1 << 2;
    pub(in super::super) const REMOTE_WRITE: u8 = 1 << 3;
    pub(in super::super) const ATOMIC: u8 = 1 << 4;
}

/// A memory key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) context: Vec<u8>,
    /// The low byte, which a key's owner chooses.
    pub(super) variant: u8,
    /// A key that is free names nothing.
    pub(super) valid: bool,
    /// Addresses are those of the bus.
    pub(super) physical: bool,
    /// Where in the device's own memory the region is: its addresses begin with zero.
    pub(super) own: Option<u64>,
    pub(super) region: Region,
}

impl Key {
    /// The pieces of guest memory behind an address; nothing if the key is not for this.
    pub(super) fn pieces(
        &self,
        pd: u32,
        rights: u8,
        address: u64,
        length: usize,
    ) -> Option<Vec<(u64, usize)>> {
        let allowed = self.valid && self.region.permissions & rights == rights;
        if !allowed || self.region.pd != pd {
            return None;
        }
        if let Some(start) = self.own {
            let end = address.checked_add(u64::try_from(length).ok()?)?;
            let at = start.checked_add(address).filter(|at| *at < OWN)?;
            return (end <= self.region.length).then(|| vec![(OWN | at, length)]);
        }
        match self.physical {
            true => Some(vec![(address, length)]),
            false => self.region.pieces(pd, rights, address, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_follow_their_pages() {
        let buffer = Buffer::new(&[0x1_0003, 0x5000], 12, 0x800);
        assert_eq!(buffer.at(0), Some(0x1_0800));
        assert_eq!(buffer.at(0x7c0), Some(0x1_0fc0));
        assert_eq!(buffer.at(0x800), Some(0x5000));
        assert_eq!(buffer.at(0x1800), None);
        assert_eq!(Buffer::pages_of(0x1000, 12, 0x800), Some(2));
    }
}
