//! What lives longer than a request: processes, their stubs, ucontexts and the objects in them.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::io;

use slab::Slab;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::Handle;
use verbgate_sys::GuestFd;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::node::MountId;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;
use verbgate_sys::seccomp::NotifId;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::stub::Stub;

use crate::execute::InFlight;
use crate::fetch::Owner;

/// Names a ucontext; never reused within a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UcontextId(pub u64);

/// One open of a device by a guest.
#[derive(Debug)]
pub struct Ucontext {
    /// The device, as an index into the granted ones.
    pub device: usize,
    /// The mount that it was opened through, by which it is known wherever it is passed.
    pub mount: Option<MountId>,
    /// Descriptors known to mean it. When none is left, the kernel has freed it or is about to.
    pub holders: Vec<(Tgid, GuestFd)>,
    /// Whether the kernel was asked to make it: a program opens the device before.
    pub asked: bool,
    /// Its live objects.
    pub objects: Objects,
}

/// A tracked object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its kind.
    pub kind: ObjectRef,
    /// The process that made it.
    pub owner: Tgid,
    /// A number that no other object of this ucontext ever has, though handles are reused.
    pub generation: u64,
}

/// The live objects of a ucontext, by kind and handle.
#[derive(Debug, Default)]
pub struct Objects {
    slots: Slab<Object>,
    index: HashMap<(ObjectRef, Handle), usize>,
    /// How many there are of each kind, so that telling it takes no longer when there are many.
    kinds: HashMap<ObjectRef, usize>,
    made: u64,
}

impl Objects {
    /// Records a new object. The kernel does not give out a handle that is in use, so one that
    /// is recorded already belonged to an object that went away unseen.
    pub fn insert(&mut self, kind: ObjectRef, handle: Handle, owner: Tgid) {
        self.remove(kind, handle);
        self.made += 1;
        let key = self.slots.insert(Object { kind, owner, generation: self.made });
        self.index.insert((kind, handle), key);
        *self.kinds.entry(kind).or_default() += 1;
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: ObjectRef, handle: Handle) -> Option<Object> {
        let key = self.index.remove(&(kind, handle))?;
        if let Some(count) = self.kinds.get_mut(&kind) {
            *count = count.saturating_sub(1);
        }
        self.slots.try_remove(key)
    }

    /// Looks an object up.
    #[must_use]
    pub fn get(&self, kind: ObjectRef, handle: Handle) -> Option<&Object> {
        self.slots.get(*self.index.get(&(kind, handle))?)
    }

