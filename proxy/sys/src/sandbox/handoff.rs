//! The messages between supervisor and child, from fork to exec.
//!
//! One sequenced-packet socket, close-on-exec at both ends: its end of file tells the supervisor
//! that the program runs, and tells the child that the supervisor gave up.

use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;

use crate::rights;

/// What serving takes.
#[derive(Debug)]
pub struct Served {
    /// `/dev/fuse`, mounted.
    pub fuse: OwnedFd,
    /// The sysfs that the guest would have seen: of its network namespace.
    pub root: OwnedFd,
}

/// Longest error text that is carried over; a line for a terminal is shorter.
const MAX_TEXT: usize = 2048;

const LISTENER: u8 = b'L';
const FAILED: u8 = b'F';
const NOT_EXECUTED: u8 = b'X';
const GO: u8 = b'G';
const SYSFS: u8 = b'S';
const WITHOUT_SYSFS: u8 = b'W';

/// A message of the child.
#[derive(Debug)]
pub(super) enum FromChild {
    /// `/sys` is covered, and waits to be served.
    Sysfs(Served),
    /// `/sys` is the host's; the text says why.
    WithoutSysfs(String),
    /// Everything is prepared.
    Listener(OwnedFd),
    /// A step failed; the text says what to do.
    Failed(String),
    /// execve(2) failed.
    NotExecuted(io::Error),
    /// The child executed its program, or died.
    Closed,
}

pub(super) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn send(
    socket: BorrowedFd<'_>,
    kind: u8,
    body: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(body)];
    rights::send(socket, &parts, fds, SendFlags::empty())
}

pub(super) fn offer(socket: BorrowedFd<'_>, listener: &OwnedFd) -> rustix::io::Result<()> {
    send(socket, LISTENER, &[], &[listener.as_fd()])
}

pub(super) fn offer_sysfs(socket: BorrowedFd<'_>, served: &Served) -> rustix::io::Result<()> {
    send(socket, SYSFS, &[], &[served.fuse.as_fd(), served.root.as_fd()])
}

pub(super) fn without_sysfs(socket: BorrowedFd<'_>, why: &str) {
    let text = why.as_bytes();
    // A supervisor that cannot be told has given up.
    let _ = send(socket, WITHOUT_SYSFS, text.get(..MAX_TEXT).unwrap_or(text), &[]);
}

pub(super) fn failed(socket: BorrowedFd<'_>, text: &str) {
    let text = text.as_bytes();
    // Nobody is left to be told if this fails, too.
    let _ = send(socket, FAILED, text.get(..MAX_TEXT).unwrap_or(text), &[]);
}

pub(super) fn not_executed(socket: BorrowedFd<'_>, errno: i32) {
    let _ = send(socket, NOT_EXECUTED, &errno.to_le_bytes(), &[]);
}

pub(super) fn go(socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
    send(socket, GO, &[], &[])
}

/// Waits for the supervisor's word; false when it gave up.
pub(super) fn wait_for_go(socket: BorrowedFd<'_>) -> bool {
    let mut byte = [0u8; 1];
    let received =
        rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut byte, RecvFlags::empty()));
    matches!(received, Ok((1, _))) && byte == [GO]
}

pub(super) fn receive(socket: BorrowedFd<'_>) -> rustix::io::Result<FromChild> {
    let mut bytes = [0u8; 1 + MAX_TEXT];
    let got = match rights::receive(socket, &mut bytes, RecvFlags::empty()) {
        // A dead peer with unread data of ours: as good as closed.
        Err(rustix::io::Errno::CONNRESET) => return Ok(FromChild::Closed),
        other => other?,
    };
    let Some((kind, body)) = bytes.get(..got.bytes).and_then(<[u8]>::split_first) else {
        return Ok(FromChild::Closed);
    };
    let mut fds = got.fds.into_iter();
    // Without its descriptors: the supervisor's table is full (MSG_CTRUNC).
    let mut fd = || fds.next().ok_or(rustix::io::Errno::MFILE);
    match *kind {
        LISTENER => fd().map(FromChild::Listener),
        SYSFS => Ok(FromChild::Sysfs(Served { fuse: fd()?, root: fd()? })),
        WITHOUT_SYSFS => Ok(FromChild::WithoutSysfs(String::from_utf8_lossy(body).into_owned())),
        NOT_EXECUTED => {
            let errno = body.first_chunk().map_or(libc::EIO, |b| i32::from_le_bytes(*b));
            Ok(FromChild::NotExecuted(io::Error::from_raw_os_error(errno)))
        }
        _ => Ok(FromChild::Failed(String::from_utf8_lossy(body).into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_errnos_and_descriptors_arrive() {
        let (a, b) = pair().unwrap();
        failed(a.as_fd(), "cannot mount");
        assert!(matches!(receive(b.as_fd()), Ok(FromChild::Failed(t)) if t == "cannot mount"));
        not_executed(a.as_fd(), libc::ENOEXEC);
        assert!(matches!(receive(b.as_fd()),
            Ok(FromChild::NotExecuted(e)) if e.raw_os_error() == Some(libc::ENOEXEC)));
        let (c, _d) = pair().unwrap();
        offer(a.as_fd(), &c).unwrap();
        assert!(matches!(receive(b.as_fd()), Ok(FromChild::Listener(_))));
        go(b.as_fd()).unwrap();
        assert!(wait_for_go(a.as_fd()));
        drop(b);
        assert!(!wait_for_go(a.as_fd()));
    }

    #[test]
    fn a_closed_peer_is_no_error() {
        let (a, b) = pair().unwrap();
        drop(a);
        assert!(matches!(receive(b.as_fd()), Ok(FromChild::Closed)));
    }
}
