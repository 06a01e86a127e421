//! `verbgate fabric bench`: the speed of each path, alone and with the others, and a verdict on
//! whether the speed is as expected.

mod cell;
mod load;
mod options;
mod output;
mod part;
mod plan;
mod plot;
mod sender;
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

pub(crate) use cell::Cell;
pub use options::BenchOptions;
pub use options::By;
pub use options::Sweep;
use serde::Deserialize;
use serde::Serialize;

use crate::bench::cell::Counted;
use crate::bench::load::Load;
use crate::bench::output::Output;
use crate::bench::output::Settings;
use crate::bench::part::Part;
use crate::bench::part::Rings;
use crate::bench::plan::Flow;
use crate::bench::plan::Shape;
use crate::bench::plan::Step;
use crate::blame::RailPath;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::counters;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_INTERRUPTED;
use crate::error::Error;
use crate::exchange::INTERRUPTED;
use crate::exchange::Injection;
use crate::options::Identity;
use crate::preflight::Verdict;
use crate::rendezvous::Link;
use crate::rendezvous::Table;
use crate::reopen;
use crate::session;
use crate::session::Session;
use crate::verify;
use verbgate_host::output::print;

/// A path that failed so often is not tried again: each failure takes seconds.
const FAILURES: u32 = 2;
/// Cells that are passed on in one message.
const CELLS: usize = 1000;
/// What ranks may be apart at the beginning of a step.
const MARGIN: Duration = Duration::from_secs(5);
/// In which step a rank ends that a test wants to.
const EXIT_STEP: usize = 3;

/// How the measuring ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Complete,
    Interrupted,
}

/// What all ranks hear of each after a step.
#[derive(Debug, Deserialize, Serialize)]
struct After {
    interrupted: bool,
    broken: Vec<RailPath>,
}

/// One rank's part.
#[derive(Debug)]
struct Bench<'a> {
    args: &'a BenchOptions,
    me: &'a Identity,
    mesh: Mesh,
    rings: Rings,
    /// Counters after the last step, of the rails that it used: to read them takes a while.
    counted: BTreeMap<usize, BTreeMap<String, u64>>,
    shape: Shape,
    output: Output<'a>,
    /// How often each has failed.
    failures: BTreeMap<RailPath, u32>,
}

/// Runs one rank; the exit code.
pub(crate) fn run(args: &BenchOptions, me: &Identity) -> Result<u8, Error> {
    args.check()?;
    if me.ranks < 2 {
        return Err(Error::Usage("--ranks 1: a single rank has no peer: give 2 or more".into()));
    }
    let output = Output::new(args, me.rank)?;
    let Session { server, mut link, table, checks, sound, hardware } =
        Session::open(me, args.parameters())?;
    let shape = shape(&table);
    let steps = plan::steps(args, &shape);
    let lasts = steps.iter().map(|step| load_of(args, step).span()).sum();
    let (hash, strays) = (link.hash(), link.strays());
    let (rank, ranks, steps_of) = (me.rank, me.ranks, steps.len());
    output::begin(args, Settings { table: &hash, strays, rank, ranks, steps: steps_of, lasts })?;
    let Some(hardware) = hardware.filter(|_| sound) else {
        session::leave(link, server)?;
        let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
        eprint!("{}", failed.map(verify::line).collect::<String>());
        return Err(Error::Check("bench: the preflight failed".to_owned()));
    };
    let mut mesh = Mesh::new(rank, ranks, hardware);
    mesh.tuning = args.tuning();
    let (rings, counted, failures) = (Rings::new(), BTreeMap::new(), BTreeMap::new());
    let mut bench = Bench { args, me, mesh, rings, counted, shape, output, failures };
    let ended = bench.measure(&mut link, &steps);
    // Whatever came between, what there is is shown and saved.
    let complete = matches!(ended, Ok(End::Complete));
    let passed = if rank == 0 { Some(bench.output.end(complete)?) } else { None };
    if ended? == End::Interrupted {
        // The others were told, and end, too.
        let _ = bench.mesh.close(&mut link, "close", me.patience);
        session::leave(link, server)?;
        return Ok(EXIT_INTERRUPTED);
    }
    let passed = link.gather_quietly("verdict", &passed, me.patience)?;
    reopen::close(me, &mut bench.mesh, &mut link, "close")?;
    session::leave(link, server)?;
    let well = passed.into_iter().flatten().all(|passed| passed);
    if rank != 0 && !args.common.json {
        print(if well { "bench: all is well\n" } else { "bench: FAILED: see rank 0\n" })?;
    }
    Ok(if well { 0 } else { EXIT_CHECK })
}

