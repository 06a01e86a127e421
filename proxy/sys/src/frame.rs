//! The memory of a request's frame, shared between supervisor and guest.
//!
//! The guest maps the read-only half from a descriptor opened for reading, of a memfd that is
//! sealed against any further writable use: `VM_MAYWRITE` is clear, so mprotect(2),
//! `/proc/PID/mem`, process_vm_writev(2), ptrace pokes and userfaultfd(2) all fail. The read-write
//! half follows directly. The guest may write that half at any time, so the supervisor only ever
//! copies it.

use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;

use memmap2::MmapMut;
use memmap2::MmapOptions;
use memmap2::MmapRaw;
use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Call;
use crate::arch::CallList;
use crate::arch::Native;
use crate::arch::StubCode;
use crate::arch::stub_fd;
use crate::mappings::mapped;
use crate::window::AddrWindow;
use crate::window::CODE_LEN;
use crate::window::MAX_SLOTS;
use crate::window::RO_LEN;
use crate::window::RW_LEN;

/// Where the read-write half takes bytes that nobody wants.
pub const SPARE: usize = RW_LEN - SPARE_LEN;
/// How many.
pub const SPARE_LEN: usize = 4096;

/// One slot's frame, as the supervisor holds it.
#[derive(Debug)]
pub struct Frame {
    ro: MmapMut,
    rw: MmapRaw,
    /// The read-write half's file, opened for both, sealed against a change of size: a guest that
    /// could truncate the file would make the supervisor fault.
    scratch: OwnedFd,
    /// The files of both halves.
    inodes: [String; 2],
}

fn memfd(name: &str, len: usize) -> io::Result<File> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    Ok(fd.into())
}

/// An empty file of the supervisor's own, for a stub's table while no device's file stands there: it leads a guest that
/// is root to no inode of the host's.
///
/// # Errors
/// When memory or descriptors run out.
pub fn nothing() -> io::Result<File> {
    let file = memfd("verbgate-nothing", 0)?;
    rustix::fs::fcntl_add_seals(&file, SIZE | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file)
}

/// The same memory opened for reading only.
fn reading(file: &File) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}

/// The addresses that a slot takes: first and length. The code stands right before the first slot.
pub(crate) fn range(window: AddrWindow, slot: usize) -> (u64, u64) {
    let (at, len) = (window.slot(slot), (RO_LEN + RW_LEN) as u64);
    if slot == 0 { (window.code(), len + CODE_LEN as u64) } else { (at, len) }
}

/// The state of a new stub's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// Left by another stub, which has ended.
    There,
    /// Missing: the stub maps its own.
    New,
    /// Inherited from a parent that had not made its stub's memory safe from fork(2) yet: the stub maps its own over it.
    Over,
}

impl Memory {
    const ALL: [Self; 3] = [Self::There, Self::New, Self::Over];
}

