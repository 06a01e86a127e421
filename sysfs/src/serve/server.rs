//! The answers to the kernel's questions.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::SystemTime;

use fuser::Errno;
use fuser::FileAttr;
use fuser::FileHandle;
use fuser::FileType;
use fuser::Filesystem;
use fuser::FopenFlags;
use fuser::Generation;
use fuser::INodeNo;
use fuser::InitFlags;
use fuser::IoctlFlags;
use fuser::KernelConfig;
use fuser::LockOwner;
use fuser::OpenFlags;
use fuser::PollEvents;
use fuser::PollFlags;
use fuser::PollNotifier;
use fuser::ReplyAttr;
use fuser::ReplyData;
use fuser::ReplyDirectory;
use fuser::ReplyDirectoryPlus;
use fuser::ReplyEmpty;
use fuser::ReplyEntry;
use fuser::ReplyIoctl;
use fuser::ReplyLseek;
use fuser::ReplyOpen;
use fuser::ReplyPoll;
use fuser::ReplyStatfs;
use fuser::ReplyXattr;
use fuser::Request;
use parking_lot::Mutex;

use super::numbered::Numbered;
use super::state;
use super::state::State;
use crate::snapshot::Access;
use crate::tree::Kind;
use crate::tree::NodeId;
use crate::tree::Tree;

/// How long the kernel may believe in a directory or file. One that is gone reads as ENODEV.
const STABLE: Duration = Duration::from_secs(60);
/// The same for links: those of the classes come and go with the devices.
const FLEETING: Duration = state::FRESHNESS;
/// What sysfs says of an attribute, whatever it holds.
const ATTRIBUTE_SIZE: u64 = 4096;
/// Files whose second read, that which finds the end, needs no look at the host.
const REMEMBERED: usize = 32;

fn ttl(tree: &Tree, id: NodeId) -> &'static Duration {
    if matches!(tree.kind(id), Some(Kind::Link(_))) { &FLEETING } else { &STABLE }
}

/// The node of a number; ENODEV for one that is gone.
fn node(tree: &Numbered, ino: INodeNo) -> Result<NodeId, Errno> {
    tree.node(ino).ok_or(Errno::ENODEV)
}

/// A file system of one [`State`].
pub(super) struct SysfsServer {
    state: Arc<State>,
    next_handle: AtomicU64,
    /// What was read last, by handle. Few: a guest can open as many files as it likes.
    recent: Mutex<VecDeque<(u64, Arc<[u8]>)>>,
    started: SystemTime,
}

impl fmt::Debug for SysfsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SysfsServer").field("state", &self.state).finish_non_exhaustive()
    }
}

impl SysfsServer {
    /// Serves a state.
    pub(super) fn new(state: Arc<State>) -> Self {
        Self {
            state,
            next_handle: AtomicU64::new(1),
            recent: Mutex::default(),
            started: SystemTime::now(),
        }
    }

    /// ENODEV of a file that is gone.
    fn attributes(&self, tree: &Numbered, id: NodeId) -> Result<FileAttr, Errno> {
        let ino = tree.number(id);
        let common = Access::COMMON;
        let (kind, perm, size, nlink, access) = match tree.tree().kind(id) {
            Some(Kind::Dir(_)) => (FileType::Directory, 0o755, 0, 2, common),
            Some(Kind::Link(_)) => (FileType::Symlink, 0o777, 0, 1, common),
            _ => {
                let access = self.state.access(tree.tree(), id).ok_or(Errno::ENODEV)?;
                // Nobody writes here; who may read is the kernel's to say (default_permissions).
                (FileType::RegularFile, access.mode & 0o444, ATTRIBUTE_SIZE, 1, access)
            }
        };
        let time = self.started;
        let (atime, mtime, ctime, crtime) = (time, time, time, time);
        let blksize = 4096;
        let Access { uid, gid, .. } = access;
        let (rdev, flags, blocks) = (0, 0, 0);
        Ok(FileAttr {
            ino,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
        })
    }

