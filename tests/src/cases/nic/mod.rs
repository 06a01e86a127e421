//! The cases that run on NICs: PCI devices with drivers of their own, whose doorbells programs ring by
//! mmap. Two devices are there, each behind a bridge and on a NUMA node of its own: EFAs, or ERDMAs with a
//! network interface each, which make reliable connections, or ConnectXs with an InfiniBand port each.

mod connected;
mod counters;
mod departures;
mod events;
mod fabric;
mod faults;
mod hidden;
mod infiniband;
mod libfabric;
mod moves;
mod numa;
mod onlooker;
mod quiet;
mod silence;
mod sysfs;
mod traffic;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use crate::exec;
use crate::pair::Pair;
use crate::world;
use crate::world::Place;
use crate::world::World;

/// Names the folder in which the lab takes requests.
const CONTROL: &str = "LAB_CONTROL";

/// What the MAC addresses of cards' network interfaces begin with, as the lab gives them.
const MAC: &str = "02:00:00:98:00";

/// Those on datagrams (EFA).
pub(super) fn cases() -> Vec<Case> {
    let mut cases = traffic::cases();
    cases.extend(fabric::datagrams());
    cases.extend(libfabric::cases());
    cases.extend(numa::cases());
    cases.extend(quiet::cases());
    cases.extend(sysfs::cases());
    cases.extend(faults::cases());
    cases.extend(departures::cases());
    cases
}

/// Those on reliable connections (ERDMA).
pub(super) fn connected() -> Vec<Case> {
    let mut cases = connected::cases();
    cases.extend(quiet::connected());
    cases.extend(events::connected());
    cases.extend(moves::connected());
    cases.extend(hidden::connected());
    cases.extend(faults::connected());
    cases.extend(departures::connected());
    cases
}

/// Those on InfiniBand ports (ConnectX).
pub(super) fn infiniband() -> Vec<Case> {
    let mut cases = infiniband::cases();
    cases.extend(fabric::infiniband());
    cases.extend(counters::infiniband());
    cases.extend(events::infiniband());
    cases.extend(quiet::infiniband());
    cases.extend(faults::infiniband());
    cases.extend(departures::infiniband());
    cases
}

/// How two programs find each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Meeting {
    /// By a socket, over which they tell each other of their queue pairs.
    Socket,
    /// By the connection manager, at the addresses of their devices.
    Manager,
}

/// Two devices on one wire.
#[derive(Debug)]
pub(crate) struct Two {
    left: World,
    right: World,
}

impl Two {
    /// The first device is the world's.
    pub(crate) fn look(world: &World) -> Result<Self> {
        let mut names: Vec<String> = fs::read_dir("/sys/class/infiniband")?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| *name != world.device)
            .collect();
        names.sort();
        let other = names.first().context("there is no second device")?;
        Ok(Self { left: world.clone(), right: World::look(Some(other))? })
    }

    /// The end of a pair: the server has the first device, the client the second.
    pub(crate) fn end(&self, role: &str) -> &World {
        if role == "server" { &self.left } else { &self.right }
    }

    /// Options of perftest and the ping-pongs for an end.
    fn options(&self, role: &str) -> [&str; 2] {
        ["-d", &self.end(role).device]
    }

    /// Starts both ends of a program of perftest or a ping-pong; `launch` makes the command of an end.
    pub(crate) fn start(
        &self,
        meeting: Meeting,
        argv: &[&str],
        launch: impl Fn(&'static str, &[&str]) -> Result<Command>,
    ) -> Result<Pair> {
        let with_device = |role: &'static str, words: &[&str]| {
            let (program, rest) = words.split_first().context("an empty command")?;
            let own = [*program].into_iter().chain(self.options(role));
            let words: Vec<&str> = own.chain(rest.iter().copied()).collect();
            launch(role, &words)
        };
        if meeting == Meeting::Socket {
            let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
            return Pair::start(&argv, with_device);
        }
        let (port, at) = (world::free_port()?.to_string(), address(&self.left)?);
        let own = address(&self.right)?;
        let source = source_option(argv.first().context("an empty command")?)?;
        let common = [argv, &["-R", "-p", &port, source]].concat();
        Pair::meet(
            &self.left.device,
            with_device("server", &[&common[..], &[&at]].concat())?,
            with_device("client", &[&common[..], &[&own, &at]].concat())?,
        )
    }
}

/// The option by which a program of perftest takes its own address: older ones call it otherwise.
fn source_option(program: &str) -> Result<&'static str> {
    let mut command = Command::new(program);
    command.arg("--help");
    let help = exec::run(command)?;
    let has = |option: &str| help.stdout.contains(option) || help.stderr.contains(option);
    let found = ["--bind_source_ip", "--source_ip"].into_iter().find(|option| has(option));
    found.with_context(|| format!("{program} takes no address of its own: {help}"))
}

/// The IPv4 address of a card's network interface, as the lab gives them.
pub(crate) fn address(world: &World) -> Result<String> {
    Ok(format!("10.98.0.{}", number(world)? + 1))
}

/// The network interface of a card: its MAC address ends with the card's number.
fn interface(world: &World) -> Result<String> {
    let end = format!(":{:02x}", number(world)? + 1);
    for entry in fs::read_dir("/sys/class/net")?.flatten() {
        let mac = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        if mac.starts_with(MAC) && mac.trim().ends_with(&end) {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    bail!("no network interface is of the card of {}", world.device)
}

/// Has the lab do something to its NICs, and gives what it says.
fn ask(request: &str) -> Result<String> {
    let folder = env::var_os(CONTROL).map(|control| PathBuf::from(control).join("nic"));
    let folder = folder.filter(|folder| folder.is_dir());
    let folder = folder.context("the lab takes no requests about NICs here")?;
    let file = |kind: &str| folder.join(format!("{}.{kind}", std::process::id()));
    fs::write(file("asked"), request)?;
    fs::rename(file("asked"), file("request"))?;
    let answer = file("answer");
    exec::wait_until("the lab's answer about its NICs", || Ok(answer.exists()))?;
    let text = fs::read_to_string(&answer)?;
    fs::remove_file(&answer)?;
    match text.split_once(' ') {
        Some(("ok", said)) => Ok(said.to_owned()),
        _ => bail!("the lab cannot do {request:?}: {text}"),
    }
}

/// The number of a device at the lab: one less than the end of its GUID (ERDMA, from the MAC address), or of
/// its address (EFA).
fn number(world: &World) -> Result<u32> {
    let class = format!("/sys/class/infiniband/{}", world.device);
    let file = match world.device.starts_with("efa") {
        true => format!("{class}/ports/1/gids/0"),
        false => format!("{class}/node_guid"),
    };
    let name = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let last = name.trim().rsplit(':').next().unwrap_or_default();
    let number = u32::from_str_radix(last, 16).with_context(|| format!("{file} is {name:?}"))?;
    number.checked_sub(1).context("no NIC of the lab has this name")
}

/// What a device holds, as its model counts.
fn census(world: &World) -> Result<String> {
    census_of(number(world)?)
}

/// The same of a device that may be gone.
fn census_of(number: u32) -> Result<String> {
    ask(&format!("census {number}"))
}

/// The numbers of a census.
fn numbers(census: &str) -> Vec<i64> {
    census.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// A script in its place.
fn shell(world: &World, place: Place, script: &str) -> Result<exec::Ended> {
    exec::run(world.command(place, &["sh", "-c", script])?)
}
