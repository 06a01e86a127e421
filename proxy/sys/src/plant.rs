//! The planting of a stub: a new thread in the guest's own process that runs vetted requests.
//!
//! The guest thread whose request is being served makes the stub, stopped for the planting: `clone`
//! without CLONE_FILES gives the new thread a descriptor table of its own, and the frame's
//! descriptors appear in that table alone. So no guest thread can replace these descriptors between
//! the moment they are given and the moment they are mapped, and none can replace a request's
//! descriptors between check and use. Every injected call has scalar arguments only; each is
//! verified at its syscall-entry-stop before the call is let through.
//!
//! The memory is mapped without access until it is safe from fork(2). So a child that another
//! thread makes meanwhile inherits only addresses, and the child's own planting takes these
//! addresses back.

mod ends;
mod error;

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Native;
use crate::arch::RDMA_VERBS_IOCTL;
use crate::arch::StubAddrs;
use crate::arch::stub_fd;
use crate::caller::Caller;
use crate::control;
use crate::frame::Frame;
use crate::frame::FrameFds;
use crate::inject::Call;
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
use crate::stub;
use crate::stub::Stub;
use crate::window::AddrWindow;
use crate::window::CODE_LEN;
use crate::window::RO_LEN;
use crate::window::RW_LEN;

pub use self::ends::Ends;
pub use self::error::PlantError;
pub(crate) use self::error::failed;
pub(crate) use self::error::lost;
pub(crate) use self::error::unexpected;

