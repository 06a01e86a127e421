//! Commands about the device and its port, and those that give out numbers.

use super::Device;
use super::admin::Answer;
use super::admin::Refusal;
use super::admin::Reply;
use super::admin::Request;
use super::bits::Field;
use super::device_memory;
use super::devx;
use super::layout::cap;
use super::layout::port;
use super::limits;
use super::objects::Numbers;
use super::steering;

/// Capabilities begin here in a command and in an answer, and are so many bytes.
const CAPABILITIES: usize = 16;
const CAPABILITIES_SIZE: usize = 4096;
/// Kinds of capabilities: `MLX5_CAP_GENERAL`, `MLX5_CAP_ATOMIC`, `MLX5_CAP_IPOIB_ENHANCED_OFFLOADS` (there are
/// none), `MLX5_CAP_FLOW_TABLE`, `MLX5_CAP_QOS`, `MLX5_CAP_DEV_MEM` and `MLX5_CAP_VDPA_EMULATION`.
const GENERAL: u32 = 0;
const ATOMIC: u32 = 3;
const OFFLOADS: u32 = 6;
const TABLES: u32 = 7;
const RATES: u32 = 0xc;
const MEMORY: u32 = 0xf;
const EMULATION: u32 = 0x13;
/// `MLX5_OBJ_TYPE_VIRTIO_NET_Q`. The device has doorbells of such queues, and makes none.
const VIRTIO_QUEUE: u32 = 0xd;
/// `atomic_caps`: answers in the processor's order are possible and, once the driver has set it, made;
/// compare and swap, and fetch and add, of eight bytes.
const HOST_ORDER: Field = Field::new(0x40, 2);
const HOST_ORDER_SUPPORTED: Field = Field::new(0x46, 1);
const OPERATIONS: Field = Field::new(0x90, 0x10);
const SIZES: Field = Field::new(0xb0, 0x10);
/// `qos_cap`: rates that packets are paced with, also those of a program's own; from the lowest to the
/// highest, in kilobits per second; and how many.
#[rustfmt::skip]
const PACING: &[(Field, u64)] = &[
    (Field::new(0x00, 1), 1), (Field::new(0x0b, 1), 1),
    (Field::new(0x40, 0x20), 100_000_000), (Field::new(0x60, 0x20), 1000),
    (Field::new(0x90, 0x10), limits::RATES as u64),
];

