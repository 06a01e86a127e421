//! The guests of a sandbox, and their stubs.
//!
//! The key of every table here is a number that is never given again ([`GuestKey`], [`Owner`]), or
//! a number of the kernel's, kept beside the thing that the number names: a guest's process by its
//! pidfd, a stub by its thread.
//!
//! Locks: a thread holds the locks of the registry and of the books for a look-up, and never while
//! the thread waits for anybody. The thread that serves a guest holds the guest's own state, and
//! may wait for the guest. So nobody waits for that lock: work for a guest goes into the guest's
//! inbox, and the thread that holds the state does the work
//! ([`Supervisor::post`](crate::Supervisor)).

use std::collections::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::Mutex;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::caller::Fellow;
use verbgate_sys::process::Process;
use verbgate_sys::process::Processors;
use verbgate_sys::process::Thread;
use verbgate_sys::resident::PageMap;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::stub;
use verbgate_sys::stub::Stub;

use crate::books::GuestKey;
use crate::books::UcontextId;
use crate::fetch::Owner;
use crate::task::Event;
use crate::task::Job;
use crate::task::Outside;
use crate::task::Task;

/// What a stub is doing.
#[derive(Debug)]
pub(crate) enum StubState {
    /// On its way to its first trap.
    Starting,
    /// Waiting in its trap.
    Idle(NotifId),
    /// Waiting outside of its trap, where a stop, a freezer and a debugger reach it; with no device's file, if the
    /// process's RLIMIT_NOFILE leaves its stubs a number.
    Parked,
    /// Woken, and on its way to its trap.
    Waking,
    /// At work.
    Busy(Box<Job>),
    /// Told to end, or ended: its frame can serve another.
    Ended,
}

/// A stub and what it holds.
#[derive(Debug)]
pub(crate) struct Worker {
    /// The thread and its frame.
    pub(crate) stub: Stub,
    /// What it is doing.
    pub(crate) state: StubState,
    /// The ucontext in its table, and the guest descriptor that it stands for.
    pub(crate) bound: Option<(GuestFd, UcontextId)>,
    /// Drop the ucontext as soon as it is idle, or has ended: the guest has closed its own.
    pub(crate) unbind: bool,
    /// End it as soon as it is idle: the program has changed its credentials since.
    pub(crate) retire: bool,
    /// The tracer carries it through a stop of its process, or is about to.
    pub(crate) carried: Arc<AtomicBool>,
    /// The moment when it came to its trap.
    pub(crate) since: Instant,
    /// The processors that it runs on.
    pub(crate) processors: Option<Processors>,
    /// The stub is on its way to those, and makes the request of its job then.
    pub(crate) moves: bool,
    /// A filter of the guest's keeps it from parking.
    pub(crate) stays: bool,
    /// The caller of its job was let go, and begins its call again.
    pub(crate) let_go: bool,
    /// The trap that shows the result of its job, for that caller.
    pub(crate) shown: Option<Notification>,
    /// The stub has shown that, and parked.
    pub(crate) away: bool,
}

impl Worker {
    /// A stub that has just been planted.
    pub(crate) fn new(stub: Stub) -> Self {
        let carried = Arc::default();
        Self {
            stub,
            state: StubState::Starting,
            bound: None,
            unbind: false,
            retire: false,
            carried,
            since: Instant::now(),
            processors: None,
            moves: false,
            stays: false,
            let_go: false,
            shown: None,
            away: false,
        }
    }

    /// Its stub has been replaced.
    pub(crate) fn renew(&mut self) {
        self.state = StubState::Starting;
        self.bound = None;
        self.unbind = false;
        self.retire = false;
        self.carried = Arc::default();
        self.processors = None;
        self.moves = false;
        self.stays = false;
        self.let_go = false;
        self.shown = None;
        self.away = false;
    }

    /// Has it come to its trap, if it is parked.
    pub(crate) fn wake(&mut self) {
        if matches!(self.state, StubState::Parked) {
            stub::wake(self.stub.frame.ro());
            self.state = StubState::Waking;
        }
    }

    /// The result that it keeps for a caller that was let go.
    pub(crate) fn kept(&self) -> Option<&Notification> {
        self.shown.as_ref().filter(|_| matches!(self.state, StubState::Busy(_)))
    }

    /// The trap that it waits in, if it does.
    pub(crate) fn idle(&self) -> Option<NotifId> {
        match self.state {
            StubState::Idle(idle) => Some(idle),
            _ => None,
        }
    }
}

