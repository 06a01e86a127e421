//! Programs that attack nobody, and have a number that was another's.

use std::io;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use libc::c_int;
use libc::c_void;

use super::numbers::ANSWERED;
use super::numbers::TRIES;
use crate::guest::Guest;
use crate::guest::go_on;
use crate::guest::minion;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::addr;
use crate::raw::call;
use crate::raw::gettid;
use crate::raw::int;
use crate::raw::memory;
use crate::raw::name;
use crate::raw::sleep;
use crate::request;
use crate::stubs;

static DEVICE: AtomicI32 = AtomicI32::new(-1);
static REQUEST: AtomicU64 = AtomicU64::new(0);
static HOME: AtomicU64 = AtomicU64::new(0);
static OUTCOME: AtomicI32 = AtomicI32::new(0);

/// A thread that happens to have a retired stub's number, and opens files and uses RDMA.
extern "C" fn opens_files(_: *mut c_void) -> c_int {
    if !stubs::has_wanted_number() {
        return 0;
    }
    let flags = int(libc::O_RDWR | libc::O_CLOEXEC);
    let path = HOME.load(Ordering::SeqCst);
    let opened = call(libc::SYS_openat, &[int(libc::AT_FDCWD), path, flags]);
    let asked = request::send(DEVICE.load(Ordering::SeqCst), REQUEST.load(Ordering::SeqCst));
    let ok = opened.is_ok() && (asked == 0 || asked == libc::ENOTTY);
    OUTCOME.store(if ok { 1 } else { 2 + asked }, Ordering::SeqCst);
    loop {
        let _ = call(libc::SYS_sched_yield, &[]);
    }
}

/// No attack: a program that uses RDMA, sets its group to what it is, and starts many threads.
pub(super) fn innocent(guest: &Guest) -> io::Result<()> {
    let child = minion(|| {
        let fd = guest.planted(guest.device())?;
        let stub = stubs::find(&[gettid()])?;
        // SAFETY: takes no argument.
        let group = u64::from(unsafe { libc::getgid() });
        call(libc::SYS_setgid, &[group])?;
        println!("its stub {} was retired: {}", stub.tid, stub.wait_ended(ANSWERED));
        let request = memory(None, PAGE)?;
        request::lay_out(request, request + 1024);
        let path = c"/dev/zero";
        HOME.store(addr(&path.to_bytes_with_nul()[0]), Ordering::SeqCst);
        DEVICE.store(fd, Ordering::SeqCst);
        REQUEST.store(request, Ordering::SeqCst);
        if stubs::as_number(stub.tid, opens_files, TRIES)? {
            raw::until(|| OUTCOME.load(Ordering::SeqCst) != 0);
            match OUTCOME.load(Ordering::SeqCst) {
                1 => println!("a thread with its number opened a file and used RDMA"),
                other => println!("BROKEN: an innocent thread's calls failed: {}", name(other - 2)),
            }
        } else {
            println!("its number is not to be had");
        }
        let after = request::query(fd);
        if after != guest.answer_of(guest.device()) {
            println!("BROKEN: an innocent program's later request: {}", name(after));
        }
        Ok(())
    })?;
    match raw::wait(child) {
        Some(0) => {}
        Some(code) if code == i32::from(crate::SKIPPED) => {
            return Err(io::Error::other("SKIPPED: as said above"));
        }
        other => println!("BROKEN: an innocent program ended with {other:?}"),
    }
    Ok(())
}

/// An innocent process gets the number of another's stub, or of the process that had it, whatever
/// that came to its end by: it may use RDMA and open files as anybody.
pub(super) fn heirs(guest: &Guest) -> io::Result<()> {
    const WAYS: [&str; 4] = ["exit", "a signal", "execve", "its stub alone"];
    for (number, way) in WAYS.iter().enumerate() {
        for stubs in [true, false] {
            if number >= 2 && !stubs {
                // That process lives on.
                continue;
            }
            let board = guest.board;
            board.set_mine(0, 0);
            let child = minion(|| {
                let fd = guest.planted(guest.device())?;
                let stub = stubs::find(&[gettid()])?;
                if number == 3 {
                    stub.end_at_its_next_trap()?;
                    board.set_mine(0, stub.tid as u64);
                    request::query(fd);
                    return Ok(());
                }
                board.set_mine(0, stub.tid as u64);
                sleep(if number == 1 { 5000 } else { 0 });
                if number == 2 {
                    use std::os::unix::process::CommandExt;
                    return Err(std::process::Command::new("/bin/sleep").arg("5").exec());
                }
                Ok(())
            })?;
            raw::within(ANSWERED, || board.mine(0) != 0);
            let freed = if stubs { board.mine(0) as i32 } else { child };
            match number {
                2 | 3 => sleep(50),
                _ => {
                    raw::kill(child, if number == 1 { libc::SIGKILL } else { 0 });
                    raw::wait(child);
                }
            }
            let how = format!(
                "the number of {} ended by {way}",
                if stubs { "a stub" } else { "a process" }
            );
            heir_of(guest, freed, &how)?;
            raw::kill(child, libc::SIGKILL);
            raw::wait(child);
        }
    }
    Ok(())
}

fn heir_of(guest: &Guest, freed: i32, how: &str) -> io::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < TRIES {
        let child = raw::fork(|| {
            if std::process::id() as i32 != freed {
                return 100;
            }
            let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/zero");
            for path in [guest.other(), guest.device()] {
                let asked = request::open(path).map(request::query);
                if asked.ok() != Some(guest.answer_of(path)) {
                    return 2;
                }
            }
            i32::from(opened.is_err())
        });
        // No number is free this moment.
        let Ok(child) = child else { continue };
        match raw::wait(child) {
            Some(100) => {}
            Some(0) => {
                println!("{how}: its heir works");
                return Ok(());
            }
            end => {
                println!("BROKEN: {how}: its innocent heir ended with {end:?}");
                raw::kill(child, libc::SIGKILL);
                return Ok(());
            }
        }
    }
    println!("{how}: not to be had");
    Ok(())
}

/// A thread for each processor that computes, and makes no request; or one that takes a share of a processor.
pub(super) fn load(guest: &Guest) -> io::Result<()> {
    let share: u32 = guest.settings.get("share").parse().unwrap_or(0);
    if share > 0 {
        guest.in_effect();
        let begun = Instant::now();
        loop {
            while processor_time() * 1000 < begun.elapsed() * share {
                std::hint::spin_loop();
            }
            sleep(3);
        }
    }
    for _ in 0..std::thread::available_parallelism()?.get() {
        std::thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    }
    guest.in_effect();
    go_on()
}

/// The processor time that this process has used.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is there to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
