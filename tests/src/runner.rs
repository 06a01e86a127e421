//! Runs cases, each in a process and a control group of its own.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::cases;
use crate::cases::Case;
use crate::cases::Verdict;
use crate::exec;
use crate::tally::Tally;
use crate::world::World;
use crate::world::resources;

/// What the closing line of a run begins with, so that it is not taken for the whole test's own.
pub const CLOSING: &str = "lab: ";
/// The status of a case that was skipped, as automake has it.
const SKIPPED: u8 = 77;
/// Tells a case its control group.
const CELL: &str = "VERBGATE_TESTS_CELL";
/// How long killed processes may take to be gone. Freeing a queue pair under emulation takes
/// milliseconds; what is not gone after this hangs in the kernel.
const GONE: Duration = Duration::from_secs(10);

/// How a case ended.
#[derive(Debug)]
enum Outcome {
    Ok,
    Failed(String),
    Skipped(String),
}

/// Runs the cases whose names hold one of these words, or all; prints a line for each and a closing
/// line.
pub fn run(world: &World, words: &[String]) -> Result<Tally> {
    let chosen: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| words.is_empty() || words.iter().any(|w| case.name.contains(w.as_str())))
        .collect();
    if chosen.is_empty() {
        bail!("no case is called like {}", words.join(" or "));
    }
    let mut tally = Tally::default();
    for case in &chosen {
        let start = Instant::now();
        let mut outcome = isolated(world, case);
        // Programs that measure time complain now and then under emulation on a busy machine: a
        // fault of ours fails again.
        if let Outcome::Failed(why) = &outcome {
            println!("again {}: {}", case.name, indented(why));
            outcome = isolated(world, case);
        }
        let took = format!("[{:.1} s]", start.elapsed().as_secs_f64());
        let name = case.name;
        let (line, counts) = match outcome {
            Outcome::Ok => (format!("ok {name} {took}"), Tally::PASSED),
            Outcome::Failed(why) => {
                (format!("FAILED {name}: {} {took}", indented(&why)), Tally::FAILED)
            }
            Outcome::Skipped(why) => (format!("skipped {name}: {why}"), Tally::SKIPPED),
        };
        tally += counts;
        println!("{line}");
        std::io::stdout().flush()?;
    }
    println!("{CLOSING}{tally}");
    Ok(tally)
}

/// The body of `verbgate-lab-tests case NAME`; the process's exit status.
pub fn run_one(world: &World, name: &str) -> Result<u8> {
    if let Some(cell) = std::env::var_os(CELL) {
        // Before anything is started: children are in the group of their parent.
        fs::write(Path::new(&cell).join("cgroup.procs"), "0")
            .context("cannot enter the control group of the case")?;
    }
    let all = cases::all();
    let case = all
        .iter()
        .find(|case| case.name == name)
        .with_context(|| format!("there is no case {name}"))?;
    match (case.run)(world)? {
        Verdict::Ok => Ok(0),
        Verdict::Skipped(why) => {
            println!("{why}");
            Ok(SKIPPED)
        }
    }
}

fn isolated(world: &World, case: &Case) -> Outcome {
    let ended = in_a_cell(world, case);
    match ended {
        Err(error) => Outcome::Failed(format!("{error:#}")),
        Ok(ended) if ended.status == 0 => Outcome::Ok,
        Ok(ended) if ended.status == i32::from(SKIPPED) => {
            Outcome::Skipped(ended.stdout.trim().to_owned())
        }
        Ok(ended) if ended.status == 1 => Outcome::Failed(ended.stderr.trim().to_owned()),
        Ok(ended) => Outcome::Failed(ended.to_string()),
    }
}

fn in_a_cell(world: &World, case: &Case) -> Result<exec::Ended> {
    let before = resources();
    let cell = Cell::new(case.name);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--device", &world.device, "case", case.name]);
    if let Some(cell) = &cell {
        command.env(CELL, &cell.0);
    }
    let ended = exec::run(command, case.limit);
    if let Some(cell) = cell {
        cell.clear()?;
    }
    let ended = ended?;
    // Of a case that failed, the reason matters more than what it left behind.
    if ended.status == 0 {
        let mut after = resources();
        exec::wait_until("the kernel to free what the case made", GONE, || {
            after = resources();
            Ok(after == before)
        })
        .with_context(|| format!("the kernel had {before:?}, and has now {after:?}"))?;
    }
    Ok(ended)
}

/// The later lines of a reason, under the first.
fn indented(why: &str) -> String {
    why.replace('\n', "\n    ")
}

/// A control group, by which all that a case started is found and killed, whatever became of its
/// parents.
#[derive(Debug)]
struct Cell(PathBuf);

impl Cell {
    /// None where control groups are not ours to make: there the case kills what it knows of.
    fn new(name: &str) -> Option<Self> {
        let path = Path::new("/sys/fs/cgroup").join(format!("verbgate-tests-{name}"));
        let made = fs::create_dir(&path).is_ok();
        (made && path.join("cgroup.kill").exists()).then_some(Self(path))
    }

    fn clear(self) -> Result<()> {
        fs::write(self.0.join("cgroup.kill"), "1")?;
        let is_empty = || {
            let events = fs::read_to_string(self.0.join("cgroup.events"))?;
            Ok(events.lines().any(|line| line == "populated 0"))
        };
        exec::wait_until("killed processes to be gone", GONE, is_empty)
            .with_context(|| format!("these do not end: {}", self.processes()))?;
        Ok(fs::remove_dir(&self.0)?)
    }

    fn processes(&self) -> String {
        let pids = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let named = pids.lines().map(|pid| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let stack = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
            let stack = stack.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{pid} ({}) {stack}", comm.trim())
        });
        named.collect::<Vec<_>>().join("; ")
    }
}
