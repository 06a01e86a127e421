//! One step of a rank: the rank's messages to its peers, as fast as possible or at a pace, and the
//! receives that the peers need. Threads post and poll, and the rank's own thread listens to the others.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use verbgate_host::output::say;
use verbgate_verbs::Transport;

use crate::bench::load::Load;
use crate::bench::options::By;
use crate::bench::plan::Flow;
use crate::bench::sender::FlowOutcome;
use crate::bench::sender::Sender;
use crate::bench::sender::find;
use crate::bench::sender::outcomes;
use crate::bench::work::LOOK;
use crate::bench::work::Receiver;
pub(crate) use crate::bench::work::Rings;
use crate::bench::work::Seat;
use crate::bench::work::Share;
use crate::bench::work::rest;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::connect::WORD;
use crate::error::Error;
use crate::exchange::INTERRUPTED;
use crate::hardware::IN;
use crate::rendezvous::Link;

/// After this, somebody who is not ready is named, once.
const LATE: Duration = Duration::from_secs(2);
/// How long a receiver may take to say how many datagrams it has.
const COUNTED: Duration = Duration::from_secs(5);

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

/// Of a rank that is not there any more.
pub(crate) fn gone(rank: u32) -> String {
    format!("rank {rank} is not there any more")
}

/// What receivers of datagrams have said.
type Got = BTreeMap<(u32, usize), u64>;

