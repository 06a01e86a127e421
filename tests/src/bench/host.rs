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
use super::rounds::Figure;
use super::rounds::Rounds;
use crate::exec;
use crate::exec::Program;
use crate::report::Report;
use crate::table::Table;

/// Rounds of everything, by turns, so that a busy machine disturbs all alike.
const ROUNDS: usize = 7;
/// Requests in one run.
const REQUESTS: &str = "3000";
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
    let (mut requests, mut others) = (Rounds::default(), Rounds::default());
    for round in 1..=ROUNDS {
        eprintln!("null device, round {round} of {ROUNDS}");
        for (place, asked) in [(Place::Native, NATIVE), (Place::Inside, INSIDE)] {
            requests.add(0, answers(programs, place, asked)?);
        }
        for (column, place) in [Place::Native, Place::Inside].into_iter().enumerate() {
            others.add(column, answers(programs, place, OTHERS)?);
        }
    }
    let mut table = Table::new(&[
        "null device: medians",
        "us",
        "to a bare notification",
        "to the supervisor's own request",
    ]);
    let medians: Vec<(&str, f64)> = requests
        .medians()
        .map(|(name, of)| (name, of.first().copied().unwrap_or(f64::NAN)))
        .collect();
    for (name, value) in &medians {
        let to = |base: usize| medians.get(base).map_or(f64::NAN, |(_, base)| value / base);
        let [to_bare, to_own] = [to(1), to(2)].map(|ratio| format!("{ratio:.2}"));
        table.row(&[(*name).to_owned(), format!("{value:.2}"), to_bare, to_own]);
    }
    println!("{table}");
    let mut table = Table::new(&["other calls: medians in us", "native", "inside"]);
    for (name, medians) in others.medians() {
        let medians = medians.iter().map(|value| format!("{value:.2}"));
        table.row(&std::iter::once(name.to_owned()).chain(medians).collect::<Vec<_>>());
    }
    println!("{table}");
    Ok(())
}

/// Where a guest runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Native,
    Inside,
}

/// What `verbgate-guest` is asked, and a name for the figure after each word of the answer.
type Asked = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// Words that stand for the device's path and for a file's.
const ON_DEVICE: &str = "DEVICE";
const ON_FILE: &str = "FILE";

/// Requests and notifications without a sandbox: the second and the third are what others are compared with.
const NATIVE: &[Asked] = &[
    (&["requests", ON_DEVICE, REQUESTS], &[("ioctl, native", "median")]),
    (&["bare-notify", REQUESTS], &[("notification answered at once", "median")]),
    (&["served-notify", REQUESTS], &[("request made by the supervisor itself", "median")]),
];

/// A sandbox's requests.
pub(super) const INSIDE: &[Asked] = &[
    (
        &["requests", ON_DEVICE, REQUESTS],
        &[("request made by the stub", "median"), ("first request of a process", "first")],
    ),
    (&["destroys", ON_DEVICE, REQUESTS], &[("request that names no memory", "median")]),
];

/// Calls that pass the supervisor too, or wait for a thread of the guest's.
pub(super) const OTHERS: &[Asked] = &[
    (&["opens", ON_DEVICE, REQUESTS], &[("open of a device", "median")]),
    (&["opens", ON_FILE, REQUESTS], &[("open of another file", "median")]),
    (&["maps", ON_FILE, REQUESTS], &[("mmap of another file, shared", "median")]),
    (
        &["sleepers", ON_DEVICE, "64", "20"],
        &[
            ("first open of a process of 64 threads", "open"),
            ("first request of a process of 64 threads", "request"),
        ],
    ),
    (
        &["poller", ON_DEVICE, "main", "300"],
        &[("request beside a pinned poller", "median"), ("p99 beside a pinned poller", "p99")],
    ),
    (
        &["poller", ON_DEVICE, "poller", "300"],
        &[
            ("request beside a pinned poller that opened", "median"),
            ("p99 beside a pinned poller that opened", "p99"),
        ],
    ),
];

