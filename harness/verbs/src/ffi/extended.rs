//! The used part of queue pairs whose work requests are made by functions: `ibv_wr_post(3)`, and
//! `efadv_create_qp_ex(3)` of infiniband/efadv.h.

use std::ffi::c_int;
use std::ffi::c_uint;
use std::ffi::c_void;

use super::AddressHandle;
use super::ProtectionDomain;
use super::QueuePairCap;
use super::RawCompletionQueue;
use super::RawContext;
use super::RawQueuePair;
use super::Sge;

/// `struct ibv_qp`, all of it.
#[repr(C)]
#[derive(Debug)]
pub struct WholeQueuePair {
    pub beginning: RawQueuePair,
    pub state: c_uint,
    pub qp_type: c_uint,
    pub mutex: Unused<libc::pthread_mutex_t>,
    pub cond: Unused<libc::pthread_cond_t>,
    pub events_completed: u32,
}

/// Only there for its size.
#[repr(transparent)]
pub struct Unused<T>(T);

impl<T> std::fmt::Debug for Unused<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unused")
    }
}

pub type OfQueuePair = unsafe extern "C" fn(*mut QueuePairEx);
pub type Complete = unsafe extern "C" fn(*mut QueuePairEx) -> c_int;
pub type Remote = unsafe extern "C" fn(*mut QueuePairEx, u32, u64);
pub type RemoteImm = unsafe extern "C" fn(*mut QueuePairEx, u32, u64, u32);
pub type SendImm = unsafe extern "C" fn(*mut QueuePairEx, u32);
pub type SetAddress = unsafe extern "C" fn(*mut QueuePairEx, *mut AddressHandle, u32, u32);
pub type SetInline = unsafe extern "C" fn(*mut QueuePairEx, *mut c_void, usize);
pub type SetPieces = unsafe extern "C" fn(*mut QueuePairEx, usize, *const Sge);

/// `struct ibv_qp_ex` up to `wr_abort`. Of the functions the device sets those that it was asked for.
#[repr(C)]
#[derive(Debug)]
pub struct QueuePairEx {
    pub base: WholeQueuePair,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub atomics_and_windows: [*mut c_void; 4],
    pub wr_rdma_read: Option<Remote>,
    pub wr_rdma_write: Option<Remote>,
    pub wr_rdma_write_imm: Option<RemoteImm>,
    pub wr_send: Option<OfQueuePair>,
    pub wr_send_imm: Option<SendImm>,
    pub wr_send_others: [*mut c_void; 2],
    pub wr_set_ud_addr: Option<SetAddress>,
    pub wr_set_xrc_srqn: *mut c_void,
    pub wr_set_inline_data: Option<SetInline>,
    pub wr_set_inline_data_list: *mut c_void,
    pub wr_set_sge: *mut c_void,
    pub wr_set_sge_list: Option<SetPieces>,
    pub wr_start: Option<OfQueuePair>,
    pub wr_complete: Option<Complete>,
    pub wr_abort: Option<OfQueuePair>,
}

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
#[derive(Debug)]
pub struct InitAttrEx {
    pub qp_context: *mut c_void,
    pub send_cq: *mut RawCompletionQueue,
    pub recv_cq: *mut RawCompletionQueue,
    pub srq: *mut c_void,
    pub cap: QueuePairCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ProtectionDomain,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    /// `struct ibv_rx_hash_conf`.
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

/// `struct efadv_qp_init_attr`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct EfaInitAttr {
    pub comp_mask: u64,
    pub driver_qp_type: u32,
    pub flags: u16,
    pub sl: u8,
    pub reserved: u8,
}

pub(in super::super) type CreateEfaQp = unsafe extern "C" fn(
    *mut RawContext,
    *mut InitAttrEx,
    *mut EfaInitAttr,
    u32,
) -> *mut RawQueuePair;
pub(in super::super) type ToExtended = unsafe extern "C" fn(*mut RawQueuePair) -> *mut QueuePairEx;
