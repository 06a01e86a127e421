//! rdma_cm: the commands of `/dev/infiniband/rdma_cm` (include/uapi/rdma/rdma_user_cm.h,
//! drivers/infiniband/core/ucma.c), ABI version 4.
//!
//! Each command is one `write(2)`: a header of 8 bytes `{u32 cmd; u16 in; u16 out}`, then a
//! structure. In most structures there is an address for a response. The kernel reads the whole
//! structure whatever `in` says, so a program that repeats a command must supply the whole
//! structure.

use std::net::Ipv4Addr;
use std::net::Ipv6Addr;

/// Bytes of `struct rdma_ucm_cmd_hdr`.
pub const HDR_LEN: usize = 8;

/// Bytes of the longest structure.
pub const MAX_LEN: usize = 320;

/// Offset of the response's address in a structure.
const RESPONSE_FIRST: usize = 0;

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmSpec {
    /// The kernel's name, without `RDMA_USER_CM_CMD_`, and with what tells it from verbs.
    pub name: &'static str,
    /// Bytes of its structure.
    pub len: usize,
    /// Whether the kernel reads `in` bytes of it, if that is less.
    pub partial: bool,
    /// Where its structure holds the address of the response, and how long that is.
    pub response: Option<(usize, Length)>,
    /// Where its structure holds the id that it is about.
    pub id: Option<usize>,
    /// What else it refers to.
    pub also: Also,
}

/// How much the kernel writes as a response; never more than `out`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// So many bytes.
    Fixed(usize),
    /// What QUERY's option at this offset says.
    Query(usize),
}

/// What a command refers to besides an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Also {
    /// Nothing.
    Nothing,
    /// It makes an id, in the caller's network namespace.
    Namespace,
    /// It makes an id, which only the response names.
    NewId,
    /// It waits for an event.
    Event,
    /// An option's value: where its address and its length are.
    Value(usize, usize),
    /// Another rdma_cm file: where its descriptor is.
    File(usize),
    /// The network: it sends, or lets send, by the device of its id.
    Device,
}

const fn plain(name: &'static str, len: usize, id: usize) -> CmSpec {
    CmSpec { name, len, partial: false, response: None, id: Some(id), also: Also::Nothing }
}

const fn answered(name: &'static str, len: usize, id: usize, at: usize, bytes: usize) -> CmSpec {
    let response = Some((at, Length::Fixed(bytes)));
    CmSpec { response, ..plain(name, len, id) }
}

const fn with(spec: CmSpec, also: Also) -> CmSpec {
    CmSpec { also, ..spec }
}

/// The commands, by number. What is not there the kernel refuses: ENOSYS for a gap, EINVAL behind
/// the end.
#[rustfmt::skip]
pub const COMMANDS: [Option<CmSpec>; 25] = [
    Some(CmSpec { id: None, ..with(answered("CM_CREATE_ID", 24, 0, 8, 4), Also::Namespace) }),
    Some(answered("CM_DESTROY_ID", 16, 8, RESPONSE_FIRST, 4)),
    // Its response's address is not used.
    Some(plain("CM_BIND_IP", 40, 36)),
    Some(plain("CM_RESOLVE_IP", 64, 56)),
    Some(with(plain("CM_RESOLVE_ROUTE", 8, 0), Also::Device)),
    Some(answered("CM_QUERY_ROUTE", 16, 8, RESPONSE_FIRST, 208)),
    Some(CmSpec { partial: true, ..with(plain("CM_CONNECT", 288, 272), Also::Device) }),
    Some(with(plain("CM_LISTEN", 8, 0), Also::Device)),
    Some(CmSpec { partial: true, ..with(plain("CM_ACCEPT", 296, 280), Also::Device) }),
    Some(plain("CM_REJECT", 264, 0)),
    Some(plain("CM_DISCONNECT", 4, 0)),
    Some(answered("CM_INIT_QP_ATTR", 16, 8, RESPONSE_FIRST, 144)),
    Some(CmSpec { id: None, ..with(answered("CM_GET_EVENT", 8, 0, RESPONSE_FIRST, 336), Also::Event) }),
    None,
    Some(with(plain("CM_SET_OPTION", 24, 8), Also::Value(0, 20))),
    Some(plain("CM_NOTIFY", 8, 0)),
    Some(with(answered("CM_JOIN_IP_MCAST", 48, 44, RESPONSE_FIRST, 4), Also::NewId)),
    Some(answered("CM_LEAVE_MCAST", 16, 8, RESPONSE_FIRST, 4)),
    Some(with(answered("CM_MIGRATE_ID", 16, 8, RESPONSE_FIRST, 4), Also::File(12))),
    Some(CmSpec { response: Some((RESPONSE_FIRST, Length::Query(12))), ..plain("CM_QUERY", 16, 8) }),
    Some(plain("CM_BIND", 136, 0)),
    Some(plain("CM_RESOLVE_ADDR", 272, 0)),
    Some(with(answered("CM_JOIN_MCAST", 152, 16, RESPONSE_FIRST, 4), Also::NewId)),
    // 7.2.
    Some(with(plain("CM_RESOLVE_IB_SERVICE", 88, 0), Also::Device)),
    Some(plain("CM_WRITE_CM_EVENT", 320, 0)),
];

