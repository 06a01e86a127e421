//! ptrace(2) as a typestate: a thread is [`Running`] or [`Stopped`], and resuming consumes the
//! stop. The kernel binds all of it to the attaching thread: so one thread traces for all, and waits for
//! all of its tracees at a time ([`sleep`]). Who waits for one of them is a future, polled after each sleep.

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::ptr;
use std::task::Poll;
use std::time::Duration;
use std::time::Instant;

use rustix::process::WaitId;
use rustix::process::WaitIdOptions;

use crate::Tid;
use crate::arch::Arch;
use crate::arch::Native;
use crate::called_off;
use crate::called_off::Alarm;
use crate::caller::Caller;
use crate::check;
use crate::process;
use crate::process::Thread;

/// Registers of the processor that this build runs on.
pub type Regs = <Native as Arch>::Regs;

/// A traced thread that runs.
#[derive(Debug)]
pub struct Running(Traced);

/// A traced thread that is stopped.
#[derive(Debug)]
pub struct Stopped(Traced);

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

/// The outcome of a look at a traced thread.
#[derive(Debug)]
pub enum Waited {
    /// It stopped.
    Stopped(Stopped, Event),
    /// It is gone.
    Gone,
    /// Nothing yet.
    Nothing(Running),
}

/// The kernel's word about a tracee of the calling thread.
#[derive(Debug, Default)]
struct Told {
    /// Whether a making has the tracee: a thread that is born while its maker is killed is nobody's.
    owned: bool,
    /// `si_status` of its stop, until that is taken.
    stop: Option<i32>,
    ended: bool,
}

