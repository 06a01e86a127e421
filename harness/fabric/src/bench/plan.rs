//! The plan of cells, and their order: all ranks make the same plan, and each rank takes its part.

use crate::bench::options::BenchOptions;
use crate::bench::options::Sweep;
use crate::bench::pace::span;
use crate::error::Error;
use crate::pairs::Pairs;
use crate::pairs::Rounds;
use crate::pairs::disjoint;
use crate::progress::time;

/// Messages from one rank to another on one rail.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Flow {
    pub from: u32,
    pub to: u32,
    pub rail: usize,
}

/// Who sends to whom at the same time.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Pattern {
    /// Disjoint pairs: the lower rank sends, or the higher, or both.
    Pairs {
        pairs: Pairs,
        senders: Senders,
        /// None: all rails at the same time, which are different NICs.
        rail: Option<usize>,
    },
    All,
    Ring,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Senders {
    Lower,
    Higher,
    Both,
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

/// All steps, in their order, and how they were chosen.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// In seconds, about.
    pub(crate) lasts: f64,
    /// For people, before it begins.
    pub(crate) words: String,
}

/// What a step takes beside the measuring: words between ranks, and counters, in seconds.
const BESIDE: f64 = 0.1;

/// The plan that fits into the time that there is: fewer rounds of pairs, then fewer repeats, then
/// fewer sizes.
///
/// # Errors
/// When not even the shortest fits.
pub(crate) fn plan(args: &BenchOptions, shape: &Shape) -> Result<Plan, Error> {
    let all = Rounds::new(shape.ranks, args.quick, args.sample, &args.pairs);
    let budget = args.within.unwrap_or(f64::INFINITY);
    let mut args = args.clone();
    if args.quick {
        args.shorten();
    }
    let lasts = |args: &BenchOptions, count: u32| -> f64 {
        steps(args, shape, &all.pick(count))
            .iter()
            .map(|step| span(args.seconds, step.size, step.target) + BESIDE)
            .sum()
    };
    let mut left_out = Vec::new();
    type Shorten = fn(&mut BenchOptions);
    let shorter: [(&str, Shorten); 2] =
        [("repeats", |args| args.repeat = Some(1)), ("sizes between", BenchOptions::shorten)];
    for (what, shorten) in shorter {
        if lasts(&args, 1) > budget {
            shorten(&mut args);
            left_out.push(what);
        }
    }
    if lasts(&args, 1) > budget {
        // Upwards, so that who gives this has given enough.
        let least = time(lasts(&args, 1).ceil());
        return Err(Error::Usage(format!(
            "--within {}: the shortest plan takes {least}: give more time, fewer --sweep, or fewer \
             --seconds",
            time(budget)
        )));
    }
    let rounds = all.pick(all.fit(budget, |count| lasts(&args, count)));
    let steps = steps(&args, shape, &rounds);
    let lasts = steps.iter().map(|step| span(args.seconds, step.size, step.target) + BESIDE).sum();
    let mut words = format!(
        "plan: {} steps, about {}: {} of {} rounds of disjoint pairs",
        steps.len(),
        time(lasts),
        rounds.len(),
        all.all
    );
    if u32::try_from(rounds.len()).is_ok_and(|count| count < all.wished) {
        words += &format!(", for --within {}", time(budget));
    }
    for what in left_out {
        words += &format!("; without {what}");
    }
    Ok(Plan { steps, lasts, words })
}

/// Once more, between these pairs: what was slow with one partner is tried with others.
pub(crate) fn more(args: &BenchOptions, shape: &Shape, pairs: &[(u32, u32)]) -> Vec<Step> {
    let mut args = args.clone();
    args.shorten();
    args.sweeps.retain(|sweep| matches!(sweep, Sweep::Latency | Sweep::Sizes));
    if args.sweeps.is_empty() {
        args.sweeps = vec![Sweep::Latency, Sweep::Sizes];
    }
    steps(&args, shape, &disjoint(pairs))
}

