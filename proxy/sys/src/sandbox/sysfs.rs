//! `/sys` of the guest: a FUSE file system that the supervisor serves, with some of the host's own
//! directories mounted into it.
//!
//! The child makes the mount, in the guest's mount and user namespace (the kernel wants `/dev/fuse`
//! opened in that user namespace, fs/fuse/inode.c), and hands the mount's descriptor to the
//! supervisor. Mounting into `/sys` takes lookups, so the supervisor serves before the child goes
//! on.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::mount::MountFlags;

use super::error::SetUpError;
use super::error::step;
use super::handoff;
use super::handoff::Served;
use super::keep::Keep;
use crate::Tgid;

const FUSE_DEVICE: &str = "/dev/fuse";
const SYS: &str = "/sys";

/// Who serves a guest's `/sys`, and what of the host's stays.
#[derive(Clone, Copy)]
pub struct Sysfs<'a> {
    /// What stays the host's own.
    pub keep: Keep<'a>,
    /// Called in the supervisor, once, with the child, which is in its namespaces, and what it
    /// takes; returns when it is being served.
    pub serve: &'a dyn Fn(Tgid, Served) -> io::Result<()>,
}

impl std::fmt::Debug for Sysfs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sysfs").field("keep", &self.keep).finish_non_exhaustive()
    }
}

/// Covers `/sys`. Where FUSE is not to be had, the supervisor is told, and the guest keeps the
/// host's.
pub(super) fn cover(keep: Keep<'_>, socket: BorrowedFd<'_>) -> Result<(), SetUpError> {
    let host = match open_sys() {
        Ok(host) => host,
        Err(why) => {
            handoff::without_sysfs(socket, &why);
            return Ok(());
        }
    };
    let served = match open_fuse().and_then(mount) {
        Ok(served) => served,
        Err(why) => {
            handoff::without_sysfs(socket, &why);
            return Ok(());
        }
    };
    handoff::offer_sysfs(socket, &served).map_err(step(
        "hand /dev/fuse to the supervisor",
        "is this process's descriptor table \
                                                           full?",
    ))?;
    // A guest that held it could answer for the supervisor.
    drop(served);
    if !handoff::wait_for_go(socket) {
        return Err(SetUpError::Step {
            what: "have /sys served".to_owned(),
            source: io::ErrorKind::NotConnected.into(),
            remedy: "see the supervisor's error; --sysfs host does without",
        });
    }
    let failed = |source: io::Error| SetUpError::Step {
        what: format!("keep the host's own in {SYS}"),
        source,
        remedy: "--sysfs host does without",
    };
    let covered = open_sys().map_err(io::Error::other).map_err(failed)?;
    keep.place(host.as_fd(), covered.as_fd()).map_err(failed)
}

/// The error says what could not be done.
fn open_sys() -> Result<OwnedFd, String> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(SYS, path, Mode::empty())
        .map_err(|e| format!("cannot open {SYS}: {e}; is sysfs mounted there?"))
}

/// The error says what could not be done, and what to do about it.
pub(super) fn open_fuse() -> Result<OwnedFd, String> {
    rustix::fs::open(FUSE_DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|e| {
        format!(
            "cannot open {FUSE_DEVICE}: {}; load the module fuse, and let the caller read and \
             write the node",
            io::Error::from(e)
        )
    })
}

/// The error as above.
fn mount(fuse: OwnedFd) -> Result<Served, String> {
    let root = open_sys()?;
    let options = format!(
        "fd={},rootmode=40755,user_id={},group_id={},default_permissions,allow_other,max_read=4096",
        fuse.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    let options = CString::new(options).map_err(|e| e.to_string())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    rustix::mount::mount("verbgate", SYS, "fuse", flags, Some(options.as_c_str())).map_err(
        |e| {
            format!(
                "cannot mount FUSE over {SYS}: {}; is the module fuse loaded?",
                io::Error::from(e)
            )
        },
    )?;
    Ok(Served { fuse, root })
}
