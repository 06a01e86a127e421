//! Memory regions: from a key and an address of the program's to pages of the guest.

use zerocopy::FromBytes as _;

use super::layout::CtrlBuffInfo;
use super::layout::MemAddr;
use super::layout::RegMr;
use super::layout::Status;
use super::limits;
use crate::Bus;
use crate::bus::Abort;

/// `efa_admin_reg_mr_cmd.flags`: the page size.
const PAGE_SHIFT: u8 = 0x1f;
/// `efa_admin_reg_mr_cmd.flags`: no translation.
const PHYSICAL: u8 = 1 << 7;
/// The page sizes that the device can do, as powers of two.
const SHIFTS: std::ops::RangeInclusive<u32> = 12..=31;
/// Pages that a command holds itself.
const INLINE: u64 = 4;
/// The size of a chunk of a list of page lists, and how many it holds before the link to the next.
const CHUNK_POINTERS: usize = 510;
/// The size of a page of page addresses, and how many it holds.
const LIST_ENTRIES: usize = 512;

/// What may be done with a region: bits of `efa_admin_reg_mr_cmd.permissions`.
pub(super) mod access {
    pub(crate) const LOCAL_READ: u8 = 0;
    pub(crate) const LOCAL_WRITE: u8 = 1;
    pub(crate) const REMOTE_WRITE: u8 = 2;
    pub(crate) const REMOTE_READ: u8 = 4;
}

/// How a command's list of pages is given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Listed {
    /// In the command.
    Inline,
    /// In a buffer of page addresses.
    Direct,
    /// In pages of page addresses, whose addresses are in chained chunks.
    Indirect,
}

/// A registered region.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) pd: u16,
    permissions: u8,
    start: u64,
    length: u64,
    shift: u32,
    pages: Vec<u64>,
}

impl Region {
    /// What a command registers.
    pub(super) fn of(command: &RegMr, listed: Listed, bus: &Bus) -> Result<Self, Status> {
        let shift = u32::from(command.flags & PAGE_SHIFT);
        let (start, length) = (command.iova.get(), command.mr_length.get());
        if command.flags & PHYSICAL != 0 || !SHIFTS.contains(&shift) || length == 0 {
            return Err(Status::IllegalParameter);
        }
        // The driver leaves the number of pages 0: it follows.
        let page = 1u64 << shift;
        let end = (start & (page - 1)).checked_add(length).ok_or(Status::IllegalParameter)?;
        let count = end.div_ceil(page);
        if count > u64::from(limits::MAX_MR_PAGES) || start.checked_add(length).is_none() {
            return Err(Status::IllegalParameter);
        }
        let count = usize::try_from(count).map_err(|_| Status::IllegalParameter)?;
        let pages = pages(command, listed, count, bus)?;
        if pages.iter().any(|at| at & (page - 1) != 0) {
            return Err(Status::IllegalParameter);
        }
        let (pd, permissions) = (command.pd.get(), command.permissions);
        Ok(Self { pd, permissions, start, length, shift, pages })
    }

    /// One without memory.
    pub(super) fn empty(pd: u16) -> Self {
        Self { pd, permissions: 0, start: 0, length: 0, shift: 12, pages: Vec::new() }
    }

    /// The pieces of guest memory behind an address; nothing if the region does not hold all of it,
    /// or not for this.
    pub(super) fn pieces(
        &self,
        pd: u16,
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
}

/// The addresses of a region's pages.
fn pages(command: &RegMr, listed: Listed, count: usize, bus: &Bus) -> Result<Vec<u64>, Status> {
    let malformed = |_: Abort| Status::MalformedRequest;
    match listed {
        Listed::Inline if count as u64 > INLINE => Err(Status::IllegalParameter),
        Listed::Inline => Ok(words(&command.pbl).take(count).collect()),
        Listed::Direct => {
            let list = list_of(command)?;
            let mut bytes = vec![0; count * 8];
            bus.read(list.address.get(), &mut bytes).map_err(malformed)?;
            Ok(words(&bytes).collect())
        }
        Listed::Indirect => {
            let lists = chunks(list_of(command)?, count.div_ceil(LIST_ENTRIES), bus)?;
            let mut pages = Vec::with_capacity(count);
            for list in lists {
                let mut bytes = vec![0; (count - pages.len()).min(LIST_ENTRIES) * 8];
                bus.read(list, &mut bytes).map_err(malformed)?;
                pages.extend(words(&bytes));
            }
            Ok(pages)
        }
    }
}

fn list_of(command: &RegMr) -> Result<CtrlBuffInfo, Status> {
    CtrlBuffInfo::read_from_prefix(&command.pbl)
        .map(|(list, _)| list)
        .map_err(|_| Status::MalformedRequest)
}

/// The addresses in a chain of chunks: each holds up to [`CHUNK_POINTERS`], and then where the next is.
fn chunks(first: CtrlBuffInfo, count: usize, bus: &Bus) -> Result<Vec<u64>, Status> {
    let mut found = Vec::with_capacity(count);
    let mut address = first.address.get();
    while found.len() < count {
        let here = (count - found.len()).min(CHUNK_POINTERS);
        let mut bytes = vec![0; here * 8];
        bus.read(address, &mut bytes).map_err(|_| Status::MalformedRequest)?;
        found.extend(words(&bytes));
        if found.len() < count {
            let mut link = [0; size_of::<CtrlBuffInfo>()];
            let at = address.wrapping_add(CHUNK_POINTERS as u64 * 8);
            bus.read(at, &mut link).map_err(|_| Status::MalformedRequest)?;
            let [_, _, _, _, low @ ..] = link;
            let next = MemAddr::read_from_bytes(&low).map_err(|_| Status::MalformedRequest)?;
            address = next.get();
        }
    }
    Ok(found)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        Region {
            pd: 3,
            permissions: access::LOCAL_WRITE | access::REMOTE_READ,
            start: 0x7000_0800,
            length: 0x2000,
            shift: 12,
            pages: vec![0xa000, 0xc000, 0xb000],
        }
    }

    #[test]
    fn pieces_follow_the_pages() {
        let pieces = region().pieces(3, access::LOCAL_WRITE, 0x7000_0800, 0x2000).unwrap();
        assert_eq!(pieces, [(0xa800, 0x800), (0xc000, 0x1000), (0xb000, 0x800)]);
        let pieces = region().pieces(3, access::REMOTE_READ, 0x7000_1fff, 2).unwrap();
        assert_eq!(pieces, [(0xcfff, 1), (0xb000, 1)]);
        assert_eq!(region().pieces(3, access::LOCAL_READ, 0x7000_0900, 0), Some(Vec::new()));
    }

    #[test]
    fn nothing_beyond_the_region_its_domain_or_its_rights() {
        let region = region();
        assert_eq!(region.pieces(3, access::LOCAL_READ, 0x7000_07ff, 1), None);
        assert_eq!(region.pieces(3, access::LOCAL_READ, 0x7000_2800, 1), None);
        assert_eq!(region.pieces(3, access::LOCAL_READ, u64::MAX, 2), None);
        assert_eq!(region.pieces(4, access::LOCAL_READ, 0x7000_0800, 1), None);
        assert_eq!(region.pieces(3, access::REMOTE_WRITE, 0x7000_0800, 1), None);
    }
}
