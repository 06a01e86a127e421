//! The crew: the threads that serve a sandbox.
//!
//! Any of these threads receives a trap and carries the trap as far as possible, without handing the
//! trap on. One thread serves as long as no guest makes the thread wait: the next trap then finds the
//! thread running, and a request costs a quarter less than when threads take turns. When
//! several guests make requests at once, as many threads serve, up to the number of processors.
//!
//! But looking at a guest can make a thread wait for as long as the guest likes. So there is always a
//! spare thread, which receives in the place of a thread that the [`watch`] has found waiting. Once a guest has made a
//! thread wait, no thread looks at any guest before another thread receives. The watch takes no lock that is held while
//! somebody waits for a guest. Nobody is ended for being late: who makes threads wait has a share of them
//! ([`verbgate_sys::share`]).

mod watch;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Condvar;
use parking_lot::Mutex;
use verbgate_sys::Tid;
use verbgate_sys::process::Process;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::share::Who;

pub(crate) use watch::Watch;

/// How long a spare thread is kept; one spare thread stays.
const REST: Duration = Duration::from_secs(1);
/// Threads at most. So many waits at once are a guest's doing; until the watch ends them, traps wait
/// in the kernel.
const MOST: usize = 128;
/// Threads that one process may keep waiting.
const STUCK: usize = 2;
/// Calls that are put aside at most, of one process, of one user, and of all. The kernel walks along all that wait whenever
/// it is told of one.
const ASIDE_OF_PROCESS: usize = 256;
const ASIDE_OF_USER: usize = 512;
const ASIDE: usize = 4096;
/// Calls that were put aside of which one look finds out whether they have ended.
const LOOKED_AT: usize = 128;

/// One thread, and what it is doing.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    work: Mutex<Option<Work>>,
    /// The thread, once it has sat down.
    thread: Mutex<Option<Tid>>,
    place: Mutex<Place>,
    /// Wakes the thread when it rests; with the pool locked.
    wake: Condvar,
    /// Nanoseconds that the thread has spent on traps that are done with.
    spent: AtomicU64,
    /// The guests that the thread has served since the last look: a bit for each; some guests share one.
    guests: AtomicU64,
}

/// What a thread is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    /// The thread has not begun, or ends.
    #[default]
    Beside,
    /// The thread rests, or is about to.
    Free,
    /// The thread receives traps and serves them, by turns.
    Active,
    /// The thread serves a trap, and another thread receives in its place.
    Replaced,
}

/// The work of a thread.
#[derive(Clone, Copy, Debug)]
struct Work {
    since: Instant,
    /// None where the thread works an inbox off.
    trap: Option<Notification>,
    /// The owner of the trap, once the work has lasted.
    whose: Option<Who>,
}

impl Seat {
    /// The calling thread sits here.
    pub(crate) fn take(self: &Arc<Self>) {
        *self.thread.lock() = Some(own_tid());
        OWN.set(Some(Arc::clone(self)));
    }

    fn work(&self, next: Option<Option<Notification>>) {
        let now = Instant::now();
        let next = next.map(|trap| Work { since: now, trap, whose: None });
        let before = std::mem::replace(&mut *self.work.lock(), next);
        if let Some(Work { since, .. }) = before {
            self.spent.fetch_add(nanoseconds(now - since), Ordering::Relaxed);
        }
    }

