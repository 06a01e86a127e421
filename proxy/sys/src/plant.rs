//! The planting of a stub: a new thread in the guest's own process that runs vetted requests.
//!
//! The guest thread whose request is being served makes the stub, stopped for the planting. The new
//! thread leaves the guest's descriptor table for an empty one of its own (`CLOSE_RANGE_UNSHARE`), and
//! the frame's descriptors appear in that table alone. So no guest thread can replace these descriptors between
//! the moment they are given and the moment they are mapped, and none can replace a request's
//! descriptors between check and use. Every injected call has scalar arguments only; each is
//! verified, at its trap or at its syscall-entry-stop, before the call is let through.
//!
//! The frame is mapped without access until it is safe from fork(2). So a child that another
//! thread makes meanwhile inherits only addresses, and the code, which does nothing without a frame;
//! the child's own planting takes these addresses back.

mod ends;
mod error;
mod furnish;

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Native;
use crate::caller::Caller;
use crate::frame::Ready;
use crate::inject::Injector;
use crate::process;
use crate::process::Process;
use crate::process::Thread;
use crate::ptrace;
use crate::ptrace::Event;
use crate::ptrace::Running;
use crate::ptrace::Stopped;
use crate::seccomp::Listener;
use crate::seccomp::Notification;
use crate::seccomp::Reply;
use crate::stub::Stub;
use crate::window::AddrWindow;

pub use self::ends::Ends;
pub use self::error::PlantError;
pub(crate) use self::error::failed;
pub(crate) use self::error::lost;
pub(crate) use self::error::unexpected;

/// Where the traps of a thread come from that is made to make calls.
pub trait Traps {
    /// Has the traps of a thread come here from now on.
    fn expect(&mut self, tid: Tid);

    /// The same; that thread is about to make these trapped calls, numbers and arguments, in this order,
    /// which whoever receives their traps has the kernel make.
    fn foresee(&mut self, tid: Tid, calls: Vec<(u32, [u64; 6])>);

    /// How many of these have not been made.
    fn foreseen(&self) -> usize;

    /// From now on that thread is known as a stub, and its traps go elsewhere. False: somebody may be about to
    /// trace it, and it must not become one.
    fn announce(&mut self, stub: &Arc<Thread>) -> bool;

    /// Waits for the next trap of that thread, for a millisecond or so.
    ///
    /// # Errors
    /// When the listener fails.
    fn next(&mut self, tid: Tid) -> io::Result<Option<Notification>>;
}

/// What planting needs to know about its surroundings.
pub struct Planter<'a> {
    /// The sandbox's listener.
    pub listener: &'a Listener,
    /// Who receives from it.
    pub traps: &'a mut dyn Traps,
    /// The window.
    pub window: AddrWindow,
    /// A frame that is ready.
    pub ready: &'a Ready,
    /// Who takes note of the end of threads that planting has failed with.
    pub ends: &'a Ends,
}

impl std::fmt::Debug for Planter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planter").field("window", &self.window).finish_non_exhaustive()
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
struct New<'a> {
    /// The code and the read-only half, which are to be mapped; none where a stub has ended, whose memory is still
    /// there.
    ro: Option<BorrowedFd<'a>>,
    /// No stub of this address space exists yet: the code, too.
    first: bool,
    scratch: BorrowedFd<'a>,
}

