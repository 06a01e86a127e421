//! `verbgate fabric --connect rdma-cm`: data over connections of rdma_cm, and one that is refused.

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::fabric::Job;
use super::fabric::job;
use super::fabric::words;
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
        let mut bench = job!(world, 2);
        bench.command = "bench";
        let options = "--connect rdma-cm --sweep sizes --sizes 64,4K --repeat 1 --seconds 0.2 \
                       --tolerance 90 --qps 2";
        for rank in bench.run(place, |_| words(options))? {
            rank.expect_status(0)?;
        }
    }
    Ok(Verdict::Ok)
}
