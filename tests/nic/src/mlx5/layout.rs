//! Where the fields of the device's structures are. The names are those of `mlx5_ifc.h`.

use super::bits::Field;

const fn at(bit: usize, width: usize) -> Field {
    Field::new(bit, width)
}

/// The head of each command and of each answer.
pub(super) mod command {
    use super::*;
    pub(in super::super) const OPCODE: Field = at(0x00, 0x10);
    pub(in super::super) const UID: Field = at(0x10, 0x10);
    pub(in super::super) const OP_MOD: Field = at(0x30, 0x10);
    /// Of most commands: which object is meant; and of most answers: which was made.
    pub(in super::super) const NUMBER: Field = at(0x48, 0x18);
    pub(in super::super) const STATUS: Field = at(0x00, 0x08);
    /// Where lists of pages begin in the commands that make queues and keys.
    pub(in super::super) const PAGES: usize = 0x880;
    /// Where the context is in commands about completion queues, event queues, keys and XRC's SRQs.
    pub(in super::super) const CONTEXT: usize = 0x80;
    pub(in super::super) const CONTEXT_END: usize = 0x280;
    /// Where the context of a queue pair is.
    pub(in super::super) const QPC: usize = 0xc0;
    pub(in super::super) const QPC_END: usize = 0x800;
    pub(in super::super) const OPTIONS: Field = at(0x80, 0x20);
    /// Where the work queue of a receive memory pool is.
    pub(in super::super) const WQ: usize = 0x280;
}

/// `qpc`, the context of a queue pair.
pub(super) mod qpc {
    use super::*;
    pub(in super::super) const STATE: Field = at(0x0, 0x4);
    pub(in super::super) const ST: Field = at(0x8, 0x8);
    pub(in super::super) const PD: Field = at(0x28, 0x18);
    pub(in super::super) const PM_STATE: Field = at(0x13, 0x2);
    pub(in super::super) const MTU: Field = at(0x40, 0x3);
    pub(in super::super) const LOG_RQ_SIZE: Field = at(0x49, 0x4);
    pub(in super::super) const LOG_RQ_STRIDE: Field = at(0x4d, 0x3);
    pub(in super::super) const NO_SQ: Field = at(0x50, 0x1);
    pub(in super::super) const LOG_SQ_SIZE: Field = at(0x51, 0x4);
    pub(in super::super) const UAR_PAGE: Field = at(0x68, 0x18);
    pub(in super::super) const COUNTER_SET: Field = at(0x60, 0x8);
    pub(in super::super) const USER_INDEX: Field = at(0x88, 0x18);
    pub(in super::super) const LOG_PAGE_SIZE: Field = at(0xa3, 0x5);
    pub(in super::super) const REMOTE_QPN: Field = at(0xa8, 0x18);
    pub(in super::super) const PKEY_INDEX: Field = at(0xd0, 0x10);
    pub(in super::super) const GRH: Field = at(0xe8, 0x1);
    pub(in super::super) const RLID: Field = at(0xf0, 0x10);
    pub(in super::super) const ACK_TIMEOUT: Field = at(0x100, 0x5);
    pub(in super::super) const SL: Field = at(0x1e4, 0x4);
    pub(in super::super) const PORT: Field = at(0x1e8, 0x8);
    pub(in super::super) const GID_HIGH: Field = at(0x140, 0x40);
    pub(in super::super) const GID_LOW: Field = at(0x180, 0x40);
    pub(in super::super) const LOG_SRA_MAX: Field = at(0x388, 0x3);
    pub(in super::super) const RETRY_COUNT: Field = at(0x38d, 0x3);
    pub(in super::super) const RNR_RETRY: Field = at(0x390, 0x3);
    pub(in super::super) const NEXT_SEND_PSN: Field = at(0x3c8, 0x18);
    pub(in super::super) const CQN_SND: Field = at(0x3e8, 0x18);
    pub(in super::super) const LOG_RRA_MAX: Field = at(0x488, 0x3);
    pub(in super::super) const RRE: Field = at(0x490, 0x1);
    pub(in super::super) const RWE: Field = at(0x491, 0x1);
    pub(in super::super) const RAE: Field = at(0x492, 0x1);
    pub(in super::super) const PAGE_OFFSET: Field = at(0x494, 0x6);
    pub(in super::super) const MIN_RNR_NAK: Field = at(0x4a3, 0x5);
    pub(in super::super) const NEXT_RCV_PSN: Field = at(0x4a8, 0x18);
    pub(in super::super) const CQN_RCV: Field = at(0x4e8, 0x18);
    pub(in super::super) const DBR_ADDR: Field = at(0x500, 0x40);
    pub(in super::super) const Q_KEY: Field = at(0x540, 0x20);
    pub(in super::super) const RQ_TYPE: Field = at(0x565, 0x3);
    pub(in super::super) const SRQN: Field = at(0x568, 0x18);
    /// The record of doorbells is in memory that a program has registered for that; and in which.
    pub(in super::super) const DBR_UMEM_VALID: Field = at(0x683, 0x1);
    pub(in super::super) const DBR_UMEM_ID: Field = at(0x720, 0x20);
}

