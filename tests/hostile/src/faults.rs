//! userfaultfd(2): memory whose page faults wait, and for ever, because nobody ends them.

use std::io;

use crate::board::Board;
use crate::board::Word;
use crate::raw::PAGE;
use crate::raw::addr_mut;
use crate::raw::call;
use crate::raw::int;
use crate::raw::memory;

const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const USERFAULTFD_IOC_NEW: u64 = 0xaa00;
const UFFD_USER_MODE_ONLY: i32 = 1;
const MISSING: u64 = 1;

/// One whose faults in the kernel wait, too: anybody may who is given `/dev/userfaultfd`.
pub(crate) fn of_the_kernel(board: &Board) -> io::Result<u64> {
    let device = board.get(Word::Faults);
    if device == 0 {
        return Err(io::Error::other("SKIPPED: needs /dev/userfaultfd"));
    }
    call(libc::SYS_ioctl, &[device, USERFAULTFD_IOC_NEW, int(libc::O_CLOEXEC)])
}

/// One whose faults wait only where a program itself makes them.
pub(crate) fn of_programs() -> io::Result<u64> {
    call(libc::SYS_userfaultfd, &[int(libc::O_CLOEXEC | UFFD_USER_MODE_ONLY)])
        .map_err(|e| io::Error::other(format!("SKIPPED: needs userfaultfd(2): {e}")))
}

/// Has the faults of a range wait.
pub(crate) fn take(uffd: u64, start: u64, len: u64) -> io::Result<()> {
    let mut api = [0xaa_u64, 0, 0];
    // The second time it fails, and nothing is lost.
    let _ = call(libc::SYS_ioctl, &[uffd, UFFDIO_API, addr_mut(&mut api)]);
    let mut range = [start, len, MISSING, 0];
    call(libc::SYS_ioctl, &[uffd, UFFDIO_REGISTER, addr_mut(&mut range)]).map(drop)
}

/// Waits for a fault; gives its page.
pub(crate) fn next(uffd: u64) -> io::Result<u64> {
    // `struct uffd_msg`, whose third word is the address of a fault.
    let mut message = [0_u64; 4];
    call(libc::SYS_read, &[uffd, addr_mut(&mut message), 32])?;
    Ok(message[2] & !(PAGE - 1))
}

/// Lets the faults of a range go on, with zeros.
pub(crate) fn fill(uffd: u64, start: u64, len: u64) -> io::Result<()> {
    const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
    let mut range = [start, len, 0, 0];
    call(libc::SYS_ioctl, &[uffd, UFFDIO_ZEROPAGE, addr_mut(&mut range)]).map(drop)
}

/// Pages before which a page is there, so that something may begin well and end badly.
pub(crate) fn page_after_a_good_one(uffd: u64) -> io::Result<u64> {
    let at = memory(None, 2 * PAGE)?;
    crate::raw::poke(at, 0);
    take(uffd, at + PAGE, PAGE)?;
    Ok(at + PAGE)
}
