//! The model's serving: the way of a trap from the supervisor's threads to a guest's inbox, and to
//! the thread that serves the guest: `serve.rs`, and `look_after.rs`.

use crate::guest::Answer;
use crate::world::Call;
use crate::world::Defect;
use crate::world::Event;
use crate::world::File;
use crate::world::Guest;
use crate::world::KEEPER;
use crate::world::MOST_STILLBORN;
use crate::world::Pc;
use crate::world::Process;
use crate::world::Route;
use crate::world::State;
use crate::world::Trap;
use crate::world::World;

impl World {
    /// The process for whose memory a thread of the supervisor waits.
    pub(crate) fn stalled(&self, handler: usize) -> Option<usize> {
        let (Pc::Concern(trap) | Pc::Run(_, trap, ..)) = self.handlers[handler].pc else {
            return None;
        };
        if !matches!(trap.call, Call::Request | Call::Supervised) {
            return None;
        }
        let process = usize::from(self.thread(trap.tid)?.process?);
        self.processes[process].slow.then_some(process)
    }

    /// Whether looking after a guest would change anything.
    pub(crate) fn wants_a_look(&self, guest: usize) -> bool {
        let state = &self.guests[guest];
        if !state.registered {
            return false;
        }
        if !self.processes[usize::from(state.process)].alive {
            return true;
        }
        let dead = |life, state| state != State::Ended && !self.lives(life);
        let swept = state.workers.iter().any(|worker| dead(worker.life, worker.state))
            && !self.has(Defect::NoSweep);
        let waiting = !state.waiting.is_empty() && self.can_take(guest);
        state.inbox.is_empty() && !state.over && (swept || waiting)
    }

    /// One round of `Supervisor::look_after`.
    pub(crate) fn look_after(&mut self, guest: usize) {
        if self.processes[usize::from(self.guests[guest].process)].alive {
            self.post(KEEPER, guest, Event::Look);
        } else {
            self.forget(KEEPER, guest);
        }
    }

    /// `Supervisor::post`, up to the lock.
    fn post(&mut self, handler: usize, guest: usize, event: Event) {
        self.guests[guest].inbox.push(event);
        self.try_lock(handler, guest);
    }

    /// Whoever finds the state taken leaves it to whom it is taken by. Between this and the push
    /// somebody else may have done it all; then there is nothing to do.
    fn try_lock(&mut self, handler: usize, guest: usize) {
        if std::mem::replace(&mut self.guests[guest].locked, true) {
            self.free(handler);
        } else {
            self.handlers[handler].pc = Pc::Serving(u8::try_from(guest).unwrap());
        }
    }

    /// `Supervisor::forget`.
    fn forget(&mut self, handler: usize, guest: usize) {
        self.guests[guest].registered = false;
        for route in &mut self.routes {
            if matches!(route, Some(Route::Stub { guest: of, .. }) if usize::from(*of) == guest) {
                *route = None;
            }
        }
        self.post(handler, guest, Event::Over);
    }

    /// A trap is done with.
    fn free(&mut self, handler: usize) {
        let handler = &mut self.handlers[handler];
        handler.pc =
            if handler.again.is_empty() { Pc::Free } else { Pc::Lookup(handler.again.remove(0)) };
    }

    fn answered(&mut self, handler: usize, trap: Trap, answer: Answer) -> Result<(), String> {
        self.free(handler);
        self.answer(trap, answer)
    }

    /// A thread of the supervisor goes on.
    pub(crate) fn supervise(&mut self, handler: usize) -> Result<(), String> {
        match self.handlers[handler].pc {
            Pc::Free => Ok(()),
            Pc::Lookup(trap) => {
                self.look_up(handler, trap);
                Ok(())
            }
            Pc::Routed(trap, route) => {
                if self.is_valid(trap.id) {
                    self.handlers[handler].pc = Pc::Valid(trap, route);
                } else {
                    self.free(handler);
                }
                Ok(())
            }
            Pc::Valid(trap, route) => {
                self.follow(handler, trap, route);
                Ok(())
            }
            Pc::Alive(trap, route) => {
                if let Route::Stub { guest, place, .. } = route {
                    self.post(handler, guest.into(), Event::Stub(place, trap));
                }
                Ok(())
            }
            Pc::Concern(trap) => self.concern(handler, trap),
            Pc::PlantFor(trap) => self.plant_for(handler, trap),
            Pc::Serving(guest) => self.next_event(handler, guest.into()),
            Pc::Leaving(guest) => {
                let state = &mut self.guests[usize::from(guest)];
                state.locked = false;
                if state.inbox.is_empty() || self.has(Defect::NoSecondLook) {
                    self.free(handler);
                } else {
                    self.try_lock(handler, guest.into());
                }
                Ok(())
            }
            _ => self.carry_on(handler),
        }
    }