/// An address space that uses RDMA, and the process that it is, or was made by.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Names it.
    pub(crate) key: GuestKey,
    /// The process.
    pub(crate) process: Arc<Process>,
    /// The number by which its memory names itself, once planted.
    pub(crate) owner: Owner,
    /// Its memory names itself.
    pub(crate) planted: AtomicBool,
    /// What is resident of its memory, once a thread was found to share that with a stub.
    pub(crate) pages: OnceLock<PageMap>,
    /// Where the next free number for a descriptor is looked for. Held until that is given: two
    /// threads of a guest that open at once must not be given one number, of which the second file
    /// would take the first one's place.
    pub(crate) next_fd: Mutex<u32>,
    /// The supervisor makes a request of the guest's now.
    pub(crate) outside: AtomicBool,
    pub(crate) inbox: Mutex<VecDeque<Event>>,
    pub(crate) state: Mutex<GuestState>,
}

/// What whoever serves a guest knows of it.
#[derive(Debug, Default)]
pub(crate) struct GuestState {
    /// Its stubs, by slot.
    pub(crate) workers: Vec<Worker>,
    /// What waits for a stub, oldest first.
    pub(crate) waiting: VecDeque<Task>,
    /// A request that the supervisor makes when it has let go of this.
    pub(crate) outside: Option<Outside>,
    /// A filter of the guest's has ended a stub that was to go to other processors.
    pub(crate) stubs_stay: bool,
    /// The planting of another that is under way.
    pub(crate) planting: Option<Planting>,
    /// Stubs that have ended before their first trap, since one came to it.
    pub(crate) stillborn: u32,
    /// Forgotten: the process has ended, or executed another program.
    pub(crate) over: bool,
}

impl GuestState {
    /// Whether a stub is on its way to its trap, to wait for work there; if one is parked, it comes.
    pub(crate) fn is_coming(&mut self) -> bool {
        let comes =
            |worker: &Worker| matches!(worker.state, StubState::Starting | StubState::Waking);
        if self.planting.is_some() || self.workers.iter().any(comes) {
            return true;
        }
        let parked = |worker: &&mut Worker| matches!(worker.state, StubState::Parked);
        // One that holds a file could not take another.
        let first =
            self.workers.iter_mut().filter(parked).min_by_key(|worker| worker.bound.is_none());
        first.map(Worker::wake).is_some()
    }

    /// Whether a stub is there that has not ended.
    pub(crate) fn has_stub(&self) -> bool {
        self.workers.iter().any(|worker| !matches!(worker.state, StubState::Ended))
    }
}

/// The planting of a stub.
#[derive(Debug)]
pub(crate) struct Planting {
    pub(crate) place: usize,
    /// Calls that asked for one, too, and are served when it is there.
    pub(crate) again: Vec<Notification>,
    /// The first trap of the stub, which can come before the tracer has told of the stub.
    pub(crate) early: Option<Notification>,
    /// The program has changed its credentials since.
    pub(crate) retire: bool,
}

/// Threads that are remembered at most: those that have ended are not told of.
const MOST_RECENT: usize = 8192;

/// Of them, those for which a descriptor of the supervisor's is kept.
const MOST_FELLOWS: usize = 512;

/// When so many fellows are known, those that have ended are looked for the first time.
const FEW_FELLOWS: usize = 32;

/// Calls that a thread is about to make, in order: numbers, arguments, and places.
pub(crate) type Foreseen = Arc<Mutex<VecDeque<(u32, [u64; 6], u64)>>>;

/// Where the traps of a thread go.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// It is a stub of this guest's, in this place.
    Stub(Arc<Guest>, usize, Arc<Thread>),
    /// A making of the tracer's has the thread make calls; for this guest, where it plants. Whoever receives the traps of
    /// foreseen calls lets these through.
    Made(u64, Foreseen, Option<GuestKey>),
}

/// A thread that has made a request.
#[derive(Debug)]
struct Recent {
    guest: Weak<Guest>,
    stub: Weak<Thread>,
    fellow: Option<Arc<Fellow>>,
}

/// The same, and whose it was then.
pub(crate) struct Acquaintance {
    pub(crate) guest: Arc<Guest>,
    pub(crate) stub: Arc<Thread>,
    pub(crate) fellow: Option<Arc<Fellow>>,
}

/// The guests of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    by_process: HashMap<Tgid, Arc<Guest>>,
    by_owner: HashMap<Owner, Arc<Guest>>,
    /// By the thread's number, which is its own: a thread that is being made to make calls is
    /// traced, and a stub is asked whether it lives when its number traps.
    pub(crate) routes: HashMap<Tid, Route>,
    /// Threads that have made requests, whose they were then, and a stub of that guest's: whoever has
    /// the number now is believed only if it shares the stub's memory.
    recent: HashMap<Tid, Recent>,
    /// How many of them are fellows.
    fellows: usize,
    /// How many were left when it was last looked which have ended.
    living: usize,
    made: u64,
    /// Threads that were let attach to a number: none of the kernel's calls tells when that has been done.
    attaching: HashMap<Tid, (Thread, i32)>,
}

