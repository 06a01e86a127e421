//! Supervisors that die and NICs that vanish while doorbells are rung.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
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
/// How long after its start.
const MIDST: Duration = Duration::from_secs(3);
/// Nothing may hang longer than this.
const END: Duration = Duration::from_secs(60);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("nic_supervisor_killed_under_doorbells", supervisor_killed),
        // The last: a device that comes back has another name.
        Case::new("nic_unplugged_under_doorbells", unplugged),
    ]
}

/// Starts reads of one sandbox from the memory of another, and waits until they flow.
fn flow(two: &Two, place: Place) -> Result<Pair> {
    let argv = ["ib_read_bw", "-c", "SRD", "-s", "65536", "-D", FLOW, "-x", "0", "-F"];
    let argv: Vec<String> = argv.map(ToOwned::to_owned).to_vec();
    let regions = |world: &World| resources().get(&format!("{} mr", world.device)).copied();
    let before = [regions(&two.left), regions(&two.right)];
    let pair = Pair::start(&argv, |role, words| {
        let (program, rest) = words.split_first().context("an empty command")?;
        let own = [*program].into_iter().chain(two.options(role));
        let words: Vec<&str> = own.chain(rest.iter().copied()).collect();
        two.end(role).command(place, &words)
    })?;
    exec::wait_until("both ends' memory regions", PATIENCE, || {
        Ok(regions(&two.left) > before[0] && regions(&two.right) > before[1])
    })?;
    thread::sleep(MIDST);
    Ok(pair)
}

/// Doorbells are rung on, and all is measured to its end; what is requested then fails, and the
/// device keeps nothing.
fn supervisor_killed(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let mut pair = flow(&two, Place::Sandbox)?;
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
    for world in [&two.left, &two.right] {
        let census = format!("census {}", number(world)?);
        exec::wait_until("the device to be empty", END, || {
            Ok(ask(&census)?.contains("uars: 0, pds: 0, ahs: 0, mrs: 0, cqs: 0, qps: 0"))
        })?;
    }
    Ok(Verdict::Ok)
}

/// A device that is unplugged tells its programs, leaves nothing hanging, and comes back as a device
/// that works.
fn unplugged(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let nic = number(world)?;
    let mut heard = Vec::new();
    for place in [Place::Native, Place::Sandbox] {
        heard.push(unplug(&two, place, nic).with_context(|| format!("{place:?}"))?);
    }
    let [native, inside] = heard.as_slice() else { bail!("nothing was unplugged") };
    if native != inside {
        bail!("natively {native:?} is heard of it, in a sandbox {inside:?}");
    }
    Ok(Verdict::Ok)
}

/// Unplugs the first device under traffic, and plugs it in again. Gives the events that were heard.
fn unplug(two: &Two, place: Place, nic: u32) -> Result<Vec<String>> {
    let device = &two.left.device;
    let mut watcher = Program::start(two.left.command(place, &["ibv_asyncwatch", "-d", device])?)?;
    exec::wait_until("the watcher to watch", PATIENCE, || {
        Ok(watcher.stdout_so_far()?.contains("async") || watcher.has_ended()?)
    })?;
    let pair = flow(two, place)?;
    ask(&format!("unplug {nic}"))?;
    let class = Path::new("/sys/class/infiniband").join(device);
    let gone = exec::wait_until("the device to be gone", END, || Ok(!class.exists()));
    let heard = events(&watcher.stdout_so_far()?);
    // The guests end by themselves, or are ended; either way nothing may be left in the kernel.
    drop((pair, watcher));
    gone?;
    ask(&format!("plug {nic}"))?;
    exec::wait_until("the device to be back", END, || Ok(class.exists()))?;
    let back = World::look(Some(device))?;
    let node = Path::new("/dev/infiniband").join(&back.node);
    exec::wait_until("its node", PATIENCE, || Ok(node.exists()))?;
    fs::metadata(&node)?;
    let devinfo = back.command(place, &["ibv_devinfo", "-d", device])?;
    exec::run(devinfo, PATIENCE)?.expect_status(0).context("after it came back")?;
    Ok(heard)
}

/// The events that `ibv_asyncwatch` has told of.
fn events(said: &str) -> Vec<String> {
    let told = said.lines().filter(|line| line.contains("event"));
    told.map(|line| line.trim().to_owned()).collect()
}
