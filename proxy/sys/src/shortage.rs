//! Verbgate's own shortage: descriptors, memory, threads, room. None of it is a guest's fault, and none of it is an answer
//! about a device: the guest's call fails with the errno, and can be made again.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;

use crate::process;

/// Errnos by which the kernel tells of a shortage.
const ERRNOS: [i32; 5] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN, libc::ENOSPC];

/// Descriptors that are left for what is over soon: a planting, an answer, a look at a guest, a line of the log.
const RESERVE: u64 = 64;

/// Whether an error is one of shortage.
#[must_use]
pub fn is(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|errno| ERRNOS.contains(&errno))
}

/// The errno of a failed look at a guest: that of a shortage, or else this one.
#[must_use]
pub fn errno_or(error: &io::Error, other: i32) -> i32 {
    error.raw_os_error().filter(|errno| ERRNOS.contains(errno)).unwrap_or(other)
}

/// Gives back a thing that is kept for a guest, if the thing's descriptor leaves the reserve alone: the kernel gives the
/// lowest free number.
///
/// # Errors
/// `EMFILE`.
pub fn spared<T: AsFd>(kept: T) -> io::Result<T> {
    let number = u64::try_from(kept.as_fd().as_raw_fd()).unwrap_or(u64::MAX);
    let limit = process::descriptor_limit();
    let is_scarce = number >= limit - RESERVE.min(limit / 8);
    if is_scarce { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Ok(kept) }
}

/// Starts a thread, which nobody waits for. std's own ends the process where there is no memory for the stack by which the
/// new thread would tell of an overflow; this one has none.
///
/// # Errors
/// `EAGAIN`: neither memory nor a number for it is left.
pub fn spawn(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    type Work = Box<dyn FnOnce() + Send>;
    extern "C" fn begin(work: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: `spawn` has made this pointer, and leaves it to this thread.
        let (name, work) = *unsafe { Box::from_raw(work.cast::<(&CStr, Work)>()) };
        // SAFETY: the name is a string with its end, which the kernel copies.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        // The panic's hook has told of it.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(work));
        std::ptr::null_mut()
    }
    let work: Work = Box::new(work);
    let given = Box::into_raw(Box::new((name, work)));
    let mut thread: libc::pthread_t = 0;
    // SAFETY: no attributes are those by default; `given` belongs to the new thread if there is one.
    let failed =
        unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), begin, given.cast()) };
    if failed == 0 {
        // SAFETY: the thread has been made, and nobody joins it.
        unsafe { libc::pthread_detach(thread) };
        return Ok(());
    }
    // SAFETY: no thread has been made that would take it.
    drop(unsafe { Box::from_raw(given) });
    Err(io::Error::from_raw_os_error(failed))
}
