//! `verbgate fabric diagnose`: injected faults, each of which must be named without a hint, bare
//! and in sandboxes.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::fabric::PROGRAM;
use super::nodes::Namespace;
use super::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

/// Many short runs in one machine.
const LIMIT: Duration = Duration::from_secs(420);
const PLACES: [Place; 2] = [Place::Native, Place::Sandbox];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case { limit: LIMIT, ..Case::new("diagnose_programs", programs) },
        Case { limit: LIMIT, ..Case::new("diagnose_networks", networks) },
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
    let found = causes(&ended);
    let only_strays = expected.iter().all(|cause| *cause == "stray-connections");
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
    ended.expect_status(if only_strays { 0 } else { 1 })?;
    Ok(())
}

/// How one rank is started.
struct Rank<'a> {
    place: Place,
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
        let rank = rank.to_string();
        let mut argv: Vec<&str> = self.before.iter().map(String::as_str).collect();
        argv.extend([program, "fabric", "diagnose", "--rendezvous", at]);
        argv.extend(["--rank", &rank, "--ranks", "2", "--timeout", "40"]);
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
    at: String,
    rail: String,
}

impl<'a> Pair<'a> {
    fn new(world: &'a World, place: Place) -> Result<Self> {
        let index = world.gid_index.context("the device has no GID of IPv4")?;
        let (at, rail) =
            (format!("127.0.0.1:{}", world::free_port()?), format!("{}@{index}", world.device));
        Ok(Self { world, place, at, rail })
    }

    fn start(&self, rank: usize, before: &str, options: &str) -> Result<Program> {
        let mut all = words(options);
        if !options.contains("--device") {
            all.extend(["--device".to_owned(), self.rail.clone()]);
        }
        let before = words(before);
        let rank_of = Rank { place: self.place, namespace: None, before, options: all };
        rank_of.start(self.world, &self.at, rank)
    }

