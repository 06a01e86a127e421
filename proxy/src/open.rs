//! Opens: the guest's `open(2)` of a granted device is made by the supervisor.
//!
//! The path is read from guest memory, which may change at any time; so nothing but service
//! depends on it. A path that names a granted device is served; anything else goes on natively,
//! and the raw nodes are out of reach there.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use verbgate_sys::GuestFd;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::caller::Caller;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::window::FdWindow;

/// The longest path that can name a device: `/dev/infiniband/` and a name, or `/dev/char/M:m`.
const LONGEST: usize = 64;

/// What a trapped open asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Where the path is.
    pub path: u64,
    /// Open flags.
    pub flags: i32,
}

/// The arguments of a trapped `open`, `openat` or `openat2`.
///
/// `None` for another call, and for an `openat2` whose `struct open_how` cannot be read or asks
/// for no writing: the kernel answers it.
#[must_use]
pub fn wanted(trap: &Notification, memory: &impl GuestMemory) -> Option<Wanted> {
    let n = &Native::NUMBERS;
    let [a, b, c, ..] = trap.args;
    let flags = |word: u64| i32::try_from(word & 0x7fff_ffff).unwrap_or(0);
    if Some(trap.nr) == n.open {
        return Some(Wanted { path: a, flags: flags(b) });
    }
    if trap.nr == n.openat {
        return Some(Wanted { path: b, flags: flags(c) });
    }
    if trap.nr == n.openat2 {
        // struct open_how begins with u64 flags.
        let mut word = [0; 8];
        mem::gather(memory, &[Range { addr: c, len: 8 }], &mut word).ok()?;
        let flags = flags(u64::from_ne_bytes(word));
        return (flags & libc::O_ACCMODE == libc::O_RDWR).then_some(Wanted { path: b, flags });
    }
    None
}

/// The path at an address, if it is short enough to name a device.
#[must_use]
pub fn path(memory: &impl GuestMemory, addr: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; LONGEST];
    let ranges = mem::pages(Range { addr, len: LONGEST });
    let n = memory.read_at_hand(&ranges, &mut bytes).ok()?;
    let end_in = |bytes: &[u8], n| bytes.iter().take(n).position(|byte| *byte == 0);
    let end = match end_in(&bytes, n) {
        Some(end) => end,
        None if n == LONGEST => return None,
        // It goes on where memory has to be fetched.
        None => {
            let n = memory.read(&ranges, &mut bytes).ok()?;
            end_in(&bytes, n)?
        }
    };
    bytes.truncate(end);
    Some(bytes)
}

/// The same as a path.
#[must_use]
pub fn as_path(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// The first free number of the window from `at` on, looking at a caller's table as it is.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn free_number(caller: Caller<'_>, window: FdWindow, at: u32) -> io::Result<Option<u32>> {
    for number in at.max(window.first)..window.end() {
        if !caller.has_open(GuestFd(number.cast_signed()))? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_path_ends_at_its_nul_or_is_none() {
        let memory =
            |bytes: &[u8]| mem::FakeMemory { base: 64, bytes: RefCell::new(bytes.to_vec()) };
        let mut named = b"/dev/x\0".to_vec();
        named.resize(LONGEST, b'?');
        assert_eq!(path(&memory(&named), 64).unwrap(), b"/dev/x");
        assert_eq!(path(&memory(&[b'a'; 200]), 64), None);
        assert_eq!(path(&memory(&[]), 64), None);
    }
}
