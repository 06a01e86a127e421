//! `verbgate fabric`, natively and between sandboxes: the reports on a fabric that works, and on
//! faults of one that does not.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::nodes::SECOND;
use super::nodes::SPARE_NETDEV;
use super::nodes::SecondDevice;
use super::nodes::ip;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::Place;
use crate::world::World;

/// Seconds that ranks which all come and answer never take, whatever else runs.
pub(crate) const PATIENT: &str = "600";

/// `verbgate`, linked so that it can load libibverbs.
pub(super) const PROGRAM: &str = "verbgate";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("fabric_verify", verify),
        Case::new("fabric_simultaneous_open", simultaneous_open),
        Case::new("fabric_ranks_that_differ", differ),
        Case::new("fabric_of_four_ranks_and_two_rails", two_rails),
        Case::new("fabric_faults", faults),
        Case::new("fabric_goes_on_without_a_bad_rank", bad_rank),
        Case::new("fabric_by_datagrams", datagrams),
    ]
}

/// What one rank does wrong, and what must be said of it.
const FAULTS: &[(&str, &[&str])] = &[
    ("no-receives", &["CAUSE no-receives: rank 1: receiving application: RNR_RETRY_EXC_ERR"]),
    ("wrong-rkey", &["rkey or permission: REM_ACCESS_ERR", "rank 1 with 0, rail 0: step"]),
    ("segments", &["rank 1: a message of push has 3 segments, not 2"]),
    ("exit", &["rank 1 ended before the others were done"]),
];

/// The ranks of one run.
pub(super) struct Job<'a> {
    pub(super) world: &'a World,
    /// Of `verbgate fabric`.
    pub(super) command: &'static str,
    pub(super) program: String,
    at: String,
    ranks: usize,
}

impl<'a> Job<'a> {
    /// The inner error is a reason to skip.
    pub(super) fn new(world: &'a World, ranks: usize) -> Result<Result<Self, String>> {
        let program = world.beside(PROGRAM);
        if !program.exists() {
            return Ok(Err(format!("needs {PROGRAM} beside this program")));
        }
        let program = program.to_str().context("an odd path")?.to_owned();
        let at = format!("127.0.0.1:{}", world::free_port()?);
        Ok(Ok(Self { world, command: "verify", program, at, ranks }))
    }

    pub(super) fn start(&self, place: Place, rank: usize, options: &[&str]) -> Result<Program> {
        let (rank, ranks) = (rank.to_string(), self.ranks.to_string());
        let rail = self.rail()?;
        let mut argv = vec![&*self.program, "fabric", self.command, "--rendezvous", &self.at];
        argv.extend(["--rank", &rank, "--ranks", &ranks]);
        if !options.contains(&"--timeout") {
            argv.extend(["--timeout", PATIENT]);
        }
        if !options.contains(&"--device") {
            argv.extend(["--device", &rail]);
        }
        argv.extend(options);
        Program::start(match place {
            Place::Native => self.world.command(place, &argv)?,
            // What a rank may not open it need not be granted, and is not named.
            Place::Sandbox
                if options.iter().any(|option| option.split('@').next() == Some(SECOND)) =>
            {
                self.world.sandbox(&["--device", SECOND], &argv)
            }
            Place::Sandbox => self.world.sandbox(&[], &argv),
        })
    }

    pub(super) fn rail(&self) -> Result<String> {
        let index = self.world.gid_index.context("the device has no GID of IPv4")?;
        Ok(format!("{}@{index}", self.world.device))
    }

    /// Each rank at the same time, with its own options.
    pub(super) fn run(
        &self,
        place: Place,
        options: impl Fn(usize) -> Vec<String>,
    ) -> Result<Vec<Ended>> {
        let started: Result<Vec<Program>> = (0..self.ranks)
            .map(|rank| {
                let options = options(rank);
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                self.start(place, rank, &options)
            })
            .collect();
        started?.into_iter().map(|program| program.wait()).collect()
    }
}

/// Or the case cannot run here.
macro_rules! job {
    ($world:expr, $ranks:expr) => {
        match $crate::cases::fabric::Job::new($world, $ranks)? {
            Ok(job) => job,
            Err(why) => return Ok(Verdict::Skipped(why)),
        }
    };
}
pub(super) use job;

pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The rank table's hash, which all ranks print first.
fn hash(ended: &Ended) -> Result<&str> {
    let line = ended.stdout.lines().next().and_then(|line| line.strip_prefix("rank table "));
    let hash = line.and_then(|line| line.split(':').next());
    hash.with_context(|| format!("no rank table: {ended}"))
}

