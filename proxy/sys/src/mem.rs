//! Guest memory, for reading: process_vm_readv(2).
//!
//! There is no writing: the guest's own stub copies all outputs
//! ([`AfterIoctl::WRITE`](crate::arch::AfterIoctl::WRITE)), in the guest's rights. So no number can
//! lead a write to another process, and pages that the guest may not write fail as with the
//! kernel's own `copy_to_user`.

use std::io;

use crate::Tid;

/// A range of guest memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: usize,
}

/// The memory of one guest thread. A trait, so that every stage can be tested without a guest.
pub trait GuestMemory {
    /// Fills `into` from ranges, in order, and returns how many bytes could be read: the kernel
    /// stops at the first range that it cannot read to its end. A range that may end in unmapped
    /// memory should be cut at pages ([`pages`]).
    ///
    /// # Errors
    /// `EFAULT`: not even the first range; `ESRCH`: the thread is gone; `EPERM`.
    fn read(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize>;

    /// The same, but stops also at the first range that is not in memory as a whole and would have
    /// to be fetched: 0 when that is the first. It is much faster then than [`GuestMemory::read`].
    ///
    /// # Errors
    /// As [`GuestMemory::read`].
    fn read_at_hand(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
        self.read(from, into)
    }
}

/// A range cut at page boundaries, so that what can be read of it is.
#[must_use]
pub fn pages(range: Range) -> Vec<Range> {
    let mut parts = Vec::with_capacity(2);
    let Range { mut addr, mut len } = range;
    while len > 0 {
        let here = (4096 - usize::try_from(addr % 4096).unwrap_or(0)).min(len);
        parts.push(Range { addr, len: here });
        addr = addr.wrapping_add(here as u64);
        len -= here;
    }
    parts
}

/// Fills `into` from ranges, in order, whole.
///
/// # Errors
/// `EFAULT` when a range cannot be read to its end; else as [`GuestMemory::read`].
pub fn gather(memory: &impl GuestMemory, from: &[Range], into: &mut [u8]) -> io::Result<()> {
    if into.is_empty() || memory.read(from, into)? == into.len() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

/// `UIO_MAXIOV`.
const MAX_RANGES: usize = 1024;

/// Ranges as process_vm_readv(2) takes them: so many of them as it takes.
pub(crate) fn remote(ranges: &[Range]) -> io::Result<Vec<libc::iovec>> {
    let one = |range: &Range| {
        let addr =
            usize::try_from(range.addr).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok(libc::iovec { iov_base: std::ptr::without_provenance_mut(addr), iov_len: range.len })
    };
    ranges.iter().take(MAX_RANGES).map(one).collect()
}

/// Reads the memory of a thread by its number: to be believed only if the number is found to have
/// been the thread's still ([`Caller`](crate::caller::Caller)). Only of memory that is at hand
/// ([`resident`](crate::resident)) can it be said that this does not wait.
pub(crate) fn read_by_number(tid: Tid, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
    let ranges = remote(from)?;
    let count = ranges.len() as libc::c_ulong;
    let to = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    crate::count_call();
    // SAFETY: `to` is the caller's slice, exclusively borrowed; `ranges` holds numbers that the
    // kernel checks against the other process; both live through the call.
    let n = unsafe { libc::process_vm_readv(tid.0, &raw const to, 1, ranges.as_ptr(), count, 0) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Memory in a buffer, at made-up addresses: the fake for tests, and the memory of a caller that
/// is its own guest.
#[derive(Debug, Default)]
pub struct FakeMemory {
    /// Where the buffer begins.
    pub base: u64,
    /// Its bytes.
    pub bytes: std::cell::RefCell<Vec<u8>>,
}

impl FakeMemory {
    fn at(&self, addr: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
        let fault = || io::Error::from_raw_os_error(libc::EFAULT);
        let start = addr.checked_sub(self.base).ok_or_else(fault)?;
        let start = usize::try_from(start).map_err(|_| fault())?;
        let end = start.checked_add(len).ok_or_else(fault)?;
        if end > self.bytes.borrow().len() { Err(fault()) } else { Ok(start..end) }
    }
}

impl GuestMemory for FakeMemory {
    fn read(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        for range in from {
            let Ok(at) = self.at(range.addr, range.len) else { break };
            let bytes = self.bytes.borrow();
            let to = into.iter_mut().skip(done);
            for (from, to) in bytes.iter().skip(at.start).take(range.len).zip(to) {
                *to = *from;
            }
            done += range.len;
        }
        if done == 0 { Err(io::Error::from_raw_os_error(libc::EFAULT)) } else { Ok(done) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's own memory.
    struct Own;

    impl GuestMemory for Own {
        fn read(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
            read_by_number(Tid(std::process::id().cast_signed()), from, into)
        }
    }

    fn me() -> Own {
        Own
    }

    #[test]
    fn reads_whole_ranges() {
        let target = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        let addr = target.as_ptr() as u64;
        let mut got = [0; 4];
        let ranges = [Range { addr: addr + 6, len: 2 }, Range { addr, len: 2 }];
        gather(&me(), &ranges, &mut got).unwrap();
        assert_eq!(got, [7, 8, 1, 2]);
    }

    #[test]
    fn unreadable_memory_is_efault() {
        let error = gather(&me(), &[Range { addr: 0x10, len: 8 }], &mut [0; 8]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        let error = me().read(&[Range { addr: u64::MAX - 4, len: 8 }], &mut [0; 8]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn a_read_stops_where_the_memory_stops() {
        // SAFETY: a fresh anonymous mapping, unmapped below.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                8192,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        // SAFETY: one page into a mapping of two.
        let upper = unsafe { map.byte_add(4096) };
        // SAFETY: the upper page of the mapping made above; nothing refers to it.
        unsafe { libc::munmap(upper, 4096) };
        let addr = map as u64 + 4096 - 24;
        assert_eq!(me().read(&pages(Range { addr, len: 400 }), &mut [0; 400]).unwrap(), 24);
        // SAFETY: the lower page of the mapping made above; nothing refers to it.
        unsafe { libc::munmap(map, 4096) };
    }
}
