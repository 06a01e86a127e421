//! What a NIC counts of one container's queue pairs, where several containers speak by one port.

use std::fs;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use super::Case;
use super::Two;
use crate::bundle::Container;
use crate::cases::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::world;
use crate::world::Place;
use crate::world::World;

/// Writes of peers that arrived.
const COUNTER: &str = "rx_write_requests";
/// So many are to be seen.
const SEEN: u64 = 100;

pub(super) fn infiniband() -> Vec<Case> {
    vec![Case::new("nic_mlx5_counters_are_the_tenants_own", own)]
}

/// Two containers have queue pairs on one port; peers write to one of them. `verbgate stats` tells of that one
/// alone, and the machine's file of the port's counters has the sum as ever.
fn own(world: &World) -> Result<Verdict> {
    const RUNTIME: &str = "crun";
    let mut version = std::process::Command::new(RUNTIME);
    version.arg("--version");
    if exec::run(version).is_err() {
        return Ok(Verdict::Skipped(format!("needs {RUNTIME}")));
    }
    let two = Two::look(world)?;
    let (ports, names) = ([world::free_port()?, world::free_port()?], [&two.left, &two.right]);
    let [talk, rest] = ports.map(|port| port.to_string());
    let [left, right] = names.map(|world| world.device.as_str());
    // More than come before the counters are seen: the first answer, which is good for five seconds, may be older
    // than the queue pair.
    let writes = |device| ["ib_write_lat", "-F", "-n", "1000000", "-p", &*talk, "-d", device];
    let talks = Container::new(&two.left, RUNTIME, "talks", &writes(left))?;
    let rests = Container::new(
        &two.left,
        RUNTIME,
        "rests",
        &["ibv_rc_pingpong", "-d", left, "-p", &*rest],
    )?;
    let mut servers = Vec::new();
    for (container, port) in [(&talks, ports[0]), (&rests, ports[1])] {
        servers.push(Program::start(container.run())?);
        exec::wait_until("a server in a container", || {
            let ended = servers.last_mut().map_or(Ok(true), Program::has_ended)?;
            Ok(ended || world::is_listening(port))
        })?;
    }
    let argv = [&writes(right)[..], &["127.0.0.1"]].concat();
    let mut client = Program::start(two.right.command(Place::Native, &argv)?)?;
    let mut counted = None;
    exec::wait_until("writes to be counted", || {
        counted = of(&two.left, &talks)?;
        Ok(counted.is_some_and(|count| count >= SEEN) || client.has_ended()?)
    })?;
    let file = format!("/sys/class/infiniband/{left}/ports/1/hw_counters/{COUNTER}");
    let (idle, of_all) = (of(&two.left, &rests)?, fs::read_to_string(&file)?);
    let Some(counted) = counted.filter(|count| *count >= SEEN) else {
        bail!(
            "of {of_all} writes at the port, {counted:?} are counted as the container's: client {}, \
             servers {}",
            client.describe()?,
            servers.iter_mut().map(Program::describe).collect::<Result<Vec<_>>>()?.join(", ")
        );
    };
    if idle != Some(0) {
        bail!("{idle:?} writes are counted as those of a container without any");
    }
    if of_all.trim().parse::<u64>()? < counted {
        bail!("{file} is {of_all}, less than the {counted} of one container");
    }
    Ok(Verdict::Ok)
}

/// The counter of a container's own, as `verbgate stats` tells.
fn of(world: &World, container: &Container) -> Result<Option<u64>> {
    let mut stats = world.program("verbgate");
    stats.args(["stats", "--json"]);
    let all = exec::run(stats)?.expect_status(0)?.stdout;
    let all: Value = serde_json::from_str(&all)?;
    let one = all.as_array().context("no list")?.iter().find(|one| one["id"] == *container.id);
    Ok(one.and_then(|one| one["hw_counters"].get(0)?.get("values")?.get(COUNTER)?.as_u64()))
}
