//! Announcements of addresses after a NIC has changed its place: a gratuitous ARP request (RFC 5227,
//! 2.3) and an unsolicited neighbour advertisement (RFC 4861, 7.2.6). Neighbours that remember another
//! MAC for an address, and switches that remember another port for a MAC, learn the new place at once.

use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use nix::sys::socket::AddressFamily;
use nix::sys::socket::MsgFlags;
use nix::sys::socket::SockFlag;
use nix::sys::socket::SockProtocol;
use nix::sys::socket::SockType;
use nix::sys::socket::sendto;
use nix::sys::socket::socket;

use super::probe::ARP_HEADER;
use super::probe::ARP_REQUEST;
use super::probe::BROADCAST;
use super::probe::ETH_P_ARP;
use super::probe::link_addresses;

/// Number of announcements (`ANNOUNCE_NUM` of RFC 5227), and the time between them: a switch's port may
/// let nothing pass yet when a link has just come up.
const TIMES: u32 = 2;
const INTERVAL: Duration = Duration::from_secs(1);
const ETH_P_IPV6: [u8; 2] = [0x86, 0xdd];
/// Multicast address of all nodes on a link, and its MAC (RFC 2464, 7).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ICMPV6: u8 = 58;
const ADVERTISEMENT: u8 = 136;
/// The receiver shall replace what it remembers.
const OVERRIDE: u8 = 0x20;
/// Option: the sender's link-layer address, in units of eight bytes.
const TARGET_ADDRESS: [u8; 2] = [2, 1];

/// Announces the addresses of links of the thread's namespace; once, if nobody is to wait. A failure is
/// logged alone: the links work, and neighbours learn the place a little later.
pub fn all(links: &[(&str, Vec<(IpAddr, u8)>)], waits: bool) {
    for time in 0..if waits { TIMES } else { 1 } {
        if time > 0 && !links.is_empty() {
            thread::sleep(INTERVAL);
        }
        for (name, ips) in links {
            let ips: Vec<IpAddr> = ips.iter().map(|(ip, _)| *ip).collect();
            if let Err(e) = of_link(name, &ips) {
                log::warn!("cannot announce the addresses of {name}: {e}");
            }
        }
    }
}

fn of_link(name: &str, ips: &[IpAddr]) -> io::Result<()> {
    let links = link_addresses()?;
    let Some(link) = links.get(name) else { return Ok(()) };
    let Some(mac) = link.addr().filter(|mac| *mac != [0; 6]) else { return Ok(()) };
    // Protocol 0 receives nothing.
    let packets =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None::<SockProtocol>)?;
    for ip in ips {
        let frame = match ip {
            IpAddr::V4(ip) => gratuitous(mac, *ip),
            IpAddr::V6(ip) => unsolicited(mac, *ip),
        };
        match sendto(packets.as_raw_fd(), &frame, link, MsgFlags::empty()) {
            // A link that is down has nobody to tell.
            Ok(_) | Err(nix::Error::ENETDOWN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn gratuitous(mac: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&BROADCAST[..], &mac, &ETH_P_ARP, &ARP_HEADER, &ARP_REQUEST, &mac].concat();
    frame.extend(ip.octets());
    frame.extend([0; 6]);
    frame.extend(ip.octets());
    frame
}

fn unsolicited(mac: [u8; 6], ip: Ipv6Addr) -> Vec<u8> {
    let mut body = vec![ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    body.extend(ip.octets());
    body.extend(TARGET_ADDRESS);
    body.extend(mac);
    let length = u8::try_from(body.len()).unwrap_or(u8::MAX);
    // The header that the checksum covers (RFC 8200, 8.1).
    let pseudo =
        [&ip.octets()[..], &ALL_NODES.octets(), &[0, 0, 0, length, 0, 0, 0, ICMPV6], &body]
            .concat();
    let [high, low] = checksum(&pseudo);
    if let [_, _, first, second, ..] = body.as_mut_slice() {
        (*first, *second) = (high, low);
    }
    let mut frame = [&ALL_NODES_MAC[..], &mac, &ETH_P_IPV6].concat();
    // Version 6; payload, next header, and the hop limit that says that no router has passed it on.
    frame.extend([0x60, 0, 0, 0, 0, length, ICMPV6, 255]);
    frame.extend(ip.octets());
    frame.extend(ALL_NODES.octets());
    frame.extend(body);
    frame
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks_exact(2).filter_map(|word| word.try_into().ok());
    let mut sum: u32 = words.map(u16::from_be_bytes).map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    [high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_those_of_the_standards() {
        let mac = [2, 0, 0, 0, 0, 9];
        let arp = gratuitous(mac, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(arp.len(), 42);
        assert_eq!((&arp[28..32], &arp[38..42]), (&[10, 0, 0, 1][..], &[10, 0, 0, 1][..]));
        let ip: Ipv6Addr = "fd00::1".parse().unwrap();
        let frame = unsolicited(mac, ip);
        assert_eq!((frame.len(), frame[21], frame[54], frame[58]), (86, 255, 136, 0x20));
        // The receiver's check: the sum over pseudo header and message is zero.
        let pseudo = [&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &frame[54..]].concat();
        assert_eq!(checksum(&pseudo), [0, 0]);
    }
}
