//! The verdicts on all cells.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::cell::Cell;
use crate::bench::options::BenchOptions;
use crate::bench::options::Sweep;
use crate::bench::sums::Kept;
use crate::bench::sums::Sums;
use crate::bench::wire::Wire;

/// Below this part of what a smaller size reaches, the bandwidth of a size has collapsed.
const COLLAPSED: f64 = 0.5;

/// What a sweep comes to.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Judgement {
    /// None: it was not measured.
    pub(crate) passed: Option<bool>,
    /// What is wrong.
    pub(crate) findings: Vec<String>,
    /// What is bad, and explained.
    pub(crate) explained: Vec<String>,
    /// In one line.
    pub words: String,
}

/// All that is said at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Verdicts {
    pub sizes: Judgement,
    pub pace: Judgement,
    /// Against the ports' rates, and against each other.
    pub(crate) wire: Judgement,
    /// The slowest paths.
    pub(crate) slowest: Vec<String>,
    /// Cells without numbers, and thresholds that are missed.
    pub(crate) faults: Vec<String>,
    pub cells: usize,
    /// Not all was measured.
    pub(crate) complete: bool,
    pub(crate) passed: bool,
}

impl Verdicts {
    /// Of sweeps that are settled.
    pub(super) fn of(args: &BenchOptions, sums: &Sums, wire: Wire, complete: bool) -> Self {
        let percent = args.tolerance;
        let (sizes, pace) = (
            sums.sizes.judgement(
                "messages a second do not fall as sizes fall, and no size collapses unexplained",
            ),
            sums.pace.judgement(&format!("every target is met within {percent} %, each time")),
        );
        let faults = faults(args, sums);
        let good = |verdict: &Judgement| verdict.passed != Some(false);
        let Wire { judgement: wire, ranked: slowest, .. } = wire;
        let well = good(&sizes) && good(&pace) && good(&wire) && faults.is_empty();
        let (cells, passed) = (sums.cells, complete && well);
        Self { sizes, pace, wire, slowest, faults, cells, complete, passed }
    }
}

/// What sweeps of one kind come to, as far as they are over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    all: usize,
    bad: usize,
    findings: Kept,
    explained: Kept,
}

impl Judged {
    fn add(&mut self, findings: Vec<String>, explained: Vec<String>) {
        self.all += 1;
        self.bad += usize::from(!findings.is_empty());
        self.findings.extend(findings);
        self.explained.extend(explained);
    }

    fn judgement(&self, well: &str) -> Judgement {
        let Self { all, bad, findings, explained } = self;
        let (passed, words) = match (all, bad) {
            (0, _) => (None, "not measured".to_owned()),
            (_, 0) => (Some(true), format!("PASS: {well} ({all} sweeps)")),
            _ => (Some(false), format!("FAILED: {bad} of {all} sweeps")),
        };
        let (findings, explained) = (findings.lines(), explained.lines());
        Judgement { passed, findings, explained, words }
    }
}

/// The cells of each path and repeat of a sweep, the smallest size and target first.
fn paths(cells: &[Cell], sweep: Sweep) -> Vec<Vec<&Cell>> {
    let mut paths: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.sweep == Some(sweep)) {
        paths.entry((cell.from, cell.to, cell.rail, cell.repeat)).or_default().push(cell);
    }
    paths.values_mut().for_each(|path| path.sort_by_key(|cell| cell.size));
    paths.into_values().collect()
}

/// Messages a second must not fall as sizes fall, and no size's bandwidth may collapse without a
/// drop or an error that explains it.
pub(super) fn sizes(cells: &[Cell], tolerance: f64, judged: &mut Judged) {
    for path in &paths(cells, Sweep::Sizes) {
        let (mut findings, mut explained) = (Vec::new(), Vec::new());
        for (index, cell) in path.iter().enumerate() {
            let at = format!("{}, {} bytes", cell.path(), cell.size);
            let (Some(rate), Some(gbps)) = (cell.messages_per_second, cell.gbps) else {
                findings.push(format!("{at}: {}", failure(cell)));
                continue;
            };
            let (smaller, larger) = path.split_at(index);
            let best = |of: Option<f64>, most: f64| of.map_or(most, |value| value.max(most));
            let larger = larger.iter().filter(|other| other.size > cell.size);
            let more = larger.fold(0.0, |most, other| best(other.messages_per_second, most));
            if rate < more * (1.0 - 2.0 * tolerance) {
                let why = causes(cell);
                findings.push(format!(
                    "{at}: {rate:.0} messages a second, and {more:.0} of a larger size{why}"
                ));
            }
            let most = smaller.iter().fold(0.0, |most, other| best(other.gbps, most));
            if gbps < most * COLLAPSED {
                let words = format!("{at}: {gbps:.3} Gb/s, and {most:.3} with a smaller size");
                match causes(cell) {
                    why if why.is_empty() => {
                        findings.push(format!("{words}: no drop and no error explains the fall"))
                    }
                    why => explained.push(words + &why),
                }
            }
        }
        judged.add(findings, explained);
    }
}

