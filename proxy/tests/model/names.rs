//! The model's names: who keeps which name.

use crate::world::Call;
use crate::world::Event;
use crate::world::Frame;
use crate::world::KEEPER;
use crate::world::Name;
use crate::world::Pc;
use crate::world::Phase;
use crate::world::Role;
use crate::world::Route;
use crate::world::State;
use crate::world::Trap;
use crate::world::Worker;
use crate::world::World;

impl World {
    /// A name that nobody keeps.
    pub(crate) fn fresh(&mut self) -> Name {
        self.names += 1;
        self.names - 1
    }

    /// Gives names anew, in the order in which they stand; and places to threads that receive, none
    /// of which is like no other. So worlds are equal that differ in nothing else.
    pub(crate) fn settle(&mut self) {
        self.handlers[..KEEPER].sort_unstable();
        let mut new = [None; 64];
        let mut count = 0;
        self.each_name(&mut |name| {
            let known = &mut new[usize::from(*name)];
            *name = *known.get_or_insert_with(|| {
                count += 1;
                count - 1
            });
        });
        self.names = count;
    }

    fn each_name(&mut self, f: &mut impl FnMut(&mut Name)) {
        for thread in self.threads.iter_mut().flatten() {
            f(&mut thread.life);
            if let Phase::Trapped { id, .. } = &mut thread.phase {
                f(id);
            }
            if let Role::Stub { done: Some((id, _)), .. } = &mut thread.role {
                f(id);
            }
        }
        for route in self.routes.iter_mut().flatten() {
            route.each_name(f);
        }
        for handler in &mut self.handlers {
            handler.pc.each_name(f);
            handler.again.iter_mut().for_each(|trap| trap.each_name(f));
        }
        for guest in &mut self.guests {
            guest.workers.iter_mut().for_each(|worker| worker.each_name(f));
            guest.waiting.iter_mut().for_each(|trap| trap.each_name(f));
            guest.inbox.iter_mut().for_each(|event| event.each_name(f));
        }
    }
}

impl Trap {
    fn each_name(&mut self, f: &mut impl FnMut(&mut Name)) {
        f(&mut self.id);
        if let Call::Stub(Some((id, _))) = &mut self.call {
            f(id);
        }
    }
}

impl Route {
    fn each_name(&mut self, f: &mut impl FnMut(&mut Name)) {
        if let Self::Stub { life, .. } = self {
            f(life);
        }
    }
}

impl Pc {
    /// Whom going on is for, by a number below six: a caller, or a guest.
    pub(crate) fn concerns(self) -> u8 {
        match self {
            Self::Free => 0,
            Self::Serving(guest) | Self::Leaving(guest) => 4 + guest.min(1),
            Self::Lookup(trap)
            | Self::Routed(trap, _)
            | Self::Valid(trap, _)
            | Self::Alive(trap, _)
            | Self::Concern(trap)
            | Self::PlantFor(trap)
            | Self::Held(_, trap)
            | Self::Means(_, trap)
            | Self::Take(_, trap, ..)
            | Self::Bind(_, trap, ..)
            | Self::Run(_, trap, ..)
            | Self::Plant(_, trap)
            | Self::Planting(_, trap, _) => trap.tid,
        }
    }

    fn each_name(&mut self, f: &mut impl FnMut(&mut Name)) {
        match self {
            Self::Free | Self::Serving(_) | Self::Leaving(_) => {}
            Self::Routed(trap, route) | Self::Valid(trap, route) | Self::Alive(trap, route) => {
                trap.each_name(f);
                route.each_name(f);
            }
            Self::Lookup(trap)
            | Self::Concern(trap)
            | Self::PlantFor(trap)
            | Self::Held(_, trap)
            | Self::Means(_, trap)
            | Self::Take(_, trap, ..)
            | Self::Bind(_, trap, ..)
            | Self::Run(_, trap, ..)
            | Self::Plant(_, trap)
            | Self::Planting(_, trap, _) => trap.each_name(f),
        }
    }
}

impl Event {
    fn each_name(&mut self, f: &mut impl FnMut(&mut Name)) {
        match self {
            Self::Task(trap)
            | Self::Stub(_, trap)
            | Self::Plant(trap)
            | Self::Close(trap)
            | Self::Retire(trap) => trap.each_name(f),
            Self::Look | Self::Over => {}
        }
    }
}

impl Worker {
    fn each_name(&mut self, f: &mut impl FnMut(&mut Name)) {
        f(&mut self.life);
        match &mut self.state {
            State::Idle(id) => f(id),
            State::Busy(job) => job.trap.each_name(f),
            State::Starting | State::Ended => {}
        }
        let Frame { request, write, .. } = &mut self.frame;
        request.iter_mut().for_each(|(id, _)| f(id));
        write.iter_mut().for_each(|(id, ..)| f(id));
    }
}
