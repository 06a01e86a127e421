//! The sending half: messages of a connection in order, each until it is answered; datagrams once.
//!
//! A connection numbers its messages. The receiver takes them in order and ignores what comes early; what has
//! no answer in time is sent again with all that follows it (go-back-N).

use std::time::Duration;
use std::time::Instant;

use super::Device;
use super::complete::Completion;
use super::complete::Of;
use super::complete::syndrome;
use super::count::Count;
use super::layout::qpc;
use super::memory::word;
use super::objects::Flight;
use super::objects::MEMORY;
use super::objects::QueuePair;
use super::objects::State;
use super::objects::address;
use super::receive::NOT_READY;
use super::request::Made;
use super::request::Request;
use crate::wire::Address;
use crate::wire::Message;

/// How many messages of a connection wait for an answer at most.
pub(super) const WINDOW: usize = 64;
/// Bounds of how long an answer may take, whatever the queue pair asks for.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);
/// How long after a refusal for want of a receive it is sent again; each time it takes twice as long, up to
/// the last.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(1);
const LAST_RECEIVE_TIMEOUT: Duration = Duration::from_millis(32);
/// The number of messages of unreliable connections, which reliable ones never come to.
pub(super) const UNNUMBERED: u64 = u64::MAX;
/// A number of retries that means no end.
const FOR_EVER: u32 = 7;

impl QueuePair {
    /// How long an answer may take: four times 4.096 microseconds times a power of two.
    fn timeout(&self) -> Duration {
        let exponent = self.get(qpc::ACK_TIMEOUT);
        (Duration::from_nanos(4 * 4096) * (1 << exponent.min(20))).clamp(SHORTEST, LONGEST)
    }
}

impl Device {
    /// A program rings for sends of a queue pair, on a page of doorbells.
    pub(super) fn rung(&mut self, uar: u32, qpn: u32) {
        if self.qps.get(&qpn).is_some_and(|pair| pair.get(qpc::UAR_PAGE) == uar) {
            self.pump(qpn);
        }
    }

    /// Begins what is posted, as far as the window and the state allow; flushes it in error.
    pub(super) fn pump(&mut self, qpn: u32) {
        loop {
            let Some(pair) = self.qps.get(&qpn) else { return };
            let (state, kind) = (pair.state, pair.get(qpc::ST));
            if !matches!(state, State::Sends | State::Error) || pair.blocks() == 0 {
                return;
            }
            let posted = word(&self.bus, pair.record + 4).unwrap_or(0);
            let left = posted.wrapping_sub(pair.sent.into()) & 0xffff;
            if left == 0
                || state == State::Sends && pair.flight.len() >= WINDOW
                || pair.flight.iter().any(|flight| flight.message.is_none())
            {
                return;
            }
            let request = self.next_request(qpn).filter(|request| {
                // More than is in the queue, or than was posted, is none.
                left <= pair.blocks() && u32::from(request.blocks) <= left
            });
            let Some(request) = request else {
                return self.catastrophe(qpn, posted);
            };
            if let Some(pair) = self.qps.get_mut(&qpn) {
                pair.sent = request.index.wrapping_add(request.blocks);
            }
            if state == State::Sends && kind == MEMORY {
                let status = self.change_key(&request);
                self.lands(qpn, &request, status, 0);
                continue;
            }
            match self.make(qpn, &request) {
                _ if state == State::Error => {
                    self.sent(qpn, request.index, request.opcode(), syndrome::FLUSHED, 0);
                }
                Ok(made) => self.begin(qpn, &request, made),
                Err(status) => {
                    log::warn!("{qpn:#x}: a work request ends with {status:#x}: {request:x?}");
                    self.lands(qpn, &request, status, 0);
                }
            }
        }
    }

    /// A send queue that cannot be read: there is no telling where the next work request begins.
    fn catastrophe(&mut self, qpn: u32, posted: u32) {
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        let (index, state) = (pair.sent, pair.state);
        log::warn!("{qpn:#x}: no work request at {index} of those up to {posted}");
        pair.sent = u16::try_from(posted & 0xffff).unwrap_or(0);
        if state != State::Error {
            self.sent(qpn, index, 0, syndrome::OPERATION, 0);
            self.fail(qpn);
        }
    }

