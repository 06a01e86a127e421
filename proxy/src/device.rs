//! The devices that a sandbox was granted.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use verbgate_abi::wire::DriverId;
use verbgate_sys::node;
use verbgate_sys::node::MountId;
use verbgate_sys::node::Pin;
use verbgate_sys::process;
use verbgate_sys::shortage;
use verbgate_sys::token::Token;
use verbgate_sys::token::Tokens;
use verbgate_sys::verbs;
use verbgate_sysfs::Identity;
use verbgate_sysfs::Replaced;

use crate::policy::Left;
use crate::policy::Narrowing;

/// A granted device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name in the guest's `/dev/infiniband`, e.g. `uverbs0`.
    pub name: String,
    /// Major and minor number: where it is, and by what a file of it is recognised.
    pub rdev: (u32, u32),
    /// Which device it is.
    pub identity: Watched,
    /// The node on the host.
    pub source: PathBuf,
    /// What it speaks.
    pub kind: Kind,
    /// Ports that requests may name, from 1; all when there are none.
    pub ports: Option<Vec<u32>>,
}

/// Which device was granted, and where that can be looked up.
#[derive(Clone, Debug)]
pub struct Watched {
    identity: Identity,
    /// The root of sysfs.
    sysfs: PathBuf,
    /// What was found and told instead, last: a guest that tries again and again fills no log.
    told: Arc<Mutex<Option<Replaced>>>,
}

impl Watched {
    /// The device of an identity that was read below a sysfs root.
    #[must_use]
    pub fn new(identity: Identity, sysfs: &Path) -> Self {
        Self { identity, sysfs: sysfs.to_owned(), told: Arc::default() }
    }

    /// The identity.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the number still leads to this device; to be asked after the use
    /// ([`verbgate_sysfs::identity`]). Another answer than the last one is logged.
    ///
    /// # Errors
    /// `ENXIO` when it does not.
    pub fn check(&self, name: &str) -> io::Result<()> {
        // Looked at twice: a device that cannot be looked at for want of a descriptor is not replaced.
        let looked = self.identity.check_below(&self.sysfs);
        let Err(replaced) = looked.or_else(|_| self.identity.check_below(&self.sysfs)) else {
            return Ok(());
        };
        let mut told = self.told.lock();
        if told.as_ref() != Some(&replaced) {
            log::warn!("the supervisor refuses to open {name} (ENXIO): {replaced}");
            *told = Some(replaced);
        }
        Err(io::Error::from_raw_os_error(libc::ENXIO))
    }
}

/// What a device speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Verbs.
    Verbs {
        /// Its driver ([`driver`]).
        driver: DriverId,
        /// By which RDMA netlink and the connection manager know it ([`crate::index_of`]); none of
        /// a stand-in.
        index: Option<u32>,
    },
    /// The connection manager's commands: `rdma_cm`.
    Cm,
}

impl Kind {
    /// Whether its descriptors are of use at numbers that are not watched, at which what is written
    /// to them does not reach the supervisor, and the kernel refuses it: they are where doorbells
    /// are memory. Software devices ring by write(2), and rdma_cm knows nothing else.
    #[must_use]
    pub fn works_unwatched(self) -> bool {
        let Self::Verbs { driver, .. } = self else { return false };
        ![DriverId::UNKNOWN, DriverId::RXE, DriverId::SIW].contains(&driver)
    }
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

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.0.iter()
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
    /// What a reload of the operator's policy leaves of the device.
    #[must_use]
    pub fn left_by(&self, narrowing: &Narrowing) -> Left {
        if self.kind == Kind::Cm {
            return Left::Ports(None);
        }
        let identity = self.identity.identity();
        let names = [identity.ibdev(), identity.uverbs(), Some(&*self.name)];
        let names: Vec<&str> = names.into_iter().flatten().collect();
        narrowing.left(identity.parent(), &names, self.ports.as_deref())
    }

    /// By which RDMA netlink and the connection manager know it.
    #[must_use]
    pub fn index(&self) -> Option<u32> {
        match self.kind {
            Kind::Verbs { index, .. } => index,
            Kind::Cm => None,
        }
    }

    /// Opens the host's node for a guest, with those of the guest's flags that matter, and tells
    /// by which mount the open is known ([`node`]); by none where the supervisor may not mount.
    ///
    /// Neither the path nor the number says which device was opened. The driver gives the minor to
    /// the next device as soon as one is removed, open files or not (`ib_uverbs_remove_one`,
    /// drivers/infiniband/core/uverbs_main.c), so the open file does not keep the number, and its
    /// own number would be that of both. What settles it is the order: the identity is compared
    /// *after* the open. The kernel shows a device in sysfs only while its node can be opened (made
    /// later, removed earlier), and no identity comes twice; so one that is still there was there
    /// during the open, and had the number alone. If it is replaced after the comparison, the file
    /// is nevertheless the granted device's, and fails as the kernel has it fail.
    ///
    /// # Errors
    /// open(2)'s; `ENXIO` when the node is no longer the device that was granted.
    pub fn open(&self, flags: i32) -> io::Result<(File, Option<(MountId, Pin)>)> {
        let keep = flags & (libc::O_NONBLOCK | libc::O_CLOEXEC);
        self.opened_by(|source| match node::open(source, keep) {
            Ok((file, mount, pin)) => Ok((file, Some((mount, pin)))),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                let mut options = File::options();
                (options.read(true).write(true).custom_flags(keep).open(source)).map(|f| (f, None))
            }
            Err(e) => Err(e),
        })
    }

    /// Opens the host's node as [`Device::open`] does, through a file system that ends with the last
    /// duplicate of the file.
    pub(crate) fn open_with_end(&self, flags: i32, tokens: &Tokens) -> io::Result<(File, Token)> {
        let keep = flags & (libc::O_NONBLOCK | libc::O_CLOEXEC);
        let mut made = None;
        let (file, _) = self.opened_by(|source| {
            let node = std::fs::metadata(source)?;
            let (file, token) = tokens.open(c"device", node.rdev(), keep)?;
            made = Some(token);
            Ok((file, None))
        })?;
        Ok((file, made.ok_or(io::ErrorKind::NotFound)?))
    }

    fn opened_by(
        &self,
        open: impl FnOnce(&Path) -> io::Result<(File, Option<(MountId, Pin)>)>,
    ) -> io::Result<(File, Option<(MountId, Pin)>)> {
        let opened = open(&self.source);
        if opened.as_ref().is_err_and(shortage::is) {
            return opened;
        }
        // Also of a node that is gone or dead: why it is, is what the operator wants to know.
        self.identity.check(&self.name)?;
        let (file, mount) = opened?;
        if process::char_device(file.as_fd())? == Some(self.rdev) {
            Ok((file, mount))
        } else {
            Err(io::Error::from_raw_os_error(libc::ENXIO))
        }
    }
}

