//! The structures that the driver, the program and the device share. Names and layouts are those of
//! the driver's `erdma_hw.h` (dual BSD and GPL); commands are without the header that all begin with.

use zerocopy::big_endian;
use zerocopy::little_endian::U16;
use zerocopy::little_endian::U32;
use zerocopy::little_endian::U64;

use crate::layout::layout;

layout! {
    /// `erdma_cmdq_create_eq_req`.
    CreateEq { address: U64, vector: u8, eqn: u8, depth: u8, kind: u8, record_low: U32, record_high: U32 }
    /// `erdma_cmdq_destroy_eq_req`.
    DestroyEq { reserved: U64, vector: u8, eqn: u8, reserved2: u8, kind: u8 }
    /// `erdma_cmdq_ext_db_req`.
    ExtDb { cfg: U32, rdb: U16, sdb: U16, reserved: U16, cdb: U16 }
    /// `erdma_cmdq_create_cq_req`.
    CreateCq {
        cfg0: U32, address_low: U32, address_high: U32, cfg1: U32,
        record: U64, first_page_offset: U32, cfg2: U32,
    }
    /// `erdma_cmdq_reg_mr_req`.
    RegMr { cfg0: U32, cfg1: U32, start: U64, size: U32, cfg2: U32, pages: [U64; 4] }
    /// The commands that name one object: `erdma_cmdq_dereg_mr_req`, `erdma_cmdq_destroy_cq_req`,
    /// `erdma_cmdq_destroy_qp_req` and `erdma_cmdq_query_qp_req_rocev2`.
    Number { number: U32 }
    /// `erdma_cmdq_create_qp_req`. Before Linux 6.3 the last eight fields were missing, and before 6.14 the
    /// last one.
    CreateQp {
        cfg0: U32, cfg1: U32, sq_cqn: U32, rq_cqn: U32,
        sq_address: U64, rq_address: U64, sq_mtt: U32, rq_mtt: U32,
        sq_record: U64, rq_record: U64,
        sq_more: [U64; 3], rq_more: [U64; 3], doorbells: U32, cfg2: U32,
    }
    /// `erdma_cmdq_modify_qp_req`: addresses and ports are as the network has them.
    ModifyTcp {
        cfg: U32, cookie: U32, to: [u8; 4], from: [u8; 4],
        from_port: [u8; 2], to_port: [u8; 2], send_next: U32, receive_next: U32,
    }
    /// `erdma_av_cfg`.
    Route {
        cfg: U32, traffic_class: u8, hop_limit: u8, service_level: u8, reserved: u8,
        source_port: U16, gid_index: U16, mac: [u8; 6], reserved2: [u8; 2], gid: [u8; 16],
    }
    /// `erdma_cmdq_mod_qp_req_rocev2`.
    ModifyRoce {
        cfg0: U32, cfg1: U32, mask: U32, key: U32, receive_psn: U32, send_psn: U32, route: Route,
    }
    /// `erdma_cmdq_create_ah_req`, and the beginning of it `erdma_cmdq_destroy_ah_req`.
    CreateAh { pd: U32, number: U32, route: Route }
    /// `erdma_cmdq_destroy_ah_req`.
    DestroyAh { pd: U32, number: U32 }
    /// `erdma_cmdq_set_gid_req`.
    SetGid { cfg: U32, gid: [u8; 16] }
    /// `erdma_cmdq_query_req`.
    Query { reserved: U32, index: U32, to: U64, length: U32 }
    /// `erdma_cmdq_reflush_req`.
    Reflush { qpn: U32, sent: U32, posted: U32 }
    /// `erdma_cmdq_query_stats_resp`: its header, and what it counts.
    Statistics { magic: U16, version: u8, length: u8, index: U32, reserved: [U32; 2], counts: [U64; 11] }
    /// `erdma_cqe`; its first word is published last.
    Cqe {
        head: big_endian::U32, index: big_endian::U32, qpn: big_endian::U32, immediate: U32,
        size: big_endian::U32, reserved: [big_endian::U32; 2], info: big_endian::U32,
    }
    /// `erdma_sge`.
    Sge { address: U64, length: U32, key: U32 }
    /// `erdma_rqe`.
    Rqe {
        index: U16, reserved: U16, qpn: U32, reserved2: U32, reserved3: U32,
        address: U64, length: U32, key: U32,
    }
    /// `erdma_send_sqe_rc` after its header, without the list; the word is immediate data as the network
    /// has it, or the key to invalidate.
    SendSqe { word: [u8; 4], length: U32 }
    /// `erdma_send_sqe_ud` after its header, without the list.
    DatagramSqe { word: [u8; 4], length: U32, key: U32, qpn: U32, handle: U32, reserved: U32 }
    /// `erdma_write_sqe` after its header, without the list.
    WriteSqe { word: [u8; 4], length: U32, key: U32, low: U32, high: U32, reserved: U32 }
    /// `erdma_readreq_sqe` after its header, and the peer's memory.
    ReadSqe { invalidate: U32, length: U32, key: U32, low: U32, high: U32, reserved: U32, remote: Sge }
    /// `erdma_atomic_sqe` after its header.
    AtomicSqe { reserved: U64, operand: U64, compare: U64, remote: Sge, local: Sge }
}

