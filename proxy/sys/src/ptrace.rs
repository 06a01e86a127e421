//! ptrace(2) as a typestate: a thread is [`Running`] or [`Stopped`], and resuming consumes the
//! stop. The kernel binds all of it to the attaching thread.

use std::io;
use std::ptr;

use rustix::process::WaitId;
use rustix::process::WaitIdOptions;
use rustix::process::WaitIdStatus;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Native;
use crate::caller::Caller;
use crate::check;
use crate::process;
use crate::process::Thread;

/// Registers of the processor that this build runs on.
pub type Regs = <Native as Arch>::Regs;

/// A traced thread that runs.
#[derive(Debug)]
pub struct Running(Tid);

/// A traced thread that is stopped.
#[derive(Debug)]
pub struct Stopped(Tid);

/// Why a traced thread stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// At the entry to or the exit from a system call.
    Syscall,
    /// By PTRACE_INTERRUPT, or a new thread before its first instruction.
    Stop,
    /// At `clone`: the new thread.
    Clone(Tid),
    /// About to receive a signal.
    Signal(i32),
    /// Anything else; `si_status` of waitid(2).
    Other(i32),
}

/// What waiting for a traced thread gave.
#[derive(Debug)]
pub enum Waited {
    /// It stopped.
    Stopped(Stopped, Event),
    /// It is gone.
    Gone,
    /// Nothing yet.
    Nothing(Running),
}

const NT_PRSTATUS: usize = 1;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

fn request(what: libc::c_uint, tid: Tid, addr: usize, data: usize) -> io::Result<()> {
    let addr = ptr::without_provenance_mut::<libc::c_void>(addr);
    let data = ptr::without_provenance_mut::<libc::c_void>(data);
    // SAFETY: used only for requests whose arguments are plain numbers.
    check(unsafe { libc::ptrace(what, tid.0, addr, data) }).map(drop)
}

/// Attaches to a guest thread that waits in a trap, without stopping it.
///
/// The kernel knows threads by number here, too, and the number may have become another's just
/// before: then that one is let go at once.
///
/// It waits for the guest: for an execve(2) that another thread of its process is making.
///
/// # Errors
/// `EPERM`: someone else traces it, or we may not. `ESRCH`: it is gone.
pub fn seize(caller: Caller<'_>) -> io::Result<Running> {
    request(libc::PTRACE_SEIZE, caller.tid(), 0, 0)?;
    let running = Running(caller.tid());
    if caller.waits() {
        return Ok(running);
    }
    running.interrupt()?;
    let (stopped, event) = running.wait()?;
    stopped.detach(if let Event::Signal(signal) = event { signal } else { 0 })?;
    Err(io::Error::from_raw_os_error(libc::ESRCH))
}

/// Attaches to a thread that its process's stop has stopped, and lets it run on. When the tracer
/// dies, it takes part in the stop again.
///
/// # Errors
/// `EPERM`: someone else traces it, or we may not. `ESRCH`: it is gone.
pub fn carry(thread: &Thread) -> io::Result<()> {
    let tid = thread.tid();
    request(libc::PTRACE_SEIZE, tid, 0, 0)?;
    if !thread.is_alive() {
        let running = Running(tid);
        running.interrupt()?;
        return running.wait()?.0.detach(0);
    }
    // Attaching has made its stop one of ours; if it was continued before that, it runs.
    if let Waited::Stopped(stopped, _) = Running(tid).try_wait()? {
        stopped.go_on(0)?;
    }
    Ok(())
}

impl Running {
    /// A thread that [`carry`] has attached to: its number is its own until its end is taken note
    /// of.
    #[must_use]
    pub fn carried(tid: Tid) -> Self {
        Self(tid)
    }

