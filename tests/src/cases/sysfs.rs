//! A sandbox's `/sys`, compared with the kernel's.

use std::collections::BTreeSet;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use super::nodes::Namespace;
use super::nodes::SECOND;
use super::nodes::SPARE_NETDEV;
use super::nodes::SecondDevice;
use super::verbs::compare;
use crate::exec;
use crate::exec::Program;
use crate::many::Others;
use crate::shape;
use crate::world::Place;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("sysfs_is_the_hosts_for_a_granted_device", same_attributes),
        Case::new("sysfs_names_no_other_device", nothing_else),
        Case::new("sysfs_keeps_modes_and_has_no_serials", modes_and_serials),
        Case::new("sysfs_follows_addresses", follows_addresses),
        Case::new("sysfs_of_a_device_that_vanishes", vanishes),
        Case::new("sysfs_of_a_network_namespace", of_a_namespace),
        Case::new("sysfs_of_many_devices", of_many_devices),
    ]
}

fn shell(world: &World, place: Place, script: &str) -> Result<exec::Ended> {
    exec::run(world.command(place, &["sh", "-c", script])?)
}

/// Every attribute and link of the RDMA device and its node, errors included. What has to do with
/// power saving is not shown.
fn same_attributes(world: &World) -> Result<Verdict> {
    let script = format!(
        "for dir in infiniband/{} infiniband_verbs/{}; do
            cd -P /sys/class/$dir || exit 1
            pwd
            ls -1d *
            grep -r --exclude-dir=power '' . 2>&1 | sort
            find . -type l -printf '%p -> %l\\n' | sort
            readlink /sys/class/$dir
            stat -c '%n %F %a %s %U' * | grep -v '^power'
        done
        cat /sys/class/infiniband_verbs/abi_version",
        world.device, world.node
    );
    // One entry more natively.
    let script = script.replace("ls -1d *", "ls -1d * | grep -vx power");
    let mut native = shell(world, Place::Native, &script)?.expect_status(0)?;
    let lines = native.stdout.lines().count();
    if lines < 30 || !native.stdout.contains("Invalid argument") {
        bail!("there is too little to be compared: {native}");
    }
    let mut inside = shell(world, Place::Sandbox, &script)?;
    // What root could write, nobody can: what is served says so by its mode, and what is mounted by its
    // mount (`sysfs_names_no_other_device`).
    for ended in [&mut native, &mut inside] {
        ended.stdout = ended.stdout.replace(" regular file 644 ", " regular file 444 ");
    }
    // A sandbox's table ends behind the last slot that is used.
    let slots = inside.stdout.lines().filter_map(slot).max().map_or(0, |last| last + 1);
    let (beyond, shown): (Vec<&str>, Vec<&str>) =
        native.stdout.lines().partition(|line| slot(line).is_some_and(|slot| slot >= slots));
    let is_empty = |line: &&str| line.ends_with(NO_GID) || line.ends_with("Invalid argument");
    if let Some(used) = beyond.into_iter().find(|line| !is_empty(line)) {
        bail!("the sandbox's table of {slots} slots ends before one that is used: {used}");
    }
    native.stdout = shown.iter().map(|line| format!("{line}\n")).collect();
    compare(&native, &inside, shape::exact_difference)?;
    // Another user reads as well as root.
    let other = "setpriv --reuid 65534 --clear-groups cat /sys/class/infiniband_verbs/abi_version";
    shell(world, Place::Sandbox, other)?.expect_status(0)?;
    Ok(Verdict::Ok)
}

const MANY: u32 = 24;
const NO_GID: &str = ":0000:0000:0000:0000:0000:0000:0000:0000";

/// Which slot of a port's table of GIDs a line is about.
fn slot(line: &str) -> Option<usize> {
    let (_, port) = line.split_once("./ports/")?;
    let (_, attribute) = port.split_once('/')?;
    let of = ["gids/", "gid_attrs/types/", "gid_attrs/ndevs/"];
    let slot = of.iter().find_map(|folder| attribute.strip_prefix(folder))?;
    slot.split(':').next()?.parse().ok()
}

