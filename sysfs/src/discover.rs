//! The one reader of RDMA devices, their ports, GIDs and netdevs, from sysfs. Everything is in the
//! order in which people count. The root is a parameter, so that a directory tree can stand for a
//! host.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::path::PathBuf;

use crate::names::natural;
use serde::Deserialize;
use serde::Serialize;

/// The RDMA class: one directory per device.
const CLASS: &str = "class/infiniband";

/// The type of a GID that NCCL and routed networks want.
pub const ROCE_V2: &str = "RoCE v2";
/// The link layer of RoCE.
pub const ETHERNET: &str = "Ethernet";
/// The link layer of InfiniBand.
pub const INFINIBAND: &str = "InfiniBand";

/// An entry of a port's GID table that is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// The GID; that of RoCE v2 is an IP address.
    pub gid: Ipv6Addr,
    /// `RoCE v2`, `IB/RoCE v1`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The link whose address the GID is.
    pub netdev: Option<String>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The port's number; the first is 1.
    pub port: u32,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: Option<String>,
    /// `ACTIVE`, `DOWN` and so on.
    pub state: Option<String>,
    /// In Gb/s.
    pub rate: Option<f64>,
    /// Those of the device's own that are this port's, and those of its GIDs.
    pub netdevs: BTreeSet<String>,
    /// The table's entries that are in use.
    pub gids: Vec<Gid>,
    /// Partition keys in use, by their indices.
    #[serde(default)]
    pub pkeys: BTreeMap<u32, u16>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The name, `mlx5_0`.
    #[serde(rename = "ifname")]
    pub name: String,
    /// The bus address of its function.
    pub pci: Option<String>,
    /// -1 where the machine does not tell.
    pub numa_node: Option<i32>,
    /// The ports by their numbers.
    pub ports: Vec<Port>,
}

impl Device {
    /// The port that has this link.
    pub fn port_of(&self, netdev: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.netdevs.contains(netdev))
    }
}

/// The names of all RDMA devices below a sysfs root, as people count: mlx5_2 before mlx5_10. A host
/// without RDMA has none, which is no error.
///
/// # Errors
/// The class is there and cannot be read.
pub fn device_names(root: &Path) -> io::Result<Vec<String>> {
    names(&root.join(CLASS))
}

/// Whether the device is there.
pub fn is_there(root: &Path, device: &str) -> bool {
    dir_of(root, device).exists()
}

/// A device's directory.
pub(crate) fn dir_of(root: &Path, device: &str) -> PathBuf {
    root.join(CLASS).join(device)
}

/// All RDMA devices below a sysfs root, in the order of [`device_names`].
pub fn devices(root: &Path) -> Vec<Device> {
    let names = device_names(root).unwrap_or_default();
    names.iter().map(|name| device(root, name)).collect()
}

/// One device: all that its files tell; a device that is gone has no port.
pub fn device(root: &Path, name: &str) -> Device {
    let function = dir_of(root, name).join("device");
    let own: Vec<(String, Option<u32>)> = names(&function.join("net"))
        .unwrap_or_default()
        .into_iter()
        .map(|netdev| {
            let port = attribute(&function.join("net").join(&netdev).join("dev_port"));
            (netdev, port.and_then(|text| text.parse().ok()))
        })
        .collect();
    let places = PortDir::all(root, name).unwrap_or_default();
    let only = places.len() == 1;
    let ports = places.iter().map(|place| {
        let mut port = place.port();
        // dev_port counts the netdevs of one function from 0, ports count from 1.
        let mine = own.iter().filter(|(_, at)| only || at.is_some_and(|at| at + 1 == port.port));
        port.netdevs.extend(mine.map(|(netdev, _)| netdev.clone()));
        port
    });
    let pci = fs::canonicalize(&function).ok();
    let pci = pci.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    Device {
        name: name.to_owned(),
        pci: pci.filter(|bus| bus.contains(':')),
        numa_node: attribute(&function.join("numa_node")).and_then(|text| text.parse().ok()),
        ports: ports.collect(),
    }
}

/// An attribute of a device.
pub(crate) fn device_attribute(root: &Path, device: &str, file: &str) -> Option<String> {
    attribute(&dir_of(root, device).join(file))
}

/// The directory of a port.
#[derive(Clone, Debug)]
pub struct PortDir {
    number: u32,
    path: PathBuf,
}