    /// The thread.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.0
    }

    /// A thread that the kernel attached us to at its creation (`PTRACE_O_TRACECLONE`).
    #[must_use]
    pub fn born(tid: Tid) -> Self {
        Self(tid)
    }

    /// Asks for a stop.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn interrupt(&self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.0, 0, 0)
    }

    /// Looks whether it has stopped.
    ///
    /// # Errors
    /// waitpid(2)'s, `ECHILD` taken as gone.
    pub fn try_wait(self) -> io::Result<Waited> {
        self.waited(WaitIdOptions::NOHANG)
    }

    /// Waits until it stops.
    ///
    /// # Errors
    /// `ESRCH`: it is gone. waitpid(2)'s.
    pub fn wait(mut self) -> io::Result<(Stopped, Event)> {
        loop {
            if let Some(event) = self.take_stop()? {
                return Ok((Stopped(self.0), event));
            }
            // A process's first thread does not end before its others, and those that are traced
            // not before that is taken note of: wait for any of them.
            let blocks = match sleep()? {
                Seen::Ended(tid) if tid == self.0 => false,
                Seen::Ended(tid) => !take_end(tid),
                Seen::Stopped(tid) if tid == self.0 => continue,
                // Another's stop, which is not ours to take.
                Seen::Stopped(_) | Seen::Nothing => {
                    std::thread::yield_now();
                    false
                }
            };
            let options = if blocks { WaitIdOptions::empty() } else { WaitIdOptions::NOHANG };
            match self.waited(options)? {
                Waited::Stopped(stopped, event) => return Ok((stopped, event)),
                Waited::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                Waited::Nothing(running) => self = running,
            }
        }
    }

    fn ask(&self, what: WaitIdOptions) -> rustix::io::Result<Option<WaitIdStatus>> {
        let id = rustix::process::Pid::from_raw(self.0.0).ok_or(rustix::io::Errno::CHILD)?;
        // Threads too.
        let all = WaitIdOptions::from_bits_retain(libc::__WALL.cast_unsigned());
        rustix::process::waitid(WaitId::Pid(id), what | all)
    }

    /// Its stop, if it has stopped: without a look at whether it has ended.
    fn take_stop(&self) -> io::Result<Option<Event>> {
        match self.ask(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG) {
            Ok(Some(status)) => {
                let code = status.trapping_signal().or(status.stopping_signal());
                event(self.0, code.unwrap_or(0)).map(Some)
            }
            Ok(None) | Err(rustix::io::Errno::INTR | rustix::io::Errno::CHILD) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn waited(self, options: WaitIdOptions) -> io::Result<Waited> {
        if let Some(event) = self.take_stop()? {
            return Ok(Waited::Stopped(Stopped(self.0), event));
        }
        // Looked at before it is taken: the end of the supervisor's own child is its main
        // thread's to take.
        let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        match self.ask(look | options) {
            Ok(Some(seen)) if seen.trapped() || seen.stopped() => match self.take_stop()? {
                Some(event) => Ok(Waited::Stopped(Stopped(self.0), event)),
                None => Ok(Waited::Nothing(self)),
            },
            Ok(Some(_)) => {
                take_end(self.0);
                Ok(Waited::Gone)
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => Ok(Waited::Nothing(self)),
            Err(rustix::io::Errno::CHILD) => Ok(Waited::Gone),
            Err(e) => Err(e.into()),
        }
    }
}

/// What has happened to a thread that this one traces, or to a child.
enum Seen {
    Stopped(Tid),
    Ended(Tid),
    Nothing,
}

/// Waits until something has happened, without taking note of it.
fn sleep() -> io::Result<Seen> {
    // SAFETY: all zeros are a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: `info` lives through the call.
    let ret = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
    match check(ret.into()) {
        Ok(_) => {}
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::ECHILD)) => {
            return Ok(Seen::Nothing);
        }
        Err(e) => return Err(e),
    }
    let ended = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&info.si_code);
    // SAFETY: waitid has filled it in, as for SIGCHLD.
    let tid = Tid(unsafe { info.si_pid() });
    Ok(if ended { Seen::Ended(tid) } else { Seen::Stopped(tid) })
}

/// Whether a thread that this process traces has ended, or is not traced at all.
#[must_use]
pub fn has_ended(tid: Tid) -> bool {
    !matches!(Running(tid).try_wait(), Ok(Waited::Nothing(_) | Waited::Stopped(..)))
}

/// Takes note of a traced thread's end: until its tracer has, its parent and an execve(2) by
/// another of its threads wait.
///
/// Not of a child of this process, which is waited for elsewhere: gives false.
fn take_end(tid: Tid) -> bool {
    let me = std::process::id().cast_signed();
    let is_process = process::tgid(tid).is_ok_and(|tgid| tgid.0 == tid.0);
    let is_child = is_process && process::parent(tid).is_ok_and(|parent| parent.0 == me);
    if let Some(id) = rustix::process::Pid::from_raw(tid.0)
        && !is_child
    {
        let all = WaitIdOptions::from_bits_retain(libc::__WALL.cast_unsigned());
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | all;
        let _ = rustix::process::waitid(WaitId::Pid(id), ended);
    }
    !is_child
}

