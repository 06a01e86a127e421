//! The books against a reference: random opens, duplicates, closes, forks, programs and ends, some
//! of which nobody sees, in a world that knows the true file of every descriptor.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::File;

use proptest::prelude::*;
use verbgate_sys::GuestFd;
use verbgate_sys::node::MountId;
use verbgate_sys::node::Pin;

use super::Books;
use super::MOST_UNHELD;
use super::MOST_UNHELD_PINNED;
use super::UcontextId;
use crate::books::GuestKey;

const FDS: u32 = 6;

/// How opens are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mounts {
    /// By the file itself, while somebody is known to hold it.
    None,
    /// By a mount whose number is never given again.
    Unique,
    /// By a mount that a descriptor keeps.
    Pinned,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Open {
        guest: usize,
        fd: u32,
        device: usize,
    },
    /// The guest's table was full, or it had ended.
    OpenFails {
        device: usize,
    },
    /// Many opens by somebody who closes each at once.
    Burst {
        guest: usize,
        count: usize,
    },
    Dup {
        guest: usize,
        from: u32,
        to: u32,
    },
    /// By a call that is not trapped, or out of a message: from one guest to another.
    UnseenDup {
        from: (usize, u32),
        to: (usize, u32),
    },
    Close {
        guest: usize,
        fd: u32,
    },
    UnseenClose {
        guest: usize,
        fd: u32,
    },
    /// A request on a descriptor.
    Use {
        guest: usize,
        fd: u32,
    },
    /// Its descriptors are its parent's, and nobody was told of any.
    Fork {
        guest: usize,
    },
    /// Every descriptor that the verbs interface makes is closed; the process goes on as another
    /// guest.
    Exec {
        guest: usize,
    },
    Exit {
        guest: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let guest = || 0_usize..4;
    let fd = || 0..FDS;
    prop_oneof![
        4 => (guest(), fd(), 0_usize..2).prop_map(|(guest, fd, device)| Op::Open { guest, fd, device }),
        1 => (0_usize..2).prop_map(|device| Op::OpenFails { device }),
        1 => (guest(), 1_usize..200).prop_map(|(guest, count)| Op::Burst { guest, count }),
        2 => (guest(), fd(), fd()).prop_map(|(guest, from, to)| Op::Dup { guest, from, to }),
        2 => ((guest(), fd()), (guest(), fd())).prop_map(|(from, to)| Op::UnseenDup { from, to }),
        4 => (guest(), fd()).prop_map(|(guest, fd)| Op::Close { guest, fd }),
        1 => (guest(), fd()).prop_map(|(guest, fd)| Op::UnseenClose { guest, fd }),
        6 => (guest(), fd()).prop_map(|(guest, fd)| Op::Use { guest, fd }),
        1 => guest().prop_map(|guest| Op::Fork { guest }),
        1 => guest().prop_map(|guest| Op::Exec { guest }),
        1 => guest().prop_map(|guest| Op::Exit { guest }),
    ]
}

/// A process: its name in the books, and the true files of its descriptors.
#[derive(Clone, Debug)]
struct ModelGuest {
    key: GuestKey,
    table: BTreeMap<u32, UcontextId>,
}

struct World {
    books: Books,
    mounts: Mounts,
    guests: Vec<ModelGuest>,
    keys: u64,
    /// Every open that there ever was, and its device.
    opened: BTreeMap<UcontextId, usize>,
    /// What the books should say of descriptors.
    known: BTreeMap<(GuestKey, u32), UcontextId>,
    /// Opens that the books should remember though nobody is known to hold them, oldest first.
    unheld: Vec<UcontextId>,
    forgotten: BTreeSet<UcontextId>,
}

