//! Waits for completions and for the peer's messages, each with a limit.

use std::time::Duration;
use std::time::Instant;

use verbgate_verbs::Completion;
use verbgate_verbs::Transport;

use super::Exchange;
use super::Fault;
use super::INTERRUPTED;
use super::Trouble;
use super::fault::judge;
use super::fault::step;
use crate::cause::Cause;
use crate::connect::Control;
use crate::rendezvous::Loss;

/// How long a step may take: longer than a queue pair repeats before it gives up.
const STEP: Duration = Duration::from_secs(20);
/// How long a datagram may take that its sender's device has sent.
const ARRIVES: Duration = Duration::from_secs(2);
/// How often somebody who polls looks, and how often somebody who waits listens to the others.
const POLL: Duration = Duration::from_micros(50);
const LISTEN: Duration = Duration::from_millis(100);
/// How often a peer that says nothing is asked whether it is there.
const ASK: Duration = Duration::from_secs(3);

impl Exchange<'_> {
    /// The next completion on the rail; other pairs' exchanges have none outstanding.
    pub(super) fn complete(&mut self, number: u64) -> Result<Completion, Fault> {
        self.complete_within(number, STEP)
    }

    /// The completion of a receive, whose sender is done.
    pub(super) fn arrival(&mut self, number: u64) -> Result<Completion, Fault> {
        if self.transport() != Transport::Ud {
            return self.complete(number);
        }
        self.complete_within(number, ARRIVES).map_err(|fault| match fault {
            Fault::Step(Trouble { cause: Some(Cause::Stall), .. }) => {
                let seconds = ARRIVES.as_secs();
                let words = format!("a datagram does not arrive in {seconds} s after it was sent");
                step(words).because(Cause::PacketLoss)
            }
            other => other,
        })
    }

    fn complete_within(&mut self, number: u64, patience: Duration) -> Result<Completion, Fault> {
        let deadline = Instant::now() + patience;
        let mut listened = Instant::now();
        let rail = self.rail();
        let queue_pair = self.queue_pair()?.number();
        loop {
            if listened.elapsed() >= LISTEN {
                listened = Instant::now();
                self.listen(Duration::ZERO)?;
            }
            let buffer = &mut self.mesh.completed;
            if let Some(completion) = buffer.pop_front() {
                // Of an exchange that was given up, something may be left.
                if (completion.qp_num, completion.wr_id) == (queue_pair, number) {
                    return judge(completion);
                }
                continue;
            }
            let Some(hardware) = self.mesh.hardware.get(rail) else {
                return Err(step("no such rail"));
            };
            buffer.extend(hardware.poll()?);
            if buffer.is_empty() {
                if self.link.interrupt.has_come() {
                    return Err(step(INTERRUPTED));
                }
                if Instant::now() >= deadline {
                    let seconds = patience.as_secs();
                    return Err(step(format!(
                        "STALL: no completion in {seconds} s (`verbgate explain STALL`)"
                    ))
                    .because(Cause::Stall));
                }
                std::thread::sleep(POLL);
            }
        }
    }

    pub(super) fn await_ready(&mut self, number: u64) -> Result<(), Fault> {
        self.await_word(number, |control| matches!(control, Control::Ready { .. })).map(drop)
    }

    pub(super) fn await_done(&mut self, number: u64) -> Result<(), Fault> {
        self.await_word(number, |control| matches!(control, Control::Done { .. })).map(drop)
    }

    /// Whether the peer has what was sent, or asks for all of it again.
    pub(super) fn has_arrived(&mut self, number: u64) -> Result<bool, Fault> {
        let answer =
            |control: &Control| matches!(control, Control::Got { .. } | Control::Ready { .. });
        Ok(matches!(self.await_word(number, answer)?, Control::Got { .. }))
    }

    /// Hears what the others say; an error if the peer is not there any more.
    fn listen(&mut self, pause: Duration) -> Result<(), Fault> {
        if let Some((from, body)) = self.link.receive(pause)? {
            self.mesh.hear(self.link, from, body)?;
        }
        let peer = self.peer_rank();
        let (words, cause) = match self.link.lost.get(&peer) {
            Some(Loss::Silent) => (Loss::Silent.words(), Cause::PeerHangs),
            Some(why) => (why.words(), Cause::PeerKilled),
            None if self.mesh.silent.contains(&peer) => {
                ("hangs, as others found", Cause::PeerHangs)
            }
            None => return Ok(()),
        };
        let (words, cause) = (format!("rank {peer} {words}"), Some(cause));
        Err(Fault::Step(Trouble { words, hangs: true, heard: true, cause, ..Trouble::default() }))
    }

    /// Waits for the peer's word on this step, however long, while the peer says that it is there: it
    /// may be busy with another.
    fn await_word(&mut self, number: u64, is: impl Fn(&Control) -> bool) -> Result<Control, Fault> {
        let (peer, rail) = (self.peer_rank(), self.rail());
        let began = Instant::now();
        let mut asked = began;
        loop {
            let of_this = |(from, control): &(u32, Control)| match control {
                Control::Ready { rail: r, .. }
                | Control::Done { rail: r, .. }
                | Control::Got { rail: r, .. } => (*from, *r) == (peer, rail),
                _ => false,
            };
            let found = self.mesh.said.iter().position(of_this);
            if let Some((_, control)) = found.and_then(|index| self.mesh.said.remove(index)) {
                match &control {
                    Control::Done { fault: Some(why), .. } => {
                        let words = format!("rank {peer} says: {why}");
                        let trouble = Trouble { words, heard: true, ..Trouble::default() };
                        return Err(Fault::Step(trouble));
                    }
                    Control::Ready { step: n, .. }
                    | Control::Done { step: n, .. }
                    | Control::Got { step: n, .. }
                        if *n == number && is(&control) =>
                    {
                        return Ok(control);
                    }
                    _ => continue,
                }
            }
            if self.link.interrupt.has_come() {
                return Err(step(INTERRUPTED));
            }
            if self.mesh.ended.contains(&peer) {
                return Err(step(format!("rank {peer} has ended without this exchange")));
            }
            let alive = self.mesh.alive.get(&peer).copied().unwrap_or(began).max(began);
            if alive.elapsed() >= self.patience.min(STEP * 2) {
                let seconds = alive.elapsed().as_secs();
                let words = format!("rank {peer} hangs: no message for {seconds} s");
                self.mesh.silent.insert(peer);
                self.mesh.tell_all(self.link, &Control::Silent { rank: peer })?;
                let cause = Some(Cause::PeerHangs);
                let trouble = Trouble { words, hangs: true, cause, ..Trouble::default() };
                return Err(Fault::Step(trouble));
            }
            if asked.elapsed() >= ASK {
                asked = Instant::now();
                self.link.send(peer, &Control::Ask)?;
            }
            self.listen(LISTEN)?;
        }
    }
}
