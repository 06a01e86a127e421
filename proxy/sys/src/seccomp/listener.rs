//! The listener: seccomp_unotify(2).

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use super::bpf::SockFilter;
use crate::GuestFd;
use crate::Tid;
use crate::called_off;
use crate::check;

/// What names a trapped call until it is answered; the default names none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct NotifId(u64);

/// A trapped system call: `struct seccomp_notif`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Names the call in answers.
    pub id: NotifId,
    /// The calling thread.
    pub tid: Tid,
    /// Whose number it is: `AUDIT_ARCH_*`.
    pub arch: u32,
    /// System call number.
    pub nr: u32,
    /// Where the thread goes on.
    pub ip: u64,
    /// Arguments.
    pub args: [u64; 6],
}

/// How a trapped call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The call returns this value.
    Value(i64),
    /// The call fails with this errno (a positive number).
    Errno(i32),
    /// The kernel executes the call. Only for calls whose arguments the guest cannot change, or
    /// where it does not matter.
    Continue,
}

/// How a descriptor is put into a guest thread's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddFd {
    /// The number to use, replacing what is there; or the lowest free one.
    pub at: Option<u32>,
    /// Close it on exec.
    pub cloexec: bool,
    /// Make its number the answer to the trapped call, in one step.
    pub answer: bool,
}

/// The supervisor's end of a filter.
#[derive(Debug)]
pub struct Listener(OwnedFd);

#[repr(C)]
#[derive(Default)]
struct RawNotif {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    ip: u64,
    args: [u64; 6],
}

#[repr(C)]
struct RawResp {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct RawAddFd {
    id: u64,
    flags: u32,
    srcfd: u32,
    newfd: u32,
    newfd_flags: u32,
}

const NOTIF_RECV: libc::c_ulong = 0xc050_2100;
const NOTIF_SEND: libc::c_ulong = 0xc018_2101;
const NOTIF_ID_VALID: libc::c_ulong = 0x4008_2102;
const NOTIF_ADDFD: libc::c_ulong = 0x4018_2103;
const NOTIF_SET_FLAGS: libc::c_ulong = 0x4008_2104;

const FLAG_CONTINUE: u32 = 1;
const ADDFD_FLAG_SETFD: u32 = 1;
const ADDFD_FLAG_SEND: u32 = 2;
const FD_SYNC_WAKE_UP: libc::c_ulong = 1;

const FILTER_FLAG_NEW_LISTENER: libc::c_ulong = 1 << 3;
const FILTER_FLAG_WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

/// Puts the calling thread, and whatever it becomes or starts, under a filter.
///
/// The kernel needs either `no_new_privs` or CAP_SYS_ADMIN in the user namespace. The listener
/// waits for its answers killably (5.19 and later), so that no signal can orphan a request.
///
/// # Errors
/// `EBUSY`: somebody else's filter already has a listener. `EACCES`: neither `no_new_privs` nor
/// CAP_SYS_ADMIN. `EINVAL`: a kernel before 5.19, or without CONFIG_SECCOMP_FILTER.
pub fn install(program: &[SockFilter]) -> io::Result<Listener> {
    let len =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let fprog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    let flags = FILTER_FLAG_NEW_LISTENER | FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: `fprog` points to `len` instructions that live through the call, with the layout of
    // `struct sock_filter`; the kernel copies them.
    let fd = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const fprog)
    };
    let fd = i32::try_from(check(fd)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
    Ok(Listener(unsafe { OwnedFd::from_raw_fd(fd) }))
}

impl From<OwnedFd> for Listener {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.0
    }
}

/// How the kernel names a listener in `/proc/PID/fd`: kernel/seccomp.c.
const LISTENER_NAME: &str = "anon_inode:seccomp notify";

impl Listener {
    /// Takes a descriptor that somebody else passed on, if it is a listener: anything else would be
    /// believed to be a sandbox that never asks, or answer for one.
    ///
    /// # Errors
    /// `InvalidInput` for any other file.
    pub fn receive_from(fd: OwnedFd) -> io::Result<Self> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        let other = || {
            let text = format!("{} is not a seccomp listener", name.display());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        // Before the ioctl, which somebody's file system may serve.
        if name.as_os_str() != LISTENER_NAME {
            return Err(other());
        }
        let listener = Self(fd);
        // No call has the id 0, and a listener says so.
        let no_call = 0_u64;
        // SAFETY: the argument is a pointer to a 64-bit id, which lives through the call.
        let ret =
            unsafe { libc::ioctl(listener.0.as_raw_fd(), NOTIF_ID_VALID, &raw const no_call) };
        match check(ret.into()) {
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(listener),
            _ => Err(other()),
        }
    }

