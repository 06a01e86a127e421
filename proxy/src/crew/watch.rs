//! The watch: a thread that looks at the threads that serve, and lets others receive in the place of those that wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Condvar;
use parking_lot::Mutex;
use verbgate_sys::Tid;
use verbgate_sys::process;
use verbgate_sys::seccomp::Notification;
use verbgate_sys::share::Room;
use verbgate_sys::share::Who;

use super::Crew;
use super::Place;
use super::Seat;
use super::nanoseconds;

/// How often the watch looks at the threads while traps come. One guest can make the others wait for
/// this long, once.
const TICK: Duration = Duration::from_millis(5);
/// How long threads may wait between two looks, all together, before the crew becomes wary of guests.
pub(super) const WAITED: Duration = Duration::from_millis(1);
/// How long a call keeps a thread that counts as one of its process's.
const LONG: Duration = Duration::from_millis(50);
/// How long the crew stays wary.
const WARY: Duration = Duration::from_secs(1);

/// The watch's sleep while nothing is asked.
#[derive(Debug, Default)]
pub(super) struct Doze {
    asleep: AtomicBool,
    /// Traps that were received.
    traps: AtomicU64,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Doze {
    /// A trap has come.
    pub(super) fn disturb(&self) {
        // Either this sees that the watch sleeps, or the watch sees this before it does.
        self.traps.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            let _lock = self.lock.lock();
            self.wake.notify_one();
        }
    }

    /// Sleeps until another trap than these comes.
    fn sleep(&self, seen: u64) {
        let mut lock = self.lock.lock();
        self.asleep.store(true, Ordering::SeqCst);
        while self.traps.load(Ordering::SeqCst) == seen {
            self.wake.wait(&mut lock);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

/// What the watch remembers between its looks.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Traps that had come.
    seen: u64,
    /// Somebody is serving.
    busy: bool,
    /// Until when the crew is wary.
    wary: Option<Instant>,
    processors: usize,
    /// For each thread, the time spent on traps and the time not spent waiting, in nanoseconds.
    spent: HashMap<Tid, (u64, u64)>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            seen: 0,
            busy: false,
            wary: None,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            spent: HashMap::new(),
        }
    }
}

impl Seat {
    /// How long the thread has been serving, if it serves.
    fn at_work(&self) -> Option<Duration> {
        self.work.lock().map(|work| work.since.elapsed())
    }
}

impl Crew {
    /// How many traps have come.
    pub(crate) fn traps(&self) -> u64 {
        self.doze.traps.load(Ordering::Relaxed)
    }

    /// Whether no trap has come since the last look, and none is served.
    pub(crate) fn is_quiet(&self, watch: &Watch) -> bool {
        self.traps() == watch.seen && !watch.busy
    }

    /// Waits until there is something to be watched.
    pub(crate) fn doze(&self, watch: &mut Watch) {
        let seen = self.doze.traps.load(Ordering::SeqCst);
        if watch.busy || seen != watch.seen || watch.wary.is_some() {
            std::thread::sleep(TICK);
        } else {
            self.doze.sleep(seen);
        }
        watch.seen = seen;
    }

    /// Looks at the threads, and lets other threads receive in the place of those that wait. `who` tells whose a trap is.
    /// True: no thread is free, and one should be started.
    pub(crate) fn watch(
        &self,
        watch: &mut Watch,
        who: impl Fn(&Notification) -> Option<Who>,
    ) -> bool {
        let seats: Vec<_> = self.pool.lock().seats.iter().map(Arc::clone).collect();
        let has_aside = self.try_again();
        watch.busy = has_aside || seats.iter().any(|seat| seat.at_work().is_some());
        let waited = watch.waited(&seats);
        let mut guests = 0;
        let mut stuck = Vec::new();
        for seat in &seats {
            guests |= seat.guests.swap(0, Ordering::Relaxed);
            let Some(time) = seat.at_work().filter(|time| *time > TICK) else { continue };
            self.replace(seat, Place::Replaced);
            if time > LONG
                && let Some(work) = seat.work.lock().as_mut()
            {
                // Told once: when the caller has ended, nobody can tell any more.
                work.whose = work.whose.or_else(|| who(work.trap.as_ref()?));
                stuck.extend(work.whose);
            }
        }
        self.has_stuck.store(!stuck.is_empty(), Ordering::Release);
        self.pool.lock().stuck = stuck;
        watch.wary = if waited > WAITED {
            Some(Instant::now() + WARY)
        } else {
            watch.wary.filter(|until| *until > Instant::now())
        };
        self.adapt(guests.count_ones(), watch);
        self.is_without_spare()
    }

    /// Hands over those that were put aside and have room by now. Whether some are left.
    fn try_again(&self) -> bool {
        let mut pool = self.pool.lock();
        if pool.aside.is_empty() {
            return false;
        }
        let mut room = Room::now();
        pool.stuck.iter().for_each(|who| room.add(*who));
        let again: Vec<_> = pool.aside.extract_if(.., |(who, _)| room.take(*who)).collect();
        pool.handed.extend(again.into_iter().map(|(_, trap)| Some(trap)));
        self.wake(&mut pool);
        !pool.aside.is_empty()
    }

