//! What a sandbox sees as `/sys` of a NIC that is a PCI device behind a bridge.

use std::collections::BTreeSet;

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Two;
use super::shell;
use crate::cases::Verdict;
use crate::exec;
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

/// What a sandbox does not see of a function or a bridge: what reaches hardware or changes the machine, or
/// tells of other devices (`sysfs/src/record/lists.rs`), by the beginning of the name.
const NOT_SHOWN: &[&str] = &[
    "aer_rootport_total_err_",
    "driver_override",
    "link",
    "msi_irqs",
    "pools",
    "remove",
    "rescan",
    "reset",
    "resource0",
    "resource1",
    "resource2",
    "resource3",
    "resource4",
    "resource5",
    "rom",
    "vpd",
];

/// Every attribute of the PCI function, of the bridge above it and of the RDMA device is in a sandbox what the
/// machine shows to a process with the rights of a sandbox's, and the other way about, but for [`NOT_SHOWN`].
/// That goes for `config`, too, of which the kernel shows 64 bytes without CAP_SYS_ADMIN.
pub(super) fn same_attributes(world: &World) -> Result<Verdict> {
    // What is binary is compared by a sum; counters count on between the looks.
    let script = format!(
        "cd -P /sys/class/infiniband/{device}/device || exit 1
         for dir in \"$PWD\" \"$(dirname \"$PWD\")\"; do
             find \"$dir\" -maxdepth 1 -type f -readable |
             while read -r file; do
                 case $file in
                     */resource[0-9]*) echo \"$file\" ;;
                     *) echo \"$file $(stat -c %s \"$file\") $(cat \"$file\" 2>&1 | md5sum)\" ;;
                 esac
             done
             find \"$dir\" -maxdepth 1 -type l -printf '%p -> %l\\n'
             echo \"$dir/config: $(wc -c <\"$dir/config\") bytes\"
         done
         grep -r --exclude-dir=power --exclude-dir=hw_counters '' infiniband infiniband_verbs 2>&1
         true",
        device = world.device
    );
    let without = ["setpriv", "--bounding-set=-sys_admin", "sh", "-c", &script];
    let native = exec::run(world.command(Place::Native, &without)?)?.expect_status(0)?;
    let inside = shell(world, Place::Sandbox, &script)?.expect_status(0)?;
    let [known, shown] =
        [&native, &inside].map(|ended| ended.stdout.lines().collect::<BTreeSet<&str>>());
    let name_of = |line: &&str| line.split(' ').next().unwrap_or_default().to_owned();
    let missing = |line: &&&str| {
        let name = name_of(line);
        let last = name.rsplit('/').next().unwrap_or_default();
        let is_empty = line.starts_with("infiniband") && line.ends_with("Invalid argument");
        !is_empty && !NOT_SHOWN.iter().any(|beginning| last.starts_with(beginning))
    };
    let [more, less]: [Vec<&&str>; 2] =
        [shown.difference(&known).collect(), known.difference(&shown).filter(missing).collect()];
    if !more.is_empty() || !less.is_empty() {
        bail!("only a sandbox sees {more:#?}, and only the machine shows {less:#?}");
    }
    for name in NEEDED {
        let count = inside.stdout.matches(&format!("/{name} ")).count();
        if count < 2 {
            bail!("{name} is not shown of the function and of its bridge: {inside}");
        }
    }
    // What the kernel shows to everybody else.
    if shell(world, Place::Native, &script)?.stdout.matches("/config: 64 bytes").count() != 0
        || inside.stdout.matches("/config: 64 bytes").count() != 2
    {
        bail!(
            "root reads no more than 64 bytes of config, or a sandbox does not read 64: {inside}"
        );
    }
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
