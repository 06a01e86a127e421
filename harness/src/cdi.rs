//! `verbgate cdi`: RDMA devices for engines that inject devices by the Container Device Interface
//! (github.com/cncf-tags/container-device-interface).
//!
//! A device is its node, with leave to make it and none to open it: under `verbgate oci` the node
//! is a wish for RDMA, and under any other runtime it is of no use. So a container that is started
//! by the wrong runtime gets nothing, rather than the raw device; and a hook ends it and says why, at
//! its creation, because a program that finds a device that it cannot open says something else.

use std::fs;
use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use clap::Args;
use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;
use verbgate_host::files;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sys::sandbox::RDMA_DIR;
use verbgate_sysfs::RdmaDevice;
use verbgate_sysfs::collect;

use crate::failure::Failure;
use crate::oci;
use verbgate_sandbox::grant;
use verbgate_sandbox::grant::Host;

/// The version from which on engines understand a specification: the highest of those whose fields or
/// names it uses (SPEC.md of CDI, "Released versions").
fn version(devices: &[Device]) -> &'static str {
    let digit = |device: &Device| device.name.starts_with(|c: char| c.is_ascii_digit());
    // Hooks and nodes were there at first.
    if devices.iter().any(digit) { "0.5.0" } else { "0.3.0" }
}

/// The hidden command that hooks give.
pub(crate) const HOOK: &str = "cdi-hook";
/// Our kind of device.
pub(crate) const KIND: &str = "verbgate.org/rdma";
/// Of a device cgroup: mknod(2) alone.
const MAKE_ONLY: &str = "m";
/// The device that is all of them.
const ALL: &str = "all";

#[derive(Debug, Subcommand)]
pub(crate) enum CdiCommand {
    /// Write a CDI specification of this host's RDMA devices
    Generate(GenerateArgs),
    /// Print the names by which engines are asked for them
    List(ListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// File to write to, e.g. /etc/cdi/verbgate.json, instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
    /// For every container that gets one of them.
    container_edits: SpecEdits,
}

#[derive(Debug, Serialize)]
struct SpecEdits {
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

/// Runs one of the commands.
pub(crate) fn run(command: &CdiCommand) -> Result<u8, Failure> {
    dispatch(command).map_err(Failure::of_tool)
}

fn dispatch(command: &CdiCommand) -> Result<u8, Error> {
    let devices = collect::devices(Path::new(collect::SYSFS_ROOT))?;
    let program = std::env::current_exe().context("cannot tell this program's path")?;
    let program = program.to_str().context("this program's path is no text")?;
    let cm = grant::connection_manager(Host::real()).map(|cm| DeviceNode::from(&cm));
    let spec = spec(&devices, cm.as_ref(), program);
    match command {
        CdiCommand::Generate(args) => {
            if spec.devices.is_empty() {
                return Err(anyhow!(
                    "this host has no RDMA device to describe (is the driver loaded, and \
                     ib_uverbs? see: rdma link)"
                ));
            }
            let text = serde_json::to_string_pretty(&spec)? + "\n";
            match &args.output {
                None => print(&text),
                Some(path) => files::replace(path, &text).map(|()| 0).map_err(|e| {
                    anyhow!("cannot write the specification to {}: {e}", path.display())
                }),
            }
        }
        CdiCommand::List(args) => {
            let names: Vec<String> =
                spec.devices.iter().map(|device| format!("{KIND}={}", device.name)).collect();
            if args.json {
                return print(&format!("{}\n", serde_json::to_string(&names)?));
            }
            print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
        }
    }
}

/// One device for each of the host's, one for each of its ports, and one for all.
///
/// Whoever has a port has the device with all its ports: what is granted is a device.
fn spec(devices: &[RdmaDevice], cm: Option<&DeviceNode>, program: &str) -> Spec {
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
    Spec {
        cdi_version: version(&all),
        kind: KIND,
        devices: all,
        container_edits: SpecEdits { hooks: [hook] },
    }
}

/// Between a device and its port.
const PORT: char = ':';

/// The device that a name among ours means.
pub(crate) fn device_of(name: &str) -> &str {
    name.split_once(PORT).map_or(name, |(device, _)| device)
}

/// Runs the hook; standard input is the container's state, as the OCI runtime specification has it.
pub(crate) fn hook() -> Result<u8, Failure> {
    check_runtime().map_err(Failure::of_tool)
}

fn check_runtime() -> Result<u8, Error> {
    let read = |what: &str, text: io::Result<String>| -> Result<Value, Error> {
        let text = text.map_err(|e| anyhow!("cannot read {what}: {e}"))?;
        serde_json::from_str(&text).map_err(|e| anyhow!("{what}: {e}"))
    };
    let state = read("the container's state", io::read_to_string(io::stdin()))?;
    let of = |key: &str| state.get(key).and_then(Value::as_str).unwrap_or_default();
    let file = Path::new(of("bundle")).join("config.json");
    let config = read(&file.display().to_string(), fs::read_to_string(&file))?;
    if oci::serves(&config) {
        return Ok(0);
    }
    Err(anyhow!(
        "container {}: it has a device {KIND}=..., which its runtime cannot open to it; run it by \
         verbgate's (verbgate runtime configure, then --runtime verbgate or its RuntimeClass), or give \
         it the seccomp profile of: verbgate oci profile",
        of("id")
    ))
}

/// Writes to standard output; that nobody reads it is no error.
pub(crate) fn print(text: &str) -> Result<u8, Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow!("cannot write to standard output: {e}"))
        }
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use verbgate_sysfs::DevNumber;
    use verbgate_sysfs::collect::Port;

    use super::*;

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
        let port = |number| Port { number, link_layer: None, state: None };
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
