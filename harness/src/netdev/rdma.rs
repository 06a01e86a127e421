//! Whether RDMA devices belong to network namespaces: rdma-system(8), rdma-dev(8).

use std::io;

use netlink_sys::protocols::NETLINK_RDMA;

use super::Error;
use super::netlink::Message;
use super::netlink::Netlink;
use super::netns::Namespace;
use super::uapi::*;

/// How the RDMA subsystem treats network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Every device is in all of them.
    Shared,
    /// A device is in one of them.
    Exclusive,
    /// This kernel has no RDMA, or does not tell.
    Unknown,
}

/// The mode of this machine.
pub(crate) fn mode() -> Mode {
    let answer = Netlink::open(NETLINK_RDMA)
        .and_then(|mut netlink| netlink.ask(&Message::new(RDMA_NLDEV_CMD_SYS_GET)));
    match answer.ok().flatten().and_then(|m| m.u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE)) {
        Some(0) => Mode::Exclusive,
        Some(_) => Mode::Shared,
        None => Mode::Unknown,
    }
}

/// Whether the thread's namespace has a device of this name.
pub(crate) fn index(name: &str) -> io::Result<Option<u32>> {
    let mut netlink = Netlink::open(NETLINK_RDMA)?;
    let devices = netlink.dump(&Message::new(RDMA_NLDEV_CMD_GET))?;
    let found = devices.iter().find(|m| m.text(RDMA_NLDEV_ATTR_DEV_NAME).as_deref() == Some(name));
    Ok(found.and_then(|m| m.u32(RDMA_NLDEV_ATTR_DEV_INDEX)))
}

/// Sends a device from the thread's namespace to another; a device that is not there is not sent.
pub(crate) fn send_to(name: &str, target: &Namespace) -> Result<(), Error> {
    let sent = || -> io::Result<()> {
        let Some(index) = index(name)? else { return Ok(()) };
        let mut message = Message::new(RDMA_NLDEV_CMD_SET);
        message.set_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
        message.set(RDMA_NLDEV_NET_NS_FD, target.raw_fd().to_ne_bytes());
        Netlink::open(NETLINK_RDMA)?.change(0, &message)
    };
    let what = format!("move the RDMA device {name} to {target} (is it in use?)");
    sent().map_err(|source| Error::Netlink { what, source })
}
