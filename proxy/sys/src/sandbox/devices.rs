//! `/dev` of the guest: the host's own, with RDMA nodes that only the supervisor can open.
//!
//! The guest sees nodes with the right numbers and mode 0666, as libibverbs checks them, on a
//! mount with `nodev`: opening one natively fails with EACCES, and the supervisor, which the
//! filter asks first, opens the host's node instead.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::mount::MountFlags;

use super::error::SetUpError;
use super::error::step;
use super::mounts;
use super::mounts::ATTR_NODEV;
use super::mounts::ATTR_RDONLY;
use super::mounts::Mount;
use super::spec::DeviceNode;

/// Where RDMA devices have their nodes.
pub const RDMA_DIR: &str = "/dev/infiniband";

const DEV: &str = "/dev";

/// `IB_UVERBS_MAJOR` and its neighbours umad, issm and ucm share it: drivers/infiniband/core.
const INFINIBAND_MAJOR: u32 = 231;

/// Depth to which nodes are looked for below `/dev`; udev makes no more than four levels.
pub(super) const MAX_DEPTH: usize = 8;

/// The numbers of RDMA hardware's character devices.
#[derive(Clone, Debug)]
pub struct RdmaNumbers {
    /// Majors that are RDMA's alone, the dynamic ones of verbs included.
    pub majors: Vec<u32>,
    /// Majors of nodes that reach the hardware beside verbs.
    pub beside: Vec<u32>,
    /// The minor of rdma_cm among the miscellaneous devices.
    pub cm: Option<u32>,
}

/// `MISC_MAJOR`, include/uapi/linux/major.h.
const MISC_MAJOR: u32 = 10;

/// `IB_UMAD_MINOR_BASE` to the end of issm's minors: drivers/infiniband/core/user_mad.c.
const MAD_MINORS: Range<u32> = 0..128;

/// Names in /proc/devices, and the ends of names, of nodes that reach the hardware beside verbs: MADs, privileges of DEVX
/// (drivers/infiniband/core/ucaps.c), Omni-Path's and InfiniPath's data paths (hw/hfi1, hw/qib), and commands to firmware
/// (drivers/fwctl; `mst_pciconf` and `mst_pci` of NVIDIA's MFT).
const BESIDE: [&str; 7] =
    ["infiniband_mad", "infiniband_ucaps", "hfi1", "ib_qib", "fwctl", "_mstconf", "_mstcr"];

impl RdmaNumbers {
    /// The running kernel's.
    #[must_use]
    pub fn known() -> Self {
        // Lines of a number and a name.
        let read = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines = text.lines().filter_map(|line| {
                let (number, name) = line.trim().split_once(' ')?;
                Some((number.parse::<u32>().ok()?, name.to_owned()))
            });
            lines.collect::<Vec<_>>()
        };
        Self::of(&read("/proc/devices"), &read("/proc/misc"))
    }

    fn of(devices: &[(u32, String)], misc: &[(u32, String)]) -> Self {
        let (mut majors, mut beside) = (vec![INFINIBAND_MAJOR], Vec::new());
        for (major, name) in devices {
            if BESIDE.iter().any(|end| name.ends_with(end)) {
                beside.push(*major);
            } else if name.starts_with("infiniband") {
                majors.push(*major);
            }
        }
        majors.sort_unstable();
        majors.dedup();
        // MADs and verbs share the fixed major.
        beside.retain(|major| !majors.contains(major));
        let cm = misc.iter().find(|(_, name)| name == "rdma_cm").map(|(minor, _)| *minor);
        Self { majors, beside, cm }
    }

    /// The number of rdma_cm.
    #[must_use]
    pub fn cm_number(&self) -> Option<(u32, u32)> {
        self.cm.map(|minor| (MISC_MAJOR, minor))
    }

    /// Whether a number is one of them.
    #[must_use]
    pub fn contains(&self, (major, minor): (u32, u32)) -> bool {
        [&self.majors, &self.beside].iter().any(|all| all.contains(&major))
            || self.cm_number() == Some((major, minor))
    }

    /// Whether a number is of a node that reaches the hardware beside verbs.
    #[must_use]
    pub fn is_beside(&self, (major, minor): (u32, u32)) -> bool {
        self.beside.contains(&major) || major == INFINIBAND_MAJOR && MAD_MINORS.contains(&minor)
    }

    /// The numbers as a device cgroup names them: a major, and the minor where the major is not RDMA's
    /// alone.
    #[must_use]
    pub fn in_rules(&self) -> Vec<(u32, Option<u32>)> {
        let whole = self.majors.iter().chain(&self.beside).map(|major| (*major, None));
        whole.chain(self.cm_number().map(|(major, minor)| (major, Some(minor)))).collect()
    }

    pub(super) fn are_of(&self, meta: &fs::Metadata) -> bool {
        let number = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        meta.file_type().is_char_device() && self.contains(number)
    }
}