    /// It is done with.
    pub(crate) fn end(&self) {
        self.work(None);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

thread_local! {
    static OWN: RefCell<Option<Arc<Seat>>> = const { RefCell::new(None) };
}

/// The calling thread serves a process from now on.
pub(crate) fn serving(process: &Process) {
    OWN.with_borrow(|own| {
        if let Some(seat) = own {
            let trap = seat.work.lock().and_then(|work| work.trap);
            seat.work(Some(trap));
            let bit = process.tgid().0.cast_unsigned() % u64::BITS;
            seat.guests.fetch_or(1 << bit, Ordering::Relaxed);
        }
    });
}

/// The calling thread works for the caller of a trap from now on.
pub(crate) fn serving_caller(trap: Notification) {
    OWN.with_borrow(|own| own.iter().for_each(|seat| seat.work(Some(Some(trap)))));
}

fn own_tid() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}

/// The threads.
#[derive(Debug)]
pub(crate) struct Crew {
    pool: Mutex<Pool>,
    /// Threads that are [`Place::Active`], and [`Place::Free`]; changed with the pool locked.
    active: AtomicUsize,
    free: AtomicUsize,
    /// How many threads should be active.
    width: AtomicUsize,
    /// Active threads that wait for a trap now.
    receiving: AtomicUsize,
    /// A guest has made a thread wait: another thread receives before one looks at a guest.
    wary: AtomicBool,
    has_stuck: AtomicBool,
    doze: watch::Doze,
}

#[derive(Debug, Default)]
struct Pool {
    seats: Vec<Arc<Seat>>,
    /// Those that rest and that nobody has woken, the latest last. That one is woken first: its stack and its caches
    /// are at hand, and those that are not needed get their rest, and end. By turns, all would be kept as long as
    /// there is work for one.
    resting: Vec<Arc<Seat>>,
    /// How many have been woken, and have not looked yet whether they are needed.
    woken: usize,
    /// Traps for threads that did not receive them; `None` stands for what is in a guest's inbox.
    handed: VecDeque<Option<Notification>>,
    over: bool,
    /// Calls whose guests have used up their shares of waits.
    aside: Vec<(Who, Notification)>,
    /// The place in `aside` of the call that was looked at last.
    looked: usize,
    /// Owners of calls that have kept threads for long.
    stuck: Vec<Who>,
}

impl Default for Crew {
    fn default() -> Self {
        Self {
            pool: Mutex::default(),
            active: AtomicUsize::new(0),
            free: AtomicUsize::new(0),
            width: AtomicUsize::new(1),
            receiving: AtomicUsize::new(0),
            wary: AtomicBool::new(false),
            has_stuck: AtomicBool::new(false),
            doze: watch::Doze::default(),
        }
    }
}

impl Crew {
    /// A place for a new thread that serves; `None` when there are as many as there may be.
    pub(crate) fn join(&self) -> Option<Arc<Seat>> {
        self.sit(&mut self.pool.lock())
    }

    /// The same, unless a thread is free.
    pub(crate) fn join_if_short(&self) -> Option<Arc<Seat>> {
        let mut pool = self.pool.lock();
        if self.free.load(Ordering::Relaxed) > 0 { None } else { self.sit(&mut pool) }
    }

    fn sit(&self, pool: &mut Pool) -> Option<Arc<Seat>> {
        if pool.seats.len() >= MOST {
            return None;
        }
        let seat = Arc::new(Seat::default());
        pool.seats.push(Arc::clone(&seat));
        self.enter(pool, &seat, Place::Free);
        Some(seat)
    }

    /// A thread ends.
    pub(crate) fn leave(&self, seat: &Arc<Seat>) {
        let mut pool = self.pool.lock();
        self.enter(&mut pool, seat, Place::Beside);
        pool.seats.retain(|one| !Arc::ptr_eq(one, seat));
    }

