//! A snapshot: a host's RDMA devices, and the buses around them, as plain data.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;

use crate::names;
use crate::select::Selection;
use crate::value::Value;

/// The format that this build writes, and the only one it reads.
pub const VERSION: u32 = 1;

/// Whose an attribute is, and who may read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The permission bits.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Access {
    /// Everybody's to read, and root's.
    pub(crate) const COMMON: Self = Self { mode: 0o444, uid: 0, gid: 0 };

    /// Of a file with this mode, owner and group. `roots` are those of the sysfs itself: root's numbers, or
    /// nobody's where a user namespace has none for root.
    pub(crate) fn of(mode: u32, owner: (u32, u32), roots: (u32, u32)) -> Self {
        let mode = u16::try_from(mode & 0o7777).unwrap_or_default();
        let (uid, gid) = if owner == roots { (Self::COMMON.uid, Self::COMMON.gid) } else { owner };
        Self { mode, uid, gid }
    }

    /// Whether most files of a sysfs are like that.
    pub(crate) fn is_common(&self) -> bool {
        Self { mode: self.mode & Self::COMMON.mode, ..*self } == Self::COMMON
    }
}

/// Attributes by their path relative to the object, e.g. `ports/1/gids/0`.
pub type Attrs = BTreeMap<String, Value>;

/// What a sysfs shows, as far as a sandbox can be shown it. Paths are relative to the root of
/// sysfs and canonical: no symbolic link on the way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// `class/infiniband_verbs/abi_version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi_version: Option<Value>,
    /// PCI functions, their root complexes, and what lies between a function and its RDMA device
    /// (virtio, auxiliary).
    pub devices: Vec<TreeDevice>,
    /// RDMA devices, in the order of their names.
    pub rdma: Vec<Rdma>,
    /// What user space opens, in the order of their numbers.
    pub verbs: Vec<Verbs>,
    /// The interfaces of the network namespace that this sysfs belongs to.
    pub netdevs: Vec<Netdev>,
    /// Files of no device: processors, NUMA nodes, modules, by their path.
    pub attrs: Attrs,
    /// Of the files that not everyone may read, or that have another owner than most, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub access: BTreeMap<String, Access>,
}

/// A directory below `/sys/devices` that is a PCI function, a root complex, or on the way from one
/// of them to an RDMA device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeDevice {
    /// Its path.
    pub path: String,
    /// Its bus, as `pci`; a root complex has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// Its driver, as `mlx5_core`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The buses behind it, as `0000:0c`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buses: Vec<String>,
    /// Its attributes, those of its buses included.
    pub attrs: Attrs,
}

impl TreeDevice {
    /// The last component of the path; of a PCI function its address.
    #[must_use]
    pub fn name(&self) -> &str {
        names::last(&self.path)
    }

    /// Whether it is a PCI function.
    #[must_use]
    pub fn is_function(&self) -> bool {
        self.subsystem.as_deref() == Some("pci")
    }

    /// Base class and subclass of a PCI function, as `0x0302`; `None` where it cannot be read.
    #[must_use]
    pub fn class(&self) -> Option<u32> {
        let text = self.attrs.get("class")?.text()?.strip_prefix("0x")?;
        u32::from_str_radix(text, 16).ok().map(|class| class >> 8)
    }
}

/// An RDMA device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rdma {
    /// Its name, as `mlx5_0`.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Where `device` leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its attributes, those of its ports included.
    pub attrs: Attrs,
}

impl Rdma {
    /// The numbers of its ports.
    pub fn ports(&self) -> impl Iterator<Item = u32> {
        let numbers = self.attrs.keys().filter_map(|path| {
            let (number, _) = path.strip_prefix("ports/")?.split_once('/')?;
            number.parse().ok()
        });
        numbers.collect::<std::collections::BTreeSet<u32>>().into_iter()
    }

    /// The indices of a port's GIDs.
    pub fn gids(&self, port: u32) -> impl Iterator<Item = u32> {
        let prefix = format!("ports/{port}/gids/");
        let names = self.attrs.keys().filter_map(|path| path.strip_prefix(&prefix)?.parse().ok());
        names.collect::<std::collections::BTreeSet<u32>>().into_iter()
    }
}

/// An entry of `class/infiniband_verbs`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verbs {
    /// Its name, as `uverbs0`.
    pub name: String,
    /// Its path.
    pub path: String,
    /// The RDMA device that it opens.
    pub ibdev: String,
    /// Where `device` leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its attributes.
    pub attrs: Attrs,
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Netdev {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Where `device` leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its attributes.
    pub attrs: Attrs,
}

