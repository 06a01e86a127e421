//! The sending half of a connection: messages in order, each until it is answered.
//!
//! A connection numbers its messages. The receiver takes them in order and ignores what comes early;
//! what has no answer in time is sent again with all that follows it (go-back-N).

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use super::Device;
use super::Plug;
use super::complete::Completion;
use super::complete::Queue;
use super::layout::status;
use super::objects::Flight;
use super::objects::Kind;
use super::objects::State;
use super::receive::NO_RECEIVE;
use super::request::Made;
use super::request::Request;
use crate::wire::Address;
use crate::wire::Body;
use crate::wire::Message;

/// How many messages of a connection wait for an answer at most.
pub(super) const WINDOW: usize = 64;
/// How long the first answer may take; each time it takes twice as long, up to the last.
const FIRST_TIMEOUT: Duration = Duration::from_millis(20);
const LAST_TIMEOUT: Duration = Duration::from_millis(500);
/// How often a message is sent before its receiver counts as unresponsive: two seconds and a half.
const TRIES: u32 = 9;
/// How long after a refusal for want of a receive it is sent again; each time it takes twice as long, up to
/// the last. A connection waits for a receive for ever.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(1);
const LAST_RECEIVE_TIMEOUT: Duration = Duration::from_millis(32);

impl Device {
    /// Begins what is posted, as far as the window and the state allow; flushes it in error.
    pub(super) fn pump(&mut self, qpn: u32) {
        loop {
            let Some(pair) = self.qps.get(&qpn) else { return };
            if pair.sent == pair.rung {
                return;
            }
            let (state, kind) = (pair.state, pair.kind);
            if !matches!(state, State::Sends | State::Error)
                || state == State::Sends && pair.flight.len() >= WINDOW
                || pair.flight.iter().any(|flight| flight.message.is_none())
            {
                return;
            }
            let Some(request) = self.next_request(qpn) else {
                // There is no telling where the next one begins.
                if let Some(pair) = self.qps.get_mut(&qpn) {
                    let index = pair.sent;
                    pair.sent = pair.rung;
                    if state != State::Error {
                        self.flies(qpn, failed(index, 0, status::SEND_FORMAT));
                    }
                }
                continue;
            };
            if let Some(pair) = self.qps.get_mut(&qpn) {
                pair.sent = request.index.wrapping_add(request.blocks);
            }
            let made = match state {
                State::Error => Err(status::FLUSHED),
                _ => self.make(qpn, &request),
            };
            match (made, kind) {
                (Err(status), _) if state == State::Error => {
                    self.sent(qpn, request.index, request.opcode(), status, 0);
                }
                (Err(status), _) => {
                    self.flies(qpn, failed(request.index, request.opcode(), status));
                }
                (Ok(made), Kind::Datagram) => self.post(qpn, &request, made),
                (Ok(made), Kind::Connected) => self.begin(qpn, &request, made),
            }
        }
    }

    /// A datagram is sent once, and has ended then.
    fn post(&mut self, qpn: u32, request: &Request, made: Made) {
        let length = made.length;
        let pd = self.qps.get(&qpn).map(|pair| pair.pd);
        let target = made.target;
        let handle = target.and_then(|target| self.ahs.get(&target.handle));
        let handle = handle.filter(|handle| Some(handle.pd) == pd).copied();
        let from = handle.and_then(|handle| self.gids.get(&handle.gid_index)).copied();
        let (Some(handle), Some(target), Some(from)) = (handle, target, from) else {
            return self.sent(qpn, request.index, request.opcode(), status::SEND_FORMAT, 0);
        };
        self.count_sent(&made.body);
        let (to, to_qp) = (handle.to, target.qpn);
        self.outbox.push(Message { from, to, from_qp: qpn, to_qp, id: 0, body: made.body });
        if request.signaled() {
            self.sent(qpn, request.index, request.opcode(), status::OK, length);
        }
    }

    /// A message of a connection is sent, and waits for its answer.
    fn begin(&mut self, qpn: u32, request: &Request, made: Made) {
        self.count_sent(&made.body);
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        let Some(peer) = pair.peer else {
            return self.flies(qpn, failed(request.index, request.opcode(), status::GENERAL));
        };
        let message = Message {
            from: peer.from,
            to: peer.to,
            from_qp: qpn,
            to_qp: peer.qpn.unwrap_or(0),
            id: pair.send_id,
            body: made.body,
        };
        pair.send_id += 1;
        if pair.again.is_none() {
            pair.again = Some(Instant::now() + FIRST_TIMEOUT);
        }
        pair.flight.push_back(Flight {
            index: request.index,
            opcode: request.opcode(),
            signaled: request.signaled(),
            message: Some(message.clone()),
            into: made.into,
            length: made.length,
            result: None,
        });
        self.outbox.push(message);
    }

    /// A work request that fails before it is sent ends after those before it.
    fn flies(&mut self, qpn: u32, flight: Flight) {
        if let Some(pair) = self.qps.get_mut(&qpn) {
            pair.flight.push_back(flight);
        }
        self.land(qpn);
    }

