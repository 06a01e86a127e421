//! Helper processes that make one call at a time which may wait for a guest: that read guests' memory which is not at
//! hand, and links that a guest may serve.
//!
//! Such a process shares the supervisor's memory, as a thread does, but the supervisor's end does not
//! wait for that process. A copy of the supervisor's memory would take 350 KiB of page tables for each
//! read, which the kernel frees when all processors have had a break: a guest of 60 threads had the
//! supervisor copied faster than that on a busy machine, until the supervisor's control group was full.

use std::ffi::CString;
use std::ffi::c_int;
use std::ffi::c_long;
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use memmap2::MmapMut;
use rustix::thread::futex;

use crate::Tid;
use crate::check;
use crate::mem;
use crate::mem::Range;
use crate::resident::call::call;
use crate::share::Share;

/// How often it is looked whether anybody still waits for a read.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long a process is tried to be started where the limit of processes is reached: by guests of
/// the same user, perhaps, whom this must not let refuse others.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a read is tried when its reader is killed by somebody else, or by the end of the thread that
/// started that reader.
const TRIES: usize = 3;
/// How long a reader waits for the next read.
const IDLE: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };
/// What a reader takes of its stack is some hundred bytes, and more in a debug build.
const STACK: usize = 64 << 10;

/// Readers without work, and those that had not ended when nobody waited for them any more.
static READERS: Mutex<Readers> = Mutex::new(Readers { free: Vec::new(), left: Vec::new() });

struct Readers {
    free: Vec<Reader>,
    left: Vec<Reader>,
}

impl Readers {
    /// Takes note of the ends of those that are left behind.
    fn reap(&mut self) {
        self.left.retain(|reader| !reader.has_ended(0));
    }
}

fn readers() -> MutexGuard<'static, Readers> {
    READERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads memory of a thread by its number, in a process of its own, as long as somebody waits for
/// that.
///
/// # Errors
/// process_vm_readv(2)'s and clone(2)'s; `EINTR`: nobody waits any more.
pub(crate) fn read_elsewhere(
    tid: Tid,
    from: &[Range],
    into: &mut [u8],
    share: &Arc<Share>,
    waits: impl Fn() -> bool,
) -> io::Result<usize> {
    let data = made_elsewhere(share, &waits, || {
        mem::remote(from).map(|from| ReadJob::memory(tid, from, into.len()))
    })?;
    for (to, from) in into.iter_mut().zip(&data) {
        *to = *from;
    }
    Ok(data.len())
}

/// Reads a symbolic link in a process of its own, as long as somebody waits for that.
///
/// # Errors
/// readlink(2)'s and clone(2)'s; `EINTR`: nobody waits any more.
pub(crate) fn link_elsewhere(
    path: CString,
    share: &Arc<Share>,
    waits: impl Fn() -> bool,
) -> io::Result<Vec<u8>> {
    made_elsewhere(share, &waits, || Ok(ReadJob::link(path.clone())))
}

fn made_elsewhere(
    share: &Arc<Share>,
    waits: &impl Fn() -> bool,
    job: impl Fn() -> io::Result<ReadJob>,
) -> io::Result<Vec<u8>> {
    for _ in 0..TRIES {
        let mut reader = Reader::free_or_new()?;
        reader.share = Some(Arc::clone(share));
        if let Some(read) = reader.read(job()?, waits) {
            return read;
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINTR))
}

/// Takes note of the end of readers.
pub fn reap() {
    let mut readers = readers();
    readers.free.retain(|reader| !reader.has_ended(0));
    readers.reap();
}

/// Ends readers without work, which would keep the supervisor's control group from being removed for so long.
pub fn dismiss() {
    let free = std::mem::take(&mut readers().free);
    free.iter().for_each(Reader::kill);
    free.into_iter().for_each(Reader::leave);
}

/// A call that reads: the supervisor's, but while the reader has it ([`BUSY`]).
struct ReadJob {
    nr: c_long,
    args: [usize; 6],
    /// The bytes that the call reads.
    data: Vec<u8>,
    /// The result of the call: bytes, or an errno below zero.
    result: c_long,
    /// Kept because the arguments point there.
    _vectors: Vec<libc::iovec>,
    _path: Option<CString>,
}

