//! Guards: whether a path of the host still leads to the device that a tree was made from.
//!
//! A path names each file that is read, and the next device at the same place has the same paths.
//! So the guards keep, with the tree, the inodes of the directories of RDMA devices, of their nodes
//! and of their PCI functions, and compare the inodes after each read ([`crate::identity`] says why
//! after). Bytes from another directory are given to nobody.

use std::os::fd::BorrowedFd;

use crate::identity;
use crate::names;
use crate::select;
use crate::snapshot::Snapshot;

/// Directories, and their inodes.
#[derive(Debug, Default)]
pub(super) struct Guards(Vec<(String, u64)>);

impl Guards {
    /// Those of all RDMA devices of a host that has just been recorded. One that is gone by now is
    /// guarded by a number that no directory has.
    pub(super) fn of(snapshot: &Snapshot, root: BorrowedFd<'_>) -> Self {
        const NOBODYS: u64 = 0;
        let rdma = snapshot.rdma.iter().flat_map(|rdma| {
            let function = select::function_of(snapshot, &rdma.path).map(|f| &f.path);
            [Some(&rdma.path), rdma.parent.as_ref(), function]
        });
        let verbs = snapshot.verbs.iter().map(|verbs| Some(&verbs.path));
        let mut paths: Vec<String> = rdma.chain(verbs).flatten().cloned().collect();
        paths.sort_unstable();
        paths.dedup();
        let inode = |path: &str| identity::inode(root, path).ok().flatten().unwrap_or(NOBODYS);
        Self(paths.into_iter().map(|path| (inode(&path), path)).map(|(i, p)| (p, i)).collect())
    }

    /// Whether what was read at a path was read of the device that was there when the tree was
    /// made. Of nested directories the innermost decides: it goes with those that it is in.
    pub(super) fn hold(&self, path: &str, root: BorrowedFd<'_>) -> bool {
        let of = self.0.iter().filter(|(dir, _)| names::is_below(path, dir));
        match of.max_by_key(|(dir, _)| dir.len()) {
            Some((dir, inode)) => identity::inode(root, dir).is_ok_and(|now| now == Some(*inode)),
            None => true,
        }
    }
}
