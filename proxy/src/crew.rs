//! The crew: the threads that serve a sandbox.
//!
//! Any of these threads receives a trap and carries the trap as far as possible, without handing
//! the trap on. Looking at a guest can make a thread wait for as long as the guest likes; so there
//! is always another thread that receives. The watch makes sure that the waiting ends: the watch
//! takes no lock that is held while somebody waits for a guest, and ends the *process* that has
//! kept a thread for too long.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Condvar;
use parking_lot::Mutex;
use verbgate_sys::Tid;
use verbgate_sys::process::Process;
use verbgate_sys::seccomp::Notification;

/// Threads that stay ready to receive; one more than what is needed on a quiet machine, so that
/// nobody is woken for a trap that comes while another is being served.
const READY: usize = 2;
/// How long a thread that is not needed is kept.
const REST: Duration = Duration::from_secs(1);
/// Threads at most. So many waits at once are a guest's doing; until the watch ends them, traps wait
/// in the kernel.
const MOST: usize = 128;
/// How long one trap may keep a thread while there are threads enough. A planting, which takes
/// longest, takes a millisecond; on a machine with ten times the work that it can do, seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same when so many threads are kept that others may soon wait for one.
const PATIENCE_OF_MANY: Duration = Duration::from_secs(2);
const MANY: usize = 24;
/// How often it is looked. A wait is over only after it was seen several times, so that a machine
/// that has stood still ends nobody.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
const LOOKS: u32 = 15;

/// One thread, and what it is doing.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    work: Mutex<Option<Work>>,
    /// The thread, once it has sat down.
    thread: Mutex<Option<Tid>>,
}

#[derive(Debug)]
struct Work {
    since: Instant,
    looks: u32,
    whose: Whose,
}

/// Who may be waited for.
#[derive(Debug)]
enum Whose {
    /// Whoever makes this call.
    Trap(Notification),
    /// The process.
    Process(Arc<Process>),
    /// Nobody, any more.
    Gone,
}

impl Seat {
    /// A trap is being served.
    pub(crate) fn begin(&self, trap: Notification) {
        self.work(Whose::Trap(trap));
    }

    /// The calling thread sits here.
    pub(crate) fn take(self: &Arc<Self>) {
        *self.thread.lock() = Some(own_tid());
        OWN.set(Some(Arc::clone(self)));
    }

    fn work(&self, whose: Whose) {
        *self.work.lock() = Some(Work { since: Instant::now(), looks: 0, whose });
    }

    /// What it does has taken longer than most things take.
    fn is_kept(&self) -> bool {
        self.work.lock().as_ref().is_some_and(|work| work.since.elapsed() > INTERVAL)
    }

    /// It is done with.
    pub(crate) fn end(&self) {
        *self.work.lock() = None;
    }
}

thread_local! {
    static OWN: RefCell<Option<Arc<Seat>>> = const { RefCell::new(None) };
}

/// What the calling thread does from now on may wait for a process.
pub(crate) fn serving(process: &Arc<Process>) {
    OWN.with_borrow(|own| {
        if let Some(seat) = own {
            seat.work(Whose::Process(Arc::clone(process)));
        }
    });
}

fn own_tid() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}

/// The threads.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    seats: Mutex<Vec<Arc<Seat>>>,
    receiving: AtomicUsize,
    resting: Mutex<Resting>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Resting {
    threads: usize,
    /// Those that were told to go on.
    called: usize,
    over: bool,
}

/// What becomes of a thread that has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relief {
    /// Others receive meanwhile.
    There,
    /// Nobody does: start another.
    Wanted,
}

impl Crew {
    /// A place for a new thread; `None` when there are as many as there may be.
    pub(crate) fn join(&self) -> Option<Arc<Seat>> {
        let mut seats = self.seats.lock();
        if seats.len() >= MOST {
            return None;
        }
        let seat = Arc::new(Seat::default());
        seats.push(Arc::clone(&seat));
        Some(seat)
    }

    /// A thread ends.
    pub(crate) fn leave(&self, seat: &Arc<Seat>) {
        self.seats.lock().retain(|one| !Arc::ptr_eq(one, seat));
    }

    /// A thread is about to receive; it rests first if enough do. False: nobody has called for it, and
    /// it ends; or it is over.
    pub(crate) fn ready(&self) -> bool {
        // Never counted while it does not receive, for however short a time: the last who does would
        // take it for a relief.
        let one_more = |receiving| (receiving < READY).then_some(receiving + 1);
        if self.receiving.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok() {
            return true;
        }
        let mut resting = self.resting.lock();
        resting.threads += 1;
        while resting.called == 0 && !resting.over {
            if self.wake.wait_for(&mut resting, REST).timed_out() {
                break;
            }
        }
        resting.threads -= 1;
        if resting.called == 0 {
            return false;
        }
        resting.called -= 1;
        self.receiving.fetch_add(1, Ordering::AcqRel);
        !resting.over
    }

