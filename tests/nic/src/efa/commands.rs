//! The commands that make and end objects.

use super::Device;
use super::admin::Request;
use super::admin::Response;
use super::layout::AllocMr;
use super::layout::CreateAh;
use super::layout::CreateCq;
use super::layout::CreateCqResp;
use super::layout::CreateEq;
use super::layout::CreateQp;
use super::layout::CreateQpResp;
use super::layout::DestroyAh;
use super::layout::EQE;
use super::layout::Handle;
use super::layout::ModifyQp;
use super::layout::Number;
use super::layout::QueryQpResp;
use super::layout::RegMr;
use super::layout::RegMrResp;
use super::layout::Status;
use super::limits;
use super::objects::AddressHandle;
use super::objects::CompletionQueue;
use super::objects::EventQueue;
use super::objects::Kind;
use super::objects::QueuePair;
use super::objects::RETRY_FOR_EVER;
use super::objects::state;
use super::slot;
use crate::region::Region;
use crate::wire::Address;

/// `efa_admin_create_cq_cmd`: interrupts, a ring at a virtual address; entry size, source addresses.
const CQ_INTERRUPTS: u8 = 1 << 5;
const CQ_VIRTUAL: u8 = 1 << 6;
const CQ_ENTRY_WORDS: u8 = 0x1f;
const CQ_SOURCE_ADDRESSES: u8 = 1 << 5;
/// `efa_admin_create_cq_resp.flags`: the doorbell's offset is valid.
const CQ_DOORBELL: u32 = 1;
/// `efa_admin_create_eq_cmd.caps`.
const EQ_ENTRY_WORDS: u8 = 0x1f;
/// `efa_admin_create_qp_cmd.flags`: rings at virtual addresses; writes that take no receive.
const QP_VIRTUAL: u8 = 0b11;
const QP_UNSOLICITED: u8 = 1 << 2;
/// `efa_admin_modify_qp_cmd.modify_mask`.
const MODIFY_STATE: u32 = 1;
const MODIFY_KEY: u32 = 1 << 2;
const MODIFY_PSN: u32 = 1 << 3;
const MODIFY_RNR_RETRY: u32 = 1 << 5;
/// All three interconnects in `efa_admin_reg_mr_resp` are known.
const INTERCONNECTS: u8 = 0b111;
/// Sizes of a receive descriptor and of a send work request.
const RX_DESC: u32 = 16;
const WQE: u32 = 64;
/// The interconnect by which the device reaches memory: there is one.
const INTERCONNECT: u8 = 1;

impl Device {
    pub(super) fn alloc_pd(&mut self, _request: &Request) -> Result<Response, Status> {
        Ok(number(self.pds.insert(|_| ())?))
    }

    pub(super) fn dealloc_pd(&mut self, request: &Request) -> Result<Response, Status> {
        let pd = named(request)?;
        let used = self.qps.iter().any(|(_, pair)| pair.pd == pd)
            || self.ahs.iter().any(|(_, handle)| handle.pd == pd)
            || self.regions.values().any(|region| region.pd == u32::from(pd));
        if used {
            return Err(Status::ResourceBusy);
        }
        self.pds.remove(pd).map(|()| Response::EMPTY)
    }

    pub(super) fn alloc_uar(&mut self, _request: &Request) -> Result<Response, Status> {
        Ok(number(self.uars.insert(|_| ())?))
    }

    pub(super) fn dealloc_uar(&mut self, request: &Request) -> Result<Response, Status> {
        self.uars.remove(named(request)?).map(|()| Response::EMPTY)
    }

    pub(super) fn create_ah(&mut self, request: &Request) -> Result<Response, Status> {
        let command: CreateAh = request.body()?;
        let (address, pd) = (Address(command.dest_addr), self.known_pd(command.pd.get())?);
        let same = self.ahs.iter().find(|(_, ah)| ah.address == address && ah.pd == pd);
        if let Some(ah) = same.map(|(ah, _)| ah) {
            self.ahs.get_mut(ah).ok_or(Status::IllegalParameter)?.users += 1;
            return Ok(number(ah));
        }
        Ok(number(self.ahs.insert(|_| AddressHandle { address, pd, users: 1 })?))
    }

    pub(super) fn destroy_ah(&mut self, request: &Request) -> Result<Response, Status> {
        let DestroyAh { ah, pd } = request.body()?;
        let handle = self.ahs.get_mut(ah.get()).filter(|handle| handle.pd == pd.get());
        let handle = handle.ok_or(Status::IllegalParameter)?;
        handle.users -= 1;
        if handle.users == 0 {
            self.ahs.remove(ah.get())?;
        }
        Ok(Response::EMPTY)
    }