/// What the device can do. Fields that are missing are zero: among those Ethernet, on-demand
/// paging and fast registration.
#[rustfmt::skip]
const CAN: &[(Field, u64)] = &[
    (cap::LOG_MAX_QP, limits::LOG_QP), (cap::LOG_MAX_QP_SZ, limits::LOG_QP_SIZE),
    (cap::LOG_MAX_CQ, limits::LOG_CQ), (cap::LOG_MAX_CQ_SZ, limits::LOG_CQ_SIZE),
    (cap::LOG_MAX_SRQ, limits::LOG_SRQ), (cap::LOG_MAX_SRQ_SZ, limits::LOG_SRQ_SIZE),
    (cap::LOG_MAX_RMP, limits::LOG_SRQ), (cap::BASIC_CYCLIC_RCV_WQE, 1),
    (cap::LOG_MAX_EQ, limits::LOG_EQ), (cap::LOG_MAX_EQ_SZ, limits::LOG_EQ_SIZE),
    (cap::MAX_NUM_EQS, limits::EQS),
    (cap::LOG_MAX_MKEY, limits::LOG_MKEY), (cap::LOG_MAX_KLM_LIST_SIZE, 0),
    (cap::LOG_MAX_MRW_SZ, 63),
    (cap::LOG_MAX_PD, limits::LOG_PD), (cap::LOG_MAX_XRCD, limits::LOG_PD),
    (cap::LOG_MAX_TRANSPORT_DOMAIN, limits::LOG_PD),
    (cap::LOG_MAX_UCTX, 8), (cap::LOG_MAX_UMEM, 12),
    (cap::GENERAL_OBJ_TYPES, 1 << devx::TUNNEL_OPTION | 1 << VIRTIO_QUEUE), (cap::QOS, 1), (cap::DEVICE_MEMORY, 1),
    // An InfiniBand port has tables of rules for packets if it has this; programs may name such tables.
    (cap::IPOIB_ENHANCED_OFFLOADS, 1), (cap::SHARED_OBJECTS, 1),
    (cap::LOG_MAX_RA_REQ_QP, limits::LOG_READS), (cap::LOG_MAX_RA_RES_QP, limits::LOG_READS),
    (cap::LOG_MAX_MSG, limits::LOG_MESSAGE),
    (cap::MAX_WQE_SZ_SQ, limits::SEND_WQE), (cap::MAX_WQE_SZ_RQ, limits::RECEIVE_WQE),
    (cap::NUM_PORTS, 1), (cap::NATIVE_PORT_NUM, 1), (cap::IB_VIRT, 1),
    (cap::VPORT_COUNTERS, 1), (cap::MAX_QP_CNT, limits::COUNTER_SETS as u64),
    (cap::RTS2RTS_COUNTER_SET, 1), (cap::RETRANSMISSION_COUNTERS, 1),
    (cap::LOCAL_CA_ACK_DELAY, 16), (cap::LOG_PG_SZ, 12),
    (cap::RC, 1), (cap::UC, 1), (cap::UD, 1), (cap::XRC, 1), (cap::ATOMIC, 1), (cap::CQ_MODERATION, 1),
    (cap::PKV, 1), (cap::QKV, 1), (cap::SET_DETH_SQPN, 1), (cap::CQE_VERSION, 1),
    (cap::BF, 1), (cap::LOG_BF_REG_SIZE, limits::LOG_BLUE_FLAME),
    // In megabytes, as a power of two: not used by the driver, as the next.
    (cap::UAR_SZ, 3), (cap::NUM_OF_UARS_PER_PAGE, 1),
    (cap::DEVICE_FREQUENCY_KHZ, limits::KILOHERTZ),
    // Keys come with their pages; work requests of the driver's change rights and protection domains alone.
    (cap::UMR_MODIFY_ENTITY_SIZE_DISABLED, 1), (cap::UMR_INDIRECT_MKEY_DISABLED, 1),
];

/// `device_mem_cap`: that there is some; the least of a part, as a power of two; where it is in the BAR, how
/// much, and the most that one part may have.
#[rustfmt::skip]
const DEVICE_MEMORY: &[(Field, u64)] = &[
    (Field::new(0x00, 1), 1), (Field::new(0x2b, 5), 6),
    (Field::new(0x40, 0x40), limits::DEVICE_MEMORY),
    (Field::new(0x80, 0x20), limits::DEVICE_MEMORY_SIZE), (Field::new(0xa0, 0x20), limits::DEVICE_MEMORY_SIZE),
    (Field::new(0x200, 0x20), 1 << device_memory::INCREMENT),
];

/// `virtio_emulation_cap`: where the doorbells are, how far apart, and how much there is, in pages; no queues.
#[rustfmt::skip]
const VIRTIO: &[(Field, u64)] = &[
    (Field::new(0x33, 5), 12), (Field::new(0x3b, 5), limits::LOG_VIRTIO_PAGES),
    (Field::new(0x40, 0x40), limits::VIRTIO_DOORBELLS),
];

/// `MLX5_PAGES_GIVE` and `MLX5_PAGES_TAKE`, which the driver gets back; the other says that there are none.
const PAGES_GIVEN: u32 = 1;
const PAGES_BACK: u32 = 2;
const PAGES_CANNOT: u32 = 0;
const BOOT: u32 = 1;
const FUNCTION_PAGES: Field = Field::new(0x60, 0x20);
const PAGES_RETURNED: Field = Field::new(0x40, 0x20);
const PAGES_LIST: usize = 0x80;

/// A table of GIDs has one; one of keys of partitions has one, the default.
const GID_INDEX: Field = Field::new(0x70, 0x10);
const GIDS: Field = Field::new(0x60, 0x10);
const ALL: u64 = 0xffff;
const PARTITION: u16 = 0xffff;
const PORT: usize = 16;
const PORT_SIZE: usize = 512;
/// A subnet has a prefix, this one that of link-local addresses.
const PREFIX: u64 = 0xfe80 << 48;
/// `IB_PORT_CM_SUP`, `IB_PORT_SYS_IMAGE_GUID_SUP` and `IB_PORT_AUTO_MIGR_SUP`.
pub(super) const PORT_CAPABILITIES: u64 = 1 << 16 | 1 << 11 | 1 << 3;
/// `IB_PORT_CM_SUP` may be changed.
const PORT_CHANGES: u64 = 1 << 16;
/// Active, and the link is up.
const ACTIVE: u64 = 4;
const LINK_UP: u64 = 5;