    /// Rank 0's end, when rank 1 is started like this.
    fn zero(&self, before: &str, options: &str) -> Result<Ended> {
        let (zero, one) = (self.start(0, "", "")?, self.start(1, before, options)?);
        let ended = zero.wait(PATIENCE)?;
        one.wait(PATIENCE)?;
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
    exec::wait_until("the rendezvous", PATIENCE, || {
        if let Ok(mut stream) = TcpStream::connect(&pair.at) {
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            scanned += 1;
        }
        Ok(scanned == 3)
    })?;
    let one = pair.start(1, "", "")?;
    let (ended, _) = (zero.wait(PATIENCE)?, one.wait(PATIENCE)?);
    let said = ["3 connections to the rendezvous", "diagnose: FOUND"];
    expect(&format!("{place:?} scanner"), ended, &["stray-connections"], &said[..1])
}

/// Nothing completes at all, because what has no receive is repeated for ever.
fn stalled(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let (zero, one) =
        (pair.start(0, "", "--inject patient")?, pair.start(1, "", "--inject no-receives")?);
    let (ended, _) = (zero.wait(PATIENCE)?, one.wait(PATIENCE)?);
    let said = ["rank 1: step 0", "STALL: no completion in 20 s", "send_rnr_err of rank 1"];
    expect(&format!("{place:?} stall"), ended, &["no-receives"], &said)
}

/// A rank is killed in the middle of an exchange.
fn killed(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let (zero, mut one) = (pair.start(0, "", "")?, pair.start(1, "", "--inject hang")?);
    exec::wait_until("rank 1 in the middle", PATIENCE, || {
        Ok(one.stdout_so_far()?.contains("injected: hangs"))
    })?;
    for pid in exec::descendants(one.pid()).into_iter().chain([one.pid()]) {
        exec::kill(pid);
    }
    let ended = zero.wait(PATIENCE)?;
    expect(&format!("{place:?} killed"), ended, &["peer-killed"], &["rank 1 on "])
}

/// A rank ends in the middle of an exchange, and comes back.
fn restarted(world: &World, place: Place) -> Result<()> {
    let pair = Pair::new(world, place)?;
    let (zero, one) = (pair.start(0, "", "")?, pair.start(1, "", "--inject exit")?);
    one.wait(PATIENCE)?.expect_status(9)?;
    let again = pair.start(1, "", "")?.wait(PATIENCE)?.expect_status(1)?;
    if !again.stderr.contains("rank 1 on") || !again.stderr.contains("was restarted") {
        bail!("{again}");
    }
    let ended = zero.wait(PATIENCE)?;
    expect(&format!("{place:?} restarted"), ended, &["peer-restarted"], &["rank 1 on "])
}

/// Two hosts, each a network namespace with two NICs on one network, which a bridge in a third is.
struct Hosts {
    _spaces: [Namespace; 3],
}

/// As the lab's own device has it, for a path MTU of 4096.
const MTU: &str = "4200";
const SWITCH: &str = "verbgate-dx";
/// Of each host: its namespace, its link for the rendezvous and the address of that, and of each NIC
/// its network device, RDMA device, address and routing table.
type Nic = (&'static str, &'static str, &'static str, &'static str);
type Plan = (&'static str, &'static str, &'static str, [Nic; 2]);
const HOSTS: [Plan; 2] = [
    (
        "verbgate-da",
        "ca",
        "10.97.1.1",
        [("da0", "rxeda0", "10.98.1.1", "100"), ("da1", "rxeda1", "10.98.1.11", "101")],
    ),
    (
        "verbgate-db",
        "cb",
        "10.97.1.2",
        [("db0", "rxedb0", "10.98.1.2", "100"), ("db1", "rxedb1", "10.98.1.12", "101")],
    ),
];
/// What the fabric's address resolution needs when NICs share a network, and the kernel's defaults.
const STRICT: &[(&str, &str)] = &[("arp_ignore", "1"), ("arp_announce", "2")];
const DEFAULT: &[(&str, &str)] = &[("arp_ignore", "0"), ("arp_announce", "0")];

fn inside(namespace: &str, argv: &[&str]) -> Result<Ended> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(argv);
    exec::run(command, PATIENCE)?.expect_status(0)
}

fn sysctls(namespace: &str, values: &[(&str, &str)]) -> Result<()> {
    for (name, value) in values {
        for device in ["all", "default"] {
            inside(
                namespace,
                &["sysctl", "-qw", &format!("net.ipv4.conf.{device}.{name}={value}")],
            )?;
        }
    }
    Ok(())
}

impl Hosts {
    fn new() -> Result<Self> {
        let [a, b] = HOSTS;
        let spaces = [Namespace::new(SWITCH)?, Namespace::new(a.0)?, Namespace::new(b.0)?];
        ip(&["-n", SWITCH, "link", "add", "br0", "type", "bridge"])?;
        ip(&["link", "add", a.1, "netns", a.0, "type", "veth", "peer", "name", b.1, "netns", b.0])?;
        for (name, link, address, nics) in HOSTS {
            // Before there are devices, so that they inherit them.
            sysctls(name, STRICT)?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", link])?;
            ip(&["-n", name, "link", "set", link, "up"])?;
            for (netdev, rail, address, table) in nics {
                let port = format!("p{netdev}");
                ip(&[
                    "link", "add", netdev, "netns", name, "type", "veth", "peer", "name", &port,
                    "netns", SWITCH,
                ])?;
                ip(&["-n", SWITCH, "link", "set", &port, "mtu", MTU, "master", "br0", "up"])?;
                ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", netdev])?;
                ip(&["-n", name, "link", "set", netdev, "mtu", MTU, "up"])?;
                ip(&[
                    "-n",
                    name,
                    "route",
                    "add",
                    "10.98.1.0/24",
                    "dev",
                    netdev,
                    "src",
                    address,
                    "table",
                    table,
                ])?;
                ip(&["-n", name, "rule", "add", "from", address, "table", table])?;
                inside(name, &["rdma", "link", "add", rail, "type", "rxe", "netdev", netdev])?;
                exec::wait_until(rail, PATIENCE, || {
                    let node = world::node_of(rail);
                    Ok(node.is_ok_and(|node| Path::new("/dev/infiniband").join(node).exists()))
                })?;
            }
        }
        ip(&["-n", SWITCH, "link", "set", "br0", "mtu", MTU, "up"])?;
        Ok(Self { _spaces: spaces })
    }