/// All entries of all GID tables, on a host of 24 devices: a sandbox with all of them sees the host's, and a sandbox
/// with one sees that device's.
fn of_many_devices(world: &World) -> Result<Verdict> {
    let _others = Others::make(MANY - 1)?;
    let script = "cd /sys/class/infiniband && grep -rv '^0000:0000:0000:0000:0000:0000:0000:0000$' */ports/1/gids | sort";
    let native = || shell(world, Place::Native, script)?.expect_status(0);
    // Addresses of the new interfaces come a moment later, by which the host's tables change.
    let mut before = native()?;
    let mut settled = None;
    for _ in 0..10 {
        let mut command = world.program("verbgate");
        command.args(["run", "--device", "all", "--", "sh", "-c", script]);
        let inside = exec::run(command)?.expect_status(0)?;
        let after = native()?;
        if before.stdout == after.stdout {
            settled = Some(inside);
            break;
        }
        before = after;
    }
    let all = settled.context("the host's tables of GIDs change all the time")?;
    let devices: BTreeSet<&str> =
        before.stdout.lines().filter_map(|line| line.split('/').next()).collect();
    if devices.len() != MANY as usize {
        bail!("the host has GIDs of {} devices: {before}", devices.len());
    }
    compare(&before, &all, shape::exact_difference)?;
    let own = format!("{}/", world.device);
    let of_own = before.stdout.lines().filter(|line| line.starts_with(&own));
    before.stdout = of_own.map(|line| format!("{line}\n")).collect();
    compare(&before, &shell(world, Place::Sandbox, script)?, shape::exact_difference)?;
    Ok(Verdict::Ok)
}

fn nothing_else(world: &World) -> Result<Verdict> {
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let lists = "ls /sys/class/infiniband /sys/class/infiniband_verbs";
    let inside = shell(world, Place::Sandbox, lists)?.expect_status(0)?;
    let words: Vec<&str> = inside.stdout.split_whitespace().collect();
    let expected = [
        "/sys/class/infiniband:",
        &world.device,
        "/sys/class/infiniband_verbs:",
        "abi_version",
        &world.node,
    ];
    if words != expected {
        bail!("not exactly what was granted: {inside}");
    }
    // By name, and by what any file that is not the kernel's own business says.
    let names = format!(
        "find /sys | grep -w -e {SECOND} -e {node} -e {SPARE_NETDEV}
         grep -rswIl -e {SECOND} -e {node} -e {SPARE_NETDEV} /sys/class /sys/bus /sys/dev \
             /sys/devices/virtual /sys/devices/pci*
         true",
        node = second.node
    );
    let native = shell(world, Place::Native, &names)?.expect_status(0)?;
    if native.stdout.lines().count() < 10 {
        bail!("{SECOND} is hardly there natively: {native}");
    }
    let inside = shell(world, Place::Sandbox, &names)?.expect_status(0)?;
    if !inside.stdout.is_empty() {
        bail!("it is named: {inside}");
    }
    // Links that lead nowhere are the kernel's own, in what stays as it is.
    let dangling = "find /sys -xtype l | grep -v -e ^/sys/devices/system/ -e ^/sys/kernel/ \
                    -e ^/sys/fs/cgroup; find /sys -type l | wc -l";
    let inside = shell(world, Place::Sandbox, dangling)?.expect_status(0)?;
    let count: usize =
        inside.stdout.trim().parse().with_context(|| format!("dangling: {inside}"))?;
    if count < 10 {
        bail!("there are hardly any links: {inside}");
    }
    // Everything else that is mounted there is where it was.
    // The device's own directory is the kernel's, and read-only; its tables of GIDs are served.
    let kept = format!(
        "test -e /sys/fs/cgroup/cgroup.procs && test -d /sys/devices/system/cpu/cpu0 &&
         grep -q ' /sys fuse' /proc/mounts && ! touch /sys/x 2>/dev/null &&
         cd -P /sys/class/infiniband/{device} && grep -q \" $PWD sysfs ro,\" /proc/mounts &&
         grep -q \" $PWD/ports/1/gids fuse ro,\" /proc/mounts &&
         ! (echo changed >node_desc) 2>/dev/null && ! grep changed node_desc",
        device = world.device
    );
    shell(world, Place::Sandbox, &kept)?.expect_status(0)?;
    let off = exec::run(world.sandbox(&["--sysfs", "host"], &["ls", "/sys/class/infiniband"]))?;
    if !off.stdout.contains(SECOND) {
        bail!("--sysfs host does not show the host's: {off}");
    }
    drop(second);
    Ok(Verdict::Ok)
}

