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

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Native;
use crate::arch::RDMA_VERBS_IOCTL;
use crate::arch::StubAddrs;
use crate::arch::stub_fd;
use crate::caller::Caller;
use crate::control;
use crate::frame;
use crate::frame::Ready;
use crate::inject::Call;
use crate::inject::Given;
use crate::inject::Injector;
use crate::inject::Made;
use crate::inject::RESTART;
use crate::inject::Sight;
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
use crate::stub;
use crate::stub::Stub;
use crate::window::AddrWindow;
use crate::window::CODE_LEN;

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
    /// Plants a stub in a process by way of its thread that made the call `trap`, which then makes
    /// that call again: it has been answered when this returns, and a new notification will come.
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
        process: &Process,
        trap: &Notification,
        slot: usize,
        first: bool,
    ) -> Result<Stub, PlantError> {
        let unready = |source| PlantError::Unready { what: "a frame", source };
        let (frame, ro) = self.ready.take(self.window).map_err(unready)?;
        let new = New { ro: Some(ro.as_fd()), first, scratch: frame.scratch() };
        let thread = self.attached(process, trap, |planter, held, before| {
            planter.made(held, before, slot, &new)
        })?;
        Ok(Stub::new(thread, slot, frame, self.window))
    }

    /// Plants a stub in the place of one that has ended, whose memory is still mapped.
    ///
    /// # Errors
    /// See [`PlantError`]; also for what became of the call.
    pub fn replace(
        &mut self,
        process: &Process,
        trap: &Notification,
        ended: &mut Stub,
    ) -> Result<(), PlantError> {
        let new = New { ro: None, first: false, scratch: ended.frame.scratch() };
        let slot = ended.slot;
        let thread = self.attached(process, trap, |planter, held, before| {
            planter.made(held, before, slot, &new)
        })?;
        ended.replaced_by(thread);
        Ok(())
    }

    /// Stops the thread that made the call `trap`, has something done with it, and lets it go.
    pub(crate) fn attached<T>(
        &mut self,
        process: &Process,
        trap: &Notification,
        work: impl FnOnce(&mut Self, Stopped, &ptrace::Regs) -> Worked<T>,
    ) -> Result<T, PlantError> {
        self.traps.expect(trap.tid);
        let caller = Caller::of(self.listener, trap);
        let planted = match ptrace::seize(caller) {
            Ok(guest) => self.stopped(guest, trap, work),
            Err(e) => Err(refused(trap.tid, e)),
        };
        // A thread with foreign registers must not run on. Whoever is gone stays so; when it went
        // because another thread executed a program, that program is none of ours to end.
        if let Err(PlantError::Unexpected { .. } | PlantError::Own { .. }) = planted {
            let _ = process.kill();
        }
        let left = !matches!(
            planted,
            Ok(_) | Err(PlantError::Injected { .. } | PlantError::Interrupted(_))
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
        let before = stopped.regs().map_err(gone)?;
        let blocked = stopped.blocked().map_err(gone)?;
        // Signals wait until the thread is itself again; the new thread inherits the mask.
        stopped.block(u64::MAX).map_err(gone)?;
        let (stopped, worked) = work(self, stopped, &before)?;
        let after = match &worked {
            Ok((_, After::Again)) => Native::again(&before, trap.nr, trap.args[0]),
            Ok((_, After::Returns(value))) => Native::returning(&before, *value),
            Err(PlantError::Injected { source, .. }) => {
                let errno = match source.raw_os_error() {
                    // Something of the guest's own is where the stub's memory belongs.
                    Some(libc::EEXIST) => libc::ENOMEM,
                    errno => errno.unwrap_or(libc::EIO),
                };
                Native::returning(&before, -i64::from(errno))
            }
            Err(_) => return worked.map(|(done, _)| done),
        };
        stopped.set_regs(&after).map_err(gone)?;
        stopped.block(blocked).map_err(gone)?;
        stopped.detach(0).map_err(gone)?;
        worked.map(|(done, _)| done)
    }

    /// Has the stopped guest thread make the new one.
    fn made(
        &mut self,
        stopped: Stopped,
        before: &ptrace::Regs,
        slot: usize,
        new: &New<'_>,
    ) -> Worked<Thread> {
        let flags = libc::CLONE_VM
            | libc::CLONE_FILES
            | libc::CLONE_FS
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let args = [u64::from(flags.cast_unsigned()), 0, 0, 0, 0, 0];
        let clone =
            Call { name: "clone", nr: Native::NUMBERS.clone, args, sight: Sight::Untrapped };
        let (stopped, Made { result, born }) =
            self.injector().inject(stopped, before, &clone, &[])?;
        let planted = match born {
            Some(born) => {
                self.traps.expect(born);
                let (stub, _) = Running::born(born).wait().map_err(|e| lost(born, e))?;
                self.furnish(stub, before, slot, new)
            }
            None => Err(failed(&clone, result)),
        };
        Ok((stopped, planted.map(|thread| (thread, After::Again))))
    }

    pub(crate) fn injector(&mut self) -> Injector<'_> {
        Injector { listener: self.listener, traps: self.traps }
    }

    /// Gives the new thread its descriptors and memory, and sets it going; or ends it.
    fn furnish(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        slot: usize,
        new: &New<'_>,
    ) -> Result<Thread, PlantError> {
        let tid = stub.tid();
        let (stub, result) = self.equip(stub, like, slot, new)?;
        if let Err(e) = result {
            self.injector().end(stub, like)?;
            return Err(e);
        }
        let ro_at = self.window.slot(slot);
        let addrs = StubAddrs {
            code: self.window.code(),
            request: ro_at + stub::request_offset(stub::INPUTS) as u64,
            after: ro_at + control::AFTER as u64,
            message: ro_at + control::MESSAGE as u64,
            // The second lock; the filter is the first, and the only one before 6.10.
            sealed: frame::range(self.window, slot, new.first),
        };
        let mut thread = Thread::of_traced(tid).map_err(|e| lost(tid, e))?;
        stub.set_regs(&Native::enter_stub(&addrs, like)).map_err(|e| lost(tid, e))?;
        stub.detach(0).map_err(|e| lost(tid, e))?;
        // While the stub is on its way.
        thread.learn_numbers();
        Ok(thread)
    }

    fn equip(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        slot: usize,
        new: &New<'_>,
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let n = &Native::NUMBERS;
        let own = [0, u64::from(u32::MAX), CLOSE_RANGE_UNSHARE, 0, 0, 0];
        let trapped = |name, nr, args| Call { name, nr, args, sight: Sight::Trapped };
        // Instead of a copy of a table, which may be large: the kernel copies 64 descriptors at most
        // before it closes them (fs/file.c).
        let empty = [trapped("close_range", n.close_range, own)];
        let (stub, emptied) = self.make(stub, like, &empty, &[])?;
        if emptied.is_err() {
            return Ok((stub, emptied));
        }
        let Some(ro) = new.ro else {
            let args = [0, RDMA_VERBS_IOCTL.into(), 0, 0, 0, 0];
            let give = Call { name: "ioctl", nr: n.ioctl, args, sight: Sight::Answered };
            return self.make(stub, like, &[give], &[(stub_fd::SCRATCH, new.scratch)]);
        };
        let give = [(stub_fd::SCRATCH, new.scratch), (frame::FILE, ro)];
        let range = frame::range(self.window, slot, new.first);
        let (stub, mapped) = self.map(stub, like, slot, new.first, &give)?;
        if !exists(&mapped) || !holds_leftovers_only(stub.tid(), range) {
            return Ok((stub, mapped));
        }
        // Of a planting in the parent, which had not got farther when this process was made: without
        // access, so of no use to anybody.
        let clear = [trapped("munmap", n.munmap, [range.0, range.1, 0, 0, 0, 0])];
        let (stub, cleared) = self.make(stub, like, &clear, &[])?;
        if cleared.is_err() {
            return Ok((stub, cleared));
        }
        self.map(stub, like, slot, new.first, &give)
    }

    /// Has a new stub map its memory: by its own code if that is not there yet, which takes fewer
    /// stops.
    fn map(
        &mut self,
        stub: Stopped,
        like: &ptrace::Regs,
        slot: usize,
        first: bool,
        give: &Given<'_>,
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let sight = Sight::Trapped;
        let frame = frame::calls(self.window, slot, first);
        let frame = frame.map(|(name, nr, args)| Call { name, nr, args, sight });
        if !first {
            return self.make(stub, like, &frame, give);
        }
        let number = |flags: i32| u64::from(flags.cast_unsigned());
        let rx = number(libc::PROT_READ | libc::PROT_EXEC);
        let fixed = number(libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
        let at = self.window.code();
        let args = [at, CODE_LEN as u64, rx, fixed, frame::FILE.into(), 0];
        let code = Call { name: "mmap", nr: Native::NUMBERS.mmap, args, sight };
        let (stub, mapped) = self.make(stub, like, &[code], give)?;
        if mapped.is_err() {
            return Ok((stub, mapped));
        }
        let begin = Native::begin(at + Native::stub_code(&[]).calls_at, like);
        let (stub, done) = self.injector().follow(stub, &begin, &frame)?;
        let result = done.map_err(|(call, result)| failed(call, result));
        let Some(last) = frame.last().filter(|_| result.is_ok()) else { return Ok((stub, result)) };
        let shown = Native::result(&stub.regs().map_err(|e| lost(stub.tid(), e))?);
        match shown {
            0 => Ok((stub, Ok(()))),
            shown if RESTART.contains(&shown) => self.make(stub, like, &[*last], &[]),
            shown => Ok((stub, Err(failed(last, shown)))),
        }
    }

    /// Makes calls until one fails, the first of which gets descriptors. The outer error leaves the thread in the middle of one.
    fn make(
        &mut self,
        mut stub: Stopped,
        like: &ptrace::Regs,
        calls: &[Call],
        mut give: &Given<'_>,
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let n = &Native::NUMBERS;
        for call in calls {
            let tid = stub.tid();
            let (after, Made { result, .. }) = self.injector().inject(stub, like, call, give)?;
            (stub, give) = (after, &[]);
            if (-4095..0).contains(&result) {
                return Ok((stub, Err(failed(call, result))));
            }
            if call.nr == n.mmap && result.cast_unsigned() != call.args[0] {
                // Before 4.17 MAP_FIXED_NOREPLACE is a mere hint.
                return Err(unexpected(tid, call.name, format!("address {result:#x}")));
            }
        }
        Ok((stub, Ok(())))
    }
}

/// include/uapi/linux/close_range.h.
const CLOSE_RANGE_UNSHARE: u64 = 2;

/// Whether something was mapped already.
fn exists(result: &Result<(), PlantError>) -> bool {
    matches!(result, Err(PlantError::Injected { call: "mmap", source })
        if source.raw_os_error() == Some(libc::EEXIST))
}

/// Whether nothing is mapped in a range but what planting maps.
fn holds_leftovers_only(tid: Tid, (at, len): (u64, u64)) -> bool {
    process::mapped(tid, at, len)
        .is_ok_and(|names| names.iter().all(|name| name.starts_with("/memfd:verbgate-")))
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
