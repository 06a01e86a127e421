//! The runner of cases, each in a process and a control group of its own.

use std::fs;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
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
use crate::cases::Setting;
use crate::cases::Verdict;
use crate::exec;
use crate::line::End;
use crate::line::Line;
use crate::line::is_hostile;
use crate::tally::Tally;
use crate::world::TRACES;
use crate::world::UNFINISHED;
use crate::world::World;
use crate::world::resources;

/// The status of a case that was skipped, as automake has it.
const SKIPPED: u8 = 77;
/// Tells a case its control group.
const CELL: &str = "VERBGATE_TESTS_CELL";
/// How long killed processes may take to be gone. Freeing a queue pair under emulation takes
/// milliseconds; what is not gone after this hangs in the kernel.
const GONE: Duration = Duration::from_secs(10);

/// Cases of about a minute each that try our own programs rather than the kernel. Where no word means
/// them, they run on one kernel alone, which is the one on which Soft-RoCE carries data everywhere.
const ON_ONE_KERNEL: &[&str] = &[
    "bench_compares_both_ways",
    "container_is_bounded_by_the_kernel_too",
    "containers_execute_more",
    "containers_leave_nothing",
    "diagnose_causes",
    "diagnose_networks",
    "diagnose_programs",
    "diagnose_routed",
    "fabric_bench_of_four_ranks_and_two_rails",
    "fabric_by_datagrams",
    "fabric_by_rdma_cm",
    "fabric_faults",
    "fabric_goes_on_without_a_bad_rank",
    "fabric_of_four_ranks_and_two_rails",
    "fabric_routed",
    "fabric_simultaneous_open",
    "fabric_takes_chosen_pairs",
    "many_processes_with_many_objects",
    "podman_containers_speak_with_each_other",
    "sixty_four_tenants_of_one_port",
    "tenant_floods_and_costs_nobody_else",
];
const THE_KERNEL: &str = "7.2";

/// Why a case is left to another kernel, if it is.
fn left_to_another(name: &str, words: &[String], kernel: &str) -> Option<String> {
    let is_here = !words.is_empty() || kernel.starts_with(THE_KERNEL);
    (!is_here && ON_ONE_KERNEL.contains(&name))
        .then(|| format!("runs on Linux {THE_KERNEL}, and elsewhere with --case {name}"))
}

/// How a case ended.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Outcome {
    Ok,
    Failed(String),
    Flaky(String),
    Skipped(String),
}

/// Which cases to run.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Of the cases of this setting.
    pub setting: Setting,
    /// Those whose names hold one of these words. Without any, all but the hostile ones: these take
    /// as long as the rest of a kernel, and their like on this machine are run always.
    pub words: Vec<String>,
    /// Of these, this one and those after it.
    pub from: Option<String>,
}

impl Choice {
    /// The cases, in the order in which they run.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        self.of(cases::of(self.setting))
    }

    fn of(&self, cases: Vec<Case>) -> Vec<Case> {
        let is_early = |case: &Case| self.from.as_ref().is_some_and(|from| from != case.name);
        let is_meant = |case: &Case| {
            if self.words.is_empty() {
                return !is_hostile(case.name);
            }
            self.words.iter().any(|word| case.name.contains(word))
        };
        cases.into_iter().skip_while(is_early).filter(is_meant).collect()
    }
}

/// Runs the chosen cases; prints a line when each begins and ends, and a closing line.
pub fn run(world: &World, choice: &Choice) -> Result<Tally> {
    let chosen = choice.cases();
    if chosen.is_empty() {
        bail!("no case is called like {}", choice.words.join(" or "));
    }
    println!("{}", Line::Chosen(chosen.len()));
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut tally = Tally::default();
    for case in &chosen {
        println!("{}", Line::Begun(case.name.to_owned()));
        let start = Instant::now();
        let outcome = match left_to_another(case.name, &choice.words, &kernel) {
            Some(why) => Outcome::Skipped(why),
            None => settle(case.name, || isolated(world, case)),
        };
        if let Some(folder) = traces(case.name) {
            keep_traces(&folder, &outcome);
        }
        let (line, end) = told(case.name, &outcome, start.elapsed());
        tally += end.tally(case.name);
        println!("{line}");
        std::io::stdout().flush()?;
    }
    println!("{}", Line::Closing(tally));
    Ok(tally)
}

/// Runs a case, and once more if it fails: programs that measure time complain now and then under
/// emulation, where a fault of ours fails again. What failed once has not passed in either case.
fn settle(name: &str, mut run: impl FnMut() -> Outcome) -> Outcome {
    let first = match run() {
        Outcome::Failed(first) => first,
        other => return other,
    };
    println!("again {name}: {}", indented(&first));
    match run() {
        Outcome::Ok => Outcome::Flaky(first),
        Outcome::Skipped(why) => Outcome::Failed(format!("{first}\nthen it was skipped: {why}")),
        other => other,
    }
}

