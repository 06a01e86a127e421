//! Attacks on the supervisor's books of a guest.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::board::Board;
use crate::guest::Guest;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::become_user;
use crate::raw::call;
use crate::raw::close;
use crate::raw::dup2;
use crate::raw::int;
use crate::raw::memory;
use crate::raw::name;
use crate::raw::peek;
use crate::raw::poke;
use crate::request;
use crate::request::command;

const ALLOC_PD: u32 = 3;
const DEALLOC_PD: u32 = 4;

/// A thread rewrites the handle that a request returns, for as long as requests are made: the
/// books must not hold what the guest made up.
pub(super) fn handles(guest: &Guest) -> io::Result<()> {
    static OVER: AtomicBool = AtomicBool::new(false);
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let fd = guest.planted(guest.device())?;
    let response = memory(None, PAGE)?;
    let first = command(fd, ALLOC_PD, &[response], 4);
    println!("a first object: {}", name(request::errno(&first)));
    if first.is_err() {
        return Err(io::Error::other("SKIPPED: needs a device that makes objects"));
    }
    // A device gives the lowest handle that is free.
    let handle = peek(response) & 0xffff_ffff;
    let free = |handle: u64| command(fd, DEALLOC_PD, &[handle], 0);
    let freed = free(handle);
    thread::spawn(move || {
        while !OVER.load(Ordering::SeqCst) {
            poke(response, NEXT.fetch_add(1, Ordering::SeqCst) & 0xffff_ffff);
            thread::yield_now();
        }
    });
    let begun = Instant::now();
    let mut made = 0_u64;
    while begun.elapsed() < Duration::from_secs(5) {
        made += u64::from(command(fd, ALLOC_PD, &[response], 4).is_ok());
        if freed.is_ok() {
            let _ = free(handle);
        }
    }
    OVER.store(true, Ordering::SeqCst);
    println!("{made} objects whose handles were made up");
    if made == 0 {
        println!("BROKEN: nothing was made, so nothing was tried");
    }
    Ok(())
}

/// Whether a descriptor works: with a request by ioctl(2), and one by write(2).
fn works(guest: &Guest, fd: i32) -> (i32, i32) {
    let asked = request::query(fd);
    // A command that no policy grants: a device of ours would have taken it.
    let written = request::errno(&command(fd, 53, &[0, 0], 0));
    let expected = guest.answer_of(guest.device());
    (if asked == expected { 0 } else { asked.max(1) }, written)
}

/// More descriptors at once than anybody reckons with: each works, or is refused with EMFILE.
pub(super) fn descriptors(guest: &Guest) -> io::Result<()> {
    let first = guest.planted(guest.device())?;
    let expected = works(guest, first);
    println!("the first descriptor: {expected:?}");
    at_once(guest, "the usual limit", expected, 200);
    let many = libc::rlimit { rlim_cur: 2048, rlim_max: 2048 };
    // SAFETY: one struct, which lives through the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const many) } == 0 {
        at_once(guest, "a limit of 2048", expected, 1100);
    }
    Ok(())
}

fn at_once(guest: &Guest, under: &str, expected: (i32, i32), count: usize) {
    let mut opened = Vec::new();
    let mut refused = BTreeMap::new();
    let begun = Instant::now();
    for _ in 0..count {
        match request::open(guest.device()) {
            Ok(fd) if opened.contains(&fd) => {
                println!("BROKEN: under {under}, {fd} is given again while it is open");
                break;
            }
            Ok(fd) => opened.push(fd),
            Err(e) => *refused.entry(name(e.raw_os_error().unwrap_or(0))).or_insert(0) += 1,
        }
    }
    let mut dead = BTreeMap::new();
    for fd in &opened {
        let found = works(guest, *fd);
        if found != expected {
            *dead.entry(format!("{found:?}")).or_insert(0) += 1;
        }
    }
    println!(
        "under {under}: {} opened at once, refused {refused:?}, in {:.1?}",
        opened.len(),
        begun.elapsed()
    );
    if !dead.is_empty() {
        println!("BROKEN: under {under}, descriptors that answer otherwise: {dead:?}");
    }
    if refused.keys().any(|errno| errno != "EMFILE") {
        println!("BROKEN: under {under}, opens are refused with {refused:?}");
    }
    if opened.len() < 66 && refused.is_empty() {
        println!("BROKEN: under {under}, only {} were opened", opened.len());
    }
    opened.into_iter().for_each(close);
}

/// A thousand connections, one after the other, in one process; some outlive later ones.
pub(super) fn opens(guest: &Guest) -> io::Result<()> {
    let mut kept = Vec::new();
    let begun = Instant::now();
    for round in 0..1000 {
        let fd = request::open(guest.device())?;
        if kept.contains(&fd) {
            println!("BROKEN: open {round}: {fd} is given again while it is open");
            break;
        }
        let answer = request::query(fd);
        if answer != guest.answer_of(guest.device()) {
            println!("BROKEN: open {round}, descriptor {fd}: {}", name(answer));
            break;
        }
        if round % 50 == 0 {
            kept.push(fd);
        } else {
            close(fd);
        }
    }
    println!("1000 opens in {:.1?}", begun.elapsed());
    for fd in kept {
        let answer = request::query(fd);
        if answer != guest.answer_of(guest.device()) {
            println!("BROKEN: descriptor {fd}, opened long ago: {}", name(answer));
        }
    }
    Ok(())
}

