//! The care for guests that end, are stopped, or have only stubs left.
//!
//! A stub waits in its trap. Neither a stop signal nor the end of the other threads reaches the
//! stub there, so the supervisor must send the stub on. A guest can also end a stub, by a filter of
//! its own, with a request in the kernel: then the supervisor must tell the caller. No event tells
//! of either case, so the supervisor looks at the guests now and then.

use std::sync::Arc;
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

use crate::crew;
use crate::crew::Watch;
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

/// A stub that is carried through a stop of its process.
struct CarriedStub {
    thread: Arc<Thread>,
    guest: Arc<Guest>,
    place: usize,
}

impl Supervisor {
    /// Sees to it that no guest keeps the supervisor waiting, until none is left. It waits for
    /// nobody itself.
    pub fn watch(self: &Arc<Self>) {
        let mut watch = Watch::default();
        // The first request does not wait for a spare thread to be made.
        self.start_another();
        while !self.is_over() {
            self.crew.doze(&mut watch);
            if self.crew.watch(&mut watch, |trap| self.caller(trap).process().ok()) {
                self.start_another();
            }
        }
    }

    /// Looks after the sandbox's guests until none is left.
    pub fn look_after(&self) {
        let seat = self.crew.join_beside();
        seat.take();
        let mut carried: Vec<CarriedStub> = Vec::new();
        values::prepare();
        policy::prepare();
        while !self.is_over() {
            self.ready.fill(self.window);
            std::thread::sleep(INTERVAL);
            self.ends.take();
            resident::reap();
            socket::forget_closed(&mut self.netlinks.lock());
            carried.retain(|stub| !self.put_down(stub));
            let all = self.registry.lock().all();
            for guest in all {
                self.look_after_one(&guest, &mut carried);
                // Not later: the seat keeps the process that it may wait for.
                seat.end();
            }
        }
    }

    fn look_after_one(&self, guest: &Arc<Guest>, carried: &mut Vec<CarriedStub>) {
        if guest.process.has_ended() {
            return self.forget(guest);
        }
        crew::serving(&guest.process);
        // Whoever serves it now has more to do than this.
        if guest.inbox.lock().is_empty() {
            self.post(guest, Event::Look);
        }
        self.drain(guest);
        self.carry_through(guest, carried);
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
            if let StubState::Busy(job) = was {
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
    }

    /// Lets go of a stub that was carried through a stop, as soon as it waits in its trap: true when
    /// that is done. Where the stop still lasts, it takes part in it then.
    fn put_down(&self, stub: &CarriedStub) -> bool {
        match Running::carried(stub.thread.tid()).try_wait() {
            Ok(Waited::Stopped(stopped, _)) => stopped.detach(0).is_ok(),
            Ok(Waited::Nothing(running)) => {
                // At work still, or being served: it is looked at again.
                self.with_state(&stub.guest, |state| self.let_go(stub, state, running))
                    .unwrap_or(false)
            }
            Ok(Waited::Gone) | Err(_) => true,
        }
    }

    fn let_go(&self, stub: &CarriedStub, state: &mut GuestState, running: Running) -> bool {
        let worker = state.workers.get_mut(stub.place);
        let is_it = |worker: &&mut Worker| Arc::ptr_eq(&worker.stub.thread, &stub.thread);
        let Some(worker) = worker.filter(is_it) else { return false };
        let StubState::Idle(idle) = worker.state else { return false };
        stub::set_after(worker.stub.frame.ro(), AfterIoctl::NOTHING);
        let sent = running.interrupt();
        if sent.and_then(|()| self.listener.reply(idle, Reply::Value(0))).is_err() {
            return false;
        }
        worker.state = StubState::Starting;
        let Ok((stopped, _)) = running.wait() else { return true };
        stopped.detach(0).is_ok()
    }

    /// Has stubs that a stop keeps from showing the result of a request go on to where they show it:
    /// whoever waits for it cannot stop before. They stay traced; see [`Supervisor::put_down`].
    fn carry_through(&self, guest: &Arc<Guest>, carried: &mut Vec<CarriedStub>) {
        let needed = self.with_state(guest, |state| {
            let waits = !state.waiting.is_empty();
            let needed = |worker: &&Worker| match worker.state {
                StubState::Busy(_) => true,
                StubState::Starting => waits,
                StubState::Idle(_) | StubState::Ended => false,
            };
            let workers = state.workers.iter().enumerate().filter(|(_, worker)| needed(worker));
            workers
                .map(|(place, worker)| (place, Arc::clone(&worker.stub.thread)))
                .collect::<Vec<_>>()
        });
        let needed = needed.unwrap_or_default();
        for (place, thread) in needed {
            if thread.state().is_ok_and(|state| state == 'T') && ptrace::carry(&thread).is_ok() {
                carried.push(CarriedStub { thread, guest: Arc::clone(guest), place });
            }
        }
    }

    /// Lets a waiting thread take its signal, or part in a stop; it comes again afterwards if it
    /// may.
    ///
    /// The kernel begins a call again only for a thread that has something pending. Another thread
    /// may take a signal of the process meanwhile; being interrupted by its tracer stands in for
    /// it.
    pub(crate) fn let_be_interrupted(&self, trap: &Notification) {
        let seized = ptrace::seize(self.caller(trap)).and_then(|running| {
            running.interrupt()?;
            self.answer(*trap, Reply::Errno(ERESTARTSYS));
            let (stopped, _) = running.wait()?;
            stopped.detach(0)
        });
        if let Err(e) = seized {
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
            if let StubState::Idle(idle) = worker.state {
                stub::set_after(worker.stub.frame.ro(), after);
                if self.listener.reply(idle, Reply::Value(0)).is_ok() {
                    let exits = after.has(AfterIoctl::EXIT);
                    worker.state = if exits { StubState::Ended } else { StubState::Starting };
                    worker.bound = worker.bound.filter(|_| !exits);
                }
            }
        }
    }
}

/// `ERESTARTSYS`, include/linux/errno.h: the call begins again, or fails with EINTR, as the handler
/// of the signal that is pending was installed. Not for callers without a signal pending.
const ERESTARTSYS: i32 = 512;
