//! The tree that is served, and when it is made anew.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirEntryExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use parking_lot::RwLock;

use super::numbered::Numbered;
use crate::collect::Error;
use crate::contents::Contents;
use crate::contents::Source;
use crate::contents::Tables;
use crate::gids::GidView;
use crate::record;
use crate::record::Detail;
use crate::select;
use crate::select::GidTables;
use crate::select::Grant;
use crate::snapshot::Attrs;
use crate::snapshot::Rdma;
use crate::snapshot::Snapshot;
use crate::tree;
use crate::tree::NodeId;
use crate::tree::Tree;

/// How old a look at the host may be when the guest looks something up.
pub(super) const FRESHNESS: Duration = Duration::from_millis(50);

/// Where something that comes or goes shows.
const WATCHED: &[&str] =
    &["class/infiniband", "class/infiniband_verbs", "class/net", "bus/pci/devices"];

/// Directories of the host's sysfs that are mounted into a served one as they are, and why: they
/// have nothing of RDMA, of GPUs or of other programs' devices, and what is in them points
/// nowhere outside of them or each other.
#[rustfmt::skip]
pub const KEPT: &[&str] = &[
    "bus/cpu",          // points into devices/system
    "bus/node",         // hwloc looks here first
    "devices/system",   // processors, memory, NUMA nodes
    "devices/virtual/kfd", // topology of AMD's GPUs
    "fs/cgroup",        // the control groups, as they are mounted
    "fs/selinux",       // libselinux asks whether it is on
    "kernel/mm",        // huge pages, and memory_peers
    "kernel/security",  // securityfs: AppArmor
];

/// What the host showed: a difference means that the tree is out of date.
#[derive(PartialEq, Eq, Debug)]
struct Look {
    /// Names and inode numbers: one that was removed and made again is another one.
    entries: BTreeSet<(String, u64)>,
    /// The granted NICs that the NIC rule lets be seen.
    usable: BTreeSet<String>,
    /// How long GID tables are.
    gid_tables: GidTables,
}

struct Current {
    look: Look,
    /// Devices that the NIC rule judges.
    nics: Snapshot,
    /// Devices that are shown, with the numbers of their ports.
    ports: Vec<(String, Vec<u32>)>,
    looked: Instant,
}

/// What is served.
pub struct State {
    source: Source,
    grant: Grant,
    view: Arc<dyn GidView>,
    tree: RwLock<Arc<Numbered>>,
    /// Of a live source only.
    current: Mutex<Option<Current>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("source", &self.source).finish_non_exhaustive()
    }
}

impl State {
    /// Serves a host: what the sysfs below `root` shows at each moment.
    ///
    /// # Errors
    /// See [`record::record`].
    pub fn live(root: OwnedFd, grant: Grant, view: Arc<dyn GidView>) -> Result<Self, Error> {
        let source = Source::Live(root);
        let (tree, current) = build(&source, &grant, &*view)?;
        let tree = RwLock::new(Arc::new(Numbered::first(tree)));
        Ok(Self { source, grant, view, tree, current: Mutex::new(Some(current)) })
    }

    /// Serves what was recorded.
    #[must_use]
    pub fn recorded(snapshot: &Snapshot, grant: Grant, view: Arc<dyn GidView>) -> Self {
        let source = Source::Recorded;
        let tables = Tables { source: &source, view: &*view };
        let selection = select::select(snapshot, &grant, &tables);
        let tree = RwLock::new(Arc::new(Numbered::first(tree::build(snapshot, &selection))));
        Self { source, grant, view, tree, current: Mutex::new(None) }
    }

    /// Whether the sandbox is shown the RDMA device of a node, such as `uverbs0`.
    #[must_use]
    pub fn shows(&self, node: &str) -> bool {
        self.tree().tree().find(&format!("class/infiniband_verbs/{node}")).is_some()
    }

    /// The tree of this moment.
    pub(super) fn tree(&self) -> Arc<Numbered> {
        self.refresh();
        Arc::clone(&self.tree.read())
    }

    /// The tree as it was last, however long ago.
    pub(super) fn last_tree(&self) -> Arc<Numbered> {
        Arc::clone(&self.tree.read())
    }

    /// Reads a file.
    pub(super) fn read(&self, tree: &Tree, id: NodeId) -> Result<Vec<u8>, i32> {
        Contents { tree, source: &self.source, view: &*self.view }.read(id)
    }