/// Threads that are known at most to have attached to others, which a debugger does with one.
const MOST_ATTACHING: usize = 64;

/// Whether a thread may attach to a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attach {
    /// It may.
    Granted,
    /// It is a stub's.
    Stub,
    /// Too many threads of the sandbox attach to others.
    Full,
}

impl Registry {
    /// The guest that a process is, if it is known.
    pub(crate) fn by_process(&self, process: Tgid) -> Option<Arc<Guest>> {
        let guest = self.by_process.get(&process)?;
        (!guest.process.has_ended()).then(|| Arc::clone(guest))
    }

    /// The guest whose memory says this number.
    pub(crate) fn by_owner(&self, owner: Owner) -> Option<Arc<Guest>> {
        self.by_owner.get(&owner).map(Arc::clone)
    }

    /// The guest of a key.
    pub(crate) fn by_key(&self, key: GuestKey) -> Option<Arc<Guest>> {
        self.by_process.values().find(|guest| guest.key == key).map(Arc::clone)
    }

    /// The guest that a thread was of when it last made a request, and a stub of its.
    pub(crate) fn recent(&self, tid: Tid) -> Option<Acquaintance> {
        let Recent { guest, stub, fellow } = self.recent.get(&tid)?;
        let (guest, stub) = (guest.upgrade()?, stub.upgrade()?);
        Some(Acquaintance { guest, stub, fellow: fellow.as_ref().map(Arc::clone) })
    }

    /// A thread was found to share the memory of this stub of a guest's.
    pub(crate) fn remember(
        &mut self,
        tid: Tid,
        guest: &Arc<Guest>,
        stub: &Arc<Thread>,
        fellow: Option<Fellow>,
    ) {
        // So seldom that each thread is looked at about twice, however many come and go.
        if self.fellows >= FEW_FELLOWS.max(2 * self.living) {
            let has_ended = |fellow: &Arc<Fellow>| fellow.has_ended();
            self.recent.retain(|_, recent| !recent.fellow.as_ref().is_some_and(has_ended));
            self.count_fellows();
            self.living = self.fellows;
        }
        if self.recent.len() >= MOST_RECENT || self.fellows >= MOST_FELLOWS {
            self.recent.clear();
            self.fellows = 0;
        }
        self.fellows += usize::from(fellow.is_some());
        let (guest, stub) = (Arc::downgrade(guest), Arc::downgrade(stub));
        let new = Recent { guest, stub, fellow: fellow.map(Arc::new) };
        // Of another thread, which had the number before.
        let old = self.recent.insert(tid, new);
        self.fellows -= usize::from(old.is_some_and(|old| old.fellow.is_some()));
    }

    fn count_fellows(&mut self) {
        self.fellows = self.recent.values().filter(|recent| recent.fellow.is_some()).count();
        // Of a guest that was forgotten none live on.
        self.living = self.living.min(self.fellows);
    }

    /// A stub of a process's, and whose that is.
    pub(crate) fn stub_of(&self, process: Tgid) -> Option<(Arc<Guest>, Arc<Thread>)> {
        let guest = self.by_process.get(&process)?;
        self.routes.values().find_map(|route| match route {
            Route::Stub(of, _, thread) if of.key == guest.key => {
                Some((Arc::clone(guest), Arc::clone(thread)))
            }
            _ => None,
        })
    }

    /// All stubs, and whose they are.
    pub(crate) fn stubs(&self) -> Vec<(Arc<Guest>, Arc<Thread>)> {
        let stub = |route: &Route| match route {
            Route::Stub(guest, _, thread) => Some((Arc::clone(guest), Arc::clone(thread))),
            Route::Made(..) => None,
        };
        self.routes.values().filter_map(stub).collect()
    }

    /// The stubs of other guests, and the threads by way of which others are planted.
    pub(crate) fn stubs_beside(&self, guest: GuestKey) -> Vec<Tid> {
        let is_others = |route: &Route| match route {
            Route::Stub(of, ..) => of.key != guest,
            Route::Made(_, _, of) => of.is_some_and(|of| of != guest),
        };
        let found = self.routes.iter().filter(|(_, route)| is_others(route));
        found.map(|(tid, _)| *tid).collect()
    }

