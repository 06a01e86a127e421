//! A tree with inode numbers.

use std::collections::HashMap;
use std::mem::Discriminant;

use fuser::INodeNo;

use super::guards::Guards;
use crate::tree::Kind;
use crate::tree::NodeId;
use crate::tree::Tree;

/// A tree, and a number for each of its nodes.
///
/// A path keeps its number in the trees that come after, and has it again when it comes back: the
/// kernel may know it still. So nothing is kept of what the kernel looked up, and nothing grows
/// with what a guest does, but with the names that devices of the host have had.
#[derive(Debug)]
pub(super) struct Numbered {
    tree: Tree,
    /// By node.
    numbers: Vec<u32>,
    /// The same, ordered by number.
    nodes: Vec<(u32, NodeId)>,
    gone: HashMap<Place, u32>,
    /// The next number.
    next: u32,
    guards: Guards,
}

/// `FUSE_ROOT_ID`, [`INodeNo::ROOT`].
const ROOT: u32 = 1;

/// Where a node is, by its directory's number, and what: the kernel knows by the number what kind
/// of inode it has, and where a link leads.
type Place = (u32, Discriminant<Kind>, Box<str>, Box<str>);

fn place(dir: u32, kind: &Kind, name: &str) -> Place {
    let target = if let Kind::Link(target) = kind { &**target } else { "" };
    (dir, std::mem::discriminant(kind), name.into(), target.into())
}

impl Numbered {
    /// The first tree.
    pub(super) fn first(tree: Tree) -> Self {
        let numbers: Vec<u32> = (ROOT..).take(tree.len()).collect();
        let next = numbers.last().map_or(ROOT, |last| last.saturating_add(1));
        let (nodes, gone) = (by_number(&tree, &numbers), HashMap::new());
        Self { nodes, tree, numbers, gone, next, guards: Guards::default() }
    }

    /// The same, of a host on which these directories must be what they were.
    pub(super) fn guarded(self, guards: Guards) -> Self {
        Self { guards, ..self }
    }

    pub(super) fn guards(&self) -> &Guards {
        &self.guards
    }

    /// The tree that comes after this one.
    pub(super) fn then(&self, tree: Tree) -> Self {
        let mut gone = self.gone.clone();
        gone.extend(
            self.tree
                .ids()
                .filter_map(|id| Some((self.place(id)?, *self.numbers.get(id.index())?))),
        );
        let mut next = self.next;
        let mut numbers = vec![ROOT];
        for id in tree.ids().skip(1) {
            let dir = numbers.get(tree.parent(id).index()).copied();
            let known = dir
                .zip(tree.kind(id))
                .and_then(|(dir, kind)| gone.remove(&place(dir, kind, tree.name(id))));
            numbers.push(known.unwrap_or_else(|| {
                // A tree that does not fit 32 bits does not fit memory.
                next = next.saturating_add(1);
                next - 1
            }));
        }
        gone.shrink_to_fit();
        let nodes = by_number(&tree, &numbers);
        Self { nodes, tree, numbers, gone, next, guards: Guards::default() }
    }

    fn place(&self, id: NodeId) -> Option<Place> {
        let dir = *self.numbers.get(self.tree.parent(id).index())?;
        (id != Tree::ROOT).then_some(place(dir, self.tree.kind(id)?, self.tree.name(id)))
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The node of a number; `None` for one that is gone.
    pub(super) fn node(&self, number: INodeNo) -> Option<NodeId> {
        let number = u32::try_from(number.0).ok()?;
        let at = self.nodes.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.nodes.get(at).map(|(_, id)| *id)
    }

    /// The number of a node of this tree.
    pub(super) fn number(&self, id: NodeId) -> INodeNo {
        // Of no node; ids are those of this tree.
        INodeNo(self.numbers.get(id.index()).copied().unwrap_or(u32::MAX).into())
    }
}

fn by_number(tree: &Tree, numbers: &[u32]) -> Vec<(u32, NodeId)> {
    let mut nodes: Vec<(u32, NodeId)> = numbers.iter().copied().zip(tree.ids()).collect();
    nodes.sort_unstable();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::File;
    use crate::tree::Kind;

    fn tree(files: &[&str], links: &[&str]) -> Tree {
        let mut tree = Tree::new();
        for path in files {
            tree.put(path, Kind::File(File { value: None, gid: None }));
        }
        for path in links {
            tree.put(path, Kind::Link("x".into()));
        }
        tree
    }

    #[test]
    fn a_path_has_one_number_and_no_other_has_it() {
        let number = |of: &Numbered, path: &str| of.number(of.tree().find(path).unwrap());
        let first = Numbered::first(tree(&["a/x", "b/x", "b/y"], &["c"]));
        assert_eq!(number(&first, ""), INodeNo::ROOT);
        // b/x goes, a/w and b/z come, c becomes a file, and what is left has another place.
        let second = first.then(tree(&["a/w", "a/x", "b/y", "b/z", "c"], &[]));
        for path in ["", "a", "a/x", "b", "b/y"] {
            assert_eq!(number(&first, path), number(&second, path), "{path}");
            let again = second.node(number(&first, path)).unwrap();
            assert_eq!(second.tree().path(again), path);
        }
        assert_eq!(second.node(number(&first, "b/x")), None);
        assert_eq!(second.node(number(&first, "c")), None);
        for path in ["a/w", "b/z", "c"] {
            assert_eq!(first.node(number(&second, path)), None, "{path}");
        }
        // A folder goes with all that is in it, and everything comes back.
        let third = second.then(tree(&["a/x"], &["c"]));
        assert_eq!(third.node(number(&second, "b/y")), None);
        assert_eq!(number(&third, "c"), number(&first, "c"));
        let fourth = third.then(tree(&["a/x", "b/x", "b/y", "c"], &[]));
        for (path, of) in [("b/x", &first), ("b/y", &first), ("b", &first), ("c", &second)] {
            assert_eq!(number(&fourth, path), number(of, path), "{path}");
        }
    }

    /// The kernel keeps where a link leads as long as the link has its number.
    #[test]
    fn a_link_that_leads_elsewhere_has_another_number() {
        let linked = |target: &str| {
            let mut tree = Tree::new();
            tree.put("c", Kind::Link(target.into()));
            tree
        };
        let number = |of: &Numbered| of.number(of.tree().find("c").unwrap());
        let first = Numbered::first(linked("x"));
        let second = first.then(linked("y"));
        assert_ne!(number(&first), number(&second));
        assert_eq!(second.node(number(&first)), None);
        assert_eq!(number(&second.then(linked("x"))), number(&first));
    }
}
