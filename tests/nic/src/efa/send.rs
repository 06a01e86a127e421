//! Send work requests: read from the ring, carried out, tried again.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use zerocopy::FromBytes as _;

use super::Device;
use super::complete::operation;
use super::features::count;
use super::layout::TxBuf;
use super::layout::TxWqe;
use super::layout::WQE;
use super::layout::completion;
use super::limits;
use super::memory::access;
use super::objects::Kind;
use super::objects::RETRY_FOR_EVER;
use super::objects::state;
use super::receive::NO_RECEIVE;
use crate::wire::Address;
use crate::wire::Body;
use crate::wire::Message;

/// `efa_io_tx_meta_desc.ctrl1`.
const OPERATION: u8 = 0x0f;
const HAS_IMMEDIATE: u8 = 1 << 4;
const INLINE: u8 = 1 << 5;
/// `efa_io_tx_meta_desc.ctrl2`.
const COMPLETION_WANTED: u8 = 1 << 4;
/// `efa_io_tx_buf_desc.lkey`.
const LKEY: u32 = 0xff_ffff;
/// How long the first answer may take; each time it takes twice as long, up to the last.
const FIRST_TIMEOUT: Duration = Duration::from_millis(20);
const LAST_TIMEOUT: Duration = Duration::from_millis(500);
/// How often a message is sent before its receiver counts as unresponsive: a second and a half.
const TRIES: u32 = 8;
/// How long after the first refusal for want of a receive it is sent again; each time it takes twice as
/// long, up to the last: a thousand that wait must leave the device time for commands.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(1);
const LAST_RECEIVE_TIMEOUT: Duration = Duration::from_millis(64);

/// A message without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    message: Message,
    qp: u16,
    request: u16,
    operation: u8,
    wanted: bool,
    /// Where what was read goes.
    into: Option<TxBuf>,
    again: Instant,
    timeout: Duration,
    tries: u32,
    refusals: u8,
}

impl Device {
    /// A program writes work requests into a ring.
    pub(super) fn store_ring(&mut self, offset: u64, data: &[u8]) {
        let (pair, at) = (offset / u64::from(limits::MAX_LLQ), offset % u64::from(limits::MAX_LLQ));
        let pair = u16::try_from(pair).ok().and_then(|slot| self.qps.get_mut(slot));
        let ring =
            pair.zip(usize::try_from(at).ok()).and_then(|(pair, at)| pair.ring.get_mut(at..));
        for (to, from) in ring.unwrap_or_default().iter_mut().zip(data) {
            *to = *from;
        }
    }

    /// Rings can be read, too; hardware would answer as slowly.
    pub(super) fn load_ring(&mut self, offset: u64, data: &mut [u8]) {
        let (pair, at) = (offset / u64::from(limits::MAX_LLQ), offset % u64::from(limits::MAX_LLQ));
        let pair = u16::try_from(pair).ok().and_then(|slot| self.qps.get(slot));
        let ring = pair.zip(usize::try_from(at).ok()).and_then(|(pair, at)| pair.ring.get(at..));
        for (to, from) in data.iter_mut().zip(ring.unwrap_or_default()) {
            *to = *from;
        }
    }

    /// Carries out what is in a ring up to the doorbell's count.
    pub(super) fn send_posted(&mut self, slot: u16, end: u16) {
        loop {
            let Some(pair) = self.qps.get_mut(slot) else { return };
            let (number, entries) = (pair.number, pair.ring.len() / WQE);
            let left = end.wrapping_sub(pair.sent);
            if left == 0 {
                return;
            }
            if usize::from(left) > entries {
                log::warn!("queue pair {number}: a doorbell of {left} in a ring of {entries}");
                self.fail(number);
                return;
            }
            let index = usize::from(pair.sent) % entries.max(1);
            pair.sent = pair.sent.wrapping_add(1);
            let bytes = pair.ring.get(index * WQE..).unwrap_or_default();
            let Ok((request, _)) = TxWqe::read_from_prefix(bytes) else { return };
            let (operation, status) = (request.ctrl1 & OPERATION, self.send(number, &request));
            if let Some(status) = status {
                self.complete_send(number, request.req_id.get(), operation, status);
            }
        }
    }