/// Commands about sets of counters.
pub(super) mod set {
    use super::*;
    pub(in super::super) const NUMBER: Field = at(0x58, 0x8);
    pub(in super::super) const CLEAR: Field = at(0xc0, 0x1);
    pub(in super::super) const ASKED: Field = at(0xf8, 0x8);
    /// Bytes of `query_q_counter_out`.
    pub(in super::super) const ANSWER: usize = 0x100;
}

/// `cqc`, the context of a completion queue.
pub(super) mod cqc {
    use super::*;
    pub(in super::super) const DBR_UMEM_VALID: Field = at(0x6, 0x1);
    pub(in super::super) const CQE_SZ: Field = at(0x8, 0x3);
    pub(in super::super) const DBR_UMEM_ID: Field = at(0x20, 0x20);
    pub(in super::super) const PAGE_OFFSET: Field = at(0x54, 0x6);
    pub(in super::super) const LOG_CQ_SIZE: Field = at(0x63, 0x5);
    pub(in super::super) const UAR_PAGE: Field = at(0x68, 0x18);
    pub(in super::super) const EQN: Field = at(0xa0, 0x20);
    pub(in super::super) const LOG_PAGE_SIZE: Field = at(0xc3, 0x5);
    pub(in super::super) const DBR_ADDR: Field = at(0x1c0, 0x40);
}

/// `umem`, memory of a program's, for objects that the program makes by itself; as it is in the command.
pub(super) mod umem {
    use super::*;
    pub(in super::super) const LOG_PAGE_SIZE: Field = at(0x80 + 0x9b, 0x5);
    pub(in super::super) const PAGE_OFFSET: Field = at(0x80 + 0xa0, 0x20);
    pub(in super::super) const COUNT: Field = at(0x80 + 0xc0, 0x40);
    pub(in super::super) const LIST: usize = 0x180;
}

/// `eqc`, the context of an event queue.
pub(super) mod eqc {
    use super::*;
    pub(in super::super) const LOG_EQ_SIZE: Field = at(0x63, 0x5);
    pub(in super::super) const UAR_PAGE: Field = at(0x68, 0x18);
    pub(in super::super) const INTR: Field = at(0xb4, 0xc);
    pub(in super::super) const LOG_PAGE_SIZE: Field = at(0xc3, 0x5);
    /// In the command: the types of event that go there.
    pub(in super::super) const EVENTS: Field = at(0x2c0, 0x40);
    /// In the answer.
    pub(in super::super) const NUMBER: Field = at(0x58, 0x8);
}

