//! RDMA netlink of the kernel: questions, and the answers to them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;
use rustix::net::Protocol;
use rustix::net::RecvFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use verbgate_abi::netlink;
use verbgate_abi::netlink::Message;
use verbgate_abi::netlink::Writer;

/// `NETLINK_RDMA`, include/uapi/linux/netlink.h.
const RDMA: u32 = 20;

/// The longest part of an answer: the kernel's dumps come in parts of at most 32 KiB.
pub(super) const MAX_PART: usize = 64 << 10;
/// Asks the kernel, and returns the parts of the answer. They are there as soon as it is asked;
/// those of a dump are made when the last one is taken.
pub(crate) fn ask(kernel: &OwnedFd, message: &Message<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut question = Writer::default();
    question.message(message, 0);
    rustix::io::write(kernel, &question.into_bytes())?;
    let mut parts = Vec::new();
    let mut buffer = vec![0; MAX_PART];
    loop {
        match rustix::net::recv(kernel, &mut *buffer, RecvFlags::empty()) {
            Ok((n, _)) => parts.push(buffer.get(..n).unwrap_or_default().to_vec()),
            Err(rustix::io::Errno::AGAIN) => return Ok(parts),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// A socket in the network namespace of the calling thread.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = RDMA.try_into().ok().map(Protocol::from_raw);
    Ok(rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?)
}

/// By which number RDMA netlink and the connection manager know the RDMA device of a node.
///
/// The kernel counts on with each device that comes (`assign_name`, drivers/infiniband/core/
/// device.c), so the number stays that of this one, and names no other afterwards. That the node
/// still is the device's is to be looked at after this ([`verbgate_sysfs::identity`]).
///
/// # Errors
/// netlink(7)'s. A node without an RDMA device, and a kernel without RDMA, have no number.
pub fn index_of(node: (u32, u32)) -> io::Result<Option<u32>> {
    let kernel = match socket() {
        Err(e) if e.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(None),
        socket => socket?,
    };
    let question = |command, flags, payload: &[u8]| {
        let kind = netlink::nldev(command);
        ask(&kernel, &Message { kind, flags: netlink::REQUEST | flags, seq: 1, payload })
    };
    let all = question(netlink::GET, netlink::DUMP, &[])?;
    for index in values(&all, netlink::DEV_INDEX) {
        let about = [(netlink::DEV_INDEX, &*index), (netlink::CHARDEV_TYPE, b"uverbs\0")];
        let answer = question(netlink::GET_CHARDEV, 0, &netlink::encode(&about))?;
        let number = values(&answer, netlink::CHARDEV).next();
        if number.and_then(|number| netlink::device_number(&number)) == Some(node) {
            return Ok(netlink::index(&index));
        }
    }
    Ok(None)
}

/// What an attribute holds in each of the messages.
fn values(parts: &[Vec<u8>], wanted: u16) -> impl Iterator<Item = Vec<u8>> {
    let messages = parts.iter().flat_map(|part| netlink::messages(part));
    let attributes = messages.flat_map(|message| netlink::attributes(message.payload));
    let values = attributes.filter(move |(number, _)| *number == wanted);
    values.map(|(_, value)| value.to_vec())
}