    /// A thread has received, or failed to.
    pub(crate) fn received(&self) -> Relief {
        if self.receiving.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Relief::There;
        }
        let mut resting = self.resting.lock();
        if resting.threads > resting.called {
            resting.called += 1;
            self.wake.notify_one();
            return Relief::There;
        }
        Relief::Wanted
    }

    /// Nobody is left to serve: those that rest end.
    pub(crate) fn dismiss(&self) {
        self.resting.lock().over = true;
        self.wake.notify_all();
    }

    /// The threads, but the calling one.
    pub(crate) fn others(&self) -> Vec<Tid> {
        let me = own_tid();
        let seats = self.seats.lock();
        let threads = seats.iter().filter_map(|seat| *seat.thread.lock());
        threads.filter(|tid| *tid != me).collect()
    }

    /// Ends the processes that have kept a thread waiting for too long; `who` tells whose a trap
    /// is. Called every [`INTERVAL`].
    pub(crate) fn watch(&self, who: impl Fn(&Notification) -> Option<Process>) {
        let seats: Vec<_> = self.seats.lock().iter().map(Arc::clone).collect();
        let kept = seats.iter().filter(|seat| seat.is_kept()).count();
        let patience = if kept < MANY { PATIENCE } else { PATIENCE_OF_MANY };
        for seat in seats {
            let mut work = seat.work.lock();
            let Some(work) = work.as_mut().filter(|work| work.since.elapsed() > INTERVAL) else {
                continue;
            };
            work.looks = work.looks.saturating_add(1);
            if let Whose::Trap(trap) = &work.whose {
                // Kept from now on: who it was is not to be told any more once it has ended.
                let process = who(trap).map(Arc::new);
                work.whose = process.map_or(Whose::Gone, Whose::Process);
            }
            if work.since.elapsed() > patience
                && work.looks >= LOOKS
                && let Whose::Process(process) = &work.whose
                && process.kill().is_ok()
            {
                work.looks = 0;
                let tgid = process.tgid();
                log::error!(
                    "the supervisor ended process {tgid}, which kept the supervisor waiting"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_last_to_receive_is_relieved_by_one_that_rests() {
        let crew = Arc::new(Crew::default());
        assert!(crew.ready() && crew.ready());
        let resting = std::thread::spawn({
            let crew = Arc::clone(&crew);
            move || crew.ready()
        });
        while crew.resting.lock().threads == 0 {
            std::thread::yield_now();
        }
        assert_eq!(crew.received(), Relief::There);
        assert_eq!(crew.received(), Relief::There);
        assert!(resting.join().unwrap());
        assert_eq!(crew.received(), Relief::Wanted);
    }

    /// The last to receive would take it for a relief, and for ever nobody would receive.
    #[test]
    fn who_comes_to_rest_is_never_counted_as_receiving() {
        let crew = Arc::new(Crew::default());
        assert!(crew.ready() && crew.ready());
        // Nobody rests for long, so that many come.
        crew.dismiss();
        let comes = std::thread::spawn({
            let crew = Arc::clone(&crew);
            move || (0..2_000_000).any(|_| crew.ready())
        });
        while !comes.is_finished() {
            assert_eq!(crew.receiving.load(Ordering::Acquire), READY);
        }
        assert!(!comes.join().unwrap());
    }

    #[test]
    fn those_that_rest_end_when_it_is_over() {
        let crew = Crew::default();
        assert!(crew.ready() && crew.ready());
        crew.dismiss();
        assert!(!crew.ready());
    }

    /// Whether a process is ended that has kept so many threads for so long, and was looked at often.
    fn is_ended(threads: usize, long: Duration) -> bool {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tgid = verbgate_sys::Tgid(child.id().cast_signed());
        let process = Arc::new(Process::open(tgid).unwrap());
        let crew = Crew::default();
        for _ in 0..threads {
            let (whose, looks) = (Whose::Process(Arc::clone(&process)), LOOKS);
            let since = Instant::now().checked_sub(long).unwrap();
            *crew.join().unwrap().work.lock() = Some(Work { since, looks, whose });
        }
        crew.watch(|_| None);
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

    #[test]
    fn there_are_no_more_threads_than_there_may_be() {
        let crew = Crew::default();
        let seats: Vec<_> = std::iter::from_fn(|| crew.join()).collect();
        assert_eq!(seats.len(), MOST);
        crew.leave(&seats[0]);
        assert!(crew.join().is_some());
    }
}
