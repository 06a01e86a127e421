//! Many processes and objects in one sandbox: what they cost the supervisor, and that it gives all
//! of it back.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::report::Report;
use crate::world::World;
use crate::world::resources;

const PROCESSES: u64 = 200;
const OBJECTS: u64 = 20;
/// Resident memory of the supervisor that a process may cost, in KiB.
const KIB_A_PROCESS: u64 = 64;
/// The same of an object, in bytes.
const BYTES_AN_OBJECT: u64 = 256;
/// A page here, a table that has doubled there: what a measurement of resident memory is off by.
const SLACK_KIB: u64 = 256;
/// Objects of one process, few and many, between which a request's cost must not differ.
const FEW_AND_MANY: [u64; 2] = [50, 2000];
/// Calls of the supervisor for a request: by so many parts of a hundred they may differ.
const SLACK_PERCENT: u64 = 10;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("many_processes_with_many_objects", many),
        Case::new("cost_with_many_objects", cost),
    ]
}

/// The guest, and the folder by which it is told to go on.
#[derive(Debug)]
struct Crowd {
    program: Program,
    folder: tempfile::TempDir,
}

/// What a supervisor holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    kib: u64,
    descriptors: usize,
}

impl Crowd {
    fn start(world: &World, processes: u64, objects: u64) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let guest = world.beside("verbgate-guest");
        let flags = folder.path().to_string_lossy();
        let report = folder.path().join("report");
        let argv = [&*guest.to_string_lossy(), "scale", &world.node_path()].map(ToOwned::to_owned);
        let numbers = [processes.to_string(), objects.to_string(), flags.into_owned()];
        let argv: Vec<&str> = argv.iter().chain(&numbers).map(String::as_str).collect();
        let program =
            Program::start(world.sandbox(&["--report", &report.to_string_lossy()], &argv))?;
        Ok(Self { program, folder })
    }

    /// Waits until a stage is reached.
    fn reaches(&mut self, stage: &str) -> Result<()> {
        let program = &mut self.program;
        let mut ended = false;
        exec::wait_until(stage, || {
            ended = program.has_ended()?;
            Ok(ended || program.stdout_so_far()?.lines().any(|line| line == stage))
        })?;
        if ended {
            bail!("it ended before {stage}; it {}", program.describe()?);
        }
        Ok(())
    }

    /// Lets it leave a stage.
    fn leaves(&self, stage: &str) -> Result<()> {
        Ok(fs::write(self.folder.path().join(stage), "")?)
    }

    fn held(&self) -> Result<Held> {
        let proc = Path::new("/proc").join(self.program.pid().to_string());
        let status = fs::read_to_string(proc.join("status"))?;
        // Pages of the program's file come and go.
        let kib = |name| {
            let rss = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = rss.and_then(|rss| rss.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kib.with_context(|| format!("the supervisor's status has no {name}"))
        };
        let kib = kib("RssAnon:")? + kib("RssShmem:")?;
        Ok(Held { kib, descriptors: fs::read_dir(proc.join("fd"))?.count() })
    }

    fn end(self) -> Result<Report> {
        let Self { program, folder } = self;
        program.wait()?.expect_status(0)?;
        Report::read(&folder.path().join("report"))
    }
}

fn many(world: &World) -> Result<Verdict> {
    let native = resources();
    let mut crowd = Crowd::start(world, PROCESSES, OBJECTS)?;
    crowd.reaches("started")?;
    let start = crowd.held()?;
    crowd.leaves("started")?;
    crowd.reaches("opened")?;
    let opened = crowd.held()?;
    crowd.leaves("opened")?;
    crowd.reaches("made")?;
    let made = crowd.held()?;
    let key = format!("{} pd", world.device);
    let pds = |counts: &std::collections::BTreeMap<String, u64>| counts.get(&key).copied();
    let there = pds(&resources()).zip(pds(&native)).map(|(now, then)| now - then);
    crowd.leaves("made")?;
    crowd.reaches("ended")?;
    let mut ended = crowd.held()?;
    // Ends are noticed now and then.
    let gone = exec::wait_until("the supervisor to close descriptors", || {
        ended = crowd.held()?;
        Ok(ended.descriptors <= start.descriptors)
    });
    gone.with_context(|| format!("{start:?} in the beginning, {ended:?} in the end"))?;
    crowd.leaves("ended")?;
    let report = crowd.end()?;
    println!("{start:?}, with processes {opened:?}, with objects {made:?}, in the end {ended:?}");
    println!("{} calls for {} requests", report.calls, report.executed);
    // A process is compared with its own stub. With all others' it was 39 calls a request.
    if report.calls > 30 * report.executed {
        bail!("{} calls of the supervisor for {} requests", report.calls, report.executed);
    }

    if there.is_some_and(|there| there != PROCESSES * OBJECTS) {
        bail!("the kernel counts {there:?} PDs instead of {}", PROCESSES * OBJECTS);
    }
    let of_processes = opened.kib.saturating_sub(start.kib);
    if of_processes > PROCESSES * KIB_A_PROCESS + SLACK_KIB {
        bail!("{PROCESSES} processes cost {of_processes} KiB: {start:?}, then {opened:?}");
    }
    let of_objects = made.kib.saturating_sub(opened.kib);
    if of_objects > PROCESSES * OBJECTS * BYTES_AN_OBJECT / 1024 + SLACK_KIB {
        let objects = PROCESSES * OBJECTS;
        bail!("{objects} objects cost {of_objects} KiB: {opened:?}, then {made:?}");
    }
    if resources() != native {
        bail!("the kernel had {native:?}, and has now {:?}", resources());
    }
    Ok(Verdict::Ok)
}

/// The cost in calls: times say nothing under emulation.
fn cost(world: &World) -> Result<Verdict> {
    let mut costs = Vec::new();
    for objects in FEW_AND_MANY {
        let mut crowd = Crowd::start(world, 1, objects)?;
        for stage in ["started", "opened", "made", "ended"] {
            crowd.reaches(stage)?;
            crowd.leaves(stage)?;
        }
        let report = crowd.end()?;
        if report.executed < objects {
            bail!("{} requests were executed, of {objects}", report.executed);
        }
        // In hundredths, of which planting has its share.
        costs.push((report.executed, report.calls * 100 / report.executed));
    }
    println!("requests, and calls for a hundred of each: {costs:?}");
    let [(_, few), (_, many)] = costs.as_slice() else { bail!("{costs:?}") };
    if *many > few + few * SLACK_PERCENT / 100 {
        bail!("a request costs more with many objects: {costs:?}");
    }
    Ok(Verdict::Ok)
}
