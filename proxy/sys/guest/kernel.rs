//! System calls as a hostile program makes them: by number, with whatever arguments.

use std::fmt;
use std::fs;
use std::io;

use libc::c_int;
use libc::c_long;

/// Makes a system call.
///
/// Addresses among the arguments are of memory that the caller keeps for it, or meant to fail.
pub(crate) fn call(nr: c_long, args: &[u64]) -> io::Result<u64> {
    let at = |place: usize| args.get(place).copied().unwrap_or(0);
    // SAFETY: the callers' affair, as said above. What it breaks is this test guest's own.
    let ret = unsafe { libc::syscall(nr, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if ret == -1 { Err(io::Error::last_os_error()) } else { Ok(ret.cast_unsigned()) }
}

/// A number of libc as an argument: sign-extended, as C does it.
pub(crate) fn int(n: c_int) -> u64 {
    i64::from(n).cast_unsigned()
}

/// The address of a value as an argument.
pub(crate) fn addr<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64
}

/// The same of a value that the call writes.
pub(crate) fn addr_mut<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>().expose_provenance() as u64
}

/// An error number by its name, or `ok`.
pub(crate) struct Outcome(Option<i32>);

impl<T> From<&io::Result<T>> for Outcome {
    fn from(result: &io::Result<T>) -> Self {
        Self(result.as_ref().err().map(|e| e.raw_os_error().unwrap_or(0)))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(errno) = self.0 else { return f.write_str("ok") };
        let name = match errno {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::ESRCH => "ESRCH",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::ENXIO => "ENXIO",
            libc::EBADF => "EBADF",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::EBUSY => "EBUSY",
            libc::EEXIST => "EEXIST",
            libc::EINVAL => "EINVAL",
            libc::EMFILE => "EMFILE",
            libc::ENOTTY => "ENOTTY",
            libc::ENOSPC => "ENOSPC",
            libc::EBADFD => "EBADFD",
            libc::ENOSYS => "ENOSYS",
            libc::ENODATA => "ENODATA",
            libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            other => return write!(f, "errno{other}"),
        };
        f.write_str(name)
    }
}

/// How a call ended, by name.
pub(crate) fn outcome<T>(result: &io::Result<T>) -> Outcome {
    result.into()
}

/// Prints a line that a test looks for.
pub(crate) fn say<T>(name: &str, result: &io::Result<T>) {
    println!("{name}: {}", outcome(result));
}

/// A child of this process.
pub(crate) struct Child(pub(crate) libc::pid_t);

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Forks; the child runs `child` and exits with the code that it returns.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> io::Result<Child> {
    // SAFETY: the child is a copy; where this process has threads, it calls nothing that another
    // of them could have been in the middle of.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = child();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(Child(pid)),
    }
}

impl Child {
    /// Waits for its end.
    pub(crate) fn wait(&self) -> io::Result<End> {
        let mut status = 0;
        // SAFETY: `status` is an int that lives through the call.
        let got = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(if libc::WIFEXITED(status) {
            End::Code(libc::WEXITSTATUS(status))
        } else {
            End::Signal(libc::WTERMSIG(status))
        })
    }

    /// Waits until a stop signal has stopped all of it.
    pub(crate) fn wait_stopped(&self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: `status` is an int that lives through the call.
        let got = unsafe { libc::waitpid(self.0, &raw mut status, libc::WUNTRACED) };
        if got == self.0 && libc::WIFSTOPPED(status) {
            Ok(())
        } else {
            Err(io::Error::other(format!("no stop: {got} {status:#x}")))
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: c_int) {
        // SAFETY: both arguments are plain numbers.
        unsafe { libc::kill(self.0, signal) };
    }
}

/// A pipe: what is read, and what is written.
pub(crate) fn pipe() -> io::Result<(io::PipeReader, io::PipeWriter)> {
    io::pipe()
}

/// Makes one descriptor number mean the file of another.
pub(crate) fn dup2(from: c_int, to: c_int) -> io::Result<c_int> {
    // SAFETY: both arguments are plain numbers; what `to` meant is the caller's to know.
    let ret = unsafe { libc::dup2(from, to) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(ret) }
}

/// Ids of this process's threads.
pub(crate) fn threads() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut ids: Vec<i32> =
        entries.filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok())).collect();
    ids.sort_unstable();
    ids
}

/// The calling thread's id.
pub(crate) fn gettid() -> i32 {
    // SAFETY: takes no argument.
    unsafe { libc::gettid() }
}

/// The parent's id: the supervisor's, for the main process.
pub(crate) fn getppid() -> i32 {
    // SAFETY: takes no argument.
    unsafe { libc::getppid() }
}

/// A mapping of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// The mappings whose name in `/proc/self/maps` contains `name`, by address.
pub(crate) fn mappings(name: &str) -> Vec<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let found = maps.lines().filter(|line| line.contains(name)).filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        Some(Mapping { start, len: u64::from_str_radix(end, 16).ok()? - start })
    });
    found.collect()
}

/// Memory of the caller's choosing.
pub(crate) fn mmap(at: u64, len: u64, prot: c_int, flags: c_int, fd: c_int) -> io::Result<u64> {
    call(libc::SYS_mmap, &[at, len, int(prot), int(flags), int(fd), 0])
}

/// Reads a word of this process's memory, whoever else writes it.
pub(crate) fn peek(at: u64) -> u64 {
    let at = std::ptr::with_exposed_provenance::<u64>(usize::try_from(at).unwrap_or(0));
    // SAFETY: the caller has found the address mapped and readable; it is a whole number of words.
    unsafe { at.read_volatile() }
}

/// Writes a word of this process's memory, whoever else reads it.
pub(crate) fn poke(at: u64, word: u64) {
    let at = std::ptr::with_exposed_provenance_mut::<u64>(usize::try_from(at).unwrap_or(0));
    // SAFETY: nothing of Rust lives at the address: it is the stub's memory, or a mapping made for
    // this; where it is not writable, the process is meant to die of it.
    unsafe { at.write_volatile(word) }
}
