//! Mounts of the guest: a private copy of the host's, in which device nodes are dead.

use std::ffi::CStr;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::StatxFlags;
use rustix::mount::MountFlags;
use rustix::mount::MoveMountFlags;
use rustix::mount::OpenTreeFlags;

use super::error::SetUpError;
use super::error::step;
use crate::check;

pub(super) const ATTR_RDONLY: u64 = 0x1;
pub(super) const ATTR_NODEV: u64 = 0x4;

const CGROUP_DIR: &str = "/sys/fs/cgroup";

/// File systems that are made read-only for the guest: what root can do to a NIC by writing.
const READ_ONLY_TYPES: &[(&str, &str)] = &[
    ("sysfs", "resourceN of a PCI function maps its registers"),
    ("debugfs", "a driver's debug files run firmware commands (mlx5: cmd/run)"),
    ("configfs", "rdma_cm's settings are those of the host's devices"),
];

/// PCI configuration space, writable to root; `/proc` itself must stay writable.
const PROC_PCI: &str = "/proc/bus/pci";

/// One line of `/proc/self/mountinfo`, as far as it matters here; proc_pid_mountinfo(5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    /// Directory (or file) of the file system that is mounted.
    pub(super) root: PathBuf,
    pub(super) point: PathBuf,
    pub(super) nodev: bool,
    pub(super) fstype: String,
}

pub(super) fn list() -> io::Result<Vec<Mount>> {
    std::fs::read("/proc/self/mountinfo").map(|text| parse(&text))
}

/// File systems of this machine that hold nodes, or lead to them by links. Others are of a server, which may never answer.
const OWN_TYPES: [&str; 13] = [
    "bcachefs", "btrfs", "devtmpfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "overlay", "rootfs",
    "tmpfs", "xfs", "zfs",
];

impl Mount {
    /// Whether the file system is of this machine.
    pub(super) fn is_own(&self) -> bool {
        OWN_TYPES.contains(&&*self.fstype)
    }
}

/// Mount points, in the order in which they were mounted, and whether the file system is of this machine.
///
/// # Errors
/// `/proc/self/mountinfo` cannot be read.
pub fn own_points() -> io::Result<Vec<(PathBuf, bool)>> {
    let own = |mount: Mount| {
        let is_own = mount.is_own();
        (mount.point, is_own)
    };
    list().map(|all| all.into_iter().map(own).collect())
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let root = unescape(fields.nth(3)?);
    let point = unescape(fields.next()?);
    let nodev = fields.next()?.split(|b| *b == b',').any(|option| option == b"nodev");
    // Optional fields end with a lone dash.
    fields.find(|field| *field == b"-")?;
    let fstype = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(Mount { root, point, nodev, fstype })
}

/// Blank, tab, newline and backslash are written in octal.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .first_chunk::<3>()
            .filter(|_| *first == b'\\')
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        out.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

/// `struct mount_attr`.
#[repr(C)]
#[derive(Default)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

fn set_attr(path: &CStr, at_flags: i32, attr: &MountAttr) -> io::Result<()> {
    set_attr_at(libc::AT_FDCWD, path, at_flags, attr)
}

/// Takes `nodev` for the mount that a descriptor stands for.
pub(crate) fn refuse_devices(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attr = MountAttr { attr_set: ATTR_NODEV, ..MountAttr::default() };
    set_attr_at(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH, &attr)
}

/// Takes writing for the mount that a descriptor stands for.
pub(crate) fn refuse_changes(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attr = MountAttr { attr_set: ATTR_RDONLY, ..MountAttr::default() };
    set_attr_at(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH, &attr)
}

