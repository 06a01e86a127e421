//! `verbgate cdi`: RDMA devices for engines that inject devices by the Container Device Interface
//! (github.com/cncf-tags/container-device-interface).
//!
//! A CDI device is a node that the container may make and may not open. Under `verbgate oci` the
//! node is a wish for RDMA; under any other runtime the node is of no use. So a container under the
//! wrong runtime gets nothing rather than the raw device. A hook ends such a container at its
//! creation and says why, because a program that cannot open its device gives a misleading reason.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;
use verbgate_host::files;
use verbgate_sandbox::grant;
use verbgate_sandbox::grant::Host;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sys::sandbox::RDMA_DIR;
use verbgate_sysfs::RdmaDevice;
use verbgate_sysfs::collect;

pub use crate::kind::HOOK;
use crate::kind::KIND;
use crate::kind::PORT;

/// The version from which on engines understand a specification: the highest of those whose fields or
/// names it uses (SPEC.md of CDI, "Released versions").
fn version(devices: &[Device]) -> &'static str {
    let digit = |device: &Device| device.name.starts_with(|c: char| c.is_ascii_digit());
    // Hooks and nodes were there at first.
    if devices.iter().any(digit) { "0.5.0" } else { "0.3.0" }
}

/// Of a device cgroup: mknod(2) alone.
const MAKE_ONLY: &str = "m";
/// The device that is all of them.
const ALL: &str = "all";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiSpec {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
    /// For every container that gets one of them.
    container_edits: CdiSpecEdits,
}

