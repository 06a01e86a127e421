//! The way of a request, stage by stage, and what a stub's traps mean.

use std::io;
use std::time::Instant;

use verbgate_abi::Errno;
use verbgate_abi::request::Request;
use verbgate_abi::wire;
use verbgate_abi::wire::DriverId;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::arch::AfterIoctl;
use verbgate_sys::arch::Arch;
use verbgate_sys::arch::Native;
use verbgate_sys::mem;
use verbgate_sys::mem::Range;
use verbgate_sys::mem::RemoteMemory;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::stub::Stub;

use crate::commit;
use crate::decode;
use crate::device::Kind;
use crate::execute;
use crate::execute::Form;
use crate::execute::InFlight;
use crate::fetch;
use crate::fetch::Copied;
use crate::fetch::MAX_WRITE;
use crate::frame;
use crate::gids::Judged;
use crate::observe;
use crate::observe::Done;
use crate::observe::Verdict;
use crate::reply;
use crate::session::StubState;
use crate::session::UcontextId;
use crate::supervisor::State;
use crate::supervisor::Supervisor;
use crate::translate;
use crate::workers::Call;
use crate::workers::Chosen;
use crate::workers::can_take;
use crate::workers::shares_memory;

impl Supervisor {
    /// A call on what may be an RDMA descriptor: `ioctl`, `write` or `writev`.
    pub(crate) fn request(&self, state: &mut State, trap: Notification) {
        let started = Instant::now();
        let n = &Native::NUMBERS;
        let [fd, b, c, ..] = trap.args;
        let fd = execute::guest_fd(fd);
        let (form, addr) = if trap.nr == n.ioctl {
            (Form::Ioctl(c), c)
        } else {
            let (addr, count) =
                if trap.nr == n.write { (b, c) } else { first_vector(trap.tid, b, c) };
            (Form::Write(usize::try_from(count).unwrap_or(usize::MAX)), addr)
        };
        let memory = RemoteMemory(trap.tid);
        let first = match form {
            Form::Ioctl(_) => fetch::request(&memory, self.window, addr),
            Form::Write(count) => fetch::first(&memory, self.window, addr, count.min(MAX_WRITE)),
        };
        let call = Call { trap, fd, form, addr, started };
        let done = match first {
            Some((owner, copied)) => match state.session.owners.get(&owner).copied() {
                Some(tgid) if shares_memory(state, tgid, trap.tid) => {
                    self.planted(state, &call, tgid, copied)
                }
                // The kernel itself may put a mapping of many TiB across the window, and who was
                // given it can write any owner there.
                Some(tgid) => {
                    state.quiet.warn("forged owner", || {
                        format!("thread {} poses as a part of process {tgid}", trap.tid)
                    });
                    Err(Errno::EPERM)
                }
                None => {
                    state.quiet.warn("orphan", || {
                        format!(
                            "thread {} shares the memory of a process that has ended, and its \
                             stubs with it: it cannot use RDMA any more",
                            trap.tid
                        )
                    });
                    Err(Errno::EIO)
                }
            },
            None => self.unplanted(state, &call),
        };
        if let Err(errno) = done {
            self.refuse(trap, errno);
        }
    }

    /// A call from an address space that has no stub yet.
    fn unplanted(&self, state: &mut State, call: &Call) -> Result<(), Errno> {
        let tid = call.trap.tid;
        let tgid = process::tgid(tid).map_err(|_| Errno(libc::ESRCH))?;
        if state.session.processes.get(&tgid).is_some_and(|process| process.owner.is_some()) {
            // It had one, and has executed another program since.
            state.session.forget(tgid);
        }
        if self.identify(state, tgid, call)?.is_none() {
            return Ok(());
        }
        // A stub belongs to the process of the thread that makes it, and ends with it: a child
        // between vfork() and execve() would take its parent's with it.
        let shared = process::parent(tid).and_then(|parent| process::same_memory(tid, parent));
        if shared.unwrap_or(false) {
            state.quiet.warn("borrowed memory", || {
                format!(
                    "process {tgid} makes its first RDMA request in its parent's memory; let \
                     the parent make one before, or execute a program"
                )
            });
            return Err(Errno::EPERM);
        }
        self.plant(state, tgid, call)
    }

    fn planted(
        &self,
        state: &mut State,
        call: &Call,
        tgid: Tgid,
        copied: Copied,
    ) -> Result<(), Errno> {
        match self.choose(state, tgid, call)? {
            Chosen::Later => Ok(()),
            Chosen::Ready { place, idle, ucontext } => {
                self.run(state, call, tgid, copied, place, idle, ucontext)
            }
        }
    }

