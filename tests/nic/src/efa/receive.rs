//! What arrives: sends, reads and writes of others, and answers to our own.

use std::sync::Arc;

use zerocopy::FromBytes as _;

use super::Device;
use super::complete::Received;
use super::complete::UNKNOWN_HANDLE;
use super::complete::operation;
use super::features::count;
use super::layout::RX_DESC;
use super::layout::RxDesc;
use super::layout::completion;
use super::limits;
use super::memory::access;
use super::objects::Kind;
use super::send::nothing;
use crate::wire::Body;
use crate::wire::Message;

/// `efa_io_rx_desc.lkey_ctrl`.
const LKEY: u32 = 0xff_ffff;
const LAST: u32 = 1 << 31;
const FIRST: u32 = 1 << 30;
/// An answer that only devices see: there is no receive now, try again.
pub(super) const NO_RECEIVE: u8 = 0xff;
/// How many answers are kept for messages that arrive again.
const REMEMBERED: usize = 4096;

/// One receive: the program's number for it, and its buffers.
struct Posted {
    request: u16,
    buffers: Vec<RxDesc>,
}

impl Device {
    /// Takes a message from the wire.
    pub(super) fn receive(&mut self, message: Message) {
        let Message { from, from_qp, to_qp, id, body, .. } = message;
        if let Body::Answer { status, data } = body {
            count(&mut self.statistics.basic.rx_pkts, 1);
            count(&mut self.statistics.basic.rx_bytes, data.len());
            return self.answered(id, from, status, &data);
        }
        let source = Source { from, qp: u16::try_from(from_qp).unwrap_or(0) };
        let number = u16::try_from(to_qp).unwrap_or(0);
        let known = self.pair(number).and_then(|pair| {
            pair.answered
                .iter()
                .find(|(address, known, _)| (*address, *known) == (from, id))
                .copied()
        });
        let (status, data) = match known {
            Some((_, _, status)) => {
                self.counters.ignored += 1;
                (status, nothing())
            }
            None => self.execute_message(number, source, body.clone()),
        };
        if let Body::Send { reliable: false, .. } = body {
            return;
        }
        // A read may be executed twice, and its data is too much to keep.
        let remembers = status != NO_RECEIVE && !matches!(body, Body::Read { .. });
        if let (true, None, Some(pair)) = (remembers, known, self.pair(number)) {
            pair.answered.push_back((from, id, status));
            if pair.answered.len() > REMEMBERED {
                pair.answered.pop_front();
            }
        }
        count(&mut self.statistics.basic.tx_pkts, 1);
        count(&mut self.statistics.basic.tx_bytes, data.len());
        self.outbox.push(Message {
            from: self.address,
            to: from,
            from_qp: to_qp,
            to_qp: from_qp,
            id,
            body: Body::Answer { status, data },
        });
    }

    fn execute_message(&mut self, number: u16, source: Source, body: Body) -> (u8, Arc<[u8]>) {
        let Some(pair) = self.pair(number).filter(|pair| pair.receives()) else {
            count(&mut self.statistics.basic.rx_drops, 1);
            return (completion::REMOTE_BAD_DEST_QPN, nothing());
        };
        let (pd, kind, key, unsolicited) = (pair.pd, pair.kind, pair.key, pair.unsolicited);
        let (theirs, fits) = match body {
            Body::Send { key, reliable, .. } => (key, reliable == (kind == Kind::Reliable)),
            Body::Write { key, .. } | Body::Read { key, .. } => (key, kind == Kind::Reliable),
            Body::Atomic { .. } | Body::Answer { .. } => (key, false),
        };
        if theirs != key {
            count(&mut self.statistics.basic.qkey_viol, 1);
        }
        if theirs != key || !fits {
            count(&mut self.statistics.basic.rx_drops, 1);
            return (completion::REMOTE_BAD_DEST_QPN, nothing());
        }
        count(&mut self.statistics.basic.rx_pkts, 1);
        match body {
            Body::Send { data, immediate, .. } => {
                (self.take_send(number, source, &data, immediate), nothing())
            }
            Body::Write { rkey, address, data, immediate, .. } => {
                let takes = immediate.filter(|_| !unsolicited).is_some();
                if takes && self.pair(number).is_some_and(|pair| pair.ready() == 0) {
                    return (NO_RECEIVE, nothing());
                }
                let region = self.regions.get(rkey);
                let stored = region.and_then(|region| {
                    region.store(&self.bus, pd.into(), access::REMOTE_WRITE, address, &data)
                });
                if stored.is_none() {
                    return (completion::REMOTE_BAD_ADDRESS, nothing());
                }
                count(&mut self.statistics.writes.for_others, data.len());
                count(&mut self.statistics.basic.rx_bytes, data.len());
                if immediate.is_some() {
                    let request =
                        if takes { self.take(number).map_or(0, |it| it.request) } else { 0 };
                    let done = Received {
                        request,
                        status: completion::OK,
                        operation: operation::WRITE,
                        length: data.len(),
                        immediate,
                        unsolicited: !takes,
                        ..self.received(pd, source)
                    };
                    self.complete_receive(number, done);
                }
                (completion::OK, nothing())
            }
            Body::Read { rkey, address, length, .. } => {
                let region = self.regions.get(rkey);
                let data = region.and_then(|region| {
                    region.load(&self.bus, pd.into(), access::REMOTE_READ, address, length)
                });
                let Some(data) = data else { return (completion::REMOTE_BAD_ADDRESS, nothing()) };
                count(&mut self.statistics.reads.for_others, data.len());
                (completion::OK, data.into())
            }
            Body::Atomic { .. } | Body::Answer { .. } => {
                (completion::REMOTE_BAD_DEST_QPN, nothing())
            }
        }
    }

