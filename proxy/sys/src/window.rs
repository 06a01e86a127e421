//! The window: the addresses and the descriptor numbers that are reserved in a guest for the stub.
//!
//! Both reservations are compiled into the seccomp filter, so the reservations are fixed for a
//! sandbox's life.

use std::io;
use std::ptr;

use crate::arch::stub_fd;

/// Bytes of the stub's code, with the calls that new stubs make in each slot.
pub const CODE_LEN: usize = 16 << 10;
/// Bytes of a slot's read-only region: two payloads of 64 KiB (CORE_IN and UHW_IN can both be
/// that long), as much again for the other attributes, and a page each for control and array.
pub const RO_LEN: usize = 256 << 10;
/// Bytes of a slot's read-write region: the tail of the array, then outputs that the supervisor
/// must see before the guest does.
pub const RW_LEN: usize = 256 << 10;
/// Distance between slots. A slot is one stub's frame.
const SLOT_STRIDE: u64 = 1 << 20;
/// Stubs that one address space may have: requests of one process run side by side in at most
/// so many threads; more wait their turn.
pub const MAX_SLOTS: usize = 8;

/// The 4 GiB of guest addresses that the filter guards.
///
/// Only the first few MiB are ever mapped. The whole of an aligned 4 GiB is guarded, because then
/// the filter (which computes in 32 bits) needs to look at the upper words only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddrWindow {
    hi: u32,
}

impl AddrWindow {
    /// Candidate upper words, best first.
    ///
    /// The first lies right below the lowest place of a position-independent executable
    /// (`ELF_ET_DYN_BASE`, two thirds of the addresses), in what every sanitizer takes for memory
    /// of the application: TSan's "mid app" (0x5500_0000_0000 to 0x5680_0000_0000 and more),
    /// MSan's "app-2" (0x5100_0000_0000 to 0x6000_0000_0000), ASan's high memory. Elsewhere one
    /// or another of them maps a shadow, or protects a gap, when a program starts. V8 asks for
    /// addresses below 0x4000_0000_0000, Go for 0xc0_0000_0000, and the kernel places mappings
    /// from the top of the addresses down. The others suit fewer bits of address.
    #[cfg(target_arch = "x86_64")]
    const CANDIDATES: [u32; 3] = [0x5510, 0x6ae0, 0x50];
    /// The same with 48 bits of address, where position-independent executables begin at
    /// 0xaaaa_aaaa_a000: a window at 0xaaaa holds each of them, and refuses the loader's mprotect(2).
    #[cfg(not(target_arch = "x86_64"))]
    const CANDIDATES: [u32; 3] = [0xaaa9, 0x6ae0, 0x50];

    /// The first candidate that this kernel can map.
    ///
    /// # Errors
    /// `EPERM`: inside of another sandbox, whose filter guards it. Else the last kernel error if
    /// none can be mapped.
    pub fn probe() -> io::Result<Self> {
        let mut last = io::Error::from_raw_os_error(libc::ENOMEM);
        for hi in Self::CANDIDATES {
            let window = Self { hi };
            let addr = ptr::without_provenance_mut(usize::try_from(window.base()).unwrap_or(0));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping; the result is only compared.
            let got = unsafe { libc::mmap(addr, CODE_LEN, libc::PROT_NONE, flags, -1, 0) };
            if got == libc::MAP_FAILED {
                last = io::Error::last_os_error();
                if last.kind() == io::ErrorKind::PermissionDenied {
                    return Err(last);
                }
                continue;
            }
            // SAFETY: `got` is the mapping made just above, which nothing refers to.
            unsafe { libc::munmap(got, CODE_LEN) };
            if got == addr {
                return Ok(window);
            }
        }
        Err(last)
    }

    /// The first candidate, for tests that must know it where it cannot be asked for.
    #[must_use]
    pub const fn usual() -> Self {
        Self { hi: Self::CANDIDATES[0] }
    }

    /// A window at a given upper word, for tests that compare programs.
    #[must_use]
    pub const fn at(hi: u32) -> Self {
        Self { hi }
    }

    /// The upper 32 bits of every address in the window.
    #[must_use]
    pub const fn hi(self) -> u32 {
        self.hi
    }

