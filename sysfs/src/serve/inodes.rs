//! Inode numbers: one for each path that the kernel knows, kept while it does.

use std::collections::HashMap;
use std::sync::Arc;

use fuser::INodeNo;

/// A node that the kernel holds: where, and how often it was told of it (fuse(4)'s `nlookup`).
#[derive(Debug)]
struct Held {
    dir: u64,
    name: Arc<str>,
    lookups: u64,
}

/// The table of numbers. What a guest makes the kernel forget is forgotten here, too, so it grows
/// no larger than the kernel's own. A directory is not forgotten before what is in it, as the
/// kernel keeps it for as long.
#[derive(Debug)]
pub(super) struct Inodes {
    by_number: HashMap<u64, Held>,
    by_name: HashMap<(u64, Arc<str>), u64>,
    next: u64,
}

impl Default for Inodes {
    fn default() -> Self {
        Self { by_number: HashMap::new(), by_name: HashMap::new(), next: INodeNo::ROOT.0 + 1 }
    }
}

impl Inodes {
    /// The path of a number.
    pub(super) fn path(&self, ino: INodeNo) -> Option<String> {
        let mut names: Vec<&str> = Vec::new();
        let mut at = ino.0;
        while at != INodeNo::ROOT.0 {
            let held = self.by_number.get(&at)?;
            names.push(&held.name);
            at = held.dir;
        }
        names.reverse();
        Some(names.join("/"))
    }

    /// The number of an entry of a directory, which the kernel is told of once more.
    pub(super) fn hold(&mut self, dir: INodeNo, name: &str) -> INodeNo {
        let key = (dir.0, Arc::from(name));
        if let Some(number) = self.by_name.get(&key) {
            if let Some(held) = self.by_number.get_mut(number) {
                held.lookups += 1;
            }
            return INodeNo(*number);
        }
        let number = self.next;
        self.next += 1;
        let held = Held { dir: dir.0, name: Arc::clone(&key.1), lookups: 1 };
        self.by_number.insert(number, held);
        self.by_name.insert(key, number);
        INodeNo(number)
    }

    /// Forgets `lookups` times.
    pub(super) fn forget(&mut self, ino: INodeNo, lookups: u64) {
        let Some(held) = self.by_number.get_mut(&ino.0) else {
            return;
        };
        held.lookups = held.lookups.saturating_sub(lookups);
        if held.lookups == 0
            && let Some(held) = self.by_number.remove(&ino.0)
        {
            self.by_name.remove(&(held.dir, held.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_lasts_as_long_as_the_kernel_knows_it() {
        let mut inodes = Inodes::default();
        let class = inodes.hold(INodeNo::ROOT, "class");
        assert_eq!(inodes.hold(INodeNo::ROOT, "class"), class);
        let net = inodes.hold(class, "net");
        assert_eq!(inodes.path(net).as_deref(), Some("class/net"));
        inodes.forget(net, 1);
        assert_eq!(inodes.path(net), None);
        inodes.forget(class, 1);
        assert_eq!(inodes.path(class).as_deref(), Some("class"));
        inodes.forget(class, 1);
        assert_eq!(inodes.path(class), None);
        assert_ne!(inodes.hold(INodeNo::ROOT, "class"), class);
        inodes.forget(INodeNo::ROOT, 9);
        assert_eq!(inodes.path(INodeNo::ROOT).as_deref(), Some(""));
    }
}
