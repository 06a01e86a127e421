//! `verbgate fabric` between two network namespaces, as between two hosts.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::fabric::Job;
use super::fabric::PATIENT;
use super::fabric::job;
use super::nodes::Namespace;
use super::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::Place;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("fabric_between_network_namespaces", two_hosts)]
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
        exec::wait_until(host.rail, || {
            let node = world::node_of(host.rail);
            Ok(node.is_ok_and(|node| Path::new("/dev/infiniband").join(node).exists()))
        })?;
    }
    Ok(hosts)
}

fn inside(namespace: &str, argv: &[&str]) -> Result<Ended> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(argv);
    exec::run(command)?.expect_status(0)
}

/// What two hosts say, each of its own rail.
fn between(
    world: &World,
    job: &Job<'_>,
    hosts: &[Host; 2],
    place: Place,
    more: &[&str],
) -> Result<[Ended; 2]> {
    let at = format!("10.97.0.1:{}", world::free_port()?);
    let start = |rank: usize, host: &Host| {
        let rank = rank.to_string();
        let mut argv = vec![&*job.program, "fabric", "verify", "--rendezvous", &at];
        argv.extend(["--rank", &rank, "--ranks", "2", "--timeout", PATIENT, "--device", host.rail]);
        argv.extend(more);
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
    Ok([zero.wait()?, one.wait()?])
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
        let [zero, one] = between(world, &job, &hosts, Place::Native, &[])?;
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
        // What the wire carries: of the class that was asked for, and with nothing else.
        let mut wire = Command::new("ip");
        wire.args([
            "netns",
            "exec",
            hosts[1].namespace.name(),
            "python3",
            "-c",
            CLASSES,
            HOSTS[1].1,
        ]);
        let mut wire = Program::start(wire)?;
        exec::wait_until("a look at the wire", || {
            Ok(wire.stdout_so_far()?.contains("ready") || wire.has_ended()?)
        })?;
        let class = ["--traffic-class", CLASS];
        let ended =
            between(world, &job, &hosts, place, &class).with_context(|| format!("{place:?}"))?;
        for ended in ended {
            ended.expect_status(0).with_context(|| format!("{place:?}"))?;
        }
        let said = wire.stdout_so_far()?;
        let classes: Vec<&str> =
            said.lines().filter_map(|line| line.strip_prefix("class ")).collect();
        if classes != [CLASS] {
            bail!("{place:?}: the wire carries the classes {classes:?}, not {CLASS}: {said}");
        }
    }
    Ok(Verdict::Ok)
}

/// DSCP 26, and a sender that knows of congestion.
const CLASS: &str = "106";
/// Each class of packets of RoCE that a network device receives, once.
const CLASSES: &str = "import socket, sys\n\
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))\n\
    wire.bind((sys.argv[1], 0x0800))\n\
    print('ready', flush=True)\n\
    seen = set()\n\
    while True:\n    packet, where = wire.recvfrom(65536)\n\
    \x20   at = (packet[0] & 15) * 4\n\
    \x20   if where[2] == 4 or packet[9] != 17 or packet[at + 2:at + 4] != b'\\x12\\xb7':\n        continue\n\
    \x20   if packet[1] not in seen:\n        seen.add(packet[1])\n        print('class', packet[1], flush=True)\n";