    /// The descriptor, to poll.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    /// Wakes the other side on the waker's processor, where the kernel can (6.6 and later).
    ///
    /// Measured: a trap costs 12 us with it and 82 us without, across processors.
    ///
    /// # Errors
    /// `EINVAL` or `ENOTTY` where the kernel cannot.
    pub fn wake_synchronously(&self) -> io::Result<()> {
        // SAFETY: the argument of this ioctl is a plain number.
        let ret = unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_SET_FLAGS, FD_SYNC_WAKE_UP) };
        check(ret.into()).map(drop)
    }

    /// Waits for the next trapped call.
    ///
    /// # Errors
    /// `ENOENT`: the call vanished meanwhile (its thread was killed), or, on 6.11 and later, no
    /// task is left under the filter; tell these apart with [`Listener::wait`]. `EINTR`: a signal.
    pub fn receive(&self) -> io::Result<Notification> {
        let mut raw = RawNotif::default();
        crate::count_call();
        // SAFETY: `raw` is a `struct seccomp_notif` (80 bytes, zeroed as the kernel wants).
        let ret = unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_RECV, &raw mut raw) };
        check(ret.into())?;
        Ok(Notification {
            id: NotifId(raw.id),
            tid: Tid(raw.pid.cast_signed()),
            arch: raw.arch,
            nr: raw.nr.cast_unsigned(),
            ip: raw.ip,
            args: raw.args,
        })
    }

    /// Waits until a call is trapped, for so many milliseconds (-1: for ever).
    ///
    /// # Errors
    /// `ENOENT` when no task is left under the filter; else poll(2)'s.
    pub fn wait(&self, timeout_ms: i32) -> io::Result<bool> {
        let mut fd = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one `struct pollfd`, which lives through the call.
        let n = unsafe { libc::poll(&raw mut fd, 1, timeout_ms) };
        check(n.into())?;
        if fd.revents & libc::POLLHUP != 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(fd.revents & libc::POLLIN != 0)
    }

    /// Ends a trapped call.
    ///
    /// # Errors
    /// `ENOENT`: its thread is gone.
    pub fn reply(&self, id: NotifId, reply: Reply) -> io::Result<()> {
        let (val, error, flags) = match reply {
            Reply::Value(val) => (val, 0, 0),
            Reply::Errno(errno) => (0, -errno, 0),
            Reply::Continue => (0, 0, FLAG_CONTINUE),
        };
        let mut raw = RawResp { id: id.0, val, error, flags };
        crate::count_call();
        uninterrupted(|| {
            // SAFETY: `raw` is a `struct seccomp_notif_resp`, which lives through the call.
            let ret = unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_SEND, &raw mut raw) };
            check(ret.into()).map(drop)
        })
    }

    /// Ends listening, though others still hold this: every call that waits, and every later one,
    /// ends with ENOSYS. A thread of this process that is receiving would keep it open until it
    /// returns, so these threads are interrupted.
    ///
    /// # Errors
    /// `EMFILE`: no descriptor was left to do it with.
    pub fn hang_up(&self, receiving: &[Tid]) -> io::Result<()> {
        let nothing = std::fs::File::open("/dev/null")?;
        // SAFETY: plain numbers. The number of this listener goes on being an open descriptor that
        // belongs to it; what it is now fails all its calls with ENOTTY.
        let ret = unsafe { libc::dup3(nothing.as_raw_fd(), self.0.as_raw_fd(), libc::O_CLOEXEC) };
        check(ret.into())?;
        called_off::prepare();
        receiving.iter().for_each(|tid| called_off::interrupt(*tid));
        Ok(())
    }

    /// Whether the trapped call still waits, and so its thread still is who it was.
    #[must_use]
    pub fn is_valid(&self, id: NotifId) -> bool {
        crate::count_call();
        let valid = uninterrupted(|| {
            // SAFETY: the argument is a pointer to the 64-bit id, which lives through the call.
            let ret = unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_ID_VALID, &raw const id.0) };
            check(ret.into())
        });
        valid.is_ok()
    }

    /// Puts a copy of `fd` into the descriptor table of the thread that made the call, which takes it itself: so this
    /// waits until the thread runs.
    ///
    /// # Errors
    /// `ENOENT`: the thread is gone; `EMFILE`, `EBADF`: its table is full, or the number is over
    /// its RLIMIT_NOFILE.
    pub fn add_fd(&self, id: NotifId, fd: BorrowedFd<'_>, how: AddFd) -> io::Result<GuestFd> {
        let raw = RawAddFd::new(id, fd, how);
        uninterrupted(|| {
            crate::count_call();
            // SAFETY: `raw` is a `struct seccomp_notif_addfd`, which lives through the call.
            let ret = unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_ADDFD, &raw const raw) };
            check(ret.into()).map(|_| GuestFd(ret))
        })
    }

    /// Puts a copy of `fd` there as [`Listener::add_fd`] does, for a thread that traces and waits for nobody.
    ///
    /// # Errors
    /// [`Listener::add_fd`]'s; `EINTR`: the thread has not run yet.
    pub(crate) fn add_fd_soon(
        &self,
        id: NotifId,
        fd: BorrowedFd<'_>,
        how: AddFd,
        again: bool,
    ) -> io::Result<i64> {
        let raw = RawAddFd::new(id, fd, how);
        let what = usize::try_from(NOTIF_ADDFD).unwrap_or(0);
        let fd = usize::try_from(self.0.as_raw_fd()).unwrap_or(usize::MAX);
        let args = [fd, what, (&raw const raw).expose_provenance(), 0, 0, 0];
        crate::count_call();
        // SAFETY: `raw` is a `struct seccomp_notif_addfd`, which lives through the call.
        unsafe { called_off::within(libc::SYS_ioctl, args, again) }
    }
}

