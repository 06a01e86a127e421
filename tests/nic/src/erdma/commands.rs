//! What the commands about the device, its queues of events, doorbells, and addresses do.

use zerocopy::IntoBytes as _;

use super::Device;
use super::Plug;
use super::Protocol;
use super::admin::Refusal;
use super::admin::Request;
use super::layout::CreateAh;
use super::layout::CreateEq;
use super::layout::DestroyAh;
use super::layout::DestroyEq;
use super::layout::ExtDb;
use super::layout::Number;
use super::layout::Query;
use super::layout::Reflush;
use super::layout::SetGid;
use super::layout::Statistics;
use super::layout::bits;
use super::limits;
use super::objects::AddressHandle;
use super::objects::EventQueue;
use super::objects::Kind;
use super::objects::State;
use super::registers::COMMAND_EQ;
use crate::wire::Address;

/// `ERDMA_DEV_CAP_FLAGS_ATOMIC`, `_MTT_VA` and `_EXTEND_DB`.
const CAPABILITIES: u64 = 1 << 7 | 1 << 5 | 1 << 3;
/// The firmware's version, 0.1.1.
const FIRMWARE: u64 = 1 << 16 | 1;
/// `ERDMA_HW_RESP_MAGIC`.
const MAGIC: u16 = 0x5566;
/// `ERDMA_CMD_SET_GID_OP_MASK`.
const REMOVE: u32 = 1 << 31;
/// `ERDMA_CMD_CONFIG_DEVICE_PGSHIFT_MASK`: the pages that doorbells are mapped in.
const PAGE_SHIFT: u32 = 12;

impl Device {
    pub(super) fn query_device(&mut self, _: &Request) -> Result<[u64; 2], Refusal> {
        let first = limits::MAX_GID_SHIFT << 48
            | limits::MAX_CQE_SHIFT << 40
            | CAPABILITIES << 24
            | limits::MAX_RECEIVE_SHIFT << 16
            | limits::MAX_AH_SHIFT << 8
            | limits::MAX_MR_SHIFT;
        let second = u64::from(limits::PHYSICAL_KEY) << 32 | limits::QP_BLOCKS << 16;
        Ok([first, second])
    }

    pub(super) fn query_firmware(&mut self, _: &Request) -> Result<[u64; 2], Refusal> {
        Ok([FIRMWARE, 0])
    }

    pub(super) fn conf_device(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let shift = bits(request.body::<Number>()?.number.get(), 0, 5);
        if shift != PAGE_SHIFT {
            return Err(Refusal::Malformed);
        }
        Ok([0; 2])
    }

    pub(super) fn create_eq(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: CreateEq = request.body()?;
        if command.eqn == COMMAND_EQ || command.eqn > limits::MAX_EQ || command.depth > 16 {
            return Err(Refusal::Malformed);
        }
        let queue = EventQueue {
            base: command.address.get(),
            depth: 1 << command.depth,
            vector: command.vector.into(),
            produced: 0,
            consumed: 0,
            armed: true,
            waiting: std::collections::VecDeque::new(),
        };
        self.eqs.insert(command.eqn, queue);
        Ok([0; 2])
    }

    pub(super) fn destroy_eq(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let eqn = request.body::<DestroyEq>()?.eqn;
        if eqn == COMMAND_EQ || eqn > limits::MAX_EQ {
            return Err(Refusal::Malformed);
        }
        self.eqs.remove(&eqn).map(|_| [0; 2]).ok_or(Refusal::Object)
    }

    /// Pages of doorbells for a context: of sends in bits 0 to 15, and two more above bit 32.
    pub(super) fn alloc_db(&mut self, _: &Request) -> Result<[u64; 2], Refusal> {
        let free = (0..limits::MAX_CONTEXTS).find(|context| !self.contexts.contains(context));
        let context = free.ok_or(Refusal::Full)?;
        self.contexts.insert(context);
        let page = limits::OWN_PAGES + u64::from(context) * 3;
        Ok([page | (page + 1) << 48 | (page + 2) << 32, 0])
    }

