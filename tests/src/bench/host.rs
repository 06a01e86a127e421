//! The mechanism alone, at native speed: the null device stands for an RDMA device, so that a
//! request costs its way there and back and nothing else.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::median;
use crate::exec;
use crate::exec::Program;
use crate::report::Report;
use crate::table::Table;

/// Rounds of everything, by turns, so that a busy machine disturbs all alike.
const ROUNDS: usize = 7;
/// Requests in one run.
const REQUESTS: u64 = 3000;
/// How often a whole sandbox is made.
const STARTS: usize = 40;
/// The device that stands for an RDMA device, natively and as a guest sees it.
const DEVICE: &str = "/dev/null";
const GRANT: &str = "uverbs9=/dev/null";
const NODE: &str = "/dev/infiniband/uverbs9";

/// The folder of `verbgate` and `verbgate-guest`.
#[derive(Clone, Debug)]
pub struct Programs(pub PathBuf);

/// What one request costs the supervisor, counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerRequest {
    /// Notifications received.
    pub notifications: f64,
    /// System calls made.
    pub calls: f64,
}

impl Programs {
    pub(super) fn native(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("verbgate-guest"));
        command.args(arguments);
        command
    }

    pub(super) fn sandbox(&self, options: &[&str], argv: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("verbgate"));
        command.args(["run", "--device", GRANT]).args(options);
        command.arg("--").args(argv);
        command
    }

    fn guest(&self, options: &[&str], arguments: &[&str]) -> Command {
        let guest = self.0.join("verbgate-guest");
        let guest = guest.to_string_lossy();
        let argv: Vec<&str> = std::iter::once(&*guest).chain(arguments.iter().copied()).collect();
        self.sandbox(options, &argv)
    }

    /// Counts what a request costs once everything is in place: the difference between a long run
    /// and a short one.
    pub fn count(&self) -> Result<PerRequest> {
        let (few, many) = (100, 1100);
        let counts = |requests: u32| -> Result<Report> {
            let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
            let file = dir.path().join("report");
            let options = ["--report", &file.to_string_lossy()];
            let arguments = ["requests", NODE, &requests.to_string()];
            exec::run(self.guest(&options, &arguments))?.expect_status(0)?;
            Report::read(&file)
        };
        let (short, long) = (counts(few)?, counts(many)?);
        let executed = long.executed.saturating_sub(short.executed);
        if executed != u64::from(many - few) {
            bail!("{executed} of {} requests were executed", many - few);
        }
        let each = |count: fn(&Report) -> u64| -> Result<f64> {
            let more = u32::try_from(count(&long).saturating_sub(count(&short)))?;
            Ok(f64::from(more) / f64::from(many - few))
        };
        Ok(PerRequest {
            notifications: each(|report| report.notifications)?,
            calls: each(|report| report.calls)?,
        })
    }
}

/// Prints the tables.
pub fn run(programs: &Programs) -> Result<()> {
    mechanism(programs)?;
    println!("{}", counted(programs)?);
    Ok(())
}

/// Prints what a trap takes, and what a request takes: in the lab, how much of a ratio is the emulator's.
pub fn mechanism(programs: &Programs) -> Result<()> {
    let mut series = Series::default();
    for round in 1..=ROUNDS {
        eprintln!("null device, round {round} of {ROUNDS}");
        measure(programs, &mut series)?;
    }
    let (requests, others) = series.tables();
    println!("{requests}\n{others}");
    Ok(())
}

/// Medians of rounds, in microseconds.
#[derive(Debug, Default)]
struct Series {
    bare_ioctl: Vec<f64>,
    bare_notification: Vec<f64>,
    by_supervisor: Vec<f64>,
    by_stub: Vec<f64>,
    first: Vec<f64>,
    /// [`OTHERS`], natively and inside.
    others: [[Vec<f64>; 2]; OTHERS.len()],
}

/// Calls besides requests that pass the supervisor, and how a guest makes them: on a device, as it is
/// called natively and inside, or on a file of the host's.
const OTHERS: [(&str, &str, Option<[&str; 2]>); 3] = [
    ("open of a device", "opens", Some([DEVICE, NODE])),
    ("open of another file", "opens", None),
    ("mmap of another file, shared", "maps", None),
];

