//! What only long runs show: the same work in sandboxes again and again, while the memory, the descriptors and
//! the threads of their supervisors are counted. The kernel must have the same objects afterwards as before.
//!
//! What the guests do is in `scripts/soak.py`, a function for each role.

mod watched;

use std::fs;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use tempfile::TempDir;
use verbgate_wait::Wait;

use crate::exec;
use crate::exec::Program;
use crate::report::Report;
use crate::table::Table;
use crate::world::World;
use crate::world::resources;
use watched::Watched;

const SCRIPT: &str = include_str!("../../scripts/soak.py");
/// How often supervisors are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Within this each scenario does its work once, in emulation.
const SHORTEST: Duration = Duration::from_secs(90);
/// When one has failed, the others' failures may say why.
const FAREWELL: Duration = Duration::from_secs(30);
/// The address that comes and goes while events are meant to be seen.
const FLEETING: &str = "10.97.0.1/32";

/// Sandboxes that work at the same time.
struct Scenario {
    name: &'static str,
    /// The role of each sandbox.
    roles: &'static [&'static str],
    /// An address of the device comes and goes meanwhile, so that its table of GIDs changes.
    has_events: bool,
}

#[rustfmt::skip]
const SCENARIOS: &[Scenario] = &[
    Scenario { name: "traffic-with-events", roles: &["receive", "send", "watch"], has_events: true },
    Scenario { name: "registrations",       roles: &["register"], has_events: false },
    Scenario { name: "fork-server",         roles: &["fork"], has_events: false },
    Scenario { name: "32-clients",          roles: &["serve", "call", "call", "call", "call"], has_events: false },
    Scenario { name: "connection-storms",   roles: &["connect"], has_events: false },
    Scenario { name: "10000-queue-pairs",   roles: &["pairs"], has_events: false },
    Scenario { name: "interrupts-and-kills", roles: &["end"], has_events: false },
];

/// Runs the scenarios whose names hold one of the words, or all, each for its share of the time, and prints a
/// table. False: one failed.
///
/// # Errors
///
/// That the words name none, or that there is too little time.
pub fn run(world: &World, time: Duration, words: &[String]) -> Result<bool> {
    let is_meant = |scenario: &&Scenario| {
        words.is_empty() || words.iter().any(|word| scenario.name.contains(word.as_str()))
    };
    let meant: Vec<&Scenario> = SCENARIOS.iter().filter(is_meant).collect();
    let each = time / u32::try_from(meant.len())?.max(1);
    if meant.is_empty() || each < SHORTEST {
        let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        bail!(
            "cannot run {} scenarios in {} s: each needs {} s, and there are {}",
            meant.len(),
            time.as_secs(),
            SHORTEST.as_secs(),
            names.join(", ")
        );
    }
    let script = tempfile::tempdir().context("cannot make a temporary folder")?;
    fs::write(script.path().join("soak.py"), SCRIPT)?;
    let mut table = Table::new(&[
        "scenario",
        "role",
        "seconds",
        "rounds",
        "requests",
        "resident, MiB",
        "anonymous, MiB",
        "descriptors",
        "threads",
    ]);
    let (mut good, mut bad) = (0, 0);
    for scenario in meant {
        eprintln!("{}: {} s", scenario.name, each.as_secs());
        let fault = match scenario.run(world, &script, each, &mut table) {
            Ok(faults) => faults.join("; "),
            Err(error) => format!("{error:#}"),
        };
        if fault.is_empty() {
            good += 1;
        } else {
            bad += 1;
            println!("{}: FAILS: {fault}", scenario.name);
        }
    }
    println!("{table}");
    println!(
        "soak: {good} held, {bad} failed (supervisors: the second and the last quarter; memory in the median, descriptors \
         and threads when fewest are)"
    );
    Ok(bad == 0)
}

/// A sandbox at work.
struct Sandbox {
    role: &'static str,
    program: Program,
    watched: Watched,
    /// Its end: after how long, and with what status.
    end: Option<(Duration, i32)>,
}

