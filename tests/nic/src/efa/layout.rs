//! The structures that the driver, the program and the device share. Names and layouts are those of
//! the driver's `efa_admin_cmds_defs.h`, `efa_admin_defs.h` and `efa_io_defs.h` (dual BSD and GPL);
//! commands and responses are without the descriptor that all begin with.

use zerocopy::little_endian::U16;
use zerocopy::little_endian::U32;
use zerocopy::little_endian::U64;

use crate::layout::layout;

layout! {
    /// `efa_admin_aq_common_desc`: the first four bytes of a command.
    AqCommon { command_id: U16, opcode: u8, flags: u8 }
    /// `efa_admin_acq_common_desc`: the first eight bytes of a completion of the admin queue.
    AcqCommon { command: U16, status: u8, flags: u8, extended_status: U16, sq_head_indx: U16 }
    /// `efa_common_mem_addr`.
    MemAddr { low: U32, high: U32 }
    /// `efa_admin_ctrl_buff_info`: a buffer in guest memory.
    CtrlBuffInfo { length: U32, address: MemAddr }
    /// `efa_admin_create_qp_cmd`.
    CreateQp {
        pd: U16, qp_type: u8, flags: u8,
        sq_base_addr: U64, rq_base_addr: U64,
        send_cq_idx: U32, recv_cq_idx: U32,
        sq_l_key: U32, rq_l_key: U32,
        send_queue_ring_size: U32, send_queue_depth: U32,
        recv_queue_ring_size: U32, recv_queue_depth: U32,
        uar: U16, reserved: U16, reserved2: U32,
    }
    /// `efa_admin_create_qp_resp`.
    CreateQpResp {
        qp_handle: U32, qp_num: U16, reserved: U16,
        send_sub_cq_idx: U16, recv_sub_cq_idx: U16,
        sq_db_offset: U32, rq_db_offset: U32, llq_descriptors_offset: U32,
    }
    /// `efa_admin_modify_qp_cmd`.
    ModifyQp {
        modify_mask: U32, qp_handle: U32, qp_state: U32, cur_qp_state: U32,
        qkey: U32, sq_psn: U32, sq_drained_async_notify: u8, rnr_retry: u8, reserved: U16,
    }
    /// `efa_admin_query_qp_resp`.
    QueryQpResp { qp_state: U32, qkey: U32, sq_psn: U32, sq_draining: u8, rnr_retry: u8, reserved: U16 }
    /// `efa_admin_alloc_mr_cmd`.
    AllocMr { pd: U16, reserved: U16, max_pages: U32 }
    /// The commands that name a queue pair or a memory region only.
    Handle { handle: U32 }
    /// `efa_admin_create_ah_cmd`.
    CreateAh { dest_addr: [u8; 16], pd: U16, reserved: U16 }
    /// `efa_admin_destroy_ah_cmd`.
    DestroyAh { ah: U16, pd: U16 }
    /// `efa_admin_reg_mr_cmd`.
    RegMr {
        pd: U16, reserved: U16, pbl: [u8; 32], mr_length: U64,
        flags: u8, permissions: u8, reserved2: U16, page_num: U32, iova: U64,
    }
    /// `efa_admin_reg_mr_resp`.
    RegMrResp { l_key: U32, r_key: U32, validity: u8, recv_ic_id: u8, rdma_read_ic_id: u8, rdma_recv_ic_id: u8 }
    /// `efa_admin_create_cq_cmd`.
    CreateCq {
        caps_1: u8, caps_2: u8, cq_depth: U16, eqn: U16, reserved: U16,
        cq_ba: MemAddr, l_key: U32, num_sub_cqs: U16, uar: U16,
    }
    /// `efa_admin_create_cq_resp`.
    CreateCqResp { cq_idx: U16, cq_actual_depth: U16, db_offset: U32, flags: U32 }
    /// `efa_admin_aq_get_stats_cmd`.
    GetStats { control_buffer: CtrlBuffInfo, stats: u8, scope: u8, scope_modifier: U16 }
    /// `efa_admin_get_feature_cmd` and `efa_admin_set_feature_cmd`; the two words are those of
    /// `efa_admin_feature_aenq_desc`.
    Feature {
        control_buffer: CtrlBuffInfo, reserved0: u8, feature_id: u8, reserved: U16,
        supported_groups: U32, enabled_groups: U32,
    }
    /// The commands and responses that hold one number of an object.
    Number { number: U16, reserved: U16 }
    /// `efa_admin_create_eq_cmd`.
    CreateEq { depth: U16, msix_vec: u8, caps: u8, ba: MemAddr, event_bitmask: U32, reserved: U32 }
    /// `efa_admin_feature_device_attr_desc`.
    DeviceAttr {
        supported_features: U64, page_size_cap: U64,
        fw_version: U32, admin_api_version: U32, device_version: U32,
        db_bar: U16, phys_addr_width: u8, virt_addr_width: u8,
        device_caps: U32, max_rdma_size: U32, guid: U64,
        max_link_speed_gbps: U16, reserved: U16, reserved2: U32,
    }
    /// `efa_admin_feature_queue_attr_desc`.
    QueueAttr {
        max_qp: U32, max_sq_depth: U32, inline_buf_size: U32, max_rq_depth: U32,
        max_cq: U32, max_cq_depth: U32,
        sub_cqs_per_cq: U16, min_sq_depth: U16, max_wr_send_sges: U16, max_wr_recv_sges: U16,
        max_mr: U32, max_mr_pages: U32, max_pd: U32, max_ah: U32, max_llq_size: U32,
        max_wr_rdma_sges: U16, max_tx_batch: U16,
    }
    /// `efa_admin_event_queue_attr_desc`.
    EventQueueAttr { max_eq: U32, max_eq_depth: U32, event_bitmask: U32 }
    /// `efa_admin_feature_network_attr_desc`.
    NetworkAttr { addr: [u8; 16], mtu: U32 }
    /// `efa_admin_hw_hints`.
    HwHints {
        mmio_read_timeout: U16, driver_watchdog_timeout: U16,
        admin_completion_timeout: U16, poll_interval: U16,
    }
    /// `efa_admin_eqe` of a completion event; its first word is published last.
    Eqe { common: U32, reserved: U32, cqn: U16, reserved2: U16, reserved3: U32 }
    /// `efa_admin_aenq_entry`, without its inline data.
    AenqEntry { group: U16, syndrom: U16, flags: u8, reserved: [u8; 3], timestamp_low: U32, timestamp_high: U32 }
    /// `efa_io_tx_meta_desc` and the 32 bytes after it.
    TxWqe {
        req_id: U16, ctrl1: u8, ctrl2: u8, dest_qp_num: U16, length: U16,
        immediate_data: U32, ah: U16, reserved: U16, qkey: U32, reserved2: [u8; 12],
        data: [u8; 32],
    }
    /// `efa_io_tx_buf_desc`, and with a key of the peer's `efa_io_remote_mem_addr`.
    TxBuf { length: U32, key: U32, address: MemAddr }
    /// `efa_io_rx_desc`.
    RxDesc { address: MemAddr, req_id: U16, length: U16, lkey_ctrl: U32 }
    /// `efa_io_cdesc_common`; its first word is published last.
    Cdesc { req_id: U16, status: u8, flags: u8, qp_num: U16 }
    /// `efa_io_rx_cdesc` after the common part, and the 16 bytes of `efa_io_rx_cdesc_ex`.
    RxCdesc { length: U16, ah: U16, src_qp_num: U16, imm: U32, extension: [u8; 16] }
}

