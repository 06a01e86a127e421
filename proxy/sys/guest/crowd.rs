//! Crowds: many threads, ucontexts and refusals; and the effects of a guest's own limits and
//! filters.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::RawFd;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cases::destroy;
use crate::cases::object;
use crate::kernel::addr;
use crate::kernel::addr_mut;
use crate::kernel::call;
use crate::kernel::dup2;
use crate::kernel::fork;
use crate::kernel::int;
use crate::kernel::outcome;
use crate::kernel::say;
use crate::kernel::threads;
use crate::life::request;
use crate::life::tally;
use crate::raw;

/// So many threads make so many requests each, all at the same time.
pub(crate) fn many(device: &str, count: &str, each: &str) -> Result<(), Box<dyn Error>> {
    let (count, each): (usize, u32) = (count.parse()?, each.parse()?);
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let start = Barrier::new(count);
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    std::thread::scope(|scope| {
        let make = || {
            start.wait();
            tally(fd, each)
        };
        let all: Vec<_> = (0..count).map(|_| scope.spawn(make)).collect();
        for thread in all {
            let end = thread.join().unwrap_or_else(|_| "panicked".to_owned());
            *ends.entry(end).or_default() += 1;
        }
    });
    println!("{ends:?}");
    println!("stubs: {}", threads().len() - 1);
    Ok(())
}

/// Opens so many times, by so many opens of this process, of a child that is killed then, and of this one
/// again; then makes requests until one fails. Waits for a line before each step.
pub(crate) fn quota(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let count: usize = count.parse()?;
    let held = || {
        let mut held = Vec::new();
        loop {
            match raw::open(device) {
                Ok(file) if held.len() < count => held.push(file),
                Ok(_) => return (held, "none refused".to_owned()),
                Err(e) => return (held, outcome::<()>(&Err(e)).to_string()),
            }
        }
    };
    let told = |who: &str| {
        let (held, end) = held();
        println!("{who}: {} opens, then {end}", held.len());
        held
    };
    let (mut kept, mut line) = (Vec::new(), String::new());
    for step in std::iter::from_fn(|| {
        line.clear();
        let read = io::stdin().read_line(&mut line);
        read.is_ok_and(|count| count > 0).then(|| line.trim().to_owned())
    }) {
        match &*step {
            "open" => drop(told("own")),
            "keep" => {
                kept = told("kept");
            }
            "again" => {
                let made = kept.first().map(|file| outcome(&request(file.as_raw_fd())).to_string());
                println!("again: {}", made.as_deref().unwrap_or("nothing is kept"));
            }
            "child" => {
                let child = fork(|| {
                    std::mem::forget(told("child"));
                    let _ = rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::KILL,
                    );
                    0
                })?;
                println!("{:?}", child.wait()?);
            }
            "request" => {
                let file = raw::open(device)?;
                let ends = (0..count).map(|_| outcome(&request(file.as_raw_fd())).to_string());
                let mut all: BTreeMap<String, u32> = BTreeMap::new();
                ends.for_each(|end| *all.entry(end).or_default() += 1);
                println!("requests: {all:?}");
            }
            other => println!("no step {other:?}"),
        }
    }
    Ok(())
}

/// So many threads, one after another, make a request each; then it waits for the end of its input.
pub(crate) fn passers(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..count.parse::<u64>()? {
        let thread = std::thread::spawn(move || tally(fd, 1));
        let end = thread.join().unwrap_or_else(|_| "panicked".to_owned());
        *ends.entry(end).or_default() += 1;
    }
    println!("{ends:?}");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The first requests of so many processes are made by eight threads at once.
pub(crate) fn firsts(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    const THREADS: usize = 8;
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..count.parse::<u64>()? {
        let child = fork(|| {
            let Ok(file) = raw::open(device) else { return 1 };
            let (fd, start) = (file.as_raw_fd(), Barrier::new(THREADS));
            let first = || {
                start.wait();
                tally(fd, 1)
            };
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(first)).collect();
                let ends: Vec<_> =
                    all.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
                i32::from(!ends.iter().all(|end| end.as_deref().is_ok_and(|end| end == "ENOTTY 1")))
                    * 2
            })
        })?;
        *ends.entry(format!("{:?}", child.wait()?)).or_default() += 1;
    }
    println!("{ends:?}");
    Ok(())
}

