//! Attacks by numbers of processes and threads, given up and taken again.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use libc::c_int;
use libc::c_void;

use crate::board::Board;
use crate::board::Word;
use crate::canary;
use crate::canary::PLACE;
use crate::guest::Guest;
use crate::guest::minion;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::Stack;
use crate::raw::clone;
use crate::raw::fork_as;
use crate::raw::gettid;
use crate::raw::memory;
use crate::raw::mprotect;
use crate::raw::name;
use crate::raw::peek;
use crate::raw::poke;
use crate::raw::sleep;
use crate::request;
use crate::stubs;
use crate::stubs::Entry;
use crate::stubs::Impostor;
use crate::stubs::MADE_UP;

/// How long an attacker tries what does not work any more.
pub(super) const TRIES: Duration = Duration::from_secs(4);
/// How long an attacker waits for what may never come.
pub(super) const ANSWERED: Duration = Duration::from_secs(5);
/// Where outputs go, from where the request is.
const OUTPUTS: u64 = 1024;

static DEVICE: AtomicI32 = AtomicI32::new(-1);
static REQUEST: AtomicU64 = AtomicU64::new(0);

/// A process that shares this one's memory and descriptors, and makes the request.
extern "C" fn caller(_: *mut c_void) -> c_int {
    request::send(DEVICE.load(Ordering::SeqCst), REQUEST.load(Ordering::SeqCst))
}

/// A request is in flight, its stub ended; its caller dies, and an innocent process outside gets
/// the caller's number. Then a thread with the stub's number shows a result: are the outputs
/// written into the memory of the innocent?
pub(super) fn ghost(guest: &Guest) -> io::Result<()> {
    memory(Some(PLACE), 2 * PAGE)?;
    let fd = guest.planted(guest.device())?;
    let stub = stubs::find(&[gettid()])?;
    stub.end_at_its_next_trap()?;
    request::lay_out(PLACE, PLACE + OUTPUTS);
    DEVICE.store(fd, Ordering::SeqCst);
    REQUEST.store(PLACE, Ordering::SeqCst);
    let stack = Stack::new()?;
    let process = libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD;
    let process = clone(caller, 0, process, &stack, 0)?;
    println!("its stub {} has ended: {}", stub.tid, stub.wait_ended(ANSWERED));
    raw::kill(process, libc::SIGKILL);
    raw::wait(process);
    guest.board.set(Word::Freed, process as u64);
    let inherited = guest.board.wait(Word::Heir, ANSWERED);
    println!("its caller's number {process} is an innocent's: {inherited}");
    let Some(impostor) = Impostor::of(&stub, TRIES)? else {
        println!("the stub's number is not to be had");
        return Ok(());
    };
    println!("a thread of the attacker's has the stub's number");
    for scratch in stubs::mappings("memfd:verbgate-scratch") {
        (0..64).for_each(|n| poke(scratch.start + 8 * n, 0x4141_4141_4141_4141));
    }
    impostor.go(&stub, 0, Entry::Trap);
    sleep(700);
    Ok(())
}

/// The world's part: a process outside gets each number that is freed, as soon as it is.
pub(super) fn heir(board: &Board, _: &str) -> io::Result<()> {
    canary::settle()?;
    let mut last = 0;
    loop {
        let number = board.get(Word::Freed);
        if number == last {
            sleep(1);
            continue;
        }
        // It is in use until its process has ended and been reaped.
        if fork_as(number as i32, || canary::look(board, Word::Heir)).is_ok() {
            last = number;
        }
    }
}

/// Outputs in memory that is mapped to be read only: the kernel's own copy fails, so must ours.
pub(super) fn read_only(guest: &Guest) -> io::Result<()> {
    let fd = guest.planted(guest.device())?;
    let (request, outputs) = (memory(None, PAGE)?, memory(None, PAGE)?);
    poke(outputs, 0x77);
    poke(outputs + 8, 0x77);
    mprotect(outputs, PAGE, libc::PROT_READ)?;
    request::lay_out(request, outputs);
    let answer = request::send(fd, request);
    println!("outputs in read-only memory: {}", name(answer));
    let device = guest.answer_of(guest.device());
    // A device that fails before it writes fails as it does.
    if answer != libc::EFAULT && (device == 0 || answer != device) {
        println!("BROKEN: outputs in read-only memory: {}, not EFAULT", name(answer));
    }
    unwritten(outputs);
    Ok(())
}

fn unwritten(outputs: u64) {
    if (peek(outputs), peek(outputs + 8)) != (0x77, 0x77) {
        println!("BROKEN: read-only memory was written");
    }
}

/// The same for a request that succeeds, because a thread in the stub's place says so.
pub(super) fn read_only_forged(guest: &Guest) -> io::Result<()> {
    let fd = guest.planted(guest.device())?;
    let stub = stubs::find(&[gettid()])?;
    stub.end_at_its_next_trap()?;
    let (request, outputs) = (memory(None, PAGE)?, memory(None, PAGE)?);
    poke(outputs, 0x77);
    poke(outputs + 8, 0x77);
    mprotect(outputs, PAGE, libc::PROT_READ)?;
    request::lay_out(request, outputs);
    let first = Asked::send(fd, request);
    println!("the stub has ended: {}", stub.wait_ended(ANSWERED));
    if let Some(impostor) = Impostor::of(&stub, TRIES)? {
        impostor.go(&stub, 0, Entry::Trap);
    } else {
        println!("the stub's number is not to be had");
    }
    match first.answer() {
        0 => println!("BROKEN: a request whose outputs cannot be written succeeded"),
        errno => println!("the request in flight: {}", name(errno)),
    }
    unwritten(outputs);
    Ok(())
}

