//! The ways through routed networks, with data: `verify` and `bench` pass, packets go by the links
//! that the routers choose, and `bench` and `diagnose` name the rail of which one link of two is bad.

#![allow(
    clippy::indexing_slicing,
    reason = "serde_json's indexing never panics: what is not there is null"
)]

use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use super::PLACES;
use super::causes;
use super::networks::inside;
use super::routed::FIRST;
use super::routed::Routed;
use super::routed::SECOND;
use super::routed::tc;
use crate::cases::Verdict;
use crate::cases::cluster;
use crate::cases::fabric::PROGRAM;
use crate::exec::Ended;
use crate::world::Place;
use crate::world::World;

/// The most packets of a link that carries no data of the ranks: ARP, neighbours and the like.
const FEW: u64 = 60;
/// With 16 queue pairs, a router that chooses by port misses one of two links once in 2^15 runs.
const MANY: &str = "--qps 16 --sweep sizes --sizes 4K --seconds 0.2 --repeat 1 --window 4 \
                    --ack-timeout 14 --retry-cnt 3";
/// Runs of `diagnose`, whose single queue pair meets the bad link in each second run.
const TRIES: usize = 20;

/// Packets that routers have sent on the links between them.
#[derive(Debug)]
struct Sent {
    there: [u64; 2],
    back: [u64; 2],
}

impl Sent {
    fn now() -> Result<Self> {
        let of = |router: &str, link: &str| -> Result<u64> {
            let file = format!("/sys/class/net/{link}/statistics/tx_packets");
            Ok(inside(router, &["cat", &file])?.stdout.trim().parse()?)
        };
        let both = |router: &str| Ok::<_, anyhow::Error>([of(router, "x")?, of(router, "y")?]);
        Ok(Self { there: both(FIRST)?, back: both(SECOND)? })
    }

    fn since(&self, before: &Self) -> Self {
        let less = |now: [u64; 2], then: [u64; 2]| {
            [0, 1].map(|link: usize| {
                let of = |all: [u64; 2]| all.get(link).copied().unwrap_or_default();
                of(now) - of(then)
            })
        };
        Self { there: less(self.there, before.there), back: less(self.back, before.back) }
    }
}

/// What routers sent while something ran.
fn while_it_ran(run: impl FnOnce() -> Result<Ended>) -> Result<(Sent, Ended)> {
    let before = Sent::now()?;
    let ended = run()?;
    Ok((Sent::now()?.since(&before), ended))
}

/// Two hosts, routers between, and data.
pub(super) fn ways(world: &World) -> Result<Verdict> {
    if !world.beside(PROGRAM).exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    if !cluster::is_possible()? {
        let why = "before Linux 7, Soft-RoCE carries no data between network namespaces";
        return Ok(Verdict::Skipped(why.to_owned()));
    }
    let network = Routed::new()?;
    for place in PLACES {
        let verify = ("verify", "--sizes 1,4099,64K", "");
        let (sent, ended) = while_it_ran(|| network.zero(world, place, 2, verify))?;
        ended.expect_status(0)?;
        println!("  {place:?} verify: {sent:?}");
        returns(&sent)?;
        let bench = ("bench", MANY, "--json");
        let (sent, ended) = while_it_ran(|| network.zero(world, place, 2, bench))?;
        println!("  {place:?} bench: {sent:?}");
        returns(&sent)?;
        // The first router has two links to the second one, and chooses by port.
        if sent.there.iter().any(|packets| *packets <= FEW) {
            bail!("{place:?}: one link was hardly chosen: {sent:?}: {ended}");
        }
        let bad = bad_cells(&ended)?;
        if !bad.is_empty() {
            bail!("{place:?}: {bad:?}: {ended}");
        }
    }
    // One link of two, and one way only.
    tc("qdisc add dev x clsact")?;
    tc(
        "filter add dev x ingress protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff action drop",
    )?;
    one_link(world, &network)?;
    Ok(Verdict::Ok)
}

/// Packets in return leave the second router by its second link alone.
fn returns(sent: &Sent) -> Result<()> {
    match sent.back {
        [x, y] if x <= FEW && y > FEW => Ok(()),
        _ => bail!("packets in return went elsewhere: {sent:?}"),
    }
}

/// The rails of cells that have no numbers.
fn bad_cells(ended: &Ended) -> Result<Vec<u64>> {
    let lines: Result<Vec<Value>, _> = ended.stdout.lines().map(serde_json::from_str).collect();
    let mut cells = lines?.into_iter().filter(|line| line["kind"] == "cell").peekable();
    if cells.peek().is_none() {
        bail!("no cells: {ended}");
    }
    let bad = cells.filter(|cell| cell["valid"] != true);
    Ok(bad.filter_map(|cell| cell["rail"].as_u64()).collect())
}

/// One link of two is bad. A run with many queue pairs always meets that link, a run with one queue pair
/// now and then. The commands name the rail that goes by the link, and never the other rail.
fn one_link(world: &World, network: &Routed) -> Result<()> {
    for place in PLACES {
        let ended = network.zero(world, place, 2, ("bench", MANY, "--json"))?.expect_status(1)?;
        let bad = bad_cells(&ended)?;
        if bad.is_empty() || bad.iter().any(|rail| *rail != 1) {
            bail!("{place:?}: bad are cells of rails {bad:?}, not of rail 1: {ended}");
        }
    }
    for tried in 1..=TRIES {
        let ended = network.zero(world, Place::Native, 2, ("diagnose", "", ""))?;
        match causes(&ended)[..] {
            [] => {}
            ["nothing-arrives"]
                if ended.stdout.contains("the way between ranks 0 and 1 on rail 1") =>
            {
                println!("  diagnose names one link of two at run {tried}");
                return Ok(());
            }
            _ => bail!("one link of two is bad: {ended}"),
        }
    }
    bail!("one link of two is bad, and {TRIES} runs of `diagnose` have not met it")
}
