//! What a supervisor takes, over time.

use std::collections::BTreeMap;
use std::fs;

/// How much anonymous memory may grow between the second quarter of a run and the last one, in KiB: what a guest
/// that is just being served takes, and its thread's stack. Pages of the program's own file come and go with what
/// the guests ask for, and cannot leak.
const GROWTH_KIB: u64 = 256;
/// How many more descriptors and threads there may be when fewest are: those of guests that are just being served
/// come and go, and a supervisor closes those of threads that have ended when it holds so many.
const MORE: u64 = 32;
/// Percentiles of the looks.
const MEDIAN: usize = 50;
const FEWEST: usize = 5;
/// Of fewer looks nothing is concluded.
const LOOKS: usize = 16;

/// One look.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// `VmRSS` (proc_pid_status(5)).
    resident: u64,
    /// `RssAnon`.
    anonymous: u64,
    descriptors: u64,
    threads: u64,
}

/// A process that is looked at now and then.
#[derive(Debug)]
pub(super) struct Watched {
    pid: u32,
    looks: Vec<Look>,
    /// At the last look: how many descriptors there were of each kind.
    kinds: BTreeMap<String, u64>,
}

/// Of a descriptor's link (proc_pid_fd(5)) what tells its kind: without numbers.
fn kind(link: &str) -> String {
    link.chars().filter(|c| !c.is_ascii_digit()).collect()
}

impl Watched {
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, looks: Vec::new(), kinds: BTreeMap::new() }
    }

    /// Looks; a process that is gone shows nothing.
    pub(super) fn look(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        let Ok(links) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return };
        let mut kinds = BTreeMap::new();
        for link in links.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()) {
            *kinds.entry(kind(&link.to_string_lossy())).or_default() += 1;
        }
        if let (Some(resident), Some(anonymous), Some(threads)) =
            (field("VmRSS:"), field("RssAnon:"), field("Threads:"))
        {
            let descriptors = kinds.values().sum();
            self.kinds = kinds;
            self.looks.push(Look { resident, anonymous, descriptors, threads });
        }
    }

    /// A percentile of each of so many equal parts of the run.
    fn parts(&self, parts: usize, percent: usize, of: impl Fn(&Look) -> u64) -> Vec<u64> {
        let length = (self.looks.len() / parts).max(1);
        let one = |looks: &[Look]| {
            let mut values: Vec<u64> = looks.iter().map(&of).collect();
            values.sort_unstable();
            values.get(values.len() * percent / 100).copied()
        };
        // The first few are left out, so that the parts are equal.
        let late = self.looks.len().saturating_sub(length * parts);
        let looks = self.looks.get(late..).unwrap_or_default();
        looks.chunks(length).filter_map(one).collect()
    }

    /// The second and the last quarter.
    fn early_and_late(&self, percent: usize, of: impl Fn(&Look) -> u64) -> [u64; 2] {
        match self.parts(4, percent, of).as_slice() {
            [_, early, _, late] => [*early, *late],
            _ => [0, 0],
        }
    }

    /// What has grown.
    pub(super) fn faults(&self) -> Vec<String> {
        if self.looks.len() < LOOKS {
            return Vec::new();
        }
        let grown = |what: &str, may: u64, percent: usize, of: fn(&Look) -> u64| {
            let [early, late] = self.early_and_late(percent, of);
            let what = || format!("{what} grew from {early} to {late}");
            (late > early + may).then(what)
        };
        let all = [
            grown("the supervisor's anonymous memory (KiB)", GROWTH_KIB, MEDIAN, |look| {
                look.anonymous
            }),
            grown("the supervisor's descriptors", MORE, FEWEST, |look| look.descriptors),
            grown("the supervisor's threads", MORE, FEWEST, |look| look.threads),
        ];
        let mut faults: Vec<String> = all.into_iter().flatten().collect();
        if !faults.is_empty() {
            // Growth that comes to an end looks unlike growth that does not.
            let course = self.parts(8, MEDIAN, |look| look.anonymous);
            faults.push(format!("its anonymous memory in each eighth of the time: {course:?}"));
            faults.push(format!("its descriptors at last: {:?}", self.kinds));
        }
        faults
    }

    /// Early and late: resident memory and anonymous memory, medians; descriptors and threads, when fewest are.
    pub(super) fn cells(&self) -> [String; 4] {
        let mib = |[early, late]: [u64; 2]| {
            let [early, late] = [early, late].map(|kib| {
                let tenths = kib * 10 / 1024;
                format!("{}.{}", tenths / 10, tenths % 10)
            });
            format!("{early} → {late}")
        };
        let plain = |[early, late]: [u64; 2]| format!("{early} → {late}");
        [
            mib(self.early_and_late(MEDIAN, |look| look.resident)),
            mib(self.early_and_late(MEDIAN, |look| look.anonymous)),
            plain(self.early_and_late(FEWEST, |look| look.descriptors)),
            plain(self.early_and_late(FEWEST, |look| look.threads)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(looks: impl Iterator<Item = u64>) -> Watched {
        let of = |anonymous| Look { resident: 9000, anonymous, descriptors: 20, threads: 7 };
        let looks = looks.map(of).collect();
        Watched { pid: 0, looks, kinds: BTreeMap::new() }
    }

    #[test]
    fn memory_that_settles_is_flat_and_memory_that_grows_is_a_fault() {
        let settles = seen((0..64).map(|at: u64| 4000 + at.min(8) * 500));
        assert_eq!(settles.faults(), [""; 0]);
        assert_eq!(settles.cells(), ["8.7 → 8.7", "7.8 → 7.8", "20 → 20", "7 → 7"]);
        let grows = seen((0..64).map(|at| 4000 + at * 20));
        let faults = grows.faults();
        assert!(faults.len() == 3 && faults[0].contains("memory"), "{faults:?}");
        // Guests that come and go are none; what is kept of each is.
        let of = |descriptors| Look { descriptors, ..Look::default() };
        let watched = |looks: Vec<Look>| Watched { looks, ..seen([].into_iter()) };
        let come_and_go =
            (0..64).map(|at: u64| of(if at < 32 || at.is_multiple_of(8) { 40 } else { 72 }));
        assert_eq!(watched(come_and_go.collect()).faults(), [""; 0]);
        let kept = (0..64).map(|at: u64| of(40 + at * 2 + at % 8));
        assert_eq!(watched(kept.collect()).faults().len(), 3);
        // Of a short run nothing is said.
        assert_eq!(seen((0..8).map(|at| 4000 + at * 900)).faults(), [""; 0]);
    }
}