    /// As many receive as guests have asked, and no more than can run.
    fn adapt(&self, guests: u32, watch: &Watch) {
        let guests = usize::try_from(guests).unwrap_or(1).clamp(1, watch.processors.max(1));
        let width = if watch.wary.is_some() { guests.max(2) } else { guests };
        self.wary.store(watch.wary.is_some(), Ordering::Release);
        if self.width.swap(width, Ordering::AcqRel) < width {
            // Who rests looks whether to go on with this locked.
            self.wake(&mut self.pool.lock());
        }
    }
}

impl Watch {
    /// How long threads have waited since the last look while they served, all together. A thread that
    /// is ready to run does not wait, however busy the machine is.
    fn waited(&mut self, seats: &[Arc<Seat>]) -> Duration {
        let mut before = std::mem::take(&mut self.spent);
        let mut waited = 0;
        for seat in seats {
            let place = *seat.place.lock();
            let Some(tid) = *seat.thread.lock() else { continue };
            if place == Place::Beside {
                continue;
            }
            let now = seat.at_work().map_or(0, nanoseconds);
            let spent = seat.spent.load(Ordering::Relaxed) + now;
            let last = before.remove(&tid);
            // One that rests, and has served nobody since, has not waited.
            if let Some(last) =
                last.filter(|(spent_before, _)| place == Place::Free && *spent_before == spent)
            {
                self.spent.insert(tid, last);
                continue;
            }
            let ran = process::ran(tid).map_or(0, nanoseconds);
            if let Some((spent_before, ran_before)) = last {
                let spent = spent.saturating_sub(spent_before);
                waited += spent.saturating_sub(ran.saturating_sub(ran_before));
            }
            self.spent.insert(tid, (spent, ran));
        }
        Duration::from_nanos(waited)
    }
}

#[cfg(test)]
mod tests {
    use verbgate_sys::process::Process;

    use super::*;

    /// A crew of one thread, which does something for so long; whether another receives in its place, and whether
    /// others do from now on before one looks at a guest.
    fn after(work: fn(Duration), long: Duration) -> (bool, bool) {
        let crew = Crew::default();
        let (seat, _spare) = (crew.join().unwrap(), crew.join().unwrap());
        assert!(crew.ready(&seat));
        crew.received(&seat, None);
        seat.take();
        let process = Process::open(verbgate_sys::Tgid(std::process::id().cast_signed())).unwrap();
        let mut watch = Watch::default();
        crew.watch(&mut watch, |_| None);
        super::super::serving(&process);
        work(long);
        crew.watch(&mut watch, |_| None);
        let replaced = *seat.place.lock() != Place::Active;
        (replaced, crew.wary.load(Ordering::Acquire))
    }

    #[test]
    fn one_that_waits_is_replaced_and_makes_wary() {
        // A thread that was ready to run for as long before its work does not count as waiting, which a
        // busy machine can bring about a few times.
        let waits = |long| (0..20).map(move |_| after(std::thread::sleep, long));
        assert!(waits(2 * TICK).any(|seen| seen == (true, true)));
        // Too short to be replaced.
        assert!(waits(2 * WAITED).any(|seen| seen.1));
        // At work all the while: others may be wanted, but nobody is waited for.
        let spins = |long| {
            let begun = Instant::now();
            while begun.elapsed() < long {
                // The kernel counts at switches, and now and then.
                std::thread::yield_now();
            }
        };
        assert_eq!(after(spins, 2 * TICK), (true, false));
    }

    #[test]
    fn who_is_told_of_a_trap_finds_somebody_at_work() {
        let crew = Crew::default();
        let seat = crew.join().unwrap();
        assert!(crew.ready(&seat));
        crew.received(&seat, Some(None));
        let mut watch = Watch::default();
        crew.watch(&mut watch, |_| None);
        assert!(watch.busy, "the watch would sleep");
    }

    #[test]
    fn as_many_receive_as_guests_ask() {
        let crew = Crew::default();
        let seats = [crew.join().unwrap(), crew.join().unwrap(), crew.join().unwrap()];
        let mut watch = Watch { processors: 2, ..Watch::default() };
        seats[0].guests.store(0b1011, Ordering::Relaxed);
        crew.watch(&mut watch, |_| None);
        assert!(crew.ready(&seats[0]) && crew.ready(&seats[1]));
        assert_eq!(crew.active.load(Ordering::Acquire), 2, "no more than processors");
        crew.watch(&mut watch, |_| None);
        assert_eq!(crew.width.load(Ordering::Acquire), 1);
    }

    #[test]
    fn the_watch_sleeps_while_nothing_is_asked() {
        let crew = Arc::new(Crew::default());
        let sleeps = std::thread::spawn({
            let crew = Arc::clone(&crew);
            move || crew.doze(&mut Watch::default())
        });
        while !crew.doze.asleep.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(!sleeps.is_finished());
        crew.doze.disturb();
        sleeps.join().unwrap();
    }
}