/// What does not change from run to run: how many steps, and that all is well.
fn summary(ended: &Ended) -> Vec<&str> {
    let lines = ended.stdout.lines();
    lines.filter(|line| line.contains(" steps, ") || line.starts_with("verify: ")).collect()
}

/// Two ranks verify natively and in two sandboxes, with the same result.
fn verify(world: &World) -> Result<Verdict> {
    let run = |place| -> Result<Result<Vec<Ended>, String>> {
        let job = match Job::new(world, 2)? {
            Ok(job) => job,
            Err(why) => return Ok(Err(why)),
        };
        let ended = job.run(place, |_| Vec::new())?;
        let ended: Result<Vec<Ended>> = ended.into_iter().map(|e| e.expect_status(0)).collect();
        Ok(Ok(ended?))
    };
    let native = match run(Place::Native).context("natively")? {
        Ok(native) => native,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let inside = run(Place::Sandbox).context("in two sandboxes")?.map_err(anyhow::Error::msg)?;
    for both in [&native, &inside] {
        let [zero, one] = &both[..] else { bail!("{both:?}") };
        if hash(zero)? != hash(one)? {
            bail!("the ranks have different tables: {zero}\n{one}");
        }
        for check in ["port active", "GID", "neighbours", "routes", "MTU along the rail"] {
            if !zero.stdout.contains(check) {
                bail!("nothing is said of {check}: {zero}");
            }
        }
        let line = summary(zero).join("\n");
        if !line.contains("rank 0: 1 of 1 paths are well") || !line.contains("verify: all is well")
        {
            bail!("{zero}");
        }
    }
    let [native, inside] = [&native, &inside].map(|both| both.iter().map(summary).collect());
    let (native, inside): (Vec<_>, Vec<_>) = (native, inside);
    if native != inside {
        bail!("natively {native:?}, in sandboxes {inside:?}");
    }
    println!("  {}", inside.concat().join("\n  "));
    Ok(Verdict::Ok)
}

/// Four ranks connect and disconnect again and again, all at the same time; no queue pair is left
/// over, by the kernel's count, which is to be had natively.
fn simultaneous_open(world: &World) -> Result<Verdict> {
    for (place, times) in [(Place::Native, 50), (Place::Sandbox, 20)] {
        let job = job!(world, 4);
        let options = format!("--reconnects {times} --sizes 1");
        for (rank, ended) in job.run(place, |_| words(&options))?.into_iter().enumerate() {
            let ended = ended.expect_status(0)?;
            let line = ended.stdout.lines().find(|line| line.contains("opened and closed"));
            let Some(line) = line else {
                if rank == 0 {
                    bail!("nothing is said of it: {ended}");
                }
                continue;
            };
            println!("  {place:?}: {line}");
            let counted = line.contains("by the kernel's count, too");
            if counted != (place == Place::Native) {
                bail!("{place:?}: {ended}");
            }
        }
    }
    Ok(Verdict::Ok)
}

/// Ranks that were told different things say so, each in one line.
fn differ(world: &World) -> Result<Verdict> {
    let job = job!(world, 2);
    let ended =
        job.run(Place::Sandbox, |rank| words(if rank == 0 { "--sizes 1" } else { "--sizes 2" }))?;
    for ended in ended {
        let ended = ended.expect_status(2)?;
        let said = &ended.stderr;
        if !said.contains("--sizes 1") || !said.contains("--sizes 2") || said.lines().count() != 1 {
            bail!("{ended}");
        }
    }
    Ok(Verdict::Ok)
}

/// Four ranks, each with two rails, in sandboxes.
fn two_rails(world: &World) -> Result<Verdict> {
    let job = job!(world, 4);
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let address = Address::new("10.99.1.1/24", SPARE_NETDEV)?;
    let rail = job.rail()?;
    let options = |_| words(&format!("--device {rail} --device {SECOND} --sizes 0,1,4099,64K"));
    for ended in job.run(Place::Sandbox, options)? {
        let ended = ended.expect_status(0)?;
        let ranks =
            summary(&ended).into_iter().filter(|line| line.contains(": 6 of 6 paths are well"));
        // Three others on two rails, told of each rank by rank 0.
        let ranks = ranks.count();
        if ranks != 0 && ranks != 4 {
            bail!("{ranks} ranks: {ended}");
        }
    }
    drop(address);
    drop(second);
    Ok(Verdict::Ok)
}

/// Faults that programs have, each named by what is at fault.
fn faults(world: &World) -> Result<Verdict> {
    for (fault, expected) in FAULTS {
        let job = job!(world, 2);
        let options = |rank| {
            words(if rank == 1 { "--inject" } else { "" })
                .into_iter()
                .chain(words(if rank == 1 { fault } else { "" }))
                .collect()
        };
        let ended = job.run(Place::Sandbox, options)?;
        let zero = ended.into_iter().next().context("no rank")?.expect_status(1)?;
        for words in *expected {
            if !zero.stdout.contains(words) && !zero.stderr.contains(words) {
                bail!("{fault}: nothing is said of {words:?}: {zero}");
            }
        }
    }
    Ok(Verdict::Ok)
}

/// One of three ranks uses wrong keys: that rank is named, the others' paths are tried all the same, and each
/// rank exits with 1.
fn bad_rank(world: &World) -> Result<Verdict> {
    let bad = |rank: usize| if rank == 2 { "--inject wrong-rkey" } else { "" };
    let verify = job!(world, 3);
    let ended = verify.run(Place::Native, |rank| words(&format!("--sizes 1,4K {}", bad(rank))))?;
    let ended = ended.into_iter().map(|e| e.expect_status(1)).collect::<Result<Vec<_>>>()?;
    let zero = ended.first().context("no rank")?;
    let cause = zero.stdout.lines().find(|line| line.starts_with("CAUSE wrong-rkey"));
    if !cause.is_some_and(|line| line.contains("rank 2")) {
        bail!("rank 2 is not named: {zero}");
    }
    for told in ["rank 0: 1 of 2 paths are well", "rank 1: 1 of 2 paths", "rank 2: 0 of 2 paths"] {
        if !zero.stdout.contains(told) {
            bail!("nothing is said of {told:?}: {zero}");
        }
    }
    let mut bench = job!(world, 3);
    bench.command = "bench";
    // Of one size alone: sizes of a starved machine are not compared.
    let options = "--sweep sizes --sizes 4K --repeat 1 --seconds 0.1";
    let ended = bench.run(Place::Native, |rank| words(&format!("{options} {}", bad(rank))))?;
    let ended = ended.into_iter().map(|e| e.expect_status(1)).collect::<Result<Vec<_>>>()?;
    let zero = ended.first().context("no rank")?;
    let failed: Vec<&str> = zero.stdout.lines().filter(|line| line.starts_with("FAIL ")).collect();
    if failed.len() < 2 || failed.iter().any(|line| !line.contains("rank 2 to ")) {
        bail!("not rank 2's paths alone: {zero}");
    }
    // From, to and the rail, and numbers: no path of the others failed.
    for path in [["0", "1", "0"], ["1", "0", "0"], ["0", "2", "0"]] {
        let of = |line: &&str| {
            let mut words = line.split_whitespace();
            words.next() == Some("sizes") && words.take(path.len()).eq(path)
        };
        let rows = zero.stdout.lines().filter(of);
        let well = rows.filter(|line| !line.contains("FAILED")).count();
        if well != 1 {
            bail!("{well} cells of {path:?} are well: {zero}");
        }
    }
    Ok(Verdict::Ok)
}

/// Datagrams, compared byte by byte, and measured; several threads, too.
fn datagrams(world: &World) -> Result<Verdict> {
    for place in [Place::Native, Place::Sandbox] {
        let verify = job!(world, 2);
        for ended in verify.run(place, |_| words("--transport ud"))? {
            ended.expect_status(0)?;
        }
        for options in
            ["--transport ud --sweep sizes", "--threads 2 --qps 4 --sweep sizes,bidirectional"]
        {
            let mut bench = job!(world, 2);
            bench.command = "bench";
            let options = format!(
                "{options} --sizes 1K --message 1K --repeat 1 --seconds 0.2 --tolerance 90"
            );
            for ended in bench.run(place, |_| words(&options))? {
                ended.expect_status(0).with_context(|| format!("{place:?}: {options}"))?;
            }
        }
    }
    Ok(Verdict::Ok)
}

/// An address that is taken away with this.
pub(super) struct Address(&'static str, &'static str);

impl Address {
    pub(super) fn new(address: &'static str, netdev: &'static str) -> Result<Self> {
        ip(&["address", "add", address, "dev", netdev])?;
        Ok(Self(address, netdev))
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        // Of a device that is gone nothing is left to take.
        let _ = ip(&["address", "delete", self.0, "dev", self.1]);
    }
}
