//! Registered memory: from an address of a program's to pages of the guest.

use crate::Bus;

/// A region whose pages are known.
#[derive(Debug)]
pub(crate) struct Region {
    /// The protection domain.
    pub(crate) pd: u32,
    /// What may be done with it: bits of the driver's.
    pub(crate) permissions: u8,
    /// The first address, and how many bytes follow.
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// The size of its pages, as a power of two, and where each is.
    pub(crate) shift: u32,
    pub(crate) pages: Vec<u64>,
}

impl Region {
    /// The pieces of guest memory behind an address; nothing if the region does not hold all of it,
    /// or not for this.
    pub(crate) fn pieces(
        &self,
        pd: u32,
        access: u8,
        address: u64,
        length: usize,
    ) -> Option<Vec<(u64, usize)>> {
        let total = u64::try_from(length).ok()?;
        let inside = address.checked_sub(self.start)?.checked_add(total)? <= self.length;
        if pd != self.pd || self.permissions & access != access || !inside {
            return None;
        }
        let page = 1u64 << self.shift;
        let first = self.start & !(page - 1);
        let (mut pieces, mut done) = (Vec::new(), 0u64);
        while done < total {
            let at = address + done;
            let index = usize::try_from((at - first) >> self.shift).ok()?;
            let offset = at & (page - 1);
            let piece = (page - offset).min(total - done);
            pieces.push((self.pages.get(index)? + offset, usize::try_from(piece).ok()?));
            done += piece;
        }
        Some(pieces)
    }

    /// Reads; nothing if the region is not for this.
    pub(crate) fn load(
        &self,
        bus: &Bus,
        pd: u32,
        access: u8,
        address: u64,
        length: usize,
    ) -> Option<Vec<u8>> {
        let pieces = self.pieces(pd, access, address, length)?;
        let mut data = vec![0; length];
        let mut rest = &mut data[..];
        for (at, piece) in pieces {
            let (here, next) = rest.split_at_mut_checked(piece)?;
            bus.read(at, here).ok()?;
            rest = next;
        }
        Some(data)
    }

    /// Writes; nothing if the region is not for this.
    pub(crate) fn store(
        &self,
        bus: &Bus,
        pd: u32,
        access: u8,
        address: u64,
        data: &[u8],
    ) -> Option<()> {
        let mut rest = data;
        for (at, piece) in self.pieces(pd, access, address, data.len())? {
            let (here, next) = rest.split_at_checked(piece)?;
            bus.write(at, here).ok()?;
            rest = next;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: u8 = 1;
    const REMOTE_WRITE: u8 = 2;
    const REMOTE_READ: u8 = 4;

    fn region() -> Region {
        Region {
            pd: 3,
            permissions: WRITE | REMOTE_READ,
            start: 0x7000_0800,
            length: 0x2000,
            shift: 12,
            pages: vec![0xa000, 0xc000, 0xb000],
        }
    }

    #[test]
    fn pieces_follow_the_pages() {
        let pieces = region().pieces(3, WRITE, 0x7000_0800, 0x2000).unwrap();
        assert_eq!(pieces, [(0xa800, 0x800), (0xc000, 0x1000), (0xb000, 0x800)]);
        let pieces = region().pieces(3, REMOTE_READ, 0x7000_1fff, 2).unwrap();
        assert_eq!(pieces, [(0xcfff, 1), (0xb000, 1)]);
        assert_eq!(region().pieces(3, 0, 0x7000_0900, 0), Some(Vec::new()));
    }

    #[test]
    fn nothing_beyond_the_region_its_domain_or_its_rights() {
        let region = region();
        assert_eq!(region.pieces(3, 0, 0x7000_07ff, 1), None);
        assert_eq!(region.pieces(3, 0, 0x7000_2800, 1), None);
        assert_eq!(region.pieces(3, 0, u64::MAX, 2), None);
        assert_eq!(region.pieces(4, 0, 0x7000_0800, 1), None);
        assert_eq!(region.pieces(3, REMOTE_WRITE, 0x7000_0800, 1), None);
    }
}
