//! Scripts of `dist` against several nodes, each a network namespace with rails on common switches.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use crate::common::has;
use crate::common::is_root;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::machine::Machine;
use crate::world::Net;
use crate::world::World;
use crate::world::same;

const RAILS: u8 = 2;

/// How the nodes' rails are connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fabric {
    /// A switch for each rail.
    Flat,
    /// Each NIC has a network of two addresses, to a router.
    Routed,
}

impl Fabric {
    fn address(self, host: usize, rail: u8) -> String {
        match self {
            Self::Flat => format!("10.{rail}.0.{host}"),
            Self::Routed => format!("10.{rail}.{host}.1"),
        }
    }

    /// Options of `manifest agree`.
    fn by(self) -> &'static str {
        match self {
            Self::Flat => "",
            Self::Routed => "--by name",
        }
    }
}

pub(crate) struct Nodes {
    fabric: Fabric,
    nodes: Vec<(String, World)>,
    switch: Net,
    dir: tempfile::TempDir,
}

impl Nodes {
    pub(crate) fn new(count: u8, fabric: Fabric) -> Option<Self> {
        if !is_root() || !has("ip") || !has("nsenter") || !has("unshare") {
            return None;
        }
        let (switch, dir) = (Net::new(), tempfile::tempdir().unwrap());
        for n in 0..RAILS {
            switch.ip(&format!("link add rail{n} type bridge\nlink set rail{n} up\n"));
        }
        // Of both rails one: NICs are told apart by their addresses.
        switch.sh("echo 1 >/proc/sys/net/ipv4/ip_forward");
        // All nodes of all tests have one /run/netns.
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let mut nodes = Vec::new();
        for host in 1..=count {
            let world = World::bare();
            for n in 0..RAILS {
                let (port, switch_pid) = (format!("h{host}r{n}"), switch.pid());
                let address = fabric.address(host.into(), n);
                world.home.ip(&format!(
                    "link add rail{n} type veth peer name {port} netns {switch_pid}\n\
                     link set rail{n} address 02:00:00:00:{n:02x}:{host:02x} up\n"
                ));
                match fabric {
                    Fabric::Flat => {
                        world.home.ip(&format!("addr add {address}/16 dev rail{n}\n"));
                        switch.ip(&format!("link set {port} master rail{n} up\n"));
                    }
                    Fabric::Routed => {
                        world.home.ip(&format!("addr add {address}/31 dev rail{n}\n"));
                        switch.ip(&format!(
                            "link set {port} up\naddr add 10.{n}.{host}.0/31 dev {port}\n"
                        ));
                        world.home.ip(&format!(
                            "route add 10.{n}.0.0/16 via 10.{n}.{host}.0 dev rail{n}\n"
                        ));
                    }
                }
                world.rdma(n, &[&address]);
            }
            nodes.push((format!("t{}-{cluster}-n{host}", std::process::id()), world));
        }
        let nodes = Self { fabric, nodes, switch, dir };
        nodes.stubs();
        Some(nodes)
    }

    /// Of a node's first rail.
    pub(crate) fn address(&self, host: usize) -> String {
        self.fabric.address(host, 0)
    }

    /// Each node as a machine, with the node's network.
    pub(crate) fn machines(&self) -> Vec<Machine> {
        let of = |(name, world): &(String, World)| {
            Machine::new(name, &world.home, &world.sysfs(), world.dir.path())
        };
        self.nodes.iter().map(of).collect()
    }

    /// A folder with each node's manifest.
    fn manifests(&self) -> PathBuf {
        let folder = self.dir.path().join("manifests");
        fs::create_dir_all(&folder).unwrap();
        for name in self.names() {
            let words = format!("on {name} verbgate manifest --node {name}");
            let text = self.run(self.command(&["-c", &words]));
            fs::write(folder.join(format!("{name}.json")), text).unwrap();
        }
        folder
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.bin().join(name);
        fs::create_dir_all(self.bin()).unwrap();
        fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }

