//! The recorder: a host's sysfs into a [`Snapshot`].
//!
//! A single device makes nothing here fail: an attribute that errs is recorded with its errno, and
//! a device that vanishes meanwhile is left out.

mod lists;
pub(crate) mod read;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub use self::lists::KEPT;
pub use self::read::Detail;
use self::read::Reader;
use crate::collect::Error;
use crate::gids::AllGids;
use crate::gids::GidView;
use crate::names;
use crate::snapshot::Attrs;
use crate::snapshot::Netdev;
use crate::snapshot::Rdma;
use crate::snapshot::Snapshot;
use crate::snapshot::TreeDevice;
use crate::snapshot::VERSION;
use crate::snapshot::Verbs;

/// Values that decide what is shown: read whatever the [`Detail`].
const DECIDING: &[&str] = &["class"];

/// Records the sysfs at `root`.
///
/// # Errors
/// That `root` cannot be read.
pub fn record(root: &Path, detail: Detail) -> Result<Snapshot, Error> {
    record_for(root, detail, &For { view: &AllGids, granted: None })
}

/// For whom a host is recorded.
pub(crate) struct For<'a> {
    /// Of ports' GID tables only those slots are recorded of which there is anything to know.
    pub(crate) view: &'a dyn GidView,
    /// The RDMA devices that may be shown, if not all may. Of others, only the GIDs are recorded, which tell whose
    /// the interfaces are.
    pub(crate) granted: Option<BTreeSet<String>>,
}

/// The same for somebody.
pub(crate) fn record_for(root: &Path, detail: Detail, whom: &For<'_>) -> Result<Snapshot, Error> {
    let failed = |source| Error::Read { path: root.to_owned(), source };
    fs::read_dir(root).map_err(failed)?;
    let reader = Reader::new(root, detail).map_err(failed)?;
    let rdma = rdma(&reader, whom);
    let verbs = verbs(&reader);
    let netdevs = netdevs(&reader);
    let parents = rdma.iter().map(|r| &r.parent).chain(netdevs.iter().map(|n| &n.parent));
    let devices = devices(&reader, parents.flatten());
    let attrs = system(&reader);
    let abi_version = reader.value("class/infiniband_verbs/abi_version");
    Ok(Snapshot {
        version: VERSION,
        abi_version,
        devices,
        rdma,
        verbs,
        netdevs,
        attrs,
        access: reader.access(),
    })
}

fn rdma(reader: &Reader, whom: &For<'_>) -> Vec<Rdma> {
    let class = "class/infiniband";
    let entries = reader.names(class).into_iter().filter_map(|name| {
        let path = reader.entry(&format!("{class}/{name}"))?;
        let ports = reader.names(&format!("{path}/ports"));
        for port in &ports {
            if let Some(slots) = port.parse().ok().and_then(|port| whom.view.slots(&name, port)) {
                reader.bound_slots(format!("{path}/ports/{port}"), slots);
            }
        }
        let mut attrs = Attrs::new();
        if whom.granted.as_ref().is_none_or(|granted| granted.contains(&name)) {
            reader.all(&path, "", &mut attrs);
        } else {
            for gids in ports.iter().map(|port| format!("ports/{port}/gids")) {
                reader.all(&format!("{path}/{gids}"), &format!("{gids}/"), &mut attrs);
            }
        }
        // What decides whether a NIC is usable.
        for (key, value) in &mut attrs {
            if key == "node_type" || key.ends_with("/link_layer") {
                *value = reader.value(&format!("{path}/{key}"))?;
            }
        }
        Some(Rdma { parent: reader.link(&format!("{path}/device")), name, path, attrs })
    });
    entries.collect()
}

