//! Memory that a thread registers comes from the memory node of the thread's processor, as natively. The judge is the
//! kernel's own list of where pages are (`/proc/PID/numa_maps`).

use anyhow::Result;
use anyhow::bail;

use crate::cases::Case;
use crate::cases::Verdict;
use crate::exec;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../../scripts/numa.py");

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("nic_memory_comes_from_the_callers_node", callers_node)]
}

fn callers_node(world: &World) -> Result<Verdict> {
    let argv = ["python3", "-c", SCRIPT, &world.device];
    let [native, inside] =
        [Place::Native, Place::Sandbox].map(|place| exec::run(world.command(place, &argv)?));
    let (native, inside) = (native?.expect_status(0)?.stdout, inside?.expect_status(0)?.stdout);
    println!("natively: {native}inside: {inside}");
    // Nothing is shown if all processors are of one node.
    if !["N0=", "N1="].iter().all(|node| native.contains(node)) {
        bail!("natively the pages are not on two nodes:\n{native}");
    }
    if native != inside {
        bail!("natively:\n{native}inside:\n{inside}");
    }
    Ok(Verdict::Ok)
}
