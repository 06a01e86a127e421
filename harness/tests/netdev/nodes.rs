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
use crate::world::Net;
use crate::world::World;
use crate::world::same;

const RAILS: u8 = 2;

struct Nodes {
    nodes: Vec<(String, World)>,
    switch: Net,
    dir: tempfile::TempDir,
}

impl Nodes {
    fn new(count: u8) -> Option<Self> {
        if !is_root() || !has("ip") || !has("nsenter") || !has("unshare") {
            return None;
        }
        let (switch, dir) = (Net::new(), tempfile::tempdir().unwrap());
        for n in 0..RAILS {
            switch.ip(&format!("link add rail{n} type bridge\nlink set rail{n} up\n"));
        }
        // All nodes of all tests have one /run/netns.
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let mut nodes = Vec::new();
        for host in 1..=count {
            let world = World::bare();
            for n in 0..RAILS {
                let (port, switch_pid) = (format!("h{host}r{n}"), switch.pid());
                world.home.ip(&format!(
                    "link add rail{n} type veth peer name {port} netns {switch_pid}\n\
                     link set rail{n} address 02:00:00:00:{n:02x}:{host:02x} up\n\
                     addr add 10.{n}.0.{host}/16 dev rail{n}\n"
                ));
                switch.ip(&format!("link set {port} master rail{n} up\n"));
                world.rdma(n, &[&format!("10.{n}.0.{host}")]);
            }
            nodes.push((format!("t{}-{cluster}-n{host}", std::process::id()), world));
        }
        let nodes = Self { nodes, switch, dir };
        nodes.stubs();
        Some(nodes)
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

    fn dumps(&self) -> Vec<String> {
        self.nodes.iter().map(|(_, world)| world.home.dump()).collect()
    }

    /// Each node's job reaches the next node's on every rail, over the switches.
    fn all_reach_each_other(&self, namespace: &dyn Fn(&str) -> String) {
        for (at, (name, _)) in self.nodes.iter().enumerate() {
            let next = (at + 1) % self.nodes.len() + 1;
            for n in 0..RAILS {
                let ip = format!("10.{n}.0.{next}");
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

    fn home_again(&self, before: &[String]) {
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

fn dist(script: &str) -> String {
    format!("{}/dist/{script}", env!("CARGO_MANIFEST_DIR"))
}

fn by_ssh(count: u8) {
    let Some(nodes) = Nodes::new(count) else { return };
    let before = nodes.dumps();
    let script = dist("cluster-ssh.sh");
    let told = nodes.run(nodes.command(&[&[script.as_str()], &nodes.names()[..]].concat()));
    let lines = told.lines().filter(|line| line.contains("NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"));
    assert_eq!(lines.count(), usize::from(count), "{told}");
    nodes.all_reach_each_other(&|name| format!("verbgate-{name}"));
    nodes.run(nodes.command(&[&[script.as_str(), "--restore"], &nodes.names()[..]].concat()));
    nodes.home_again(&before);
}

#[test]
fn the_script_for_ssh_prepares_two_nodes() {
    by_ssh(2);
}

#[test]
fn the_script_for_ssh_prepares_sixteen_nodes() {
    by_ssh(16);
}

/// Of three nodes one has lost a rail: nothing is moved anywhere, until the user allows it.
#[test]
fn the_script_for_ssh_moves_nothing_while_a_rail_is_missing() {
    let Some(nodes) = Nodes::new(3) else { return };
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

fn by_slurm(count: u8) {
    let Some(nodes) = Nodes::new(count) else { return };
    let before = nodes.dumps();
    let folder = nodes.dir.path().join("manifests");
    fs::create_dir(&folder).unwrap();
    for name in nodes.names() {
        let text = nodes
            .run(nodes.command(&["-c", &format!("on {name} verbgate manifest --node {name}")]));
        fs::write(folder.join(format!("{name}.json")), text).unwrap();
    }
    let script = |name: &str, script: &str| {
        let mut command = nodes.command(&["-c", &format!("on {name} sh {}", dist(script))]);
        command.env("SLURM_JOB_ID", job(name)).env("SLURM_JOB_NODELIST", "all");
        command.env("SLURMD_NODENAME", name).env("VERBGATE_MANIFESTS", &folder);
        nodes.run(command);
    };
    for name in nodes.names() {
        script(name, "slurm-prolog.sh");
        let file = format!("/run/verbgate-{}.env", job(name));
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{text}");
    }
    nodes.all_reach_each_other(&|name| format!("verbgate-{}", job(name)));
    for name in nodes.names() {
        script(name, "slurm-epilog.sh");
        assert!(!Path::new("/run/netns").join(format!("verbgate-{}", job(name))).exists());
    }
    nodes.home_again(&before);
}

#[test]
fn slurms_scripts_serve_two_nodes() {
    by_slurm(2);
}

#[test]
fn slurms_scripts_serve_sixteen_nodes() {
    by_slurm(16);
}

/// The engine is a script that keeps a namespace for a container; all else is as it is.
fn by_docker(count: u8) {
    let Some(nodes) = Nodes::new(count) else { return };
    let before = nodes.dumps();
    nodes.put(
        "docker",
        "#!/bin/sh\nset -e\ncase \"$1\" in\n\
         run) case \" $* \" in\n\
         *' -d '*) unshare -n sleep 300 >/dev/null 2>&1 &\n\
         while [ \"$(readlink /proc/$!/ns/net)\" = \"$(readlink /proc/$$/ns/net)\" ]; do sleep 0.05; done\n\
         echo $! ;;\n\
         *) while [ \"$1\" != --env-file ]; do case \"$1\" in container:*) pid=${1#container:};; esac; shift; done\n\
         cat \"$2\"; nsenter --net=/proc/$pid/ns/net ip -o -4 addr ;; esac ;;\n\
         rm) kill \"$3\" ;;\nesac\n",
    );
    for (at, name) in nodes.names().into_iter().enumerate() {
        let words = format!("on {name} sh {} image train", dist("docker.sh"));
        let told = nodes.run(nodes.command(&["-c", &words]));
        assert!(told.contains("NCCL_IB_HCA==mlx5_0:1,mlx5_1:1"), "{told}");
        for n in 0..RAILS {
            assert!(told.contains(&format!("10.{n}.0.{}/16", at + 1)), "{told}");
        }
    }
    nodes.home_again(&before);
    assert!(nodes.switch.sh("ip -o link").contains("rail0"));
}

#[test]
fn the_script_for_docker_serves_two_nodes() {
    by_docker(2);
}

#[test]
fn the_script_for_docker_serves_sixteen_nodes() {
    by_docker(16);
}