    /// `ssh -- NODE COMMAND...` and `on NODE COMMAND...` run in the node's namespace, where `verbgate`
    /// has the node's tree for sysfs; `scontrol` lists the nodes.
    fn stubs(&self) {
        let mut cases = String::new();
        for (name, world) in &self.nodes {
            cases += &format!(
                "{name}) ns={} sysfs={} state={} ;;\n",
                world.home.path().display(),
                world.sysfs().display(),
                world.state_dir().display()
            );
        }
        let enter = format!(
            "case \"$node\" in\n{cases}*) echo \"no node $node\" >&2; exit 255 ;; esac\n\
             export TEST_SYSFS=\"$sysfs\" TEST_STATE=\"$state\"\nexec nsenter --net=\"$ns\" -- \"$@\"\n"
        );
        self.put("ssh", &format!("#!/bin/sh\nnode=$2\nshift 2\n{enter}"));
        self.put("on", &format!("#!/bin/sh\nnode=$1\nshift\n{enter}"));
        let tool = verbgate();
        // Commands that read no sysfs have no such option.
        self.put(
            "verbgate",
            &format!(
                "#!/bin/sh\ncase \"$1 $2\" in\n\"manifest agree\") exec {tool} \"$@\" ;;\n\
                 gc*) exec {tool} --root \"$TEST_STATE/root\" \"$@\" --state-dir \"$TEST_STATE/gc\" ;;\n\
                 *) exec {tool} \"$@\" --sysfs-root \"$TEST_SYSFS\" --state-dir \"$TEST_STATE\" ;;\nesac\n"
            ),
        );
        let list: String = self.names().iter().map(|name| format!("echo {name}\n")).collect();
        self.put("scontrol", &format!("#!/bin/sh\n{list}"));
    }

    /// A script for Docker that keeps a namespace with a default route for a container.
    fn engine(&self) {
        self.put(
            "docker",
            "#!/bin/sh\nset -e\ncase \"$1\" in\n\
             run) case \" $* \" in\n\
             *' -d '*) unshare -n sleep infinity >/dev/null 2>&1 &\n\
             pid=$!\n\
             while [ \"$(readlink /proc/$pid/ns/net)\" = \"$(readlink /proc/$$/ns/net)\" ]; do sleep 0.05; done\n\
             nsenter --net=/proc/$pid/ns/net sh -c 'ip link add eth7 type veth peer name p && \\\n\
             ip addr add 192.0.2.7/24 dev eth7 && ip link set eth7 up && ip route add default dev eth7'\n\
             echo $pid ;;\n\
             *) while [ \"$1\" != --env-file ]; do case \"$1\" in container:*) pid=${1#container:};; esac; shift; done\n\
             cat \"$2\"; nsenter --net=/proc/$pid/ns/net ip -o -4 addr ;; esac ;;\n\
             rm) kill \"$3\" ;;\nesac\n",
        );
    }

    fn names(&self) -> Vec<&str> {
        self.nodes.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let path = format!("{}:{}", self.bin().display(), std::env::var("PATH").unwrap());
        command.args(words).env("PATH", path).env_remove("SSH_CONNECTION");
        command
    }

    fn run(&self, mut command: Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", stderr(&output));
        stdout(&output)
    }

    pub(crate) fn dumps(&self) -> Vec<String> {
        self.nodes.iter().map(|(_, world)| world.home.dump()).collect()
    }

    /// Each node's job reaches the next node's on every rail, over the switches.
    fn all_reach_each_other(&self, namespace: &dyn Fn(&str) -> String) {
        for (at, (name, _)) in self.nodes.iter().enumerate() {
            let next = (at + 1) % self.nodes.len() + 1;
            for n in 0..RAILS {
                let ip = self.fabric.address(next, n);
                let words =
                    ["netns", "exec", &namespace(name), verbgate(), "doctor", "--peer", &ip];
                let output =
                    Command::new("ip").args(words).args(["--sysfs-root", "/none"]).output();
                let told = stdout(&output.unwrap());
                let expected = format!("PASS bootstrap path: {ip} by rail{n}");
                assert!(told.contains(&expected), "{name}: {told}");
            }
        }
    }