/// Why a snapshot is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Not JSON, cut off, or of another shape.
    #[error(
        "the file is not a snapshot, or was cut off: {0}; record the snapshot again: verbgate \
         sysfs snapshot"
    )]
    Shape(serde_json::Error),
    /// Of another version.
    #[error(
        "the snapshot has version {found}, and this build reads version {VERSION}; record the \
         snapshot again: verbgate sysfs snapshot"
    )]
    Version {
        /// The file's.
        found: u64,
    },
    /// A name that sysfs cannot have.
    #[error("{0:?} is not a name of a file in sysfs; somebody has changed this snapshot")]
    Name(String),
}

impl Snapshot {
    /// Reads what [`Snapshot::to_json`] wrote.
    ///
    /// # Errors
    /// [`Refused`]; no name leads out of the tree that is made of it.
    pub fn from_json(text: &str) -> Result<Self, Refused> {
        // The version first: another one may have another shape.
        let any: serde_json::Value = serde_json::from_str(text).map_err(Refused::Shape)?;
        if let Some(found) = any.get("version").and_then(serde_json::Value::as_u64)
            && found != u64::from(VERSION)
        {
            return Err(Refused::Version { found });
        }
        let snapshot: Self = serde_json::from_value(any).map_err(Refused::Shape)?;
        snapshot.check()?;
        Ok(snapshot)
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that serialising plain data has.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// What is left of it when nothing hidden is kept.
    #[must_use]
    pub fn reduced(&self, selection: &Selection) -> Self {
        let mut reduced = self.clone();
        reduced.devices.retain(|device| selection.shows_device(&device.path));
        reduced.rdma.retain(|rdma| selection.shows_rdma(&rdma.name));
        reduced.verbs.retain(|verbs| selection.shows_rdma(&verbs.ibdev));
        reduced.netdevs.retain(|netdev| selection.shows_netdev(&netdev.name));
        let mut access = std::mem::take(&mut reduced.access);
        access.retain(|path, _| reduced.has(path));
        reduced.access = access;
        reduced
    }

    /// Whether it has the file at a path.
    fn has(&self, path: &str) -> bool {
        let of = |place: &str, attrs: &Attrs| {
            let inside = path.strip_prefix(place).and_then(|rest| rest.strip_prefix('/'));
            inside.is_some_and(|name| attrs.contains_key(name))
        };
        self.attrs.contains_key(path)
            || self.devices.iter().any(|device| of(&device.path, &device.attrs))
            || self.rdma.iter().any(|rdma| of(&rdma.path, &rdma.attrs))
            || self.verbs.iter().any(|verbs| of(&verbs.path, &verbs.attrs))
            || self.netdevs.iter().any(|netdev| of(&netdev.path, &netdev.attrs))
    }

    /// Refuses names that are not the kernel's.
    fn check(&self) -> Result<(), Refused> {
        let bad = |name: &str| Err(Refused::Name(name.to_owned()));
        let name = |name: &str| if names::is_name(name) { Ok(()) } else { bad(name) };
        let path = |path: &str| if names::is_path(path) { Ok(()) } else { bad(path) };
        let below = |path: &str| {
            let ours = names::is_path(path) && path.starts_with("devices/");
            if ours { Ok(()) } else { bad(path) }
        };
        let attrs = |attrs: &Attrs| attrs.keys().try_for_each(|key| path(key));
        for device in &self.devices {
            below(&device.path)?;
            device.subsystem.iter().chain(&device.driver).try_for_each(|n| name(n))?;
            device.buses.iter().try_for_each(|n| name(n))?;
            attrs(&device.attrs)?;
        }
        let classes = self.rdma.iter().map(|r| (&r.name, &r.path, &r.parent, &r.attrs));
        let classes =
            classes.chain(self.verbs.iter().map(|v| (&v.name, &v.path, &v.parent, &v.attrs)));
        let classes =
            classes.chain(self.netdevs.iter().map(|n| (&n.name, &n.path, &n.parent, &n.attrs)));
        for (own, place, parent, values) in classes {
            name(own)?;
            below(place)?;
            if names::last(place) != own {
                return bad(place);
            }
            parent.iter().try_for_each(|p| below(p))?;
            attrs(values)?;
        }
        self.verbs.iter().try_for_each(|v| name(&v.ibdev))?;
        self.access.keys().try_for_each(|key| path(key))?;
        attrs(&self.attrs)
    }
}
