//! Identities: of a thread, and of the file that a descriptor means.
//!
//! A question by number is about the current holder of the number. Handles ([`Process`],
//! [`Thread`], [`PidFd`]) name one process or thread for ever; a guest's handles are made through a
//! [`Caller`](crate::caller::Caller).

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::GuestFd;
use crate::Tgid;
use crate::Tid;
use crate::check;
use crate::closer;
use crate::node;
use crate::node::MountId;

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

/// The network namespace of a thread.
///
/// # Errors
/// `ENOENT`: it is gone. `EPERM`.
pub(crate) fn network_of(tid: Tid) -> io::Result<fs::File> {
    fs::File::open(format!("/proc/{tid}/ns/net"))
}

/// Takes the calling thread into a network namespace.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN.
pub fn enter_network(network: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    if network.metadata()?.ino() == fs::metadata("/proc/thread-self/ns/net")?.ino() {
        return Ok(());
    }
    // SAFETY: the first argument is a descriptor that is open through the call, the second a
    // plain number.
    check(unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) }.into()).map(drop)
}

/// Whether a signal waits for a thread that it does not block, of its own or of its process, or
/// another thread has begun a stop of the process.
pub(crate) fn is_called_away(tid: Tid) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mask = |name: &str| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let [pending, shared, blocked] =
        ["SigPnd:", "ShdPnd:", "SigBlk:"].map(|name| mask(name).unwrap_or(0));
    if (pending | shared) & !blocked != 0 {
        return Ok(true);
    }
    let tgid = field("Tgid:").and_then(|id| id.parse().ok()).map_or(Tgid(tid.0), Tgid);
    // Of all other threads any will do; the first one usually is another.
    let stopped = |tid: Tid| state(tid).is_ok_and(|state| state == 'T');
    Ok(if tid.0 == tgid.0 {
        threads(tgid).unwrap_or_default().into_iter().any(stopped)
    } else {
        stopped(Tid(tgid.0))
    })
}

/// The kernel's name for what a descriptor means, proc_pid_fd(5): the file system is not asked.
pub(crate) fn descriptor_name(tid: Tid, fd: GuestFd) -> io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    fs::read_link(format!("/proc/{tid}/fd/{fd}"))
        .map(|name| name.into_os_string().into_vec())
        .map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => e,
            _ => io::Error::from_raw_os_error(libc::EBADF),
        })
}

/// The mount that a descriptor's file was opened through.
pub(crate) fn descriptor_mount(tid: Tid, fd: GuestFd) -> io::Result<MountId> {
    node::mount_at(&format!("/proc/{tid}/fd/{fd}"))
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

/// How long a thread has been running or ready to run, and so has not waited:
/// Documentation/scheduler/sched-stats.rst.
///
/// # Errors
/// `ENOENT` or `ESRCH`: it has ended; or the kernel is without CONFIG_SCHED_INFO.
pub fn ran(tid: Tid) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{tid}/schedstat"))?;
    let times = stat.split_whitespace().take(2).map(str::parse::<u64>);
    let nanoseconds = times.sum::<Result<u64, _>>().map_err(io::Error::other)?;
    Ok(Duration::from_nanos(nanoseconds))
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
pub(crate) fn same_file(a: (Tid, GuestFd), b: (Tid, GuestFd)) -> io::Result<bool> {
    kcmp(a.0, b.0, KCMP_FILE, a.1.0.into(), b.1.0.into())
}

/// Whether two threads share their memory.
///
/// # Errors
/// `ESRCH`: one is gone. `EPERM`, and `ENOSYS` without CONFIG_KCMP.
pub(crate) fn same_memory(a: Tid, b: Tid) -> io::Result<bool> {
    kcmp(a, b, KCMP_VM, 0, 0)
}

/// A process, whatever becomes of its number.
#[derive(Debug)]
pub struct Process {
    tgid: Tgid,
    pidfd: PidFd,
}

impl Process {
    /// The process that has this number now.
    ///
    /// # Errors
    /// `ESRCH`: there is none.
    pub fn open(tgid: Tgid) -> io::Result<Self> {
        Ok(Self { tgid, pidfd: PidFd::open(tgid)? })
    }

    /// Its number, which is its own until it has ended ([`Process::has_ended`]).
    #[must_use]
    pub fn tgid(&self) -> Tgid {
        self.tgid
    }

    /// Whether it has ended: all its threads.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.pidfd.has_ended()
    }

    /// Ends it.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn kill(&self) -> io::Result<()> {
        self.pidfd.signal(libc::SIGKILL)
    }

    /// What has been found out by its number, if that was its own all the while.
    fn believed<T>(&self, found: io::Result<T>) -> io::Result<T> {
        if self.has_ended() { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { found }
    }

    /// The state letter of its first thread, proc_pid_stat(5).
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn state(&self) -> io::Result<char> {
        self.believed(state(Tid(self.tgid.0)))
    }

    /// Its network namespace.
    ///
    /// # Errors
    /// `ESRCH`: it has ended. `EPERM`.
    pub fn network(&self) -> io::Result<fs::File> {
        self.believed(network_of(Tid(self.tgid.0)))
    }

    /// Whether none of its threads is left but stubs, and the first one, which has ended.
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn is_only(&self, stubs: &[&Thread]) -> io::Result<bool> {
        let threads = self.believed(threads(self.tgid))?;
        let is_stub = |tid: &Tid| stubs.iter().any(|stub| stub.tid() == *tid && stub.is_alive());
        Ok(threads.iter().all(|tid| tid.0 == self.tgid.0 || is_stub(tid)))
    }
}

