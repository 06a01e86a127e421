//! One flow at its sender: posted messages, completions, and errors.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use hdrhistogram::Histogram;
use verbgate_verbs::Completion;
use verbgate_verbs::Operation;
use verbgate_verbs::Piece;
use verbgate_verbs::QueuePair;
use verbgate_verbs::Region;
use verbgate_verbs::Transport;

use crate::bench::load::Load;
use crate::bench::options::By;
use crate::bench::plan::Flow;
use crate::connect::Mesh;
use crate::connect::Peer;
use crate::error::Error;
use crate::explain;
use crate::hardware::IN;
use crate::hardware::OUT;
use crate::hardware::Place;
use crate::injection::Injection;

/// How long the flushed work requests of a queue pair that stalled may take to come back.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);
/// Of nanoseconds: to one percent, up to a minute.
const DIGITS: u8 = 2;
const LONGEST_NS: u64 = 60_000_000_000;
/// Messages before the clock starts, unless there is a pace: the first find caches cold and the
/// peer asleep.
const WARM_UP: u32 = 4;
/// `IBV_WC_WR_FLUSH_ERR`: of those that follow an error.
const FLUSHED: u32 = 5;

/// What became of a flow, at its sender.
#[derive(Clone, Debug)]
pub(crate) struct FlowOutcome {
    pub messages: u64,
    /// Of datagrams.
    pub(crate) lost: Option<u64>,
    /// In seconds.
    pub(crate) took: f64,
    /// In ns, half of the time from posting to completion, which is when the peer's NIC has acknowledged the
    /// message; of a read, which ends with its answer, the whole time.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) errors: u32,
    /// That is not of those that follow another.
    pub(crate) first_error: Option<String>,
    /// The connection is of no use any more.
    pub(crate) broken: bool,
}

impl FlowOutcome {
    /// Of datagrams only the receiver knows how many have arrived, and nobody how long they took.
    pub(super) fn counted_by_receiver(&mut self, arrived: Option<u64>) {
        self.latencies.reset();
        let Some(arrived) = arrived else {
            self.first_error
                .get_or_insert_with(|| "the receiver does not say what arrived".to_owned());
            return;
        };
        self.lost = Some(self.messages.saturating_sub(arrived));
        self.messages = self.messages.min(arrived);
        if arrived == 0 {
            self.first_error.get_or_insert_with(|| "no datagram has arrived".to_owned());
        }
    }
}

/// A flow in the making.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) flow: Flow,
    qp: Option<Arc<QueuePair>>,
    pub(crate) queue_pair: u32,
    address: u64,
    rkey: u32,
    inline: bool,
    /// Parts of a round trip that a message is.
    parts: u64,
    /// Where in memory a read puts what it fetches.
    fetched: usize,
    region: Option<Region>,
    pub(crate) ready: bool,
    began: Option<Instant>,
    last: Option<Instant>,
    /// How many have yet to complete before it began.
    warming: u32,
    posted: u32,
    /// When those were posted that have not completed.
    flying: VecDeque<Instant>,
    aborted: bool,
    pub(crate) outcome: FlowOutcome,
}

impl Sender {
    pub(super) fn new(mesh: &Mesh, flow: Flow, lane: usize, load: &Load) -> Result<Self, Error> {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        let latencies = latencies.map_err(|error| Error::Check(error.to_string()))?;
        let outcome = FlowOutcome {
            messages: 0,
            lost: None,
            took: 0.0,
            latencies,
            errors: 0,
            first_error: None,
            broken: false,
        };
        let mut sender = Self {
            flow,
            qp: None,
            queue_pair: 0,
            address: 0,
            rkey: 0,
            inline: false,
            parts: if load.by == By::Read { 1 } else { 2 },
            fetched: mesh.hardware.get(flow.rail).map_or(IN, |hardware| hardware.needs.at(IN)),
            region: mesh.hardware.get(flow.rail).map(|hardware| hardware.region.clone()),
            ready: false,
            began: None,
            last: None,
            warming: if load.target.is_none() { WARM_UP.min(load.window) } else { 0 },
            posted: 0,
            flying: VecDeque::new(),
            aborted: false,
            outcome,
        };
        match find(mesh, flow.to, flow.rail, lane) {
            Some((qp, made, theirs)) => {
                sender.qp = Some(qp);
                sender.queue_pair = made.qp_num;
                (sender.address, sender.rkey) = (theirs.address, theirs.rkey);
                // EFA takes bytes inline that it sends, and none that it writes.
                let takes = match load.by {
                    By::Send => true,
                    By::Write => load.transport == Transport::Rc,
                    By::Read => false,
                };
                sender.inline = takes && load.size <= made.inline;
            }
            None => sender.fail("the connection is gone"),
        }
        if load.injection == Some(Injection::WrongRkey) {
            sender.rkey ^= 0xff;
        }
        Ok(sender)
    }

