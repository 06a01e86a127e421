//! Supervisors that die and NICs that break while doorbells are rung.

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Meeting;
use super::Two;
use super::ask;
use super::census;
use super::departures::Departure;
use super::departures::Function;
use super::departures::works;
use super::events::Watcher;
use super::number;
use super::numbers;
use super::onlooker::EXECUTED;
use super::onlooker::Onlooker;
use super::onlooker::UNANSWERED;
use super::quiet::doorbells;
use crate::cases::Verdict;
use crate::exec;
use crate::pair::Pair;
use crate::world::Place;
use crate::world::World;
use crate::world::resources;

/// How long traffic flows in all; long enough that what happens, happens in its midst.
const FLOW: &str = "10";
/// Longer than a case takes.
pub(super) const LONG: &str = "3600";
/// The doorbells after which traffic flows.
const DOORBELLS: u64 = 100;
/// Reads of 64 KiB.
pub(super) const READS: &[&str] = &["ib_read_bw", "-s", "65536", "-F"];
/// By datagrams.
pub(super) const DATAGRAMS: Kind =
    Kind { meeting: Meeting::Socket, options: &["-c", "SRD", "-x", "0"] };
/// By connections. (Whose ends the connection manager brings together, these ask at the end for what has
/// become of the connection, and so go on no longer than their supervisors.)
pub(super) const CONNECTIONS: Kind = Kind { meeting: Meeting::Socket, options: &[] };

/// How traffic flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) meeting: Meeting,
    pub(super) options: &'static [&'static str],
}

