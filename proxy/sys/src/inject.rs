//! System calls that the supervisor makes a stopped thread make.

use std::io;
use std::os::fd::BorrowedFd;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Native;
use crate::plant::PlantError;
use crate::plant::Traps;
use crate::plant::lost;
use crate::plant::unexpected;
use crate::ptrace;
use crate::ptrace::Event;
use crate::ptrace::Running;
use crate::ptrace::Stopped;
use crate::ptrace::Waited;
use crate::seccomp::AddFd;
use crate::seccomp::Listener;
use crate::seccomp::Notification;
use crate::seccomp::Reply;
use crate::stub::Stub;

/// A call to be injected.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) nr: u32,
    pub(crate) args: [u64; 6],
    pub(crate) sight: Sight,
}

/// Who sees an injected call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The kernel alone.
    Untrapped,
    /// The filter sends the call to the supervisor, and then the kernel makes it.
    Trapped,
    /// The filter sends the call to the supervisor, and that is all: any trapped call will do for a
    /// thread to be given descriptors in the course of.
    Answered,
}

/// What became of calls that a thread made by itself: what the last returned, or the one that failed and its
/// result.
pub(crate) type Followed<'a> = Result<i64, (&'a Call, i64)>;

/// Descriptors that a thread is given in the course of a trap, and their numbers.
pub(crate) type Given<'a> = [(u32, BorrowedFd<'a>)];

/// What became of an injected clone.
pub(crate) enum Cloned {
    /// The thread that made it, on its way out of the call ([`out_of_clone`]), and the new one.
    Born(Running, Tid),
    /// It failed with this result.
    Failed(Stopped, i64),
}

/// What injecting takes.
pub(crate) struct Injector<'a> {
    pub(crate) listener: &'a Listener,
    /// Who receives from it.
    pub(crate) traps: &'a mut dyn Traps,
}

