//! `verbgate fabric`, natively and between sandboxes: the reports on a fabric that works, and on
//! faults of one that does not.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::nodes::Namespace;
use super::nodes::SECOND;
use super::nodes::SPARE_NETDEV;
use super::nodes::SecondDevice;
use super::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

/// `verbgate`, linked so that it can load libibverbs.
pub(super) const PROGRAM: &str = "verbgate-fabric";

/// Hundreds of opens, of which each waits for the slowest of four ranks.
const OPENS: Duration = Duration::from_secs(300);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("fabric_verify", verify),
        Case { limit: OPENS, ..Case::new("fabric_simultaneous_open", simultaneous_open) },
        Case::new("fabric_ranks_that_differ", differ),
        Case::new("fabric_of_four_ranks_and_two_rails", two_rails),
        Case::new("fabric_faults", faults),
        Case::new("fabric_between_network_namespaces", two_hosts),
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
    program: String,
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
            argv.extend(["--timeout", "40"]);
        }
        if !options.contains(&"--device") {
            argv.extend(["--device", &rail]);
        }
        argv.extend(options);
        Program::start(match place {
            Place::Native => self.world.command(place, &argv)?,
            // What a rank may not open it need not be granted, and is not named.
            Place::Sandbox if options.contains(&SECOND) => {
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
        started?.into_iter().map(|program| program.wait(PATIENCE * 4)).collect()
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
    for (place, times) in [(Place::Native, 200), (Place::Sandbox, 20)] {
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

/// A network namespace that stands for a host: a link for the rendezvous, and a rail.
struct Host {
    namespace: Namespace,
    rail: &'static str,
}

/// Of each host: its namespace, its rail's network device and RDMA device, and the addresses of its
/// link and its rail.
type Plan = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);
const HOSTS: [Plan; 2] = [
    ("verbgate-fa", "fa", "rxefa", "ca", "10.97.0.1/24", "10.98.0.1/24"),
    ("verbgate-fb", "fb", "rxefb", "cb", "10.97.0.2/24", "10.98.0.2/24"),
];
/// As the lab's own device has it.
const MTU: &str = "4200";

fn hosts() -> Result<[Host; 2]> {
    let [a, b] = HOSTS;
    let spaces = [Namespace::new(a.0)?, Namespace::new(b.0)?];
    for (one, other) in [(a.1, b.1), (a.3, b.3)] {
        ip(&[
            "link", "add", one, "netns", a.0, "type", "veth", "peer", "name", other, "netns", b.0,
        ])?;
    }
    let make = |(name, netdev, rail, link, link_address, address): Plan, namespace| {
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        for (netdev, address) in [(netdev, address), (link, link_address)] {
            ip(&["-n", name, "address", "add", address, "dev", netdev])?;
            ip(&["-n", name, "link", "set", netdev, "mtu", MTU, "up"])?;
        }
        inside(name, &["rdma", "link", "add", rail, "type", "rxe", "netdev", netdev])?;
        Ok::<Host, anyhow::Error>(Host { namespace, rail })
    };
    let [one, other] = spaces;
    let hosts = [make(a, one)?, make(b, other)?];
    for host in &hosts {
        exec::wait_until(host.rail, PATIENCE, || {
            let node = world::node_of(host.rail);
            Ok(node.is_ok_and(|node| Path::new("/dev/infiniband").join(node).exists()))
        })?;
    }
    Ok(hosts)
}

fn inside(namespace: &str, argv: &[&str]) -> Result<Ended> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(argv);
    exec::run(command, PATIENCE)?.expect_status(0)
}

/// What two hosts say, each of its own rail.
fn between(world: &World, job: &Job<'_>, hosts: &[Host; 2], place: Place) -> Result<[Ended; 2]> {
    let at = format!("10.97.0.1:{}", world::free_port()?);
    let start = |rank: usize, host: &Host| {
        let rank = rank.to_string();
        let mut argv = vec![&*job.program, "fabric", "verify", "--rendezvous", &at];
        argv.extend(["--rank", &rank, "--ranks", "2", "--timeout", "40", "--device", host.rail]);
        let command = match place {
            Place::Native => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", host.namespace.name()]).args(&argv);
                command
            }
            Place::Sandbox => {
                let mut command = world.program("verbgate");
                command.args(["run", "--device", host.rail, "--netns", &host.namespace.path()]);
                command.arg("--").args(&argv);
                command
            }
        };
        Program::start(command)
    };
    let [zero, one] = hosts;
    let (zero, one) = (start(0, zero)?, start(1, one)?);
    Ok([zero.wait(PATIENCE)?, one.wait(PATIENCE)?])
}

/// What is done to a host's network, how it is undone, and what must be said of it.
type NetworkFault = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

const NETWORK_FAULTS: &[NetworkFault] = &[
    (
        &["-n", "verbgate-fb", "link", "set", "fb", "mtu", "1500"],
        &["-n", "verbgate-fb", "link", "set", "fb", "mtu", MTU],
        &["FAIL  rank 1, rail 0: MTU along the rail: MTU is 1024 here", "4096 on rank 0"],
    ),
    (
        &["-n", "verbgate-fb", "link", "set", "fb", "down"],
        &["-n", "verbgate-fb", "link", "set", "fb", "up"],
        &["FAIL  rank 1, rail 0"],
    ),
    // As another NIC of the peer's host would answer for it.
    (
        &[
            "-n",
            "verbgate-fa",
            "neighbour",
            "replace",
            "10.98.0.2",
            "lladdr",
            "02:00:00:00:00:99",
            "dev",
            "fa",
            "nud",
            "permanent",
        ],
        &["-n", "verbgate-fa", "neighbour", "delete", "10.98.0.2", "dev", "fa"],
        &[
            "FAIL  rank 0, rail 0: neighbours: rank 1: 10.98.0.2 resolves to 02:00:00:00:00:99",
            "ARP flux",
        ],
    ),
    // As without a source rule, another rail's route is taken.
    (
        &["-n", "verbgate-fa", "route", "add", "10.98.0.2/32", "dev", "ca"],
        &["-n", "verbgate-fa", "route", "delete", "10.98.0.2/32", "dev", "ca"],
        &["FAIL  rank 0, rail 0: routes: rank 1: 10.98.0.2 from 10.98.0.1 leaves by ca, not by fa"],
    ),
];

/// Two network namespaces as two hosts: what is wrong with the network is named before there is a
/// queue pair; and where Soft-RoCE carries data between namespaces, all is well without.
fn two_hosts(world: &World) -> Result<Verdict> {
    let job = job!(world, 2);
    let hosts = hosts()?;
    for (break_it, mend, expected) in NETWORK_FAULTS {
        ip(break_it)?;
        let [zero, one] = between(world, &job, &hosts, Place::Native)?;
        ip(mend)?;
        let (zero, _) = (zero.expect_status(1)?, one.expect_status(1)?);
        for words in *expected {
            if !zero.stdout.contains(words) {
                bail!("{}: nothing is said of {words:?}: {zero}", break_it.join(" "));
            }
        }
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    if release.starts_with("6.") {
        println!("  without data: before Linux 7, Soft-RoCE carries none between namespaces");
        return Ok(Verdict::Ok);
    }
    for place in [Place::Native, Place::Sandbox] {
        for ended in between(world, &job, &hosts, place).with_context(|| format!("{place:?}"))? {
            ended.expect_status(0).with_context(|| format!("{place:?}"))?;
        }
    }
    Ok(Verdict::Ok)
}
