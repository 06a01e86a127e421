//! The end of a request: the stub's trap shows the result, which goes to the caller and to
//! observers; and the stub waits for more.

use std::sync::Arc;
use std::time::Instant;

use verbgate_abi::Errno;
use verbgate_abi::request::Request;
use verbgate_sys::frame::Frame;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub;
use verbgate_sys::stub::Stub;

use crate::books::UcontextId;
use crate::commit;
use crate::execute;
use crate::executor::Executor;
use crate::flight::InFlight;
use crate::observe::Done;
use crate::observe::Verdict;
use crate::outcome::Outcome;
use crate::session::Guest;
use crate::session::GuestState;
use crate::session::StubState;
use crate::supervisor::Supervisor;
use crate::task::About;
use crate::task::Delivery;
use crate::task::Job;
use crate::task::Then;
use crate::vet::Refusal;
use crate::way;

impl Supervisor {
    /// A stub waits for work, and shows the result of the last.
    pub(crate) fn stub_trapped(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        place: usize,
        trap: Notification,
    ) {
        let Some(worker) = state.workers.get_mut(place) else { return };
        if worker.stub.thread.tid() != trap.tid || !self.listener.is_valid(trap.id) {
            // Of the one before, which has been replaced; or taken back, where the filter's waits are
            // not killable: then it shows what was done for somebody else.
            return;
        }
        if !worker.stub.is_own_trap(self.window, &trap) {
            log::error!(
                "the supervisor ended process {}, whose stub made a call that stubs do not make: \
                 {trap:x?}",
                guest.process.tgid()
            );
            // Killed with its guest; the trap needs no answer.
            let _ = guest.process.kill();
            return self.forget(guest);
        }
        if matches!(worker.state, StubState::Starting) {
            // The last look before the stub gets a device's file.
            let Stub { slot, frame, thread, .. } = &worker.stub;
            let mapped = self.code.is_mapped(trap.tid, *slot, frame);
            if !matches!(mapped, Ok(true)) {
                if !self.listener.is_valid(trap.id) {
                    // The stub has ended.
                    return;
                }
                state.stillborn += u32::from(mapped.is_ok());
                self.warn("not mapped", || {
                    let tgid = guest.process.tgid();
                    let why = mapped.map_or_else(
                        |e| format!("it cannot be seen what a new stub has mapped: {e}"),
                        |_| "another file is mapped in the place of the stubs' code".to_owned(),
                    );
                    format!("process {tgid} cannot use RDMA: {why}")
                });
                self.registry.lock().retire(trap.tid, thread);
                worker.state = StubState::Ended;
                self.answer(trap, Reply::Errno(libc::EPERM));
                return self.go_on(guest, state);
            }
        }
        worker.since = Instant::now();
        worker.moves = false;
        let mut trap = trap;
        if std::mem::take(&mut worker.away)
            && let Some(shown) = worker.shown.take()
        {
            trap.args = shown.args;
        }
        if worker.let_go && matches!(worker.state, StubState::Busy(_)) {
            worker.shown = Some(trap);
            return;
        }
        let was = std::mem::replace(&mut worker.state, StubState::Idle(trap.id));
        let was_parked = matches!(was, StubState::Parked | StubState::Waking);
        worker.stays |= was_parked && stub::cannot_park(&trap);
        state.stillborn = 0;
        if let StubState::Busy(job) = was {
            self.done(guest, state, place, *job, &trap);
        }
        if let Some(worker) = state.workers.get_mut(place).filter(|worker| worker.unbind) {
            execute::unbind(&self.listener, worker, &self.nothing);
        }
        let retires = state.workers.get(place).is_some_and(|worker| worker.retire);
        if retires {
            self.retire(state);
        }
        self.go_on(guest, state);
    }