fn set_attr_at(dir: i32, path: &CStr, at_flags: i32, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: `attr` is a `struct mount_attr` of the size given; it and the path live through
    // the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir,
            path.as_ptr(),
            at_flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// Sets and clears attributes of the one mount at `path`.
pub(super) fn change(path: &Path, set: u64, clear: u64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    set_attr(&path, 0, &MountAttr { attr_set: set, attr_clr: clear, ..MountAttr::default() })
}

/// Cuts the namespace off from the host's and takes `nodev` everywhere, in one call; `/dev` gets
/// its devices back from [`super::devices`].
///
/// Private, not slave: what the host mounts later would come without `nodev`.
pub(super) fn seal() -> Result<(), SetUpError> {
    let everywhere = libc::AT_RECURSIVE;
    let attr =
        MountAttr { attr_set: ATTR_NODEV, propagation: libc::MS_PRIVATE, ..MountAttr::default() };
    at_namespace_root(|| set_attr(c".", everywhere, &attr)).map_err(step(
        "make the mounts private and nodev",
        "Linux 5.12 or newer is needed; in a container, mount_setattr(2) and CAP_SYS_CHROOT must \
         be allowed",
    ))?;
    for mount in list().map_err(step("read /proc/self/mountinfo", ""))? {
        if READ_ONLY_TYPES.iter().any(|(fstype, _)| mount.fstype == *fstype) {
            unless_covered(change(&mount.point, ATTR_RDONLY, 0))
                .map_err(step(format!("make {} read-only", mount.point.display()), ""))?;
        }
    }
    if Path::new(PROC_PCI).exists() {
        rustix::mount::mount_bind(PROC_PCI, PROC_PCI)
            .map_err(io::Error::from)
            .and_then(|()| change(Path::new(PROC_PCI), ATTR_RDONLY | ATTR_NODEV, 0))
            .map_err(step(format!("make {PROC_PCI} read-only"), ""))?;
    }
    Ok(())
}

/// A mount that another one covers cannot be named; nor can the guest reach it, since it cannot
/// unmount what covers it.
pub(super) fn unless_covered(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOENT | libc::ENOTDIR)) => {
            Ok(())
        }
        // Below a directory that a caller without privileges may not pass, and so the guest.
        Err(e) if e.raw_os_error() == Some(libc::EACCES) => Ok(()),
        other => other,
    }
}

/// Does something in the root directory of the whole namespace, which a caller in a chroot (and a
/// guest with CAP_SYS_CHROOT) can climb to.
fn at_namespace_root(action: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty())?;
    rustix::process::chdir("/")?;
    // With the root below the working directory, nothing stops ".." on its way up.
    rustix::process::chroot("/proc")?;
    let mut here = identity()?;
    loop {
        rustix::process::chdir("..")?;
        let above = identity()?;
        if above == here {
            break;
        }
        here = above;
    }
    let result = action();
    rustix::process::fchdir(&root)?;
    rustix::process::chroot(".")?;
    result
}

fn identity() -> io::Result<(u64, u64)> {
    let stat = rustix::fs::statx(CWD, ".", AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
    Ok((stat.stx_mnt_id, stat.stx_ino))
}

/// Shows the network interfaces of the network namespace that was entered: sysfs belongs to the
/// namespace that mounts it.
pub(super) fn fresh_sysfs() -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let cgroups = rustix::mount::open_tree(CWD, CGROUP_DIR, flags).ok();
    let restricted =
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    rustix::mount::mount("sysfs", "/sys", "sysfs", restricted, None::<&CStr>)?;
    if let Some(tree) = cgroups {
        let by_fd = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        // Where the new sysfs has no such directory, cgroups are not in use.
        let _ = rustix::mount::move_mount(tree.as_fd(), "", CWD, CGROUP_DIR, by_fd);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_understood() {
        let text = b"24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,mode=755\n\
            36 35 98:0 /mnt1 /mnt\\0402 rw,nodev,noatime master:1 shared:7 - ext3 /dev/root rw\n\
            short line\n\
            29 26 0:26 /null /dev/null rw - devtmpfs dev rw\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].point, Path::new("/dev"));
        assert!(!mounts[0].nodev);
        assert_eq!(mounts[1].point, Path::new("/mnt 2"));
        assert_eq!(mounts[1].root, Path::new("/mnt1"));
        assert!(mounts[1].nodev);
        assert_eq!(mounts[1].fstype, "ext3");
        assert_eq!(mounts[2].root, Path::new("/null"));
    }

    #[test]
    fn a_lone_backslash_is_kept() {
        assert_eq!(unescape(b"a\\b\\04"), Path::new("a\\b\\04"));
        assert_eq!(unescape(b"\\134\\011"), Path::new("\\\t"));
    }
}
