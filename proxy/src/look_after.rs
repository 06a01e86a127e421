//! Looking after processes that end, are stopped, or have nothing left but stubs.
//!
//! A stub waits in its trap, and there neither a stop signal nor the end of the other threads
//! reaches it: it has to be sent on. No event tells of either, so the processes that have stubs
//! are looked at now and then.

use std::time::Duration;

use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::process;
use verbgate_sys::ptrace;
use verbgate_sys::ptrace::Running;
use verbgate_sys::ptrace::Waited;
use verbgate_sys::seccomp::Reply;
use verbgate_sys::stub;

use crate::netlink;
use crate::session::StubState;
use crate::session::Worker;
use crate::supervisor::State;
use crate::supervisor::Supervisor;

/// How often processes are looked at: the delay that a shell's Ctrl-Z may be felt to have.
const INTERVAL: Duration = Duration::from_millis(200);

impl Supervisor {
    /// Looks after the sandbox's processes until none is left.
    pub fn look_after(&self) {
        let mut carried = Vec::new();
        while !self.is_over() {
            std::thread::sleep(INTERVAL);
            // Before the lock, which the planting thread holds.
            if let Some(tgid) = self.watch.end_overdue() {
                log::error!("process {tgid} was ended: it kept the planting of a stub waiting");
            }
            self.watch.take_ends();
            let mut state = self.state.lock();
            netlink::forget_closed(&mut state.netlinks);
            carried.retain(|stub| !self.put_down(&mut state, *stub));
            let all: Vec<Tgid> = state.session.processes.keys().copied().collect();
            for tgid in all {
                self.look_at(&mut state, tgid);
                carried.extend(carry_through(&state, tgid));
            }
        }
    }

    fn look_at(&self, state: &mut State, tgid: Tgid) {
        let Some(process) = state.session.processes.get_mut(&tgid) else { return };
        if process.pidfd.has_ended() {
            state.session.forget(tgid);
            return;
        }
        if process.workers.is_empty() {
            return;
        }
        match process::state(Tid(tgid.0)) {
            // One that takes part in the stop is not waiting in its trap, so each look sends on
            // only those that do not yet.
            Ok('T') => self.send_on(state, tgid, AfterIoctl::Nothing, |_| true),
            // Its first thread has ended: what is left may be stubs alone.
            Ok('Z') => {
                let stubs = &state.session.stubs;
                let threads = process::threads(tgid).unwrap_or_default();
                if threads.iter().all(|tid| tid.0 == tgid.0 || stubs.contains_key(tid)) {
                    self.send_on(state, tgid, AfterIoctl::Exit, |_| true);
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Lets go of a stub that was carried through a stop, as soon as it waits in its trap: true when
    /// that is done. Where the stop still lasts, it takes part in it then.
    fn put_down(&self, state: &mut State, stub: Tid) -> bool {
        match Running::carried(stub).try_wait() {
            Ok(Waited::Stopped(stopped, _)) => stopped.detach(0).is_ok(),
            Ok(Waited::Nothing(running)) => {
                let place = state.session.stubs.get(&stub).copied();
                let worker = place.and_then(|(tgid, place)| {
                    state.session.processes.get_mut(&tgid)?.workers.get_mut(place)
                });
                // Forgotten, or at work still: it ends, or comes back.
                let Some(worker) = worker else { return false };
                let StubState::Idle(idle) = worker.state else { return false };
                stub::set_after(worker.stub.frame.ro(), AfterIoctl::Nothing);
                let sent = running.interrupt();
                if sent.and_then(|()| self.listener.reply(idle, Reply::Value(0))).is_err() {
                    return false;
                }
                worker.state = StubState::Starting;
                let Ok((stopped, _)) = running.wait() else { return true };
                stopped.detach(0).is_ok()
            }
            Ok(Waited::Gone) | Err(_) => true,
        }
    }

    /// Lets a process's waiting stubs return from their trap without a request. On their way they
    /// take part in a stop; then they come back to the trap, or end.
    pub(crate) fn send_on(
        &self,
        state: &mut State,
        tgid: Tgid,
        after: AfterIoctl,
        which: impl Fn(&Worker) -> bool,
    ) {
        let Some(process) = state.session.processes.get_mut(&tgid) else { return };
        for worker in process.workers.iter_mut().filter(|worker| which(worker)) {
            if let StubState::Idle(idle) = worker.state {
                stub::set_after(worker.stub.frame.ro(), after);
                if self.listener.reply(idle, Reply::Value(0)).is_ok() {
                    worker.state = match after {
                        AfterIoctl::Exit => StubState::Ended,
                        _ => StubState::Starting,
                    };
                    worker.bound = worker.bound.filter(|_| after != AfterIoctl::Exit);
                }
            }
        }
    }
}

/// Has stubs that a stop keeps from showing the result of a request go on to where they show it:
/// whoever waits for it cannot stop before. They stay traced; see [`Supervisor::put_down`].
fn carry_through(state: &State, tgid: Tgid) -> Vec<Tid> {
    let Some(process) = state.session.processes.get(&tgid) else { return Vec::new() };
    let needed = process.workers.iter().filter(|worker| match worker.state {
        StubState::Busy(_) => true,
        StubState::Starting => !process.waiting.is_empty(),
        StubState::Idle(_) | StubState::Ended => false,
    });
    let stopped = needed.map(|worker| worker.stub.tid);
    let stopped = stopped.filter(|tid| process::state(*tid).is_ok_and(|state| state == 'T'));
    stopped.filter(|tid| ptrace::carry(*tid).is_ok()).collect()
}
