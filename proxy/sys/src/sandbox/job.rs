//! The guest as a shell's job: signals, the terminal, and the processes that are left at the end.
//!
//! **The guest stays in the supervisor's process group**, session and terminal, so that Ctrl-C,
//! Ctrl-Z, reads from the terminal and pipelines work natively, with no pseudo-terminal between.
//! The consequences:
//!
//! - A signal that the kernel sends to the group (from the terminal) has reached the guest
//!   already and is not passed on; one that a process sends to the supervisor is, unless the
//!   sender is a guest itself (`kill 0`). Who signals the whole group with kill(2) makes the
//!   guest see it twice.
//! - When the main process is stopped by job control (SIGTSTP, SIGTTIN, SIGTTOU), the supervisor
//!   stops itself, for the shell to see the job stopped; meanwhile control requests of any guest
//!   that runs on (in another session, say) wait, while its data path goes on. It resumes with
//!   the job's SIGCONT. A main process that somebody stopped with SIGSTOP is left to him, and
//!   without a shell above in the session (services, containers) nothing is mirrored.
//!
//! **Nothing here waits for a live process**: such a wait would take the tracer's stops of the main
//! process from the thread that waits for them, as wait(2) does not tell apart the threads of a
//! parent that is the tracer too. Exits come by pidfd, stops are peeked at, and only zombies are
//! reaped. A thread that traces must take `ECHILD` for "the thread died".

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use std::time::Instant;

use nix::sys::signal::SaFlags;
use nix::sys::signal::SigAction;
use nix::sys::signal::SigHandler;
use nix::sys::signal::SigSet;
use nix::sys::signal::SigmaskHow;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SfdFlags;
use nix::sys::signalfd::SignalFd;
use nix::sys::signalfd::siginfo;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::process::WaitId;
use rustix::process::WaitIdOptions;
use rustix::process::WaitIdStatus;

use super::Guest;
use super::orphans::HELD;
use super::orphans::is_descendant;
use super::orphans::reap_orphans;
use super::orphans::runs;
use super::orphans::stat_field;

/// Taken by the supervisor's main loop; blocked in all its threads.
const TAKEN: &[Signal] = &[
    Signal::SIGCHLD,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
];

/// How long a main process that does not handle SIGTERM may take to end after one, before it is
/// killed; and how soon another SIGTERM kills any.
const GRACE: Duration = Duration::from_secs(3);
/// How long a main process is seen to block SIGTERM until that counts as handling, and how often the
/// process is looked at: a shell blocks all signals for a moment with each child.
const BLOCKED: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

/// How the main process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Exit {
    /// As container engines turn it into an exit code of their own.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

/// The supervisor as the guest's parent.
#[derive(Debug)]
pub struct Job {
    signals: SignalFd,
    original: SigSet,
    /// Whether a shell can see and resume this job.
    mirrors_stops: bool,
}