/// Number of `RDMA_USER_CM_CMD_DESTROY_ID`.
pub const DESTROY_ID: u32 = 1;
/// Number of `RDMA_USER_CM_CMD_BIND_IP`.
pub const BIND_IP: u32 = 2;
/// Number of `RDMA_USER_CM_CMD_RESOLVE_IP`.
pub const RESOLVE_IP: u32 = 3;
/// Number of `RDMA_USER_CM_CMD_LISTEN`.
pub const LISTEN: u32 = 7;
/// Offset of the backlog in the structure of `RDMA_USER_CM_CMD_LISTEN`.
pub const BACKLOG: usize = 4;
/// Number of `RDMA_USER_CM_CMD_BIND`.
pub const BIND: u32 = 20;
/// Number of `RDMA_USER_CM_CMD_RESOLVE_ADDR`.
pub const RESOLVE_ADDR: u32 = 21;
/// Number of `RDMA_USER_CM_CMD_LEAVE_MCAST`.
pub const LEAVE_MCAST: u32 = 17;
/// Number of `RDMA_USER_CM_CMD_QUERY`.
pub const QUERY: u32 = 19;

/// `RDMA_USER_CM_QUERY_ADDR`: `struct rdma_ucm_query_addr_resp`, which names the device
/// ([`BoundTo`]).
pub const QUERY_ADDR: u32 = 0;
/// Bytes of `struct rdma_ucm_query_addr_resp`.
pub const QUERY_ADDR_LEN: usize = 280;

/// Bytes of `struct rdma_ucm_query_path_resp` and of `struct rdma_ucm_query_ib_service_resp` (7.2)
/// before the records.
pub const QUERY_FIXED: usize = 8;
/// Bytes of `struct ib_path_rec_data`.
pub const PATH_RECORD: usize = 72;
/// Bytes of `struct ib_user_service_rec` (7.2).
pub const SERVICE_RECORD: usize = 176;

const QUERY_PATH: u32 = 1;
const QUERY_GID: u32 = 2;
const QUERY_IB_SERVICE: u32 = 3;

/// Which device an id is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundTo {
    /// None yet, or none any more.
    Nothing,
    /// This one.
    Device {
        /// RDMA netlink's number of the device (since 5.9), which no other is given.
        index: u32,
        /// For people. Devices can have the same, or none.
        node_guid: u64,
        /// The port, from 1.
        port: u8,
        /// The P_Key of the id's partition.
        pkey: u16,
    },
}

impl BoundTo {
    /// Reads `struct rdma_ucm_query_addr_resp`; none when it is shorter.
    ///
    /// The kernel clears the structure and fills `node_guid`, `ibdev_index`, `port_num` and `pkey`
    /// for an id that has a device, and none of them for others (`ucma_query_device_addr`). Ports
    /// count from 1; but the field has 8 bits, and a device with representors has thousands of
    /// ports. The first device has index 0, and a virtual function at first GUID 0. So an id is
    /// taken for unbound only when all four are zero.
    #[must_use]
    pub fn read(response: &[u8]) -> Option<Self> {
        let guid = response.get(..8)?.first_chunk::<8>()?;
        let port = response.get(8)?;
        let pkey = response.get(10..12)?;
        let index = response.get(QUERY_ADDR_LEN - 8..QUERY_ADDR_LEN - 4)?.first_chunk::<4>()?;
        let all = [&guid[..], &[*port], pkey, index];
        if all.iter().all(|field| field.iter().all(|byte| *byte == 0)) {
            return Some(Self::Nothing);
        }
        let (index, node_guid) = (u32::from_ne_bytes(*index), u64::from_be_bytes(*guid));
        let pkey = u16::from_ne_bytes(*pkey.first_chunk::<2>()?);
        Some(Self::Device { index, node_guid, port: *port, pkey })
    }
}

