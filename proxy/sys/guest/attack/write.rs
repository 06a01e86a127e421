//! An attack: ways to write memory that is mapped for reading only.

use std::error::Error;
use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::regions;
use crate::faults::take_faults;
use crate::kernel::End;
use crate::kernel::Mapping;
use crate::kernel::addr;
use crate::kernel::addr_mut;
use crate::kernel::call;
use crate::kernel::fork;
use crate::kernel::gettid;
use crate::kernel::int;
use crate::kernel::mmap;
use crate::kernel::outcome;
use crate::kernel::peek;
use crate::kernel::poke;
use crate::kernel::say;
use crate::raw;

const PAGE: u64 = 4096;
const WORD: u64 = 0x5555_5555_5555_5555;

type Trick = fn(Mapping) -> io::Result<()>;

const TRICKS: &[(&str, Trick)] = &[
    ("/proc/self/mem", |m| {
        let mem = OpenOptions::new().write(true).open("/proc/self/mem")?;
        mem.write_all_at(&WORD.to_ne_bytes(), last_word(m))
    }),
    ("process_vm_writev", |m| {
        let me = u64::from(std::process::id());
        let (from, to) = ([addr(&WORD), 8], [last_word(m), 8]);
        call(libc::SYS_process_vm_writev, &[me, addr(&from), 1, addr(&to), 1, 0]).map(drop)
    }),
    ("ptrace", |m| poke_from_outside(last_word(m))),
    ("userfaultfd", keep_faults),
    ("map_files", |m| {
        let path = format!("/proc/self/map_files/{:x}-{:x}", m.start, m.start + m.len);
        OpenOptions::new().read(true).write(true).open(path).map(drop)
    }),
];

/// The last word of a region, which the supervisor writes neither for a request nor when a stub parks.
fn last_word(m: Mapping) -> u64 {
    m.start + m.len - 8
}

/// A child attaches to this thread and writes.
fn poke_from_outside(at: u64) -> io::Result<()> {
    let parent = int(gettid());
    let child = fork(|| {
        let trace = |what: u32, at: u64, data: u64| {
            call(libc::SYS_ptrace, &[u64::from(what), parent, at, data])
        };
        if trace(libc::PTRACE_ATTACH, 0, 0).is_err() {
            return 250;
        }
        let mut status = 0_i32;
        let waited = call(libc::SYS_wait4, &[parent, addr_mut(&mut status), int(libc::__WALL), 0]);
        let poked = trace(libc::PTRACE_POKEDATA, at, WORD);
        let _ = trace(libc::PTRACE_DETACH, 0, 0);
        match (waited, poked) {
            (Ok(_), Ok(_)) => 0,
            (_, poked) => poked.err().and_then(|e| e.raw_os_error()).unwrap_or(251),
        }
    })?;
    loop {
        match child.wait() {
            Ok(End::Code(0)) => return Ok(()),
            Ok(End::Code(errno)) => return Err(io::Error::from_raw_os_error(errno)),
            Ok(End::Signal(_)) => return Err(io::Error::other("the tracer died")),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Registers a range with userfaultfd(2), so that faults on it wait for the guest.
fn keep_faults(m: Mapping) -> io::Result<()> {
    const UFFD_USER_MODE_ONLY: i32 = 1;
    let uffd = call(libc::SYS_userfaultfd, &[int(libc::O_CLOEXEC | UFFD_USER_MODE_ONLY)])?;
    let done = take_faults(uffd, m.start, m.len);
    call(libc::SYS_close, &[uffd])?;
    done
}

/// A page of the guest's own that it may only read, but that its owner may change.
fn own() -> io::Result<Mapping> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let start = mmap(0, PAGE, prot, flags, -1)?;
    poke(start, 1);
    Ok(Mapping { start, len: PAGE })
}

/// Everything at once, as `name: own, code, frame`.
pub(super) fn by_every_means(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let mut out = [0_u64; 2];
    let good = raw::query_context(&mut out);
    say("before", &good.clone().send(file.as_raw_fd()));
    let read_only: Vec<Mapping> =
        regions().into_iter().filter(|(name, _)| *name != "scratch").map(|(_, m)| m).collect();
    println!("regions: {}", read_only.len());
    let words = || read_only.iter().map(|m| peek(last_word(*m))).collect::<Vec<_>>();
    let before = words();
    for (name, trick) in TRICKS {
        let mine = own()?;
        if *name != "userfaultfd" {
            call(libc::SYS_mprotect, &[mine.start, mine.len, int(libc::PROT_READ)])?;
        }
        print!("{name}: {}", outcome(&trick(mine)));
        for region in &read_only {
            print!(" {}", outcome(&trick(*region)));
        }
        println!();
    }
    println!("unchanged: {}", words() == before);
    say("after", &good.clone().send(file.as_raw_fd()));
    // The scratch half is the guest's to write.
    if let Some((_, scratch)) = regions().into_iter().find(|(name, _)| *name == "scratch") {
        let mem = OpenOptions::new().write(true).open("/proc/self/mem")?;
        say("scratch", &mem.write_all_at(&WORD.to_ne_bytes(), scratch.start));
    }
    drop(fs::metadata("/proc/self"));
    Ok(())
}

/// A store like any other; where it must fail, the process dies of it.
pub(super) fn store(device: &str, region: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let mut out = [0_u64; 2];
    say("before", &raw::query_context(&mut out).send(file.as_raw_fd()));
    let regions = regions();
    let (_, found) = *regions.iter().find(|(name, _)| *name == region).ok_or("no such region")?;
    poke(found.start, WORD);
    println!("stored");
    Ok(())
}
