//! NICs that vanish while doorbells are rung: their driver is unbound, the function is removed, or the device
//! fails and its driver begins anew.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_wait::Wait;

use super::Case;
use super::Two;
use super::ask;
use super::census_of;
use super::events::Watcher;
use super::faults::CONNECTIONS;
use super::faults::DATAGRAMS;
use super::faults::Kind;
use super::faults::LONG;
use super::faults::READS;
use super::faults::flow;
use super::number;
use super::numbers;
use super::onlooker::Onlooker;
use crate::cases::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::world::Place;
use crate::world::World;

/// The kernel's function in which a driver waits for the programs that have its device open, if it does
/// (`disassociate_ucontext`; efa has none).
const WAITS: &str = "ib_uverbs_remove_one";
/// What the traffic may use of processors until its ends see that the device is gone.
const FAREWELL: Duration = Duration::from_secs(3);

// The last of a NIC's cases: what they leave is another device of the same name.
pub(super) fn cases() -> Vec<Case> {
    let case = |name, how| Case::new(name, move |world| departed(world, DATAGRAMS, how));
    vec![
        case("nic_unbound_under_doorbells", Departure::Unbound),
        case("nic_removed_under_doorbells", Departure::Removed),
    ]
}

/// Of ConnectXs, whose driver takes a device from programs that use the device.
pub(super) fn infiniband() -> Vec<Case> {
    let case = |name, how| Case::new(name, move |world| departed(world, CONNECTIONS, how));
    vec![
        case("nic_mlx5_fatal_error_under_doorbells", Departure::Failed),
        case("nic_mlx5_unbound_under_doorbells", Departure::Unbound),
        case("nic_mlx5_removed_under_doorbells", Departure::Removed),
    ]
}

pub(super) fn connected() -> Vec<Case> {
    let case =
        |name, how| Case::new(name, move |world| departed(world, Kind::of_connections(world), how));
    vec![
        case("nic_rc_unbound_under_doorbells", Departure::Unbound),
        case("nic_rc_removed_under_doorbells", Departure::Removed),
    ]
}

/// How a device departs from its programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Departure {
    /// The PCI function is removed, as the driver of the bridge does when the slot's button is pressed.
    Removed,
    /// The driver is unbound from the function.
    Unbound,
    /// The device fails, and the driver begins anew with a device that is well again.
    Failed,
}

impl Departure {
    /// Begins; the program that does so waits for the device's driver.
    pub(super) fn begin(self, device: &Function) -> Result<Program> {
        let (word, file) = match self {
            Self::Removed => ("1", "remove"),
            Self::Unbound => (device.name.as_str(), "driver/unbind"),
            Self::Failed => {
                let mut again = Command::new("devlink");
                // The driver otherwise leaves a device alone that fails twice in twenty minutes.
                again.args(["health", "set", &format!("pci/{}", device.name)]);
                again.args(["reporter", "fw_fatal", "grace_period", "0"]);
                exec::run(again)?.expect_status(0)?;
                ask(&format!("event {} fatal", device.number))?;
                return Program::start(Command::new("true"));
            }
        };
        let mut departure = Command::new("sh");
        departure.args(["-c", &format!("echo {word} >{}/{file}", device.path.display())]);
        Program::start(departure)
    }

    /// Has the device come back.
    pub(super) fn undo(self, device: &Function) -> Result<()> {
        match self {
            Self::Removed => fs::write("/sys/bus/pci/rescan", "1")?,
            Self::Unbound => fs::write(device.driver.join("bind"), &device.name)?,
            // Its driver has set the device up anew.
            Self::Failed => {}
        }
        Ok(())
    }
}

/// The PCI function of a device.
#[derive(Debug)]
pub(super) struct Function {
    /// The device's among the lab's.
    number: u32,
    name: String,
    path: PathBuf,
    driver: PathBuf,
}

impl Function {
    pub(super) fn of(world: &World) -> Result<Self> {
        let path = function_of(&world.device)?;
        Ok(Self {
            number: number(world)?,
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            driver: fs::canonicalize(path.join("driver"))?,
            path,
        })
    }
}

/// What became of a device that departed under traffic, while its programs lived.
#[derive(Debug, Eq, PartialEq)]
struct Seen {
    /// Of what kinds of events `ibv_asyncwatch` has told. A device that fails is told of by its port and by its
    /// end, and who is told of both depends on which comes first.
    events: BTreeSet<String>,
    /// Whether the device is still there, and has not failed: a driver that cannot be taken from its
    /// programs waits for them to end (`disassociate_ucontext`; efa has none).
    there: bool,
    /// What loads, stores and requests of a program come to, before and after.
    looks: [Vec<String>; 2],
    /// Whether the programs go on: both ends of the traffic, who watches, and who looks. In a sandbox, their
    /// supervisors.
    alive: [bool; 4],
    /// What the device holds.
    holds: String,
}

/// A device departs under traffic: what programs see of it is what they see natively, nothing hangs once they
/// have ended, and the device comes back as one that works.
fn departed(world: &World, kind: Kind, how: Departure) -> Result<Verdict> {
    let two = Two::look(world)?;
    let native = depart(&two, kind, how, Place::Native).context("natively")?;
    let inside = depart(&two, kind, how, Place::Sandbox).context("in a sandbox")?;
    let fatal = native.events.iter().any(|event| event.contains("DEVICE_FATAL"));
    if native != inside || native.there == fatal {
        bail!("natively {native:?}, in a sandbox {inside:?}");
    }
    let [_, last] = &native.looks;
    let taken = !native.there && how != Departure::Failed;
    if native.alive[2..] != [true, true]
        || (taken && numbers(&native.holds).iter().any(|n| *n != 0))
    {
        bail!("{how:?} ends programs, or leaves objects: {native:?}");
    }
    println!("    {} {last:?} {:?} {}", native.there, native.alive, native.holds);
    Ok(Verdict::Ok)
}

