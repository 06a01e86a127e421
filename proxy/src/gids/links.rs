//! The links of a network namespace and their addresses, by rtnetlink (rtnetlink(7)).

use std::io;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;

use verbgate_abi::netlink;
use verbgate_abi::netlink::Message;

use crate::netlink::kernel::ask;

// include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h and net_namespace.h.
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
/// Bytes of `struct ifinfomsg`.
const IFINFO_LEN: usize = 16;
/// Bytes of `struct ifaddrmsg`.
const IFADDR_LEN: usize = 8;
/// Bytes of `struct rtgenmsg`, padded.
const RTGEN_LEN: usize = 4;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINK_NETNSID: u16 = 37;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// A network namespace by the number that another knows it by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NamespaceId(i32);

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Link {
    /// Its number in its namespace.
    pub(super) index: u32,
    /// Its name.
    pub(super) name: String,
    /// Its hardware address.
    pub(super) mac: Vec<u8>,
    /// What it is made upon (VLAN, macvlan): a number, and of which namespace if not of its own.
    pub(super) lower: Option<(u32, Option<NamespaceId>)>,
    /// The bond, bridge or team that it is part of.
    pub(super) master: Option<u32>,
    /// Its addresses; those of IPv4 mapped to IPv6, as in a GID.
    pub(super) addresses: Vec<Ipv6Addr>,
}

impl Link {
    /// Whether it has a GID: by one of its addresses, or the default one made of its hardware
    /// address (`make_default_gid`, drivers/infiniband/core/roce_gid_mgmt.c).
    #[must_use]
    pub(super) fn has(&self, gid: Ipv6Addr) -> bool {
        self.addresses.contains(&gid) || self.default_gid() == Some(gid)
    }

    /// `addrconf_ifid_eui48`, include/net/addrconf.h.
    fn default_gid(&self) -> Option<Ipv6Addr> {
        let [a, b, c, d, e, f] = *self.mac.first_chunk::<6>()?;
        let own = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f];
        Some(Ipv6Addr::from(own))
    }
}

/// All links of the namespace of a socket.
///
/// # Errors
/// netlink(7)'s.
pub(super) fn links(route: &OwnedFd) -> io::Result<Vec<Link>> {
    let mut links: Vec<Link> = Vec::new();
    for (kind, fixed, attributes) in dump(route, RTM_GETLINK, IFINFO_LEN)? {
        // struct ifinfomsg: family, padding, type, then the index.
        let index = fixed.get(4..8).and_then(netlink::index);
        if let (RTM_NEWLINK, Some(index)) = (kind, index) {
            links.push(link(index, &attributes));
        }
    }
    for (kind, fixed, attributes) in dump(route, RTM_GETADDR, IFADDR_LEN)? {
        // struct ifaddrmsg: family, prefix length, flags, scope, then the index.
        let index = fixed.get(4..8).and_then(netlink::index);
        let of = links.iter_mut().find(|link| kind == RTM_NEWADDR && Some(link.index) == index);
        if let Some(link) = of {
            let values = netlink::attributes(&attributes);
            let own = values.filter(|(number, _)| [IFA_ADDRESS, IFA_LOCAL].contains(number));
            link.addresses.extend(own.filter_map(|(_, value)| address(value)));
        }
    }
    Ok(links)
}

/// By what number the namespace of a socket knows another, if it does.
///
/// # Errors
/// netlink(7)'s.
pub(super) fn namespace_id(route: &OwnedFd, other: i32) -> io::Result<Option<NamespaceId>> {
    let mut payload = vec![0; RTGEN_LEN];
    payload.extend(netlink::encode(&[(NETNSA_FD, &other.to_ne_bytes())]));
    let flags = netlink::REQUEST;
    let parts = ask(route, &Message { kind: RTM_GETNSID, flags, seq: 1, payload: &payload })?;
    let mut messages = parts.iter().flat_map(|part| netlink::messages(part));
    let answer = messages.find(|message| message.kind == RTM_NEWNSID);
    let attributes = answer.and_then(|m| m.payload.get(RTGEN_LEN..)).unwrap_or_default();
    let id = netlink::attributes(attributes).find(|(number, _)| *number == NETNSA_NSID);
    let id = id.and_then(|(_, value)| value.try_into().ok()).map(i32::from_ne_bytes);
    // NETNSA_NSID_NOT_ASSIGNED is -1.
    Ok(id.filter(|id| *id >= 0).map(NamespaceId))
}

type LinkAnswer = (u16, Vec<u8>, Vec<u8>);

/// The messages of a dump: kind, fixed part, attributes.
fn dump(route: &OwnedFd, kind: u16, fixed: usize) -> io::Result<Vec<LinkAnswer>> {
    let payload = vec![0; fixed];
    let flags = netlink::REQUEST | netlink::DUMP;
    let parts = ask(route, &Message { kind, flags, seq: 1, payload: &payload })?;
    let messages = parts.iter().flat_map(|part| netlink::messages(part));
    let split = messages.filter_map(|message| {
        let (head, rest) = message.payload.split_at_checked(fixed)?;
        Some((message.kind, head.to_vec(), rest.to_vec()))
    });
    Ok(split.collect())
}

fn link(index: u32, attributes: &[u8]) -> Link {
    let mut link = Link { index, ..Link::default() };
    let (mut lower, mut of) = (None, None);
    for (number, value) in netlink::attributes(attributes) {
        match number {
            IFLA_ADDRESS => link.mac = value.to_vec(),
            IFLA_IFNAME => {
                let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
                let name = value.get(..end).unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_LINK => lower = netlink::index(value),
            IFLA_MASTER => link.master = netlink::index(value),
            IFLA_LINK_NETNSID => {
                of = value.try_into().ok().map(i32::from_ne_bytes).map(NamespaceId);
            }
            _ => {}
        }
    }
    link.lower = lower.map(|lower| (lower, of));
    link
}

fn address(value: &[u8]) -> Option<Ipv6Addr> {
    if let Ok(four) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(four).to_ipv6_mapped());
    }
    <[u8; 16]>::try_from(value).ok().map(Ipv6Addr::from)
}

#[cfg(test)]
mod tests {
    use verbgate_sys::network::Network;

    use super::*;

    #[test]
    fn this_machines_loopback_is_found_with_its_address() {
        let here = Network::here().unwrap();
        let found = links(&here.route).unwrap();
        let lo = found.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!((lo.index, lo.mac.len(), lo.lower, lo.master), (1, 6, None, None));
        assert!(lo.has("::ffff:127.0.0.1".parse().unwrap()), "{lo:?}");
        assert!(!lo.has("::ffff:127.0.0.2".parse().unwrap()));
    }

    #[test]
    fn the_default_gid_is_made_of_the_hardware_address() {
        let link = Link { mac: vec![2, 0x11, 0x22, 0x33, 0x44, 0x55], ..Link::default() };
        assert!(link.has("fe80::11:22ff:fe33:4455".parse().unwrap()));
        assert!(!Link::default().has(Ipv6Addr::UNSPECIFIED));
    }
}
