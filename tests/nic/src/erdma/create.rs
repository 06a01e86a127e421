//! Commands that make, change and end queue pairs, completion queues and memory regions.

use std::collections::VecDeque;

use super::Device;
use super::Plug;
use super::Protocol;
use super::admin::Refusal;
use super::admin::Request;
use super::layout::CreateCq;
use super::layout::CreateQp;
use super::layout::ModifyRoce;
use super::layout::ModifyTcp;
use super::layout::Number;
use super::layout::RegMr;
use super::layout::bits;
use super::limits;
use super::objects::Armed;
use super::objects::Buffer;
use super::objects::CompletionQueue;
use super::objects::Kind;
use super::objects::Mapped;
use super::objects::Peer;
use super::objects::QueuePair;
use super::objects::State;
use super::registers::COMMAND_CQ;
use crate::Bus;
use crate::region::Region;
use crate::wire::Address;

/// Pages that a command holds itself.
const INLINE: usize = 4;
/// Addresses in a page of addresses.
const LIST: u64 = 512;
/// The size of pages that only the kernel's own queues have, as a power of two.
const KERNEL_SHIFT: u32 = 20;
/// `ERDMA_CMD_CREATE_QP_DB_CFG_MASK` and `ERDMA_CMD_CREATE_CQ_MTT_DB_CFG_MASK`.
const QP_PAGES: u32 = 1 << 25;
const CQ_PAGE: u32 = 1 << 11;
/// `ERDMA_CMD_MR_VALID_MASK`.
const VALID: u32 = 1 << 31;
/// `ERDMA_MR_TYPE_DMA`: all memory.
const ALL_MEMORY: u32 = 2;
/// `erdma_qpa_mask_rocev2`.
const STATE: u32 = 1;
const KEY: u32 = 1 << 1;
const ROUTE: u32 = 1 << 2;
const SEND_PSN: u32 = 1 << 3;
const RECEIVE_PSN: u32 = 1 << 4;
const PEER: u32 = 1 << 5;

/// A list of pages: `count` addresses, in the command or in memory, by `levels` of lists of lists.
fn pages(bus: &Bus, inline: &[u64], levels: u32, count: usize) -> Result<Vec<u64>, Refusal> {
    let first = *inline.first().ok_or(Refusal::Malformed)?;
    match levels {
        0 => inline.get(..count).map(<[u64]>::to_vec).ok_or(Refusal::Malformed),
        1 => words(bus, first, count),
        2 | 3 => {
            let lists = count.div_ceil(usize::try_from(LIST).unwrap_or(usize::MAX));
            let mut found = Vec::with_capacity(count);
            for list in pages(bus, &[first], levels - 1, lists)? {
                let here = (count - found.len()).min(usize::try_from(LIST).unwrap_or(usize::MAX));
                found.extend(words(bus, list, here)?);
            }
            Ok(found)
        }
        _ => Err(Refusal::Malformed),
    }
}

