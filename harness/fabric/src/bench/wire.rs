//! The verdict against the wire: what part of the port's rate each path reaches, and which paths are
//! slower than the others. A path that is slow at every size looks well when it is compared with
//! itself alone.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::bench::options::BenchOptions;
use crate::bench::sums::Key;
use crate::bench::sums::PathSum;
use crate::bench::sums::Sums;
use crate::bench::verdict::Judgement;
use crate::blame;
use crate::blame::RailPath;
use crate::blame::Totals;
use crate::outcome::PathView;
use crate::pairs;

/// Messages below this do not fill the wire, in bytes.
pub(super) const FILLS: usize = 64 << 10;
/// Paths that are ranked, the slowest first.
const RANKED: usize = 10;

/// What all paths come to, compared with the wire and with each other.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) judgement: Judgement,
    /// The slowest paths, in words.
    pub(super) ranked: Vec<String>,
    pub(super) paths: Vec<PathView>,
}

#[derive(Debug)]
struct Speed<'a> {
    sum: &'a PathSum,
    why: Vec<String>,
}

fn speeds(sums: &Sums) -> BTreeMap<Key, Speed<'_>> {
    sums.paths.iter().map(|(key, sum)| (*key, Speed { sum, why: Vec::new() })).collect()
}

/// A path beside the others of its rail.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    key: Key,
    /// If the path fills the wire.
    rate: Option<f64>,
    median: f64,
    least: f64,
}

impl Ranked {
    /// Of the median.
    fn part(&self, sums: &Sums) -> f64 {
        let gbps = sums.paths.get(&self.key).and_then(|sum| sum.gbps);
        gbps.map_or(0.0, |gbps| gbps / self.median.max(f64::MIN_POSITIVE))
    }

