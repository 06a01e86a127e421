//! A reader of the host's RDMA devices, from a sysfs root.
//!
//! The root is a parameter, so that a directory tree can stand for a host.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use serde::Serialize;

use crate::discover;
use crate::names::natural;

/// Where the kernel shows sysfs.
pub const SYSFS_ROOT: &str = "/sys";

/// `IB_DEVICE_NAME_MAX` of include/rdma/ib_verbs.h, its NUL included.
pub const DEVICE_NAME_MAX: usize = 64;

/// Attributes are one page at most; those read here are one short line.
const ATTRIBUTE_MAX: usize = 4096;

/// The uverbs class: one directory per device that user space can open.
const VERBS_CLASS: &str = "class/infiniband_verbs";

/// A device number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DevNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl fmt::Display for DevNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DevNumber {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let (major, minor) = s.split_once(':').ok_or(())?;
        let parse = |n: &str| n.parse().map_err(|_| ());
        Ok(Self { major: parse(major)?, minor: parse(minor)? })
    }
}

/// What is listed of a port with its device; [`discover::Port`] is all of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PortState {
    /// Its number, from 1.
    pub number: u32,
    /// `InfiniBand` or `Ethernet`; absent where the host does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_layer: Option<String>,
    /// As `ACTIVE`, without the number that sysfs puts before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// An RDMA device that user space can open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RdmaDevice {
    /// Name of the RDMA device, e.g. `mlx5_0`.
    #[serde(rename = "ifname")]
    pub ibdev: String,
    /// Name of its node, e.g. `uverbs0`.
    pub uverbs: String,
    /// Numbers of that node.
    pub dev: DevNumber,
    /// The provider's ABI, by which libibverbs chooses.
    pub abi_version: u32,
    /// As `CA`, without the number that sysfs puts before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_type: Option<String>,
    /// As sysfs writes it, `0000:0000:0000:0000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<String>,
    /// In the order of their numbers.
    pub ports: Vec<PortState>,
}

/// Why sysfs could not be read, or not be believed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory that should be there could not be read.
    #[error(
        "cannot read {}: {source}; is sysfs mounted here, in this network namespace?",
        .path.display()
    )]
    Read {
        /// Which.
        path: PathBuf,
        /// The errno.
        r#source: io::Error,
    },
    /// A file says something else than the kernel writes.
    #[error(
        "{} holds {value:?} where {expected} belongs; this is not a sysfs of Linux",
        .path.display()
    )]
    Value {
        /// Which.
        path: PathBuf,
        /// What it holds.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
}