fn words(bus: &Bus, at: u64, count: usize) -> Result<Vec<u64>, Refusal> {
    let mut bytes = vec![0; count * 8];
    bus.read(at, &mut bytes).map_err(|_| Refusal::Malformed)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// A queue of a queue pair: what `ERDMA_CMD_CREATE_QP_PAGE_SIZE_MASK`, `_PAGE_OFFSET_MASK`, `_MTT_CNT_MASK`
/// and `_MTT_LEVEL_MASK` say.
fn queue(bus: &Bus, cqn: u32, mtt: u32, inline: [u64; INLINE]) -> Result<Buffer, Refusal> {
    let count = usize::try_from(bits(mtt, 1, 11)).map_err(|_| Refusal::Malformed)?;
    let pages = pages(bus, &inline, mtt & 1, count)?;
    Ok(Buffer { pages, shift: 12 + bits(cqn, 28, 4), offset: u64::from(mtt & !0xfff) })
}

impl Device {
    pub(super) fn create_cq(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: CreateCq = request.body()?;
        let (cfg0, cfg1) = (command.cfg0.get(), command.cfg1.get());
        let (cqn, depth) = (bits(cfg0, 0, 20), bits(cfg0, 24, 8));
        if cqn == COMMAND_CQ || cqn >= limits::MAX_CQ || u64::from(depth) > limits::MAX_CQE_SHIFT {
            return Err(Refusal::Malformed);
        }
        let address =
            u64::from(command.address_low.get()) | u64::from(command.address_high.get()) << 32;
        let count = usize::try_from(bits(cfg1, 16, 16)).map_err(|_| Refusal::Malformed)?;
        // One page is named itself, whatever the level says: the driver of Linux 6.1 says "indirect"
        // (create_cq_cmd, erdma_verbs.c).
        let levels = if count == 1 { 0 } else { bits(cfg1, 15, 1) };
        let buffer = Buffer {
            pages: pages(&self.bus, &[address], levels, count)?,
            shift: 12 + bits(cfg0, 20, 4),
            offset: command.first_page_offset.get().into(),
        };
        let page = u16::try_from(bits(command.cfg2.get(), 0, 16)).unwrap_or(0);
        let queue = CompletionQueue {
            buffer,
            depth: 1 << depth,
            eqn: u8::try_from(bits(cfg1, 0, 10)).map_err(|_| Refusal::Malformed)?,
            armed: Armed::No,
            produced: 0,
            solicited: 0,
            // What the driver calls the page of completions is where receives are rung, and the reverse.
            page: (cfg1 & CQ_PAGE != 0).then(|| page.wrapping_sub(1)),
        };
        log::debug!("CQ {cqn}: {queue:x?}");
        if self.cqs.contains_key(&cqn) {
            return Err(Refusal::Object);
        }
        self.cqs.insert(cqn, queue);
        Ok([0; 2])
    }

    pub(super) fn destroy_cq(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let cqn = request.body::<Number>()?.number.get();
        if cqn == COMMAND_CQ {
            return Err(Refusal::Object);
        }
        self.cqs.remove(&cqn).map(|_| [0; 2]).ok_or(Refusal::Object)
    }

    pub(super) fn create_qp(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: CreateQp = request.body()?;
        let (cfg0, cfg1) = (command.cfg0.get(), command.cfg1.get());
        let (qpn, sends, receives) = (bits(cfg0, 0, 20), bits(cfg0, 20, 12), bits(cfg1, 20, 12));
        if qpn == 0 || qpn >= limits::MAX_QP || sends.max(receives) > limits::MAX_RING_SHIFT {
            return Err(Refusal::Malformed);
        }
        if self.qps.contains_key(&qpn) {
            return Err(Refusal::Object);
        }
        let (sq_cqn, rq_cqn) = (command.sq_cqn.get(), command.rq_cqn.get());
        let inline = |first: u64, [a, b, c]: [zerocopy::little_endian::U64; 3]| {
            [first, a.get(), b.get(), c.get()]
        };
        let sq = inline(command.sq_address.get(), command.sq_more);
        let rq = inline(command.rq_address.get(), command.rq_more);
        // Drivers that speak TCP alone do not say of what kind a queue pair is.
        let datagrams = self.protocol == Protocol::Roce && bits(command.cfg2.get(), 0, 4) == 1;
        let page = |low| u16::try_from(bits(command.doorbells.get(), low, 16)).unwrap_or(0);
        let pair = QueuePair {
            kind: if datagrams { Kind::Datagram } else { Kind::Connected },
            pd: bits(cfg1, 0, 20),
            send_cq: bits(sq_cqn, 0, 24),
            receive_cq: bits(rq_cqn, 0, 24),
            privileged: 12 + bits(sq_cqn, 28, 4) == KERNEL_SHIFT,
            // As with completion queues: the page after the one that the driver names.
            pages: (sq_cqn & QP_PAGES != 0).then(|| [page(16), page(0).wrapping_add(1)]),
            state: State::Idle,
            number: 0,
            sends: queue(&self.bus, sq_cqn, command.sq_mtt.get(), sq)?,
            send_depth: 1 << sends,
            receives: queue(&self.bus, rq_cqn, command.rq_mtt.get(), rq)?,
            receive_depth: 1 << receives,
            sent: 0,
            rung: 0,
            taken: 0,
            posted: 0,
            peer: None,
            gid_index: 0,
            key: 0,
            send_id: 0,
            receive_id: 0,
            flight: VecDeque::new(),
            answered: VecDeque::new(),
            again: None,
            tries: 0,
            refusals: 0,
        };
        log::debug!("QP {qpn}: {pair:x?}");
        let there = |cqn| cqn != COMMAND_CQ && self.cqs.contains_key(&cqn);
        if !there(pair.send_cq) || !there(pair.receive_cq) {
            return Err(Refusal::Object);
        }
        self.qps.insert(qpn, pair);
        // The cookie that the peer will be told.
        Ok([qpn.into(), 0])
    }

    pub(super) fn destroy_qp(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let qpn = request.body::<Number>()?.number.get();
        self.disconnect(qpn);
        self.qps.remove(&qpn).map(|_| [0; 2]).ok_or(Refusal::Object)
    }

    pub(super) fn modify_qp(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        match self.protocol {
            Protocol::Tcp => self.modify_stream(&request.body()?),
            Protocol::Roce => self.modify_pair(&request.body()?),
        }
    }

    /// `erdma_qps_iwarp`: a queue pair takes over a connection that the kernel has made, or ends.
    fn modify_stream(&mut self, command: &ModifyTcp) -> Result<[u64; 2], Refusal> {
        let (qpn, number) = (bits(command.cfg.get(), 0, 20), bits(command.cfg.get(), 24, 8));
        let end = |address: [u8; 4], port: [u8; 2]| (address, port);
        let own = stream(end(command.from, command.from_port), end(command.to, command.to_port));
        let peer = stream(end(command.to, command.to_port), end(command.from, command.from_port));
        let pair = self.qps.get_mut(&qpn).ok_or(Refusal::Object)?;
        pair.number = u8::try_from(number).map_err(|_| Refusal::Malformed)?;
        match number {
            0 => pair.state = State::Idle,
            1 => pair.state = State::Receives,
            2 => {
                pair.state = State::Sends;
                pair.peer = Some(Peer { from: own, to: peer, qpn: None });
                (pair.send_id, pair.receive_id) = (0, 0);
                self.streams.insert(own, qpn);
                self.plugs.push(Plug::In(own));
                self.pump(qpn);
            }
            _ => self.fail(qpn),
        }
        Ok([0; 2])
    }

    /// `erdma_qps_rocev2`.
    fn modify_pair(&mut self, command: &ModifyRoce) -> Result<[u64; 2], Refusal> {
        let (qpn, number) = (bits(command.cfg0.get(), 0, 20), bits(command.cfg0.get(), 24, 8));
        let (mask, route) = (command.mask.get(), command.route);
        let pair = self.qps.get_mut(&qpn).ok_or(Refusal::Object)?;
        if mask & KEY != 0 {
            pair.key = command.key.get();
        }
        if mask & SEND_PSN != 0 {
            pair.send_id = command.send_psn.get().into();
        }
        if mask & RECEIVE_PSN != 0 {
            pair.receive_id = command.receive_psn.get().into();
        }
        if mask & ROUTE != 0 {
            let index = route.gid_index.get();
            let from = *self.gids.get(&index).ok_or(Refusal::Malformed)?;
            let known = pair.peer.and_then(|peer| peer.qpn);
            pair.gid_index = index;
            pair.peer = Some(Peer { from, to: Address(route.gid), qpn: known });
        }
        if mask & PEER != 0
            && let Some(peer) = &mut pair.peer
        {
            peer.qpn = Some(bits(command.cfg1.get(), 0, 20));
        }
        if mask & STATE != 0 {
            pair.number = u8::try_from(number).map_err(|_| Refusal::Malformed)?;
            match number {
                0 => {
                    pair.state = State::Idle;
                    pair.clear();
                }
                1 => pair.state = State::Idle,
                2 => pair.state = State::Receives,
                3 | 4 => {
                    pair.state = State::Sends;
                    self.pump(qpn);
                }
                _ => self.fail(qpn),
            }
        }
        Ok([0; 2])
    }

    pub(super) fn reg_mr(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let command: RegMr = request.body()?;
        let (cfg0, cfg1, cfg2) = (command.cfg0.get(), command.cfg1.get(), command.cfg2.get());
        let (key, index) = (bits(cfg0, 20, 8), bits(cfg0, 0, 20));
        let inline = command.pages.map(zerocopy::little_endian::U64::get);
        // Version 1 has more of the sizes, in the place of the pages that it has elsewhere.
        let [_, more, ..] = if bits(cfg0, 28, 3) == 1 { inline } else { [0; INLINE] };
        let length = u64::from(command.size.get()) | more << 32;
        let count = u64::from(bits(cfg2, 0, 20)) | more >> 32 << 20;
        let shift = bits(cfg2, 27, 5);
        let start = command.start.get();
        let (kind, pd) = (bits(cfg1, 6, 2), bits(cfg1, 12, 20));
        let permissions = u8::try_from(cfg1 & 0x3e).map_err(|_| Refusal::Malformed)?;
        if index >= limits::MAX_MR || self.regions.contains_key(&(index << 8 | key)) {
            return Err(Refusal::Object);
        }
        let physical = kind == ALL_MEMORY;
        let valid = cfg0 & VALID != 0 || physical;
        let pages = if physical || !valid {
            Vec::new()
        } else {
            let wanted = (start & ((1 << shift) - 1)).checked_add(length);
            let wanted = wanted.ok_or(Refusal::Malformed)?.div_ceil(1 << shift);
            if shift < 12 || length == 0 || count < wanted || count > limits::MAX_MR_PAGES {
                return Err(Refusal::Malformed);
            }
            let count = usize::try_from(count).map_err(|_| Refusal::Malformed)?;
            pages(&self.bus, &inline, bits(cfg2, 20, 2), count)?
        };
        let region = Region { pd, permissions, start, length, shift, pages };
        self.regions.insert(index << 8 | key, Mapped { region, valid, physical });
        Ok([0; 2])
    }

    pub(super) fn dereg_mr(&mut self, request: &Request) -> Result<[u64; 2], Refusal> {
        let cfg = request.body::<Number>()?.number.get();
        let key = bits(cfg, 0, 20) << 8 | bits(cfg, 20, 8);
        self.regions.remove(&key).map(|_| [0; 2]).ok_or(Refusal::Object)
    }
}

/// The address of an end of a stream on the wire: it is of this connection alone, and no GID begins so.
fn stream(own: ([u8; 4], [u8; 2]), peer: ([u8; 4], [u8; 2])) -> Address {
    let mut address = [0xff; 16];
    let parts = [&[0xff; 4][..], &own.0, &own.1, &peer.0, &peer.1].concat();
    for (to, from) in address.iter_mut().zip(parts) {
        *to = from;
    }
    Address(address)
}
