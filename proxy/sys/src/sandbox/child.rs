//! The child between fork and exec.
//!
//! The order matters. Descriptors of the old mounts are closed before anything can use them.
//! Landlock and the filter need CAP_SYS_ADMIN (or else `no_new_privs`, which would take setuid
//! programs away from the guest). Once the filter stands, every trapped call would wait for a
//! supervisor that does not serve yet: so after the filter come only calls that the filter lets
//! pass.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::path::Path;
use std::path::PathBuf;

use nix::sys::signal::SaFlags;
use nix::sys::signal::SigAction;
use nix::sys::signal::SigHandler;
use nix::sys::signal::SigSet;
use nix::sys::signal::SigmaskHow;
use nix::sys::signal::Signal;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::process::Pid;
use rustix::thread::LinkNameSpaceType;
use rustix::thread::UnshareFlags;

use super::caps;
use super::devices;
use super::error::SetUpError;
use super::error::step;
use super::handoff;
use super::inherited;
use super::landlock;
use super::mounts;
use super::spec::EXIT_OURS;
use super::spec::Error;
use super::spec::Spawn;
use super::sysfs;
use crate::check;

/// All that the child needs, computed before the fork.
pub(super) struct Plan<'a> {
    /// Paths of the program, to be tried in order.
    pub(super) candidates: Vec<CString>,
    pub(super) argv: Vec<CString>,
    /// Entered again by name: the inherited directory may be on a covered mount.
    pub(super) cwd: PathBuf,
    pub(super) original_mask: SigSet,
    /// Whether the caller has CAP_SYS_ADMIN; if not, a user namespace gives it.
    pub(super) privileged: bool,
    /// Descriptors that the guest gets, in ascending order.
    pub(super) inherited: &'a [RawFd],
    /// The caller's process.
    pub(super) own_pid: Pid,
    pub(super) spec: &'a Spawn<'a>,
}

/// Standard streams stay open; one that is a directory or an RDMA device would be a way around
/// the private mounts.
pub(super) fn check_streams() -> Result<(), Error> {
    let rdma = devices::RdmaNumbers::known();
    for (fd, stream) in [(0, "standard input"), (1, "standard output"), (2, "standard error")] {
        // A closed stream is nothing to worry about.
        let Ok(meta) = fs::metadata(format!("/proc/self/fd/{fd}")) else {
            continue;
        };
        let kind = meta.file_type();
        if kind.is_dir() {
            return Err(Error::Stream { stream, what: "a directory" });
        }
        if rdma.are_of(&meta) {
            return Err(Error::Stream { stream, what: "an RDMA device" });
        }
    }
    Ok(())
}

/// The child's life; ends in the program or in `_exit`.
pub(super) fn run(plan: &Plan<'_>, socket: OwnedFd) -> ! {
    let socket = socket.as_fd();
    let prepared = prepare(plan, socket).and_then(|listener| {
        handoff::offer(socket, &listener).map_err(step(
            "hand the listener to the supervisor",
            "is this process's descriptor table full?",
        ))
        // The child's own copy closes here: a guest must never hold its own listener.
    });
    match prepared {
        Ok(()) if handoff::wait_for_go(socket) => {
            inherited::become_listener(plan.own_pid.as_raw_nonzero().get());
            let errno = execute(&plan.candidates, &plan.argv, Some(&plan.original_mask));
            handoff::not_executed(socket, errno);
        }
        Ok(()) => {}
        Err(error) => handoff::failed(socket, &error.to_string()),
    }
    // SAFETY: ends the process without the parent's exit handlers, which are not the child's.
    unsafe { libc::_exit(EXIT_OURS.into()) }
}