/// The RDMA devices below a sysfs root that user space can open, in the order of their names as people
/// count: mlx5_2 before mlx5_10. A host without RDMA has none, which is no error.
///
/// # Errors
/// See [`Error`]. A device that vanishes while it is read is left out.
pub fn devices(root: &Path) -> Result<Vec<RdmaDevice>, Error> {
    let class = root.join(VERBS_CLASS);
    let names = discover::names(&class);
    let names = names.map_err(|source| Error::Read { path: class.clone(), source })?;
    let mut found = Vec::new();
    // `abi_version` is a file beside the devices.
    for name in names.iter().filter(|name| uverbs_number(name).is_some()) {
        match device(root, &class.join(name), name) {
            Ok(device) => found.push(device),
            Err(Error::Read { source, .. })
                if discover::vanished(&source) && !class.join(name).exists() => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_by(|a, b| natural(&a.ibdev, &b.ibdev));
    Ok(found)
}

/// The number in `uverbsN`; `None` for any other name.
#[must_use]
pub fn uverbs_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("uverbs")?;
    // Not as parse() alone takes it: no sign, no leading zeros, so that one device has one name.
    let canonical =
        digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    canonical.then(|| digits.parse().ok())?
}

fn device(root: &Path, dir: &Path, uverbs: &str) -> Result<RdmaDevice, Error> {
    let ibdev = line(&dir.join("ibdev"))?;
    if !is_device_name(&ibdev) {
        let expected = "the name of an RDMA device";
        return Err(Error::Value { path: dir.join("ibdev"), value: ibdev, expected });
    }
    let attribute = |file| discover::device_attribute(root, &ibdev, file);
    let unread =
        |source| Error::Read { path: discover::dir_of(root, &ibdev).join("ports"), source };
    let ports = discover::PortDir::all(root, &ibdev).map_err(unread)?;
    let port = |port: &discover::PortDir| PortState {
        number: port.number(),
        link_layer: port.attribute("link_layer"),
        state: port.state(),
    };
    Ok(RdmaDevice {
        uverbs: uverbs.to_owned(),
        dev: parsed(&dir.join("dev"), "MAJOR:MINOR")?,
        abi_version: parsed(&dir.join("abi_version"), "a number")?,
        node_type: attribute("node_type").map(discover::after_number),
        node_guid: attribute("node_guid"),
        ports: ports.iter().map(port).collect(),
        ibdev,
    })
}

fn line(path: &Path) -> Result<String, Error> {
    let bytes = fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let bad =
        |value: String| Error::Value { path: path.to_owned(), value, expected: "one line of text" };
    if bytes.len() > ATTRIBUTE_MAX {
        return Err(bad(format!("{} bytes", bytes.len())));
    }
    let text = String::from_utf8(bytes)
        .map_err(|e| bad(String::from_utf8_lossy(e.as_bytes()).into_owned()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    if text.contains(['\n', '\0']) { Err(bad(text)) } else { Ok(text) }
}

fn parsed<T: FromStr>(path: &Path, expected: &'static str) -> Result<T, Error> {
    let value = line(path)?;
    value.trim().parse().map_err(|_| Error::Value { path: path.to_owned(), value, expected })
}

/// Whether an RDMA device can be called so.
pub(crate) fn is_device_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() < DEVICE_NAME_MAX
        && name != "."
        && name != ".."
        && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn uverbs(root: &Path, n: u32, ibdev: &str) {
        let dir = format!("class/infiniband_verbs/uverbs{n}");
        put(root, &format!("{dir}/ibdev"), &format!("{ibdev}\n"));
        put(root, &format!("{dir}/dev"), &format!("231:{}\n", 192 + n));
        put(root, &format!("{dir}/abi_version"), "1\n");
    }

    #[test]
    fn a_host_without_rdma_has_no_devices() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(devices(root.path()).unwrap(), []);
    }

    #[test]
    fn devices_are_complete_and_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        uverbs(root, 0, "mlx5_10");
        uverbs(root, 10, "mlx5_2");
        uverbs(root, 2, "rxe0");
        put(root, "class/infiniband_verbs/abi_version", "6\n");
        put(root, "class/infiniband/rxe0/node_type", "1: CA\n");
        put(root, "class/infiniband/rxe0/node_guid", "5054:00ff:fe12:3456\n");
        put(root, "class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
        put(root, "class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");

        let found = devices(root).unwrap();
        let names: Vec<_> = found.iter().map(|d| (&*d.uverbs, &*d.ibdev)).collect();
        assert_eq!(names, [("uverbs10", "mlx5_2"), ("uverbs0", "mlx5_10"), ("uverbs2", "rxe0")]);
        let rxe = &found[2];
        assert_eq!(rxe.dev, DevNumber { major: 231, minor: 194 });
        assert_eq!(rxe.abi_version, 1);
        assert_eq!(rxe.node_type.as_deref(), Some("CA"));
        assert_eq!(rxe.node_guid.as_deref(), Some("5054:00ff:fe12:3456"));
        let port = PortState {
            number: 1,
            link_layer: Some("Ethernet".to_owned()),
            state: Some("ACTIVE".to_owned()),
        };
        assert_eq!(rxe.ports, [port]);
        assert!(found[1].ports.is_empty());
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for bad in ["../../etc", "", "a b", &"x".repeat(64)] {
            let dir = tempfile::tempdir().unwrap();
            uverbs(dir.path(), 0, bad);
            let error = devices(dir.path()).unwrap_err();
            assert!(matches!(error, Error::Value { .. }), "{bad:?}: {error}");
            assert!(error.to_string().contains("ibdev"), "{error}");
        }
    }

    #[test]
    fn a_wrong_device_number_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        uverbs(dir.path(), 0, "rxe0");
        put(dir.path(), "class/infiniband_verbs/uverbs0/dev", "231\n");
        let error = devices(dir.path()).unwrap_err().to_string();
        assert!(error.contains("uverbs0/dev") && error.contains("MAJOR:MINOR"), "{error}");
    }

    #[test]
    fn one_device_has_one_name() {
        assert_eq!(uverbs_number("uverbs0"), Some(0));
        assert_eq!(uverbs_number("uverbs12"), Some(12));
        for bad in ["uverbs", "uverbs01", "uverbs+1", "uverbs1a", "umad0", "uverbs99999999999"] {
            assert_eq!(uverbs_number(bad), None, "{bad}");
        }
    }
}