impl Kind {
    /// Connections, in the way that the driver of this kernel has: of iWARP by the connection manager alone.
    pub(super) fn of_connections(world: &World) -> Self {
        let meeting = if world.gid_index.is_some() { Meeting::Socket } else { Meeting::Manager };
        Self { meeting, ..CONNECTIONS }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let kind = DATAGRAMS;
    vec![
        Case::new("nic_supervisor_killed_under_doorbells", move |w| supervisor_killed(w, kind)),
        Case::new("nic_fatal_error_under_doorbells", move |w| failed(w, kind)),
        Case::new("nic_stalled_under_doorbells", move |w| broken(w, kind, "stall")),
        Case::new("nic_interrupts_lost_under_doorbells", move |w| broken(w, kind, "deaf")),
    ]
}

/// Of ConnectXs, whose driver outlives a device that does not answer.
pub(super) fn infiniband() -> Vec<Case> {
    vec![
        Case::new("nic_mlx5_supervisor_killed_under_doorbells", |world| {
            supervisor_killed(world, CONNECTIONS)
        }),
        Case::new("nic_mlx5_stalled_under_doorbells", |world| interrupted(world, "stall")),
        Case::new("nic_mlx5_interrupts_lost_under_doorbells", |world| interrupted(world, "deaf")),
    ]
}

pub(super) fn connected() -> Vec<Case> {
    let of = Kind::of_connections;
    vec![
        Case::new("nic_rc_supervisor_killed_under_doorbells", move |w| match of(w).meeting {
            Meeting::Socket => supervisor_killed(w, of(w)),
            // Its traffic asks the supervisor at its end.
            Meeting::Manager => unanswered(w).map(|()| Verdict::Ok),
        }),
        Case::new("nic_rc_fatal_error_under_doorbells", move |w| failed(w, of(w))),
        Case::new("nic_rc_stalled_under_doorbells", move |w| broken(w, of(w), "stall")),
        Case::new("nic_rc_interrupts_lost_under_doorbells", move |w| broken(w, of(w), "deaf")),
    ]
}

/// Starts reads of one sandbox from the memory of another, and waits until they flow.
pub(super) fn flow(two: &Two, kind: Kind, place: Place, seconds: &str) -> Result<Pair> {
    let argv = [READS, kind.options, &["-D", seconds]].concat();
    // The client reads.
    let before = doorbells(&two.right)?;
    let pair = two.start(kind.meeting, &argv, |role, words| two.end(role).command(place, words))?;
    exec::wait_until("traffic", || Ok(doorbells(&two.right)? >= before + DOORBELLS))?;
    Ok(pair)
}

/// Doorbells are rung on, and all is measured to its end; what is requested then fails, and the
/// device keeps nothing.
fn supervisor_killed(world: &World, kind: Kind) -> Result<Verdict> {
    let two = Two::look(world)?;
    // The kernel may have objects of its own there.
    let held = || -> Result<[String; 2]> { Ok([census(&two.left)?, census(&two.right)?]) };
    let before = held()?;
    let mut pair = flow(&two, kind, Place::Sandbox, FLOW)?;
    let guest = exec::guest_of(&mut pair.client)?;
    pair.client.kill_alone()?;
    if !exec::is_alive(guest) {
        bail!("the guest died with its supervisor");
    }
    unanswered(&two.right)?;
    exec::wait_until("the guest without a supervisor to end", || Ok(!exec::is_alive(guest)))?;
    let said = pair.client.stdout_so_far()?;
    if !said.lines().any(|line| line.trim_start().starts_with("65536 ")) {
        bail!("the traffic did not go on to its end: {said}");
    }
    drop(pair);
    let mut after = held()?;
    exec::wait_until("the devices to be as they were", || {
        after = held()?;
        Ok(after == before)
    })
    .with_context(|| format!("{after:?} instead of {before:?}"))?;
    Ok(Verdict::Ok)
}

/// Without its supervisor, a program has its doorbells as ever, and its requests fail with ENOSYS.
fn unanswered(world: &World) -> Result<()> {
    let mut onlooker = Onlooker::start(world, Place::Sandbox)?;
    let before = onlooker.look()?;
    onlooker.program.kill_alone()?;
    let after = onlooker.look()?;
    onlooker.end();
    let as_before = before.iter().map(|line| line.replace(EXECUTED, UNANSWERED));
    if !before.contains(&EXECUTED.to_owned()) || !as_before.eq(after.iter().cloned()) {
        bail!("before the supervisor's end {before:?}, and after {after:?}");
    }
    Ok(())
}

/// What became of programs whose device told of a fatal error, and of nothing else.
#[derive(Debug, Eq, PartialEq)]
struct Failed {
    events: Vec<String>,
    look: Vec<String>,
    /// How the ends of the traffic end.
    ends: [i32; 2],
}

/// A fatal error of which a driver makes nothing (efa writes it down) or a connection's end (erdma): in a
/// sandbox as natively.
fn failed(world: &World, kind: Kind) -> Result<Verdict> {
    let (two, nic) = (Two::look(world)?, number(world)?);
    let fails = |place| -> Result<Failed> {
        let mut watcher = Watcher::start(world, place)?;
        let mut onlooker = Onlooker::start(world, place)?;
        let pair = flow(&two, kind, place, FLOW)?;
        ask(&format!("event {nic} fatal"))?;
        let ended = pair.wait()?;
        Ok(Failed {
            events: watcher.told()?,
            look: onlooker.look()?,
            ends: [ended.server.status, ended.client.status],
        })
    };
    let native = fails(Place::Native).context("natively")?;
    let inside = fails(Place::Sandbox).context("in a sandbox")?;
    println!("    {native:?}");
    if native != inside || !native.look.contains(&EXECUTED.to_owned()) {
        bail!("natively {native:?}, in a sandbox {inside:?}");
    }
    Ok(Verdict::Ok)
}

/// What became of programs whose device did not answer for a while.
#[derive(Debug, Eq, PartialEq)]
struct Interrupted {
    /// What a program sees meanwhile, and later.
    looks: [Vec<String>; 2],
    /// Whether the traffic goes on, meanwhile and later.
    alive: [[bool; 2]; 2],
    /// What the device has more when all programs are gone: what it made behind the driver's back, which had
    /// given the command up.
    left: Vec<i64>,
}

/// A device that takes no commands or whose interrupts are lost, and then is well again: the driver gives
/// each command a minute, and so does who asked for it in a sandbox; what has doorbells goes on.
fn interrupted(world: &World, fault: &str) -> Result<Verdict> {
    let (two, nic) = (Two::look(world)?, number(world)?);
    let interrupt = |place| -> Result<Interrupted> {
        let (had, before) = (resources(), numbers(&census(world)?));
        let mut onlooker = Onlooker::start(world, place)?;
        let mut pair = flow(&two, CONNECTIONS, place, LONG)?;
        let mut alive =
            || -> Result<_> { Ok([!pair.server.has_ended()?, !pair.client.has_ended()?]) };
        ask(&format!("{fault} {nic} on"))?;
        let (look, meanwhile) = (onlooker.look(), alive());
        ask(&format!("{fault} {nic} off"))?;
        let looks = [look?, onlooker.look()?];
        let alive = [meanwhile?, alive()?];
        drop((pair, onlooker));
        exec::wait_until("the kernel to free what it has", || Ok(resources() == had))?;
        let after = numbers(&census(world)?);
        let left = after.iter().zip(before).map(|(after, before)| after - before).collect();
        Ok(Interrupted { looks, alive, left })
    };
    let native = interrupt(Place::Native).context("natively")?;
    let inside = interrupt(Place::Sandbox).context("in a sandbox")?;
    println!("    {native:?}");
    let [_, later] = &native.looks;
    let goes_on = native.alive == [[true; 2]; 2] && later.contains(&EXECUTED.to_owned());
    if native != inside || !goes_on {
        bail!("natively {native:?}, in a sandbox {inside:?}");
    }
    Ok(Verdict::Ok)
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
        removal.begin(&function)?.wait()?.expect_status(0)?;
        ask(&format!("{fault} {nic} off"))?;
        removal.undo(&function)?;
        works(&two.left.device, place)?;
        seen.push(became.with_context(|| format!("{place:?}"))?);
    }
    let [native, inside] = seen.as_slice() else { bail!("nothing was broken") };
    // The erdma driver before RoCE opens a device without asking the device.
    let is_broken = native.opens != 0 || native.ends != 0;
    if native != inside || !is_broken || !native.goes_on {
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
    let opens = exec::run(two.left.command(place, &["ibv_devinfo", "-d", device])?)?;
    let client = pair.client.wait()?;
    let measured = |line: &str| line.trim_start().starts_with("65536 ");
    Ok(Broken {
        opens: opens.status,
        goes_on: client.stdout.lines().any(measured),
        ends: client.status,
    })
}
