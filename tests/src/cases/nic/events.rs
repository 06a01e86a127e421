//! Events of a device that programs do not ask for: who watches in a sandbox is told what who watches natively
//! is told, at the same time of the same device.

use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Two;
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
/// The driver looks at the device's health now and then, and believes the third time.
const HEALTH: std::time::Duration = std::time::Duration::from_secs(120);

/// Of ConnectXs.
pub(super) fn infiniband() -> Vec<Case> {
    vec![
        Case::new("nic_mlx5_link_events_and_a_flood_of_them", link),
        // The last: what it leaves is another device of the same name.
        Case::new("nic_mlx5_broken_device_is_told_of", broken),
    ]
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
    fn told(&mut self, count: usize, limit: std::time::Duration) -> Result<[Vec<String>; 2]> {
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
    let [native, inside] = watchers.told(2, PATIENCE)?;
    let names = ["IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE"];
    let named = native.iter().zip(names).all(|(event, name)| event.contains(name));
    if !named || native != inside {
        bail!("natively {native:?}, in the sandbox {inside:?}, and not {names:?}");
    }
    ask(&format!("event {nic} warning {FLOOD}"))?;
    let [native, inside] = watchers.told(2 + FLOOD, PATIENCE)?;
    if native != inside {
        let (native, inside) = (native.len(), inside.len());
        bail!(
            "of a flood of {FLOOD}, {native} events natively and {inside} in the sandbox, or others"
        );
    }
    println!("    {} events, alike", native.len());
    Ok(Verdict::Ok)
}

/// The device is broken: who watches is told, and who opens then gets what is got natively.
fn broken(world: &World) -> Result<Verdict> {
    let (device, nic) = (&world.device, number(world)?);
    Two::look(world)?;
    let mut watchers = Watchers::start(world)?;
    ask(&format!("event {nic} fatal"))?;
    let [native, inside] = watchers.told(1, HEALTH)?;
    if native != inside || !native.iter().any(|event| event.contains("IBV_EVENT_DEVICE_FATAL")) {
        bail!("natively {native:?}, in the sandbox {inside:?}");
    }
    drop(watchers);
    let opens = |place| -> Result<i32> {
        Ok(exec::run(world.command(place, &["ibv_devinfo", "-d", device])?, PATIENCE)?.status)
    };
    let (native, inside) = (opens(Place::Native)?, opens(Place::Sandbox)?);
    println!("    an open ends with {native}");
    if Path::new("/sys/class/infiniband").join(device).exists() && native != inside {
        bail!("an open ends with {native} natively, and with {inside} in a sandbox");
    }
    let removal = faults::begin_removal(device)?;
    removal.wait(HEALTH)?.expect_status(0)?;
    faults::comes_back(device, Place::Sandbox)?;
    Ok(Verdict::Ok)
}
