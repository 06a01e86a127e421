//! The features of this kernel, as far as this process may use them: for `verbgate features`, and
//! for choices at the start.
//!
//! Each probe asks for the thing itself, with arguments that have no effect, rather than compare
//! version numbers: distributions backport, and containers forbid.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use nix::unistd::ForkResult;
use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;
use rustix::process::WaitId;
use rustix::process::WaitIdOptions;
use rustix::thread::CapabilitySet;

use super::child;
use super::landlock;
use super::mounts;
use crate::check;

const FILTER_FLAG_NEW_LISTENER: libc::c_ulong = 1 << 3;
const FILTER_FLAG_WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;
const NOTIF_ADDFD: libc::c_ulong = 0x4018_2103;
const NOTIF_SET_FLAGS: libc::c_ulong = 0x4008_2104;
const SYNC_WAKE_UP: libc::c_ulong = 1;
const ADDFD_SETFD_AND_SEND: u32 = 3;
const ALLOW: u32 = 0x7fff_0000;
const RET_K: u16 = 0x06;
/// mseal(2), the same on all architectures.
const SYS_MSEAL: libc::c_long = 462;

/// Whether the caller has CAP_SYS_ADMIN in its user namespace.
#[must_use]
pub fn is_privileged() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Kernel release and machine, e.g. `("6.12.9-amd64", "x86_64")`.
#[must_use]
pub fn kernel() -> (String, String) {
    let uname = rustix::system::uname();
    let text = |s: &CStr| s.to_string_lossy().into_owned();
    (text(uname.release()), text(uname.machine()))
}

/// `SECCOMP_RET_USER_NOTIF` (5.0).
#[must_use]
pub fn user_notification() -> bool {
    let action = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: the argument is a pointer to a 32-bit action, which lives through the call.
    let ret = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    ret == 0
}

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (5.19).
#[must_use]
pub fn wait_killable() -> bool {
    let flags = FILTER_FLAG_NEW_LISTENER | FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the kernel refuses the null program with EFAULT, after it has accepted the flags.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::null::<libc::sock_fprog>(),
        )
    };
    failed_with(ret, libc::EFAULT)
}

/// What a listener can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListenerFeatures {
    /// A filter with a listener can be installed here: no outer one has a listener already.
    pub install: bool,
    /// `SECCOMP_IOCTL_NOTIF_ADDFD` (5.9) with `SETFD` and `SEND` (5.14).
    pub add_fd: bool,
    /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (6.6).
    pub sync_wake_up: bool,
}

/// Installs a filter that allows everything, in a thread that ends with the probe.
#[must_use]
pub fn listener() -> ListenerFeatures {
    std::thread::spawn(probe_listener).join().unwrap_or_default()
}

fn probe_listener() -> ListenerFeatures {
    /// `struct seccomp_notif_addfd`.
    #[repr(C)]
    struct AddFd {
        id: u64,
        flags: u32,
        srcfd: i32,
        newfd: u32,
        newfd_flags: u32,
    }
    let Ok(fd) = allow_everything() else {
        return ListenerFeatures::default();
    };
    let add = AddFd { id: 0, flags: ADDFD_SETFD_AND_SEND, srcfd: -1, newfd: 0, newfd_flags: 0 };
    // SAFETY: `add` lives through the call; its descriptor is refused after its flags are accepted.
    let ret = unsafe { libc::ioctl(fd.as_raw_fd(), NOTIF_ADDFD, &raw const add) };
    let add_fd = failed_with(ret.into(), libc::EBADF);
    // SAFETY: the argument of this ioctl is a plain number.
    let ret = unsafe { libc::ioctl(fd.as_raw_fd(), NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    ListenerFeatures { install: true, add_fd, sync_wake_up: ret == 0 }
}

fn allow_everything() -> io::Result<OwnedFd> {
    // Of this thread only.
    rustix::thread::set_no_new_privs(true)?;
    let program = [libc::sock_filter { code: RET_K, jt: 0, jf: 0, k: ALLOW }];
    let fprog = libc::sock_fprog { len: 1, filter: program.as_ptr().cast_mut() };
    // SAFETY: one instruction, which lives through the call; the kernel copies it.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            FILTER_FLAG_NEW_LISTENER,
            &raw const fprog,
        )
    })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// mseal(2) (6.10).
