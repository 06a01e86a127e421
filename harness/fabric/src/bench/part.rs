//! One step of a rank: the rank's messages to its peers, as fast as possible or at a pace, and the
//! receives that the peers need.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use verbgate_host::output::say;
use verbgate_verbs::Completion;
use verbgate_verbs::Piece;

use crate::bench::load::Load;
use crate::bench::options::By;
use crate::bench::plan::Flow;
use crate::bench::sender::FlowOutcome;
use crate::bench::sender::Sender;
use crate::bench::sender::find;
use crate::bench::sender::outcomes;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::error::Error;
use crate::exchange::INTERRUPTED;
use crate::exchange::Injection;
use crate::hardware::DEPTH;
use crate::hardware::IN;
use crate::rendezvous::Link;

/// How often who measures looks what the others say.
const LOOK: Duration = Duration::from_millis(1);
/// How much earlier than a message is due a sender wakes, because sleep is not exact.
const WAKING: Duration = Duration::from_micros(200);
/// Who only waits for the others' word waits so long at a time.
const WORD: Duration = Duration::from_millis(5);
/// After this, somebody who is not ready is named, once.
const LATE: Duration = Duration::from_secs(2);
/// `wr_id` of receives; those of sends are even.
const RECEIVE: u64 = 1;
/// Completions that are taken at once.
const BATCH: usize = 32;

/// Receives that are posted, by rail and queue pair; they stay from step to step.
pub(crate) type Rings = BTreeMap<(usize, u32), u32>;

/// This rank's part of a step.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) mesh: &'a mut Mesh,
    pub(crate) link: &'a mut Link,
    pub(crate) rings: &'a mut Rings,
    pub number: u64,
    pub(crate) load: &'a Load,
    /// How long a peer may take until it is ready.
    pub(crate) patience: Duration,
}

#[derive(Debug)]
struct Receiver {
    flow: Flow,
    peer: usize,
    queue_pair: u32,
    done: bool,
}

/// Of a rank that is not there any more.
pub(crate) fn gone(rank: u32) -> String {
    format!("rank {rank} is not there any more")
}

impl Part<'_> {
    /// What became of the flows that this rank sends.
    pub(super) fn run(mut self, flows: &[Flow]) -> Result<Vec<(Flow, FlowOutcome)>, Error> {
        let me = self.mesh.rank;
        let mut senders = Vec::new();
        for flow in flows.iter().filter(|flow| flow.from == me) {
            for lane in 0..self.load.lanes {
                senders.push(Sender::new(self.mesh, *flow, lane, self.load)?);
            }
        }
        let mut receivers = Vec::new();
        for flow in flows.iter().filter(|flow| flow.to == me) {
            for lane in 0..self.load.lanes {
                let found = find(self.mesh, flow.from, flow.rail, lane);
                let found = found.map(|(index, made, _)| (index, made.qp_num));
                let (peer, queue_pair) = found.unwrap_or((usize::MAX, 0));
                receivers.push(Receiver { flow: *flow, peer, queue_pair, done: false });
            }
            self.fill(&receivers)?;
            let (rail, step) = (flow.rail, self.number);
            self.link.send(flow.from, &Control::Ready { rail, step })?;
        }
        self.work(&mut senders, &mut receivers)?;
        Ok(outcomes(senders, self.load))
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
            let open = self.tell(senders, &mut told)?;
            let waiting = receivers.iter().any(|receiver| !receiver.done);
            if !open && !waiting {
                return Ok(());
            }
            if !busy {
                let active = senders.iter().zip(&told).filter(|(_, told)| !**told);
                let idle = active.map(|(sender, _)| sender.idle(self.load)).min();
                match idle.map(|idle| idle.saturating_sub(WAKING).min(LOOK)) {
                    Some(idle) if !idle.is_zero() => thread::sleep(idle),
                    _ if self.load.events => self.doze(senders, receivers)?,
                    _ => thread::yield_now(),
                }
            }
            if looked.elapsed() < LOOK {
                continue;
            }
            // Receives must be posted anew at once; memory needs nobody.
            let sending = senders.iter().zip(&told).any(|(sender, told)| sender.ready && !told);
            let idle = !sending && self.load.by != By::Send;
            let pause = if idle { WORD } else { Duration::ZERO };
            self.listen(senders, receivers, pause)?;
            looked = Instant::now();
            for sender in senders.iter_mut().filter(|sender| !self.link.has(sender.flow.to)) {
                sender.give_up(&gone(sender.flow.to));
            }
            for receiver in receivers.iter_mut().filter(|of| !self.link.has(of.flow.from)) {
                receiver.done = true;
            }
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
            if began.elapsed() >= self.load.most(self.patience) {
                // Whoever did not say that it is done does not come to the next meeting either,
                // where it is named.
                receivers.iter_mut().for_each(|receiver| receiver.done = true);
            }
        }
    }

    /// Tells receivers of the flows that are done, on all of their queue pairs; whether others are not.
    fn tell(&self, senders: &mut [Sender], told: &mut [bool]) -> Result<bool, Error> {
        let mut ended = BTreeSet::new();
        for (sender, told) in senders.iter_mut().zip(&mut *told).filter(|(_, told)| !**told) {
            *told = sender.is_done(self.mesh, self.load);
            ended.extend(Some(sender.flow).filter(|_| *told));
        }
        for flow in ended {
            let mut of = senders.iter().zip(&*told).filter(|(sender, _)| sender.flow == flow);
            if of.clone().all(|(_, told)| *told) {
                let fault = of.find_map(|(sender, _)| sender.outcome.first_error.clone());
                let (rail, step) = (flow.rail, self.number);
                self.link.send(flow.to, &Control::Done { rail, step, fault })?;
            }
        }
        Ok(told.iter().any(|told| !*told))
    }

    /// Sleeps until something completes, or the others are to be heard.
    fn doze(&mut self, senders: &mut [Sender], receivers: &[Receiver]) -> Result<(), Error> {
        for (_, hardware) in self.mesh.hardware.iter() {
            hardware.cq.arm()?;
        }
        // What completed before has no event.
        if self.poll(senders, receivers)? {
            return Ok(());
        }
        let queues: Vec<_> = self.mesh.hardware.iter().map(|(_, hardware)| &hardware.cq).collect();
        verbgate_verbs::wait(&queues, LOOK)?;
        Ok(())
    }

    /// Said once, however long it takes.
    fn name_the_late(&self, senders: &[Sender]) {
        let mut late: Vec<u32> =
            senders.iter().filter(|s| !s.ready && !s.is_over()).map(|s| s.flow.to).collect();
        late.dedup();
        if !late.is_empty() {
            say(&format!("rank {}: still waits for {late:?}", self.mesh.rank));
        }
    }

    /// Takes what has completed; whether that was anything.
    fn poll(&mut self, senders: &mut [Sender], receivers: &[Receiver]) -> Result<bool, Error> {
        let mut any = false;
        let mut completions = [(); BATCH].map(|()| Completion::default());
        for (rail, hardware) in self.mesh.hardware.iter() {
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
                let (offset, room) = (hardware.needs.at(IN), hardware.needs.room());
                let piece = Piece { region: &hardware.region, offset, length: room };
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
                    let of =
                        senders.iter_mut().filter(|s| (s.flow.to, s.flow.rail) == (from, rail));
                    of.for_each(|sender| sender.ready = true);
                }
                Control::Done { rail, step, .. } if step == self.number => {
                    let of =
                        receivers.iter_mut().filter(|r| (r.flow.from, r.flow.rail) == (from, rail));
                    of.for_each(|receiver| receiver.done = true);
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
