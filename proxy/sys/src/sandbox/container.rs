//! The cover of a container's `/sys`, made from outside while the runtime makes the container.
//!
//! A process of the host (the runtime's `createRuntime` hook) enters the container's mount
//! namespace and makes the cover. No code of verbgate runs in the container, so neither the
//! container's seccomp profile nor its capabilities nor its files have a say. At that time the
//! container's mounts exist below its root file system, and none of its programs has run.
//!
//! The file system belongs to the initial user namespace, whoever the container's root is.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::ResolveFlags;
use rustix::mount::FsMountFlags;
use rustix::mount::FsOpenFlags;
use rustix::mount::MountAttrFlags;
use rustix::mount::MoveMountFlags;
use rustix::thread::LinkNameSpaceType;

use super::handoff::Served;
use super::keep::Keep;
use super::sysfs;
use crate::Tgid;

/// Where containers have sysfs, below their root file system.
const SYS: &str = "sys";
/// `SYSFS_MAGIC`, include/uapi/linux/magic.h.
const SYSFS_MAGIC: i64 = 0x6265_6572;
/// The inode of a sysfs's root directory: fs/kernfs gives numbers from 1 on.
const ROOT_INODE: u64 = 1;

/// What a container's `/sys` is mounted with, beside the descriptor by which it is served.
const OPTIONS: [(&str, &str); 5] = [
    ("source", "verbgate"),
    ("rootmode", "40755"),
    ("user_id", "0"),
    ("group_id", "0"),
    ("max_read", "4096"),
];
/// The same of options without a value.
const FLAGS: [&str; 3] = ["default_permissions", "allow_other", "ro"];

/// What of a container's `/sys` is covered, and by whom it is served.
pub struct Cover<'a> {
    /// The container's first process, which the runtime has made and not yet let go.
    pub container: Tgid,
    /// The container's root file system, as the host names it.
    pub rootfs: &'a Path,
    /// What stays the host's own.
    pub keep: Keep<'a>,
    /// Called once, in the container's mount namespace; returns when the file system is served.
    pub serve: &'a dyn Fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>,
}

impl std::fmt::Debug for Cover<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cover")
            .field("container", &self.container)
            .field("rootfs", &self.rootfs)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// Why a container's `/sys` cannot be covered.
#[derive(Debug, thiserror::Error)]
pub enum CoverError {
    /// `/dev/fuse`; the text says what to do.
    #[error("{0}")]
    Fuse(String),
    /// What would be mounted there, others would see.
    #[error("the container has no mount namespace of its own; add one (linux.namespaces)")]
    Shared,
    /// Another file system, or a part of sysfs.
    #[error("the container's /sys is a part of the host's sysfs; mount all of sysfs, or nothing")]
    Part,
    /// A call failed.
    #[error("cannot {what}: {source}")]
    Call {
        /// What was attempted.
        what: &'static str,
        /// The errno, said in the text.
        r#source: io::Error,
    },
}

fn call<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> CoverError {
    move |source| CoverError::Call { what, source: source.into() }
}

impl Cover<'_> {
    /// Covers it, and leaves the calling process in the container's mount namespace. False when the
    /// container has no sysfs.
    ///
    /// The calling process must have one thread and CAP_SYS_ADMIN in the initial user namespace.
    ///
    /// # Errors
    /// See [`CoverError`]; the container must not be started then.
    pub fn make(&self) -> Result<bool, CoverError> {
        let fuse = sysfs::open_fuse().map_err(CoverError::Fuse)?;
        let mount = detached(&fuse)
            .map_err(call("make a FUSE file system; is the module fuse loaded, and Linux 5.2?"))?;
        self.enter()?;
        let Some(sys) = self.sys()? else { return Ok(false) };
        let by_fd =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(&mount, "", &sys, "", by_fd)
            .map_err(call("mount FUSE over the container's /sys"))?;
        (self.serve)(fuse.as_fd(), sys.as_fd())
            .map_err(call("have the container's /sys served"))?;
        // Mounting into it takes lookups, which nobody answers for whoever holds this.
        drop(fuse);
        let placed = self.keep.place(sys.as_fd(), mount.as_fd());
        placed.map_err(call("keep the host's own in the container's /sys"))?;
        Ok(true)
    }

    fn enter(&self) -> Result<(), CoverError> {
        let failed = "enter the container's mount namespace";
        let path = format!("/proc/{}/ns/mnt", self.container);
        let theirs = std::fs::File::open(path).map_err(call(failed))?;
        let ours = std::fs::metadata("/proc/self/ns/mnt").map_err(call(failed))?;
        if theirs.metadata().map_err(call(failed))?.ino() == ours.ino() {
            return Err(CoverError::Shared);
        }
        rustix::thread::move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Mount))
            .map_err(call(failed))
    }

    /// The container's sysfs, if it has one. The container's image has made the way there: no link
    /// of it leads out of the root file system.
    fn sys(&self) -> Result<Option<OwnedFd>, CoverError> {
        let failed = "find the container's /sys";
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.rootfs, flags, Mode::empty())
            .map_err(call("find the container's root file system"))?;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let sys = match rustix::fs::openat2(&root, SYS, flags, Mode::empty(), within) {
            Ok(sys) => sys,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(call(failed)(errno)),
        };
        if rustix::fs::fstatfs(&sys).map_err(call(failed))?.f_type != SYSFS_MAGIC {
            return Ok(None);
        }
        if rustix::fs::fstat(&sys).map_err(call(failed))?.st_ino != ROOT_INODE {
            return Err(CoverError::Part);
        }
        Ok(Some(sys))
    }
}

/// A FUSE file system that is mounted nowhere yet.
fn detached(fuse: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(fs.as_fd(), "fd", fuse.as_raw_fd().to_string())?;
    for (key, value) in OPTIONS {
        rustix::mount::fsconfig_set_string(fs.as_fd(), key, value)?;
    }
    for flag in FLAGS {
        rustix::mount::fsconfig_set_flag(fs.as_fd(), flag)?;
    }
    rustix::mount::fsconfig_create(fs.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// What a letter that offers a container's `/sys` brings along: `/dev/fuse`, and the sysfs below.
///
/// # Errors
/// The descriptors themselves, when they are not two.
pub fn served(files: Vec<OwnedFd>) -> Result<Served, Vec<OwnedFd>> {
    <[OwnedFd; 2]>::try_from(files).map(|[fuse, root]| Served { fuse, root })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_the_hosts_mounts_is_refused() {
        let serve = |_: BorrowedFd<'_>, _: BorrowedFd<'_>| Err(io::Error::other("not reached"));
        let me = Tgid(std::process::id().cast_signed());
        let cover =
            Cover { container: me, rootfs: Path::new("/"), keep: Keep::default(), serve: &serve };
        assert!(matches!(cover.enter(), Err(CoverError::Shared)));
    }

    #[test]
    fn the_hosts_sysfs_is_known() {
        let serve = |_: BorrowedFd<'_>, _: BorrowedFd<'_>| Err(io::Error::other("not reached"));
        let of = |rootfs: &str| {
            let rootfs = Path::new(rootfs);
            Cover { container: Tgid(1), rootfs, keep: Keep::default(), serve: &serve }.sys()
        };
        assert!(of("/").unwrap().is_some());
        let dir = tempfile::tempdir().unwrap();
        assert!(of(dir.path().to_str().unwrap()).unwrap().is_none());
        // A link that leads out of the root file system leads nowhere.
        std::os::unix::fs::symlink("/sys", dir.path().join("sys")).unwrap();
        assert!(matches!(of(dir.path().to_str().unwrap()), Ok(None) | Err(_)));
    }
}
