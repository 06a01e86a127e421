//! The part of a step that one thread does: posts and polls on queues of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use verbgate_verbs::Completion;
use verbgate_verbs::CompletionQueue;
use verbgate_verbs::Piece;
use verbgate_verbs::QueuePair;
use verbgate_verbs::Region;

use crate::bench::load::Load;
use crate::bench::options::By;
use crate::bench::plan::Flow;
use crate::bench::sender::Sender;
use crate::error::Error;
use crate::hardware::DEPTH;
use crate::injection::Injection;

/// How much earlier than a message is due a sender wakes, because sleep is not exact.
const WAKING: Duration = Duration::from_micros(200);
/// The longest sleep of a thread that has nothing to do.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// `wr_id` of receives; those of sends are even.
const RECEIVE: u64 = 1;
/// Completions that are taken at once.
const BATCH: usize = 32;
/// Once a sender of datagrams is done, no more come after such a pause.
const QUIET: Duration = Duration::from_millis(100);

/// Receives that are posted, by rail and queue pair; they stay from step to step.
pub(crate) type Rings = BTreeMap<(usize, u32), u32>;

/// The other end of a flow, on one queue pair.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) flow: Flow,
    pub(super) queue_pair: u32,
    pub(super) qp: Option<Arc<QueuePair>>,
    pub(super) region: Option<Region>,
    /// Where in memory messages arrive, and the room of each.
    pub(super) room: (usize, usize),
    /// Messages that have arrived, and when the last did.
    pub(super) arrived: u64,
    pub(super) last: Option<Instant>,
    /// Since when the sender is done.
    pub(super) ended: Option<Instant>,
    pub(super) done: bool,
}

impl Receiver {
    /// Whether nothing more comes, of what needs no connection.
    pub(super) fn is_quiet(&self) -> bool {
        self.ended
            .is_some_and(|ended| self.last.map_or(ended, |last| last.max(ended)).elapsed() >= QUIET)
    }
}

/// What one thread does.
#[derive(Debug)]
pub(super) struct Share<'a> {
    pub(super) load: &'a Load,
    pub(super) number: u64,
    pub(super) senders: Vec<Sender>,
    /// Whether receivers know that the sender is done.
    pub(super) told: Vec<bool>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) rings: Rings,
    /// By rail.
    pub(super) queues: BTreeMap<usize, CompletionQueue>,
}

impl Share<'_> {
    /// Posts and polls once; whether that was anything.
    pub(super) fn turn(&mut self) -> Result<bool, Error> {
        let mut busy = false;
        for sender in &mut self.senders {
            busy |= sender.post(self.load, self.number);
        }
        Ok(self.poll()? || busy)
    }

    /// How long nothing has to be done, after a turn in which nothing was.
    pub(super) fn idle(&self) -> Option<Duration> {
        let active = self.senders.iter().zip(&self.told).filter(|(_, told)| !**told);
        let idle = active.map(|(sender, _)| sender.idle(self.load)).min();
        idle.map(|idle| idle.saturating_sub(WAKING).min(LOOK)).filter(|idle| !idle.is_zero())
    }

    /// Asks for events; whether something has completed before.
    pub(super) fn arm(&mut self) -> Result<bool, Error> {
        for queue in self.queues.values() {
            queue.arm()?;
        }
        // What completed before has no event.
        self.poll()
    }

    /// Takes what has completed; whether that was anything.
    fn poll(&mut self) -> Result<bool, Error> {
        let mut any = false;
        let mut completions = [(); BATCH].map(|()| Completion::default());
        for (rail, queue) in &self.queues {
            let count = queue.poll_into(&mut completions)?;
            any |= count > 0;
            for completion in completions.iter().take(count) {
                let of = (*rail, completion.qp_num);
                if completion.wr_id == RECEIVE {
                    if let Some(posted) = self.rings.get_mut(&of) {
                        *posted = posted.saturating_sub(1);
                    }
                    let mut to = self.receivers.iter_mut();
                    if let Some(to) = to.find(|to| (to.flow.rail, to.queue_pair) == of)
                        && completion.status == 0
                    {
                        (to.arrived, to.last) = (to.arrived + 1, Some(Instant::now()));
                    }
                } else if completion.wr_id == self.number << 1 {
                    // Of an earlier step that was given up, something may be left.
                    let mut of_it = self.senders.iter_mut();
                    if let Some(sender) = of_it.find(|s| (s.flow.rail, s.queue_pair) == of) {
                        sender.completed(completion);
                    }
                }
            }
        }
        if any {
            self.fill();
        }
        Ok(any)
    }

    /// Posts receives, as many as there is room for.
    pub(super) fn fill(&mut self) {
        if self.load.by != By::Send || self.load.injection == Some(Injection::NoReceives) {
            return;
        }
        for Receiver { flow, queue_pair, qp, region, room, .. } in &self.receivers {
            let (Some(qp), Some(region)) = (qp, region) else { continue };
            let posted = self.rings.entry((flow.rail, *queue_pair)).or_default();
            while *posted < DEPTH {
                // Nothing is compared, so all may arrive at the same place.
                let piece = Piece { region, offset: room.0, length: room.1 };
                if qp.post_receive(RECEIVE, &[piece]).is_err() {
                    // A queue that is full, or in error: the sender's completions tell.
                    break;
                }
                *posted += 1;
            }
        }
    }
}

/// The work of a thread, which the rank's own thread looks at now and then.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    work: Mutex<Share<'a>>,
    /// The rank's own thread waits for the work.
    wanted: AtomicBool,
    over: AtomicBool,
    failed: Mutex<Option<Error>>,
}

impl<'a> Seat<'a> {
    pub(super) fn new(work: Share<'a>) -> Self {
        let (wanted, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { work: Mutex::new(work), wanted, over, failed: Mutex::new(None) }
    }

    pub(super) fn work(&self) -> MutexGuard<'_, Share<'a>> {
        self.wanted.store(true, Ordering::Release);
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.store(false, Ordering::Release);
        work
    }

    /// Does the work, until it is over.
    pub(super) fn run(&self) {
        while !self.over.load(Ordering::Acquire) {
            if self.wanted.load(Ordering::Acquire) {
                thread::yield_now();
                continue;
            }
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = work.turn().and_then(|busy| if busy { Ok(None) } else { rest(work) });
            match ended {
                Ok(None) => {}
                Ok(Some(pause)) => thread::sleep(pause),
                Err(error) => {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return;
                }
            }
        }
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn into_work(self) -> Share<'a> {
        self.work.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What to do after a turn without anything: how long to sleep, unless events are waited for here.
pub(super) fn rest(mut work: MutexGuard<'_, Share<'_>>) -> Result<Option<Duration>, Error> {
    if let Some(idle) = work.idle() {
        return Ok(Some(idle));
    }
    if !work.load.events {
        drop(work);
        thread::yield_now();
        return Ok(None);
    }
    if work.arm()? {
        return Ok(None);
    }
    let queues: Vec<CompletionQueue> = work.queues.values().cloned().collect();
    drop(work);
    verbgate_verbs::wait(&queues.iter().collect::<Vec<_>>(), LOOK)?;
    Ok(None)
}
