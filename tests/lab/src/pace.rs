//! Pace: time as a program on a busy machine sees it. The time in which processors kept the program
//! waiting does not count.
//!
//! A virtual machine's own clock runs on while the machine below has no processor for it, so limits
//! by the clock end work that is only slow. The kernel says of each thread how long it was ready and
//! did not run (`/proc/PID/task/TID/schedstat`); that much is given to the work on top.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// How a run is limited. Either way the time is that in which the program could have run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// From its start to its end.
    Whole(Duration),
    /// Without a sign of progress: what goes on may go on.
    Silence(Duration),
}

impl Limit {
    /// The time.
    #[must_use]
    pub fn time(self) -> Duration {
        let (Self::Whole(time) | Self::Silence(time)) = self;
        time
    }
}

/// However busy the machine is, this part of the time counts, so that what is stuck ends.
const COUNTS_AT_LEAST: u32 = 10;

/// The time that has passed for a process.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// For how long each thread was ready and did not run, as far as is known.
    waited: BTreeMap<u32, Duration>,
    elapsed: Duration,
    lost: Duration,
}

impl Pace {
    /// Looks at the threads of a process that has run for `elapsed`.
    pub(crate) fn look(&mut self, pid: u32, elapsed: Duration) {
        self.count(threads(pid), elapsed);
    }

    /// Threads wait at the same time, so what the one lost that lost most is what was lost.
    fn count(&mut self, threads: BTreeMap<u32, Duration>, elapsed: Duration) {
        let more = threads.iter().map(|(tid, waited)| {
            let before = self.waited.get(tid).copied().unwrap_or_default();
            waited.saturating_sub(before)
        });
        self.lost += more.max().unwrap_or_default();
        self.lost = self.lost.min(elapsed - elapsed / COUNTS_AT_LEAST);
        self.elapsed = elapsed;
        self.waited = threads;
    }

    /// The time in which processors kept the process waiting.
    pub(crate) fn lost(&self) -> Duration {
        self.lost
    }

    /// The time that counts.
    pub(crate) fn counted(&self) -> Duration {
        self.elapsed.saturating_sub(self.lost)
    }
}

/// For how long each thread was ready and did not run. None where the kernel does not say: there
/// all time counts.
fn threads(pid: u32) -> BTreeMap<u32, Duration> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = entries.filter_map(|entry| {
        let tid = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        Some((tid, waited(&text)?))
    });
    threads.collect()
}

/// The second of a schedstat's numbers, in nanoseconds: `73397300 218227000 178`.
fn waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// A limit, and how much of it is used up.
#[derive(Debug)]
pub(crate) struct Patience {
    limit: Limit,
    /// When the last sign of progress came, in time that counts.
    since: Duration,
}

impl Patience {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, since: Duration::ZERO }
    }

    /// Something came from the program.
    pub(crate) fn progress(&mut self, pace: &Pace) {
        if matches!(self.limit, Limit::Silence(_)) {
            self.since = pace.counted();
        }
    }

    /// Whether it is used up.
    pub(crate) fn is_over(&self, pace: &Pace) -> bool {
        pace.counted().saturating_sub(self.since) >= self.limit.time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A pace after each second of which two threads waited so many hundredths.
    fn after(seconds: u32, hundredths: [u64; 2]) -> Pace {
        let mut pace = Pace::default();
        for second in 1..=seconds {
            let waited = |part: u64| Duration::from_millis(10 * part) * second;
            let threads = [(1, waited(hundredths[0])), (2, waited(hundredths[1]))];
            pace.count(threads.into(), SECOND * second);
        }
        pace
    }

    #[test]
    fn waiting_for_a_processor_does_not_count() {
        assert_eq!(after(100, [0, 0]).counted(), SECOND * 100);
        let busy = after(100, [75, 10]);
        assert_eq!((busy.counted(), busy.lost()), (SECOND * 25, SECOND * 75));
    }

    #[test]
    fn some_time_always_counts() {
        assert_eq!(after(100, [100, 100]).counted(), SECOND * 10);
    }

    #[test]
    fn silence_ends_a_run_and_progress_does_not() {
        let limit = SECOND * 20;
        let (mut whole, mut silence) =
            (Patience::new(Limit::Whole(limit)), Patience::new(Limit::Silence(limit)));
        assert!(!whole.is_over(&after(19, [0, 0])) && !silence.is_over(&after(79, [75, 0])));
        assert!(silence.is_over(&after(80, [75, 0])));
        for patience in [&mut whole, &mut silence] {
            patience.progress(&after(15, [0, 0]));
        }
        assert!(whole.is_over(&after(20, [0, 0])));
        assert!(!silence.is_over(&after(34, [0, 0])) && silence.is_over(&after(35, [0, 0])));
    }

    #[test]
    fn the_kernel_says_how_long_threads_waited() {
        assert_eq!(waited("73397300 218227000 178\n"), Some(Duration::from_nanos(218_227_000)));
        assert_eq!(waited(""), None);
        assert!(!threads(std::process::id()).is_empty());
    }
}
