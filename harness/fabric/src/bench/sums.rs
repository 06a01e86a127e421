//! What is kept of cells. A cluster of 128 ranks and 8 rails makes millions of cells, each of which is
//! written out as it comes; of a path a few numbers stay, and the cells of a sweep only until the sweep is
//! judged.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng as _;
use rand_xoshiro::rand_core::SeedableRng as _;

use crate::bench::cell::Cell;
use crate::bench::options::BenchOptions;
use crate::bench::options::Sweep;
use crate::bench::verdict;
use crate::bench::verdict::Judged;
use crate::bench::wire::FILLS;
use crate::counters;

/// Lines of one kind that are kept; the rest is counted.
const KEPT: usize = 2000;
/// Distinct errors of one path.
const ERRORS: usize = 4;
/// Values of which a median is made; of more, so many are drawn.
const DRAWN: usize = 4096;

/// A directed path: from, to, and the rail.
pub(crate) type Key = (u32, u32, usize);

/// Lines for people, of which there may be very many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    lines: Vec<String>,
    more: usize,
}

impl Kept {
    pub(crate) fn push(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() < KEPT {
            self.lines.push(line());
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn extend(&mut self, lines: Vec<String>) {
        lines.into_iter().for_each(|line| self.push(|| line));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        if self.more > 0 {
            lines.push(format!("and {} more: see --csv or --json", self.more));
        }
        lines
    }
}

/// What a path comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathSum {
    /// The best of the sweeps in which the path is alone.
    pub(crate) gbps: Option<f64>,
    /// The best of all sweeps.
    pub(crate) best: f64,
    /// Latency of the smallest size, the best of all repeats.
    pub(crate) p50_us: Option<(usize, f64)>,
    /// The 99th percentile of the smallest size: of one message at a time, and of anything.
    pub(crate) p99_us: Option<(usize, f64)>,
    pub(crate) any_p99_us: Option<(usize, f64)>,
    /// Whether messages were sent that fill the wire.
    pub(crate) fills: bool,
    pub(crate) errors: BTreeSet<String>,
}

/// Bandwidth of one size or target, over all paths and repeats, in Gb/s.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) at: f64,
    /// The least and the most of all.
    ends: (f64, f64),
    drawn: Vec<f64>,
    count: u64,
    random: SplitMix64,
    pub(crate) failed: usize,
}

impl Values {
    fn new(at: f64) -> Self {
        let ends = (f64::INFINITY, 0.0);
        let random = SplitMix64::seed_from_u64(at.to_bits());
        Self { at, ends, drawn: Vec::new(), count: 0, random, failed: 0 }
    }

    fn add(&mut self, gbps: f64) {
        self.count += 1;
        self.ends = (self.ends.0.min(gbps), self.ends.1.max(gbps));
        if self.drawn.len() < DRAWN {
            return self.drawn.push(gbps);
        }
        // Each of all values is among those that are drawn, with the same probability (algorithm R).
        let place = usize::try_from(self.random.next_u64() % self.count).unwrap_or(usize::MAX);
        if let Some(old) = self.drawn.get_mut(place) {
            *old = gbps;
        }
    }

    /// The least, the median and the most.
    pub(crate) fn gbps(&self) -> Option<(f64, f64, f64)> {
        let mut values = self.drawn.clone();
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len().checked_sub(1)? / 2)?;
        Some((self.ends.0, *median, self.ends.1))
    }
}

/// All that is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) cells: usize,
    /// Cells without numbers.
    pub(crate) bad: usize,
    pub(crate) paths: BTreeMap<Key, PathSum>,
    /// Of the sweeps that are judged as a whole, those that go on.
    open: Vec<Cell>,
    pub(crate) sizes: Judged,
    pub(crate) pace: Judged,
    /// Cells without numbers outside of these.
    pub(crate) failed: Kept,
    /// What each rank sends to all others at the same time, by rail and repeat, in Gb/s.
    pub(crate) together: BTreeMap<(u32, usize, u32), f64>,
    spreads: BTreeMap<(Sweep, u64), Values>,
}

/// The smaller size, and of one size the smaller value.
fn keep_least(kept: &mut Option<(usize, f64)>, found: Option<(usize, f64)>) {
    let better =
        |(size, us): &(usize, f64)| kept.is_none_or(|(of, best)| (*size, *us) < (of, best));
    if let Some(found) = found.filter(better) {
        *kept = Some(found);
    }
}

