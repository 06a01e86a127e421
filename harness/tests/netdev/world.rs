//! A host, a container and a peer, each a network namespace.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use crate::common::has;
use crate::common::is_root;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;

/// All that the kernel tells of a namespace's network, by iproute2 and not by the code under test.
/// Device numbers and remaining lifetimes are left out; and the queueing discipline of a NIC that is
/// down, which the kernel attaches when it first goes up, and keeps.
const DUMP: &str = r"
ip -d -o link | sed -E 's/^[0-9]+: //; s/@if[0-9]+//; s/link-netnsid [0-9]+//; s/qdisc noop state DOWN/qdisc noqueue state DOWN/'
ip -o addr | sed -E 's/^[0-9]+: //; s/(valid|preferred)_lft [0-9]+sec/\1_lft T/g'
ip -4 route show table all
ip -6 route show table all
ip -4 rule
ip -6 rule
ip neigh show nud permanent
cd /proc/sys/net
for d in ipv4/conf ipv4/neigh ipv6/conf ipv6/neigh; do grep -r . $d 2>/dev/null | sort; done
";

pub(crate) use verbgate_wait::until;

/// A network namespace, held by a process.
pub(crate) struct Net(Child);

impl Net {
    pub(crate) fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["-n", "sleep", "infinity"]).stdin(Stdio::null()).stdout(Stdio::null());
        let net = Self(command.spawn().unwrap());
        let ours = fs::read_link("/proc/self/ns/net").unwrap();
        until("a namespace", || fs::read_link(net.path()).is_ok_and(|its| its != ours));
        net.sh("ip link set lo up");
        net
    }

    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// A command in this namespace.
    pub(crate) fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").args(argv);
        command.stdin(Stdio::null());
        command
    }

    /// Runs shell in it, which must succeed, and gives its output.
    pub(crate) fn sh(&self, script: &str) -> String {
        let output = self.command(&["sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", stderr(&output));
        stdout(&output)
    }

    /// Arguments of ip(8), a line for each command.
    pub(crate) fn ip(&self, lines: &str) {
        let script: String = lines.lines().map(|line| format!("ip {line}\n")).collect();
        self.sh(&script);
    }

    /// Whether an address answers a small echo request from here, whatever the MTU of the path.
    pub(crate) fn reaches(&self, ip: &str) -> bool {
        let words = [verbgate(), "doctor", "--peer", ip, "--sysfs-root", "/nonexistent"];
        let told = stdout(&self.command(&words).output().unwrap());
        told.contains(&format!("PASS bootstrap path: {ip}"))
            || told.contains(&format!("bootstrap path: {ip} answers by"))
    }

    pub(crate) fn dump(&self) -> String {
        // Link-local addresses are tentative for a second or two.
        until("links and addresses", || {
            let now = self.sh("ip addr");
            !now.contains("tentative") && !now.contains("NO-CARRIER")
        });
        // The kernel makes an address's own route a moment after the address.
        until("routes of addresses", || {
            let routes = self.sh("ip -6 route show table local");
            let addresses = self.sh("ip -6 -o address show up");
            addresses.lines().filter(|line| !line.contains("dadfailed")).all(|line| {
                let address = line.split_whitespace().nth(3).unwrap_or_default();
                let address = address.split('/').next().unwrap_or_default();
                routes.contains(&format!("local {address} dev "))
            })
        });
        self.sh(DUMP)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// NICs `rail0`, `rail1` and so on of the host, on a switch at the peer's.
pub(crate) struct World {
    pub(crate) home: Net,
    pub(crate) target: Net,
    pub(crate) peer: Net,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) nics: u8,
}

/// Which networks the NICs are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subnets {
    Same,
    Different,
}

