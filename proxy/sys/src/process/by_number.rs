//! What the kernel tells of whoever has a number now.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::time::Duration;

use crate::GuestFd;
use crate::Tgid;
use crate::Tid;
use crate::check;
use crate::control;
use crate::node;
use crate::node::MountId;

const KCMP_FILE: libc::c_long = 0;
const KCMP_VM: libc::c_long = 1;

/// Bytes of a file of `/proc` that one read usually gives whole.
const USUAL: usize = 4096;

/// A file of `/proc` that is one record (`single_open`, fs/seq_file.c), whole. Such files say no size, by which the standard
/// library would know how much to ask for, and each read costs: a read that leaves room is the last.
fn bytes(path: String) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut bytes = vec![0; USUAL];
    let mut len = 0;
    loop {
        match file.read(bytes.get_mut(len..).unwrap_or_default()) {
            Ok(read) => len += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if len < bytes.len() {
            break;
        }
        bytes.resize(2 * len, 0);
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// The same as text.
pub(crate) fn text(path: String) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

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
    const PARENT: usize = 1;
    stat(tid)?.number(PARENT).map(Tid)
}

/// The process that traces a thread, 0 for none.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn tracer(tid: Tid) -> io::Result<i32> {
    status_field(tid, "TracerPid:")
}

/// Processors that a thread may run on, as sched_setaffinity(2) takes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors(pub(crate) [u8; control::PROCESSORS_LEN as usize]);

/// The processors that a thread may run on.
///
/// # Errors
/// sched_getaffinity(2)'s: `EINVAL` where a machine has more than 2,048 processors.
pub fn processors(tid: Tid) -> io::Result<Processors> {
    let mut all = Processors([0; control::PROCESSORS_LEN as usize]);
    // SAFETY: the kernel writes no more than the length that it is told.
    check(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid.0, all.0.len(), all.0.as_mut_ptr())
    })?;
    Ok(all)
}

/// Whether a thread runs by a policy before which others wait.
#[must_use]
pub fn is_of_real_time(tid: Tid) -> bool {
    // SAFETY: reads no memory.
    let policy = unsafe { libc::sched_getscheduler(tid.0) };
    [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE]
        .contains(&(policy & !libc::SCHED_RESET_ON_FORK))
}

/// The ids of a thread in its pid namespaces, outermost first, from `NSpid`.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn ids(tid: Tid) -> io::Result<Vec<i32>> {
    ids_in(format!("/proc/{tid}/status"))
}

