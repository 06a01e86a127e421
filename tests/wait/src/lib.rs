#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in test functions; this crate is for tests alone"
)]
//! Waits without a clock: a wait ends when the awaited thing happened, or when nothing happens any more.
//!
//! "Nothing happens" is about the *watched* processes: the descendants of this process (also those that have been
//! handed to another parent since), the other threads of this process, and processes that a test names by
//! [`Wait::also`]. A busy machine slows all of them down, and a wait then takes longer: no wait ends by time. Timers that
//! go off, look, and wait again are nothing, too, but for five times as long.
//!
//! ```
//! let mut child = std::process::Command::new("true").spawn().unwrap();
//! let status = verbgate_wait::until("the end of true", || child.try_wait().unwrap());
//! assert!(status.success());
//! ```

use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Output;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

mod proc;

pub use proc::Sight;
pub use proc::descendants;
pub use proc::is_alive;
pub use proc::kill;
pub use proc::signal;
pub use proc::threads_in_state;

use crate::proc::Watched;

/// How often a wait asks whether the thing happened, after some sooner questions.
pub const TICK: Duration = Duration::from_millis(10);
/// How often a wait looks at the watched processes.
const LOOK: Duration = Duration::from_millis(500);
/// When the next wait may look for the first time. A look at a thousand threads of an emulated machine takes a second.
static NEXT_LOOK: Mutex<Option<Instant>> = Mutex::new(None);
/// The share of its time that a wait may spend on looks: reading `/proc` takes long on emulated processors.
const SHARE: u32 = 20;
/// How long nothing happens before a wait gives up.
const QUIET: Duration = Duration::from_secs(60);
/// The processor time that a wait usually takes at most.
const USUAL: Duration = Duration::from_secs(30);
/// A wait that takes so many times the usual processor time is a livelock.
const LIVELOCK: u32 = 20;

/// Processes that use less than this part of the time, and of which none is runnable, are ticking: their timers go off,
/// and they wait again. Of a wait's usual processor time a look takes at least this part of the time.
const TICKING: u32 = 10;
/// A wait gives up when processes do no more than tick for so many times as long as they may do nothing.
const TICKS: u32 = 5;

/// A probe's answer: `false`, `None`: not yet.
pub trait Answer {
    /// What a wait returns.
    type Found;
    /// The awaited thing, if it happened.
    fn found(self) -> Option<Self::Found>;
}

impl Answer for bool {
    type Found = ();
    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Answer for Option<T> {
    type Found = T;
    fn found(self) -> Self {
        self
    }
}

/// Nothing happens any more, and the awaited thing did not happen.
#[derive(Debug)]
pub struct Stalled(String);

impl std::fmt::Display for Stalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stalled {}

/// A wait for something.
#[derive(Clone, Debug)]
pub struct Wait {
    what: String,
    watched: Watched,
    usual: Duration,
    quiet: Duration,
}

/// Waits for something; panics when nothing happens any more.
#[track_caller]
pub fn until<A: Answer>(what: &str, probe: impl FnMut() -> A) -> A::Found {
    Wait::new(what).until(probe)
}

/// Waits for something; fails when nothing happens any more, or as the probe does.
pub fn try_until<A: Answer, E: From<Stalled>>(
    what: &str,
    probe: impl FnMut() -> Result<A, E>,
) -> Result<A::Found, E> {
    Wait::new(what).try_until(probe)
}

/// Waits for the end of a thread, and panics as the thread did.
#[track_caller]
pub fn join<T>(what: &str, thread: JoinHandle<T>) -> T {
    until(what, || thread.is_finished());
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Waits for the end of a call that blocks, which is made by a thread of its own.
#[track_caller]
pub fn call<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    join(what, thread::spawn(call))
}

/// Waits for the end of a child; when nothing happens any more, kills the child and its descendants, and panics.
#[track_caller]
pub fn end(child: &mut Child) -> ExitStatus {
    let (pid, what) = (child.id(), format!("the end of child {}", child.id()));
    try_until(&what, || child.try_wait().map_err(|error| Stalled(error.to_string())))
        .unwrap_or_else(|stalled| {
            kill_tree(pid);
            panic!("{stalled}");
        })
}

/// Runs a command to its end, as `Command::output` does, but with the input that the command has. When nothing happens
/// any more, kills what the command started, and panics with the output.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    let what = format!("the end of {command:?}");
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    output_of(&what, child)
}