/// Whom a command speaks to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Nobody.
    Nobody,
    /// This IP address, of version 4 as `::ffff:a.b.c.d`, or this GID.
    Address(Ipv6Addr),
    /// An address of a kind that is not known here, or a service by its name.
    Unknown,
}

/// `AF_INET`, `AF_INET6` and `AF_IB`, include/linux/socket.h.
const FAMILIES: [(u16, usize); 3] = [(2, 4), (10, 8), (27, 8)];

/// The port of an id's own address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnPort {
    /// A command gives the id no address.
    Nothing,
    /// This port; 0 stands for one that the kernel chooses, and for none yet.
    Number(u16),
    /// Of an address of a kind that is not known here, such as a service of InfiniBand.
    Unknown,
}

impl OwnPort {
    /// `AF_INET` and `AF_INET6` have the port behind the family.
    fn of(address: Option<&[u8]>) -> Self {
        let read = || {
            let [a, b, port @ ..] = *address?.first_chunk::<4>()?;
            Some(match u16::from_ne_bytes([a, b]) {
                0 => Self::Number(0),
                2 | 10 => Self::Number(u16::from_be_bytes(port)),
                _ => Self::Unknown,
            })
        };
        read().unwrap_or(Self::Unknown)
    }

    /// The port that a command of this number binds its id to, by its structure. A command that resolves
    /// an address, or listens, binds an id that is not bound yet to a port of the kernel's choice
    /// (drivers/infiniband/core/cma.c).
    #[must_use]
    pub fn asked(cmd: u32, body: &[u8]) -> Self {
        match cmd {
            // Whatever the sizes in it say, the kernel binds to an address with a family
            // (`cma_bind_addr`, drivers/infiniband/core/cma.c).
            BIND_IP | BIND | RESOLVE_IP | RESOLVE_ADDR => Self::of(own_address(cmd, body)),
            LISTEN => Self::Number(0),
            _ => Self::Nothing,
        }
    }

    /// The port that an id has, by `struct rdma_ucm_query_addr_resp`.
    #[must_use]
    pub fn bound(response: &[u8]) -> Self {
        Self::of(response.get(16..))
    }
}

/// The address that a command of this number binds its id to.
fn own_address(cmd: u32, body: &[u8]) -> Option<&[u8]> {
    match cmd {
        BIND_IP | BIND => body.get(8..),
        RESOLVE_IP => Some(body),
        RESOLVE_ADDR => body.get(16..),
        _ => None,
    }
}

/// Ports that take CAP_NET_BIND_SERVICE.
pub const LOW_PORTS: std::ops::Range<u16> = 1..1024;

/// Whether a command of this number binds its id to a port below 1024, which takes CAP_NET_BIND_SERVICE (`cma_use_port`,
/// drivers/infiniband/core/cma.c).
#[must_use]
pub fn is_low_port(cmd: u32, body: &[u8]) -> bool {
    /// Family, and offsets of service id and mask: `struct sockaddr_ib`, include/rdma/ib.h.
    const IB: ([u8; 2], usize, usize) = (27_u16.to_ne_bytes(), 24, 32);
    let port = match OwnPort::asked(cmd, body) {
        OwnPort::Nothing => 0,
        OwnPort::Number(port) => port,
        OwnPort::Unknown => {
            let Some(address) = own_address(cmd, body).filter(|a| a.starts_with(&IB.0)) else {
                return false;
            };
            let word = |at: usize| {
                let word = address.get(at..).and_then(|rest| rest.first_chunk::<8>());
                word.map_or(0, |word| u64::from_be_bytes(*word))
            };
            let [.., a, b] = (word(IB.1) & word(IB.2)).to_be_bytes();
            u16::from_be_bytes([a, b])
        }
    };
    LOW_PORTS.contains(&port)
}

