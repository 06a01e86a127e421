//! `verbgate fabric --connect rdma-cm`: data over connections of rdma_cm, and one that is refused.

use std::fs;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::fabric::Job;
use super::fabric::job;
use super::fabric::words;
use super::nodes::SECOND;
use super::nodes::SPARE_NETDEV;
use super::nodes::SecondDevice;
use super::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::world::Place;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("fabric_by_rdma_cm", by_rdma_cm)]
}

/// What a rank does, and the cause that rank 0 must name, alone.
struct Fault {
    rank: usize,
    inject: &'static str,
    cause: &'static str,
}

/// Rank 0 asks, and rank 1 is asked.
#[rustfmt::skip]
const FAULTS: &[Fault] = &[
    Fault { rank: 1, inject: "no-listener", cause: "rejected: rank 1: " },
    // An address of the other family is resolved nowhere.
    Fault { rank: 1, inject: "wrong-address", cause: "addr-error: " },
    // A neighbour is known, and nobody is there.
    Fault { rank: 1, inject: "silent-address", cause: "unreachable: " },
    // The end that cannot connect rejects the other, which has no fault.
    Fault { rank: 1, inject: "dead-queue-pair", cause: "connect-error: " },
    Fault { rank: 0, inject: "dead-queue-pair", cause: "connect-error: " },
    Fault { rank: 1, inject: "disconnect", cause: "disconnected: rank 1: " },
    Fault { rank: 0, inject: "disconnect", cause: "disconnected: rank 0: " },
];

fn expect(place: Place, what: &str, ended: Vec<Ended>, cause: &str) -> Result<()> {
    let Some(first) = ended.into_iter().next() else { bail!("no rank 0") };
    let named: Vec<&str> =
        first.stdout.lines().filter_map(|line| line.strip_prefix("CAUSE ")).collect();
    println!("  {place:?} {what}, {} s: {named:?}", first.took.as_secs());
    if named.len() != 1 || !named.iter().any(|named| named.starts_with(cause)) {
        bail!("{place:?} {what}: not {cause:?} alone: {first}");
    }
    if cause.starts_with("rejected") && !first.stdout.contains("nobody listens at the port") {
        bail!("{place:?} {what}: no reason: {first}");
    }
    first.expect_status(1).map(drop)
}

fn by_rdma_cm(world: &World) -> Result<Verdict> {
    for place in [Place::Native, Place::Sandbox] {
        let verify: Job<'_> = job!(world, 2);
        let said = |_| words("--connect rdma-cm --sizes 1,4096,65536");
        for rank in verify.run(place, said)? {
            rank.expect_status(0)?;
        }
        for Fault { rank: bad, inject, cause } in FAULTS {
            let silent = (*inject == "silent-address").then(|| Silent::new(world)).transpose()?;
            let mut diagnose = job!(world, 2);
            diagnose.command = "diagnose";
            let ended = diagnose.run(place, |rank| {
                let inject =
                    if rank == *bad { format!(" --inject {inject}") } else { String::new() };
                // Some of them end when a rank has waited for so long for what never comes.
                let patience = if silent.is_some() { 20 } else { 40 };
                words(&format!("--connect rdma-cm --timeout {patience}{inject}"))
            })?;
            drop(silent);
            expect(place, inject, ended, cause)?;
        }
        let second = match SecondDevice::new()? {
            Ok(second) => second,
            Err(why) => return Ok(Verdict::Skipped(why)),
        };
        let small = Small::new()?;
        let mut diagnose = job!(world, 2);
        diagnose.command = "diagnose";
        let index = small.index()?;
        let said = |_| words(&format!("--connect rdma-cm --device {SECOND}@{index}"));
        let ended = diagnose.run(place, said)?;
        drop((small, second));
        expect(
            place,
            "a small MTU",
            ended,
            "route-error: the way between ranks 0 and 1 on rail 0",
        )?;
        let mut bench = job!(world, 2);
        bench.command = "bench";
        let options = "--connect rdma-cm --sweep sizes --sizes 4K --repeat 1 --seconds 0.2 \
                       --tolerance 90 --qps 2";
        for rank in bench.run(place, |_| words(options))? {
            rank.expect_status(0)?;
        }
    }
    Ok(Verdict::Ok)
}

/// An address of a network device whose MTU is too small for any of RDMA's: addresses are resolved, and the
/// kernel finds no route (`cma_resolve_iboe_route`). What the device was goes with this.
struct Small {
    mtu: String,
}

impl Small {
    /// IPv4 takes it, and what RDMA's headers leave is less than 256 bytes.
    const MTU: &str = "300";
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 7, 1);

    fn new() -> Result<Self> {
        let mtu = fs::read_to_string(format!("/sys/class/net/{SPARE_NETDEV}/mtu"))?;
        let small = Self { mtu: mtu.trim().to_owned() };
        ip(&["addr", "add", &format!("{}/24", Self::ADDRESS), "dev", SPARE_NETDEV])?;
        ip(&["link", "set", SPARE_NETDEV, "mtu", Self::MTU, "up"])?;
        Ok(small)
    }

    /// Of the address' GID.
    fn index(&self) -> Result<u32> {
        let port = format!("/sys/class/infiniband/{SECOND}/ports/1");
        let of = |index: &u32| {
            let gid = fs::read_to_string(format!("{port}/gids/{index}")).unwrap_or_default();
            let kind = fs::read_to_string(format!("{port}/gid_attrs/types/{index}"));
            let gid = gid.trim().parse().map(|gid: Ipv6Addr| gid.to_ipv4_mapped());
            gid == Ok(Some(Self::ADDRESS)) && kind.is_ok_and(|kind| kind.trim() == "RoCE v2")
        };
        let mut found = None;
        exec::wait_until("the GID of the small device", || {
            found = (0..64).find(of);
            Ok(found.is_some())
        })?;
        found.context("a GID")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Of a device that is gone nothing is left to take.
        let _ = ip(&["link", "set", SPARE_NETDEV, "mtu", &self.mtu]);
        let _ = ip(&["addr", "del", &format!("{}/24", Self::ADDRESS), "dev", SPARE_NETDEV]);
    }
}

/// The neighbour of a silent address, which goes with this.
struct Silent {
    address: String,
    netdev: String,
}

impl Silent {
    fn new(world: &World) -> Result<Self> {
        let index = world.gid_index.context("the device has no GID of IPv4")?;
        let port = format!("/sys/class/infiniband/{}/ports/1", world.device);
        let gid = fs::read_to_string(format!("{port}/gids/{index}"))?;
        let gid: Ipv6Addr = gid.trim().parse()?;
        let [a, b, c, _] = gid.to_ipv4_mapped().context("a GID of IPv4")?.octets();
        let netdev = fs::read_to_string(format!("{port}/gid_attrs/ndevs/{index}"))?;
        let silent = Self { address: format!("{a}.{b}.{c}.250"), netdev: netdev.trim().to_owned() };
        let Self { address, netdev } = &silent;
        let nobody = "02:00:00:00:00:fa";
        ip(&[
            "neighbour",
            "replace",
            address,
            "lladdr",
            nobody,
            "dev",
            netdev,
            "nud",
            "permanent",
        ])?;
        Ok(silent)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Of a device that is gone nothing is left to take.
        let _ = ip(&["neighbour", "delete", &self.address, "dev", &self.netdev]);
    }
}