impl Injector<'_> {
    /// Has a stopped thread make one call, and returns it stopped when the call is done.
    ///
    /// A stop of the whole process may come at any point, since SIGSTOP cannot be blocked: it
    /// takes effect when the thread is let go, and a call that it interrupts is made again.
    pub(crate) fn inject(
        &mut self,
        stopped: Stopped,
        base: &ptrace::Regs,
        call: &Call,
        give: &Given<'_>,
    ) -> Result<(Stopped, i64), PlantError> {
        self.inject_while(stopped, base, call, give, &mut || ())
    }

    /// The same; something else is done while the thread comes to a trapped call.
    pub(crate) fn inject_while(
        &mut self,
        mut stopped: Stopped,
        base: &ptrace::Regs,
        call: &Call,
        give: &Given<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(Stopped, i64), PlantError> {
        let tid = stopped.tid();
        let gone = move |e: io::Error| lost(tid, e);
        let mut by_stops = false;
        loop {
            let left = if call.sight != Sight::Untrapped {
                self.trapped(stopped, base, call, (give, by_stops), meanwhile)?
            } else {
                exit_stop(tid, next_event(enter(stopped, base, call)?)?, call.name)?
            };
            let result = result(&left, base).map_err(gone)?;
            if !RESTART.contains(&result) {
                return Ok((left, result));
            }
            stopped = left;
            by_stops = true;
        }
    }

    /// Ends a stopped thread.
    pub(crate) fn end(&self, stopped: Stopped, base: &ptrace::Regs) -> Result<(), PlantError> {
        let tid = stopped.tid();
        let exit =
            Call { name: "exit", nr: Native::NUMBERS.exit, args: [0; 6], sight: Sight::Untrapped };
        match next_event(enter(stopped, base, &exit)?) {
            Err(PlantError::Gone(_)) => Ok(()),
            Err(e) => Err(e),
            Ok((_, event)) => Err(unexpected(tid, exit.name, format!("{event:?}"))),
        }
    }

    /// Has a thread make a call that passes our own filter, too, and stop when the call is done.
    ///
    /// The trap shows the call before the kernel makes it, so a stop at its entry would say nothing
    /// new, and a thread that is asked to stop while it waits for the answer stops after the call.
    /// `by_stops`: with both stops all the same, because the thread did not wait for the answer:
    /// under a filter of others, whose waits need not be killable.
    fn trapped(
        &mut self,
        stopped: Stopped,
        base: &ptrace::Regs,
        call: &Call,
        (give, by_stops): (&Given<'_>, bool),
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Stopped, PlantError> {
        let tid = stopped.tid();
        let gone = move |e: io::Error| lost(tid, e);
        let mut running = if by_stops {
            enter(stopped, base, call)?
        } else {
            stopped.set_regs(&Native::inject(base, call.nr, call.args)).map_err(gone)?;
            stopped.go_on(0).map_err(gone)?
        };
        meanwhile();
        let mut answered = false;
        loop {
            let waited = if answered {
                let (stopped, event) = running.wait().map_err(gone)?;
                Waited::Stopped(stopped, event)
            } else if let Some(notif) = self.traps.next(tid).map_err(gone)? {
                // The instruction is the guest's memory, where another call may stand by now.
                if notif.nr != call.nr || notif.args != call.args {
                    return Err(unexpected(tid, call.name, format!("trap {}", notif.nr)));
                }
                if !by_stops {
                    running.interrupt().map_err(gone)?;
                }
                match self.answer(&notif, call.sight, give) {
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) && !by_stops => {}
                    replied => replied.map_err(gone)?,
                }
                answered = true;
                continue;
            } else {
                running.try_wait().map_err(gone)?
            };
            running = match waited {
                Waited::Nothing(still) => still,
                Waited::Gone => return Err(PlantError::Gone(tid)),
                Waited::Stopped(stopped, Event::Syscall) if by_stops => return Ok(stopped),
                Waited::Stopped(stopped, Event::Stop) if answered && !by_stops => {
                    return Ok(stopped);
                }
                Waited::Stopped(stopped, event) => match group_stop(&event) {
                    Some(signal) if by_stops => stopped.to_syscall(signal).map_err(gone)?,
                    _ => through_stop(stopped, &event, call.name)?,
                },
            };
        }
    }

    /// Lets a stopped thread run from somewhere on, where it makes these trapped calls by itself, until
    /// it stops after the last one, or after one that failed.
    pub(crate) fn follow<'a>(
        &mut self,
        stopped: Stopped,
        from: &ptrace::Regs,
        calls: &'a [Call],
    ) -> Result<(Stopped, Followed<'a>), PlantError> {
        let tid = stopped.tid();
        let gone = move |e: io::Error| lost(tid, e);
        let Some((last, others)) = calls.split_last() else { return Ok((stopped, Ok(0))) };
        self.traps.foresee(tid, others.iter().map(|call| (call.nr, call.args)).collect());
        stopped.set_regs(from).map_err(gone)?;
        let mut running = stopped.go_on(0).map_err(gone)?;
        let notif = loop {
            if let Some(notif) = self.traps.next(tid).map_err(gone)? {
                break notif;
            }
            running = match running.try_wait().map_err(gone)? {
                Waited::Nothing(still) => still,
                Waited::Gone => return Err(PlantError::Gone(tid)),
                Waited::Stopped(stopped, event) => through_stop(stopped, &event, last.name)?,
            };
        };
        let made = others.len() - self.traps.foreseen();
        let is_last = made == others.len() && notif.nr == last.nr && notif.args == last.args;
        let latest = made.checked_sub(1).and_then(|at| others.get(at));
        let failed = match latest {
            _ if is_last => None,
            Some(call) if notif.nr == Native::NUMBERS.ioctl => {
                Some((call, Stub::shown_result(&notif)))
            }
            _ => return Err(unexpected(tid, last.name, format!("trap {}", notif.nr))),
        };
        self.traps.foresee(tid, Vec::new());
        running.interrupt().map_err(gone)?;
        match self.answer(&notif, if is_last { last.sight } else { Sight::Answered }, &[]) {
            // It stops at once, as if the call was interrupted.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            replied => replied.map_err(gone)?,
        }
        loop {
            match running.wait().map_err(gone)? {
                (stopped, Event::Stop) => {
                    let regs = Native::behind(&stopped.regs().map_err(gone)?, notif.ip);
                    return Ok((stopped, failed.map_or(Ok(Native::result(&regs)), Err)));
                }
                (stopped, event) => running = through_stop(stopped, &event, "its last call")?,
            }
        }
    }

    /// Answers the trap of an injected call, once its thread has been given descriptors.
    fn answer(&self, notif: &Notification, sight: Sight, give: &Given<'_>) -> io::Result<()> {
        let mut add = give.iter().map(|(at, fd)| {
            let how = AddFd { at: Some(*at), ..AddFd::default() };
            self.listener.add_fd(notif.id, *fd, how)
        });
        let answer = match add.find_map(Result::err).and_then(|e| e.raw_os_error()) {
            Some(errno) => Reply::Errno(errno),
            None if sight == Sight::Answered => Reply::Value(0),
            None => Reply::Continue,
        };
        self.listener.reply(notif.id, answer)
    }
}

