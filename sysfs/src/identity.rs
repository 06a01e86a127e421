//! The identity of a device: which device a grant is of.
//!
//! A device number says where a device is, not which one: drivers give minors again, so after
//! `rdma link del` and `rdma link add`, or when virtual functions go and come, another device
//! answers at the same number, often with the same name. sysfs tells them apart. Each registration
//! of a device makes a new directory there, whose inode number the kernel gives to no other
//! directory until it is booted again (`kernfs_ino`, fs/kernfs/dir.c: a counter of 64 bits), in
//! whichever mount and network namespace sysfs is looked at. Node GUID and PCI parent are compared
//! besides, for what is no kernel's sysfs.
//!
//! An identity does not compare names. `rdma dev set NAME name OTHER` leaves the device the same,
//! and gives its former name to nobody's grant.
//!
//! **Why a comparison after the use is enough.** An identity comes once and goes once. If a number
//! *still* has the recorded identity, the number had that identity all the time in between: at the
//! `open(2)`, at the `read(2)`, at everything that was done by the number or by a path meanwhile.
//! So: use first, compare then, and throw the result away if the identity differs. The other order
//! leaves a moment in which the device can be replaced.

use std::fmt;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use serde::Deserialize;
use serde::Serialize;

use crate::collect::DevNumber;
use crate::collect::is_device_name;
use crate::names;

/// Longer than any attribute that is read here.
const MAX_ATTRIBUTE: u64 = 256;

/// How often a device is looked at anew that is renamed in that moment.
const TRIES: u32 = 3;

/// What a device number led to at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The number.
    pub number: DevNumber,
    /// The inode of the device's directory in sysfs; none where sysfs knows no such device.
    inode: Option<u64>,
    /// What sysfs says of the RDMA device; none for other devices, such as a stand-in.
    rdma: Option<RdmaIdentity>,
}

/// An RDMA device as sysfs describes the device of a uverbs node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RdmaIdentity {
    /// The name of the node, as `uverbs0`.
    uverbs: String,
    /// The name of the RDMA device, as `mlx5_0`.
    ibdev: String,
    /// None where it is zero, as a virtual function's is until it is given one, or not to be seen.
    node_guid: Option<u64>,
    /// The last component of where `device` leads: a PCI address; software devices have none.
    parent: Option<String>,
}

/// A number has another identity than the one that was granted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "device {number} was granted as {was}, and is now {is}; start the sandbox again to grant the \
     new device"
)]
pub struct Replaced {
    number: DevNumber,
    was: String,
    is: String,
}

impl Identity {
    /// Reads the identity of a number below a sysfs root.
    ///
    /// # Errors
    /// Those of the file system; `ENODEV` for a device that changes while it is read. A number that
    /// sysfs does not know is an identity like any other.
    pub fn read(root: BorrowedFd<'_>, number: DevNumber) -> io::Result<Self> {
        for _ in 0..TRIES {
            if let Some(identity) = Self::try_read(root, number)? {
                return Ok(identity);
            }
        }
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// The same for a root by its path. Where there is no sysfs, sysfs knows no device.
    ///
    /// # Errors
    /// See [`Identity::read`].
    pub fn below(root: &Path, number: DevNumber) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match known(rustix::fs::open(root, flags, Mode::empty()))? {
            Some(root) => Self::read(root.as_fd(), number),
            None => Ok(Self::unknown(number)),
        }
    }

