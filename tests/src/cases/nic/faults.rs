//! Supervisors that die and NICs that vanish while doorbells are rung.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Meeting;
use super::Two;
use super::ask;
use super::number;
use crate::cases::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::pair::Pair;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;
use crate::world::resources;

/// How long traffic flows in all; long enough that what happens, happens in its midst.
const FLOW: &str = "10";
/// How long a driver may take to be gone, if it does not wait for its programs.
const REMOVAL: Duration = Duration::from_secs(5);
/// Longer than a case takes.
const LONG: &str = "120";
/// How long after its start.
const MIDST: Duration = Duration::from_secs(3);
/// Nothing may hang longer than this: the driver gives a command up after thirty seconds.
const END: Duration = Duration::from_secs(100);

/// Reads of 64 KiB.
const READS: &[&str] = &["ib_read_bw", "-s", "65536", "-F"];
/// By datagrams.
const DATAGRAMS: Kind = Kind { meeting: Meeting::Socket, options: &["-c", "SRD", "-x", "0"] };
/// By connections. (Whose ends the connection manager brings together, these ask at the end for what has
/// become of the connection, and so go on no longer than their supervisors.)
const CONNECTIONS: Kind = Kind { meeting: Meeting::Socket, options: &[] };

/// How traffic flows.
#[derive(Clone, Copy, Debug)]
struct Kind {
    meeting: Meeting,
    options: &'static [&'static str],
}

pub(super) fn cases() -> Vec<Case> {
    let kind = DATAGRAMS;
    vec![
        Case::new("nic_supervisor_killed_under_doorbells", move |w| supervisor_killed(w, kind)),
        Case::new("nic_stalled_under_doorbells", move |w| broken(w, kind, "stall")),
        Case::new("nic_interrupts_lost_under_doorbells", move |w| broken(w, kind, "deaf")),
        // The last: what they leave is another device of the same name.
        Case::new("nic_unbound_under_doorbells", move |w| departed(w, kind, Departure::Unbound)),
        Case::new("nic_removed_under_doorbells", move |w| departed(w, kind, Departure::Removed)),
    ]
}

/// Of ConnectXs, whose driver takes a device from programs that use the device.
pub(super) fn infiniband() -> Vec<Case> {
    let case = |name, how| Case::new(name, move |world| departed(world, CONNECTIONS, how));
    vec![
        Case::new("nic_mlx5_supervisor_killed_under_doorbells", |world| {
            supervisor_killed(world, CONNECTIONS)
        }),
        case("nic_mlx5_fatal_error_under_doorbells", Departure::Failed),
        case("nic_mlx5_unbound_under_doorbells", Departure::Unbound),
        case("nic_mlx5_removed_under_doorbells", Departure::Removed),
    ]
}

pub(super) fn connected() -> Vec<Case> {
    let kind = CONNECTIONS;
    vec![Case::new("nic_rc_supervisor_killed_under_doorbells", move |world| {
        // Where the driver speaks iWARP, only the connection manager connects.
        match world.gid_index {
            Some(_) => supervisor_killed(world, kind),
            None => Ok(Verdict::Skipped("the driver of this kernel speaks iWARP alone".into())),
        }
    })]
}

/// Starts reads of one sandbox from the memory of another, and waits until they flow.
fn flow(two: &Two, kind: Kind, place: Place, seconds: &str) -> Result<Pair> {
    let argv = [READS, kind.options, &["-D", seconds]].concat();
    let regions = |world: &World| resources().get(&format!("{} mr", world.device)).copied();
    let before = [regions(&two.left), regions(&two.right)];
    let pair = two.start(kind.meeting, &argv, |role, words| two.end(role).command(place, words))?;
    exec::wait_until("both ends' memory regions", PATIENCE, || {
        Ok(regions(&two.left) > before[0] && regions(&two.right) > before[1])
    })?;
    thread::sleep(MIDST);
    Ok(pair)
}

