//! The model's planting: `planting.rs`, and `plant.rs`.

use crate::guest::Answer;
use crate::world::Defect;
use crate::world::File;
use crate::world::Frame;
use crate::world::MOST_STILLBORN;
use crate::world::Pc;
use crate::world::Phase;
use crate::world::Role;
use crate::world::Route;
use crate::world::State;
use crate::world::Tid;
use crate::world::Trap;
use crate::world::Worker;
use crate::world::World;

impl World {
    /// `plant`, up to where the caller is stopped: `Planter::attached`.
    pub(crate) fn begin_planting(
        &mut self,
        guest: usize,
        trap: Trap,
    ) -> Result<Option<Pc>, String> {
        if self.guests[guest].stillborn >= MOST_STILLBORN && !self.has(Defect::NoStillbornLimit) {
            return self.answer(trap, Answer::Error).map(|()| None);
        }
        let workers = &self.guests[guest].workers;
        let place = workers.iter().position(|w| w.state == State::Ended && !self.lives(w.life));
        if place.is_none() && workers.len() >= self.setting.slots {
            return self.answer(trap, Answer::Error).map(|()| None);
        }
        if let Some(place) = place {
            let Worker { tid, life, .. } = workers[place];
            self.end_route(tid, life);
        }
        let Some(_) = self.in_trap(trap.id) else { return Ok(None) };
        self.at(trap.tid).phase = Phase::Held;
        self.routes[usize::from(trap.tid)] = Some(Route::Made);
        let place = place.map(|place| u8::try_from(place).unwrap());
        Ok(Some(Pc::Planting(u8::try_from(guest).unwrap(), trap, place)))
    }

    /// The rest of `plant`: the caller makes a stub, and its call again.
    pub(crate) fn plant(
        &mut self,
        guest: usize,
        trap: Trap,
        place: Option<u8>,
    ) -> Result<(), String> {
        self.routes[usize::from(trap.tid)] = None;
        let caller = *self.at(trap.tid);
        if caller.phase == Phase::Zombie {
            self.threads[usize::from(trap.tid)] = None;
            return Ok(());
        }
        let caller = self.at(trap.tid);
        caller.phase = Phase::Going;
        let (process, space) = (caller.process, caller.space);
        let unprivileged = caller.unprivileged;
        let Some(tid) = self.threads.iter().rposition(Option::is_none) else {
            // The call has been answered with clone's error.
            if let Role::Caller { at, .. } = &mut self.at(trap.tid).role {
                *at += 1;
            }
            return Ok(());
        };
        let tid = Tid::try_from(tid).unwrap();
        let number = u8::try_from(guest).unwrap();
        let at = place.unwrap_or_else(|| u8::try_from(self.guests[guest].workers.len()).unwrap());
        let role = Role::Stub { guest: number, place: at, file: File::Nothing, done: None };
        let life = self.begin(tid, process.map(usize::from), space, role);
        self.at(tid).unprivileged = unprivileged;
        self.routes[usize::from(tid)] = Some(Route::Stub { guest: number, place: at, life });
        let state = &mut self.guests[guest];
        state.planted = true;
        self.owners[usize::from(space)] = Some(number);
        let new = Worker {
            tid,
            life,
            state: State::Starting,
            bound: None,
            unbind: false,
            retire: false,
            frame: Frame::default(),
        };
        match place {
            Some(place) => state.workers[usize::from(place)] = new,
            None => state.workers.push(new),
        }
        Ok(())
    }
}
