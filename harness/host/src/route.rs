//! Routes and rules as messages: their next hops, and making new ones.

use std::net::IpAddr;

use serde::Deserialize;
use serde::Serialize;

use super::netlink::Message;
use super::uapi::*;

/// A route, and where it stood: routes to one destination count in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The place among the routes to the same destination.
    pub position: usize,
    /// A message that makes the route anew.
    pub message: Message,
    /// It leads through a device that is down; the kernel keeps such a route, and takes none.
    pub dead: bool,
}

/// Whether the address is of use on one link only.
pub fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Whether a route leads through a device that is down.
pub fn is_dead(route: &Message) -> bool {
    let dead = u32::from(RTNH_F_DEAD);
    route.word(RTM_FLAGS) & dead != 0 || hops(route).iter().any(|hop| hop.flags & RTNH_F_DEAD != 0)
}

/// A message that makes a route anew: without its cache, its lifetime and the state of its devices.
pub fn clean_route(message: &Message) -> Message {
    let mut clean = message.clone();
    clean.kind = RTM_NEWROUTE;
    let asked = u32::from(RTNH_F_ONLINK | RTNH_F_PERVASIVE);
    clean.set_word(RTM_FLAGS, message.word(RTM_FLAGS) & asked);
    clean.remove(&[RTA_CACHEINFO, RTA_EXPIRES]);
    map_hops(&clean, |hop| {
        hop.flags &= RTNH_F_ONLINK | RTNH_F_PERVASIVE;
        true
    })
}

/// A message that makes a rule anew.
pub fn clean_rule(message: &Message) -> Message {
    let mut clean = message.clone();
    // The others tell whether the device is there.
    clean.set_word(RULE_FLAGS, message.word(RULE_FLAGS) & FIB_RULE_INVERT);
    clean
}

/// A next hop of a multipath route: `struct rtnexthop`, and its attributes as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// `RTNH_F_...`.
    pub flags: u8,
    /// One less than the weight, as the kernel counts.
    pub weight: u8,
    /// The number of the link.
    pub device: u32,
    /// The attributes, as they are.
    pub rest: Vec<u8>,
}

/// The next hops of a multipath route.
pub fn hops(route: &Message) -> Vec<Hop> {
    let mut bytes = route.get(RTA_MULTIPATH).unwrap_or_default();
    let mut found = Vec::new();
    while let [l0, l1, flags, weight, d0, d1, d2, d3, ..] = *bytes {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let rest = bytes.get(8..length).unwrap_or_default().to_vec();
        let device = u32::from_ne_bytes([d0, d1, d2, d3]);
        found.push(Hop { flags, weight, device, rest });
        bytes = bytes.get(length.next_multiple_of(4).max(8)..).unwrap_or_default();
    }
    found
}

/// The route with its hops altered, or left out where `alter` says no.
pub(crate) fn map_hops(route: &Message, mut alter: impl FnMut(&mut Hop) -> bool) -> Message {
    let mut mapped = route.clone();
    // In messages of other kinds the number means something else.
    if route.kind != RTM_NEWROUTE || route.get(RTA_MULTIPATH).is_none() {
        return mapped;
    }
    let mut bytes = Vec::new();
    for mut hop in hops(route) {
        if alter(&mut hop) {
            let length = u16::try_from(8 + hop.rest.len()).unwrap_or(u16::MAX);
            bytes.extend(length.to_ne_bytes());
            bytes.extend([hop.flags, hop.weight]);
            bytes.extend(hop.device.to_ne_bytes());
            bytes.extend(&hop.rest);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
    }
    mapped.set(RTA_MULTIPATH, bytes);
    mapped
}

/// The devices that a route leads through.
pub fn devices(route: &Message) -> Vec<u32> {
    let mut found: Vec<u32> = hops(route).iter().map(|hop| hop.device).collect();
    found.extend(route.u32(RTA_OIF));
    found
}

/// The message with its device numbers replaced.
pub fn renumbered(message: &Message, number: &dyn Fn(u32) -> u32) -> Message {
    let mut new = map_hops(message, |hop| {
        hop.device = number(hop.device);
        true
    });
    match message.kind {
        RTM_NEWADDR => new.set_word(IFA_INDEX, number(message.word(IFA_INDEX))),
        RTM_NEWNEIGH => new.set_word(NDM_IFINDEX, number(message.word(NDM_IFINDEX))),
        RTM_NEWROUTE => {
            if let Some(device) = message.u32(RTA_OIF) {
                new.set_u32(RTA_OIF, number(device));
            }
        }
        _ => {}
    }
    new
}

/// A connected route, `DST/LENGTH dev DEVICE scope link src SOURCE`, in a table.
pub fn connected(source: IpAddr, length: u8, device: u32, table: u32) -> Message {
    let mut route = Message::new(RTM_NEWROUTE);
    route.set_byte(0, family(source));
    route.set_byte(RTM_DST_LEN, length);
    route.set_byte(RTM_PROTOCOL, RTPROT_STATIC);
    route.set_byte(RTM_SCOPE, if source.is_ipv4() { RT_SCOPE_LINK } else { 0 });
    route.set_byte(RTM_TYPE, RTN_UNICAST);
    route.set_u32(RTA_TABLE, table);
    route.set_ip(RTA_DST, network(source, length));
    route.set_u32(RTA_OIF, device);
    route.set_ip(RTA_PREFSRC, source);
    route
}

/// `AF_INET` or `AF_INET6`.
pub fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// The address with the bits behind the prefix cleared.
pub fn network(ip: IpAddr, length: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}

/// The value of `RTA_VIA` or `RTA_GATEWAY` nested in a hop.
pub fn hop_route(route: &Message, hop: &Hop) -> Message {
    let mut single = route.clone();
    single.remove(&[RTA_MULTIPATH]);
    let mut inner = Message::new(RTM_NEWROUTE);
    inner.set(RTA_MULTIPATH, hop.rest.clone());
    for (kind, value) in inner.nested(RTA_MULTIPATH) {
        single.set(kind, value);
    }
    single.set_u32(RTA_OIF, hop.device);
    single.set_word(RTM_FLAGS, u32::from(hop.flags));
    single
}

/// `from SOURCE lookup TABLE`.
pub fn source_rule(source: IpAddr, table: u32, priority: u32) -> Message {
    let mut rule = table_rule(family(source), table, priority);
    rule.set_byte(RULE_SRC_LEN, if source.is_ipv4() { 32 } else { 128 });
    rule.set_ip(FRA_SRC, source);
    rule
}

/// `oif DEVICE lookup TABLE`: for sockets that are bound to a device and not yet to an address.
pub fn device_rule(family: u8, device: &str, table: u32, priority: u32) -> Message {
    let mut rule = table_rule(family, table, priority);
    rule.set_text(FRA_OIFNAME, device);
    rule
}

fn table_rule(family: u8, table: u32, priority: u32) -> Message {
    let mut rule = Message::new(RTM_NEWRULE);
    rule.set_byte(0, family);
    rule.set_byte(RULE_ACTION, FR_ACT_TO_TBL);
    rule.set_u32(FRA_TABLE, table);
    rule.set_u32(FRA_PRIORITY, priority);
    rule.set(FRA_PROTOCOL, [RTPROT_STATIC]);
    rule
}

/// The address of this host in an address message.
pub fn local(message: &Message) -> Option<IpAddr> {
    message.ip(IFA_LOCAL).or_else(|| message.ip(IFA_ADDRESS))
}
