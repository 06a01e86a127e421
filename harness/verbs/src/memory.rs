//! Registered memory.

use std::rc::Rc;

use memmap2::MmapMut;

use crate::Error;
use crate::Pd;
use crate::ffi;
use crate::last;

/// What a peer may do with the memory: `enum ibv_access_flags`. The device itself may always write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Nothing.
    Local,
    /// Read, write, and atomics.
    Remote,
}

const LOCAL_WRITE: i32 = 1;
const REMOTE_WRITE: i32 = 2;
const REMOTE_READ: i32 = 4;
const REMOTE_ATOMIC: i32 = 8;

/// Memory that a device may access.
#[derive(Clone, Debug)]
pub struct Region(Rc<RegionInner>);

#[derive(Debug)]
struct RegionInner {
    mr: *mut ffi::MemoryRegion,
    pd: Pd,
    // Only its address is used: the device writes to it at any time.
    base: *mut u8,
    length: usize,
    lkey: u32,
    rkey: u32,
    _memory: MmapMut,
}

impl Drop for RegionInner {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold the regions of their work requests, so nothing uses it.
        unsafe { (self.pd.library().dereg_mr)(self.mr) };
    }
}

impl Region {
    /// New memory of zeroes.
    ///
    /// # Errors
    /// As mmap(2) and `ibv_reg_mr(3)`: `ENOMEM` when RLIMIT_MEMLOCK or a quota does not allow it.
    pub fn new(pd: &Pd, length: usize, access: Access) -> Result<Self, Error> {
        let mut memory = MmapMut::map_anon(length.max(1))
            .map_err(|error| Error::Verb { verb: "mmap", error })?;
        let base = memory.as_mut_ptr();
        let flags = match access {
            Access::Local => LOCAL_WRITE,
            Access::Remote => LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC,
        };
        // SAFETY: the memory stays until the region is gone, and is used by its address only.
        let mr = unsafe { (pd.library().reg_mr)(pd.0.pd, base.cast(), memory.len(), flags) };
        if mr.is_null() {
            return Err(last("ibv_reg_mr"));
        }
        // SAFETY: a region that was just made; the library writes to it no more.
        let keys = unsafe { &*mr };
        let (lkey, rkey) = (keys.lkey, keys.rkey);
        let inner = RegionInner { mr, pd: pd.clone(), base, length, lkey, rkey, _memory: memory };
        Ok(Self(Rc::new(inner)))
    }

    /// Where a peer finds it.
    #[must_use]
    pub fn address(&self) -> u64 {
        // On every platform of Linux.
        u64::try_from(self.0.base.addr()).unwrap_or(u64::MAX)
    }

    /// By what a peer is let in.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.0.rkey
    }

    pub(super) fn lkey(&self) -> u32 {
        self.0.lkey
    }

    /// In bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn check(&self, offset: usize, length: usize) -> Result<(), Error> {
        let size = self.len();
        let inside = offset.checked_add(length).is_some_and(|end| end <= size);
        if inside { Ok(()) } else { Err(Error::Bounds { offset, length, size }) }
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`Error::Bounds`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        let to = self.0.base.wrapping_add(offset);
        // SAFETY: inside of the mapping, to which there are no references; the device may write at
        // the same time, as to memory that is shared with another process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`Error::Bounds`].
    pub fn read(&self, offset: usize, length: usize) -> Result<Vec<u8>, Error> {
        self.check(offset, length)?;
        let mut bytes = vec![0; length];
        let from = self.0.base.wrapping_add(offset);
        // SAFETY: as for writing.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        Ok(bytes)
    }
}
