//! Opens: the supervisor makes the guest's `open(2)` of a granted device.
//!
//! The path is read from guest memory, which may change at any time; so only service depends on the
//! path. The supervisor serves a path that names a granted device, or leads to the name of one. Any
//! other open goes on natively, and the raw nodes are out of reach there.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::caller::Caller;
use verbgate_sys::lookup::Named;
use verbgate_sys::lookup::Place;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::rules::OPENS;
use verbgate_sys::window::FdWindow;

use crate::device::Devices;
use crate::execute;
use crate::fetch;
use crate::fetch::errno;

/// The longest path that the kernel takes, its end included.
const LONGEST: usize = libc::PATH_MAX as usize;

/// What a trapped open asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The directory that a relative path begins at.
    pub dir: GuestFd,
    /// Where the path is.
    pub path: u64,
    /// Open flags.
    pub flags: i32,
    /// How the path may lead there is limited (`RESOLVE_...`).
    pub limited: bool,
}

/// Which device an open means, by whatever path.
///
/// Without asking a file system where the path itself tells; links are looked up where it takes
/// little time, because the path is in `/dev`, or where it is likely, because its last component is
/// a device's name. So opens of ordinary files wait for nothing.
///
/// # Errors
/// Errors of a [shortage](verbgate_sys::shortage).
pub fn device(
    caller: Caller<'_>,
    devices: &Devices,
    wanted: Wanted,
) -> Result<Option<usize>, Errno> {
    let path = match path(&caller, wanted.path) {
        Ok(path) => path,
        // The kernel finds so, too.
        Err(Errno::EFAULT) => return Ok(None),
        Err(short) => return Err(short),
    };
    let by = |path: &[u8]| devices.by_path(OsStr::from_bytes(path));
    if let Some(device) = by(&path) {
        return Ok(Some(device));
    }
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let is_device = devices.iter().any(|device| device.name.as_bytes() == last);
    // How the path may lead there is limited, or a file is to be made.
    if wanted.limited || wanted.flags & libc::O_CREAT != 0 {
        return Ok(None);
    }
    let relative = !path.starts_with(b"/");
    let named =
        Named { dir: wanted.dir, path: &path, follow: wanted.flags & libc::O_NOFOLLOW == 0 };
    let plain = if relative || is_device { caller.means_by(&named) } else { None };
    let any = |place: &Place| place.names().iter().find_map(|name| by(name));
    if let Some(device) = plain.as_ref().and_then(any) {
        return Ok(Some(device));
    }
    let in_dev = |place: &Place| place.names().iter().any(|name| name.starts_with(b"/dev/"));
    let likely = is_device || path.starts_with(b"/dev/") || plain.as_ref().is_some_and(in_dev);
    let led = if likely { caller.leads_to(&named) } else { Ok(None) };
    Ok(led.map_err(errno)?.as_ref().and_then(any))
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
    let cwd = GuestFd(libc::AT_FDCWD);
    if Some(trap.nr) == n.open {
        return Some(Wanted { dir: cwd, path: a, flags: flags(b), limited: false });
    }
    let dir = execute::guest_fd(a);
    if trap.nr == n.openat {
        return Some(Wanted { dir, path: b, flags: flags(c), limited: false });
    }
    if trap.nr == n.openat2 {
        // struct open_how: flags, mode, resolve.
        let mut how = [0; 24];
        mem::gather(memory, &[Range { addr: c, len: 24 }], &mut how).ok()?;
        let word = |at: usize| how.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
        let (flags, limited) = (flags(word(0)?), word(16)? != 0);
        // As the filter judges the other two.
        let means = |(mask, value)| flags.cast_unsigned() & mask == value;
        return OPENS.into_iter().any(means).then_some(Wanted { dir, path: b, flags, limited });
    }
    None
}

/// The open that a trapped `access`, `faccessat` or `faccessat2` asks about.
///
/// `None` for another call, and where it is asked whether the file may be executed, which no device may.
#[must_use]
pub fn asked_about(trap: &Notification) -> Option<Wanted> {
    let n = &Native::NUMBERS;
    let [a, b, c, d, ..] = trap.args;
    let cwd = GuestFd(libc::AT_FDCWD);
    let (dir, path, mode, flags) = match trap.nr {
        nr if Some(nr) == n.access => (cwd, a, b, 0),
        nr if nr == n.faccessat => (execute::guest_fd(a), b, c, 0),
        nr if nr == n.faccessat2 => (execute::guest_fd(a), b, c, d),
        _ => return None,
    };
    let has = |word: u64, bit: i32| word & u64::from(bit.unsigned_abs()) != 0;
    let follow = if has(flags, libc::AT_SYMLINK_NOFOLLOW) { libc::O_NOFOLLOW } else { 0 };
    let wanted = Wanted { dir, path, flags: libc::O_RDWR | follow, limited: false };
    (!has(mode, libc::X_OK)).then_some(wanted)
}

/// The path at an address.
///
/// # Errors
/// `EFAULT`: there is none; those of a [shortage](verbgate_sys::shortage).
pub fn path(memory: &impl GuestMemory, addr: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; LONGEST];
    let ranges = mem::pages(Range { addr, len: LONGEST });
    let n = memory.read_at_hand(&ranges, &mut bytes).map_err(fetch::fault)?;
    let end_in = |bytes: &[u8], n| bytes.iter().take(n).position(|byte| *byte == 0);
    let end = match end_in(&bytes, n) {
        Some(end) => end,
        None if n == LONGEST => return Err(Errno::EFAULT),
        // It goes on where memory has to be fetched.
        None => {
            let n = memory.read(&ranges, &mut bytes).map_err(fetch::fault)?;
            end_in(&bytes, n).ok_or(Errno::EFAULT)?
        }
    };
    bytes.truncate(end);
    Ok(bytes)
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
        assert_eq!(path(&memory(&[b'a'; LONGEST]), 64), Err(Errno::EFAULT));
        assert_eq!(path(&memory(&[]), 64), Err(Errno::EFAULT));
    }
}