impl Sums {
    /// One more; the cell itself is kept only until its sweep is judged.
    pub(crate) fn add(&mut self, mut cell: Cell) {
        let Some(sweep) = cell.sweep else { return };
        self.cells += 1;
        self.bad += usize::from(!cell.valid);
        let sum = self.paths.entry((cell.from, cell.to, cell.rail)).or_default();
        if sum.errors.len() < ERRORS {
            sum.errors.extend(cell.first_error.clone());
        }
        sum.best = cell.gbps.unwrap_or(0.0).max(sum.best);
        let p99_us = cell.p99_us.map(|us| (cell.size, us)).filter(|_| cell.valid);
        keep_least(&mut sum.any_p99_us, p99_us);
        match sweep {
            Sweep::Latency => {
                keep_least(&mut sum.p99_us, p99_us);
                keep_least(&mut sum.p50_us, cell.p50_us.map(|us| (cell.size, us)));
            }
            Sweep::Sizes | Sweep::Pace => {
                let reaches_all = cell.target_gbps.is_none();
                sum.fills |= reaches_all && cell.size >= FILLS && cell.valid;
                sum.gbps = match (sum.gbps, cell.gbps) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    (a, b) => a.or(b),
                };
            }
            Sweep::AllToAll if cell.size >= FILLS => {
                *self.together.entry((cell.from, cell.rail, cell.repeat)).or_default() +=
                    cell.gbps.unwrap_or(0.0);
            }
            _ => {}
        }
        self.spread(sweep, &cell);
        if matches!(sweep, Sweep::Sizes | Sweep::Pace) {
            // What explains something is kept.
            cell.counters.retain(|name, _| counters::sign(name).is_some());
            self.open.push(cell);
        } else if !cell.valid {
            self.failed.push(|| verdict::fault(&cell));
        }
    }

    fn spread(&mut self, sweep: Sweep, cell: &Cell) {
        let at = match sweep {
            // What has no target comes last.
            Sweep::Pace => cell.target_gbps.unwrap_or(f64::INFINITY),
            Sweep::Sizes => cell.size as f64,
            _ => return,
        };
        // Positive numbers are in the order of their bits.
        let spread = self.spreads.entry((sweep, at.to_bits())).or_insert_with(|| Values::new(at));
        match cell.gbps {
            Some(gbps) => spread.add(gbps),
            None => spread.failed += 1,
        }
    }

    /// Bandwidth by size, or by target.
    pub(crate) fn spreads(&self, sweep: Sweep) -> impl Iterator<Item = &Values> {
        self.spreads.iter().filter(move |((of, _), _)| *of == sweep).map(|(_, spread)| spread)
    }

    /// The sweeps that went on are over.
    pub(crate) fn settle(&mut self, args: &BenchOptions) {
        let open = std::mem::take(&mut self.open);
        let tolerance = args.tolerance / 100.0;
        verdict::sizes(&open, tolerance, &mut self.sizes);
        verdict::pace(&open, tolerance, &mut self.pace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::verdict::Verdicts;
    use crate::bench::wire;

    const RANKS: u32 = 128;
    const RAILS: usize = 8;

    /// Of this process, in bytes.
    fn resident() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    fn cell(sweep: Sweep, (from, to): (u32, u32), rail: usize, size: usize) -> Cell {
        let failed = (from + to) % 50 == 0;
        let counters = ["out_of_sequence", "packet_seq_err", "np_cnp_sent", "tx_bytes_phy"];
        let number = |value: f64| Some(value).filter(|_| !failed);
        Cell {
            sweep: Some(sweep),
            from,
            to,
            rail,
            size,
            valid: !failed,
            gbps: number(390.0),
            messages_per_second: number(390e9 / 8.0 / size as f64),
            p50_us: number(3.0),
            p99_us: number(9.0),
            first_error: failed.then(|| "RETRY_EXC_ERR: nothing was acknowledged".repeat(4)),
            counters: counters.iter().map(|name| ((*name).to_owned(), 7)).collect(),
            ..Cell::default()
        }
    }

    /// All paths of 128 ranks with 8 rails, one message at a time and at seven sizes: a million cells. Rank 0
    /// is promised to stay below 256 MiB.
    #[test]
    fn rank_0_stays_small() {
        // Other tests of this process have memory of their own.
        let test = "bench::sums::tests::a_million_cells_leave_a_few_numbers_of_each_path";
        let program = std::env::current_exe().unwrap();
        let run = std::process::Command::new(program).args(["--exact", test, "--ignored"]).output();
        let run = run.unwrap();
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "rank_0_stays_small runs it in a process of its own"]
    fn a_million_cells_leave_a_few_numbers_of_each_path() {
        let before = resident();
        let args = BenchOptions { max_p99_us: Some(8.0), ..BenchOptions::default() };
        let mut sums = Sums::default();
        for apart in 1..RANKS {
            for (sweep, sizes) in [(Sweep::Latency, 1), (Sweep::Sizes, 7)] {
                for size in (0..sizes).map(|n| 64 << (2 * n)) {
                    for (from, rail) in (0..RANKS).flat_map(|r| (0..RAILS).map(move |l| (r, l))) {
                        sums.add(cell(sweep, (from, (from + apart) % RANKS), rail, size));
                    }
                }
                assert!(sums.open.len() <= 7 * 128 * 8);
                sums.settle(&args);
                assert!(sums.open.is_empty());
            }
        }
        assert_eq!((sums.cells, sums.paths.len()), (128 * 127 * 8 * 8, 128 * 127 * 8));
        let wire = wire::judge(&args, &sums, &[Some(400.0); RAILS]);
        let verdicts = Verdicts::of(&args, &sums, wire, true);
        let used = resident().saturating_sub(before);
        println!("{} MiB", used >> 20);
        assert!(used < 160 << 20, "{} MiB", used >> 20);
        for lines in [&verdicts.faults, &verdicts.sizes.findings] {
            assert_eq!(lines.len(), KEPT + 1);
            assert!(lines[KEPT].starts_with("and ") && lines[KEPT].contains(" more: see --csv"));
        }
        assert!(!verdicts.passed && verdicts.wire.passed == Some(true));
    }

    #[test]
    fn a_median_of_very_many_is_drawn_and_the_ends_are_those_of_all() {
        let mut spread = Values::new(64.0);
        assert_eq!(spread.gbps(), None);
        for value in 1..=100_001_u32 {
            spread.add(f64::from(value));
        }
        let (least, median, most) = spread.gbps().unwrap();
        assert_eq!((least, most, spread.drawn.len()), (1.0, 100_001.0, DRAWN));
        assert!((median / 50_001.0 - 1.0).abs() < 0.1, "{median}");
    }
}
