#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! The way of a call through stubs, guests, supervisor and kernel, in every order in which things can
//! happen.
//!
//! `kani` cannot follow threads and a kernel, and is not to be had everywhere; so this is a model, small
//! enough to try all of it ([`explore`]): a few numbers for threads, which are given again at once, two
//! threads that receive and one that looks after, and for each [`Story`] what guests may do besides. In
//! no state that can be reached
//!
//! * does a stub make a request other than the one that was vetted, for that caller, on the file that
//!   was checked, with credentials that were not given up before ([`World`]'s `ioctl`),
//! * is anything written to a memory other than the caller's (`after`),
//! * is a call let through, a stub told to go on, a file given, or a result taken because of a number
//!   that is another thread's by now (`answer`, `resume`, `bind`, `done`),
//! * can it stay so for ever that somebody waits, if everybody who can go on does so in the end:
//!   threads, the kernel, the supervisor, the watch, and the looking after.
//!
//! | the model's step | the code |
//! |---|---|
//! | `receive`, `look_up`, `Pc::Routed`, `follow`, `Pc::Alive` | `serve`: `receive`, `handle`, `routed` |
//! | `concern`, `request`, `plant_for`, `answer` | `serve`, `request`, `calls`: the same, `close`, `credentials` |
//! | `post`, `try_lock`, `next_event`, `Pc::Leaving` | `serve`: `post`, `act` |
//! | `held`, `means`, `find_worker`, `take_file`, `bind_file`, `run`, `start`, `write` | `request`: `held`, `means`, `find_worker`, `file_of`; `execute`: `bind`; `request`: `run`, `start`, `write` |
//! | `stub_trapped`, `done`, `go_on`, `unbind`, `retire` | `request`, `calls`, `look_after`: the same |
//! | `begin_planting`, `plant` (`planting.rs` here, too) | `planting`: `plant`; `plant`: `attached`, `stopped` |
//! | `look_at`, `look_after`, `forget`, `over`, `Step::Watch` | `look_after`, `planting`; `crew`: `watch` |
//! | `in_trap`, `believed` | `caller`: `believed`, `Listener::is_valid` |
//! | `lives` | `process`: `Thread::is_alive` |
//! | `ioctl`, `after` | the stub's code: `arch` |
//!
//! Here a stub is made in one step; [`making`] takes that step apart, and has guest code run in any thread.
//!
//! Not shown: what a request says (`tests/residue.rs` tries that), outputs that a guest forges in its
//! half of the frame (nothing is decided by them), stops of a process, `vfork`, and the connection manager.
//! A trap that is handled anew while a guest is served is so when that is over.
//!
//! That the test can fail is tested: each [`Defect`] is found, with the way that leads there, which
//! `cargo test -p verbgate-proxy --test model -- --nocapture` prints.

mod explore;
mod guest;
mod making;
mod names;
mod planting;
mod serving;
mod stubs;
mod world;

use explore::Fault;
use explore::explore;
use world::Budget;
use world::Call;
use world::Defect;
use world::Scripts;
use world::Setting;
use world::World;

/// More states than any story has.
const MOST: usize = 200_000;

const REQUEST: &[Call] = &[Call::Request];
const TWO: &[Call] = &[Call::Request, Call::Request];
const SUPERVISED: &[Call] = &[Call::Supervised];
const CLOSE: &[Call] = &[Call::Close];
const RETIRE_FIRST: &[Call] = &[Call::Retire, Call::Request];
const RETIRE_THEN: &[Call] = &[Call::Request, Call::Retire];

/// What is explored: who calls what, and what may happen besides.
struct Story {
    name: &'static str,
    /// The filter is ours, not another's that has no killable waits.
    ours: bool,
    slots: usize,
    budget: Budget,
    scripts: Scripts,
}

const NONE: Budget = Budget {
    kills: 0,
    execs: 0,
    stub_kills: 0,
    impostors: 0,
    foreigners: 0,
    replaced: 0,
    filters: 0,
    slow: 0,
    signals: 0,
};

const fn story(name: &'static str, slots: usize, budget: Budget, scripts: Scripts) -> Story {
    Story { name, ours: true, slots, budget, scripts }
}

const fn under_another(story: Story) -> Story {
    Story { ours: false, ..story }
}

const IMPOSTOR: Budget = Budget { stub_kills: 1, impostors: 1, ..NONE };
const SIGNAL: Budget = Budget { signals: 1, ..NONE };

