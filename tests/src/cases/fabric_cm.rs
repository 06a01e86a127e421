//! `verbgate fabric --connect rdma-cm`: data over connections of rdma_cm, and one that is refused.

use std::fs;
use std::net::Ipv6Addr;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::fabric::Job;
use super::fabric::job;
use super::fabric::words;
use super::nodes::ip;
use crate::world::Place;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("fabric_by_rdma_cm", by_rdma_cm)]
}

fn by_rdma_cm(world: &World) -> Result<Verdict> {
    for place in [Place::Native, Place::Sandbox] {
        let verify: Job<'_> = job!(world, 2);
        let said = |_| words("--connect rdma-cm --sizes 1,4096,65536");
        for rank in verify.run(place, said)? {
            rank.expect_status(0)?;
        }
        let mut diagnose = job!(world, 2);
        diagnose.command = "diagnose";
        // The higher rank is asked.
        let ended = diagnose.run(place, |rank| {
            let inject = if rank == 1 { " --inject no-listener" } else { "" };
            words(&format!("--connect rdma-cm{inject}"))
        })?;
        let Some(first) = ended.into_iter().next() else { bail!("no rank 0") };
        let cause = first.stdout.lines().find(|line| line.starts_with("CAUSE ")).unwrap_or("");
        println!("  {place:?}: {cause}");
        let named = "CAUSE rejected: rank 1: ";
        if !cause.starts_with(named) || !cause.contains("nobody listens at the port") {
            bail!("{place:?}: not {named:?}: {first}");
        }
        first.expect_status(1)?;
        // An address of the other family is resolved nowhere.
        let mut diagnose = job!(world, 2);
        diagnose.command = "diagnose";
        let ended = diagnose.run(place, |rank| {
            let inject = if rank == 1 { " --inject wrong-address" } else { "" };
            words(&format!("--connect rdma-cm{inject}"))
        })?;
        let Some(first) = ended.into_iter().next() else { bail!("no rank 0") };
        if !first.stdout.contains("CAUSE addr-error: ") {
            bail!("{place:?}: no address error: {first}");
        }
        first.expect_status(1)?;
        // A neighbour is known, and nobody is there.
        let silent = Silent::new(world)?;
        let mut diagnose = job!(world, 2);
        diagnose.command = "diagnose";
        let ended = diagnose.run(place, |rank| {
            let inject = if rank == 1 { " --inject silent-address" } else { "" };
            words(&format!("--connect rdma-cm --timeout 10{inject}"))
        })?;
        drop(silent);
        let Some(first) = ended.into_iter().next() else { bail!("no rank 0") };
        if !first.stdout.contains("CAUSE unreachable: ") {
            bail!("{place:?}: nobody is unreachable: {first}");
        }
        first.expect_status(1)?;
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
