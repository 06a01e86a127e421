//! One step: this rank's messages to its peers, as fast as they go or at a pace, and what its peers
//! need to send theirs.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use hdrhistogram::Histogram;
use verbgate_sys::rdma::Completion;
use verbgate_sys::rdma::Operation;
use verbgate_sys::rdma::Piece;
use verbgate_sys::rdma::Region;

use crate::fabric::bench::options::By;
use crate::fabric::bench::plan::Flow;
use crate::fabric::connect::Control;
use crate::fabric::connect::DEPTH;
use crate::fabric::connect::IN;
use crate::fabric::connect::Mesh;
use crate::fabric::connect::OUT;
use crate::fabric::connect::SLOT;
use crate::fabric::error::Error;
use crate::fabric::exchange::INTERRUPTED;
use crate::fabric::exchange::Injection;
use crate::fabric::explain;
use crate::fabric::rendezvous::Link;

/// Longer than a queue pair repeats before it gives up.
pub(crate) const STALL: Duration = Duration::from_secs(20);
/// How long the flushed work requests of a queue pair that stalled may take to come back.
const FLUSH: Duration = Duration::from_secs(2);
/// How often who measures looks what the others say.
const LOOK: Duration = Duration::from_millis(1);
/// Who only waits for the others' word waits so long at a time.
const WORD: Duration = Duration::from_millis(5);
/// After this, somebody who is not ready is named, once.
const LATE: Duration = Duration::from_secs(2);
/// At least so many messages make a pace.
const PACED: f64 = 10.0;
/// `wr_id` of receives; those of sends are even.
const RECEIVE: u64 = 1;
/// Of nanoseconds: to one percent, up to a minute.
const DIGITS: u8 = 2;
const LONGEST_NS: u64 = 60_000_000_000;
/// Completions that are taken at once.
const BATCH: usize = 32;
/// `IBV_WC_WR_FLUSH_ERR`: of those that follow an error.
const FLUSHED: u32 = 5;

/// What each sender of a step does.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) by: By,
    pub(crate) size: usize,
    pub(crate) window: u32,
    /// In Gb/s.
    pub(crate) target: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) injection: Option<Injection>,
}

impl Load {
    /// From one message to the next, in seconds, at a pace.
    fn interval(&self) -> Option<f64> {
        Some(self.size as f64 * 8e-9 / self.target?)
    }

    /// How long messages are sent, in seconds: at a pace, a whole number of intervals.
    pub(crate) fn span(&self) -> f64 {
        match self.interval() {
            Some(interval) => (self.seconds / interval).ceil().max(PACED) * interval,
            None => self.seconds,
        }
    }
}

/// What became of a flow, at its sender.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) messages: u64,
    /// In seconds.
    pub(crate) took: f64,
    /// From posting to completion, which is when the peer's NIC has acknowledged it, in ns.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) errors: u32,
    /// That is not of those that follow another.
    pub(crate) first_error: Option<String>,
    /// The connection is of no use any more.
    pub(crate) broken: bool,
}

/// Receives that are posted, by rail and queue pair; they stay from step to step.
pub(crate) type Rings = BTreeMap<(usize, u32), u32>;

/// This rank's part of a step.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) mesh: &'a mut Mesh,
    pub(crate) link: &'a mut Link,
    pub(crate) rings: &'a mut Rings,
    pub(crate) number: u64,
    pub(crate) load: &'a Load,
    /// How long a peer may take until it is ready.
    pub(crate) patience: Duration,
}

#[derive(Debug)]
struct Sender {
    flow: Flow,
    /// Of the connection, in the mesh.
    peer: usize,
    queue_pair: u32,
    address: u64,
    rkey: u32,
    inline: bool,
    region: Option<Region>,
    ready: bool,
    began: Option<Instant>,
    last: Option<Instant>,
    posted: u32,
    /// When those were posted that have not completed.
    flying: VecDeque<Instant>,
    aborted: bool,
    outcome: Outcome,
}

#[derive(Debug)]
struct Receiver {
    flow: Flow,
    peer: usize,
    queue_pair: u32,
    done: bool,
}

