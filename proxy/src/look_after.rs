//! The care for guests that end, are stopped, or have only stubs left.
//!
//! A stub waits in its trap, for the next of many requests. Neither a stop, a freezer nor a debugger reaches the stub there,
//! so a stub that has waited for some milliseconds parks: it waits in futex(2), where they do. The end of the other threads
//! reaches it nowhere, so the supervisor must send the stub on. A guest can also end a stub, by a filter of
//! its own, with a request in the kernel: then the supervisor must tell the caller. No event tells
//! of either case, so the supervisor looks at the guests now and then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use verbgate_abi::values;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::process::Thread;
use verbgate_sys::ptrace;
use verbgate_sys::ptrace::Running;
use verbgate_sys::ptrace::Waited;
use verbgate_sys::resident;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub;

use crate::crew::Watch;
use crate::execute;
use crate::held;
use crate::netlink::socket;
use crate::policy;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::StubState;
use crate::session::Worker;
use crate::supervisor::Supervisor;
use crate::task::Event;

/// How often guests are looked at: the delay that a shell's Ctrl-Z may be felt to have.
const INTERVAL: Duration = Duration::from_millis(200);

/// The time for which a stub waits in its trap for the next request.
const SOON: Duration = Duration::from_millis(20);

/// One look of so many is at everything. The others, while nothing is asked, see only whether a guest has been stopped,
/// or has ended.
const ROUNDS: u32 = 5;

/// How often it is looked, while there are no guests, for what guests have left behind.
const NOBODY: Duration = Duration::from_secs(10);