impl RawAddFd {
    fn new(id: NotifId, fd: BorrowedFd<'_>, how: AddFd) -> Self {
        let mut flags = 0;
        if how.at.is_some() {
            flags |= ADDFD_FLAG_SETFD;
        }
        if how.answer {
            flags |= ADDFD_FLAG_SEND;
        }
        Self {
            id: id.0,
            flags,
            srcfd: fd.as_raw_fd().cast_unsigned(),
            newfd: how.at.unwrap_or(0),
            newfd_flags: if how.cloexec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        }
    }
}

/// Makes a call again that a signal has ended before the call did anything: the listener's lock can be interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::arch::Native;
    use crate::arch::RDMA_VERBS_IOCTL;
    use crate::seccomp::filter;
    use crate::window::AddrWindow;
    use crate::window::FdWindow;

    #[test]
    fn no_other_file_passes_for_a_listener() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let (pipe, _end) = io::pipe().unwrap();
        // Named as one, in a file system that names files as it likes.
        let named = tempfile::tempdir().unwrap();
        let named = std::fs::File::create(named.path().join("anon_inode:seccomp notify")).unwrap();
        for other in [OwnedFd::from(null), pipe.into(), named.into()] {
            let error = Listener::receive_from(other).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        let program =
            filter::program::<Native>(AddrWindow::at(0x6ae0), FdWindow { first: 960, len: 64 });
        let program = program.unwrap();
        let (give, take) = mpsc::channel();
        let guest = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            give.send(install(&program).unwrap()).unwrap();
        });
        Listener::receive_from(take.recv().unwrap().into()).unwrap();
        guest.join().unwrap();
    }

    #[test]
    fn who_waits_when_a_listener_hangs_up_is_let_go() {
        let program =
            filter::program::<Native>(AddrWindow::at(0x6ae0), FdWindow { first: 960, len: 64 });
        let program = program.unwrap();
        let (give, take) = mpsc::channel();
        let caller = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            give.send(install(&program).unwrap()).unwrap();
            let request = || {
                // SAFETY: a descriptor that cannot be open; nothing is read or written.
                let ret =
                    unsafe { libc::ioctl(-1, RDMA_VERBS_IOCTL.into(), std::ptr::null_mut::<u8>()) };
                check(ret.into()).unwrap_err().raw_os_error()
            };
            [request(), request()]
        });
        let listener = take.recv().unwrap();
        let waiting = listener.receive().unwrap();
        assert!(listener.is_valid(waiting.id));
        listener.hang_up(&[]).unwrap();
        assert_eq!(caller.join().unwrap(), [Some(libc::ENOSYS); 2]);
        assert!(!listener.is_valid(waiting.id));
    }
}
