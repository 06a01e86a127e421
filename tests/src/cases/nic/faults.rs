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
        // The last: what it leaves is another device of the same name.
        Case::new("nic_removed_under_doorbells", move |w| removed(w, kind)),
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

/// What became of a device that was removed under traffic, while its programs lived.
#[derive(Debug, Eq, PartialEq)]
struct Seen {
    /// What `ibv_asyncwatch` has told of.
    events: Vec<String>,
    /// Whether the device is still there: a driver that cannot be taken from its programs waits for
    /// them to end (`disassociate_ucontext`; efa has none).
    there: bool,
    /// Whether the ends of the traffic go on.
    alive: [bool; 2],
}

/// A device whose PCI function is removed under traffic: what programs see of it is what they see natively, nothing
/// hangs once they have ended, and the device comes back as one that works.
fn removed(world: &World, kind: Kind) -> Result<Verdict> {
    let two = Two::look(world)?;
    let native = remove(&two, kind, Place::Native).context("natively")?;
    let inside = remove(&two, kind, Place::Sandbox).context("in a sandbox")?;
    if native != inside {
        bail!("natively {native:?}, in a sandbox {inside:?}");
    }
    Ok(Verdict::Ok)
}

fn remove(two: &Two, kind: Kind, place: Place) -> Result<Seen> {
    let device = &two.left.device;
    let mut watcher = Program::start(two.left.command(place, &["ibv_asyncwatch", "-d", device])?)?;
    exec::wait_until("the watcher to watch", PATIENCE, || {
        Ok(watcher.stdout_so_far()?.contains("async") || watcher.has_ended()?)
    })?;
    let mut pair = flow(two, kind, place, LONG)?;
    let class = Path::new("/sys/class/infiniband").join(device);
    let removal = begin_removal(device)?;
    thread::sleep(REMOVAL);
    let seen = Seen {
        events: events(&watcher.stdout_so_far()?),
        there: class.exists(),
        alive: [!pair.server.has_ended()?, !pair.client.has_ended()?],
    };
    drop((pair, watcher));
    exec::wait_until("the device to be gone", END, || Ok(!class.exists()))?;
    removal.wait(END)?.expect_status(0)?;
    comes_back(device, place)?;
    Ok(seen)
}

/// Starts to remove a device's PCI function, as the driver of the bridge does when the slot's button is
/// pressed; this waits for the device's driver.
fn begin_removal(device: &str) -> Result<Program> {
    let function = function_of(device)?;
    let mut removal = Command::new("sh");
    removal.args(["-c", &format!("echo 1 >{}/remove", function.display())]);
    Program::start(removal)
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

/// Has the kernel find the functions that were removed; the device must work again.
fn comes_back(device: &str, place: Place) -> Result<()> {
    let class = Path::new("/sys/class/infiniband").join(device);
    fs::write("/sys/bus/pci/rescan", "1").context("cannot look for PCI functions again")?;
    exec::wait_until("the device to be back", END, || Ok(class.exists()))?;
    let back = World::look(Some(device))?;
    let node = Path::new("/dev/infiniband").join(&back.node);
    exec::wait_until("its node", PATIENCE, || Ok(node.exists()))?;
    let devinfo = back.command(place, &["ibv_devinfo", "-d", device])?;
    exec::run(devinfo, PATIENCE)?.expect_status(0).context("after it came back")?;
    Ok(())
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
        begin_removal(&two.left.device)?.wait(END)?.expect_status(0)?;
        ask(&format!("{fault} {nic} off"))?;
        comes_back(&two.left.device, place)?;
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
