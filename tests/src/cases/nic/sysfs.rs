//! What a sandbox sees as `/sys` of a NIC that is a PCI device behind a bridge.

use std::collections::BTreeSet;

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Two;
use super::shell;
use crate::cases::Verdict;
use crate::world::Place;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("nic_sysfs_is_the_machines_own", same_attributes),
        Case::new("nic_sysfs_names_no_other", nothing_else),
    ]
}

/// Attributes without which topology programs (hwloc, NCCL) would go wrong.
const NEEDED: &[&str] =
    &["class", "config", "current_link_speed", "device", "local_cpulist", "numa_node", "vendor"];

/// Every attribute that is shown of the PCI function and of the bridge above it is the machine's own,
/// and so is all of the RDMA device. Of `config` a sandbox sees what everybody but root sees.
fn same_attributes(world: &World) -> Result<Verdict> {
    // What is binary is compared by a sum; counters count on between the looks.
    let script = format!(
        "cd -P /sys/class/infiniband/{device}/device || exit 1
         for dir in \"$PWD\" \"$(dirname \"$PWD\")\"; do
             find \"$dir\" -maxdepth 1 ! -path '*/resource[0-9]*' ! -name power -type f -readable |
             while read -r file; do
                 case $file in
                     */config) sum=$(head -c 64 \"$file\" | md5sum) ;;
                     *) sum=$(cat \"$file\" 2>&1 | md5sum) ;;
                 esac
                 echo \"$file $(stat -c %s \"$file\") $sum\"
             done
             find \"$dir\" -maxdepth 1 -type l -printf '%p -> %l\\n'
         done
         grep -r --exclude-dir=power --exclude-dir=hw_counters '' infiniband infiniband_verbs 2>&1
         true",
        device = world.device
    );
    let native = shell(world, Place::Native, &script)?.expect_status(0)?;
    let inside = shell(world, Place::Sandbox, &script)?.expect_status(0)?;
    let known: BTreeSet<&str> = native.stdout.lines().collect();
    if let Some(line) = inside.stdout.lines().find(|line| !known.contains(line)) {
        let name = line.split(' ').next().unwrap_or_default();
        let own = known.iter().find(|own| own.starts_with(name));
        bail!("a sandbox sees {line:?}, and the machine {own:?}");
    }
    for name in NEEDED {
        let count = inside.stdout.matches(&format!("/{name} ")).count();
        if count < 2 {
            bail!("{name} is not shown of the function and of its bridge: {inside}");
        }
    }
    let of_rdma = |line: &&str| line.starts_with("infiniband");
    let missing = native.stdout.lines().filter(of_rdma).find(|line| {
        let is_empty = line.ends_with("Invalid argument");
        !is_empty && !inside.stdout.lines().any(|shown| shown == *line)
    });
    match missing {
        Some(line) => bail!("a sandbox does not see {line:?}"),
        None => Ok(Verdict::Ok),
    }
}

/// Nothing under `/sys` names the NIC that is not granted, nor its function, nor the bridge above.
fn nothing_else(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let where_is = format!("readlink -f /sys/class/infiniband/{}/device", two.right.device);
    let path = shell(world, Place::Native, &where_is)?.expect_status(0)?.stdout;
    let mut parts = path.trim().rsplit('/');
    let (Some(function), Some(port)) = (parts.next(), parts.next()) else {
        bail!("{path:?} is no function behind a port");
    };
    let names = format!(
        "find /sys | grep -w -e {device} -e {node} -e {function} -e {port}
         grep -rswIl -e {device} -e {node} -e {function} -e {port} /sys/class /sys/bus /sys/dev \
             /sys/devices/pci*
         true",
        device = two.right.device,
        node = two.right.node,
    );
    let native = shell(world, Place::Native, &names)?.expect_status(0)?;
    if native.stdout.lines().count() < 10 {
        bail!("the other NIC is hardly there natively: {native}");
    }
    let inside = shell(world, Place::Sandbox, &names)?.expect_status(0)?;
    if !inside.stdout.is_empty() {
        bail!("the other NIC is named: {inside}");
    }
    Ok(Verdict::Ok)
}
