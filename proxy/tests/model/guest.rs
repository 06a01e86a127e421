//! The model's guest: the steps of threads and of the kernel.

use crate::explore::Actor;
use crate::explore::Model;
use crate::world::Call;
use crate::world::Defect;
use crate::world::File;
use crate::world::KEEPER;
use crate::world::Name;
use crate::world::Pc;
use crate::world::Phase;
use crate::world::Role;
use crate::world::Round;
use crate::world::State;
use crate::world::TIDS;
use crate::world::Thread;
use crate::world::Tid;
use crate::world::Trap;
use crate::world::World;

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A thread goes on.
    Thread(Tid),
    /// A thread of the supervisor receives what this thread traps with.
    Receive(usize, Tid),
    /// A thread of the supervisor goes on.
    Supervise(usize),
    /// A guest is looked after.
    LookAfter(usize),
    /// The process is ended that keeps this thread of the supervisor waiting.
    Watch(usize),
    /// SIGKILL.
    Kill(usize),
    /// execve(2) by a thread that is not shown.
    Exec(usize),
    /// A filter ends a stub as it makes a call.
    EndStub(Tid),
    /// A new thread takes this number, and jumps into the stub's code.
    Impostor(usize, Tid),
    /// A thread of the host's takes this number.
    Foreigner(Tid),
    /// dup2(2) of the other device's file.
    Replace(usize),
    /// From now on a filter ends stubs as they trap.
    Filter(usize),
    /// From now on the memory answers never.
    Stall(usize),
    /// A signal, or a stop of the process, has the call begun again.
    Signal(Tid),
}

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Error,
    Done,
    Continue,
}

fn tids() -> impl Iterator<Item = Tid> {
    (0..TIDS).map(|at| Tid::try_from(at).unwrap())
}

fn number(at: usize) -> u8 {
    u8::try_from(at).unwrap()
}

impl Model for World {
    type Step = Step;

    fn steps(&self) -> Vec<(Actor, Step)> {
        let mut steps = Vec::new();
        let free = self.handlers[..KEEPER].iter().position(|handler| handler.pc == Pc::Free);
        for tid in tids() {
            let Some(thread) = self.thread(tid) else { continue };
            if self.can_go(thread) {
                steps.push((Actor::Fair(tid), Step::Thread(tid)));
            }
            if let (Phase::Trapped { received: false, .. }, Some(free)) = (thread.phase, free) {
                steps.push((Actor::Fair(4 + tid), Step::Receive(free, tid)));
            }
        }
        for (at, handler) in self.handlers.iter().enumerate() {
            if handler.pc == Pc::Free {
            } else if self.stalled(at).is_none() {
                steps.push((Actor::Fair(8 + handler.pc.concerns()), Step::Supervise(at)));
            } else if !self.has(Defect::NoWatch) {
                steps.push((Actor::Fair(14), Step::Watch(at)));
            }
        }
        if self.handlers[KEEPER].pc == Pc::Free {
            let wanting = (0..self.guests.len()).filter(|guest| self.wants_a_look(*guest));
            steps.extend(wanting.map(|guest| (Actor::Fair(15), Step::LookAfter(guest))));
        }
        self.whims(&mut steps);
        steps
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        self.happen(step)?;
        self.settle();
        Ok(())
    }

    fn waits(&self) -> bool {
        let unfinished = |thread: &Thread| match thread.role {
            Role::Caller { script, at } => usize::from(at) < script.len(),
            _ => false,
        };
        self.threads.iter().flatten().any(|t| t.phase != Phase::Zombie && unfinished(t))
    }

    fn show(&self) -> String {
        format!("{self:#?}").replace('\n', "\n  ")
    }
}