/// Each target must be met, each time.
pub(super) fn pace(cells: &[Cell], tolerance: f64, judged: &mut Judged) {
    for path in &paths(cells, Sweep::Pace) {
        let mut findings = Vec::new();
        for cell in path {
            let target = cell.target_gbps.map_or("unpaced".into(), |t| format!("target {t} Gb/s"));
            let at = format!("{}, {target}, repeat {}", cell.path(), cell.repeat + 1);
            match (cell.target_gbps, cell.gbps) {
                (_, None) => findings.push(format!("{at}: {}", failure(cell))),
                (Some(target), Some(gbps)) if (gbps / target - 1.0).abs() > tolerance => {
                    findings.push(format!("{at}: {gbps:.3} Gb/s{}", causes(cell)));
                }
                _ => {}
            }
        }
        judged.add(findings, Vec::new());
    }
}

/// A cell without numbers.
pub(super) fn fault(cell: &Cell) -> String {
    format!("{}, {} bytes: {}", cell.path(), cell.size, failure(cell))
}

fn failure(cell: &Cell) -> String {
    format!("failed: {}", cell.first_error.as_deref().unwrap_or("unknown"))
}

fn causes(cell: &Cell) -> String {
    let causes = cell.causes();
    if causes.is_empty() { String::new() } else { format!(": {}", causes.join(", ")) }
}