/// The line for a case that has ended, and how it counts.
fn told(name: &str, outcome: &Outcome, took: Duration) -> (String, End) {
    let took = format!("[{:.1} s]", took.as_secs_f64());
    let line = |end| Line::Ended(name.to_owned(), end);
    match outcome {
        Outcome::Ok => (format!("{} {took}", line(End::Passed)), End::Passed),
        Outcome::Failed(why) => {
            (format!("{}: {} {took}", line(End::Failed), indented(why)), End::Failed)
        }
        Outcome::Flaky(first) => {
            let counts = match is_hostile(name) {
                true => "it failed, then it passed; an attack that succeeds once counts as failed",
                false => "it failed, then it passed",
            };
            let first = indented(&format!("\nthe first time: {first}"));
            (format!("{} {took}: {counts}{first}", line(End::Flaky)), End::Flaky)
        }
        Outcome::Skipped(why) => (format!("{}: {why}", line(End::Skipped)), End::Skipped),
    }
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

/// Of a case that did not find the same in a sandbox as natively, or that nobody saw the end of, the traces
/// prove nothing.
fn keep_traces(folder: &Path, outcome: &Outcome) {
    let kept = folder.with_extension("");
    let _ = match outcome {
        Outcome::Ok => fs::remove_dir_all(&kept).or(Ok(())).and_then(|()| fs::rename(folder, kept)),
        _ => fs::remove_dir_all(folder),
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
        // Those of an attempt that was broken off.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        // Cases have sandboxes of other users.
        fs::set_permissions(&folder, Permissions::from_mode(0o777))?;
        command.env(TRACES, folder);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Settles a case that ends like this, time after time.
    fn settled(outcomes: &[Outcome]) -> (Outcome, usize) {
        let mut runs = 0;
        let outcome = settle("a_case", || {
            runs += 1;
            outcomes[runs - 1].clone()
        });
        (outcome, runs)
    }

    #[test]
    fn a_case_that_fails_and_passes_has_not_passed() {
        let failed = |why: &str| Outcome::Failed(why.to_owned());
        let (once, twice) = (failed("once"), failed("twice"));
        assert_eq!(settled(&[Outcome::Ok]), (Outcome::Ok, 1));
        let flaky = Outcome::Flaky("once".to_owned());
        assert_eq!(settled(&[once.clone(), Outcome::Ok]), (flaky, 2));
        assert_eq!(settled(&[once.clone(), twice.clone()]), (twice, 2));
        let skipped = Outcome::Skipped("no device".to_owned());
        let (outcome, _) = settled(&[once, skipped]);
        assert!(matches!(&outcome, Outcome::Failed(why) if why.starts_with("once")), "{outcome:?}");
    }

    #[test]
    fn both_outcomes_are_shown_and_an_attack_fails_the_run() {
        let flaky = Outcome::Flaky("no such file\nat all".to_owned());
        for (name, counts) in [("ping_pong", Tally::FLAKY), ("hostile_reuse", Tally::FAILED)] {
            let (text, end) = told(name, &flaky, Duration::from_secs(1));
            assert_eq!(end.tally(name), counts);
            let mut lines = text.lines();
            let first = lines.next().unwrap();
            assert_eq!(Line::read(first), Some(Line::Ended(name.to_owned(), End::Flaky)), "{text}");
            assert!(first.contains("it failed, then it passed"), "{text}");
            assert_eq!(lines.next(), Some("    the first time: no such file"));
            assert!(lines.all(|line| Line::read(line).is_none()), "{text}");
        }
    }

    #[test]
    fn cases_are_chosen_by_words_and_from_one_on() {
        let names = |words: &[&str], from: Option<&str>| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let choice = Choice { words, from: from.map(ToOwned::to_owned), ..Choice::default() };
            choice.of(cases::all()).iter().map(|case| case.name).collect::<Vec<_>>()
        };
        let all = names(&[], None);
        assert_eq!(names(&[], Some(all[3])), all[3..]);
        let fabric = names(&["fabric"], None);
        assert!(fabric.len() > 2 && fabric.iter().all(|name| name.contains("fabric")));
        assert_eq!(names(&["fabric"], Some(fabric[1])), fabric[1..]);
        assert!(names(&["no such case"], None).is_empty());
    }

    #[test]
    fn long_cases_run_on_one_kernel_unless_a_word_means_them() {
        let all: Vec<_> = cases::of(Setting::Software).iter().map(|case| case.name).collect();
        for name in ON_ONE_KERNEL {
            assert!(all.contains(name), "{name}");
            assert!(left_to_another(name, &[], "6.12.43-amd64").is_some());
            assert_eq!(left_to_another(name, &[], "7.2-amd64"), None);
            assert_eq!(left_to_another(name, &["fabric".to_owned()], "6.1.0-50-amd64"), None);
        }
        assert_eq!(left_to_another("ibv_rc_pingpong", &[], "6.1.0-50-amd64"), None);
    }
}