/// Level and name of SET_OPTION's `RDMA_OPTION_IB_PATH`.
const IB_PATH: [u8; 8] = {
    let [a, b, c, d] = 1_u32.to_ne_bytes();
    [a, b, c, d, a, b, c, d]
};

/// Whom a command of this number speaks to, by its structure.
#[must_use]
pub fn peer(cmd: u32, body: &[u8]) -> Peer {
    // Where the address begins: dst_addr of RESOLVE_IP and RESOLVE_ADDR, addr of JOIN_IP_MCAST and
    // JOIN_MCAST.
    let at = match cmd {
        3 => 28,
        21 => 144,
        16 => 16,
        22 => 24,
        // RESOLVE_IB_SERVICE; and SET_OPTION of path records, which name whom an id speaks to in the kernel's place.
        23 => return Peer::Unknown,
        14 if body.get(12..20) == Some(&IB_PATH) => return Peer::Unknown,
        _ => return Peer::Nobody,
    };
    address(body, at).map_or(Peer::Unknown, Peer::Address)
}

/// A socket address of a structure.
fn address(body: &[u8], at: usize) -> Option<Ipv6Addr> {
    let address = body.get(at..)?;
    let family = u16::from_ne_bytes(*address.first_chunk::<2>()?);
    let (_, offset) = FAMILIES.iter().find(|(known, _)| *known == family)?;
    let rest = address.get(*offset..)?;
    Some(if *offset == 4 {
        Ipv4Addr::from(*rest.first_chunk::<4>()?).to_ipv6_mapped()
    } else {
        Ipv6Addr::from(*rest.first_chunk::<16>()?)
    })
}

/// Whom an id speaks to, or is called by: `dst_addr` of `struct rdma_ucm_query_addr_resp`, which the
/// kernel leaves zero for an id without a peer.
#[must_use]
pub fn peer_of_id(response: &[u8]) -> Option<Ipv6Addr> {
    address(response, 144)
}

/// How many bytes of a response of QUERY the kernel has written.
#[must_use]
pub fn query_len(option: u32, response: &[u8], out: usize) -> usize {
    // Both begin with the number of records, which the kernel does not cut to what fits.
    let record = match option {
        QUERY_ADDR | QUERY_GID => return out.min(QUERY_ADDR_LEN),
        QUERY_PATH => PATH_RECORD,
        QUERY_IB_SERVICE => SERVICE_RECORD,
        _ => return 0,
    };
    let number = response.first_chunk::<4>().map_or(0, |word| u32::from_ne_bytes(*word));
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let fit = out.saturating_sub(QUERY_FIXED).checked_div(record).unwrap_or(0);
    number.min(fit).saturating_mul(record).saturating_add(QUERY_FIXED).min(out)
}

/// The header of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmHeader {
    /// Its number.
    pub cmd: u32,
    /// Bytes that follow.
    pub input: u16,
    /// Bytes that the response may have.
    pub output: u16,
}

impl CmHeader {
    /// Reads one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HDR_LEN>()?;
        let [a, b, c, d, e, f, g, h] = *bytes;
        let cmd = u32::from_ne_bytes([a, b, c, d]);
        let [input, output] = [[e, f], [g, h]].map(u16::from_ne_bytes);
        Some(Self { cmd, input, output })
    }

    /// Writes it.
    #[must_use]
    pub fn bytes(self) -> [u8; HDR_LEN] {
        let [a, b, c, d] = self.cmd.to_ne_bytes();
        let [[e, f], [g, h]] = [self.input, self.output].map(u16::to_ne_bytes);
        [a, b, c, d, e, f, g, h]
    }
}

/// The command of a number: `Err` holds the errno of one that there is not.
///
/// # Errors
/// `EINVAL`, `ENOSYS`.
pub fn command(number: u32) -> Result<&'static CmSpec, crate::Errno> {
    let entry = usize::try_from(number).ok().and_then(|number| COMMANDS.get(number));
    entry.ok_or(crate::Errno::EINVAL)?.as_ref().ok_or(crate::Errno::ENOSYS)
}

#[cfg(test)]
mod tests;
