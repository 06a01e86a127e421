//! NICs and clusters: a move of sixteen NICs and back, and an agreement of a thousand nodes.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context as _;
use anyhow::Result;

use super::median;
use crate::exec;
use crate::table::Table;

const NICS: u32 = 16;
const NODES: u32 = 1000;
const ROUNDS: usize = 7;

/// Prints the table; `verbgate` is the program.
pub fn run(verbgate: &Path) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut table = Table::new(&["NICs and clusters, veth devices", "median of 7"]);
    let mut add = |what: String, times: &mut Vec<f64>| {
        table.row(&[what, format!("{:.0} ms", median(times).unwrap_or(f64::NAN) * 1000.0)]);
    };
    if rustix::process::geteuid().is_root() {
        let (mut there, mut back) = moves(verbgate, dir.path())?;
        add(format!("`netdev move --wait 0` of {NICS} NICs, process included"), &mut there);
        add(format!("`netdev restore` of {NICS} NICs, links awaited"), &mut back);
    } else {
        println!("moves are left out: they need root, for network namespaces");
    }
    let mut agreed = agreements(verbgate, dir.path())?;
    add(format!("`manifest agree` for {NODES} nodes with {NICS} rails"), &mut agreed);
    println!("{table}");
    Ok(())
}

/// A process that holds a network namespace.
struct Net(Child);

impl Net {
    fn new() -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["-n", "sleep", "600"]).stdin(Stdio::null());
        let net = Self(command.spawn().context("cannot run unshare")?);
        let ours = fs::read_link("/proc/self/ns/net")?;
        let path = net.path();
        exec::wait_until("a network namespace", || {
            Ok(fs::read_link(&path).is_ok_and(|its| its != ours))
        })?;
        Ok(net)
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn moves(verbgate: &Path, dir: &Path) -> Result<(Vec<f64>, Vec<f64>)> {
    let (home, target) = (Net::new()?, Net::new()?);
    let sysfs = dir.join("sys");
    let mut script = "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad\n".to_owned();
    for n in 0..NICS {
        writeln!(script, "ip link add rail{n} type veth peer name peer{n}")?;
        writeln!(script, "ip link set peer{n} up; ip link set rail{n} up")?;
        writeln!(script, "ip addr add 10.0.0.{}/16 dev rail{n}", n + 1)?;
        let function = sysfs.join(format!("devices/pci0000:00/0000:{n:02x}:00.0"));
        fs::create_dir_all(function.join(format!("net/rail{n}")))?;
        let device = sysfs.join(format!("class/infiniband/mlx5_{n}"));
        fs::create_dir_all(device.join("ports/1"))?;
        symlink(&function, device.join("device"))?;
    }
    let mut shell = home.command(Path::new("sh"));
    shell.args(["-ec", &script]);
    exec::run(shell)?.expect_status(0)?;
    let timed = |words: &[&str]| -> Result<f64> {
        let mut command = home.command(verbgate);
        command.arg("netdev").args(words).arg("--sysfs-root").arg(&sysfs);
        command.arg("--state-dir").arg(dir.join("state"));
        Ok(exec::run(command)?.expect_status(0)?.took.as_secs_f64())
    };
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        there.push(timed(&["move", "--to", &target.path(), "--wait", "0"])?);
        back.push(timed(&["restore"])?);
    }
    Ok((there, back))
}

fn agreements(verbgate: &Path, dir: &Path) -> Result<Vec<f64>> {
    let mut files = Vec::new();
    for node in 0..NODES {
        let rails = (0..NICS).map(|n| {
            serde_json::json!({
                "netdev": format!("rail{n}"), "rdma": format!("mlx5_{n}"), "port": 1,
                "pci": format!("0000:{n:02x}:00.0"), "link_layer": "Ethernet",
                "address": format!("10.{n}.{}.{}", node / 250, node % 250 + 1), "prefix": 16,
                "speed": 400.0, "mtu": 9000, "mac": "02:00:00:00:00:01", "gid_index": 3,
                "gid": null,
            })
        });
        let rails: Vec<_> = rails.collect();
        let text = serde_json::json!({ "version": 2, "node": format!("n{node}"), "rails": rails });
        let file = dir.join(format!("{node}.json"));
        fs::write(&file, text.to_string())?;
        files.push(file);
    }
    (0..ROUNDS)
        .map(|_| {
            let mut command = Command::new(verbgate);
            command.args(["manifest", "agree"]).args(&files);
            Ok(exec::run(command)?.expect_status(0)?.took.as_secs_f64())
        })
        .collect()
}