/// Registers: `MLX5_REG_PMTU` and others.
const REGISTER: Field = Field::new(0x50, 0x10);
const REGISTER_DATA: usize = 16;
const PMTU: u32 = 0x5003;
const PTYS: u32 = 0x5004;
const PVLC: u32 = 0x500f;
const NODE_DESC: u32 = 0x6001;
const HOST_ENDIANNESS: u32 = 0x7004;
/// Four lanes of EDR, 100 Gb/s: `ib_link_width_oper` and `ib_proto_oper`, and what is possible.
const WIDTHS: [Field; 3] =
    [Field::new(0x80, 0x10), Field::new(0xe0, 0x10), Field::new(0x140, 0x10)];
const SPEEDS: [Field; 3] =
    [Field::new(0x90, 0x10), Field::new(0xf0, 0x10), Field::new(0x150, 0x10)];
const FOUR_LANES: u64 = 1 << 2;
const EDR: u64 = 1 << 5;
/// `max_mtu`, `admin_mtu` and `oper_mtu`.
const MTUS: [Field; 3] = [Field::new(0x20, 0x10), Field::new(0x40, 0x10), Field::new(0x60, 0x10)];
const MTU: u64 = 4096;
/// `vl_hw_cap`, `vl_admin` and `vl_operational`: one lane.
const LANES: [Field; 3] = [Field::new(0x3c, 4), Field::new(0x5c, 4), Field::new(0x7c, 4)];

/// `ieee_vendor_id` and where `vsd_contd_psid` is.
const VENDOR: Field = Field::new(0x148, 0x18);
const MELLANOX: u64 = 0x2c9;
const BOARD: usize = 0x100;
const BOARD_NAME: &[u8] = b"VGT0000000001";
/// `supported_issi_dw0` and `current_issi`.
const ISSI_SUPPORTED: Field = Field::new(0x360, 0x20);
const ISSI: Field = Field::new(0x50, 0x10);
/// `resd_lkey`, the key of all memory.
const RESERVED_KEY: Field = Field::new(0x60, 0x20);
const NO_KEY: u64 = 0x100;

impl Device {
    /// What the device can do of a kind, at most or now.
    pub(super) fn query_hca_cap(&mut self, request: &Request) -> Answer {
        let mut bytes = vec![0; CAPABILITIES_SIZE];
        match request.op_mod() >> 1 {
            GENERAL => CAN.iter().for_each(|(field, value)| field.set(&mut bytes, *value)),
            ATOMIC => {
                HOST_ORDER_SUPPORTED.set(&mut bytes, 1);
                OPERATIONS.set(&mut bytes, 3);
                SIZES.set(&mut bytes, 1 << 3);
            }
            MEMORY => DEVICE_MEMORY.iter().for_each(|(field, value)| field.set(&mut bytes, *value)),
            OFFLOADS => {}
            TABLES => {
                steering::TABLES.iter().for_each(|(field, value)| field.set(&mut bytes, *value))
            }
            EMULATION => VIRTIO.iter().for_each(|(field, value)| field.set(&mut bytes, *value)),
            RATES => PACING.iter().for_each(|(field, value)| field.set(&mut bytes, *value)),
            _ => return Err(Refusal::Parameter),
        }
        // What the driver has set stays as it is: none of that changes what this device does.
        let now = request.op_mod() & 1 == 1;
        match (self.settings.get(&(request.op_mod() >> 1)).filter(|_| now), request.op_mod() >> 1) {
            (Some(set), GENERAL) => bytes.clone_from(set),
            // The driver sets one field of these, and leaves the others out.
            (Some(set), _) => HOST_ORDER.copy(set, &mut bytes),
            (None, _) => {}
        }
        Reply::sized(CAPABILITIES).put(CAPABILITIES, &bytes).ok()
    }

