//! The tracer: the one thread of a supervisor that attaches to guests' threads, for plantings, tokens, duplicates, and
//! stubs that a stop keeps from their work.
//!
//! The kernel binds ptrace(2) to a thread, and a guest can make each step of a traced thread last as long as the guest
//! likes. So each of these makings is a future, and the tracer waits for all of them at a time. The tracer never waits
//! for one guest, and never serves: whatever else there is to do for a guest goes to the threads that serve.
//!
//! Makings have shares. A process has a few at a time, and a user some more; what comes beyond waits for its own. A
//! making to which nothing happens, in a guest that is stopped, frozen or hostile, leaves its user's share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Context;
use std::task::Waker;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use verbgate_sys::Tid;
use verbgate_sys::called_off::Alarm;
use verbgate_sys::process;
use verbgate_sys::ptrace;
use verbgate_sys::seccomp::Notification;

use crate::books::GuestKey;
use crate::session::Guest;
use crate::supervisor::Supervisor;

/// Makings of one process at a time.
const OF_PROCESS: usize = 4;
/// Makings of one user at a time to which something happens.
const OF_USER: usize = 24;
/// How long nothing happens to a making before the making leaves its user's share.
const STILL: Duration = Duration::from_millis(50);

/// All makings at a time: each holds up to four descriptors, which are half of those that this process may have.
fn most() -> usize {
    usize::try_from(process::descriptor_limit() / 8).unwrap_or(usize::MAX).clamp(OF_USER, 1024)
}

/// Something that the tracer does.
pub(crate) type Making<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Begin = Box<dyn for<'a> FnOnce(&'a Supervisor) -> Making<'a> + Send>;

/// The share that a making counts in.
#[derive(Clone, Copy, Debug)]
struct Share {
    guest: GuestKey,
    user: u32,
    /// Whether it counts: one that lets callers go lasts until a freezer thaws them.
    counts: bool,
}

struct UnderWay<'a> {
    making: Making<'a>,
    share: Share,
    moved: Instant,
}

/// Things that other threads have for the tracer.
#[derive(Default)]
struct Incoming {
    begins: Vec<(Share, Begin)>,
    /// Traps of threads that are being made to make calls, and by which making.
    traps: Vec<(u64, Notification)>,
}

/// The tracer, as other threads know it.
#[derive(Default)]
pub(crate) struct Tracer {
    alarm: Alarm,
    incoming: Mutex<Incoming>,
}

thread_local! {
    /// Traps that have come for makings, by the number of the making.
    static ARRIVED: RefCell<HashMap<u64, Vec<Notification>>> = RefCell::default();
}

/// Traps come for a making from now on.
pub(crate) fn expect_traps(making: u64) {
    ARRIVED.with_borrow_mut(|all| drop(all.insert(making, Vec::new())));
}

/// The next trap of a thread.
pub(crate) fn take_trap(making: u64, tid: Tid) -> Option<Notification> {
    ARRIVED.with_borrow_mut(|all| {
        let traps = all.get_mut(&making)?;
        let at = traps.iter().position(|trap| trap.tid == tid)?;
        Some(traps.remove(at))
    })
}

/// No more traps come for a making; those that nobody has taken.
pub(crate) fn leave_traps(making: u64) -> Vec<Notification> {
    ARRIVED.with_borrow_mut(|all| all.remove(&making)).unwrap_or_default()
}

impl Tracer {
    /// Has something made for a guest.
    pub(crate) fn give<F>(&self, guest: &Guest, begin: F)
    where
        F: for<'a> FnOnce(&'a Supervisor) -> Making<'a> + Send + 'static,
    {
        self.give_in(guest, true, begin);
    }

    /// Has callers let go, which leaves what the guest's other makings may take.
    pub(crate) fn give_beside<F>(&self, guest: &Guest, begin: F)
    where
        F: for<'a> FnOnce(&'a Supervisor) -> Making<'a> + Send + 'static,
    {
        self.give_in(guest, false, begin);
    }

    fn give_in<F>(&self, guest: &Guest, counts: bool, begin: F)
    where
        F: for<'a> FnOnce(&'a Supervisor) -> Making<'a> + Send + 'static,
    {
        // A guest that has ended is nobody's.
        let user = guest.process.user().unwrap_or(u32::MAX);
        let share = Share { guest: guest.key, user, counts };
        self.incoming.lock().begins.push((share, Box::new(begin)));
        self.alarm.ring();
    }

    /// A thread that a making has make calls has trapped.
    pub(crate) fn trapped(&self, making: u64, trap: Notification) {
        self.incoming.lock().traps.push((making, trap));
        self.alarm.ring();
    }

    /// Ends the tracer's sleep, since nobody is left to serve.
    pub(crate) fn end(&self) {
        self.alarm.ring();
    }
}

/// Whether one more may be made at a time.
fn may_begin(share: Share, under_way: &[UnderWay<'_>], most: usize) -> bool {
    let now = Instant::now();
    let of = |is: &dyn Fn(&UnderWay<'_>) -> bool| under_way.iter().filter(|one| is(one)).count();
    let moves = |one: &UnderWay<'_>| one.share.user == share.user && now - one.moved < STILL;
    // Half is for processes that have nothing under way: others cannot fill that.
    if !share.counts {
        return under_way.len() < most;
    }
    let own = of(&|one| one.share.counts && one.share.guest == share.guest);
    let room = if own == 0 { most } else { most / 2 };
    own < OF_PROCESS && under_way.len() < room && of(&moves) < OF_USER
}

impl Supervisor {
    /// Traces, until nobody is left to serve.
    pub fn attend_makings(&self) {
        let Tracer { alarm, incoming } = &self.tracer;
        alarm.own();
        let most = most();
        let mut queue: VecDeque<(Share, Begin)> = VecDeque::new();
        let mut under_way: Vec<UnderWay<'_>> = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while !self.is_over() {
            alarm.heard();
            let Incoming { begins, traps } = std::mem::take(&mut *incoming.lock());
            queue.extend(begins);
            for (making, trap) in traps {
                let late = ARRIVED.with_borrow_mut(|all| match all.get_mut(&making) {
                    Some(traps) => {
                        traps.push(trap);
                        None
                    }
                    None => Some(trap),
                });
                // A thread had looked up the route before the route was taken away.
                late.into_iter().for_each(|trap| self.crew.hand_over(Some(trap)));
            }
            ptrace::take_stops();
            for (share, begin) in std::mem::take(&mut queue) {
                if may_begin(share, &under_way, most) {
                    under_way.push(UnderWay { making: begin(self), share, moved: Instant::now() });
                } else {
                    queue.push_back((share, begin));
                }
            }
            let before = under_way.len();
            under_way.retain_mut(|one| {
                let is_done = one.making.as_mut().poll(&mut context).is_ready();
                if ptrace::has_moved() {
                    one.moved = Instant::now();
                }
                !is_done
            });
            // There may be room for those that wait.
            if under_way.len() < before && !queue.is_empty() {
                continue;
            }
            ptrace::sleep(alarm, !queue.is_empty());
        }
    }
}
