//! The fence of a network namespace: rules of nf_tables that keep sockets from speaking RoCE, and
//! from speaking with addresses that are not the namespace's.
//!
//! RoCE v2 is UDP to port 4791 (InfiniBand Architecture Specification, annex A17). A NIC, or
//! Soft-RoCE, executes such a packet whoever has made the packet: a program without any RDMA device
//! could write into the memory of others by sendto(2). A NIC's own packets never come to nf_tables.
//! Soft-RoCE's packets do, with a socket of the kernel's own (`rxe_send`,
//! drivers/infiniband/sw/rxe/rxe_net.c), which has no file. `meta skuid` asks the file of a packet's
//! socket, and a rule ends where there is no file (`nft_meta_get_eval_skugid`,
//! net/netfilter/nft_meta.c): so the rules are about packets that programs send, and about no others.
//!
//! ```text
//! table inet verbgate {
//!     chain NIC {
//!         type filter hook output priority raw; policy accept;
//!         meta skuid != 4294967295 meta l4proto udp th dport 4791 counter drop
//!         meta skuid != 4294967295 meta nfproto ipv4 ip saddr != 0.0.0.0 fib saddr type != local counter drop
//!         meta skuid != 4294967295 meta nfproto ipv6 ip6 saddr != :: fib saddr type != local counter drop
//!     }
//! }
//! ```
//!
//! Packet sockets (CAP_NET_RAW) go around the output hook, and who has CAP_NET_ADMIN can take the
//! table away: containers with RDMA get neither.

use std::io;

use netlink_sys::Socket;
use netlink_sys::SocketAddr;
use nix::libc;

use crate::netlink::encode;
use crate::netlink::to_u32;
use crate::uapi::NLA_F_NESTED;

/// The UDP port of RoCE v2.
pub const ROCE_PORT: u16 = 4791;

/// The name of the table.
pub const TABLE: &str = "verbgate";

const NETLINK_NETFILTER: isize = 12;

/// The families and message types of include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h.
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEWTABLE: u16 = 0;
const GETTABLE: u16 = 1;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const DELCHAIN: u16 = 5;
const NEWRULE: u16 = 6;

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
/// Of messages that delete: not what is in the thing, too.
const NLM_F_NONREC: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NLMSG_ERROR: u16 = 2;
const HEADER: usize = 16;

const LOCAL_OUT: u32 = 3;
/// `NF_IP_PRI_RAW`: before connections are tracked, and before anything is translated.
const PRIORITY: i32 = -300;
const ACCEPT: u32 = 1;
const DROP: u32 = 0;
const UDP: u8 = 17;
/// `RTN_LOCAL`, include/uapi/linux/rtnetlink.h.
const LOCAL: u32 = 2;
/// No user has this number, so all sockets with a file have another.
const NOBODY: u32 = u32::MAX;

/// Attributes in an attribute.
type Attributes = Vec<(u16, Vec<u8>)>;

fn text(value: &str) -> Vec<u8> {
    [value.as_bytes(), &[0]].concat()
}

