//! A pseudo-terminal as a stand-in device: its slave is a character device, and its master tells
//! when the last descriptor of the slave is closed.

use std::error::Error;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;

/// Serves one terminal: prints the slave's path, then obeys lines: `closed` answers when the last
/// slave has been closed, `open` says whether one is open.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    // SAFETY: a plain number.
    let fd = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) };
    if fd < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the descriptor has just been made.
    let master = unsafe { File::from_raw_fd(fd) };
    // SAFETY: a terminal's master, open through the call.
    if unsafe { libc::unlockpt(fd) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    let mut name = [0; 64];
    // SAFETY: `name` is writable for the length given.
    if unsafe { libc::ptsname_r(fd, name.as_mut_ptr(), name.len()) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: ptsname_r ended the name with a NUL.
    let path = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str()?.to_owned();
    println!("{path}");
    for line in io::stdin().lines() {
        match line?.as_str() {
            "closed" => {
                while !is_closed(&master, 1000)? {}
                println!("closed");
            }
            "open" => println!("{}", !is_closed(&master, 0)?),
            other => println!("what is {other}?"),
        }
    }
    Ok(())
}

/// Whether the last slave has been closed.
fn is_closed(master: &File, millis: i32) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: master.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one `struct pollfd`, which lives through the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(poll.revents & libc::POLLHUP != 0) }
}
