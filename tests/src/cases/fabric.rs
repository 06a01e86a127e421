//! `verbgate fabric`, natively and between sandboxes: what it says of a fabric that works, and of
//! what is wrong with one that does not.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

/// `verbgate`, linked so that it can load libibverbs.
const PROGRAM: &str = "verbgate-fabric";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("fabric_verify", verify),
        Case::new("fabric_simultaneous_open", simultaneous_open),
        Case::new("fabric_ranks_that_differ", differ),
        Case::new("fabric_of_an_old_gid_type", old_gid_type),
    ]
}

/// The ranks of one run.
struct Job<'a> {
    world: &'a World,
    program: String,
    at: String,
    ranks: usize,
}

impl<'a> Job<'a> {
    /// The inner error is a reason to skip.
    fn new(world: &'a World, ranks: usize) -> Result<Result<Self, String>> {
        let program = world.beside(PROGRAM);
        if !program.exists() {
            return Ok(Err(format!("needs {PROGRAM} beside this program")));
        }
        let program = program.to_str().context("an odd path")?.to_owned();
        let at = format!("127.0.0.1:{}", world::free_port()?);
        Ok(Ok(Self { world, program, at, ranks }))
    }

    fn start(&self, place: Place, rank: usize, options: &[&str]) -> Result<Program> {
        let (rank, ranks) = (rank.to_string(), self.ranks.to_string());
        let index = self.world.gid_index.context("the device has no GID of IPv4")?;
        let rail = format!("{}@{index}", self.world.device);
        let mut argv = vec![&*self.program, "fabric", "verify", "--rendezvous", &self.at];
        argv.extend(["--rank", &rank, "--ranks", &ranks, "--timeout", "40"]);
        if !options.contains(&"--device") {
            argv.extend(["--device", &rail]);
        }
        argv.extend(options);
        Program::start(self.world.command(place, &argv)?)
    }

    /// Each rank at the same time, with its own options.
    fn run(&self, place: Place, options: impl Fn(usize) -> Vec<String>) -> Result<Vec<Ended>> {
        let started: Result<Vec<Program>> = (0..self.ranks)
            .map(|rank| {
                let options = options(rank);
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                self.start(place, rank, &options)
            })
            .collect();
        started?.into_iter().map(|program| program.wait(PATIENCE * 2)).collect()
    }
}

macro_rules! job {
    ($world:expr, $ranks:expr) => {
        match Job::new($world, $ranks)? {
            Ok(job) => job,
            Err(why) => return Ok(Verdict::Skipped(why)),
        }
    };
}

fn words(text: &str) -> Vec<String> {
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
        if !line.contains("rank 0 with 1, rail 0: ") || !line.contains("verify: all is well") {
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

/// Four ranks connect and disconnect again and again, all at the same time.
fn simultaneous_open(world: &World) -> Result<Verdict> {
    let job = job!(world, 4);
    let ended = job.run(Place::Native, |_| words("--reconnects 200 --sizes 1"))?;
    for ended in ended {
        ended.expect_status(0)?;
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

/// A rank that speaks by a GID of RoCE v1 is found before there is a queue pair.
fn old_gid_type(world: &World) -> Result<Verdict> {
    let class = format!("/sys/class/infiniband/{}/ports/1/gid_attrs/types", world.device);
    let old = std::fs::read_dir(class)?.flatten().find_map(|entry| {
        let kind = std::fs::read_to_string(entry.path()).ok()?;
        kind.contains("RoCE v1").then(|| entry.file_name().to_string_lossy().into_owned())
    });
    let Some(old) = old else {
        return Ok(Verdict::Skipped("the device has no GID of RoCE v1".to_owned()));
    };
    let job = job!(world, 2);
    let rail = format!("{}@{old}", world.device);
    let ended = job.run(Place::Native, |rank| match rank {
        1 => vec!["--device".to_owned(), rail.clone()],
        _ => Vec::new(),
    })?;
    for ended in ended {
        let ended = ended.expect_status(1)?;
        if !ended.stdout.contains("which is not routed") && ended.stdout.contains("rank 0 on") {
            bail!("{ended}");
        }
    }
    Ok(Verdict::Ok)
}