/// `mkc`, the context of a memory key.
pub(super) mod mkc {
    use super::*;
    pub(in super::super) const FREE: Field = at(0x1, 0x1);
    pub(in super::super) const MODE_HIGH: Field = at(0x3, 0x3);
    /// Atomic, remote write, remote read, local write, local read.
    pub(in super::super) const RIGHTS: Field = at(0x11, 0x5);
    pub(in super::super) const MODE_LOW: Field = at(0x16, 0x2);
    pub(in super::super) const VARIANT: Field = at(0x38, 0x8);
    pub(in super::super) const LENGTH64: Field = at(0x60, 0x1);
    pub(in super::super) const PD: Field = at(0x68, 0x18);
    pub(in super::super) const START: Field = at(0x80, 0x40);
    pub(in super::super) const LENGTH: Field = at(0xc0, 0x40);
    pub(in super::super) const LOG_PAGE_SIZE: Field = at(0x1da, 0x6);
    /// In the command: how many times sixteen bytes of the list are there.
    pub(in super::super) const ACTUAL: Field = at(0x300, 0x20);
}

/// `xrc_srqc`, the context of a shared receive queue of XRC's.
pub(super) mod srqc {
    use super::*;
    pub(in super::super) const LOG_SIZE: Field = at(0x4, 0x4);
    pub(in super::super) const LOG_STRIDE: Field = at(0x25, 0x3);
    pub(in super::super) const PAGE_OFFSET: Field = at(0x40, 0x6);
    pub(in super::super) const LOG_PAGE_SIZE: Field = at(0x82, 0x6);
    pub(in super::super) const PD: Field = at(0xc8, 0x18);
    pub(in super::super) const DBR_ADDR: Field = at(0x140, 0x40);
}

/// `wq`, the work queue of a receive memory pool, which is how the driver makes other shared receive queues.
pub(super) mod wq {
    use super::*;
    pub(in super::super) const PAGE_OFFSET: Field = at(0x2b, 0x5);
    pub(in super::super) const LWM: Field = at(0x30, 0x10);
    pub(in super::super) const PD: Field = at(0x48, 0x18);
    pub(in super::super) const DBR_ADDR: Field = at(0x80, 0x40);
    pub(in super::super) const LOG_STRIDE: Field = at(0x10c, 0x4);
    pub(in super::super) const LOG_PAGE_SIZE: Field = at(0x113, 0x5);
    pub(in super::super) const LOG_SIZE: Field = at(0x11b, 0x5);
}

/// Commands about tables of rules by which packets are steered, counters, and changes of headers.
pub(super) mod steering {
    use super::*;
    pub(in super::super) const TYPE: Field = at(0x80, 0x8);
    pub(in super::super) const TABLE: Field = at(0xa8, 0x18);
    /// `flow_table_context`.
    pub(in super::super) const MISS_ACTION: Field = at(0xc4, 0x4);
    pub(in super::super) const LEVEL: Field = at(0xc8, 0x8);
    pub(in super::super) const LOG_SIZE: Field = at(0xd8, 0x8);
    pub(in super::super) const MISS_TABLE: Field = at(0xe8, 0x18);
    pub(in super::super) const MODIFY: Field = at(0x70, 0x10);
    /// Of a group: its first place and its last in the table; and its number.
    pub(in super::super) const FIRST: Field = at(0xe0, 0x20);
    pub(in super::super) const LAST: Field = at(0x120, 0x20);
    pub(in super::super) const GROUP: Field = at(0xc0, 0x20);
    /// Of a rule: its place in the table.
    pub(in super::super) const PLACE: Field = at(0x100, 0x20);
    /// Of counters and changes of headers: the number.
    pub(in super::super) const NUMBER: Field = at(0x40, 0x20);
    pub(in super::super) const BULK: Field = at(0x70, 0x10);
    pub(in super::super) const COUNTER_ASKED: Field = at(0xe0, 0x20);
    pub(in super::super) const HEADER_TYPE: Field = at(0x60, 0x8);
    pub(in super::super) const HEADER_ACTIONS: Field = at(0x78, 0x8);
    pub(in super::super) const HEADER_LIST: usize = 0x80;
}