    /// One look; none when the device was renamed meanwhile.
    fn try_read(root: BorrowedFd<'_>, number: DevNumber) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = place(root, number)?;
        let dir = known(rustix::fs::openat(root, &path, flags, Mode::empty()))?;
        let Some(dir) = dir else { return Ok(Some(Self::unknown(number))) };
        // From here on all is read in this directory, which stays that of one registration.
        let inode = Some(rustix::fs::fstat(&dir)?.st_ino);
        let Some(ibdev) = attribute(dir.as_fd(), "ibdev")? else {
            return Ok(Some(Self { number, inode, rdma: None }));
        };
        let guid = match is_device_name(&ibdev) {
            true => {
                let device = resolved(root, &format!("class/infiniband/{ibdev}"))?;
                attribute(root, &format!("{device}/node_guid"))?
            }
            false => None,
        };
        let parent = link(dir.as_fd(), "device")?;
        let rdma = RdmaIdentity {
            uverbs: names::last(&path).to_owned(),
            node_guid: guid.and_then(|text| guid_of(&text)),
            parent: parent.map(|target| names::last(&target).to_owned()),
            ibdev,
        };
        // The GUID was looked up by a name. As long as the node is there, so is its RDMA device.
        let is_still_called = attribute(dir.as_fd(), "ibdev")?.is_some_and(|it| it == rdma.ibdev);
        Ok(is_still_called.then_some(Self { number, inode, rdma: Some(rdma) }))
    }

    /// That of a number which sysfs does not know.
    #[must_use]
    pub fn unknown(number: DevNumber) -> Self {
        Self { number, inode: None, rdma: None }
    }

    /// Whether what was found now is what was recorded.
    #[must_use]
    pub fn matches(&self, now: &Self) -> bool {
        let same_device = match (&self.rdma, &now.rdma) {
            (None, None) => true,
            (Some(was), Some(is)) => {
                let guid = was.node_guid.is_none() || was.node_guid == is.node_guid;
                guid && was.parent == is.parent
            }
            _ => false,
        };
        self.number == now.number && self.inode == now.inode && same_device
    }

    /// Looks whether the number still has this identity. To be called after the use (see the
    /// module).
    ///
    /// # Errors
    /// What there is instead. What cannot be read is another identity.
    pub fn check(&self, root: BorrowedFd<'_>) -> Result<(), Replaced> {
        self.compare(Self::read(root, self.number))
    }

    /// The same for a root by its path.
    ///
    /// # Errors
    /// See [`Identity::check`].
    pub fn check_below(&self, root: &Path) -> Result<(), Replaced> {
        self.compare(Self::below(root, self.number))
    }

    fn compare(&self, now: io::Result<Self>) -> Result<(), Replaced> {
        let is = match now {
            Ok(now) if self.matches(&now) => return Ok(()),
            Ok(now) => now.to_string(),
            Err(e) => format!("a device that cannot be identified ({e})"),
        };
        Err(Replaced { number: self.number, was: self.to_string(), is })
    }

    /// The same in two system calls, for what is asked often: whether the number still leads to the
    /// same directory. What of one registration can change, changes nothing about which it is.
    #[must_use]
    pub fn stands(&self, root: BorrowedFd<'_>) -> bool {
        let now = place(root, self.number).and_then(|path| inode(root, &path));
        now.is_ok_and(|now| now == self.inode)
    }

    /// The name of the node, as `uverbs0`, if this is an RDMA device.
    #[must_use]
    pub fn uverbs(&self) -> Option<&str> {
        self.rdma.as_ref().map(|rdma| &*rdma.uverbs)
    }

    /// The device's parent in sysfs: of a PCI device the address, as `0000:3b:00.2`; none of a
    /// software device.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.rdma.as_ref()?.parent.as_deref()
    }

    /// The name that the RDMA device had, as `mlx5_0`.
    #[must_use]
    pub fn ibdev(&self) -> Option<&str> {
        self.rdma.as_ref().map(|rdma| &*rdma.ibdev)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(inode) = self.inode else { return f.write_str("no device that sysfs knows") };
        match &self.rdma {
            None => write!(f, "a device without RDMA (sysfs inode {inode})"),
            Some(RdmaIdentity { uverbs, ibdev, node_guid, parent }) => {
                write!(f, "{ibdev} ({uverbs}, ")?;
                match node_guid {
                    Some(guid) => write!(f, "node GUID {guid:016x}, ")?,
                    None => f.write_str("no node GUID, ")?,
                }
                if let Some(parent) = parent {
                    write!(f, "of {parent}, ")?;
                }
                write!(f, "sysfs inode {inode})")
            }
        }
    }
}