/// Where the traps of a thread come from that is made to make calls.
pub trait Traps {
    /// Has the traps of a thread come here from now on.
    fn expect(&mut self, tid: Tid);

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
    /// The stub's code ([`crate::frame::code_memfd`]).
    pub code: &'a OwnedFd,
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
    /// Memory that is to be mapped; none where a stub has ended, whose memory is still there.
    fds: Option<&'a FrameFds>,
    /// No stub of this address space exists yet: the code, too.
    first: bool,
    socket: &'a OwnedFd,
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
        let unready = |what| move |source| PlantError::Unready { what, source };
        let (frame, fds) = Frame::new().map_err(unready("a frame"))?;
        let (ours, theirs) = stub::socket_pair().map_err(unready("a socket pair"))?;
        let scratch = frame.scratch();
        let new = New { fds: Some(&fds), first, socket: &theirs, scratch };
        let thread = self.attached(process, trap, |planter, held, before| {
            planter.made(held, before, slot, &new)
        })?;
        Ok(Stub::new(thread, slot, frame, ours, self.window))
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
        let unready = |source| PlantError::Unready { what: "a socket pair", source };
        let (ours, theirs) = stub::socket_pair().map_err(unready)?;
        let scratch = ended.frame.scratch();
        let new = New { fds: None, first: false, socket: &theirs, scratch };
        let slot = ended.slot;
        let thread = self.attached(process, trap, |planter, held, before| {
            planter.made(held, before, slot, &new)
        })?;
        ended.replaced_by(thread, ours);
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
        let guest = ptrace::seize(caller).map_err(|e| refused(trap.tid, e))?;
        let planted = self.stopped(guest, trap, work);
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
            | libc::CLONE_FS
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        let args = [u64::from(flags.cast_unsigned()), 0, 0, 0, 0, 0];
        let clone = Call { name: "clone", nr: Native::NUMBERS.clone, args, trapped: false };
        let tid = stopped.tid();
        let (stopped, born) = self.injector().inject(stopped, before, &clone, None)?;
        let planted = match born {
            Some(born) => {
                self.traps.expect(born);
                let (stub, _) = Running::born(born).wait().map_err(|e| lost(born, e))?;
                self.furnish(stub, before, slot, new)
            }
            None => {
                let regs = stopped.regs().map_err(|e| lost(tid, e))?;
                Err(failed(&clone, Native::result(&regs)))
            }
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
        };
        let thread = Thread::of_traced(tid).map_err(|e| lost(tid, e))?;
        stub.set_regs(&Native::enter_stub(&addrs, like)).map_err(|e| lost(tid, e))?;
        stub.detach(0).map_err(|e| lost(tid, e))?;
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
        let mut lend = vec![
            (stub_fd::SOCKET, new.socket.as_fd()),
            (stub_fd::SCRATCH, new.scratch),
            (CODE_FD, self.code.as_fd()),
        ];
        if let Some(fds) = new.fds {
            lend.extend([(RO_FD, fds.ro.as_fd()), (RW_FD, fds.rw.as_fd())]);
        }
        let all = [0, u64::from(u32::MAX), 0, 0, 0, 0];
        // Any trapped call will do to get a notification in whose course descriptors can be given;
        // this one is answered, not executed.
        let give = [0, RDMA_VERBS_IOCTL.into(), 0, 0, 0, 0];
        let begin = [
            Call { name: "close_range", nr: n.close_range, args: all, trapped: true },
            Call { name: "ioctl", nr: n.ioctl, args: give, trapped: true },
        ];
        let (mut stub, mut result) = self.make(stub, like, &begin, &lend)?;
        if result.is_ok() && new.fds.is_some() {
            let range = self.range(slot, new.first);
            let maps = self.maps(slot, new.first);
            (stub, result) = self.make(stub, like, &maps, &[])?;
            if exists(&result) && holds_leftovers_only(stub.tid(), range) {
                // Of a planting in the parent, which had not got farther when this process was
                // made: without access, so of no use to anybody.
                let args = [range.0, range.1, 0, 0, 0, 0];
                let clear = Call { name: "munmap", nr: n.munmap, args, trapped: true };
                (stub, result) = self.make(stub, like, &[clear], &[])?;
                if result.is_ok() {
                    (stub, result) = self.make(stub, like, &maps, &[])?;
                }
            }
        }
        if result.is_ok() {
            let args = [u64::from(stub_fd::NEW), u64::from(stub_fd::LAST), 0, 0, 0, 0];
            let lent = Call { name: "close_range", nr: n.close_range, args, trapped: false };
            (stub, result) = self.make(stub, like, &[lent], &[])?;
        }
        Ok((stub, result))
    }

    /// The addresses that a slot takes: first and length.
    fn range(&self, slot: usize, first: bool) -> (u64, u64) {
        let (at, len) = (self.window.slot(slot), (RO_LEN + RW_LEN) as u64);
        // The code stands right before the first slot.
        if first { (self.window.code(), len + CODE_LEN as u64) } else { (at, len) }
    }

    /// The calls that map a stub's memory.
    fn maps(&self, slot: usize, first: bool) -> Vec<Call> {
        let n = &Native::NUMBERS;
        let (ro_at, rw_at) = (self.window.slot(slot), self.window.slot(slot) + RO_LEN as u64);
        let number = |flags: i32| u64::from(flags.cast_unsigned());
        let fixed = number(libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
        let [none, r, rw, rx] = [
            libc::PROT_NONE,
            libc::PROT_READ,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::PROT_READ | libc::PROT_EXEC,
        ]
        .map(number);
        let call = |name, nr, args, trapped| Call { name, nr, args, trapped };
        let code = (self.window.code(), CODE_LEN as u64, rx, CODE_FD);
        let halves = [(ro_at, RO_LEN as u64, r, RO_FD), (rw_at, RW_LEN as u64, rw, RW_FD)];
        let parts = || first.then_some(code).into_iter().chain(halves);
        let mut calls = Vec::with_capacity(8);
        for (at, len, _, fd) in parts() {
            calls.push(call("mmap", n.mmap, [at, len, none, fixed, fd.into(), 0], true));
        }
        let (at, len) = self.range(slot, first);
        let dontfork = number(libc::MADV_DONTFORK);
        calls.push(call("madvise", n.madvise, [at, len, dontfork, 0, 0, 0], true));
        for (at, len, prot, _) in parts() {
            calls.push(call("mprotect", n.mprotect, [at, len, prot, 0, 0, 0], true));
        }
        calls.push(call("mseal", n.mseal, [at, len, 0, 0, 0, 0], false));
        calls
    }

    /// Makes calls until one fails. The outer error leaves the thread in the middle of one.
    fn make(
        &mut self,
        mut stub: Stopped,
        like: &ptrace::Regs,
        calls: &[Call],
        lend: &[(u32, BorrowedFd<'_>)],
    ) -> Result<(Stopped, Result<(), PlantError>), PlantError> {
        let n = &Native::NUMBERS;
        for call in calls {
            let tid = stub.tid();
            let give = (call.nr == n.ioctl).then_some(lend);
            let (after, _) = self.injector().inject(stub, like, call, give)?;
            stub = after;
            let result = Native::result(&stub.regs().map_err(|e| lost(tid, e))?);
            // The second lock; the filter is the first, and the only one before 6.10.
            let optional = call.nr == n.mseal;
            if (-4095..0).contains(&result) && !optional {
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

const CODE_FD: u32 = stub_fd::LENT;
const RO_FD: u32 = stub_fd::LENT + 1;
const RW_FD: u32 = stub_fd::LENT + 2;

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
