//! A device that is removed and replaced while a sandbox has it.
//!
//! The new device has everything that the granted device had: name, network device (and so node
//! GUID and GIDs), node and number.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::nodes::SECOND;
use super::nodes::SPARE_NETDEV;
use super::nodes::SecondDevice;
use super::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world::World;

/// An address of the second device's network device.
const ADDRESS: &str = "10.99.8.1";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("device_that_is_replaced", replaced),
        Case::new("rdma_cm_by_a_device_that_was_not_granted", by_another),
    ]
}

/// An address of the spare network device, removed with this.
#[derive(Debug)]
struct Address(String);

impl Address {
    fn new() -> Result<Self> {
        let address = Self(format!("{ADDRESS}/24"));
        ip(&["addr", "add", &address.0, "dev", SPARE_NETDEV])?;
        ip(&["link", "set", SPARE_NETDEV, "up"])?;
        Ok(address)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let _ = ip(&["addr", "del", &self.0, "dev", SPARE_NETDEV]);
    }
}

fn number(node: &str) -> Result<u64> {
    let path = Path::new("/dev/infiniband").join(node);
    Ok(fs::metadata(&path).with_context(|| format!("cannot look at {}", path.display()))?.rdev())
}

/// `verbgate run` with these devices, and the script.
fn guest(world: &World, devices: &[&str], script: &str) -> Command {
    let mut command = world.program("verbgate");
    command.arg("run");
    for device in devices {
        command.args(["--device", device]);
    }
    command.args(["--", "sh", "-c", script]);
    command
}

fn replaced(world: &World) -> Result<Verdict> {
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let _address = Address::new()?;
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (ready, go) = (file("ready"), file("go"));
    // What it has open of the device's node, the kernel would wait for.
    let script = format!(
        "look() {{
             echo open $({probe} open /dev/infiniband/{node}) $({probe} open {other})
             echo listen $({probe} listen {ADDRESS})
             echo sysfs $(ls /sys/class/infiniband /sys/class/infiniband_verbs | grep -c -x -e {SECOND} -e {node})
             echo netlink $(rdma link show | grep -c {SECOND})
         }}
         look
         exec 3</sys/class/infiniband/{SECOND}/node_guid
         cd -P /sys/class/infiniband/{SECOND}/ports/1 || exit 2
         : >{ready}
         until [ -e {go} ]; do sleep 0.05; done
         cat <&3 2>&1; cat state 2>&1; cat gids/0 2>&1
         look
         look",
        probe = format_args!("{} probe", world.beside("verbgate-lab-tests").display()),
        other = world.node_path(),
        node = second.node,
    );
    let before = number(&second.node)?;
    let running = Program::start(guest(world, &[SECOND, &world.device], &script))?;
    exec::wait_until("the guest to look", || Ok(Path::new(&ready).exists()))?;
    let node = second.node.clone();
    drop(second);
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => bail!("it does not come back: {why}"),
    };
    if second.node != node || number(&node)? != before {
        bail!("the attempt is void: {} has another number than {node} had", second.node);
    }
    fs::write(&go, [])?;
    let ended = running.wait()?.expect_status(0)?;
    seen(&ended, &node)?;
    // Whoever is granted what is there now has it.
    let fresh = format!(
        "{probe} open /dev/infiniband/{node}; {probe} listen {ADDRESS}",
        probe = format_args!("{} probe", world.beside("verbgate-lab-tests").display()),
    );
    let fresh = exec::run(guest(world, &[SECOND], &fresh))?.expect_status(0)?;
    if fresh.stdout != "0\n0\n" {
        bail!("the device that came is of no use to whom it is granted: {fresh}");
    }
    drop(second);
    Ok(Verdict::Ok)
}

/// Before: all of it. After: ENXIO; of files ENODEV where they are open and ENOENT in a directory that is
/// gone, as the kernel says of its own sysfs; and nothing to be seen, but of the other device.
fn seen(ended: &Ended, node: &str) -> Result<()> {
    let enodev = rustix::io::Errno::NODEV.raw_os_error();
    let before = "open 0 0\nlisten 0\nsysfs 2\nnetlink 1\n";
    let gone = "cat: -: No such device\n\
                cat: state: No such file or directory\n\
                cat: gids/0: No such file or directory\n";
    let after = format!("open ENXIO 0\nlisten {enodev}\nsysfs 0\nnetlink 0\n");
    if ended.stdout != format!("{before}{gone}{after}{after}") {
        bail!("not what there should be to be seen: {ended}");
    }
    let told = format!("refuses to open {node} (ENXIO): device ");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains(&told)).collect();
    let whole = |line: &&&str| {
        [
            &*format!("granted as {SECOND} ({node}"),
            &*format!("is now {SECOND} ({node}"),
            "start the sandbox again",
        ]
        .iter()
        .all(|part| line.contains(part))
    };
    if lines.len() != 1 || lines.iter().filter(whole).count() != 1 {
        bail!("not one line that says what has become of the device: {ended}");
    }
    Ok(())
}

/// An id that is bound to a device by the address of another's is of no use; before it is bound,
/// any id may listen.
fn by_another(world: &World) -> Result<Verdict> {
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let _address = Address::new()?;
    let enodev = rustix::io::Errno::NODEV.raw_os_error();
    let own = world.address()?;
    let probe = format!("{} probe listen", world.beside("verbgate-lab-tests").display());
    let script = format!("for at in {own} {ADDRESS} 0.0.0.0; do {probe} $at; done");
    for (device, expected) in
        [(&*world.device, format!("0\n{enodev}\n0\n")), (SECOND, format!("{enodev}\n0\n0\n"))]
    {
        let ended = exec::run(guest(world, &[device], &script))?.expect_status(0)?;
        if ended.stdout != expected || !ended.stderr.contains("CM_LISTEN goes by RDMA device ") {
            bail!("granted {device}, it should be {expected:?}: {ended}");
        }
    }
    drop(second);
    Ok(Verdict::Ok)
}