fn measure(programs: &Programs, series: &mut Series) -> Result<()> {
    let count = REQUESTS.to_string();
    let run = |command| -> Result<String> { Ok(exec::run(command)?.expect_status(0)?.stdout) };
    let file = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let path = file.path().to_string_lossy();

    let said = run(programs.native(&["requests", DEVICE, &count]))?;
    series.bare_ioctl.push(figure(&said, "median")?);
    let said = run(programs.native(&["bare-notify", &count]))?;
    series.bare_notification.push(figure(&said, "median")?);
    let said = run(programs.native(&["served-notify", &count]))?;
    series.by_supervisor.push(figure(&said, "median")?);
    let said = run(programs.guest(&[], &["requests", NODE, &count]))?;
    series.by_stub.push(figure(&said, "median")?);
    series.first.push(figure(&said, "first")?);
    for ((_, call, device), [native, inside]) in OTHERS.iter().zip(&mut series.others) {
        let [outer, inner] = device.unwrap_or([&*path, &*path]);
        let said = run(programs.native(&[call, outer, &count]))?;
        native.push(figure(&said, "median")?);
        let said = run(programs.guest(&[], &[call, inner, &count]))?;
        inside.push(figure(&said, "median")?);
    }
    Ok(())
}

/// The nanoseconds behind a word, as microseconds.
fn figure(said: &str, word: &str) -> Result<f64> {
    let mut words = said.split_ascii_whitespace();
    let found = words.find(|w| *w == word).and_then(|_| words.next());
    let nanoseconds: f64 =
        found.and_then(|n| n.parse().ok()).with_context(|| format!("no {word} in {said:?}"))?;
    Ok(nanoseconds / 1000.0)
}

impl Series {
    fn tables(mut self) -> (Table, Table) {
        let mut requests = Table::new(&[
            "null device: medians",
            "us",
            "to a bare notification",
            "to the supervisor's own request",
        ]);
        let bare = median(&mut self.bare_notification).unwrap_or(f64::NAN);
        let own = median(&mut self.by_supervisor).unwrap_or(f64::NAN);
        for (name, values) in [
            ("ioctl, native", &mut self.bare_ioctl),
            ("notification answered at once", &mut self.bare_notification),
            ("request made by the supervisor itself", &mut self.by_supervisor),
            ("request made by the stub", &mut self.by_stub),
            ("first request of a process", &mut self.first),
        ] {
            if let Some(value) = median(values) {
                let [to_bare, to_own] = [bare, own].map(|base| format!("{:.2}", value / base));
                requests.row(&[name.to_owned(), format!("{value:.2}"), to_bare, to_own]);
            }
        }
        let mut others = Table::new(&["other calls: medians in us", "native", "inside"]);
        for ((name, ..), values) in OTHERS.iter().zip(&mut self.others) {
            let [native, inside] = values.each_mut().map(|v| median(v).unwrap_or(f64::NAN));
            others.row(&[(*name).to_owned(), format!("{native:.2}"), format!("{inside:.2}")]);
        }
        (requests, others)
    }
}

fn counted(programs: &Programs) -> Result<Table> {
    let mut table = Table::new(&["host, null device", ""]);
    let each = programs.count()?;
    table.row(&["notifications per request", &format!("{:.2}", each.notifications)]);
    table.row(&["system calls of the supervisor per request", &format!("{:.2}", each.calls)]);
    for (name, resident) in resident_memory(programs)? {
        table.row(&[&*name, &format!("{:.1} MiB", resident as f64 / 1024.0)]);
    }
    let (one, many) = (rate(programs, 1)?, rate(programs, AT_ONCE)?);
    table.row(&["requests a second of one process", &format!("{one:.0}")]);
    let ratio = |of: f64, to: f64| format!("{of:.0}, {:.2} times", of / to);
    let processors = processors();
    let crowd = format!("of {AT_ONCE} processes at once, {processors} processors");
    table.row(&[&*crowd, &ratio(many, one)]);
    // Two notifications are a request: what the kernel's listener carries is what sets the bound.
    let one = bare_rate(programs, 1, 1)?;
    table.row(&["bare notifications a second of one process", &format!("{one:.0}")]);
    for threads in [1, processors] {
        let many = bare_rate(programs, AT_ONCE, threads)?;
        let name = format!("of {AT_ONCE} under one listener, answered by {threads}");
        table.row(&[&*name, &ratio(many, one)]);
    }
    let (plain, inside) = starts(programs)?;
    table.row(&["`true`", &format!("{plain:.1} ms")]);
    table.row(&["`verbgate run -- true`", &format!("{inside:.1} ms")]);
    Ok(table)
}