/// What only root may read stays so in what is served; the machine's serial numbers are not there at all.
fn modes_and_serials(world: &World) -> Result<Verdict> {
    // All that not everybody may read, but for what is the kernel's own business.
    let list = "find -L /sys/class -maxdepth 4 -type f ! -perm -o=r ! -path '*/power/*' -readable -printf '%p %m\\n' 2>/dev/null | sort -u; true";
    let native = shell(world, Place::Native, list)?.expect_status(0)?;
    let secrets: Vec<&str> = native
        .stdout
        .lines()
        .filter(|line| line.contains("/dmi/") && line.ends_with(" 400"))
        .collect();
    let is_readable = |line: &str| {
        let file = line.split(' ').next().unwrap_or_default();
        Ok::<_, anyhow::Error>(shell(world, Place::Native, &format!("cat {file}"))?.status == 0)
    };
    match secrets.first() {
        None => return Ok(Verdict::Skipped("this machine tells no serial numbers".to_owned())),
        Some(first) if !is_readable(first)? => bail!("natively root cannot read {first}"),
        Some(_) => println!("  natively root reads {}", secrets.join(", ")),
    }
    let names = "find -L /sys/class/dmi /sys/devices/virtual/dmi -maxdepth 3 \
                 \\( -name '*_serial' -o -name '*_uuid' \\) 2>/dev/null; true";
    let inside = shell(world, Place::Sandbox, names)?.expect_status(0)?;
    if !inside.stdout.is_empty() {
        bail!("a sandbox sees {inside}");
    }
    // As another user, who has no capability: what is served must not be more than what the kernel shows.
    let inside = shell(world, Place::Sandbox, list)?.expect_status(0)?;
    let files: Vec<&str> = inside.stdout.lines().collect();
    if let Some(wider) = files.iter().find(|line| !native.stdout.lines().any(|own| own == **line)) {
        bail!("the mode is not the host's: {wider}");
    }
    let attempt = "while read -r file mode; do cat $file >/dev/null 2>&1 && echo $file; done; true";
    let script = format!(
        "{list} >/tmp/guarded; setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '{attempt}' \
         </tmp/guarded",
        list = list.trim_end_matches("; true")
    );
    let read = shell(world, Place::Sandbox, &script)?.expect_status(0)?;
    if !read.stdout.is_empty() {
        bail!("a user without rights reads {read}");
    }
    println!("  {} guarded files are served", files.len());
    Ok(Verdict::Ok)
}

/// An address that comes and goes shows as a GID that comes and goes.
fn follows_addresses(world: &World) -> Result<Verdict> {
    let script = format!(
        "netdev=$(cat /sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0) || exit 1
         # Of a thousand entries these are filled first.
         cd /sys/class/infiniband/{device}/ports/1/gids
         gids() {{ grep -l 0000:ffff:0a63:004d ? 1? | wc -l; }}
         until_gids() {{
             tries=0
             while [ $(gids) = 0 ] && [ $1 = some ] || [ $(gids) != 0 ] && [ $1 = none ]; do
                 tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 2; sleep 0.05
             done
         }}
         until_gids none
         ip addr add 10.99.0.77/24 dev $netdev || exit 3
         until_gids some
         ip addr del 10.99.0.77/24 dev $netdev || exit 4
         until_gids none",
        device = world.device
    );
    if world.gid_index.is_none() {
        return Ok(Verdict::Skipped("needs RoCE, whose GIDs are addresses".to_owned()));
    }
    let command = world.sandbox(&["--keep-cap", "NET_ADMIN"], &["sh", "-c", &script]);
    exec::run(command)?.expect_status(0)?;
    Ok(Verdict::Ok)
}

/// What is open fails with ENODEV, and the classes forget it.
fn vanishes(world: &World) -> Result<Verdict> {
    let second = match SecondDevice::new()? {
        Ok(second) => second,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let ready = dir.path().join("ready");
    let script = format!(
        "cd /sys/class/infiniband/{SECOND} && exec 3<node_guid || exit 1
         : >{ready}
         tries=0
         while [ -e /sys/class/infiniband/{SECOND} ] || [ -e /sys/class/infiniband_verbs/{node} ]; do
             tries=$((tries + 1)); [ $tries -lt 2000 ] || exit 2; sleep 0.05
         done
         cat <&3
         cat node_guid
         ls /sys/class/infiniband",
        ready = ready.display(),
        node = second.node
    );
    let mut command = world.program("verbgate");
    command.args(["run", "--device", SECOND, "--", "sh", "-c", &script]);
    let guest = Program::start(command)?;
    exec::wait_until("the guest to open the file", || Ok(ready.exists()))?;
    drop(second);
    let ended = guest.wait()?.expect_status(0)?;
    let said = format!("{}{}", ended.stdout, ended.stderr);
    // As the kernel says of its own.
    if !["-: No such device", "node_guid: No such file"].iter().all(|line| said.contains(line)) {
        bail!("what is gone does not read as gone: {ended}");
    }
    Ok(Verdict::Ok)
}

/// The interfaces are those of the guest's network namespace.
fn of_a_namespace(world: &World) -> Result<Verdict> {
    let namespace = Namespace::new("verbgate-sysfs")?;
    let path = namespace.path();
    let argv = ["sh", "-c", "ls /sys/class/net /sys/class/infiniband"];
    let inside = exec::run(world.sandbox(&["--netns", &path], &argv))?.expect_status(0)?;
    let words: Vec<&str> = inside.stdout.split_whitespace().collect();
    if words != ["/sys/class/infiniband:", &*world.device, "/sys/class/net:", "lo"] {
        bail!("not the namespace's interfaces: {inside}");
    }
    Ok(Verdict::Ok)
}
