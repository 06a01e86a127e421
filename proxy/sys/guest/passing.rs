//! A device that one process opens and another uses: sent over a socket, or handed to a program.

use std::error::Error;
use std::fs;
use std::fs::File;
use std::io;
use std::io::IoSlice;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use verbgate_sys::rights;

use crate::kernel::fork;
use crate::kernel::outcome;
use crate::kernel::say;
use crate::kernel::threads;
use crate::life::request;
use crate::raw;

fn send(socket: &UnixStream, file: &File) -> io::Result<()> {
    Ok(rights::send(socket, &[IoSlice::new(b".")], &[file.as_fd()], SendFlags::empty())?)
}

fn receive(socket: &UnixStream) -> io::Result<File> {
    let passed = rights::receive(socket, &mut [0], RecvFlags::empty())?.fds.into_iter().next();
    passed.map(File::from).ok_or_else(|| io::Error::other("no descriptor came"))
}

/// To a child that was there before the device was open; it goes on when the sender has closed it.
pub(crate) fn sends(device: &str) -> Result<(), Box<dyn Error>> {
    let (mut here, mut there) = UnixStream::pair()?;
    let child = fork(|| {
        let mut use_it = || -> io::Result<()> {
            let file = receive(&there)?;
            let fd = file.as_raw_fd();
            println!("receiver: {} with {} stubs", outcome(&request(fd)), threads().len() - 1);
            there.write_all(b".")?;
            there.read_exact(&mut [0])?;
            say("receiver alone", &request(fd));
            Ok(())
        };
        i32::from(use_it().is_err())
    })?;
    let file = raw::open(device)?;
    say("sender", &request(file.as_raw_fd()));
    send(&here, &file)?;
    here.read_exact(&mut [0])?;
    say("sender again", &request(file.as_raw_fd()));
    drop(file);
    here.write_all(b".")?;
    println!("{:?}", child.wait()?);
    Ok(())
}

/// To whoever listens at a path, outside of the sandbox; and what would lead to the file itself.
pub(crate) fn gives_away(device: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    say("guest", &request(file.as_raw_fd()));
    say("write", &(&file).write(b".").map(drop));
    say("shared", &map(&file));
    for thread in threads() {
        // SAFETY: both arguments are plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, thread, libc::O_EXCL) };
        say("thread", &if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
        // A stub's descriptor 0 is the device.
        let first = format!("/proc/self/task/{thread}/fd/0");
        if fs::metadata(&first)?.rdev() == file.metadata()?.rdev() {
            say("through /proc", &File::options().read(true).write(true).open(first).map(drop));
        }
    }
    let mut socket = UnixStream::connect(path)?;
    send(&socket, &file)?;
    socket.read_exact(&mut [0])?;
    say("guest again", &request(file.as_raw_fd()));
    Ok(())
}

/// Takes what is sent to a path, and tries what it is good for.
pub(crate) fn takes(path: &str) -> Result<(), Box<dyn Error>> {
    let listener = UnixListener::bind(path)?;
    println!("listens");
    let (mut socket, _) = listener.accept()?;
    let file = receive(&socket)?;
    say("ioctl", &request(file.as_raw_fd()));
    say("read", &(&file).read(&mut [0]).map(drop));
    say("write", &(&file).write(b".").map(drop));
    say("shared", &map(&file));
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    say("reopen", &File::options().read(true).write(true).open(again).map(drop));
    socket.write_all(b".")?;
    Ok(())
}

fn map(file: &File) -> io::Result<()> {
    let (prot, len) = (libc::PROT_READ | libc::PROT_WRITE, 4096);
    let (null, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: a fresh mapping at an address of the kernel's choice, which nothing refers to.
    let at = unsafe { libc::mmap(null, len, prot, libc::MAP_SHARED, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the first word of the mapping that was made just now.
    unsafe { at.cast::<u64>().write_volatile(7) };
    // SAFETY: that mapping, which nothing refers to any more.
    unsafe { libc::munmap(at, len) };
    Ok(())
}

/// To programs, which the standard library starts by posix_spawn(3): one opens the device anew, the
/// other has it as its standard input.
pub(crate) fn spawns(device: &str) -> Result<(), Box<dyn Error>> {
    let file = raw::open(device)?;
    say("parent", &request(file.as_raw_fd()));
    let program = || Command::new("/proc/self/exe");
    println!("{:?}", program().args(["once", device]).status()?.code());
    println!("{:?}", program().arg("inherited").stdin(file.try_clone()?).status()?.code());
    say("parent again", &request(file.as_raw_fd()));
    Ok(())
}

/// One request to the device that is the standard input.
pub(crate) fn inherited() -> Result<(), Box<dyn Error>> {
    println!("inherited: {} with {} stubs", outcome(&request(0)), threads().len() - 1);
    Ok(())
}