/// What all ranks know alike.
fn shape(table: &Table) -> Shape {
    let rails = table.entries.first().map_or(0, |entry| entry.rails.len());
    let rate = |rail: usize| {
        let rates = table.entries.iter().filter_map(|entry| entry.rails.get(rail));
        rates.map(|rail| plan::rate(&rail.rate)).reduce(|a, b| Some(a?.min(b?))).flatten()
    };
    let ranks = u32::try_from(table.entries.len()).unwrap_or(u32::MAX);
    Shape { ranks, rates: (0..rails).map(rate).collect() }
}

fn load_of(args: &BenchOptions, step: &Step) -> Load {
    let Step { size, window, target, .. } = *step;
    let BenchOptions { by, seconds, inject, .. } = *args;
    let stall = args.tuning().gives_up_after();
    Load { by, size, window, target, seconds, stall, injection: inject }
}

fn path(flow: Flow) -> RailPath {
    (flow.from, flow.to, flow.rail)
}

impl Bench<'_> {
    fn measure(&mut self, link: &mut Link, steps: &[Step]) -> Result<End, Error> {
        self.mesh.connect(link, "connect", self.me.patience)?;
        for (number, step) in steps.iter().enumerate() {
            let began = Instant::now();
            let (cells, broken) = self.step(link, number, step)?;
            self.pass_on(link, cells)?;
            let after = After { interrupted: link.interrupt.has_come(), broken };
            // No rank takes longer than this.
            let most = load_of(self.args, step).most(self.me.patience) + MARGIN;
            let patience = most.saturating_sub(began.elapsed()).max(MARGIN);
            let mesh = &mut self.mesh;
            let all =
                link.gather(&format!("step {number}"), &after, patience, |link, from, body| {
                    mesh.hear(link, from, body)
                })?;
            self.take_cells()?;
            if all.iter().any(|after| after.interrupted) {
                return Ok(End::Interrupted);
            }
            let broken: Vec<_> = all.into_iter().flat_map(|after| after.broken).collect();
            if !broken.is_empty() {
                self.mend(link, number, &broken)?;
            }
        }
        Ok(End::Complete)
    }

    /// This rank's cells, and the paths that are of no use any more.
    fn step(
        &mut self,
        link: &mut Link,
        number: usize,
        step: &Step,
    ) -> Result<(Vec<Cell>, Vec<RailPath>), Error> {
        if self.args.inject == Some(Injection::Exit) && number == EXIT_STEP {
            // As if it had been killed: nobody is told.
            std::process::exit(9);
        }
        let flows = step.flows(self.me.rank, &self.shape);
        let given_up =
            |flow: &Flow| self.failures.get(&path(*flow)).is_some_and(|count| *count >= FAILURES);
        let (paused, flows): (Vec<Flow>, Vec<Flow>) = flows.into_iter().partition(given_up);
        let mine = |flow: &&Flow| flow.from == self.me.rank;
        let mut cells = Vec::new();
        let why = format!("not tried again: the connection failed {FAILURES} times");
        cells.extend(paused.iter().filter(mine).map(|flow| Cell::paused(step, *flow, &why)));
        let rails: Vec<usize> = flows.iter().filter(mine).map(|flow| flow.rail).collect();
        // Nothing is sent between two steps.
        let mut before = std::mem::take(&mut self.counted);
        let fresh: Vec<usize> =
            rails.iter().copied().filter(|rail| !before.contains_key(rail)).collect();
        before.extend(self.counters(&fresh));
        let part = Part {
            mesh: &mut self.mesh,
            link,
            rings: &mut self.rings,
            number: u64::try_from(number).unwrap_or(u64::MAX),
            load: &load_of(self.args, step),
            patience: self.me.patience,
        };
        let outcomes = part.run(&flows)?;
        let after = self.counters(&rails);
        let none = BTreeMap::new();
        let mut broken = Vec::new();
        for (flow, outcome) in outcomes {
            let before = before.get(&flow.rail).unwrap_or(&none);
            let after = after.get(&flow.rail).unwrap_or(&none);
            let mtu = self.mesh.hardware.get(flow.rail).map_or(0, |h| h.rail.mtu_bytes());
            cells.push(Cell::new(step, flow, mtu, &outcome, &Counted { before, after }));
            if outcome.broken {
                broken.push(path(flow));
            }
        }
        self.counted = after;
        // Nothing is wrong with what was not measured to its end.
        cells.retain(|cell| cell.first_error.as_deref() != Some(INTERRUPTED));
        Ok((cells, broken))
    }

    /// Of some rails' ports.
    fn counters(&self, rails: &[usize]) -> BTreeMap<usize, BTreeMap<String, u64>> {
        let hardware = self.mesh.hardware.iter().enumerate();
        let used = hardware.filter(|(index, _)| rails.contains(index));
        used.map(|(index, hardware)| (index, counters::of(&hardware.rail))).collect()
    }

    fn pass_on(&mut self, link: &Link, cells: Vec<Cell>) -> Result<(), Error> {
        if self.me.rank == 0 {
            return cells.into_iter().try_for_each(|cell| self.output.cell(cell));
        }
        cells.chunks(CELLS).try_for_each(|cells| {
            let cells = cells.iter().map(serde_json::to_value).collect::<Result<_, _>>();
            let cells = cells.map_err(|e| Error::Check(e.to_string()))?;
            link.send(0, &Control::Cells(cells))
        })
    }

    /// What the others have measured: it came before their last word of the step.
    fn take_cells(&mut self) -> Result<(), Error> {
        let mut kept = std::collections::VecDeque::new();
        while let Some((from, control)) = self.mesh.said.pop_front() {
            match control {
                Control::Cells(cells) => {
                    // What is not understood is dropped, as in all that ranks say.
                    let cells = cells.into_iter().map(serde_json::from_value::<Cell>);
                    cells.flatten().try_for_each(|cell| self.output.cell(cell))?;
                }
                other => kept.push_back((from, other)),
            }
        }
        self.mesh.said = kept;
        Ok(())
    }

    /// A queue pair that failed is of no use: all are made anew.
    fn mend(&mut self, link: &mut Link, number: usize, broken: &[RailPath]) -> Result<(), Error> {
        for path in broken {
            *self.failures.entry(*path).or_default() += 1;
        }
        reopen::close(self.me, &mut self.mesh, link, &format!("close {number}"))?;
        self.rings.clear();
        self.mesh.connect(link, &format!("connect {number}"), self.me.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::By;

    #[test]
    fn what_cannot_be_measured_is_said_and_parameters_are_all_that_matters() {
        let by_default = BenchOptions::default;
        for wrong in [
            BenchOptions { sizes: vec![0], ..by_default() },
            BenchOptions { seconds: 0.0, ..by_default() },
            BenchOptions { tolerance: 100.0, ..by_default() },
            BenchOptions { message: 0, ..by_default() },
        ] {
            let error = wrong.check().unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        }
        by_default().check().unwrap();
        // 4.096 us times 2 to the power of 17, four times as long, and eight times, are 17 s.
        assert_eq!(by_default().tuning().gives_up_after().as_secs(), 20);
        let parameters = by_default().parameters();
        let other = BenchOptions { min_rnr_timer: 0, ..by_default() };
        assert_ne!(parameters, other.parameters());
        let other = BenchOptions { by: By::Send, ..by_default() };
        assert_ne!(parameters, other.parameters());
        let same = BenchOptions { min_gbps: Some(1.0), ..by_default() };
        assert_eq!(parameters, same.parameters());
    }
}
