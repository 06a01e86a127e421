//! Four hosts with two rails each: network namespaces on bridges, with a Soft-RoCE device on each
//! rail.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;

use super::fabric::PATIENT;
use super::fabric::PROGRAM;
use super::nodes::Namespace;
use super::nodes::ip;
use crate::exec;
use crate::exec::Ended;
use crate::exec::Program;
use crate::world;
use crate::world::Place;
use crate::world::World;

const NAMES: [&str; 4] = ["verbgate-h0", "verbgate-h1", "verbgate-h2", "verbgate-h3"];
/// The network of the rendezvous, and one for each rail: its bridge, and the netdev of each host.
const NETWORKS: [(&str, &str); 3] = [("vgb0", "c0"), ("vgb1", "r0"), ("vgb2", "r1")];
/// Rails are those networks from this one on.
const FIRST_RAIL: usize = 1;
/// As the lab's own device has it.
const MTU: &str = "4200";

/// Whether Soft-RoCE carries data between the network namespaces of one machine.
pub(super) fn is_possible() -> Result<bool> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let major: u32 = release.split('.').next().unwrap_or_default().parse()?;
    Ok(major >= 7)
}

/// The hosts, taken away with this.
pub(super) struct Cluster {
    hosts: Vec<Namespace>,
    _bridges: Vec<Bridge>,
}

/// A bridge, taken away with this.
struct Bridge(&'static str);

impl Drop for Bridge {
    fn drop(&mut self) {
        // Nothing is left of a test that cannot be taken away with its machine.
        let _ = ip(&["link", "delete", self.0]);
    }
}

fn device(host: usize, rail: usize) -> String {
    format!("rxh{host}r{rail}")
}

fn address(host: usize, network: usize) -> String {
    format!("10.96.{network}.{}", host + 1)
}

impl Cluster {
    pub(super) fn new() -> Result<Self> {
        let mut bridges = Vec::new();
        for (bridge, _) in NETWORKS {
            ip(&["link", "add", bridge, "type", "bridge"])?;
            bridges.push(Bridge(bridge));
            ip(&["link", "set", bridge, "up"])?;
        }
        let mut hosts = Vec::new();
        for (host, name) in NAMES.into_iter().enumerate() {
            hosts.push(Namespace::new(name)?);
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            for (network, (bridge, netdev)) in NETWORKS.into_iter().enumerate() {
                let port = format!("{bridge}p{host}");
                ip(&["link", "add", &port, "type", "veth", "peer", "name", netdev, "netns", name])?;
                ip(&["link", "set", &port, "mtu", MTU, "master", bridge, "up"])?;
                ip(&["-n", name, "link", "set", netdev, "mtu", MTU, "up"])?;
                let address = format!("{}/24", address(host, network));
                ip(&["-n", name, "address", "add", &address, "dev", netdev])?;
                if let Some(rail) = network.checked_sub(FIRST_RAIL) {
                    let device = device(host, rail);
                    let argv = ["rdma", "link", "add", &device, "type", "rxe", "netdev", netdev];
                    exec::run(inside(name, &argv))?.expect_status(0)?;
                    exec::wait_until(&device, || {
                        let node = world::node_of(&device);
                        Ok(node.is_ok_and(|node| Path::new("/dev/infiniband").join(node).exists()))
                    })?;
                }
            }
        }
        Ok(Self { hosts, _bridges: bridges })
    }

    /// `verbgate fabric COMMAND` on each host, on both of its rails.
    pub(super) fn run(
        &self,
        world: &World,
        place: Place,
        command: &str,
        options: &dyn Fn(usize) -> Vec<String>,
    ) -> Result<Vec<Ended>> {
        let at = format!("{}:{}", address(0, 0), world::free_port()?);
        let program = world.beside(PROGRAM);
        let program = program.to_str().context("an odd path")?;
        let ranks = self.hosts.len().to_string();
        let start = |(rank, host): (usize, &Namespace)| {
            let devices: Vec<String> =
                (FIRST_RAIL..NETWORKS.len()).map(|n| device(rank, n - FIRST_RAIL)).collect();
            let devices: Vec<&str> =
                devices.iter().flat_map(|device| ["--device", device]).collect();
            let (rank, options) = (rank.to_string(), options(rank));
            let mut argv = vec![program, "fabric", command, "--rendezvous", &at, "--rank", &rank];
            argv.extend(["--ranks", &ranks, "--timeout", PATIENT]);
            argv.extend(&devices);
            argv.extend(options.iter().map(String::as_str));
            Program::start(match place {
                Place::Native => inside(host.name(), &argv),
                Place::Sandbox => {
                    let mut command = world.program("verbgate");
                    command.arg("run").args(&devices).args(["--netns", &host.path(), "--"]);
                    command.args(&argv);
                    command
                }
            })
        };
        let started: Result<Vec<Program>> = self.hosts.iter().enumerate().map(start).collect();
        started?.into_iter().map(|program| program.wait()).collect()
    }
}

fn inside(namespace: &str, argv: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).args(argv);
    command
}
