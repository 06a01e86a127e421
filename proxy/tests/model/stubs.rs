//! The model's stubs: the work of a thread that serves a guest: `request.rs`, `execute.rs`,
//! `planting.rs`.

use crate::guest::Answer;
use crate::world::Call;
use crate::world::Defect;
use crate::world::Done;
use crate::world::File;
use crate::world::Frame;
use crate::world::Job;
use crate::world::Name;
use crate::world::Pc;
use crate::world::Round;
use crate::world::State;
use crate::world::Trap;
use crate::world::World;

/// `Found`.
enum Found {
    Worker(u8),
    Plant,
    Later,
    Nobody,
}

impl World {
    pub(crate) fn carry_on(&mut self, handler: usize) -> Result<(), String> {
        let pc = self.handlers[handler].pc;
        let guest = match pc {
            Pc::Held(guest, _)
            | Pc::Means(guest, _)
            | Pc::Take(guest, ..)
            | Pc::Bind(guest, ..)
            | Pc::Run(guest, ..)
            | Pc::Plant(guest, _)
            | Pc::Planting(guest, ..) => guest,
            _ => return Ok(()),
        };
        let at = usize::from(guest);
        let next = match pc {
            Pc::Held(_, trap) => self.held(at, trap)?,
            Pc::Means(_, trap) => self.means(at, trap)?,
            Pc::Take(_, trap, place, found) => self.take_file(guest, trap, place, found)?,
            Pc::Bind(_, trap, place, files, right) => {
                self.bind_file(handler, (guest, place), trap, files, right)?
            }
            Pc::Run(_, trap, place, file) => {
                self.run(handler, (at, place.into()), trap, file)?;
                None
            }
            Pc::Plant(_, trap) => self.begin_planting(at, trap)?,
            Pc::Planting(_, trap, place) => {
                self.plant(at, trap, place)?;
                None
            }
            _ => None,
        };
        match next {
            Some(pc) => {
                self.handlers[handler].pc = pc;
                Ok(())
            }
            None => self.go_on(handler, at),
        }
    }

    /// `take_up`.
    pub(crate) fn take_up(
        &mut self,
        handler: usize,
        guest: usize,
        trap: Trap,
    ) -> Result<(), String> {
        if self.guests[guest].over {
            return self.answer(trap, Answer::Error);
        }
        self.handlers[handler].pc = Pc::Held(u8::try_from(guest).unwrap(), trap);
        Ok(())
    }

    /// `go_on`: the next of those that wait, if there may be a stub for it; else the next event.
    pub(crate) fn go_on(&mut self, handler: usize, guest: usize) -> Result<(), String> {
        self.handlers[handler].pc = Pc::Serving(u8::try_from(guest).unwrap());
        while self.handlers[handler].turns > 0 && self.can_take(guest) {
            self.handlers[handler].turns -= 1;
            let waiting = &mut self.guests[guest].waiting;
            if waiting.is_empty() {
                break;
            }
            let next = waiting.remove(0);
            if self.is_valid(next.id) {
                return self.take_up(handler, guest, next);
            }
        }
        self.handlers[handler].turns = 0;
        Ok(())
    }

    fn any(&self, guest: usize, is: impl Fn(&State) -> bool) -> bool {
        self.guests[guest].workers.iter().any(|worker| is(&worker.state))
    }

    fn has_room(&self, guest: usize) -> bool {
        self.guests[guest].workers.len() < self.setting.slots
            || self.any(guest, |state| *state == State::Ended)
    }

    pub(crate) fn can_take(&self, guest: usize) -> bool {
        self.any(guest, |state| matches!(state, State::Idle(_)))
            || !self.any(guest, |state| *state == State::Starting) && self.has_room(guest)
    }

    fn idle(&self, guest: usize, place: usize) -> Option<Name> {
        match self.guests[guest].workers[place].state {
            State::Idle(id) => Some(id),
            _ => None,
        }
    }

    /// The thread with a number, and whether it is the one that a trap is of.
    fn by_number(&self, trap: Trap) -> Option<(File, u8, bool)> {
        let right = self.in_trap(trap.id) == Some(usize::from(trap.tid));
        let thread = self.thread(trap.tid)?;
        let file = self.process_of(thread).map_or(File::B, |process| process.fd);
        Some((file, thread.space, right))
    }

    /// What has been found out about a caller, if it is to be believed.
    fn believed(&self, trap: Trap) -> Option<(File, u8, bool)> {
        let found = self.by_number(trap);
        found.filter(|(.., right)| *right || self.has(Defect::Unbelieved))
    }