    fn looked_up(
        &self,
        parent: INodeNo,
        name: &OsStr,
    ) -> Result<(FileAttr, &'static Duration), Errno> {
        let tree = self.state.tree();
        let dir = node(&tree, parent)?;
        let entry = name.to_str().and_then(|name| tree.tree().entry(dir, name));
        let id = entry.ok_or(Errno::ENOENT)?;
        Ok((self.attributes(&tree, id)?, ttl(tree.tree(), id)))
    }

    /// What the file holds, from the host unless the same handle has just read it.
    fn content(&self, ino: INodeNo, handle: FileHandle, offset: u64) -> Result<Arc<[u8]>, Errno> {
        if offset > 0 {
            let recent = self.recent.lock();
            if let Some((_, bytes)) = recent.iter().find(|(known, _)| *known == handle.0) {
                return Ok(Arc::clone(bytes));
            }
        }
        let tree = self.state.last_tree();
        let id = node(&tree, ino)?;
        let bytes = self.state.read(&tree, id).map_err(Errno::from_i32)?;
        let bytes: Arc<[u8]> = bytes.into();
        let mut recent = self.recent.lock();
        recent.retain(|(known, _)| *known != handle.0);
        if recent.len() >= REMEMBERED {
            recent.pop_front();
        }
        recent.push_back((handle.0, Arc::clone(&bytes)));
        Ok(bytes)
    }
}

impl Filesystem for SysfsServer {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Where the kernel lacks one of them, it is slower.
        let _ = config.add_capabilities(InitFlags::FUSE_DO_READDIRPLUS);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        // A link that leads elsewhere has another number.
        let _ = config.add_capabilities(InitFlags::FUSE_CACHE_SYMLINKS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.looked_up(parent, name) {
            Ok((attributes, ttl)) => reply.entry(ttl, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let tree = self.state.tree();
        let known = node(&tree, ino).and_then(|id| Ok((id, self.attributes(&tree, id)?)));
        match known {
            Ok((id, attributes)) => reply.attr(ttl(tree.tree(), id), &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let tree = self.state.tree();
        match node(&tree, ino).map(|id| tree.tree().kind(id)) {
            Ok(Some(Kind::Link(target))) => reply.data(target.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match node(&self.state.tree(), ino) {
            Ok(_) => {
                let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
                self.state.opened.fetch_add(1, Ordering::Relaxed);
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.content(ino, handle, offset) {
            Ok(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let rest = bytes.get(from..).unwrap_or_default();
                let size = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
                reply.data(rest.get(..size).unwrap_or_default());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let numbered = self.state.tree();
        let id = match node(&numbered, ino) {
            Ok(id) => id,
            Err(errno) => return reply.error(errno),
        };
        let tree = numbered.tree();
        let dots =
            [(".", id), ("..", tree.parent(id))].map(|(name, id)| (name, FileType::Directory, id));
        let entries = tree.entries(id).iter().map(|entry| {
            let kind = match tree.kind(*entry) {
                Some(Kind::Dir(_)) => FileType::Directory,
                Some(Kind::Link(_)) => FileType::Symlink,
                _ => FileType::RegularFile,
            };
            (tree.name(*entry), kind, *entry)
        });
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, kind, id)) in dots.into_iter().chain(entries).enumerate().skip(skip) {
            if reply.add(numbered.number(id), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let numbered = self.state.tree();
        let id = match node(&numbered, ino) {
            Ok(id) => id,
            Err(errno) => return reply.error(errno),
        };
        let tree = numbered.tree();
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let dots = [(".", id), ("..", tree.parent(id))];
        let entries = tree.entries(id).iter().map(|entry| (tree.name(*entry), *entry));
        for (at, (name, id)) in dots.into_iter().chain(entries).enumerate().skip(skip) {
            // What is gone by now is not listed.
            let Ok(attributes) = self.attributes(&numbered, id) else { continue };
            let ttl = ttl(tree, id);
            if reply.add(attributes.ino, at as u64 + 1, name, ttl, &attributes, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }

    // The rest is what sysfs does not have, either. Said here, because the library's own answers
    // write a line into the log for each.

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}
