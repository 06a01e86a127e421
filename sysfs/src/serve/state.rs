//! The served tree, and the times when it is made again.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirEntryExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use parking_lot::RwLock;

use super::guards::Guards;
use super::numbered::Numbered;
use crate::collect::Error;
use crate::contents::Contents;
use crate::contents::Source;
use crate::contents::Tables;
use crate::gids::GidView;
use crate::identity::Identity;
use crate::record;
use crate::record::Detail;
use crate::record::For;
use crate::record::KEPT;
use crate::select;
use crate::select::GidTables;
use crate::select::Grant;
use crate::select::Names;
use crate::snapshot::Access;
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

/// Directories of an RDMA device, relative to the device's own, in which what is shown is decided at
/// each read: counters, which are of others, too, where a port is shared.
pub const JUDGED: &[&str] = &["hw_counters"];

/// Directories of a port in which nothing is decided at each read. In all others something is: tables of
/// GIDs, and counters.
pub const PLAIN: &[&str] = &["pkeys"];

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

/// What a sandbox was granted, as it was written down.
#[derive(Debug)]
enum Granted {
    /// By names, whoever has them.
    Named(Grant),
    /// The RDMA devices of these identities.
    Devices(Vec<Identity>, Names),
}

struct Current {
    look: Look,
    /// By the names of that moment.
    grant: Grant,
    /// Devices that the NIC rule judges.
    nics: Snapshot,
    /// Devices that are shown, with the numbers of their ports.
    ports: Vec<(String, Vec<u32>)>,
    looked: Instant,
}

