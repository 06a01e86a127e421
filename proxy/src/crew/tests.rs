//! Threads that serve, rest and end, without guests.

use std::sync::atomic::AtomicUsize;

use verbgate_wait::until;

use super::*;

/// A thread's place in a crew, that does what the crew tells.
fn sat(crew: &Crew) -> Arc<Seat> {
    crew.join().unwrap()
}

fn place(seat: &Seat) -> Place {
    *seat.place.lock()
}

/// Another thread receives in the place of one.
fn give_way(crew: &Crew, seat: &Seat) {
    crew.replace(seat, Place::Replaced);
}

#[test]
fn one_receives_and_serves_by_turns() {
    let crew = Crew::default();
    let (one, spare) = (sat(&crew), sat(&crew));
    for _ in 0..3 {
        assert!(crew.ready(&one));
        crew.received(&one, None);
        assert_eq!((place(&one), place(&spare)), (Place::Active, Place::Free));
    }
    assert!(!crew.is_without_spare());
}

#[test]
fn a_spare_receives_in_the_place_of_one_that_gives_way() {
    let crew = Arc::new(Crew::default());
    let (one, spare) = (sat(&crew), sat(&crew));
    assert!(crew.ready(&one));
    let resting = std::thread::spawn({
        let (crew, spare) = (Arc::clone(&crew), Arc::clone(&spare));
        move || crew.ready(&spare)
    });
    crew.received(&one, None);
    assert_eq!(crew.receiving.load(Ordering::Acquire), 0);
    give_way(&crew, &one);
    assert!(resting.join().unwrap());
    assert_eq!((place(&one), place(&spare)), (Place::Replaced, Place::Active));
    assert!(crew.is_without_spare());
    // A new one is started then, and whoever was replaced is not needed any more.
    let new = crew.join_if_short().unwrap();
    assert!(crew.join_if_short().is_none());
    assert!(!crew.ready(&one) && place(&new) == Place::Free);
}

#[test]
fn the_last_to_receive_is_replaced_at_once_when_guests_make_threads_wait() {
    let crew = Crew::default();
    crew.wary.store(true, Ordering::Release);
    crew.width.store(2, Ordering::Release);
    let (one, two) = (sat(&crew), sat(&crew));
    assert!(crew.ready(&one) && crew.ready(&two));
    crew.received(&one, None);
    assert_eq!(place(&one), Place::Active, "another receives");
    crew.received(&two, None);
    assert_eq!(place(&two), Place::Replaced);
}

#[test]
fn threads_end_that_are_not_needed_while_others_serve_by_turns() {
    let (crew, turns) = (Arc::new(Crew::default()), Arc::new(AtomicUsize::new(0)));
    let serves = |seat: Arc<Seat>| {
        let (crew, turns) = (Arc::clone(&crew), Arc::clone(&turns));
        std::thread::spawn(move || {
            while crew.ready(&seat) {
                turns.fetch_add(1, Ordering::Relaxed);
                crew.received(&seat, None);
                // Long, so that who has given way rests before the next does, however busy the machine is.
                std::thread::sleep(REST / 10);
                crew.replace(&seat, Place::Replaced);
            }
            crew.leave(&seat);
        })
    };
    let threads = [sat(&crew), sat(&crew), sat(&crew), sat(&crew)].map(serves);
    until("ends of those that are not needed", || {
        assert!(turns.load(Ordering::Relaxed) < 1000, "all are kept");
        crew.pool.lock().seats.len() <= 2
    });
    crew.dismiss();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn those_that_rest_end_when_it_is_over() {
    let crew = Crew::default();
    let (one, two) = (sat(&crew), sat(&crew));
    assert!(crew.ready(&one));
    crew.dismiss();
    assert!(!crew.ready(&two));
}

/// Places are taken, given up and left in every order, while it is asked all the time whether
/// somebody receives or may.
#[test]
fn there_is_always_one_that_receives_or_may() {
    let crew = Arc::new(Crew::default());
    let works = |turns: u32| {
        let crew = Arc::clone(&crew);
        let seat = sat(&crew);
        std::thread::spawn(move || {
            seat.take();
            for _ in 0..turns {
                if !crew.ready(&seat) {
                    break;
                }
                crew.received(&seat, None);
                give_way(&crew, &seat);
            }
            crew.leave(&seat);
        })
    };
    let threads: Vec<_> = (0..4).map(|_| works(20_000)).collect();
    while threads.iter().filter(|thread| !thread.is_finished()).count() > 1 {
        let (active, free) = (&crew.active, &crew.free);
        assert!(active.load(Ordering::Acquire) <= 1 && free.load(Ordering::Acquire) <= 4);
    }
    crew.dismiss();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(crew.active.load(Ordering::Acquire), 0);
    assert_eq!(crew.free.load(Ordering::Acquire), 0);
    assert!(crew.pool.lock().seats.is_empty());
}

#[test]
fn there_are_no_more_threads_than_there_may_be() {
    let crew = Crew::default();
    let seats: Vec<_> = std::iter::from_fn(|| crew.join()).collect();
    assert_eq!(seats.len(), MOST);
    crew.leave(&seats[0]);
    assert!(crew.join().is_some());
}
