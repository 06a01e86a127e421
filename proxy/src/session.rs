//! What lives longer than a request: guests and their stubs, ucontexts and what is in them.
//!
//! Every table here is keyed by a number that is never given again ([`GuestKey`], [`UcontextId`],
//! [`Owner`]), or by one of the kernel's whose thing is kept beside it: a guest's process by its
//! pidfd, a stub by its thread, an open by what pins its mount.
//!
//! Locks: the registry's and the books' are held for a look-up and never while anybody is waited
//! for. A guest's own state is held by whoever serves that guest, who may wait for it; so nobody
//! waits for that lock: what there is to do is put into the guest's inbox, and whoever holds the
//! state does it ([`Supervisor::post`](crate::Supervisor)).

use std::collections::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use parking_lot::Mutex;
use verbgate_abi::request::Request;
use verbgate_abi::table::ObjectRef;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::node::MountId;
use verbgate_sys::node::Pin;
use verbgate_sys::process::Process;
use verbgate_sys::process::Thread;
use verbgate_sys::resident::PageMap;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::stub::Stub;
use verbgate_sys::token::End;

use crate::commit;
use crate::execute::Job;
use crate::fetch::Owner;
use crate::serve::Event;
use crate::serve::Task;

/// Names a guest; never given again within a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GuestKey(u64);

/// Names a ucontext; never given again within a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UcontextId(pub u64);

/// What a stub is doing.
#[derive(Debug)]
pub(crate) enum StubState {
    /// On its way to its first trap.
    Starting,
    /// Waiting in its trap.
    Idle(NotifId),
    /// At work.
    Busy(Job),
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
    /// Drop the ucontext as soon as it is idle: the guest has closed its own.
    pub(crate) unbind: bool,
    /// End it as soon as it is idle: the program has changed its credentials since.
    pub(crate) retire: bool,
}

impl Worker {
    /// A stub that has just been planted.
    pub(crate) fn new(stub: Stub) -> Self {
        Self { stub, state: StubState::Starting, bound: None, unbind: false, retire: false }
    }

    /// Its stub has been replaced.
    pub(crate) fn renew(&mut self) {
        self.state = StubState::Starting;
        self.bound = None;
        self.unbind = false;
        self.retire = false;
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
    /// Stubs that have ended before their first trap, since one came to it.
    pub(crate) stillborn: u32,
    /// Forgotten: the process has ended, or executed another program.
    pub(crate) over: bool,
}

/// Threads that are remembered at most: those that have ended are not told of.
const MOST_RECENT: usize = 8192;

/// Where the traps of a thread go.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// It is a stub of this guest's, in this place.
    Stub(Arc<Guest>, usize, Arc<Thread>),
    /// It is being made to make calls, by whoever receives here. The number tells who that is.
    Made(u64, Sender<Notification>),
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
    recent: HashMap<Tid, (Weak<Guest>, Weak<Thread>)>,
    made: u64,
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
    pub(crate) fn recent(&self, tid: Tid) -> Option<(Arc<Guest>, Arc<Thread>)> {
        let (guest, stub) = self.recent.get(&tid)?;
        Some((guest.upgrade()?, stub.upgrade()?))
    }

    /// A thread was found to share the memory of this stub of a guest's.
    pub(crate) fn remember(&mut self, tid: Tid, guest: &Arc<Guest>, stub: &Arc<Thread>) {
        if self.recent.len() >= MOST_RECENT {
            self.recent.clear();
        }
        self.recent.insert(tid, (Arc::downgrade(guest), Arc::downgrade(stub)));
    }

    /// All stubs, and whose they are.
    pub(crate) fn stubs(&self) -> Vec<(Arc<Guest>, Arc<Thread>)> {
        let stub = |route: &Route| match route {
            Route::Stub(guest, _, thread) => Some((Arc::clone(guest), Arc::clone(thread))),
            Route::Made(..) => None,
        };
        self.routes.values().filter_map(stub).collect()
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
        self.recent.retain(|_, (of, _)| of.upgrade().is_some_and(|of| of.key != guest.key));
        self.routes.retain(|_, route| !matches!(route, Route::Stub(of, ..) if of.key == guest.key));
    }