/// What a stop means; `code` is `si_status` of waitid(2).
fn event(tid: Tid, code: i32) -> io::Result<Event> {
    let signal = code & 0xff;
    Ok(match code >> 8 {
        0 if signal == libc::SIGTRAP | 0x80 => Event::Syscall,
        0 => Event::Signal(signal),
        libc::PTRACE_EVENT_STOP => Event::Stop,
        libc::PTRACE_EVENT_CLONE => {
            let mut message: libc::c_ulong = 0;
            // SAFETY: PTRACE_GETEVENTMSG stores an unsigned long at its data argument.
            let ret = unsafe {
                libc::ptrace(
                    libc::PTRACE_GETEVENTMSG,
                    tid.0,
                    ptr::null_mut::<libc::c_void>(),
                    &raw mut message,
                )
            };
            check(ret)?;
            Event::Clone(Tid(i32::try_from(message).map_err(io::Error::other)?))
        }
        _ => Event::Other(code),
    })
}

impl Stopped {
    /// The thread.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.0
    }

    /// Has it tell of its system calls and of threads that it makes, and end with its tracer: it
    /// would run on with registers that are not its own.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn set_options(&self) -> io::Result<()> {
        let options =
            libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        request(libc::PTRACE_SETOPTIONS, self.0, 0, usize::try_from(options).unwrap_or(0))
    }

    fn regset(&self, what: libc::c_uint, regs: &mut Regs) -> io::Result<()> {
        let mut iov =
            libc::iovec { iov_base: ptr::from_mut(regs).cast(), iov_len: size_of::<Regs>() };
        let kind = ptr::without_provenance_mut::<libc::c_void>(NT_PRSTATUS);
        // SAFETY: PTRACE_GETREGSET and SETREGSET read or write at most `iov_len` bytes at
        // `iov_base`, which is a register structure of that size; any bytes are valid in it.
        check(unsafe { libc::ptrace(what, self.0.0, kind, &raw mut iov) }).map(drop)
    }

    /// Its general registers.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn regs(&self) -> io::Result<Regs> {
        let mut regs = Regs::default();
        self.regset(libc::PTRACE_GETREGSET, &mut regs)?;
        Ok(regs)
    }

    /// Sets its general registers.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn set_regs(&self, regs: &Regs) -> io::Result<()> {
        self.regset(libc::PTRACE_SETREGSET, &mut regs.clone())
    }

    fn sigmask(&self, what: libc::c_uint, mask: &mut u64) -> io::Result<()> {
        let size = ptr::without_provenance_mut::<libc::c_void>(size_of::<u64>());
        // SAFETY: these requests read or write a kernel signal set, whose size (8 bytes) is the
        // address argument, at the data argument.
        check(unsafe { libc::ptrace(what, self.0.0, size, ptr::from_mut(mask)) }).map(drop)
    }

    /// Its blocked signals.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn blocked(&self) -> io::Result<u64> {
        let mut mask = 0;
        self.sigmask(PTRACE_GETSIGMASK, &mut mask)?;
        Ok(mask)
    }

    /// Sets its blocked signals.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn block(&self, mask: u64) -> io::Result<()> {
        self.sigmask(PTRACE_SETSIGMASK, &mut mask.clone())
    }

    /// Lets it run to the next entry to or exit from a system call, with a signal or 0.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn to_syscall(self, signal: i32) -> io::Result<Running> {
        request(libc::PTRACE_SYSCALL, self.0, 0, usize::try_from(signal).unwrap_or(0))?;
        Ok(Running(self.0))
    }

    /// Lets it run on, with a signal or 0.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn go_on(self, signal: i32) -> io::Result<Running> {
        request(libc::PTRACE_CONT, self.0, 0, usize::try_from(signal).unwrap_or(0))?;
        Ok(Running(self.0))
    }

    /// Lets it go, with a signal or 0.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn detach(self, signal: i32) -> io::Result<()> {
        request(libc::PTRACE_DETACH, self.0, 0, usize::try_from(signal).unwrap_or(0))
    }
}
