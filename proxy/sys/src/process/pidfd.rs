//! Descriptors for processes and threads: pidfd_open(2).

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use crate::GuestFd;
use crate::Tgid;
use crate::Tid;
use crate::check;

/// `PIDFD_THREAD`, include/uapi/linux/pidfd.h.
pub(super) const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

/// A descriptor for a process.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl From<OwnedFd> for PidFd {
    fn from(file: OwnedFd) -> Self {
        Self(file)
    }
}

impl PidFd {
    /// pidfd_open(2).
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn open(tgid: Tgid) -> io::Result<Self> {
        // SAFETY: both arguments are plain numbers.
        let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, tgid.0, 0) })?;
        Self::made(fd)
    }

    /// A descriptor for one thread, where the kernel has such (6.9 and later): its descriptor
    /// table may be its own. For the process of its group otherwise.
    pub(crate) fn of_thread(tid: Tid) -> io::Result<Self> {
        // SAFETY: both arguments are plain numbers.
        match check(unsafe { libc::syscall(libc::SYS_pidfd_open, tid.0, PIDFD_THREAD) }) {
            Ok(fd) => Self::made(fd),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Self::open(super::tgid(tid)?),
            Err(e) => Err(e),
        }
    }

    pub(super) fn made(fd: libc::c_long) -> io::Result<Self> {
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made this descriptor, as the caller says.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A duplicate of a descriptor of the process's first thread: pidfd_getfd(2).
    ///
    /// # Errors
    /// `EBADF`: not open there; `EPERM`; `ESRCH`.
    pub fn get_fd(&self, fd: GuestFd) -> io::Result<OwnedFd> {
        // SAFETY: all arguments are plain numbers.
        let got =
            check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), fd.0, 0) })?;
        let got = i32::try_from(got).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made this descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(got) })
    }

    /// pidfd_send_signal(2).
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: plain numbers, and a null siginfo, which the call allows.
        let ret = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, none, 0)
        };
        check(ret).map(drop)
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut fd = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one `struct pollfd`, which lives through the call.
        unsafe { libc::poll(&raw mut fd, 1, 0) == 1 }
    }

    /// The descriptor, to poll: readable once the process has ended.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }
}