    /// `handle`: the route is looked up.
    fn look_up(&mut self, handler: usize, trap: Trap) {
        self.handlers[handler].pc = match self.routes[usize::from(trap.tid)] {
            None => Pc::Concern(trap),
            Some(route) if self.has(Defect::ResultByNumber) => Pc::Alive(trap, route),
            Some(route) if self.has(Defect::RouteWithoutValid) => Pc::Valid(trap, route),
            Some(route) => Pc::Routed(trap, route),
        };
    }

    /// `routed`: is it the stub?
    fn follow(&mut self, handler: usize, trap: Trap, route: Route) {
        match route {
            // The planter takes no notice of what it has not asked for.
            Route::Made => self.free(handler),
            Route::Stub { life, .. } if self.lives(life) || self.has(Defect::RouteWithoutAlive) => {
                self.handlers[handler].pc = Pc::Alive(trap, route);
            }
            Route::Stub { guest, .. } => {
                let known = &mut self.routes[usize::from(trap.tid)];
                if *known == Some(route) {
                    *known = None;
                }
                self.handlers[handler].again.push(trap);
                self.post(handler, guest.into(), Event::Look);
            }
        }
    }

    /// The guest that a process is, if it is known: `Registry::by_process`.
    fn by_process(&self, process: usize) -> Option<usize> {
        let is = |guest: &Guest| guest.registered && usize::from(guest.process) == process;
        self.guests.iter().position(is).filter(|_| self.processes[process].alive)
    }

    /// What a trap is about, and whom it concerns: `request`, `close`, `credentials`.
    fn concern(&mut self, handler: usize, trap: Trap) -> Result<(), String> {
        // What is read is not believed: `Caller::believed`.
        let Some(thread) = self.in_trap(trap.id).and_then(|tid| self.threads[tid]) else {
            self.free(handler);
            return Ok(());
        };
        let process = usize::from(thread.process.unwrap_or_default());
        let known = self.by_process(process);
        match (trap.call, known) {
            // What is no stub makes a request on a descriptor that is none of ours.
            (Call::Stub(_), _) => self.answered(handler, trap, Answer::Error),
            (Call::Request | Call::Supervised, _) => self.request(handler, trap, process),
            (Call::Close, Some(guest)) => {
                self.post(handler, guest, Event::Close(trap));
                Ok(())
            }
            (Call::Retire, Some(guest)) if self.guests[guest].planted => {
                self.post(handler, guest, Event::Retire(trap));
                Ok(())
            }
            (Call::Close | Call::Retire, _) => self.answered(handler, trap, Answer::Continue),
        }
    }

    fn owner(&self, process: usize) -> Option<usize> {
        let Process { space, forged, .. } = self.processes[process];
        forged.or(self.owners[usize::from(space)]).map(usize::from)
    }

    /// `Supervisor::request`: who owns the memory.
    fn request(&mut self, handler: usize, trap: Trap, process: usize) -> Result<(), String> {
        match self.owner(process) {
            Some(guest) if self.guests.get(guest).is_some_and(|guest| guest.registered) => {
                self.post(handler, guest, Event::Task(trap));
            }
            // Of a process that has ended.
            Some(_) => return self.answered(handler, trap, Answer::Error),
            None if self.processes[process].fd == File::Nothing => {
                return self.answered(handler, trap, Answer::Error);
            }
            None => self.handlers[handler].pc = Pc::PlantFor(trap),
        }
        Ok(())
    }