    /// The stages from decode to execute.
    #[allow(clippy::too_many_arguments)]
    fn run(
        &self,
        state: &mut State,
        call: &Call,
        tgid: Tgid,
        copied: Copied,
        place: usize,
        idle: NotifId,
        ucontext: UcontextId,
    ) -> Result<(), Errno> {
        let tid = call.trap.tid;
        let memory = RemoteMemory(tid);
        let driver = self.driver(state, ucontext);
        let decoded = match call.form {
            Form::Ioctl(_) => decode::ioctl(&memory, copied, driver),
            Form::Write(count) => decode::write(&copied, count, driver),
        };
        let request = match decoded {
            Ok(request) => request,
            Err(malformed) => {
                let kind = malformed.kind();
                state.quiet.note(kind, || format!("thread {tid}: malformed request: {malformed}"));
                let verdict = Verdict::Refused(kind, malformed.errno());
                self.tell(state, call, ucontext, None, verdict);
                return Err(malformed.errno());
            }
        };
        if let Err(refusal) = self.policy.check(&request) {
            state.quiet.warn(refusal.reason, || format!("thread {tid}: {refusal}"));
            let verdict = Verdict::Refused(refusal.reason, refusal.errno);
            self.tell(state, call, ucontext, Some(&request), verdict);
            return Err(refusal.errno);
        }
        let (rdev, asked) = self.opened_as(state, ucontext);
        let patch = match self.gids.as_ref().map(|gids| gids.judge(&request, rdev, asked)) {
            None | Some(Judged::Passed) => None,
            Some(Judged::Patched(patch)) => Some(patch),
            Some(Judged::Refused(reason, errno)) => {
                state.quiet.note(reason, || {
                    format!("thread {tid}: {}: {reason}", observe::name(&request))
                });
                let verdict = Verdict::Refused(reason, errno);
                self.tell(state, call, ucontext, Some(&request), verdict);
                return Err(errno);
            }
            Some(Judged::Answered(outcome)) => {
                self.answer(call.trap, reply::write_back(&memory, call.form, &request, &outcome));
                let verdict = Verdict::Executed(outcome.result);
                self.tell(state, call, ucontext, Some(&request), verdict);
                return Ok(());
            }
        };
        let mut files: Option<PidFd> = None;
        let plan = translate::translate(&request, |fd: wire::GuestFd| {
            if files.is_none() {
                let opened = PidFd::open_thread(tid, tgid).map_err(|_| Errno::EBADF)?;
                files = Some(opened);
            }
            let table = files.as_ref().ok_or(Errno::EBADF)?;
            table.get_fd(GuestFd(fd.0)).map_err(|_| Errno::EBADF)
        })?;

        let process = state.session.processes.get_mut(&tgid).ok_or(Errno(libc::ESRCH))?;
        let worker = process.workers.get_mut(place).ok_or(Errno(libc::ESRCH))?;
        let base = self.window.slot(worker.stub.slot);
        let layout = frame::lay_out(&mut worker.stub.frame, base, &request, &plan)?;
        reply::touch(&memory, &layout)?;
        let gone = execute::prepare(&self.listener, worker, idle, base, &plan.lent, plan.new_fd)
            .and_then(|()| execute::go(&self.listener, idle));
        if let Err(e) = gone {
            if e.raw_os_error() != Some(libc::ENOENT) {
                log::error!("cannot start a request of thread {tid}: {e}");
                return Err(Errno::EIO);
            }
            // The stub went with the program that it belonged to; the caller will be planted in.
            state.session.forget(tgid);
            state.backlog.push_back(call.trap);
            return Ok(());
        }
        let (trap, form, started) = (call.trap, call.form, call.started);
        let in_flight = InFlight { trap, form, ucontext, request, layout, patch, started };
        worker.state = StubState::Busy(Box::new(in_flight));
        Ok(())
    }

    /// A stub waits for work, and shows the result of the last.
    pub(crate) fn stub_trapped(&self, state: &mut State, trap: Notification) {
        let Some((tgid, place)) = state.session.stubs.get(&trap.tid).copied() else { return };
        let worker = state.session.processes.get_mut(&tgid).and_then(|p| p.workers.get_mut(place));
        let Some(worker) = worker else { return };
        if !worker.stub.is_own_trap(self.window, &trap) {
            let owner = fetch::first(&RemoteMemory(trap.tid), self.window, 0, 0);
            let owner = owner.map(|(owner, _)| owner);
            if owner != state.session.processes.get(&tgid).and_then(|p| p.owner) {
                // The stub went with the program that it belonged to, and its number to a thread
                // of another.
                state.session.forget(tgid);
                state.backlog.push_back(trap);
                return;
            }
            log::error!(
                "process {tgid} was ended: its stub did another call than its own: {trap:x?}"
            );
            // Killed with its guest; the trap needs no answer.
            let _ = process::kill(tgid);
            state.session.forget(tgid);
            return;
        }
        let was = std::mem::replace(&mut worker.state, StubState::Idle(trap.id));
        if worker.unbind {
            execute::unbind(&self.listener, worker, &self.nothing);
        }
        let retire = worker.retire;
        if let StubState::Busy(in_flight) = was {
            self.finish(state, tgid, place, &in_flight, Stub::shown_result(&trap));
        }
        if retire {
            self.send_on(state, tgid, AfterIoctl::Exit, |worker| worker.retire);
        }
        // One waiting call per idle stub, or to plant another when all are busy; more when they
        // come to nothing.
        let mut turns =
            state.session.processes.get(&tgid).map_or(0, |process| process.waiting.len());
        while turns > 0 {
            turns -= 1;
            let Some(process) = state.session.processes.get_mut(&tgid) else { return };
            let next = if can_take(process) { process.waiting.pop_front() } else { None };
            let Some(next) = next else { return };
            // Its number may be another thread's by now.
            if self.listener.is_valid(next.id) {
                self.request(state, next);
            }
        }
    }