#[must_use]
pub fn mseal() -> bool {
    // SAFETY: no flag is defined, so the kernel refuses this with EINVAL and seals nothing.
    let ret = unsafe { libc::syscall(SYS_MSEAL, 0usize, 0usize, usize::MAX) };
    failed_with(ret, libc::EINVAL)
}

/// kcmp(2): whether two descriptors are one file.
#[must_use]
pub fn kcmp() -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let (Ok((fd, _other)), file) = (rustix::pipe::pipe(), KCMP_FILE) else {
        return false;
    };
    // SAFETY: all arguments are plain numbers.
    let ret =
        unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, file, fd.as_raw_fd(), fd.as_raw_fd()) };
    ret == 0
}

/// pidfd_getfd(2) (5.6).
#[must_use]
pub fn pidfd_getfd() -> bool {
    // SAFETY: all arguments are plain numbers; the first is no descriptor.
    let ret = unsafe { libc::syscall(libc::SYS_pidfd_getfd, -1, -1, 0) };
    failed_with(ret, libc::EBADF)
}

/// mount_setattr(2) (5.12).
#[must_use]
pub fn mount_setattr() -> bool {
    // SAFETY: the kernel refuses the size 0 with EINVAL before it looks at a pointer.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            -1,
            c"".as_ptr(),
            0,
            std::ptr::null::<libc::mount_attr>(),
            0usize,
        )
    };
    failed_with(ret, libc::EINVAL)
}

/// Why the caller cannot use FUSE; the guest's `/sys` is then the host's.
///
/// # Errors
/// The errno of opening `/dev/fuse`, in words.
pub fn fuse() -> Result<(), String> {
    super::sysfs::open_fuse().map(drop)
}

/// Landlock's ABI version; `None` where it is absent or switched off.
#[must_use]
pub fn landlock_abi() -> Option<u32> {
    landlock::abi()
}

/// The Landlock ABI from which `run` uses it.
pub const LANDLOCK_LEAST: u32 = landlock::LEAST_ABI;

/// Sealed memory that stays writable to the one who mapped it first (5.1).
#[must_use]
pub fn future_write_seal() -> bool {
    rustix::fs::memfd_create(c"verbgate-probe", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .and_then(|fd| rustix::fs::fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE))
        .is_ok()
}

/// Whether an unprivileged sandbox can be made: a user namespace whose mounts may be changed.
///
/// # Errors
/// The step that failed, with its remedy. Also when other threads run, since it forks.
pub fn user_namespace() -> Result<(), String> {
    if std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count) != 1 {
        return Err("not probed: other threads run".to_owned());
    }
    let (ours, theirs) = super::handoff::pair().map_err(|errno| errno.to_string())?;
    // SAFETY: the process has one thread (checked above), and the child ends in `_exit`.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => {
            use std::os::fd::AsFd;
            if let Err(error) = child::enter_user_namespace().and_then(|()| mounts::seal()) {
                super::handoff::failed(theirs.as_fd(), &error.to_string());
            }
            // SAFETY: ends the process without the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        Ok(ForkResult::Parent { child }) => {
            use std::os::fd::AsFd;
            drop(theirs);
            let said = super::handoff::receive(ours.as_fd());
            if let Some(pid) = rustix::process::Pid::from_raw(child.as_raw()) {
                let _ = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            }
            match said {
                Ok(super::handoff::FromChild::Failed(text)) => Err(text),
                Ok(_) => Ok(()),
                Err(errno) => Err(errno.to_string()),
            }
        }
        Err(errno) => Err(errno.to_string()),
    }
}

fn failed_with(ret: libc::c_long, errno: i32) -> bool {
    ret == -1 && io::Error::last_os_error().raw_os_error() == Some(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_leave_this_thread_as_it_was() {
        let before = rustix::thread::no_new_privs().unwrap();
        let _ = listener();
        assert_eq!(rustix::thread::no_new_privs().unwrap(), before);
    }

    #[test]
    fn a_filter_flag_of_the_future_is_not_taken_for_supported() {
        // The probes must tell EFAULT from EINVAL: the null program is never installed.
        let _ = wait_killable();
        assert!(!kernel().0.is_empty());
    }
}