/// How often it is looked whether a stub that is carried through a stop waits in its trap.
const CARRIED: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Sees to it that no guest keeps the supervisor waiting, until none is left. It waits for
    /// nobody itself.
    pub fn watch(self: &Arc<Self>) {
        let mut watch = Watch::default();
        // The first request does not wait for a spare thread to be made.
        self.start_another();
        while !self.is_over() {
            if self.crew.is_quiet(&watch) {
                self.look_at_quiet();
            }
            self.crew.doze(&mut watch);
            if self.crew.watch(&mut watch, |trap| self.caller(trap).share_owner().ok()) {
                self.start_another();
            }
        }
    }

    /// Looks after the sandbox's guests until none is left.
    pub fn look_after(&self) {
        values::prepare();
        policy::prepare();
        let (mut seen, mut round) = (0, 0_u32);
        while !self.is_over() {
            self.ready.fill();
            let mut registry = self.registry.lock();
            if registry.is_empty() && !self.is_over() {
                self.entered.wait_for(&mut registry, NOBODY);
            }
            drop(registry);
            std::thread::sleep(INTERVAL);
            resident::reap();
            self.crew.forget_aside(|trap| !self.listener.is_valid(trap.id));
            socket::forget_closed(&mut self.netlinks.lock());
            let all = self.registry.lock().all();
            let traps = self.crew.traps();
            round = round.wrapping_add(1);
            let is_quiet =
                std::mem::replace(&mut seen, traps) == traps && !round.is_multiple_of(ROUNDS);
            for guest in all {
                // A guest that runs or waits, and has asked for nothing, needs nothing.
                let is_plain = || guest.process.state().is_ok_and(|state| !"TtZX".contains(state));
                if !(is_quiet && is_plain()) {
                    self.look_after_one(&guest);
                }
            }
        }
    }

    /// Has a quick look at all guests when none asks for anything. It waits for nobody.
    fn look_at_quiet(&self) {
        let all = self.registry.lock().all();
        for guest in all {
            let Some(mut state) = guest.state.try_lock() else { continue };
            self.park(&mut state);
            // Callers cannot be stopped where stubs stand still, until they are let go.
            let may_go = |worker: &Worker| !worker.let_go && worker.is_held();
            let needs = !state.waiting.is_empty() || state.workers.iter().any(may_go);
            drop(state);
            if needs {
                self.leave(&guest, Event::Look);
            } else {
                self.hand_over_rest(&guest);
            }
        }
    }

    /// Lets stubs that have waited for work wait where a stop, a freezer and a debugger reach them.
    fn park(&self, state: &mut GuestState) {
        let is_wanted = !state.waiting.is_empty();
        for worker in state.workers.iter_mut().filter(|worker| is_due(worker)) {
            let kept = worker.kept().map(|shown| shown.id);
            let Some(trap) = kept.or(worker.idle().filter(|_| !is_wanted)) else { continue };
            // Where the process's RLIMIT_NOFILE leaves its stubs no number, the file stays until the guest closes it.
            if kept.is_none()
                && worker.bound.is_some()
                && execute::bind(&self.listener, trap, &self.nothing).is_ok()
            {
                worker.bound = None;
            }
            stub::park(worker.stub.frame.ro());
            match (self.listener.reply(trap, Reply::Value(0)), kept) {
                (Ok(()), Some(_)) => worker.away = true,
                (Ok(()), None) => worker.state = StubState::Parked,
                // The stub has ended.
                (Err(_), _) => {}
            }
        }
    }

    fn look_after_one(&self, guest: &Arc<Guest>) {
        if guest.process.has_ended() {
            return self.forget(guest);
        }
        // A guest that is being served needs no look; and this thread serves nobody.
        let needs = || guest.state.try_lock().is_none_or(|state| self.needs_a_look(guest, &state));
        if needs() && guest.inbox.lock().is_empty() {
            return self.leave(guest, Event::Look);
        }
        // Events may have come while the state was looked at.
        self.hand_over_rest(guest);
    }

    /// Whether looking at a guest would change anything.
    fn needs_a_look(&self, guest: &Guest, state: &GuestState) -> bool {
        let gone = |id| self.books.lock().get(id).is_none();
        let is_over = |worker: &Worker| {
            !matches!(worker.state, StubState::Ended)
                && (!worker.stub.thread.is_alive() || worker.bound.is_some_and(|(_, id)| gone(id)))
        };
        // The first thread may wait for the stub, and is not stopped then.
        let is_stopped = |worker: &Worker| {
            !matches!(worker.state, StubState::Idle(_) | StubState::Parked | StubState::Ended)
                && worker.stub.thread.state().is_ok_and(|state| state == 'T')
        };
        !state.workers.is_empty()
            && (!state.waiting.is_empty()
                || state.workers.iter().any(|worker| {
                    is_over(worker)
                        || is_stopped(worker)
                        || worker.is_held()
                        || worker.kept().is_some()
                        || is_due(worker)
                })
                || guest.process.state().is_ok_and(|state| "TZ".contains(state)))
    }

    /// Looks at a guest whose process has not ended.
    pub(crate) fn look_at(&self, guest: &Arc<Guest>, state: &mut GuestState) {
        if state.workers.is_empty() || state.over {
            return;
        }
        for worker in &mut state.workers {
            if matches!(worker.state, StubState::Ended) || worker.stub.thread.is_alive() {
                continue;
            }
            let thread = &worker.stub.thread;
            self.registry.lock().retire(thread.tid(), thread);
            let was = std::mem::replace(&mut worker.state, StubState::Ended);
            worker.bound = None;
            state.stillborn += u32::from(matches!(was, StubState::Starting));
            if std::mem::take(&mut worker.moves)
                && let StubState::Busy(job) = was
            {
                state.stubs_stay = true;
                self.not_begun(*job);
            } else if let StubState::Busy(job) = was {
                // As when the program ends, or executes another, in the middle of a request.
                self.note("stub ended", || {
                    let tgid = guest.process.tgid();
                    format!("a stub of process {tgid} has ended with a request in the kernel")
                });
                self.abandoned(*job);
            }
        }
        // A guest has let go of them unseen, whose stubs hold them still.
        let gone = |id| self.books.lock().get(id).is_none();
        self.unbind_if(state, |_, id| gone(id));
        self.go_on(guest, state);
        match guest.process.state() {
            // One that takes part in the stop is not waiting in its trap, so each look sends on
            // only those that do not yet.
            Ok('T') => self.send_on(state, AfterIoctl::NOTHING, |_| true),
            // Its first thread has ended: what is left may be stubs alone.
            Ok('Z') => {
                let stubs: Vec<_> = state.workers.iter().map(|w| &*w.stub.thread).collect();
                if guest.process.is_only(&stubs).unwrap_or(false) {
                    self.send_on(state, AfterIoctl::EXIT, |_| true);
                }
            }
            Ok(_) | Err(_) => {}
        }
        self.carry_through(guest, state);
        self.park(state);
        self.let_go(guest, state);
        self.end_unclaimed(guest, state);
    }

    /// Has stubs that a stop keeps from showing the result of a request go on to where they show it:
    /// whoever waits for it cannot stop before. They stay traced until they wait in their trap.
    fn carry_through(&self, guest: &Arc<Guest>, state: &mut GuestState) {
        let waits = !state.waiting.is_empty();
        for (place, worker) in state.workers.iter_mut().enumerate() {
            let needed = match worker.state {
                StubState::Busy(_) => true,
                StubState::Starting | StubState::Waking => waits || worker.unbind,
                // The stub's end closes the file of a descriptor that the guest has closed.
                StubState::Ended => worker.unbind,
                StubState::Idle(_) | StubState::Parked => false,
            };
            let thread = &worker.stub.thread;
            // Traced, it is in another state.
            let stops = || thread.state().is_ok_and(|state| state == 'T');
            if needed && stops() && !worker.carried.swap(true, Ordering::AcqRel) {
                let (of, thread, carried) =
                    (Arc::clone(guest), Arc::clone(thread), Arc::clone(&worker.carried));
                self.tracer.give(guest, move |supervisor| {
                    Box::pin(async move {
                        supervisor.carried(&of, place, &thread).await;
                        carried.store(false, Ordering::Release);
                    })
                });
            }
        }
    }

    /// Carries a stub through a stop, and lets go of it as soon as it waits in its trap. Where the stop still lasts, it
    /// takes part in it then.
    async fn carried(&self, guest: &Arc<Guest>, place: usize, thread: &Arc<Thread>) {
        let Ok(Some(mut running)) = ptrace::carry(thread).await else { return };
        loop {
            running = match running.try_wait() {
                Ok(Waited::Stopped(stopped, _)) => return drop(stopped.detach(0)),
                Ok(Waited::Nothing(running)) => running,
                Ok(Waited::Gone) | Err(_) => return,
            };
            let is_sent_back = self.is_sent_back(guest, (place, thread), &running);
            self.hand_over_rest(guest);
            if is_sent_back {
                if let Ok((stopped, _)) = running.wait().await {
                    let _ = stopped.detach(0);
                }
                return;
            }
            // The stub is at work still, or being served.
            ptrace::pause(CARRIED).await;
        }
    }

    /// Has a stub that is carried return from its trap, if it waits there, and stop on its way.
    fn is_sent_back(
        &self,
        guest: &Guest,
        (place, thread): (usize, &Arc<Thread>),
        running: &Running,
    ) -> bool {
        let Some(mut state) = guest.state.try_lock() else { return false };
        let worker = state.workers.get_mut(place);
        let is_it = |worker: &&mut Worker| Arc::ptr_eq(&worker.stub.thread, thread);
        let Some(worker) = worker.filter(is_it) else { return false };
        let idle = match worker.state {
            StubState::Idle(idle) => idle,
            StubState::Parked => return running.interrupt().is_ok(),
            _ => return false,
        };
        stub::set_after(worker.stub.frame.ro(), AfterIoctl::NOTHING);
        let sent = running.interrupt();
        let is_sent = sent.and_then(|()| self.listener.reply(idle, Reply::Value(0))).is_ok();
        if is_sent {
            worker.state = StubState::Starting;
        }
        is_sent
    }

    /// Lets a waiting thread take its signal, or part in a stop; it comes again afterwards if it
    /// may.
    ///
    /// The kernel begins a call again only for a thread that has something pending. Another thread
    /// may take a signal of the process meanwhile; being interrupted by its tracer stands in for
    /// it.
    pub(crate) async fn let_be_interrupted(&self, trap: &Notification) {
        let seized = async {
            let running = ptrace::seize(self.caller(trap)).await?;
            running.interrupt()?;
            self.answer(*trap, Reply::Errno(ERESTARTSYS));
            let (stopped, _) = running.wait().await?;
            stopped.detach(0)
        };
        if let Err(e) = seized.await {
            // A debugger traces it, and is about to stop it.
            if held::is_called(trap.tid) {
                return self.answer(*trap, Reply::Errno(ERESTARTSYS));
            }
            log::debug!(
                "cannot interrupt thread {} ({e}): the thread's call fails with EINTR",
                trap.tid
            );
            // One that was answered before does not hear this.
            self.answer(*trap, Reply::Errno(libc::EINTR));
        }
    }

    /// Lets a process's waiting stubs return from their trap without a request. On their way they
    /// take part in a stop; then they come back to the trap, or end.
    pub(crate) fn send_on(
        &self,
        state: &mut GuestState,
        after: AfterIoctl,
        which: impl Fn(&Worker) -> bool,
    ) {
        for worker in state.workers.iter_mut().filter(|worker| which(worker)) {
            if after.has(AfterIoctl::EXIT) && matches!(worker.state, StubState::Parked) {
                worker.retire = true;
                worker.wake();
            }
            let StubState::Idle(idle) = worker.state else { continue };
            if after.has(AfterIoctl::EXIT) {
                execute::end(&self.listener, worker, idle);
                continue;
            }
            stub::set_after(worker.stub.frame.ro(), after);
            if self.listener.reply(idle, Reply::Value(0)).is_ok() {
                worker.state = StubState::Starting;
            }
        }
    }
}

/// Whether a stub has waited in its trap for a while.
fn is_due(worker: &Worker) -> bool {
    let waits = worker.idle().is_some() || worker.kept().is_some() && !worker.away;
    !worker.stays && waits && worker.since.elapsed() >= SOON
}

/// `ERESTARTSYS`, include/linux/errno.h: the call begins again, or fails with EINTR, as the handler
/// of the signal that is pending was installed. Not for callers without a signal pending.
const ERESTARTSYS: i32 = 512;
