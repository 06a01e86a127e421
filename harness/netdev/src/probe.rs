//! Probes of the network itself: who answers for an address (ARP, RFC 826), and whether the address
//! can be reached (ICMP echo, RFC 792 and RFC 4443).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::AddressFamily;
use nix::sys::socket::LinkAddr;
use nix::sys::socket::MsgFlags;
use nix::sys::socket::SockFlag;
use nix::sys::socket::SockProtocol;
use nix::sys::socket::SockType;
use nix::sys::socket::SockaddrIn;
use nix::sys::socket::SockaddrIn6;
use nix::sys::socket::bind;
use nix::sys::socket::recv;
use nix::sys::socket::sendto;
use nix::sys::socket::setsockopt;
use nix::sys::socket::socket;
use nix::sys::socket::sockopt;
use nix::sys::time::TimeVal;
use nix::sys::time::TimeValLike;

use verbgate_host::link::mac;

/// Time for gathering answers to one question. A later answer is of no use to RDMA either.
const WINDOW: Duration = Duration::from_millis(300);
/// Number of echo requests: the first request on a new link is lost at times.
const TRIES: u32 = 3;
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];
pub(crate) const ETH_P_ARP: [u8; 2] = [0x08, 0x06];
/// Ethernet, IPv4, address lengths 6 and 4.
pub(crate) const ARP_HEADER: [u8; 6] = [0, 1, 8, 0, 6, 4];
pub(crate) const ARP_REQUEST: [u8; 2] = [0, 1];
const ARP_REPLY: [u8; 2] = [0, 2];

/// A question: which MAC has `target`, asked by `device` in the name of `source`.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub device: String,
    pub source: Ipv4Addr,
    pub target: Ipv4Addr,
}

/// All MACs that answered for each address; runs in the thread's namespace. Asked again for as long
/// as `limit` are those for which nobody has: a switch port takes a while to let packets pass. Not the kernel's own resolver: that keeps the first answer and hides others.
pub(crate) fn who_has(
    questions: &[Question],
    limit: Duration,
) -> io::Result<BTreeMap<Ipv4Addr, BTreeSet<String>>> {
    let packets =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    let links = link_addresses()?;
    let mut answers: BTreeMap<Ipv4Addr, BTreeSet<String>> =
        questions.iter().map(|question| (question.target, BTreeSet::new())).collect();
    let until = Instant::now() + limit;
    loop {
        let open: Vec<_> = questions
            .iter()
            .filter(|question| answers.get(&question.target).is_none_or(BTreeSet::is_empty))
            .collect();
        for question in &open {
            let Some(link) = links.get(&question.device) else { continue };
            let frame = request(link.addr().unwrap_or_default(), question);
            sendto(packets.as_raw_fd(), &frame, link, MsgFlags::empty())?;
        }
        if open.is_empty() {
            return Ok(answers);
        }
        collect(&packets, WINDOW, &mut answers)?;
        if Instant::now() > until {
            return Ok(answers);
        }
    }
}

/// The packet address of each device.
pub(crate) fn link_addresses() -> io::Result<BTreeMap<String, LinkAddr>> {
    let all = getifaddrs()?;
    let of = |entry: nix::ifaddrs::InterfaceAddress| {
        Some((entry.interface_name, *entry.address?.as_link_addr()?))
    };
    Ok(all.filter_map(of).collect())
}

fn request(own: [u8; 6], question: &Question) -> Vec<u8> {
    let mut frame = [&BROADCAST[..], &own, &ETH_P_ARP, &ARP_HEADER, &ARP_REQUEST, &own].concat();
    frame.extend(question.source.octets());
    frame.extend([0; 6]);
    frame.extend(question.target.octets());
    frame
}

fn collect(
    packets: &OwnedFd,
    window: Duration,
    answers: &mut BTreeMap<Ipv4Addr, BTreeSet<String>>,
) -> io::Result<()> {
    let until = Instant::now() + window;
    let mut frame = [0; 1600];
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        patience(packets, left)?;
        let length = match recv(packets.as_raw_fd(), &mut frame, MsgFlags::empty()) {
            Ok(length) => length,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => continue,
            // A device went down meanwhile.
            Err(nix::Error::ENETDOWN) => continue,
            Err(e) => return Err(e.into()),
        };
        if let Some((ip, by)) = frame.get(..length).and_then(reply)
            && let Some(macs) = answers.get_mut(&ip)
        {
            macs.insert(by);
        }
    }
    Ok(())
}

/// The sender and the address of an ARP reply, if the frame is one.
fn reply(frame: &[u8]) -> Option<(Ipv4Addr, String)> {
    let front = [&ETH_P_ARP[..], &ARP_HEADER, &ARP_REPLY].concat();
    let body = frame.get(12..)?.strip_prefix(front.as_slice())?;
    let ip: [u8; 4] = body.get(6..10)?.try_into().ok()?;
    Some((ip.into(), mac(body.get(..6)?)))
}

