//! Devices that a sandbox was granted.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use verbgate_abi::wire::DriverId;
use verbgate_sys::node;
use verbgate_sys::node::MountId;
use verbgate_sys::node::Pin;
use verbgate_sys::process;
use verbgate_sys::verbs;

/// A granted device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// Its name in the guest's `/dev/infiniband`, e.g. `uverbs0`.
    pub name: String,
    /// Major and minor number.
    pub rdev: (u32, u32),
    /// The node on the host.
    pub source: PathBuf,
    /// What it speaks.
    pub kind: Kind,
}

/// What a device speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Verbs.
    Verbs {
        /// Its driver ([`driver`]).
        driver: DriverId,
        /// By which the connection manager knows it, if that is known.
        node_guid: Option<u64>,
    },
    /// The connection manager's commands: `rdma_cm`.
    Cm,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Which of its devices a sandbox finds: one that it cannot use is left out of sysfs, and so of the
/// other ways.
pub trait DeviceView: Send + Sync {
    /// Whether it finds the device of a node, such as `uverbs0`.
    fn shows(&self, node: &str) -> bool;
}

/// The devices of a sandbox. An index into them names a device.
#[derive(Clone, Debug, Default)]
pub struct Devices(Vec<Device>);

impl From<Vec<Device>> for Devices {
    fn from(devices: Vec<Device>) -> Self {
        Self(devices)
    }
}

impl Devices {
    /// The device of an index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Device> {
        self.0.get(index)
    }

    /// The device that a guest means by a path: `/dev/infiniband/NAME`, or `/dev/char/M:m`, by
    /// which rdma-core opens a device whose node is late.
    #[must_use]
    pub fn by_path(&self, path: &OsStr) -> Option<usize> {
        let path = path.to_str()?;
        if let Some(name) = path.strip_prefix("/dev/infiniband/") {
            return self.0.iter().position(|device| device.name == name);
        }
        let (major, minor) = path.strip_prefix("/dev/char/")?.split_once(':')?;
        self.by_rdev((major.parse().ok()?, minor.parse().ok()?))
    }

    /// Whether there is one that speaks this.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.0.iter().any(|device| device.kind == kind)
    }

    /// Whether a verbs device has this node GUID.
    #[must_use]
    pub fn has_guid(&self, guid: u64) -> bool {
        let is_it = |device: &Device| matches!(device.kind, Kind::Verbs { node_guid, .. } if node_guid == Some(guid));
        self.0.iter().any(is_it)
    }

    /// The index of the first that is so.
    pub fn position(&self, is: impl Fn(&Device) -> bool) -> Option<usize> {
        self.0.iter().position(is)
    }

    /// The device of a number.
    #[must_use]
    pub fn by_rdev(&self, rdev: (u32, u32)) -> Option<usize> {
        self.0.iter().position(|device| device.rdev == rdev)
    }
}

/// More than `enum rdma_driver_id` has numbers, with room for drivers of kernels to come.
const MOST_DRIVERS: u32 = 63;

/// Which driver serves a device node, asked of the device itself; `UNKNOWN` when the node is no
/// uverbs device.
///
/// # Errors
/// When the node cannot be opened.
pub fn driver(source: &Path) -> io::Result<DriverId> {
    let file = File::options().read(true).write(true).open(source)?;
    let all = (0..=MOST_DRIVERS).find(|id| verbs::is_driver(file.as_fd(), *id));
    Ok(all.map_or(DriverId::UNKNOWN, DriverId))
}

impl Device {
    /// Opens the host's node for a guest, with those of the guest's flags that matter, and tells
    /// by which mount the open is known ([`node`]); by none where the supervisor may not mount.
    ///
    /// # Errors
    /// open(2)'s; `ENXIO` when the node is no longer the device that was granted.
    pub fn open(&self, flags: i32) -> io::Result<(File, Option<(MountId, Pin)>)> {
        let keep = flags & (libc::O_NONBLOCK | libc::O_CLOEXEC);
        let (file, mount) = match node::open(&self.source, keep) {
            Ok((file, mount, pin)) => (file, Some((mount, pin))),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                let mut options = File::options();
                (options.read(true).write(true).custom_flags(keep).open(&self.source)?, None)
            }
            Err(e) => return Err(e),
        };
        if process::char_device(file.as_fd())? == Some(self.rdev) {
            Ok((file, mount))
        } else {
            Err(io::Error::from_raw_os_error(libc::ENXIO))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Devices {
        vec![Device {
            name: "uverbs9".into(),
            rdev: (1, 3),
            source: "/dev/null".into(),
            kind: Kind::Verbs { driver: DriverId::UNKNOWN, node_guid: Some(7) },
        }]
        .into()
    }

    #[test]
    fn a_device_is_found_by_the_paths_that_libraries_open() {
        let find = |path: &str| devices().by_path(OsStr::new(path));
        assert_eq!(find("/dev/infiniband/uverbs9"), Some(0));
        assert_eq!(find("/dev/char/1:3"), Some(0));
        assert_eq!(find("/dev/infiniband/uverbs1"), None);
        assert_eq!(find("/dev/infiniband/../null"), None);
        assert_eq!(find("/dev/char/1:4"), None);
        assert_eq!(find("uverbs9"), None);
        assert!(devices().has_guid(7) && !devices().has_guid(8));
    }

    #[test]
    fn a_node_that_is_no_uverbs_device_has_no_driver() {
        assert_eq!(driver(Path::new("/dev/null")).unwrap(), DriverId::UNKNOWN);
    }

    #[test]
    fn a_node_that_changed_is_not_opened() {
        let device = devices().get(0).cloned().unwrap();
        device.open(libc::O_CLOEXEC).unwrap();
        let other = Device { rdev: (1, 5), ..device };
        assert_eq!(other.open(0).unwrap_err().raw_os_error(), Some(libc::ENXIO));
    }
}