/// Stubs that end, and those who pose as stubs.
const STUBS: &[Story] = &[
    story("a stub ends, and its number poses as it", 1, IMPOSTOR, &[(0, SUPERVISED)]),
    story("the same between two callers", 1, IMPOSTOR, &[(0, REQUEST), (0, REQUEST)]),
    story(
        "one of two stubs ends",
        2,
        Budget { stub_kills: 1, ..NONE },
        &[(0, SUPERVISED), (0, REQUEST)],
    ),
    story(
        "a filter ends every stub",
        1,
        Budget { filters: 1, ..NONE },
        &[(0, SUPERVISED), (0, REQUEST)],
    ),
    story("signals", 1, Budget { signals: 1, stub_kills: 1, ..NONE }, &[(0, SUPERVISED)]),
];

/// Descriptors and credentials that change.
const CHANGES: &[Story] = &[
    story("two stubs", 2, NONE, &[(0, TWO), (0, REQUEST)]),
    story(
        "a file is replaced, and closed",
        1,
        Budget { replaced: 1, ..NONE },
        &[(0, TWO), (0, CLOSE)],
    ),
    story("a file is replaced", 2, Budget { replaced: 1, ..NONE }, &[(0, TWO), (0, REQUEST)]),
    story("credentials", 1, NONE, &[(0, RETIRE_FIRST), (0, RETIRE_THEN)]),
    story(
        "memory that does not answer",
        1,
        Budget { slow: 1, ..NONE },
        &[(0, REQUEST), (0, REQUEST)],
    ),
];

/// Processes that end, and become others.
const ENDS: &[Story] = &[
    story("execve", 1, Budget { execs: 1, ..NONE }, &[(0, SUPERVISED)]),
    story(
        "a process ends, and the host has its numbers",
        1,
        ENDING,
        &[(0, SUPERVISED), (0, REQUEST)],
    ),
    story(
        "another process's stub has the number",
        1,
        Budget { kills: 1, impostors: 1, ..NONE },
        &[(0, &[]), (1, REQUEST)],
    ),
];
const ENDING: Budget = Budget { kills: 1, foreigners: 1, ..NONE };

/// A process that poses as a part of the first.
const FORGED: Story = story("a forged owner", 1, NONE, &[(0, REQUEST), (1, REQUEST)]);

/// Under another's filter a received trap can be taken back.
const OTHERS: &[Story] = &[
    under_another(story("a trap is taken back", 1, SIGNAL, &[(0, TWO)])),
    under_another(story("one of two is", 1, SIGNAL, &[(0, REQUEST), (0, REQUEST)])),
    under_another(story(
        "a stub ends besides",
        1,
        Budget { signals: 1, stub_kills: 1, ..NONE },
        &[(0, REQUEST)],
    )),
];

fn tell(story: &Story, defect: Option<Defect>) -> Result<usize, Fault> {
    let setting = Setting { killable: story.ours, slots: story.slots, defect };
    let mut world = World::new(setting, story.budget, story.scripts);
    if story.name == FORGED.name {
        world.processes[1].forged = Some(0);
    }
    explore(&world, MOST)
}

fn all_end_well(stories: &[Story]) {
    for story in stories {
        match tell(story, None) {
            Ok(states) => println!("{}: {states} states", story.name),
            Err(fault) => panic!("{}: {}", story.name, fault.print()),
        }
    }
}

#[test]
fn stubs_end_well() {
    all_end_well(STUBS);
}

#[test]
fn changes_end_well() {
    all_end_well(CHANGES);
}

#[test]
fn ends_end_well() {
    all_end_well(ENDS);
    all_end_well(&[FORGED]);
}

#[test]
fn under_filters_of_others_all_ends_well() {
    all_end_well(OTHERS);
}

#[test]
fn every_defect_is_found() {
    use Defect::*;
    let forever = "for ever";
    for (defect, story, words) in [
        (RouteWithoutValid, &ENDS[2], "taken for the result"),
        (RouteWithoutAlive, &STUBS[0], "given a file"),
        (NoSweep, &STUBS[0], forever),
        (ResultByNumber, &STUBS[0], "given a file"),
        (WriteByNumber, &ENDS[1], "whoever has the caller's number"),
        (Unbelieved, &ENDS[1], "whoever has the caller's number"),
        (NoShares, &FORGED, "in the memory of another"),
        (NotCompared, &CHANGES[1], "on B"),
        (NoRetire, &CHANGES[3], "credentials"),
        (NoStillbornLimit, &STUBS[3], forever),
        (NoSecondLook, &CHANGES[1], forever),
        (NoWatch, &CHANGES[4], forever),
        (StaleEvent, &OTHERS[0], "taken for the result"),
        (ForgetsEarly, &CHANGES[0], "forgotten"),
    ] {
        let fault = tell(story, Some(defect)).expect_err(&format!("{defect:?} was not found"));
        println!("{defect:?}, {}: {}", story.name, fault.print());
        assert!(fault.what.contains(words), "{defect:?}: {}", fault.what);
    }
}
