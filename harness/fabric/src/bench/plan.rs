//! The plan of cells, and their order: all ranks make the same plan, and each rank takes its part.

use crate::bench::options::BenchOptions;
use crate::bench::options::Sweep;
use crate::steps::partner;
use crate::steps::round_count;

/// Messages from one rank to another on one rail.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Flow {
    pub from: u32,
    pub to: u32,
    pub rail: usize,
}

/// Who sends to whom at the same time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pattern {
    /// The pairs of a round of the tournament on one rail: the lower rank sends, or the higher.
    Pairs {
        round: u32,
        rail: usize,
        lower: bool,
    },
    /// Both.
    Both {
        round: u32,
        rail: usize,
    },
    All,
    Ring,
}

/// What is measured at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub sweep: Sweep,
    pattern: Pattern,
    pub size: usize,
    /// In Gb/s; none is unpaced.
    pub target: Option<f64>,
    /// Messages on their way at a time.
    pub window: u32,
    pub repeat: u32,
}

/// The shape of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub ranks: u32,
    /// Of each rail, the slowest port's rate in Gb/s, if it is known.
    pub(crate) rates: Vec<Option<f64>>,
}

/// All steps, in their order.
pub(crate) fn steps(args: &BenchOptions, shape: &Shape) -> Vec<Step> {
    let mut steps = Vec::new();
    let rails = || shape.rates.iter().enumerate();
    let rounds = round_count(shape.ranks);
    let mut push = |sweep, pattern, sizes: &[usize], targets: &[Option<f64>], window| {
        for repeat in 0..args.repeats(sweep) {
            for (size, target) in
                sizes.iter().flat_map(|size| targets.iter().map(move |target| (*size, *target)))
            {
                steps.push(Step { sweep, pattern, size, target, window, repeat });
            }
        }
    };
    let (message, unpaced) = ([args.message], [None]);
    for sweep in [Sweep::Latency, Sweep::Sizes, Sweep::Pace] {
        for (rail, rate) in rails().filter(|_| args.has(sweep)) {
            let paced = args.targets(*rate);
            for (round, lower) in (0..rounds).flat_map(|round| [(round, true), (round, false)]) {
                let pairs = Pattern::Pairs { round, rail, lower };
                match sweep {
                    Sweep::Latency => push(sweep, pairs, &args.sizes, &unpaced, 1),
                    Sweep::Sizes => push(sweep, pairs, &args.sizes, &unpaced, args.window),
                    _ => push(sweep, pairs, &message, &paced, args.window),
                }
            }
        }
    }
    for (rail, _) in rails().filter(|_| args.has(Sweep::Bidirectional)) {
        for round in 0..rounds {
            let both = Pattern::Both { round, rail };
            push(Sweep::Bidirectional, both, &message, &unpaced, args.window);
        }
    }
    for (sweep, pattern) in [(Sweep::AllToAll, Pattern::All), (Sweep::Ring, Pattern::Ring)] {
        if args.has(sweep) && shape.ranks > 1 {
            push(sweep, pattern, &message, &unpaced, args.window);
        }
    }
    steps
}

impl Step {
    /// Those in which this rank takes part.
    pub(crate) fn flows(&self, rank: u32, shape: &Shape) -> Vec<Flow> {
        let Shape { ranks, rates } = shape;
        let ranks = *ranks;
        let all = |pairs: Vec<(u32, u32)>| -> Vec<Flow> {
            let on = |rail| pairs.iter().map(move |(from, to)| Flow { from: *from, to: *to, rail });
            (0..rates.len()).flat_map(on).collect()
        };
        match self.pattern {
            Pattern::Pairs { round, rail, lower } => {
                let Some(other) = partner(rank, ranks, round) else { return Vec::new() };
                let (low, high) = (rank.min(other), rank.max(other));
                let (from, to) = if lower { (low, high) } else { (high, low) };
                vec![Flow { from, to, rail }]
            }
            Pattern::Both { round, rail } => {
                let Some(other) = partner(rank, ranks, round) else { return Vec::new() };
                [(rank, other), (other, rank)].map(|(from, to)| Flow { from, to, rail }).into()
            }
            Pattern::All => {
                let others = (0..ranks).filter(|other| *other != rank);
                all(others.flat_map(|other| [(rank, other), (other, rank)]).collect())
            }
            Pattern::Ring => {
                all(vec![(rank, (rank + 1) % ranks), ((rank + ranks - 1) % ranks, rank)])
            }
        }
    }
}

/// `100 Gb/sec (4X EDR)`, as the kernel says it, in Gb/s.
pub(crate) fn rate(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bench::options::BenchOptions;

    fn of_sizes(pace: &[f64]) -> BenchOptions {
        BenchOptions { sizes: vec![64, 4096], pace: pace.to_vec(), ..BenchOptions::default() }
    }

    fn shape(ranks: u32) -> Shape {
        Shape { ranks, rates: vec![Some(100.0), Some(25.0)] }
    }

    #[test]
    fn both_ends_of_each_flow_take_part_in_it_at_the_same_time() {
        for ranks in 1..=5 {
            let shape = shape(ranks);
            for step in steps(&of_sizes(&[]), &shape) {
                let parts: Vec<Vec<Flow>> =
                    (0..ranks).map(|rank| step.flows(rank, &shape)).collect();
                for (rank, flow) in
                    (0..).zip(&parts).flat_map(|(r, f)| f.iter().map(move |f| (r, f)))
                {
                    assert!(flow.from != flow.to && (flow.from == rank || flow.to == rank));
                    let other = usize::try_from(flow.from + flow.to - rank).unwrap();
                    assert!(parts[other].contains(flow), "{step:?}: {flow:?}");
                }
            }
        }
    }

    #[test]
    fn every_path_is_measured_in_each_direction_by_every_sweep() {
        let shape = shape(4);
        let steps = steps(&of_sizes(&[1.0, 0.0]), &shape);
        let count = |sweep: Sweep| -> (usize, usize) {
            let flows = steps.iter().filter(|step| step.sweep == sweep).flat_map(|step| {
                let of =
                    |rank| step.flows(rank, &shape).into_iter().filter(move |f| f.from == rank);
                (0..4).flat_map(of)
            });
            let flows: Vec<Flow> = flows.collect();
            (flows.iter().collect::<BTreeSet<_>>().len(), flows.len())
        };
        // 4 times 3 directed pairs on 2 rails.
        assert_eq!(count(Sweep::Latency), (24, 24 * 2));
        assert_eq!(count(Sweep::Sizes), (24, 24 * 2));
        assert_eq!(count(Sweep::Pace), (24, 24 * 2 * 3));
        assert_eq!(count(Sweep::Bidirectional), (24, 24));
        assert_eq!(count(Sweep::AllToAll), (24, 24));
        assert_eq!(count(Sweep::Ring), (8, 8));
    }

    #[test]
    fn targets_that_no_port_can_reach_are_left_out_unless_they_are_asked_for() {
        let targets = BenchOptions::default().targets(Some(25.0));
        assert_eq!(targets, [Some(1.0), Some(5.0), Some(10.0), Some(25.0), None]);
        assert_eq!(of_sizes(&[50.0, 0.0]).targets(Some(25.0)), [Some(50.0), None]);
        assert_eq!(rate("100 Gb/sec (4X EDR)"), Some(100.0));
        assert_eq!(rate("2.5 Gb/sec (1X SDR)"), Some(2.5));
        assert_eq!(rate(""), None);
    }
}