    /// `held`: whether an idle stub holds the file already, and whether the memory is the same.
    fn held(&mut self, guest: usize, trap: Trap) -> Result<Option<Pc>, String> {
        let number = u8::try_from(guest).unwrap();
        let means = Ok(Some(Pc::Means(number, trap)));
        let workers = &self.guests[guest].workers;
        let bound =
            (0..workers.len()).find_map(|at| Some((at, workers[at].bound?, self.idle(guest, at)?)));
        let alike = |world: &Self, stub: Name| {
            let stub = world.threads.iter().flatten().find(|thread| thread.life == stub)?;
            let (_, space, _) = world.believed(trap)?;
            Some(space == stub.space || world.has(Defect::NoShares))
        };
        let Some((place, file, idle)) = bound else {
            let witness = workers.iter().find(|worker| worker.state != State::Ended);
            return match witness.and_then(|witness| alike(self, witness.life)) {
                Some(false) => self.answer(trap, Answer::Error).map(|()| None),
                _ => means,
            };
        };
        let life = workers[place].life;
        if !self.is_valid(idle) || self.believed(trap).is_none() {
            if self.is_valid(trap.id) {
                self.guests[guest].workers[place].state = State::Ended;
            }
            return means;
        }
        if alike(self, life) == Some(false) {
            return self.answer(trap, Answer::Error).map(|()| None);
        }
        match self.believed(trap) {
            Some((now, ..)) if now == file => {
                let place = u8::try_from(place).unwrap();
                Ok(Some(Pc::Run(number, trap, place, file)))
            }
            Some((File::Nothing, ..)) => self.answer(trap, Answer::Error).map(|()| None),
            _ => {
                for place in 0..self.guests[guest].workers.len() {
                    self.unbind(guest, place)?;
                }
                means
            }
        }
    }

    /// `means`, and `find_worker`.
    fn means(&mut self, guest: usize, trap: Trap) -> Result<Option<Pc>, String> {
        let file = match self.believed(trap) {
            None => return Ok(None),
            Some((File::Nothing, ..)) => {
                return self.answer(trap, Answer::Error).map(|()| None);
            }
            Some((file, ..)) => file,
        };
        let number = u8::try_from(guest).unwrap();
        match self.find_worker(guest, trap) {
            Found::Worker(place) => return Ok(Some(Pc::Take(number, trap, place, file))),
            Found::Plant => return Ok(Some(Pc::Plant(number, trap))),
            Found::Later => self.guests[guest].waiting.push(trap),
            Found::Nobody => self.answer(trap, Answer::Error)?,
        }
        Ok(None)
    }

    fn find_worker(&self, guest: usize, trap: Trap) -> Found {
        let places = || 0..self.guests[guest].workers.len();
        let is_idle = |place: &usize| self.idle(guest, *place).is_some();
        let found = |place: usize| Found::Worker(u8::try_from(place).unwrap());
        let bound = |place: &usize| self.guests[guest].workers[*place].bound.is_some();
        if let Some(place) = places().find(|place| !bound(place) && is_idle(place)) {
            return found(place);
        }
        if self.any(guest, |state| *state == State::Starting) {
            return Found::Later;
        }
        let caller = self.in_trap(trap.id).and_then(|tid| self.threads[tid]);
        let own = caller.is_some_and(|caller| caller.process == Some(self.guests[guest].process));
        if self.has_room(guest) && own {
            return Found::Plant;
        }
        if let Some(place) = places().find(is_idle) {
            return found(place);
        }
        if self.any(guest, |state| *state != State::Ended) { Found::Later } else { Found::Nobody }
    }

    /// `file_of`.
    fn take_file(
        &mut self,
        guest: u8,
        trap: Trap,
        place: u8,
        found: File,
    ) -> Result<Option<Pc>, String> {
        let Some((now, _, right)) = self.believed(trap) else { return Ok(None) };
        if now == File::Nothing || now != found && !self.has(Defect::NotCompared) {
            return self.answer(trap, Answer::Error).map(|()| None);
        }
        Ok(Some(Pc::Bind(guest, trap, place, (found, now), right)))
    }

    /// `execute::bind`.
    fn bind_file(
        &mut self,
        handler: usize,
        (guest, place): (u8, u8),
        trap: Trap,
        (found, taken): (File, File),
        right: bool,
    ) -> Result<Option<Pc>, String> {
        if !right {
            return Err("a file was taken from whoever has the caller's number".to_owned());
        }
        let (at, slot) = (usize::from(guest), usize::from(place));
        let Some(idle) = self.idle(at, slot) else {
            return self.answer(trap, Answer::Error).map(|()| None);
        };
        if self.bind(idle, taken)? {
            self.guests[at].workers[slot].bound = Some(found);
            return Ok(Some(Pc::Run(guest, trap, place, found)));
        }
        self.guests[at].workers[slot].state = State::Ended;
        self.handlers[handler].again.push(trap);
        Ok(None)
    }

    /// `run`: fetch, vet, and what comes first.
    fn run(
        &mut self,
        handler: usize,
        (guest, place): (usize, usize),
        trap: Trap,
        file: File,
    ) -> Result<(), String> {
        if !self.is_valid(trap.id) {
            return Ok(());
        }
        if trap.call == Call::Supervised {
            self.write((guest, place), Job { trap, file, round: Round::Before })
        } else {
            self.start(handler, (guest, place), trap, file)
        }
    }