    fn fail(&mut self, why: &str) {
        self.outcome.broken = true;
        self.outcome.first_error.get_or_insert_with(|| why.to_owned());
    }

    /// Not counted, and nothing is wrong with the connection.
    pub(crate) fn give_up(&mut self, why: &str) {
        self.outcome.first_error.get_or_insert_with(|| why.to_owned());
    }

    pub(crate) fn is_over(&self) -> bool {
        self.outcome.first_error.is_some()
    }

    /// Posts what may be posted now; whether that was anything.
    pub(crate) fn post(&mut self, load: &Load, number: u64) -> bool {
        let mut any = false;
        while !self.is_over() && self.ready && self.flying.len() < usize_of(load.window) {
            let now = Instant::now();
            let warm_up = usize_of(self.warming);
            let due = match load.interval() {
                _ if warm_up > 0 => self.flying.len() < warm_up,
                Some(interval) => {
                    let due = f64::from(self.posted) * interval;
                    due <= self.elapsed(now) && due + interval / 2.0 < load.span()
                }
                None => self.elapsed(now) < load.seconds,
            };
            if !due {
                break;
            }
            let (Some(qp), Some(region)) = (&self.qp, &self.region) else {
                self.fail("the connection is gone");
                break;
            };
            let (offset, operation) = match load.by {
                By::Write => (OUT, Operation::Write(self.address, self.rkey)),
                By::Send => (OUT, Operation::Send),
                By::Read => (self.fetched, Operation::Read(self.address, self.rkey)),
            };
            let piece = Piece { region, offset, length: load.size };
            match qp.post_send(number << 1, operation, &[piece], true, self.inline) {
                Ok(()) => {
                    self.posted += 1;
                    self.flying.push_back(now);
                    any = true;
                }
                Err(error) => self.fail(&error.to_string()),
            }
        }
        any
    }

    /// In seconds.
    fn elapsed(&mut self, now: Instant) -> f64 {
        (now - *self.began.get_or_insert(now)).as_secs_f64()
    }

    /// How long nothing has to be done for it: at a pace, until the next message is due.
    pub(crate) fn idle(&self, load: &Load) -> Duration {
        let due = load.interval().zip(self.began).filter(|_| self.flying.is_empty());
        let due = due.map(|(interval, began)| {
            let due = Duration::from_secs_f64(f64::from(self.posted) * interval);
            due.saturating_sub(began.elapsed())
        });
        due.unwrap_or(Duration::ZERO)
    }

    pub(crate) fn completed(&mut self, completion: &Completion) {
        let now = Instant::now();
        self.last = Some(now);
        let Some(posted) = self.flying.pop_front() else { return };
        if completion.status == 0 && self.warming > 0 {
            self.warming -= 1;
        } else if completion.status == 0 {
            self.outcome.messages += 1;
            let ns = u64::try_from((now - posted).as_nanos()).unwrap_or(LONGEST_NS);
            self.outcome.latencies.saturating_record(ns / self.parts);
        } else {
            self.failed(completion);
        }
    }

    fn failed(&mut self, completion: &Completion) {
        self.outcome.errors += 1;
        if completion.status == FLUSHED {
            self.outcome.broken = true;
        } else {
            self.fail(&explain::words(completion));
        }
    }

    /// Whether nothing more will come of it; a connection on which nothing completes is ended.
    pub(crate) fn is_done(&mut self, load: &Load) -> bool {
        if self.flying.is_empty() {
            let ended =
                self.began.is_some_and(|began| began.elapsed().as_secs_f64() >= load.span());
            return self.is_over() || self.outcome.broken || ended;
        }
        let since = self.last.max(self.flying.front().copied());
        let silent = since.map_or(Duration::ZERO, |since| since.elapsed());
        if silent >= load.stall && !self.aborted {
            self.aborted = true;
            let seconds = load.stall.as_secs();
            self.fail(&format!("STALL: no completion in {seconds} s (`verbgate explain STALL`)"));
            // What cannot be ended is destroyed with its connection.
            let _ = self.qp.as_ref().map(|qp| qp.abort());
        }
        self.aborted && silent >= load.stall + FLUSH
    }

