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
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;

use memmap2::MmapMut;
use memmap2::MmapOptions;
use memmap2::MmapRaw;
use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;

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
    /// The read-write half's file, opened for reading: the stub copies outputs out of it.
    scratch: OwnedFd,
}

/// What is mapped into the guest: both are closed once they are.
#[derive(Debug)]
pub struct FrameFds {
    /// Opened for reading, sealed.
    pub ro: OwnedFd,
    /// Opened for both, sealed against a change of size (a guest that could truncate it would
    /// make the supervisor fault).
    pub rw: OwnedFd,
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

const SIZE: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK);

impl Frame {
    /// A new frame, and the descriptors to map into the guest.
    ///
    /// # Errors
    /// When memory or descriptors run out, or `/proc` is not mounted.
    pub fn new() -> io::Result<(Self, FrameFds)> {
        let ro_file = memfd("verbgate-frame", RO_LEN)?;
        // The nobody-but-owner mode is a second lock: a guest of another user cannot reopen it.
        rustix::fs::fchmod(&ro_file, rustix::fs::Mode::RUSR)?;
        // SAFETY: the file is private to this process until it is sealed below, and every mapping
        // of it made later is read-only: nobody else can write this memory.
        let ro = unsafe { MmapOptions::new().len(RO_LEN).map_mut(&ro_file)? };
        rustix::fs::fcntl_add_seals(&ro_file, SIZE | SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        let rw_file = memfd("verbgate-scratch", RW_LEN)?;
        let rw = MmapOptions::new().len(RW_LEN).map_raw(&rw_file)?;
        rustix::fs::fcntl_add_seals(&rw_file, SIZE | SealFlags::SEAL)?;
        let scratch = reading(&rw_file)?;
        Ok((Self { ro, rw, scratch }, FrameFds { ro: reading(&ro_file)?, rw: rw_file.into() }))
    }

    /// What a stub copies outputs out of, for its table.
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

/// The stub's code in a memfd that nobody can write any more.
///
/// # Errors
/// When memory or descriptors run out, or `/proc` is not mounted.
pub fn code_memfd(code: &[u8]) -> io::Result<OwnedFd> {
    let mut file = memfd("verbgate-stub", crate::window::CODE_LEN)?;
    file.write_all(code)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::XUSR)?;
    rustix::fs::fcntl_add_seals(&file, SIZE | SealFlags::WRITE | SealFlags::SEAL)?;
    reading(&file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopen_path(fd: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", fd.as_raw_fd())
    }

    #[test]
    fn what_the_supervisor_writes_is_what_the_guest_maps() {
        let (mut frame, fds) = Frame::new().unwrap();
        frame.ro()[5] = 7;
        frame.rw_write(9, &[1, 2, 3]);
        // SAFETY: a private view for reading; the bytes do not change during the test.
        let seen = unsafe { MmapOptions::new().len(RO_LEN).map(&fds.ro).unwrap() };
        assert_eq!(seen[5], 7);
        let mut got = [0; 3];
        frame.rw_read(9, &mut got);
        assert_eq!(got, [1, 2, 3]);
        let mut beyond = [4; 4];
        frame.rw_read(RW_LEN - 2, &mut beyond);
        assert_eq!(beyond, [0, 0, 4, 4]);
    }

    #[test]
    fn the_read_only_half_cannot_be_written_through_any_descriptor() {
        let (_frame, fds) = Frame::new().unwrap();
        let again = std::fs::OpenOptions::new().read(true).write(true).open(reopen_path(&fds.ro));
        // As root the reopening succeeds; it must be of no use.
        if let Ok(mut file) = again {
            assert!(file.write_all(b"x").is_err());
            assert!(file.set_len(0).is_err());
            // SAFETY: the mapping must not come into being; if it does, the test fails.
            assert!(unsafe { MmapOptions::new().len(RO_LEN).map_mut(&file) }.is_err());
        }
        let rw = File::from(fds.rw);
        assert!(rw.set_len(0).is_err(), "a guest must not be able to make us fault");
        let code = code_memfd(&[0x90]).unwrap();
        let again = std::fs::OpenOptions::new().write(true).open(reopen_path(&code));
        assert!(again.is_err() || again.unwrap().write_all(b"x").is_err());
    }

    #[test]
    fn a_read_only_mapping_cannot_be_made_writable() {
        let (_frame, fds) = Frame::new().unwrap();
        // SAFETY: a fresh mapping at an address of the kernel's choice, unmapped below.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fds.ro.as_raw_fd(),
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
