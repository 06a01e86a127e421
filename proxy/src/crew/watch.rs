//! The watch: a thread that looks at the threads that serve, and acts on what it sees.

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
use verbgate_sys::process::Process;
use verbgate_sys::seccomp::Notification;

use super::Crew;
use super::Party;
use super::Place;
use super::Seat;
use super::nanoseconds;

/// How often the watch looks at the threads while traps come. One guest can make the others wait for
/// this long, once.
const TICK: Duration = Duration::from_millis(5);
/// How long threads may wait between two looks, all together, before the crew becomes wary of guests.
pub(super) const WAITED: Duration = Duration::from_millis(1);
/// How long the crew stays wary.
const WARY: Duration = Duration::from_secs(1);

/// How long one trap may keep a thread while there are threads enough. A planting, which takes
/// longest, takes a millisecond; on a machine with ten times the work that it can do, seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same when so many threads are kept that others may soon wait for one.
const PATIENCE_OF_MANY: Duration = Duration::from_secs(2);
const MANY: usize = 24;
/// How often it is looked who keeps a thread. A wait is over only after it was seen several times, so
/// that a machine that has stood still ends nobody.
const INTERVAL: Duration = Duration::from_millis(100);
const LOOKS: u32 = 15;

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
    looked: Instant,
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
            looked: Instant::now(),
            wary: None,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            spent: HashMap::new(),
        }
    }
}

impl Seat {
    /// How long the thread has been serving, if it serves.
    fn at_work(&self) -> Option<Duration> {
        self.work.lock().as_ref().map(|work| work.since.elapsed())
    }
}

impl Crew {
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

    /// Looks at the threads: lets other threads receive in the place of those that wait, and ends the
    /// processes that have kept a thread for too long. `who` tells whose a trap is. True: no thread is
    /// free, and one should be started.
    pub(crate) fn watch(
        &self,
        watch: &mut Watch,
        who: impl Fn(&Notification) -> Option<Process>,
    ) -> bool {
        let seats: Vec<_> = self.pool.lock().seats.iter().map(Arc::clone).collect();
        let at_work = |seat: &Arc<Seat>| seat.at_work();
        watch.busy = seats.iter().any(|seat| at_work(seat).is_some());
        let mut waited = watch.waited(&seats);
        let mut guests = 0;
        for seat in &seats {
            guests |= seat.guests.swap(0, Ordering::Relaxed);
            if let Some(time) = at_work(seat).filter(|time| *time > TICK) {
                // What a guest is made to do takes less, unless the guest or the machine makes it long.
                if *seat.place.lock() == Place::Making {
                    waited += time;
                }
                self.replace(seat, Place::Replaced);
            }
        }
        watch.wary = if waited > WAITED {
            Some(Instant::now() + WARY)
        } else {
            watch.wary.filter(|until| *until > Instant::now())
        };
        self.adapt(guests.count_ones(), watch);
        if watch.looked.elapsed() >= INTERVAL {
            watch.looked = Instant::now();
            end_those_who_keep(&seats, who);
        }
        self.is_without_spare()
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
            if matches!(place, Place::Beside | Place::Away | Place::Making) {
                continue;
            }
            let now = seat.at_work().map_or(0, nanoseconds);
            let spent = seat.spent.load(Ordering::Relaxed) + now;
            let ran = process::ran(tid).map_or(0, nanoseconds);
            if let Some((spent_before, ran_before)) = before.remove(&tid) {
                let spent = spent.saturating_sub(spent_before);
                waited += spent.saturating_sub(ran.saturating_sub(ran_before));
            }
            self.spent.insert(tid, (spent, ran));
        }
        Duration::from_nanos(waited)
    }
}

