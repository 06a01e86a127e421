//! What a sandbox sees as `/sys` of a NIC that is a PCI device behind a bridge.

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Two;
use super::shell;
use crate::cases::Verdict;
use crate::cases::verbs::compare;
use crate::shape;
use crate::world::Place;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("nic_sysfs_is_the_machines_own", same_attributes),
        Case::new("nic_sysfs_names_no_other", nothing_else),
    ]
}

/// Every attribute and link of the RDMA device, of its PCI function, and of the bridges above it.
fn same_attributes(world: &World) -> Result<Verdict> {
    // Attributes are compared by a sum, because some are binary; what cannot be read, by the error.
    // Counters count on between the looks.
    let script = format!(
        "cd -P /sys/class/infiniband/{device}/device || exit 1
         function=$PWD
         while [ \"$PWD\" != /sys/devices ]; do
             pwd
             for name in *; do
                 [ \"$name\" = power ] && continue
                 if [ -L \"$name\" ]; then echo \"$name -> $(readlink \"$name\")\"
                 elif [ -f \"$name\" ] && [ -r \"$name\" ]; then
                     echo \"$name $(stat -c %s \"$name\") $(timeout 5 cat \"$name\" 2>&1 | md5sum)\"
                 fi
             done
             cd -P ..
         done
         cd \"$function\"
         od -A d -t x4 config | head -20
         grep -r --exclude-dir=power --exclude-dir=hw_counters '' infiniband infiniband_verbs 2>&1 | sort
         cat local_cpulist numa_node class vendor device",
        device = world.device
    );
    let native = shell(world, Place::Native, &script)?.expect_status(0)?;
    if native.stdout.lines().count() < 60 || !native.stdout.contains("efa11d0f") {
        bail!("there is too little to be compared: {native}");
    }
    let inside = shell(world, Place::Sandbox, &script)?;
    compare(&native, &inside, shape::exact_difference)?;
    Ok(Verdict::Ok)
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