/// Waits for the end of a child and of its output, as `Child::wait_with_output` does.
#[track_caller]
pub fn output_of(what: &str, child: Child) -> Output {
    let pid = child.id();
    let reader = thread::spawn(move || child.wait_with_output());
    if let Err(stalled) = Wait::new(what).try_until(|| Ok::<_, Stalled>(reader.is_finished())) {
        kill_tree(pid);
        // A process that left the tree may hold the output open.
        let _ = Wait::new("the output")
            .quiet(LOOK)
            .try_until(|| Ok::<_, Stalled>(reader.is_finished()));
        let output = reader.is_finished().then(|| reader.join());
        panic!("{stalled}\nThe output: {output:?}");
    }
    reader.join().expect("the reader does not panic").expect("the output is a pipe")
}

/// Kills a process and its descendants.
pub fn kill_tree(pid: u32) {
    // Children first: descendants of an ended process are nobody's.
    descendants(pid).into_iter().chain([pid]).for_each(kill);
}

impl Wait {
    /// A wait for what this says.
    #[must_use]
    pub fn new(what: &str) -> Self {
        Self { what: what.to_owned(), watched: Watched::default(), usual: USUAL, quiet: QUIET }
    }

    /// Also watches a process, and its descendants, that this process did not start.
    #[must_use]
    pub fn also(mut self, pid: u32) -> Self {
        self.watched.named.push(pid);
        self
    }

    /// Watches these processes, and those of their descendants whose names pass, and no other process.
    #[must_use]
    pub fn only(mut self, pids: &[u32], passes: fn(&str) -> bool) -> Self {
        self.watched = Watched { named: pids.to_vec(), only: Some(passes) };
        self
    }

    /// The processor time that the watched processes usually use meanwhile. [default: 30 s]
    #[must_use]
    pub fn usual(mut self, usual: Duration) -> Self {
        self.usual = usual;
        self
    }

    /// How long nothing must happen. [default: 60 s]
    #[must_use]
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// Waits; panics when nothing happens any more.
    #[track_caller]
    pub fn until<A: Answer>(self, mut probe: impl FnMut() -> A) -> A::Found {
        match self.try_until(|| Ok::<A, Stalled>(probe())) {
            Ok(found) => found,
            Err(stalled) => panic!("{stalled}"),
        }
    }

    /// Waits; fails when nothing happens any more, or as the probe does.
    pub fn try_until<A: Answer, E: From<Stalled>>(
        self,
        mut probe: impl FnMut() -> Result<A, E>,
    ) -> Result<A::Found, E> {
        // A wait that ends at once costs no look; and many short ones together have the share of one.
        let free = *NEXT_LOOK.lock().unwrap_or_else(PoisonError::into_inner);
        let soon = Instant::now() + 10 * TICK;
        let (mut last, mut next, mut period) =
            (None, free.map_or(soon, |free| soon.max(free)), LOOK);
        let (mut quiet, mut used, mut pause) = (Duration::ZERO, Duration::ZERO, TICK / 16);
        let mut ticked = Duration::ZERO;
        loop {
            if let Some(found) = probe()?.found() {
                return Ok(found);
            }
            if Instant::now() >= next {
                let begun = Instant::now();
                let sight = Sight::take(&self.watched);
                // Looks are counted, not seconds: this process may have been kept from its processors, too.
                match &last {
                    Some(last) if sight.progressed_since(last) => {
                        let now = sight.used_since(last);
                        used += now.max(period / TICKING);
                        quiet = Duration::ZERO;
                        // By chance, one that ticks is seen at work now and then.
                        ticked = if now < period / TICKING && !sight.is_at_work(last) {
                            ticked + period
                        } else {
                            ticked.saturating_sub(period * TICKING)
                        };
                    }
                    Some(_) => quiet += period,
                    None => {}
                }
                last = Some(sight);
                let share = begun.elapsed() * SHARE;
                let now = Instant::now();
                period = LOOK.max(share);
                next = now + period;
                *NEXT_LOOK.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + share);
            }
            let Self { what, watched, usual, .. } = &self;
            let why = if quiet >= self.quiet {
                "nothing happens any more".to_owned()
            } else if ticked >= self.quiet * TICKS {
                "nothing but timers goes off any more".to_owned()
            } else if used > *usual * LIVELOCK {
                format!("{used:.0?} of processor time were used, {LIVELOCK} times the usual")
            } else {
                thread::sleep(pause);
                pause = TICK.min(pause * 2);
                continue;
            };
            let text = format!("waited for {what}: {why}{}", proc::where_they_wait(watched));
            return Err(Stalled(text).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::MutexGuard;
    use std::sync::mpsc;
    use std::sync::mpsc::TryRecvError;

    use super::*;

    /// Tests take turns: in one process, the threads of one are watched by another.
    fn alone() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            kill_tree(self.0.id());
            let _ = self.0.wait();
        }
    }

