//! RDMA netlink, by which libraries find devices: behind the guest's socket is the supervisor.
//!
//! The guest gets one end of a socket pair at a watched number. The supervisor judges each message
//! of the guest ([`verbgate_abi::netlink`]), asks the kernel by a socket of its own in the guest's
//! network namespace, and answers with the part about granted devices. Answers lie in the guest's
//! own socket when the guest's sending returns, so the kernel does the waiting. The supervisor does
//! the receiving, because a netlink socket tells who sent a message and a socket pair does not.

pub(crate) mod kernel;
mod message;
pub(crate) mod socket;

use rustix::fs::OFlags;
use rustix::net::AddressFamily;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::process;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;

use crate::execute;
use crate::fetch::errno;
use crate::netlink::message::Address;
use crate::netlink::message::Answered;
use crate::netlink::message::Header;
use crate::netlink::message::gather;
use crate::netlink::message::put_address;
use crate::netlink::message::range;
use crate::netlink::message::receive;
use crate::netlink::message::room;
use crate::netlink::socket::Granted;
use crate::netlink::socket::Socket;
use crate::netlink::socket::forget_closed;
use crate::supervisor::Supervisor;
use crate::task::Delivery;
use crate::task::Then;

/// `SOL_NETLINK`.
const SOL_NETLINK: u64 = 270;
/// The longest datagram of questions that is read; a question has some fifty bytes.
const MAX_SENT: usize = 4096;
/// Sockets at once: each takes two of the supervisor's descriptors.
const MAX_SOCKETS: usize = 128;

impl Supervisor {
    /// `socket(AF_NETLINK, *, NETLINK_RDMA)`.
    pub(crate) fn netlink_socket(&self, trap: Notification) {
        if let Err(errno) = self.make_socket(&trap) {
            self.note("no netlink", || format!("thread {}: no netlink: {errno}", trap.tid));
            self.refuse(trap, errno);
        }
    }