/// Cells without numbers outside of the two sweeps that are judged as a whole, and thresholds.
fn faults(args: &BenchOptions, sums: &Sums) -> Vec<String> {
    let mut faults = sums.failed.clone();
    for ((from, to, rail), path) in &sums.paths {
        let name = || format!("rank {from} to {to}, rail {rail}");
        let best = path.best;
        if let Some(least) = args.min_gbps.filter(|least| best < *least) {
            faults
                .push(|| format!("{}: at best {best:.3} Gb/s, and --min-gbps is {least}", name()));
        }
        // One message at a time, where that was measured.
        if let (Some((size, p99)), Some(most)) = (path.p99_us.or(path.any_p99_us), args.max_p99_us)
            && p99 > most
        {
            faults.push(|| {
                format!("{}, {size} bytes: p99 is {p99:.1} us, --max-p99-us is {most}", name())
            });
        }
    }
    faults.lines()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wire;

    fn cell(sweep: Sweep, size: usize, per_second: Option<f64>) -> Cell {
        Cell {
            sweep: Some(sweep),
            to: 1,
            size,
            valid: per_second.is_some(),
            gbps: per_second.map(|n| n * size as f64 * 8e-9),
            messages_per_second: per_second,
            p99_us: per_second.map(|_| 9.0),
            first_error: per_second.is_none().then(|| "RETRY_EXC_ERR".to_owned()),
            ..Cell::default()
        }
    }

    fn summed(cells: &[Cell]) -> Sums {
        let mut sums = Sums::default();
        cells.iter().for_each(|cell| sums.add(cell.clone()));
        sums.settle(&BenchOptions::default());
        sums
    }

    fn verdicts(cells: &[Cell]) -> Verdicts {
        let (args, sums) = (BenchOptions::default(), summed(cells));
        let wire = wire::judge(&args, &sums, &[None]);
        Verdicts::of(&args, &sums, wire, true)
    }

    fn of(rates: &[(usize, Option<f64>)]) -> Judgement {
        let cells: Vec<Cell> =
            rates.iter().map(|(size, rate)| cell(Sweep::Sizes, *size, *rate)).collect();
        verdicts(&cells).sizes
    }

    #[test]
    fn a_size_that_collapses_is_named_and_noise_is_none() {
        let well = of(&[(64, Some(95.0)), (4096, Some(100.0)), (65536, Some(10.0))]);
        assert_eq!((well.passed, well.findings.len()), (Some(true), 0), "{well:?}");
        // As it looks when one missing receive stops everything for 655 ms.
        let dip = of(&[(64, Some(100.0)), (4096, Some(3.0)), (65536, Some(10.0))]);
        assert_eq!(dip.passed, Some(false));
        assert!(dip.findings[0].starts_with("rank 0 to 1, rail 0, 4096 bytes: 3 messages"));
        // More messages than of a larger size, and yet less than half of the bandwidth.
        let collapse = of(&[(4096, Some(1e6)), (65536, Some(1e3))]);
        assert!(collapse.findings[0].ends_with("no error explains the fall"), "{collapse:?}");
        let failed = of(&[(64, Some(100.0)), (4096, None)]);
        assert!(failed.findings[0].ends_with("4096 bytes: failed: RETRY_EXC_ERR"));
        assert_eq!(of(&[]).passed, None);
    }

    #[test]
    fn a_collapse_that_a_counter_explains_is_told_and_not_held_against_the_sweep() {
        let mut slow = cell(Sweep::Sizes, 65536, Some(1e3));
        slow.counters.insert("rcvd_rnr_err".to_owned(), 7);
        let found = verdicts(&[cell(Sweep::Sizes, 4096, Some(1e6)), slow]).sizes;
        assert_eq!((found.passed, found.findings.len()), (Some(true), 0));
        assert!(found.explained[0].ends_with("rcvd_rnr_err rose by 7"), "{found:?}");
    }

    #[test]
    fn a_target_that_is_missed_once_is_named() {
        let at = |target, gbps, repeat| Cell {
            target_gbps: Some(target),
            gbps: Some(gbps),
            repeat,
            ..cell(Sweep::Pace, 65536, Some(1.0))
        };
        // 25 fell to 0.695 while its neighbours were perfect, one time of three.
        let mut cells = vec![at(10.0, 10.0, 0), at(25.0, 24.9, 0), at(50.0, 48.0, 0)];
        cells.extend([at(10.0, 10.0, 1), at(25.0, 0.695, 1), at(50.0, 50.0, 1)]);
        let found = verdicts(&cells).pace;
        assert_eq!(found.passed, Some(false));
        assert_eq!(found.words, "FAILED: 1 of 2 sweeps");
        assert_eq!(found.findings, ["rank 0 to 1, rail 0, target 25 Gb/s, repeat 2: 0.695 Gb/s"]);
        cells.remove(4);
        assert_eq!(verdicts(&cells).pace.passed, Some(true));
    }

    #[test]
    fn thresholds_are_kept_by_each_path_and_failures_are_faults() {
        let cells = [cell(Sweep::Latency, 64, Some(1e6)), cell(Sweep::Ring, 4096, None)];
        let faults = |args: &BenchOptions, cells: &[Cell]| faults(args, &summed(cells));
        assert_eq!(faults(&BenchOptions::default(), &cells[..1]), [""; 0]);
        assert!(
            faults(&BenchOptions::default(), &cells)[0]
                .ends_with("4096 bytes: failed: RETRY_EXC_ERR")
        );
        let asked = |gbps, us| {
            let (min_gbps, max_p99_us) = (Some(gbps), Some(us));
            BenchOptions { min_gbps, max_p99_us, ..BenchOptions::default() }
        };
        let strict = asked(1.0, 8.0);
        assert_eq!(faults(&strict, &cells[..1]).len(), 2);
        assert_eq!(faults(&asked(0.5, 9.0), &cells[..1]), [""; 0]);
        let (args, sums) = (BenchOptions::default(), summed(&cells[..1]));
        let verdicts = |complete| {
            let wire = wire::judge(&args, &sums, &[None]);
            Verdicts::of(&args, &sums, wire, complete)
        };
        assert!(verdicts(true).passed && !verdicts(false).passed);
    }

    /// What is slow at every size is even, and passes each sweep by itself: only the wire tells.
    #[test]
    fn a_path_that_is_slow_at_every_size_fails_the_run() {
        let sizes = [64, 4096, 64 << 10, 1 << 20];
        let run = |per_second: &dyn Fn(usize) -> f64| {
            let of = |size: &usize| cell(Sweep::Sizes, *size, Some(per_second(*size)));
            let cells: Vec<Cell> = sizes.iter().map(of).collect();
            let (args, sums) = (BenchOptions::default(), summed(&cells));
            let wire = wire::judge(&args, &sums, &[Some(400.0)]);
            Verdicts::of(&args, &sums, wire, true)
        };
        let capped = |gbps: f64| move |size: usize| (gbps * 1.25e8 / size as f64).min(1e6);
        for slow in [run(&|_| 230.0), run(&capped(13.0))] {
            assert_eq!((slow.sizes.passed, slow.wire.passed), (Some(true), Some(false)));
            assert!(!slow.passed, "{slow:?}");
        }
        assert!(run(&capped(390.0)).passed);
    }
}