    /// Rank 0's end. The GID index is that of the IPv4 address, unless rank 1's is given.
    fn zero(
        &self,
        world: &World,
        place: Place,
        rails: usize,
        other: Option<&str>,
    ) -> Result<Ended> {
        let [(_, _, at, _), _] = HOSTS;
        let at = format!("{at}:{}", world::free_port()?);
        for (name, ..) in HOSTS {
            ip(&["-n", name, "neighbour", "flush", "all"])?;
        }
        let start = |rank: usize, (namespace, _, _, nics): Plan| {
            let mut options = Vec::new();
            for (_, rail, ..) in nics.iter().take(rails) {
                let index =
                    other.filter(|_| rank == 1).map_or_else(String::new, |i| format!("@{i}"));
                options.extend(["--device".to_owned(), format!("{rail}{index}")]);
            }
            let namespace = Some(namespace);
            Rank { place, namespace, before: Vec::new(), options }.start(world, &at, rank)
        };
        let [a, b] = HOSTS;
        let (zero, one) = (start(0, a)?, start(1, b)?);
        let (zero, one) = (zero.wait(PATIENCE * 2)?, one.wait(PATIENCE)?);
        if one.status != zero.status {
            bail!("the ranks disagree: {zero}\n{one}");
        }
        Ok(zero)
    }
}

/// What is done to the network, and undone; what must be named; and whether data must pass for it.
struct NetworkFault {
    what: &'static str,
    rails: usize,
    other: Option<&'static str>,
    inject: fn() -> Result<()>,
    mend: fn() -> Result<()>,
    causes: &'static [&'static str],
    said: &'static [&'static str],
    data: bool,
}

fn nothing() -> Result<()> {
    Ok(())
}

const B: &str = "verbgate-db";

fn flux() -> Result<()> {
    for device in ["all", "db0", "db1"] {
        for (name, value) in DEFAULT {
            inside(B, &["sysctl", "-qw", &format!("net.ipv4.conf.{device}.{name}={value}")])?;
        }
    }
    Ok(())
}

fn strict() -> Result<()> {
    for device in ["all", "db0", "db1"] {
        for (name, value) in STRICT {
            inside(B, &["sysctl", "-qw", &format!("net.ipv4.conf.{device}.{name}={value}")])?;
        }
    }
    Ok(())
}

fn small_mtu() -> Result<()> {
    ip(&["-n", B, "link", "set", "db0", "mtu", "1500"]).map(drop)
}

fn large_mtu() -> Result<()> {
    ip(&["-n", B, "link", "set", "db0", "mtu", MTU]).map(drop)
}

fn down() -> Result<()> {
    ip(&["-n", B, "link", "set", "db0", "down"]).map(drop)
}

fn up() -> Result<()> {
    ip(&["-n", B, "link", "set", "db0", "up"])?;
    ip(&[
        "-n",
        B,
        "route",
        "replace",
        "10.98.1.0/24",
        "dev",
        "db0",
        "src",
        "10.98.1.2",
        "table",
        "100",
    ])
    .map(drop)
}

fn tc(arguments: &[&str]) -> Result<()> {
    inside(B, &[&["tc"], arguments].concat()).map(drop)
}

fn lossy() -> Result<()> {
    tc(&["qdisc", "add", "dev", "db0", "root", "netem", "loss", "10%"])
}