impl PortDir {
    /// The directory of a port, which need not be there.
    #[must_use]
    pub fn new(root: &Path, device: &str, number: u32) -> Self {
        let ports = dir_of(root, device).join("ports");
        Self { number, path: ports.join(number.to_string()) }
    }

    /// All ports of a device by their numbers.
    ///
    /// # Errors
    /// The directory is there and cannot be read.
    pub fn all(root: &Path, device: &str) -> io::Result<Vec<Self>> {
        let numbers = numbers(&dir_of(root, device).join("ports"))?;
        Ok(numbers.into_iter().map(|number| Self::new(root, device, number)).collect())
    }

    /// The port's number; the first is 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the port has this file or directory.
    #[must_use]
    pub fn has(&self, file: &str) -> bool {
        self.path.join(file).exists()
    }

    /// One attribute; none where the kernel refuses to tell.
    #[must_use]
    pub fn attribute(&self, file: &str) -> Option<String> {
        attribute(&self.path.join(file))
    }

    /// `ACTIVE`, `DOWN` and so on, without the number that sysfs puts before the word.
    #[must_use]
    pub fn state(&self) -> Option<String> {
        self.attribute("state").map(after_number)
    }

    /// An entry of the table of GIDs, if it is in use.
    #[must_use]
    pub fn gid(&self, index: u32) -> Option<Gid> {
        let text = self.attribute(&format!("gids/{index}"))?;
        let gid: Ipv6Addr = text.parse().ok().filter(|gid: &Ipv6Addr| !gid.is_unspecified())?;
        let of = |what: &str| self.attribute(&format!("gid_attrs/{what}/{index}"));
        Some(Gid { index, gid, kind: of("types"), netdev: of("ndevs") })
    }

    /// The GIDs in use, by their indices.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        let indices = numbers(&self.path.join("gids")).unwrap_or_default();
        indices.into_iter().filter_map(|index| self.gid(index)).collect()
    }

    /// The counters of this directory, `counters` or `hw_counters`, that can be read.
    #[must_use]
    pub fn counters(&self, dir: &str) -> Vec<(String, u64)> {
        let value = |name: String| {
            let value = self.attribute(&format!("{dir}/{name}"))?.parse().ok()?;
            Some((name, value))
        };
        let names = names(&self.path.join(dir)).unwrap_or_default();
        names.into_iter().filter_map(value).collect()
    }

    fn port(&self) -> Port {
        let gids = self.gids();
        Port {
            port: self.number,
            link_layer: self.attribute("link_layer"),
            state: self.state(),
            rate: self
                .attribute("rate")
                .and_then(|text| text.split_whitespace().next()?.parse().ok()),
            netdevs: gids.iter().filter_map(|gid| gid.netdev.clone()).collect(),
            pkeys: pkeys(&self.path.join("pkeys")),
            gids,
        }
    }
}

fn pkeys(dir: &Path) -> BTreeMap<u32, u16> {
    let found = numbers(dir).unwrap_or_default();
    let keys = found.into_iter().filter_map(|index| {
        let text = attribute(&dir.join(index.to_string()))?;
        Some((index, u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()?))
    });
    keys.filter(|(_, key)| *key != 0).collect()
}

/// A netdev's speed in Mb/s, if it has a link.
pub fn speed(root: &Path, netdev: &str) -> Option<u32> {
    attribute(&root.join("class/net").join(netdev).join("speed"))?.parse().ok()
}

/// The port of its device that a netdev is, from 0.
pub fn dev_port(root: &Path, netdev: &str) -> Option<u32> {
    attribute(&root.join("class/net").join(netdev).join("dev_port"))?.parse().ok()
}

/// The names in a directory as people count; none where there is no such directory.
pub(crate) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if vanished(&e) => return Ok(Vec::new()),
        other => other?,
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let mut found: Vec<String> = entries.map(name).collect::<io::Result<_>>()?;
    found.sort_unstable_by(|a, b| natural(a, b));
    Ok(found)
}

/// The names in a directory that are numbers.
fn numbers(dir: &Path) -> io::Result<Vec<u32>> {
    Ok(names(dir)?.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Whether what was read is not there, or is being removed (ENODEV).
pub(crate) fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// `4: ACTIVE` to `ACTIVE`.
pub(crate) fn after_number(text: String) -> String {
    text.split_once(": ").map_or(text.clone(), |(_, word)| word.to_owned())
}

/// One attribute; none where the kernel refuses to tell.
pub(crate) fn attribute(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
