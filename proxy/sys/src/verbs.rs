//! Requests that the supervisor makes of a device for itself.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;

use crate::arch::RDMA_VERBS_IOCTL;

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
