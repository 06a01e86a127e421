//! RDMA devices, their ports and netdevs, from sysfs. The root of sysfs is a parameter, so that a
//! directory tree can stand for a host.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use verbgate_sysfs::natural;

/// The type of a GID that NCCL and routed networks want.
pub const ROCE_V2: &str = "RoCE v2";
/// The link layer of RoCE.
pub const ETHERNET: &str = "Ethernet";

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
    /// Partition keys in use.
    pub pkeys: Vec<u16>,
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

/// All RDMA devices below a sysfs root, by name as people count: mlx5_2 before mlx5_10.
pub fn devices(root: &Path) -> Vec<Device> {
    let class = root.join("class/infiniband");
    let mut found: Vec<Device> =
        names(&class).iter().map(|name| device(&class.join(name), name)).collect();
    found.sort_by(|a, b| natural(&a.name, &b.name));
    found
}

fn device(dir: &Path, name: &str) -> Device {
    let function = dir.join("device");
    let own: Vec<(String, Option<u32>)> = names(&function.join("net"))
        .into_iter()
        .map(|netdev| {
            let port = attribute(&function.join("net").join(&netdev).join("dev_port"));
            (netdev, port.and_then(|text| text.parse().ok()))
        })
        .collect();
    let mut numbers: Vec<u32> =
        names(&dir.join("ports")).iter().filter_map(|n| n.parse().ok()).collect();
    numbers.sort_unstable();
    let only = numbers.len() == 1;
    let ports = numbers.iter().map(|number| {
        let mut port = port(&dir.join("ports").join(number.to_string()), *number);
        // dev_port counts the netdevs of one function from 0, ports count from 1.
        let mine = own.iter().filter(|(_, at)| only || at.is_some_and(|at| at + 1 == *number));
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

fn port(dir: &Path, number: u32) -> Port {
    let gids: Vec<Gid> = gids(dir);
    Port {
        port: number,
        link_layer: attribute(&dir.join("link_layer")),
        state: attribute(&dir.join("state"))
            .map(|text| text.split_once(": ").map_or(text.clone(), |(_, word)| word.to_owned())),
        rate: attribute(&dir.join("rate"))
            .and_then(|text| text.split_whitespace().next()?.parse().ok()),
        netdevs: gids.iter().filter_map(|gid| gid.netdev.clone()).collect(),
        pkeys: pkeys(&dir.join("pkeys")),
        gids,
    }
}

/// The GIDs of a port that are in use.
pub fn gids(port: &Path) -> Vec<Gid> {
    let dir = port.join("gids");
    let mut indices: Vec<u32> = names(&dir).iter().filter_map(|n| n.parse().ok()).collect();
    indices.sort_unstable();
    let gid = |index: u32| {
        let text = attribute(&dir.join(index.to_string()))?;
        let gid: Ipv6Addr = text.parse().ok().filter(|gid: &Ipv6Addr| !gid.is_unspecified())?;
        let of = |what: &str| attribute(&port.join("gid_attrs").join(what).join(index.to_string()));
        Some(Gid { index, gid, kind: of("types"), netdev: of("ndevs") })
    };
    indices.into_iter().filter_map(gid).collect()
}

fn pkeys(dir: &Path) -> Vec<u16> {
    let found = names(dir);
    let keys = found.iter().filter_map(|name| {
        let text = attribute(&dir.join(name))?;
        u16::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    });
    let keys: BTreeSet<u16> = keys.filter(|key| *key != 0).collect();
    keys.into_iter().collect()
}

/// A netdev's speed in Mb/s, if it has a link.
pub fn speed(root: &Path, netdev: &str) -> Option<u32> {
    attribute(&root.join("class/net").join(netdev).join("speed"))?.parse().ok()
}

/// The port of its device that a netdev is, from 0.
pub fn dev_port(root: &Path, netdev: &str) -> Option<u32> {
    attribute(&root.join("class/net").join(netdev).join("dev_port"))?.parse().ok()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// One attribute; none where the kernel refuses to tell.
pub fn attribute(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