#[cfg(test)]
mod tests {
    use verbgate_sysfs::DevNumber;
    use verbgate_sysfs_fixtures::Changing;
    use verbgate_sysfs_fixtures::Software;

    use super::*;

    /// The null device stands for the node of an RDMA device.
    const GRANTED: Software<'_> = Software {
        number: (1, 3),
        node: "uverbs9",
        ibdev: "rxe0",
        node_guid: "0000:0000:0000:0000",
        function: Some("0000:03:00.4"),
    };

    fn device(sysfs: &Path) -> Device {
        let identity = Identity::below(sysfs, DevNumber { major: 1, minor: 3 }).unwrap();
        Device {
            name: "uverbs9".into(),
            rdev: (1, 3),
            identity: Watched::new(identity, sysfs),
            source: "/dev/null".into(),
            kind: Kind::Verbs { driver: DriverId::UNKNOWN, index: Some(7) },
            ports: None,
        }
    }

    fn errno(device: &Device) -> Option<i32> {
        device.open(libc::O_CLOEXEC).err().and_then(|e| e.raw_os_error())
    }

    #[test]
    fn a_device_is_found_by_the_paths_that_libraries_open() {
        let devices: Devices = vec![device(Path::new("/sys"))].into();
        let find = |path: &str| devices.by_path(OsStr::new(path));
        assert_eq!(find("/dev/infiniband/uverbs9"), Some(0));
        assert_eq!(find("/dev/char/1:3"), Some(0));
        assert_eq!(find("/dev/infiniband/uverbs1"), None);
        assert_eq!(find("/dev/infiniband/../null"), None);
        assert_eq!(find("/dev/char/1:4"), None);
        assert_eq!(find("uverbs9"), None);
    }

    #[test]
    fn a_node_that_is_no_uverbs_device_has_no_driver() {
        assert_eq!(driver(Path::new("/dev/null")).unwrap(), DriverId::UNKNOWN);
    }

    #[test]
    fn a_node_with_another_number_is_not_opened() {
        let device = device(Path::new("/sys"));
        device.open(libc::O_CLOEXEC).unwrap();
        assert_eq!(errno(&Device { rdev: (1, 5), ..device }), Some(libc::ENXIO));
    }

    #[test]
    fn a_device_in_the_place_of_the_granted_one_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let host = Changing::new(dir.path()).unwrap();
        host.add(&GRANTED).unwrap();
        let device = device(dir.path());
        assert_eq!(errno(&device), None);
        let renamed = host.rename(&GRANTED, "rxe7").unwrap();
        assert_eq!(errno(&device), None, "it is the same");
        // The same number, names, function, and neither has a node GUID.
        host.remove(&renamed).unwrap();
        host.add(&GRANTED).unwrap();
        assert_eq!(errno(&device), Some(libc::ENXIO));
        // Said once, whoever holds a copy, and until there is something else to be said.
        let told = || device.identity.told.lock().clone().unwrap();
        let first = told();
        assert_eq!(errno(&device.clone()), Some(libc::ENXIO));
        assert_eq!(told(), first);
        host.remove(&GRANTED).unwrap();
        assert_eq!(errno(&device), Some(libc::ENXIO));
        assert!(told() != first && told().to_string().contains("no device"), "{}", told());
    }

    #[test]
    fn a_stand_in_becomes_no_rdma_device() {
        let dir = tempfile::tempdir().unwrap();
        let host = Changing::new(dir.path()).unwrap();
        let device = device(dir.path());
        assert_eq!(errno(&device), None);
        host.add(&GRANTED).unwrap();
        assert_eq!(errno(&device), Some(libc::ENXIO));
    }

    #[test]
    fn a_device_that_is_replaced_while_it_is_opened_is_not_handed_out() {
        let dir = tempfile::tempdir().unwrap();
        let host = Changing::new(dir.path()).unwrap();
        host.add(&GRANTED).unwrap();
        let device = device(dir.path());
        let replace = || {
            host.remove(&GRANTED).unwrap();
            host.add(&GRANTED).unwrap();
        };
        let opened = device.opened_by(|source| {
            // Before this nobody could have told; the file is of the other one.
            replace();
            Ok((File::options().read(true).write(true).open(source)?, None))
        });
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::ENXIO));
        assert_eq!(errno(&device), Some(libc::ENXIO));
    }
}