impl Planter<'_> {
    /// Plants a stub by way of a thread, which then makes its call again: that has been answered when
    /// this returns, and a new notification will come.
    ///
    /// `slot` was never used, and if it is the `first` of this address space, the code is not there
    /// yet, either.
    ///
    /// It waits for the guest.
    ///
    /// # Errors
    /// See [`PlantError`]; also for what became of the call.
    pub fn plant(
        &mut self,
        from: Origin<'_>,
        slot: usize,
        first: bool,
    ) -> Result<Stub, PlantError> {
        let unready = |source| PlantError::Unready { what: "a frame", source };
        let (frame, ro) = self.ready.take(self.window).map_err(unready)?;
        let new = New { ro: Some(ro.as_fd()), first, scratch: frame.scratch() };
        let thread = self.made(from, slot, &new)?;
        Ok(Stub::new(thread, slot, frame, self.window))
    }

    /// Plants a stub in the place of one that has ended, whose memory is still mapped.
    ///
    /// # Errors
    /// See [`PlantError`]; also for what became of the call.
    pub fn replace(&mut self, from: Origin<'_>, ended: &mut Stub) -> Result<(), PlantError> {
        let new = New { ro: None, first: false, scratch: ended.frame.scratch() };
        let thread = self.made(from, ended.slot, &new)?;
        ended.replaced_by(thread);
        Ok(())
    }

    /// Has a thread make a stub.
    fn made(
        &mut self,
        from: Origin<'_>,
        slot: usize,
        new: &New<'_>,
    ) -> Result<Arc<Thread>, PlantError> {
        let Origin { process, trap, is_own } = from;
        let check = |tid| match is_own || !process::borrows_memory(tid).unwrap_or(false) {
            true => Ok(()),
            false => Err(PlantError::Borrowed(tid)),
        };
        self.attached((process, trap), check, |planter, held, before| {
            planter.multiplied(held, before, slot, new)
        })
    }

    /// Stops the thread that made the call `trap`, has something done with it if a look at it while it
    /// comes to its stop finds nothing against that, and lets it go.
    pub(crate) fn attached<T>(
        &mut self,
        (process, trap): (&Process, &Notification),
        look: impl FnOnce(Tid) -> Result<(), PlantError>,
        work: impl FnOnce(&mut Self, Stopped, &ptrace::Regs) -> Worked<T>,
    ) -> Result<T, PlantError> {
        self.traps.expect(trap.tid);
        let caller = Caller::of(self.listener, trap);
        let planted = match ptrace::seize(caller) {
            Ok(guest) => self.stopped(guest, trap, look, work),
            Err(e) => Err(refused(trap.tid, e)),
        };
        // A thread with foreign registers must not run on. Whoever is gone stays so; when it went
        // because another thread executed a program, that program is none of ours to end.
        if let Err(PlantError::Unexpected { .. } | PlantError::Own { .. }) = planted {
            let _ = process.kill();
        }
        let left = !matches!(
            planted,
            Ok(_)
                | Err(PlantError::Injected { .. }
                    | PlantError::Interrupted(_)
                    | PlantError::Borrowed(_)
                    | PlantError::Sought(_))
        );
        if left {
            self.ends.expect(process.tgid());
        }
        self.ends.take();
        planted
    }

    fn stopped<T>(
        &mut self,
        guest: Running,
        trap: &Notification,
        look: impl FnOnce(Tid) -> Result<(), PlantError>,
        work: impl FnOnce(&mut Self, Stopped, &ptrace::Regs) -> Worked<T>,
    ) -> Result<T, PlantError> {
        let tid = trap.tid;
        let gone = move |e: io::Error| lost(tid, e);
        guest.interrupt().map_err(gone)?;
        let answered = match self.listener.reply(trap.id, Reply::Value(0)) {
            // Under a filter of others, whose waits need not be killable, the interruption may have
            // ended the trap, or a signal. If it was the thread's end that did, that is seen next.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => false,
            replied => replied.map(|()| true).map_err(gone)?,
        };
        // It is traced: its number is its own.
        let looked = look(tid);
        let stopped = match guest.wait().map_err(gone)? {
            (stopped, Event::Stop) => stopped,
            // It is on its way to the handler, after which the kernel has it make the call again,
            // or not, as any call that a signal interrupts.
            (stopped, Event::Signal(signal)) if !answered => {
                stopped.detach(signal).map_err(gone)?;
                return Err(PlantError::Interrupted(tid));
            }
            (_, event) => return Err(unexpected(tid, "a stop", format!("{event:?}"))),
        };
        stopped.set_options().map_err(gone)?;
        let before = Native::behind(&stopped.regs().map_err(gone)?, trap.ip);
        let blocked = stopped.blocked().map_err(gone)?;
        // Signals wait until the thread is itself again; the new thread inherits the mask.
        stopped.block(u64::MAX).map_err(gone)?;
        let (stopped, worked) = match looked {
            Ok(()) => work(self, stopped, &before)?,
            Err(e) => (stopped, Err(e)),
        };
        let after = match &worked {
            Ok((_, After::Again)) | Err(PlantError::Sought(_)) => {
                Native::again(&before, trap.nr, trap.args[0])
            }
            Ok((_, After::Returns(value))) => Native::returning(&before, *value),
            Err(PlantError::Injected { source, .. }) => {
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
        _ => PlantError::Gone(tid),
    }
}