fn patience(fd: &OwnedFd, left: Duration) -> io::Result<()> {
    // Zero would be for ever.
    let micros = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1000);
    Ok(setsockopt(fd, sockopt::ReceiveTimeout, &TimeVal::microseconds(micros))?)
}

/// The least echo request, headers included, in bytes: it fits every link.
pub const SMALL: u32 = 64;

/// Whether `to` answers an echo request of `size` bytes, IP header included, from the address `from`
/// of the thread's namespace, or from whichever the kernel takes. The kernel forbids its
/// fragmentation.
pub fn echoes(from: Option<IpAddr>, to: IpAddr, size: u32, limit: Duration) -> io::Result<bool> {
    let (family, protocol, request, reply) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8, 0),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128, 129),
    };
    let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    let fd = raw.as_raw_fd();
    match from {
        None => {}
        Some(IpAddr::V4(ip)) => bind(fd, &SockaddrIn::from(std::net::SocketAddrV4::new(ip, 0)))?,
        Some(IpAddr::V6(ip)) => {
            bind(fd, &SockaddrIn6::from(std::net::SocketAddrV6::new(ip, 0, 0, 0)))?;
        }
    }
    // Several of these can run at once.
    let [i0, i1, ..] = std::process::id().to_be_bytes();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let [.., s0, s1] = (now.subsec_nanos() >> 8).to_be_bytes();
    let identity = [i0 ^ 0x56, i1 ^ 0x47, s0, s1];
    let header = if to.is_ipv4() { 20 } else { 40 };
    let mut packet = echo(request, identity).to_vec();
    // Zeros, which do not count in the checksum.
    packet.resize(usize::try_from(size).unwrap_or(0).saturating_sub(header).max(8), 0);
    let until = Instant::now() + limit;
    for attempt in 1..=TRIES {
        let sent = match to {
            IpAddr::V4(ip) => {
                let to = SockaddrIn::from(std::net::SocketAddrV4::new(ip, 0));
                sendto(fd, &packet, &to, MsgFlags::empty())
            }
            IpAddr::V6(ip) => {
                let to = SockaddrIn6::from(std::net::SocketAddrV6::new(ip, 0, 0, 0));
                sendto(fd, &packet, &to, MsgFlags::empty())
            }
        };
        match sent {
            // No answer to the resolution yet.
            Err(nix::Error::EHOSTUNREACH) | Ok(_) => {}
            // The kernel knows already that so much does not pass.
            Err(nix::Error::EMSGSIZE) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        let next = until - limit / TRIES * (TRIES - attempt);
        if answered(&raw, next, to, reply, identity)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn answered(
    raw: &OwnedFd,
    until: Instant,
    to: IpAddr,
    reply: u8,
    identity: [u8; 4],
) -> io::Result<bool> {
    let mut packet = vec![0; 1 << 16];
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        patience(raw, left)?;
        let length = match recv(raw.as_raw_fd(), &mut packet, MsgFlags::empty()) {
            Ok(length) => length,
            Err(nix::Error::EAGAIN | nix::Error::EINTR | nix::Error::EHOSTUNREACH) => continue,
            Err(e) => return Err(e.into()),
        };
        let packet = packet.get(..length).unwrap_or_default();
        // IPv4 gives its header, too, and IPv6 does not.
        let header = if to.is_ipv4() { 20 } else { 0 };
        let body = packet.get(header..).unwrap_or_default();
        let from =
            to.is_ipv6() || packet.get(12..16) == Some(&verbgate_host::netlink::ip_bytes(to));
        if from && body.first() == Some(&reply) && body.get(4..8) == Some(&identity) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An echo request of eight bytes, checksum included.
fn echo(kind: u8, identity: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = identity;
    let words =
        [u16::from_be_bytes([kind, 0]), u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let sum: u32 = words.iter().map(|word| u32::from(*word)).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let [.., high, low] = (!folded).to_be_bytes();
    // Of ICMPv6 the kernel makes the checksum.
    [kind, 0, high, low, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_an_echo_request_is_zero_when_added_up() {
        for identity in [[0, 0, 0, 0], [0xff; 4], [0x12, 0x34, 0xfe, 0xdc]] {
            let packet = echo(8, identity);
            let words = packet.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
            let sum: u32 = words.sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{identity:x?}");
        }
    }

    #[test]
    fn only_arp_replies_are_answers() {
        let question = Question {
            device: "x".to_owned(),
            source: Ipv4Addr::new(10, 0, 0, 1),
            target: Ipv4Addr::new(10, 0, 0, 2),
        };
        let mut frame = request([2, 0, 0, 0, 0, 9], &question);
        assert_eq!(frame.len(), 42);
        assert_eq!(reply(&frame), None);
        frame[21] = 2;
        let from = (Ipv4Addr::new(10, 0, 0, 1), "02:00:00:00:00:09".to_owned());
        assert_eq!(reply(&frame), Some(from));
        assert_eq!(reply(&frame[..30]), None);
    }
}