    pub(super) fn reg_mr(&mut self, request: &Request) -> Result<Response, Status> {
        let command: RegMr = request.body()?;
        self.known_pd(command.pd.get())?;
        let region = Region::of(&command, request.listed(), &self.bus)?;
        let key = self.regions.insert(limits::MAX_MR, region)?.into();
        Ok(Response::of(&RegMrResp {
            l_key: key,
            r_key: key,
            validity: INTERCONNECTS,
            recv_ic_id: INTERCONNECT,
            rdma_read_ic_id: INTERCONNECT,
            rdma_recv_ic_id: INTERCONNECT,
        }))
    }

    /// A region for the kernel's own use, which maps it by work requests that no program can make: it
    /// has a key, and no memory.
    pub(super) fn alloc_mr(&mut self, request: &Request) -> Result<Response, Status> {
        let command: AllocMr = request.body()?;
        let pd = self.known_pd(command.pd.get())?;
        if command.max_pages.get() > limits::MAX_MR_PAGES {
            return Err(Status::IllegalParameter);
        }
        let key = self.regions.insert(limits::MAX_MR, Region::empty(pd))?;
        Ok(Response::of(&[key.to_le(), key.to_le()]))
    }

    pub(super) fn dereg_mr(&mut self, request: &Request) -> Result<Response, Status> {
        let Handle { handle } = request.body()?;
        self.regions.remove(handle.get()).map(|_| Response::EMPTY)
    }

    pub(super) fn create_cq(&mut self, request: &Request) -> Result<Response, Status> {
        let command: CreateCq = request.body()?;
        let depth = command.cq_depth.get();
        let entry = usize::from(command.caps_2 & CQ_ENTRY_WORDS) * 4;
        let source_addresses = command.caps_2 & CQ_SOURCE_ADDRESSES != 0;
        let eqn = (command.caps_1 & CQ_INTERRUPTS != 0).then_some(command.eqn.get());
        let fits = depth.is_power_of_two() && depth <= limits::MAX_CQ_DEPTH;
        let entry_fits = entry == 32 || entry == 16 && !source_addresses;
        let known = eqn.is_none_or(|eqn| self.eqs.get(eqn).is_some())
            && self.uars.get(command.uar.get()).is_some();
        let one = command.num_sub_cqs.get() == 1;
        if !fits || !entry_fits || !known || !one || command.caps_1 & CQ_VIRTUAL != 0 {
            return Err(Status::IllegalParameter);
        }
        let index = self.cqs.insert(|_| CompletionQueue {
            base: command.cq_ba.get(),
            depth: u32::from(depth),
            entry,
            source_addresses,
            eqn,
            armed: false,
            produced: 0,
        })?;
        let doorbell = limits::CQ_DOORBELLS + u64::from(index) * limits::DOORBELL_PAGE;
        Ok(Response::of(&CreateCqResp {
            cq_idx: index.into(),
            cq_actual_depth: depth.into(),
            db_offset: offset(doorbell)?.into(),
            flags: CQ_DOORBELL.into(),
        }))
    }

    pub(super) fn destroy_cq(&mut self, request: &Request) -> Result<Response, Status> {
        let cq = named(request)?;
        if self.qps.iter().any(|(_, pair)| pair.send_cq == cq || pair.receive_cq == cq) {
            return Err(Status::ResourceBusy);
        }
        self.cqs.remove(cq).map(|_| Response::EMPTY)
    }

    pub(super) fn create_eq(&mut self, request: &Request) -> Result<Response, Status> {
        let command: CreateEq = request.body()?;
        let depth = command.depth.get();
        let entry = usize::from(command.caps & EQ_ENTRY_WORDS) * 4;
        let fits = depth.is_power_of_two() && depth <= limits::MAX_EQ_DEPTH;
        if !fits || entry != EQE || u16::from(command.msix_vec) > limits::MAX_EQ {
            return Err(Status::IllegalParameter);
        }
        Ok(number(self.eqs.insert(|_| EventQueue {
            base: command.ba.get(),
            depth: u32::from(depth),
            vector: usize::from(command.msix_vec),
            produced: 0,
            armed: false,
            untold: false,
        })?))
    }

    pub(super) fn destroy_eq(&mut self, request: &Request) -> Result<Response, Status> {
        let eqn = named(request)?;
        if self.cqs.iter().any(|(_, cq)| cq.eqn == Some(eqn)) {
            return Err(Status::ResourceBusy);
        }
        self.eqs.remove(eqn).map(|_| Response::EMPTY)
    }