/// The same, from a file of `/proc` that has them.
pub(crate) fn ids_in(path: String) -> io::Result<Vec<i32>> {
    let text = text(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    Ok(line.split_whitespace().filter_map(|id| id.parse().ok()).collect())
}

/// How often the threads of a process are listed that makes and ends threads all the while.
const MOST_LISTINGS: u32 = 16;

/// The threads of a process, in the order of their numbers; some may have ended meanwhile.
///
/// The kernel ends a listing at a thread that ends during it, and goes on by position
/// (fs/proc/base.c, `next_tid` and `first_tid`), so that others are missing: a listing counts when the
/// folder has as many links, two more than threads, before and after.
///
/// # Errors
/// `ENOENT` or `ESRCH`: it is gone.
pub fn threads(tgid: Tgid) -> io::Result<Vec<Tid>> {
    let folder = format!("/proc/{tgid}/task");
    let links = || fs::metadata(&folder).map(|found| found.nlink());
    let mut found = BTreeSet::new();
    let mut before = links()?;
    for _ in 0..MOST_LISTINGS {
        let names = fs::read_dir(&folder)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect::<Vec<i32>>();
        let after = links()?;
        let all = names.len() as u64 + 2;
        found.extend(names);
        if all == before && all == after {
            break;
        }
        before = after;
    }
    Ok(found.into_iter().map(Tid).collect())
}

/// Sends a signal to a thread whose number is known to be its own.
///
/// # Errors
/// `ESRCH`: it is gone.
pub(crate) fn send(tid: Tid, signal: i32) -> io::Result<()> {
    let tgid = tgid(tid)?;
    // SAFETY: plain numbers.
    check(unsafe { libc::syscall(libc::SYS_tgkill, tgid.0, tid.0, signal) }).map(drop)
}

/// Whether a thread is ending, or gone. Whoever has no memory any more is.
pub(crate) fn is_ending(tid: Tid) -> bool {
    /// include/linux/sched.h.
    const PF_EXITING: u32 = 0x4;
    const FLAGS: usize = 6;
    let flags = stat(tid).and_then(|stat| stat.number::<u32>(FLAGS));
    flags.map_or(true, |flags| flags & PF_EXITING != 0)
}

/// Whether a thread shares its memory with its parent: a child between vfork(2) and execve(2).
///
/// # Errors
/// `ESRCH`: it is gone. kcmp(2)'s.
pub(crate) fn borrows_memory(tid: Tid) -> io::Result<bool> {
    let parent = parent(tid)?;
    // A parent that ends meanwhile leaves another with its number, at worst: then the answer
    // is about that one, which shares nothing.
    if same_memory(tid, parent)? {
        return Ok(true);
    }
    if !is_ending(parent) {
        return Ok(false);
    }
    // Its first thread has ended, and has no memory any more; its others may.
    let others = threads(Tgid(parent.0)).unwrap_or_default();
    Ok(others.into_iter().any(|other| same_memory(tid, other).unwrap_or(false)))
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
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn is_called_away(tid: Tid) -> io::Result<bool> {
    let status = text(format!("/proc/{tid}/status"))?;
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
    node::mount_at(rustix::fs::CWD, &format!("/proc/{tid}/fd/{fd}"))
}

fn status_field(tid: Tid, name: &str) -> io::Result<i32> {
    let status = text(format!("/proc/{tid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|v| v.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("no {name} in /proc/{tid}/status")))
}

/// The state letter of a thread (proc_pid_stat(5)): `Z` ended, `T` stopped, and so on.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn state(tid: Tid) -> io::Result<char> {
    stat(tid)?.field(0)?.chars().next().ok_or_else(short)
}

/// Whether a thread stands still at a debugger's will, or a freezer's, by its state and `/proc/TID/wchan`.
/// Freezers wait in `do_freezer_trap` (kernel/signal.c; inlined, `get_signal`) and in `__refrigerator`
/// (kernel/freezer.c); a sleeper in futex(2) freezes where it is.
///
/// # Errors
/// `ENOENT` or `ESRCH`: the thread is gone.
pub fn is_held(tid: Tid) -> io::Result<bool> {
    const FROZEN: [&str; 3] = ["do_freezer_trap", "get_signal", "__refrigerator"];
    let state = state(tid)?;
    if !"SD".contains(state) {
        return Ok(state == 't');
    }
    let place = text(format!("/proc/{tid}/wchan"))?;
    Ok(FROZEN.contains(&place.trim()) || state == 'D' && place.starts_with("futex_"))
}

/// How long a thread has been running or ready to run, and so has not waited:
/// Documentation/scheduler/sched-stats.rst.
///
/// # Errors
/// `ENOENT` or `ESRCH`: it has ended; or the kernel is without CONFIG_SCHED_INFO.
pub fn ran(tid: Tid) -> io::Result<Duration> {
    let stat = text(format!("/proc/{tid}/schedstat"))?;
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
    const STARTED: usize = 19;
    let stat = stat(tid)?;
    if ["Z", "X"].contains(&stat.field(0)?) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    stat.number(STARTED)
}

/// `/proc/TID/stat` from the state on, which is field 0 here: the kernel makes it in two thirds of the
/// time that `status` takes.
struct Stat(String);

fn stat(tid: Tid) -> io::Result<Stat> {
    let stat = bytes(format!("/proc/{tid}/stat"))?;
    // The name before the state may hold anything, parentheses included.
    let after = stat.iter().rposition(|b| *b == b')').and_then(|at| stat.get(at + 2..));
    let text = after.and_then(|after| std::str::from_utf8(after).ok()).ok_or_else(short)?;
    Ok(Stat(text.to_owned()))
}

fn short() -> io::Error {
    io::Error::other("short /proc/TID/stat")
}

impl Stat {
    fn field(&self, at: usize) -> io::Result<&str> {
        self.0.split(' ').nth(at).ok_or_else(short)
    }

    fn number<T: FromStr>(&self, at: usize) -> io::Result<T> {
        self.field(at)?.trim_end().parse().map_err(|_| short())
    }
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
