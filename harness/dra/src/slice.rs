//! The ResourceSlice: what the scheduler knows of a node's devices.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::DRIVER;
use crate::cluster::Cluster;
use crate::cluster::ClusterError;
use crate::cluster::GROUP;
use crate::devices::Device;

/// Devices of one slice (`ResourceSliceMaxDevices` of the API).
const DEVICES_MAX: usize = 128;
/// The version whose devices have their attributes one level deeper.
const OLDEST: &str = "v1beta1";

/// What became of the slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Published {
    /// The cluster's slice was right.
    Same,
    /// The slice was made or changed.
    Written,
}

/// The path of the node's slice.
fn path(version: &str, node: &str) -> String {
    format!("/apis/{GROUP}/{version}/resourceslices/{node}-{DRIVER}")
}

/// The devices as a version of the API writes them.
fn listed(version: &str, devices: &[Device]) -> Value {
    let one = |device: &Device| {
        let attributes: Map<String, Value> = device
            .attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        if version == OLDEST {
            json!({ "name": device.name, "basic": { "attributes": attributes } })
        } else {
            json!({ "name": device.name, "attributes": attributes })
        }
    };
    devices.iter().take(DEVICES_MAX).map(one).collect()
}

/// Makes the cluster's slice say what the node has.
pub(crate) fn publish(
    cluster: &Cluster,
    node: &str,
    devices: &[Device],
) -> Result<Published, ClusterError> {
    if let Some(left_out) = devices.get(DEVICES_MAX) {
        log::warn!(
            "a slice has room for {DEVICES_MAX} devices: {} and those behind it are not published",
            left_out.ibdev
        );
    }
    let version = cluster.version()?;
    let path = path(version, node);
    let found = match cluster.get(&path) {
        Err(error) if error.is_absent() => None,
        other => Some(other?),
    };
    let wanted = listed(version, devices);
    let known = found.as_ref().and_then(|slice| slice.pointer("/spec/devices"));
    // The API leaves an empty list out.
    if found.is_some() && *known.unwrap_or(&json!([])) == wanted {
        return Ok(Published::Same);
    }
    // A scheduler that has read the older generation learns that what it read is out of date.
    let generation =
        found.as_ref().and_then(|slice| slice.pointer("/spec/pool/generation")?.as_i64());
    // The slice ends with the node.
    let owner = cluster.get(&format!("/api/v1/nodes/{node}"))?;
    let uid = owner.pointer("/metadata/uid").cloned().unwrap_or_default();
    let slice = json!({
        "apiVersion": format!("{GROUP}/{version}"),
        "kind": "ResourceSlice",
        "metadata": {
            "name": format!("{node}-{DRIVER}"),
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true },
            ],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {
                "name": node,
                "generation": generation.map_or(1, |known| known.saturating_add(1)),
                "resourceSliceCount": 1,
            },
            "devices": wanted,
        },
    });
    cluster.apply(&path, &slice)?;
    Ok(Published::Written)
}

/// Removes the node's slice.
pub(crate) fn remove(cluster: &Cluster, node: &str) -> Result<(), ClusterError> {
    let version = cluster.version()?;
    match cluster.delete(&path(version, node)) {
        Err(error) if !error.is_absent() => Err(error),
        _ => Ok(()),
    }
}