fn lossless() -> Result<()> {
    tc(&["qdisc", "delete", "dev", "db0", "root"])
}

fn firewall() -> Result<()> {
    tc(&["qdisc", "add", "dev", "db0", "clsact"])?;
    tc(&[
        "filter", "add", "dev", "db0", "ingress", "protocol", "ip", "u32", "match", "ip",
        "protocol", "17", "0xff", "match", "ip", "dport", "4791", "0xffff", "action", "drop",
    ])
}

fn no_firewall() -> Result<()> {
    tc(&["qdisc", "delete", "dev", "db0", "clsact"])
}

#[rustfmt::skip]
const NETWORK_FAULTS: &[NetworkFault] = &[
    NetworkFault { what: "ARP flux", rails: 1, other: None, inject: flux, mend: strict, causes: &["arp-flux"], said: &["CAUSE arp-flux: rank 1: ", "answers for 10.98.1.2 of db0, too", "arp_ignore=1"], data: false },
    NetworkFault { what: "MTU", rails: 1, other: None, inject: small_mtu, mend: large_mtu, causes: &["mtu-mismatch"], said: &["rail 0: rank 0: MTU is 4096", "1024 on rank 1"], data: false },
    NetworkFault { what: "rail down", rails: 1, other: None, inject: down, mend: up, causes: &["rail-down"], said: &["rail 0: rank 1: the port is", "db0 is set down"], data: false },
    NetworkFault { what: "GID of another family", rails: 1, other: Some("0"), inject: nothing, mend: nothing, causes: &["address-family-mismatch"], said: &["IPv6 on rank 1"], data: false },
    NetworkFault { what: "empty GID", rails: 1, other: Some("99"), inject: nothing, mend: nothing, causes: &["wrong-gid"], said: &["rank 1: rail 0: GID 99 is empty"], data: false },
    NetworkFault { what: "healthy", rails: 2, other: None, inject: nothing, mend: nothing, causes: &[], said: &["diagnose: nothing is wrong"], data: true },
    NetworkFault { what: "loss", rails: 2, other: None, inject: lossy, mend: lossless, causes: &["packet-loss"], said: &["the way between ranks 0 and 1 on rail 0"], data: true },
    NetworkFault { what: "firewall", rails: 2, other: None, inject: firewall, mend: no_firewall, causes: &["nothing-arrives"], said: &["the way between ranks 0 and 1 on rail 0", "afterwards: neighbours: rank 1: 10.98.1.2 is"], data: true },
];

/// What diagnose says of Soft-RoCE where it carries no data between network namespaces.
const NO_DATA: &str = "local-error";

/// Faults of networks.
fn networks(world: &World) -> Result<Verdict> {
    if !world.beside(PROGRAM).exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let carries = !release.starts_with("6.");
    if !carries {
        println!("  without data: before Linux 7, Soft-RoCE carries none between namespaces");
    }
    let hosts = Hosts::new()?;
    for fault in NETWORK_FAULTS.iter().filter(|fault| carries || !fault.data) {
        let NetworkFault { what, rails, other, inject, mend, causes: named, said, .. } = fault;
        inject().with_context(|| (*what).to_owned())?;
        for place in PLACES {
            let ended = hosts.zero(world, place, *rails, *other)?;
            let seen = || inside(B, &["tc", "-s", "qdisc", "show", "dev", "db0"]);
            // Whether ARP misleads is chance; a path that passes the preflight is tried.
            let carried_nothing = !carries && causes(&ended).contains(&NO_DATA);
            let expected: Vec<&str> =
                named.iter().copied().chain(carried_nothing.then_some(NO_DATA)).collect();
            expect(&format!("{place:?} {what}"), ended, &expected, said)
                .with_context(|| seen().map_or_else(|e| e.to_string(), |ended| ended.stdout))?;
        }
        mend().with_context(|| (*what).to_owned())?;
    }
    Ok(Verdict::Ok)
}