thread_local! {
    static TRACEES: RefCell<HashMap<Tid, Told>> = RefCell::default();
    /// Whether something was taken of what has happened.
    static MOVED: Cell<bool> = const { Cell::new(false) };
    /// Whether a making waits for time to pass.
    static PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// A tracee of the calling thread.
#[derive(Debug)]
struct Traced(Tid);

impl Traced {
    /// A tracee that was attached to just now: whatever was told of its number was about others.
    fn attached(tid: Tid) -> Self {
        TRACEES.with_borrow_mut(|all| all.insert(tid, Told { owned: true, ..Told::default() }));
        Self(tid)
    }

    /// A tracee whose stop may have been told already.
    fn born(tid: Tid) -> Self {
        TRACEES.with_borrow_mut(|all| all.entry(tid).or_default().owned = true);
        Self(tid)
    }

    /// Forgets it, as no tracee any more.
    fn let_go(&self) {
        TRACEES.with_borrow_mut(|all| all.remove(&self.0));
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        TRACEES.with_borrow_mut(|all| {
            if let Some(told) = all.get_mut(&self.0) {
                told.owned = false;
                if told.ended {
                    all.remove(&self.0);
                }
            }
        });
    }
}

const NT_PRSTATUS: usize = 1;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

/// How often makings that wait for time to pass are polled.
const TICK: Duration = Duration::from_millis(5);
/// How long it is waited at most until it is tried again to attach.
const LONGEST: Duration = Duration::from_millis(320);

fn request(what: libc::c_uint, tid: Tid, addr: usize, data: usize) -> io::Result<()> {
    let addr = ptr::without_provenance_mut::<libc::c_void>(addr);
    let data = ptr::without_provenance_mut::<libc::c_void>(data);
    // SAFETY: used only for requests whose arguments are plain numbers.
    check(unsafe { libc::ptrace(what, tid.0, addr, data) }).map(drop)
}

/// Attaches to a thread. The kernel lets nobody attach while another thread of the process makes an execve(2), which
/// takes as long as the guest likes: then it is tried again, and nobody else waits.
async fn attach(tid: Tid) -> io::Result<Traced> {
    let number = |number: i64| usize::try_from(number).unwrap_or(0);
    let args = [number(libc::PTRACE_SEIZE.into()), number(tid.0.into()), 0, 0, 0, 0];
    let mut long = TICK;
    loop {
        // SAFETY: plain numbers.
        match unsafe { called_off::within(libc::SYS_ptrace, args, long > TICK) } {
            Ok(_) => return Ok(Traced::attached(tid)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => pause(long).await,
            Err(e) => return Err(e),
        }
        long = (long * 2).min(LONGEST);
    }
}

/// Attaches to a guest thread that waits in a trap, without stopping it.
///
/// The kernel knows threads by number here, too, and the number may have become another's just
/// before: then that one is let go at once.
///
/// # Errors
/// `EPERM`: someone else traces it, or we may not. `ESRCH`: it is gone.
pub async fn seize(caller: Caller<'_>) -> io::Result<Running> {
    let running = Running(attach(caller.tid()).await?);
    if caller.waits() {
        return Ok(running);
    }
    running.interrupt()?;
    let (stopped, event) = running.wait().await?;
    stopped.detach(if let Event::Signal(signal) = event { signal } else { 0 })?;
    Err(io::Error::from_raw_os_error(libc::ESRCH))
}

/// Attaches to a thread that its process's stop has stopped, and lets it run on. When the tracer
/// dies, it takes part in the stop again. `None`: it is another thread by now.
///
/// # Errors
/// `EPERM`: someone else traces it, or we may not. `ESRCH`: it is gone.
pub async fn carry(thread: &Thread) -> io::Result<Option<Running>> {
    let running = Running(attach(thread.tid()).await?);
    if !thread.is_alive() {
        running.interrupt()?;
        return running.wait().await?.0.detach(0).map(|()| None);
    }
    // Attaching has made its stop one of ours; if it was continued before that, it runs.
    take_stops();
    match running.try_wait()? {
        Waited::Stopped(stopped, _) => stopped.go_on(0).map(Some),
        Waited::Nothing(running) => Ok(Some(running)),
        Waited::Gone => Ok(None),
    }
}

/// Whether a thread is a tracee of the calling thread, which has not ended.
pub(crate) fn is_traced(tid: Tid) -> bool {
    TRACEES.with_borrow(|all| all.get(&tid).is_some_and(|told| !told.ended))
}

/// Lets so much time pass, or somewhat more.
pub async fn pause(long: Duration) {
    let until = Instant::now() + long;
    poll_fn(|_| {
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        PAUSED.set(true);
        Poll::Pending
    })
    .await;
}

/// Whether anything has been taken of what happened, since the last time that this was asked.
pub fn has_moved() -> bool {
    MOVED.take()
}

/// Tells that something was taken of what happened.
pub fn moves() {
    MOVED.set(true);
}

/// Takes note of the stops of the calling thread's tracees.
pub fn take_stops() {
    loop {
        // A stop alone: an end is taken as late as it is seen that nobody else has to take it.
        let told = wait(libc::WSTOPPED | libc::WNOHANG);
        let Some((tid, _, code)) = told else { return };
        TRACEES.with_borrow_mut(|all| all.entry(tid).or_default().stop = Some(code));
    }
}

/// Sleeps until something has happened to a tracee of the calling thread, or the alarm is rung; and no longer than a tick
/// where a making waits for time to pass, or the caller `waits`.
pub fn sleep(alarm: &Alarm, waits: bool) {
    let long = if PAUSED.take() || waits { TICK } else { Duration::ZERO };
    let look = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | OF_THREAD;
    let (any, look) = (libc::P_ALL as usize, look.cast_unsigned() as usize);
    // SAFETY: all zeros are a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let to = (&raw mut info).expose_provenance();
    // SAFETY: `info` lives through the call.
    let waited = unsafe { alarm.during(libc::SYS_waitid, [any, 0, to, look, 0, 0], long) };
    match waited {
        Ok(_) if ENDED.contains(&info.si_code) => {
            // SAFETY: waitid(2) has filled it in, as for SIGCHLD.
            let tid = Tid(unsafe { info.si_pid() });
            if !take_end(tid) {
                // The end is seen again and again until the other has taken it.
                idle(alarm, TICK);
            }
        }
        // There is no tracee.
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => idle(alarm, long),
        // There is no timer.
        Err(e) if e.kind() != io::ErrorKind::Interrupted => std::thread::sleep(TICK),
        Ok(_) | Err(_) => {}
    }
}

/// Sleeps until the alarm is rung, or for so long.
fn idle(alarm: &Alarm, long: Duration) {
    // SAFETY: no memory is passed.
    let _ = unsafe { alarm.during(libc::SYS_ppoll, [0; 6], long) };
}

/// `si_code` of SIGCHLD, of a thread that has ended.
const ENDED: [i32; 3] = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
/// Tracees of the calling thread, other threads than first ones, too.
const OF_THREAD: libc::c_int = libc::__WALL | libc::__WNOTHREAD;

/// Takes a stop or an end of a tracee of the calling thread: who, `si_code` and `si_status`.
fn wait(options: libc::c_int) -> Option<(Tid, i32, i32)> {
    // SAFETY: all zeros are a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` lives through the call.
    let ret = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options | OF_THREAD) };
    // SAFETY: waitid(2) has filled it in, as for SIGCHLD, or left the zeros.
    let tid = Tid(unsafe { info.si_pid() });
    // SAFETY: the same.
    let status = unsafe { info.si_status() };
    (ret == 0 && tid.0 != 0).then_some((tid, info.si_code, status))
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
    TRACEES.with_borrow_mut(|all| {
        if let Some(told) = all.get_mut(&tid) {
            told.ended = true;
            if !told.owned {
                all.remove(&tid);
            }
        }
    });
    !is_child
}