    /// Whether a number, in whatever pid namespace, may be a living stub's.
    pub(crate) fn has_stub(&self, id: i32) -> bool {
        let is = |route: &Route| matches!(route, Route::Stub(_, _, t) if t.may_be_called(id));
        self.routes.values().any(is)
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
            && matches!(entry.get(), Route::Made(of, _) if *of == maker)
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

    /// All of them: those whose memory names itself, and those that have yet to make a request.
    pub(crate) fn all(&self) -> Vec<Arc<Guest>> {
        let mut all: Vec<_> = self.by_process.values().chain(self.by_owner.values()).collect();
        all.sort_unstable_by_key(|guest| guest.key);
        all.dedup_by_key(|guest| guest.key);
        all.into_iter().map(Arc::clone).collect()
    }
}

/// One open of a device by a guest.
#[derive(Debug)]
pub struct Ucontext {
    /// The device, as an index into the granted ones.
    pub device: usize,
    /// The mount that it was opened through, by which it is known wherever it is passed.
    pub mount: Option<(MountId, Pin)>,
    /// The open file and the end of the guests' token, where these have no more than that.
    pub(crate) kept: Option<(Arc<File>, End)>,
    /// Descriptors known to mean it. When none is left, the kernel has freed it or is about to,
    /// unless the guest has made another in a way that nobody sees.
    pub(crate) holders: Vec<(GuestKey, GuestFd)>,
    /// Whether the kernel was asked to make it: a program opens the device before.
    pub asked: bool,
    /// How many objects of each kind live in it, as results tell: made, less destroyed.
    pub live: Live,
}

impl Ucontext {
    /// Enters what a request on it brought about.
    pub fn enter(&mut self, request: &Request, result: i64) {
        commit::track(&mut self.live, request, result);
        // Whatever became of it: there may be one though its answer did not fit.
        self.asked |= request.makes_ucontext();
    }

    /// Whether one of a guest's descriptors is known to mean it.
    pub(crate) fn is_held_by(&self, guest: &Guest) -> bool {
        self.holders.iter().any(|(key, _)| *key == guest.key)
    }
}

/// Objects of a ucontext, counted by results alone: nothing that a guest can write is believed.
///
/// Objects that are descriptors are not counted; closing one is not seen.
#[derive(Debug, Default)]
pub struct Live(HashMap<ObjectRef, u64>);

impl Live {
    /// One more.
    pub fn made(&mut self, kind: ObjectRef) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// One less.
    pub fn destroyed(&mut self, kind: ObjectRef) {
        if let Some(count) = self.0.get_mut(&kind) {
            *count = count.saturating_sub(1);
        }
    }

    /// How many there are of each kind of which there are some.
    pub fn kinds(&self) -> impl Iterator<Item = (ObjectRef, u64)> {
        self.0.iter().filter(|(_, count)| **count > 0).map(|(kind, count)| (*kind, *count))
    }
}

/// What a ucontext is known by, and what requests on it go to.
#[derive(Debug)]
pub(crate) enum Known {
    /// A token of this mount, and the file that it stands for.
    Token(MountId, Arc<File>),
    /// The file itself.
    File,
}

/// Ucontexts that nobody is known to hold, and that are remembered still: a guest may hold one by
/// a duplicate of which nobody was told.
const MOST_UNHELD: usize = 1024;
/// The same where remembering takes a descriptor of the supervisor's, before Linux 6.8.
const MOST_UNHELD_PINNED: usize = 128;

/// The ucontexts of a sandbox.
#[derive(Debug, Default)]
pub struct Books {
    ucontexts: HashMap<UcontextId, Ucontext>,
    by_mount: HashMap<MountId, UcontextId>,
    by_end: HashMap<End, UcontextId>,
    /// What descriptors were last seen to mean.
    fds: HashMap<(GuestKey, GuestFd), UcontextId>,
    /// Those that nobody is known to hold, oldest first.
    unheld: VecDeque<UcontextId>,
    made: u64,
}

impl Books {
    /// Enters an open that has just been made.
    pub fn open(&mut self, device: usize, mount: Option<(MountId, Pin)>) -> UcontextId {
        self.made += 1;
        let id = UcontextId(self.made);
        self.by_mount.extend(mount.as_ref().map(|(mount, _)| (*mount, id)));
        let (holders, live) = (Vec::new(), Live::default());
        self.ucontexts
            .insert(id, Ucontext { device, mount, kept: None, holders, asked: false, live });
        id
    }