    pub(super) fn set_hca_cap(&mut self, request: &Request) -> Answer {
        let kind = request.op_mod() >> 1;
        if !matches!(kind, GENERAL | ATOMIC) {
            return Err(Refusal::Parameter);
        }
        let end = CAPABILITIES + CAPABILITIES_SIZE;
        let bytes = request.bytes.get(CAPABILITIES..end).ok_or(Refusal::Length)?;
        self.settings.insert(kind, bytes.to_vec());
        Reply::done()
    }

    pub(super) fn query_adapter(&mut self, _: &Request) -> Answer {
        Reply::sized(BOARD).with(VENDOR, MELLANOX).put(BOARD, BOARD_NAME).ok()
    }

    pub(super) fn query_issi(&mut self, _: &Request) -> Answer {
        Reply::sized(112).with(ISSI_SUPPORTED, 0b11).with(ISSI, self.issi.into()).ok()
    }

    pub(super) fn set_issi(&mut self, request: &Request) -> Answer {
        self.issi = match request.get(ISSI) {
            0 => 0,
            1 => 1,
            _ => return Err(Refusal::Parameter),
        };
        Reply::done()
    }

    /// A driver that recovers from an error of the device's begins here, without having destroyed anything.
    pub(super) fn enable_hca(&mut self, _: &Request) -> Answer {
        self.forget();
        self.pages.clear();
        Reply::done()
    }

    /// All objects are gone.
    pub(super) fn teardown_hca(&mut self, _: &Request) -> Answer {
        self.forget();
        Reply::done()
    }

    pub(super) fn query_pages(&mut self, request: &Request) -> Answer {
        let wanted = if request.op_mod() == BOOT { limits::BOOT_PAGES } else { limits::INIT_PAGES };
        Reply::sized(16).with(FUNCTION_PAGES, wanted).ok()
    }

    pub(super) fn manage_pages(&mut self, request: &Request) -> Answer {
        let count = usize::try_from(request.get(FUNCTION_PAGES)).unwrap_or(usize::MAX);
        match request.op_mod() {
            PAGES_GIVEN => {
                self.pages.extend(request.addresses(PAGES_LIST, count)?);
                Reply::done()
            }
            PAGES_BACK => {
                let room = request.room.saturating_sub(16) / 8;
                let count = count.min(room).min(self.pages.len());
                let back = self.pages.split_off(self.pages.len() - count);
                let bytes: Vec<u8> = back.iter().flat_map(|page| page.to_be_bytes()).collect();
                Reply::sized(16).with(PAGES_RETURNED, count as u64).put(16, &bytes).ok()
            }
            PAGES_CANNOT => Reply::done(),
            _ => Err(Refusal::Parameter),
        }
    }

    pub(super) fn query_special_contexts(&mut self, _: &Request) -> Answer {
        Reply::sized(32).with(RESERVED_KEY, NO_KEY).ok()
    }

    pub(super) fn query_port(&mut self, _: &Request) -> Answer {
        let mut bytes = vec![0; PORT_SIZE];
        for (field, value) in [
            (port::PHYSICAL_STATE, LINK_UP),
            (port::STATE, ACTIVE),
            (port::VPORT_STATE, ACTIVE),
            (port::SYSTEM_IMAGE_GUID, self.guid),
            (port::PORT_GUID, self.guid),
            (port::NODE_GUID, self.guid),
            (port::CAP_MASK, self.port_capabilities),
            (port::CAP_MASK_SELECT, PORT_CHANGES),
            (port::LID, self.lid.into()),
            // Nobody manages this subnet: each port has its LID from the beginning.
            (port::SM_LID, 0),
            (port::SUBNET_TIMEOUT, 18),
        ] {
            field.set(&mut bytes, value);
        }
        Reply::sized(PORT).put(PORT, &bytes).ok()
    }

    /// Changes what the port says of the software behind it.
    pub(super) fn modify_port(&mut self, request: &Request) -> Answer {
        let context = request.bytes.get(PORT..).ok_or(Refusal::Length)?;
        let select = port::CAP_MASK_SELECT.get(context);
        if select & !PORT_CHANGES != 0 {
            return Err(Refusal::Parameter);
        }
        let value = port::CAP_MASK.get(context);
        self.port_capabilities = self.port_capabilities & !select | value & select;
        Reply::done()
    }