    /// Sends what a work request says.
    fn begin(&mut self, qpn: u32, request: &Request, made: Made) {
        let from = address(self.lid);
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        let Some(body) = made.body else {
            return self.lands(qpn, request, syndrome::OK, 0);
        };
        self.statistics.sent += 1;
        self.statistics.sent_bytes += u64::from(made.length);
        if let Some((to, to_qp)) = made.target {
            self.outbox.push(Message { from, to, from_qp: qpn, to_qp, id: 0, body });
            if request.signaled() {
                self.sent(qpn, request.index, request.opcode(), syndrome::OK, made.length);
            }
            return;
        }
        if !pair.connected() && !pair.unreliable() {
            return self.lands(qpn, request, syndrome::OPERATION, 0);
        }
        let lid = u16::try_from(pair.get(qpc::RLID)).unwrap_or(0);
        let message = Message {
            from,
            to: address(lid),
            from_qp: qpn,
            to_qp: pair.get(qpc::REMOTE_QPN),
            id: if pair.unreliable() { UNNUMBERED } else { pair.send_id },
            body,
        };
        if pair.unreliable() {
            self.outbox.push(message);
            return self.lands(qpn, request, syndrome::OK, made.length);
        }
        pair.send_id += 1;
        if pair.again.is_none() {
            pair.again = Some(Instant::now() + pair.timeout());
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

    /// A work request that needs no answer ends after those before it.
    fn lands(&mut self, qpn: u32, request: &Request, status: u8, length: u32) {
        if let Some(pair) = self.qps.get_mut(&qpn) {
            pair.flight.push_back(Flight {
                index: request.index,
                opcode: request.opcode(),
                signaled: request.signaled(),
                message: None,
                into: Vec::new(),
                length,
                result: Some(status),
            });
        }
        self.land(qpn);
    }

    /// A message has its answer.
    pub(super) fn answered(&mut self, qpn: u32, from: Address, id: u64, result: u8, data: &[u8]) {
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        let of = |flight: &Flight| {
            let message = flight.message.as_ref();
            message.is_some_and(|message| message.id == id && message.to == from)
        };
        let found = pair.flight.iter().position(of);
        let Some((index, flight)) = found.and_then(|at| Some((at, pair.flight.get(at)?))) else {
            return;
        };
        if flight.result.is_some() {
            return;
        }
        if result == NOT_READY {
            if index == 0 {
                pair.refusals = pair.refusals.saturating_add(1);
                let wait = RECEIVE_TIMEOUT * (1 << pair.refusals.min(10));
                pair.again = Some(Instant::now() + wait.min(LAST_RECEIVE_TIMEOUT));
                pair.tries = 0;
                let allowed = pair.get(qpc::RNR_RETRY);
                if allowed < FOR_EVER && pair.refusals > allowed {
                    self.count(qpn, Count::NoReceive);
                    self.gives_up(qpn, syndrome::NO_RECEIVE);
                }
            }
            return;
        }
        let (into, length) = (flight.into.clone(), flight.length);
        let wanted = !into.is_empty() && result == syndrome::OK;
        let kept = !wanted
            || usize::try_from(length).is_ok_and(|length| length == data.len())
                && self.spread(&into, data).is_some();
        let result = if kept { result } else { syndrome::PROTECTION };
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        if let Some(flight) = pair.flight.get_mut(index) {
            flight.result = Some(result);
        }
        (pair.tries, pair.refusals) = (0, 0);
        pair.again = Some(Instant::now() + pair.timeout());
        self.land(qpn);
        self.pump(qpn);
    }

    /// The first message that waits ends like this.
    fn gives_up(&mut self, qpn: u32, status: u8) {
        if let Some(front) = self.qps.get_mut(&qpn).and_then(|pair| pair.flight.front_mut()) {
            front.result = Some(status);
        }
        self.land(qpn);
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
            if done.signaled || result != syndrome::OK {
                self.sent(qpn, done.index, done.opcode, result, done.length);
            }
            if result != syndrome::OK {
                return self.fail(qpn);
            }
        }
    }

    /// Writes the completion of a send.
    fn sent(&mut self, qpn: u32, index: u16, opcode: u8, status: u8, length: u32) {
        let of = Completion::of(Of::Request);
        self.complete(qpn, Completion { index, opcode, syndrome: status, length, ..of });
    }

    /// Sends again what has no answer for too long.
    pub(super) fn try_again(&mut self, now: Instant) {
        let late = |pair: &QueuePair| pair.again.is_some_and(|again| again <= now);
        let late: Vec<u32> =
            self.qps.iter().filter(|(_, pair)| late(pair)).map(|(qpn, _)| *qpn).collect();
        for qpn in late {
            let Some(pair) = self.qps.get_mut(&qpn) else { continue };
            pair.tries += 1;
            let endless = pair.refusals > 0 || pair.get(qpc::ACK_TIMEOUT) == 0;
            if pair.tries > pair.get(qpc::RETRY_COUNT) + 1 && !endless {
                self.gives_up(qpn, syndrome::UNRESPONSIVE);
                continue;
            }
            pair.again = Some(now + pair.timeout());
            let waited = pair.refusals == 0;
            let waiting = pair.flight.iter().filter(|flight| flight.result.is_none());
            let messages: Vec<Message> =
                waiting.filter_map(|flight| flight.message.clone()).collect();
            self.counters.repeated += messages.len() as u64;
            self.outbox.extend(messages);
            if waited {
                self.count(qpn, Count::Timeouts);
            }
        }
    }

    /// A queue pair is in error: all that it has is flushed.
    pub(super) fn fail(&mut self, qpn: u32) {
        let Some(pair) = self.qps.get_mut(&qpn) else { return };
        pair.state = State::Error;
        pair.again = None;
        let flight = std::mem::take(&mut pair.flight);
        for done in flight {
            let status = match done.result {
                Some(result) if result != syndrome::OK => result,
                _ => syndrome::FLUSHED,
            };
            self.sent(qpn, done.index, done.opcode, status, 0);
        }
        self.pump(qpn);
        self.flush_receives(qpn);
    }
}