    /// `Supervisor::plant_for`: by way of which guest.
    fn plant_for(&mut self, handler: usize, trap: Trap) -> Result<(), String> {
        let Some(thread) = self.in_trap(trap.id).and_then(|tid| self.threads[tid]) else {
            self.free(handler);
            return Ok(());
        };
        let process = usize::from(thread.process.unwrap_or_default());
        match self.by_process(process) {
            Some(guest) if self.guests[guest].planted => {
                let lives = self.owner(process) == Some(guest);
                if lives && self.has(Defect::ForgetsEarly) {
                    return Err("a guest was forgotten whose program goes on".to_owned());
                }
                if lives {
                    self.handlers[handler].pc = Pc::Concern(trap);
                } else {
                    self.handlers[handler].again.push(trap);
                    self.forget(handler, guest);
                }
            }
            Some(guest) => self.post(handler, guest, Event::Plant(trap)),
            None => {
                self.guests.push(Guest::new(u8::try_from(process).unwrap()));
                self.post(handler, self.guests.len() - 1, Event::Plant(trap));
            }
        }
        Ok(())
    }

    /// `Supervisor::post`, with the state in hand; and `act`.
    fn next_event(&mut self, handler: usize, guest: usize) -> Result<(), String> {
        let number = u8::try_from(guest).unwrap();
        let state = &mut self.guests[guest];
        if state.inbox.is_empty() {
            self.handlers[handler].pc = Pc::Leaving(number);
            return Ok(());
        }
        match state.inbox.remove(0) {
            Event::Task(trap) => self.take_up(handler, guest, trap),
            Event::Stub(place, trap) => self.stub_trapped(handler, guest, place, trap),
            Event::Plant(trap) => {
                if state.over || state.workers.iter().any(|w| w.state != State::Ended) {
                    self.handlers[handler].again.push(trap);
                } else {
                    self.handlers[handler].pc = Pc::Plant(number, trap);
                }
                Ok(())
            }
            Event::Close(trap) => {
                for place in 0..state.workers.len() {
                    self.unbind(guest, place)?;
                }
                self.answer(trap, Answer::Continue)
            }
            Event::Retire(trap) => {
                if !self.has(Defect::NoRetire) {
                    self.retire(guest)?;
                }
                self.answer(trap, Answer::Continue)
            }
            Event::Look => self.look_at(handler, guest),
            Event::Over => self.over(guest),
        }
    }

    /// `look_at`: stubs that have ended.
    fn look_at(&mut self, handler: usize, guest: usize) -> Result<(), String> {
        let state = &self.guests[guest];
        if state.workers.is_empty() || state.over {
            return Ok(());
        }
        for place in 0..self.guests[guest].workers.len() {
            let worker = self.guests[guest].workers[place];
            let sweeps = !self.has(Defect::NoSweep);
            if worker.state == State::Ended || self.lives(worker.life) || !sweeps {
                continue;
            }
            self.end_route(worker.tid, worker.life);
            let state = &mut self.guests[guest];
            let born = state.stillborn + u8::from(worker.state == State::Starting);
            state.stillborn = born.min(MOST_STILLBORN);
            state.workers[place].state = State::Ended;
            state.workers[place].bound = None;
            if let State::Busy(job) = worker.state {
                self.answer(job.trap, Answer::Error)?;
            }
        }
        self.handlers[handler].turns = u8::try_from(self.guests[guest].waiting.len()).unwrap();
        self.go_on(handler, guest)
    }

    /// `Registry::retire`.
    pub(crate) fn end_route(&mut self, tid: u8, life: u8) {
        let route = &mut self.routes[usize::from(tid)];
        if matches!(route, Some(Route::Stub { life: of, .. }) if *of == life) {
            *route = None;
        }
    }

    fn over(&mut self, guest: usize) -> Result<(), String> {
        let state = &mut self.guests[guest];
        state.over = true;
        let mut left = std::mem::take(&mut state.waiting);
        for worker in &mut state.workers {
            if let State::Busy(job) = std::mem::replace(&mut worker.state, State::Ended) {
                left.push(job.trap);
            }
        }
        left.into_iter().try_for_each(|trap| self.answer(trap, Answer::Error))
    }
}

impl Guest {
    fn new(process: u8) -> Self {
        Self {
            process,
            registered: true,
            planted: false,
            over: false,
            locked: false,
            stillborn: 0,
            workers: Vec::new(),
            waiting: Vec::new(),
            inbox: Vec::new(),
        }
    }
}
