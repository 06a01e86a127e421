//! The selection: the part of a host that a sandbox sees, and the reasons why the rest is hidden.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::gids;
use crate::names;
use crate::snapshot::Netdev;
use crate::snapshot::Rdma;
use crate::snapshot::Snapshot;
use crate::snapshot::TreeDevice;

/// Display controllers, 3D controllers, other display controllers, processing accelerators.
const GPU_CLASSES: &[u32] = &[0x0300, 0x0302, 0x0380, 0x1200];
/// An NVSwitch calls itself a bridge of another kind.
const SWITCH_CLASSES: &[u32] = &[0x0680];
/// Ethernet controllers, InfiniBand controllers, and InfiniBand by its older name.
const NIC_CLASSES: &[u32] = &[0x0200, 0x0207, 0x0c06];

/// All of a kind, or those named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Names {
    /// All there are.
    All,
    /// These.
    Only(BTreeSet<String>),
}

impl Names {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// What a sandbox was granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// RDMA devices, by their own names or by those of their nodes (`uverbs0`).
    pub rdma: Names,
    /// GPUs, by their PCI addresses.
    pub gpus: Names,
}

/// Why something is shown or hidden.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// It is granted, and usable.
    Granted,
    /// It belongs to an RDMA device that is shown.
    OfRdma {
        /// Which.
        ifname: String,
    },
    /// Something that is shown lies behind it.
    Above,
    /// An interface of the sandbox that has nothing to do with RDMA.
    Interface,
    /// It connects the GPUs.
    Switch,
    /// It was not granted.
    NotGranted,
    /// All ports are Ethernet, and none has a GID whose interface is in the sandbox's network
    /// namespace: a NIC that NCCL would plan with and could not open.
    NoGid {
        /// The interfaces that its GIDs do name.
        netdevs: Vec<String>,
    },
    /// It belongs to RDMA devices, and none of them is shown.
    OfHidden {
        /// Which.
        ifnames: Vec<String>,
    },
    /// A NIC without an RDMA device.
    NoRdma,
    /// Neither NIC nor GPU, and nothing that is shown lies behind it.
    Unrelated,
}

impl Why {
    /// Whether it is shown.
    #[must_use]
    pub fn shown(&self) -> bool {
        matches!(
            self,
            Self::Granted | Self::OfRdma { .. } | Self::Above | Self::Interface | Self::Switch
        )
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => write!(f, "shown: the device is granted"),
            Self::OfRdma { ifname } => write!(f, "shown: belongs to {ifname}"),
            Self::Above => write!(f, "shown: a shown device lies behind"),
            Self::Interface => write!(f, "shown: in the sandbox's network namespace"),
            Self::Switch => write!(f, "shown: connects GPUs"),
            Self::NotGranted => write!(f, "hidden: not granted"),
            Self::NoGid { netdevs } if netdevs.is_empty() => {
                write!(
                    f,
                    "hidden: no GID; give the device's interface an address, and bring the \
                           interface up"
                )
            }
            Self::NoGid { netdevs } => write!(
                f,
                "hidden: the GIDs belong to {}, which the sandbox's network namespace does not \
                 have; move one there",
                netdevs.join(", ")
            ),
            Self::OfHidden { ifnames } => {
                write!(f, "hidden: the RDMA device ({}) is hidden", ifnames.join(", "))
            }
            Self::NoRdma => write!(f, "hidden: a NIC without an RDMA device"),
            Self::Unrelated => write!(f, "hidden: neither NIC nor GPU nor above one that is shown"),
        }
    }
}

/// What of a snapshot is shown. The keys are names: of RDMA devices, of interfaces, and the paths
/// of PCI functions and the like.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Selection {
    /// RDMA devices.
    pub rdma: BTreeMap<String, Why>,
    /// Interfaces.
    pub netdevs: BTreeMap<String, Why>,
    /// PCI functions, root complexes, and what lies between, by path.
    pub devices: BTreeMap<String, Why>,
    /// Of the ports of RDMA devices that are shown: how many entries of their GID tables, where
    /// that is not the host's number.
    #[serde(skip)]
    pub gid_tables: GidTables,
}

/// Numbers of entries, by device and port.
pub type GidTables = BTreeMap<(String, u32), u32>;