impl Part<'_> {
    /// What became of the flows that this rank sends.
    pub(super) fn run(mut self, flows: &[Flow]) -> Result<Vec<(Flow, FlowOutcome)>, Error> {
        let load = self.load;
        let seats = self.seats(flows)?;
        for flow in flows.iter().filter(|flow| flow.to == self.mesh.rank) {
            let (rail, step) = (flow.rail, self.number);
            self.link.send(flow.from, &Control::Ready { rail, step })?;
        }
        let mut got = Got::new();
        thread::scope(|scope| {
            // A single thread does all.
            let alone = seats.len() == 1;
            for seat in seats.iter().filter(|_| !alone) {
                scope.spawn(|| seat.run());
            }
            let ended = self.work(&seats, alone, &mut got);
            seats.iter().for_each(Seat::end);
            ended
        })?;
        let mut senders = Vec::new();
        for seat in seats {
            let work = seat.into_work();
            senders.extend(work.senders);
            self.rings.extend(work.rings);
        }
        let mut outcomes = outcomes(senders, load);
        if load.transport == Transport::Ud {
            for (flow, outcome) in &mut outcomes {
                outcome.counted_by_receiver(got.get(&(flow.to, flow.rail)).copied());
            }
        }
        Ok(outcomes)
    }

    /// Each thread's senders and receivers, by the queue pairs whose completions go to the thread.
    fn seats<'a>(&mut self, flows: &[Flow]) -> Result<Vec<Seat<'a>>, Error>
    where
        Self: 'a,
    {
        let (me, load, number) = (self.mesh.rank, self.load, self.number);
        let mut seats = Vec::new();
        for thread in 0..load.threads.min(load.lanes) {
            let mut work = Share {
                load,
                number,
                senders: Vec::new(),
                told: Vec::new(),
                receivers: Vec::new(),
                rings: Rings::new(),
                queues: BTreeMap::new(),
            };
            let lanes = (0..load.lanes).filter(|lane| lane % load.threads == thread);
            for (flow, lane) in flows.iter().flat_map(|flow| lanes.clone().map(move |l| (flow, l)))
            {
                if let Some(hardware) = self.mesh.hardware.get(flow.rail) {
                    work.queues.entry(flow.rail).or_insert_with(|| hardware.cq(lane).clone());
                }
                if flow.from == me {
                    work.senders.push(Sender::new(self.mesh, *flow, lane, load)?);
                } else {
                    let receiver = self.receiver(*flow, lane);
                    let ring = (flow.rail, receiver.queue_pair);
                    work.rings.extend(self.rings.remove(&ring).map(|posted| (ring, posted)));
                    work.receivers.push(receiver);
                }
            }
            work.told = vec![false; work.senders.len()];
            work.fill();
            seats.push(Seat::new(work));
        }
        Ok(seats)
    }

    fn receiver(&self, flow: Flow, lane: usize) -> Receiver {
        let hardware = self.mesh.hardware.get(flow.rail);
        let found = find(self.mesh, flow.from, flow.rail, lane).zip(hardware);
        let room = hardware.map_or((0, 0), |of| (of.needs.at(IN), of.needs.room()));
        Receiver {
            flow,
            queue_pair: found.as_ref().map_or(0, |((.., made, _), _)| made.qp_num),
            region: hardware.map(|hardware| hardware.region.clone()),
            qp: found.map(|((qp, ..), _)| qp),
            room,
            arrived: 0,
            last: None,
            ended: None,
            done: false,
        }
    }

    /// Until all has been sent, and all that is sent to this rank.
    fn work(&mut self, seats: &[Seat<'_>], alone: bool, got: &mut Got) -> Result<(), Error> {
        let began = Instant::now();
        let mut named = false;
        let mut looked = began;
        let mut told_at = None;
        loop {
            if let Some(seat) = seats.first().filter(|_| alone) {
                let mut work = seat.work();
                let rested = if work.turn()? { None } else { rest(work)? };
                rested.into_iter().for_each(thread::sleep);
            }
            if let Some(error) = seats.iter().find_map(Seat::failure) {
                return Err(error);
            }
            if !alone || looked.elapsed() >= LOOK {
                let open = self.tell(seats)?;
                let waiting = self.finish(seats)?;
                // Who has told all waits for what datagrams' receivers say.
                let told = *told_at.get_or_insert_with(Instant::now);
                if open {
                    told_at = None;
                }
                let counted = self.load.transport != Transport::Ud
                    || self.flows(seats).iter().all(|flow| got.contains_key(flow))
                    || told.elapsed() >= COUNTED;
                if !open && !waiting && counted {
                    return Ok(());
                }
            } else {
                continue;
            }
            let idle = self.load.by != By::Send && !self.sending(seats);
            let pause = match (alone, idle) {
                (_, true) => WORD,
                (true, false) => Duration::ZERO,
                (false, false) => LOOK,
            };
            self.listen(seats, pause, got)?;
            looked = Instant::now();
            self.leave_out(seats, began);
            if !named && began.elapsed() >= LATE {
                named = true;
                self.name_the_late(seats);
            }
        }
    }

    fn sending(&self, seats: &[Seat<'_>]) -> bool {
        seats.iter().any(|seat| {
            let work = seat.work();
            work.senders.iter().zip(&work.told).any(|(sender, told)| sender.ready && !told)
        })
    }

    /// The flows that this rank sends, by receiver.
    fn flows(&self, seats: &[Seat<'_>]) -> Vec<(u32, usize)> {
        let of = |seat: &Seat<'_>| {
            let work = seat.work();
            let there = work.senders.iter().filter(|sender| self.link.has(sender.flow.to));
            there.map(|sender| (sender.flow.to, sender.flow.rail)).collect::<Vec<_>>()
        };
        seats.iter().flat_map(of).collect()
    }

    /// Gives up what cannot be any more.
    fn leave_out(&self, seats: &[Seat<'_>], began: Instant) {
        for seat in seats {
            let mut work = seat.work();
            for sender in &mut work.senders {
                let to = sender.flow.to;
                if !self.link.has(to) {
                    sender.give_up(&gone(to));
                } else if self.link.interrupt.has_come() {
                    sender.give_up(INTERRUPTED);
                } else if !sender.ready && began.elapsed() >= self.patience {
                    let seconds = self.patience.as_secs();
                    sender.give_up(&format!("not ready: no word from rank {to} in {seconds} s"));
                }
            }
            // Whoever did not say that it is done does not come to the next meeting either, where it is
            // named.
            let late = began.elapsed() >= self.load.most(self.patience);
            for receiver in &mut work.receivers {
                receiver.done |= late || !self.link.has(receiver.flow.from);
            }
        }
    }

    /// Tells receivers of the flows that are done, on all of their queue pairs; whether others are not.
    fn tell(&self, seats: &[Seat<'_>]) -> Result<bool, Error> {
        // Of each flow: whether all queue pairs are done, whether that is news, and what went wrong.
        let mut flows: BTreeMap<Flow, (bool, bool, Option<String>)> = BTreeMap::new();
        for seat in seats {
            let mut work = seat.work();
            let Share { load, senders, told, .. } = &mut *work;
            for (sender, told) in senders.iter_mut().zip(told) {
                let done = *told || sender.is_done(load);
                let of = flows.entry(sender.flow).or_insert((true, false, None));
                (of.0, of.1) = (of.0 && done, of.1 || !std::mem::replace(told, done) && done);
                of.2 = of.2.take().or_else(|| sender.outcome.first_error.clone());
            }
        }
        for (flow, (done, news, fault)) in &flows {
            if *done && *news {
                let (rail, step, fault) = (flow.rail, self.number, fault.clone());
                self.link.send(flow.to, &Control::Done { rail, step, fault })?;
            }
        }
        Ok(flows.values().any(|(done, ..)| !done))
    }

    /// Ends receivers whose senders are done; whether others are not.
    fn finish(&self, seats: &[Seat<'_>]) -> Result<bool, Error> {
        let datagrams = self.load.transport == Transport::Ud;
        let mut flows: BTreeMap<Flow, (bool, bool, u64)> = BTreeMap::new();
        for seat in seats {
            let mut work = seat.work();
            for receiver in &mut work.receivers {
                let ended = if datagrams { receiver.is_quiet() } else { receiver.ended.is_some() };
                let done = receiver.done || ended;
                let of = flows.entry(receiver.flow).or_insert((true, false, 0));
                let news = done && !std::mem::replace(&mut receiver.done, done);
                *of = (of.0 && done, of.1 || news, of.2 + receiver.arrived);
            }
        }
        for (flow, (done, news, count)) in &flows {
            if datagrams && *done && *news && self.link.has(flow.from) {
                let (rail, step, count) = (flow.rail, self.number, *count);
                self.link.send(flow.from, &Control::Got { rail, step, count })?;
            }
        }
        Ok(flows.values().any(|(done, ..)| !done))
    }

    /// Said once, however long it takes.
    fn name_the_late(&self, seats: &[Seat<'_>]) {
        let of = |seat: &Seat<'_>| {
            let work = seat.work();
            let late = work.senders.iter().filter(|s| !s.ready && !s.is_over());
            late.map(|sender| sender.flow.to).collect::<Vec<u32>>()
        };
        let mut late: Vec<u32> = seats.iter().flat_map(of).collect();
        late.sort_unstable();
        late.dedup();
        if !late.is_empty() {
            say(&format!("rank {}: still waits for {late:?}", self.mesh.rank));
        }
    }

    /// What the others say.
    fn listen(&mut self, seats: &[Seat<'_>], pause: Duration, got: &mut Got) -> Result<(), Error> {
        self.mesh.listen(self.link, pause)?;
        let mut kept = VecDeque::new();
        while let Some((from, control)) = self.mesh.said.pop_front() {
            match control {
                Control::Ready { rail, step } if step == self.number => {
                    for seat in seats {
                        let mut work = seat.work();
                        let of = work.senders.iter_mut();
                        of.filter(|s| (s.flow.to, s.flow.rail) == (from, rail))
                            .for_each(|sender| sender.ready = true);
                    }
                }
                Control::Done { rail, step, .. } if step == self.number => {
                    for seat in seats {
                        let mut work = seat.work();
                        let of = work.receivers.iter_mut();
                        of.filter(|r| (r.flow.from, r.flow.rail) == (from, rail))
                            .for_each(|receiver| receiver.ended = Some(Instant::now()));
                    }
                }
                Control::Got { rail, step, count } if step == self.number => {
                    got.insert((from, rail), count);
                }
                // Of a step that this rank has given up.
                Control::Ready { step, .. }
                | Control::Done { step, .. }
                | Control::Got { step, .. }
                    if step < self.number => {}
                other => kept.push_back((from, other)),
            }
        }
        self.mesh.said = kept;
        Ok(())
    }
}