/// A thread, whatever becomes of its number.
#[derive(Debug)]
pub struct Thread {
    tid: Tid,
    pin: Pin,
    /// Its number in every pid namespace in which it is visible, outermost first.
    ids: Vec<i32>,
}

#[derive(Debug)]
enum Pin {
    /// `PIDFD_THREAD`, Linux 6.9.
    PidFd(PidFd),
    /// Its folder in `/proc`, which is empty once it is gone.
    Folder(OwnedFd),
}

impl Thread {
    /// The thread of this number, which cannot become another's meanwhile: it is being traced.
    pub(crate) fn of_traced(tid: Tid) -> io::Result<Self> {
        // SAFETY: both arguments are plain numbers.
        let made = check(unsafe { libc::syscall(libc::SYS_pidfd_open, tid.0, PIDFD_THREAD) });
        let pin = match made {
            Ok(fd) => Pin::PidFd(PidFd::made(fd)?),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let path = format!("/proc/{tid}");
                Pin::Folder(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
            }
            Err(e) => return Err(e),
        };
        let ids = ids(tid).unwrap_or_else(|_| vec![tid.0]);
        Ok(Self { tid, pin, ids })
    }

    /// Its number, which is its own as long as it lives ([`Thread::is_alive`]).
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        crate::count_call();
        match &self.pin {
            Pin::PidFd(fd) => !fd.has_ended(),
            Pin::Folder(folder) => {
                rustix::fs::statat(folder, c"stat", rustix::fs::AtFlags::empty()).is_ok()
            }
        }
    }

    /// Whether a debugger may mean it by this number, in whatever pid namespace.
    #[must_use]
    pub fn may_be_called(&self, id: i32) -> bool {
        self.ids.contains(&id) && self.is_alive()
    }

    /// Its state letter, proc_pid_stat(5).
    ///
    /// # Errors
    /// `ESRCH`: it has ended.
    pub fn state(&self) -> io::Result<char> {
        let found = state(self.tid);
        if self.is_alive() { found } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }
}

/// `PIDFD_THREAD`, include/uapi/linux/pidfd.h.
const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

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
        Self::made(fd)
    }

    /// A descriptor for one thread, where the kernel has such (6.9 and later): its descriptor
    /// table may be its own. For the process of its group otherwise.
    pub(crate) fn of_thread(tid: Tid) -> io::Result<Self> {
        // SAFETY: both arguments are plain numbers.
        match check(unsafe { libc::syscall(libc::SYS_pidfd_open, tid.0, PIDFD_THREAD) }) {
            Ok(fd) => Self::made(fd),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Self::open(tgid(tid)?),
            Err(e) => Err(e),
        }
    }

    fn made(fd: libc::c_long) -> io::Result<Self> {
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
        log::debug!("cannot raise RLIMIT_NOFILE: {e}");
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

/// Kills every thread of the process that a traced thread belongs to, whose number is its own until
/// its tracer takes note of its end.
pub(crate) fn kill_traced(tgid: Tgid) -> io::Result<()> {
    // SAFETY: both arguments are plain numbers.
    check(unsafe { libc::kill(tgid.0, libc::SIGKILL) }.into()).map(drop)
}

/// A file that a guest has opened.
///
/// Closing it can wait for the guest (close(2) asks a file system to flush, and the guest may serve
/// that), so that a thread of its own does it.
#[derive(Debug)]
pub struct GuestFile(Option<OwnedFd>);

impl From<OwnedFd> for GuestFile {
    fn from(file: OwnedFd) -> Self {
        Self(Some(file))
    }
}

impl GuestFile {
    /// The name by which the kernel shows it: no file system is asked.
    #[must_use]
    pub fn name(&self) -> Option<Vec<u8>> {
        let me = Tid(std::process::id().cast_signed());
        descriptor_name(me, GuestFd(self.0.as_ref()?.as_raw_fd())).ok()
    }

    /// The mount that it was opened through.
    ///
    /// # Errors
    /// statx(2)'s.
    pub fn mount(&self) -> io::Result<MountId> {
        let file = self.0.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        node::mount_id(file.as_fd())
    }

    /// The file, when it is known to be none of the guest's making.
    #[must_use]
    pub fn known(mut self) -> Option<OwnedFd> {
        self.0.take()
    }

    /// The file.
    #[must_use]
    pub fn get(&self) -> Option<&OwnedFd> {
        self.0.as_ref()
    }
}

impl Drop for GuestFile {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            closer::close(file);
        }
    }
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
