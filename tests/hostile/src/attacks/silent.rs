//! Attacks by files and memory of a file server that does not answer.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::board::Word;
use crate::fuse;
use crate::guest::Guest;
use crate::guest::go_on;
use crate::guest::minion;
use crate::raw;
use crate::raw::PAGE;
use crate::raw::call;
use crate::raw::dup2;
use crate::raw::int;
use crate::raw::memory;
use crate::raw::mmap;
use crate::raw::sleep;
use crate::request;

/// `stat(2)` of the file is not answered.
pub(super) fn getattr(guest: &Guest) -> io::Result<()> {
    requests_on(guest, fuse::GETATTR)
}

/// Closing the file is not answered.
pub(super) fn flush(guest: &Guest) -> io::Result<()> {
    requests_on(guest, fuse::FLUSH)
}

/// Requests on the file, by its own number and by one that devices have.
fn requests_on(guest: &Guest, operation: u32) -> io::Result<()> {
    let open = || -> io::Result<i32> {
        let file = OpenOptions::new().read(true).write(true).open(fuse::path(&guest.dir))?;
        Ok(file.into_raw_fd())
    };
    let at_device = guest.planted(guest.device())?;
    let (first, second) = (open()?, open()?);
    fuse::silence(&guest.board, operation);
    minion(|| {
        println!("a request on the file: {}", request::query(first));
        Ok(())
    })?;
    minion(|| {
        dup2(second, at_device)?;
        let bytes = memory(None, PAGE)?;
        let written = call(libc::SYS_write, &[int(at_device), bytes, 24]);
        println!("a write to the file in a device's place: {}", request::errno(&written));
        Ok(())
    })?;
    report(guest)
}

/// A request whose bytes are in a mapping of the file, which is not read.
pub(super) fn read(guest: &Guest) -> io::Result<()> {
    let page = unread(guest)?;
    minion(|| {
        let fd = guest.planted(guest.device())?;
        fuse::silence(&guest.board, fuse::READ);
        println!("a request in the mapping: {}", request::send(fd, page));
        Ok(())
    })?;
    report(guest)
}

/// A path in such a mapping, to open.
pub(super) fn path(guest: &Guest) -> io::Result<()> {
    by_path(guest, libc::SYS_openat, libc::O_RDWR)
}

/// A path in such a mapping, of which is asked whether it may be written.
pub(super) fn access(guest: &Guest) -> io::Result<()> {
    by_path(guest, libc::SYS_faccessat, libc::R_OK | libc::W_OK)
}

fn by_path(guest: &Guest, number: libc::c_long, how: i32) -> io::Result<()> {
    let page = unread(guest)?;
    minion(|| {
        fuse::silence(&guest.board, fuse::READ);
        let answer = call(number, &[int(libc::AT_FDCWD), page, int(how)]);
        println!("a path in the mapping: {}", request::errno(&answer));
        Ok(())
    })?;
    report(guest)
}

/// A first request beside an execve(2) of the file, whose first bytes do not come: the kernel holds
/// meanwhile what attaching to the process takes.
pub(super) fn exec(guest: &Guest) -> io::Result<()> {
    let path = fuse::path(&guest.dir);
    fuse::silence(&guest.board, fuse::READ);
    minion(|| {
        let fd = request::open(guest.device())?;
        std::thread::spawn(move || println!("execve: {}", Command::new(path).exec()));
        sleep(200);
        println!("a first request: {}", request::query(fd));
        go_on()
    })?;
    report(guest)
}

fn unread(guest: &Guest) -> io::Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(fuse::path(&guest.dir))?;
    mmap(0, PAGE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
}

/// How many operations were left without an answer: none, and the attack was none.
fn report(guest: &Guest) -> io::Result<()> {
    raw::within(Duration::from_millis(1500), || guest.board.get(Word::Unanswered) != 0);
    println!("operations without an answer: {}", guest.board.get(Word::Unanswered));
    guest.in_effect();
    go_on()
}