    /// Takes in another queue pair of the same flow.
    fn absorb(&mut self, other: Self) {
        self.began = match (self.began, other.began) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.last = self.last.max(other.last);
        let FlowOutcome { messages, latencies, errors, first_error, broken, .. } = other.outcome;
        self.outcome.messages += messages;
        // Of the same bounds, so that all fit.
        let _ = self.outcome.latencies.add(latencies);
        self.outcome.errors += errors;
        self.outcome.first_error = self.outcome.first_error.take().or(first_error);
        self.outcome.broken |= broken;
    }

    fn finish(mut self, load: &Load) -> (Flow, FlowOutcome) {
        let took = self.began.zip(self.last).map(|(began, last)| (last - began).as_secs_f64());
        let took = took.unwrap_or(0.0);
        self.outcome.took = if load.target.is_some() { took.max(load.span()) } else { took };
        if self.outcome.broken {
            self.outcome.first_error.get_or_insert_with(|| "flushed".to_owned());
        } else if self.outcome.messages == 0 {
            self.outcome.first_error.get_or_insert_with(|| "nothing was sent".to_owned());
        }
        (self.flow, self.outcome)
    }
}

/// What became of the flows, each of all its queue pairs.
pub(super) fn outcomes(senders: Vec<Sender>, load: &Load) -> Vec<(Flow, FlowOutcome)> {
    let mut flows: Vec<Sender> = Vec::new();
    for sender in senders {
        match flows.iter_mut().find(|of| of.flow == sender.flow) {
            Some(of) => of.absorb(sender),
            None => flows.push(sender),
        }
    }
    flows.into_iter().map(|flow| flow.finish(load)).collect()
}

fn usize_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A connection, where this end of it is, and the other.
pub(super) fn find(
    mesh: &Mesh,
    rank: u32,
    rail: usize,
    lane: usize,
) -> Option<(Arc<QueuePair>, Place, Place)> {
    let of = |peer: &&Peer| (peer.rank, peer.rail, peer.lane) == (rank, rail, lane);
    let peer = mesh.peers.iter().find(of)?;
    let made = peer.made.as_ref()?;
    Some((Arc::clone(&made.qp), made.place.clone(), peer.theirs.clone()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Rails;

    #[test]
    fn the_queue_pairs_of_a_flow_have_one_outcome() {
        let mesh = Mesh::new(0, 2, Rails::default());
        let load = Load { lanes: 2, ..Load::of_size(4096) };
        let flow = Flow { from: 0, to: 1, rail: 0 };
        let began = Instant::now();
        let sender = |lane: u32| {
            let mut sender = Sender::new(&mesh, flow, usize_of(lane), &load).unwrap();
            // There is no connection here.
            (sender.outcome.first_error, sender.outcome.broken) = (None, false);
            sender.began = Some(began + Duration::from_millis(100) * lane);
            sender.last = Some(began + Duration::from_millis(500) * (lane + 1));
            sender.outcome.messages = u64::from(lane + 1) * 10;
            sender.outcome.latencies.record(1000).unwrap();
            sender
        };
        let found = outcomes((0..2).map(sender).collect(), &load);
        let [(of, outcome)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((*of, outcome.messages, outcome.latencies.len()), (flow, 30, 2));
        // From the first post to the last completion.
        assert!((outcome.took - 1.0).abs() < 1e-9, "{outcome:?}");
        let mut failed = sender(1);
        failed.fail("RETRY_EXC_ERR");
        let found = outcomes(vec![sender(0), failed], &load);
        assert_eq!(found[0].1.first_error.as_deref(), Some("RETRY_EXC_ERR"));
        assert!(found[0].1.broken);
        // Of datagrams those count that have arrived.
        let mut sent = sender(1).outcome;
        sent.counted_by_receiver(Some(17));
        assert_eq!((sent.messages, sent.lost, sent.latencies.len()), (17, Some(3), 0));
        sent.counted_by_receiver(Some(0));
        assert_eq!(sent.first_error.as_deref(), Some("no datagram has arrived"));
    }
}