    pub(super) fn create_qp(&mut self, request: &Request) -> Result<Response, Status> {
        let command: CreateQp = request.body()?;
        let kind = match command.qp_type {
            1 => Kind::Datagram,
            2 => Kind::Reliable,
            _ => return Err(Status::IllegalParameter),
        };
        let pd = self.known_pd(command.pd.get())?;
        let (send_cq, receive_cq) =
            (self.known_cq(command.send_cq_idx.get())?, self.known_cq(command.recv_cq_idx.get())?);
        let ring = command.send_queue_ring_size.get();
        let receive_entries = command.recv_queue_ring_size.get() / RX_DESC;
        // Counters turn at 16 bits, so only a power of two stays in step with them.
        let whole = |entries: u32| entries == 0 || entries.is_power_of_two();
        let fits = ring <= limits::MAX_LLQ
            && ring.is_multiple_of(WQE)
            && whole(ring / WQE)
            && whole(receive_entries)
            && command.send_queue_depth.get() <= limits::MAX_SQ_DEPTH
            && command.recv_queue_depth.get() <= limits::MAX_RQ_DEPTH;
        let known = self.uars.get(command.uar.get()).is_some();
        if !fits || !known || command.flags & QP_VIRTUAL != 0 {
            return Err(Status::IllegalParameter);
        }
        let ring = usize::try_from(ring).map_err(|_| Status::IllegalParameter)?;
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let slot = self.qps.insert(|slot| QueuePair {
            number: slot | u16::from(generation) << 8,
            kind,
            pd,
            send_cq,
            receive_cq,
            state: 0,
            key: 0,
            psn: 0,
            rnr_retry: RETRY_FOR_EVER,
            unsolicited: command.flags & QP_UNSOLICITED != 0,
            ring: vec![0; ring],
            sent: 0,
            receives: command.rq_base_addr.get(),
            receive_entries,
            posted: 0,
            taken: 0,
            answered: std::collections::VecDeque::new(),
        })?;
        let page = u64::from(slot) * limits::DOORBELL_PAGE;
        Ok(Response::of(&CreateQpResp {
            qp_handle: u32::from(slot).into(),
            qp_num: (slot | u16::from(generation) << 8).into(),
            reserved: 0.into(),
            send_sub_cq_idx: 0.into(),
            recv_sub_cq_idx: 0.into(),
            sq_db_offset: offset(page)?.into(),
            rq_db_offset: offset(page + limits::RQ_DOORBELL)?.into(),
            llq_descriptors_offset: (u32::from(slot) * limits::MAX_LLQ).into(),
        }))
    }

    pub(super) fn modify_qp(&mut self, request: &Request) -> Result<Response, Status> {
        let command: ModifyQp = request.body()?;
        let mask = command.modify_mask.get();
        let pair = handle(command.qp_handle.get()).and_then(|slot| self.qps.get_mut(slot));
        let pair = pair.ok_or(Status::IllegalParameter)?;
        let number = pair.number;
        if mask & MODIFY_KEY != 0 {
            pair.key = command.qkey.get();
        }
        if mask & MODIFY_PSN != 0 {
            pair.psn = command.sq_psn.get();
        }
        if mask & MODIFY_RNR_RETRY != 0 {
            pair.rnr_retry = command.rnr_retry;
        }
        if mask & MODIFY_STATE != 0 {
            match command.qp_state.get() {
                0 => {
                    pair.state = 0;
                    [pair.sent, pair.posted, pair.taken] = [0; 3];
                    pair.answered.clear();
                    self.forget(number);
                }
                state::ERR => self.fail(number),
                next if next <= state::ERR => pair.state = next,
                _ => return Err(Status::IllegalParameter),
            }
        }
        Ok(Response::EMPTY)
    }

    pub(super) fn query_qp(&mut self, request: &Request) -> Result<Response, Status> {
        let Handle { handle: named } = request.body()?;
        let pair = handle(named.get()).and_then(|slot| self.qps.get(slot));
        let pair = pair.ok_or(Status::IllegalParameter)?;
        Ok(Response::of(&QueryQpResp {
            qp_state: pair.state.into(),
            qkey: pair.key.into(),
            sq_psn: pair.psn.into(),
            sq_draining: 0,
            rnr_retry: pair.rnr_retry,
            reserved: 0.into(),
        }))
    }

    pub(super) fn destroy_qp(&mut self, request: &Request) -> Result<Response, Status> {
        let Handle { handle: named } = request.body()?;
        let slot = handle(named.get()).ok_or(Status::IllegalParameter)?;
        let pair = self.qps.remove(slot)?;
        self.forget(pair.number);
        Ok(Response::EMPTY)
    }

    fn known_pd(&self, pd: u16) -> Result<u16, Status> {
        self.pds.get(pd).map(|()| pd).ok_or(Status::IllegalParameter)
    }

    fn known_cq(&self, index: u32) -> Result<u16, Status> {
        let index = u16::try_from(index).map_err(|_| Status::IllegalParameter)?;
        self.cqs.get(index).map(|_| index).ok_or(Status::IllegalParameter)
    }
}

/// The slot behind the handle of a queue pair.
fn handle(named: u32) -> Option<u16> {
    u16::try_from(named).ok().filter(|named| slot(*named) == *named)
}

/// The object that a command names by number.
fn named(request: &Request) -> Result<u16, Status> {
    request.body().map(|Number { number, .. }| number.get())
}

fn number(number: u16) -> Response {
    Response::of(&Number { number: number.into(), reserved: 0.into() })
}

fn offset(at: u64) -> Result<u32, Status> {
    u32::try_from(at).map_err(|_| Status::ResourceAllocationFailure)
}
