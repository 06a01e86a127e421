//! Inode numbers: one for each path that the kernel knows, kept while it does.

use std::collections::HashMap;
use std::sync::Arc;

use fuser::INodeNo;

/// A path that the kernel holds.
#[derive(Debug)]
struct Held {
    path: Arc<str>,
    /// How often it was told of it; fuse(4)'s `nlookup`.
    lookups: u64,
}

/// The table of numbers. What a guest makes the kernel forget is forgotten here, too, so it grows
/// no larger than the kernel's own.
#[derive(Debug)]
pub(super) struct Inodes {
    by_number: HashMap<u64, Held>,
    by_path: HashMap<Arc<str>, u64>,
    next: u64,
}

impl Default for Inodes {
    fn default() -> Self {
        let root: Arc<str> = Arc::from("");
        Self {
            by_number: HashMap::from([(INodeNo::ROOT.0, Held { path: root.clone(), lookups: 1 })]),
            by_path: HashMap::from([(root, INodeNo::ROOT.0)]),
            next: INodeNo::ROOT.0 + 1,
        }
    }
}

impl Inodes {
    /// The path of a number.
    pub(super) fn path(&self, ino: INodeNo) -> Option<Arc<str>> {
        self.by_number.get(&ino.0).map(|held| Arc::clone(&held.path))
    }

    /// The number of a path, which the kernel is told of once more.
    pub(super) fn hold(&mut self, path: &str) -> INodeNo {
        if let Some(number) = self.by_path.get(path) {
            if let Some(held) = self.by_number.get_mut(number) {
                held.lookups += 1;
            }
            return INodeNo(*number);
        }
        let number = self.next;
        self.next += 1;
        let path: Arc<str> = Arc::from(path);
        self.by_number.insert(number, Held { path: Arc::clone(&path), lookups: 1 });
        self.by_path.insert(path, number);
        INodeNo(number)
    }

    /// Forgets `lookups` times.
    pub(super) fn forget(&mut self, ino: INodeNo, lookups: u64) {
        if ino == INodeNo::ROOT {
            return;
        }
        let Some(held) = self.by_number.get_mut(&ino.0) else {
            return;
        };
        held.lookups = held.lookups.saturating_sub(lookups);
        if held.lookups == 0
            && let Some(held) = self.by_number.remove(&ino.0)
        {
            self.by_path.remove(&held.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lasts_as_long_as_the_kernel_knows_it() {
        let mut inodes = Inodes::default();
        let a = inodes.hold("class");
        assert_eq!(inodes.hold("class"), a);
        inodes.forget(a, 1);
        assert_eq!(inodes.path(a).as_deref(), Some("class"));
        inodes.forget(a, 1);
        assert_eq!(inodes.path(a), None);
        assert_ne!(inodes.hold("class"), a);
        inodes.forget(INodeNo::ROOT, 9);
        assert_eq!(inodes.path(INodeNo::ROOT).as_deref(), Some(""));
    }
}
