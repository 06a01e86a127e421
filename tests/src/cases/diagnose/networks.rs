//! Faults of networks: two hosts with two NICs each.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::PLACES;
use super::Rank;
use super::causes;
use super::expect;
use crate::cases::Verdict;
use crate::cases::fabric::PROGRAM;
use crate::cases::nodes::Namespace;
use crate::cases::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::world;
use crate::world::Place;
use crate::world::World;

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

pub(super) fn inside(namespace: &str, argv: &[&str]) -> Result<Ended> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(argv);
    exec::run(command)?.expect_status(0)
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
                exec::wait_until(rail, || {
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
            Rank { place, command: "diagnose", ranks: 2, namespace, before: Vec::new(), options }
                .start(world, &at, rank)
        };
        let [a, b] = HOSTS;
        let (zero, one) = (start(0, a)?, start(1, b)?);
        let (zero, one) = (zero.wait()?, one.wait()?);
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
pub(super) fn networks(world: &World) -> Result<Verdict> {
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