    fn words(&self, sums: &Sums) -> String {
        let Self { key: (from, to, rail), rate, median, least } = self;
        let mut words = Vec::new();
        let sum = sums.paths.get(&self.key);
        if let Some(gbps) = sum.and_then(|sum| sum.gbps).filter(|_| *median > 0.0) {
            words.push(format!("{gbps:.3} Gb/s, {:.0} % of the median", gbps / median * 100.0));
            if let Some(rate) = rate {
                words.push(format!("{:.0} % of the port's {rate} Gb/s", gbps / rate * 100.0));
            }
        }
        if let Some((_, us)) = sum.and_then(|sum| sum.p50_us) {
            words.push(format!("latency {us:.1} us, {:.1} times the least", us / least));
        }
        format!("rank {from} to {to}, rail {rail}: {}", words.join("; "))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// `rates`: of each rail's ports, in Gb/s; none where a rate says nothing.
pub(super) fn judge(args: &BenchOptions, sums: &Sums, rates: &[Option<f64>]) -> Wire {
    let mut speeds = speeds(sums);
    let rails: BTreeSet<usize> = speeds.keys().map(|(_, _, rail)| *rail).collect();
    let mut order: Vec<Ranked> = Vec::new();
    let mut judged = 0;
    for rail in rails {
        let rate = rates.get(rail).copied().flatten();
        let of_rail =
            || speeds.iter().filter(|((_, _, of), _)| *of == rail).map(|(_, speed)| speed);
        let median = median(of_rail().filter_map(|speed| speed.sum.gbps).collect());
        let least =
            of_rail().filter_map(|speed| Some(speed.sum.p50_us?.1)).fold(f64::INFINITY, f64::min);
        for (key, speed) in speeds.iter_mut().filter(|((_, _, of), _)| *of == rail) {
            let rate = rate.filter(|_| speed.sum.fills);
            let ranked = Ranked { key: *key, rate, median, least };
            if let (Some(gbps), Some(rate)) = (speed.sum.gbps.filter(|_| median > 0.0), rate) {
                judged += 1;
                let (part, share) = (gbps / median * 100.0, gbps / rate * 100.0);
                if share < args.min_share {
                    speed.why.push(format!("{gbps:.1} Gb/s is {share:.0} % of the port's {rate}"));
                }
                if part < args.min_of_median {
                    speed.why.push(format!("{gbps:.1} Gb/s is {part:.0} % of the median"));
                }
            }
            if let Some((size, us)) = speed.sum.p50_us {
                let times = us / least;
                if rates.get(rail).is_some_and(Option::is_some) && times > args.max_times_least {
                    speed.why.push(format!(
                        "the latency of {size} bytes, {us:.1} us, is {times:.1} times the least"
                    ));
                }
            }
            order.push(ranked);
        }
    }
    order.sort_by(|a, b| a.part(sums).total_cmp(&b.part(sums)));
    let ranked = order.iter().take(RANKED).map(|ranked| ranked.words(sums)).collect();
    let mut findings = places(&speeds);
    findings.extend(all_to_all(args, sums, rates));
    let bad = speeds.values().filter(|speed| !speed.why.is_empty()).count();
    let all = speeds.len();
    let (passed, words) = match (judged, findings.is_empty()) {
        (0, true) => {
            let why = "no port whose rate is a wire's, or no message of 64K and more";
            (None, format!("not judged: {why}"))
        }
        (_, true) => {
            let (share, part) = (args.min_share, args.min_of_median);
            let words = format!(
                "PASS: {all} paths reach {share} % of their ports' rates, and {part} % of the median"
            );
            (Some(true), words)
        }
        _ => (Some(false), format!("FAILED: {bad} of {all} paths")),
    };
    let paths = speeds.into_iter().map(|((from, to, rail), speed)| {
        let why: Vec<String> = speed.sum.errors.iter().cloned().chain(speed.why).collect();
        let p50_us = speed.sum.p50_us.map(|(_, us)| us);
        PathView { from, to, rail, good: why.is_empty(), gbps: speed.sum.gbps, p50_us, why }
    });
    let paths = paths.collect();
    Wire { judgement: Judgement { passed, findings, explained: Vec::new(), words }, ranked, paths }
}

/// What slow paths have in common, each place once.
fn places(speeds: &BTreeMap<Key, Speed<'_>>) -> Vec<String> {
    let undirected = |(from, to, rail): &Key| -> RailPath { (*from.min(to), *from.max(to), *rail) };
    let all: BTreeSet<RailPath> = speeds.keys().map(undirected).collect();
    let slow = speeds.iter().filter(|(_, speed)| !speed.why.is_empty());
    let bad: BTreeSet<RailPath> = slow.clone().map(|(key, _)| undirected(key)).collect();
    let (mut of_rails, mut between) = (BTreeMap::new(), BTreeMap::new());
    for (a, b, rail) in &all {
        *of_rails.entry((*a, *rail)).or_default() += 1;
        *of_rails.entry((*b, *rail)).or_default() += 1;
        *between.entry((*a, *b)).or_default() += 1;
    }
    let totals = Totals::of_rails(&of_rails, &between);
    let mut findings = Vec::new();
    for place in blame::of(&totals, &bad) {
        let of: Vec<_> = slow.clone().filter(|(key, _)| place.holds(undirected(key))).collect();
        let paths = match of.len() {
            1 => "1 path is slow".to_owned(),
            many => format!("{many} paths are slow"),
        };
        let example = of.first().map(|((from, to, rail), speed)| {
            format!("rank {from} to {to}, rail {rail}: {}", speed.why.join("; "))
        });
        findings.push(format!("{place}: {paths}, as {}", example.unwrap_or_default()));
    }
    findings
}

/// What each rank sends to all others at the same time, against the wire.
fn all_to_all(args: &BenchOptions, sums: &Sums, rates: &[Option<f64>]) -> Vec<String> {
    let share = |((rank, rail, _), gbps): (&(u32, usize, u32), &f64)| {
        let rate = rates.get(*rail).copied().flatten()?;
        let share = gbps / rate * 100.0;
        let words = format!(
            "rank {rank}, rail {rail}, to all others at once: {gbps:.1} Gb/s is {share:.0} % of the \
             port's {rate}"
        );
        (share < args.min_share).then_some(words)
    };
    sums.together.iter().filter_map(share).collect()
}

/// Pairs to try again: each rank with a slow path, with ranks that have none.
pub(super) fn suspects(wire: &Wire) -> Vec<(u32, u32)> {
    let bad: BTreeSet<u32> =
        wire.paths.iter().filter(|path| !path.good).flat_map(|path| [path.from, path.to]).collect();
    let all: BTreeSet<u32> = wire.paths.iter().flat_map(|path| [path.from, path.to]).collect();
    let met: BTreeSet<(u32, u32)> = wire.paths.iter().map(|path| (path.from, path.to)).collect();
    pairs::again(&bad, &all, &met)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cell::Cell;
    use crate::bench::options::Sweep;

    fn cell(sweep: Sweep, (from, to): (u32, u32), size: usize, per_second: f64) -> Cell {
        Cell {
            sweep: Some(sweep),
            from,
            to,
            size,
            valid: true,
            gbps: Some(per_second * size as f64 * 8e-9),
            messages_per_second: Some(per_second),
            p50_us: Some(3.0),
            ..Cell::default()
        }
    }

    /// All paths of eight ranks at 390 Gb/s, but those for which another speed is said.
    fn cells(gbps: impl Fn(u32, u32) -> f64) -> Vec<Cell> {
        let mut cells = Vec::new();
        for from in 0..8 {
            for to in (0..8).filter(|to| *to != from) {
                let per_second = gbps(from, to) * 1e9 / 8.0 / f64::from(1 << 20);
                cells.push(cell(Sweep::Sizes, (from, to), 1 << 20, per_second));
                cells.push(cell(Sweep::Sizes, (from, to), 64, per_second));
                cells.push(cell(Sweep::Latency, (from, to), 64, 1e5));
            }
        }
        cells
    }

    fn judged(cells: &[Cell], rate: Option<f64>) -> Wire {
        let mut sums = Sums::default();
        cells.iter().for_each(|cell| sums.add(cell.clone()));
        judge(&BenchOptions::default(), &sums, &[rate])
    }

    fn of(cells: &[Cell]) -> Wire {
        judged(cells, Some(400.0))
    }

    #[test]
    fn what_is_slow_at_every_size_fails_against_the_wire() {
        let well = of(&cells(|_, _| 390.0));
        assert_eq!(well.judgement.passed, Some(true), "{well:?}");
        // 230 messages a second at every size; 400G capped at 13; one QP at 284 of 392.
        let at_230: Vec<Cell> =
            [64, 4096, 65536, 1 << 20].map(|size| cell(Sweep::Sizes, (0, 1), size, 230.0)).to_vec();
        let found = of(&at_230).judgement;
        assert_eq!(found.passed, Some(false));
        assert!(found.findings[0].contains("1.9 Gb/s is 0 % of the port's 400"), "{found:?}");
        for capped in [13.0, 284.0] {
            let found = of(&cells(|_, _| capped)).judgement;
            assert_eq!(found.passed, Some(false));
            assert_eq!(found.words, "FAILED: 56 of 56 paths");
            assert!(
                found.findings[0].starts_with("all paths of all ranks: 56 paths are slow"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn who_is_slower_than_the_others_is_named_and_ranked() {
        let found = of(&cells(|from, to| if from == 3 || to == 3 { 345.0 } else { 392.0 }));
        let [place] = &found.judgement.findings[..] else { panic!("{found:?}") };
        assert!(place.starts_with("rank 3, with all others: 14 paths are slow"), "{place}");
        assert!(place.contains("345.0 Gb/s is 88 % of the median"), "{place}");
        assert!(
            found.ranked[0].contains("rail 0: 345.000 Gb/s, 88 % of the median; 86 % of the port")
        );
        assert_eq!(found.ranked.len(), RANKED);
        let mut slow = cells(|_, _| 390.0);
        for cell in slow.iter_mut().filter(|cell| (cell.from, cell.to) == (1, 2)) {
            cell.p50_us = Some(9.0);
        }
        let found = of(&slow).judgement;
        assert!(found.findings[0].contains("9.0 us, is 3.0 times the least"), "{found:?}");
        assert!(
            found.findings[0].starts_with("the way between ranks 1 and 2 on rail 0: 1 path is")
        );
    }

    #[test]
    fn all_at_once_is_judged_by_the_sum_and_software_is_not_judged() {
        let mut all = cells(|_, _| 390.0);
        for to in 1..8 {
            all.push(cell(Sweep::AllToAll, (0, to), 65536, 1e9 / 8.0 * 20.0 / 65536.0));
        }
        let found = of(&all).judgement;
        assert!(
            found.findings[0].contains("to all others at once: 140.0 Gb/s is 35 %"),
            "{found:?}"
        );
        let software = judged(&cells(|_, _| 1.0), None);
        assert_eq!(software.judgement.passed, None);
        assert!(software.judgement.words.starts_with("not judged"));
        assert!(software.paths.iter().all(|path| path.good));
    }

    #[test]
    fn the_slow_are_tried_again_with_those_who_are_not() {
        let only = |pairs: &[(u32, u32)]| -> Vec<Cell> {
            let all = cells(|from, to| if from == 3 || to == 3 { 13.0 } else { 392.0 });
            let has =
                |cell: &Cell| pairs.contains(&(cell.from.min(cell.to), cell.from.max(cell.to)));
            all.into_iter().filter(has).collect()
        };
        let quick = of(&only(&[(0, 1), (2, 3), (4, 5), (6, 7)]));
        let again = suspects(&quick);
        assert_eq!(again.len(), 4, "{again:?}");
        assert!(again.iter().all(|(a, b)| [2, 3].contains(a) && ![2, 3].contains(b)));
        let mut pairs = vec![(0, 1), (2, 3), (4, 5), (6, 7)];
        pairs.extend(again.iter().map(|(a, b)| (*a.min(b), *a.max(b))));
        let found = of(&only(&pairs)).judgement;
        let [place] = &found.findings[..] else { panic!("{found:?}") };
        assert!(place.starts_with("rank 3") || place.starts_with("rail 0 of rank 3"), "{place}");
    }
}