    /// `start`.
    fn start(
        &mut self,
        handler: usize,
        (guest, place): (usize, usize),
        trap: Trap,
        file: File,
    ) -> Result<(), String> {
        let Some(idle) = self.idle(guest, place) else { return self.answer(trap, Answer::Error) };
        let writes = trap.call == Call::Request;
        let write = writes.then_some((trap.id, Round::Ioctl, trap.space));
        let frame = Frame { request: Some((trap.id, file)), write, exit: false };
        self.guests[guest].workers[place].frame = frame;
        let gone = !self.resume(idle, true)?;
        let job = Job { trap, file, round: Round::Ioctl };
        let state = if gone { State::Ended } else { State::Busy(job) };
        self.guests[guest].workers[place].state = state;
        if gone {
            self.handlers[handler].again.push(trap);
        }
        Ok(())
    }

    /// `write`.
    fn write(&mut self, (guest, place): (usize, usize), job: Job) -> Result<(), String> {
        let Some(idle) = self.idle(guest, place) else {
            return self.answer(job.trap, Answer::Error);
        };
        let frame = &mut self.guests[guest].workers[place].frame;
        frame.write = Some((job.trap.id, job.round, job.trap.space));
        frame.exit = false;
        if self.resume(idle, false)? {
            self.guests[guest].workers[place].state = State::Busy(job);
            Ok(())
        } else {
            self.answer(job.trap, Answer::Error)
        }
    }

    /// `stub_trapped`.
    pub(crate) fn stub_trapped(
        &mut self,
        handler: usize,
        guest: usize,
        place: u8,
        trap: Trap,
    ) -> Result<(), String> {
        let place = usize::from(place);
        let unasked = [Defect::StaleEvent, Defect::RouteWithoutValid, Defect::WriteByNumber];
        let stale = !self.is_valid(trap.id) && !unasked.into_iter().any(|defect| self.has(defect));
        let Call::Stub(shown) = trap.call else { return Ok(()) };
        let Some(worker) = self.guests[guest].workers.get_mut(place) else { return Ok(()) };
        if worker.tid != trap.tid || stale {
            return Ok(());
        }
        let was = std::mem::replace(&mut worker.state, State::Idle(trap.id));
        self.guests[guest].stillborn = 0;
        if let State::Busy(job) = was {
            self.done(handler, (guest, place), job, shown)?;
        }
        if self.guests[guest].workers[place].unbind {
            self.unbind(guest, place)?;
        }
        if self.guests[guest].workers[place].retire {
            self.retire(guest)?;
        }
        self.handlers[handler].turns = u8::try_from(self.guests[guest].waiting.len()).unwrap();
        self.go_on(handler, guest)
    }

    /// `done`: the result is the one of this job, made by a stub.
    fn done(
        &mut self,
        handler: usize,
        at: (usize, usize),
        job: Job,
        shown: Option<Done>,
    ) -> Result<(), String> {
        if shown != Some((job.trap.id, job.round)) {
            return Err(format!("{shown:?} was taken for the result of {job:?}"));
        }
        if self.has(Defect::WriteByNumber)
            && let Some((_, space, _)) = self.by_number(job.trap)
            && space != job.trap.space
        {
            return Err("outputs were written to whoever has the caller's number".to_owned());
        }
        let Job { trap, file, round } = job;
        match (round, trap.call) {
            (Round::Before, _) => self.start(handler, at, trap, file),
            (Round::Ioctl, Call::Supervised) => {
                self.write(at, Job { trap, file, round: Round::After })
            }
            _ => self.answer(trap, Answer::Done),
        }
    }

    /// `execute::unbind`.
    pub(crate) fn unbind(&mut self, guest: usize, place: usize) -> Result<(), String> {
        let worker = &mut self.guests[guest].workers[place];
        match worker.state {
            State::Ended => {}
            _ if worker.bound.is_none() => {}
            State::Starting | State::Busy(_) => worker.unbind = true,
            State::Idle(idle) => {
                worker.bound = None;
                worker.unbind = false;
                self.bind(idle, File::Nothing)?;
            }
        }
        Ok(())
    }

    /// `retire`, by way of `send_on`.
    pub(crate) fn retire(&mut self, guest: usize) -> Result<(), String> {
        for place in 0..self.guests[guest].workers.len() {
            let worker = &mut self.guests[guest].workers[place];
            worker.retire = true;
            let State::Idle(idle) = worker.state else { continue };
            worker.frame.exit = true;
            if self.resume(idle, false)? {
                let worker = &mut self.guests[guest].workers[place];
                worker.state = State::Ended;
                worker.bound = None;
            }
        }
        Ok(())
    }
}