impl Selection {
    /// Whether the RDMA device of this name is shown.
    #[must_use]
    pub fn shows_rdma(&self, name: &str) -> bool {
        self.rdma.get(name).is_some_and(Why::shown)
    }

    /// Whether a port's GID table has an entry of this index.
    #[must_use]
    pub fn has_gid(&self, rdma: &str, port: u32, index: u32) -> bool {
        self.gid_tables.get(&(rdma.to_owned(), port)).is_none_or(|length| index < *length)
    }

    /// Whether the interface of this name is shown.
    #[must_use]
    pub fn shows_netdev(&self, name: &str) -> bool {
        self.netdevs.get(name).is_some_and(Why::shown)
    }

    /// Whether the device at this path is shown.
    #[must_use]
    pub fn shows_device(&self, path: &str) -> bool {
        self.devices.get(path).is_some_and(Why::shown)
    }
}

/// Decides. `ports` tells of the GIDs: those recorded, or the host's of this moment.
#[must_use]
pub fn select(snapshot: &Snapshot, grant: &Grant, ports: &dyn gids::Ports) -> Selection {
    let mut selection = Selection::default();
    for rdma in &snapshot.rdma {
        let why = if !is_granted(snapshot, grant, rdma) {
            Why::NotGranted
        } else if function_of(snapshot, &rdma.path).is_none() {
            // Software devices have no function that could mislead anyone.
            Why::Granted
        } else {
            usable(snapshot, rdma, ports)
        };
        if why.shown() {
            let lengths = rdma
                .ports()
                .filter_map(|port| Some(((rdma.name.clone(), port), ports.length(rdma, port)?)));
            selection.gid_tables.extend(lengths);
        }
        selection.rdma.insert(rdma.name.clone(), why);
    }
    let users: Vec<(&Rdma, BTreeSet<String>)> =
        snapshot.rdma.iter().map(|rdma| (rdma, ports.netdevs(rdma))).collect();
    for netdev in &snapshot.netdevs {
        let why = netdev_why(netdev, &users, &selection);
        selection.netdevs.insert(netdev.name.clone(), why);
    }
    for device in &snapshot.devices {
        let why = device_why(snapshot, device, grant, &selection);
        selection.devices.insert(device.path.clone(), why);
    }
    let shown: Vec<&str> = snapshot
        .devices
        .iter()
        .map(|device| &*device.path)
        .filter(|path| selection.shows_device(path))
        .chain(snapshot.rdma.iter().filter(|r| selection.shows_rdma(&r.name)).map(|r| &*r.path))
        .collect();
    let above: BTreeSet<&str> = shown.into_iter().flat_map(names::ancestors).collect();
    for (path, why) in &mut selection.devices {
        if !why.shown() && above.contains(&**path) {
            *why = Why::Above;
        }
    }
    selection
}

fn is_granted(snapshot: &Snapshot, grant: &Grant, rdma: &Rdma) -> bool {
    let node = snapshot.verbs.iter().find(|v| v.ibdev == rdma.name);
    grant.rdma.has(&rdma.name) || node.is_some_and(|node| grant.rdma.has(&node.name))
}

/// The RDMA devices that the NIC rule decides about: granted, and of a PCI function.
pub(crate) fn judged<'a>(
    snapshot: &'a Snapshot,
    grant: &'a Grant,
) -> impl Iterator<Item = &'a Rdma> {
    snapshot.rdma.iter().filter(|rdma| {
        is_granted(snapshot, grant, rdma) && function_of(snapshot, &rdma.path).is_some()
    })
}

/// Which of them it lets be seen.
pub(crate) fn usable_rdma(
    snapshot: &Snapshot,
    grant: &Grant,
    ports: &dyn gids::Ports,
) -> BTreeSet<String> {
    let usable = judged(snapshot, grant).filter(|rdma| usable(snapshot, rdma, ports).shown());
    usable.map(|rdma| rdma.name.clone()).collect()
}

/// The PCI function that a path is in.
#[must_use]
pub fn function_of<'a>(snapshot: &'a Snapshot, path: &str) -> Option<&'a TreeDevice> {
    names::ancestors(path).find_map(|above| {
        snapshot.devices.iter().find(|device| device.is_function() && device.path == above)
    })
}