    /// Changes what a thread is there for.
    fn enter(&self, pool: &mut Pool, seat: &Seat, place: Place) {
        let was = std::mem::replace(&mut *seat.place.lock(), place);
        let count = |place: Place| match place {
            Place::Free => Some(&self.free),
            Place::Active => Some(&self.active),
            Place::Beside | Place::Replaced => None,
        };
        // In this order: who misses a free thread for an instant looks again with the pool locked.
        if let Some(fewer) = count(was) {
            fewer.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(more) = count(place) {
            more.fetch_add(1, Ordering::AcqRel);
        }
        if was == Place::Active && place != Place::Active {
            self.wake(pool);
        }
    }

    /// How many of those that rest should go on.
    fn needed(&self, pool: &Pool) -> usize {
        let missing = self.width.load(Ordering::Acquire);
        let missing = missing.saturating_sub(self.active.load(Ordering::Acquire));
        if pool.over { MOST } else { missing.max(pool.handed.len()) }
    }

    /// Wakes threads that rest until so many are on their way.
    fn wake(&self, pool: &mut Pool) {
        while pool.woken < self.needed(pool)
            && let Some(seat) = pool.resting.pop()
        {
            pool.woken += 1;
            seat.wake.notify_one();
        }
    }

    /// A thread is about to receive, and rests first if enough threads are active. False: the thread
    /// was not needed for a while, or nobody is left to serve, and the thread ends.
    pub(crate) fn ready(&self, seat: &Arc<Seat>) -> bool {
        let is_active = || *seat.place.lock() == Place::Active;
        let crowded = self.active.load(Ordering::Acquire) > self.width.load(Ordering::Acquire);
        if !crowded && is_active() || self.rest(seat) {
            self.receiving.fetch_add(1, Ordering::AcqRel);
            return true;
        }
        false
    }

    /// Waits until a thread is needed.
    fn rest(&self, seat: &Arc<Seat>) -> bool {
        let mut pool = self.pool.lock();
        self.enter(&mut pool, seat, Place::Free);
        while !pool.over {
            if self.needed(&pool) > 0 {
                self.enter(&mut pool, seat, Place::Active);
                return true;
            }
            pool.resting.push(Arc::clone(seat));
            if self.free.load(Ordering::Acquire) > 1 {
                seat.wake.wait_for(&mut pool, REST);
            } else {
                seat.wake.wait(&mut pool);
            }
            let resting = pool.resting.len();
            pool.resting.retain(|one| !Arc::ptr_eq(one, seat));
            if pool.resting.len() == resting {
                pool.woken -= 1;
            } else if self.free.load(Ordering::Acquire) > 1 {
                self.enter(&mut pool, seat, Place::Replaced);
                self.wake(&mut pool);
                return false;
            }
        }
        false
    }

    /// A thread has received something, which the thread serves from now on: a trap, or else what is in an inbox. `None`:
    /// nothing.
    pub(crate) fn received(&self, seat: &Seat, something: Option<Option<Notification>>) {
        // First, because the watch is told below: the watch would find nobody at work and go to sleep,
        // and a guest could make this thread wait for ever.
        if something.is_some() {
            seat.work(something);
        }
        let was_alone = self.receiving.fetch_sub(1, Ordering::AcqRel) == 1;
        if was_alone && self.wary.load(Ordering::Acquire) {
            self.replace(seat, Place::Replaced);
        }
        self.doze.disturb();
    }

    /// Another thread serves this trap; or, without one, looks into the inboxes of guests.
    pub(crate) fn hand_over(&self, trap: Option<Notification>) {
        let mut pool = self.pool.lock();
        pool.handed.push_back(trap);
        self.wake(&mut pool);
        drop(pool);
        // The watch has one more thread started where nobody rests.
        self.doze.disturb();
    }

    /// Tries a call again when there is room for a wait of whose it is. False: the call can fail, and too many wait.
    pub(crate) fn put_aside(&self, who: Who, trap: Notification, can_fail: bool) -> bool {
        let mut pool = self.pool.lock();
        let of = |is: &dyn Fn(&Who) -> bool| pool.aside.iter().filter(|(one, _)| is(one)).count();
        let is_full = || {
            pool.aside.len() >= ASIDE
                || of(&|one| one.is(&who)) >= ASIDE_OF_PROCESS
                || of(&|one| one.is_of_user_of(&who)) >= ASIDE_OF_USER
        };
        if can_fail && is_full() {
            return false;
        }
        pool.aside.push((who, trap));
        drop(pool);
        self.doze.disturb();
        true
    }

    /// The owner of a call, as `who` tells, if its process keeps as many threads as it may, by looks that no helper makes
    /// for them.
    pub(crate) fn beyond(&self, who: impl FnOnce() -> Option<Who>) -> Option<Who> {
        if !self.has_stuck.load(Ordering::Acquire) {
            return None;
        }
        let who = who()?;
        let pool = self.pool.lock();
        (pool.stuck.iter().filter(|one| one.is(&who)).count() >= STUCK).then_some(who)
    }

    /// Forgets calls that were put aside and have ended: looks at a few, and at others the next time, because the kernel
    /// seeks each call along all that wait.
    pub(crate) fn forget_aside(&self, has_ended: impl Fn(&Notification) -> bool) {
        let mut pool = self.pool.lock();
        for _ in 0..LOOKED_AT.min(pool.aside.len()) {
            let last = pool.aside.len().saturating_sub(1);
            let at = pool.looked.checked_sub(1).map_or(last, |before| before.min(last));
            pool.looked = at;
            if pool.aside.get(at).is_some_and(|(_, trap)| has_ended(trap)) {
                pool.aside.remove(at);
            }
        }
    }

    /// Takes what was handed over.
    pub(crate) fn handed(&self) -> Option<Option<Notification>> {
        self.pool.lock().handed.pop_front()
    }

    /// Whether nobody is left to receive in the place of a thread that waits.
    pub(crate) fn is_without_spare(&self) -> bool {
        self.free.load(Ordering::Acquire) == 0
    }

    /// Another receives in the place of a thread.
    fn replace(&self, seat: &Seat, place: Place) {
        let mut pool = self.pool.lock();
        let was = *seat.place.lock();
        if matches!(was, Place::Active | Place::Replaced) {
            self.enter(&mut pool, seat, place);
        }
    }

    /// Nobody is left to serve: those that rest end.
    pub(crate) fn dismiss(&self) {
        let mut pool = self.pool.lock();
        pool.over = true;
        self.wake(&mut pool);
        drop(pool);
        self.doze.disturb();
    }

    /// The threads, but the calling one.
    pub(crate) fn others(&self) -> Vec<Tid> {
        let me = own_tid();
        let pool = self.pool.lock();
        let threads = pool.seats.iter().filter_map(|seat| *seat.thread.lock());
        threads.filter(|tid| *tid != me).collect()
    }
}

#[cfg(test)]
mod tests;