impl Running {
    /// The thread.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.0.0
    }

    /// A thread that the kernel attached us to at its creation (`PTRACE_O_TRACECLONE`).
    #[must_use]
    pub fn born(tid: Tid) -> Self {
        Self(Traced::born(tid))
    }

    /// Asks for a stop.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn interrupt(&self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.tid(), 0, 0)
    }

    /// Looks whether it has stopped.
    ///
    /// # Errors
    /// `ESRCH`: it is gone, right now.
    pub fn try_wait(self) -> io::Result<Waited> {
        let told = TRACEES.with_borrow_mut(|all| {
            all.get_mut(&self.tid()).map(|told| (told.stop.take(), told.ended))
        });
        match told {
            Some((Some(code), _)) => {
                let event = event(self.tid(), code)?;
                // A stop of its process is nothing that the thread has done.
                if !matches!(event, Event::Stop | Event::Signal(_)) {
                    moves();
                }
                Ok(Waited::Stopped(Stopped(self.0), event))
            }
            Some((None, false)) => Ok(Waited::Nothing(self)),
            Some((None, true)) | None => {
                moves();
                Ok(Waited::Gone)
            }
        }
    }

    /// Waits until it stops.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub async fn wait(self) -> io::Result<(Stopped, Event)> {
        let mut running = Some(self);
        poll_fn(|_| {
            let Some(taken) = running.take() else { return Poll::Pending };
            match taken.try_wait() {
                Ok(Waited::Nothing(still)) => {
                    running = Some(still);
                    Poll::Pending
                }
                Ok(Waited::Stopped(stopped, event)) => Poll::Ready(Ok((stopped, event))),
                Ok(Waited::Gone) => Poll::Ready(Err(io::Error::from_raw_os_error(libc::ESRCH))),
                Err(e) => Poll::Ready(Err(e)),
            }
        })
        .await
    }
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
        self.0.0
    }

    /// Has it tell of its system calls and of threads that it makes, and end with its tracer: it
    /// would run on with registers that are not its own.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn set_options(&self) -> io::Result<()> {
        let options =
            libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        request(libc::PTRACE_SETOPTIONS, self.tid(), 0, usize::try_from(options).unwrap_or(0))
    }

    fn regset(&self, what: libc::c_uint, regs: &mut Regs) -> io::Result<()> {
        let mut iov =
            libc::iovec { iov_base: ptr::from_mut(regs).cast(), iov_len: size_of::<Regs>() };
        let kind = ptr::without_provenance_mut::<libc::c_void>(NT_PRSTATUS);
        // SAFETY: PTRACE_GETREGSET and SETREGSET read or write at most `iov_len` bytes at
        // `iov_base`, which is a register structure of that size; any bytes are valid in it.
        check(unsafe { libc::ptrace(what, self.tid().0, kind, &raw mut iov) }).map(drop)
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
        check(unsafe { libc::ptrace(what, self.tid().0, size, ptr::from_mut(mask)) }).map(drop)
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
        request(libc::PTRACE_SYSCALL, self.tid(), 0, usize::try_from(signal).unwrap_or(0))?;
        Ok(Running(self.0))
    }

    /// Lets it run on, with a signal or 0.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn go_on(self, signal: i32) -> io::Result<Running> {
        request(libc::PTRACE_CONT, self.tid(), 0, usize::try_from(signal).unwrap_or(0))?;
        Ok(Running(self.0))
    }

    /// Lets it go, with a signal or 0.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn detach(self, signal: i32) -> io::Result<()> {
        request(libc::PTRACE_DETACH, self.tid(), 0, usize::try_from(signal).unwrap_or(0))?;
        self.0.let_go();
        Ok(())
    }
}