/// The calls by which a new stub leaves the guest's descriptor table and maps its memory, in which it is given
/// the descriptors before the second one: name, number, and arguments.
///
/// The frame is mapped without access until fork(2) does not copy it any more.
pub(crate) fn calls(window: AddrWindow, slot: usize, memory: Memory) -> Vec<Call> {
    /// include/uapi/linux/close_range.h.
    const CLOSE_RANGE_UNSHARE: u64 = 2;
    let n = &Native::NUMBERS;
    let number = |flags: i32| u64::from(flags.cast_unsigned());
    let (none, r) = (number(libc::PROT_NONE), number(libc::PROT_READ));
    let both = number(libc::PROT_READ | libc::PROT_WRITE);
    let fixed = number(libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    let [ro_len, rw_len] = [RO_LEN, RW_LEN].map(|len| len as u64);
    let (ro, rw) = (window.slot(slot), window.slot(slot) + ro_len);
    let (at, len) = range(window, slot);
    // Instead of a copy of a table, which may be large: the kernel copies 64 descriptors at most before it closes
    // them (fs/file.c).
    let own = [0, u64::from(u32::MAX), CLOSE_RANGE_UNSHARE, 0, 0, 0];
    let mut calls = vec![
        ("close_range", n.close_range, own),
        ("munmap", n.munmap, [ro, ro_len + rw_len, 0, 0, 0, 0]),
        ("mmap", n.mmap, [ro, ro_len, none, fixed, stub_fd::LENT.into(), 0]),
        ("mmap", n.mmap, [rw, rw_len, none, fixed, stub_fd::SCRATCH.into(), 0]),
        ("madvise", n.madvise, [at, len, number(libc::MADV_DONTFORK), 0, 0, 0]),
        ("mprotect", n.mprotect, [ro, ro_len, r, 0, 0, 0]),
        ("mprotect", n.mprotect, [rw, rw_len, both, 0, 0, 0]),
    ];
    calls.retain(|(name, ..)| match memory {
        Memory::There => matches!(*name, "close_range" | "madvise"),
        Memory::New => *name != "munmap",
        Memory::Over => true,
    });
    calls.into_iter().map(|(name, nr, args)| Call { name, nr, args }).collect()
}

/// The stub's code, which every stub of a sandbox maps from one file that nobody can write.
#[derive(Debug)]
pub struct SealedCode {
    file: OwnedFd,
    window: AddrWindow,
    places: StubCode,
    inode: String,
}

/// Whether something is mapped in a slot, and nothing but what another stub's planting has mapped and had not
/// finished. Where nothing is mapped, a filter of the guest's has answered that something is in the way.
pub(crate) fn holds_leftovers_only(tid: Tid, window: AddrWindow, slot: usize) -> bool {
    let (at, end) = (window.slot(slot), window.slot(slot) + (RO_LEN + RW_LEN) as u64);
    let is_ours = |line: &String| line.contains(" ---s ") && line.contains(" /memfd:verbgate-");
    let are_ours = |all: Vec<String>| !all.is_empty() && all.iter().all(is_ours);
    mapped(tid, &[(at, end)], usize::MAX).is_ok_and(|all| all.is_some_and(are_ours))
}

/// More mappings than a usual program has below the window. A guest can have any number, which an old kernel would take
/// long to tell.
const SOME: usize = 64;

/// A file as `/proc/PID/maps` names it: device and inode.
fn inode(file: impl AsFd) -> io::Result<String> {
    let stat = rustix::fs::fstat(file)?;
    let (major, minor) = (libc::major(stat.st_dev), libc::minor(stat.st_dev));
    Ok(format!("{major:02x}:{minor:02x} {}", stat.st_ino))
}

impl SealedCode {
    /// The code for stubs in this window.
    ///
    /// # Errors
    /// When memory or descriptors run out, or `/proc` is not mounted.
    pub fn new(window: AddrWindow) -> io::Result<Self> {
        let all = |slot: usize| Memory::ALL.map(|memory| calls(window, slot, memory));
        let lists: Vec<_> = (0..MAX_SLOTS).flat_map(all).collect();
        let places = Native::stub_code(&lists);
        let mut file = memfd("verbgate-stub", CODE_LEN)?;
        file.write_all(&places.bytes)?;
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::XUSR)?;
        rustix::fs::fcntl_add_seals(&file, SIZE | SealFlags::WRITE | SealFlags::SEAL)?;
        Ok(Self { inode: inode(&file)?, file: reading(&file)?, window, places })
    }

    /// The window.
    #[must_use]
    pub const fn window(&self) -> AddrWindow {
        self.window
    }

    /// The file, opened for reading.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The places of the calls of a new stub in a slot.
    pub(crate) fn list(&self, slot: usize, memory: Memory) -> CallList {
        let at = self.window.code();
        let list = self.places.lists.get(Memory::ALL.len() * slot + memory as usize);
        list.map_or(CallList { begin: at, closed: at, ips: Vec::new() }, |list| CallList {
            begin: at + list.begin,
            closed: at + list.closed,
            ips: list.ips.iter().map(|ip| at + ip).collect(),
        })
    }

    /// Whether anything is mapped in the place of the code.
    pub(crate) fn has_place_of(&self, tid: Tid) -> io::Result<bool> {
        let (at, end) = (self.window.code(), self.window.code() + CODE_LEN as u64);
        Ok(mapped(tid, &[(at, end)], SOME)?.is_none_or(|all| !all.is_empty()))
    }

    /// Whether the code, and nothing else, is mapped in its place.
    pub(crate) fn is_there(&self, tid: Tid) -> bool {
        let (at, end) = (self.window.code(), self.window.code() + CODE_LEN as u64);
        let own = format!("{at:x}-{end:x} r-xs 00000000 {} ", self.inode);
        mapped(tid, &[(at, end)], usize::MAX).is_ok_and(|all| {
            all.is_some_and(|all| all.len() == 1 && all.iter().all(|line| line.starts_with(&own)))
        })
    }

    /// Whether a stub's code and its frame, and nothing else, are where they belong, as the kernel tells. What is there
    /// stays there: no call of a guest's reaches the window.
    ///
    /// The look may wait for the guest, another thread of which changes the guest's memory.
    ///
    /// # Errors
    /// `ESRCH`: the stub is gone. When descriptors run out.
    pub fn is_mapped(&self, stub: Tid, slot: usize, frame: &Frame) -> io::Result<bool> {
        let (code, at) = (self.window.code(), self.window.slot(slot));
        let code_end = code + CODE_LEN as u64;
        let (ro_end, end) = (at + RO_LEN as u64, at + (RO_LEN + RW_LEN) as u64);
        let [ro, rw] = &frame.inodes;
        let own = [
            format!("{code:x}-{code_end:x} r-xs 00000000 {} ", self.inode),
            format!("{at:x}-{ro_end:x} r--s 00000000 {ro} "),
            format!("{ro_end:x}-{end:x} rw-s 00000000 {rw} "),
        ];
        Ok(mapped(stub, &[(code, code_end), (at, end)], usize::MAX)?.is_some_and(|found| {
            // A program whose stack is executable may execute all that it may read (READ_IMPLIES_EXEC).
            let plain = |line: &str| line.replace("r-xs", "r--s").replace("rwxs", "rw-s");
            let own = own.each_ref().map(|own| plain(own));
            let other = |line: &String| !own.iter().any(|own| plain(line).starts_with(own));
            found.len() == own.len() && !found.iter().any(other)
        }))
    }

    /// The place where a stub ends.
    pub(crate) fn exit(&self) -> u64 {
        self.window.code() + self.places.exit_at
    }
}

