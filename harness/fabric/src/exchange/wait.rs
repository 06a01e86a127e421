//! Waits for completions, with a limit, and for the peer's words.

use std::time::Duration;
use std::time::Instant;

use verbgate_verbs::Completion;
use verbgate_verbs::Transport;

use super::Exchange;
use super::Fault;
use super::Trouble;
use super::fault::judge;
use super::fault::step;
use crate::cause::Cause;
use crate::connect::Control;

/// How long a step may take: longer than a queue pair repeats before it gives up.
pub(super) const STEP: Duration = Duration::from_secs(20);
/// How long a datagram may take that its sender's device has sent.
const ARRIVES: Duration = Duration::from_secs(2);
/// How often somebody who polls looks: at first, and later, when looks would take processors from who is waited for.
const POLL: Duration = Duration::from_micros(50);
const POLL_LATER: Duration = Duration::from_millis(1);
/// How often somebody who polls looks whether the peer is still there.
const LISTEN: Duration = Duration::from_millis(100);

impl Exchange<'_> {
    /// The next completion on the rail; no other exchange has one outstanding there.
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
        let queue_pair = self.queue_pair()?.number();
        let mut pause = POLL;
        loop {
            if listened.elapsed() >= LISTEN {
                listened = Instant::now();
                self.desk.check()?;
            }
            let hardware = self.hardware()?;
            let buffer = &mut self.completed;
            if let Some(completion) = buffer.pop_front() {
                // Of an exchange that was given up, something may be left.
                if (completion.qp_num, completion.wr_id) == (queue_pair, number) {
                    return judge(completion);
                }
                continue;
            }
            buffer.extend(hardware.poll()?);
            if buffer.is_empty() {
                if Instant::now() >= deadline {
                    let seconds = patience.as_secs();
                    return Err(step(format!(
                        "STALL: no completion in {seconds} s (`verbgate explain STALL`)"
                    ))
                    .because(Cause::Stall));
                }
                std::thread::sleep(pause);
                pause = POLL_LATER.min(pause * 2);
            }
        }
    }

    pub(super) fn await_ready(&self, number: u64) -> Result<(), Fault> {
        self.await_word(number, |control| matches!(control, Control::Ready { .. })).map(drop)
    }

    pub(super) fn await_done(&self, number: u64) -> Result<(), Fault> {
        self.await_word(number, |control| matches!(control, Control::Done { .. })).map(drop)
    }

    /// Whether the peer has what was sent, or asks for all of it again.
    pub(super) fn has_arrived(&self, number: u64) -> Result<bool, Fault> {
        let answer =
            |control: &Control| matches!(control, Control::Got { .. } | Control::Ready { .. });
        Ok(matches!(self.await_word(number, answer)?, Control::Got { .. }))
    }

    /// Waits for the peer's word on this step.
    fn await_word(&self, number: u64, is: impl Fn(&Control) -> bool) -> Result<Control, Fault> {
        loop {
            let control = self.desk.word(self.rail)?;
            match &control {
                Control::Done { fault: Some(why), .. } => {
                    let words = format!("rank {} says: {why}", self.desk.peer);
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
                _ => {}
            }
        }
    }
}
