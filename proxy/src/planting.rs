//! Planting of stubs in a guest, through a thread of the guest that makes a request.
//!
//! The tracer makes the thread, and the new stub, make calls. The threads that serve receive the traps of these calls,
//! and routes lead the traps to the tracer.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use verbgate_abi::Errno;
use verbgate_sys::GuestFd;
use verbgate_sys::Tid;
use verbgate_sys::control;
use verbgate_sys::frame::Frame;
use verbgate_sys::plant::New;
use verbgate_sys::plant::Origin;
use verbgate_sys::plant::PlantError;
use verbgate_sys::plant::Planter;
use verbgate_sys::plant::Traps;
use verbgate_sys::process::Thread;
use verbgate_sys::ptrace;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::shortage;
use verbgate_sys::stub::Stub;
use verbgate_sys::window::MAX_SLOTS;

use crate::session::Foreseen;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::Planting;
use crate::session::Route;
use crate::session::StubState;
use crate::session::Worker;
use crate::supervisor::Supervisor;
use crate::task::Event;
use crate::task::Planted;
use crate::tokens::Unopened;
use crate::tracer;
use crate::whose::Whose;

/// How long a stub may take to end that was told to, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(5);

/// How many stubs of a guest may end before they wait for work, one after the other: whoever waits for
/// one is told then.
const MOST_STILLBORN: u32 = 3;

/// The frame of a new stub.
struct FrameOf {
    /// The new frame, and the file to map it from.
    new: Option<(Frame, OwnedFd)>,
    /// The read-write half of the old one.
    old: Option<OwnedFd>,
}

/// Has the traps of threads come to a making.
struct Routed<'a> {
    supervisor: &'a Supervisor,
    making: u64,
    threads: Vec<Tid>,
    foreseen: Foreseen,
    /// Whose stub a new thread becomes, and in which place.
    whose: Option<(&'a Arc<Guest>, usize)>,
    announced: Option<Arc<Thread>>,
}

impl<'a> Routed<'a> {
    fn new(supervisor: &'a Supervisor, whose: Option<(&'a Arc<Guest>, usize)>) -> Self {
        let making = supervisor.registry.lock().next_maker();
        tracer::expect_traps(making);
        let (threads, foreseen, announced) = (Vec::new(), Foreseen::default(), None);
        Self { supervisor, making, threads, foreseen, whose, announced }
    }

    /// Ends it; what has come since is served.
    fn end(self, succeeded: bool) {
        let mut registry = self.supervisor.registry.lock();
        for tid in &self.threads {
            registry.let_go(*tid, self.making);
        }
        if let Some(stub) = self.announced.filter(|_| !succeeded) {
            registry.retire(stub.tid(), &stub);
        }
        drop(registry);
        for trap in tracer::leave_traps(self.making) {
            self.supervisor.crew.hand_over(Some(trap));
        }
    }
}