    fn sh(script: &str) -> Killed {
        Killed(Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn fails(wait: Wait) -> String {
        wait.try_until(|| Ok::<_, Stalled>(false)).unwrap_err().to_string()
    }

    fn soon(what: &str) -> Wait {
        Wait::new(what).quiet(4 * LOOK)
    }

    #[test]
    fn sleeping_child_is_stalled() {
        let _turn = alone();
        let _child = sh("exec sleep 600");
        let why = fails(soon("godot"));
        assert!(why.starts_with("waited for godot: nothing happens any more\n"), "{why}");
        assert!(why.contains("(sleep): S, syscall "), "{why}");
    }

    #[test]
    fn nobody_to_wait_for_is_stalled() {
        let _turn = alone();
        assert!(fails(soon("godot")).contains("nothing happens"));
    }

    #[test]
    fn slow_child_is_awaited() {
        let _turn = alone();
        // Longer than the wait is patient with what does nothing.
        let mut child = sh("for n in 1 2 3 4 5 6 7 8; do sleep 0.9; done");
        soon("the slow child").until(|| child.0.try_wait().unwrap());
    }

    #[test]
    fn other_processes_may_be_left_out() {
        let _turn = alone();
        let waits = sh("sleep 600 & (while :; do :; done) & wait");
        let why = fails(soon("godot").only(&[waits.0.id()], |name| name == "sleep"));
        assert!(why.contains("nothing happens any more\n"), "{why}");
        assert_eq!(why.matches("\nthread ").count(), 2, "{why}");
    }

    #[test]
    fn spinning_child_is_a_livelock() {
        let _turn = alone();
        let _child = sh("while :; do :; done");
        let why = fails(soon("godot").usual(LOOK / 10));
        assert!(why.contains("of processor time were used, 20 times the usual"), "{why}");
    }

    #[test]
    fn ticking_child_is_not_awaited_for_ever() {
        let _turn = alone();
        let _child = sh("while :; do sleep 0.2; done");
        let why = fails(soon("godot"));
        assert!(why.contains("nothing but timers"), "{why}");
    }

    #[test]
    fn daemon_of_an_ended_child_is_watched() {
        let _turn = alone();
        // The parent lives until a look has found the daemon.
        let mut child = sh("(sleep 1; while :; do :; done) >&- & echo $!; sleep 0.5");
        soon("the parent's end").until(|| child.0.try_wait().unwrap());
        let daemon = io::read_to_string(child.0.stdout.take().unwrap()).unwrap();
        let why = fails(soon("godot").usual(LOOK / 10));
        kill(daemon.trim().parse().unwrap());
        assert!(why.contains("of processor time were used"), "{why}");
    }

    #[test]
    fn thread_of_this_process_is_watched() {
        let _turn = alone();
        let (ends, end) = mpsc::channel::<()>();
        let thread = thread::spawn(move || while end.try_recv() == Err(TryRecvError::Empty) {});
        let why = fails(soon("godot").usual(LOOK / 10));
        drop(ends);
        assert!(why.contains("of processor time were used"), "{why}");
        join("the thread", thread);
    }
}
