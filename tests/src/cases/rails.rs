//! Two nodes, each a network namespace with a NIC of its own on one link, prepared by the harness;
//! then RDMA between two sandboxes over the NICs that were moved.
//!
//! Soft-RoCE deletes its device when the netdev below it changes its namespace, so the test makes
//! it again there. Hardware keeps its device.

use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::exec::Program;
use crate::world::World;

/// Where Soft-RoCE's packets find their way between namespaces.
const CARRIES: u32 = 7;
const NODES: [&str; 2] = ["a", "b"];
const PORT: &str = "18700";

const SET_UP: &str = "
for n in a b; do ip netns add node-$n; ip -n node-$n link set lo up; done
ip link add nic-a netns node-a mtu 4200 address 02:00:00:00:0a:01 type veth \
    peer name nic-b netns node-b mtu 4200 address 02:00:00:00:0b:01
ip -n node-a addr add 10.77.0.1/24 dev nic-a
ip -n node-b addr add 10.77.0.2/24 dev nic-b
for n in a b; do
    ip -n node-$n link set nic-$n up
    nsenter --net=/run/netns/node-$n rdma link add rxe-$n type rxe netdev nic-$n
done
";
const TEAR_DOWN: &str = "
for n in a b; do
    ip netns del verbgate-$n; ip netns del node-$n; rm -rf /tmp/rails-$n /tmp/rails-$n.json
done
";
/// Without device numbers, and the name that ip(8) finds for the other end's namespace.
const DUMP: &str = "ip -o addr | sed -E 's/^[0-9]+: //'; ip -o link | sed -E 's/^[0-9]+: //; \
                    s/@if[0-9]+//; s/link-netns.*//'; ip route show table all; ip rule";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("rails_are_prepared_and_restored", |world| two_nodes(world, false)),
        Case::new("rails_carry_rdma_between_sandboxes", |world| {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
            let major = release.split('.').next().and_then(|text| text.parse::<u32>().ok());
            if major.is_none_or(|major| major < CARRIES) {
                let why = "before Linux 7 Soft-RoCE carries no data between network namespaces";
                return Ok(Verdict::Skipped(why.to_owned()));
            }
            two_nodes(world, true)
        }),
    ]
}

/// The namespaces, removed at the end.
struct Nodes<'a>(&'a World);

impl<'a> Nodes<'a> {
    fn new(world: &'a World) -> Result<Self> {
        let nodes = Self(world);
        nodes.sh("set -e", SET_UP)?;
        Ok(nodes)
    }

    /// Runs shell, with the path of verbgate in `$V`; its standard output.
    fn sh(&self, options: &str, script: &str) -> Result<String> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{options}\n{script}")]).env("V", self.0.beside("verbgate"));
        Ok(exec::run(command)?.expect_status(0)?.stdout)
    }

    /// The same in the namespace of a node or of a container.
    fn within(&self, namespace: &str, script: &str) -> Result<String> {
        let script = script.replace('\'', r"'\''");
        self.sh("set -e", &format!("nsenter --net=/run/netns/{namespace} sh -ec '{script}'"))
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        // Of a case that failed some of them are not there.
        let _ = self.sh("", &format!("{{ {TEAR_DOWN} }} 2>/dev/null || true"));
    }
}

fn two_nodes(world: &World, traffic: bool) -> Result<Verdict> {
    let nodes = Nodes::new(world)?;
    // Operational, and every address usable.
    exec::wait_until("the link", || {
        let now = nodes.within("node-a", "ip addr; nsenter --net=/run/netns/node-b ip addr")?;
        Ok(!now.contains("tentative") && !now.contains("NO-CARRIER"))
    })?;
    let before = dumps(&nodes)?;
    for n in NODES {
        let prepared = nodes.within(
            &format!("node-{n}"),
            &format!(
                "$V prepare --role {n} --state-dir /tmp/rails-{n} --manifest /tmp/rails-{n}.json \
                 --socket-ifname nic-{n} --iface nic-{n}"
            ),
        )?;
        let hca = format!("NCCL_IB_HCA='=rxe-{n}:1'");
        if !prepared.contains(&hca) {
            bail!("no {hca} in: {prepared}");
        }
        nodes.within(
            &format!("verbgate-{n}"),
            &format!("rdma link add rxe-{n} type rxe netdev nic-{n}"),
        )?;
    }
    let agreed = nodes.sh("set -e", "$V manifest agree /tmp/rails-a.json /tmp/rails-b.json")?;
    if agreed != "a nic-a\nb nic-b\n" {
        bail!("agreed on: {agreed}");
    }
    // Each as the other sees it.
    nodes.within("verbgate-b", "$V netdev verify /tmp/rails-a.json")?;
    nodes.within("verbgate-a", "$V netdev verify /tmp/rails-b.json")?;
    if traffic {
        write_bw(&nodes)?;
    }
    for n in NODES {
        let restore = format!("$V netdev restore --state-dir /tmp/rails-{n}");
        nodes.within(&format!("node-{n}"), &restore)?;
    }
    exec::wait_until("the NICs to be as before", || Ok(dumps(&nodes)? == before))
        .with_context(|| format!("before: {before}\nafter: {:?}", dumps(&nodes)))?;
    Ok(Verdict::Ok)
}

fn dumps(nodes: &Nodes<'_>) -> Result<String> {
    Ok(nodes.within("node-a", DUMP)? + &nodes.within("node-b", DUMP)?)
}

fn write_bw(nodes: &Nodes<'_>) -> Result<()> {
    let start = |n: &str, rest: &[&str]| -> Result<Program> {
        let env = format!("$V nccl env --format json --state-dir /tmp/rails-{n} --socket-ifname x");
        let env: serde_json::Value =
            serde_json::from_str(&nodes.within(&format!("node-{n}"), &env)?)?;
        let index = env.get("NCCL_IB_GID_INDEX").and_then(|index| index.as_str());
        let index = index.context("no GID index for NCCL")?;
        let mut command = nodes.0.program("verbgate");
        command.args(["run", "--netns", &format!("/run/netns/verbgate-{n}")]);
        command.args(["--device", &format!("rxe-{n}"), "--", "ib_write_bw"]);
        command.args(["-d", &format!("rxe-{n}"), "-x", index, "-F", "-n", "100", "-s", "4096"]);
        command.args(["-p", PORT]).args(rest);
        Program::start(command)
    };
    let mut server = start("a", &[])?;
    exec::wait_until("a server that listens", || {
        let port: u16 = PORT.parse()?;
        let sockets = nodes.within("verbgate-a", "cat /proc/net/tcp /proc/net/tcp6")?;
        Ok(sockets.contains(&format!(":{port:04X} ")) || server.has_ended()?)
    })?;
    let client = start("b", &["10.77.0.1"])?.wait()?.expect_status(0)?;
    server.wait()?.expect_status(0)?;
    // Size and count, as in its table's last line.
    if !client.stdout.lines().any(|line| line.trim_start().starts_with("4096 ")) {
        bail!("no result: {client}");
    }
    Ok(())
}
