//! Events of a device that programs do not ask for: who watches in a sandbox is told what who watches natively
//! is told, at the same time of the same device.

use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::ask;
use super::faults;
use super::number;
use crate::cases::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

/// Events of a flood: more than a program's queue is read at once, and less than the driver's queue holds.
const FLOOD: usize = 1000;
/// The last event of a port that comes up.
const UP: &str = "IBV_EVENT_PORT_ACTIVE";

/// Of ConnectXs.
pub(super) fn infiniband() -> Vec<Case> {
    vec![Case::new("nic_mlx5_link_events_and_a_flood_of_them", link)]
}

/// Who watches a device, natively and in a sandbox.
struct Watchers([(Place, Program); 2]);

impl Watchers {
    fn start(world: &World) -> Result<Self> {
        let start = |place| -> Result<(Place, Program)> {
            let command = world.command(place, &["ibv_asyncwatch", "-d", &world.device])?;
            let mut watcher = Program::start(command)?;
            exec::wait_until("the watcher to watch", PATIENCE, || {
                Ok(watcher.stdout_so_far()?.contains("async event FD") || watcher.has_ended()?)
            })?;
            Ok((place, watcher))
        };
        Ok(Self([start(Place::Native)?, start(Place::Sandbox)?]))
    }

    /// What each was told, once both were told so many.
    fn told(&mut self, count: usize, limit: Duration) -> Result<[Vec<String>; 2]> {
        let mut told = [Vec::new(), Vec::new()];
        let waited = exec::wait_until("the events", limit, || {
            for (events, (_, watcher)) in told.iter_mut().zip(&mut self.0) {
                *events = faults::events(&watcher.stdout_so_far()?);
            }
            Ok(told.iter().all(|events| events.len() >= count))
        });
        waited.with_context(|| {
            let [native, inside] = &told;
            let last = |events: &[String]| events.last().cloned().unwrap_or_default();
            format!(
                "natively {} events, the last {:?}; in the sandbox {}, the last {:?}",
                native.len(),
                last(native),
                inside.len(),
                last(inside)
            )
        })?;
        Ok(told)
    }
}

/// The port goes down and comes up, once and many times.
fn link(world: &World) -> Result<Verdict> {
    let nic = number(world)?;
    let mut watchers = Watchers::start(world)?;
    ask(&format!("event {nic} warning"))?;
    ask(&format!("event {nic} notification"))?;
    let mut told = watchers.told(2, PATIENCE)?;
    while !told.iter().all(|events| events.last().is_some_and(|last| last.contains(UP))) {
        told = watchers.told(told.iter().map(Vec::len).max().unwrap_or(0) + 1, PATIENCE)?;
    }
    let [native, inside] = told;
    // Since Linux 7 there are events of the speed, too.
    let of = |events: &[String], name: &str| events.iter().any(|event| event.contains(name));
    let names = ["IBV_EVENT_PORT_ERR", UP];
    if names.iter().any(|name| !of(&native, name)) || native != inside {
        bail!("natively {native:?}, in the sandbox {inside:?}, and not {names:?}");
    }
    let each = native.len() / 2;
    ask(&format!("event {nic} warning {FLOOD}"))?;
    let mut told = watchers.told(native.len() + each * FLOOD, PATIENCE)?;
    // Those that two processors tell of at once may come to two programs one way and the other.
    told.iter_mut().for_each(|events| events.sort());
    let [native, inside] = told;
    if native != inside {
        let (native, inside) = (native.len(), inside.len());
        bail!(
            "of a flood of {FLOOD}, {native} events natively and {inside} in the sandbox, or others"
        );
    }
    println!("    {} events, alike", native.len());
    Ok(Verdict::Ok)
}
