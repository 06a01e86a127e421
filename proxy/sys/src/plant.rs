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
use crate::inject;
use crate::inject::Injector;
use crate::process;
use crate::process::Process;
use crate::process::Thread;
use crate::ptrace;
use crate::ptrace::Event;
use crate::ptrace::Running;
use crate::ptrace::Stopped;
use crate::ptrace::Waited;
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

    /// The traps of that thread go where others' go.
    fn let_go(&mut self, tid: Tid);

    /// Has a call fail whose thread was let go, if the thread has made it again.
    fn refuse(&mut self, call: &Notification, errno: i32) -> bool;
}

/// What planting needs to know about its surroundings.
pub struct Planter<'a> {
    /// The sandbox's listener.
    pub(crate) listener: &'a Listener,
    /// Who receives from it.
    pub(crate) traps: &'a mut dyn Traps,
    /// The stubs' code.
    pub(crate) code: &'a SealedCode,
    /// The thread that has made the stub.
    pub(crate) maker: Option<Leaving>,
}

impl<'a> Planter<'a> {
    /// One that serves a sandbox.
    pub fn new(listener: &'a Listener, traps: &'a mut dyn Traps, code: &'a SealedCode) -> Self {
        Self { listener, traps, code, maker: None }
    }
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

/// What was done with a stopped thread, and the thread, unless it was let go meanwhile, to make its call again
/// ([`Leaving`]); the outer error leaves it in the middle of a call.
pub(crate) type Worked<T> = Result<(Option<Stopped>, Result<(T, After), PlantError>), PlantError>;

/// What a stopped thread was before, in its call.
pub(crate) struct Before<'a> {
    pub(crate) regs: ptrace::Regs,
    blocked: u64,
    trap: &'a Notification,
}

impl Before<'_> {
    /// The thread, which a call of its own has left, as it goes on when it makes its call again.
    pub(crate) fn leaving(&self, thread: Running) -> Leaving {
        let again = Native::again(&self.regs, self.trap.nr, self.trap.args[0]);
        Leaving { thread, again, blocked: self.blocked, since: Instant::now() }
    }

    fn go(&self, stopped: Stopped, regs: &ptrace::Regs) -> io::Result<()> {
        go(stopped, regs, self.blocked)
    }
}

fn go(stopped: Stopped, regs: &ptrace::Regs, blocked: u64) -> io::Result<()> {
    stopped.set_regs(regs)?;
    stopped.block(blocked)?;
    stopped.detach(0)
}

/// A thread on its way out of a clone(2), which is held only while its stub is made soon: a freezer waits for the thread.
pub(crate) struct Leaving {
    thread: Running,
    again: ptrace::Regs,
    blocked: u64,
    since: Instant,
}

impl Leaving {
    /// Lets the thread go if it has waited for long: it waits on in its own call.
    pub(crate) fn go_if_late(held: &mut Option<Self>, traps: &mut dyn Traps) -> io::Result<()> {
        let Some(Self { thread, again, blocked, since }) =
            held.take_if(|held| held.since.elapsed() > SOON)
        else {
            return Ok(());
        };
        let tid = thread.tid();
        match thread.try_wait()? {
            Waited::Stopped(stopped, Event::Syscall) => {
                traps.let_go(tid);
                go(stopped, &again, blocked)?;
            }
            Waited::Stopped(stopped, event) => {
                let signal = inject::group_stop(&event).unwrap_or(0);
                let thread = stopped.to_syscall(signal)?;
                *held = Some(Self { thread, again, blocked, since });
            }
            Waited::Nothing(thread) => *held = Some(Self { thread, again, blocked, since }),
            Waited::Gone => {}
        }
        Ok(())
    }

    /// The thread, stopped.
    pub(crate) async fn stops(self) -> Result<Stopped, PlantError> {
        inject::out_of_clone(self.thread).await
    }
}

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