impl Job {
    /// Blocks the signals that [`Job::attend`] takes, and adopts orphaned descendants.
    ///
    /// To be called before any thread is started: threads inherit the mask.
    ///
    /// # Errors
    /// signalfd(2)'s and prctl(2)'s.
    pub fn begin() -> io::Result<Self> {
        let taken: SigSet = TAKEN.iter().copied().collect();
        let mut original = SigSet::empty();
        nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), Some(&mut original))?;
        let signals = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let mirrors_stops = has_job_control();
        if !mirrors_stops {
            ignore_stops()?;
        }
        Ok(Self { signals, original, mirrors_stops })
    }

    /// What the caller of this program had blocked: the guest's mask.
    pub(super) fn original_mask(&self) -> SigSet {
        self.original
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        let none = SigSet::empty();
        Self { signals: SignalFd::new(&none).unwrap(), original: none, mirrors_stops: false }
    }

    /// Waits for the main process, passing signals on. Other guests may outlive it: see
    /// [`end_descendants`](super::end_descendants).
    ///
    /// After SIGTERM the main process is killed when it has not ended in time, unless it handles the
    /// signal (has a handler, or blocks it, to receive it by sigwait(3) or signalfd(2)): that one
    /// has the time that it takes, until another SIGTERM comes. One that the kernel holds is left.
    ///
    /// # Errors
    /// poll(2)'s and waitid(2)'s.
    pub fn attend(&self, guest: &Guest) -> io::Result<Exit> {
        let mut ending = Ending::NotAsked;
        loop {
            let mut fds = [
                PollFd::new(&guest.pidfd, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            let patience = ending.patience();
            match rustix::event::poll(&mut fds, patience.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let [exited, signalled] = fds.map(|fd| !fd.revents().is_empty());
            // Signals first: one that came before the end is passed on to no one, harmlessly.
            if signalled {
                while let Some(info) = self.signals.read_signal()? {
                    if self.take(guest, &info) == Some(Signal::SIGTERM) {
                        ending = ending.asked(guest);
                    }
                }
            }
            if exited {
                return reap(WaitId::PidFd(guest.pidfd.as_fd()));
            }
            ending = ending.go_on(guest);
            if matches!(ending, Ending::Held) {
                return Ok(Exit::Signal(9));
            }
        }
    }

    /// Gives the signal that was passed on.
    fn take(&self, guest: &Guest, info: &siginfo) -> Option<Signal> {
        let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
        if signal == Signal::SIGCHLD {
            reap_orphans(guest.pid);
            self.mirror_stop(guest);
            return None;
        }
        let by_process = info.ssi_code <= 0;
        let sender = i32::try_from(info.ssi_pid).unwrap_or(0);
        let passed = by_process && !is_descendant(sender);
        if passed {
            send(guest, signal);
        }
        passed.then_some(signal)
    }

    fn mirror_stop(&self, guest: &Guest) {
        if !self.mirrors_stops || !stopped_by_job_control(guest) {
            return;
        }
        // Returns when somebody continues the supervisor.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        // `fg` continues the whole group; a SIGCONT to the supervisor alone reaches the guest here,
        // and so does one for a guest that has a group of its own (a shell).
        if stopped_by_job_control(guest) {
            send(guest, Signal::SIGCONT);
        }
    }
}

/// How far the end of a main process is that was asked to end, by SIGTERM.
#[derive(Clone, Copy)]
enum Ending {
    NotAsked,
    /// Since then it may end by itself.
    Asked(Instant),
    /// It blocked the signal at each look since the second of these, and may do so for a moment only.
    Blocks(Instant, Instant),
    /// It handles the signal, and may take its time; asked then.
    Handled(Instant),
    /// Killed, and last seen to do something then.
    Killed(Instant),
    /// Killed, and the kernel holds it.
    Held,
}

impl Ending {
    /// How long nothing is to be done; for ever, if there is none.
    fn patience(self) -> Option<rustix::event::Timespec> {
        let left = match self {
            Self::Asked(since) => GRACE.saturating_sub(since.elapsed()),
            Self::Blocks(..) => LOOK,
            Self::Killed(_) => HELD / 10,
            Self::NotAsked | Self::Handled(_) | Self::Held => return None,
        };
        rustix::event::Timespec::try_from(left).ok()
    }

    /// SIGTERM has been passed on.
    fn asked(self, guest: &Guest) -> Self {
        match self {
            Self::NotAsked => Self::Asked(Instant::now()),
            Self::Asked(since) | Self::Blocks(since, _) | Self::Handled(since)
                if since.elapsed() >= GRACE =>
            {
                Self::kill(guest)
            }
            // Who sends it twice within moments (to a process and to its group) means one.
            other => other,
        }
    }

    /// How it is with a process that was asked, and did this at each look since then; none for one that is
    /// to be killed.
    fn by(disposition: Disposition, asked: Instant, from: Instant) -> Option<Self> {
        match disposition {
            Disposition::Catches => Some(Self::Handled(asked)),
            Disposition::Blocks if from.elapsed() >= BLOCKED => Some(Self::Handled(asked)),
            Disposition::Blocks => Some(Self::Blocks(asked, from)),
            Disposition::Neither => None,
        }
    }

    fn kill(guest: &Guest) -> Self {
        send(guest, Signal::SIGKILL);
        Self::Killed(Instant::now())
    }

    fn go_on(self, guest: &Guest) -> Self {
        let pid = guest.pid.as_raw_nonzero().get();
        match self {
            Self::Asked(since) if since.elapsed() >= GRACE => {
                let disposition = Disposition::of(pid, Signal::SIGTERM);
                Self::by(disposition, since, Instant::now()).unwrap_or_else(|| Self::kill(guest))
            }
            Self::Blocks(since, from) => {
                let disposition = Disposition::of(pid, Signal::SIGTERM);
                Self::by(disposition, since, from).unwrap_or_else(|| Self::kill(guest))
            }
            Self::Killed(_) if runs(pid) => Self::Killed(Instant::now()),
            Self::Killed(at) if at.elapsed() >= HELD => Self::Held,
            other => other,
        }
    }
}

/// What a process does about a signal.
#[derive(Clone, Copy)]
enum Disposition {
    /// It has a handler.
    Catches,
    /// It blocks the signal: for good, to take the signal in its own time, or for a moment.
    Blocks,
    Neither,
}

impl Disposition {
    /// By proc_pid_status(5).
    fn of(pid: i32, signal: Signal) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let has = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let mask = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
            mask.unwrap_or(0) >> (signal as i32 - 1) & 1 == 1
        };
        if has("SigCgt:") {
            Self::Catches
        } else if has("SigBlk:") {
            Self::Blocks
        } else {
            Self::Neither
        }
    }
}