    /// From now on guests hold no more of an open than a token.
    pub(crate) fn keep(&mut self, id: UcontextId, file: Arc<File>, end: End) {
        if let Some(ucontext) = self.ucontexts.get_mut(&id) {
            ucontext.kept = Some((file, end));
            self.by_end.insert(end, id);
        }
    }

    /// The ends that are waited for.
    pub(crate) fn ends(&self) -> Vec<End> {
        self.by_end.keys().copied().collect()
    }

    /// How many files are kept for guests.
    pub(crate) fn kept(&self) -> usize {
        self.by_end.len()
    }

    /// A token has come to its end, and the ucontext with it.
    pub(crate) fn ended(&mut self, end: End) -> Option<Ucontext> {
        let id = self.by_end.remove(&end)?;
        let ucontext = self.close(id)?;
        for holder in &ucontext.holders {
            self.fds.remove(holder);
        }
        Some(ucontext)
    }

    /// By what a ucontext is known.
    pub(crate) fn known(&self, id: UcontextId) -> Option<Known> {
        let ucontext = self.ucontexts.get(&id)?;
        Some(match (&ucontext.kept, &ucontext.mount) {
            (Some((file, _)), Some((mount, _))) => Known::Token(*mount, Arc::clone(file)),
            _ => Known::File,
        })
    }

    /// Takes an open back of which the guest was never told, or that is gone.
    pub fn close(&mut self, id: UcontextId) -> Option<Ucontext> {
        let gone = self.ucontexts.remove(&id)?;
        if let Some((mount, _)) = &gone.mount {
            self.by_mount.remove(mount);
        }
        if let Some((_, end)) = &gone.kept {
            self.by_end.remove(end);
        }
        Some(gone)
    }

    /// A ucontext.
    #[must_use]
    pub fn get(&self, id: UcontextId) -> Option<&Ucontext> {
        self.ucontexts.get(&id)
    }

    /// A ucontext, to be changed.
    pub fn get_mut(&mut self, id: UcontextId) -> Option<&mut Ucontext> {
        self.ucontexts.get_mut(&id)
    }

    /// The ucontext that was opened through a mount.
    #[must_use]
    pub fn by_mount(&self, mount: MountId) -> Option<UcontextId> {
        self.by_mount.get(&mount).copied()
    }

    /// Descriptors known to mean ucontexts of a device, where these have no mounts of their own.
    pub(crate) fn holders_of(&self, device: usize) -> Vec<(UcontextId, GuestKey, GuestFd)> {
        let of_device = self.ucontexts.iter().filter(|(_, ucontext)| ucontext.device == device);
        of_device
            .flat_map(|(id, ucontext)| ucontext.holders.iter().map(|(key, fd)| (*id, *key, *fd)))
            .collect()
    }

    /// Records what a descriptor means.
    pub(crate) fn hold(&mut self, guest: GuestKey, fd: GuestFd, id: UcontextId) {
        if self.fds.get(&(guest, fd)) == Some(&id) {
            return;
        }
        self.release(guest, fd);
        if let Some(ucontext) = self.ucontexts.get_mut(&id) {
            if ucontext.holders.is_empty() {
                self.unheld.retain(|unheld| *unheld != id);
            }
            ucontext.holders.push((guest, fd));
            self.fds.insert((guest, fd), id);
        }
    }

    /// Forgets what a descriptor means.
    pub(crate) fn release(&mut self, guest: GuestKey, fd: GuestFd) {
        let Some(id) = self.fds.remove(&(guest, fd)) else { return };
        let Some(ucontext) = self.ucontexts.get_mut(&id) else { return };
        ucontext.holders.retain(|holder| *holder != (guest, fd));
        // Where there is a token, its end is told of.
        if !ucontext.holders.is_empty() || ucontext.kept.is_some() {
            return;
        }
        let most = match &ucontext.mount {
            None => 0,
            Some((_, pin)) if pin.takes_descriptor() => MOST_UNHELD_PINNED,
            Some(_) => MOST_UNHELD,
        };
        self.unheld.push_back(id);
        while self.unheld.len() > most {
            if let Some(oldest) = self.unheld.pop_front() {
                self.close(oldest);
            }
        }
    }

