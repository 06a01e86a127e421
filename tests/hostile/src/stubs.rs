//! A hostile guest's ways to find its stub, to end the stub, and to take the stub's place.
//!
//! No address is known beforehand: the mappings' names and the code's bytes say everything.

use std::fs;
use std::io;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use libc::c_int;
use libc::c_void;

use crate::raw;
use crate::raw::ALLOW;
use crate::raw::LOAD;
use crate::raw::RETURN;
use crate::raw::Stack;
use crate::raw::addr;
use crate::raw::call;
use crate::raw::clone;
use crate::raw::gettid;
use crate::raw::has_thread;
use crate::raw::line;
use crate::raw::peek;
use crate::raw::sleep;
use crate::raw::test;
use crate::raw::threads;

/// A mapping of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The mappings whose name in `/proc/self/maps` contains `name`, by address.
pub(crate) fn mappings(name: &str) -> Vec<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let found = maps.lines().filter(|line| line.contains(name)).filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        Some(Mapping { start, end: u64::from_str_radix(end, 16).ok()? })
    });
    found.collect()
}

/// A system call in which a thread waits: its number, its arguments, and where it returns to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    pub(crate) nr: u64,
    pub(crate) args: [u64; 6],
    pub(crate) ip: u64,
}

/// A stub as its guest sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) tid: i32,
    code: Mapping,
    frame: Mapping,
    scratch: Mapping,
    pub(crate) trap: Trap,
}

/// Marks a thread of the guest's own for its filter, in the last two arguments of a call.
const MARK: u64 = 0x5a5a;

/// What the impostor's first result is.
pub(crate) const MADE_UP: i32 = 0x1234;

/// The part of a request that stands at the end of the frame: `struct ib_uverbs_ioctl_hdr`, 32 attributes, and 4 bytes of
/// the next.
const REQUEST: u64 = 24 + 32 * 16 + 4;

/// The stub that a first request has planted; none of `own` is it.
pub(crate) fn find(own: &[i32]) -> io::Result<Seen> {
    // The first stub's code stands right before its frame.
    let [code, frame, ..] = mappings("memfd:verbgate-stub")[..] else {
        return Err(io::Error::other("no mapping of a stub: nothing was planted"));
    };
    let scratch = mappings("memfd:verbgate-scratch").first().copied().unwrap_or(frame);
    let tid = threads().into_iter().find(|tid| !own.contains(tid));
    let tid = tid.ok_or_else(|| io::Error::other("no thread besides our own: no stub"))?;
    // A stub that waits for long does so elsewhere. It seals and closes before its first trap.
    let trap = Trap {
        nr: libc::SYS_ioctl as u64,
        args: [0, crate::request::RDMA_VERBS_IOCTL, frame.end - REQUEST, 0, 0, 0],
        ip: calls_of(code).nth(2).unwrap_or(code.start),
    };
    Ok(Seen { tid, code, frame, scratch, trap })
}

/// `syscall` or `svc #0`, its bytes, and where instructions begin.
const CALL: (u64, u64, usize) =
    if cfg!(target_arch = "x86_64") { (0x050f, 2, 1) } else { (0xd400_0001, 4, 4) };

/// The places to which the calls of some code return.
fn calls_of(code: Mapping) -> impl Iterator<Item = u64> {
    let (call, len, step) = CALL;
    let is = move |at: &u64| peek(*at) << (64 - 8 * len) == call << (64 - 8 * len);
    (code.start..code.end - 8).step_by(step).filter(is).map(move |at| at + len)
}

impl Seen {
    /// The word of orders, in which a stub waits that has nothing to do.
    pub(crate) fn word(&self) -> u64 {
        self.frame.start
    }

    /// Has the kernel end the stub when it comes to its trap again: a filter of the guest's own,
    /// for all its threads. Threads that carry the mark may pass.
    pub(crate) fn end_at_its_next_trap(&self) -> io::Result<()> {
        self.end_at(self.trap.ip)
    }

    /// The same at another of its calls, which returns to this address.
    pub(crate) fn end_at(&self, ip: u64) -> io::Result<()> {
        const KILL_THREAD: u32 = 0;
        let (low, high) = (ip as u32, (ip >> 32) as u32);
        let mark = MARK as u32;
        // struct seccomp_data: instruction_pointer at 8, args[4] at 48, args[5] at 56.
        let program = [
            line(LOAD, 8),
            test(low, 0, 7),
            line(LOAD, 12),
            test(high, 0, 5),
            line(LOAD, 48),
            test(mark, 3, 0),
            line(LOAD, 56),
            test(mark, 1, 0),
            line(RETURN, KILL_THREAD),
            line(RETURN, ALLOW),
        ];
        raw::confine(&program, libc::SECCOMP_FILTER_FLAG_TSYNC)
    }

    /// Where the calls of its code return to.
    pub(crate) fn calls(&self) -> Vec<u64> {
        calls_of(self.code).collect()
    }

    /// Waits until the stub has ended.
    pub(crate) fn wait_ended(&self, patience: Duration) -> bool {
        raw::within(patience, || !has_thread(self.tid))
    }

    /// What a thread has in its registers that shows `result` in the stub's place: all that can be
    /// seen of the stub is the same, and all else points to where the frame is.
    fn registers(&self, result: i64, how: Entry) -> [u64; 16] {
        let [fd, command, request, _, _, _] = self.trap.args;
        let at = match how {
            Entry::Trap => self.trap.ip - CALL.1,
            Entry::Start => self.code.start,
        };
        let frame = self.frame.start;
        let shown = result.cast_unsigned();
        let first = if how == Entry::Trap { self.trap.nr } else { shown };
        // at, rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12, r13, r14, r15; on arm64 at, x8, x0 to x5, x24, x23, x19
        // to x22.
        [
            at,
            first,
            fd,
            command,
            request,
            shown,
            MARK,
            MARK,
            frame,
            0,
            request,
            frame,
            self.scratch.start,
            frame + 64,
            0,
            0,
        ]
    }
}