const SIZE: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK);

impl Frame {
    /// A new frame, and the file from which the read-only half is mapped: opened for reading, sealed.
    ///
    /// # Errors
    /// When memory or descriptors run out, or `/proc` is not mounted.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let ro_file = memfd("verbgate-stub", RO_LEN)?;
        // The nobody-but-owner mode is a second lock: a guest of another user cannot reopen it.
        rustix::fs::fchmod(&ro_file, rustix::fs::Mode::RUSR | rustix::fs::Mode::XUSR)?;
        // SAFETY: the file is private to this process until it is sealed below, and every mapping
        // of it made later is read-only: nobody else can write this memory.
        let mut ro = unsafe { MmapOptions::new().len(RO_LEN).map_mut(&ro_file)? };
        rustix::fs::fcntl_add_seals(&ro_file, SIZE | SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        let rw_file = memfd("verbgate-scratch", RW_LEN)?;
        let rw = MmapOptions::new().len(RW_LEN).map_raw(&rw_file)?;
        rustix::fs::fcntl_add_seals(&rw_file, SIZE | SealFlags::SEAL)?;
        // Each request takes the first and the last page of the read-only half and the first one of the
        // other, which are made now and not while a guest waits: the first request takes 50 us less then.
        if let [first, .., last] = &mut *ro {
            (*first, *last) = (0, 0);
        }
        let inodes = [inode(&ro_file)?, inode(&rw_file)?];
        let frame = Self { ro, rw, scratch: rw_file.into(), inodes };
        frame.rw_write(0, &[0]);
        Ok((frame, reading(&ro_file)?))
    }

    /// The read-write half's file: what a stub maps, and copies outputs out of.
    #[must_use]
    pub fn scratch(&self) -> BorrowedFd<'_> {
        self.scratch.as_fd()
    }

    /// The read-only half, for the supervisor to fill. Only while no request runs.
    pub fn ro(&mut self) -> &mut [u8] {
        &mut self.ro
    }

    /// The read-only half as whoever executes sees it.
    #[must_use]
    pub fn ro_bytes(&self) -> &[u8] {
        &self.ro
    }

    fn rw_bytes(&self) -> &[AtomicU8] {
        let start = self.rw.as_ptr().cast::<AtomicU8>();
        // SAFETY: the mapping is RW_LEN bytes long, lives as long as `self`, cannot shrink
        // (sealed), and is only ever accessed as atomic bytes, so the guest's concurrent writes
        // are no data race.
        unsafe { std::slice::from_raw_parts(start, self.rw.len()) }
    }

    /// Copies out of the read-write half, once. The bytes are whatever the guest left there.
    ///
    /// Bytes beyond its end are left as they are in `into`.
    pub fn rw_read(&self, at: usize, into: &mut [u8]) {
        for (to, from) in into.iter_mut().zip(self.rw_bytes().iter().skip(at)) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// Copies into the read-write half.
    pub fn rw_write(&self, at: usize, bytes: &[u8]) {
        for (to, from) in self.rw_bytes().iter().skip(at).zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
    }
}

