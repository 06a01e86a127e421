//! The start of a program so that the raw RDMA devices are out of the program's reach.
//!
//! The program runs on the host's own file system, as the caller, in the caller's terminal. The
//! changes are those by which `docker run` would keep the program from a device node:
//!
//! - a mount namespace of its own, private in both directions, in which no mount but those of
//!   `/dev` honours device nodes (`mounts`), and `/dev/infiniband` shows the granted nodes
//!   without letting them be opened (`devices`);
//! - a Landlock domain, in which no character device can be made, nothing can be mounted, and no
//!   process outside can be looked into (`landlock`);
//! - a `/sys` that the supervisor serves, if the caller wants one (`sysfs`);
//! - without the capabilities that reach a device by another way (`caps`);
//! - under the caller's seccomp filter, whose listener goes to the supervisor (`handoff`).
//!
//! A caller with CAP_SYS_ADMIN keeps the caller's user namespace; anyone else gets a user namespace
//! with the same ids. Nothing here contains a hostile root in the other respects in which a
//! container does: root still writes the host's files.
//!
//! ```text
//! supervisor                        child
//! Job::begin  block signals
//! spawn       fork ───────────────▶ namespaces, mounts, Landlock, filter, capabilities
//!                  ◀── /dev/fuse ─
//!   (serve /sys)   ──── go ───────▶ mounts into /sys
//!                  ◀── listener ──
//!   (serve the listener)
//! Gate::exec       ──── go ───────▶ execve
//! Job::attend wait, pass signals on
//! ```

mod alone;
mod caps;
mod child;
pub mod container;
mod devices;
mod error;
mod handoff;
mod inherited;
mod job;
mod keep;
mod landlock;
pub(crate) mod mounts;
mod orphans;
pub mod probe;
mod raw;
mod spec;
mod sysfs;

use std::ffi::CString;
use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use nix::unistd::ForkResult;
use rustix::process::Pid;
use rustix::process::PidfdFlags;
use rustix::process::WaitId;
use rustix::process::WaitIdOptions;

pub use self::alone::leave_parent;
pub use self::caps::KEEPABLE as KEEPABLE_CAPABILITIES;
pub use self::caps::cut_but as cut_capabilities;
pub use self::devices::RDMA_DIR;
pub use self::devices::RdmaNumbers;
pub use self::devices::show_nodes;
use self::handoff::FromChild;
pub use self::handoff::Served;
use self::inherited::Inherited;
pub use self::job::Exit;
pub use self::job::Job;
pub use self::keep::Keep;
pub use self::mounts::own_points;
pub use self::orphans::end_descendants;
pub use self::raw::openable_node;
pub use self::spec::DeviceNode;
pub use self::spec::EXIT_NOT_FOUND;
pub use self::spec::EXIT_NOT_INVOKED;
pub use self::spec::EXIT_OURS;
pub use self::spec::Error;
pub use self::spec::Spawn;
pub use self::sysfs::Sysfs;
use crate::Tgid;

/// The search path where the caller has none, as execvp(3) takes it.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The main process of a sandbox; a child of the supervisor, to be waited for by [`Job::attend`].
#[derive(Debug)]
pub struct Guest {
    pid: Pid,
    /// The same, safe against reuse.
    pidfd: OwnedFd,
}

impl Guest {
    /// Its id in the supervisor's pid namespace.
    #[must_use]
    pub fn tgid(&self) -> Tgid {
        Tgid(self.pid.as_raw_nonzero().get())
    }
}

/// A child that is ready but for its `execve`.
#[derive(Debug)]
pub struct Started {
    /// Where its filter's notifications arrive. None does before [`Gate::exec`].
    pub listener: OwnedFd,
    /// Lets it go on.
    pub gate: Gate,
}

/// Holds the child back until somebody serves the listener. Dropping it ends the child.
#[derive(Debug)]
pub struct Gate {
    guest: Guest,
    socket: OwnedFd,
    program: OsString,
}

fn call(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |errno| Error::Call { what, source: errno.into() }
}

