//! Planting of stubs in a guest, through a thread of the guest that makes a request.
//!
//! The supervisor makes the thread, and the new stub, make calls. The thread that plants receives the
//! traps of these calls itself while nobody else asks for anything; else any thread of the supervisor
//! may, and routes lead the traps to the thread that plants.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;
use verbgate_sys::control;
use verbgate_sys::plant::Origin;
use verbgate_sys::plant::PlantError;
use verbgate_sys::plant::Planter;
use verbgate_sys::plant::Traps;
use verbgate_sys::process::Thread;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::window::MAX_SLOTS;

use crate::session::Foreseen;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::Route;
use crate::session::StubState;
use crate::session::Worker;
use crate::supervisor::Supervisor;
use crate::task::Event;
use crate::tokens::Unopened;
use crate::whose::Whose;

/// How long a trap is waited for before it is looked whether the thread does something else.
const INTERVAL: Duration = Duration::from_millis(INTERVAL_MS as u64);
const INTERVAL_MS: i32 = 1;

/// How long a stub may take to end that was told to.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many stubs of a guest may end before they wait for work, one after the other: whoever waits for
/// one is told then.
const MOST_STILLBORN: u32 = 3;

/// Has the traps of threads come to whoever plants.
struct Routed<'a> {
    supervisor: &'a Supervisor,
    maker: u64,
    give: Sender<Notification>,
    take: Receiver<Notification>,
    threads: Vec<Tid>,
    foreseen: Foreseen,
    begun: Instant,
    /// Nobody else receives.
    alone: bool,
    /// Whose stub a new thread becomes, and in which place.
    whose: Option<(&'a Arc<Guest>, usize)>,
    announced: Option<Arc<Thread>>,
}

impl<'a> Routed<'a> {
    fn new(supervisor: &'a Supervisor, whose: Option<(&'a Arc<Guest>, usize)>) -> Self {
        let begun = Instant::now();
        let alone = supervisor.crew.begin_making();
        let (give, take) = mpsc::channel();
        let maker = supervisor.registry.lock().next_maker();
        let foreseen = Foreseen::default();
        let (threads, announced) = (Vec::new(), None);
        Self { supervisor, maker, give, take, threads, foreseen, begun, alone, whose, announced }
    }

    /// Ends it; returns what has come since.
    fn end(self, succeeded: bool) -> Vec<Notification> {
        let mut registry = self.supervisor.registry.lock();
        for tid in &self.threads {
            registry.let_go(*tid, self.maker);
        }
        if let Some(stub) = self.announced.filter(|_| !succeeded) {
            registry.retire(stub.tid(), &stub);
        }
        drop(registry);
        self.supervisor.crew.end_making(self.begun);
        rest(self.give, &self.take)
    }
}

impl Routed<'_> {
    /// Waits for the next trap while nobody else receives any.
    fn received(&mut self, tid: Tid) -> io::Result<Option<Notification>> {
        let Supervisor { listener, crew, .. } = self.supervisor;
        let is_nothing = |e: &io::Error| {
            // The caller was killed, or nobody is left; or a signal came.
            matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR))
        };
        loop {
            let is_there = match listener.wait(INTERVAL_MS) {
                Err(e) if is_nothing(&e) => return Ok(None),
                waited => waited?,
            };
            let received = crew.receive_alone(|| is_there.then(|| listener.receive()));
            let trap = match received {
                None => {
                    self.alone = false;
                    return Ok(None);
                }
                Some(None) => return Ok(None),
                Some(Some(Err(e))) if is_nothing(&e) => return Ok(None),
                Some(Some(received)) => received?,
            };
            if trap.tid != tid {
                crew.hand_over(trap);
                self.alone = false;
                return Ok(None);
            }
            self.supervisor.count_notification();
            if !self.supervisor.let_through(&self.foreseen, &trap) {
                return Ok(Some(trap));
            }
        }
    }
}

/// What is in a channel of which no more ends are given away, and what is yet to come from those who
/// were given one: they have looked up where to send a trap, and are about to. Without waiting for
/// them a trap could be sent after the last look, and its caller would wait for ever.
fn rest<T>(give: Sender<T>, take: &Receiver<T>) -> Vec<T> {
    drop(give);
    take.iter().collect()
}