fn send(guest: &Guest, signal: Signal) {
    // ESRCH: it has ended, which the loop is about to see. EPERM: it became another user, and the
    // caller has no power over it either.
    let _ = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(guest.pid.as_raw_nonzero().get()),
        signal,
    );
}

/// Asks for no SIGCHLD when a child stops. A thread that is made to make calls stops two dozen times,
/// and each stop would have the main thread look for orphans, while the planting needs the processor.
fn ignore_stops() -> io::Result<()> {
    let flags = SaFlags::SA_NOCLDSTOP;
    let action = SigAction::new(SigHandler::SigDfl, flags, SigSet::empty());
    // SAFETY: the default action has no handler.
    unsafe { nix::sys::signal::sigaction(Signal::SIGCHLD, &action) }?;
    Ok(())
}

/// Peeks, without taking the stop from whoever waits for it.
fn stopped_by_job_control(guest: &Guest) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let Ok(Some(status)) = rustix::process::waitid(WaitId::PidFd(guest.pidfd.as_fd()), options)
    else {
        return false;
    };
    let job_control = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    status.stopped() && status.stopping_signal().is_some_and(|s| job_control.contains(&s))
}

/// A controlling terminal, and a session leader other than this process: a shell that waits.
fn has_job_control() -> bool {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    // Not getsid(2): the leader has no number here, 0, when it is outside of this PID namespace
    // (a container's first process, `unshare --pid`), and rustix takes that for impossible.
    let leads = stat_field(me, 3) == Some(me);
    !leads && stat_field(me, 4).is_some_and(|tty| tty != 0)
}

fn reap(id: WaitId<'_>) -> io::Result<Exit> {
    let status =
        rustix::io::retry_on_intr(|| rustix::process::waitid(id.clone(), WaitIdOptions::EXITED))?;
    let narrow = |n: i32| u8::try_from(n & 0xff).unwrap_or(u8::MAX);
    let code = status.as_ref().and_then(WaitIdStatus::exit_status).map(narrow);
    let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal).map(narrow);
    code.map(Exit::Code)
        .or(signal.map(Exit::Signal))
        .ok_or_else(|| io::Error::other("the kernel reported neither an exit code nor a signal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_blocked_for_a_moment_is_not_handled() {
        let now = Instant::now();
        let before = now.checked_sub(BLOCKED).unwrap();
        assert!(matches!(Ending::by(Disposition::Blocks, now, now), Some(Ending::Blocks(..))));
        assert!(matches!(Ending::by(Disposition::Blocks, now, before), Some(Ending::Handled(_))));
        assert!(matches!(Ending::by(Disposition::Catches, now, now), Some(Ending::Handled(_))));
        assert!(Ending::by(Disposition::Neither, now, before).is_none());
        assert_eq!(Ending::Blocks(now, now).patience().unwrap().tv_nsec, 50_000_000);
    }

    #[test]
    fn exit_codes() {
        assert_eq!(Exit::Code(3).code(), 3);
        assert_eq!(Exit::Signal(9).code(), 137);
    }
}
