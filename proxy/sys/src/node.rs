//! Opening a device node so that the open file does not lead back to it.
//!
//! Whoever holds a descriptor can open its file anew through `/proc/self/fd`, by the path that it
//! was opened by: mount and all. A uverbs file that a guest opened in that way would be its own in
//! the kernel's eyes, which would take commands from it by write(2). So each open goes through a
//! mount of its own, made for it, that belongs to no namespace, and that stops honouring device
//! nodes as soon as the file is open. The number of that mount then names this open, too: no file
//! opened by anyone else has it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::fs::StatxFlags;
use rustix::mount::OpenTreeFlags;

use crate::sandbox::mounts;

/// Names one open of a device by the supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MountId(u64);

/// Opens a node for reading and writing, through a mount of its own.
///
/// # Errors
/// open(2)'s; `EPERM` without CAP_SYS_ADMIN.
pub fn open(node: &Path, flags: i32) -> io::Result<(File, MountId)> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(rustix::fs::CWD, node, clone)?;
    let within = format!("/proc/self/fd/{}", mount.as_raw_fd());
    let file = File::options().read(true).write(true).custom_flags(flags).open(within)?;
    mounts::refuse_devices(mount.as_fd())?;
    let id = mount_id(file.as_fd())?;
    Ok((file, id))
}

/// The number of the mount that a file was opened through.
///
/// # Errors
/// statx(2)'s.
pub fn mount_id(file: BorrowedFd<'_>) -> io::Result<MountId> {
    // STATX_MNT_ID, Linux 5.8.
    let want = StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, want)?;
    Ok(MountId(stat.stx_mnt_id))
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
        let (file, id) = open(Path::new("/dev/null"), 0).unwrap();
        for options in [File::options().read(true), File::options().write(true)] {
            let error = again(&file, options).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        }
        let (other, other_id) = open(Path::new("/dev/null"), 0).unwrap();
        assert_ne!(id, other_id);
        assert_eq!(mount_id(other.as_fd()).unwrap(), other_id);
        assert_ne!(mount_id(plain.as_fd()).unwrap(), id);
        assert_eq!(
            open(Path::new("/nonexistent"), 0).unwrap_err().raw_os_error(),
            Some(libc::ENOENT)
        );
    }
}
