//! Nodes of RDMA devices in a container that the container could open without the supervisor.

use std::collections::BTreeMap;
use std::fs;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::Access;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::ResolveFlags;
use rustix::fs::StatVfsMountFlags;

use super::devices::MAX_DEPTH;
use super::devices::RdmaNumbers;
use super::mounts;

/// Levels below `/dev`, and entries there.
const OF_DEV: (usize, usize) = (MAX_DEPTH, usize::MAX);
/// The same below a mount that is neither `/dev` nor a view of the host's: a folder of nodes is found, also in a copy of
/// `/dev`, and a big volume takes no time.
const OF_VOLUME: (usize, usize) = (2, 4096);

/// A raw node of verbs, or of rdma_cm if that is asked for, that this process could open below a root file system: in
/// `/dev`, in a second view of the host's `/dev`, or near the top of another mount.
///
/// The caller is in the container's mount namespace, before the root changes, and in the container's control group:
/// access(2) asks the device cgroup, and opens nothing.
///
/// # Errors
/// The mounts cannot be listed, or a directory cannot be read.
pub fn openable_node(rootfs: &Path, cm: bool) -> io::Result<Option<PathBuf>> {
    let rdma = RdmaNumbers::known();
    let is_raw = |meta: &Metadata| {
        let number = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let is_of_kind = cm || rdma.majors.contains(&number.0);
        rdma.are_of(meta) && is_of_kind && !rdma.is_beside(number)
    };
    let rootfs = fs::canonicalize(rootfs)?;
    let dev = dev_of(&rootfs)?;
    // A file system of a server is not looked at: the server may never answer.
    let mut places: BTreeMap<PathBuf, Option<(usize, usize)>> = BTreeMap::new();
    for mount in mounts::list()?.into_iter().filter(|mount| mount.point.starts_with(&rootfs)) {
        let is_dev = dev.as_ref().is_some_and(|dev| mount.point.starts_with(dev));
        let bounds = match is_dev || mount.fstype == "devtmpfs" {
            true => OF_DEV,
            false if mount.point == rootfs => continue,
            false => OF_VOLUME,
        };
        let own = mount.is_own().then_some(bounds);
        places.insert(mount.point, own);
    }
    if let Some(dev) = dev {
        places.entry(dev).or_insert(Some(OF_DEV));
    }
    let is_mount = |path: &Path| places.contains_key(path);
    let search = Search { is_raw: &is_raw, is_mount: &is_mount };
    let looks = places.iter().filter_map(|(place, bounds)| Some((place, (*bounds)?)));
    let mut found = looks.map(|(place, (depth, mut left))| search.below(place, depth, &mut left));
    found.find_map(Result::transpose).transpose()
}

/// The container's `/dev`, which an image may make a link.
fn dev_of(rootfs: &Path) -> io::Result<Option<PathBuf>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(rootfs, flags, Mode::empty())?;
    match rustix::fs::openat2(&root, "dev", flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        Ok(dev) => fs::read_link(format!("/proc/self/fd/{}", dev.as_raw_fd())).map(Some),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

struct Search<'a> {
    is_raw: &'a dyn Fn(&Metadata) -> bool,
    is_mount: &'a dyn Fn(&Path) -> bool,
}

impl Search<'_> {
    /// The first openable node that is at a path, or on the same mount below the path; of as many entries as are left.
    fn below(&self, at: &Path, depth: usize, left: &mut usize) -> io::Result<Option<PathBuf>> {
        // Covered by a later mount, or removed meanwhile.
        let Ok(meta) = fs::symlink_metadata(at) else { return Ok(None) };
        if !meta.is_dir() {
            return Ok(((self.is_raw)(&meta) && is_openable(at)).then(|| at.to_owned()));
        }
        if depth == 0 || has_no_devices(at) {
            return Ok(None);
        }
        let entries = match fs::read_dir(at) {
            // Removed meanwhile; or the host's administrator hides the directory from the root of a user namespace.
            Err(e)
                if [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied]
                    .contains(&e.kind()) =>
            {
                return Ok(None);
            }
            other => other?,
        };
        for entry in entries {
            let path = entry?.path();
            let Some(fewer) = left.checked_sub(1) else { return Ok(None) };
            *left = fewer;
            if (self.is_mount)(&path) {
                continue;
            }
            if let Some(node) = self.below(&path, depth - 1, left)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }
}

fn has_no_devices(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NODEV))
}

fn is_openable(node: &Path) -> bool {
    let may = |access| rustix::fs::access(node, access).is_ok();
    !has_no_devices(node) && (may(Access::READ_OK) || may(Access::WRITE_OK))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::CWD;
    use rustix::fs::FileType;

    use super::*;

    /// A root file system in which a node is, if this user can make one.
    fn with_node(dir: &Path, number: (u32, u32)) -> bool {
        fs::create_dir_all(dir).unwrap();
        let rdev = rustix::fs::makedev(number.0, number.1);
        let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
        let node = dir.join("node");
        rustix::fs::mknodat(CWD, &node, kind, mode, rdev).is_ok() && !has_no_devices(&node)
    }

    #[test]
    fn a_node_is_found_by_its_number() {
        let rootfs = tempfile::tempdir().unwrap();
        let (dev, other) = (rootfs.path().join("dev/a/b"), rootfs.path().join("srv"));
        assert_eq!(openable_node(rootfs.path(), true).unwrap(), None);
        if !with_node(&rootfs.path().join("dev"), (1, 3)) || !with_node(&other, (231, 192)) {
            eprintln!("SKIPPED: needs to make device nodes");
            return;
        }
        assert_eq!(openable_node(rootfs.path(), true).unwrap(), None);
        assert!(with_node(&dev, (231, 192)));
        let found = openable_node(rootfs.path(), true).unwrap();
        assert_eq!(found, Some(fs::canonicalize(dev).unwrap().join("node")));
    }

    #[test]
    fn a_volume_is_searched_as_far_as_its_bounds() {
        let volume = tempfile::tempdir().unwrap();
        if !with_node(&volume.path().join("infiniband"), (231, 192)) {
            eprintln!("SKIPPED: needs to make device nodes");
            return;
        }
        let is_raw = |meta: &Metadata| rustix::fs::major(meta.rdev()) == 231;
        let search = Search { is_raw: &is_raw, is_mount: &|_| false };
        for (depth, mut left, found) in [(2, 2, true), (1, 2, false), (2, 1, false)] {
            let node = search.below(volume.path(), depth, &mut left).unwrap();
            assert_eq!(node.is_some(), found, "{depth}");
        }
    }

    #[test]
    fn a_link_for_dev_is_followed_in_the_root_file_system() {
        let rootfs = tempfile::tempdir().unwrap();
        symlink("/elsewhere", rootfs.path().join("dev")).unwrap();
        assert_eq!(openable_node(rootfs.path(), true).unwrap(), None);
        let elsewhere = rootfs.path().join("elsewhere");
        // A node beside verbs is judged by the rules alone.
        if with_node(&elsewhere, (231, 0)) {
            assert_eq!(openable_node(rootfs.path(), true).unwrap(), None);
        }
        fs::remove_file(elsewhere.join("node")).unwrap_or_default();
        if with_node(&elsewhere, (231, 192)) {
            assert!(openable_node(rootfs.path(), true).unwrap().is_some());
        }
    }
}