/// `dup2` where the processor has that call.
fn dup_beside(from: u64, to: u64) -> io::Result<u64> {
    #[cfg(target_arch = "x86_64")]
    return call(libc::SYS_dup2, &[from, to]);
    #[cfg(not(target_arch = "x86_64"))]
    call(libc::SYS_dup3, &[from, to, 0])
}

/// Duplicates are the same file: what is refused by one is refused by all.
pub(super) fn duplicates(guest: &Guest) -> io::Result<()> {
    let fd = guest.planted(guest.device())?;
    let expected = works(guest, fd);
    println!("the descriptor: {expected:?}");
    let at = int(fd);
    let ways = [
        ("dup", call(libc::SYS_dup, &[at])),
        ("F_DUPFD", call(libc::SYS_fcntl, &[at, int(libc::F_DUPFD), 3])),
        ("F_DUPFD_CLOEXEC", call(libc::SYS_fcntl, &[at, int(libc::F_DUPFD_CLOEXEC), 0])),
        ("dup2 beside it", dup_beside(at, int(fd + 100))),
    ];
    for (way, made) in ways {
        let duplicate = made? as i32;
        let found = works(guest, duplicate);
        if found != expected {
            println!("BROKEN: its duplicate {duplicate} by {way}: {found:?}");
        }
        close(duplicate);
    }
    // Where the caller alone says the number, writes are not seen, and a device of ours refuses them
    // by its opener's credentials; requests are the same.
    for number in [50, 3, 400] {
        let Ok(duplicate) = dup2(fd, number) else { continue };
        let answer = request::query(duplicate);
        if answer != guest.answer_of(guest.device()) {
            println!("BROKEN: its duplicate at {number}: {}", name(answer));
        }
        close(duplicate);
    }
    Ok(())
}

/// Words of the board: an accomplice listens, and what it was answered.
const LISTENS: usize = 0;
const ANSWERED: usize = 1;

/// A descriptor is sent out of the sandbox to a user who may not open the device.
pub(super) fn accomplice(guest: &Guest) -> io::Result<()> {
    let fd = guest.planted(guest.device())?;
    raw::until(|| guest.board.mine(LISTENS) != 0);
    let socket = UnixStream::connect(format!("{}/open/socket", guest.dir))?;
    raw::send(&socket, fd)?;
    raw::until(|| guest.board.mine(ANSWERED) != 0);
    let answer = guest.board.mine(ANSWERED) as i32 - 1;
    let raw_device = answer == guest.answer_of(guest.device());
    println!(
        "outside, the descriptor answers {}: {}",
        name(answer),
        if raw_device { "it is the raw device there" } else { "it is worth nothing there" }
    );
    if !raw_device && answer != libc::EBADF {
        println!("BROKEN: outside, the descriptor is neither the device nor dead");
    }
    let after = request::query(fd);
    if after != guest.answer_of(guest.device()) {
        println!("BROKEN: afterwards, inside: {}", name(after));
    }
    Ok(())
}

/// The accomplice: outside of every sandbox, with no right to the device.
pub(super) fn receives(board: &Board, dir: &str) -> io::Result<()> {
    let path = format!("{dir}/open/socket");
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    become_user(65532)?;
    board.set_mine(LISTENS, 1);
    let (socket, _) = listener.accept()?;
    let answer = request::query(raw::receive(&socket)?);
    board.set_mine(ANSWERED, answer as u64 + 1);
    Ok(())
}

/// Out of descriptors of its own, a guest is told so, and nothing else.
pub(super) fn no_descriptors(guest: &Guest) -> io::Result<()> {
    let fd = guest.planted(guest.device())?;
    let other = guest.planted(guest.other())?;
    while call(libc::SYS_dup, &[0]).is_ok() {}
    for path in [guest.device(), guest.other()] {
        let opened = request::open(path);
        match opened.map_err(|e| e.raw_os_error().unwrap_or(0)) {
            Err(libc::EMFILE) => {}
            Err(errno) => println!("BROKEN: open without a free number: {}", name(errno)),
            // The supervisor's numbers are its own affair.
            Ok(fd) => println!("{path} opened at {fd}"),
        }
    }
    for (fd, path) in [(fd, guest.device()), (other, guest.other())] {
        let answer = request::query(fd);
        if answer != guest.answer_of(path) {
            println!("BROKEN: a request without free numbers: {}", name(answer));
        }
    }
    println!("all numbers were in use");
    Ok(())
}
