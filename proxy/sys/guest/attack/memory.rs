//! An attack: calls that would put something else in the place of the stub's memory.

use std::error::Error;
use std::io;
use std::os::fd::AsRawFd;

use super::regions;
use crate::kernel::Mapping;
use crate::kernel::addr;
use crate::kernel::call;
use crate::kernel::int;
use crate::kernel::mappings;
use crate::kernel::mmap;
use crate::kernel::outcome;
use crate::kernel::say;
use crate::kernel::threads;
use crate::raw;

const PAGE: u64 = 4096;
/// Where the attacks are tried on memory of the guest's own, and to where they move it.
const OWN: u64 = 0x6acf_0000_0000;
const ELSEWHERE: u64 = 0x6abf_0000_0000;
const RWX: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
const FIXED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
const MOVE_TO: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;

type Trick = fn(Mapping) -> io::Result<u64>;

const TRICKS: &[(&str, Trick)] = &[
    ("mprotect", |m| call(libc::SYS_mprotect, &[m.start, m.len, int(RWX)])),
    ("pkey_mprotect", |m| call(libc::SYS_pkey_mprotect, &[m.start, m.len, int(RWX), int(-1)])),
    ("munmap", |m| call(libc::SYS_munmap, &[m.start, m.len])),
    ("munmap around", |m| call(libc::SYS_munmap, &[m.start - PAGE, m.len + 2 * PAGE])),
    ("mmap over", |m| mmap(m.start, m.len, RWX, FIXED, -1)),
    ("mmap across", |m| mmap(m.start - PAGE, 2 * PAGE, RWX, FIXED, -1)),
    ("mremap away", |m| call(libc::SYS_mremap, &[m.start, m.len, m.len, int(MOVE_TO), ELSEWHERE])),
    ("mremap a copy", |m| {
        call(libc::SYS_mremap, &[m.start, 0, m.len, int(libc::MREMAP_MAYMOVE), 0])
    }),
    ("mremap shorter", |m| call(libc::SYS_mremap, &[m.start, m.len, m.len - PAGE, 0, 0])),
    ("mremap onto", |m| {
        let own = mmap(0, PAGE, RWX, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        call(libc::SYS_mremap, &[own, PAGE, PAGE, int(MOVE_TO), m.start])
    }),
    ("madvise DONTNEED", |m| call(libc::SYS_madvise, &[m.start, m.len, int(libc::MADV_DONTNEED)])),
    ("madvise DOFORK", |m| call(libc::SYS_madvise, &[m.start, m.len, int(libc::MADV_DOFORK)])),
    ("madvise REMOVE", |m| call(libc::SYS_madvise, &[m.start, m.len, int(libc::MADV_REMOVE)])),
    ("remap_file_pages", |m| call(libc::SYS_remap_file_pages, &[m.start, m.len, 0, 1, 0])),
    ("shmat", |m| {
        let id = call(libc::SYS_shmget, &[int(libc::IPC_PRIVATE), m.len, 0o600])?;
        let attached = call(libc::SYS_shmat, &[id, m.start, int(libc::SHM_REMAP)]);
        call(libc::SYS_shmctl, &[id, int(libc::IPC_RMID), 0])?;
        attached
    }),
    ("process_madvise", |m| {
        let me = call(libc::SYS_pidfd_open, &[std::process::id().into(), 0])?;
        let range = [m.start, m.len];
        let advice = int(libc::MADV_DOFORK);
        let advised = call(libc::SYS_process_madvise, &[me, addr(&range), 1, advice, 0]);
        call(libc::SYS_close, &[me])?;
        advised
    }),
];

/// Shared memory like the stub's, but the guest's own.
fn own(len: u64) -> io::Result<Mapping> {
    let name = c"own";
    let fd = call(libc::SYS_memfd_create, &[name.as_ptr() as u64, 0])?;
    call(libc::SYS_ftruncate, &[fd, len + PAGE])?;
    let start =
        mmap(OWN, len, RWX, libc::MAP_SHARED | libc::MAP_FIXED, i32::try_from(fd).unwrap_or(-1))?;
    call(libc::SYS_close, &[fd])?;
    Ok(Mapping { start, len })
}

/// Everything at once, as `name: own, code, frame, scratch`.
pub(super) fn remap(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let mut out = [0_u64; 2];
    let good = raw::query_context(&mut out);
    say("before", &good.clone().send(file.as_raw_fd()));
    let (found, stubs, maps) = (regions(), threads(), mappings("memfd:verbgate-"));
    println!("regions: {}", found.len());
    for (name, trick) in TRICKS {
        let tried = trick(own(0x4_0000)?);
        print!("{name}: {}", outcome(&tried));
        for (_, region) in &found {
            print!(" {}", outcome(&trick(*region)));
        }
        println!();
    }
    println!("unchanged: {}", mappings("memfd:verbgate-") == maps && threads() == stubs);
    say("after", &good.clone().send(file.as_raw_fd()));
    Ok(())
}

/// Memory in the window before there is a stub.
pub(super) fn premap(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    let base = window_base();
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    for (name, at) in [("code", base), ("frame", base + (1 << 20)), ("end", base + 0xffff_f000)] {
        let noreplace = mmap(at, PAGE, RWX, anonymous | libc::MAP_FIXED_NOREPLACE, -1);
        println!(
            "{name}: {} {} {}",
            outcome(&mmap(at, PAGE, RWX, FIXED, -1)),
            outcome(&noreplace),
            outcome(&mmap(at, PAGE, RWX, anonymous, -1))
        );
    }
    say("across", &mmap(base - PAGE, 2 * PAGE, RWX, FIXED, -1));
    let moved = mmap(0, PAGE, RWX, anonymous, -1)?;
    say("moved", &call(libc::SYS_mremap, &[moved, PAGE, PAGE, int(MOVE_TO), base]));
    let id = call(libc::SYS_shmget, &[int(libc::IPC_PRIVATE), PAGE, 0o600])?;
    say("attached", &call(libc::SYS_shmat, &[id, base, 0]));
    call(libc::SYS_shmctl, &[id, int(libc::IPC_RMID), 0])?;
    // The neighbours are the guest's.
    say("below", &mmap(base - 2 * PAGE, PAGE, RWX, FIXED, -1));
    say("above", &mmap(base + (1 << 32), PAGE, RWX, FIXED, -1));
    let mut out = [0_u64; 2];
    say("request", &raw::query_context(&mut out).send(file.as_raw_fd()));
    println!("regions: {}", regions().len());
    Ok(())
}

/// Where the window begins on processors with 47 bits of user address and more.
pub(super) fn window_base() -> u64 {
    verbgate_sys::window::AddrWindow::usual().base()
}
