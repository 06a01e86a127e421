//! A census of everything that containers have: processes, mounts and files, counted.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::exec;
use crate::world;
use crate::world::World;

/// Everything of which containers have some, on a machine where nothing else starts or ends.
#[derive(Debug, PartialEq)]
pub(super) struct Census {
    processes: usize,
    namespaces: usize,
    mounts: usize,
    sockets: usize,
    control_groups: usize,
    /// Containers' directories, and their runtimes'; journals of NICs.
    directories: usize,
    objects: BTreeMap<String, u64>,
}

impl Census {
    pub(super) fn take() -> Result<Self> {
        let mut processes = 0;
        let mut namespaces = BTreeSet::new();
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        for process in fs::read_dir("/proc")?.flatten() {
            let path = process.path();
            // Not the kernel's own threads, which come and go.
            let is_process = process.file_name().to_str().is_some_and(is_number)
                && fs::read_link(path.join("exe")).is_ok();
            if !is_process {
                continue;
            }
            processes += 1;
            let kinds = fs::read_dir(path.join("ns")).into_iter().flatten().flatten();
            namespaces.extend(kinds.filter_map(|kind| fs::read_link(kind.path()).ok()));
        }
        let lines =
            |file: &str| Ok::<usize, std::io::Error>(fs::read_to_string(file)?.lines().count());
        Ok(Self {
            processes,
            namespaces: namespaces.len(),
            mounts: lines("/proc/self/mountinfo")?,
            sockets: lines("/proc/net/unix")?,
            control_groups: folders(Path::new("/sys/fs/cgroup")),
            directories: ["/run/verbgate/oci", "/var/lib/verbgate/oci", "/run/crun", "/run/runc"]
                .iter()
                .map(|dir| fs::read_dir(dir).into_iter().flatten().count())
                .sum(),
            objects: world::resources(),
        })
    }
}

/// How many folders there are in a folder, at any depth.
fn folders(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let inside = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inside.map(|entry| 1 + folders(&entry.path())).sum()
}

/// Waits until no container has RDMA any more.
pub(super) fn no_containers(world: &World) -> Result<()> {
    let mut ps = world.program("verbgate");
    ps.args(["ps", "--json"]);
    exec::wait_until("no container to be left", || {
        let mut again = Command::new(ps.get_program());
        again.args(ps.get_args());
        Ok(exec::run(again)?.stdout.trim() == "[]")
    })
}