    /// A message has its answer.
    pub(super) fn answered(&mut self, qpn: u32, from: Address, id: u64, result: u8, data: &[u8]) {
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        let mut flights = pair.flight.iter().enumerate();
        let of =
            |flight: &Flight| flight.message.as_ref().is_some_and(|m| m.id == id && m.to == from);
        let Some((index, flight)) = flights.find(|(_, flight)| of(flight)) else { return };
        if flight.result.is_some() {
            return;
        }
        if result == NO_RECEIVE {
            if index == 0 {
                pair.refusals = pair.refusals.saturating_add(1);
                let wait = RECEIVE_TIMEOUT * (1 << pair.refusals.min(10));
                pair.again = Some(Instant::now() + wait.min(LAST_RECEIVE_TIMEOUT));
                pair.tries = 0;
            }
            return;
        }
        let (into, length) = (flight.into, flight.length);
        let stored = match into.filter(|_| result == status::OK) {
            Some(into) => match usize::try_from(length) {
                Ok(length) if length == data.len() => self.keep(qpn, &into, data),
                _ => None,
            },
            None => Some(()),
        };
        let result = if stored.is_some() { result } else { status::SEND_KEY };
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        if let Some(flight) = pair.flight.get_mut(index) {
            flight.result = Some(result);
        }
        (pair.tries, pair.refusals) = (0, 0);
        pair.again = Some(Instant::now() + FIRST_TIMEOUT);
        self.land(qpn);
        self.pump(qpn);
    }

    /// Completes, in order, what has ended. The first error ends the queue pair.
    fn land(&mut self, qpn: u32) {
        loop {
            let Some(pair) = self.qps.get_mut(&qpn) else { return };
            let Some(front) = pair.flight.front() else {
                pair.again = None;
                return;
            };
            let Some(result) = front.result else { return };
            let Some(done) = pair.flight.pop_front() else { return };
            if done.signaled || result != status::OK {
                self.sent(qpn, done.index, done.opcode, result, done.length);
            }
            if result != status::OK {
                return self.fail(qpn);
            }
        }
    }

    /// Writes the completion of a send.
    fn sent(&mut self, qpn: u32, index: u16, opcode: u8, status: u8, length: u32) {
        let Some(cqn) = self.qps.get(&qpn).map(|pair| pair.send_cq) else { return };
        let done = Completion { index, opcode, status, length, ..Completion::of(Queue::Sends) };
        self.complete(cqn, qpn, done, [0; 2]);
    }

    /// Sends again what has no answer for too long.
    pub(super) fn try_again(&mut self, now: Instant) {
        let late = |pair: &super::objects::QueuePair| pair.again.is_some_and(|again| again <= now);
        let late: Vec<u32> =
            self.qps.iter().filter(|(_, pair)| late(pair)).map(|(qpn, _)| *qpn).collect();
        for qpn in late {
            let Some(pair) = self.qps.get_mut(&qpn) else { continue };
            pair.tries += 1;
            if pair.tries > TRIES && pair.refusals == 0 {
                if let Some(front) = pair.flight.front_mut() {
                    front.result = Some(status::UNRESPONSIVE);
                }
                self.land(qpn);
                continue;
            }
            let timeout = (FIRST_TIMEOUT * (1 << pair.tries.min(8))).min(LAST_TIMEOUT);
            pair.again = Some(now + timeout);
            let waiting = pair.flight.iter().filter(|flight| flight.result.is_none());
            let messages: Vec<Message> =
                waiting.filter_map(|flight| flight.message.clone()).collect();
            self.counters.repeated += messages.len() as u64;
            self.outbox.extend(messages);
        }
    }

    /// A queue pair is in error: what it has begun, and what is posted, is flushed.
    pub(super) fn fail(&mut self, qpn: u32) {
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        pair.state = State::Error;
        pair.again = None;
        let begun = std::mem::take(&mut pair.flight);
        for flight in begun {
            let result = flight.result.unwrap_or(status::FLUSHED);
            if flight.signaled || result != status::OK {
                self.sent(qpn, flight.index, flight.opcode, result, flight.length);
            }
        }
        self.pump(qpn);
        self.flush_receives(qpn);
        self.disconnect(qpn);
    }

    /// A stream's address is nobody's any more.
    pub(super) fn disconnect(&mut self, qpn: u32) {
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        if let Some(peer) = pair.peer.filter(|peer| peer.qpn.is_none())
            && self.streams.remove(&peer.from).is_some()
        {
            self.plugs.push(Plug::Out(peer.from));
        }
    }

    fn count_sent(&mut self, body: &Body) {
        let bytes = match body {
            Body::Send { data, .. } | Body::Write { data, .. } => data.len() as u64,
            Body::Read { .. } | Body::Atomic { .. } | Body::Answer { .. } => 0,
        };
        self.statistics.sent += 1;
        self.statistics.sent_bytes += bytes;
    }
}

/// A work request that cannot be sent.
fn failed(index: u16, opcode: u8, status: u8) -> Flight {
    let (signaled, length) = (true, 0);
    Flight { index, opcode, signaled, message: None, into: None, length, result: Some(status) }
}

/// Empty data.
pub(super) fn nothing() -> Arc<[u8]> {
    Arc::new([])
}
