//! The runner of cases, each in a process and a control group of its own.

use std::fs;
use std::fs::Permissions;
use std::io::BufRead as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use crate::cases;
use crate::cases::Case;
use crate::cases::Device;
use crate::cases::Verdict;
use crate::exec;
use crate::said::SEPARATOR;
use crate::said::Said;
use crate::world::TRACES;
use crate::world::UNFINISHED;
use crate::world::World;
use crate::world::resources;

/// The status of a case that was skipped, as automake has it.
const SKIPPED: u8 = 77;
/// Tells a case its control group.
const CELL: &str = "VERBGATE_TESTS_CELL";
/// The processor time of a case: as much as any takes, since each wait of a case ends by itself.
const USUAL: Duration = Duration::from_secs(3600);
/// How often a machine says that its case goes on.
const ALIVE: Duration = Duration::from_secs(5);

/// Runs the cases that the lines of stdin name, one after another, and says how each ends.
pub fn serve(world: &World) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let name = line?;
        let (done, ended) = mpsc::channel::<()>();
        let end = thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(ALIVE) == Err(RecvTimeoutError::Timeout) {
                    println!("{}", Said::Alive);
                }
            });
            let end = match cases::find(&name) {
                Some(case) => isolated(world, &case),
                None => Said::Failed(format!("there is no case {name}")),
            };
            drop(done);
            end
        });
        println!("{end}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Runs the cases of a device whose names hold one of these words, or all but attacks; true if none failed.
pub fn run(world: &World, device: Device, words: &[String]) -> Result<bool> {
    let is_meant = |case: &Case| match words {
        [] => !cases::is_hostile(case.name),
        words => words.iter().any(|word| case.name.contains(word)),
    };
    let chosen: Vec<Case> = cases::of(device).into_iter().filter(is_meant).collect();
    if chosen.is_empty() {
        bail!("no case is called like {}", words.join(" or "));
    }
    let mut failed = false;
    for case in &chosen {
        let end = isolated(world, case);
        failed |= matches!(end, Said::Failed(_));
        println!("{}: {}", case.name, end.to_string().replace(SEPARATOR, "\n    "));
    }
    Ok(!failed)
}

/// The body of `verbgate-lab-tests case NAME`; the process's exit status.
pub fn run_one(world: &World, name: &str) -> Result<u8> {
    if let Some(cell) = std::env::var_os(CELL) {
        // Before anything is started: children are in the group of their parent.
        fs::write(Path::new(&cell).join("cgroup.procs"), "0")
            .context("cannot enter the control group of the case")?;
    }
    let case = cases::find(name).with_context(|| format!("there is no case {name}"))?;
    match (case.run)(world)? {
        Verdict::Ok => Ok(0),
        Verdict::Skipped(why) => {
            println!("{why}");
            Ok(SKIPPED)
        }
    }
}

/// Runs a case in a process of its own, keeps its traces if it passes, and says how it ended.
fn isolated(world: &World, case: &Case) -> Said {
    let end = match in_a_cell(world, case) {
        Err(error) => Said::Failed(format!("{error:#}")),
        Ok(ended) if ended.status == 0 => {
            // No line of a case is a word of ours.
            ended.stdout.lines().for_each(|line| println!("  {line}"));
            Said::Passed
        }
        Ok(ended) if ended.status == i32::from(SKIPPED) => {
            Said::Skipped(ended.stdout.trim().replace('\n', " "))
        }
        Ok(ended) if ended.status == 1 => Said::Failed(ended.stderr.trim().to_owned()),
        Ok(ended) => Said::Failed(ended.to_string()),
    };
    if let Some(folder) = traces(case.name) {
        keep_traces(&folder, end == Said::Passed);
    }
    end
}

/// Traces prove nothing of a case that did not find the same in a sandbox as natively, or whose end nobody saw.
fn keep_traces(folder: &Path, passed: bool) {
    let kept = folder.with_extension("");
    let _ = match passed {
        true => fs::remove_dir_all(&kept).or(Ok(())).and_then(|()| fs::rename(folder, kept)),
        false => fs::remove_dir_all(folder),
    };
}
/// Where the sandboxes of a case write traces, if they are to, until the case has ended.
fn traces(name: &str) -> Option<PathBuf> {
    std::env::var_os(TRACES)
        .map(|folder| PathBuf::from(folder).join(format!("{name}.{UNFINISHED}")))
}

fn in_a_cell(world: &World, case: &Case) -> Result<exec::Ended> {
    let before = resources();
    let cell = Cell::new(case.name);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--device", &world.device, "case", case.name]);
    if let Some(cell) = &cell {
        command.env(CELL, &cell.0);
    }
    if let Some(folder) = traces(case.name) {
        // An attempt that was broken off left some.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        // Cases have sandboxes of other users.
        fs::set_permissions(&folder, Permissions::from_mode(0o777))?;
        command.env(TRACES, folder);
    }
    let ended = exec::Program::start(command)?.wait_usually(USUAL);
    if let Some(cell) = cell {
        cell.clear()?;
    }
    let ended = ended?;
    // The reason of a failure matters more than what the case left behind.
    if ended.status == 0 {
        let mut after = resources();
        exec::wait_until("the kernel to free what the case made", || {
            after = resources();
            Ok(after == before)
        })
        .with_context(|| format!("the kernel had {before:?}, and has now {after:?}"))?;
    }
    Ok(ended)
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
        exec::wait_until("killed processes to be gone", is_empty)
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