/// Makes nodes in a directory, for a container to be shown by a mount with `nodev`.
///
/// # Errors
/// mknod(2)'s, with the node's path.
pub fn show_nodes(devices: &[DeviceNode], dir: &Path) -> Result<(), (PathBuf, io::Error)> {
    devices.iter().try_for_each(|device| {
        let path = dir.join(&device.name);
        make(device, &path).map_err(|errno| (path, errno.into()))
    })
}

/// Makes a device's node, for everybody.
fn make(device: &DeviceNode, path: &Path) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(0o666);
    let (major, minor) = device.rdev;
    let rdev = rustix::fs::makedev(major, minor);
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, rdev)?;
    // The umask took its part.
    rustix::fs::chmod(path, mode)
}

/// Fills `/dev/infiniband` and lets the rest of `/dev` be used again. Comes after
/// [`mounts::seal`]; `before` is the list of mounts as they were then.
pub(super) fn provide(devices: &[DeviceNode], before: &[Mount]) -> Result<(), SetUpError> {
    let rdma = RdmaNumbers::known();
    revive(before, &rdma)?;
    let dir = Path::new(RDMA_DIR);
    if !dir.is_dir() {
        rustix::fs::mkdir(dir, Mode::from_raw_mode(0o755)).map_err(step(
            format!("make the directory {RDMA_DIR}"),
            "make the directory before, as root: mkdir /dev/infiniband",
        ))?;
    }
    // Opened before they are covered, for the case that they have to be bound.
    let sources: Vec<_> = devices
        .iter()
        .map(|d| rustix::fs::open(&d.source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))
        .collect();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("verbgate", dir, "tmpfs", flags, Some(c"mode=0755,size=64k"))
        .map_err(step(format!("mount a tmpfs over {RDMA_DIR}"), ""))?;
    for (device, source) in devices.iter().zip(sources) {
        let path = dir.join(&device.name);
        show(device, &path, source)
            .map_err(step(format!("show the device as {}", path.display()), ""))?;
    }
    mounts::change(dir, ATTR_RDONLY | ATTR_NODEV, 0)
        .map_err(step(format!("make {RDMA_DIR} read-only"), ""))?;
    // After the tmpfs, which hides the usual place of the nodes.
    cover_strays(Path::new(DEV), &rdma, MAX_DEPTH)
        .map_err(step("cover RDMA devices outside /dev/infiniband", ""))
}