    pub(crate) fn home_again(&self, before: &[String]) {
        for ((name, world), before) in self.nodes.iter().zip(before) {
            same(before, &world.home.dump(), name);
            assert!(!world.journal().exists(), "{name}");
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for name in self.names() {
            for holder in [format!("verbgate-{name}"), format!("verbgate-{}", job(name))] {
                if Path::new("/run/netns").join(&holder).exists() {
                    let _ = Command::new("ip").args(["netns", "del", &holder]).output();
                }
            }
        }
    }
}

/// A job's number differs from node to node here, because all nodes have one /run.
fn job(name: &str) -> String {
    format!("job-{name}")
}

pub(crate) fn dist(script: &str) -> String {
    format!("{}/dist/{script}", env!("CARGO_MANIFEST_DIR"))
}

fn by_ssh(count: u8, fabric: Fabric) {
    let Some(nodes) = Nodes::new(count, fabric) else { return };
    let before = nodes.dumps();
    let script = dist("cluster-ssh.sh");
    let mut command = nodes.command(&[&[script.as_str()], &nodes.names()[..]].concat());
    command.env("VERBGATE_AGREE", fabric.by());
    let told = nodes.run(command);
    let lines = told.lines().filter(|line| line.contains("NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"));
    assert_eq!(lines.count(), usize::from(count), "{told}");
    nodes.all_reach_each_other(&|name| format!("verbgate-{name}"));
    nodes.run(nodes.command(&[&[script.as_str(), "--restore"], &nodes.names()[..]].concat()));
    nodes.home_again(&before);
}

#[test]
fn the_script_for_ssh_prepares_two_nodes() {
    by_ssh(2, Fabric::Flat);
    by_ssh(2, Fabric::Routed);
}

#[test]
fn the_script_for_ssh_prepares_sixteen_nodes() {
    by_ssh(16, Fabric::Flat);
    by_ssh(16, Fabric::Routed);
}

/// Of three nodes one has lost a rail: nothing is moved anywhere, until the user allows it.
#[test]
fn the_script_for_ssh_moves_nothing_while_a_rail_is_missing() {
    let Some(nodes) = Nodes::new(3, Fabric::Flat) else { return };
    nodes.nodes[1].1.home.ip("addr flush dev rail0\n");
    let before = nodes.dumps();
    let script = dist("cluster-ssh.sh");
    let words = [&[script.as_str()], &nodes.names()[..]].concat();
    let output = nodes.command(&words).output().unwrap();
    let (told, odd) = (stderr(&output), nodes.names()[1]);
    assert!(!output.status.success() && told.contains(&format!("not on {odd}")), "{told}");
    nodes.home_again(&before);
    let mut command = nodes.command(&words);
    let told = nodes.run({
        command.env("VERBGATE_AGREE", "--allow-dropped");
        command
    });
    assert_eq!(told.matches("NCCL_IB_HCA='=mlx5_1:1'").count(), 3, "{told}");
}

/// One of Slurm's scripts on a node.
fn slurm(nodes: &Nodes, name: &str, script: &str, manifests: Option<&Path>) -> Command {
    let mut command = nodes.command(&["-c", &format!("on {name} sh {}", dist(script))]);
    command.env("SLURM_JOB_ID", job(name)).env("SLURM_JOB_NODELIST", "all");
    command.env("SLURMD_NODENAME", name).env("VERBGATE_AGREE", nodes.fabric.by());
    match manifests {
        Some(folder) => command.env("VERBGATE_MANIFESTS", folder),
        None => command.env_remove("VERBGATE_MANIFESTS"),
    };
    command
}

/// `with`: whether all nodes' manifests are there, or each node moves what it has.
fn by_slurm(count: u8, fabric: Fabric, with: bool) {
    let Some(nodes) = Nodes::new(count, fabric) else { return };
    let before = nodes.dumps();
    let manifests = with.then(|| nodes.manifests());
    for name in nodes.names() {
        nodes.run(slurm(&nodes, name, "slurm-prolog.sh", manifests.as_deref()));
        let file = format!("/run/verbgate-{}.env", job(name));
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{text}");
    }
    nodes.all_reach_each_other(&|name| format!("verbgate-{}", job(name)));
    for name in nodes.names() {
        nodes.run(slurm(&nodes, name, "slurm-epilog.sh", None));
        assert!(!Path::new("/run/netns").join(format!("verbgate-{}", job(name))).exists());
    }
    nodes.home_again(&before);
}

#[test]
fn slurms_scripts_serve_two_nodes() {
    by_slurm(2, Fabric::Flat, true);
    by_slurm(2, Fabric::Routed, true);
}

#[test]
fn slurms_scripts_serve_nodes_without_manifests() {
    by_slurm(2, Fabric::Flat, false);
}

#[test]
fn slurms_scripts_serve_sixteen_nodes() {
    by_slurm(16, Fabric::Flat, true);
    by_slurm(16, Fabric::Routed, true);
}

/// A prolog that fails leaves the node as it was: before anything is moved, and after.
#[test]
fn a_prolog_that_fails_brings_the_nics_home() {
    let Some(nodes) = Nodes::new(2, Fabric::Flat) else { return };
    let before = nodes.dumps();
    let (name, manifests) = (nodes.names()[0].to_owned(), nodes.manifests());
    let fails = |words: &str| {
        let mut command = slurm(&nodes, &name, "slurm-prolog.sh", Some(&manifests));
        let output = command.output().unwrap();
        let told = stderr(&output);
        assert!(!output.status.success() && told.contains(words), "{told}");
        nodes.home_again(&before);
    };
    // A node of the job has no manifest.
    let other = manifests.join(format!("{}.json", nodes.names()[1]));
    let text = fs::read_to_string(&other).unwrap();
    fs::remove_file(&other).unwrap();
    fails(&format!("{}.json", nodes.names()[1]));
    fs::write(&other, text).unwrap();
    // The last command fails once the NICs are away.
    let tool = fs::read_to_string(nodes.bin().join("verbgate")).unwrap();
    let (first, rest) = tool.split_once('\n').unwrap();
    nodes.put(
        "verbgate",
        &format!(
            "{first}\nif [ \"$1\" = prepare ] && [ -z \"${{AGAIN-}}\" ]; then\n\
             AGAIN=1 \"$0\" \"$@\" >/dev/null || exit 1\n\
             ls \"$TEST_STATE\"/netdev* >&2; echo broken on purpose >&2; exit 1\nfi\n{rest}"
        ),
    );
    fails("broken on purpose");
}

/// The engine is a script that keeps a namespace for a container; all else is as it is.
fn by_docker(count: u8, fabric: Fabric) {
    let Some(nodes) = Nodes::new(count, fabric) else { return };
    let before = nodes.dumps();
    nodes.engine();
    let manifests = nodes.manifests();
    for (at, name) in nodes.names().into_iter().enumerate() {
        let words = format!("on {name} sh {} image train", dist("docker.sh"));
        let mut command = nodes.command(&["-c", &words]);
        command.env("VERBGATE_NODE", name).env("VERBGATE_AGREE", fabric.by());
        // A flat network's nodes are alike: each moves what it has.
        if fabric == Fabric::Routed {
            command.env("VERBGATE_MANIFESTS", &manifests);
        }
        let told = nodes.run(command);
        assert!(told.contains("NCCL_IB_HCA==mlx5_0:1,mlx5_1:1"), "{told}");
        // The container's own link, wherever the rails are.
        assert!(told.contains("NCCL_SOCKET_IFNAME==eth7"), "{told}");
        for n in 0..RAILS {
            assert!(told.contains(&format!("{}/", fabric.address(at + 1, n))), "{told}");
        }
    }
    nodes.home_again(&before);
    assert!(nodes.switch.sh("ip -o link").contains("rail0"));
}

#[test]
fn the_script_for_docker_serves_two_nodes() {
    by_docker(2, Fabric::Flat);
    by_docker(2, Fabric::Routed);
}

#[test]
fn the_script_for_docker_serves_sixteen_nodes() {
    by_docker(16, Fabric::Flat);
    by_docker(16, Fabric::Routed);
}

/// A node with InfiniBand alone: nothing is moved, and the container has the settings.
#[test]
fn the_script_for_docker_serves_a_node_with_infiniband() {
    let Some(nodes) = Nodes::new(1, Fabric::Flat) else { return };
    let (name, world) = &nodes.nodes[0];
    fs::remove_dir_all(world.sysfs()).unwrap();
    fs::create_dir_all(world.sysfs()).unwrap();
    verbgate_sysfs_fixtures::Fixture::named("infiniband").unwrap().write(&world.sysfs()).unwrap();
    let before = nodes.dumps();
    nodes.engine();
    let words = format!("on {name} sh {} image train", dist("docker.sh"));
    for manifests in [None, Some(nodes.manifests())] {
        let mut command = nodes.command(&["-c", &words]);
        command.env("VERBGATE_NODE", name).env_remove("VERBGATE_MANIFESTS");
        command.envs(manifests.map(|folder| ("VERBGATE_MANIFESTS", folder)));
        let told = nodes.run(command);
        assert!(told.contains("NCCL_IB_HCA==mlx5_0:1,mlx5_1:1"), "{told}");
        // The container's own link, wherever the rails are.
        assert!(told.contains("NCCL_SOCKET_IFNAME==eth7"), "{told}");
        assert!(!told.contains("rail0"), "{told}");
        nodes.home_again(&before);
    }
}