/// Where sysfs has the device of a number: a link leads there that the kernel makes and removes
/// with it.
fn place(root: BorrowedFd<'_>, DevNumber { major, minor }: DevNumber) -> io::Result<String> {
    resolved(root, &format!("dev/char/{major}:{minor}"))
}

/// Where an entry of a class leads, as a path without links.
///
/// The kernel must not follow the link: it goes up to the root and down again, and on the root of
/// a guest's sysfs lies what is served to the guest, which would wait for itself.
fn resolved(root: BorrowedFd<'_>, entry: &str) -> io::Result<String> {
    let target = link(root, entry)?;
    let target = target.and_then(|target| names::follow(entry, &target));
    // Nothing, or a directory in a tree made by hand.
    Ok(target.unwrap_or_else(|| entry.to_owned()))
}

/// The inode of what is at a path; none when there is nothing.
///
/// # Errors
/// stat(2)'s others.
pub(crate) fn inode(root: BorrowedFd<'_>, path: &str) -> io::Result<Option<u64>> {
    let stat = known(rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW))?;
    Ok(stat.map(|stat| stat.st_ino))
}

/// What is not there is nothing, and no error. `ENODEV` and `ENOTDIR` are what is left of a device
/// that goes in this moment.
fn known<T>(found: rustix::io::Result<T>) -> io::Result<Option<T>> {
    use rustix::io::Errno;
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NODEV | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The line that an attribute holds.
fn attribute(dir: BorrowedFd<'_>, path: &str) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file: Option<OwnedFd> = known(rustix::fs::openat(dir, path, flags, Mode::empty()))?;
    let Some(file) = file else { return Ok(None) };
    let mut text = String::new();
    match File::from(file).take(MAX_ATTRIBUTE).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text.trim_end().to_owned())),
        // Removed since it was opened.
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The target of a link; none when there is no link.
fn link(dir: BorrowedFd<'_>, path: &str) -> io::Result<Option<String>> {
    use rustix::io::Errno;
    let target = match rustix::fs::readlinkat(dir, path, Vec::new()) {
        Err(Errno::INVAL) => return Ok(None),
        other => known(other)?,
    };
    Ok(target.map(|target| target.to_string_lossy().into_owned()))
}

/// A node GUID as sysfs writes it, `5054:00ff:fe12:3456`; none for zero and for anything else.
fn guid_of(text: &str) -> Option<u64> {
    u64::from_str_radix(&text.replace(':', ""), 16).ok().filter(|guid| *guid != 0)
}

#[cfg(test)]
mod tests {
    use verbgate_sysfs_fixtures::Changing;
    use verbgate_sysfs_fixtures::Software;

    use super::*;

