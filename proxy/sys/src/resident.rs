//! Guest memory that is at hand, and the reading of memory that is not at hand.
//!
//! Memory that is not resident has to be fetched first, by the process that reads: from swap, or
//! from a file whose server may be anybody's and may never answer. With FUSE the kernel then waits
//! where no signal ends the wait, not even SIGKILL. So the supervisor looks first ([`PageMap`]),
//! reads only resident memory, and leaves the rest to a process that lives for one read
//! (`read_elsewhere`): the supervisor can wait for that process, and leave that process behind.
//!
//! A race remains: a guest can take a page away between the look and the read. The reading thread
//! then waits in the kernel, and so does the end of the supervisor, which serves that guest's
//! sandbox and nobody else's.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use crate::Tid;
use crate::check;
use crate::mem;
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

/// How often it is looked whether anybody still waits for a read.
const INTERVAL: i32 = 50;
/// Readers that are left behind at most: each holds a copy of the page tables of the supervisor, and
/// the memory of one guest that has been ended.
const MOST_LEFT: usize = 64;
/// How long a process is tried to be started where the limit of processes is reached: by guests of
/// the same user, perhaps, whom this must not let refuse others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Readers that had not ended when nobody waited for them any more.
static LEFT: Mutex<Vec<Reader>> = Mutex::new(Vec::new());

/// Reads memory of a thread by its number, in a process of its own, as long as somebody waits for
/// that.
///
/// # Errors
/// process_vm_readv(2)'s and clone(2)'s; `EINTR`: nobody waits any more; `EBUSY`: too many readers
/// wait for guests' memory already.
pub(crate) fn read_elsewhere(
    tid: Tid,
    from: &[Range],
    into: &mut [u8],
    waits: impl Fn() -> bool,
) -> io::Result<usize> {
    if reap() >= MOST_LEFT {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let ranges = mem::remote(from)?;
    let shared = ReaderMemory::new(into.len())?;
    let begun = Instant::now();
    let reader = loop {
        match Reader::start(tid, &ranges, &shared) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => break other?,
        }
    };
    loop {
        if reader.has_ended(INTERVAL) {
            return shared.result(into);
        }
        if !waits() {
            reader.kill();
            if !reader.has_ended(INTERVAL) {
                LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
            }
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
    }
}

/// Takes note of the end of readers that were left behind; gives how many have not ended.
pub fn reap() -> usize {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|reader| !reader.has_ended(0));
    left.len()
}

/// Memory that the supervisor shares with a reader: a word for the result, and the bytes.
struct ReaderMemory {
    at: NonNull<libc::c_void>,
    len: usize,
}

/// The bytes begin here.
const DATA: usize = 16;
/// The reader has written no result.
const NOTHING: i64 = i64::MIN;

impl ReaderMemory {
    fn new(bytes: usize) -> io::Result<Self> {
        let len = bytes + DATA;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at).ok_or_else(|| io::Error::other("a mapping at 0"))?;
        // SAFETY: the mapping begins with this word, and nobody else knows it yet.
        unsafe { at.cast::<i64>().write(NOTHING) };
        Ok(Self { at, len })
    }

    fn data(&self) -> *mut libc::c_void {
        // SAFETY: the mapping is longer than `DATA`, or just as long.
        unsafe { self.at.as_ptr().byte_add(DATA) }
    }

    /// What the reader, which has ended, has left here.
    fn result(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the mapping begins with this word; the only other process that had the mapping has
        // ended.
        let result = unsafe { self.at.cast::<i64>().read() };
        match usize::try_from(result) {
            Ok(n) if n <= into.len() && into.len() + DATA == self.len => {
                // SAFETY: `n` bytes are inside of both, and the mapping is not the caller's slice.
                unsafe { ptr::copy_nonoverlapping(self.data().cast(), into.as_mut_ptr(), n) };
                Ok(n)
            }
            _ if result == NOTHING => Err(io::Error::from_raw_os_error(libc::EINTR)),
            _ => Err(io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EIO))),
        }
    }
}

impl Drop for ReaderMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nothing refers to it any more.
        unsafe { libc::munmap(self.at.as_ptr(), self.len) };
    }
}

