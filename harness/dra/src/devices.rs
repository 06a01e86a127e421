//! The node's RDMA devices as Kubernetes knows them: names that Kubernetes allows, and attributes by which claims
//! choose.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use serde_json::json;
use verbgate_sysfs::collect;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Port;

/// Longest name of a device: that of a DNS label.
const NAME_MAX: usize = 63;
/// Longest text in an attribute (`DeviceAttributeMaxValueLength` of the API).
const TEXT_MAX: usize = 64;
/// The device's place in the PCI tree, under the names that all drivers share, so that a claim can ask for a GPU
/// and a NIC of one root (`matchAttribute`).
const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";
const PCI_ADDRESS: &str = "resource.kubernetes.io/pciBusID";

/// An RDMA device, as a claim can be given it.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The name in Kubernetes: a DNS label, `mlx5-0`.
    pub name: String,
    /// The name on the node: `mlx5_0`.
    pub ibdev: String,
    /// The attributes, by their names: each is an object as the API wants it, `{"int": 1}`.
    pub attributes: BTreeMap<&'static str, Value>,
}

/// Why the node's devices are not known.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// sysfs cannot be read.
    #[error("cannot list this node's RDMA devices")]
    Sysfs(#[from] verbgate_sysfs::Error),
    /// Two devices have one name in Kubernetes.
    #[error(
        "the RDMA devices {one} and {other} would both be {name} in Kubernetes, which knows no underscore; rename one: \
         rdma dev set {other} name NAME"
    )]
    Twice {
        /// The first device.
        one: String,
        /// The second device.
        other: String,
        /// The name of both.
        name: String,
    },
}

/// The devices below a sysfs root, in the order of their names.
///
/// # Errors
/// sysfs cannot be read, or two devices would have one name.
pub fn devices(root: &Path) -> Result<Vec<Device>, DevicesError> {
    let mut found: Vec<Device> = Vec::new();
    // Only what has a node can be given to a container.
    for ibdev in collect::devices(root)?.into_iter().map(|device| device.ibdev) {
        let Some(name) = label(&ibdev) else {
            log::warn!(
                "{ibdev}: a device of this name cannot be published to Kubernetes; rename the device"
            );
            continue;
        };
        if let Some(one) = found.iter().find(|one| one.name == name) {
            return Err(DevicesError::Twice { one: one.ibdev.clone(), other: ibdev, name });
        }
        let attributes = attributes(root, &ibdev);
        found.push(Device { name, ibdev, attributes });
    }
    Ok(found)
}

/// A device's name as a DNS label.
fn label(ibdev: &str) -> Option<String> {
    let name = ibdev.to_ascii_lowercase().replace('_', "-");
    let fits = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    fits.then_some(name)
}

fn attributes(root: &Path, ibdev: &str) -> BTreeMap<&'static str, Value> {
    let device = discover::device(root, ibdev);
    let mut all = BTreeMap::new();
    let mut text = |name: &'static str, value: Option<String>| {
        // The API refuses the whole slice for one text that is too long.
        if let Some(value) = value.filter(|value| !value.is_empty() && value.len() <= TEXT_MAX) {
            all.insert(name, json!({ "string": value }));
        }
    };
    text("ibdev", Some(ibdev.to_owned()));
    if let Some(port) = device.ports.first() {
        text("linkLayer", port.link_layer.clone());
        text("netdev", port.netdevs.first().cloned());
        text("gid", routed(port));
    }
    text(PCI_ADDRESS, device.pci.filter(|_| pcie_root(root, ibdev).is_some()));
    text(PCIE_ROOT, pcie_root(root, ibdev));
    if let Some(node) = device.numa_node.filter(|node| *node >= 0) {
        all.insert("numaNode", json!({ "int": node }));
    }
    all.insert("ports", json!({ "int": device.ports.len() }));
    if let Some(port) = device.ports.first() {
        all.insert("active", json!({ "bool": port.state.as_deref() == Some("ACTIVE") }));
        all.insert("gids", json!({ "int": port.gids.len() }));
        // A fraction would be no integer: SDR's 2.5 Gb/s.
        if let Some(rate) = port.rate.filter(|rate| rate.fract() == 0.0) {
            let rate: Option<i64> = format!("{rate:.0}").parse().ok();
            all.extend(rate.map(|rate| ("rateGbps", json!({ "int": rate }))));
        }
    }
    all
}

