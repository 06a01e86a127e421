//! The verdicts on all cells.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::cell::Cell;
use crate::bench::options::BenchOptions;
use crate::bench::options::Sweep;
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
    pub(super) fn of(args: &BenchOptions, cells: &[Cell], wire: Wire, complete: bool) -> Self {
        let tolerance = args.tolerance / 100.0;
        let (sizes, pace) = (sizes(cells, tolerance), pace(cells, tolerance));
        let faults = faults(args, cells);
        let good = |verdict: &Judgement| verdict.passed != Some(false);
        let Wire { judgement: wire, ranked: slowest, .. } = wire;
        let well = good(&sizes) && good(&pace) && good(&wire) && faults.is_empty();
        let (cells, passed) = (cells.len(), complete && well);
        Self { sizes, pace, wire, slowest, faults, cells, complete, passed }
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
fn sizes(cells: &[Cell], tolerance: f64) -> Judgement {
    let paths = paths(cells, Sweep::Sizes);
    let (mut findings, mut explained) = (Vec::new(), Vec::new());
    let mut bad = 0;
    for path in &paths {
        let before = findings.len();
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
        bad += usize::from(findings.len() > before);
    }
    let well = "messages a second do not fall as sizes fall, and no size collapses unexplained";
    verdict(&paths, bad, findings, explained, well.to_owned())
}

/// Each target must be met, each time.
fn pace(cells: &[Cell], tolerance: f64) -> Judgement {
    let paths = paths(cells, Sweep::Pace);
    let mut findings = Vec::new();
    let mut bad = 0;
    for path in &paths {
        let before = findings.len();
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
        bad += usize::from(findings.len() > before);
    }
    let percent = tolerance * 100.0;
    let well = format!("every target is met within {percent} %, each time");
    verdict(&paths, bad, findings, Vec::new(), well)
}

fn verdict(
    paths: &[Vec<&Cell>],
    bad: usize,
    findings: Vec<String>,
    explained: Vec<String>,
    well: String,
) -> Judgement {
    let all = paths.len();
    let (passed, words) = match (all, bad) {
        (0, _) => (None, "not measured".to_owned()),
        (_, 0) => (Some(true), format!("PASS: {well} ({all} sweeps)")),
        _ => (Some(false), format!("FAILED: {bad} of {all} sweeps")),
    };
    Judgement { passed, findings, explained, words }
}

fn failure(cell: &Cell) -> String {
    format!("failed: {}", cell.first_error.as_deref().unwrap_or("unknown"))
}

fn causes(cell: &Cell) -> String {
    let causes = cell.causes();
    if causes.is_empty() { String::new() } else { format!(": {}", causes.join(", ")) }
}

/// Cells without numbers outside of the two sweeps that are judged as a whole, and thresholds.
fn faults(args: &BenchOptions, cells: &[Cell]) -> Vec<String> {
    let judged = [Some(Sweep::Sizes), Some(Sweep::Pace)];
    let others = cells.iter().filter(|cell| !judged.contains(&cell.sweep) && !cell.valid);
    let mut faults: Vec<String> = others
        .map(|cell| format!("{}, {} bytes: {}", cell.path(), cell.size, failure(cell)))
        .collect();
    let mut all: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        all.entry((cell.from, cell.to, cell.rail)).or_default().push(cell);
    }
    for path in all.values() {
        let Some(name) = path.first().map(|cell| cell.path()) else { continue };
        let best = path.iter().filter_map(|cell| cell.gbps).fold(0.0, f64::max);
        if let Some(least) = args.min_gbps.filter(|least| best < *least) {
            faults.push(format!("{name}: at best {best:.3} Gb/s, and --min-gbps is {least}"));
        }
        // One message at a time, where that was measured.
        let latency = |cell: &&&Cell| cell.sweep == Some(Sweep::Latency) && cell.valid;
        let first = |cells: &mut dyn Iterator<Item = &&Cell>| {
            cells.min_by_key(|cell| cell.size).map(|cell| (cell.size, cell.p99_us))
        };
        let small = first(&mut path.iter().filter(latency))
            .or_else(|| first(&mut path.iter().filter(|cell| cell.valid)));
        if let (Some((size, Some(p99))), Some(most)) = (small, args.max_p99_us)
            && p99 > most
        {
            faults
                .push(format!("{name}, {size} bytes: p99 is {p99:.1} us, --max-p99-us is {most}"));
        }
    }
    faults
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

    fn of(rates: &[(usize, Option<f64>)]) -> Judgement {
        let cells: Vec<Cell> =
            rates.iter().map(|(size, rate)| cell(Sweep::Sizes, *size, *rate)).collect();
        sizes(&cells, 0.1)
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
        let found = sizes(&[cell(Sweep::Sizes, 4096, Some(1e6)), slow], 0.1);
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
        let found = pace(&cells, 0.1);
        assert_eq!(found.passed, Some(false));
        assert_eq!(found.words, "FAILED: 1 of 2 sweeps");
        assert_eq!(found.findings, ["rank 0 to 1, rail 0, target 25 Gb/s, repeat 2: 0.695 Gb/s"]);
        cells.remove(4);
        assert_eq!(pace(&cells, 0.1).passed, Some(true));
    }

    #[test]
    fn thresholds_are_kept_by_each_path_and_failures_are_faults() {
        let cells = [cell(Sweep::Latency, 64, Some(1e6)), cell(Sweep::Ring, 4096, None)];
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
        let verdicts = |complete| {
            let wire = wire::judge(&BenchOptions::default(), &cells[..1], &[None]);
            Verdicts::of(&BenchOptions::default(), &cells[..1], wire, complete)
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
            let wire = wire::judge(&BenchOptions::default(), &cells, &[Some(400.0)]);
            Verdicts::of(&BenchOptions::default(), &cells, wire, true)
        };
        let capped = |gbps: f64| move |size: usize| (gbps * 1.25e8 / size as f64).min(1e6);
        for slow in [run(&|_| 230.0), run(&capped(13.0))] {
            assert_eq!((slow.sizes.passed, slow.wire.passed), (Some(true), Some(false)));
            assert!(!slow.passed, "{slow:?}");
        }
        assert!(run(&capped(390.0)).passed);
    }
}
