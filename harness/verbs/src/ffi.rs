//! The used part of libibverbs' interface, as infiniband/verbs.h declares it. Since `IBVERBS_1.1`
//! of 2007 the interface has changed only at the ends of structures that the library allocates;
//! `tests/layout.rs` compares the declarations with the header of the machine.
#![allow(missing_docs, reason = "the fields are the header's")]

pub mod cm;
pub mod extended;

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_uint;
use std::ffi::c_void;

/// Only ever behind a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    _opaque: [u8; 0],
}

/// Only ever behind a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct ProtectionDomain {
    _opaque: [u8; 0],
}

pub type PollCq = unsafe extern "C" fn(*mut RawCompletionQueue, c_int, *mut Completion) -> c_int;
pub type ReqNotifyCq = unsafe extern "C" fn(*mut RawCompletionQueue, c_int) -> c_int;
pub type PostSend =
    unsafe extern "C" fn(*mut RawQueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int;
pub type PostReceive =
    unsafe extern "C" fn(*mut RawQueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int;

/// The beginning of `struct ibv_context`, with those of `struct ibv_context_ops` that the inline
/// functions of the header call.
#[repr(C)]
#[derive(Debug)]
pub struct RawContext {
    pub device: *mut Device,
    pub ops_0: [*mut c_void; 11],
    pub poll_cq: PollCq,
    pub req_notify_cq: ReqNotifyCq,
    pub ops_13: [*mut c_void; 12],
    pub post_send: PostSend,
    pub post_recv: PostReceive,
    pub ops_27: [*mut c_void; 5],
    pub cmd_fd: c_int,
    pub async_fd: c_int,
}

/// The beginning of `struct ibv_cq`.
#[repr(C)]
#[derive(Debug)]
pub struct RawCompletionQueue {
    pub context: *mut RawContext,
}

/// The beginning of `struct ibv_comp_channel`.
#[repr(C)]
#[derive(Debug)]
pub struct CompletionChannel {
    pub context: *mut RawContext,
    pub fd: c_int,
}

/// `struct ibv_mr`.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryRegion {
    pub context: *mut RawContext,
    pub pd: *mut ProtectionDomain,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// The beginning of `struct ibv_qp`.
#[repr(C)]
#[derive(Debug)]
pub struct RawQueuePair {
    pub context: *mut RawContext,
    pub qp_context: *mut c_void,
    pub pd: *mut ProtectionDomain,
    pub send_cq: *mut RawCompletionQueue,
    pub recv_cq: *mut RawCompletionQueue,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct DeviceAttr {
    pub fw_ver: [[u8; 32]; 2],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    pub rest: [c_int; 14],
    pub tail: u32,
}

/// The beginning of `struct ibv_port_attr`; what the exported function writes is no longer than
/// the whole.
#[repr(C)]
#[derive(Debug, Default)]
pub struct PortAttr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub rest: [u8; 14],
}

/// Only ever behind a pointer.
#[repr(C)]
#[derive(Debug)]
pub struct AddressHandle {
    _opaque: [u8; 0],
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePairCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct QueuePairInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut RawCompletionQueue,
    pub recv_cq: *mut RawCompletionQueue,
    pub srq: *mut c_void,
    pub cap: QueuePairCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

/// `struct ibv_ah_attr`, whose first part is `struct ibv_global_route`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct AddressAttr {
    // `union ibv_gid` is aligned as its numbers.
    pub dgid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub padding: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct QueuePairAttr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QueuePairCap,
    pub ah_attr: AddressAttr,
    pub alt_ah_attr: AddressAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`; its unions have the members of RDMA and atomic operations. Those of datagrams
/// lie at the same places: `ud.ah`, and `ud.remote_qpn` and `ud.remote_qkey` beside.
#[repr(C)]
#[derive(Debug, Default)]
pub struct SendRequest {
    pub wr_id: u64,
    pub next: *mut SendRequest,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub remote_addr: u64,
    /// `rdma.rkey` in its first half, or `atomic.compare_add`.
    pub compare_add: [u32; 2],
    pub swap: u64,
    pub atomic_rkey: u32,
    pub atomic_padding: u32,
    pub xrc_remote_srqn: u32,
    pub bind_mw: [u64; 6],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ReceiveRequest {
    pub wr_id: u64,
    pub next: *mut ReceiveRequest,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct Completion {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub(super) type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut Device;
pub(super) type FreeDeviceList = unsafe extern "C" fn(*mut *mut Device);
pub(super) type GetDeviceName = unsafe extern "C" fn(*mut Device) -> *const c_char;
pub(super) type OpenDevice = unsafe extern "C" fn(*mut Device) -> *mut RawContext;
pub(super) type CloseDevice = unsafe extern "C" fn(*mut RawContext) -> c_int;
pub(super) type QueryDevice = unsafe extern "C" fn(*mut RawContext, *mut DeviceAttr) -> c_int;
pub(super) type QueryPort = unsafe extern "C" fn(*mut RawContext, u8, *mut PortAttr) -> c_int;
pub(super) type QueryGid = unsafe extern "C" fn(*mut RawContext, u8, c_int, *mut [u64; 2]) -> c_int;
pub(super) type AllocPd = unsafe extern "C" fn(*mut RawContext) -> *mut ProtectionDomain;
pub(super) type DeallocPd = unsafe extern "C" fn(*mut ProtectionDomain) -> c_int;
pub(super) type RegMr =
    unsafe extern "C" fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
pub(super) type RegDmabufMr =
    unsafe extern "C" fn(*mut ProtectionDomain, u64, usize, u64, c_int, c_int) -> *mut MemoryRegion;
pub(super) type DeregMr = unsafe extern "C" fn(*mut MemoryRegion) -> c_int;
pub(super) type CreateCq = unsafe extern "C" fn(
    *mut RawContext,
    c_int,
    *mut c_void,
    *mut CompletionChannel,
    c_int,
) -> *mut RawCompletionQueue;
pub(super) type CreateCompChannel = unsafe extern "C" fn(*mut RawContext) -> *mut CompletionChannel;
pub(super) type DestroyCompChannel = unsafe extern "C" fn(*mut CompletionChannel) -> c_int;
pub(super) type GetCqEvent = unsafe extern "C" fn(
    *mut CompletionChannel,
    *mut *mut RawCompletionQueue,
    *mut *mut c_void,
) -> c_int;
pub(super) type AckCqEvents = unsafe extern "C" fn(*mut RawCompletionQueue, c_uint);
pub(super) type DestroyCq = unsafe extern "C" fn(*mut RawCompletionQueue) -> c_int;
pub(super) type CreateQp =
    unsafe extern "C" fn(*mut ProtectionDomain, *mut QueuePairInitAttr) -> *mut RawQueuePair;
pub(super) type ModifyQp =
    unsafe extern "C" fn(*mut RawQueuePair, *mut QueuePairAttr, c_int) -> c_int;
pub(super) type DestroyQp = unsafe extern "C" fn(*mut RawQueuePair) -> c_int;
pub(super) type CreateAh =
    unsafe extern "C" fn(*mut ProtectionDomain, *mut AddressAttr) -> *mut AddressHandle;
pub(super) type DestroyAh = unsafe extern "C" fn(*mut AddressHandle) -> c_int;