/// Processes of one sandbox that make requests at once.
const AT_ONCE: u32 = 8;
/// Requests of each.
const EACH: u32 = 10_000;

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Requests a second of so many processes of one sandbox, from its start to its end.
fn rate(programs: &Programs, processes: u32) -> Result<f64> {
    let guest = programs.0.join("verbgate-guest");
    let script = format!(
        "for i in $(seq {processes}); do {} requests {NODE} {EACH} & done; wait",
        guest.display()
    );
    let start = Instant::now();
    exec::run(programs.sandbox(&[], &["sh", "-c", &script]))?.expect_status(0)?;
    Ok(f64::from(processes * EACH) / start.elapsed().as_secs_f64())
}

/// Notifications a second of so many processes under one listener, answered at once by so many threads.
fn bare_rate(programs: &Programs, processes: u32, threads: usize) -> Result<f64> {
    let (processes, threads) = (processes.to_string(), threads.to_string());
    let each = (EACH * 4).to_string();
    let command = programs.native(&["bare-crowd", &processes, &threads, &each]);
    let said = exec::run(command)?.expect_status(0)?.stdout;
    let rate = said.split("rate ").nth(1).and_then(|rate| rate.trim().parse().ok());
    rate.with_context(|| format!("no rate in {said:?}"))
}

/// What a supervisor of one busy guest holds after so many requests, and at most, in KiB.
fn resident_memory(programs: &Programs) -> Result<Vec<(String, u64)>> {
    const STAGES: [u32; 3] = [100, 100_000, 1_000_000];
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let guest = programs.0.join("verbgate-guest");
    let mark = |stage: u32| dir.path().join(stage.to_string());
    let mut script = String::new();
    let mut done = 0;
    for stage in STAGES {
        let (more, mark) = (stage - done, mark(stage));
        // Until it has been looked at.
        let (guest, mark) = (guest.display(), mark.display());
        script += &format!(
            "{guest} requests {NODE} {more} && >{mark} && while [ -e {mark} ]; do sleep 0.1; done\n"
        );
        done = stage;
    }
    let mut program = Program::start(programs.sandbox(&[], &["sh", "-ec", &script]))?;
    let status = format!("/proc/{}/status", program.pid());
    let (mut most, mut found) = (0, Vec::new());
    let mut stages = STAGES.into_iter().peekable();
    while !program.has_ended()? {
        let text = fs::read_to_string(&status).unwrap_or_default();
        most = most.max(kib(&text, "VmHWM:"));
        if let Some(stage) = stages.next_if(|stage| mark(*stage).exists()) {
            found.push((format!("resident after {stage} requests"), kib(&text, "VmRSS:")));
            // The rest are pages of the program's file, which all supervisors share.
            let own = format!("of these no file's (RssAnon), after {stage}");
            found.push((own, kib(&text, "RssAnon:")));
            fs::remove_file(mark(stage))?;
        }
        thread::sleep(exec::TICK);
    }
    program.wait()?.expect_status(0)?;
    found.insert(0, ("most resident memory of the supervisor, at its start".to_owned(), most));
    Ok(found)
}

pub(super) fn kib(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next());
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Milliseconds of `true`, plain and in a sandbox.
fn starts(programs: &Programs) -> Result<(f64, f64)> {
    let time = |mut command: Command| -> Result<f64> {
        let start = Instant::now();
        let status = command.status().context("cannot start a program")?;
        let took = start.elapsed();
        if !status.success() {
            bail!("{command:?} ended with {status}");
        }
        Ok(took.as_secs_f64() * 1000.0)
    };
    let (mut plain, mut inside) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        plain.push(time(Command::new("true"))?);
        inside.push(time(programs.sandbox(&[], &["true"]))?);
    }
    let of = |values: &mut Vec<f64>| median(values).unwrap_or(f64::NAN);
    Ok((of(&mut plain), of(&mut inside)))
}

/// The folder of the workspace's programs, seen from one of its tests.
pub fn built_beside(test: &Path) -> Result<Programs> {
    let folder = test.ancestors().nth(2).context("the test is in no target folder")?;
    for name in ["verbgate", "verbgate-guest"] {
        if !folder.join(name).exists() {
            bail!(
                "{} is missing: run the tests of the whole workspace, or `cargo build --workspace`",
                folder.join(name).display()
            );
        }
    }
    Ok(Programs(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_microseconds() {
        let said = "first 260000 ns, median 15500 ns, errno 25\n";
        assert_eq!(figure(said, "first").unwrap(), 260.0);
        assert_eq!(figure(said, "median").unwrap(), 15.5);
        assert!(figure(said, "mean").is_err());
    }

    #[test]
    fn memory_is_found() {
        assert_eq!(kib("Name:\tx\nVmRSS:\t    4321 kB\n", "VmRSS:"), 4321);
    }
}
