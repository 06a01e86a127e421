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
use crate::seccomp::Reply;

/// A call to be injected.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) nr: u32,
    pub(crate) args: [u64; 6],
    /// Whether the filter sends it to the supervisor.
    pub(crate) trapped: bool,
}

/// What injecting takes.
pub(crate) struct Injector<'a> {
    pub(crate) listener: &'a Listener,
    /// Who receives from it.
    pub(crate) traps: &'a mut dyn Traps,
}

impl Injector<'_> {
    /// Has a stopped thread make one call, and returns it stopped at the call's exit.
    ///
    /// A stop of the whole process may come at any point, since SIGSTOP cannot be blocked: it
    /// takes effect when the thread is let go, and a call that it interrupts is made again.
    pub(crate) fn inject(
        &mut self,
        mut stopped: Stopped,
        base: &ptrace::Regs,
        call: &Call,
        give: Option<&[(u32, BorrowedFd<'_>)]>,
    ) -> Result<(Stopped, Option<Tid>), PlantError> {
        let tid = stopped.tid();
        let gone = move |e: io::Error| lost(tid, e);
        let mut born = None;
        loop {
            let running = enter(stopped, base, call)?;
            let (left, event) = if call.trapped {
                match self.answer_own(running, call, give)? {
                    Answered::Yes(running) => next_event(running)?,
                    Answered::Withdrawn(stopped, event) => (stopped, event),
                }
            } else {
                next_event(running)?
            };
            let (left, event) = match event {
                Event::Clone(child) => {
                    born = Some(child);
                    next_event(left.to_syscall(0).map_err(gone)?)?
                }
                event => (left, event),
            };
            if event != Event::Syscall {
                return Err(unexpected(tid, call.name, format!("{event:?}")));
            }
            let result = Native::result(&left.regs().map_err(gone)?);
            if !RESTART.contains(&result) {
                return Ok((left, born));
            }
            stopped = left;
        }
    }

    /// Ends a stopped thread.
    pub(crate) fn end(&self, stopped: Stopped, base: &ptrace::Regs) -> Result<(), PlantError> {
        let tid = stopped.tid();
        let exit = Call { name: "exit", nr: Native::NUMBERS.exit, args: [0; 6], trapped: false };
        match next_event(enter(stopped, base, &exit)?) {
            Err(PlantError::Gone(_)) => Ok(()),
            Err(e) => Err(e),
            Ok((_, event)) => Err(unexpected(tid, exit.name, format!("{event:?}"))),
        }
    }

    /// The injected call passes our own filter too: receives and answers its notification.
    fn answer_own(
        &mut self,
        mut running: Running,
        call: &Call,
        give: Option<&[(u32, BorrowedFd<'_>)]>,
    ) -> Result<Answered, PlantError> {
        let tid = running.tid();
        let gone = move |e: io::Error| lost(tid, e);
        loop {
            if let Some(notif) = self.traps.next(tid).map_err(gone)? {
                if notif.nr != call.nr || notif.args != call.args {
                    return Err(unexpected(tid, call.name, format!("trap {}", notif.nr)));
                }
                let Some(give) = give else {
                    self.listener.reply(notif.id, Reply::Continue).map_err(gone)?;
                    return Ok(Answered::Yes(running));
                };
                let mut add = give.iter().map(|(at, fd)| {
                    let how = AddFd { at: Some(*at), ..AddFd::default() };
                    self.listener.add_fd(notif.id, *fd, how)
                });
                let answer = match add.find_map(Result::err).and_then(|e| e.raw_os_error()) {
                    None => Reply::Value(0),
                    Some(errno) => Reply::Errno(errno),
                };
                self.listener.reply(notif.id, answer).map_err(gone)?;
                return Ok(Answered::Yes(running));
            }
            match running.try_wait().map_err(gone)? {
                Waited::Nothing(still) => running = still,
                Waited::Gone => return Err(PlantError::Gone(tid)),
                Waited::Stopped(stopped, event) => {
                    return Ok(Answered::Withdrawn(stopped, event));
                }
            }
        }
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

/// What became of an injected call's notification.
enum Answered {
    /// It was answered.
    Yes(Running),
    /// None came: the call was interrupted before it was received.
    Withdrawn(Stopped, Event),
}

/// `-ERESTARTSYS` to `-ERESTART_RESTARTBLOCK`, include/linux/errno.h: a call was interrupted.
const RESTART: std::ops::RangeInclusive<i64> = -516..=-512;

/// The signal to go on with after a stop of the whole process; `None` for any other event.
fn group_stop(event: &Event) -> Option<i32> {
    match event {
        Event::Stop => Some(0),
        // About to stop the process, which this thread can only pass on.
        Event::Signal(libc::SIGSTOP) => Some(libc::SIGSTOP),
        _ => None,
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
