//! The crew: the threads that serve a sandbox.
//!
//! Any of these threads receives a trap and carries the trap as far as possible, without handing the
//! trap on. One thread serves as long as no guest makes the thread wait: the next trap then finds the
//! thread running, and a request costs a quarter less than when threads take turns. When
//! several guests make requests at once, as many threads serve, up to the number of processors.
//!
//! But looking at a guest can make a thread wait for as long as the guest likes. So there is always a
//! spare thread, which receives in the place of a thread that is about to wait ([`Crew::begin_making`]),
//! or that the [`watch`] has found waiting. Once a guest has made a thread wait, no thread looks at
//! any guest before another thread receives. The watch takes no lock that is held while somebody waits
//! for a guest, and ends the *process* that has kept a thread for too long.

mod alone;
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

pub(crate) use watch::Watch;

/// How long a spare thread is kept; one spare thread stays.
const REST: Duration = Duration::from_secs(1);
/// Threads at most. So many waits at once are a guest's doing; until the watch ends them, traps wait
/// in the kernel.
const MOST: usize = 128;

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
    /// The thread receives no traps: it looks after guests.
    #[default]
    Beside,
    /// The thread rests, or is about to.
    Free,
    /// The thread receives traps and serves them, by turns.
    Active,
    /// The thread has a guest's threads make calls, and receives their traps itself.
    Making,
    /// The thread serves a trap, and another thread receives in its place.
    Replaced,
    /// The same, but the thread gave way by itself: no guest is to blame if the thread waits.
    Away,
}

#[derive(Debug)]
struct Work {
    since: Instant,
    looks: u32,
    whose: Party,
}

/// Who may be waited for.
#[derive(Debug)]
enum Party {
    /// Whoever makes this call.
    Trap(Notification),
    /// The process.
    Process(Arc<Process>),
    /// Nobody, any more.
    Gone,
}

impl Seat {
    /// The calling thread sits here.
    pub(crate) fn take(self: &Arc<Self>) {
        *self.thread.lock() = Some(own_tid());
        OWN.set(Some(Arc::clone(self)));
    }

    fn work(&self, whose: Option<Party>) {
        let now = Instant::now();
        let work = whose.map(|whose| Work { since: now, looks: 0, whose });
        let before = std::mem::replace(&mut *self.work.lock(), work);
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

/// What the calling thread does from now on may wait for a process.
pub(crate) fn serving(process: &Arc<Process>) {
    OWN.with_borrow(|own| {
        if let Some(seat) = own {
            seat.work(Some(Party::Process(Arc::clone(process))));
            let bit = process.tgid().0.cast_unsigned() % u64::BITS;
            seat.guests.fetch_or(1 << bit, Ordering::Relaxed);
        }
    });
}

fn own_tid() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}

/// The threads.
#[derive(Debug)]
pub(crate) struct Crew {
    pool: Mutex<Pool>,
    /// Threads that are [`Place::Active`] or [`Place::Making`], and [`Place::Free`]; changed with the
    /// pool locked.
    active: AtomicUsize,
    free: AtomicUsize,
    /// How many threads should be active.
    width: AtomicUsize,
    /// Active threads that wait for a trap now.
    receiving: AtomicUsize,
    /// A guest has made a thread wait: another thread receives before one looks at a guest.
    wary: AtomicBool,
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
    /// Traps that their receiver does not serve.
    handed: VecDeque<Notification>,
    over: bool,
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

    /// A place for a thread that looks after guests.
    pub(crate) fn join_beside(&self) -> Arc<Seat> {
        let seat = Arc::new(Seat::default());
        self.pool.lock().seats.push(Arc::clone(&seat));
        seat
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
            Place::Active | Place::Making => Some(&self.active),
            Place::Beside | Place::Replaced | Place::Away => None,
        };
        // In this order: who misses a free thread for an instant looks again with the pool locked.
        if let Some(fewer) = count(was) {
            fewer.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(more) = count(place) {
            more.fetch_add(1, Ordering::AcqRel);
        }
        let is_active = |place| matches!(place, Place::Active | Place::Making);
        if is_active(was) && !is_active(place) {
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
            seat.wake.wait_for(&mut pool, REST);
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

    /// A thread has received a trap, which the thread serves from now on; or none.
    pub(crate) fn received(&self, seat: &Seat, trap: Option<Notification>) {
        self.came(seat, trap.map(Party::Trap));
    }

    fn came(&self, seat: &Seat, work: Option<Party>) {
        // First, because the watch is told below: the watch would find nobody at work and go to sleep,
        // and a guest could make this thread wait for ever.
        if work.is_some() {
            seat.work(work);
        }
        let was_alone = self.receiving.fetch_sub(1, Ordering::AcqRel) == 1;
        if was_alone && self.wary.load(Ordering::Acquire) {
            self.replace(seat, Place::Replaced);
        }
        self.doze.disturb();
    }

    /// Whether nobody is left to receive in the place of a thread that waits.
    pub(crate) fn is_without_spare(&self) -> bool {
        self.free.load(Ordering::Acquire) == 0
    }

    /// Another receives in the place of a thread.
    fn replace(&self, seat: &Seat, place: Place) {
        let mut pool = self.pool.lock();
        let was = *seat.place.lock();
        if matches!(was, Place::Active | Place::Making | Place::Replaced) {
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