impl Traps for Routed<'_> {
    fn expect(&mut self, tid: Tid) {
        self.threads.push(tid);
        self.foresee(tid, Vec::new());
    }

    fn foresee(&mut self, tid: Tid, calls: Vec<(u32, [u64; 6], u64)>) {
        self.foreseen = Arc::new(Mutex::new(calls.into()));
        let guest = self.whose.map(|(guest, _)| guest.key);
        let route = Route::Made(self.making, Arc::clone(&self.foreseen), guest);
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

    fn stubs_beside(&self) -> Vec<Tid> {
        let Some((guest, _)) = self.whose else { return Vec::new() };
        self.supervisor.registry.lock().stubs_beside(guest.key)
    }

    fn take(&mut self, tid: Tid) -> Option<Notification> {
        tracer::take_trap(self.making, tid)
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
        if let Some(planting) = &mut state.planting {
            return planting.again.push(trap);
        }
        if state.over || state.has_stub() {
            return self.handle(trap);
        }
        self.plant(guest, state, trap);
    }

    /// Has a stub planted by way of the thread that makes this call, which then makes it again.
    pub(crate) fn plant(&self, guest: &Arc<Guest>, state: &mut GuestState, trap: Notification) {
        if state.stillborn >= MOST_STILLBORN {
            self.warn("stubs end at once", || {
                let tgid = guest.process.tgid();
                format!(
                    "process {tgid} cannot use RDMA: a seccomp filter of the process ends verbgate's \
                     stubs (let the filter allow ioctl, preadv, sendmsg, close, close_range, mmap and futex), or \
                     their code was replaced"
                )
            });
            return self.refuse(trap, Errno::EIO);
        }
        if let Err(errno) = self.spared() {
            return self.refuse(trap, errno);
        }
        let ended = ended_place(state);
        if ended.is_none() && state.workers.len() >= MAX_SLOTS {
            return self.refuse(trap, Errno::EBUSY);
        }
        let place = ended.unwrap_or(state.workers.len());
        let memory = match state.workers.get(place) {
            Some(worker) => {
                let old = worker.stub.frame.scratch().try_clone_to_owned();
                old.and_then(shortage::spared).map(|old| FrameOf { new: None, old: Some(old) })
            }
            None => self.ready.take().and_then(|(frame, ro)| {
                Ok(FrameOf { new: Some((frame, shortage::spared(ro)?)), old: None })
            }),
        };
        let mut memory = match memory {
            Ok(memory) => memory,
            Err(source) => {
                let error = PlantError::Unready { what: "a frame", source };
                return self.not_planted(guest, trap, &error);
            }
        };
        let old = state.workers.get(place).map(|worker| Arc::clone(&worker.stub.thread));
        if let Some(old) = &old {
            self.registry.lock().retire(old.tid(), old);
        }
        if let Some((frame, _)) =
            memory.new.as_mut().filter(|_| !guest.planted.load(Ordering::Acquire))
        {
            // The guest is found by this word as soon as the guest has mapped it.
            self.registry.lock().name(guest);
            let word = guest.owner.0.to_ne_bytes();
            for (to, from) in frame.ro().iter_mut().skip(control::OWNER).zip(word) {
                *to = from;
            }
        }
        let is_own = state.has_stub();
        state.planting = Some(Planting { place, again: Vec::new(), early: None, retire: false });
        let of = Arc::clone(guest);
        self.tracer.give(guest, move |supervisor| {
            Box::pin(async move {
                let origin = Origin { process: &of.process, trap: &trap, is_own };
                let planted = supervisor.made(&of, origin, (place, memory), old).await;
                supervisor.leave(&of, Event::Planted(Box::new(planted)));
            })
        });
    }

    /// Makes a stub.
    async fn made(
        &self,
        guest: &Arc<Guest>,
        origin: Origin<'_>,
        (place, memory): (usize, FrameOf),
        old: Option<Arc<Thread>>,
    ) -> Planted {
        let none = Planted { place, thread: None, frame: None };
        let begun = Instant::now();
        // The memory of the old stub serves again once that is really gone. Nobody but the guest waits.
        while old.as_ref().is_some_and(|old| old.is_alive()) {
            if begun.elapsed() > PATIENCE {
                self.refuse(*origin.trap, Errno::EBUSY);
                return none;
            }
            ptrace::pause(INTERVAL).await;
        }
        let ro = memory.new.as_ref().map(|(_, ro)| ro.as_fd());
        let scratch = match (&memory.new, &memory.old) {
            (Some((frame, _)), _) => frame.scratch(),
            (None, Some(old)) => old.as_fd(),
            (None, None) => return none,
        };
        let new = New { slot: place, ro, scratch };
        let mut traps = Routed::new(self, Some((guest, place)));
        let planted = self.planter(&mut traps).plant(origin, &new).await;
        traps.end(planted.is_ok());
        match planted {
            Ok(thread) => {
                // Who finds it planted finds the word, or the stub if the page of the word is not
                // at hand: otherwise the guest would be taken for another program.
                guest.planted.store(true, Ordering::Release);
                if let Some(counted) = &self.counted {
                    counted.joins(&thread);
                }
                self.told.lock().counts.planted += 1;
                let frame = memory.new.map(|(frame, _)| frame);
                Planted { place, thread: Some(thread), frame }
            }
            Err(error) => {
                self.not_planted(guest, *origin.trap, &error);
                none
            }
        }
    }

    /// A stub is there, or is not. Waits for nobody.
    pub(crate) fn planted_now(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        Planted { place, thread, frame }: Planted,
    ) {
        let Some(Planting { again, early, retire, .. }) = state.planting.take() else { return };
        match (thread, state.workers.get_mut(place), frame) {
            (Some(thread), Some(worker), _) => {
                worker.stub.replaced_by(thread);
                worker.renew();
            }
            (Some(thread), None, Some(frame)) => {
                state.workers.push(Worker::new(Stub::new(thread, place, frame, self.window)));
            }
            _ => {}
        }
        if let Some(worker) = state.workers.get_mut(place) {
            worker.retire |= retire;
            if state.over {
                worker.state = StubState::Ended;
            }
        }
        for trap in again {
            self.crew.hand_over(Some(trap));
        }
        let mut inbox = guest.inbox.lock();
        if let Some(trap) = early {
            inbox.push_front(Event::Stub(place, trap));
        } else if !state.waiting.is_empty() {
            inbox.push_back(Event::Look);
        }
    }

    fn planter<'a>(&'a self, traps: &'a mut dyn Traps) -> Planter<'a> {
        Planter { listener: &self.listener, traps, code: &self.code }
    }

    /// Has a thread stopped and made to make calls, which ends the one that it waits in; whatever
    /// becomes of it, that needs no other answer.
    pub(crate) async fn by_hand(
        &self,
        guest: &Guest,
        trap: &Notification,
        work: impl AsyncFnOnce(&mut Planter<'_>) -> Result<GuestFd, PlantError>,
    ) -> Result<GuestFd, Unopened> {
        let mut traps = Routed::new(self, None);
        let made = work(&mut self.planter(&mut traps)).await;
        traps.end(true);
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

    /// A stub has ended before it began with a request, whose caller makes its call again.
    pub(crate) fn not_begun(&self, job: crate::task::Job) {
        let trap = *job.trap();
        if let crate::task::Job::Write { then: crate::task::Then::Execute(about, _), .. } = job {
            self.ended(&about, false);
        }
        self.crew.hand_over(Some(trap));
    }

    /// A stub has ended with a job: its caller is told that nobody knows what became of that.
    pub(crate) fn abandoned(&self, job: crate::task::Job) {
        let trap = *job.trap();
        match job {
            crate::task::Job::Request { about, .. } => {
                self.at_work(&about, false);
                self.refuse(trap, Errno::EIO);
            }
            crate::task::Job::Map(_) => self.refuse(trap, Errno::EIO),
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
        self.leave(guest, Event::Task(crate::task::Task::Deliver(delivery)));
    }
}

/// The place of a stub that has ended; if all places are taken, of one that is about to end.
fn ended_place(state: &GuestState) -> Option<usize> {
    let ended = |is: &dyn Fn(&Worker) -> bool| {
        let is = |worker: &Worker| matches!(worker.state, StubState::Ended) && is(worker);
        state.workers.iter().position(is)
    };
    let gone = ended(&|worker| !worker.stub.thread.is_alive());
    gone.or_else(|| ended(&|_| state.workers.len() >= MAX_SLOTS))
}

/// Whether a guest has, or may have, a stub for another task.
pub(crate) fn can_take(state: &GuestState) -> bool {
    let any = |is: fn(&StubState) -> bool| state.workers.iter().any(|w| is(&w.state));
    let comes = |state: &StubState| matches!(state, StubState::Starting | StubState::Waking);
    let coming = state.planting.is_some() || any(comes);
    any(|state| matches!(state, StubState::Idle(_)))
        || !coming && (has_room(state) || any(|state| matches!(state, StubState::Parked)))
}

/// Whether another stub may be planted in a guest.
pub(crate) fn has_room(state: &GuestState) -> bool {
    state.workers.len() < MAX_SLOTS
        || state.workers.iter().any(|worker| matches!(worker.state, StubState::Ended))
}