/// The GID by which others reach the port: the first that is no link-local one, and of RoCE the second version.
fn routed(port: &Port) -> Option<String> {
    let reaches = |gid: &&discover::Gid| {
        !gid.gid.is_unicast_link_local()
            && gid.kind.as_deref().is_none_or(|kind| {
                kind == discover::ROCE_V2 || port.link_layer.as_deref() != Some(discover::ETHERNET)
            })
    };
    port.gids.iter().find(reaches).map(|gid| gid.gid.to_string())
}

/// The root of the PCI tree that the device is in: `pci0000:3a`. Software devices are in none.
fn pcie_root(root: &Path, ibdev: &str) -> Option<String> {
    let place = fs::canonicalize(root.join("class/infiniband").join(ibdev).join("device")).ok()?;
    let mut parts = place.iter().filter_map(|part| part.to_str());
    // Behind a bridge of Intel's VMD another domain begins, below the same root.
    parts.find(|part| part.starts_with("pci") && part.contains(':')).map(Into::into)
}

#[cfg(test)]
mod tests {
    use verbgate_sysfs_fixtures::Changing;
    use verbgate_sysfs_fixtures::Fixture;
    use verbgate_sysfs_fixtures::Software;

    use super::*;

    fn of(fixture: &str) -> Vec<Device> {
        let root = tempfile::tempdir().unwrap();
        Fixture::named(fixture).unwrap().write(root.path()).unwrap();
        devices(root.path()).unwrap()
    }

    #[test]
    fn attributes_say_where_a_device_is() {
        let all = of("hgx");
        assert_eq!(all.len(), 12);
        let one = all.iter().find(|one| one.ibdev == "mlx5_5").unwrap();
        assert_eq!(one.name, "mlx5-5");
        let text = |name: &str| one.attributes[name]["string"].as_str().unwrap();
        assert_eq!(text(PCIE_ROOT), "pci0000:53");
        assert_eq!(text(PCI_ADDRESS), "0000:58:00.0");
        assert_eq!(text("linkLayer"), "Ethernet");
        assert_eq!(text("netdev"), "enp88s0np0");
        assert_eq!(one.attributes["numaNode"], json!({ "int": 0 }));
        let far = all.iter().find(|one| one.ibdev == "mlx5_6").unwrap();
        assert_eq!(far.attributes["numaNode"], json!({ "int": 1 }));
        assert!(one.attributes["gids"]["int"].as_u64().unwrap() > 0);
    }

    /// What the API would refuse, with the whole slice: Kubernetes' validation of a device.
    #[test]
    fn every_host_gives_what_the_api_takes() {
        for fixture in
            ["odd_names", "vmd_domain", "broken_nic", "nic_without_gids", "infiniband", "efa"]
        {
            for device in of(fixture) {
                assert_eq!(label(&device.name).as_ref(), Some(&device.name));
                assert!(device.attributes.len() <= 32, "{device:?}");
                for (name, value) in &device.attributes {
                    let id = name.rsplit('/').next().unwrap();
                    let is_c = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                    assert!(is_c && id.len() <= 32, "{name}");
                    assert_eq!(value.as_object().unwrap().len(), 1, "{device:?}");
                    let fits = |text: &str| !text.is_empty() && text.len() <= TEXT_MAX;
                    assert!(value["string"].as_str().is_none_or(fits), "{device:?}");
                }
            }
        }
    }

    #[test]
    fn names_are_labels_and_never_those_of_two() {
        assert_eq!(label("mlx5_0").as_deref(), Some("mlx5-0"));
        assert_eq!(label("RoCE_x").as_deref(), Some("roce-x"));
        for odd in ["_x", "x_", "a.b", "", &"x".repeat(64)] {
            assert_eq!(label(odd), None, "{odd}");
        }
        let root = tempfile::tempdir().unwrap();
        let changing = Changing::new(root.path()).unwrap();
        let one = Software {
            number: (231, 192),
            node: "uverbs0",
            ibdev: "rxe_0",
            node_guid: "0000:0000:0000:0001",
            function: None,
        };
        changing.add(&one).unwrap();
        let found = devices(root.path()).unwrap();
        assert!(!found[0].attributes.contains_key(PCIE_ROOT), "{found:?}");
        let other = Software { number: (231, 193), node: "uverbs1", ibdev: "rxe-0", ..one };
        changing.add(&other).unwrap();
        let error = devices(root.path()).unwrap_err().to_string();
        assert!(error.contains("rxe_0") && error.contains("rdma dev set"), "{error}");
    }
}
