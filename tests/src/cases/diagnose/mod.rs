//! `verbgate fabric diagnose`: injected faults, each of which must be named without a hint, bare
//! and in sandboxes.

mod causes;
mod networks;
mod routed;
mod ways;

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::fabric::PATIENT;
use super::fabric::PROGRAM;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::Place;
use crate::world::World;

const PLACES: [Place; 2] = [Place::Native, Place::Sandbox];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("diagnose_programs", programs),
        Case::new("diagnose_networks", networks::networks),
        Case::new("diagnose_routed", routed::routed),
        Case::new("fabric_routed", ways::ways),
        Case::new("diagnose_causes", causes::causes),
    ]
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The names of the causes that a rank tells, in order.
fn causes(ended: &Ended) -> Vec<&str> {
    let lines = ended.stdout.lines().filter_map(|line| line.strip_prefix("CAUSE "));
    lines.filter_map(|line| line.split(": ").next()).collect()
}

/// Exactly these causes and no other, the exit code that goes with them, and these words.
fn expect(what: &str, ended: Ended, expected: &[&str], said: &[&str]) -> Result<()> {
    let mut found = causes(&ended);
    // Soft-RoCE without a processor sends again what comes late: no packet is missing, and each comes twice.
    let is_late = ["all arrived in the end", "duplicate_request"]
        .map(|word| ended.stdout.contains(word))
        == [true; 2];
    found.retain(|cause| !is_late || *cause != "packet-loss" || expected.contains(cause));
    let only_strays = !is_late && expected.iter().all(|cause| *cause == "stray-connections");
    if found != expected {
        bail!("{what}: it names {found:?} instead of {expected:?}: {ended}");
    }
    for words in said {
        if !ended.stdout.contains(words) {
            bail!("{what}: nothing is said of {words:?}: {ended}");
        }
    }
    let line = ended.stdout.lines().find(|line| line.starts_with("CAUSE ")).unwrap_or("");
    println!("  {what}: {}", if line.is_empty() { "nothing is wrong" } else { line });
    if !is_late || !expected.is_empty() {
        ended.expect_status(if only_strays { 0 } else { 1 })?;
    }
    Ok(())
}

/// How one rank is started.
struct Rank<'a> {
    place: Place,
    /// Of `verbgate fabric`.
    command: &'static str,
    /// How many there are.
    ranks: usize,
    /// Its network namespace, if not this one.
    namespace: Option<&'a str>,
    /// What comes before `verbgate`.
    before: Vec<String>,
    options: Vec<String>,
}

impl Rank<'_> {
    fn start(&self, world: &World, at: &str, rank: usize) -> Result<Program> {
        let program = world.beside(PROGRAM);
        let program = program.to_str().context("an odd path")?;
        let [rank, ranks] = [rank, self.ranks].map(|number| number.to_string());
        let mut argv: Vec<&str> = self.before.iter().map(String::as_str).collect();
        argv.extend([program, "fabric", self.command, "--rendezvous", at]);
        argv.extend(["--rank", &rank, "--ranks", &ranks]);
        if !self.options.iter().any(|option| option == "--timeout") {
            argv.extend(["--timeout", PATIENT]);
        }
        argv.extend(self.options.iter().map(String::as_str));
        let devices: Vec<&str> = self
            .options
            .windows(2)
            .filter_map(|pair| match pair {
                [option, device] if option == "--device" => device.split('@').next(),
                _ => None,
            })
            .collect();
        Program::start(match (self.place, self.namespace) {
            (Place::Native, None) => world.command(Place::Native, &argv)?,
            (Place::Native, Some(namespace)) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).args(&argv);
                command
            }
            (Place::Sandbox, namespace) => {
                let mut command = world.program("verbgate");
                command.arg("run");
                devices.iter().for_each(|device| {
                    command.args(["--device", device]);
                });
                if let Some(namespace) = namespace {
                    command.args(["--netns", &format!("/run/netns/{namespace}")]);
                }
                command.arg("--").args(&argv);
                command
            }
        })
    }
}

/// Two ranks on the lab's own device.
struct Pair<'a> {
    world: &'a World,
    place: Place,
    ranks: usize,
    at: String,
    rail: String,
}

impl<'a> Pair<'a> {
    fn new(world: &'a World, place: Place) -> Result<Self> {
        let index = world.gid_index.context("the device has no GID of IPv4")?;
        let (at, rail) =
            (format!("127.0.0.1:{}", world::free_port()?), format!("{}@{index}", world.device));
        Ok(Self { world, place, ranks: 2, at, rail })
    }

    fn start(&self, rank: usize, before: &str, options: &str) -> Result<Program> {
        let mut all = words(options);
        if !options.contains("--device") {
            all.extend(["--device".to_owned(), self.rail.clone()]);
        }
        let before = words(before);
        let (place, ranks, command) = (self.place, self.ranks, "diagnose");
        let rank_of = Rank { place, command, ranks, namespace: None, before, options: all };
        rank_of.start(self.world, &self.at, rank)
    }

