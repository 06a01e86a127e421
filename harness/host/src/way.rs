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

/// A neighbour that has answered once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// What it has answered.
    pub mac: String,
    /// The kernel asks again, and has no new answer yet.
    pub asked_again: bool,
    /// The kernel has learned it by asking, so that asking again changes nothing that somebody set.
    learned: bool,
}

/// A neighbour as the kernel knows it; none if nobody has answered, or not when asked last.
///
/// # Errors
/// The kernel's.
pub fn neighbour(
    netlink: &mut Netlink,
    device: u32,
    address: IpAddr,
) -> io::Result<Option<Neighbour>> {
    match netlink.ask(&entry(RTM_GETNEIGH, device, address)) {
        Err(e) if e.raw_os_error() == Some(ENOENT) => Ok(None),
        other => Ok(other?.as_ref().and_then(known)),
    }
}

fn entry(kind: u16, device: u32, address: IpAddr) -> Message {
    let mut message = Message::new(kind);
    message.set_byte(0, family(address));
    message.set_word(NDM_IFINDEX, device);
    message.set_ip(NDA_DST, address);
    message
}

fn known(entry: &Message) -> Option<Neighbour> {
    // An entry that is not resolved has no address of the link.
    let mac = entry.get(NDA_LLADDR).map(mac)?;
    let state = entry.byte(NDM_STATE);
    // Whatever another program manages (EVPN, for example) has a flag.
    let learned = entry.byte(NDM_FLAGS) & !NTF_ROUTER == 0
        && state & (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE) != 0;
    Some(Neighbour { mac, asked_again: state & NUD_PROBE != 0, learned })
}

/// Makes the kernel ask a neighbour again at once, as it does by itself when an answer is old: who
/// has gone is believed for up to 45 s otherwise (`base_reachable_time_ms`). Whether it asks: not
/// without `CAP_NET_ADMIN`, and not for entries that it has not learned.
pub fn ask_again(netlink: &mut Netlink, device: u32, address: IpAddr) -> bool {
    let known = neighbour(netlink, device, address).ok().flatten();
    if !known.is_some_and(|known| known.learned) {
        return false;
    }
    let mut message = entry(RTM_NEWNEIGH, device, address);
    message.set_byte(NDM_STATE, NUD_PROBE);
    netlink.change(0, &message).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_learned_is_asked_again() {
        let of = |state: u8, flags: u8| {
            let mut message = entry(RTM_NEWNEIGH, 1, [10, 0, 0, 1].into());
            message.set_byte(NDM_STATE, state);
            message.set_byte(NDM_FLAGS, flags);
            assert_eq!(known(&message), None);
            message.set(NDA_LLADDR, [2, 0, 0, 0, 0, 1]);
            let known = known(&message).unwrap();
            assert_eq!(known.mac, "02:00:00:00:00:01");
            (known.asked_again, known.learned)
        };
        assert_eq!(of(NUD_REACHABLE, 0), (false, true));
        assert_eq!(of(NUD_STALE, NTF_ROUTER), (false, true));
        assert_eq!(of(NUD_PROBE, 0), (true, true));
        assert_eq!(of(NUD_PERMANENT, 0), (false, false));
        // NTF_EXT_LEARNED.
        assert_eq!(of(NUD_REACHABLE, 0x10), (false, false));
        assert_eq!(of(NUD_NOARP, 0), (false, false));
    }
}
