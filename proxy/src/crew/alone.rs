//! A thread that has threads of a guest make calls, and receives the traps of these calls itself.
//!
//! Each time that one thread hands a trap to another, a processor is woken, which takes longer than
//! the call. So who has calls made goes on receiving, as long as nobody else asks for anything and no
//! guest has made a thread wait: a planting takes a quarter less time then.

use std::sync::atomic::Ordering;
use std::time::Instant;

use verbgate_sys::seccomp::Notification;

use super::Crew;
use super::OWN;
use super::Place;
use super::Pool;
use super::Seat;
use super::watch::WAITED;

impl Crew {
    /// The calling thread is about to have calls made. True: the thread may receive their traps by
    /// [`Crew::receive_alone`]; false: another thread receives in its place.
    pub(crate) fn begin_making(&self) -> bool {
        let alone = self.of_own(|pool, seat| {
            let alone = *seat.place.lock() == Place::Active && self.is_one(pool);
            self.enter(pool, seat, if alone { Place::Making } else { Place::Away });
            alone
        });
        alone.unwrap_or(false)
    }

    /// The calls have been made.
    pub(crate) fn end_making(&self, begun: Instant) {
        self.of_own(|pool, seat| {
            if *seat.place.lock() != Place::Making {
                return;
            }
            self.enter(pool, seat, Place::Active);
            // The guest did what it was made to do: that is not to make a thread wait.
            let took = begun.elapsed();
            if let Some(work) = seat.work.lock().as_mut().filter(|_| took < WAITED) {
                work.since += took;
            }
        });
    }

    /// Receives, if nobody but the calling thread does. A trap must be there: nobody else can
    /// take that one meanwhile, so this does not wait. `None`: another thread receives from now on.
    pub(crate) fn receive_alone<T>(&self, receive: impl FnOnce() -> T) -> Option<T> {
        let received = self.of_own(|pool, seat| {
            let is_making = *seat.place.lock() == Place::Making;
            if is_making && self.is_one(pool) {
                return Some(receive());
            }
            if is_making {
                self.enter(pool, seat, Place::Away);
            }
            None
        });
        received.flatten()
    }

    /// Somebody else serves this trap, and receives from now on.
    pub(crate) fn hand_over(&self, trap: Notification) {
        self.of_own(|pool, seat| {
            pool.handed.push_back(trap);
            self.enter(pool, seat, Place::Away);
        });
    }

    /// A trap that was handed over.
    pub(crate) fn handed(&self) -> Option<Notification> {
        self.pool.lock().handed.pop_front()
    }

    /// Whether one thread receives and serves, and no guest has made it wait.
    fn is_one(&self, _locked: &Pool) -> bool {
        self.active.load(Ordering::Acquire) == 1 && !self.wary.load(Ordering::Acquire)
    }

    /// Does something with the calling thread's seat while the pool is locked.
    pub(super) fn of_own<T>(&self, work: impl FnOnce(&mut Pool, &Seat) -> T) -> Option<T> {
        OWN.with_borrow(|own| {
            let seat = own.as_ref()?;
            let mut pool = self.pool.lock();
            let is_beside = *seat.place.lock() == Place::Beside;
            (!is_beside).then(|| work(&mut pool, seat))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use verbgate_sys::Tid;
    use verbgate_sys::seccomp::NotifId;

    use super::*;

    /// A crew whose calling thread serves a trap, and another that is free.
    fn serving() -> (Crew, Arc<Seat>, Arc<Seat>) {
        let crew = Crew::default();
        let (seat, spare) = (crew.join().unwrap(), crew.join().unwrap());
        assert!(crew.ready(&seat));
        crew.received(&seat, None);
        seat.take();
        (crew, seat, spare)
    }

    fn place(seat: &Seat) -> Place {
        *seat.place.lock()
    }

    #[test]
    fn who_has_calls_made_receives_until_another_does() {
        let (crew, seat, spare) = serving();
        assert!(crew.begin_making());
        assert_eq!(crew.receive_alone(|| 7), Some(7));
        crew.end_making(Instant::now());
        assert_eq!(place(&seat), Place::Active);
        // A guest has made another thread wait meanwhile.
        assert!(crew.begin_making());
        crew.wary.store(true, Ordering::Release);
        assert_eq!(crew.receive_alone(|| 7), None);
        assert_eq!(place(&seat), Place::Away);
        crew.wary.store(false, Ordering::Release);
        crew.enter(&mut crew.pool.lock(), &seat, Place::Active);
        // The watch has found it waiting, and another receives.
        assert!(crew.begin_making());
        crew.replace(&seat, Place::Replaced);
        assert!(crew.ready(&spare));
        assert_eq!(crew.receive_alone(|| 7), None);
        crew.end_making(Instant::now());
        assert_eq!((place(&seat), place(&spare)), (Place::Replaced, Place::Active));
    }

    #[test]
    fn who_has_calls_made_gives_way_to_others_that_serve_and_when_guests_make_threads_wait() {
        let (crew, seat, spare) = serving();
        crew.width.store(2, Ordering::Release);
        assert!(crew.ready(&spare));
        assert!(!crew.begin_making());
        assert_eq!(place(&seat), Place::Away);
        let (crew, seat, _spare) = serving();
        crew.wary.store(true, Ordering::Release);
        assert!(!crew.begin_making());
        assert_eq!(place(&seat), Place::Away);
    }

    #[test]
    fn a_trap_of_somebody_elses_goes_to_a_thread_that_rests() {
        let (crew, seat, spare) = serving();
        assert!(crew.begin_making());
        std::thread::scope(|scope| {
            let rests = scope.spawn(|| crew.ready(&spare).then(|| crew.handed()));
            let tid = Tid(7);
            let id = NotifId::default();
            crew.hand_over(Notification { id, tid, arch: 0, nr: 0, ip: 0, args: [0; 6] });
            let handed = rests.join().unwrap();
            assert_eq!(handed.flatten().map(|trap| trap.tid), Some(tid));
        });
        assert_eq!(place(&seat), Place::Away);
        assert!(crew.handed().is_none());
    }
}