/// Doorbells are rung on, and all is measured to its end; what is requested then fails, and the
/// device keeps nothing.
fn supervisor_killed(world: &World, kind: Kind) -> Result<Verdict> {
    let two = Two::look(world)?;
    // The kernel may have objects of its own there.
    let census = || -> Result<[String; 2]> {
        let of = |world| ask(&format!("census {}", number(world)?));
        Ok([of(&two.left)?, of(&two.right)?])
    };
    let before = census()?;
    let mut pair = flow(&two, kind, Place::Sandbox, FLOW)?;
    let guest = exec::descendants(pair.client.pid());
    let guest = *guest.first().context("a `verbgate run` has no child")?;
    pair.client.kill_alone()?;
    if !exec::is_alive(guest) {
        bail!("the guest died with its supervisor");
    }
    exec::wait_until("the guest without a supervisor to end", END, || Ok(!exec::is_alive(guest)))?;
    let said = pair.client.stdout_so_far()?;
    if !said.lines().any(|line| line.trim_start().starts_with("65536 ")) {
        bail!("the traffic did not go on to its end: {said}");
    }
    drop(pair);
    let mut after = census()?;
    exec::wait_until("the devices to be as they were", END, || {
        after = census()?;
        Ok(after == before)
    })
    .with_context(|| format!("{after:?} instead of {before:?}"))?;
    Ok(Verdict::Ok)
}

/// How a device departs from its programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Departure {
    /// The PCI function is removed, as the driver of the bridge does when the slot's button is pressed.
    Removed,
    /// The driver is unbound from the function.
    Unbound,
    /// The device fails, and the driver begins anew with a device that is well again.
    Failed,
}

impl Departure {
    /// Begins; the program that does so waits for the device's driver.
    fn begin(self, device: &Function) -> Result<Program> {
        let (word, file) = match self {
            Self::Removed => ("1", "remove"),
            Self::Unbound => (device.name.as_str(), "driver/unbind"),
            Self::Failed => {
                let mut again = Command::new("devlink");
                // The driver otherwise leaves a device alone that fails twice in twenty minutes.
                again.args(["health", "set", &format!("pci/{}", device.name)]);
                again.args(["reporter", "fw_fatal", "grace_period", "0"]);
                exec::run(again, PATIENCE)?.expect_status(0)?;
                ask(&format!("event {} fatal", device.number))?;
                return Program::start(Command::new("true"));
            }
        };
        let mut departure = Command::new("sh");
        departure.args(["-c", &format!("echo {word} >{}/{file}", device.path.display())]);
        Program::start(departure)
    }

