//! Attacks by crowds: many slow processes, and many that come and go.

use std::fs;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::faults;
use crate::guest::Guest;
use crate::guest::go_on;
use crate::guest::minion;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::addr;
use crate::raw::call;
use crate::raw::close;
use crate::raw::fork;
use crate::raw::int;
use crate::raw::is_short;
use crate::raw::memory;
use crate::raw::name;
use crate::raw::sleep;
use crate::request;
use crate::request::errno;

/// Threads of one process, each in a request or an open whose bytes never come: more than may wait, or a hundred where
/// there are several such processes.
pub(super) fn slow_threads(guest: &Guest) -> io::Result<()> {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    let is = |name: &str, value: &str| guest.settings.get(name) == value;
    let is_alone = is("minions", "1") && is("native", "false");
    let threads = if is_alone { 600 } else { 100 };
    close(faults::of_the_kernel(&guest.board)? as i32);
    minion(|| {
        let fd = guest.planted(guest.device())?;
        let uffd = faults::of_the_kernel(&guest.board)?;
        for number in 0..threads {
            let page = memory(None, PAGE)?;
            faults::take(uffd, page, PAGE)?;
            thread::Builder::new().stack_size(128 << 10).spawn(move || {
                BEGUN.fetch_add(1, Ordering::SeqCst);
                let end = match number % 3 {
                    0 => errno(&call(libc::SYS_openat, &[int(libc::AT_FDCWD), page, 2])),
                    1 => errno(&call(libc::SYS_write, &[int(fd), page, 24])),
                    _ => request::send(fd, page),
                };
                if end == libc::EAGAIN {
                    REFUSED.fetch_add(1, Ordering::SeqCst);
                }
            })?;
        }
        raw::until(|| BEGUN.load(Ordering::SeqCst) == threads);
        if is_alone {
            raw::until(|| REFUSED.load(Ordering::SeqCst) > 0);
        }
        println!("{threads} threads wait");
        guest.board.set_mine(0, 1);
        go_on()
    })?;
    raw::until(|| guest.board.mine(0) != 0);
    // A supervisor without spare threads ends those who keep them.
    sleep(2500);
    guest.in_effect();
    go_on()
}

/// Sixty threads of one process, each in one request after the other whose bytes come late: none
/// keeps a thread of the supervisor for long, all of them together could keep one all the time.
pub(super) fn short_waits(guest: &Guest) -> io::Result<()> {
    const THREADS: usize = 60;
    const LATE: Duration = Duration::from_millis(3);
    static MADE: AtomicUsize = AtomicUsize::new(0);
    close(faults::of_the_kernel(&guest.board)? as i32);
    minion(|| {
        let fd = guest.planted(guest.device())?;
        let uffd = faults::of_the_kernel(&guest.board)?;
        for _ in 0..THREADS {
            let page = memory(None, PAGE)?;
            faults::take(uffd, page, PAGE)?;
            let start = || thread::Builder::new().stack_size(128 << 10);
            start().spawn(move || {
                loop {
                    let _ = call(libc::SYS_madvise, &[page, PAGE, int(libc::MADV_DONTNEED)]);
                    request::send(fd, page);
                    MADE.fetch_add(1, Ordering::SeqCst);
                }
            })?;
            start().spawn(move || {
                while let Ok(page) = faults::next(uffd) {
                    thread::sleep(LATE);
                    let _ = faults::fill(uffd, page, PAGE);
                }
            })?;
        }
        raw::until(|| MADE.load(Ordering::SeqCst) > THREADS);
        guest.in_effect();
        go_on()
    })?;
    go_on()
}

/// Forty processes, each in such a request, made anew when they are ended.
pub(super) fn slow_processes(guest: &Guest) -> io::Result<()> {
    const PROCESSES: usize = 40;
    close(faults::of_the_kernel(&guest.board)? as i32);
    let mut children = Vec::new();
    let (mut made, mut ended) = (0_u64, 0_u64);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(3500) {
        while children.len() < PROCESSES {
            made += 1;
            let first = made % 2 == 0;
            children.push(minion(|| {
                // Half of them in the request with which they would be planted.
                let fd = if first {
                    request::open(guest.device())?
                } else {
                    guest.planted(guest.device())?
                };
                let uffd = faults::of_the_kernel(&guest.board)?;
                let page = memory(None, PAGE)?;
                faults::take(uffd, page, PAGE)?;
                request::send(fd, page);
                Ok(())
            })?);
        }
        children.retain(|child| {
            let over = raw::ended(*child).is_some();
            ended += u64::from(over);
            !over
        });
        sleep(5);
    }
    println!("{made} slow processes, {ended} of them ended");
    Ok(())
}