impl ReadJob {
    fn memory(tid: Tid, from: Vec<libc::iovec>, len: usize) -> Self {
        let mut data = vec![0_u8; len];
        let count = from.len();
        let mut vectors = from;
        vectors.push(libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: len });
        let from = vectors.as_ptr();
        let to = from.wrapping_add(count);
        let [from, to] = [from, to].map(<*const _>::expose_provenance);
        let args = [tid.0.cast_unsigned() as usize, to, 1, from, count, 0];
        Self {
            nr: libc::SYS_process_vm_readv,
            args,
            data,
            result: 0,
            _vectors: vectors,
            _path: None,
        }
    }

    fn link(path: CString) -> Self {
        let mut data = vec![0_u8; libc::PATH_MAX as usize];
        let to = data.as_mut_ptr().expose_provenance();
        let args = [
            libc::AT_FDCWD.cast_unsigned() as usize,
            path.as_ptr().expose_provenance(),
            to,
            data.len(),
            0,
            0,
        ];
        Self {
            nr: libc::SYS_readlinkat,
            args,
            data,
            result: 0,
            _vectors: Vec::new(),
            _path: Some(path),
        }
    }

    fn done(mut self) -> io::Result<Vec<u8>> {
        match usize::try_from(self.result) {
            Ok(n) => {
                self.data.truncate(n);
                Ok(self.data)
            }
            Err(_) => Err(io::Error::from_raw_os_error(
                i32::try_from(self.result.wrapping_neg()).unwrap_or(libc::EIO),
            )),
        }
    }
}

/// Waits for a job; it may end.
const FREE: u32 = 0;
/// Has a job.
const BUSY: u32 = 1;
/// Has done its job, and waits.
const DONE: u32 = 2;
/// Ends.
const OVER: u32 = 3;

/// What a reader shares with those who have it read.
struct Mailbox {
    state: AtomicU32,
    job: AtomicPtr<ReadJob>,
    /// The number of the supervisor's process.
    parent: u32,
}

/// A process that reads.
struct Reader {
    pidfd: OwnedFd,
    shared: ManuallyDrop<Box<Mailbox>>,
    /// It runs on this.
    stack: ManuallyDrop<MmapMut>,
    /// The share of the wait, until the read is done, or the reader has ended.
    share: Option<Arc<Share>>,
}

impl Reader {
    /// One that has no work; nobody else has it.
    fn free_or_new() -> io::Result<Self> {
        let free = || readers().free.pop();
        while let Some(reader) = free() {
            // One that ends still has its stack.
            if reader.has_ended(0) {
                continue;
            }
            if reader.take() {
                return Ok(reader);
            }
            reader.leave();
        }
        let begun = Instant::now();
        loop {
            match Self::start() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                other => return other,
            }
        }
    }

    /// Whether it will wait for a job.
    fn take(&self) -> bool {
        let state = &self.shared.state;
        state.compare_exchange(FREE, DONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn start() -> io::Result<Self> {
        let (state, job) = (AtomicU32::new(DONE), AtomicPtr::new(ptr::null_mut()));
        let shared = Box::new(Mailbox { state, job, parent: std::process::id() });
        let mut stack = MmapMut::map_anon(STACK)?;
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let mut pidfd: c_int = -1;
        // No signal at its end: those who wait for other children of this process do not see it. Its
        // descriptors are the supervisor's until it leaves them: a copy would have the end of the
        // copy close files, which can wait for the file system of a guest.
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD;
        let arg = ptr::from_ref(&*shared).cast_mut().cast::<c_void>();
        let none = ptr::null_mut::<c_void>();
        // It must not run this process's handlers, which count on their thread's own data.
        let signals = Blocked::all()?;
        // SAFETY: `work` runs on a stack and with data that are kept until the process has ended, makes
        // system calls alone, and touches no data of a thread's own; a descriptor is stored in `pidfd`.
        let pid = unsafe { libc::clone(work, top, flags, arg, &raw mut pidfd, none, none) };
        let started = check(pid.into());
        drop(signals);
        started?;
        // SAFETY: the kernel has just made this descriptor.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let (shared, stack) = (ManuallyDrop::new(shared), ManuallyDrop::new(stack));
        Ok(Self { pidfd, shared, stack, share: None })
    }

    /// Has it read; none when it ended before.
    fn read(mut self, job: ReadJob, waits: &impl Fn() -> bool) -> Option<io::Result<Vec<u8>>> {
        let interval = futex::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let state = &self.shared.state;
        self.shared.job.store(Box::into_raw(Box::new(job)), Ordering::Relaxed);
        state.store(BUSY, Ordering::Release);
        let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
        loop {
            // Woken, too late to wait, or the time is over: the state tells.
            let _ = futex::wait(state, futex::Flags::PRIVATE, BUSY, Some(&interval));
            if state.load(Ordering::Acquire) == DONE {
                break;
            }
            if self.has_ended(0) {
                return None;
            }
            if !waits() {
                self.kill();
                self.leave();
                return Some(Err(io::Error::from_raw_os_error(libc::EINTR)));
            }
        }
        let job = self.job()?;
        self.shared.state.store(FREE, Ordering::Release);
        self.share = None;
        readers().free.push(self);
        Some(job.done())
    }

    /// The job, which the reader must not have.
    fn job(&self) -> Option<Box<ReadJob>> {
        let job = self.shared.job.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: made by `Box::into_raw` in `read`; whoever swaps it out owns it.
        NonNull::new(job).map(|job| unsafe { Box::from_raw(job.as_ptr()) })
    }

    fn kill(&self) {
        let (fd, none) = (self.pidfd.as_raw_fd(), ptr::null::<libc::siginfo_t>());
        // SAFETY: plain numbers, and a null siginfo, which the call allows.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
    }

    /// Keeps what it runs on and works with until it has ended.
    fn leave(self) {
        let patience = c_int::try_from(INTERVAL.as_millis()).unwrap_or(c_int::MAX);
        if !self.has_ended(patience) {
            readers().left.push(self);
        }
    }

    /// Whether it has ended, which is taken note of; waits for that so many milliseconds.
    fn has_ended(&self, patience: c_int) -> bool {
        let mut fd = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one `struct pollfd`, which lives through the call.
        if unsafe { libc::poll(&raw mut fd, 1, patience) } != 1 {
            return false;
        }
        // SAFETY: all zeros are a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
        let id = self.pidfd.as_raw_fd().cast_unsigned();
        // SAFETY: `info` lives through the call. (ECHILD: somebody else has taken note of it.)
        unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, options) };
        drop(self.job());
        true
    }
}