impl World {
    /// None where this test cannot run, which it says.
    pub(crate) fn new(nics: u8, subnets: Subnets) -> Option<Self> {
        if !is_root() || !has("ip") || !has("nsenter") || !has("unshare") {
            return None;
        }
        let world = Self { nics, ..Self::bare() };
        let mut at_home = String::new();
        let mut at_peer = "link add br0 type bridge\nlink set br0 up mtu 9000\n".to_owned();
        for n in 0..nics {
            let net = if subnets == Subnets::Same { 0 } else { n };
            let peer = world.peer.pid();
            at_home += &format!("link add rail{n} type veth peer name p{n} netns {peer}\n");
            at_home += &format!("link set rail{n} address 02:00:00:00:00:{n:02x} up\n");
            at_home += &format!("addr add 10.{net}.0.{}/16 dev rail{n}\n", n + 1);
            at_home += &format!("addr add fd0{net:x}::{:x}/64 dev rail{n} nodad\n", n + 1);
            at_peer += &format!("link set p{n} master br0 up mtu 9000\n");
            if subnets == Subnets::Different || n == 0 {
                at_peer += &format!("addr add 10.{net}.0.254/16 dev br0\n");
                at_peer += &format!("addr add fd0{net:x}::ff/64 dev br0 nodad\n");
            }
            world.rdma(n, &[&format!("10.{net}.0.{}", n + 1)]);
        }
        world.home.ip(&at_home);
        world.peer.ip(&at_peer);
        Some(world)
    }

    /// The same without NICs.
    pub(crate) fn bare() -> Self {
        let (home, target, peer) = (Net::new(), Net::new(), Net::new());
        for net in [&home, &peer] {
            // Duplicates are looked for one or two seconds, and there are none.
            net.sh("echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad");
        }
        Self { home, target, peer, dir: tempfile::tempdir().unwrap(), nics: 0 }
    }

    pub(crate) fn sysfs(&self) -> PathBuf {
        self.dir.path().join("sys")
    }

    /// Makes `mlx5_N`, whose port 1 is `railN`, with RoCE v2 GIDs of addresses from index 3 on.
    pub(crate) fn rdma(&self, n: u8, ips: &[&str]) {
        let function = format!("devices/pci0000:00/0000:{n:02x}:00.0");
        let port = format!("class/infiniband/mlx5_{n}/ports/1");
        self.put(&format!("{function}/net/rail{n}/dev_port"), "0");
        self.put(&format!("{port}/link_layer"), "Ethernet");
        self.put(&format!("{port}/state"), "4: ACTIVE");
        self.put(&format!("{port}/rate"), "100 Gb/sec (4X EDR)");
        let link = self.sysfs().join(format!("class/infiniband/mlx5_{n}/device"));
        std::os::unix::fs::symlink(self.sysfs().join(function), link).unwrap();
        for (ip, index) in ips.iter().zip(3..) {
            self.gid(n, index, ip);
        }
    }

    /// Sets an entry of a GID table.
    pub(crate) fn gid(&self, n: u8, index: u32, ip: &str) {
        let port = format!("class/infiniband/mlx5_{n}/ports/1");
        self.put(&format!("{port}/gids/{index}"), &format!("::ffff:{ip}"));
        self.put(&format!("{port}/gid_attrs/types/{index}"), "RoCE v2");
        self.put(&format!("{port}/gid_attrs/ndevs/{index}"), &format!("rail{n}"));
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.sysfs().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// `verbgate ARGS` on the host, with the tree for sysfs and a state directory of its own.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let words = [&[verbgate()], args].concat();
        let mut command = self.home.command(&words);
        command.arg("--sysfs-root").arg(self.sysfs());
        if !args.starts_with(&["netdev", "list"]) {
            command.arg("--state-dir").arg(self.state_dir());
        }
        command.env_remove("SSH_CONNECTION");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The same, which must succeed; its standard output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// Moves to the container, with options.
    pub(crate) fn move_command(&self, options: &[&str]) -> Command {
        let to = self.target.pid();
        self.command(&[&["netdev", "move", "--to", &to], options].concat())
    }

    pub(crate) fn move_all(&self, options: &[&str]) {
        let output = self.move_command(options).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }

    pub(crate) fn restore(&self) {
        self.ok(&["netdev", "restore"]);
        assert!(!self.journal().exists());
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.state_dir().join("netdev.json")
    }
}

/// Compares two dumps, and shows the lines that differ.
pub(crate) fn same(before: &str, after: &str, when: &str) {
    if before == after {
        return;
    }
    let differing = |a: &str, b: &str, sign: char| {
        let b: Vec<&str> = b.lines().collect();
        let only = a.lines().filter(|line| !b.contains(line));
        only.map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    let lines = differing(before, after, '-') + &differing(after, before, '+');
    panic!("{when}: not as before:\n{lines}(no lines: another order)\n{before}\n-----\n{after}");
}