fn verbs(reader: &Reader) -> Vec<Verbs> {
    let class = "class/infiniband_verbs";
    let entries = reader.names(class).into_iter().filter_map(|name| {
        let path = reader.entry(&format!("{class}/{name}"))?;
        let mut attrs = Attrs::new();
        for file in lists::VERBS {
            let value = reader.value(&format!("{path}/{file}"));
            attrs.extend(value.map(|value| ((*file).to_owned(), value)));
        }
        let ibdev = attrs.get("ibdev")?.text()?.to_owned();
        let parent = reader.link(&format!("{path}/device"));
        names::is_name(&ibdev).then_some(Verbs { name, path, ibdev, parent, attrs })
    });
    entries.collect()
}

fn netdevs(reader: &Reader) -> Vec<Netdev> {
    let class = "class/net";
    let entries = reader.names(class).into_iter().filter_map(|name| {
        let path = reader.entry(&format!("{class}/{name}"))?;
        let mut attrs = Attrs::new();
        reader.listed(&path, lists::NETDEV, "", &mut attrs);
        Some(Netdev { parent: reader.link(&format!("{path}/device")), name, path, attrs })
    });
    entries.collect()
}

/// All functions, and the directories between one and an RDMA device or interface.
fn devices<'a>(reader: &Reader, parents: impl Iterator<Item = &'a String>) -> Vec<TreeDevice> {
    let bus = "bus/pci/devices";
    let mut paths: Vec<String> = reader
        .names(bus)
        .into_iter()
        .filter_map(|name| reader.entry(&format!("{bus}/{name}")))
        .collect();
    paths.extend(parents.cloned());
    let above: Vec<String> =
        paths.iter().flat_map(|path| names::ancestors(path)).map(str::to_owned).collect();
    // Above a function there may be platform devices, of which nothing is shown.
    paths.extend(above.into_iter().filter(|path| {
        is_root_complex(names::last(path))
            || names::ancestors(path).any(|a| is_root_complex(names::last(a)))
    }));
    paths.retain(|path| path.starts_with("devices/"));
    paths.sort_unstable_by(|a, b| names::natural(a, b));
    paths.dedup();
    paths.into_iter().filter_map(|path| device(reader, path)).collect()
}

/// `pciDDDD:BB`, drivers/pci/probe.c.
fn is_root_complex(name: &str) -> bool {
    let numbers = name.strip_prefix("pci").and_then(|rest| rest.split_once(':'));
    let hex =
        |text: &str, least| text.len() >= least && text.bytes().all(|b| b.is_ascii_hexdigit());
    numbers.is_some_and(|(domain, bus)| hex(domain, 4) && hex(bus, 2))
}

fn device(reader: &Reader, path: String) -> Option<TreeDevice> {
    let named = |link: &str| {
        let target = reader.link(&format!("{path}/{link}"))?;
        Some(names::last(&target).to_owned())
    };
    let subsystem = named("subsystem");
    let is_pci = subsystem.as_deref() == Some("pci");
    // Directories such as `net` that group what is in them are no devices.
    if subsystem.is_none() && !is_root_complex(names::last(&path)) {
        return None;
    }
    let mut attrs = Attrs::new();
    reader.listed(&path, lists::DEVICE, "", &mut attrs);
    for name in DECIDING.iter().filter(|_| is_pci) {
        let value = reader.value(&format!("{path}/{name}"));
        attrs.extend(value.map(|value| ((*name).to_owned(), value)));
    }
    let buses = reader.names(&format!("{path}/pci_bus"));
    for bus in &buses {
        let dir = format!("pci_bus/{bus}");
        reader.listed(&format!("{path}/{dir}"), lists::BUS, &format!("{dir}/"), &mut attrs);
    }
    Some(TreeDevice { driver: named("driver"), subsystem, buses, attrs, path })
}

fn system(reader: &Reader) -> Attrs {
    let mut attrs = BTreeMap::new();
    for (dir, names) in lists::SYSTEM {
        reader.listed(dir, names, &format!("{dir}/"), &mut attrs);
    }
    for (dir, prefix, files) in lists::NUMBERED {
        for name in reader.names(dir) {
            let digits = name.strip_prefix(prefix);
            if digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit())) {
                let one = format!("{dir}/{name}");
                reader.listed(&one, files, &format!("{one}/"), &mut attrs);
            }
        }
    }
    attrs
}
