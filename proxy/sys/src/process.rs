//! Who a thread is, and which file a descriptor means.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use crate::GuestFd;
use crate::Tgid;
use crate::Tid;
use crate::check;

const KCMP_FILE: libc::c_long = 0;
const KCMP_VM: libc::c_long = 1;

/// The thread group of a thread, from `/proc/TID/status`.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn tgid(tid: Tid) -> io::Result<Tgid> {
    status_field(tid, "Tgid:").map(Tgid)
}

/// The parent of a thread's process.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn parent(tid: Tid) -> io::Result<Tid> {
    status_field(tid, "PPid:").map(Tid)
}

/// The process that traces a thread, 0 for none.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn tracer(tid: Tid) -> io::Result<i32> {
    status_field(tid, "TracerPid:")
}

/// The ids of a thread in its pid namespaces, outermost first, from `NSpid`.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn ids(tid: Tid) -> io::Result<Vec<i32>> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    Ok(line.split_whitespace().filter_map(|id| id.parse().ok()).collect())
}

/// The threads of a process.
///
/// # Errors
/// `ENOENT` or `ESRCH`: it is gone.
pub fn threads(tgid: Tgid) -> io::Result<Vec<Tid>> {
    let entries = fs::read_dir(format!("/proc/{tgid}/task"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(names.map(Tid).collect())
}

/// The names of what is mapped in a range of a thread's addresses, from `/proc/TID/maps`: empty ones
/// for memory without a file.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone. `EPERM`.
pub fn mapped(tid: Tid, at: u64, len: u64) -> io::Result<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{tid}/maps"))?;
    let meets = |line: &&str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let number = |hex| u64::from_str_radix(hex, 16).ok();
        Some(number(start)? < at.saturating_add(len) && number(end)? > at)
    };
    let found = maps.lines().filter(|line| meets(line).unwrap_or(true));
    Ok(found.map(|line| line.split_whitespace().nth(5).unwrap_or_default().to_owned()).collect())
}

/// Takes the calling thread into the network namespace of another.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN; `ENOENT`: it is gone.
pub fn enter_network_of(tid: Tid) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let theirs = fs::File::open(format!("/proc/{tid}/ns/net"))?;
    if theirs.metadata()?.ino() == fs::metadata("/proc/thread-self/ns/net")?.ino() {
        return Ok(());
    }
    // SAFETY: the first argument is a descriptor that is open through the call, the second a
    // plain number.
    check(unsafe { libc::setns(theirs.as_raw_fd(), libc::CLONE_NEWNET) }.into()).map(drop)
}

/// Whether a signal waits for a thread, of its own or of its process, that it does not block.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn has_signal(tid: Tid) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    Ok((mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") != 0)
}

fn status_field(tid: Tid, name: &str) -> io::Result<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|v| v.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {name} in /proc/{tid}/status")))
}

/// The state letter of a thread (proc_pid_stat(5)): `Z` ended, `T` stopped, and so on.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn state(tid: Tid) -> io::Result<char> {
    let stat = fs::read(format!("/proc/{tid}/stat"))?;
    // The name before the state may hold anything, parentheses included.
    let after = stat.iter().rposition(|b| *b == b')').and_then(|at| stat.get(at + 2));
    after.map(|b| char::from(*b)).ok_or_else(|| io::Error::other("short /proc/TID/stat"))
}

/// When a thread that has not ended was started, in clock ticks since boot: with its id, it names
/// it for ever. proc_pid_stat(5).
///
/// # Errors
/// `ENOENT` or `ESRCH`: it has ended.
pub fn started(tid: Tid) -> io::Result<u64> {
    /// Fields after the name, from the state on.
    const STATE: usize = 0;
    const STARTED: usize = 19;
    let stat = fs::read(format!("/proc/{tid}/stat"))?;
    let after = stat.iter().rposition(|b| *b == b')').and_then(|at| stat.get(at + 2..));
    let text = after.and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default();
    let fields: Vec<&str> = text.split(' ').collect();
    if fields.get(STATE).is_some_and(|state| ["Z", "X"].contains(state)) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let started = fields.get(STARTED).and_then(|field| field.parse().ok());
    started.ok_or_else(|| io::Error::other("short /proc/TID/stat"))
}

fn kcmp(a: Tid, b: Tid, what: libc::c_long, x: i64, y: i64) -> io::Result<bool> {
    crate::count_call();
    // SAFETY: every argument is a plain number.
    let ret = unsafe { libc::syscall(libc::SYS_kcmp, a.0, b.0, what, x, y) };
    check(ret).map(|ret| ret == 0)
}

/// Whether two descriptors, each in the table of its thread, mean the same open file: kcmp(2).
///
/// # Errors
/// `EBADF`: one of them is not open. `EPERM`, `ESRCH`, and `ENOSYS` without CONFIG_KCMP.
pub fn same_file(a: (Tid, GuestFd), b: (Tid, GuestFd)) -> io::Result<bool> {
    kcmp(a.0, b.0, KCMP_FILE, a.1.0.into(), b.1.0.into())
}