impl World {
    fn new(mounts: Mounts) -> Self {
        let guest = |key| ModelGuest { key: GuestKey(key), table: BTreeMap::new() };
        Self {
            books: Books::default(),
            mounts,
            guests: (0..4).map(guest).collect(),
            keys: 4,
            opened: BTreeMap::new(),
            known: BTreeMap::new(),
            unheld: Vec::new(),
            forgotten: BTreeSet::new(),
        }
    }

    fn open(&mut self, device: usize) -> UcontextId {
        // One mount per open, as numbers of either kind are not given again while they are kept.
        let mount = MountId::from(1000 + self.opened.len() as u64);
        let null = || File::open("/dev/null").unwrap().into();
        let mount = match self.mounts {
            Mounts::None => None,
            Mounts::Unique => Some((mount, Pin::new(None))),
            Mounts::Pinned => Some((mount, Pin::new(Some(null())))),
        };
        let id = self.books.open(device, mount);
        assert!(self.opened.insert(id, device).is_none(), "{id:?} was given again");
        id
    }

    fn mount_of(&self, id: UcontextId) -> MountId {
        let place = self.opened.keys().position(|known| *known == id).unwrap();
        MountId::from(1000 + place as u64)
    }

    fn hold(&mut self, guest: GuestKey, fd: u32, id: UcontextId) {
        self.books.hold(guest, GuestFd(fd.cast_signed()), id);
        if self.known.get(&(guest, fd)) != Some(&id) {
            self.forget(guest, fd);
            if !self.forgotten.contains(&id) {
                self.unheld.retain(|unheld| *unheld != id);
                self.known.insert((guest, fd), id);
            }
        }
    }

    fn release(&mut self, guest: GuestKey, fd: u32) {
        self.books.release(guest, GuestFd(fd.cast_signed()));
        self.forget(guest, fd);
    }

    fn forget(&mut self, guest: GuestKey, fd: u32) {
        let Some(id) = self.known.remove(&(guest, fd)) else { return };
        if self.known.values().any(|held| *held == id) {
            return;
        }
        self.unheld.push(id);
        let most = match self.mounts {
            Mounts::None => 0,
            Mounts::Unique => MOST_UNHELD,
            Mounts::Pinned => MOST_UNHELD_PINNED,
        };
        let over = self.unheld.len().saturating_sub(most);
        self.forgotten.extend(self.unheld.drain(..over));
    }

    /// The process has ended, or executed another program.
    fn end(&mut self, guest: usize) {
        let key = self.guests[guest].key;
        self.books.release_all(key);
        let fds: Vec<u32> =
            self.known.keys().filter(|(of, _)| *of == key).map(|(_, fd)| *fd).collect();
        fds.into_iter().for_each(|fd| self.forget(key, fd));
        self.keys += 1;
        self.guests[guest] = ModelGuest { key: GuestKey(self.keys), table: BTreeMap::new() };
    }

    fn burst(&mut self, guest: usize, count: usize) {
        let key = self.guests[guest].key;
        for _ in 0..count {
            let id = self.open(0);
            self.hold(key, FDS, id);
            self.release(key, FDS);
        }
    }