    /// Carries out one. A status if it has ended: with an error, or as a datagram.
    fn send(&mut self, number: u16, request: &TxWqe) -> Option<u8> {
        let pair = self.pair(number)?;
        let (pd, kind, ready) = (pair.pd, pair.kind, pair.state == state::RTS);
        if !ready {
            return Some(if pair.state == state::ERR {
                completion::FLUSHED
            } else {
                completion::QP_INTERNAL
            });
        }
        let to = self.ahs.get(request.ah.get()).filter(|handle| handle.pd == pd);
        let Some(to) = to.map(|handle| handle.address) else { return Some(completion::INVALID_AH) };
        let code = request.ctrl1 & OPERATION;
        let made = match (code, kind) {
            (operation::SEND, _) => self.body_of_send(pd, kind, request),
            (operation::READ, Kind::Reliable) => self.body_of_read(pd, request),
            (operation::WRITE, Kind::Reliable) => self.body_of_write(pd, request),
            _ => Err(completion::INVALID_OP_TYPE),
        };
        let (body, into) = match made {
            Ok(made) => made,
            Err(status) => return Some(status),
        };
        self.count_request(&body);
        self.next_id += 1;
        let message = Message {
            from: self.address,
            to,
            from_qp: u32::from(number),
            to_qp: u32::from(request.dest_qp_num.get()),
            id: self.next_id,
            body,
        };
        self.outbox.push(message.clone());
        let wanted = request.ctrl2 & COMPLETION_WANTED != 0;
        if kind == Kind::Datagram {
            return wanted.then_some(completion::OK);
        }
        let pending = Pending {
            qp: number,
            request: request.req_id.get(),
            operation: code,
            wanted,
            into,
            again: Instant::now() + FIRST_TIMEOUT,
            timeout: FIRST_TIMEOUT,
            tries: 1,
            refusals: 0,
            message,
        };
        self.pending.insert(self.next_id, pending);
        None
    }

    fn body_of_send(&self, pd: u16, kind: Kind, request: &TxWqe) -> Result<Made, u8> {
        let count = usize::from(request.length.get());
        let data = if request.ctrl1 & INLINE != 0 {
            request.data.get(..count).ok_or(completion::BAD_LENGTH)?.to_vec()
        } else {
            let (buffers, _) = request.data.as_chunks::<{ size_of::<TxBuf>() }>();
            let mut data = Vec::new();
            for buffer in buffers.get(..count).ok_or(completion::BAD_LENGTH)? {
                let buffer = TxBuf::read_from_bytes(buffer).map_err(|_| completion::BAD_LENGTH)?;
                data.extend(self.gather(pd, &buffer, limits::MTU)?);
            }
            data
        };
        if data.len() > limits::MTU as usize {
            return Err(completion::BAD_LENGTH);
        }
        let reliable = kind == Kind::Reliable;
        let (immediate, key) = (immediate(request), request.qkey.get());
        let (solicited, invalidate) = (false, None);
        let data = data.into();
        Ok((Body::Send { data, immediate, key, reliable, solicited, invalidate }, None))
    }

    fn body_of_read(&self, pd: u16, request: &TxWqe) -> Result<Made, u8> {
        let (remote, local) = rdma(request)?;
        let length = checked(remote.length.get(), limits::MAX_RDMA)?;
        if local.length.get() < remote.length.get() {
            return Err(completion::BAD_LENGTH);
        }
        // Before the peer is asked: an answer that has no place cannot be taken back.
        let region = self.regions.get(local.key.get() & LKEY);
        let place = region.and_then(|region| {
            region.pieces(pd.into(), access::LOCAL_WRITE, local.address.get(), length)
        });
        place.ok_or(completion::INVALID_LKEY)?;
        let (rkey, address) = (remote.key.get(), remote.address.get());
        Ok((Body::Read { rkey, address, length, key: request.qkey.get() }, Some(local)))
    }

    fn body_of_write(&self, pd: u16, request: &TxWqe) -> Result<Made, u8> {
        let (remote, local) = rdma(request)?;
        let data = self.gather(pd, &local, limits::MAX_RDMA)?.into();
        let (rkey, address) = (remote.key.get(), remote.address.get());
        let (immediate, key) = (immediate(request), request.qkey.get());
        Ok((Body::Write { rkey, address, data, immediate, key, solicited: false }, None))
    }

    /// What is in a buffer of the program's.
    fn gather(&self, pd: u16, buffer: &TxBuf, most: u32) -> Result<Vec<u8>, u8> {
        let length = checked(buffer.length.get(), most)?;
        let region = self.regions.get(buffer.key.get() & LKEY);
        let region = region.ok_or(completion::INVALID_LKEY)?;
        region
            .load(&self.bus, pd.into(), access::LOCAL_READ, buffer.address.get(), length)
            .ok_or(completion::INVALID_LKEY)
    }

    fn count_request(&mut self, body: &Body) {
        let statistics = &mut self.statistics;
        match body {
            Body::Send { data, .. } => {
                count(&mut statistics.messages.send_wrs, 1);
                count(&mut statistics.messages.send_bytes, data.len());
                count(&mut statistics.basic.tx_bytes, data.len());
            }
            Body::Write { data, .. } => {
                count(&mut statistics.writes.wrs, 1);
                count(&mut statistics.writes.bytes, data.len());
                count(&mut statistics.basic.tx_bytes, data.len());
            }
            Body::Read { length, .. } => {
                count(&mut statistics.reads.wrs, 1);
                count(&mut statistics.reads.bytes, *length);
            }
            Body::Answer { data, .. } => count(&mut statistics.basic.tx_bytes, data.len()),
            Body::Atomic { .. } => {}
        }
        count(&mut statistics.basic.tx_pkts, 1);
    }