    pub(super) fn free_db(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let page = u64::from(request.body::<ExtDb>()?.sdb.get());
        let own = page.checked_sub(limits::OWN_PAGES).ok_or(Refusal::Object)?;
        let context = u16::try_from(own / 3).map_err(|_| Refusal::Object)?;
        if own % 3 != 0 || !self.contexts.remove(&context) {
            return Err(Refusal::Object);
        }
        Ok([0; 2])
    }

    pub(super) fn get_stats(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let query: Query = request.body()?;
        let counts = self.statistics;
        let statistics = Statistics {
            magic: MAGIC.into(),
            version: 0,
            length: 0,
            index: 0.into(),
            reserved: [0.into(); 2],
            counts: [
                counts.sent,
                counts.sent,
                counts.sent_bytes,
                0,
                0,
                0,
                counts.received,
                counts.received_bytes,
                0,
                0,
                0,
            ]
            .map(Into::into),
        };
        let bytes = statistics.as_bytes();
        let room = usize::try_from(query.length.get()).map_err(|_| Refusal::Malformed)?;
        let bytes = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        self.bus.write(query.to.get(), bytes).map_err(|_| Refusal::Malformed)?;
        Ok([0; 2])
    }

    pub(super) fn set_gid(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: SetGid = request.body()?;
        let cfg = command.cfg.get();
        let index = u16::try_from(bits(cfg, 0, 16)).map_err(|_| Refusal::Malformed)?;
        if u64::from(index) >= 1 << limits::MAX_GID_SHIFT {
            return Err(Refusal::Malformed);
        }
        if let Some(old) = self.gids.remove(&index) {
            self.plugs.push(Plug::Out(old));
        }
        if cfg & REMOVE == 0 {
            let address = Address(command.gid);
            self.gids.insert(index, address);
            self.plugs.push(Plug::In(address));
        }
        Ok([0; 2])
    }

    pub(super) fn create_ah(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: CreateAh = request.body()?;
        if self.protocol != Protocol::Roce {
            return Err(Refusal::Unknown);
        }
        let handle = AddressHandle {
            pd: command.pd.get(),
            gid_index: command.route.gid_index.get(),
            to: Address(command.route.gid),
        };
        self.ahs.insert(command.number.get(), handle);
        Ok([0; 2])
    }

    pub(super) fn destroy_ah(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: DestroyAh = request.body()?;
        self.ahs.remove(&command.number.get()).map(|_| [0; 2]).ok_or(Refusal::Object)
    }

    /// Ends all that the kernel has posted to a queue pair of its own that is in error.
    pub(super) fn reflush(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: Reflush = request.body()?;
        let pair = self.qps.get_mut(&command.qpn.get()).ok_or(Refusal::Object)?;
        if pair.state == State::Error && pair.privileged {
            pair.rung = u16::try_from(command.sent.get() & 0xffff).unwrap_or(0);
            pair.posted = u16::try_from(command.posted.get() & 0xffff).unwrap_or(0);
            self.pump(command.qpn.get());
            self.flush_receives(command.qpn.get());
        }
        Ok([0; 2])
    }

    /// The state and the numbers of messages: `ERDMA_CMD_QUERY_QP_RESP_SQ_PSN_MASK` and those after it.
    pub(super) fn query_qp(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let pair = self.qps.get(&request.body::<Number>()?.number.get()).ok_or(Refusal::Object)?;
        let psn = |id: u64| id & 0xff_ffff;
        let (send, receive) = match pair.kind {
            Kind::Connected => (psn(pair.send_id), psn(pair.receive_id)),
            Kind::Datagram => (psn(pair.send_id), 0),
        };
        Ok([send | receive << 24 | u64::from(pair.number) << 48, 0])
    }
}
