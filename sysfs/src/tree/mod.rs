//! The virtual sysfs as directories, files and symbolic links.

mod build;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::names;
use crate::snapshot::Access;
use crate::value::Value;

pub use self::build::build;

/// A node of a [`Tree`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u32);

impl NodeId {
    /// Its place in tables of a tree's nodes.
    pub(crate) fn index(self) -> usize {
        // Not on the machines that this is for.
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// What a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory: its entries, in their natural order.
    Dir(Vec<NodeId>),
    /// A symbolic link, and its target.
    Link(Box<str>),
    /// A regular file.
    File(File),
}

/// An attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// What was recorded, if it was.
    pub value: Option<Box<Value>>,
    /// Of the files that a [`crate::GidView`] masks: which entry they tell of.
    pub gid: Option<GidFile>,
}

/// Which file of a GID's three it is, and where its port is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GidFile {
    /// The port's directory: its path is that of the device, and ends in `ports/P`.
    pub port_dir: NodeId,
    /// Index in the port's table.
    pub index: u32,
    /// Whether it is the GID itself; the others are its attributes.
    pub is_gid: bool,
}

#[derive(Clone, Debug)]
struct Node {
    name: Arc<str>,
    parent: NodeId,
    kind: Kind,
}

/// A tree of sysfs, without the root's own name. Built once; a change of the host makes a new one.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Where directories are on the host that are elsewhere than here.
    origins: BTreeMap<NodeId, Box<str>>,
    /// Of the files that not everyone may read, or that have another owner than most.
    access: BTreeMap<NodeId, Access>,
    /// While it is built: most names are those of many nodes.
    names: BTreeSet<Arc<str>>,
}

impl Tree {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(0);

    pub(crate) fn new() -> Self {
        let root = Node { name: "".into(), parent: Self::ROOT, kind: Kind::Dir(Vec::new()) };
        Self {
            nodes: vec![root],
            origins: BTreeMap::new(),
            access: BTreeMap::new(),
            names: BTreeSet::new(),
        }
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// How many nodes there are, with the root.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes, a directory before what is in it; the root first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)).map(NodeId)
    }

    /// The directory that a node is in; the root's is the root.
    pub(crate) fn parent(&self, id: NodeId) -> NodeId {
        self.node(id).map_or(Self::ROOT, |node| node.parent)
    }

    /// What a node is; `None` for an id of another tree.
    #[must_use]
    pub fn kind(&self, id: NodeId) -> Option<&Kind> {
        self.node(id).map(|node| &node.kind)
    }

    /// A node's name.
    #[must_use]
    pub fn name(&self, id: NodeId) -> &str {
        self.node(id).map_or("", |node| &node.name)
    }

    /// The entries of a directory, in their natural order; none of anything else.
    #[must_use]
    pub fn entries(&self, id: NodeId) -> &[NodeId] {
        match self.kind(id) {
            Some(Kind::Dir(entries)) => entries,
            _ => &[],
        }
    }

    /// An entry of a directory.
    #[must_use]
    pub fn entry(&self, dir: NodeId, name: &str) -> Option<NodeId> {
        let entries = self.entries(dir);
        let at = entries.binary_search_by(|id| names::natural(self.name(*id), name)).ok()?;
        entries.get(at).copied()
    }