/// Where a thread enters the stub's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// At its trap, with the arguments that the stub had.
    Trap,
    /// At its beginning.
    Start,
}

static WANTED: AtomicI32 = AtomicI32::new(0);
static GOT: AtomicI32 = AtomicI32::new(0);
static GO: AtomicI32 = AtomicI32::new(0);
static REGISTERS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// A thread of this process that has the number of a stub which has ended.
pub(crate) struct Impostor(());

impl Impostor {
    /// Starts threads until one has the number.
    pub(crate) fn of(seen: &Seen, patience: Duration) -> io::Result<Option<Self>> {
        WANTED.store(seen.tid, Ordering::SeqCst);
        cycle(is_impostor, patience)?;
        Ok((GOT.load(Ordering::SeqCst) != 0).then_some(Self(())))
    }

    /// Enters the stub's code, and shows this result.
    pub(crate) fn go(&self, seen: &Seen, result: i64, how: Entry) {
        for (to, from) in REGISTERS.iter().zip(seen.registers(result, how)) {
            to.store(from, Ordering::SeqCst);
        }
        GO.store(1, Ordering::SeqCst);
    }
}

/// Starts threads one after the other, each with the next number, until one says by [`GOT`] that
/// it is the right one; says how many.
fn cycle(body: extern "C" fn(*mut c_void) -> c_int, patience: Duration) -> io::Result<u64> {
    let stack = Stack::new()?;
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < patience {
        start_and_wait(body, &stack)?;
        count += 1;
        if GOT.load(Ordering::SeqCst) != 0 {
            break;
        }
    }
    Ok(count)
}

/// Starts a thread, and waits for its end or for its being the one.
fn start_and_wait(body: extern "C" fn(*mut c_void) -> c_int, stack: &Stack) -> io::Result<()> {
    static RUNNING: AtomicI32 = AtomicI32::new(0);
    const FLAGS: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID;
    RUNNING.store(1, Ordering::SeqCst);
    match clone(body, 0, FLAGS, stack, addr(&RUNNING)) {
        Ok(_) => {}
        // No number is free this moment.
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
            sleep(1);
            return Ok(());
        }
        Err(e) => return Err(e),
    }
    while RUNNING.load(Ordering::SeqCst) != 0 && GOT.load(Ordering::SeqCst) == 0 {
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let wait = [addr(&RUNNING), libc::FUTEX_WAIT as u64, 1, addr(&timeout)];
        let _ = call(libc::SYS_futex, &wait);
    }
    Ok(())
}

extern "C" fn is_impostor(_: *mut c_void) -> c_int {
    if gettid() == WANTED.load(Ordering::SeqCst) {
        GOT.store(1, Ordering::SeqCst);
        while GO.load(Ordering::SeqCst) == 0 {
            let _ = call(libc::SYS_sched_yield, &[]);
        }
        let mut registers = [0; 16];
        for (to, from) in registers.iter_mut().zip(&REGISTERS) {
            *to = from.load(Ordering::SeqCst);
        }
        enter(&registers);
    }
    0
}

/// A thread with the number of a retired stub does what `body` does; says whether there was one.
pub(crate) fn as_number(
    tid: i32,
    body: extern "C" fn(*mut c_void) -> c_int,
    patience: Duration,
) -> io::Result<bool> {
    WANTED.store(tid, Ordering::SeqCst);
    cycle(body, patience)?;
    Ok(GOT.load(Ordering::SeqCst) != 0)
}

/// Whether the calling thread has the number that is looked for; said to whoever looks.
pub(crate) fn has_wanted_number() -> bool {
    let has = gettid() == WANTED.load(Ordering::SeqCst);
    if has {
        GOT.store(1, Ordering::SeqCst);
    }
    has
}

#[cfg(target_arch = "x86_64")]
fn enter(registers: &[u64; 16]) -> ! {
    // SAFETY: none: the thread goes where the stub's code is, with registers that are to pass for
    // the stub's, and does not come back. All of this process is at stake, as it is meant to be.
    unsafe {
        std::arch::asm!(
            "mov rcx, [rax]",
            "mov rdi, [rax + 0x10]",
            "mov rsi, [rax + 0x18]",
            "mov rdx, [rax + 0x20]",
            "mov r10, [rax + 0x28]",
            "mov r8, [rax + 0x30]",
            "mov r9, [rax + 0x38]",
            "mov rbx, [rax + 0x40]",
            "mov rbp, [rax + 0x48]",
            "mov r12, [rax + 0x50]",
            "mov r13, [rax + 0x58]",
            "mov r14, [rax + 0x60]",
            "mov r15, [rax + 0x68]",
            "mov rax, [rax + 0x08]",
            "jmp rcx",
            in("rax") registers.as_ptr(),
            options(noreturn),
        )
    }
}

#[cfg(target_arch = "aarch64")]
fn enter(registers: &[u64; 16]) -> ! {
    // SAFETY: none, as above.
    unsafe {
        std::arch::asm!(
            "ldp x9, x8, [x10]",
            "ldp x0, x1, [x10, #0x10]",
            "ldp x2, x3, [x10, #0x20]",
            "ldp x4, x5, [x10, #0x30]",
            "ldp x24, x23, [x10, #0x40]",
            "ldp x19, x20, [x10, #0x50]",
            "ldp x21, x22, [x10, #0x60]",
            "br x9",
            in("x10") registers.as_ptr(),
            options(noreturn),
        )
    }
}