fn prepare(plan: &Plan<'_>, socket: BorrowedFd<'_>) -> Result<OwnedFd, SetUpError> {
    refuse_tracer()?;
    let netns = plan.spec.netns.map(open_netns).transpose()?;
    close_others(socket, netns.as_ref(), plan.inherited)
        .map_err(step("close inherited descriptors", "Linux 5.9 or newer is needed"))?;

    if plan.privileged {
        unshare(UnshareFlags::NEWNS).map_err(step("make a mount namespace", ""))?;
    } else {
        enter_user_namespace()?;
    }
    if let Some((path, fd)) = plan.spec.netns.zip(netns) {
        rustix::thread::move_into_link_name_space(fd.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(step(
                format!("enter the network namespace {}", path.display()),
                "the file must be a network namespace, and entering a network namespace needs root",
            ))?;
    }
    let all = mounts::list().map_err(step("read /proc/self/mountinfo", "/proc must be mounted"))?;
    mounts::seal()?;
    if plan.spec.netns.is_some() {
        mounts::fresh_sysfs().map_err(step("mount the sysfs of the network namespace", ""))?;
    }
    devices::provide(plan.spec.devices, &all)?;
    if let Some(spec) = plan.spec.sysfs {
        sysfs::cover(spec.keep, socket)?;
    }
    rustix::process::chdir(&plan.cwd).map_err(step(
        format!("enter the working directory {} by name", plan.cwd.display()),
        "cd to a directory that the path leads to",
    ))?;

    landlock::enter().map_err(step("enter a Landlock domain", ""))?;
    caps::drop_for_guest(plan.spec.keep).map_err(step(
        "give up capabilities",
        "verbgate needs CAP_SETPCAP where it has CAP_SYS_ADMIN",
    ))?;
    (plan.spec.install)().map_err(filter_error)
}

pub(super) fn filter_error(source: io::Error) -> SetUpError {
    let remedy = match source.raw_os_error() {
        Some(libc::EBUSY) => {
            "a seccomp filter around this command already has a supervisor, and the kernel allows \
             one: is this a verbgate inside a verbgate, or a container with a seccomp agent?"
        }
        Some(libc::EINVAL) => "Linux 5.19 or newer with CONFIG_SECCOMP_FILTER is needed",
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => {
            "seccomp(2) is refused here: allow seccomp(2) in the container's seccomp profile"
        }
        _ => "",
    };
    step("install the seccomp filter", remedy)(source)
}

/// A tracer that follows forks has this child already, and a process has one tracer only.
fn refuse_tracer() -> Result<(), SetUpError> {
    let status = fs::read_to_string("/proc/self/status")
        .map_err(step("read /proc/self/status", "/proc must be mounted"))?;
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))
        .and_then(|pid| pid.trim().parse().ok())
        .unwrap_or(0);
    if tracer == 0 { Ok(()) } else { Err(SetUpError::Traced(tracer)) }
}

fn open_netns(path: &Path) -> Result<OwnedFd, SetUpError> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(step(
        format!("open the network namespace {}", path.display()),
        "give a path such as /run/netns/NAME or /proc/PID/ns/net",
    ))
}

/// Closes everything above the standard streams but these: a directory of the host's mount namespace
/// leads to the raw nodes.
fn close_others(
    socket: BorrowedFd<'_>,
    netns: Option<&OwnedFd>,
    inherited: &[RawFd],
) -> io::Result<()> {
    let own = [socket.as_raw_fd(), netns.map_or(-1, AsRawFd::as_raw_fd)];
    let mut kept: Vec<RawFd> = own.iter().chain(inherited).copied().collect();
    kept.sort_unstable();
    let mut first = 3u32;
    for fd in kept.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2) {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the child is a copy that owns these descriptors and touches none of them again; the
    // ones it does use are left out by the caller.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) }).map(drop)
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: no flag of ours separates the descriptor table, which is what the function is
    // unsafe for.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// The way of a caller without CAP_SYS_ADMIN: a user namespace with the caller's own ids.
pub(super) fn enter_user_namespace() -> Result<(), SetUpError> {
    const REMEDY: &str = "user namespaces are not available to you here: run verbgate as root, \
         or allow them (user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns)";
    // The ids to keep, read while they are still the caller's.
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
        .map_err(step("make a user namespace", REMEDY))?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        fs::write(file, text).map_err(step(format!("write {file}"), REMEDY))?;
    }
    Ok(())
}

/// Executes the program; returns the errno when none of its paths can be.
pub(super) fn execute(candidates: &[CString], argv: &[CString], mask: Option<&SigSet>) -> i32 {
    // Rust ignores SIGPIPE at start; what the caller had is not known, and a program expects this.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed, only the default disposition.
    let _ = unsafe { nix::sys::signal::sigaction(Signal::SIGPIPE, &default) };
    let _ = nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, mask, None);
    let mut worst = libc::ENOENT;
    for path in candidates {
        let Err(errno) = nix::unistd::execv(path, argv);
        match errno as i32 {
            libc::ENOENT | libc::ENOTDIR => {}
            // A directory or a file without the x bit earlier in PATH hides nothing.
            libc::EACCES => worst = libc::EACCES,
            other => return other,
        }
    }
    worst
}