    /// The node at a path; no symbolic link is followed. The root's path is empty.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<NodeId> {
        let components = path.split('/').filter(|c| !c.is_empty());
        components.into_iter().try_fold(Self::ROOT, |dir, name| self.entry(dir, name))
    }

    /// Who may read a file, if that is not everyone, or whose it is, if not most files' owner's.
    #[must_use]
    pub fn access(&self, id: NodeId) -> Option<&Access> {
        self.access.get(&id)
    }

    /// A node's path.
    #[must_use]
    pub fn path(&self, id: NodeId) -> String {
        self.path_until(id, |_| None)
    }

    /// Where the host has what this node shows.
    #[must_use]
    pub fn host_path(&self, id: NodeId) -> String {
        self.path_until(id, |at| self.origins.get(&at).map(|origin| &**origin))
    }

    fn path_until<'a>(&'a self, id: NodeId, place: impl Fn(NodeId) -> Option<&'a str>) -> String {
        let mut components = Vec::new();
        let mut at = id;
        while at != Self::ROOT {
            let Some(node) = self.node(at) else {
                break;
            };
            if let Some(place) = place(at) {
                components.push(place);
                break;
            }
            components.push(&node.name);
            at = node.parent;
        }
        components.reverse();
        components.join("/")
    }

    /// All nodes but the root, a directory before what is in it.
    pub fn walk(&self) -> impl Iterator<Item = NodeId> + '_ {
        let mut stack: Vec<NodeId> = self.entries(Self::ROOT).iter().rev().copied().collect();
        std::iter::from_fn(move || {
            let id = stack.pop()?;
            stack.extend(self.entries(id).iter().rev());
            Some(id)
        })
    }

    /// Appends a node; the caller has seen that the directory has no such entry.
    fn push(&mut self, dir: NodeId, name: &str, kind: Kind) -> NodeId {
        // A tree that does not fit 32 bits does not fit memory.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let name_of_many = match self.names.get(name) {
            Some(known) => Arc::clone(known),
            None => Arc::from(name),
        };
        self.names.insert(Arc::clone(&name_of_many));
        self.nodes.push(Node { name: name_of_many, parent: dir, kind });
        let names = &self.nodes;
        let name_of = |id: &NodeId| names.get(id.index()).map_or("", |node| &*node.name);
        let at = match self.node(dir).map(|node| &node.kind) {
            Some(Kind::Dir(entries)) => {
                entries.partition_point(|other| names::natural(name_of(other), name).is_lt())
            }
            _ => 0,
        };
        let parent = self.nodes.get_mut(dir.index());
        if let Some(Node { kind: Kind::Dir(entries), .. }) = parent {
            entries.insert(at, id);
        }
        id
    }

    /// The directory at a path, made with those above it. Where a file or link is in the way,
    /// there is none: what is in the way came first.
    fn dir(&mut self, path: &str) -> Option<NodeId> {
        let mut at = Self::ROOT;
        for name in path.split('/').filter(|c| !c.is_empty()) {
            at = match self.entry(at, name) {
                Some(id) if matches!(self.kind(id), Some(Kind::Dir(_))) => id,
                Some(_) => return None,
                None => self.push(at, name, Kind::Dir(Vec::new())),
            };
        }
        Some(at)
    }

    /// Makes directories, to be mounted over.
    pub(crate) fn make_dirs<'a>(&mut self, paths: impl Iterator<Item = &'a &'a str>) {
        for path in paths {
            self.dir(path);
        }
    }

    /// Gives back what was taken in advance of growing.
    fn shrink(&mut self) {
        self.nodes.shrink_to_fit();
        self.names.clear();
        for node in &mut self.nodes {
            if let Kind::Dir(entries) = &mut node.kind {
                entries.shrink_to_fit();
            }
        }
    }

    /// Puts a file or link at a path, unless something is there.
    pub(crate) fn put(&mut self, path: &str, kind: Kind) {
        if let Some(dir) = self.dir(names::parent(path).unwrap_or_default()) {
            let name = names::last(path);
            if self.entry(dir, name).is_none() {
                self.push(dir, name, kind);
            }
        }
    }

    /// Links one path to another as the kernel would; only to what is there.
    fn link(&mut self, path: &str, target: &str) {
        if self.find(target).is_some() {
            self.put(path, Kind::Link(names::relative(path, target).into()));
        }
    }

    fn set_origin(&mut self, id: NodeId, origin: &str) {
        self.origins.insert(id, origin.into());
    }
}