fn show(
    device: &DeviceNode,
    path: &Path,
    source: rustix::io::Result<std::os::fd::OwnedFd>,
) -> io::Result<()> {
    match make(device, path) {
        Ok(()) => Ok(()),
        // In a user namespace, or a device cgroup without `m`: the host's node, bound.
        Err(rustix::io::Errno::PERM) => {
            use std::os::fd::AsRawFd;
            let source = source?;
            fs::write(path, [])?;
            let by_fd = format!("/proc/self/fd/{}", source.as_raw_fd());
            rustix::mount::mount_bind(by_fd, path)?;
            mounts::change(path, ATTR_NODEV, 0)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Takes `nodev` back from the mounts that make up `/dev`.
fn revive(before: &[Mount], rdma: &RdmaNumbers) -> Result<(), SetUpError> {
    let dev = Path::new(DEV);
    if !before.iter().any(|m| m.point == dev) {
        // A plain directory: it becomes a mount, to be told from what surrounds it.
        rustix::mount::mount_bind_recursive(dev, dev)
            .map_err(step("make /dev a mount of its own", ""))?;
        if !top(before, Path::new("/")).is_some_and(|root| root.nodev) {
            mounts::change(dev, 0, ATTR_NODEV).map_err(step("let /dev have devices", ""))?;
        }
    }
    let mut points: Vec<&PathBuf> =
        before.iter().map(|m| &m.point).filter(|p| p.starts_with(dev)).collect();
    points.sort_unstable();
    points.dedup();
    for mount in points.into_iter().filter_map(|point| top(before, point)) {
        if !mount.nodev && may_have_devices(mount, rdma) {
            mounts::unless_covered(mounts::change(&mount.point, 0, ATTR_NODEV))
                .map_err(step(format!("let {} have devices", mount.point.display()), ""))?;
        }
    }
    Ok(())
}

/// Of the mounts on one point, the latest.
fn top<'a>(mounts: &'a [Mount], point: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|m| m.point == point)
}

/// Whether a mount at or below `/dev` keeps its devices: all but a second view of the host's
/// `/dev`, in which RDMA nodes appear outside the covered directory, and a bound RDMA node.
fn may_have_devices(mount: &Mount, rdma: &RdmaNumbers) -> bool {
    if mount.point == Path::new(DEV) {
        return true;
    }
    let is_rdma_node = fs::metadata(&mount.point).is_ok_and(|meta| rdma.are_of(&meta));
    let shows_rdma_dir = mount.fstype == "devtmpfs"
        && (mount.root == Path::new("/") || mount.root.starts_with("/infiniband"));
    !(is_rdma_node || shows_rdma_dir && mount.point.is_dir())
}

/// Nodes that somebody made elsewhere in `/dev`, as `docker run --device A:B` does: each becomes
/// a mount of its own with `nodev`.
fn cover_strays(dir: &Path, rdma: &RdmaNumbers, depth: usize) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        // What this caller may not list it may still name; but a node there is one that the
        // host's administrator hid from it, with permissions of his own.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        // Removed meanwhile, and all that was in it, as temporary folders in /dev/shm are.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let entry = match entry {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entry => entry?,
        };
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth > 0 && path != Path::new(RDMA_DIR) {
            cover_strays(&path, rdma, depth - 1)?;
        } else if kind.is_char_device()
            && fs::symlink_metadata(&path).is_ok_and(|meta| rdma.are_of(&meta))
        {
            match rustix::mount::mount_bind(&path, &path) {
                // Removed meanwhile, by another sandbox's end for one.
                Err(rustix::io::Errno::NOENT) => continue,
                bound => bound?,
            }
            match mounts::change(&path, ATTR_NODEV, 0) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                changed => changed?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(root: &str, point: &str, fstype: &str) -> Mount {
        Mount { root: root.into(), point: point.into(), nodev: false, fstype: fstype.into() }
    }

    #[test]
    fn a_second_view_of_the_hosts_dev_has_no_devices() {
        let rdma = RdmaNumbers::known();
        assert!(may_have_devices(&mount("/", "/dev", "devtmpfs"), &rdma));
        assert!(may_have_devices(&mount("/", "/dev/pts", "devpts"), &rdma));
        assert!(may_have_devices(&mount("/null", "/dev/null", "devtmpfs"), &rdma));
        // A directory that exists stands for /dev/host.
        assert!(!may_have_devices(&mount("/", "/tmp", "devtmpfs"), &rdma));
        assert!(!may_have_devices(&mount("/infiniband", "/tmp", "devtmpfs"), &rdma));
        assert!(may_have_devices(&mount("/dri", "/tmp", "devtmpfs"), &rdma));
    }

    #[test]
    fn the_latest_mount_on_a_point_counts() {
        let mounts = [mount("/", "/dev/shm", "tmpfs"), mount("/", "/dev/shm", "ext4")];
        assert_eq!(top(&mounts, Path::new("/dev/shm")).unwrap().fstype, "ext4");
    }

    #[test]
    fn nodes_beside_verbs_are_told_from_those_of_verbs() {
        assert!(RdmaNumbers::known().contains((INFINIBAND_MAJOR, 192)));
        let devices = [
            (231, "infiniband_mad"),
            (231, "infiniband_verbs"),
            (510, "infiniband_verbs"),
            (509, "infiniband_mad"),
            (508, "infiniband_ucaps"),
            (243, "hfi1"),
            (242, "0000:3b:00.0_mstconf"),
            (29, "fb"),
        ];
        let devices = devices.map(|(number, name)| (number, name.to_owned()));
        let numbers = RdmaNumbers::of(&devices, &[(121, "rdma_cm".to_owned())]);
        for beside in [(231, 0), (231, 64), (509, 7), (508, 0), (243, 0), (242, 0)] {
            assert!(numbers.contains(beside) && numbers.is_beside(beside), "{beside:?}");
        }
        for verbs in [(231, 192), (510, 3), (10, 121)] {
            assert!(numbers.contains(verbs) && !numbers.is_beside(verbs), "{verbs:?}");
        }
        assert!(!numbers.contains((29, 0)) && !numbers.contains((10, 229)));
        let of = |major| (major, None);
        let whole = [231, 510, 509, 508, 243, 242].map(of);
        assert_eq!(numbers.in_rules(), [&whole[..], &[(10, Some(121))]].concat());
    }
}