/// Processes that open, ask and end by every means, without a pause: with few numbers, each is
/// given to many of them. None may be told anything but its own device's answer.
pub(super) fn lives(guest: &Guest) -> io::Result<()> {
    let begun = Instant::now();
    let mut children: Vec<(i32, u32)> = Vec::new();
    let (mut lives, mut wrong) = (0_u32, 0);
    while begun.elapsed() < Duration::from_secs(4) {
        while children.len() < 4 {
            lives += 1;
            let way = lives % 6;
            let end =
                |error: io::Error| if is_short(error.raw_os_error().unwrap_or(0)) { 0 } else { 9 };
            let Ok(child) = fork(|| live(guest, way).unwrap_or_else(end)) else { break };
            children.push((child, way));
        }
        children.retain(|(child, way)| {
            // One that is meant to be killed is killed at any moment of its life.
            if *way == 5 {
                raw::kill(*child, libc::SIGKILL);
            }
            match raw::ended(*child) {
                None => true,
                Some(code) => {
                    let well = code == 0 || *way == 5 && code == 137;
                    if !well {
                        wrong += 1;
                        if wrong < 5 {
                            println!("BROKEN: a life of kind {way} ended with {code}");
                        }
                    }
                    false
                }
            }
        });
        sleep(0);
    }
    println!("{lives} lives, {wrong} of them wronged");
    Ok(())
}

/// One life: 0 if each device gave its own answer.
fn live(guest: &Guest, way: u32) -> io::Result<i32> {
    let (path, other) = match way % 2 {
        0 => (guest.device(), guest.other()),
        _ => (guest.other(), guest.device()),
    };
    let ask = |fd: i32, path: &str| {
        let answer = request::query(fd);
        if is_short(answer) {
            raw::exit(0);
        }
        if answer != guest.answer_of(path) {
            println!("{path} in a life of kind {way}: {}", name(answer));
            raw::exit(8);
        }
    };
    let fd = request::open(path)?;
    ask(fd, path);
    match way {
        1 => {
            close(fd);
            let second = request::open(other)?;
            ask(second, other);
        }
        2 => {
            let user = u64::from(crate::guest::NOBODY);
            call(libc::SYS_setresgid, &[user, user, user])
                .or_else(|_| call(libc::SYS_setresgid, &[u64::MAX, u64::MAX, u64::MAX]))?;
            ask(fd, path);
        }
        3 => {
            let child = fork(|| {
                ask(fd, path);
                0
            })?;
            ask(fd, path);
            return Ok(raw::wait(child).unwrap_or(7));
        }
        4 => {
            let caller = thread::Builder::new().spawn(move || request::query(fd))?;
            ask(fd, path);
            drop(caller.join());
        }
        _ => {}
    }
    Ok(0)
}

/// Children that use RDMA for the first time, while somebody tries to trace the stubs that they get: a
/// tracer has the stub's device, and changes what the stub does. Some try at once, others are let attach
/// before the stub is there, and come to it later, since they share a processor with one that never rests.
pub(super) fn traced(guest: &Guest) -> io::Result<()> {
    const LATE: usize = 12;
    static CHILD: AtomicI32 = AtomicI32::new(0);
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    static RESTS: AtomicBool = AtomicBool::new(false);
    for number in 0..=LATE {
        thread::spawn(move || {
            let first = 1_u64;
            let _ = call(libc::SYS_sched_setaffinity, &[0, 8, addr(&first)]);
            if number == 0 {
                while !RESTS.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                return;
            }
            let priority = 0_i32;
            let idle = int(libc::SCHED_IDLE);
            let _ = call(libc::SYS_sched_setscheduler, &[0, idle, addr(&priority)]);
            while !RESTS.load(Ordering::SeqCst) {
                let child = CHILD.load(Ordering::SeqCst);
                if child != 0 {
                    TAKEN.fetch_add(usize::from(takes(child, child + 1)), Ordering::SeqCst);
                }
                sleep(1);
            }
        });
    }
    let board = guest.board;
    let (mut children, mut tried) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) && TAKEN.load(Ordering::SeqCst) < 4 {
        board.set_mine(0, 0);
        let child = minion(|| {
            let asked = guest.planted(guest.device());
            board.set_mine(0, 1);
            asked.map(drop)
        })?;
        CHILD.store(child, Ordering::SeqCst);
        children += 1;
        while board.mine(0) == 0 {
            // The numbers that come next, of which one is the stub's.
            for number in child + 1..child + 4 {
                if children % 2 == 0 {
                    tried += 1;
                    TAKEN.fetch_add(usize::from(takes(child, number)), Ordering::SeqCst);
                }
            }
            // A thread that rests with RCU's lock, for want of a processor, has the whole kernel wait, and so
            // the child's open: what ends as soon as the attack does has not been lost.
            RESTS.store(begun.elapsed() > Duration::from_secs(10), Ordering::SeqCst);
        }
        sleep(if children % 2 == 0 { 0 } else { 5 });
        CHILD.store(0, Ordering::SeqCst);
        raw::kill(child, libc::SIGKILL);
        raw::wait(child);
    }
    let taken = TAKEN.load(Ordering::SeqCst);
    println!("{children} children, {tried} times tried, {taken} stubs traced");
    Ok(())
}

/// Whether a thread of a process can be traced, which is its stub if it is not the first.
fn takes(child: i32, number: i32) -> bool {
    if call(libc::SYS_ptrace, &[u64::from(libc::PTRACE_SEIZE), int(number), 0, 0]).is_err() {
        return false;
    }
    let status = fs::read_to_string(format!("/proc/{number}/status"));
    let is_its = status.is_ok_and(|status| status.contains(&format!("Tgid:\t{child}\n")));
    if is_its {
        println!("BROKEN: thread {number}, a stub of process {child}, is traced");
    }
    is_its
}