/// A process that reads.
struct Reader(OwnedFd);

impl Reader {
    fn start(tid: Tid, ranges: &[libc::iovec], shared: &ReaderMemory) -> io::Result<Self> {
        let mut pidfd: libc::c_int = -1;
        // No signal at its end: those who wait for other children of this process do not see it. Its
        // descriptors are the supervisor's until it leaves them: a copy would have the end of the
        // copy close files, which can wait for the file system of a guest.
        let flags = libc::CLONE_FILES | libc::CLONE_PIDFD;
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: without CLONE_VM this is fork(2), and stores a descriptor in `pidfd`. The child makes
        // plain system calls alone: what other threads had locked stays locked in it.
        let pid =
            unsafe { libc::syscall(libc::SYS_clone, flags, none, &raw mut pidfd, none, none) };
        if check(pid)? == 0 {
            read_and_exit(tid, ranges, shared);
        }
        // SAFETY: the kernel has just made this descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(pidfd) }))
    }

    fn kill(&self) {
        let none = ptr::null::<libc::siginfo_t>();
        // SAFETY: plain numbers, and a null siginfo, which the call allows.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), libc::SIGKILL, none, 0)
        };
    }

    /// Whether it has ended, which is taken note of; waits for that so many milliseconds.
    fn has_ended(&self, patience: i32) -> bool {
        let mut fd = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one `struct pollfd`, which lives through the call.
        if unsafe { libc::poll(&raw mut fd, 1, patience) } != 1 {
            return false;
        }
        // SAFETY: all zeros are a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
        let id = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: `info` lives through the call. (ECHILD: somebody else has taken note of it.)
        unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, options) };
        true
    }
}

/// What a reader does. It is a copy of a process with threads: it may neither allocate nor lock, nor
/// panic, and calls the kernel alone.
fn read_and_exit(tid: Tid, ranges: &[libc::iovec], shared: &ReaderMemory) -> ! {
    // A table of its own with nothing in it: one that stays behind must not keep the listener open,
    // by whose end guests are told that nobody answers them.
    // SAFETY: plain numbers; the parent's table stays as it is.
    let left =
        unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if left == 0 {
        // SAFETY: plain numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // SAFETY: the name is a C string.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"verbgate-read".as_ptr()) };
        let to = libc::iovec { iov_base: shared.data(), iov_len: shared.len.wrapping_sub(DATA) };
        let count = ranges.len() as libc::c_ulong;
        // SAFETY: `to` is the shared mapping, which nobody else uses until this process has ended;
        // `ranges` holds numbers that the kernel checks against the other process.
        let n =
            unsafe { libc::process_vm_readv(tid.0, &raw const to, 1, ranges.as_ptr(), count, 0) };
        // SAFETY: takes no argument.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the thread's own errno, which lives as long as the thread.
        let errno = unsafe { errno.read() };
        let result = if n < 0 { -i64::from(errno) } else { n as i64 };
        // SAFETY: the mapping begins with this word.
        unsafe { shared.at.cast::<i64>().write(result) };
    }
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

/// Told once, because it makes every request cost a process.
pub(crate) fn without_map(error: &io::Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        log::warn!(
            "cannot open a guest's /proc/PID/pagemap: {error}; every request costs a process, until \
             the kernel has CONFIG_PROC_PAGE_MONITOR and /proc can be read"
        );
    }
}

#[cfg(test)]
mod tests {
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
        let whole = [Range { addr: map.at(0), len: 4096 }, Range { addr: map.at(4096), len: 4 }];
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        // Other tests open files meanwhile, so it is tried often.
        let mut kept = usize::MAX;
        for _ in 0..20 {
            assert_eq!(read_elsewhere(me(), &whole, &mut into, || true).unwrap(), 4100);
            kept = kept.min(open());
        }
        assert!(kept <= before + 4, "{kept} descriptors, {before} before");
        assert_eq!(into.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 7);
        let none = [Range { addr: 0x10, len: 4 }];
        let error = read_elsewhere(me(), &none, &mut into, || true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        let nobody = read_elsewhere(Tid(i32::MAX), &whole, &mut into, || true).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ESRCH));
    }
}
