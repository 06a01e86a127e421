//! Calls of a thread that traces, which are called off: by another thread that has something for it ([`Alarm`]), or
//! because they take too long (`within`).
//!
//! A signal that comes right before a call does not interrupt that call, and after some signals the kernel makes a
//! call again: ptrace(2), which waits for an execve(2) of the guest's, as often as one likes. So the call is one of
//! a few instructions, and the handler of the signal moves a thread that it finds among them behind them: one that
//! has yet to make the call, or is about to make the call again. Who comes back from the call is behind them.

use std::cell::Cell;
use std::cell::OnceCell;
use std::io;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;
use std::time::Duration;
use std::time::Instant;

use crate::Tid;
use crate::check;

/// Interrupts threads of this process; nobody else uses this signal, and the kernel ignores it by default.
const WAKE: libc::c_int = libc::SIGURG;

/// How long a call may take that should take microseconds.
const PATIENCE: Duration = Duration::from_millis(2);

/// The part of its time that a thread spends on calls that it makes again.
const SHARE: u32 = 20;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl verbgate_call",
    ".hidden verbgate_call",
    "verbgate_call:",
    "mov rax, rdi",
    "mov rcx, rsi",
    "mov r11, rdx",
    "mov rdi, [rcx]",
    "mov rsi, [rcx + 8]",
    "mov rdx, [rcx + 16]",
    "mov r10, [rcx + 24]",
    "mov r8, [rcx + 32]",
    "mov r9, [rcx + 40]",
    ".globl verbgate_call_from",
    ".hidden verbgate_call_from",
    "verbgate_call_from:",
    "cmp dword ptr [r11], 0",
    "jne verbgate_call_off",
    "syscall",
    ".globl verbgate_call_to",
    ".hidden verbgate_call_to",
    "verbgate_call_to:",
    "ret",
    ".globl verbgate_call_off",
    ".hidden verbgate_call_off",
    "verbgate_call_off:",
    "mov rax, -4",
    "ret",
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl verbgate_call",
    ".hidden verbgate_call",
    "verbgate_call:",
    "mov x8, x0",
    "mov x9, x1",
    "mov x10, x2",
    "ldp x0, x1, [x9]",
    "ldp x2, x3, [x9, #16]",
    "ldp x4, x5, [x9, #32]",
    ".globl verbgate_call_from",
    ".hidden verbgate_call_from",
    "verbgate_call_from:",
    "ldr w11, [x10]",
    "cbnz w11, verbgate_call_off",
    "svc #0",
    ".globl verbgate_call_to",
    ".hidden verbgate_call_to",
    "verbgate_call_to:",
    "ret",
    ".globl verbgate_call_off",
    ".hidden verbgate_call_off",
    "verbgate_call_off:",
    "mov x0, #-4",
    "ret",
);

unsafe extern "C" {
    /// Makes a call, unless the word is not 0: what the kernel returned, or `-EINTR`.
    fn verbgate_call(nr: i64, args: *const [usize; 6], off: *const AtomicU32) -> i64;
    static verbgate_call_from: u8;
    static verbgate_call_to: u8;
    static verbgate_call_off: u8;
}

/// Moves a thread that is at its call behind it.
extern "C" fn call_off(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let [from, to, off] =
        [&raw const verbgate_call_from, &raw const verbgate_call_to, &raw const verbgate_call_off]
            .map(|label| label.addr());
    // SAFETY: the kernel gives a handler with SA_SIGINFO this structure, and takes the registers back from it.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    #[cfg(target_arch = "x86_64")]
    let Some(ip) = context.uc_mcontext.gregs.get_mut(usize::try_from(libc::REG_RIP).unwrap_or(0))
    else {
        return;
    };
    #[cfg(target_arch = "aarch64")]
    let ip = &mut context.uc_mcontext.pc;
    if let Ok(at) = usize::try_from(*ip)
        && (from..to).contains(&at)
        && let Ok(off) = off.try_into()
    {
        *ip = off;
    }
}

/// Has the signal interrupt calls.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeros are a valid sigaction: an empty mask, and no SA_RESTART.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = call_off as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler changes nothing but where the thread goes on, and there only among the instructions
        // above.
        unsafe { libc::sigaction(WAKE, &raw const action, ptr::null_mut()) };
    });
}

/// Interrupts what a thread of this process waits in; one that has ended is not found.
pub(crate) fn interrupt(tid: Tid) {
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid.0, WAKE) };
}

/// The calling thread's timer, which interrupts it.
struct Timer(libc::timer_t);

impl Timer {
    fn new() -> io::Result<Self> {
        prepare();
        // SAFETY: all zeros are a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = WAKE;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer = ptr::null_mut();
        // SAFETY: both live through the call.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        check(made.into()).map(|_| Self(timer))
    }

