//! The builder of the tree, from a snapshot and its shown part.

use super::File;
use super::GidFile;
use super::Kind;
use super::NodeId;
use super::Tree;
use crate::names;
use crate::select::Selection;
use crate::snapshot::Attrs;
use crate::snapshot::Rdma;
use crate::snapshot::Snapshot;
use crate::snapshot::TreeDevice;
use crate::value::Value;

/// Where the kernel has interfaces without a device; here also those whose PCI function is hidden.
const VIRTUAL_NET: &str = "devices/virtual/net";

/// Directories that are there even when empty: a program that finds no class at all may take the
/// system for one without sysfs.
const ALWAYS: &[&str] = &[
    "bus/pci/devices",
    "bus/pci/drivers",
    "class/infiniband",
    "class/infiniband_verbs",
    "class/net",
    "class/pci_bus",
    "dev/char",
    "devices",
];

/// Classes whose entries are files of no device that are recorded by their place.
const CLASS_OF_PLACE: &[(&str, &str)] = &[("devices/virtual/dmi/id", "class/dmi/id")];

/// Builds the tree. It has the kernel's layout: everything is below `devices`, classes and buses
/// are farms of relative links.
#[must_use]
pub fn build(snapshot: &Snapshot, selection: &Selection) -> Tree {
    let mut tree = Tree::new();
    for dir in ALWAYS {
        tree.dir(dir);
    }
    let devices: Vec<&TreeDevice> =
        snapshot.devices.iter().filter(|d| selection.shows_device(&d.path)).collect();
    let verbs: Vec<_> = snapshot.verbs.iter().filter(|v| selection.shows_rdma(&v.ibdev)).collect();
    // Directories first: a link is made only to what is there.
    for device in &devices {
        tree.dir(&device.path);
        for bus in &device.buses {
            tree.dir(&format!("{}/pci_bus/{bus}", device.path));
        }
        for (bus, driver) in device.subsystem.iter().zip(&device.driver) {
            tree.dir(&format!("bus/{bus}/drivers/{driver}"));
        }
    }
    for device in &devices {
        place_device(&mut tree, device);
    }
    for rdma in snapshot.rdma.iter().filter(|r| selection.shows_rdma(&r.name)) {
        place_class(&mut tree, "infiniband", &rdma.name, &rdma.path, rdma.parent.as_ref());
        place_ports(&mut tree, rdma, selection);
    }
    for node in verbs {
        place_class(&mut tree, "infiniband_verbs", &node.name, &node.path, node.parent.as_ref());
        files(&mut tree, &node.path, &node.attrs);
        if let Some(dev) = node.attrs.get("dev").and_then(Value::text)
            && names::is_name(dev)
        {
            tree.link(&format!("dev/char/{dev}"), &node.path);
        }
    }
    for netdev in snapshot.netdevs.iter().filter(|n| selection.shows_netdev(&n.name)) {
        let parent = netdev.parent.as_ref().filter(|parent| tree.find(parent).is_some());
        let hidden = netdev.parent.is_some() && parent.is_none();
        let path =
            if hidden { format!("{VIRTUAL_NET}/{}", netdev.name) } else { netdev.path.clone() };
        place_class(&mut tree, "net", &netdev.name, &path, parent);
        files(&mut tree, &path, &netdev.attrs);
        if let Some(id) = tree.find(&path).filter(|_| hidden) {
            tree.set_origin(id, &netdev.path);
        }
    }
    if let Some(version) = &snapshot.abi_version {
        tree.put("class/infiniband_verbs/abi_version", file(version));
    }
    files(&mut tree, "", &snapshot.attrs);
    for (place, entry) in CLASS_OF_PLACE {
        tree.link(entry, place);
    }
    for (path, access) in &snapshot.access {
        // What is hidden has no place, and an interface may have another.
        let moved = snapshot.netdevs.iter().find_map(|netdev| {
            let rest = path.strip_prefix(&*netdev.path)?.strip_prefix('/')?;
            Some(format!("{VIRTUAL_NET}/{}/{rest}", netdev.name))
        });
        let id = tree.find(path).or_else(|| tree.find(&moved?));
        tree.access.extend(id.map(|id| (id, *access)));
    }
    tree.shrink();
    tree
}

fn file(value: &Value) -> Kind {
    Kind::File(File { value: recorded(value), gid: None })
}

/// Where all is read live there is nothing to be kept.
fn recorded(value: &Value) -> Option<Box<Value>> {
    (*value != Value::Unread(())).then(|| Box::new(value.clone()))
}

fn files(tree: &mut Tree, dir: &str, attrs: &Attrs) {
    for (name, value) in attrs {
        let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
        tree.put(&path, file(value));
    }
}

fn place_device(tree: &mut Tree, device: &TreeDevice) {
    let (path, name) = (&device.path, device.name());
    files(tree, path, &device.attrs);
    if let Some(bus) = &device.subsystem {
        tree.dir(&format!("bus/{bus}/devices"));
        tree.link(&format!("bus/{bus}/devices/{name}"), path);
        tree.link(&format!("{path}/subsystem"), &format!("bus/{bus}"));
        if let Some(driver) = &device.driver {
            let driver = format!("bus/{bus}/drivers/{driver}");
            tree.link(&format!("{path}/driver"), &driver);
            tree.link(&format!("{driver}/{name}"), path);
        }
    }
    for bus in &device.buses {
        let dir = format!("{path}/pci_bus/{bus}");
        tree.link(&format!("class/pci_bus/{bus}"), &dir);
        tree.link(&format!("{dir}/device"), path);
        tree.link(&format!("{dir}/subsystem"), "class/pci_bus");
    }
}

/// What every device of a class has.
fn place_class(tree: &mut Tree, class: &str, name: &str, path: &str, parent: Option<&String>) {
    tree.dir(path);
    tree.link(&format!("class/{class}/{name}"), path);
    tree.link(&format!("{path}/subsystem"), &format!("class/{class}"));
    if let Some(parent) = parent {
        tree.link(&format!("{path}/device"), parent);
    }
}

fn place_ports(tree: &mut Tree, rdma: &Rdma, selection: &Selection) {
    for (name, value) in &rdma.attrs {
        let gid = gid_file(name);
        if gid.is_some_and(|(port, index, _)| !selection.has_gid(&rdma.name, port, index)) {
            continue;
        }
        let gid = gid.and_then(|(port, index, is_gid)| {
            let port_dir: NodeId = tree.dir(&format!("{}/ports/{port}", rdma.path))?;
            Some(GidFile { port_dir, index, is_gid })
        });
        let kind = Kind::File(File { value: recorded(value), gid });
        tree.put(&format!("{}/{name}", rdma.path), kind);
    }
}

/// Port, index, and whether it is the GID itself: of `ports/P/gids/I` and `ports/P/gid_attrs/*/I`.
fn gid_file(name: &str) -> Option<(u32, u32, bool)> {
    let (port, rest) = name.strip_prefix("ports/")?.split_once('/')?;
    let (kind, index) = rest.rsplit_once('/')?;
    let is_gid = kind == "gids";
    (is_gid || kind.starts_with("gid_attrs/"))
        .then(|| Some((port.parse().ok()?, index.parse().ok()?, is_gid)))?
}
