//! What is to be started and how, and why that failed.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;

use super::sysfs::Sysfs;

/// Exit code of `run`: the program could not be prepared for.
pub const EXIT_OURS: u8 = 125;
/// Exit code of `run`: the program was found and could not be invoked.
pub const EXIT_NOT_INVOKED: u8 = 126;
/// Exit code of `run`: the program was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// A device as the guest shall see it in `/dev/infiniband`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceNode {
    /// Its name there, e.g. `uverbs0`.
    pub name: String,
    /// Major and minor number.
    pub rdev: (u32, u32),
    /// The node on the host: shown in its place where mknod(2) is not permitted.
    pub source: PathBuf,
}

/// What to start.
#[derive(Clone, Copy)]
pub struct Spawn<'a> {
    /// Program and arguments; the program is looked up in `PATH` as execvp(3) does, but a text
    /// file without `#!` is not given to a shell.
    pub argv: &'a [OsString],
    /// What `/dev/infiniband` shows.
    pub devices: &'a [DeviceNode],
    /// The network namespace to enter, e.g. `/run/netns/pod1`.
    pub netns: Option<&'a Path>,
    /// Of [`KEEPABLE_CAPABILITIES`](super::KEEPABLE_CAPABILITIES), what the guest keeps.
    pub keep: &'a [String],
    /// How many descriptors behind the standard streams the guest gets whatever they are.
    pub preserve_fds: u16,
    /// Who serves `/sys`; the guest sees the host's without.
    pub sysfs: Option<Sysfs<'a>>,
    /// Runs in the child and puts it under the filter; yields the listener.
    ///
    /// What it needs is to be computed before: the child should do no more than the call.
    pub install: &'a dyn Fn() -> io::Result<OwnedFd>,
}

impl std::fmt::Debug for Spawn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawn")
            .field("argv", &self.argv)
            .field("devices", &self.devices)
            .field("netns", &self.netns)
            .field("sysfs", &self.sysfs.is_some())
            .finish_non_exhaustive()
    }
}

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// fork(2) would leave the other threads' locks held in the child.
    #[error("this process has {0} threads already; start the sandbox before any thread")]
    Threads(usize),
    /// No program was given.
    #[error("there is no program to run; give one after --")]
    NoProgram,
    /// An argument or path that C cannot take.
    #[error("the argument {0:?} holds a NUL byte")]
    Nul(OsString),
    /// A way around the mount namespace.
    #[error(
        "{stream} is {what}, by which the program could open the devices of the host; \
         redirect {stream} to something else"
    )]
    Stream {
        /// Which standard stream.
        stream: &'static str,
        /// What it is connected to.
        what: &'static str,
    },
    /// A descriptor that shall be passed on cannot be.
    #[error("--preserve-fds: descriptor {number} {what}; pass fewer, or redirect the descriptor")]
    Preserved {
        /// Its number.
        number: i32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A call failed in the supervisor.
    #[error("cannot {what}: {source}")]
    Call {
        /// What was attempted.
        what: &'static str,
        /// The errno.
        r#source: io::Error,
    },
    /// A step failed in the child, which says what to do about it.
    #[error("{0}")]
    SetUp(String),
    /// The child died without a word.
    #[error(
        "the child ended while its sandbox was being prepared; see the kernel log (out of memory?)"
    )]
    Vanished,
    /// The program could not be executed.
    #[error("cannot run {}: {}", .program.display(), exec_hint(.source))]
    Exec {
        /// As it was given.
        program: OsString,
        /// execve(2)'s errno.
        r#source: io::Error,
    },
}

fn exec_hint(source: &io::Error) -> String {
    match source.raw_os_error() {
        Some(libc::ENOENT) => {
            "no such file here or in PATH, or the file's interpreter is missing".to_owned()
        }
        Some(libc::ENOEXEC) => {
            "neither a program of this architecture nor a script that begins with #!".to_owned()
        }
        Some(libc::EACCES) => "not an executable file, or not executable by you".to_owned(),
        _ => source.to_string(),
    }
}

impl Error {
    /// What `run` exits with, as container engines do.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exec { source, .. } => match source.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => EXIT_NOT_FOUND,
                _ => EXIT_NOT_INVOKED,
            },
            _ => EXIT_OURS,
        }
    }
}
