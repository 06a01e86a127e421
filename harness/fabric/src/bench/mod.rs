//! `verbgate fabric bench`: the speed of each path, alone and with the others, and a verdict on
//! whether the speed is as expected.

mod cell;
mod load;
mod options;
mod output;
mod pace;
mod part;
mod plan;
mod plot;
mod ports;
mod sender;
mod sums;
mod verdict;
mod wire;
mod work;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

pub(crate) use cell::Cell;
pub use options::BenchOptions;
pub use options::By;
pub use options::Sweep;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bench::cell::Counted;
use crate::bench::load::Load;
use crate::bench::output::Output;
use crate::bench::output::Settings;
use crate::bench::part::Part;
use crate::bench::part::Rings;
use crate::bench::part::gone;
use crate::bench::plan::Flow;
use crate::bench::plan::Shape;
use crate::bench::plan::Step;
use crate::bench::ports::datagram;
use crate::bench::ports::fits;
use crate::bench::ports::shape;
use crate::bench::ports::wire_rates;
use crate::blame::RailPath;
use crate::connect::Control;
use crate::connect::Mesh;
use crate::counters;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_INTERRUPTED;
use crate::error::EXIT_TIMEOUT;
use crate::error::Error;
use crate::exchange::INTERRUPTED;
use crate::injection::Injection;
use crate::options::Identity;
use crate::preflight::Verdict;
use crate::probe;
use crate::progress::Progress;
use crate::rendezvous::Link;
use crate::rendezvous::Loss;
use crate::rendezvous::Table;
use crate::reopen;
use crate::session;
use crate::session::Session;
use crate::trial;
use crate::verify;
use verbgate_host::output::print;

/// A path that failed so often is not tried again: each failure takes seconds.
const FAILURES: u32 = 2;
/// More cells than this are not printed one by one.
const SHOWN: usize = 2000;
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
    /// Paths that were not connected, or dead from the beginning, the lower rank first.
    unusable: BTreeMap<RailPath, String>,
}

/// Runs one rank; the exit code.
pub(crate) fn run(args: &BenchOptions, me: &Identity) -> Result<u8, Error> {
    args.check()?;
    if me.ranks < 2 {
        return Err(Error::Usage("--ranks 1: a single rank has no peer: give 2 or more".into()));
    }
    let mut output = Output::new(args, me.rank)?;
    let Session { server, mut link, table, checks, sound, hardware } =
        Session::open(me, args.parameters() + &me.class.text(), args.needs())?;
    let shape = shape(me.ranks, &table);
    // All ranks plan alike, and so refuse alike.
    let planned = args.fitted(datagram(&table)).and_then(|args| {
        fits(&args, &table)?;
        Ok((plan::plan(&args, &shape)?, args))
    });
    let (plan, fitted) = match planned {
        Ok(planned) => planned,
        Err(error) => {
            session::leave(link, server)?;
            return Err(error);
        }
    };
    let args = &fitted;
    let cells = plan.steps.len() * shape.rates.len() * usize::try_from(me.ranks).unwrap_or(0) / 2;
    let shown = args.details || cells <= SHOWN;
    output.prepare(shown, wire_rates(&table));
    let (hash, strays) = (link.hash(), link.strays());
    let (rank, ranks) = (me.rank, me.ranks);
    output::begin(args, Settings { table: &hash, strays, rank, ranks, plan: &plan, shown })?;
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail).map(verify::line);
    let failed: Vec<String> = failed.collect();
    eprint!("{}", failed.concat());
    let mut mesh = Mesh::wide(me.rank, me.ranks, hardware, lanes(args));
    mesh.tuning = args.tuning();
    mesh.cm = session::cm(me, args.inject);
    mesh.retain(|peer, rail| link.has(peer) && sound.path(rank, peer, rail));
    let (rings, counted, failures) = (Rings::new(), BTreeMap::new(), BTreeMap::new());
    let unusable = BTreeMap::new();
    let mut bench = Bench { args, me, mesh, rings, counted, shape, output, failures, unusable };
    let ended = bench.measure(&mut link, plan.steps);
    // Whatever came between, what there is is shown and saved.
    let complete = matches!(ended, Ok(End::Complete)) && link.lost.is_empty();
    let mut before: Vec<String> =
        failed.iter().map(|line| line.trim_start_matches("FAIL").trim().to_owned()).collect();
    before.extend(link.lost.iter().map(|(rank, why)| format!("rank {rank} {}", why.words())));
    let passed = if rank == 0 { Some(bench.output.end(complete, &table, &before)?) } else { None };
    if ended? == End::Interrupted {
        // The others were told, and end, too.
        let _ = bench.mesh.close(&mut link, "close", me.patience);
        session::leave(link, server)?;
        return Ok(EXIT_INTERRUPTED);
    }
    let passed = link.gather_quietly("verdict", &passed, me.patience)?;
    reopen::close(me, &mut bench.mesh, &mut link, "close")?;
    let hangs = link.lost.values().any(|why| *why == Loss::Silent);
    session::leave(link, server)?;
    let well = passed.into_values().flatten().all(|passed| passed);
    if rank != 0 && !args.common.json {
        print(if well { "bench: all is well\n" } else { "bench: FAILED: see rank 0\n" })?;
    }
    Ok(match (well, hangs) {
        (true, _) => 0,
        (false, true) => EXIT_TIMEOUT,
        (false, false) => EXIT_CHECK,
    })
}

