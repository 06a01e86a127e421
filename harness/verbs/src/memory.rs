//! Registered memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use memmap2::MmapMut;
use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;

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
    /// Read and write: devices without atomics refuse to be asked for atomics.
    ReadWrite,
    /// Read: some devices have no RDMA write.
    Read,
}

impl Access {
    fn flags(self) -> i32 {
        match self {
            Self::Local => LOCAL_WRITE,
            Self::Remote => LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC,
            Self::ReadWrite => LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ,
            Self::Read => LOCAL_WRITE | REMOTE_READ,
        }
    }
}

/// Where memory comes from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Memory {
    /// Of the process.
    #[default]
    Host,
    /// A dma-buf, as the memory of GPUs is registered; made of the process's memory by `/dev/udmabuf`
    /// (Documentation/driver-api/dma-buf.rst of the kernel).
    DmaBuf,
}

/// Makes dma-bufs of memfds.
const MAKER: &str = "/dev/udmabuf";
/// `UDMABUF_CREATE`, include/uapi/linux/udmabuf.h.
const CREATE: libc::Ioctl = 0x4018_7542;

/// `struct udmabuf_create`.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

const LOCAL_WRITE: i32 = 1;
const REMOTE_WRITE: i32 = 2;
const REMOTE_READ: i32 = 4;
const REMOTE_ATOMIC: i32 = 8;

/// Memory that a device may access.
#[derive(Clone, Debug)]
pub struct Region(Arc<RegionInner>);

#[derive(Debug)]
struct RegionInner {
    mr: *mut ffi::MemoryRegion,
    pd: Pd,
    // Only its address is used: the device writes to it at any time.
    base: *mut u8,
    length: usize,
    lkey: u32,
    rkey: u32,
    // Of this program's threads one copies at a time.
    copying: Mutex<()>,
    _memory: MmapMut,
    _dma_buf: Option<OwnedFd>,
}

// SAFETY: the memory belongs to no thread.
unsafe impl Send for RegionInner {}
// SAFETY: threads copy in turn, and nobody refers to the contents.
unsafe impl Sync for RegionInner {}

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
        let (base, flags) = (memory.as_mut_ptr(), access.flags());
        // SAFETY: the memory stays until the region is gone, and is used by its address only.
        let mr = unsafe { (pd.library().reg_mr)(pd.0.pd, base.cast(), memory.len(), flags) };
        if mr.is_null() {
            return Err(last("ibv_reg_mr"));
        }
        Ok(Self::made(pd, mr, memory, (length, None)))
    }

    /// New memory of this kind.
    ///
    /// # Errors
    /// Of a dma-buf: open(2)'s of `/dev/udmabuf`, where the kernel has none; ioctl(2)'s, as `EINVAL` above
    /// the module's `size_limit_mb`; `EOPNOTSUPP` of a driver that cannot.
    pub fn of(kind: Memory, pd: &Pd, length: usize, access: Access) -> Result<Self, Error> {
        if kind == Memory::Host {
            return Self::new(pd, length, access);
        }
        let made = |verb| move |error: io::Error| Error::Verb { verb, error };
        let size = length.max(1).next_multiple_of(rustix::param::page_size());
        let file =
            rustix::fs::memfd_create("dma-buf", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|e| made("memfd_create")(e.into()))?;
        let file = File::from(file);
        file.set_len(size as u64).map_err(made("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK)
            .map_err(|e| made("fcntl(F_ADD_SEALS)")(e.into()))?;
        // SAFETY: nobody else has the file, which cannot shrink.
        let mut memory = unsafe { MmapMut::map_mut(&file) }.map_err(made("mmap"))?;
        let dma_buf = dma_buf(&file, size).map_err(made("a dma-buf of /dev/udmabuf"))?;
        let Some(register) = pd.library().reg_dmabuf_mr else {
            return Err(Error::Load("libibverbs has no ibv_reg_dmabuf_mr".to_owned()));
        };
        let (base, fd) = (memory.as_mut_ptr(), dma_buf.as_raw_fd());
        let iova = base.addr() as u64;
        // SAFETY: the kernel holds the dma-buf as long as the region is there.
        let mr = unsafe { register(pd.0.pd, 0, length, iova, fd, access.flags()) };
        if mr.is_null() {
            return Err(last("ibv_reg_dmabuf_mr"));
        }
        Ok(Self::made(pd, mr, memory, (length, Some(dma_buf))))
    }

    fn made(
        pd: &Pd,
        mr: *mut ffi::MemoryRegion,
        mut memory: MmapMut,
        (length, dma_buf): (usize, Option<OwnedFd>),
    ) -> Self {
        let base = memory.as_mut_ptr();
        // SAFETY: a region that was just made; the library writes to it no more.
        let keys = unsafe { &*mr };
        let (lkey, rkey) = (keys.lkey, keys.rkey);
        let (pd, _memory, _dma_buf) = (pd.clone(), memory, dma_buf);
        let copying = Mutex::new(());
        let inner = RegionInner { mr, pd, base, length, lkey, rkey, copying, _memory, _dma_buf };
        Self(Arc::new(inner))
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
        Arc::ptr_eq(&self.0, &other.0)
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
        let _alone = self.0.copying.lock().unwrap_or_else(PoisonError::into_inner);
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
        let _alone = self.0.copying.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as for writing.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        Ok(bytes)
    }
}

/// A dma-buf of all pages of a memfd.
fn dma_buf(file: &File, size: usize) -> io::Result<OwnedFd> {
    let maker = File::options().read(true).write(true).open(MAKER)?;
    let memfd = file.as_raw_fd().cast_unsigned();
    let create = Create { memfd, flags: 0, offset: 0, size: size as u64 };
    // SAFETY: the structure is the one that the request takes, and the kernel only reads it.
    let fd = unsafe { libc::ioctl(maker.as_raw_fd(), CREATE, &raw const create) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