    /// Goes off each time that so long has passed, from now on; a time of 0 turns the timer off.
    fn set(&self, each: Duration) {
        let each = libc::timespec { tv_sec: 0, tv_nsec: each.subsec_nanos().into() };
        let times = libc::itimerspec { it_interval: each, it_value: each };
        // SAFETY: this thread's own timer; the structure lives through the call.
        unsafe { libc::timer_settime(self.0, 0, &raw const times, ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { libc::timer_delete(self.0) };
    }
}

thread_local! {
    static TIMER: OnceCell<Timer> = const { OnceCell::new() };
    /// When a call of this thread was called off.
    static CALLED_OFF: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Makes a call that may wait for somebody else, unless it takes longer than such a call should. One that was called off
/// before is made `again` only now and then.
///
/// # Errors
/// The call's; `EINTR`: it was called off.
///
/// # Safety
/// The arguments are valid for the call, as for syscall(2).
pub(crate) unsafe fn within(nr: libc::c_long, args: [usize; 6], again: bool) -> io::Result<i64> {
    if again && CALLED_OFF.get().is_some_and(|last| last.elapsed() < PATIENCE * SHARE) {
        return Err(io::ErrorKind::Interrupted.into());
    }
    // SAFETY: by the caller.
    let called = unsafe { called(nr, args, PATIENCE, &AtomicU32::new(0)) };
    if called.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::Interrupted) {
        CALLED_OFF.set(Some(Instant::now()));
    }
    called
}

unsafe fn called(
    nr: libc::c_long,
    args: [usize; 6],
    each: Duration,
    off: &AtomicU32,
) -> io::Result<i64> {
    TIMER.with(|own| {
        let timer = if each.is_zero() { None } else { Some(timer(own)?) };
        // The timer goes off again and again: the first signal may come before the call.
        timer.inspect(|timer| timer.set(each));
        // SAFETY: by the caller.
        let ret = unsafe { verbgate_call(nr, &raw const args, off) };
        timer.inspect(|timer| timer.set(Duration::ZERO));
        match i32::try_from(-ret) {
            Ok(errno @ 1..4096) => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(ret),
        }
    })
}

/// The calling thread's timer, made when it is first asked for.
fn timer(own: &OnceCell<Timer>) -> io::Result<&Timer> {
    match own.get() {
        Some(timer) => Ok(timer),
        None => Timer::new().map(|made| own.get_or_init(|| made)),
    }
}

/// The means by which threads wake one that sleeps.
#[derive(Debug, Default)]
pub struct Alarm {
    /// The thread whose sleep the alarm ends.
    sleeper: AtomicI32,
    asleep: AtomicBool,
    rung: AtomicU32,
}

impl Alarm {
    /// The calling thread is the one that sleeps.
    pub fn own(&self) {
        prepare();
        // Made now, because a guest can take what timers its user may have. Who has none is told so by each call.
        let _ = TIMER.with(|own| timer(own).map(drop));
        // SAFETY: all zeros are a valid sigset_t.
        let mut wake: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set lives through the call.
        unsafe { libc::sigaddset(&raw mut wake, WAKE) };
        // SAFETY: the same.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const wake, ptr::null_mut()) };
        self.sleeper.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// Ends the sleep, or the next one.
    pub fn ring(&self) {
        self.rung.store(1, Ordering::SeqCst);
        // Either this sees that the other is about to sleep, or the other sees this before it does.
        if self.asleep.swap(false, Ordering::SeqCst) {
            interrupt(Tid(self.sleeper.load(Ordering::Relaxed)));
        }
    }

    /// Whether it was rung since the last time that this was asked.
    pub fn heard(&self) -> bool {
        self.rung.swap(0, Ordering::SeqCst) != 0
    }

    /// Makes a call that ends when the alarm is rung, or in so long, if not before; `long` 0 is for ever.
    ///
    /// # Safety
    /// The arguments are valid for the call, as for syscall(2).
    pub(crate) unsafe fn during(
        &self,
        nr: libc::c_long,
        args: [usize; 6],
        long: Duration,
    ) -> io::Result<i64> {
        self.asleep.store(true, Ordering::SeqCst);
        // Orders the look at the alarm, in the call, after this.
        fence(Ordering::SeqCst);
        // SAFETY: by the caller.
        let called = unsafe { called(nr, args, long, &self.rung) };
        self.asleep.store(false, Ordering::SeqCst);
        called
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const FOR_EVER: [usize; 6] = [0; 6];

    #[test]
    fn a_call_that_waits_for_ever_is_called_off() {
        // pause(2) by another name: no descriptors, no limit.
        // SAFETY: no memory is passed, here and below, and no descriptor that is open.
        let [waits, asks, fails] =
            [libc::SYS_ppoll, libc::SYS_getpid, libc::SYS_close].map(|nr| unsafe {
                let args = if nr == libc::SYS_close { [usize::MAX; 6] } else { FOR_EVER };
                within(nr, args, false).map_err(|e| e.raw_os_error())
            });
        assert_eq!(waits, Err(Some(libc::EINTR)));
        assert_eq!(asks, Ok(i64::from(std::process::id())));
        assert_eq!(fails, Err(Some(libc::EBADF)));
    }

    /// Rings come at any moment between a look at the alarm and the sleep. One that is lost is a sleep without an end.
    #[test]
    fn an_alarm_ends_the_sleep_that_is_about_to_begin() {
        let alarm = Arc::new(Alarm::default());
        let rings = Arc::clone(&alarm);
        let (give, take) = std::sync::mpsc::channel();
        let ringer = std::thread::spawn(move || {
            while take.recv().is_ok() {
                rings.ring();
            }
        });
        let sleeper = std::thread::spawn(move || {
            alarm.own();
            for _ in 0..20_000 {
                give.send(()).unwrap();
                while !alarm.heard() {
                    // SAFETY: no memory is passed.
                    let _ = unsafe { alarm.during(libc::SYS_ppoll, FOR_EVER, Duration::ZERO) };
                }
            }
        });
        verbgate_wait::until("the last ring", || sleeper.is_finished());
        sleeper.join().unwrap();
        ringer.join().unwrap();
    }
}