    /// Has the device come back.
    fn undo(self, device: &Function) -> Result<()> {
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
struct Function {
    /// The device's among the lab's.
    number: u32,
    name: String,
    path: PathBuf,
    driver: PathBuf,
}

impl Function {
    fn of(world: &World) -> Result<Self> {
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
    /// What `ibv_asyncwatch` has told of.
    events: Vec<String>,
    /// Whether the device is still there, and has not failed: a driver that cannot be taken from its
    /// programs waits for them to end (`disassociate_ucontext`; efa has none).
    there: bool,
    /// Whether the ends of the traffic go on.
    alive: [bool; 2],
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
    Ok(Verdict::Ok)
}

fn depart(two: &Two, kind: Kind, how: Departure, place: Place) -> Result<Seen> {
    let device = &two.left.device;
    let function = Function::of(&two.left)?;
    let mut watcher = Program::start(two.left.command(place, &["ibv_asyncwatch", "-d", device])?)?;
    exec::wait_until("the watcher to watch", PATIENCE, || {
        Ok(watcher.stdout_so_far()?.contains("async") || watcher.has_ended()?)
    })?;
    let mut pair = flow(two, kind, place, LONG)?;
    let class = Path::new("/sys/class/infiniband").join(device);
    let departure = how.begin(&function)?;
    if how == Departure::Failed {
        // The driver looks at the device's health from time to time, then waits some seconds for the device
        // to be well.
        exec::wait_until("an event", END, || Ok(!events(&watcher.stdout_so_far()?).is_empty()))?;
        ask(&format!("event {} alive", function.number))?;
    }
    thread::sleep(REMOVAL);
    let seen = Seen {
        events: events(&watcher.stdout_so_far()?),
        there: how != Departure::Failed && class.exists(),
        alive: [!pair.server.has_ended()?, !pair.client.has_ended()?],
    };
    drop((pair, watcher));
    let is_gone = || Ok(how == Departure::Failed || !class.exists());
    exec::wait_until("the device to be gone", END, is_gone)?;
    departure.wait(END)?.expect_status(0)?;
    how.undo(&function).context("the device does not come back")?;
    works(device, place)?;
    let again = [READS, kind.options, &["-n", "100"]].concat();
    let back = Two::look(&World::look(Some(device))?)?;
    let launch = |role, words: &[&str]| back.end(role).command(place, words);
    let traffic = back.start(kind.meeting, &again, launch)?.wait_for(PATIENCE)?;
    traffic.client.expect_status(0).context("after the device came back")?;
    Ok(seen)
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
fn works(device: &str, place: Place) -> Result<()> {
    exec::wait_until("the device to work again", END, || {
        let Ok(back) = World::look(Some(device)) else { return Ok(false) };
        let devinfo = back.command(place, &["ibv_devinfo", "-d", device])?;
        Ok(exec::run(devinfo, PATIENCE)?.status == 0)
    })
}

/// What became of programs whose device broke.
#[derive(Debug, Eq, PartialEq)]
struct Broken {
    /// How a program ends that opens the device now.
    opens: i32,
    /// Whether one whose doorbells are mapped measures to its end.
    goes_on: bool,
    /// How it ends when it takes down what it made.
    ends: i32,
}

/// A device that takes no commands any more, or whose interrupts are lost, is broken in a sandbox as it
/// is natively: what has doorbells goes on, every request fails in the driver's time, nothing hangs.
fn broken(world: &World, kind: Kind, fault: &str) -> Result<Verdict> {
    let nic = number(world)?;
    let two = Two::look(world)?;
    let mut seen = Vec::new();
    for place in [Place::Native, Place::Sandbox] {
        let became = breaks(&two, kind, place, &format!("{fault} {nic}"));
        // Not before: an answer that comes after its command was given up is written by the driver of
        // 6.12 to where the command's stack was, and the kernel dies.
        let (function, removal) = (Function::of(&two.left)?, Departure::Removed);
        removal.begin(&function)?.wait(END)?.expect_status(0)?;
        ask(&format!("{fault} {nic} off"))?;
        removal.undo(&function)?;
        works(&two.left.device, place)?;
        seen.push(became.with_context(|| format!("{place:?}"))?);
    }
    let [native, inside] = seen.as_slice() else { bail!("nothing was broken") };
    if native != inside || native.opens == 0 || !native.goes_on {
        bail!("natively {native:?}, in a sandbox {inside:?}");
    }
    Ok(Verdict::Ok)
}

fn breaks(two: &Two, kind: Kind, place: Place, fault: &str) -> Result<Broken> {
    // The client makes the requests of the traffic, so its device is the one that breaks.
    let swapped = Two { left: two.right.clone(), right: two.left.clone() };
    let pair = flow(&swapped, kind, place, FLOW)?;
    ask(&format!("{fault} on"))?;
    let device = &two.left.device;
    let opens = exec::run(two.left.command(place, &["ibv_devinfo", "-d", device])?, END)?;
    let client = pair.client.wait(END)?;
    let measured = |line: &str| line.trim_start().starts_with("65536 ");
    Ok(Broken {
        opens: opens.status,
        goes_on: client.stdout.lines().any(measured),
        ends: client.status,
    })
}

/// The events that `ibv_asyncwatch` has told of, after it has told that it watches.
pub(super) fn events(said: &str) -> Vec<String> {
    let told = said.lines().filter(|line| line.contains("event") && !line.contains("FD"));
    told.map(|line| line.trim().to_owned()).collect()
}