/// What is served.
pub struct State {
    source: Source,
    granted: Granted,
    view: Arc<dyn GidView>,
    tree: RwLock<Arc<Numbered>>,
    /// Of a live source only.
    current: Mutex<Option<Current>>,
    pub(super) opened: AtomicU64,
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
        Self::of(root, Granted::Named(grant), view)
    }

    /// The same for a sandbox, to which an RDMA device is shown only while it is the one that was
    /// granted: another one that has come in its place is not.
    ///
    /// # Errors
    /// See [`record::record`].
    pub fn granting(
        root: OwnedFd,
        rdma: Vec<Identity>,
        gpus: Names,
        view: Arc<dyn GidView>,
    ) -> Result<Self, Error> {
        Self::of(root, Granted::Devices(rdma, gpus), view)
    }

    fn of(root: OwnedFd, granted: Granted, view: Arc<dyn GidView>) -> Result<Self, Error> {
        let source = Source::Live(root);
        let (tree, guards, current) = build(&source, &granted, &*view)?;
        let tree = RwLock::new(Arc::new(Numbered::first(tree).guarded(guards)));
        let (current, opened) = (Mutex::new(Some(current)), AtomicU64::default());
        Ok(Self { source, granted, view, tree, current, opened })
    }

    /// Serves what was recorded.
    #[must_use]
    pub fn recorded(snapshot: &Snapshot, grant: Grant, view: Arc<dyn GidView>) -> Self {
        let source = Source::Recorded;
        let tables = Tables { source: &source, view: &*view };
        let selection = select::select(snapshot, &grant, &tables);
        let tree = RwLock::new(Arc::new(Numbered::first(tree::build(snapshot, &selection))));
        let granted = Granted::Named(grant);
        let (current, opened) = (Mutex::default(), AtomicU64::default());
        Self { source, granted, view, tree, current, opened }
    }

    /// How many files were opened that are served. The kernel's own files in the tree are not counted.
    #[must_use]
    pub fn files_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
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

    /// Reads a file. ENODEV when the device that it is of has been replaced.
    pub(super) fn read(&self, of: &Numbered, id: NodeId) -> Result<Vec<u8>, i32> {
        let tree = of.tree();
        let read = Contents { tree, source: &self.source, view: &*self.view }.read(id);
        match &self.source {
            Source::Live(root) if !of.guards().hold(&tree.host_path(id), root.as_fd()) => {
                Err(libc::ENODEV)
            }
            _ => read,
        }
    }

    /// Who may read a file, and whose the file is, at this moment. None of a file that is gone.
    pub(super) fn access(&self, tree: &Tree, id: NodeId) -> Option<Access> {
        match &self.source {
            Source::Recorded => Some(tree.access(id).copied().unwrap_or(Access::COMMON)),
            Source::Live(_) => self.source.access(&tree.host_path(id)),
        }
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
        let entries = entries(&self.source);
        let usable = select::usable_rdma(&old.nics, &old.grant, &tables);
        let gid_tables = gid_tables(&old.ports, &*self.view);
        if (Look { entries, usable, gid_tables }) != old.look {
            match build(&self.source, &self.granted, &*self.view) {
                Ok((tree, guards, new)) => {
                    let next = self.last_tree().then(tree).guarded(guards);
                    *self.tree.write() = Arc::new(next);
                    *old = new;
                }
                Err(error) => log::warn!("cannot bring the sandbox's /sys up to date: {error}"),
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

type Built = (Tree, Guards, Current);

fn build(source: &Source, granted: &Granted, view: &dyn GidView) -> Result<Built, Error> {
    let looked = Instant::now();
    // Before all else: what changes from here on shows as a difference at the next look.
    let entries = entries(source);
    // A sandbox has KEPT from the host; whoever is granted by names, as by `sysfs serve`, has not.
    let detail = match granted {
        Granted::Named(_) => Detail::Names,
        Granted::Devices(..) => Detail::Served,
    };
    let whom = For { view, granted: granted.ibdevs(source) };
    let snapshot = record::record_for(&root_path(source), detail, &whom)?;
    let guards = match source {
        Source::Live(root) => Guards::of(&snapshot, root.as_fd()),
        Source::Recorded => Guards::default(),
    };
    // After all that was recorded, which then was of the granted devices.
    let grant = granted.by_name(&snapshot, source);
    let tables = Tables { source, view };
    let selection = select::select(&snapshot, &grant, &tables);
    let mut tree = tree::build(&snapshot, &selection);
    tree.make_dirs(KEPT.iter().filter(|dir| root_path(source).join(dir).is_dir()));
    let shown = snapshot.rdma.iter().filter(|rdma| selection.shows_rdma(&rdma.name));
    let ports = shown.map(|rdma| (rdma.name.clone(), rdma.ports().collect())).collect();
    // A table that has grown since it was recorded differs at the next look.
    let mut gid_tables = selection.gid_tables;
    for ((name, port), length) in &mut gid_tables {
        let rdma = snapshot.rdma.iter().find(|rdma| rdma.name == *name);
        let recorded = rdma.map_or(0, |rdma| rdma.gids(*port).count());
        *length = (*length).min(u32::try_from(recorded).unwrap_or(u32::MAX).max(1));
    }
    let nics = only_nics(snapshot, &grant, &tables);
    let usable = select::usable_rdma(&nics, &grant, &tables);
    // Those that the tree was built with, whatever has happened since.
    let look = Look { entries, usable, gid_tables };
    Ok((tree, guards, Current { look, grant, nics, ports, looked }))
}

impl Granted {
    /// The names that the granted RDMA devices have and had, if they are not known by names.
    fn ibdevs(&self, source: &Source) -> Option<BTreeSet<String>> {
        let (Self::Devices(rdma, _), Source::Live(root)) = (self, source) else { return None };
        let now = rdma.iter().filter_map(|was| Identity::read(root.as_fd(), was.number).ok());
        let both = now.chain(rdma.iter().cloned());
        Some(both.filter_map(|one| one.ibdev().map(str::to_owned)).collect())
    }

    /// By the names that the granted devices have now, in a host that was recorded before.
    fn by_name(&self, snapshot: &Snapshot, source: &Source) -> Grant {
        let (rdma, gpus) = match self {
            Self::Named(grant) => return grant.clone(),
            Self::Devices(rdma, gpus) => (rdma, gpus.clone()),
        };
        let Source::Live(root) = source else {
            return Grant { rdma: Names::Only(BTreeSet::new()), gpus };
        };
        let still = rdma.iter().filter_map(|was| {
            let now = Identity::read(root.as_fd(), was.number).ok();
            let now = now.filter(|now| was.matches(now))?;
            // Not one whose name another device had when the host was recorded.
            let node = snapshot.verbs.iter().find(|node| Some(&*node.name) == now.uverbs())?;
            (Some(&*node.ibdev) == now.ibdev()).then(|| node.name.clone())
        });
        Grant { rdma: Names::Only(still.collect()), gpus }
    }
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

/// What is in the directories where devices show.
fn entries(source: &Source) -> BTreeSet<(String, u64)> {
    let root = root_path(source);
    let of = |dir: &'static str| {
        let read = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        read.map(move |e| (format!("{dir}/{}", e.file_name().to_string_lossy()), e.ino()))
    };
    WATCHED.iter().flat_map(|dir| of(dir)).collect()
}

#[cfg(test)]
mod tests;