impl MemAddr {
    /// As one number.
    pub(crate) fn get(self) -> u64 {
        u64::from(self.low.get()) | u64::from(self.high.get()) << 32
    }
}

/// The size of an entry of the admin queue and of its completion queue.
pub(crate) const ADMIN_ENTRY: usize = 64;
/// The size of a send work request.
pub(crate) const WQE: usize = 64;
/// The size of a receive descriptor.
pub(crate) const RX_DESC: usize = 16;
/// The size of an entry of an event queue.
pub(crate) const EQE: usize = 16;
/// The size of an entry of the queue of asynchronous events.
pub(crate) const AENQ_ENTRY: usize = 64;

/// Why a command fails: `efa_admin_aq_completion_status`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Status {
    /// There are too many of these.
    ResourceAllocationFailure = 1,
    /// No such command.
    BadOpcode = 2,
    /// A command, or a feature, that this device has not.
    UnsupportedOpcode = 3,
    /// The command, or memory that it names, cannot be read.
    MalformedRequest = 4,
    /// A value that is none.
    IllegalParameter = 5,
    /// Others still use it.
    ResourceBusy = 7,
}

/// How a work request ends: `efa_io_comp_status`.
pub(crate) mod completion {
    pub(crate) const OK: u8 = 0;
    pub(crate) const FLUSHED: u8 = 1;
    pub(crate) const QP_INTERNAL: u8 = 2;
    pub(crate) const INVALID_OP_TYPE: u8 = 3;
    pub(crate) const INVALID_AH: u8 = 4;
    pub(crate) const INVALID_LKEY: u8 = 5;
    pub(crate) const BAD_LENGTH: u8 = 6;
    pub(crate) const REMOTE_BAD_ADDRESS: u8 = 7;
    pub(crate) const REMOTE_BAD_DEST_QPN: u8 = 9;
    pub(crate) const REMOTE_RNR: u8 = 10;
    pub(crate) const REMOTE_BAD_LENGTH: u8 = 11;
    pub(crate) const UNRESPONSIVE: u8 = 13;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_drivers() {
        assert_eq!(size_of::<CreateQp>(), ADMIN_ENTRY - 4);
        assert_eq!(size_of::<RegMr>(), ADMIN_ENTRY - 4);
        assert_eq!(size_of::<DeviceAttr>(), 56);
        assert_eq!(size_of::<QueueAttr>(), 56);
        assert_eq!(size_of::<TxWqe>(), WQE);
        assert_eq!(size_of::<RxDesc>(), RX_DESC);
        assert_eq!(size_of::<Eqe>(), EQE);
        assert_eq!(size_of::<Cdesc>() + size_of::<RxCdesc>(), 32);
    }
}