impl World {
    fn happen(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Thread(tid) => return self.go(tid),
            Step::Receive(handler, tid) => self.receive(handler, tid),
            Step::Supervise(handler) => return self.supervise(handler),
            Step::LookAfter(guest) => self.look_after(guest),
            Step::Watch(handler) => {
                if let Some(process) = self.stalled(handler) {
                    self.end_process(process);
                }
            }
            Step::Kill(process) => {
                self.budget.kills -= 1;
                self.end_process(process);
            }
            Step::Exec(process) => self.exec(process),
            Step::EndStub(tid) => {
                self.budget.stub_kills -= 1;
                self.end_thread(tid);
            }
            Step::Impostor(process, tid) => {
                self.budget.impostors -= 1;
                let space = self.processes[process].space;
                self.begin(tid, Some(process), space, Role::Impostor);
            }
            Step::Foreigner(tid) => {
                self.budget.foreigners -= 1;
                self.begin(tid, None, u8::MAX, Role::Foreign);
            }
            Step::Replace(process) => {
                self.budget.replaced -= 1;
                self.processes[process].fd = File::B;
            }
            Step::Filter(process) => {
                self.budget.filters -= 1;
                self.processes[process].filter = true;
            }
            Step::Stall(process) => {
                self.budget.slow -= 1;
                self.processes[process].slow = true;
            }
            Step::Signal(tid) => {
                self.budget.signals -= 1;
                self.at(tid).phase = Phase::Going;
            }
        }
        Ok(())
    }

    /// What only guests, or chance, make happen.
    fn whims(&self, steps: &mut Vec<(Actor, Step)>) {
        let budget = &self.budget;
        let mut add = |left: u8, step: Step| {
            if left > 0 {
                steps.push((Actor::Free, step));
            }
        };
        // The first process is the hostile one; what others suffer is of interest.
        let hostile = self.processes[0];
        if hostile.alive {
            add(budget.kills, Step::Kill(0));
            add(budget.execs, Step::Exec(0));
            add(budget.replaced, Step::Replace(0));
            add(if hostile.filter { 0 } else { budget.filters }, Step::Filter(0));
            add(if hostile.slow { 0 } else { budget.slow }, Step::Stall(0));
        }
        for tid in tids() {
            let Some(thread) = self.thread(tid) else {
                add(budget.foreigners, Step::Foreigner(tid));
                if hostile.alive && self.may_mean_a_stub(tid) {
                    add(budget.impostors, Step::Impostor(0, tid));
                }
                continue;
            };
            let makes_calls =
                matches!(thread.phase, Phase::Going | Phase::Running { ioctl: false });
            if matches!(thread.role, Role::Stub { .. }) && makes_calls {
                add(budget.stub_kills, Step::EndStub(tid));
            }
            if let Phase::Trapped { received, .. } = thread.phase
                && (!received || !self.setting.killable)
            {
                add(budget.signals, Step::Signal(tid));
            }
        }
    }

    /// Whether an impostor of this number is any news: a stub had it, or one of another process may
    /// get it.
    fn may_mean_a_stub(&self, tid: Tid) -> bool {
        let mut workers = self.guests.iter().flat_map(|guest| &guest.workers);
        let others = self.processes.len() > 1;
        others || self.routes[usize::from(tid)].is_some() || workers.any(|w| w.tid == tid)
    }

    fn can_go(&self, thread: &Thread) -> bool {
        match (thread.phase, thread.role) {
            (Phase::Going, Role::Caller { script, at }) => usize::from(at) < script.len(),
            (Phase::Going, Role::Stub { .. } | Role::Impostor) => true,
            (Phase::Running { .. }, _) => true,
            _ => false,
        }
    }

    pub(crate) fn at(&mut self, tid: Tid) -> &mut Thread {
        self.threads[usize::from(tid)].as_mut().unwrap()
    }

    /// A thread is born.
    pub(crate) fn begin(
        &mut self,
        tid: Tid,
        process: Option<usize>,
        space: u8,
        role: Role,
    ) -> Name {
        let life = self.fresh();
        let process = process.map(number);
        let (phase, unprivileged) = (Phase::Going, false);
        let thread = Thread { life, process, space, role, phase, unprivileged };
        self.threads[usize::from(tid)] = Some(thread);
        life
    }

    /// A thread ends; its number is free unless its tracer has to take note first.
    fn end_thread(&mut self, tid: Tid) {
        let thread = &mut self.threads[usize::from(tid)];
        match thread {
            Some(held) if held.phase == Phase::Held => held.phase = Phase::Zombie,
            Some(held) if held.phase == Phase::Zombie => {}
            _ => *thread = None,
        }
    }

    fn end_process(&mut self, process: usize) {
        self.processes[process].alive = false;
        self.processes[process].slow = false;
        self.end_threads(process);
    }

    fn end_threads(&mut self, process: usize) {
        for tid in tids() {
            if self.thread(tid).is_some_and(|thread| thread.process == Some(number(process))) {
                self.end_thread(tid);
            }
        }
    }

    /// All threads end, and one begins anew in another memory, which opens the other device.
    fn exec(&mut self, process: usize) {
        const NEW: &[Call] = &[Call::Request];
        self.budget.execs -= 1;
        self.end_threads(process);
        let space = number(self.processes.len());
        let state = &mut self.processes[process];
        (state.space, state.fd, state.slow, state.forged) = (space, File::B, false, None);
        let free = tids().find(|tid| self.thread(*tid).is_none());
        if let Some(tid) = free {
            self.begin(tid, Some(process), space, Role::Caller { script: NEW, at: 0 });
        }
    }

    /// `Supervisor::receive`.
    fn receive(&mut self, handler: usize, tid: Tid) {
        let thread = self.at(tid);
        let Phase::Trapped { id, received } = &mut thread.phase else { return };
        *received = true;
        let (id, space) = (*id, thread.space);
        let (role, process) = (thread.role, thread.process);
        let call = match role {
            Role::Caller { script, at } => script[usize::from(at)],
            Role::Stub { done, .. } => Call::Stub(done),
            Role::Impostor | Role::Foreign => Call::Stub(None),
        };
        let of = |t: &&Thread| t.process == process && matches!(t.role, Role::Caller { .. });
        let unprivileged = self.threads.iter().flatten().filter(of).all(|t| t.unprivileged);
        self.handlers[handler].pc = Pc::Lookup(Trap { id, tid, call, space, unprivileged });
    }

    /// A thread goes on: into a trap, or with what it was let go for.
    fn go(&mut self, tid: Tid) -> Result<(), String> {
        let thread = *self.at(tid);
        match (thread.phase, thread.role) {
            (Phase::Running { ioctl }, Role::Stub { guest, place, .. }) => {
                let at = (usize::from(guest), usize::from(place));
                return if ioctl { self.ioctl(tid, at) } else { self.after(tid, at) };
            }
            (_, Role::Stub { .. }) if self.process_of(&thread).is_some_and(|p| p.filter) => {
                self.end_thread(tid);
            }
            _ => {
                let id = self.fresh();
                self.at(tid).phase = Phase::Trapped { id, received: false };
            }
        }
        Ok(())
    }

    pub(crate) fn process_of(&self, thread: &Thread) -> Option<&crate::world::Process> {
        self.processes.get(usize::from(thread.process?))
    }

    /// The call that everything is about: the kernel takes the request out of the frame, and the file
    /// out of the stub's table.
    fn ioctl(&mut self, tid: Tid, (guest, place): (usize, usize)) -> Result<(), String> {
        let thread = *self.at(tid);
        let Role::Stub { file, .. } = thread.role else { return Ok(()) };
        let worker = &mut self.guests[guest].workers[place];
        let laid_out = worker.frame.request.take();
        let State::Busy(job) = worker.state else {
            return Err(format!("a request was made for nobody: {laid_out:?} on {file:?}"));
        };
        let vetted = Some((job.trap.id, job.file));
        if job.round != Round::Ioctl || laid_out != vetted || file != job.file {
            return Err(format!("vetted: {vetted:?}; made: {laid_out:?} on {file:?}"));
        }
        if job.trap.space != thread.space {
            return Err("a request was made in the memory of another".to_owned());
        }
        if job.trap.unprivileged && !thread.unprivileged {
            return Err("a request was made with credentials that were given up".to_owned());
        }
        let done = Some((job.trap.id, Round::Ioctl));
        let stub = self.at(tid);
        stub.role = Role::Stub { guest: number(guest), place: number(place), file, done };
        stub.phase = Phase::Running { ioctl: false };
        Ok(())
    }

    /// What the frame says that comes then.
    fn after(&mut self, tid: Tid, (guest, place): (usize, usize)) -> Result<(), String> {
        let frame = &mut self.guests[guest].workers[place].frame;
        let write = frame.write.take();
        if std::mem::take(&mut frame.exit) {
            self.end_thread(tid);
            return Ok(());
        }
        let stub = self.at(tid);
        stub.phase = Phase::Going;
        let Some((id, round, space)) = write else { return Ok(()) };
        if space != stub.space {
            return Err("bytes for one memory were written to another".to_owned());
        }
        if let Role::Stub { done, .. } = &mut stub.role {
            *done = Some((id, round));
        }
        Ok(())
    }

    /// `Listener::reply` to a caller.
    pub(crate) fn answer(&mut self, trap: Trap, answer: Answer) -> Result<(), String> {
        let Some(tid) = self.in_trap(trap.id) else { return Ok(()) };
        let tid = Tid::try_from(tid).unwrap();
        let process = self.at(tid).process.map(usize::from);
        let thread = self.at(tid);
        let Role::Caller { script, at } = &mut thread.role else {
            // The stub's code exits when it is answered without an order.
            if answer == Answer::Continue {
                return Err(format!("the call of {thread:?} was let through"));
            }
            self.end_thread(tid);
            return Ok(());
        };
        let call = script[usize::from(*at)];
        *at += 1;
        thread.phase = Phase::Going;
        match (call, answer, process) {
            (Call::Request | Call::Supervised, Answer::Continue, _) => {
                return Err("a request was let through that nobody has vetted".to_owned());
            }
            (Call::Close, Answer::Continue, Some(process)) => {
                self.processes[process].fd = File::Nothing;
            }
            (Call::Retire, Answer::Continue, _) => thread.unprivileged = true,
            _ => {}
        }
        Ok(())
    }

    /// `Listener::reply` to a stub; false when there is none that waits so.
    pub(crate) fn resume(&mut self, idle: Name, ioctl: bool) -> Result<bool, String> {
        let Some(tid) = self.in_trap(idle) else { return Ok(false) };
        let thread = self.threads[tid].as_mut().unwrap();
        let Role::Stub { done, .. } = &mut thread.role else {
            return Err(format!("told to make a request: {thread:?}"));
        };
        *done = None;
        thread.phase = Phase::Running { ioctl };
        Ok(true)
    }

    /// `Listener::add_fd` to a stub; false when there is none that waits so.
    pub(crate) fn bind(&mut self, idle: Name, given: File) -> Result<bool, String> {
        let Some(tid) = self.in_trap(idle) else { return Ok(false) };
        let thread = self.threads[tid].as_mut().unwrap();
        let Role::Stub { file, .. } = &mut thread.role else {
            return Err(format!("given a file: {thread:?}"));
        };
        *file = given;
        Ok(true)
    }
}
