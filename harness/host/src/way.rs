//! The way from this host to an address: by which device, through which gateway, and who answers
//! there. `ip route get` and `ip neighbour show` tell the same, but images of programs often have
//! no `ip`.

use std::io;
use std::net::IpAddr;

use super::link::mac;
use super::netlink::Message;
use super::netlink::Netlink;
use super::netlink::ip_bytes;
use super::netlink::to_ip;
use super::route::family;
use super::uapi::*;

/// `ENOENT`: there is no such entry.
const ENOENT: i32 = 2;

/// The kernel's choice for packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The number of the link.
    pub device: u32,
    /// None: the address is on the device's own network.
    pub gateway: Option<IpAddr>,
}

/// The way to an address, for packets from an address of this host or from any.
///
/// # Errors
/// The kernel's, such as `ENETUNREACH`.
pub fn to(netlink: &mut Netlink, to: IpAddr, from: Option<IpAddr>) -> io::Result<Way> {
    let way = route(netlink, to, from)?.and_then(|route| {
        // IPv4 by a gateway of IPv6: the family's number comes before the address (struct rtvia).
        let via = || route.get(RTA_VIA).and_then(|via| to_ip(via.get(2..)?));
        let gateway = route.ip(RTA_GATEWAY).or_else(via);
        Some(Way { device: route.u32(RTA_OIF)?, gateway })
    });
    way.ok_or_else(|| io::Error::other("the kernel names no device"))
}

/// The address of this host that packets to an address come from, where nobody chooses another.
///
/// # Errors
/// The kernel's, such as `ENETUNREACH`.
pub fn source(netlink: &mut Netlink, to: IpAddr) -> io::Result<Option<IpAddr>> {
    Ok(route(netlink, to, None)?.and_then(|route| route.ip(RTA_PREFSRC)))
}

fn route(netlink: &mut Netlink, to: IpAddr, from: Option<IpAddr>) -> io::Result<Option<Message>> {
    let mut message = Message::new(RTM_GETROUTE);
    let bits = if to.is_ipv4() { 32 } else { 128 };
    message.set_byte(0, family(to));
    message.set_byte(RTM_DST_LEN, bits);
    message.set(RTA_DST, ip_bytes(to));
    if let Some(from) = from {
        message.set_byte(RTM_SRC_LEN, bits);
        message.set(RTA_SRC, ip_bytes(from));
    }
    netlink.ask(&message)
}

/// The MAC address that a neighbour has answered with, if it has.
pub fn neighbour(
    netlink: &mut Netlink,
    device: u32,
    address: IpAddr,
) -> io::Result<Option<String>> {
    let mut message = Message::new(RTM_GETNEIGH);
    message.set_byte(0, family(address));
    message.set_word(NDM_IFINDEX, device);
    message.set_ip(NDA_DST, address);
    match netlink.ask(&message) {
        Err(e) if e.raw_os_error() == Some(ENOENT) => Ok(None),
        // An entry that is not resolved has no address of the link.
        other => Ok(other?.and_then(|entry| entry.get(NDA_LLADDR).map(mac))),
    }
}
