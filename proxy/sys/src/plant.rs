//! The planting of a stub: a new thread in the guest's own process that runs vetted requests.
//!
//! Nothing of a stub is made at a place that the guest can write. The guest thread whose request is being served,
//! stopped, maps the stubs' code and makes a thread, and that is all: the new thread is born stopped, is put on
//! that code, and executes nothing else, ever. By that code the thread leaves the guest's descriptor table for an
//! empty one (`CLOSE_RANGE_UNSHARE`), is given its frame's descriptors there, and maps them. Our own filter asks
//! about each of these calls, so the kernel tells each, with the place of the code, before the kernel makes it.
//! The new thread has no rseq(2) area, no robust list and no dispatch of system calls: clone(2) gives a thread none
//! of its maker's. All its signals are blocked.
//!
//! The file from which the code was mapped stood in the guest's own table for a moment, where the guest can put another:
//! then the thread runs the guest's code, as all its threads do. So what is mapped is looked at
//! ([`SealedCode::is_mapped`]), in `/proc/PID/maps`, when nobody can change the window any more and before
//! the stub gets a device's file.
//!
//! The frame is mapped without access until it is safe from fork(2). So a child that another
//! thread makes meanwhile inherits only addresses, and the code, which does nothing without a frame;
//! the child's own planting takes these addresses back.

mod error;
mod furnish;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Call;
use crate::arch::Native;
use crate::caller::Caller;
use crate::frame::SealedCode;
use crate::inject::Injector;
use crate::process;
use crate::process::Process;
use crate::process::Thread;
use crate::ptrace;
use crate::ptrace::Event;
use crate::ptrace::Running;
use crate::ptrace::Stopped;
use crate::seccomp::AddFd;
use crate::seccomp::Listener;
use crate::seccomp::Notification;
use crate::seccomp::Reply;
use crate::shortage;

pub use self::error::PlantError;
pub(crate) use self::error::failed;
pub(crate) use self::error::lost;
pub(crate) use self::error::short;
pub(crate) use self::error::unexpected;

/// Where the traps of a thread come from that is made to make calls.
pub trait Traps {
    /// Has the traps of a thread come here from now on.
    fn expect(&mut self, tid: Tid);

    /// The same; that thread is about to make these trapped calls, in this order: numbers, arguments, and places,
    /// which whoever receives their traps has the kernel make.
    fn foresee(&mut self, tid: Tid, calls: Vec<(u32, [u64; 6], u64)>);

    /// How many of these have not been made.
    fn foreseen(&self) -> usize;

    /// From now on that thread is known as a stub, and its traps go elsewhere. False: somebody may be about to
    /// trace it, and it must not become one.
    fn announce(&mut self, stub: &Arc<Thread>) -> bool;

    /// The stubs of other processes, and the threads that make such.
    fn stubs_beside(&self) -> Vec<Tid>;

    /// The next trap of that thread, if it has come.
    fn take(&mut self, tid: Tid) -> Option<Notification>;
}

/// What planting needs to know about its surroundings.
pub struct Planter<'a> {
    /// The sandbox's listener.
    pub listener: &'a Listener,
    /// Who receives from it.
    pub traps: &'a mut dyn Traps,
    /// The stubs' code.
    pub code: &'a SealedCode,
}

impl std::fmt::Debug for Planter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planter").field("code", &self.code).finish_non_exhaustive()
    }
}

/// How the call ends of a thread that was stopped for something.
pub(crate) enum After {
    /// It is made again.
    Again,
    /// It returns this.
    Returns(i64),
}

/// What was done with a stopped thread; the outer error leaves it in the middle of a call.
pub(crate) type Worked<T> = Result<(Stopped, Result<(T, After), PlantError>), PlantError>;

/// By way of whom a stub is planted.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The process.
    pub process: &'a Process,
    /// The call of the process's thread that makes the stub.
    pub trap: &'a Notification,
    /// The process's memory is known to be its own. Otherwise that is looked at first: a stub ends with
    /// the process of the thread that makes it, so a child between vfork(2) and execve(2) would take
    /// its parent's with it.
    pub is_own: bool,
}

/// What a new stub is given besides its memory.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// The place, which was never used, or where a stub has ended.
    pub slot: usize,
    /// The read-only half, which is to be mapped; none where a stub has ended, whose memory is still there.
    pub ro: Option<BorrowedFd<'a>>,
    /// The read-write half.
    pub scratch: BorrowedFd<'a>,
}

/// How long a thread may take to end that seems to be gone.
const PATIENCE: Duration = Duration::from_secs(2);