/// The steps between these pairs, and between all.
fn steps(args: &BenchOptions, shape: &Shape, rounds: &[Pairs]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut push = |sweep, pattern: Pattern, sizes: &[usize], targets: &[Option<f64>], window| {
        for repeat in 0..args.repeats(sweep) {
            for (size, target) in
                sizes.iter().flat_map(|size| targets.iter().map(move |target| (*size, *target)))
            {
                let pattern = pattern.clone();
                steps.push(Step { sweep, pattern, size, target, window, repeat });
            }
        }
    };
    let (message, unpaced) = ([args.message], [None]);
    // Each rail by itself, or all at once at targets that all can reach.
    let rails: Vec<(Option<usize>, Option<f64>)> = if args.one_rail {
        shape.rates.iter().enumerate().map(|(rail, rate)| (Some(rail), *rate)).collect()
    } else {
        let least = shape.rates.iter().copied().reduce(|a, b| Some(a?.min(b?))).flatten();
        vec![(None, least)]
    };
    for sweep in [Sweep::Latency, Sweep::Sizes, Sweep::Pace] {
        for (rail, rate) in rails.iter().copied().filter(|_| args.has(sweep)) {
            let paced = args.targets(rate);
            for (pairs, senders) in
                rounds.iter().flat_map(|pairs| [(pairs, Senders::Lower), (pairs, Senders::Higher)])
            {
                let pattern = Pattern::Pairs { pairs: pairs.clone(), senders, rail };
                match sweep {
                    Sweep::Latency => push(sweep, pattern, &args.sizes, &unpaced, 1),
                    Sweep::Sizes => push(sweep, pattern, &args.sizes, &unpaced, args.window),
                    _ => push(sweep, pattern, &message, &paced, args.window),
                }
            }
        }
    }
    for (rail, _) in rails.iter().copied().filter(|_| args.has(Sweep::Bidirectional)) {
        for pairs in rounds {
            let pattern = Pattern::Pairs { pairs: pairs.clone(), senders: Senders::Both, rail };
            push(Sweep::Bidirectional, pattern, &message, &unpaced, args.window);
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
    /// Whether the next step is of the same sweep of the same paths.
    pub(crate) fn goes_on(&self, next: &Self) -> bool {
        let of = |step: &Self| (step.sweep, step.repeat);
        of(self) == of(next) && self.pattern == next.pattern
    }

    /// Those in which this rank takes part.
    pub(crate) fn flows(&self, rank: u32, shape: &Shape) -> Vec<Flow> {
        let Shape { ranks, rates } = shape;
        let ranks = *ranks;
        let on = |pairs: &[(u32, u32)], only: Option<usize>| -> Vec<Flow> {
            let rails = (0..rates.len()).filter(|rail| only.is_none_or(|only| only == *rail));
            let flows =
                |rail| pairs.iter().map(move |(from, to)| Flow { from: *from, to: *to, rail });
            rails.flat_map(flows).collect()
        };
        match &self.pattern {
            Pattern::Pairs { pairs, senders, rail } => {
                let Some(other) = pairs.partner(rank, ranks) else { return Vec::new() };
                let (low, high) = (rank.min(other), rank.max(other));
                match senders {
                    Senders::Lower => on(&[(low, high)], *rail),
                    Senders::Higher => on(&[(high, low)], *rail),
                    Senders::Both => on(&[(rank, other), (other, rank)], *rail),
                }
            }
            Pattern::All => {
                let others = (0..ranks).filter(|other| *other != rank);
                let pairs = others.flat_map(|other| [(rank, other), (other, rank)]);
                on(&pairs.collect::<Vec<_>>(), None)
            }
            Pattern::Ring => {
                on(&[(rank, (rank + 1) % ranks), ((rank + ranks - 1) % ranks, rank)], None)
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

    fn all_steps(args: &BenchOptions, shape: &Shape) -> Vec<Step> {
        plan(args, shape).unwrap().steps
    }

    fn of_sizes(pace: &[f64]) -> BenchOptions {
        BenchOptions {
            sizes: vec![64, 4096],
            pace: pace.to_vec(),
            within: None,
            ..BenchOptions::default()
        }
    }

    fn shape(ranks: u32) -> Shape {
        Shape { ranks, rates: vec![Some(100.0), Some(25.0)] }
    }

    #[test]
    fn both_ends_of_each_flow_take_part_in_it_at_the_same_time() {
        for ranks in 1..=5 {
            let shape = shape(ranks);
            for step in all_steps(&of_sizes(&[]), &shape) {
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
        let steps = all_steps(&of_sizes(&[1.0, 0.0]), &shape);
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
        assert_eq!(count(Sweep::Sizes), (24, 24 * 2 * 3));
        assert_eq!(count(Sweep::Pace), (24, 24 * 2 * 3));
        assert_eq!(count(Sweep::Bidirectional), (24, 24));
        assert_eq!(count(Sweep::AllToAll), (24, 24));
        assert_eq!(count(Sweep::Ring), (8, 8));
    }

    fn cluster() -> Shape {
        Shape { ranks: 128, rates: vec![Some(400.0); 8] }
    }

    #[test]
    fn a_large_cluster_is_measured_in_the_time_that_there_is() {
        let within = |seconds| BenchOptions { within: Some(seconds), ..BenchOptions::default() };
        for seconds in [120.0, 600.0, 3600.0] {
            let plan = plan(&within(seconds), &cluster()).unwrap();
            assert!(plan.lasts <= seconds && plan.lasts > seconds / 3.0, "{}", plan.words);
            assert!(
                plan.words.contains("of 127 rounds of disjoint pairs, for --within"),
                "{}",
                plan.words
            );
        }
        let error = plan(&within(2.0), &cluster()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("--within 2 s: the shortest plan takes "), "{error}");
        // Rails are different NICs: eight take no longer than one.
        let of = |rates, one_rail| {
            let args = BenchOptions { one_rail, within: None, ..BenchOptions::default() };
            plan(&args, &Shape { ranks: 16, rates }).unwrap().lasts
        };
        assert_eq!(of(vec![Some(400.0); 8], false), of(vec![Some(400.0)], false));
        assert!(of(vec![Some(400.0); 8], true) > 7.0 * of(vec![Some(400.0)], true));
    }

    #[test]
    fn the_quick_plan_has_half_as_many_links_as_ranks_and_pairs_are_those_given() {
        let shape = cluster();
        let quick = BenchOptions { quick: true, ..BenchOptions::default() };
        let quick = plan(&quick, &shape).unwrap();
        let links = |steps: &[Step]| -> BTreeSet<(u32, u32)> {
            let of = |step: &Step| {
                (0..128).flat_map(|rank| step.flows(rank, &shape)).collect::<Vec<_>>()
            };
            let pairs = steps.iter().filter(|step| step.sweep == Sweep::Sizes).flat_map(of);
            pairs.map(|flow| (flow.from.min(flow.to), flow.from.max(flow.to))).collect()
        };
        assert_eq!(links(&quick.steps).len(), 64);
        assert!(quick.lasts < 60.0, "{}", quick.words);
        let pairs = vec![(0, 1), (1, 2), (5, 2), (7, 9)];
        let given = BenchOptions { pairs: pairs.clone(), within: None, ..BenchOptions::default() };
        let given = plan(&given, &shape).unwrap().steps;
        assert_eq!(links(&given), BTreeSet::from([(0, 1), (1, 2), (2, 5), (7, 9)]));
        // Nobody meets two at a time.
        for step in given.iter().filter(|step| step.sweep == Sweep::Latency) {
            for rank in 0..128 {
                assert!(step.flows(rank, &shape).iter().all(|flow| flow.rail < 8));
                assert!(step.flows(rank, &shape).len() <= 8);
            }
        }
        assert_eq!(links(&more(&BenchOptions::default(), &shape, &pairs)).len(), 4);
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
