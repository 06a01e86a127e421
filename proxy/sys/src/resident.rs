//! Guest memory that is at hand, and the reading of memory that is not at hand.
//!
//! Memory that is not resident has to be fetched first, by the process that reads: from swap, or
//! from a file whose server may be anybody's and may never answer. With FUSE the kernel then waits
//! where no signal ends the wait, not even SIGKILL. So the supervisor looks first ([`PageMap`]),
//! reads only resident memory, and leaves the rest to other processes (`read_elsewhere`): the supervisor
//! can wait for such a process, and leave that process behind.
//!
//! A race remains: a guest can take a page away between the look and the read. The reading thread
//! then waits in the kernel, and so does the end of the supervisor, which serves that guest's
//! sandbox and nobody else's.

mod call;
mod reader;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

pub use self::reader::dismiss;
pub(crate) use self::reader::link_elsewhere;
pub(crate) use self::reader::read_elsewhere;
pub use self::reader::reap;
use crate::Tid;
use crate::mem::Range;

const PAGE: u64 = 4096;
/// The page is in memory and mapped: Documentation/admin-guide/mm/pagemap.rst.
const PRESENT: u64 = 1 << 63;
/// Entries that are read at once: those of a usual request, and of the longest in two reads.
const ENTRIES: usize = 20;

/// What is resident of an address space, `/proc/PID/pagemap`: of the one that the thread had when
/// this was opened, whatever becomes of the thread.
#[derive(Debug)]
pub struct PageMap(File);

impl PageMap {
    pub(crate) fn by_number(tid: Tid) -> io::Result<Self> {
        crate::count_call();
        File::open(format!("/proc/{tid}/pagemap")).map(Self)
    }

    /// How many of these ranges, from the first one on, are at hand from end to end.
    pub(crate) fn at_hand(&self, ranges: &[Range]) -> usize {
        let end = |range: &Range| range.addr.checked_add(range.len as u64);
        let mut done = 0;
        // Those that adjoin, as a range does that was cut at pages, are looked at together.
        for run in ranges.chunk_by(|a, b| end(a) == Some(b.addr)) {
            let (Some(first), Some(last)) = (run.first(), run.last().and_then(end)) else { break };
            let there = self.present(first.addr, last);
            let whole = run.iter().take_while(|r| end(r).is_some_and(|end| end <= there)).count();
            done += whole;
            if whole < run.len() {
                break;
            }
        }
        done
    }

    /// Up to which address memory is at hand, from `from` to `to`.
    fn present(&self, from: u64, to: u64) -> u64 {
        let mut page = from / PAGE;
        let past = to.div_ceil(PAGE);
        while page < past {
            let mut bytes = [0; ENTRIES * 8];
            let more = usize::try_from(past - page).unwrap_or(ENTRIES).min(ENTRIES);
            let Some(entries) = bytes.get_mut(..more * 8) else { break };
            crate::count_call();
            // A short read: the address space is gone, or no program has such addresses.
            let n = self.0.read_at(entries, page * 8).unwrap_or(0);
            let (entries, _) = entries.get(..n).unwrap_or_default().as_chunks::<8>();
            let is_there = |entry: &&[u8; 8]| u64::from_ne_bytes(**entry) & PRESENT != 0;
            let there = entries.iter().take_while(is_there).count();
            page += there as u64;
            if there < more {
                break;
            }
        }
        page.saturating_mul(PAGE).clamp(from, to.max(from))
    }
}

/// Told once, because it makes every request slower.
pub(crate) fn without_map(error: &io::Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        log::warn!(
            "cannot open a guest's /proc/PID/pagemap: {error}; another process reads every request, until \
             the kernel has CONFIG_PROC_PAGE_MONITOR and /proc can be read"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn me() -> Tid {
        Tid(std::process::id().cast_signed())
    }

    struct Map(*mut libc::c_void, usize);

    impl Map {
        fn new(len: usize) -> Self {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a fresh anonymous mapping.
            let at = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            Self(at, len)
        }

        fn at(&self, offset: usize) -> u64 {
            self.0 as u64 + offset as u64
        }

        fn set(&self, offset: usize, byte: u8) {
            assert!(offset < self.1);
            // SAFETY: inside of the mapping.
            let at = unsafe { self.0.byte_add(offset) };
            // SAFETY: the same.
            unsafe { at.cast::<u8>().write(byte) };
        }
    }

    impl Drop for Map {
        fn drop(&mut self) {
            // SAFETY: mapped in `new`, and used no more.
            unsafe { libc::munmap(self.0, self.1) };
        }
    }

    #[test]
    fn what_was_never_touched_is_not_at_hand() {
        let map = Map::new(3 * 4096);
        map.set(5, 1);
        map.set(4096, 2);
        let pages = PageMap::by_number(me()).unwrap();
        let range = |offset, len| Range { addr: map.at(offset), len };
        assert_eq!(pages.at_hand(&[range(0, 8192), range(8192, 1), range(0, 1)]), 1);
        assert_eq!(pages.at_hand(&[range(4095, 2)]), 1);
        assert_eq!(pages.at_hand(&[range(4095, 4098)]), 0);
        assert_eq!(pages.at_hand(&[Range { addr: u64::MAX - 4, len: 8 }]), 0);
        assert_eq!(pages.at_hand(&[Range { addr: 0xffff_8000_0000_0000, len: 8 }]), 0);
    }

    #[test]
    fn many_pages_are_looked_at() {
        let map = Map::new(70 * 4096);
        (0..70).for_each(|page| map.set(page * 4096, 1));
        let pages = PageMap::by_number(me()).unwrap();
        assert_eq!(pages.at_hand(&[Range { addr: map.at(1), len: 70 * 4096 - 1 }]), 1);
        // SAFETY: inside of the mapping.
        let last = unsafe { map.0.byte_add(69 * 4096) };
        // SAFETY: the last page of the mapping, to which nothing refers.
        unsafe { libc::madvise(last, 4096, libc::MADV_DONTNEED) };
        assert_eq!(pages.at_hand(&[Range { addr: map.at(1), len: 70 * 4096 - 1 }]), 0);
    }

    #[test]
    fn another_process_reads_what_is_not_at_hand() {
        let map = Map::new(2 * 4096);
        map.set(3, 7);
        let mut into = [9; 4100];
        let share = crate::share::Share::own();
        let whole = [Range { addr: map.at(0), len: 4096 }, Range { addr: map.at(4096), len: 4 }];
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        // Other tests open files meanwhile, so it is tried often.
        let mut kept = usize::MAX;
        for _ in 0..20 {
            assert_eq!(read_elsewhere(me(), &whole, &mut into, &share, || true).unwrap(), 4100);
            kept = kept.min(open());
        }
        assert!(kept <= before + 4, "{kept} descriptors, {before} before");
        assert_eq!(into.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 7);
        let none = [Range { addr: 0x10, len: 4 }];
        let error = read_elsewhere(me(), &none, &mut into, &share, || true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        let nobody = read_elsewhere(Tid(i32::MAX), &whole, &mut into, &share, || true).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ESRCH));
    }
}