/// The size of a basic block of a send queue, and of the command queue.
pub(crate) const BLOCK: usize = 32;
/// The size of an entry of a receive queue.
pub(crate) const RQE: usize = 32;
/// The size of an entry of a completion queue.
pub(crate) const CQE: usize = 32;
/// The size of an entry of an event queue.
pub(crate) const EQE: usize = 16;

/// Bits of a word: from the lowest, so many.
pub(crate) fn bits(word: u32, low: u32, count: u32) -> u32 {
    word >> low & (u32::MAX >> (32 - count))
}

/// The same of a long word.
pub(crate) fn bits64(word: u64, low: u32, count: u32) -> u32 {
    u32::try_from(word >> low & (u64::MAX >> (64 - count.min(32)))).unwrap_or(0)
}

/// What a work request does, and what a completion tells of: `erdma_opcode`.
pub(crate) mod opcode {
    pub(crate) const WRITE: u8 = 0;
    pub(crate) const READ: u8 = 1;
    pub(crate) const SEND: u8 = 2;
    pub(crate) const SEND_IMMEDIATE: u8 = 3;
    pub(crate) const RECEIVE: u8 = 4;
    pub(crate) const RECEIVE_WRITE_IMMEDIATE: u8 = 5;
    pub(crate) const RECEIVE_INVALIDATE: u8 = 6;
    pub(crate) const WRITE_IMMEDIATE: u8 = 9;
    pub(crate) const RECEIVE_SEND_IMMEDIATE: u8 = 12;
    pub(crate) const SEND_INVALIDATE: u8 = 13;
    pub(crate) const COMPARE_SWAP: u8 = 17;
    pub(crate) const FETCH_ADD: u8 = 18;
}

/// How a work request ends: `erdma_wc_status`. The provider makes a remote access error of those that
/// begin with `RECEIVE`, and a local one of those that begin with `SEND`.
pub(crate) mod status {
    pub(crate) const OK: u8 = 0;
    pub(crate) const GENERAL: u8 = 1;
    pub(crate) const RECEIVE_KEY: u8 = 3;
    pub(crate) const RECEIVE_RANGE: u8 = 4;
    pub(crate) const SEND_FORMAT: u8 = 8;
    pub(crate) const SEND_KEY: u8 = 10;
    pub(crate) const FLUSHED: u8 = 15;
    pub(crate) const UNRESPONSIVE: u8 = 16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_drivers() {
        // Commands have a header of eight bytes, work requests too.
        assert_eq!(size_of::<CreateQp>() + 8, 120);
        assert_eq!(size_of::<CreateCq>() + 8, 40);
        assert_eq!(size_of::<RegMr>() + 8, 64);
        assert_eq!(size_of::<Route>(), 36);
        assert_eq!(size_of::<ModifyRoce>() + 8, 68);
        assert_eq!(size_of::<ModifyTcp>() + 8, 36);
        assert_eq!(size_of::<Cqe>(), CQE);
        assert_eq!(size_of::<Rqe>(), RQE);
        assert_eq!(size_of::<ReadSqe>() + 8, 48);
        assert_eq!(size_of::<AtomicSqe>() + 8, 64);
        assert_eq!(size_of::<Statistics>(), 104);
    }

    #[test]
    fn bits_are_cut_out() {
        assert_eq!(bits(0xabcd_1234, 8, 8), 0x12);
        assert_eq!(bits(0xabcd_1234, 0, 32), 0xabcd_1234);
        assert_eq!(bits64(0x0012_3456_0000_0000, 32, 20), 0x2_3456);
    }
}
