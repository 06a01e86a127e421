//! Faults of routed networks: two hosts with two NICs each, every NIC on a network of its own.
//!
//! Rail 0 has one router between its ends (two hops), rail 1 has two (three hops). Between the two
//! routers there are two links: there, packets choose a link by UDP port (ECMP), and those in return
//! always come by the second.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;

use super::Rank;
use super::expect;
use super::networks::inside;
use super::words;
use crate::cases::Verdict;
use crate::cases::cluster;
use crate::cases::fabric::PROGRAM;
use crate::cases::nodes::Namespace;
use crate::cases::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::world;
use crate::world::Place;
use crate::world::World;

/// As the lab's own device has it, for a path MTU of 4096.
const MTU: &str = "4200";
const A: &str = "verbgate-ra";
const B: &str = "verbgate-rb";
/// The routers.
pub(super) const FIRST: &str = "verbgate-r1";
pub(super) const SECOND: &str = "verbgate-r2";
/// Both ends of each link: namespace, device and address.
type Link = [(&'static str, &'static str, &'static str); 2];
#[rustfmt::skip]
const LINKS: [Link; 7] = [
    // Of the rendezvous.
    [(A, "ca", "10.90.0.1"), (B, "cb", "10.90.0.2")],
    [(A, "ra0", "10.90.1.1"), (FIRST, "a0", "10.90.1.254")],
    [(B, "rb0", "10.90.2.1"), (FIRST, "b0", "10.90.2.254")],
    [(A, "ra1", "10.90.3.1"), (FIRST, "a1", "10.90.3.254")],
    [(B, "rb1", "10.90.4.1"), (SECOND, "b1", "10.90.4.254")],
    [(FIRST, "x", "10.90.5.1"), (SECOND, "x", "10.90.5.2")],
    [(FIRST, "y", "10.90.6.1"), (SECOND, "y", "10.90.6.2")],
];
/// Of each rail's end: its namespace, device, address, gateway and routing table.
type End = (&'static str, &'static str, &'static str, &'static str, &'static str);
#[rustfmt::skip]
const ENDS: [End; 4] = [
    (A, "ra0", "10.90.1.1", "10.90.1.254", "100"),
    (A, "ra1", "10.90.3.1", "10.90.3.254", "101"),
    (B, "rb0", "10.90.2.1", "10.90.2.254", "100"),
    (B, "rb1", "10.90.4.1", "10.90.4.254", "101"),
];

/// Removed with this.
pub(super) struct Routed {
    _spaces: Vec<Namespace>,
}

fn sysctl(namespace: &str, setting: &str) -> Result<()> {
    inside(namespace, &["sysctl", "-qw", &format!("net.ipv4.{setting}")]).map(drop)
}

/// `ip` in a namespace, by words.
fn ip_in(namespace: &str, words: &str) -> Result<()> {
    let argv: Vec<&str> = ["-n", namespace].into_iter().chain(words.split(' ')).collect();
    ip(&argv).map(drop)
}

fn device(netdev: &str) -> String {
    format!("rxe{netdev}")
}

impl Routed {
    pub(super) fn new() -> Result<Self> {
        let spaces: Result<Vec<Namespace>> =
            [A, B, FIRST, SECOND].into_iter().map(Namespace::new).collect();
        let spaces = spaces?;
        for name in [A, B, FIRST, SECOND] {
            // Before there are devices, so that these inherit it: returns come by another way.
            sysctl(name, "conf.all.rp_filter=0")?;
            sysctl(name, "conf.default.rp_filter=0")?;
            ip_in(name, "link set lo up")?;
        }
        for [one, other] in LINKS {
            let argv = format!(
                "link add {} netns {} type veth peer name {} netns {}",
                one.1, one.0, other.1, other.0
            );
            ip(&argv.split(' ').collect::<Vec<_>>())?;
            for (name, netdev, address) in [one, other] {
                ip_in(name, &format!("address add {address}/24 dev {netdev}"))?;
                ip_in(name, &format!("link set {netdev} mtu {MTU} up"))?;
            }
        }
        for name in [FIRST, SECOND] {
            sysctl(name, "ip_forward=1")?;
            sysctl(name, "fib_multipath_hash_policy=1")?;
        }
        ip_in(FIRST, "route add 10.90.4.0/24 nexthop via 10.90.5.2 nexthop via 10.90.6.2")?;
        ip_in(SECOND, "route add 10.90.3.0/24 via 10.90.6.1")?;
        for (name, netdev, address, gateway, table) in ENDS {
            let connected = format!("{}0/24", address.trim_end_matches('1'));
            ip_in(
                name,
                &format!("route add {connected} dev {netdev} src {address} table {table}"),
            )?;
            ip_in(
                name,
                &format!(
                    "route add default via {gateway} dev {netdev} src {address} table {table}"
                ),
            )?;
            ip_in(name, &format!("rule add from {address} table {table}"))?;
            let device = device(netdev);
            inside(name, &["rdma", "link", "add", &device, "type", "rxe", "netdev", netdev])?;
            exec::wait_until(&device, || {
                let node = world::node_of(&device);
                Ok(node.is_ok_and(|node| Path::new("/dev/infiniband").join(node).exists()))
            })?;
        }
        Ok(Self { _spaces: spaces })
    }

    /// Rank 0's end of a command on the first rails. Neighbours are as the last run left them: known,
    /// even if they are gone.
    pub(super) fn zero(
        &self,
        world: &World,
        place: Place,
        rails: usize,
        (command, options, of_zero): (&'static str, &str, &str),
    ) -> Result<Ended> {
        let at = format!("10.90.0.1:{}", world::free_port()?);
        let start = |rank: usize, name: &str| {
            let of = ENDS.iter().filter(|end| end.0 == name).take(rails);
            let devices = of.flat_map(|end| ["--device".to_owned(), device(end.1)]);
            let more = words(if rank == 0 { of_zero } else { "" });
            let options = devices.chain(words(options)).chain(more).collect();
            Rank { place, command, ranks: 2, namespace: Some(name), before: Vec::new(), options }
                .start(world, &at, rank)
        };
        let (zero, one) = (start(0, A)?, start(1, B)?);
        let (zero, one) = (zero.wait()?, one.wait()?);
        anyhow::ensure!(one.status == zero.status, "the ranks disagree: {zero}\n{one}");
        Ok(zero)
    }
}

/// Rail 0's gateway of rank 0 has another address.
fn gateway_gone() -> Result<()> {
    ip_in(FIRST, "address delete 10.90.1.254/24 dev a0")
}

fn gateway_back() -> Result<()> {
    ip_in(FIRST, "address add 10.90.1.254/24 dev a0")
}

fn no_rule() -> Result<()> {
    ip_in(A, "rule delete from 10.90.1.1 table 100")
}

fn rule() -> Result<()> {
    ip_in(A, "rule add from 10.90.1.1 table 100")
}

/// `tc` at the second router.
pub(super) fn tc(words: &str) -> Result<Ended> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", SECOND, "tc"]).args(words.split(' '));
    exec::run(command)?.expect_status(0)
}

/// Long packets vanish at the second router, and nobody is told.
fn black_hole() -> Result<()> {
    for netdev in ["x", "y"] {
        tc(&format!("qdisc add dev {netdev} clsact"))?;
        // The total length is 4096 and more.
        tc(&format!(
            "filter add dev {netdev} ingress protocol ip u32 match u16 0x1000 0xf000 at 2 action drop"
        ))?;
    }
    Ok(())
}

fn nothing() -> Result<()> {
    Ok(())
}

/// What is done and undone, how many rails are tried where, what must be named, and whether data
/// must pass for it.
struct RoutedFault {
    what: &'static str,
    places: &'static [Place],
    rails: usize,
    inject: fn() -> Result<()>,
    mend: fn() -> Result<()>,
    causes: &'static [&'static str],
    said: &'static [&'static str],
    data: bool,
}

#[rustfmt::skip]
const FAULTS: &[RoutedFault] = &[
    RoutedFault { what: "routed, healthy", places: &[Place::Native], rails: 2, inject: nothing, mend: nothing, causes: &[], said: &["diagnose: nothing is wrong"], data: true },
    RoutedFault { what: "gateway gone", places: &[Place::Native, Place::Sandbox], rails: 1, inject: gateway_gone, mend: gateway_back, causes: &["no-neighbour"], said: &["rank 0: rail 0: the gateway 10.90.1.254 of ra0"], data: false },
    RoutedFault { what: "no source rule", places: &[Place::Native], rails: 1, inject: no_rule, mend: rule, causes: &["wrong-route"], said: &["rank 0: rail 0: ", "10.90.2.1 from 10.90.1.1"], data: false },
    // The last: nothing mends it.
    RoutedFault { what: "black hole", places: &[Place::Native, Place::Sandbox], rails: 2, inject: black_hole, mend: nothing, causes: &["path-mtu"], said: &["the way between ranks 0 and 1 on rail 1"], data: true },
];

/// Faults of routed networks.
pub(super) fn routed(world: &World) -> Result<Verdict> {
    if !world.beside(PROGRAM).exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    let carries = cluster::is_possible()?;
    if !carries {
        println!("  without data: before Linux 7, Soft-RoCE carries none between namespaces");
    }
    let network = Routed::new()?;
    for fault in FAULTS.iter().filter(|fault| carries || !fault.data) {
        let RoutedFault { what, places, rails, inject, mend, causes, said, .. } = fault;
        inject().with_context(|| (*what).to_owned())?;
        for place in *places {
            let ended = network.zero(world, *place, *rails, ("diagnose", "", ""))?;
            expect(&format!("{place:?} {what}"), ended, causes, said)?;
        }
        mend().with_context(|| (*what).to_owned())?;
    }
    Ok(Verdict::Ok)
}
