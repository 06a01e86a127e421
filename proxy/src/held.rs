//! Callers whose stub stands still at a debugger's will, or a freezer's. Neither reaches a caller in its trap, and so
//! would wait for ever: the caller is let go. Its call begins again when the caller goes on, and finds what became of it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use verbgate_sys::Tid;
use verbgate_sys::process;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::stub;

use crate::session::Guest;
use crate::session::GuestState;
use crate::session::StubState;
use crate::session::Worker;
use crate::supervisor::Supervisor;
use crate::task::Call;
use crate::task::Job;
use crate::task::Task;
use crate::task::Then;

/// The time for which a result is kept when the caller's process goes on: a handler of a signal may have ended the call.
const KEPT: Duration = Duration::from_secs(1);

/// Whether a thread in its trap is about to be stopped. A thread that is poked there, by a signal, a tracer or a freezer,
/// waits on where SIGKILL alone ends the wait (`D`; kernel/seccomp.c, `should_sleep_killable`).
pub(crate) fn is_called(tid: Tid) -> bool {
    process::is_called_away(tid).unwrap_or(false)
        || process::state(tid).is_ok_and(|state| state == 'D')
}

impl Worker {
    /// Whether it is at work, or comes to its trap, and stands still.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, StubState::Busy(_) | StubState::Waking)
            && !self.carried.load(Ordering::Acquire)
            && self.stub.thread.is_held().unwrap_or(false)
    }
}

impl Supervisor {
    /// Lets callers go whose stubs stand still.
    pub(crate) fn let_go(&self, guest: &Arc<Guest>, state: &mut GuestState) {
        // The tracer of this process stops the caller, or another that has begun to.
        let can_go = |trap: &Notification| {
            process::tracer(trap.tid).is_ok_and(|tracer| tracer == 0) || is_called(trap.tid)
        };
        let (mut callers, mut any) = (Vec::new(), false);
        for worker in &mut state.workers {
            if !worker.is_held() {
                continue;
            }
            any = true;
            // A command of the connection manager's keeps its own trap.
            let is_command = |job: &Job| matches!(job, Job::Write { then: Then::Command(_), .. });
            if let StubState::Busy(job) = &worker.state
                && !worker.let_go
                && !is_command(job)
                && can_go(job.trap())
            {
                callers.push(*job.trap());
                worker.let_go = true;
            }
        }
        // A caller is poked, and by no signal of the program's: by a freezer, say, which has reached the thread by way of
        // which a stub is planted.
        let is_poked = |trap: &Notification| {
            process::state(trap.tid).is_ok_and(|state| state == 'D')
                && !process::is_called_away(trap.tid).unwrap_or(true)
        };
        let mut goes = |trap: &Notification| {
            let goes = (any || is_poked(trap)) && can_go(trap);
            callers.extend(goes.then_some(*trap));
            goes
        };
        // Callers that wait for a stub make their calls anew.
        state.waiting.retain(|task| !matches!(task, Task::Call(_)) || !goes(task.trap()));
        if let Some(planting) = &mut state.planting {
            planting.again.retain(|trap| !goes(trap));
        }
        if callers.is_empty() {
            return;
        }
        // The tracer waits for all at a time: a caller that a freezer reaches first stops when it is thawed.
        self.tracer.give_beside(guest, move |supervisor| {
            Box::pin(async move {
                let each = callers.iter().map(|trap| Box::pin(supervisor.let_be_interrupted(trap)));
                let mut left: Vec<_> = each.collect();
                let poll = |context: &mut Context<'_>| {
                    left.retain_mut(|one| one.as_mut().poll(context).is_pending());
                    if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
                };
                poll_fn(poll).await;
            })
        });
    }

    /// Whether a call is one whose caller was let go; then it goes on. A thread that has the number of that caller must
    /// share the stub's memory.
    pub(crate) fn is_again(&self, guest: &Arc<Guest>, state: &mut GuestState, call: &Call) -> bool {
        let again = &call.trap;
        let is_its = |worker: &Worker| match &worker.state {
            StubState::Busy(job) if worker.let_go => {
                let Notification { tid, nr, args, .. } = *job.trap();
                let shares = || self.caller(again).shares_memory_with(&worker.stub.thread);
                (tid, nr, args) == (again.tid, again.nr, again.args)
                    && (call.met || shares().unwrap_or(false))
            }
            _ => false,
        };
        let Some(place) = state.workers.iter().position(is_its) else { return false };
        if let Some(worker) = state.workers.get_mut(place) {
            worker.let_go = false;
            if let StubState::Busy(job) = &mut worker.state {
                job.is_for(*again);
            }
            self.show(guest, state, place);
        }
        true
    }

    /// Ends calls that nobody makes again.
    pub(crate) fn end_unclaimed(&self, guest: &Arc<Guest>, state: &mut GuestState) {
        // The caller's number is its own no longer. Who is held is so with its process.
        let is_held = guest.process.state().is_ok_and(|state| "DtT".contains(state));
        let is_unclaimed = |worker: &Worker| {
            worker.let_go && worker.kept().is_some() && worker.since.elapsed() > KEPT && !is_held
        };
        while let Some(place) = state.workers.iter().position(is_unclaimed) {
            let Some(worker) = state.workers.get_mut(place) else { return };
            worker.let_go = false;
            self.show(guest, state, place);
        }
    }

    /// Has what a stub shows go where it was kept from.
    fn show(&self, guest: &Arc<Guest>, state: &mut GuestState, place: usize) {
        let Some(worker) = state.workers.get_mut(place) else { return };
        if worker.away {
            stub::wake(worker.stub.frame.ro());
        } else if let Some(shown) = worker.shown.take() {
            self.stub_trapped(guest, state, place, shown);
        }
    }
}