/// The NIC rule: a link layer other than Ethernet (InfiniBand; EFA's has no name), whose GIDs are of
/// no interface, or at least one GID of an interface that the sandbox has.
fn usable(snapshot: &Snapshot, rdma: &Rdma, ports: &dyn gids::Ports) -> Why {
    let mut elsewhere = BTreeSet::new();
    for port in rdma.ports() {
        let link_layer = rdma.attrs.get(&format!("ports/{port}/link_layer"));
        if link_layer.and_then(|v| v.text()).is_some_and(|layer| layer != "Ethernet") {
            return Why::Granted;
        }
        for index in rdma.gids(port) {
            let Some(entry) = ports.gid(rdma, port, index) else {
                continue;
            };
            let Some(netdev) = entry.netdev else {
                continue;
            };
            if entry.shown && snapshot.netdevs.iter().any(|n| n.name == netdev) {
                return Why::Granted;
            }
            elsewhere.insert(netdev);
        }
    }
    // iWARP and usNIC speak by the addresses of an interface, and have a GID in name only: that
    // interface decides. The others are RoCE.
    let node_type = rdma.attrs.get("node_type").and_then(|v| v.text());
    let is_roce = node_type.is_none_or(|kind| kind.starts_with("1:"));
    if !is_roce && snapshot.netdevs.iter().any(|n| n.parent.is_some() && n.parent == rdma.parent) {
        return Why::Granted;
    }
    Why::NoGid { netdevs: elsewhere.into_iter().collect() }
}

/// The path of the first GID for which the NIC rule lets a device be seen, relative to the device.
pub(crate) fn witness(snapshot: &Snapshot, rdma: &Rdma, ports: &dyn gids::Ports) -> Option<String> {
    let all = rdma.ports().flat_map(|port| rdma.gids(port).map(move |index| (port, index)));
    let mut usable = all.filter(|(port, index)| {
        let entry = ports.gid(rdma, *port, *index).filter(|entry| entry.shown);
        let netdev = entry.and_then(|entry| entry.netdev);
        netdev.is_some_and(|netdev| snapshot.netdevs.iter().any(|n| n.name == netdev))
    });
    usable.next().map(|(port, index)| format!("ports/{port}/gids/{index}"))
}

fn netdev_why(netdev: &Netdev, rdma: &[(&Rdma, BTreeSet<String>)], selection: &Selection) -> Why {
    let users: Vec<&Rdma> = rdma
        .iter()
        .filter(|(rdma, netdevs)| {
            let same_parent = rdma.parent.is_some() && rdma.parent == netdev.parent;
            same_parent || netdevs.contains(&netdev.name)
        })
        .map(|(rdma, _)| *rdma)
        .collect();
    if users.is_empty() {
        return Why::Interface;
    }
    match users.iter().find(|rdma| selection.shows_rdma(&rdma.name)) {
        Some(rdma) => Why::OfRdma { ifname: rdma.name.clone() },
        None => Why::OfHidden { ifnames: users.iter().map(|r| r.name.clone()).collect() },
    }
}

fn device_why(
    snapshot: &Snapshot,
    device: &TreeDevice,
    grant: &Grant,
    selection: &Selection,
) -> Why {
    let inside: Vec<&Rdma> = snapshot
        .rdma
        .iter()
        .filter(|rdma| names::is_below(&rdma.path, &device.path))
        .filter(|rdma| {
            !device.is_function()
                || function_of(snapshot, &rdma.path).is_some_and(|f| f.path == device.path)
        })
        .collect();
    if let Some(rdma) = inside.iter().find(|rdma| selection.shows_rdma(&rdma.name)) {
        return Why::OfRdma { ifname: rdma.name.clone() };
    }
    if !inside.is_empty() {
        return Why::OfHidden { ifnames: inside.iter().map(|r| r.name.clone()).collect() };
    }
    match device.class().filter(|_| device.is_function()) {
        Some(class) if GPU_CLASSES.contains(&class) => {
            if grant.gpus.has(device.name()) {
                Why::Granted
            } else {
                Why::NotGranted
            }
        }
        // With no GPU there is nothing to connect.
        Some(class)
            if SWITCH_CLASSES.contains(&class) && grant.gpus != Names::Only(BTreeSet::new()) =>
        {
            Why::Switch
        }
        Some(class) if NIC_CLASSES.contains(&class) => Why::NoRdma,
        _ => Why::Unrelated,
    }
}