impl Planter<'_> {
    /// Plants a stub by way of a thread, which then makes its call again: that has been answered when
    /// this returns, and a new notification will come.
    ///
    /// # Errors
    /// See [`PlantError`]; also for what became of the call.
    pub async fn plant(
        &mut self,
        from: Origin<'_>,
        new: &New<'_>,
    ) -> Result<Arc<Thread>, PlantError> {
        let Origin { process, trap, is_own } = from;
        let check = |tid| match is_own || !process::borrows_memory(tid).unwrap_or(false) {
            true => Ok(()),
            false => Err(PlantError::Borrowed(tid)),
        };
        let code = self.code;
        // The first of its address space.
        let lent = (new.slot == 0 && new.ro.is_some()).then(|| code.file());
        let work = async |planter: &mut Self, held, before: &ptrace::Regs, lent| {
            planter.multiplied(held, before, (new, lent)).await
        };
        self.attached((process, trap), lent, check, work).await
    }

    /// Stops the thread that made the call `trap`, has something done with it if a look at it while it
    /// comes to its stop finds nothing against that, and lets it go. The thread is lent a file, at a number
    /// that the kernel chooses.
    pub(crate) async fn attached<T>(
        &mut self,
        (process, trap): (&Process, &Notification),
        lent: Option<BorrowedFd<'_>>,
        look: impl FnOnce(Tid) -> Result<(), PlantError>,
        work: impl AsyncFnOnce(&mut Self, Stopped, &ptrace::Regs, Option<u32>) -> Worked<T>,
    ) -> Result<T, PlantError> {
        let caller = Caller::of(self.listener, trap);
        let planted = match ptrace::seize(caller).await {
            Ok(guest) => {
                // The thread is traced, and waits in this trap: its number is its own, and no other trap of it is
                // on its way.
                self.traps.expect(trap.tid);
                self.stopped(guest, (trap, lent), look, work).await
            }
            Err(e) => Err(refused(trap.tid, e)),
        };
        // The thread seems to be gone: it ends now, unless what was seen was something else.
        let mut planted = planted;
        let begun = Instant::now();
        while matches!(planted, Err(PlantError::Gone(_))) && ptrace::is_traced(trap.tid) {
            // A thread that is frozen on its way to its end does not wait for its tracer.
            let waits = || process::state(trap.tid).is_ok_and(|state| state == 't');
            if begun.elapsed() > PATIENCE && waits() {
                planted = Err(unexpected(trap.tid, "its end", "nothing"));
            }
            ptrace::pause(PATIENCE / 100).await;
        }
        // A thread with foreign registers must not run on. Whoever is gone stays so; when it went
        // because another thread executed a program, that program is none of ours to end.
        if let Err(PlantError::Unexpected { .. } | PlantError::Own { .. }) = planted {
            let _ = process.kill();
        }
        planted
    }

    async fn stopped<T>(
        &mut self,
        guest: Running,
        (trap, lent): (&Notification, Option<BorrowedFd<'_>>),
        look: impl FnOnce(Tid) -> Result<(), PlantError>,
        work: impl AsyncFnOnce(&mut Self, Stopped, &ptrace::Regs, Option<u32>) -> Worked<T>,
    ) -> Result<T, PlantError> {
        let tid = trap.tid;
        let gone = move |e: io::Error| lost(tid, e);
        let how = AddFd { cloexec: true, ..AddFd::default() };
        let lent = match lent {
            Some(file) => {
                self.listener.lend(trap.id, file, how).await.map(|at| u32::try_from(at).ok())
            }
            None => Ok(None),
        };
        guest.interrupt().map_err(gone)?;
        let answered = match self.listener.reply(trap.id, Reply::Value(0)) {
            // Under a filter of others, whose waits need not be killable, the interruption may have
            // ended the trap, or a signal. If it was the thread's end that did, that is seen next.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => false,
            replied => replied.map(|()| true).map_err(gone)?,
        };
        // While the thread comes to its stop. The thread is traced: its number is its own.
        let looked = look(tid);
        let stopped = match guest.wait().await.map_err(gone)? {
            (stopped, Event::Stop) => stopped,
            // It is on its way to the handler, after which the kernel has it make the call again,
            // or not, as any call that a signal interrupts.
            (stopped, Event::Signal(signal)) if !answered => {
                self.interrupted(stopped, signal, (trap, lent.ok().flatten())).await?;
                return Err(PlantError::Interrupted(tid));
            }
            (_, event) => return Err(unexpected(tid, "a stop", format!("{event:?}"))),
        };
        stopped.set_options().map_err(gone)?;
        let before = Native::behind(&stopped.regs().map_err(gone)?, trap.ip);
        let blocked = stopped.blocked().map_err(gone)?;
        // Signals wait until the thread is itself again; the new thread inherits the mask.
        stopped.block(u64::MAX).map_err(gone)?;
        let lent = lent.map_err(|source| match source.raw_os_error() {
            // A signal has ended the trap before: the call is made again.
            Some(libc::ENOENT) => PlantError::Interrupted(tid),
            _ => PlantError::Injected { call: "a descriptor", source },
        });
        let (stopped, worked) = match (looked, lent) {
            (Ok(()), Ok(lent)) => work(self, stopped, &before, lent).await?,
            (Ok(()), Err(e)) => (stopped, Err(e)),
            (Err(e), lent) => (self.closed(stopped, &before, lent.ok().flatten()).await?, Err(e)),
        };
        let after = match &worked {
            Ok((_, After::Again)) | Err(PlantError::Sought(_) | PlantError::Interrupted(_)) => {
                Native::again(&before, trap.nr, trap.args[0])
            }
            Ok((_, After::Returns(value))) => Native::returning(&before, *value),
            Err(PlantError::Injected { source, .. } | PlantError::Unready { source, .. }) => {
                let errno = match source.raw_os_error() {
                    // Something of the guest's own is where the stub's memory belongs.
                    Some(libc::EEXIST) => libc::ENOMEM,
                    errno => errno.unwrap_or(libc::EIO),
                };
                Native::returning(&before, -i64::from(errno))
            }
            Err(PlantError::Borrowed(_)) => Native::returning(&before, -i64::from(libc::EPERM)),
            Err(_) => return worked.map(|(done, _)| done),
        };
        stopped.set_regs(&after).map_err(gone)?;
        stopped.block(blocked).map_err(gone)?;
        stopped.detach(0).map_err(gone)?;
        worked.map(|(done, _)| done)
    }

    /// Lets a thread go to the handler of a signal, once it has closed what it was lent.
    async fn interrupted(
        &mut self,
        stopped: Stopped,
        signal: i32,
        (trap, lent): (&Notification, Option<u32>),
    ) -> Result<(), PlantError> {
        let tid = stopped.tid();
        let gone = move |e: io::Error| lost(tid, e);
        // A stop that is sent again would come after the SIGCONT that has ended it: what was lent is left then.
        let is_stop =
            [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
        let Some(lent) = lent.filter(|_| !is_stop) else {
            return stopped.detach(signal).map_err(gone);
        };
        stopped.set_options().map_err(gone)?;
        let (regs, blocked) = (stopped.regs().map_err(gone)?, stopped.blocked().map_err(gone)?);
        stopped.block(u64::MAX).map_err(gone)?;
        let base = Native::behind(&regs, trap.ip);
        let stopped = self.closed(stopped, &base, Some(lent)).await?;
        stopped.set_regs(&regs).map_err(gone)?;
        stopped.block(blocked).map_err(gone)?;
        // A stop at a call brings no signal.
        process::send(tid, signal).map_err(gone)?;
        stopped.detach(0).map_err(gone)
    }

    /// Has a stopped thread close what it was lent.
    async fn closed(
        &mut self,
        stopped: Stopped,
        base: &ptrace::Regs,
        lent: Option<u32>,
    ) -> Result<Stopped, PlantError> {
        let Some(lent) = lent else { return Ok(stopped) };
        let args = [lent.into(), 0, 0, 0, 0, 0];
        let close = Call { name: "close", nr: Native::NUMBERS.close, args };
        Ok(self.injector().inject(stopped, base, &close).await?.0)
    }

    pub(crate) fn injector(&mut self) -> Injector<'_> {
        Injector { listener: self.listener, traps: self.traps }
    }
}

fn refused(tid: Tid, source: io::Error) -> PlantError {
    match (source.raw_os_error(), process::tracer(tid)) {
        (Some(libc::EPERM), Ok(tracer)) if tracer != 0 => PlantError::Traced { tid, tracer },
        // EPERM is also for a thread that is ending.
        (Some(libc::EPERM), Ok(_)) if !process::state(tid).is_ok_and(|s| "ZX".contains(s)) => {
            PlantError::Forbidden(tid)
        }
        _ if shortage::is(&source) => PlantError::Unready { what: "a trace", source },
        _ => PlantError::Gone(tid),
    }
}