    /// Those of a range of a guest's descriptors that are known to mean anything.
    pub(crate) fn held_by(&self, guest: GuestKey, range: RangeInclusive<u32>) -> Vec<GuestFd> {
        let known = |fd: u32| {
            let fd = GuestFd(fd.cast_signed());
            self.fds.contains_key(&(guest, fd)).then_some(fd)
        };
        range.filter_map(known).collect()
    }

    /// Forgets what a guest's descriptors mean.
    pub(crate) fn release_all(&mut self, guest: GuestKey) {
        let of_guest = self.fds.keys().filter(|(key, _)| *key == guest);
        let mut fds: Vec<GuestFd> = of_guest.map(|(_, fd)| *fd).collect();
        // Which is forgotten first must not depend on chance.
        fds.sort_unstable();
        for fd in fds {
            self.release(guest, fd);
        }
    }

    /// Those that somebody is known to hold, oldest first.
    pub fn held(&self) -> impl Iterator<Item = (UcontextId, &Ucontext)> {
        let held = self.ucontexts.iter().filter(|(_, ucontext)| !ucontext.holders.is_empty());
        let mut held: Vec<_> = held.map(|(id, ucontext)| (*id, ucontext)).collect();
        held.sort_unstable_by_key(|(id, _)| *id);
        held.into_iter()
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    const ME: GuestKey = GuestKey(7);
    const PD: ObjectRef = ObjectRef::core(1);

    #[test]
    fn who_is_done_with_a_thread_leaves_it_to_who_has_it_by_now() {
        let mut registry = Registry::default();
        let (first, second) = (registry.next_maker(), registry.next_maker());
        let (give, _take) = std::sync::mpsc::channel();
        registry.routes.insert(Tid(7), Route::Made(second, give));
        registry.let_go(Tid(7), first);
        assert!(registry.routes.contains_key(&Tid(7)));
        registry.let_go(Tid(7), second);
        assert!(registry.routes.is_empty());
    }

    #[test]
    fn objects_are_counted_by_results() {
        let mut live = Live::default();
        live.destroyed(PD);
        live.made(PD);
        live.made(PD);
        live.destroyed(PD);
        assert_eq!(live.kinds().collect::<Vec<_>>(), [(PD, 1)]);
        live.destroyed(PD);
        assert_eq!(live.kinds().count(), 0);
    }

    #[test]
    fn a_ucontext_without_a_mount_lives_as_long_as_its_descriptors() {
        let mut books = Books::default();
        let id = books.open(0, None);
        books.hold(ME, GuestFd(960), id);
        books.hold(ME, GuestFd(960), id);
        books.hold(ME, GuestFd(961), id);
        books.release(ME, GuestFd(960));
        assert_eq!(books.held().count(), 1);
        books.release_all(ME);
        assert!(books.get(id).is_none() && books.fds.is_empty() && books.unheld.is_empty());
    }

    #[test]
    fn a_ucontext_with_a_token_lives_until_that_ends_whoever_is_known_to_hold_it() {
        let mut books = Books::default();
        let (mount, end) = (MountId::from(5), End::from(1));
        let file = Arc::new(File::open("/dev/null").unwrap());
        let id = books.open(0, Some((mount, Pin::new(None))));
        books.keep(id, Arc::clone(&file), end);
        books.hold(ME, GuestFd(960), id);
        // As when a child holds on to what its parent had, and nobody was told.
        books.release_all(ME);
        for at in 0..2 * MOST_UNHELD as u64 {
            let other = books.open(0, Some((MountId::from(100 + at), Pin::new(None))));
            books.hold(ME, GuestFd(961), other);
        }
        assert_eq!((books.by_mount(mount), books.kept()), (Some(id), 1));
        assert!(matches!(books.known(id), Some(Known::Token(of, _)) if of == mount));
        books.hold(ME, GuestFd(960), id);
        drop(books.ended(end).unwrap());
        assert_eq!((books.by_mount(mount), books.kept()), (None, 0));
        assert!(!books.fds.contains_key(&(ME, GuestFd(960))) && books.ended(end).is_none());
        assert_eq!(Arc::strong_count(&file), 1);
    }

    #[test]
    fn a_number_that_means_another_open_is_released_from_the_first() {
        let mut books = Books::default();
        let (a, b) = (books.open(0, None), books.open(1, None));
        books.hold(ME, GuestFd(960), a);
        books.hold(ME, GuestFd(960), b);
        assert!(books.get(a).is_none() && books.get(b).is_some());
    }
}