/// Starts the child and takes it as far as its `execve`.
///
/// The calling process must have one thread: the child allocates and opens files before it
/// executes, which after fork(2) is allowed to a single-threaded process only.
///
/// # Errors
/// See [`Error`]; no child is left behind.
pub fn spawn(job: &Job, spec: &Spawn<'_>) -> Result<Started, Error> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(Error::Threads(threads));
    }
    let program = spec.argv.first().ok_or(Error::NoProgram)?.clone();
    child::check_streams()?;
    let inherited = Inherited::find(spec.preserve_fds)?;
    let plan = child::Plan {
        candidates: candidates(&program)?,
        argv: spec.argv.iter().map(c_string).collect::<Result<_, _>>()?,
        cwd: std::env::current_dir().map_err(|source| Error::Call {
            what: "find out the working directory (cd to one that exists)",
            source,
        })?,
        original_mask: job.original_mask(),
        privileged: probe::is_privileged(),
        inherited: &inherited.kept,
        own_pid: rustix::process::getpid(),
        spec,
    };
    if landlock::abi().is_none_or(|abi| abi < landlock::LEAST_ABI) {
        warn_without_landlock();
    }

    let (ours, theirs) = handoff::pair().map_err(call("make a socket pair"))?;
    // SAFETY: the process has one thread (checked above), so no lock is held by a thread that
    // the child lacks; the child never returns from `run`.
    let forked = unsafe { nix::unistd::fork() };
    let pid = match forked {
        Ok(ForkResult::Parent { child }) => child,
        Ok(ForkResult::Child) => {
            drop(ours);
            child::run(&plan, theirs)
        }
        Err(errno) => {
            return Err(Error::Call { what: "fork", source: errno.into() });
        }
    };
    drop(theirs);
    inherited.close();
    // A forked child has a positive pid, so this cannot be `None`.
    let Some(pid) = Pid::from_raw(pid.as_raw()) else {
        return Err(Error::Vanished);
    };
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
        .map_err(call("open a pidfd of the child (Linux 5.3 or newer is needed)"))?;
    let gate = Gate { guest: Guest { pid, pidfd }, socket: ours, program };
    let mut message = handoff::receive(gate.socket.as_fd());
    if let Ok(FromChild::Sysfs(served)) = message {
        message = match serve_sysfs(spec, served, &gate) {
            Ok(()) => handoff::receive(gate.socket.as_fd()),
            Err(error) => {
                gate.end();
                return Err(error);
            }
        };
    } else if let Ok(FromChild::WithoutSysfs(why)) = message {
        log::warn!("the program sees the host's /sys, with the names of other devices: {why}");
        message = handoff::receive(gate.socket.as_fd());
    }
    match message {
        Ok(FromChild::Listener(listener)) => Ok(Started { listener, gate }),
        Ok(FromChild::Failed(text)) => {
            gate.end();
            Err(Error::SetUp(text))
        }
        _ => {
            gate.end();
            Err(Error::Vanished)
        }
    }
}

/// Has `/sys` served, and lets the child go on.
fn serve_sysfs(spec: &Spawn<'_>, served: Served, gate: &Gate) -> Result<(), Error> {
    let serve = spec.sysfs.map_or(Ok(()), |sysfs| (sysfs.serve)(gate.pid(), served));
    serve.map_err(|source| Error::Call {
        what: "serve the sandbox's /sys (--sysfs host does without)",
        source,
    })?;
    handoff::go(gate.socket.as_fd()).map_err(call("let the child mount into its /sys"))
}

/// What Landlock would add matters to root only: anyone else is kept from other processes by the
/// user namespace.
fn warn_without_landlock() {
    if probe::is_privileged() && rustix::process::geteuid().is_root() {
        log::warn!(
            "this kernel has no usable Landlock (boot with lsm=landlock,...): a program that runs \
             as root reaches the RDMA devices through /proc/PID/root of root's processes that \
             have no more capabilities; run the program as another user"
        );
    } else {
        log::debug!("this kernel has no usable Landlock");
    }
}

impl Gate {
    /// The child's process id, in the supervisor's pid namespace.
    #[must_use]
    pub fn pid(&self) -> Tgid {
        self.guest.tgid()
    }

    /// Lets the child execute its program. The listener must be served from now on.
    ///
    /// # Errors
    /// [`Error::Exec`]; the child is gone then.
    pub fn exec(self) -> Result<Guest, Error> {
        handoff::go(self.socket.as_fd()).map_err(call("let the program start"))?;
        match handoff::receive(self.socket.as_fd()) {
            // The socket closed on exec: it runs.
            Ok(FromChild::Closed) => Ok(self.guest),
            Ok(FromChild::NotExecuted(source)) => {
                let program = self.program.clone();
                self.end();
                Err(Error::Exec { program, source })
            }
            _ => {
                self.end();
                Err(Error::Vanished)
            }
        }
    }

    fn end(self) {
        // It exits by itself when the socket closes.
        drop(self.socket);
        let _ = rustix::process::waitid(WaitId::Pid(self.guest.pid), WaitIdOptions::EXITED);
    }
}

fn c_string(s: impl AsRef<std::ffi::OsStr>) -> Result<CString, Error> {
    let s = s.as_ref();
    CString::new(s.as_bytes()).map_err(|_| Error::Nul(s.to_owned()))
}

/// The paths to try for a program, in order.
fn candidates(program: &OsString) -> Result<Vec<CString>, Error> {
    if program.as_bytes().contains(&b'/') || program.is_empty() {
        return Ok(vec![c_string(program)?]);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).map(|dir| c_string(dir.join(program))).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_path_is_not_searched_for() {
        let c = candidates(&"./prog".into()).unwrap();
        assert_eq!(c, [CString::new("./prog").unwrap()]);
    }

    #[test]
    fn exit_codes_are_those_of_container_engines() {
        let exec = |errno| Error::Exec {
            program: "x".into(),
            source: io::Error::from_raw_os_error(errno),
        };
        assert_eq!(exec(libc::ENOENT).exit_code(), 127);
        assert_eq!(exec(libc::EACCES).exit_code(), 126);
        assert_eq!(exec(libc::ENOEXEC).exit_code(), 126);
        assert_eq!(Error::Vanished.exit_code(), 125);
        assert!(!exec(libc::ENOENT).to_string().contains('\n'));
    }

    #[test]
    fn a_threaded_process_is_refused() {
        let job = Job::for_tests();
        let install = || Err(io::Error::other("not reached"));
        let argv = ["true".into()];
        let spec = Spawn {
            argv: &argv,
            devices: &[],
            netns: None,
            keep: &[],
            preserve_fds: 0,
            sysfs: None,
            install: &install,
        };
        // The test runner itself has more than one thread.
        assert!(matches!(spawn(&job, &spec), Err(Error::Threads(_))));
    }
}