    /// The first address.
    #[must_use]
    pub const fn base(self) -> u64 {
        (self.hi as u64) << 32
    }

    /// Whether a range meets the window; `behind`: or may be asked about by a filter of others, of which
    /// comparisons of one word each are all that can be asked.
    #[must_use]
    pub const fn is_near(self, addr: u64, len: u64, behind: bool) -> bool {
        let (base, end) = (self.base(), self.base() + (1 << 32));
        let meets = addr < end && addr.saturating_add(len) >= base;
        meets || behind && (addr < end && addr >= base - (1 << 32) || len > u32::MAX as u64)
    }

    /// Where the stub's code is mapped: right before the first slot, so that one call guards both.
    #[must_use]
    pub const fn code(self) -> u64 {
        self.slot(0) - CODE_LEN as u64
    }

    /// The first address of a slot's read-only region; its read-write region follows directly.
    #[must_use]
    pub const fn slot(self, slot: usize) -> u64 {
        self.base() + (slot as u64 + 1) * SLOT_STRIDE
    }
}

/// Descriptor numbers in which guests hold RDMA descriptors, so that the filter can tell their
/// `write` from every other `write`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdWindow {
    /// The first number.
    pub first: u32,
    /// How many.
    pub len: u32,
}

impl FdWindow {
    /// Where it begins, under a limit that leaves the choice: a number far up makes every guest's
    /// descriptor table as long, one far down makes writes to ordinary files pass the supervisor,
    /// which costs each some microseconds.
    const FIRST: u32 = 8192;
    /// Where it ends, whatever the limit is: a guest may raise its own.
    const END: u32 = 16384;
    /// A stub's own numbers are below.
    const LOWEST: u32 = stub_fd::LAST + 1;

    /// The window in the upper half of the numbers that a soft `RLIMIT_NOFILE` of `limit` allows:
    /// a process that opens a file for each connection has as many.
    #[must_use]
    pub fn under(limit: u64) -> Self {
        let half = u32::try_from(limit / 2).unwrap_or(u32::MAX);
        let first = half.clamp(Self::LOWEST, Self::FIRST);
        Self { first, len: Self::END - first }
    }

    /// One past the last number.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.first + self.len
    }

    /// Whether a guest's descriptor number lies in the window.
    #[must_use]
    pub fn contains(self, fd: i32) -> bool {
        u32::try_from(fd).is_ok_and(|fd| fd >= self.first && fd < self.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where this test is itself, as every position-independent executable: a window there would refuse
    /// the loader's calls.
    #[test]
    fn no_program_is_loaded_into_a_window() {
        // ELF_ET_DYN_BASE, arch/x86/include/asm/elf.h and arch/arm64/include/asm/elf.h.
        let lowest: u64 =
            if cfg!(target_arch = "x86_64") { 0x5555_5555_4000 } else { 0xaaaa_aaaa_a000 };
        let own = (no_program_is_loaded_into_a_window as *const ()).addr() as u64;
        assert!(own >= lowest, "this test is at {own:#x}");
        let end = AddrWindow::usual().base() + (1 << 32);
        assert!(end <= lowest, "the window ends at {end:#x}");
    }

    #[test]
    fn the_address_window_can_be_mapped_here() {
        let window = AddrWindow::probe().unwrap();
        assert_eq!(window.base() & 0xffff_ffff, 0);
        let last = window.slot(MAX_SLOTS - 1) + (RO_LEN + RW_LEN) as u64;
        assert!(last < window.base() + (1 << 32));
    }

    #[test]
    fn slots_do_not_overlap() {
        let w = AddrWindow::at(0x6ae0);
        assert!(w.base() <= w.code());
        assert!(w.slot(0) + (RO_LEN + RW_LEN) as u64 <= w.slot(1));
    }

    #[test]
    fn the_descriptor_window_follows_the_limit() {
        for (limit, first) in [(1024, 512), (1 << 20, 8192), (64, 32), (20, 12), (0, 12)] {
            let window = FdWindow::under(limit);
            assert_eq!((window.first, window.end()), (first, 16384));
        }
        assert!(FdWindow::under(1024).contains(960) && !FdWindow::under(1024).contains(-1));
    }
}
