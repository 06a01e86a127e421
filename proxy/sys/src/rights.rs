//! Messages with descriptors over Unix sockets (`SCM_RIGHTS`, unix(7)): the one way to send and to
//! receive them.

use std::io::IoSlice;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::io::Result;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;
use rustix::net::UCred;

/// The most descriptors that a message has here.
pub const MAX_FDS: usize = 8;

/// What came.
#[derive(Debug)]
pub struct Received {
    /// How many bytes; 0 when the other end is closed.
    pub bytes: usize,
    /// The descriptors, close-on-exec. Some are missing when this process's table is full.
    pub fds: Vec<OwnedFd>,
    /// Who sent it, if the socket asks for that (`SO_PASSCRED`).
    pub sender: Option<UCred>,
}

/// Sends one message. A peer that is gone is an error and no signal.
///
/// # Errors
/// sendmsg(2)'s; `EINVAL` for more than [`MAX_FDS`] descriptors.
pub fn send(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    // The space has room for more, by which it is aligned.
    if fds.len() > MAX_FDS {
        return Err(Errno::INVAL);
    }
    if !fds.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    rustix::net::sendmsg(socket, parts, &mut rights, flags | SendFlags::NOSIGNAL).map(drop)
}

/// Receives one message, or a stream's next part, whatever signals come.
///
/// # Errors
/// recvmsg(2)'s.
pub fn receive(socket: impl AsFd, body: &mut [u8], flags: RecvFlags) -> Result<Received> {
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(body)];
        rustix::net::recvmsg(socket.as_fd(), &mut parts, &mut ancillary, flags)
    })?;
    let mut received = Received { bytes: got.bytes, fds: Vec::new(), sender: None };
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(fds) => received.fds.extend(fds),
            RecvAncillaryMessage::ScmCredentials(sender) => received.sender = Some(sender),
            _ => {}
        }
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn descriptors_come_with_their_message_and_too_many_are_refused() {
        let (a, b) = UnixDatagram::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let fds = [null.as_fd(); MAX_FDS + 1];
        let parts = [IoSlice::new(b"he"), IoSlice::new(b"re")];
        send(&a, &parts, &fds[..MAX_FDS], SendFlags::empty()).unwrap();
        send(&a, &parts, &[], SendFlags::empty()).unwrap();
        assert_eq!(send(&a, &parts, &fds, SendFlags::empty()), Err(Errno::INVAL));
        let mut body = [0; 8];
        for count in [MAX_FDS, 0] {
            let got = receive(&b, &mut body, RecvFlags::empty()).unwrap();
            assert_eq!((got.bytes, got.fds.len(), got.sender), (4, count, None));
            assert_eq!(&body[..4], b"here");
            assert!(got.fds.iter().all(|fd| {
                rustix::io::fcntl_getfd(fd)
                    .is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC))
            }));
        }
        assert_eq!(receive(&b, &mut body, RecvFlags::DONTWAIT).unwrap_err(), Errno::AGAIN);
    }
}