impl Scenario {
    /// Runs once; the faults that were found.
    fn run(
        &self,
        world: &World,
        script: &TempDir,
        each: Duration,
        table: &mut Table,
    ) -> Result<Vec<String>> {
        let before = resources();
        if before.is_empty() {
            bail!("`rdma resource show` counts nothing");
        }
        let reports = tempfile::tempdir()?;
        let report = |at: usize| reports.path().join(at.to_string());
        let mut sandboxes = Vec::new();
        let begun = Instant::now();
        for (at, role) in self.roles.iter().enumerate() {
            let left = each.saturating_sub(begun.elapsed()).as_secs().to_string();
            let words = self.words(world, script, role, &left)?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let report = report(at);
            let command = world.sandbox(&["--report", &report.to_string_lossy()], &words);
            let program = Program::start(command)?;
            let watched = Watched::of(program.pid());
            sandboxes.push(Sandbox { role, program, watched, end: None });
        }
        self.watch(world, each, &mut sandboxes)?;
        let seconds = begun.elapsed().as_secs();
        let mut faults = Vec::new();
        for (at, sandbox) in sandboxes.into_iter().enumerate() {
            let Sandbox { role, program, watched, end } = sandbox;
            // Another has failed: this one is killed.
            let Some((after, status)) = end else { continue };
            let ended = program.wait()?;
            if status != 0 {
                faults.push(format!("{role}, after {} s: {ended}", after.as_secs()));
                continue;
            }
            let rounds = ended.stdout.lines().find_map(|line| line.strip_prefix("rounds "));
            let rounds = rounds.with_context(|| format!("{role} counts nothing: {ended}"))?;
            let requests = Report::read(&report(at))?.executed;
            faults.extend(watched.faults().into_iter().map(|fault| format!("{role}: {fault}")));
            let [resident, anonymous, descriptors, threads] = watched.cells();
            table.row(&[
                self.name,
                role,
                &seconds.to_string(),
                rounds,
                &requests.to_string(),
                &resident,
                &anonymous,
                &descriptors,
                &threads,
            ]);
        }
        // The supervisor of what was killed closes what it had open a moment later.
        let free = || Ok(resources() == before);
        if exec::wait_until("the objects of guests that have ended", free).is_err() {
            faults.push(format!("objects are left: {before:?} before, {:?} after", resources()));
        }
        Ok(faults)
    }

    fn words(
        &self,
        world: &World,
        script: &TempDir,
        role: &str,
        seconds: &str,
    ) -> Result<Vec<String>> {
        let index = world.gid_index.context("the device has no GID of an IPv4 address")?;
        let gid = format!("/sys/class/infiniband/{}/ports/1/gids/{index}", world.device);
        let gid = fs::read_to_string(gid)?;
        let (script, address) = (script.path().join("soak.py"), world.address()?);
        let (index, node) = (index.to_string(), world.node_path());
        let script = script.to_string_lossy();
        let words =
            ["python3", &script, role, &world.device, &node, &index, gid.trim(), &address, seconds];
        Ok(words.map(str::to_owned).to_vec())
    }

    /// Looks at the supervisors until their guests have ended, or one has failed and the others have had the time
    /// to end, too.
    fn watch(&self, world: &World, each: Duration, sandboxes: &mut [Sandbox]) -> Result<()> {
        let netdev = world.netdev().unwrap_or_default();
        let (begun, mut next, mut is_there) = (Instant::now(), Instant::now(), false);
        // All the time that they work is usual.
        Wait::new("the end of all guests").usual(each).try_until(|| {
            if Instant::now() < next {
                return Ok(false);
            }
            next = Instant::now() + LOOK;
            for sandbox in sandboxes.iter_mut().filter(|sandbox| sandbox.end.is_none()) {
                sandbox.end = sandbox.program.status()?.map(|status| (begun.elapsed(), status));
                if sandbox.end.is_none() {
                    sandbox.watched.look();
                }
            }
            let failed = |sandbox: &Sandbox| sandbox.end.filter(|(_, status)| *status != 0);
            let first = sandboxes.iter().filter_map(failed).map(|(after, _)| after).min();
            if first.is_some_and(|first| begun.elapsed() > first + FAREWELL) {
                return Ok(true);
            }
            // Not at the end: a queue pair of perftest's names a GID by its index until then.
            if self.has_events && (is_there || begun.elapsed() < each) {
                let what = if is_there { "del" } else { "add" };
                let mut ip = Command::new("ip");
                ip.args(["address", what, FLEETING, "dev", &netdev]);
                exec::run(ip)?.expect_status(0)?;
                is_there = !is_there;
            }
            Ok(sandboxes.iter().all(|sandbox| sandbox.end.is_some()))
        })
    }
}
