//! Events of a device that programs do not ask for: who watches in a sandbox is told what who watches natively
//! is told, at the same time of the same device.

use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::ask;
use super::interface;
use super::number;
use crate::cases::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;

/// Events of a flood: more than a program's queue is read at once, and less than the driver's queue holds.
const FLOOD: usize = 1000;
/// Of an interface, each by a program.
const FLAPS: usize = 20;
/// The last event of a port that comes up.
const UP: &str = "IBV_EVENT_PORT_ACTIVE";

/// Of ConnectXs.
pub(super) fn infiniband() -> Vec<Case> {
    vec![Case::new("nic_mlx5_link_events_and_a_flood_of_them", by_device)]
}

/// Of ERDMAs, whose ports have the state of their network interfaces.
pub(super) fn connected() -> Vec<Case> {
    vec![Case::new("nic_rc_link_events_by_the_interface", by_interface)]
}

/// Who watches a device.
#[derive(Debug)]
pub(super) struct Watcher {
    /// In a sandbox, the supervisor's.
    pub(super) program: Program,
}

impl Watcher {
    pub(super) fn start(world: &World, place: Place) -> Result<Self> {
        let command = world.command(place, &["ibv_asyncwatch", "-d", &world.device])?;
        let mut program = Program::start(command)?;
        exec::wait_until("the watcher to watch", || {
            Ok(program.stdout_so_far()?.contains("async event FD") || program.has_ended()?)
        })?;
        Ok(Self { program })
    }

    /// The events that it has told of.
    pub(super) fn told(&mut self) -> Result<Vec<String>> {
        let said = self.program.stdout_so_far()?;
        let told = said.lines().filter(|line| line.contains("event") && !line.contains("FD"));
        Ok(told.map(|line| line.trim().to_owned()).collect())
    }
}

/// Who watches natively, and who in a sandbox.
struct Watchers([Watcher; 2]);

impl Watchers {
    fn start(world: &World) -> Result<Self> {
        let start = |place| Watcher::start(world, place);
        Ok(Self([start(Place::Native)?, start(Place::Sandbox)?]))
    }

    /// What each was told, once both were told so many.
    fn told(&mut self, count: usize) -> Result<[Vec<String>; 2]> {
        let mut told = [Vec::new(), Vec::new()];
        let waited = exec::wait_until("the events", || {
            for (events, watcher) in told.iter_mut().zip(&mut self.0) {
                *events = watcher.told()?;
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

/// A port that goes down and comes up, so many times.
type Flap<'a> = &'a dyn Fn(usize) -> Result<()>;

/// By the device's own word.
fn by_device(world: &World) -> Result<Verdict> {
    let nic = number(world)?;
    link(world, FLOOD, &|times| {
        ask(&format!("event {nic} warning {times}"))?;
        // One after another comes up again by itself.
        if times == 1 {
            ask(&format!("event {nic} notification"))?;
        }
        Ok(())
    })
}

/// By its network interface.
fn by_interface(world: &World) -> Result<Verdict> {
    let netdev = interface(world)?;
    link(world, FLAPS, &|times| {
        for _ in 0..times {
            for state in ["down", "up"] {
                let mut command = Command::new("ip");
                command.args(["link", "set", "dev", &netdev, state]);
                exec::run(command)?.expect_status(0)?;
            }
        }
        Ok(())
    })
}

/// The port goes down and comes up, once and many times.
fn link(world: &World, flood: usize, flap: Flap<'_>) -> Result<Verdict> {
    let mut watchers = Watchers::start(world)?;
    flap(1)?;
    let mut told = watchers.told(2)?;
    while !told.iter().all(|events| events.last().is_some_and(|last| last.contains(UP))) {
        told = watchers.told(told.iter().map(Vec::len).max().unwrap_or(0) + 1)?;
    }
    let [native, inside] = told;
    // Since Linux 7 there are events of the speed, too.
    let of = |events: &[String], name: &str| events.iter().any(|event| event.contains(name));
    let names = ["IBV_EVENT_PORT_ERR", UP];
    if names.iter().any(|name| !of(&native, name)) || native != inside {
        bail!("natively {native:?}, in the sandbox {inside:?}, and not {names:?}");
    }
    let each = native.len() / 2;
    flap(flood)?;
    let mut told = watchers.told(native.len() + each * flood)?;
    // Those that two processors tell of at once may come to two programs one way and the other.
    told.iter_mut().for_each(|events| events.sort());
    let [native, inside] = told;
    if native != inside {
        let (native, inside) = (native.len(), inside.len());
        bail!(
            "of a flood of {flood}, {native} events natively and {inside} in the sandbox, or others"
        );
    }
    println!("    {} events, alike", native.len());
    Ok(Verdict::Ok)
}