    /// The record of a process, made when it is first seen. `owner` is nobody else's.
    pub(crate) fn enter(&mut self, process: Process, owner: Owner) -> Arc<Guest> {
        let tgid = process.tgid();
        if let Some(known) = self.by_process(tgid) {
            return known;
        }
        self.made += 1;
        let guest = Arc::new(Guest {
            key: GuestKey(self.made),
            process: Arc::new(process),
            owner,
            planted: AtomicBool::new(false),
            pages: OnceLock::new(),
            next_fd: Mutex::new(0),
            outside: AtomicBool::new(false),
            inbox: Mutex::default(),
            state: Mutex::default(),
        });
        self.by_process.insert(tgid, Arc::clone(&guest));
        guest
    }

    /// From now on the guest's memory names itself.
    pub(crate) fn name(&mut self, guest: &Arc<Guest>) {
        self.by_owner.insert(guest.owner, Arc::clone(guest));
    }

    /// Forgets a guest.
    pub(crate) fn forget(&mut self, guest: &Arc<Guest>) {
        if let Entry::Occupied(entry) = self.by_process.entry(guest.process.tgid())
            && entry.get().key == guest.key
        {
            entry.remove();
        }
        self.by_owner.remove(&guest.owner);
        self.recent
            .retain(|_, recent| recent.guest.upgrade().is_some_and(|of| of.key != guest.key));
        self.count_fellows();
        self.routes.retain(|_, route| !matches!(route, Route::Stub(of, ..) if of.key == guest.key));
    }

    /// Whether a number, in whatever pid namespace, may be a living stub's.
    pub(crate) fn has_stub(&self, id: i32) -> bool {
        let is = |route: &Route| matches!(route, Route::Stub(_, _, t) if t.may_be_called(id));
        self.routes.values().any(is)
    }

    /// A thread is about to be let attach to whoever has a number when the kernel comes to it, however late
    /// that is. As long as the thread lives, and attaches to no other, no stub begins under that number.
    pub(crate) fn attach(&mut self, attacher: Thread, id: i32) -> Attach {
        if self.has_stub(id) {
            return Attach::Stub;
        }
        let tid = attacher.tid();
        if self.attaching.len() >= MOST_ATTACHING && !self.attaching.contains_key(&tid) {
            self.attaching.retain(|_, (thread, _)| thread.is_alive());
            if self.attaching.len() >= MOST_ATTACHING {
                return Attach::Full;
            }
        }
        self.attaching.insert(tid, (attacher, id));
        Attach::Granted
    }

    /// A thread is a stub of a guest's from now on, unless somebody may be attaching to its number.
    pub(crate) fn announce(
        &mut self,
        guest: &Arc<Guest>,
        place: usize,
        stub: &Arc<Thread>,
    ) -> bool {
        let is_sought = |(thread, id): &(Thread, i32)| stub.may_be_called(*id) && thread.is_alive();
        if self.attaching.values().any(is_sought) {
            return false;
        }
        self.routes.insert(stub.tid(), Route::Stub(Arc::clone(guest), place, Arc::clone(stub)));
        true
    }

    /// Names somebody who makes threads make calls.
    pub(crate) fn next_maker(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// A thread is no longer made to make calls; its number may be another's by now, whom somebody else
    /// makes make some.
    pub(crate) fn let_go(&mut self, tid: Tid, maker: u64) {
        if let Entry::Occupied(entry) = self.routes.entry(tid)
            && matches!(entry.get(), Route::Made(of, ..) if *of == maker)
        {
            entry.remove();
        }
    }

    /// A stub has ended, and its number is another thread's.
    pub(crate) fn retire(&mut self, tid: Tid, thread: &Arc<Thread>) {
        if let Entry::Occupied(entry) = self.routes.entry(tid)
            && matches!(entry.get(), Route::Stub(_, _, stub) if Arc::ptr_eq(stub, thread))
        {
            entry.remove();
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_process.is_empty() && self.by_owner.is_empty()
    }

    /// All of them: those whose memory names itself, and those that have yet to make a request.
    pub(crate) fn all(&self) -> Vec<Arc<Guest>> {
        let mut all: Vec<_> = self.by_process.values().chain(self.by_owner.values()).collect();
        all.sort_unstable_by_key(|guest| guest.key);
        all.dedup_by_key(|guest| guest.key);
        all.into_iter().map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_done_with_a_thread_leaves_it_to_who_has_it_by_now() {
        let mut registry = Registry::default();
        let (first, second) = (registry.next_maker(), registry.next_maker());
        registry.routes.insert(Tid(7), Route::Made(second, Foreseen::default(), None));
        registry.let_go(Tid(7), first);
        assert!(registry.routes.contains_key(&Tid(7)));
        registry.let_go(Tid(7), second);
        assert!(registry.routes.is_empty());
    }
}