#[derive(Debug, Serialize)]
struct CdiSpecEdits {
    hooks: [Hook; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hook {
    hook_name: &'static str,
    path: String,
    args: [&'static str; 2],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    device_nodes: Vec<Node>,
}

#[derive(Clone, Debug, Serialize)]
struct Node {
    path: String,
    r#type: &'static str,
    major: u32,
    minor: u32,
    permissions: &'static str,
}

impl Node {
    fn new(name: &str, (major, minor): (u32, u32)) -> Self {
        let path = format!("{RDMA_DIR}/{name}");
        Self { path, r#type: "c", major, minor, permissions: MAKE_ONLY }
    }
}

/// The specification of this host's RDMA devices, as JSON.
///
/// # Errors
/// When there is no RDMA device.
pub fn generate() -> Result<String, Error> {
    current()?.context(
        "this host has no RDMA device to describe (is the driver loaded, and ib_uverbs? see: rdma link)",
    )
}

/// The same; `None` when there is no RDMA device, because engines refuse a specification without devices.
///
/// # Errors
/// When sysfs cannot be read.
pub fn current() -> Result<Option<String>, Error> {
    let spec = of_this_host()?;
    let text = || Ok(serde_json::to_string_pretty(&spec)? + "\n");
    (!spec.devices.is_empty()).then(text).transpose()
}

/// What became of a specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refreshed {
    /// The file was right.
    Same,
    /// The file was written.
    Written,
    /// The file was removed, because this host has no RDMA device any more.
    Removed,
}

/// Makes a specification what it should be now.
///
/// # Errors
/// When sysfs cannot be read, the file cannot be written, or the file is no specification of these devices.
pub fn refresh(file: &Path) -> Result<Refreshed, Error> {
    let failed =
        |e: io::Error| anyhow!("cannot write the specification to {}: {e}", file.display());
    let found = match foreign::read_text(file, Owner::Anybody) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        other => Some(other.map_err(|e| anyhow!("cannot read {}: {e}", file.display()))?),
    };
    // Nobody asked to replace somebody else's file.
    if let Some(text) = &found
        && !describes_ours(text)
    {
        return Err(anyhow!(
            "{}: the file is no specification of {KIND}; remove the file, or name another by --output",
            file.display()
        ));
    }
    match (current()?, found) {
        (now, found) if now == found => Ok(Refreshed::Same),
        (Some(now), _) => {
            file.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            files::replace(file, now.as_bytes(), files::PUBLIC).map_err(failed)?;
            Ok(Refreshed::Written)
        }
        (None, _) => {
            fs::remove_file(file).map_err(failed)?;
            Ok(Refreshed::Removed)
        }
    }
}

fn describes_ours(text: &str) -> bool {
    let read: Option<Value> = serde_json::from_str(text).ok();
    read.is_some_and(|spec| spec.get("kind").is_some_and(|kind| kind == KIND))
}

/// The names by which engines are asked for this host's RDMA devices.
///
/// # Errors
/// When sysfs cannot be read.
pub fn names() -> Result<Vec<String>, Error> {
    let devices = of_this_host()?.devices;
    Ok(devices.iter().map(|device| name_of(&device.name)).collect())
}

/// The name by which an engine is asked for an RDMA device of this name.
#[must_use]
pub fn name_of(ibdev: &str) -> String {
    format!("{KIND}={ibdev}")
}

fn of_this_host() -> Result<CdiSpec, Error> {
    let devices = collect::devices(Path::new(collect::SYSFS_ROOT))?;
    let program = std::env::current_exe().context("cannot tell this program's path")?;
    let program = program.to_str().context("this program's path is not UTF-8 text")?;
    let cm = grant::connection_manager(Host::real()).map(|cm| DeviceNode::from(&cm));
    Ok(spec(&devices, cm.as_ref(), program))
}

/// One device for each of the host's, one for each of its ports, and one for all.
///
/// Whoever has a port has the device with all its ports: what is granted is a device.
fn spec(devices: &[RdmaDevice], cm: Option<&DeviceNode>, program: &str) -> CdiSpec {
    let cm: Vec<Node> = cm.iter().map(|node| Node::new(&node.name, node.rdev)).collect();
    let node =
        |device: &RdmaDevice| Node::new(&device.uverbs, (device.dev.major, device.dev.minor));
    let device = |name: String, nodes: Vec<Node>| Device {
        name,
        container_edits: Edits { device_nodes: nodes.into_iter().chain(cm.clone()).collect() },
    };
    let mut all = Vec::new();
    for one in devices {
        all.push(device(one.ibdev.clone(), vec![node(one)]));
        let ports = one.ports.iter().map(|port| format!("{}{PORT}{}", one.ibdev, port.number));
        all.extend(ports.map(|name| device(name, vec![node(one)])));
    }
    if !all.is_empty() {
        all.push(device(ALL.to_owned(), devices.iter().map(node).collect()));
    }
    let hook =
        Hook { hook_name: "createRuntime", path: program.to_owned(), args: ["verbgate", HOOK] };
    CdiSpec {
        cdi_version: version(&all),
        kind: KIND,
        devices: all,
        container_edits: CdiSpecEdits { hooks: [hook] },
    }
}

/// Checks, as a hook, that the runtime of a container with our devices is ours; standard input is
/// the container's state, as the OCI runtime specification has it.
///
/// # Errors
/// When the container has such a device and another runtime.
pub fn hook() -> Result<u8, Error> {
    let read = |what: &str, text: io::Result<String>| -> Result<Value, Error> {
        let text = text.map_err(|e| anyhow!("cannot read {what}: {e}"))?;
        serde_json::from_str(&text).map_err(|e| anyhow!("{what}: {e}"))
    };
    let state = read("the container's state", io::read_to_string(io::stdin()))?;
    let of = |key: &str| state.get(key).and_then(Value::as_str).unwrap_or_default();
    let file = Path::new(of("bundle")).join("config.json");
    let config = read(&file.display().to_string(), fs::read_to_string(&file))?;
    if crate::serves(&config) {
        return Ok(0);
    }
    Err(anyhow!(
        "container {}: the container has a device {KIND}=..., which the container's runtime cannot \
         open; run the container by verbgate's (verbgate runtime configure, then --runtime \
         verbgate or its RuntimeClass), or give the container the seccomp profile of: verbgate oci \
         profile",
        of("id")
    ))
}

#[cfg(test)]
mod tests {
    use verbgate_sysfs::DevNumber;
    use verbgate_sysfs::collect::PortState;

    use super::*;
    use crate::kind::device_of;

    fn device(ibdev: &str, uverbs: &str, minor: u32) -> RdmaDevice {
        RdmaDevice {
            ibdev: ibdev.into(),
            uverbs: uverbs.into(),
            dev: DevNumber { major: 231, minor },
            abi_version: 1,
            node_type: None,
            node_guid: None,
            ports: Vec::new(),
        }
    }

    #[test]
    fn each_device_is_one_and_each_port_and_all_are_one() {
        let mut two = device("mlx5_1", "uverbs1", 193);
        let port = |number| PortState { number, link_layer: None, state: None };
        two.ports = vec![port(1), port(2)];
        let devices = [device("mlx5_0", "uverbs0", 192), two];
        let cm = DeviceNode { name: "rdma_cm".into(), rdev: (10, 121), source: "/x".into() };
        let value = serde_json::to_value(spec(&devices, Some(&cm), "/bin/v")).unwrap();
        let names: Vec<_> =
            value["devices"].as_array().unwrap().iter().map(|d| &d["name"]).collect();
        assert_eq!(names, ["mlx5_0", "mlx5_1", "mlx5_1:1", "mlx5_1:2", "all"]);
        assert_eq!(device_of("mlx5_1:2"), "mlx5_1");
        let nodes = |at: usize| value["devices"][at]["containerEdits"]["deviceNodes"].as_array();
        assert_eq!(nodes(0).unwrap().len(), 2);
        assert_eq!(nodes(3).unwrap()[0]["minor"], 193);
        assert_eq!(nodes(4).unwrap().len(), 3);
        assert_eq!(nodes(0).unwrap()[0]["path"], "/dev/infiniband/uverbs0");
        assert_eq!(value["cdiVersion"], "0.3.0");
        let hook = &value["containerEdits"]["hooks"][0];
        assert_eq!((&hook["path"], &hook["args"][1]), (&"/bin/v".into(), &HOOK.into()));
    }

    #[test]
    fn the_version_is_the_lowest_that_has_what_is_used() {
        assert_eq!(spec(&[device("0mlx", "uverbs0", 1)], None, "v").cdi_version, "0.5.0");
        assert_eq!(spec(&[], None, "v").cdi_version, "0.3.0");
    }

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("site.json");
        for text in ["", "{}", r#"{"kind": "vendor.org/gpu"}"#] {
            fs::write(&file, text).unwrap();
            let error = refresh(&file).unwrap_err().to_string();
            assert!(error.contains("site.json") && error.contains("--output"), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn no_node_may_be_opened() {
        let value = serde_json::to_string(&spec(&[device("a", "uverbs0", 1)], None, "v")).unwrap();
        assert_eq!(value.matches(r#""permissions":"m""#).count(), 2, "{value}");
        assert_eq!(value.matches("permissions").count(), 2, "{value}");
    }

    #[test]
    fn a_host_without_devices_has_nothing_to_offer() {
        assert!(spec(&[], None, "v").devices.is_empty());
    }
}