/// While one thread opens the device so many times, four others make a request on the number that comes next, as soon
/// as it is open.
pub(crate) fn early(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let mut last = raw::open(device)?;
    say("first", &request(last.as_raw_fd()));
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..count.parse::<u32>()? {
        let (next, opened) = (last.as_raw_fd() + 1, AtomicBool::new(false));
        let first_end = || {
            loop {
                let is_last = opened.load(Ordering::Acquire);
                let end = outcome(&request(next)).to_string();
                if is_last || end != "EBADF" {
                    return end;
                }
            }
        };
        last = std::thread::scope(|scope| {
            let early: Vec<_> = (0..4).map(|_| scope.spawn(first_end)).collect();
            let file = raw::open(device);
            opened.store(true, Ordering::Release);
            for thread in early {
                *ends
                    .entry(thread.join().unwrap_or_else(|_| "panicked".to_owned()))
                    .or_default() += 1;
            }
            file
        })?;
    }
    println!("early: {ends:?}");
    Ok(())
}

/// So many processes end in all ways while threads of theirs make requests.
pub(crate) fn leaves(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for nth in 0..count.parse::<u64>()? {
        let child = fork(|| {
            let Ok(file) = raw::open(device) else { return 1 };
            let fd = file.as_raw_fd();
            for _ in 0..6 {
                std::thread::spawn(move || {
                    loop {
                        let _ = request(fd);
                    }
                });
            }
            let _ = request(fd);
            std::thread::sleep(Duration::from_micros(nth * 613 % 5000));
            if nth % 3 == 0 {
                let next = [c"/bin/true".as_ptr(), std::ptr::null()];
                // SAFETY: strings and a list that end with a null, and live through the call.
                unsafe { libc::execv(next[0], next.as_ptr()) };
            }
            0
        })?;
        *ends.entry(format!("{:?}", child.wait()?)).or_default() += 1;
    }
    println!("{ends:?}");
    Ok(())
}

/// Several ucontexts of one process take turns.
pub(crate) fn turns(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let files: Vec<File> =
        (0..count.parse()?).map(|_| raw::open(device)).collect::<io::Result<_>>()?;
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..300 {
        for file in &files {
            *ends.entry(outcome(&request(file.as_raw_fd())).to_string()).or_default() += 1;
        }
    }
    println!("{ends:?}");
    Ok(())
}

/// Requests that are refused, and then one that is not.
pub(crate) fn refused(device: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let refused = destroy(object::COUNTERS);
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..count.parse()? {
        *ends.entry(outcome(&refused.clone().send(file.as_raw_fd())).to_string()).or_default() += 1;
    }
    println!("{ends:?}");
    say("after", &request(file.as_raw_fd()));
    Ok(())
}

pub(crate) fn limit_descriptors(soft: u64) -> io::Result<u64> {
    let mut limit = [0_u64; 2];
    let nofile = u64::from(libc::RLIMIT_NOFILE);
    call(libc::SYS_prlimit64, &[0, nofile, 0, addr_mut(&mut limit)])?;
    limit[0] = soft;
    call(libc::SYS_prlimit64, &[0, nofile, addr(&limit), 0])
}

/// Limits of descriptors, lowered below the numbers that RDMA descriptors have; and a full table.
pub(crate) fn limits(device: &str) -> Result<(), Box<dyn Error>> {
    // Before anything: planting needs numbers, too, and has to say so rather than kill.
    let first = fork(|| {
        let Ok(file) = raw::open(device) else { return 1 };
        if limit_descriptors(0).is_err() {
            return 2;
        }
        let refused = request(file.as_raw_fd());
        if limit_descriptors(1024).is_err() {
            return 3;
        }
        println!("no number to plant with: {}", outcome(&refused));
        say("then", &request(file.as_raw_fd()));
        0
    })?;
    println!("{:?}", first.wait()?);

    let (one, two) = (raw::open(device)?, raw::open(device)?);
    say("before", &request(one.as_raw_fd()));
    limit_descriptors(64)?;
    say("above the limit", &request(one.as_raw_fd()));
    say("open below the numbers that are watched", &raw::open(device));
    // A stub that has waited for a while has given the file back: so often until one has not.
    let mut tries = 0;
    let held = loop {
        limit_descriptors(64)?;
        let _ = request(one.as_raw_fd());
        limit_descriptors(0)?;
        let held = request(one.as_raw_fd());
        tries += 1;
        if tries == 100 || held.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENOTTY)) {
            break held;
        }
    };
    say("no number, held by the stub", &held);
    std::thread::sleep(Duration::from_millis(300));
    say("no number, held by a stub that has waited", &request(one.as_raw_fd()));
    println!("no number, not held: {}", outcome(&request(two.as_raw_fd())));
    // A few of the watched numbers, of which these two are the first.
    limit_descriptors(u64::try_from(one.as_raw_fd())? + 16)?;
    say("limit raised", &request(two.as_raw_fd()));

    let mut filling = Vec::new();
    while let Ok(file) = one.try_clone() {
        filling.push(file);
    }
    say("full, open", &raw::open(device));
    say("full, request", &request(two.as_raw_fd()));
    drop(filling.pop());
    say("one free", &raw::open(device));
    Ok(())
}

