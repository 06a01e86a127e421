//! The books: the opens of a sandbox, the descriptors that are known to mean them, and the number
//! of objects in each.
//!
//! The key of every table is a number that is never given again ([`UcontextId`], [`GuestKey`]), or
//! a mount's number, kept beside the thing that pins the number.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use verbgate_abi::request::Request;
use verbgate_abi::table::Access;
use verbgate_abi::table::ObjectRef;
use verbgate_sys::GuestFd;
use verbgate_sys::node::MountId;
use verbgate_sys::node::Pin;
use verbgate_sys::token::End;

use crate::account::Account;
use crate::cm::account::CmAccount;
use crate::connections::Connections;
use crate::ledger::Ledger;

/// Names a ucontext; never given again within a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UcontextId(pub u64);

/// Names a guest; never given again within a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GuestKey(pub(crate) u64);

/// One open of a device by a guest.
#[derive(Debug)]
pub struct Ucontext {
    /// The device, as an index into the granted ones.
    pub device: usize,
    /// The mount that it was opened through, by which it is known wherever it is passed.
    pub mount: Option<(MountId, Pin)>,
    /// The open file: where guests have no more than a token; and without a mount, until the guest has
    /// a descriptor of a known number.
    pub(crate) kept: Option<Arc<File>>,
    /// Descriptors known to mean it. When none is left, the kernel has freed it or is about to,
    /// unless the guest has made another in a way that nobody sees.
    pub(crate) holders: Vec<(GuestKey, GuestFd)>,
    /// Whether the kernel was asked to make it: a program opens the device before.
    pub asked: bool,
    /// Requests of stubs on it that are in the kernel.
    pub(crate) at_work: u32,
    /// How many objects of each kind live in it, as results tell: made, less destroyed.
    pub live: Live,
    /// Whom its queue pairs speak with.
    pub(crate) connections: Connections,
    /// What it holds of its tenant's quotas.
    pub(crate) account: Account,
    /// The same of an open of the connection manager.
    pub(crate) cm: Arc<Mutex<CmAccount>>,
    /// Its end is told of, though nobody keeps its file.
    pub(crate) ends: Option<End>,
}

impl Ucontext {
    /// Enters what a request on it brought about.
    pub fn enter(&mut self, request: &Request, result: i64) {
        track(&mut self.live, request, result);
        // Whatever became of it: there may be one though its answer did not fit.
        self.asked |= request.makes_ucontext();
    }

    /// Whether one of a guest's descriptors is known to mean it.
    pub(crate) fn is_held_by(&self, guest: GuestKey) -> bool {
        self.holders.iter().any(|(key, _)| *key == guest)
    }
}

/// Enters what a request brought about into the books of its ucontext: what the result says of a
/// request that the supervisor has decoded itself.
pub fn track(live: &mut Live, request: &Request, result: i64) {
    if result < 0 {
        return;
    }
    for new in request.new_handles() {
        live.made(new.object);
    }
    for used in request.handles().filter(|used| used.access == Access::Destroy) {
        live.destroyed(used.object);
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
    /// What opens are charged to.
    ledger: Arc<Ledger>,
}

impl Books {
    /// Books whose opens are charged to a ledger.
    pub(crate) fn with(ledger: Arc<Ledger>) -> Self {
        Self { ledger, ..Self::default() }
    }

    /// Enters an open that has just been made.
    pub fn open(&mut self, device: usize, mount: Option<(MountId, Pin)>) -> UcontextId {
        self.made += 1;
        let id = UcontextId(self.made);
        self.by_mount.extend(mount.as_ref().map(|(mount, _)| (*mount, id)));
        let new = Ucontext {
            device,
            mount,
            kept: None,
            holders: Vec::new(),
            asked: false,
            at_work: 0,
            live: Live::default(),
            connections: Connections::default(),
            account: Account::new(&self.ledger),
            cm: Arc::new(Mutex::new(CmAccount::new(&self.ledger))),
            ends: None,
        };
        self.ucontexts.insert(id, new);
        id
    }

    /// The end of an open will be told of, when nobody has its file any more.
    pub(crate) fn ends_with(&mut self, id: UcontextId, end: End) {
        if let Some(ucontext) = self.ucontexts.get_mut(&id) {
            ucontext.ends = Some(end);
            self.by_end.insert(end, id);
        }
    }

    /// From now on guests hold no more of an open than a token.
    pub(crate) fn keep(&mut self, id: UcontextId, file: Arc<File>, end: End) {
        if let Some(ucontext) = self.ucontexts.get_mut(&id) {
            ucontext.kept = Some(file);
        }
        self.ends_with(id, end);
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
            (Some(file), Some((mount, _))) => Known::Token(*mount, Arc::clone(file)),
            _ => Known::File,
        })
    }

    /// Takes an open back of which the guest was never told, or that is gone.
    pub fn close(&mut self, id: UcontextId) -> Option<Ucontext> {
        let gone = self.ucontexts.remove(&id)?;
        // Before Linux 6.8, another open may have the number of a mount whose end was not told of yet.
        if let Some((mount, _)) = &gone.mount
            && self.by_mount(*mount) == Some(id)
        {
            self.by_mount.remove(mount);
        }
        if let Some(end) = gone.ends {
            self.by_end.remove(&end);
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

    /// The opens of a device that are being given to guests, where these have no mounts of their own.
    pub(crate) fn given_of(&self, device: usize) -> Vec<(UcontextId, Arc<File>)> {
        let of_device = self.ucontexts.iter().filter(|(_, ucontext)| ucontext.device == device);
        let given = of_device.filter(|(_, ucontext)| ucontext.mount.is_none());
        given
            .filter_map(|(id, ucontext)| Some((*id, Arc::clone(ucontext.kept.as_ref()?))))
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
            if ucontext.mount.is_none() {
                ucontext.kept = None;
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
        // Of some, the end is told of.
        if !ucontext.holders.is_empty() || ucontext.ends.is_some() {
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
    fn an_open_without_a_mount_is_known_by_its_file_until_a_number_means_it() {
        let mut books = Books::default();
        let file = Arc::new(File::open("/dev/null").unwrap());
        let id = books.open(3, None);
        books.get_mut(id).unwrap().kept = Some(Arc::clone(&file));
        assert!(matches!(&*books.given_of(3), [(of, _)] if *of == id));
        assert!(books.given_of(0).is_empty());
        books.hold(ME, GuestFd(960), id);
        assert!(books.given_of(3).is_empty());
        assert_eq!((books.holders_of(3).len(), Arc::strong_count(&file)), (1, 1));
    }

    #[test]
    fn an_open_keeps_its_mount_number_though_the_number_was_anothers_that_ends_later() {
        let mut books = Books::default();
        let open = |books: &mut Books, end| {
            let id = books.open(0, Some((MountId::from(5), Pin::new(None))));
            books.ends_with(id, End::from(end));
            id
        };
        let (_, later) = (open(&mut books, 1), open(&mut books, 2));
        drop(books.ended(End::from(1)).unwrap());
        assert_eq!(books.by_mount(MountId::from(5)), Some(later));
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
