//! Memory regions: from a key and an address of the program's to pages of the guest.

use zerocopy::FromBytes as _;

use super::layout::CtrlBuffInfo;
use super::layout::MemAddr;
use super::layout::RegMr;
use super::layout::Status;
use super::limits;
use crate::Bus;
use crate::bus::Abort;
use crate::region::Region;

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
        let (pd, permissions) = (command.pd.get().into(), command.permissions);
        Ok(Self { pd, permissions, start, length, shift, pages })
    }

    /// One without memory.
    pub(super) fn empty(pd: u16) -> Self {
        Self { pd: pd.into(), permissions: 0, start: 0, length: 0, shift: 12, pages: Vec::new() }
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
