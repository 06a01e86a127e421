//! The *warden*: the process that ends a container whose supervisor has died, where the operator has asked for
//! that ([`crate::Options::ends_alone`]).
//!
//! A program that loses its supervisor goes on without RDMA, and a probe that executes something in the container
//! does not tell a kubelet: kubelets take an error of `exec` for no answer. A container that ends is started
//! again. The warden reads nothing that a container says, and is no part of the supervisor, so the warden
//! outlives whatever kills the supervisor.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use verbgate_host::program;
use verbgate_sys::Tgid;
use verbgate_sys::process::PidFd;

use super::letter::heard_readiness;
use super::letter::say_readiness;

/// SIGKILL, which an init process of a pid namespace cannot ignore when the signal comes from outside:
/// pid_namespaces(7).
const KILL: i32 = 9;

/// Starts the warden of a container that is about to run, and waits until the warden watches.
pub(super) fn start(log: &[OsString], place: &Path, first: Tgid) -> Result<(), anyhow::Error> {
    let exe = program::own().context("cannot tell the path of this program")?;
    let mut child = Command::new(exe)
        .args(log)
        .arg(crate::options::WARDEN)
        .arg(place)
        .args([first.0.to_string(), std::process::id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the process that ends the container with its supervisor")?;
    let mut said = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut said).context("cannot read the warden's readiness message")?;
    }
    // The warden outlives this process, or ends right before it.
    heard_readiness(said.as_bytes(), "the warden exited before it was ready")
}

/// The process that waits for the supervisor's death, and then ends the container, whose first process is
/// `first`. Standard output takes one line.
///
/// # Errors
/// When one of the two processes cannot be watched, or the container cannot be ended.
pub fn ward(place: &Path, first: i32, supervisor: i32) -> Result<u8, anyhow::Error> {
    rustix::process::setsid().context("cannot leave the session")?;
    // In the supervisor's control group, where the kernel ends somebody when the memory is used up: the
    // supervisor, and not who acts on the supervisor's end. proc_pid_oom_score_adj(5).
    if let Err(e) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        log::debug!("the warden can be ended for want of memory: {e}");
    }
    rustix::process::chdir("/")?;
    let open = |pid: i32, what: &str| {
        PidFd::open(Tgid(pid)).with_context(|| format!("the {what} has ended"))
    };
    let both =
        open(first, "container").and_then(|first| Ok((first, open(supervisor, "supervisor")?)));
    say_readiness(&both)?;
    let (first, supervisor) = both?;
    loop {
        let mut fds =
            [&first, &supervisor].map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN));
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if first.has_ended() {
            return Ok(0);
        }
        if supervisor.has_ended() {
            log::error!(
                "the supervisor of {} has died; ending the container, as the option says",
                place.display()
            );
            first.signal(KILL).context("cannot end the container")?;
            return Ok(0);
        }
    }
}
