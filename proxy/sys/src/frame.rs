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

use crate::arch::Arch;
use crate::arch::Native;
use crate::arch::stub_fd;
use crate::window::AddrWindow;
use crate::window::CODE_LEN;
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
}

fn memfd(name: &str, len: usize) -> io::Result<File> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    Ok(fd.into())
}

/// The same memory opened for reading only.
fn reading(file: &File) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}

/// The descriptor through which a new stub maps the code and the read-only half.
pub(crate) const FILE: u32 = stub_fd::LENT;

/// The addresses that a slot takes: first and length. The code stands right before the first slot.
pub(crate) fn range(window: AddrWindow, slot: usize, first: bool) -> (u64, u64) {
    let (at, len) = (window.slot(slot), (RO_LEN + RW_LEN) as u64);
    if first { (window.code(), len + CODE_LEN as u64) } else { (at, len) }
}

/// The calls by which a stub maps its frame: name, number, and arguments.
///
/// The frame is mapped without access until fork(2) does not copy it any more.
pub(crate) fn calls(
    window: AddrWindow,
    slot: usize,
    first: bool,
) -> [(&'static str, u32, [u64; 6]); 5] {
    let n = &Native::NUMBERS;
    let number = |flags: i32| u64::from(flags.cast_unsigned());
    let (none, r) = (number(libc::PROT_NONE), number(libc::PROT_READ));
    let both = number(libc::PROT_READ | libc::PROT_WRITE);
    let fixed = number(libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
    let [ro_len, rw_len, from] = [RO_LEN, RW_LEN, CODE_LEN].map(|len| len as u64);
    let (ro, rw) = (window.slot(slot), window.slot(slot) + ro_len);
    let (at, len) = range(window, slot, first);
    [
        ("mmap", n.mmap, [ro, ro_len, none, fixed, FILE.into(), from]),
        ("mmap", n.mmap, [rw, rw_len, none, fixed, stub_fd::SCRATCH.into(), 0]),
        ("madvise", n.madvise, [at, len, number(libc::MADV_DONTFORK), 0, 0, 0]),
        ("mprotect", n.mprotect, [ro, ro_len, r, 0, 0, 0]),
        ("mprotect", n.mprotect, [rw, rw_len, both, 0, 0, 0]),
    ]
}

const SIZE: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK);

impl Frame {
    /// A new frame, and the file for mapping that holds code ([`CODE_LEN`] bytes, which nobody can
    /// write any more) and the read-only half: opened for reading, sealed.
    ///
    /// # Errors
    /// When memory or descriptors run out, or `/proc` is not mounted.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        Self::with(&[])
    }

    /// The same with a stub's code.
    ///
    /// # Errors
    /// As [`Frame::new`].
    pub fn for_stub(window: AddrWindow) -> io::Result<(Self, OwnedFd)> {
        let calls = calls(window, 0, true).map(|(_, nr, args)| (nr, args));
        Self::with(&Native::stub_code(&calls).bytes)
    }

    fn with(code: &[u8]) -> io::Result<(Self, OwnedFd)> {
        let mut ro_file = memfd("verbgate-stub", CODE_LEN + RO_LEN)?;
        ro_file.write_all(code)?;
        // The nobody-but-owner mode is a second lock: a guest of another user cannot reopen it.
        rustix::fs::fchmod(&ro_file, rustix::fs::Mode::RUSR | rustix::fs::Mode::XUSR)?;
        // SAFETY: the file is private to this process until it is sealed below, and every mapping
        // of it made later is read-only: nobody else can write this memory.
        let mut ro =
            unsafe { MmapOptions::new().offset(CODE_LEN as u64).len(RO_LEN).map_mut(&ro_file)? };
        rustix::fs::fcntl_add_seals(&ro_file, SIZE | SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        let rw_file = memfd("verbgate-scratch", RW_LEN)?;
        let rw = MmapOptions::new().len(RW_LEN).map_raw(&rw_file)?;
        rustix::fs::fcntl_add_seals(&rw_file, SIZE | SealFlags::SEAL)?;
        // Each request takes the first and the last page of the read-only half and the first one of the
        // other, which are made now and not while a guest waits: the first request takes 50 us less then.
        if let [first, .., last] = &mut *ro {
            (*first, *last) = (0, 0);
        }
        let frame = Self { ro, rw, scratch: rw_file.into() };
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
    pub fn fill(&self, window: AddrWindow) {
        if self.lock().is_none() {
            // Whoever needs one is told why there is none.
            let made = Frame::for_stub(window).ok();
            *self.lock() = made;
        }
    }

    /// Takes it, or makes one now.
    pub(crate) fn take(&self, window: AddrWindow) -> io::Result<(Frame, OwnedFd)> {
        let ready = self.lock().take();
        ready.map_or_else(|| Frame::for_stub(window), Ok)
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
        let window = AddrWindow::usual();
        let (mut frame, file) = Frame::for_stub(window).unwrap();
        frame.ro()[5] = 7;
        frame.rw_write(9, &[1, 2, 3]);
        // SAFETY: a private view for reading; the bytes do not change during the test.
        let seen = unsafe { MmapOptions::new().len(CODE_LEN + RO_LEN).map(&file).unwrap() };
        let code = Native::stub_code(&calls(window, 0, true).map(|(_, nr, args)| (nr, args))).bytes;
        assert!(code.len() <= CODE_LEN, "{}", code.len());
        assert_eq!(seen[..code.len()], code);
        assert_eq!(seen[CODE_LEN + 5], 7);
        let mut got = [0; 3];
        frame.rw_read(9, &mut got);
        assert_eq!(got, [1, 2, 3]);
        let mut beyond = [4; 4];
        frame.rw_read(RW_LEN - 2, &mut beyond);
        assert_eq!(beyond, [0, 0, 4, 4]);
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
        let (ready, window) = (Ready::default(), AddrWindow::usual());
        ready.fill(window);
        ready.fill(window);
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        let (first, second) = (ready.take(window).unwrap(), ready.take(window).unwrap());
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