/// The figures of guests in a place, in microseconds.
pub(super) fn answers(programs: &Programs, place: Place, asked: &[Asked]) -> Result<Vec<Figure>> {
    let file = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let file = file.path().to_string_lossy();
    let mut figures = Vec::new();
    for (argv, names) in asked {
        let with = |device: &'static str| -> Vec<&str> {
            let put = |word: &&'static str| match *word {
                ON_DEVICE => device,
                ON_FILE => &*file,
                other => other,
            };
            argv.iter().map(put).collect()
        };
        let command = match place {
            Place::Native => programs.native(&with(DEVICE)),
            Place::Inside => programs.guest(&[], &with(NODE)),
        };
        let said = exec::run(command)?.expect_status(0)?.stdout;
        for (name, word) in *names {
            figures.push(((*name).to_owned(), figure(&said, word)?));
        }
    }
    Ok(figures)
}

/// The nanoseconds behind a word, as microseconds.
fn figure(said: &str, word: &str) -> Result<f64> {
    let mut words = said.split_ascii_whitespace();
    let found = words.find(|w| *w == word).and_then(|_| words.next());
    let nanoseconds: f64 =
        found.and_then(|n| n.parse().ok()).with_context(|| format!("no {word} in {said:?}"))?;
    Ok(nanoseconds / 1000.0)
}

fn counted(programs: &Programs) -> Result<Table> {
    let mut table = Table::new(&["host, null device", ""]);
    let each = programs.count()?;
    table.row(&["notifications per request", &format!("{:.2}", each.notifications)]);
    table.row(&["system calls of the supervisor per request", &format!("{:.2}", each.calls)]);
    for (name, resident) in resident_memory(programs, &[100, 100_000, 1_000_000])? {
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
    let [plain, inside] =
        [Place::Native, Place::Inside].map(|place| starts(programs, place, STARTS));
    table.row(&["`true`", &format!("{:.1} ms", plain?)]);
    table.row(&["`verbgate run -- true`", &format!("{:.1} ms", inside?)]);
    Ok(table)
}

/// Processes of one sandbox that make requests at once.
pub(super) const AT_ONCE: u32 = 8;
/// Requests of each.
const EACH: u32 = 10_000;

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Requests a second of so many processes of one sandbox, from its start to its end.
pub(super) fn rate(programs: &Programs, processes: u32) -> Result<f64> {
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
pub(super) fn resident_memory(programs: &Programs, stages: &[u32]) -> Result<Vec<(String, u64)>> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let guest = programs.0.join("verbgate-guest");
    let mark = |stage: u32| dir.path().join(stage.to_string());
    let mut script = String::new();
    let mut done = 0;
    for stage in stages {
        let (more, mark) = (stage - done, mark(*stage));
        // Until it has been looked at.
        let (guest, mark) = (guest.display(), mark.display());
        script += &format!(
            "{guest} requests {NODE} {more} && >{mark} && while [ -e {mark} ]; do sleep 0.1; done\n"
        );
        done = *stage;
    }
    let mut program = Program::start(programs.sandbox(&[], &["sh", "-ec", &script]))?;
    let status = format!("/proc/{}/status", program.pid());
    let (mut most, mut found) = (0, Vec::new());
    let mut stages = stages.iter().peekable();
    while !program.has_ended()? {
        let text = fs::read_to_string(&status).unwrap_or_default();
        most = most.max(kib(&text, "VmHWM:"));
        if let Some(stage) = stages.next_if(|stage| mark(**stage).exists()) {
            found.push((format!("resident after {stage} requests"), kib(&text, "VmRSS:")));
            // The rest are pages of the program's file, which all supervisors share.
            let own = format!("of these no file's (RssAnon), after {stage}");
            found.push((own, kib(&text, "RssAnon:")));
            fs::remove_file(mark(*stage))?;
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

/// Milliseconds of `true` in a place, of so many.
pub(super) fn starts(programs: &Programs, place: Place, count: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..count {
        let mut command = match place {
            Place::Native => Command::new("true"),
            Place::Inside => programs.sandbox(&[], &["true"]),
        };
        let start = Instant::now();
        let status = command.status().context("cannot start a program")?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        if !status.success() {
            bail!("{command:?} ended with {status}");
        }
    }
    median(&mut times).context("nothing was started")
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