/// `flow_context`, a rule, as it is in the command.
pub(super) mod fte {
    use super::*;
    pub(in super::super) const GROUP: Field = at(0x220, 0x20);
    pub(in super::super) const ACTION: Field = at(0x270, 0x10);
    pub(in super::super) const DESTINATION_COUNT: Field = at(0x288, 0x18);
    pub(in super::super) const COUNTER_COUNT: Field = at(0x2a8, 0x18);
    pub(in super::super) const HEADER: Field = at(0x2e0, 0x20);
    /// Where destinations begin, and behind them counters; and how long each is.
    pub(in super::super) const DESTINATIONS: usize = 0x1a00;
    pub(in super::super) const DESTINATION: usize = 0x40;
    pub(in super::super) const DESTINATION_TYPE: Field = at(0x0, 0x8);
    pub(in super::super) const DESTINATION_NUMBER: Field = at(0x8, 0x18);
    pub(in super::super) const COUNTER: Field = at(0x0, 0x20);
}

/// `cmd_hca_cap`, what the device can do.
#[rustfmt::skip]
pub(super) mod cap {
    use super::*;
    pub(in super::super) const SHARED_OBJECTS: Field = at(0x10, 0x1);
    pub(in super::super) const LOG_MAX_SRQ_SZ: Field = at(0x80, 0x8);
    pub(in super::super) const LOG_MAX_QP_SZ: Field = at(0x88, 0x8);
    pub(in super::super) const LOG_MAX_QP: Field = at(0x9b, 0x5);
    pub(in super::super) const LOG_MAX_SRQ: Field = at(0xab, 0x5);
    pub(in super::super) const LOG_MAX_CQ_SZ: Field = at(0xc8, 0x8);
    pub(in super::super) const LOG_MAX_CQ: Field = at(0xdb, 0x5);
    pub(in super::super) const LOG_MAX_EQ_SZ: Field = at(0xe0, 0x8);
    pub(in super::super) const LOG_MAX_MKEY: Field = at(0xea, 0x6);
    pub(in super::super) const LOG_MAX_EQ: Field = at(0xfc, 0x4);
    pub(in super::super) const LOG_MAX_MRW_SZ: Field = at(0x109, 0x7);
    pub(in super::super) const LOG_MAX_KLM_LIST_SIZE: Field = at(0x11a, 0x6);
    pub(in super::super) const LOG_MAX_RA_REQ_QP: Field = at(0x14a, 0x6);
    pub(in super::super) const LOG_MAX_RA_RES_QP: Field = at(0x15a, 0x6);
    pub(in super::super) const RTS2RTS_COUNTER_SET: Field = at(0x169, 0x1);
    pub(in super::super) const VPORT_COUNTERS: Field = at(0x181, 0x1);
    pub(in super::super) const RETRANSMISSION_COUNTERS: Field = at(0x182, 0x1);
    pub(in super::super) const MAX_QP_CNT: Field = at(0x186, 0xa);
    pub(in super::super) const IB_VIRT: Field = at(0x1a2, 0x1);
    pub(in super::super) const DEVICE_MEMORY: Field = at(0x1a8, 0x1);
    pub(in super::super) const LOCAL_CA_ACK_DELAY: Field = at(0x1ab, 0x5);
    pub(in super::super) const NUM_PORTS: Field = at(0x1b8, 0x8);
    pub(in super::super) const LOG_MAX_MSG: Field = at(0x1c3, 0x5);
    pub(in super::super) const CQE_VERSION: Field = at(0x1fc, 0x4);
    pub(in super::super) const IPOIB_ENHANCED_OFFLOADS: Field = at(0x203, 0x1);
    pub(in super::super) const UMR_MODIFY_ENTITY_SIZE_DISABLED: Field = at(0x207, 0x1);
    pub(in super::super) const UMR_INDIRECT_MKEY_DISABLED: Field = at(0x209, 0x1);
    pub(in super::super) const QOS: Field = at(0x21b, 0x1);
    pub(in super::super) const ATOMIC: Field = at(0x21e, 0x1);
    pub(in super::super) const CQ_MODERATION: Field = at(0x222, 0x1);
    pub(in super::super) const QKV: Field = at(0x236, 0x1);
    pub(in super::super) const PKV: Field = at(0x237, 0x1);
    pub(in super::super) const SET_DETH_SQPN: Field = at(0x238, 0x1);
    pub(in super::super) const XRC: Field = at(0x23c, 0x1);
    pub(in super::super) const UD: Field = at(0x23d, 0x1);
    pub(in super::super) const UC: Field = at(0x23e, 0x1);
    pub(in super::super) const RC: Field = at(0x23f, 0x1);
    pub(in super::super) const UAR_SZ: Field = at(0x24a, 0x6);
    pub(in super::super) const LOG_PG_SZ: Field = at(0x258, 0x8);
    pub(in super::super) const BF: Field = at(0x260, 0x1);
    pub(in super::super) const LOG_BF_REG_SIZE: Field = at(0x26b, 0x5);
    pub(in super::super) const MAX_WQE_SZ_SQ: Field = at(0x290, 0x10);
    pub(in super::super) const MAX_WQE_SZ_RQ: Field = at(0x2b0, 0x10);
    pub(in super::super) const LOG_MAX_TRANSPORT_DOMAIN: Field = at(0x323, 0x5);
    pub(in super::super) const LOG_MAX_PD: Field = at(0x32b, 0x5);
    pub(in super::super) const LOG_MAX_XRCD: Field = at(0x33b, 0x5);
    pub(in super::super) const BASIC_CYCLIC_RCV_WQE: Field = at(0x380, 0x1);
    pub(in super::super) const LOG_MAX_RMP: Field = at(0x383, 0x5);
    pub(in super::super) const GENERAL_OBJ_TYPES: Field = at(0x400, 0x40);
    pub(in super::super) const LOG_MAX_UCTX: Field = at(0x463, 0x5);
    pub(in super::super) const LOG_MAX_UMEM: Field = at(0x46b, 0x5);
    pub(in super::super) const MAX_NUM_EQS: Field = at(0x470, 0x10);
    pub(in super::super) const DEVICE_FREQUENCY_KHZ: Field = at(0x4e0, 0x20);
    pub(in super::super) const NUM_OF_UARS_PER_PAGE: Field = at(0x520, 0x20);
    pub(in super::super) const NATIVE_PORT_NUM: Field = at(0x608, 0x8);
}

/// `hca_vport_context`, an InfiniBand port.
pub(super) mod port {
    use super::*;
    pub(in super::super) const PHYSICAL_STATE: Field = at(0x110, 0x4);
    pub(in super::super) const STATE: Field = at(0x118, 0x4);
    pub(in super::super) const VPORT_STATE: Field = at(0x11c, 0x4);
    pub(in super::super) const SYSTEM_IMAGE_GUID: Field = at(0x140, 0x40);
    pub(in super::super) const PORT_GUID: Field = at(0x180, 0x40);
    pub(in super::super) const NODE_GUID: Field = at(0x1c0, 0x40);
    pub(in super::super) const CAP_MASK: Field = at(0x200, 0x20);
    /// Which of those may be changed; and, in a command, are.
    pub(in super::super) const CAP_MASK_SELECT: Field = at(0x220, 0x20);
    pub(in super::super) const LID: Field = at(0x300, 0x10);
    pub(in super::super) const SUBNET_TIMEOUT: Field = at(0x31b, 0x5);
    pub(in super::super) const SM_LID: Field = at(0x320, 0x10);
}
