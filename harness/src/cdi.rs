//! `verbgate cdi`: RDMA devices for engines that inject devices by the Container Device Interface
//! (github.com/cncf-tags/container-device-interface).
//!
//! A device is its node, with leave to make it and none to open it: under `verbgate oci` the node
//! is a wish for RDMA, and under any other runtime it is of no use. So a container that is started
//! by the wrong runtime gets nothing, rather than the raw device.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::chown;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::anyhow;
use clap::Args;
use clap::Subcommand;
use serde::Serialize;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sys::sandbox::RDMA_DIR;
use verbgate_sysfs::RdmaDevice;
use verbgate_sysfs::collect;

use crate::failure::Failure;
use crate::grant;
use crate::grant::Host;

/// The lowest that has all that is used here.
const VERSION: &str = "0.3.0";
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
    let spec = spec(&devices, grant::connection_manager(Host::real()).as_ref());
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
                Some(path) => replace(path, &text).map_err(|e| {
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

/// One device for each of the host's, and one for all.
///
/// None for a port: a sandbox is granted a device with all its ports.
fn spec(devices: &[RdmaDevice], cm: Option<&DeviceNode>) -> Spec {
    let cm: Vec<Node> = cm.iter().map(|node| Node::new(&node.name, node.rdev)).collect();
    let node =
        |device: &RdmaDevice| Node::new(&device.uverbs, (device.dev.major, device.dev.minor));
    let device = |name: &str, nodes: Vec<Node>| Device {
        name: name.to_owned(),
        container_edits: Edits { device_nodes: nodes.into_iter().chain(cm.clone()).collect() },
    };
    let mut all: Vec<Device> =
        devices.iter().map(|one| device(&one.ibdev, vec![node(one)])).collect();
    if !all.is_empty() {
        all.push(device(ALL, devices.iter().map(node).collect()));
    }
    Spec { cdi_version: VERSION, kind: KIND, devices: all }
}

/// Writes a file in one step, so that who watches its directory reads a whole one; it keeps its mode
/// and its owner. It is on the disk when this returns.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<u8> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let temporary = path.with_extension(format!("verbgate-{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        if let Ok(known) = fs::metadata(path) {
            file.set_permissions(known.permissions())?;
            chown(&temporary, Some(known.uid()), Some(known.gid()))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(0)
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
    fn each_device_is_one_and_all_are_one() {
        let devices = [device("mlx5_0", "uverbs0", 192), device("mlx5_1", "uverbs1", 193)];
        let cm = DeviceNode { name: "rdma_cm".into(), rdev: (10, 121), source: "/x".into() };
        let value = serde_json::to_value(spec(&devices, Some(&cm))).unwrap();
        let names: Vec<_> =
            value["devices"].as_array().unwrap().iter().map(|d| &d["name"]).collect();
        assert_eq!(names, ["mlx5_0", "mlx5_1", "all"]);
        let nodes = |at: usize| value["devices"][at]["containerEdits"]["deviceNodes"].as_array();
        assert_eq!(nodes(0).unwrap().len(), 2);
        assert_eq!(nodes(2).unwrap().len(), 3);
        assert_eq!(nodes(0).unwrap()[0]["path"], "/dev/infiniband/uverbs0");
        assert_eq!(value["cdiVersion"], VERSION);
    }

    #[test]
    fn no_node_may_be_opened() {
        let value = serde_json::to_string(&spec(&[device("a", "uverbs0", 1)], None)).unwrap();
        assert_eq!(value.matches(r#""permissions":"m""#).count(), 2, "{value}");
        assert_eq!(value.matches("permissions").count(), 2, "{value}");
    }

    #[test]
    fn a_host_without_devices_has_nothing_to_offer() {
        assert!(spec(&[], None).devices.is_empty());
    }
}