/// The plan for a cluster, in words.
pub(crate) fn plan_words(args: &BenchOptions, ranks: u32, table: &Table) -> Result<String, Error> {
    Ok(plan::plan(args, &shape(ranks, table))?.words)
}

fn load_of(args: &BenchOptions, step: &Step) -> Load {
    let Step { size, window, target, .. } = *step;
    let BenchOptions { by, seconds, events, inject, .. } = *args;
    let transport = args.common.transport;
    let threads = usize::try_from(args.threads).unwrap_or(1);
    let stall = args.tuning().gives_up_after();
    // One message at a time is on one queue pair.
    let lanes = if step.sweep == Sweep::Latency { 1 } else { lanes(args) };
    let target = target.map(|target| target / lanes as f64);
    let injection = inject;
    Load { by, transport, size, window, lanes, threads, events, target, seconds, stall, injection }
}

fn lanes(args: &BenchOptions) -> usize {
    usize::try_from(args.queue_pairs.max(args.threads)).unwrap_or(1)
}

/// Both directions of a path.
fn ends(a: u32, b: u32, rail: usize) -> RailPath {
    (a.min(b), a.max(b), rail)
}

fn path(flow: Flow) -> RailPath {
    (flow.from, flow.to, flow.rail)
}

impl Bench<'_> {
    fn measure(&mut self, link: &mut Link, mut steps: Vec<Step>) -> Result<End, Error> {
        self.connect(link, "connect")?;
        let wait = trial::wait(self.me, &self.mesh);
        let probed = probe::run(self.me, &mut self.mesh, link, wait)?;
        for ((peer, rail), trouble) in probed.troubles {
            self.unusable.insert(ends(self.me.rank, peer, rail), trouble.words);
        }
        let mut progress = Progress::new("bench", steps.len(), self.me.rank == 0);
        let mut number = 0;
        let mut quick = self.args.quick;
        let alone = usize::try_from(self.me.ranks).unwrap_or(usize::MAX) - 1;
        while let Some(step) = steps.get(number).cloned().filter(|_| link.lost.len() < alone) {
            progress.step(number, self.output.sums.bad);
            let began = Instant::now();
            let (cells, broken) = self.step(link, number, &step)?;
            self.pass_on(link, cells)?;
            let after = After { interrupted: link.interrupt.has_come(), broken };
            // No rank takes longer than this.
            let most = load_of(self.args, &step).most(self.me.patience) + MARGIN;
            let patience = most.saturating_sub(began.elapsed()).max(MARGIN);
            let all = self.gather(link, &format!("step {number}"), &after, patience)?;
            self.take_cells()?;
            if all.values().any(|after| after.interrupted) {
                return Ok(End::Interrupted);
            }
            let broken: Vec<_> = all.into_values().flat_map(|after| after.broken).collect();
            if !broken.is_empty() {
                self.mend(link, number, &broken)?;
            }
            number += 1;
            if steps.get(number).is_none_or(|next| !step.goes_on(next)) {
                self.output.settle();
            }
            if number == steps.len() && std::mem::take(&mut quick) {
                let own = match self.me.rank {
                    0 => wire::suspects(&self.output.wire()),
                    _ => Vec::new(),
                };
                let all = self.gather(link, "more", &own, self.me.patience)?;
                let pairs: Vec<(u32, u32)> = all.into_values().flatten().collect();
                steps.extend(plan::more(self.args, &self.shape, &pairs));
            }
        }
        Ok(End::Complete)
    }

    fn gather<T: Serialize + DeserializeOwned>(
        &mut self,
        link: &mut Link,
        stage: &str,
        value: &T,
        patience: Duration,
    ) -> Result<BTreeMap<u32, T>, Error> {
        let mesh = &mut self.mesh;
        link.gather(stage, value, patience, |link, from, body| mesh.hear(link, from, body))
    }

    /// Connects what can be connected; the rest is not measured.
    fn connect(&mut self, link: &mut Link, stage: &str) -> Result<(), Error> {
        for (rank, open) in self.mesh.connect_some(link, stage, self.me.patience)? {
            let why = format!("cannot connect: {}", open.why);
            self.unusable.entry(ends(rank, open.peer, open.rail)).or_insert(why);
        }
        Ok(())
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
        let mut flows = step.flows(self.me.rank, &self.shape);
        // What failed before, and who is gone, is told elsewhere.
        flows.retain(|flow| {
            let peer = flow.from + flow.to - self.me.rank;
            link.has(peer)
                && self.mesh.peers.iter().any(|of| (of.rank, of.rail) == (peer, flow.rail))
        });
        let (paused, flows): (Vec<Flow>, Vec<Flow>) =
            flows.into_iter().partition(|flow| self.given_up(*flow).is_some());
        let mine = |flow: &&Flow| flow.from == self.me.rank;
        let mut cells = Vec::new();
        for flow in paused.iter().filter(mine) {
            let why = self.given_up(*flow).unwrap_or_default();
            cells.push(Cell::paused(step, *flow, &why));
        }
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
        let mut told = BTreeSet::new();
        for (flow, outcome) in outcomes {
            let before = before.get(&flow.rail).unwrap_or(&none);
            let after = after.get(&flow.rail).unwrap_or(&none);
            let mtu = self.mesh.hardware.get(flow.rail).map_or(0, |h| h.rail.mtu_bytes());
            let counted = Counted { before, after };
            let mut cell = Cell::new(step, flow, mtu, &outcome, &counted);
            // Of all flows of a rail at the same time, the first has what the rail counted.
            if !told.insert(flow.rail) {
                cell.counters.clear();
            }
            cells.push(cell);
            if outcome.broken {
                broken.push(path(flow));
            }
        }
        self.counted = after;
        // Nothing is wrong with what was not measured to its end.
        cells.retain(|cell| match cell.first_error.as_deref() {
            Some(INTERRUPTED) => false,
            Some(why) => why != gone(cell.to),
            None => true,
        });
        Ok((cells, broken))
    }

    /// Why a path is not measured any more.
    fn given_up(&self, flow: Flow) -> Option<String> {
        let often = self.failures.get(&path(flow)).is_some_and(|count| *count >= FAILURES);
        let often =
            often.then(|| format!("not tried again: the connection failed {FAILURES} times"));
        often.or_else(|| self.unusable.get(&ends(flow.from, flow.to, flow.rail)).cloned())
    }

    /// Of some rails' ports.
    fn counters(&self, rails: &[usize]) -> BTreeMap<usize, BTreeMap<String, u64>> {
        let hardware = self.mesh.hardware.iter();
        let used = hardware.filter(|(index, _)| rails.contains(index));
        used.map(|(index, hardware)| (index, counters::of(&hardware.rail))).collect()
    }

    fn pass_on(&mut self, link: &Link, cells: Vec<Cell>) -> Result<(), Error> {
        if self.me.rank == 0 {
            return cells.into_iter().try_for_each(|cell| self.output.cell(cell));
        }
        cells.chunks(CELLS).try_for_each(|cells| {
            let cells = cells.iter().map(serde_json::to_string).collect::<Result<_, _>>();
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
                    let cells = cells.into_iter().map(|text| serde_json::from_str::<Cell>(&text));
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
        self.connect(link, &format!("connect {number}"))
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