    /// Messages and bytes of this port.
    pub(super) fn query_port_counter(&mut self, _: &Request) -> Answer {
        const RECEIVED: Field = Field::new(0x180, 0x40);
        const RECEIVED_BYTES: Field = Field::new(0x1c0, 0x40);
        const SENT: Field = Field::new(0x200, 0x40);
        const SENT_BYTES: Field = Field::new(0x240, 0x40);
        let counts = self.statistics;
        Reply::sized(0x80)
            .with(RECEIVED, counts.received)
            .with(RECEIVED_BYTES, counts.received_bytes)
            .with(SENT, counts.sent)
            .with(SENT_BYTES, counts.sent_bytes)
            .ok()
    }

    pub(super) fn query_gid(&mut self, request: &Request) -> Answer {
        let gid = [PREFIX.to_be_bytes(), self.guid.to_be_bytes()].concat();
        match request.get(GID_INDEX) {
            // The table has eight places.
            0 | ALL => Reply::sized(PORT).with(GIDS, 1).put(PORT, &gid).ok(),
            1..8 => Reply::sized(32).with(GIDS, 1).ok(),
            _ => Err(Refusal::Parameter),
        }
    }

    pub(super) fn query_pkey(&mut self, request: &Request) -> Answer {
        match request.get(GID_INDEX) {
            // `mlx5_ifc_pkey_bits`: a key is the second half of its entry.
            0 | ALL => Reply::sized(PORT).put(PORT, &u32::from(PARTITION).to_be_bytes()).ok(),
            1..128 => Reply::sized(PORT + 4).ok(),
            _ => Err(Refusal::Parameter),
        }
    }

    /// Registers that the driver reads, and the one that it writes.
    pub(super) fn access_reg(&mut self, request: &Request) -> Answer {
        let mut bytes = request.bytes.get(REGISTER_DATA..).unwrap_or_default().to_vec();
        match request.word(REGISTER) {
            PTYS => {
                WIDTHS.iter().for_each(|field| field.set(&mut bytes, FOUR_LANES));
                SPEEDS.iter().for_each(|field| field.set(&mut bytes, EDR));
            }
            PMTU => MTUS.iter().for_each(|field| field.set(&mut bytes, MTU)),
            PVLC => LANES.iter().for_each(|field| field.set(&mut bytes, 1)),
            NODE_DESC => bytes = format!("verbgate {}", self.lid).into_bytes(),
            HOST_ENDIANNESS => {}
            other => {
                log::warn!("the driver asks for register {other:#x}");
                return Err(Refusal::Parameter);
            }
        }
        Reply::sized(16).put(REGISTER_DATA, &bytes).ok()
    }

    pub(super) fn alloc_uar(&mut self, _: &Request) -> Answer {
        give(&mut self.uars)
    }

    pub(super) fn dealloc_uar(&mut self, request: &Request) -> Answer {
        let uar = request.number();
        let used = self.eqs.values().any(|queue| queue.uar == uar);
        if used {
            return Err(Refusal::Busy);
        }
        take_back(&mut self.uars, uar)
    }

    pub(super) fn alloc_pd(&mut self, _: &Request) -> Answer {
        give(&mut self.pds)
    }

    pub(super) fn dealloc_pd(&mut self, request: &Request) -> Answer {
        let pd = request.number();
        let used = self.qps.values().any(|pair| pair.pd() == pd)
            || self.keys.values().any(|key| key.region.pd == pd && !key.physical);
        if used {
            return Err(Refusal::Busy);
        }
        take_back(&mut self.pds, pd)
    }

    pub(super) fn alloc_xrcd(&mut self, _: &Request) -> Answer {
        give(&mut self.xrcds)
    }

    pub(super) fn dealloc_xrcd(&mut self, request: &Request) -> Answer {
        take_back(&mut self.xrcds, request.number())
    }

    pub(super) fn alloc_domain(&mut self, _: &Request) -> Answer {
        give(&mut self.domains)
    }

    pub(super) fn dealloc_domain(&mut self, request: &Request) -> Answer {
        take_back(&mut self.domains, request.number())
    }
}

/// Gives out a number.
pub(super) fn give(numbers: &mut Numbers) -> Answer {
    Reply::number(numbers.take().ok_or(Refusal::Limit)?)
}

/// Takes a number back.
pub(super) fn take_back(numbers: &mut Numbers, number: u32) -> Answer {
    if numbers.release(number) { Reply::done() } else { Err(Refusal::Object) }
}