fn depart(two: &Two, kind: Kind, how: Departure, place: Place) -> Result<Seen> {
    let device = &two.left.device;
    let function = Function::of(&two.left)?;
    let before = census_of(function.number)?;
    let mut watcher = Watcher::start(&two.left, place)?;
    let mut onlooker = Onlooker::start(&two.left, place)?;
    let first = onlooker.look()?;
    let mut pair = flow(two, kind, place, LONG)?;
    let class = Path::new("/sys/class/infiniband").join(device);
    let inode = || fs::metadata(&class).map(|class| class.ino()).ok();
    let as_it_was = inode();
    let mut departure = how.begin(&function)?;
    if how == Departure::Failed {
        // The driver looks at the device's health from time to time, then waits some seconds for the device
        // to be well.
        exec::wait_until("an event", || Ok(!watcher.told()?.is_empty()))?;
        ask(&format!("event {} alive", function.number))?;
    }
    let stack = format!("/proc/{}/stack", departure.pid());
    let waits_for_programs = || {
        let stack = fs::read_to_string(&stack).unwrap_or_default();
        stack.lines().next().is_some_and(|innermost| innermost.contains(WAITS))
    };
    exec::wait_until("a device that is gone, or whose driver waits for its programs", || {
        Ok(inode() != as_it_was || waits_for_programs())
    })?;
    if inode() != as_it_was {
        // The driver waits for nobody.
        exec::wait_until("the driver to be gone", || departure.has_ended())?;
        exec::wait_until("the last event", || {
            Ok(kinds(&watcher.told()?).contains("IBV_EVENT_DEVICE_FATAL"))
        })?;
        // The peer gives up after some tries, and then both end. Whoever does not is told by what is compared.
        let _ = Wait::new("the traffic to end")
            .usual(FAREWELL)
            .try_until(|| anyhow::Ok(pair.server.has_ended()? && pair.client.has_ended()?));
    }
    let programs =
        [&mut pair.server, &mut pair.client, &mut watcher.program, &mut onlooker.program];
    let mut alive = [true; 4];
    for (alive, program) in alive.iter_mut().zip(programs) {
        *alive = !program.has_ended()?;
    }
    let seen = Seen {
        events: kinds(&watcher.told()?),
        there: how != Departure::Failed && class.exists(),
        looks: [first, onlooker.look()?],
        alive,
        // A driver that begins anew may be anywhere on its way.
        holds: if how == Departure::Failed { String::new() } else { census_of(function.number)? },
    };
    drop((pair, watcher, onlooker));
    let is_gone = || Ok(how == Departure::Failed || !class.exists());
    exec::wait_until("the device to be gone", is_gone)?;
    departure.wait()?.expect_status(0)?;
    how.undo(&function).context("the device does not come back")?;
    works(device, place)?;
    let again = [READS, kind.options, &["-n", "100"]].concat();
    let back = Two::look(&World::look(Some(device))?)?;
    let launch = |role, words: &[&str]| back.end(role).command(place, words);
    let traffic = back.start(kind.meeting, &again, launch)?.wait()?;
    traffic.client.expect_status(0).context("after the device came back")?;
    let mut after = census_of(function.number)?;
    exec::wait_until("the device to hold no more than before", || {
        after = census_of(function.number)?;
        // It may have held what commands left that an earlier case's driver gave up.
        Ok(numbers(&after).iter().zip(numbers(&before)).all(|(now, then)| *now <= then))
    })
    .with_context(|| format!("{after} instead of {before}"))?;
    Ok(seen)
}

/// `IBV_EVENT_DEVICE_FATAL` of `event_type IBV_EVENT_DEVICE_FATAL (8), port 0`.
fn kinds(events: &[String]) -> BTreeSet<String> {
    let kinds = events.iter().filter_map(|event| event.split_whitespace().nth(1));
    kinds.map(ToOwned::to_owned).collect()
}

/// The PCI function of a device: the parent of the RDMA device, or, where a driver gives it none (erdma), the
/// function that the driver has in this device's place.
fn function_of(device: &str) -> Result<PathBuf> {
    let parent = Path::new("/sys/class/infiniband").join(device).join("device");
    if let Ok(function) = fs::canonicalize(parent) {
        return Ok(function);
    }
    let (driver, place) = device.split_once('_').context("a device that has no number")?;
    let mut functions: Vec<PathBuf> = fs::read_dir(format!("/sys/bus/pci/drivers/{driver}"))?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains(':'))
        .map(|entry| entry.path())
        .collect();
    functions.sort();
    let function =
        functions.get(place.parse::<usize>()?).context("the driver has no such device")?;
    Ok(fs::canonicalize(function)?)
}

/// A device that has come back works.
pub(super) fn works(device: &str, place: Place) -> Result<()> {
    exec::wait_until("the device to work again", || {
        let Ok(back) = World::look(Some(device)) else { return Ok(false) };
        let devinfo = back.command(place, &["ibv_devinfo", "-d", device])?;
        Ok(exec::run(devinfo)?.status == 0)
    })
}