    /// One waiting task per idle stub, or to plant another when all are busy; more when they come to
    /// nothing.
    pub(crate) fn go_on(&self, guest: &Arc<Guest>, state: &mut GuestState) {
        let mut turns = state.waiting.len();
        while turns > 0 && crate::planting::can_take(state) {
            turns -= 1;
            let Some(next) = state.waiting.pop_front() else { return };
            if self.caller(next.trap()).waits() {
                self.take_up(guest, state, next);
            }
        }
    }

    /// The stages after execute.
    fn done(
        &self,
        guest: &Arc<Guest>,
        state: &mut GuestState,
        place: usize,
        job: Job,
        shown: &Notification,
    ) {
        let (result, wrote) = (Stub::shown_result(shown), Stub::shown_written(shown));
        let (about, mut done, written) = match job {
            Job::Write { trap, written, then } if wrote == written => {
                return self.written(guest, state, place, trap, then);
            }
            Job::Write { trap, then, .. } => return self.undone(trap, then, Errno::EFAULT),
            Job::Map(trap) => return self.answer(trap, mapped(result)),
            Job::Request { about, done, written } => (about, done, written),
        };
        let trap = about.trap;
        let Some(mut stub) = self.stub(state, place, &trap) else { return };
        let outcome = way::finish(&mut stub, &done, result);
        let granted = |next: &Request| self.policies().all(|policy| policy.check(next).is_ok());
        let more = way::more(&stub, &mut done, &outcome, granted);
        if let Some(ucontext) = self.books.lock().get_mut(about.ucontext) {
            ucontext.enter(&done.request, outcome.result);
            ucontext.at_work = ucontext.at_work.saturating_sub(1);
        }
        if more.is_none() || outcome.result >= 0 {
            self.tell_done(stub.frame(), &about, &done, &outcome);
        }
        if let Some(next) = more {
            return self.start(state, place, about, next);
        }
        self.ended(&about, outcome.result >= 0);
        let (pieces, answer) = way::answer(&done, outcome, wrote == written);
        let then = Then::Answer(answer, None);
        self.write(guest, state, place, Delivery { trap, pieces, then });
    }

    fn device_name(&self, id: UcontextId) -> &str {
        let device = self.books.lock().get(id).map(|ucontext| ucontext.device);
        device.and_then(|device| self.devices.get(device)).map_or("?", |d| d.name.as_str())
    }

    /// A request was not executed: told and counted here, and nowhere else.
    pub(crate) fn refused(&self, about: &About, request: Option<&Request>, refusal: &Refusal) {
        let Refusal { reason, errno, warns, line } = refusal;
        let said = || format!("thread {}: {line}", about.trap.tid);
        if *warns {
            self.warn(reason, said);
        } else {
            self.note(reason, said);
        }
        self.tell(about, request, Verdict::Refused(reason, *errno));
    }

    pub(crate) fn tell(&self, about: &About, request: Option<&Request>, verdict: Verdict) {
        self.told(&Done {
            tid: about.trap.tid,
            device: self.device_name(about.ucontext),
            request,
            verdict,
            made: &[],
            made_fd: None,
            elapsed: about.started.elapsed(),
        });
    }

    fn tell_done(&self, frame: &Frame, about: &About, done: &InFlight, outcome: &Outcome) {
        // For onlookers only: it reads the guest's memory.
        let made = if self.is_observed && outcome.result >= 0 {
            commit::made(frame, &self.caller(&about.trap), done)
        } else {
            Vec::new()
        };
        self.told(&Done {
            tid: about.trap.tid,
            device: self.device_name(about.ucontext),
            request: Some(&done.request),
            verdict: Verdict::Executed(outcome.result),
            made: &made,
            made_fd: outcome.fd,
            elapsed: about.started.elapsed(),
        });
    }
}

/// How a call ends for which a stub has mapped memory.
fn mapped(result: i64) -> Reply {
    match i32::try_from(-result) {
        Ok(errno @ 1..4096) => Reply::Errno(errno),
        _ => Reply::Value(result),
    }
}
