//! The used part of librdmacm's interface, as rdma/rdma_cma.h declares it.

use std::ffi::c_int;
use std::ffi::c_void;
use std::net::IpAddr;
use std::net::SocketAddr;

use super::QueuePairAttr;
use super::RawContext;

/// `struct rdma_event_channel`.
#[repr(C)]
#[derive(Debug)]
pub struct Channel {
    pub fd: c_int,
}

/// The beginning of `struct rdma_cm_id`.
#[repr(C)]
#[derive(Debug)]
pub struct Id {
    pub verbs: *mut RawContext,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Debug)]
pub struct ConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// The beginning of `struct rdma_cm_event`, whose union has the member of connections.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    pub id: *mut Id,
    pub listen_id: *mut Id,
    pub kind: u32,
    pub status: c_int,
    pub conn: ConnParam,
}

/// `struct sockaddr_in` or `sockaddr_in6`, as long as `sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Address {
    family: u16,
    port: u16,
    /// `sin_addr`, or `sin6_flowinfo`.
    four: [u8; 4],
    sixteen: [u8; 16],
    scope: u32,
    rest: [u8; 100],
}

impl Address {
    pub(crate) fn new(of: SocketAddr) -> Self {
        let (family, four, sixteen) = match of.ip() {
            IpAddr::V4(ip) => (libc::AF_INET, ip.octets(), [0; 16]),
            IpAddr::V6(ip) => (libc::AF_INET6, [0; 4], ip.octets()),
        };
        let family = u16::try_from(family).unwrap_or(0);
        Self { family, port: of.port().to_be(), four, sixteen, scope: 0, rest: [0; 100] }
    }
}

pub(crate) type CreateEventChannel = unsafe extern "C" fn() -> *mut Channel;
pub(crate) type DestroyEventChannel = unsafe extern "C" fn(*mut Channel);
pub(crate) type GetCmEvent = unsafe extern "C" fn(*mut Channel, *mut *mut Event) -> c_int;
pub(crate) type AckCmEvent = unsafe extern "C" fn(*mut Event) -> c_int;
pub(crate) type CreateId =
    unsafe extern "C" fn(*mut Channel, *mut *mut Id, *mut c_void, c_int) -> c_int;
pub(crate) type OfId = unsafe extern "C" fn(*mut Id) -> c_int;
pub(crate) type BindAddr = unsafe extern "C" fn(*mut Id, *mut Address) -> c_int;
/// Of `rdma_listen` and `rdma_resolve_route`.
pub(crate) type OfIdAndNumber = unsafe extern "C" fn(*mut Id, c_int) -> c_int;
pub(crate) type ResolveAddr =
    unsafe extern "C" fn(*mut Id, *mut Address, *mut Address, c_int) -> c_int;
/// Of `rdma_connect` and `rdma_accept`.
pub(crate) type Connect = unsafe extern "C" fn(*mut Id, *mut ConnParam) -> c_int;
pub(crate) type InitQpAttr = unsafe extern "C" fn(*mut Id, *mut QueuePairAttr, *mut c_int) -> c_int;
pub(crate) type SetOption =
    unsafe extern "C" fn(*mut Id, c_int, c_int, *mut c_void, usize) -> c_int;
pub(crate) type GetSrcPort = unsafe extern "C" fn(*mut Id) -> u16;