/// Has a stopped thread make another by `call`, which no filter of ours sees. It is not waited for until it
/// has left the call.
pub(crate) fn clone(
    mut stopped: Stopped,
    base: &ptrace::Regs,
    call: &Call,
) -> Result<Cloned, PlantError> {
    let tid = stopped.tid();
    let gone = move |e: io::Error| lost(tid, e);
    loop {
        let left = match next_event(enter(stopped, base, call)?)? {
            (left, Event::Clone(born)) => {
                return Ok(Cloned::Born(left.to_syscall(0).map_err(gone)?, born));
            }
            other => exit_stop(tid, other, call.name)?,
        };
        let result = result(&left, base).map_err(gone)?;
        if !RESTART.contains(&result) {
            return Ok(Cloned::Failed(left, result));
        }
        stopped = left;
    }
}

/// What an injected call returned.
fn result(left: &Stopped, base: &ptrace::Regs) -> io::Result<i64> {
    let (.., ip) = Native::entry(base);
    Ok(Native::result(&Native::behind(&left.regs()?, ip)))
}

/// Waits until a thread has left its clone.
pub(crate) fn out_of_clone(maker: Running) -> Result<Stopped, PlantError> {
    exit_stop(maker.tid(), next_event(maker)?, "clone")
}

fn exit_stop(
    tid: Tid,
    (stopped, event): (Stopped, Event),
    call: &'static str,
) -> Result<Stopped, PlantError> {
    match event {
        Event::Syscall => Ok(stopped),
        event => Err(unexpected(tid, call, format!("{event:?}"))),
    }
}

/// Lets a stopped thread into a call, past the point where it could still be another.
fn enter(stopped: Stopped, base: &ptrace::Regs, call: &Call) -> Result<Running, PlantError> {
    let tid = stopped.tid();
    let gone = move |e: io::Error| lost(tid, e);
    stopped.set_regs(&Native::inject(base, call.nr, call.args)).map_err(gone)?;
    let (entered, event) = next_event(stopped.to_syscall(0).map_err(gone)?)?;
    // The instruction is the guest's memory: make sure that it still is the system call, with the
    // arguments that were set.
    let regs = entered.regs().map_err(gone)?;
    let (nr, args, _) = Native::entry(&regs);
    if event != Event::Syscall || nr != u64::from(call.nr) || args != call.args {
        return Err(unexpected(tid, call.name, format!("{event:?} nr {nr}")));
    }
    entered.to_syscall(0).map_err(gone)
}

/// `-ERESTARTSYS` to `-ERESTART_RESTARTBLOCK`, include/linux/errno.h: a call was interrupted.
pub(crate) const RESTART: std::ops::RangeInclusive<i64> = -516..=-512;

/// The signal to go on with after a stop of the whole process; `None` for any other event.
fn group_stop(event: &Event) -> Option<i32> {
    match event {
        Event::Stop => Some(0),
        // About to stop the process, which this thread can only pass on.
        Event::Signal(libc::SIGSTOP) => Some(libc::SIGSTOP),
        _ => None,
    }
}

/// Lets a thread go on that takes part in a stop of its process.
fn through_stop(
    stopped: Stopped,
    event: &Event,
    call: &'static str,
) -> Result<Running, PlantError> {
    let tid = stopped.tid();
    match group_stop(event) {
        Some(signal) => stopped.go_on(signal).map_err(|e| lost(tid, e)),
        None => Err(unexpected(tid, call, format!("{event:?}"))),
    }
}

/// Waits for a thread's next event other than a stop of the whole process.
fn next_event(mut running: Running) -> Result<(Stopped, Event), PlantError> {
    let tid = running.tid();
    loop {
        let (stopped, event) = running.wait().map_err(|e| lost(tid, e))?;
        let Some(signal) = group_stop(&event) else { return Ok((stopped, event)) };
        running = stopped.to_syscall(signal).map_err(|e| lost(tid, e))?;
    }
}