/// Numbers of nf_tables are in network order; what is compared is as registers have it.
fn number(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn nested(kind: u16, inner: &Attributes) -> (u16, Vec<u8>) {
    (kind | NLA_F_NESTED, encode(inner))
}

/// One step of a rule: `NFTA_LIST_ELEM`, with a name and what belongs to that.
fn step(name: &str, data: &Attributes) -> (u16, Vec<u8>) {
    nested(1, &vec![(1, text(name)), nested(2, data)])
}

#[derive(Clone, Copy)]
enum Is {
    Equal = 0,
    NotEqual = 1,
}

/// Compares register 1.
fn compare(is: Is, value: &[u8]) -> (u16, Vec<u8>) {
    let value = nested(3, &vec![(1, value.to_vec())]);
    step("cmp", &vec![(1, number(1)), (2, number(is as u32)), value])
}

/// Loads a fact about the packet: `NFT_META_*`.
fn meta(key: u32) -> (u16, Vec<u8>) {
    step("meta", &vec![(1, number(1)), (2, number(key))])
}

/// Loads a part of the packet, from the network header (1) or the transport header (2) on.
fn payload(base: u32, offset: u32, length: u32) -> (u16, Vec<u8>) {
    let parts = [1, base, offset, length].map(number);
    step("payload", &(1..).zip(parts).collect())
}

/// Ends a rule whose packets no program sent.
fn of_programs() -> [(u16, Vec<u8>); 2] {
    const SKUID: u32 = 10;
    [meta(SKUID), compare(Is::NotEqual, &NOBODY.to_ne_bytes())]
}

fn drop_it() -> [(u16, Vec<u8>); 2] {
    let verdict = nested(2, &vec![nested(2, &vec![(1, number(DROP))])]);
    [step("counter", &Vec::new()), step("immediate", &vec![(1, number(0)), verdict])]
}

fn rules() -> [Attributes; 3] {
    const L4PROTO: u32 = 16;
    const NFPROTO: u32 = 15;
    let whole = |middle: Vec<(u16, Vec<u8>)>| -> Attributes {
        of_programs().into_iter().chain(middle).chain(drop_it()).collect()
    };
    let foreign = |family: u8, offset: u32, length: usize| {
        // NFTA_FIB_DREG, _RESULT (ADDRTYPE), _FLAGS (SADDR).
        let kind = step("fib", &vec![(1, number(1)), (2, number(3)), (3, number(1))]);
        whole(vec![
            meta(NFPROTO),
            compare(Is::Equal, &[family]),
            payload(1, offset, u32::try_from(length).unwrap_or(0)),
            compare(Is::NotEqual, &vec![0; length]),
            kind,
            compare(Is::NotEqual, &LOCAL.to_ne_bytes()),
        ])
    };
    [
        whole(vec![
            meta(L4PROTO),
            compare(Is::Equal, &[UDP]),
            payload(2, 2, 2),
            compare(Is::Equal, &ROCE_PORT.to_be_bytes()),
        ]),
        foreign(NFPROTO_IPV4, 12, 4),
        foreign(NFPROTO_IPV6, 8, 16),
    ]
}

/// One message to nf_tables.
struct Order {
    kind: u16,
    flags: u16,
    attributes: Attributes,
}

fn table(kind: u16, flags: u16) -> Order {
    Order { kind, flags, attributes: vec![(1, text(TABLE))] }
}

fn chain(kind: u16, flags: u16, name: &str, more: Attributes) -> Order {
    let mut attributes = vec![(1, text(TABLE)), (3, text(name))];
    attributes.extend(more);
    Order { kind, flags, attributes }
}

fn message(kind: u16, flags: u16, sequence: u32, general: [u8; 4], of: &Attributes) -> Vec<u8> {
    let body = encode(of);
    let length = u32::try_from(HEADER + general.len() + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(general);
    bytes.extend(body);
    bytes
}

/// `struct nfgenmsg`.
const INET: [u8; 4] = [NFPROTO_INET, 0, 0, 0];

fn order(order: &Order, more: u16, sequence: u32) -> Vec<u8> {
    let kind = SUBSYSTEM << 8 | order.kind;
    message(kind, order.flags | more, sequence, INET, &order.attributes)
}

/// Carries out all of these, or none.
fn batch(orders: &[Order]) -> io::Result<()> {
    let [_, subsystem] = SUBSYSTEM.to_be_bytes();
    let about = [0, 0, 0, subsystem];
    let mut bytes = message(BATCH_BEGIN, 0, 0, about, &Vec::new());
    let last = u32::try_from(orders.len()).unwrap_or(u32::MAX);
    for (sequence, one) in (1..).zip(orders) {
        let ack = if sequence == last { NLM_F_ACK } else { 0 };
        bytes.extend(order(one, ack, sequence));
    }
    bytes.extend(message(BATCH_END, 0, last + 1, about, &Vec::new()));
    ask(&bytes, last)
}

/// Sends, and waits for the first error, or for the answer to this number.
fn ask(bytes: &[u8], last: u32) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.send_to(bytes, &SocketAddr::new(0, 0), 0)?;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = answer.as_slice();
        while rest.len() >= HEADER {
            let word = |at: usize| rest.get(at..at + 4).and_then(to_u32).unwrap_or_default();
            // `struct nlmsghdr`: length, type and flags, sequence number, port; then an error's code.
            let is_error = word(4).to_ne_bytes().starts_with(&NLMSG_ERROR.to_ne_bytes());
            let code = if is_error { word(HEADER).cast_signed() } else { 0 };
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            if word(8) == last {
                return Ok(());
            }
            let length = usize::try_from(word(0)).unwrap_or(HEADER).max(HEADER);
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Puts the fence around the network namespace of the calling thread, in the name of a NIC that
/// comes into the namespace.
///
/// # Errors
/// `EOPNOTSUPP`, `EPROTONOSUPPORT` or `ENOENT` where the kernel has no nf_tables, or no `fib`
/// (`nft_fib_inet`); `EPERM` without CAP_NET_ADMIN.
pub fn put(nic: &str) -> io::Result<()> {
    let hook = nested(4, &vec![(1, number(LOCAL_OUT)), (2, number(PRIORITY.cast_unsigned()))]);
    let base = vec![hook, (5, number(ACCEPT)), (7, text("filter"))];
    // Made and taken away first, so that a second time changes nothing.
    let mut orders = vec![
        table(NEWTABLE, NLM_F_CREATE),
        chain(NEWCHAIN, NLM_F_CREATE, nic, base.clone()),
        chain(DELCHAIN, 0, nic, Vec::new()),
        chain(NEWCHAIN, NLM_F_CREATE, nic, base),
    ];
    orders.extend(rules().iter().map(|steps| Order {
        kind: NEWRULE,
        flags: NLM_F_CREATE | NLM_F_APPEND,
        attributes: vec![(1, text(TABLE)), (2, text(nic)), nested(4, steps)],
    }));
    batch(&orders)
}

/// Takes away what [`put`] has put in the name of a NIC; the fence stays as long as it is there in
/// another NIC's.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN.
pub fn lift(nic: &str) -> io::Result<()> {
    for orders in [[chain(DELCHAIN, 0, nic, Vec::new())], [table(DELTABLE, NLM_F_NONREC)]] {
        match batch(&orders).map_err(|e| (e.raw_os_error(), e)) {
            Ok(()) => {}
            Err((Some(code), _)) if is_absent(code) || code == libc::EBUSY => {}
            Err((_, e)) => return Err(e),
        }
    }
    Ok(())
}

/// Whether the network namespace of the calling thread has a fence.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN.
pub fn stands() -> io::Result<bool> {
    match ask(&order(&table(GETTABLE, 0), 0, 1), 1).map_err(|e| (e.raw_os_error(), e)) {
        Ok(()) => Ok(true),
        Err((Some(code), _)) if is_absent(code) => Ok(false),
        Err((_, e)) => Err(e),
    }
}

/// Whether an error says that there is no such thing, or no nf_tables.
#[must_use]
pub fn is_absent(code: i32) -> bool {
    [libc::ENOENT, libc::EOPNOTSUPP, libc::EPROTONOSUPPORT].contains(&code)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::net::UdpSocket;
    use std::process::Command;
    use std::thread;

    use nix::sched::CloneFlags;

    use super::*;

    fn run(line: &str) -> bool {
        Command::new("sh").args(["-ec", line]).output().is_ok_and(|ended| ended.status.success())
    }

    /// Runs in a network namespace of its own, with a link to one that answers nothing.
    fn alone(work: impl FnOnce() + Send + 'static) {
        if !crate::is_root() {
            println!("SKIPPED: needs root, to make a network namespace");
            return;
        }
        let ended = thread::spawn(|| {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
            assert!(run(
                "ip link set lo up; ip link add nic0 type veth peer name nic1; ip link set nic0 up; \
                 ip link set nic1 up; ip addr add 10.1.2.3/24 dev nic0; \
                 ip -6 addr add fd00::3/64 dev nic0 nodad; \
                 ip neigh add 10.1.2.9 lladdr 02:00:00:00:00:09 dev nic0; \
                 ip neigh add fd00::9 lladdr 02:00:00:00:00:09 dev nic0"
            ));
            work();
        });
        ended.join().unwrap();
    }

    /// What is sent to a port; `EPERM` where the fence drops the packet (`nf_hook_slow`).
    fn sent(from: &UdpSocket, to: &str) -> Option<i32> {
        from.send_to(b"request", to).err().map(|e| e.raw_os_error().unwrap_or(0))
    }

    /// IP_FREEBIND is for everybody, ip(7), and of IPv6 sockets, too.
    fn foreign() -> UdpSocket {
        use nix::sys::socket;
        let (family, kind) = (socket::AddressFamily::Inet6, socket::SockType::Datagram);
        let fd = socket::socket(family, kind, socket::SockFlag::empty(), None).unwrap();
        socket::setsockopt(&fd, socket::sockopt::IpFreebind, &true).unwrap();
        let address = std::net::SocketAddrV6::new("fd00::77".parse().unwrap(), 0, 0, 0);
        let address = socket::SockaddrIn6::from(address);
        socket::bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &address).unwrap();
        fd.into()
    }

    #[test]
    fn programs_send_no_roce_and_from_no_foreign_address() {
        alone(|| {
            let v4 = UdpSocket::bind("10.1.2.3:0").unwrap();
            let any = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
            let foreign = foreign();
            let all = || {
                [
                    sent(&v4, "10.1.2.9:4791"),
                    sent(&any, "[fd00::9]:4791"),
                    sent(&foreign, "[fd00::9]:53"),
                ]
            };
            assert!(!stands().unwrap());
            assert_eq!(all(), [None; 3], "natively it goes out");
            put("a").unwrap();
            put("a").unwrap();
            assert!(stands().unwrap());
            assert_eq!(all(), [Some(libc::EPERM); 3]);
            // Everything else does.
            for to in ["10.1.2.9:4790", "10.1.2.3:9", "127.0.0.1:9", "[fd00::9]:53", "[::1]:9"] {
                let from = if to.starts_with("127") { "127.0.0.1:0" } else { "[::]:0" };
                let from =
                    if to.starts_with('1') { from.replace("[::]", "0.0.0.0") } else { from.into() };
                assert_eq!(sent(&UdpSocket::bind(&*from).unwrap(), to), None, "{to}");
            }
            assert!(run("ping -c1 -W1 127.0.0.1 || ! command -v ping"));
        });
    }

    #[test]
    fn the_fence_stays_until_the_last_nic_goes() {
        alone(|| {
            lift("a").unwrap();
            put("a").unwrap();
            put("b").unwrap();
            lift("a").unwrap();
            assert!(stands().unwrap());
            let v4 = UdpSocket::bind("10.1.2.3:0").unwrap();
            assert_eq!(sent(&v4, "10.1.2.9:4791"), Some(libc::EPERM));
            lift("b").unwrap();
            lift("b").unwrap();
            assert!(!stands().unwrap());
            assert_eq!(sent(&v4, "10.1.2.9:4791"), None);
        });
    }
}