    /// A message has its answer.
    pub(super) fn answered(&mut self, id: u64, from: Address, status: u8, data: &[u8]) {
        let Some(pending) = self.pending.get_mut(&id).filter(|it| it.message.to == from) else {
            return;
        };
        if status == NO_RECEIVE {
            let qp = pending.qp;
            let forever = self.pair(qp).is_none_or(|pair| pair.rnr_retry >= RETRY_FOR_EVER);
            let limit = self.pair(qp).map_or(0, |pair| pair.rnr_retry);
            let Some(pending) = self.pending.get_mut(&id) else { return };
            if forever || pending.refusals < limit {
                pending.refusals = pending.refusals.saturating_add(1);
                let doublings = 1 << pending.refusals.min(16);
                let wait = (RECEIVE_TIMEOUT * doublings).min(LAST_RECEIVE_TIMEOUT);
                pending.again = Instant::now() + wait;
                return;
            }
            return self.end(id, completion::REMOTE_RNR);
        }
        let (qp, into) = (pending.qp, pending.into);
        let Some(into) = into.filter(|_| status == completion::OK) else {
            return self.end(id, status);
        };
        let pd = self.pair(qp).map_or(0, |pair| pair.pd);
        let region = self.regions.get(into.key.get() & LKEY);
        let stored = region.and_then(|region| {
            region.store(&self.bus, pd.into(), access::LOCAL_WRITE, into.address.get(), data)
        });
        self.end(id, if stored.is_some() { completion::OK } else { completion::INVALID_LKEY });
    }

    /// A work request has ended.
    fn end(&mut self, id: u64, status: u8) {
        let Some(done) = self.pending.remove(&id) else { return };
        if status != completion::OK {
            match done.operation {
                operation::READ => count(&mut self.statistics.reads.errors, 1),
                operation::WRITE => count(&mut self.statistics.writes.errors, 1),
                _ => {}
            }
        }
        if done.wanted || status != completion::OK {
            self.complete_send(done.qp, done.request, done.operation, status);
        }
    }

    /// Sends again what has no answer for too long.
    pub(super) fn try_again(&mut self, now: Instant) {
        let late: Vec<u64> =
            self.pending.iter().filter(|(_, it)| it.again <= now).map(|(id, _)| *id).collect();
        for id in late {
            let Some(pending) = self.pending.get_mut(&id) else { continue };
            pending.tries += 1;
            if pending.tries > TRIES && pending.refusals == 0 {
                count(&mut self.statistics.network.unresponsive_remote_events, 1);
                self.end(id, completion::UNRESPONSIVE);
                continue;
            }
            pending.timeout = (pending.timeout * 2).min(LAST_TIMEOUT);
            pending.again = now + pending.timeout;
            self.counters.repeated += 1;
            let network = &mut self.statistics.network;
            count(&mut network.retrans_pkts, 1);
            count(&mut network.retrans_timeout_events, 1);
            let length = match &pending.message.body {
                Body::Send { data, .. } | Body::Write { data, .. } => data.len(),
                Body::Read { .. } | Body::Atomic { .. } | Body::Answer { .. } => 0,
            };
            count(&mut network.retrans_bytes, length);
            self.outbox.push(pending.message.clone());
        }
    }

    /// There is nobody at the address of a message.
    pub(super) fn nobody_at(&mut self, message: &Message) {
        if !matches!(message.body, Body::Answer { .. }) {
            self.end(message.id, completion::UNRESPONSIVE);
        }
    }

    /// A queue pair is in error: what it has begun, and what is posted, is flushed.
    pub(super) fn fail(&mut self, number: u16) {
        let Some(pair) = self.pair(number) else { return };
        pair.state = state::ERR;
        let ids: Vec<u64> =
            self.pending.iter().filter(|(_, it)| it.qp == number).map(|(id, _)| *id).collect();
        for id in ids {
            self.end(id, completion::FLUSHED);
        }
        self.flush_receives(number);
    }

    /// A queue pair is gone, and nobody waits for its completions.
    pub(super) fn forget(&mut self, number: u16) {
        self.pending.retain(|_, pending| pending.qp != number);
    }
}

/// A message's body, and where what is read goes.
type Made = (Body, Option<TxBuf>);

fn immediate(request: &TxWqe) -> Option<u32> {
    (request.ctrl1 & HAS_IMMEDIATE != 0).then(|| request.immediate_data.get())
}

/// The peer's memory and ours in an RDMA request.
fn rdma(request: &TxWqe) -> Result<(TxBuf, TxBuf), u8> {
    let (remote, rest) =
        TxBuf::read_from_prefix(&request.data).map_err(|_| completion::BAD_LENGTH)?;
    let (local, _) = TxBuf::read_from_prefix(rest).map_err(|_| completion::BAD_LENGTH)?;
    Ok((remote, local))
}

fn checked(length: u32, most: u32) -> Result<usize, u8> {
    match usize::try_from(length) {
        Ok(bytes) if length <= most => Ok(bytes),
        _ => Err(completion::BAD_LENGTH),
    }
}

/// Empty data.
pub(super) fn nothing() -> Arc<[u8]> {
    Arc::new([])
}
