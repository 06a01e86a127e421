//! The cases that run on NICs: PCI devices with drivers of their own, whose doorbells programs ring by
//! mmap. Two devices are there, each behind a bridge and on a NUMA node of its own.

mod faults;
mod quiet;
mod sysfs;
mod traffic;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use crate::exec;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;

/// The file by which the lab tells of time; it is in the folder where NICs take requests.
const LOST: &str = "LAB_LOST";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = traffic::cases();
    cases.extend(quiet::cases());
    cases.extend(sysfs::cases());
    cases.extend(faults::cases());
    for case in &mut cases {
        // Two programs, natively and proxied, and each message is a doorbell that is emulated.
        case.limit = Duration::from_secs(400);
    }
    cases
}

/// Two devices on one wire.
#[derive(Debug)]
struct Two {
    left: World,
    right: World,
}

impl Two {
    /// The first device is the world's.
    fn look(world: &World) -> Result<Self> {
        let mut names: Vec<String> = fs::read_dir("/sys/class/infiniband")?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| *name != world.device)
            .collect();
        names.sort();
        let other = names.first().context("there is no second device")?;
        Ok(Self { left: world.clone(), right: World::look(Some(other))? })
    }

    /// The end of a pair: the server has the first device, the client the second.
    fn end(&self, role: &str) -> &World {
        if role == "server" { &self.left } else { &self.right }
    }

    /// Options of perftest and the ping-pongs for an end.
    fn options(&self, role: &str) -> [&str; 2] {
        ["-d", &self.end(role).device]
    }
}

/// Has the lab do something to its NICs, and gives what it says.
fn ask(request: &str) -> Result<String> {
    let control = env::var_os(LOST).map(PathBuf::from).and_then(|file| {
        let folder = file.parent()?.join("nic");
        folder.is_dir().then_some(folder)
    });
    let folder = control.context("the lab takes no requests about NICs here")?;
    let file = |kind: &str| folder.join(format!("{}.{kind}", std::process::id()));
    fs::write(file("asked"), request)?;
    fs::rename(file("asked"), file("request"))?;
    let answer = file("answer");
    exec::wait_until("the lab's answer about its NICs", PATIENCE, || Ok(answer.exists()))?;
    let text = fs::read_to_string(&answer)?;
    fs::remove_file(&answer)?;
    match text.split_once(' ') {
        Some(("ok", said)) => Ok(said.to_owned()),
        _ => bail!("the lab cannot do {request:?}: {text}"),
    }
}

/// The number of a device at the lab: its address ends with one more.
fn number(world: &World) -> Result<u32> {
    let file = format!("/sys/class/infiniband/{}/ports/1/gids/0", world.device);
    let gid = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let last = gid.trim().rsplit(':').next().unwrap_or_default();
    let address = u32::from_str_radix(last, 16).with_context(|| format!("{file} is {gid:?}"))?;
    address.checked_sub(1).context("no NIC of the lab has this address")
}

/// A script in its place.
fn shell(world: &World, place: Place, script: &str) -> Result<exec::Ended> {
    exec::run(world.command(place, &["sh", "-c", script])?, PATIENCE)
}