/// Ends the processes that have kept a thread for too long.
fn end_those_who_keep(seats: &[Arc<Seat>], who: impl Fn(&Notification) -> Option<Process>) {
    let is_kept = |seat: &&Arc<Seat>| seat.at_work().is_some_and(|time| time > INTERVAL);
    let kept = seats.iter().filter(is_kept).count();
    let patience = if kept < MANY { PATIENCE } else { PATIENCE_OF_MANY };
    for seat in seats {
        let mut work = seat.work.lock();
        let Some(work) = work.as_mut().filter(|work| work.since.elapsed() > INTERVAL) else {
            continue;
        };
        work.looks = work.looks.saturating_add(1);
        if let Party::Trap(trap) = &work.whose {
            // Kept from now on: who it was is not to be told any more once it has ended.
            let process = who(trap).map(Arc::new);
            work.whose = process.map_or(Party::Gone, Party::Process);
        }
        if work.since.elapsed() > patience
            && work.looks >= LOOKS
            && let Party::Process(process) = &work.whose
            && process.kill().is_ok()
        {
            let tgid = process.tgid();
            log::error!("the supervisor ended process {tgid}, which kept the supervisor waiting");
            // Told once, though the kernel may hold the process for long after SIGKILL.
            work.whose = Party::Gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::super::Work;
    use super::*;

    /// Whether a process is ended that has kept so many threads for so long, and was looked at often.
    fn is_ended(threads: usize, long: Duration) -> bool {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tgid = verbgate_sys::Tgid(child.id().cast_signed());
        let process = Arc::new(Process::open(tgid).unwrap());
        let crew = Crew::default();
        for _ in 0..threads {
            let (whose, looks) = (Party::Process(Arc::clone(&process)), LOOKS);
            let since = Instant::now().checked_sub(long).unwrap();
            *crew.join().unwrap().work.lock() = Some(Work { since, looks, whose });
        }
        let looked = Instant::now().checked_sub(INTERVAL).unwrap();
        crew.watch(&mut Watch { looked, ..Watch::default() }, |_| None);
        // Who has been sent SIGKILL before ends by that.
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        child.wait().unwrap().signal() == Some(libc::SIGKILL)
    }

    #[test]
    fn who_keeps_threads_is_ended_sooner_when_few_are_left() {
        let (soon, late) = (PATIENCE_OF_MANY + INTERVAL, PATIENCE + INTERVAL);
        assert!(!is_ended(MANY - 1, soon) && is_ended(MANY, soon) && is_ended(1, late));
    }

    /// A crew of one thread, which does something for so long, and may have given way before; whether
    /// another receives in its place, and whether others are from now on before one looks at a guest.
    fn after(gives_way: bool, work: fn(Duration), long: Duration) -> (bool, bool) {
        let crew = Crew::default();
        let (seat, _spare) = (crew.join().unwrap(), crew.join().unwrap());
        assert!(crew.ready(&seat));
        crew.received(&seat, None);
        seat.take();
        let process = Process::open(verbgate_sys::Tgid(std::process::id().cast_signed())).unwrap();
        let mut watch = Watch::default();
        crew.watch(&mut watch, |_| None);
        super::super::serving(&Arc::new(process));
        if gives_way {
            crew.of_own(|pool, seat| crew.enter(pool, seat, Place::Away));
        }
        work(long);
        crew.watch(&mut watch, |_| None);
        let replaced = *seat.place.lock() != Place::Active;
        (replaced, crew.wary.load(Ordering::Acquire))
    }

    #[test]
    fn one_that_waits_is_replaced_and_makes_wary() {
        // A thread that was ready to run for as long before its work does not count as waiting, which a
        // busy machine can bring about a few times.
        let waits = |long| (0..20).map(move |_| after(false, std::thread::sleep, long));
        assert!(waits(2 * TICK).any(|seen| seen == (true, true)));
        // Too short to be replaced.
        assert!(waits(2 * WAITED).any(|seen| seen.1));
        // As planting does, which waits for what it has made stop.
        assert_eq!(after(true, std::thread::sleep, 2 * TICK), (true, false));
        // At work all the while: others may be wanted, but nobody is waited for.
        let spins = |long| {
            let begun = Instant::now();
            while begun.elapsed() < long {
                // The kernel counts at switches, and now and then.
                std::thread::yield_now();
            }
        };
        assert_eq!(after(false, spins, 2 * TICK), (true, false));
    }

    #[test]
    fn who_is_told_of_a_trap_finds_somebody_at_work() {
        let crew = Crew::default();
        let seat = crew.join().unwrap();
        assert!(crew.ready(&seat));
        crew.came(&seat, Some(Party::Gone));
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
