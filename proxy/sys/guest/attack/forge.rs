//! An attack: passing for another process of the sandbox.
//!
//! The supervisor knows an address space by a number in the stub's memory. A process that has no
//! stub yet can get memory of its own there, because the filter does not see where the kernel puts
//! what is mapped without an address.

use std::error::Error;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use super::memory::window_base;
use crate::kernel::End;
use crate::kernel::call;
use crate::kernel::fork;
use crate::kernel::int;
use crate::kernel::mappings;
use crate::kernel::mmap;
use crate::kernel::outcome;
use crate::kernel::peek;
use crate::kernel::pipe;
use crate::kernel::poke;
use crate::kernel::threads;
use crate::raw;

/// Where the number stands: `control::OWNER` of the first slot.
fn owner_at() -> u64 {
    window_base() + (1 << 20) + 16
}

/// More than lies between a position-independent executable and the libraries: so the kernel places
/// it below the executable, across the window.
const HUGE: u64 = 0x2b00 << 32;

/// A child makes a request, so that it is known; this process then tries to pass for it.
pub(super) fn owner(device: &str) -> Result<(), Box<dyn Error>> {
    let (mut told, mut tell) = pipe()?;
    let (mut done_reader, done) = pipe()?;
    let victim = fork(|| {
        let request = || {
            let file = raw::open(device)?;
            let mut out = [0_u64; 2];
            drop(raw::query_context(&mut out).send(file.as_raw_fd()));
            tell.write_all(&peek(owner_at()).to_ne_bytes())?;
            drop(tell);
            Ok::<_, std::io::Error>(file)
        };
        let kept = request();
        // Its own copy of what it waits for to be closed.
        let _ = call(libc::SYS_close, &[int(done.as_raw_fd())]);
        let _ = done_reader.read(&mut [0]);
        i32::from(kept.is_err())
    })?;
    let mut word = [0; 8];
    told.read_exact(&mut word)?;

    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = mmap(0, HUGE, libc::PROT_READ | libc::PROT_WRITE, anonymous, -1)?;
    println!("placed: {}", start < owner_at() && owner_at() < start + HUGE);
    let file = raw::open(device)?;
    let mut out = [0_u64; 2];
    let mut request = raw::query_context(&mut out);
    let mut guesses: Vec<String> = (0..64)
        .map(|guess| {
            poke(owner_at(), guess);
            outcome(&request.send(file.as_raw_fd())).to_string()
        })
        .collect();
    guesses.dedup();
    println!("guessed: {}", guesses.join(" "));
    // Learnt from the victim itself.
    poke(owner_at(), u64::from_ne_bytes(word));
    println!("told: {}", outcome(&request.send(file.as_raw_fd())));
    println!("own stubs: {}", threads().len() - 1);
    drop(done);
    println!("victim: {:?}", victim.wait()?);
    Ok(())
}

/// While one thread makes the first request, another forks all the time: does a child get the
/// stub's memory with the rest?
pub(super) fn inherit(device: &str) -> Result<(), Box<dyn Error>> {
    let (mut inherited, mut borrowed, mut failed) = (0, 0, 0);
    for _ in 0..150 {
        let parent = fork(|| forking(device).unwrap_or(4))?;
        match parent.wait()? {
            End::Code(code) if code < 4 => {
                inherited += i32::from(code & 1 != 0);
                borrowed += i32::from(code & 2 != 0);
            }
            _ => failed += 1,
        }
    }
    // Whether it happens is up to the scheduler; that it helps nobody is not.
    eprintln!("inherited in {inherited} of 150");
    println!("borrowed: {borrowed}, failed: {failed}");
    Ok(())
}

fn forking(device: &str) -> Result<i32, Box<dyn Error>> {
    let file = raw::open(device)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = [0_u64; 2];
            let _ = raw::query_context(&mut out).send(file.as_raw_fd());
            done.store(true, Ordering::Release);
        });
        let mut found = 0;
        while !done.load(Ordering::Acquire) {
            let child = fork(|| {
                if mappings("memfd:verbgate-").is_empty() {
                    return 0;
                }
                // It must not be served by the parent's stub.
                let mut out = [0_u64; 2];
                let served = raw::query_context(&mut out).send(file.as_raw_fd());
                let ran = served.is_err_and(|e| e.raw_os_error() == Some(libc::ENOTTY));
                if ran && threads().len() == 1 { 3 } else { 1 }
            })?;
            match child.wait()? {
                End::Code(code) => found |= code,
                End::Signal(_) => found |= 4,
            }
        }
        Ok(found)
    })
}