    const NUMBER: DevNumber = DevNumber { major: 231, minor: 192 };
    const RXE: Software<'_> = Software {
        number: (231, 192),
        node: "uverbs0",
        ibdev: "rxe0",
        node_guid: "5054:00ff:fe12:3456",
        function: None,
    };
    const VF: Software<'_> = Software {
        ibdev: "mlx5_3",
        node_guid: "0000:0000:0000:0000",
        function: Some("0000:03:00.4"),
        ..RXE
    };

    fn host() -> (tempfile::TempDir, Changing) {
        let dir = tempfile::tempdir().unwrap();
        let host = Changing::new(dir.path()).unwrap();
        (dir, host)
    }

    fn seen(dir: &tempfile::TempDir) -> Identity {
        Identity::below(dir.path(), NUMBER).unwrap()
    }

    /// Whether a grant of `was` still holds, as each of the ways finds.
    fn holds(dir: &tempfile::TempDir, was: &Identity) -> bool {
        let root = File::open(dir.path()).unwrap();
        let holds = was.matches(&seen(dir));
        assert_eq!(was.check(root.as_fd()).is_ok(), holds);
        assert_eq!(was.check_below(dir.path()).is_ok(), holds);
        assert_eq!(was.stands(root.as_fd()), holds);
        holds
    }

    #[test]
    fn a_device_that_came_in_the_place_of_another_is_another() {
        let others = [
            RXE,
            Software { node_guid: "5054:00ff:fe12:9999", ..RXE },
            Software { ibdev: "rxe1", ..RXE },
            VF,
        ];
        for other in others {
            let (dir, host) = host();
            host.add(&RXE).unwrap();
            let was = seen(&dir);
            assert_eq!((was.uverbs(), was.ibdev()), (Some("uverbs0"), Some("rxe0")));
            assert!(holds(&dir, &was));
            host.remove(&RXE).unwrap();
            assert!(!holds(&dir, &was), "nothing is there");
            host.add(&other).unwrap();
            assert!(!holds(&dir, &was), "{other:?}");
            assert!(holds(&dir, &seen(&dir)));
            let said = was.check_below(dir.path()).unwrap_err().to_string();
            for part in ["231:192 was granted as rxe0 (uverbs0, ", other.ibdev, "start the sandbox"]
            {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    }

    #[test]
    fn a_device_that_is_renamed_is_the_same_and_its_name_is_nobodys() {
        let (dir, host) = host();
        host.add(&RXE).unwrap();
        let was = seen(&dir);
        let renamed = host.rename(&RXE, "rxe7").unwrap();
        assert!(holds(&dir, &was));
        assert_eq!(seen(&dir).ibdev(), Some("rxe7"));
        // Another one takes its name, and then its number, too.
        let other = Software { number: (231, 193), node: "uverbs1", ..RXE };
        host.add(&other).unwrap();
        assert!(holds(&dir, &was));
        host.remove(&renamed).unwrap();
        host.remove(&other).unwrap();
        host.add(&RXE).unwrap();
        assert!(!holds(&dir, &was));
    }

    #[test]
    fn a_node_guid_may_be_given_and_not_be_changed() {
        let (dir, host) = host();
        host.add(&VF).unwrap();
        let (was, file) = (seen(&dir), dir.path().join(VF.path()).join("node_guid"));
        assert!(was.to_string().contains("no node GUID, of 0000:03:00.4"), "{was}");
        std::fs::write(&file, "1122:3344:5566:7788\n").unwrap();
        let given = seen(&dir);
        assert!(was.matches(&given) && given.matches(&given));
        std::fs::write(&file, "1122:3344:5566:7799\n").unwrap();
        assert!(!given.matches(&seen(&dir)));
        // Two without a GUID are told apart all the same.
        host.remove(&VF).unwrap();
        host.add(&VF).unwrap();
        assert!(!holds(&dir, &was));
    }

    #[test]
    fn a_function_with_another_address_is_another() {
        let (dir, host) = host();
        host.add(&VF).unwrap();
        let was = seen(&dir);
        let link =
            dir.path().join("devices/pci0000:00/0000:03:00.4/infiniband_verbs/uverbs0/device");
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink("../../../0000:03:00.5", &link).unwrap();
        assert!(!was.matches(&seen(&dir)));
    }

    #[test]
    fn a_stand_in_is_known_by_its_number_until_sysfs_knows_more() {
        let (dir, host) = host();
        let was = seen(&dir);
        assert_eq!(
            (was.uverbs(), was.to_string()),
            (None, "no device that sysfs knows".to_owned())
        );
        assert!(holds(&dir, &was));
        let nothing = Identity::below(&dir.path().join("absent"), NUMBER).unwrap();
        assert!(was.matches(&nothing), "no sysfs at all");
        host.add(&RXE).unwrap();
        assert!(!holds(&dir, &was));
        let null = DevNumber { major: 1, minor: 3 };
        let null = Identity::below(Path::new(crate::collect::SYSFS_ROOT), null).unwrap();
        assert_eq!(null.uverbs(), None);
        assert!(null.check_below(Path::new(crate::collect::SYSFS_ROOT)).is_ok());
        assert!(!was.matches(&null));
    }

    #[test]
    fn an_identity_goes_through_a_file() {
        let (dir, host) = host();
        host.add(&VF).unwrap();
        let was = seen(&dir);
        let text = serde_json::to_string(&was).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), was);
    }
}