    /// What the supervisor finds a descriptor to mean, and enters.
    fn used(&mut self, guest: usize, fd: u32) {
        let key = self.guests[guest].key;
        let Some(file) = self.guests[guest].table.get(&fd).copied() else { return };
        let found = match self.mounts {
            Mounts::None => {
                // Compared with each known holder's, until one is the same file.
                let holders = self.books.holders_of(self.opened[&file]);
                let truth = |key: GuestKey, fd: GuestFd| {
                    let guest = self.guests.iter().find(|guest| guest.key == key)?;
                    guest.table.get(&fd.0.cast_unsigned()).copied()
                };
                let same = |(_, key, fd): &&(_, GuestKey, GuestFd)| truth(*key, *fd) == Some(file);
                holders.iter().find(same).map(|(id, ..)| *id)
            }
            _ => self.books.by_mount(self.mount_of(file)),
        };
        if self.mounts != Mounts::None {
            let remembered = !self.forgotten.contains(&file);
            assert_eq!(found, remembered.then_some(file), "descriptor {fd} means another file");
        }
        if let Some(id) = found {
            self.hold(key, fd, id);
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Open { guest, fd, device } => {
                let id = self.open(device);
                self.guests[guest].table.insert(fd, id);
                self.hold(self.guests[guest].key, fd, id);
            }
            Op::OpenFails { device } => {
                let id = self.open(device);
                self.books.close(id);
                self.forgotten.insert(id);
            }
            Op::Burst { guest, count } => self.burst(guest, count),
            Op::Dup { guest, from, to } => {
                self.used(guest, from);
                let Some(file) = self.guests[guest].table.get(&from).copied() else { return };
                self.guests[guest].table.insert(to, file);
                if let Some(id) = self.known.get(&(self.guests[guest].key, from)).copied() {
                    self.hold(self.guests[guest].key, to, id);
                }
            }
            Op::UnseenDup { from: (guest, from), to: (other, to) } => {
                let file = self.guests[guest].table.get(&from).copied();
                file.into_iter().for_each(|file| {
                    self.guests[other].table.insert(to, file);
                });
            }
            Op::Close { guest, fd } => {
                self.guests[guest].table.remove(&fd);
                self.release(self.guests[guest].key, fd);
            }
            Op::UnseenClose { guest, fd } => {
                self.guests[guest].table.remove(&fd);
            }
            Op::Use { guest, fd } => self.used(guest, fd),
            Op::Fork { guest } => {
                let table = self.guests[guest].table.clone();
                let child = (guest + 1) % self.guests.len();
                self.end(child);
                self.guests[child].table = table;
            }
            Op::Exec { guest } | Op::Exit { guest } => self.end(guest),
        }
    }

    fn check(&self) {
        let books = &self.books;
        for (id, device) in &self.opened {
            let ucontext = books.get(*id);
            assert_eq!(ucontext.is_none(), self.forgotten.contains(id), "{id:?}");
            assert!(ucontext.is_none_or(|ucontext| ucontext.device == *device));
            if self.mounts != Mounts::None {
                let by_mount = books.by_mount(self.mount_of(*id));
                assert_eq!(by_mount, ucontext.map(|_| *id));
            }
        }
        let held: BTreeSet<UcontextId> = self.known.values().copied().collect();
        assert!(books.held().map(|(id, _)| id).eq(held.iter().copied()));
        for device in 0..2 {
            let told = books.holders_of(device).into_iter();
            let told: BTreeSet<_> =
                told.map(|(id, key, fd)| (key, fd.0.cast_unsigned(), id)).collect();
            let known = self.known.iter().filter(|(_, id)| self.opened[id] == device);
            assert_eq!(told, known.map(|((key, fd), id)| (*key, *fd, *id)).collect());
        }
        for guest in &self.guests {
            let told = books.held_by(guest.key, 0..=FDS);
            let known = self.known.keys().filter(|(key, _)| *key == guest.key);
            assert!(told.iter().map(|fd| fd.0.cast_unsigned()).eq(known.map(|(_, fd)| *fd)));
        }
        // Nothing is kept that nobody can ask for.
        let remembered = self.opened.len() - self.forgotten.len();
        let mounts = if self.mounts == Mounts::None { 0 } else { remembered };
        let kept = (books.ucontexts.len(), books.fds.len(), books.by_mount.len());
        assert_eq!(kept, (remembered, self.known.len(), mounts));
        assert!(books.unheld.iter().eq(&self.unheld));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_agree_with_a_reference(
        mounts in prop_oneof![Just(Mounts::None), Just(Mounts::Unique), Just(Mounts::Pinned)],
        ops in prop::collection::vec(op(), 0..60),
    ) {
        let mut world = World::new(mounts);
        for op in ops {
            world.step(op);
            world.check();
        }
    }
}