impl Traps for Routed<'_> {
    fn expect(&mut self, tid: Tid) {
        self.threads.push(tid);
        self.foresee(tid, Vec::new());
    }

    fn foresee(&mut self, tid: Tid, calls: Vec<(u32, [u64; 6])>) {
        self.foreseen = Arc::new(Mutex::new(calls.into()));
        let route = Route::Made(self.maker, self.give.clone(), Arc::clone(&self.foreseen));
        self.supervisor.registry.lock().routes.insert(tid, route);
    }

    fn foreseen(&self) -> usize {
        self.foreseen.lock().len()
    }

    fn announce(&mut self, stub: &Arc<Thread>) -> bool {
        let Some((guest, place)) = self.whose else { return false };
        let is_known = self.supervisor.registry.lock().announce(guest, place, stub);
        self.announced = is_known.then(|| Arc::clone(stub));
        is_known
    }

    fn next(&mut self, tid: Tid) -> io::Result<Option<Notification>> {
        if self.alone {
            return self.received(tid);
        }
        match self.take.recv_timeout(INTERVAL) {
            Ok(trap) if trap.tid == tid => Ok(Some(trap)),
            // The other of the two, which does nothing while this one is made to.
            Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Supervisor {
    /// Plants the first stub of a guest, unless another thread's call has brought one about; either
    /// way the call is made again.
    pub(crate) fn plant_first(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        trap: Notification,
    ) {
        let lives = |worker: &Worker| !matches!(worker.state, StubState::Ended);
        if state.over || state.workers.iter().any(lives) {
            return self.handle(trap);
        }
        self.plant(guest, state, trap);
    }

    /// Plants a stub by way of the thread that makes this call, which then makes it again.
    pub(crate) fn plant(&self, guest: &Arc<Guest>, state: &mut GuestState, trap: Notification) {
        if state.stillborn >= MOST_STILLBORN {
            self.warn("stubs end at once", || {
                let tgid = guest.process.tgid();
                format!(
                    "process {tgid} cannot use RDMA: a seccomp filter of the process ends verbgate's \
                     stubs; let the filter allow ioctl, preadv, sendmsg, close_range and mmap"
                )
            });
            return self.refuse(trap, Errno::EIO);
        }
        let ended = ended_slot(state);
        if ended.is_none() && state.workers.len() >= MAX_SLOTS {
            return self.refuse(trap, Errno::EBUSY);
        }
        let slot = ended.unwrap_or(state.workers.len());
        let mut traps = Routed::new(self, Some((guest, slot)));
        let mut planter = self.planter(&mut traps);
        let lives = |worker: &Worker| !matches!(worker.state, StubState::Ended);
        let is_own = state.workers.iter().any(lives);
        let way = Origin { process: &guest.process, trap: &trap, is_own };
        let planted = match state.workers.get_mut(slot) {
            Some(worker) => {
                let old = Arc::clone(&worker.stub.thread);
                self.registry.lock().retire(old.tid(), &old);
                planter.replace(way, &mut worker.stub).map(|()| worker.renew())
            }
            None => planter
                .plant(way, slot, slot == 0)
                .map(|stub| state.workers.push(Worker::new(stub))),
        };
        if planted.is_ok()
            && !guest.planted.load(Ordering::Acquire)
            && let Some(worker) = state.workers.get_mut(slot)
        {
            // Who finds the word finds the guest.
            self.registry.lock().name(guest);
            let word = guest.owner.0.to_ne_bytes();
            let ro = worker.stub.frame.ro();
            for (to, from) in ro.iter_mut().skip(control::OWNER).zip(word) {
                *to = from;
            }
        }
        let since = traps.end(planted.is_ok());
        match planted {
            Ok(()) => {
                // Who finds it planted finds the word, or the stub if the page of the word is not
                // at hand: otherwise the guest would be taken for another program.
                guest.planted.store(true, Ordering::Release);
                if let (Some(counted), Some(worker)) = (&self.counted, state.workers.get(slot)) {
                    counted.joins(&worker.stub.thread);
                }
                self.told.lock().counts.planted += 1;
            }
            Err(error) => self.not_planted(guest, trap, &error),
        }
        for trap in since {
            self.handle(trap);
        }
    }

    fn planter<'a>(&'a self, traps: &'a mut dyn Traps) -> Planter<'a> {
        Planter {
            listener: &self.listener,
            traps,
            window: self.window,
            ready: &self.ready,
            ends: &self.ends,
        }
    }

    /// Has a thread stopped and made to make calls, which ends the one that it waits in; whatever
    /// becomes of it, that needs no other answer.
    pub(crate) fn by_hand(
        &self,
        guest: &Guest,
        trap: &Notification,
        work: impl FnOnce(&mut Planter<'_>) -> Result<GuestFd, PlantError>,
    ) -> Result<GuestFd, Unopened> {
        let mut traps = Routed::new(self, None);
        let made = work(&mut self.planter(&mut traps));
        for trap in traps.end(true) {
            self.handle(trap);
        }
        made.map_err(|error| {
            let errno = match &error {
                PlantError::Injected { source, .. } | PlantError::Unready { source, .. } => {
                    source.raw_os_error()
                }
                _ => None,
            };
            let said = !matches!(error, PlantError::Injected { .. });
            if said {
                self.not_planted(guest, *trap, &error);
            }
            Unopened { errno: errno.map_or(Errno::EPERM, Errno), answered: true, said }
        })
    }

    /// What a planting that failed means for the call by way of which it was tried.
    fn not_planted(&self, guest: &Guest, trap: Notification, error: &PlantError) {
        let tgid = guest.process.tgid();
        let line = || format!("process {tgid} cannot use RDMA: {error}");
        match error {
            PlantError::Gone(_) | PlantError::Interrupted(_) => {}
            PlantError::Sought(_) => self.note("stub sought", line),
            PlantError::Borrowed(_) => self.warn("borrowed memory", line),
            PlantError::Traced { .. } | PlantError::Forbidden(_) => {
                self.warn("not planted", line);
                self.refuse(trap, Errno::EPERM);
            }
            PlantError::Unready { source, .. } => {
                self.warn("not planted", line);
                self.refuse(trap, Errno(source.raw_os_error().unwrap_or(libc::EIO)));
            }
            // Its call has been answered.
            PlantError::Injected { .. } => self.warn("not planted", line),
            PlantError::Unexpected { .. } | PlantError::Own { .. } => {
                self.warn("ended", || format!("process {tgid} was ended: {error}"));
            }
        }
    }

    /// A guest's process has ended, or executed another program: whoever waits for it still shares
    /// its memory, and cannot use RDMA any more.
    pub(crate) fn over(&self, state: &mut GuestState) {
        state.over = true;
        for worker in &mut state.workers {
            if let StubState::Busy(job) = std::mem::replace(&mut worker.state, StubState::Ended) {
                self.abandoned(*job);
            }
        }
        for task in std::mem::take(&mut state.waiting) {
            self.give_up(task, Errno::EIO);
        }
    }

    /// A stub has ended with a job: its caller is told that nobody knows what became of that.
    pub(crate) fn abandoned(&self, job: crate::task::Job) {
        let trap = *job.trap();
        match job {
            crate::task::Job::Request { .. } | crate::task::Job::Map(_) => {
                self.refuse(trap, Errno::EIO);
            }
            crate::task::Job::Write { then, .. } => self.undone(trap, then, Errno::EIO),
        }
    }

    /// Has a thread's call done for it, if its guest is planted, and has a stub planted by way of the
    /// call if not. The call's own outputs need one.
    pub(crate) fn planted(&self, trap: &Notification) -> Option<Arc<Guest>> {
        let caller = self.caller(trap);
        if let Whose::Known(met) = self.whose(caller, None) {
            return Some(met.guest);
        }
        self.plant_for(*trap);
        None
    }

    /// Has bytes written for a caller, whose call then ends.
    pub(crate) fn deliver(&self, guest: &Arc<Guest>, delivery: crate::task::Delivery) {
        self.post(guest, Event::Task(crate::task::Task::Deliver(delivery)));
    }
}

/// The place of a stub that has ended, whose frame serves again once its thread is really gone: if all
/// places are taken, that is waited for. Nobody but the guest waits.
fn ended_slot(state: &GuestState) -> Option<usize> {
    let begun = Instant::now();
    loop {
        let mut ended = state.workers.iter().enumerate().filter(|(_, worker)| {
            matches!(worker.state, StubState::Ended) && !worker.stub.thread.is_alive()
        });
        let found = ended.next().map(|(place, _)| place);
        let ending = state.workers.iter().any(|w| matches!(w.state, StubState::Ended));
        let full = state.workers.len() >= MAX_SLOTS;
        if found.is_some() || !full || !ending || begun.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Whether a guest has, or may have, a stub for another task.
pub(crate) fn can_take(state: &GuestState) -> bool {
    let any = |is: fn(&StubState) -> bool| state.workers.iter().any(|w| is(&w.state));
    let starting = any(|state| matches!(state, StubState::Starting));
    any(|state| matches!(state, StubState::Idle(_))) || !starting && has_room(state)
}

/// Whether another stub may be planted in a guest.
pub(crate) fn has_room(state: &GuestState) -> bool {
    state.workers.len() < MAX_SLOTS
        || state.workers.iter().any(|worker| matches!(worker.state, StubState::Ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_while_a_planting_ends_is_not_lost() {
        for turn in 0..100_u32 {
            let (give, take) = mpsc::channel();
            let looked_up = give.clone();
            let sends = std::thread::spawn(move || {
                std::thread::sleep(INTERVAL);
                looked_up.send(turn).is_err()
            });
            let since = rest(give, &take);
            // As when whoever plants is not let run for a while.
            std::thread::sleep(3 * INTERVAL);
            drop(take);
            let given_back = sends.join().unwrap();
            assert!(given_back || since == [turn], "turn {turn}: lost");
        }
    }
}