    /// A send arrives at a queue pair that takes it: gives its status at the sender.
    fn take_send(
        &mut self,
        number: u16,
        source: Source,
        data: &[u8],
        immediate: Option<u32>,
    ) -> u8 {
        let Some(posted) = self.take(number) else {
            count(&mut self.statistics.basic.rx_drops, 1);
            return NO_RECEIVE;
        };
        let Some((pd, kind)) = self.pair(number).map(|pair| (pair.pd, pair.kind)) else {
            return completion::REMOTE_BAD_DEST_QPN;
        };
        let header = if kind == Kind::Datagram { limits::GRH } else { 0 };
        let bytes = [&vec![0; header], data].concat();
        let status = self.scatter(pd, &posted.buffers, &bytes);
        count(&mut self.statistics.messages.recv_wrs, 1);
        count(&mut self.statistics.messages.recv_bytes, data.len());
        count(&mut self.statistics.basic.rx_bytes, data.len());
        let done = Received {
            request: posted.request,
            status,
            operation: operation::SEND,
            length: bytes.len(),
            immediate,
            ..self.received(pd, source)
        };
        self.complete_receive(number, done);
        match status {
            completion::OK => completion::OK,
            completion::BAD_LENGTH => completion::REMOTE_BAD_LENGTH,
            _ => completion::REMOTE_BAD_ADDRESS,
        }
    }

    /// Spreads bytes over the buffers of a receive.
    fn scatter(&self, pd: u16, buffers: &[RxDesc], bytes: &[u8]) -> u8 {
        let room: usize = buffers.iter().map(|buffer| usize::from(buffer.length.get())).sum();
        if room < bytes.len() {
            return completion::BAD_LENGTH;
        }
        let mut left = bytes;
        for buffer in buffers {
            let (here, rest) = left.split_at(left.len().min(buffer.length.get().into()));
            left = rest;
            let region = self.regions.get(buffer.lkey_ctrl.get() & LKEY);
            let stored = region.and_then(|region| {
                region.store(&self.bus, pd.into(), access::LOCAL_WRITE, buffer.address.get(), here)
            });
            if stored.is_none() && !here.is_empty() {
                return completion::INVALID_LKEY;
            }
        }
        completion::OK
    }

    /// Takes the next receive of a queue pair from its ring.
    fn take(&mut self, number: u16) -> Option<Posted> {
        let bus = Arc::clone(&self.bus);
        let pair = self.pair(number)?;
        let mut posted = Posted { request: 0, buffers: Vec::new() };
        while pair.ready() > 0 {
            let index = u64::from(u32::from(pair.taken).checked_rem(pair.receive_entries)?);
            let mut bytes = [0; RX_DESC];
            let read = bus.read(pair.receives.wrapping_add(index * RX_DESC as u64), &mut bytes);
            pair.taken = pair.taken.wrapping_add(1);
            let (Ok(()), Ok(descriptor)) = (read, RxDesc::read_from_bytes(&bytes)) else {
                return None;
            };
            let control = descriptor.lkey_ctrl.get();
            if control & FIRST != 0 {
                posted.request = descriptor.req_id.get();
            }
            posted.buffers.push(descriptor);
            if control & LAST != 0 {
                return Some(posted);
            }
        }
        (!posted.buffers.is_empty()).then_some(posted)
    }

    /// Ends all receives of a queue pair in error.
    pub(super) fn flush_receives(&mut self, number: u16) {
        while let Some(posted) = self.take(number) {
            let Some(pair) = self.pair(number) else { return };
            let source = Source { from: crate::wire::Address([0; 16]), qp: 0 };
            let pd = pair.pd;
            let done = Received {
                request: posted.request,
                status: completion::FLUSHED,
                ..self.received(pd, source)
            };
            self.complete_receive(number, done);
        }
    }

    /// What is known of a receive by where it comes from.
    fn received(&self, pd: u16, source: Source) -> Received {
        let handle = self.ahs.iter().find(|(_, it)| it.pd == pd && it.address == source.from);
        Received {
            request: 0,
            status: completion::OK,
            operation: operation::SEND,
            length: 0,
            handle: handle.map_or(UNKNOWN_HANDLE, |(number, _)| number),
            source: source.from,
            source_qp: source.qp,
            immediate: None,
            unsolicited: false,
        }
    }
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug)]
struct Source {
    from: crate::wire::Address,
    qp: u16,
}