impl Drop for Reader {
    /// Frees nothing under one that has not ended: whoever waited for it has panicked.
    fn drop(&mut self) {
        if !self.has_ended(0) {
            return self.kill();
        }
        // SAFETY: nobody uses it any more, and it is dropped nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.shared) };
        // SAFETY: the same.
        unsafe { ManuallyDrop::drop(&mut self.stack) };
    }
}

/// All signals are blocked in this thread, as long as this lives.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> io::Result<Self> {
        // SAFETY: all zeros are a valid sigset_t.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the same.
        let mut old: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `all` lives through the call.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: both live through the call.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) } {
            0 => Ok(Self(old)),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set lives through the call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut());
        }
    }
}

/// What a reader does. It has the memory of a thread that goes on meanwhile, that thread's own data
/// included: it may neither allocate nor lock, nor panic, nor set errno, and calls the kernel alone.
extern "C" fn work(shared: *mut c_void) -> c_int {
    // SAFETY: who started this keeps it until this process has ended.
    let shared = unsafe { &*shared.cast::<Mailbox>() };
    // A table of its own with nothing in it: one that stays behind must not keep the listener open,
    // by whose end guests are told that nobody answers them.
    let unshare = [0, u32::MAX as usize, libc::CLOSE_RANGE_UNSHARE as usize, 0, 0, 0];
    // SAFETY: plain numbers; the parent's table stays as it is.
    if unsafe { call(libc::SYS_close_range, unshare) } != 0 {
        return 1;
    }
    let death = [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0, 0];
    // SAFETY: plain numbers.
    unsafe { call(libc::SYS_prctl, death) };
    // SAFETY: takes no argument.
    if u32::try_from(unsafe { call(libc::SYS_getppid, [0; 6]) }) != Ok(shared.parent) {
        return 1;
    }
    let name = [libc::PR_SET_NAME as usize, c"verbgate-read".as_ptr().addr(), 0, 0, 0, 0];
    // SAFETY: the name is a C string.
    unsafe { call(libc::SYS_prctl, name) };
    let word = ptr::from_ref(&shared.state).addr();
    let idle = ptr::from_ref(&IDLE).addr();
    loop {
        let state = shared.state.load(Ordering::Acquire);
        if state != BUSY {
            let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
            let wait = [word, wait, state as usize, idle, 0, 0];
            // SAFETY: the word and the time live as long as this process.
            let waited = unsafe { call(libc::SYS_futex, wait) };
            let none = (Ordering::AcqRel, Ordering::Acquire);
            if waited == -c_long::from(libc::ETIMEDOUT)
                && shared.state.compare_exchange(FREE, OVER, none.0, none.1).is_ok()
            {
                return 0;
            }
            continue;
        }
        // SAFETY: whoever made this busy has given the job, and leaves it alone until this is done.
        let job = unsafe { &mut *shared.job.load(Ordering::Relaxed) };
        // SAFETY: what the arguments point to is the job's own, and lives as long as the job; what is read of
        // another process, the kernel checks.
        job.result = unsafe { call(job.nr, job.args) };
        shared.state.store(DONE, Ordering::Release);
        let wake = [word, (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize, 1, 0, 0, 0];
        // SAFETY: the word lives as long as this process.
        unsafe { call(libc::SYS_futex, wake) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The readers of this process that have not ended.
    fn alive() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let children =
            tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<String> = children
            .flat_map(|all| all.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let is_reader = |pid: &&String| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.starts_with("Name:\tverbgate-read\n") && !status.contains("\nState:\tZ")
        };
        children.iter().filter(is_reader).count()
    }

    static SHARE: std::sync::LazyLock<Arc<Share>> = std::sync::LazyLock::new(Share::own);

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let from = [Range { addr: bytes.as_ptr().addr() as u64, len: bytes.len() }];
        let mut into = vec![0; bytes.len()];
        let me = Tid(std::process::id().cast_signed());
        let n = read_elsewhere(me, &from, &mut into, &SHARE, || true)?;
        into.truncate(n);
        Ok(into)
    }

    /// The number of a reader without work.
    fn free() -> Option<String> {
        let fd = readers().free.last()?.pidfd.as_raw_fd();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
        info.lines().find(|line| line.starts_with("Pid:")).map(str::to_owned)
    }

    #[test]
    fn one_reader_reads_twice() {
        // It may end in between, on a busy machine.
        assert!((0..100).any(|_| {
            read(&[1]).unwrap();
            let first = free();
            read(&[2]).unwrap();
            alive() > 0 && first.is_some() && first == free()
        }));
    }

    #[test]
    fn readers_are_used_again_and_end_when_there_is_nothing_to_read() {
        const THREADS: usize = 4;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for round in 0..500 {
                        let bytes = [thread, round].map(|n| u8::try_from(n % 251).unwrap());
                        assert_eq!(read(&bytes).unwrap(), bytes);
                        // SAFETY: plain numbers.
                        let closed = unsafe { libc::close(-1) };
                        let errno = io::Error::last_os_error().raw_os_error();
                        assert_eq!((closed, errno), (-1, Some(libc::EBADF)));
                    }
                });
            }
        });
        // Other tests read, too.
        assert!(alive() <= 2 * THREADS, "{} readers", alive());
        verbgate_wait::until("the readers' ends", || alive() == 0);
        reap();
    }

    #[test]
    fn a_panic_frees_nothing_under_a_reader() {
        let reader = Reader::free_or_new().unwrap();
        let at = ptr::from_ref(&**reader.shared).expose_provenance();
        let pidfd = reader.pidfd.try_clone().unwrap();
        // The job waits for ever.
        let (data, vectors) = (vec![7], Vec::new());
        let job = ReadJob {
            nr: libc::SYS_ppoll,
            args: [0; 6],
            data,
            result: 0,
            _vectors: vectors,
            _path: None,
        };
        let waits = || panic!("on purpose");
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            reader.read(job, &waits).is_none()
        }))
        .unwrap_err();
        let mut fd = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one `struct pollfd`, which lives through the call.
        assert_eq!(unsafe { libc::poll(&raw mut fd, 1, -1) }, 1, "it ends");
        // SAFETY: never freed.
        let shared = unsafe { &*ptr::with_exposed_provenance::<Mailbox>(at) };
        assert_eq!(shared.state.load(Ordering::Acquire), BUSY);
    }

    #[test]
    fn a_reader_that_is_killed_is_replaced() {
        let bytes = [7; 5];
        assert_eq!(read(&bytes).unwrap(), bytes);
        readers().free.iter().for_each(Reader::kill);
        assert_eq!(read(&bytes).unwrap(), bytes);
        dismiss();
        assert_eq!(read(&bytes).unwrap(), bytes);
    }
}