impl Sender {
    fn new(mesh: &Mesh, flow: Flow, load: &Load) -> Result<Self, Error> {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        let latencies = latencies.map_err(|error| Error::Check(error.to_string()))?;
        let outcome = Outcome {
            messages: 0,
            took: 0.0,
            latencies,
            errors: 0,
            first_error: None,
            broken: false,
        };
        let mut sender = Self {
            flow,
            peer: usize::MAX,
            queue_pair: 0,
            address: 0,
            rkey: 0,
            inline: false,
            region: mesh.hardware.get(flow.rail).map(|hardware| hardware.region.clone()),
            ready: false,
            began: None,
            last: None,
            posted: 0,
            flying: VecDeque::new(),
            aborted: false,
            outcome,
        };
        match find(mesh, flow.to, flow.rail) {
            Some((peer, made, theirs)) => {
                sender.peer = peer;
                sender.queue_pair = made.qp_num;
                (sender.address, sender.rkey) = (theirs.address, theirs.rkey);
                sender.inline = load.by != By::Read && load.size <= made.inline;
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
    fn give_up(&mut self, why: &str) {
        self.outcome.first_error.get_or_insert_with(|| why.to_owned());
    }

    fn is_over(&self) -> bool {
        self.outcome.first_error.is_some()
    }

    /// Posts what may be posted now; whether that was anything.
    fn post(&mut self, mesh: &mut Mesh, load: &Load, number: u64) -> Result<bool, Error> {
        let mut any = false;
        while !self.is_over() && self.ready && self.flying.len() < usize_of(load.window) {
            let now = Instant::now();
            let elapsed = self.began.get_or_insert(now).elapsed().as_secs_f64();
            let due = match load.interval() {
                Some(interval) => {
                    let due = f64::from(self.posted) * interval;
                    due <= elapsed && due + interval / 2.0 < load.span()
                }
                None => elapsed < load.seconds,
            };
            if !due {
                break;
            }
            let made = mesh.peers.get_mut(self.peer).and_then(|peer| peer.made.as_mut());
            let (Some(made), Some(region)) = (made, &self.region) else {
                self.fail("the connection is gone");
                break;
            };
            let (offset, operation) = match load.by {
                By::Write => (OUT, Operation::Write(self.address, self.rkey)),
                By::Send => (OUT, Operation::Send),
                By::Read => (IN, Operation::Read(self.address, self.rkey)),
            };
            let piece = Piece { region, offset, length: load.size };
            match made.qp.post_send(number << 1, operation, &[piece], true, self.inline) {
                Ok(()) => {
                    self.posted += 1;
                    self.flying.push_back(now);
                    any = true;
                }
                Err(error) => self.fail(&error.to_string()),
            }
        }
        Ok(any)
    }

    fn completed(&mut self, completion: &Completion) {
        let now = Instant::now();
        self.last = Some(now);
        let Some(posted) = self.flying.pop_front() else { return };
        if completion.status == 0 {
            self.outcome.messages += 1;
            let ns = u64::try_from((now - posted).as_nanos()).unwrap_or(LONGEST_NS);
            self.outcome.latencies.saturating_record(ns);
            return;
        }
        self.outcome.errors += 1;
        if completion.status == FLUSHED {
            self.outcome.broken = true;
        } else {
            self.fail(&explain::words(completion));
        }
    }

    /// Whether nothing more will come of it; a connection on which nothing completes is ended.
    fn is_done(&mut self, mesh: &Mesh, load: &Load) -> bool {
        if self.flying.is_empty() {
            let ended =
                self.began.is_some_and(|began| began.elapsed().as_secs_f64() >= load.span());
            return self.is_over() || self.outcome.broken || ended;
        }
        let since = self.last.max(self.flying.front().copied());
        let silent = since.map_or(Duration::ZERO, |since| since.elapsed());
        if silent >= STALL && !self.aborted {
            self.aborted = true;
            let seconds = STALL.as_secs();
            self.fail(&format!("STALL: no completion in {seconds} s (`verbgate explain STALL`)"));
            let made = mesh.peers.get(self.peer).and_then(|peer| peer.made.as_ref());
            // What cannot be ended is destroyed with its connection.
            let _ = made.map(|made| made.qp.abort());
        }
        self.aborted && silent >= STALL + FLUSH
    }

    fn finish(mut self, load: &Load) -> (Flow, Outcome) {
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

fn usize_of(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

type Place = crate::fabric::connect::Place;

/// A connection, where this end of it is, and the other.
fn find(mesh: &Mesh, rank: u32, rail: usize) -> Option<(usize, Place, Place)> {
    let index = mesh.peers.iter().position(|peer| (peer.rank, peer.rail) == (rank, rail))?;
    let peer = mesh.peers.get(index)?;
    Some((index, peer.made.as_ref()?.place.clone(), peer.theirs.clone()?))
}

impl Part<'_> {
    /// What became of the flows that this rank sends.
    pub(crate) fn run(mut self, flows: &[Flow]) -> Result<Vec<(Flow, Outcome)>, Error> {
        let me = self.mesh.rank;
        let mut senders = Vec::new();
        for flow in flows.iter().filter(|flow| flow.from == me) {
            senders.push(Sender::new(self.mesh, *flow, self.load)?);
        }
        let mut receivers = Vec::new();
        for flow in flows.iter().filter(|flow| flow.to == me) {
            let found = find(self.mesh, flow.from, flow.rail);
            let (peer, queue_pair) = found.map_or((usize::MAX, 0), |(i, made, _)| (i, made.qp_num));
            receivers.push(Receiver { flow: *flow, peer, queue_pair, done: false });
            self.fill(&receivers)?;
            let (rail, step) = (flow.rail, self.number);
            self.link.send(flow.from, &Control::Ready { rail, step })?;
        }
        self.work(&mut senders, &mut receivers)?;
        Ok(senders.into_iter().map(|sender| sender.finish(self.load)).collect())
    }

    /// Until all has been sent, and all that is sent to this rank.
    fn work(&mut self, senders: &mut [Sender], receivers: &mut [Receiver]) -> Result<(), Error> {
        let began = Instant::now();
        let mut told = vec![false; senders.len()];
        let mut named = false;
        let mut looked = began;
        loop {
            let mut busy = false;
            for sender in &mut *senders {
                busy |= sender.post(self.mesh, self.load, self.number)?;
            }
            busy |= self.poll(senders, receivers)?;
            let mut open = false;
            for (sender, told) in senders.iter_mut().zip(&mut told) {
                if !*told && sender.is_done(self.mesh, self.load) {
                    *told = true;
                    let (rail, step) = (sender.flow.rail, self.number);
                    let fault = sender.outcome.first_error.clone();
                    self.link.send(sender.flow.to, &Control::Done { rail, step, fault })?;
                }
                open |= !*told;
            }
            let waiting = receivers.iter().any(|receiver| !receiver.done);
            if !open && !waiting {
                return Ok(());
            }
            if looked.elapsed() < LOOK && open {
                if !busy {
                    thread::yield_now();
                }
                continue;
            }
            // Receives must be posted anew at once; memory needs nobody.
            let idle = !senders.iter().any(|sender| sender.ready && !sender.is_over());
            let pause = if idle && self.load.by != By::Send { WORD } else { Duration::ZERO };
            self.listen(senders, receivers, pause)?;
            looked = Instant::now();
            if self.link.interrupt.has_come() {
                senders.iter_mut().for_each(|sender| sender.give_up(INTERRUPTED));
            }
            if !named && began.elapsed() >= LATE {
                named = true;
                self.name_the_late(senders);
            }
            if began.elapsed() >= self.patience {
                let seconds = self.patience.as_secs();
                for sender in senders.iter_mut().filter(|sender| !sender.ready) {
                    let rank = sender.flow.to;
                    sender.give_up(&format!("not ready: no word from rank {rank} in {seconds} s"));
                }
            }
            let most = self.patience + STALL + FLUSH + Duration::from_secs_f64(self.load.span());
            if began.elapsed() >= most {
                // Whoever did not say that it is done does not come to the next meeting either,
                // where it is named.
                receivers.iter_mut().for_each(|receiver| receiver.done = true);
            }
        }
    }

    /// Said once, however long it takes.
    fn name_the_late(&self, senders: &[Sender]) {
        let mut late: Vec<u32> =
            senders.iter().filter(|s| !s.ready && !s.is_over()).map(|s| s.flow.to).collect();
        late.dedup();
        if !late.is_empty() {
            eprintln!("verbgate: rank {}: not ready yet: {late:?}", self.mesh.rank);
        }
    }

    /// Takes what has completed; whether that was anything.
    fn poll(&mut self, senders: &mut [Sender], receivers: &[Receiver]) -> Result<bool, Error> {
        let mut any = false;
        let mut completions = [(); BATCH].map(|()| Completion::default());
        for (rail, hardware) in self.mesh.hardware.iter().enumerate() {
            let used = senders.iter().any(|sender| sender.flow.rail == rail)
                || receivers.iter().any(|receiver| receiver.flow.rail == rail);
            if !used {
                continue;
            }
            let count = hardware.cq.poll_into(&mut completions)?;
            any |= count > 0;
            for completion in completions.iter().take(count) {
                let of = (rail, completion.qp_num);
                if completion.wr_id == RECEIVE {
                    if let Some(posted) = self.rings.get_mut(&of) {
                        *posted = posted.saturating_sub(1);
                    }
                } else if completion.wr_id == self.number << 1 {
                    // Of an earlier step that was given up, something may be left.
                    let mut of_it =
                        senders.iter_mut().filter(|s| (s.flow.rail, s.queue_pair) == of);
                    if let Some(sender) = of_it.next() {
                        sender.completed(completion);
                    }
                }
            }
        }
        if any {
            self.fill(receivers)?;
        }
        Ok(any)
    }

    /// Posts receives, as many as there is room for.
    fn fill(&mut self, receivers: &[Receiver]) -> Result<(), Error> {
        if self.load.by != By::Send || self.load.injection == Some(Injection::NoReceives) {
            return Ok(());
        }
        for Receiver { flow, peer, queue_pair, .. } in receivers {
            let made = self.mesh.peers.get_mut(*peer).and_then(|peer| peer.made.as_mut());
            let hardware = self.mesh.hardware.get(flow.rail);
            let (Some(made), Some(hardware)) = (made, hardware) else { continue };
            let posted = self.rings.entry((flow.rail, *queue_pair)).or_default();
            while *posted < DEPTH {
                // Nothing is compared, so all may arrive at the same place.
                let piece = Piece { region: &hardware.region, offset: IN, length: SLOT };
                if made.qp.post_receive(RECEIVE, &[piece]).is_err() {
                    // A queue that is full, or in error: the sender's completions tell.
                    break;
                }
                *posted += 1;
            }
        }
        Ok(())
    }

    /// What the others say.
    fn listen(
        &mut self,
        senders: &mut [Sender],
        receivers: &mut [Receiver],
        pause: Duration,
    ) -> Result<(), Error> {
        let mut pause = pause;
        while let Some((from, body)) = self.link.receive(pause)? {
            self.mesh.hear(self.link, from, body)?;
            pause = Duration::ZERO;
        }
        let mut kept = VecDeque::new();
        while let Some((from, control)) = self.mesh.said.pop_front() {
            match control {
                Control::Ready { rail, step } if step == self.number => {
                    let of = senders.iter_mut().find(|s| (s.flow.to, s.flow.rail) == (from, rail));
                    of.into_iter().for_each(|sender| sender.ready = true);
                }
                Control::Done { rail, step, .. } if step == self.number => {
                    let of =
                        receivers.iter_mut().find(|r| (r.flow.from, r.flow.rail) == (from, rail));
                    of.into_iter().for_each(|receiver| receiver.done = true);
                }
                // Of a step that this rank has given up.
                Control::Ready { step, .. } | Control::Done { step, .. } if step < self.number => {}
                other => kept.push_back((from, other)),
            }
        }
        self.mesh.said = kept;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_whole_number_of_messages_and_not_too_few() {
        let load = |size, target, seconds| {
            let (by, window, injection) = (By::Write, 16, None);
            Load { by, size, window, target, seconds, injection }
        };
        assert_eq!(load(64, None, 0.5).span(), 0.5);
        // 1,000 bytes at 0.008 Gb/s are one each millisecond.
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(load(1000, Some(0.008), 0.5).span(), 0.5);
        near(load(1000, Some(0.008), 0.0995).span(), 0.1);
        near(load(1000, Some(0.008), 0.001).span(), 0.01);
    }
}