    fn refresh(&self) {
        // Whoever finds another one looking goes on with the tree that is there.
        let Some(mut current) = self.current.try_lock() else {
            return;
        };
        let Some(old) = current.as_mut() else {
            return;
        };
        if old.looked.elapsed() < FRESHNESS {
            return;
        }
        let tables = Tables { source: &self.source, view: &*self.view };
        let look = Look {
            gid_tables: gid_tables(&old.ports, &*self.view),
            ..look(&self.source, &old.nics, &self.grant, &tables)
        };
        if look != old.look {
            match build(&self.source, &self.grant, &*self.view) {
                Ok((tree, new)) => {
                    let next = self.last_tree().then(tree);
                    *self.tree.write() = Arc::new(next);
                    *old = new;
                }
                Err(error) => log::warn!("the sandbox's sysfs stays as it is: {error}"),
            }
        }
        old.looked = Instant::now();
    }
}

/// The path by which std's functions reach a sysfs that only a descriptor leads to.
fn root_path(source: &Source) -> PathBuf {
    match source {
        Source::Live(root) => PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd())),
        Source::Recorded => PathBuf::new(),
    }
}

fn build(source: &Source, grant: &Grant, view: &dyn GidView) -> Result<(Tree, Current), Error> {
    let looked = Instant::now();
    let snapshot = record::record(&root_path(source), Detail::Names)?;
    let tables = Tables { source, view };
    let selection = select::select(&snapshot, grant, &tables);
    let mut tree = tree::build(&snapshot, &selection);
    tree.make_dirs(KEPT.iter().filter(|dir| root_path(source).join(dir).is_dir()));
    let shown = snapshot.rdma.iter().filter(|rdma| selection.shows_rdma(&rdma.name));
    let ports = shown.map(|rdma| (rdma.name.clone(), rdma.ports().collect())).collect();
    let nics = only_nics(snapshot, grant, &tables);
    // Those that the tree was built with, whatever has happened since.
    let gid_tables = selection.gid_tables;
    let look = Look { gid_tables, ..look(source, &nics, grant, &tables) };
    Ok((tree, Current { look, nics, ports, looked }))
}

fn gid_tables(ports: &[(String, Vec<u32>)], view: &dyn GidView) -> GidTables {
    let all = ports.iter().flat_map(|(name, ports)| ports.iter().map(move |port| (name, *port)));
    all.filter_map(|(name, port)| Some(((name.clone(), port), view.length(name, port)?))).collect()
}

/// What [`select::usable_rdma`] needs of a snapshot, since the whole is as large as the tree: of a
/// NIC that can be used the one GID by which it can, until that one goes.
fn only_nics(mut snapshot: Snapshot, grant: &Grant, tables: &Tables<'_>) -> Snapshot {
    let nics: BTreeSet<String> =
        select::judged(&snapshot, grant).map(|rdma| rdma.name.clone()).collect();
    snapshot.rdma.retain(|rdma: &Rdma| nics.contains(&rdma.name));
    snapshot.attrs = Attrs::new();
    snapshot.access.clear();
    for device in &mut snapshot.devices {
        device.attrs = Attrs::new();
    }
    for netdev in &mut snapshot.netdevs {
        netdev.attrs = Attrs::new();
    }
    let witnesses: Vec<Option<String>> =
        snapshot.rdma.iter().map(|rdma| select::witness(&snapshot, rdma, tables)).collect();
    for (rdma, witness) in snapshot.rdma.iter_mut().zip(witnesses) {
        let attrs = std::mem::take(&mut rdma.attrs);
        let needed = |path: &str| match &witness {
            Some(witness) => path == witness || !path.contains("/gids/"),
            None => true,
        };
        let decides = |path: &str| {
            path == "node_type" || path.ends_with("/link_layer") || path.contains("/gids/")
        };
        let kept = attrs.into_iter().filter(|(path, _)| decides(path) && needed(path));
        rdma.attrs = kept.collect();
    }
    snapshot
}

fn look(source: &Source, nics: &Snapshot, grant: &Grant, tables: &Tables<'_>) -> Look {
    let root = root_path(source);
    let mut entries = BTreeSet::new();
    for dir in WATCHED {
        let read = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        entries
            .extend(read.map(|e| (format!("{dir}/{}", e.file_name().to_string_lossy()), e.ino())));
    }
    Look { entries, usable: select::usable_rdma(nics, grant, tables), gid_tables: GidTables::new() }
}