/// Whether two threads share their memory.
///
/// # Errors
/// `ESRCH`: one is gone. `EPERM`, and `ENOSYS` without CONFIG_KCMP.
pub fn same_memory(a: Tid, b: Tid) -> io::Result<bool> {
    kcmp(a, b, KCMP_VM, 0, 0)
}

/// A descriptor for a process.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// pidfd_open(2).
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn open(tgid: Tgid) -> io::Result<Self> {
        // SAFETY: both arguments are plain numbers.
        let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, tgid.0, 0) })?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made this descriptor.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A descriptor for one thread, where the kernel has such (6.9 and later): its descriptor
    /// table may be its own. For the process of its group otherwise.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn open_thread(tid: Tid, tgid: Tgid) -> io::Result<Self> {
        // PIDFD_THREAD, include/uapi/linux/pidfd.h.
        let thread = libc::O_EXCL;
        // SAFETY: both arguments are plain numbers.
        match check(unsafe { libc::syscall(libc::SYS_pidfd_open, tid.0, thread) }) {
            // SAFETY: the kernel has just made this descriptor.
            Ok(fd) => Ok(Self(unsafe {
                OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?)
            })),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Self::open(tgid),
            Err(e) => Err(e),
        }
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

/// A number that nobody can guess.
///
/// # Errors
/// getrandom(2)'s, of which no kernel of today gives any.
pub fn unguessable() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: `bytes` is writable for its whole length.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(n) {
        Ok(n) if n == bytes.len() => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling process's soft limit of descriptor numbers (RLIMIT_NOFILE).
#[must_use]
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Gives the calling process all the descriptors that it may have.
pub fn raise_descriptor_limit() {
    let resource = rustix::process::Resource::Nofile;
    let mut limit = rustix::process::getrlimit(resource);
    limit.current = limit.maximum;
    if let Err(e) = rustix::process::setrlimit(resource, limit) {
        log::debug!("RLIMIT_NOFILE stays as it is: {e}");
    }
}

/// Closes the calling process's descriptors from this number on.
///
/// To be called before the process has opened any of its own: they would be closed behind the back
/// of whoever holds them.
///
/// # Errors
/// close_range(2)'s: `ENOSYS` before Linux 5.9.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: these descriptors were inherited, and nothing in this process holds one of them yet,
    // as the caller sees to.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) }).map(drop)
}

/// Kills every thread of the process that a thread belongs to.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn kill(tgid: Tgid) -> io::Result<()> {
    // SAFETY: both arguments are plain numbers.
    check(unsafe { libc::kill(tgid.0, libc::SIGKILL) }.into()).map(drop)
}

/// What a character device descriptor is: `(major, minor)`, or `None` for any other file.
///
/// # Errors
/// fstat(2)'s.
pub fn char_device(fd: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    let stat = rustix::fs::fstat(fd)?;
    let is_char =
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::CharacterDevice;
    Ok(is_char.then(|| (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn me() -> Tid {
        Tid(std::process::id().cast_signed())
    }

    #[test]
    fn a_thread_knows_its_group_state_and_tracer() {
        assert_eq!(tgid(me()).unwrap().0, me().0);
        assert!("RSDI".contains(state(me()).unwrap()));
        assert_eq!(tracer(me()).unwrap(), 0);
        assert!(tgid(Tid(i32::MAX)).is_err());
        assert!(started(me()).unwrap() >= started(Tid(1)).unwrap());
        assert!(started(Tid(i32::MAX)).is_err());
    }

    #[test]
    fn duplicates_are_the_same_file_and_second_opens_are_not() {
        let a = fs::File::open("/dev/null").unwrap();
        let b = a.try_clone().unwrap();
        let c = fs::File::open("/dev/null").unwrap();
        let at = |f: &fs::File| (me(), GuestFd(f.as_raw_fd()));
        assert!(same_file(at(&a), at(&b)).unwrap());
        assert!(!same_file(at(&a), at(&c)).unwrap());
        let closed = same_file(at(&a), (me(), GuestFd(9999))).unwrap_err();
        assert_eq!(closed.raw_os_error(), Some(libc::EBADF));
        assert!(same_memory(me(), me()).unwrap());
    }

    #[test]
    fn descriptors_are_fetched_and_recognised() {
        let null = fs::File::open("/dev/null").unwrap();
        let pidfd = PidFd::open(Tgid(me().0)).unwrap();
        let got = pidfd.get_fd(GuestFd(null.as_raw_fd())).unwrap();
        assert_eq!(char_device(got.as_fd()).unwrap(), Some((1, 3)));
        let dir = fs::File::open("/").unwrap();
        assert_eq!(char_device(dir.as_fd()).unwrap(), None);
    }
}