    /// The stages after execute.
    fn finish(
        &self,
        state: &mut State,
        tgid: Tgid,
        place: usize,
        in_flight: &InFlight,
        result: i64,
    ) {
        let session = &mut state.session;
        let Some(process) = session.processes.get_mut(&tgid) else { return };
        let Some(worker) = process.workers.get_mut(place) else { return };
        let memory = RemoteMemory(in_flight.trap.tid);
        let outcome = commit::commit(&self.listener, &worker.stub, &memory, in_flight, result);
        if let Some(ucontext) = session.ucontexts.get_mut(&in_flight.ucontext) {
            commit::track(&mut ucontext.objects, in_flight, &outcome, tgid);
            // Whatever became of it: there may be one though its answer did not fit.
            ucontext.asked |= in_flight.request.makes_ucontext();
        }
        let answer = reply::write_back(&memory, in_flight.form, &in_flight.request, &outcome);
        self.answer(in_flight.trap, answer);
        let device = session.ucontexts.get(&in_flight.ucontext).map(|u| u.device);
        let done = Done {
            tid: in_flight.trap.tid,
            device: self.device_name(device),
            request: Some(&in_flight.request),
            verdict: Verdict::Executed(outcome.result),
            made: &outcome.made,
            made_fd: outcome.fd,
            elapsed: in_flight.started.elapsed(),
        };
        state.counts.add(&done);
        if let Some(observer) = &mut state.observer {
            observer.done(&done);
        }
    }

    /// The driver of a ucontext's device, which the kernel compares with the request's.
    fn driver(&self, state: &State, ucontext: UcontextId) -> DriverId {
        let device = state.session.ucontexts.get(&ucontext).map(|u| u.device);
        let device = device.and_then(|device| self.devices.get(device));
        match device.map(|device| device.kind) {
            Some(Kind::Verbs { driver, .. }) => driver,
            _ => DriverId::UNKNOWN,
        }
    }

    /// The number of a ucontext's device, and whether the kernel was asked to make the ucontext.
    fn opened_as(&self, state: &State, ucontext: UcontextId) -> ((u32, u32), bool) {
        let ucontext = state.session.ucontexts.get(&ucontext);
        let device = ucontext.and_then(|ucontext| self.devices.get(ucontext.device));
        let rdev = device.map_or((0, 0), |device| device.rdev);
        (rdev, ucontext.is_none_or(|ucontext| ucontext.asked))
    }

    fn device_name(&self, device: Option<usize>) -> &str {
        device.and_then(|device| self.devices.get(device)).map_or("?", |d| d.name.as_str())
    }

    fn tell(
        &self,
        state: &mut State,
        call: &Call,
        ucontext: UcontextId,
        request: Option<&Request>,
        verdict: Verdict,
    ) {
        let device = state.session.ucontexts.get(&ucontext).map(|u| u.device);
        let done = Done {
            tid: call.trap.tid,
            device: self.device_name(device),
            request,
            verdict,
            made: &[],
            made_fd: None,
            elapsed: call.started.elapsed(),
        };
        state.counts.add(&done);
        if let Some(observer) = &mut state.observer {
            observer.done(&done);
        }
    }
}

/// The first buffer of a `writev`: the device takes each as a command of its own, and a short
/// count tells the caller to come again with the rest.
fn first_vector(tid: Tid, addr: u64, count: u64) -> (u64, u64) {
    let mut vector = [0; 16];
    let range = [Range { addr, len: vector.len() }];
    let read: io::Result<()> = mem::gather(&RemoteMemory(tid), &range, &mut vector);
    if read.is_err() {
        // Nothing can be read there, either, so that it ends in EFAULT.
        return (u64::MAX, 1);
    }
    if count == 0 {
        return (0, 0);
    }
    let [base, len] = [0, 8].map(|at| {
        let word = vector.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or_default();
        u64::from_ne_bytes(word)
    });
    (base, len)
}
