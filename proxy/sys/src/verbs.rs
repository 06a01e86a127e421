//! Requests that the calling process makes to a device: the supervisor's own requests, and a
//! guest's requests if the calling process has the guest's memory and descriptors.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use nix::sys::mman;
use nix::sys::mman::MapFlags;
use nix::sys::mman::ProtFlags;

use crate::arch::RDMA_VERBS_IOCTL;
use crate::frame::Frame;
use crate::process;
use crate::stub::INPUTS;
use crate::stub::request_offset;
use crate::window::RO_LEN;
use crate::window::RW_LEN;

/// Whether a driver of this number serves a device that has just been opened.
///
/// The kernel compares the number before all else (`ib_uverbs_cmd_verbs`: EINVAL), so the request
/// is one that fails later in another way: DEVICE.INVOKE_WRITE of a QUERY_DEVICE without its
/// buffers, by which rdma-core finds out whether the ioctl exists. It changes nothing.
#[must_use]
pub fn is_driver(device: BorrowedFd<'_>, driver: u32) -> bool {
    const LENGTH: u64 = 24 + 16;
    const QUERY_DEVICE: u64 = 1;
    // struct ib_uverbs_ioctl_hdr: length, object 0, method 0, one attribute; then the attribute
    // WRITE_CMD (2), 8 bytes long.
    let mut request = [LENGTH | 1 << 48, 0, u64::from(driver), 2 | 8 << 16, QUERY_DEVICE];
    // SAFETY: the kernel reads 40 bytes, all of them in `request`, and has no output to write.
    let ret =
        unsafe { libc::ioctl(device.as_raw_fd(), RDMA_VERBS_IOCTL.into(), request.as_mut_ptr()) };
    let refused = [libc::EINVAL, libc::ENOTTY];
    ret >= 0 || !refused.contains(&io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// `struct ib_uverbs_post_send` without work requests.
pub const POST_SEND_LEN: usize = 24;
/// `struct ib_uverbs_post_send_resp`.
pub const POST_SEND_RESP_LEN: usize = 4;

/// Commands that write nothing but a response that they are given a place for: DEALLOC_PD, DESTROY_AH, DEALLOC_MW,
/// REQ_NOTIFY_CQ, MODIFY_QP, ATTACH_MCAST, DETACH_MCAST, and, extended, DESTROY_FLOW, DESTROY_RWQ_IND_TBL, MODIFY_CQ
/// (include/uapi/rdma/ib_user_verbs.h).
const SILENT: [u64; 10] = [4, 8, 16, 23, 26, 30, 31, EXTENDED | 51, EXTENDED | 56, EXTENDED | 57];
/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
const EXTENDED: u64 = 0x8000_0000;

/// A request that names no memory but a response of its own.
#[derive(Clone, Copy, Debug)]
pub enum Plain<'a> {
    /// POST_SEND without work requests.
    PostSend(&'a [u8; POST_SEND_LEN]),
    /// A command without a response.
    Command {
        /// The number.
        nr: u64,
        /// The command.
        core_in: &'a [u8],
    },
    /// The end of an object, by the only attribute of the method.
    Destroy {
        /// The kind of object.
        object: u16,
        /// The method.
        method: u16,
        /// The attribute that names the object.
        attr: u16,
        /// The object.
        handle: u32,
    },
}

/// Makes such a request, a command by DEVICE.INVOKE_WRITE: the calling process need not be the one that opened the
/// file, as write(2) demands (`ib_safe_file_access`). Returns what the kernel does, or `-errno`;
/// `-EINVAL` for a POST_SEND that has work requests, and for a command that may write elsewhere.
#[must_use]
pub fn make(device: BorrowedFd<'_>, driver: u32, request: Plain<'_>) -> i64 {
    const POST_SEND: u64 = 0x1c;
    // Attributes of INVOKE_WRITE.
    const CORE_IN: u16 = 0;
    const CORE_OUT: u16 = 1;
    const WRITE_CMD: u16 = 2;
    let mut response = [0_u8; POST_SEND_RESP_LEN];
    let mut words = vec![0, u64::from(driver)];
    // An input that fits the attribute's own word lies there (`uverbs_attr_ptr_is_inline`).
    let mut input = |id: u16, bytes: &[u8]| {
        let mut inline = [0; 8];
        let data = match inline.get_mut(..bytes.len()) {
            Some(word) => {
                word.copy_from_slice(bytes);
                u64::from_ne_bytes(inline)
            }
            None => bytes.as_ptr() as u64,
        };
        words.extend([u64::from(id) | (bytes.len() as u64) << 16, data]);
    };
    let (object, method) = match request {
        // response, qp_handle, wr_count, sge_count, wqe_size.
        Plain::PostSend(core_in) => {
            if core_in.get(12..20).is_none_or(|counts| counts.iter().any(|byte| *byte != 0)) {
                return -i64::from(libc::EINVAL);
            }
            input(CORE_IN, core_in);
            input(WRITE_CMD, &POST_SEND.to_ne_bytes());
            let len = (POST_SEND_RESP_LEN as u64) << 16;
            words.extend([u64::from(CORE_OUT) | len, response.as_mut_ptr() as u64]);
            (0, 0)
        }
        Plain::Command { nr, core_in } => {
            if !SILENT.contains(&nr) || core_in.len() > usize::from(u16::MAX) {
                return -i64::from(libc::EINVAL);
            }
            input(CORE_IN, core_in);
            input(WRITE_CMD, &nr.to_ne_bytes());
            (0, 0)
        }
        Plain::Destroy { object, method, attr, handle } => {
            words.extend([u64::from(attr), u64::from(handle)]);
            (object, method)
        }
    };
    // struct ib_uverbs_ioctl_hdr: length, object, method, number of attributes.
    let (length, attributes) = (8 * words.len() as u64 + 8, words.len() as u64 / 2 - 1);
    let kind = u64::from(object) << 16 | u64::from(method) << 32;
    words.insert(0, length | kind | attributes << 48);
    // SAFETY: the kernel reads `words`, as many as the header counts, and the inputs that they point to, for as many
    // bytes as their lengths say; there is no work request that the kernel would look for behind a POST_SEND's.
    // The kernel writes the 4 bytes of `response`, and nothing else: the commands are those that write nothing without
    // a response, and the one attribute of an end has room for no byte.
    let ret =
        unsafe { libc::ioctl(device.as_raw_fd(), RDMA_VERBS_IOCTL.into(), words.as_mut_ptr()) };
    if ret < 0 {
        return -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    ret.into()
}

/// The two halves of a frame, one behind the other in the calling process, as a guest maps them.
#[derive(Debug)]
struct View {
    start: NonNull<c_void>,
}

// SAFETY: the pointer is only ever turned into a number, and the mapping belongs to the process.
unsafe impl Send for View {}

impl View {
    const LEN: NonZeroUsize = NonZeroUsize::new(RO_LEN + RW_LEN).unwrap();

    fn new(ro: BorrowedFd<'_>, rw: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            mman::mmap_anonymous(None, Self::LEN, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE)
        }?;
        let view = Self { start };
        let half = |at: usize, len: usize, fd: BorrowedFd<'_>, prot: ProtFlags| {
            let len = NonZeroUsize::new(len).unwrap_or(NonZeroUsize::MIN);
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
            let addr = start.addr().checked_add(at);
            // SAFETY: it replaces a part of the mapping made above, to which nothing refers: the
            // halves are RO_LEN and RW_LEN bytes long, and the mapping is both.
            unsafe { mman::mmap(addr, len, prot, flags, fd, 0) }
        };
        half(0, RO_LEN, ro, ProtFlags::PROT_READ)?;
        half(RO_LEN, RW_LEN, rw, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        Ok(view)
    }

    fn base(&self) -> u64 {
        self.start.addr().get() as u64
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, to which no reference was ever made.
        let _ = unsafe { mman::munmap(self.start, Self::LEN.get()) };
    }
}

/// A device on which the calling process makes requests for a guest, and the frame in which they
/// are laid out.
///
/// Every output is to go into the frame; see [`Device::new`].
#[derive(Debug)]
pub struct Device {
    file: OwnedFd,
    /// Where requests are laid out.
    pub frame: Frame,
    view: View,
    /// A request can install a descriptor.
    makes_descriptors: bool,
}

impl Device {
    /// Makes requests on an open device.
    ///
    /// # Errors
    /// When memory or descriptors run out, or `/proc` is not mounted.
    ///
    /// # Safety
    /// Requests name memory that the kernel pins in the calling process, and that the device then
    /// reads and writes: of memory regions and queues, some in words that only a driver
    /// understands. So the caller vouches that
    /// - whatever a request can name in the calling process is the guest's to write, or the policy
    ///   lets no request pass that names memory;
    /// - all outputs of the requests that are laid out in [`frame`](Self::frame) go into the frame;
    /// - [`request`](Self::request) is told the place of a new descriptor's number and no other.
    pub unsafe fn new(file: OwnedFd) -> io::Result<Self> {
        Self::with(file, true)
    }

    /// Makes requests on a file that is no device and knows nothing of them: for tests.
    ///
    /// # Errors
    /// `EINVAL` when the file is a character device, as every RDMA device is; else as
    /// [`new`](Self::new).
    pub fn stand_in(file: OwnedFd) -> io::Result<Self> {
        if process::char_device(file.as_fd())?.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Self::with(file, false)
    }

    fn with(file: OwnedFd, makes_descriptors: bool) -> io::Result<Self> {
        let (frame, ro) = Frame::new()?;
        let view = View::new(ro.as_fd(), frame.scratch())?;
        Ok(Self { file, frame, view, makes_descriptors })
    }

    /// The address of the frame in the calling process.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.view.base()
    }

    /// Makes the request that lies in the frame. Returns what the kernel does, or `-errno`, and the
    /// new descriptor whose number the kernel has written at this offset of the read-write half.
    pub fn request(&self, new_fd_at: Option<usize>) -> (i64, Option<OwnedFd>) {
        let at = self.view.start.as_ptr().wrapping_byte_add(request_offset(INPUTS));
        // SAFETY: the kernel reads the request from the view, whose halves stay mapped as long as
        // `self`, and writes where the request says: into the view, which is never borrowed, or
        // where the caller of `new` has vouched for.
        let ret = unsafe { libc::ioctl(self.file.as_raw_fd(), RDMA_VERBS_IOCTL.into(), at) };
        if ret < 0 {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            return (-i64::from(errno), None);
        }
        let made = new_fd_at.filter(|_| self.makes_descriptors).map(|at| {
            let mut number = [0; 4];
            self.frame.rw_read(at, &mut number);
            // SAFETY: the kernel has installed it during the call above, and nobody else has been
            // told the number: the frame is mapped in no other process, and the caller of `new`
            // has vouched for the place.
            unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes(number)) }
        });
        (ret.into(), made)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_frame_is_seen_as_a_guest_sees_it() {
        let mut device = Device::stand_in(tempfile::tempfile().unwrap().into()).unwrap();
        device.frame.ro()[RO_LEN - 2..].copy_from_slice(&[1, 2]);
        device.frame.rw_write(0, &[3, 4]);
        // Read as the kernel reads it: by address.
        let mut got = [0; 4];
        let range = crate::mem::Range { addr: device.base() + RO_LEN as u64 - 2, len: 4 };
        let me = crate::Tid(std::process::id().cast_signed());
        assert_eq!(crate::mem::read_by_number(me, &[range], &mut got).unwrap(), 4);
        assert_eq!(got, [1, 2, 3, 4]);
    }

    #[test]
    fn a_file_that_is_no_device_knows_no_request() {
        let device = Device::stand_in(tempfile::tempfile().unwrap().into()).unwrap();
        let (result, made) = device.request(Some(0));
        assert_eq!((result, made.is_none()), (-i64::from(libc::ENOTTY), true));
        let null = File::open("/dev/null").unwrap();
        let refused = Device::stand_in(null.into()).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn work_requests_are_refused_before_the_kernel_looks_for_them() {
        let null = File::open("/dev/null").unwrap();
        let make = |request: Plain<'_>| make(null.as_fd(), 14, request);
        let plain = [0; POST_SEND_LEN];
        assert_eq!(make(Plain::PostSend(&plain)), -i64::from(libc::ENOTTY));
        for at in [12, 16] {
            let mut counted = plain;
            counted[at] = 1;
            assert_eq!(make(Plain::PostSend(&counted)), -i64::from(libc::EINVAL));
        }
    }

    #[test]
    fn commands_that_write_are_refused() {
        let null = File::open("/dev/null").unwrap();
        let command = |nr| {
            let command = Plain::Command { nr, core_in: &[0; 112] };
            make(null.as_fd(), 14, command)
        };
        assert_eq!(command(26), -i64::from(libc::ENOTTY));
        // QUERY_QP, POST_SEND, REG_MR, and MODIFY_QP, extended.
        for nr in [25, 28, 9, EXTENDED | 26] {
            assert_eq!(command(nr), -i64::from(libc::EINVAL));
        }
    }

    #[test]
    fn a_device_that_refuses_makes_no_descriptor() {
        // SAFETY: /dev/null knows no request: it pins no memory.
        let device = unsafe { Device::new(File::open("/dev/null").unwrap().into()) }.unwrap();
        let (result, made) = device.request(Some(0));
        assert_eq!((result, made.is_none()), (-i64::from(libc::ENOTTY), true));
    }
}
