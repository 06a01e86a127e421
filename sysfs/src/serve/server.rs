//! The answers to what the kernel asks.

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

use super::inodes::Inodes;
use super::state;
use super::state::State;
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

/// A file system of one [`State`].
pub(super) struct SysfsServer {
    state: Arc<State>,
    inodes: Mutex<Inodes>,
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
            inodes: Mutex::default(),
            next_handle: AtomicU64::new(1),
            recent: Mutex::default(),
            started: SystemTime::now(),
        }
    }

    /// The node of a number in a tree; ENODEV for one that is gone.
    fn node(&self, tree: &Tree, ino: INodeNo) -> Result<NodeId, Errno> {
        let path = self.inodes.lock().path(ino).ok_or(Errno::ENODEV)?;
        tree.find(&path).ok_or(Errno::ENODEV)
    }

    fn attributes(&self, tree: &Tree, id: NodeId, ino: INodeNo) -> FileAttr {
        let (kind, perm, size, nlink) = match tree.kind(id) {
            Some(Kind::Dir(_)) => (FileType::Directory, 0o755, 0, 2),
            Some(Kind::Link(_)) => (FileType::Symlink, 0o777, 0, 1),
            _ => (FileType::RegularFile, 0o444, ATTRIBUTE_SIZE, 1),
        };
        let time = self.started;
        let (atime, mtime, ctime, crtime) = (time, time, time, time);
        let blksize = 4096;
        let (uid, gid, rdev, flags, blocks) = (0, 0, 0, 0, 0);
        FileAttr {
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
        }
    }

    fn ttl(tree: &Tree, id: NodeId) -> &'static Duration {
        if matches!(tree.kind(id), Some(Kind::Link(_))) { &FLEETING } else { &STABLE }
    }

    fn looked_up(
        &self,
        parent: INodeNo,
        name: &OsStr,
    ) -> Result<(FileAttr, &'static Duration), Errno> {
        let tree = self.state.tree();
        let name = name.to_str().ok_or(Errno::ENOENT)?;
        let dir = self.inodes.lock().path(parent).ok_or(Errno::ENODEV)?;
        let dir_id = tree.find(&dir).ok_or(Errno::ENODEV)?;
        let id = tree.entry(dir_id, name).ok_or(Errno::ENOENT)?;
        let ino = self.inodes.lock().hold(parent, name);
        Ok((self.attributes(&tree, id, ino), Self::ttl(&tree, id)))
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
        let id = self.node(&tree, ino)?;
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

/// Numbers in a directory's listing are not promised to mean anything; lookups give the real ones.
const UNKNOWN_INO: INodeNo = INodeNo(u64::MAX);

impl Filesystem for SysfsServer {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Where the kernel lacks one of them, it is slower.
        let _ = config.add_capabilities(InitFlags::FUSE_DO_READDIRPLUS);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.looked_up(parent, name) {
            Ok((attributes, ttl)) => reply.entry(ttl, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.inodes.lock().forget(ino, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let tree = self.state.tree();
        match self.node(&tree, ino) {
            Ok(id) => reply.attr(Self::ttl(&tree, id), &self.attributes(&tree, id, ino)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let tree = self.state.tree();
        match self.node(&tree, ino).map(|id| tree.kind(id)) {
            Ok(Some(Kind::Link(target))) => reply.data(target.as_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.node(&self.state.tree(), ino) {
            Ok(_) => {
                let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
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
        let tree = self.state.tree();
        let id = match self.node(&tree, ino) {
            Ok(id) => id,
            Err(errno) => return reply.error(errno),
        };
        let dots = [(".", FileType::Directory), ("..", FileType::Directory)];
        let entries = tree.entries(id).iter().map(|entry| {
            let kind = match tree.kind(*entry) {
                Some(Kind::Dir(_)) => FileType::Directory,
                Some(Kind::Link(_)) => FileType::Symlink,
                _ => FileType::RegularFile,
            };
            (tree.name(*entry), kind)
        });
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (name, kind)) in dots.into_iter().chain(entries).enumerate().skip(skip) {
            if reply.add(UNKNOWN_INO, at as u64 + 1, kind, name) {
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
        let tree = self.state.tree();
        let id = match self.node(&tree, ino) {
            Ok(id) => id,
            Err(errno) => return reply.error(errno),
        };
        let own = self.attributes(&tree, id, ino);
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let names = [".", ".."].into_iter().map(|name| (name, None));
        let entries = tree.entries(id).iter().map(|entry| (tree.name(*entry), Some(*entry)));
        for (at, (name, entry)) in names.chain(entries).enumerate().skip(skip) {
            let offset = at as u64 + 1;
            let Some(entry) = entry else {
                // No lookup of these is counted; fs/fuse/readdir.c.
                if reply.add(UNKNOWN_INO, offset, name, &Duration::ZERO, &own, Generation(0)) {
                    break;
                }
                continue;
            };
            let held = self.inodes.lock().hold(ino, name);
            let attributes = self.attributes(&tree, entry, held);
            let ttl = Self::ttl(&tree, entry);
            if reply.add(held, offset, name, ttl, &attributes, Generation(0)) {
                self.inodes.lock().forget(held, 1);
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