    /// How many there are of each kind of which there are some.
    pub fn kinds(&self) -> impl Iterator<Item = (ObjectRef, usize)> {
        self.kinds.iter().filter(|(_, count)| **count > 0).map(|(kind, count)| (*kind, *count))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// What a stub is doing.
#[derive(Debug)]
pub enum StubState {
    /// On its way to its first trap.
    Starting,
    /// Waiting in its trap.
    Idle(NotifId),
    /// In the kernel.
    Busy(Box<InFlight>),
    /// Told to end, or ended: its frame can serve another.
    Ended,
}

/// A stub and what it holds.
#[derive(Debug)]
pub struct Worker {
    /// The thread and its frame.
    pub stub: Stub,
    /// What it is doing.
    pub state: StubState,
    /// The ucontext in its table, and the guest descriptor that it stands for.
    pub bound: Option<(GuestFd, UcontextId)>,
    /// Drop the ucontext as soon as it is idle: the guest has closed its own.
    pub unbind: bool,
    /// End it as soon as it is idle: the program has changed its credentials since.
    pub retire: bool,
    /// The stub's thread id in every pid namespace that it is visible in, so that a debugger that
    /// wants it is known by whatever number it uses.
    pub ids: Vec<i32>,
}

impl Worker {
    /// A stub that has just been planted.
    #[must_use]
    pub fn new(stub: Stub) -> Self {
        let ids = process::ids(stub.tid).unwrap_or_else(|_| vec![stub.tid.0]);
        let state = StubState::Starting;
        Self { stub, state, bound: None, unbind: false, retire: false, ids }
    }

    /// Its stub has been replaced.
    pub fn renew(&mut self) {
        self.state = StubState::Starting;
        self.bound = None;
        self.unbind = false;
        self.retire = false;
        self.ids = process::ids(self.stub.tid).unwrap_or_else(|_| vec![self.stub.tid.0]);
    }
}

/// A guest process that uses RDMA.
#[derive(Debug)]
pub struct Process {
    /// Its id.
    pub tgid: Tgid,
    /// Tells when it ends.
    pub pidfd: PidFd,
    /// Its address space's number, once planted.
    pub owner: Option<Owner>,
    /// Its stubs, by slot.
    pub workers: Vec<Worker>,
    /// What its descriptors were last seen to mean.
    pub fds: HashMap<GuestFd, UcontextId>,
    /// Calls that wait for a stub, oldest first.
    pub waiting: VecDeque<Notification>,
}

impl Process {
    /// A process seen for the first time.
    #[must_use]
    pub fn new(tgid: Tgid, pidfd: PidFd) -> Self {
        Self {
            tgid,
            pidfd,
            owner: None,
            workers: Vec::new(),
            fds: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }
}

/// Everything that a sandbox's supervisor remembers.
#[derive(Debug, Default)]
pub struct Session {
    /// Processes by id.
    pub processes: HashMap<Tgid, Process>,
    /// Planted address spaces.
    pub owners: HashMap<Owner, Tgid>,
    /// Stub threads: their process, and their place among its workers.
    pub stubs: HashMap<Tid, (Tgid, usize)>,
    /// Ucontexts.
    pub ucontexts: HashMap<UcontextId, Ucontext>,
    /// Opens that the supervisor has made, and their devices. The kernel numbers mounts anew when
    /// they are gone, so this grows with the most that were open at once.
    pub opens: HashMap<MountId, usize>,
    made: u64,
}

impl Session {
    /// A number that was not given out before.
    pub fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// The record of a process, made when it is first seen.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub fn process(&mut self, tgid: Tgid) -> io::Result<&mut Process> {
        match self.processes.entry(tgid) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => Ok(new.insert(Process::new(tgid, PidFd::open(tgid)?))),
        }
    }

    /// Records what a descriptor means.
    pub fn hold(&mut self, tgid: Tgid, fd: GuestFd, id: UcontextId) {
        if let Some(process) = self.processes.get_mut(&tgid)
            && process.fds.insert(fd, id) != Some(id)
            && let Some(ucontext) = self.ucontexts.get_mut(&id)
        {
            ucontext.holders.push((tgid, fd));
        }
    }

    /// Forgets what a descriptor means, and the ucontext with its last descriptor.
    pub fn release(&mut self, tgid: Tgid, fd: GuestFd) {
        let id = self.processes.get_mut(&tgid).and_then(|process| process.fds.remove(&fd));
        let Some(id) = id else { return };
        if let Some(ucontext) = self.ucontexts.get_mut(&id) {
            ucontext.holders.retain(|holder| *holder != (tgid, fd));
            if ucontext.holders.is_empty() {
                self.ucontexts.remove(&id);
            }
        }
    }

    /// Forgets a process that has ended or executed another program.
    pub fn forget(&mut self, tgid: Tgid) -> Option<Process> {
        let fds: Vec<_> = self.processes.get(&tgid)?.fds.keys().copied().collect();
        for fd in fds {
            self.release(tgid, fd);
        }
        let process = self.processes.remove(&tgid)?;
        for worker in &process.workers {
            self.stubs.remove(&worker.stub.tid);
        }
        if let Some(owner) = process.owner {
            self.owners.remove(&owner);
        }
        Some(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: ObjectRef = ObjectRef::core(1);
    const ME: Tgid = Tgid(7);

    #[test]
    fn objects_are_known_by_kind_and_handle_and_zero_is_one() {
        let mut objects = Objects::default();
        objects.insert(PD, Handle(0), ME);
        objects.insert(ObjectRef::core(3), Handle(0), ME);
        let first = objects.get(PD, Handle(0)).unwrap().generation;
        assert_eq!(objects.len(), 2);
        objects.insert(PD, Handle(0), ME);
        assert_eq!(objects.len(), 2);
        assert_ne!(objects.get(PD, Handle(0)).unwrap().generation, first);
        assert_eq!(objects.kinds().map(|(_, count)| count).collect::<Vec<_>>(), [1, 1]);
        assert!(objects.remove(PD, Handle(0)).is_some());
        assert!(objects.remove(PD, Handle(0)).is_none());
        assert!(objects.kinds().all(|(kind, _)| kind != PD));
    }

    #[test]
    fn a_ucontext_lives_as_long_as_its_descriptors() {
        let mut session = Session::default();
        let me = Tgid(std::process::id().cast_signed());
        let pidfd = PidFd::open(me).unwrap();
        session.processes.insert(me, Process::new(me, pidfd));
        let id = UcontextId(session.number());
        let ucontext = Ucontext {
            device: 0,
            mount: None,
            holders: vec![],
            asked: false,
            objects: Objects::default(),
        };
        session.ucontexts.insert(id, ucontext);
        session.hold(me, GuestFd(960), id);
        session.hold(me, GuestFd(960), id);
        session.hold(me, GuestFd(961), id);
        session.release(me, GuestFd(960));
        assert_eq!(session.ucontexts.len(), 1);
        session.forget(me);
        assert!(session.ucontexts.is_empty() && session.processes.is_empty());
    }
}