/// A frame that was made before it is needed: that takes as long as a few steps of a planting, while
/// a guest waits.
#[derive(Debug, Default)]
pub struct Ready(Mutex<Option<(Frame, OwnedFd)>>);

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Option<(Frame, OwnedFd)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one, unless there is one.
    pub fn fill(&self) {
        if self.lock().is_none() {
            // Whoever needs one is told why there is none.
            let made = Frame::new().ok();
            *self.lock() = made;
        }
    }

    /// Takes it, or makes one now.
    ///
    /// # Errors
    /// As [`Frame::new`].
    pub fn take(&self) -> io::Result<(Frame, OwnedFd)> {
        let ready = self.lock().take();
        ready.map_or_else(Frame::new, Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopen_path(fd: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }

    #[test]
    fn what_the_supervisor_writes_is_what_the_guest_maps() {
        let (mut frame, file) = Frame::new().unwrap();
        frame.ro()[5] = 7;
        frame.rw_write(9, &[1, 2, 3]);
        // SAFETY: a private view for reading; the bytes do not change during the test.
        let seen = unsafe { MmapOptions::new().len(RO_LEN).map(&file).unwrap() };
        assert_eq!(seen[5], 7);
        let mut got = [0; 3];
        frame.rw_read(9, &mut got);
        assert_eq!(got, [1, 2, 3]);
        let mut beyond = [4; 4];
        frame.rw_read(RW_LEN - 2, &mut beyond);
        assert_eq!(beyond, [0, 0, 4, 4]);
    }

    #[test]
    fn the_code_of_all_stubs_has_room_and_cannot_be_written() {
        let code = SealedCode::new(AddrWindow::usual()).unwrap();
        assert!(code.places.bytes.len() <= CODE_LEN, "{}", code.places.bytes.len());
        for slot in 0..MAX_SLOTS {
            for memory in Memory::ALL {
                assert_eq!(
                    code.list(slot, memory).ips.len(),
                    calls(code.window, slot, memory).len()
                );
            }
        }
        // As root the reopening succeeds; it must be of no use.
        let again = File::options().read(true).write(true).open(reopen_path(&code.file));
        assert!(again.is_err() || again.unwrap().write_all(b"x").is_err());
    }

    #[test]
    fn the_read_only_half_cannot_be_written_through_any_descriptor() {
        let (frame, file) = Frame::new().unwrap();
        let again = std::fs::OpenOptions::new().read(true).write(true).open(reopen_path(&file));
        // As root the reopening succeeds; it must be of no use.
        if let Ok(mut file) = again {
            assert!(file.write_all(b"x").is_err());
            assert!(file.set_len(0).is_err());
            // SAFETY: the mapping must not come into being; if it does, the test fails.
            assert!(unsafe { MmapOptions::new().len(RO_LEN).map_mut(&file) }.is_err());
        }
        let rw = File::from(frame.scratch().try_clone_to_owned().unwrap());
        assert!(rw.set_len(0).is_err(), "a guest must not be able to make us fault");
    }

    #[test]
    fn a_frame_that_is_ready_is_given_to_one_only() {
        let ready = Ready::default();
        ready.fill();
        ready.fill();
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        let (first, second) = (ready.take().unwrap(), ready.take().unwrap());
        assert_ne!(inode(&first.1), inode(&second.1));
    }

    #[test]
    fn a_read_only_mapping_cannot_be_made_writable() {
        let (_frame, file) = Frame::new().unwrap();
        // SAFETY: a fresh mapping at an address of the kernel's choice, unmapped below.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        // SAFETY: the mapping made above, which nothing refers to.
        let ret = unsafe { libc::mprotect(map, 4096, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(ret, -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EACCES));
        // SAFETY: as above.
        unsafe { libc::munmap(map, 4096) };
    }
}