/// A request made by another thread.
struct Asked(JoinHandle<i32>);

impl Asked {
    fn send(fd: i32, request: u64) -> Self {
        Self(thread::spawn(move || request::send(fd, request)))
    }

    fn answer(self) -> i32 {
        self.0.join().unwrap_or(-1)
    }
}

/// A stub that the guest ends while it works: its caller is told, and later ones are, too.
pub(super) fn dead_stub(guest: &Guest) -> io::Result<()> {
    let fd = guest.planted(guest.device())?;
    let stub = stubs::find(&[gettid()])?;
    let request = memory(None, PAGE)?;
    request::lay_out(request, request + OUTPUTS);
    // The stub waits in its trap for some milliseconds, and so comes to the next trap with a request in flight.
    request::send(fd, request);
    stub.end_at_its_next_trap()?;
    for which in ["the request in flight", "the next", "the one after it"] {
        let begun = Instant::now();
        let errno = Asked::send(fd, request).answer();
        println!("{which}: {} after {:.0?}", name(errno), begun.elapsed());
        if which == "the request in flight" && errno != libc::EIO {
            println!("BROKEN: the caller of a stub that has ended is told {}", name(errno));
        }
    }
    Ok(())
}

/// The same for a stub that is ended at any other of its calls, in a process of its own each.
pub(super) fn dead_stub_anywhere(guest: &Guest) -> io::Result<()> {
    let fd = guest.planted(guest.device())?;
    let calls = stubs::find(&[gettid()])?.calls();
    raw::close(fd);
    println!("the stub's code has {} calls", calls.len());
    let expected = guest.answer_of(guest.device());
    for number in 0..calls.len() {
        let child = minion(|| {
            let fd = guest.planted(guest.device())?;
            let stub = stubs::find(&[gettid()])?;
            let request = memory(None, PAGE)?;
            request::lay_out(request, request + OUTPUTS);
            request::send(fd, request);
            stub.end_at(stub.calls()[number])?;
            for which in ["first", "second", "third"] {
                let begun = Instant::now();
                let errno = Asked::send(fd, request).answer();
                let (told, took) = (name(errno), begun.elapsed());
                println!("call {number}, {which} request: {told} after {took:.0?}");
                if errno != expected && errno != libc::EIO {
                    println!("BROKEN: the {which} caller is told {told}");
                }
            }
            Ok(())
        })?;
        match raw::wait(child) {
            Some(0) => {}
            // What a guest does costs at most itself.
            other => println!("that guest ended with {other:?}"),
        }
    }
    Ok(())
}

/// A thread that got the number of an ended stub serves in its place, on a file of its choice.
pub(super) fn impersonate(guest: &Guest) -> io::Result<()> {
    impersonate_by(guest, Entry::Trap)
}

/// The same for one that enters the stub's code at its beginning.
pub(super) fn impersonate_from_start(guest: &Guest) -> io::Result<()> {
    impersonate_by(guest, Entry::Start)
}

fn impersonate_by(guest: &Guest, how: Entry) -> io::Result<()> {
    const REQUESTS: u64 = 500;
    let fd = guest.planted(guest.device())?;
    let chosen = std::fs::File::open("/dev/urandom")?;
    let stub = stubs::find(&[gettid()])?;
    let request = memory(None, PAGE)?;
    request::lay_out(request, request + OUTPUTS);
    request::send(fd, request);
    stub.end_at_its_next_trap()?;
    let first = Asked::send(fd, request);
    println!("the stub {} has ended: {}", stub.tid, stub.wait_ended(ANSWERED));
    match Impostor::of(&stub, TRIES)? {
        Some(impostor) => {
            println!("a thread of the attacker's has the stub's number");
            impostor.go(&stub, i64::from(MADE_UP), how);
        }
        None => println!("the stub's number is not to be had"),
    }
    match first.answer() {
        errno if errno == -MADE_UP => {
            println!("BROKEN: the request in flight returned a result that was made up");
        }
        errno => println!("the request in flight: {}", name(errno)),
    }
    // The number under which a stub holds its device, in the impostor's table.
    let number = stub.trap.args[0] as i32;
    thread::spawn(move || {
        use std::os::fd::AsRawFd;
        loop {
            let _ = raw::dup2(chosen.as_raw_fd(), number);
        }
    });
    let mut tally = BTreeMap::new();
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        *tally.entry(name(Asked::send(fd, request).answer())).or_insert(0) += 1;
        if begun.elapsed() > Duration::from_secs(8) {
            break;
        }
    }
    println!("requests afterwards: {tally:?}");
    let wrong = tally.get("EINVAL").copied().unwrap_or(0);
    if wrong > 0 {
        println!("BROKEN: {wrong} requests were executed on a file of the attacker's choice");
    }
    Ok(())
}