/// Every descriptor is closed, or moved out of the watched numbers.
pub(crate) fn closed(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("before", &request(fd));
    let low: RawFd = dup2(fd, 50)?;
    call(libc::SYS_close_range, &[60, u64::from(u32::MAX), 0])?;
    std::mem::forget(file);
    say("closed", &request(fd));
    say("duplicate", &request(low));
    say("duplicate again", &request(low));
    let again = raw::open(device)?;
    say("opened again", &request(again.as_raw_fd()));
    call(libc::SYS_close_range, &[3, u64::from(u32::MAX), 0])?;
    std::mem::forget(again);
    say("all closed", &request(low));
    say("from scratch", &raw::open(device).and_then(|file| request(file.as_raw_fd())));
    Ok(())
}

/// `struct sock_filter`: code, jump if true, jump if false, operand.
type Instruction = (u16, u8, u8, u32);

/// Installs a filter that ends `ioctl` in `action` when its first argument is below `below`.
fn install(action: u32, below: u32, flags: u64) -> io::Result<u64> {
    #[repr(C)]
    struct Program {
        len: u16,
        filter: *const Instruction,
    }
    let ioctl = u32::try_from(libc::SYS_ioctl).unwrap_or(0);
    let filter: [Instruction; 6] = [
        (0x20, 0, 0, 0),      // load the number
        (0x15, 0, 3, ioctl),  // ioctl?
        (0x20, 0, 0, 16),     // load the first argument
        (0x35, 1, 0, below),  // below?
        (0x06, 0, 0, action), // action
        (0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = Program { len: 6, filter: filter.as_ptr() };
    call(libc::SYS_prctl, &[int(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0])?;
    let mode = u64::from(libc::SECCOMP_SET_MODE_FILTER);
    call(libc::SYS_seccomp, &[mode, flags, addr(&program)])
}

/// Filters of the guest's own.
pub(crate) fn filters(device: &str) -> Result<(), Box<dyn Error>> {
    const NEW_LISTENER: u64 = 1 << 3;
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("before", &request(fd));
    say("second listener", &install(libc::SECCOMP_RET_USER_NOTIF, u32::MAX, NEW_LISTENER));
    let own = fork(|| {
        let errno = libc::SECCOMP_RET_ERRNO | libc::EACCES.cast_unsigned();
        say("filter", &install(errno, u32::MAX, 0));
        say("filtered", &request(fd));
        0
    })?;
    println!("{:?}", own.wait()?);
    say("after", &request(fd));
    Ok(())
}

/// A filter on the stub: a request's result will never be seen, and the stub must not spin.
pub(crate) fn filtered_stub(device: &str) -> Result<(), Box<dyn Error>> {
    const TSYNC: u64 = 1;
    let file = raw::open(device)?;
    let fd = file.as_raw_fd();
    say("before", &request(fd));
    let errno = libc::SECCOMP_RET_ERRNO | libc::EACCES.cast_unsigned();
    // The stub's ioctl is on descriptor 0.
    say("filter", &install(errno, 1, TSYNC));
    let before = threads().len();
    std::thread::Builder::new().spawn(move || request(fd))?;
    while threads().len() > before {
        std::thread::yield_now();
    }
    println!("the stub has ended");
    // SAFETY: ends the process, the thread that waits for its answer included.
    unsafe { libc::_exit(0) }
}
