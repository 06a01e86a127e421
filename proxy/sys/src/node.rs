//! The opening of a device node, so that the open file does not lead back to the node.
//!
//! A process with a descriptor can open the descriptor's file again through `/proc/self/fd`, by the
//! path of the first open, mount and all. A uverbs file that a guest opened in that way would be
//! the guest's own in the kernel's eyes, and the kernel would take commands from the guest by
//! write(2). So each open goes through a mount of its own, made for this open, that belongs to no
//! namespace, and that stops honouring device nodes as soon as the file is open. That mount then
//! also names this open: no file opened by anyone else was opened through that mount.
//!
//! The kernel gives the number of a mount again when the mount is gone. So a number is kept
//! together with the thing that keeps the mount there ([`Pin`]), which does not keep the device
//! open. Since Linux 6.8 there are numbers that are never given again, and nothing to pin.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::fs::StatxFlags;
use rustix::mount::OpenTreeFlags;

use crate::sandbox::mounts;

/// Names one open of a device by the supervisor, as long as its [`Pin`] is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MountId(u64);

impl From<u64> for MountId {
    /// The number as statx(2) tells it.
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Keeps the number of a mount from being given again.
#[derive(Debug)]
pub struct Pin(Option<OwnedFd>);

impl Pin {
    /// One that keeps this descriptor of the mount open, or needs none.
    #[must_use]
    pub const fn new(mount: Option<OwnedFd>) -> Self {
        Self(mount)
    }

    /// Whether it takes a descriptor.
    #[must_use]
    pub fn takes_descriptor(&self) -> bool {
        self.0.is_some()
    }
}

/// `STATX_MNT_ID_UNIQUE`, include/uapi/linux/stat.h: Linux 6.8.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Opens a node for reading and writing, through a mount of its own.
///
/// # Errors
/// open(2)'s; `EPERM` without CAP_SYS_ADMIN.
pub fn open(node: &Path, flags: i32) -> io::Result<(File, MountId, Pin)> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(rustix::fs::CWD, node, clone)?;
    let within = format!("/proc/self/fd/{}", mount.as_raw_fd());
    let file = File::options().read(true).write(true).custom_flags(flags).open(within)?;
    // A guest that is root reaches the node by the same path, and is to change neither its mode nor its owner.
    mounts::refuse_devices(mount.as_fd())?;
    mounts::refuse_changes(mount.as_fd())?;
    let (id, unique) = named(&rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, WANTED)?)?;
    Ok((file, id, Pin((!unique).then_some(mount))))
}

/// The number of the mount that a file was opened through.
///
/// # Errors
/// statx(2)'s.
pub fn mount_id(file: BorrowedFd<'_>) -> io::Result<MountId> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(named(&rustix::fs::statx(file, c"", flags, WANTED)?)?.0)
}

/// The inode of a file: device number (major, minor) and its own number. No file system is asked: the
/// file's may be served by a guest.
///
/// # Errors
/// statx(2)'s.
pub fn inode(file: BorrowedFd<'_>) -> io::Result<FileId> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(file, c"", flags, StatxFlags::INO)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

/// Names an inode while somebody keeps the inode's file open.
pub type FileId = (u32, u32, u64);

/// The same, and whether it is never given again.
pub(crate) fn mount_for_ever(file: BorrowedFd<'_>) -> io::Result<(MountId, bool)> {
    named(&rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, WANTED)?)
}

/// The same of what a path leads to.
pub(crate) fn mount_at(folder: BorrowedFd<'_>, path: &str) -> io::Result<MountId> {
    crate::count_call();
    // Of a file of the guest's own, whose server may never answer, what is known will do.
    let flags = AtFlags::STATX_DONT_SYNC;
    Ok(named(&rustix::fs::statx(folder, path, flags, WANTED)?)?.0)
}

/// Kernels before 6.8 do not know the second and fill in the first, Linux 5.8.
const WANTED: StatxFlags = StatxFlags::MNT_ID.union(MNT_ID_UNIQUE);

/// A mount's number, and whether it is never given again.
fn named(stat: &rustix::fs::Statx) -> io::Result<(MountId, bool)> {
    let has = StatxFlags::from_bits_retain(stat.stx_mask);
    if !has.intersects(WANTED) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok((MountId(stat.stx_mnt_id), has.contains(MNT_ID_UNIQUE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_device_does_not_lead_back_to_its_node() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounting needs root");
            return;
        }
        let again = |file: &File, options: &mut std::fs::OpenOptions| {
            options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        };
        let plain = File::options().read(true).write(true).open("/dev/null").unwrap();
        assert!(again(&plain, File::options().write(true)).is_ok(), "the attack works natively");
        let (file, id, _pin) = open(Path::new("/dev/null"), 0).unwrap();
        for options in [File::options().read(true), File::options().write(true)] {
            let error = again(&file, options).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        }
        let by_path = |file: &File| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            std::fs::set_permissions(path, file.metadata().unwrap().permissions())
        };
        assert!(by_path(&plain).is_ok(), "natively the mode can be set");
        assert_eq!(by_path(&file).unwrap_err().raw_os_error(), Some(libc::EROFS));
        let (other, other_id, _other_pin) = open(Path::new("/dev/null"), 0).unwrap();
        assert_ne!(id, other_id);
        assert_eq!(mount_id(other.as_fd()).unwrap(), other_id);
        assert_ne!(mount_id(plain.as_fd()).unwrap(), id);
        assert_eq!(
            open(Path::new("/nonexistent"), 0).unwrap_err().raw_os_error(),
            Some(libc::ENOENT)
        );
    }
}