/// How long a stub usually takes.
const SOON: Duration = Duration::from_millis(50);

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
        let work = async |planter: &mut Self, held, before: &Before<'_>, lent| {
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
        work: impl AsyncFnOnce(&mut Self, Stopped, &Before<'_>, Option<u32>) -> Worked<T>,
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
        work: impl AsyncFnOnce(&mut Self, Stopped, &Before<'_>, Option<u32>) -> Worked<T>,
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
        // The thread is traced: its number is its own. It comes to its stop meanwhile.
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
        let regs = Native::behind(&stopped.regs().map_err(gone)?, trap.ip);
        let before = Before { regs, blocked: stopped.blocked().map_err(gone)?, trap };
        // Signals wait until the thread is itself again; the new thread inherits the mask.
        stopped.block(u64::MAX).map_err(gone)?;
        let (stopped, worked) = match (looked, lent) {
            (Ok(()), Ok(lent)) => work(self, stopped, &before, lent).await?,
            (Err(e), Ok(Some(lent))) => {
                (Some(self.closed(stopped, &before.regs, lent).await?), Err(e))
            }
            (Err(e), _) => (Some(stopped), Err(e)),
            // A signal has ended the trap before: the call is made again.
            (_, Err(e)) if e.raw_os_error() == Some(libc::ENOENT) => {
                (Some(stopped), Err(PlantError::Interrupted(tid)))
            }
            (_, Err(source)) => {
                (Some(stopped), Err(PlantError::Injected { call: "a descriptor", source }))
            }
        };
        let errno = match &worked {
            Err(PlantError::Injected { source, .. } | PlantError::Unready { source, .. }) => {
                Some(match source.raw_os_error() {
                    // Something of the guest's own is where the stub's memory belongs.
                    Some(libc::EEXIST) => libc::ENOMEM,
                    errno => errno.unwrap_or(libc::EIO),
                })
            }
            Err(PlantError::Borrowed(_)) => Some(libc::EPERM),
            _ => None,
        };
        match (stopped, &worked, errno) {
            (None, _, Some(errno)) => self.told(trap, errno).await?,
            (Some(stopped), _, Some(errno)) => {
                before
                    .go(stopped, &Native::returning(&before.regs, -i64::from(errno)))
                    .map_err(gone)?;
            }
            (Some(stopped), Ok((_, After::Returns(value))), _) => {
                before.go(stopped, &Native::returning(&before.regs, *value)).map_err(gone)?;
            }
            (
                Some(stopped),
                Ok((_, After::Again)) | Err(PlantError::Sought(_) | PlantError::Interrupted(_)),
                _,
            ) => {
                let again = Native::again(&before.regs, trap.nr, trap.args[0]);
                before.go(stopped, &again).map_err(gone)?;
            }
            _ => {}
        }
        worked.map(|(done, _)| done)
    }

    /// Has the call fail of a thread that was let go, as soon as the thread makes it again. A thread that does not, soon,
    /// is in a handler of its own, or frozen: its call begins another planting.
    async fn told(&mut self, trap: &Notification, errno: i32) -> Result<(), PlantError> {
        let begun = Instant::now();
        while !self.traps.refuse(trap, errno) && begun.elapsed() < PATIENCE {
            // The new thread has ended with its process, and for no reason of its own.
            if process::state(trap.tid).map_or(true, |state| "ZX".contains(state)) {
                return Err(PlantError::Gone(trap.tid));
            }
            ptrace::pause(PATIENCE / 1000).await;
        }
        Ok(())
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
        let stopped = self.closed(stopped, &Native::behind(&regs, trap.ip), lent).await?;
        stopped.set_regs(&regs).map_err(gone)?;
        stopped.block(blocked).map_err(gone)?;
        // A stop at a call brings no signal.
        process::send(tid, signal).map_err(gone)?;
        stopped.detach(0).map_err(gone)
    }

    /// Has a stopped thread close what it was lent.
    pub(crate) async fn closed(
        &mut self,
        stopped: Stopped,
        base: &ptrace::Regs,
        lent: u32,
    ) -> Result<Stopped, PlantError> {
        let args = [lent.into(), 0, 0, 0, 0, 0];
        let close = Call { name: "close", nr: Native::NUMBERS.close, args };
        Ok(self.injector().inject(stopped, base, &close).await?.0)
    }

    pub(crate) fn injector(&mut self) -> Injector<'_> {
        Injector { listener: self.listener, traps: self.traps, maker: &mut self.maker }
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