    fn make_socket(&self, trap: &Notification) -> Result<(), Errno> {
        let caller = self.caller(trap);
        let guest = self.enter(caller)?;
        // Ports tell their network devices in the namespace of whoever asks.
        process::enter_network(&caller.network().map_err(errno)?).map_err(errno)?;
        let system = |e: rustix::io::Errno| Errno(e.raw_os_error());
        let kernel = kernel::socket().map_err(errno)?;
        let (gids, counted) = (self.gids.clone(), self.counted.clone());
        let granted = Granted::of(
            &self.narrowed.devices(&self.devices),
            self.found.as_deref(),
            gids,
            counted,
        );
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (theirs, peer) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).map_err(system)?;
        rustix::fs::fcntl_setfl(&peer, OFlags::NONBLOCK).map_err(system)?;
        let wants = |flag: i32| trap.args[1] & u64::from(flag.cast_unsigned()) != 0;
        if wants(libc::SOCK_NONBLOCK) {
            rustix::fs::fcntl_setfl(&theirs, OFlags::NONBLOCK).map_err(system)?;
        }
        let inode = rustix::fs::fstat(&theirs).map_err(system)?.st_ino;
        let mut sockets = self.netlinks.lock();
        forget_closed(&mut sockets);
        if sockets.len() >= MAX_SOCKETS {
            return Err(Errno::EMFILE);
        }
        // As the kernel's own choice: the process, or a number that no process has.
        let taken = |port: u32| sockets.values().any(|socket| socket.port == port);
        let first = guest.process.tgid().0.cast_unsigned();
        let port = if taken(first) {
            (0..=u32::MAX).rev().find(|port| !taken(*port)).unwrap_or(u32::MAX)
        } else {
            first
        };
        sockets.insert(inode, Socket { peer, kernel, port, granted });
        drop(sockets);
        let given = self.give(&guest, trap, &theirs, wants(libc::SOCK_CLOEXEC));
        if given.is_err() {
            self.netlinks.lock().remove(&inode);
        }
        given.map(drop)
    }

    /// A call on a descriptor that may be such a socket.
    pub(crate) fn netlink_call(&self, trap: Notification) {
        let fd = execute::guest_fd(trap.args[0]);
        let Some(inode) = self.socket_of(&trap, fd) else {
            // Some other socket with a number in the window.
            return self.answer(trap, Reply::Continue);
        };
        let n = Native::NUMBERS.sockets;
        let writes = [n.getsockname, n.recvfrom, n.recvmsg].contains(&trap.nr);
        // What its caller is told in its own memory, a stub of its writes.
        let guest = if writes {
            let Some(guest) = self.planted(&trap) else { return };
            Some(guest)
        } else {
            None
        };
        match (self.on_socket(&trap, fd, inode), guest) {
            (Ok(None), _) => self.answer(trap, Reply::Continue),
            (Ok(Some(Answered { value, pieces })), Some(guest)) => {
                let then = Then::Answer(Reply::Value(value), None);
                self.deliver(&guest, Delivery { trap, pieces, then });
            }
            (Ok(Some(Answered { value, .. })), None) => self.answer(trap, Reply::Value(value)),
            (Err(errno), _) => self.refuse(trap, errno),
        }
    }

    /// The socket that a descriptor is, if it is one of ours.
    fn socket_of(&self, trap: &Notification, fd: GuestFd) -> Option<u64> {
        if self.netlinks.lock().is_empty() {
            return None;
        }
        let inode = inode_of(&self.caller(trap).name_of(fd).ok()?)?;
        let mut sockets = self.netlinks.lock();
        forget_closed(&mut sockets);
        sockets.contains_key(&inode).then_some(inode)
    }

    /// The result of a call on one of our sockets; `None`: it is the kernel's.
    fn on_socket(
        &self,
        trap: &Notification,
        fd: GuestFd,
        inode: u64,
    ) -> Result<Option<Answered>, Errno> {
        let n = Native::NUMBERS.sockets;
        let memory = self.caller(trap);
        let [_, b, c, d, e, f] = trap.args;
        let nr = trap.nr;
        // The guest's memory is read before the socket is locked: that may take long.
        let locked = |work: &mut dyn FnMut(&mut Socket) -> Result<Answered, Errno>| {
            let mut sockets = self.netlinks.lock();
            sockets.get_mut(&inode).map(work).transpose()
        };
        if nr == n.bind {
            let address = Address::read(&memory, b, c)?;
            return locked(&mut |socket| socket.bind(&address).map(Answered::from));
        }
        if nr == n.getsockname {
            let room = room(&memory, c)?;
            return locked(&mut |socket| {
                Ok(Answered { value: 0, pieces: put_address(room, b, c, socket.port) })
            });
        }
        if nr == n.setsockopt {
            // Extended errors and the like: answers do without.
            return Ok((b == SOL_NETLINK).then_some(Answered::from(0)));
        }
        if nr == n.sendto || nr == n.sendmsg {
            let vectors =
                if nr == n.sendto { vec![range(b, c)] } else { Header::read(&memory, b)?.vectors };
            let bytes = gather(&memory, &vectors, MAX_SENT)?;
            return locked(&mut |socket| socket.send(&bytes).map(Answered::from));
        }
        let taken = memory.take(fd).map_err(|_| Errno::EBADF)?;
        // Replaced meanwhile: then it is none of ours to receive from.
        if taken.name().as_deref().and_then(inode_of) != Some(inode) {
            return Ok(None);
        }
        let file = taken.known().ok_or(Errno::EBADF)?;
        if nr == n.recvfrom {
            let room = if e == 0 { None } else { Some(room(&memory, f)?) };
            let mut received = receive(&file, &[range(b, c)], d)?;
            received.pieces.extend(room.into_iter().flat_map(|room| put_address(room, e, f, 0)));
            return Ok(Some(received.done()));
        }
        let header = Header::read(&memory, b)?;
        let mut received = receive(&file, &header.vectors, c)?;
        let told = header.told(b, received.flags);
        received.pieces.extend(told);
        Ok(Some(received.done()))
    }
}

/// The number in `socket:[N]`, by which the kernel shows a socket. No path is shown so.
fn inode_of(name: &[u8]) -> Option<u64> {
    let number = name.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_is_a_socket() {
        assert_eq!(inode_of(b"socket:[17]"), Some(17));
        for other in [&b"/socket:[17]"[..], b"pipe:[17]", b"socket:[]", b"socket:[17] (deleted)"] {
            assert_eq!(inode_of(other), None);
        }
    }
}