    /// Rank 0's end, when rank 1 is started like this.
    fn zero(&self, before: &str, options: &str) -> Result<Ended> {
        let (zero, one) = (self.start(0, "", "")?, self.start(1, before, options)?);
        let ended = zero.wait()?;
        one.wait()?;
        Ok(ended)
    }
}

/// What rank 1 does, and the cause that rank 0 must name.
type Fault = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

/// Before the program, its options, the causes, and words.
const FAULTS: &[Fault] = &[
    ("", "", &[], &["diagnose: nothing is wrong"]),
    (
        "",
        "--inject no-receives",
        &["no-receives"],
        &["rank 1: receiving application", "send_rnr_err"],
    ),
    ("", "--inject wrong-rkey", &["wrong-rkey"], &["rank 1: rkey or permission: REM_ACCESS_ERR"]),
    (
        "",
        "--inject segments",
        &["segment-count"],
        &["rank 1: a message of push has 3 segments, not 2"],
    ),
    ("", "--inject roce-v1", &["gid-type-mismatch"], &["IB/RoCE v1 on rank 1"]),
    (
        "prlimit --memlock=65536 setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock",
        "",
        &["memlock-too-small"],
        &["rank 1: RLIMIT_MEMLOCK is 65536 bytes", "ulimit -l"],
    ),
];

/// Faults of programs: what a rank does, and what is done to it.
fn programs(world: &World) -> Result<Verdict> {
    if !world.beside(PROGRAM).exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    for place in PLACES {
        for (before, options, expected, said) in FAULTS {
            let what = format!("{place:?} {before} {options}");
            let ended = Pair::new(world, place)?.zero(before, options)?;
            expect(&what, ended, expected, said)?;
        }
        asymmetric(world, place)?;
        scanned(world, place)?;
        killed(world, place)?;
        restarted(world, place)?;
    }
    // It takes half a minute, and is the same in both places.
    stalled(world, Place::Sandbox)?;
    Ok(Verdict::Ok)
}

/// One rank has a rail more.
fn asymmetric(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let ended = pair.zero("", &format!("--device {0} --device {0}", pair.rail))?;
    let said = ["rank 1 has 2 rails, and rank 0 has 1"];
    expect(&format!("{place:?} asymmetric rails"), ended, &["asymmetric-rails"], &said)
}

/// Others connect to the rendezvous while ranks join.
fn scanned(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let zero = pair.start(0, "", "")?;
    let mut scanned = 0;
    exec::wait_until("the rendezvous", || {
        if let Ok(mut stream) = TcpStream::connect(&pair.at) {
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            scanned += 1;
        }
        Ok(scanned == 3)
    })?;
    let one = pair.start(1, "", "")?;
    let (ended, _) = (zero.wait()?, one.wait()?);
    let said = ["3 connections to the rendezvous", "diagnose: FOUND"];
    expect(&format!("{place:?} scanner"), ended, &["stray-connections"], &said[..1])
}

/// Nothing completes at all, because what has no receive is repeated for ever.
fn stalled(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let (zero, one) =
        (pair.start(0, "", "--inject patient")?, pair.start(1, "", "--inject no-receives")?);
    let (ended, _) = (zero.wait()?, one.wait()?);
    let said = ["rank 1: step 0", "STALL: no completion in 20 s", "send_rnr_err of rank 1"];
    expect(&format!("{place:?} stall"), ended, &["no-receives"], &said)
}

/// A rank is killed in the middle of an exchange.
fn killed(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let (zero, mut one) = (pair.start(0, "", "")?, pair.start(1, "", "--inject hang")?);
    exec::wait_until("rank 1 in the middle", || {
        Ok(one.stdout_so_far()?.contains("injected: hangs"))
    })?;
    for pid in exec::descendants(one.pid()).into_iter().chain([one.pid()]) {
        exec::kill(pid);
    }
    let ended = zero.wait()?;
    expect(&format!("{place:?} killed"), ended, &["peer-killed"], &["rank 1 on "])
}

/// A rank ends in the middle of an exchange, and comes back.
fn restarted(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let (zero, one) = (pair.start(0, "", "")?, pair.start(1, "", "--inject exit")?);
    one.wait()?.expect_status(9)?;
    let again = pair.start(1, "", "")?.wait()?.expect_status(1)?;
    if !again.stderr.contains("rank 1 on") || !again.stderr.contains("was restarted") {
        bail!("{again}");
    }
    let ended = zero.wait()?;
    expect(&format!("{place:?} restarted"), ended, &["peer-restarted"], &["rank 1 on "])
}
