//! Engines, as somebody who uses them sees them.

use std::process::Output;

use crate::common::stderr;
use crate::common::stdout;
use crate::engines::containerd;
use crate::engines::cri::Container;
use crate::engines::cri::LOGS;
use crate::engines::cri::Pod;
use crate::engines::docker;
use crate::engines::image;
use crate::engines::matrix::until;
use crate::engines::podman::PODMAN;
use crate::engines::pods::HANDLER;
use crate::engines::pods::NODE;
use crate::engines::pods::Node;
use crate::engines::world::Daemon;
use crate::engines::world::World;

/// What each container does: says something, and ends with a code of its own when it is told to.
const STAYS: [&str; 3] = ["sh", "-c", "echo here; trap 'exit 7' TERM; sleep 100000 & wait"];

/// An engine, as somebody who uses it sees it. All containers have RDMA but where it is said.
pub(crate) trait Engine {
    fn world(&mut self) -> &mut World;
    /// Restarts what runs between commands, or kills it first; whether there is such a daemon.
    fn restart(&mut self, kill: bool) -> bool;
    fn run(&mut self, name: &str) -> String;
    /// Two containers that share a network.
    fn pod(&mut self) -> [String; 2];
    /// The code, and what is printed.
    fn exec(&mut self, id: &str, words: &[&str]) -> (i32, String);
    fn logs(&mut self, id: &str) -> String;
    /// SIGTERM by the engine.
    fn stop(&mut self, id: &str);
    fn exit_code(&mut self, id: &str) -> Option<i32>;
    /// What the engine's counters are about.
    fn stats(&mut self, id: &str) -> String;
    fn checkpoint(&mut self, id: &str) -> String;
    fn remove(&mut self, id: &str);
}

pub(crate) struct Docker {
    pub(crate) world: World,
    pub(crate) daemon: Option<Daemon>,
}

impl Docker {
    fn said(&self, words: &[&str]) -> String {
        self.world.done(&[&["docker"], words].concat())
    }

    fn started(&self, options: &[&str]) -> String {
        let ours = ["--runtime=verbgate", "--device=/dev/infiniband/uverbs0", "--detach"];
        self.said(&[&["run"], &ours[..], options, &[image::NAME], &STAYS].concat())
    }
}

impl Engine for Docker {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }
    fn restart(&mut self, kill: bool) -> bool {
        let daemon = self.daemon.take().unwrap();
        if kill {
            daemon.kill()
        } else {
            daemon.stop()
        }
        self.daemon = Some(docker::start_with(&mut self.world, &docker::EXPERIMENTAL));
        true
    }
    fn run(&mut self, name: &str) -> String {
        self.started(&["--network=none", "--name", name])
    }
    fn pod(&mut self) -> [String; 2] {
        let first = self.started(&["--network=none", "--ipc=shareable"]);
        let [network, ipc] = ["network", "ipc"].map(|what| format!("--{what}=container:{first}"));
        let second = self.started(&[&network, &ipc]);
        [first, second]
    }
    fn exec(&mut self, id: &str, words: &[&str]) -> (i32, String) {
        let output = self.world.run(&[&["docker", "exec", id], words].concat());
        executed(&output)
    }
    fn logs(&mut self, id: &str) -> String {
        self.said(&["logs", id])
    }
    fn stop(&mut self, id: &str) {
        self.said(&["stop", "--time=600", id]);
    }
    fn exit_code(&mut self, id: &str) -> Option<i32> {
        let state = self.said(&["inspect", "--format={{.State.Running}} {{.State.ExitCode}}", id]);
        state.strip_prefix("false ")?.parse().ok()
    }
    fn stats(&mut self, id: &str) -> String {
        self.said(&["stats", "--no-stream", "--no-trunc", "--format={{.ID}} {{.PIDs}}", id])
    }
    fn checkpoint(&mut self, id: &str) -> String {
        stderr(&self.world.run(&["docker", "checkpoint", "create", id, "one"]))
    }
    fn remove(&mut self, id: &str) {
        self.said(&["rm", "--force", id]);
    }
}

/// containerd by the requests of a kubelet.
pub(crate) struct Cri {
    pub(crate) node: Node,
    /// Pods, and their containers.
    pub(crate) pods: Vec<(String, Vec<String>)>,
    pub(crate) names: Vec<(String, String)>,
}

impl Cri {
    fn added(&mut self, name: &str, count: usize) -> Vec<String> {
        let pod = Pod::of(name, &[]);
        let id = self.node.kubelet.run_pod(&pod, HANDLER).unwrap();
        let run = |at: usize| {
            let name = format!("{name}-{at}");
            let container = Container::of(&name, image::NAME, &STAYS).with_device(NODE);
            (self.node.kubelet.run(&id, &pod, container).unwrap(), name)
        };
        let ran: Vec<(String, String)> = (0..count).map(run).collect();
        let ids: Vec<String> = ran.iter().map(|(id, _)| id.clone()).collect();
        self.names.extend(ran);
        self.pods.push((id, ids.clone()));
        ids
    }
}

impl Engine for Cri {
    fn world(&mut self) -> &mut World {
        &mut self.node.world
    }
    fn restart(&mut self, kill: bool) -> bool {
        let daemon = self.node.daemon.take().unwrap();
        if kill {
            daemon.kill()
        } else {
            daemon.stop()
        }
        self.node.daemon = Some(containerd::start(&mut self.node.world));
        true
    }
    fn run(&mut self, name: &str) -> String {
        self.added(name, 1).remove(0)
    }
    fn pod(&mut self) -> [String; 2] {
        self.added("pod", 2).try_into().unwrap()
    }
    fn exec(&mut self, id: &str, words: &[&str]) -> (i32, String) {
        match self.node.kubelet.try_exec(id, words) {
            Ok(done) => {
                (done.code, String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
            }
            Err(why) => (-1, why),
        }
    }
    fn logs(&mut self, id: &str) -> String {
        let name = &self.names.iter().find(|(known, _)| known == id).unwrap().1;
        self.node.world.read(&format!("{LOGS}/{name}.log")).unwrap()
    }
    fn stop(&mut self, id: &str) {
        self.node.kubelet.stop(id);
    }
    fn exit_code(&mut self, id: &str) -> Option<i32> {
        self.node.kubelet.exit_code(id)
    }
    fn stats(&mut self, id: &str) -> String {
        self.node.kubelet.counted(id).unwrap_or_default()
    }
    fn checkpoint(&mut self, id: &str) -> String {
        self.node.kubelet.checkpoint(id).unwrap_or_default()
    }
    fn remove(&mut self, id: &str) {
        // With the last of its containers, the pod goes.
        for (_, containers) in &mut self.pods {
            containers.retain(|known| known != id);
        }
        let gone: Vec<String> = (self.pods.iter().filter(|(_, all)| all.is_empty()))
            .map(|(pod, _)| pod.clone())
            .collect();
        self.pods.retain(|(pod, _)| !gone.contains(pod));
        for pod in gone {
            until("the pod's removal", || self.node.kubelet.try_remove_pod(&pod).is_ok());
        }
    }
}

pub(crate) struct Podman {
    pub(crate) world: World,
}

impl Podman {
    fn said(&self, words: &[&str]) -> String {
        self.world.done(&[&PODMAN, words].concat())
    }

    fn started(&self, options: &[&str]) -> String {
        let ours = ["--runtime=verbgate", "run", "--device=/dev/infiniband/uverbs0", "--detach"];
        self.said(&[&ours[..], options, &[image::NAME], &STAYS].concat())
    }
}

impl Engine for Podman {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }
    fn restart(&mut self, _: bool) -> bool {
        false
    }
    fn run(&mut self, name: &str) -> String {
        self.started(&["--network=none", "--name", name])
    }
    fn pod(&mut self) -> [String; 2] {
        let infra = format!("--infra-image={}", image::PAUSE);
        let pod = self.said(&["pod", "create", "--network=none", &infra]);
        [(); 2].map(|()| self.started(&["--pod", &pod]))
    }
    fn exec(&mut self, id: &str, words: &[&str]) -> (i32, String) {
        let output = self.world.run(&[&PODMAN[..], &["exec", id], words].concat());
        executed(&output)
    }
    fn logs(&mut self, id: &str) -> String {
        self.said(&["logs", id])
    }
    fn stop(&mut self, id: &str) {
        self.said(&["stop", "--time=600", id]);
    }
    fn exit_code(&mut self, id: &str) -> Option<i32> {
        let state = self.said(&["inspect", "--format={{.State.Running}} {{.State.ExitCode}}", id]);
        state.strip_prefix("false ")?.parse().ok()
    }
    fn stats(&mut self, id: &str) -> String {
        self.said(&["stats", "--no-stream", "--format={{.ContainerID}} {{.PIDs}}", id])
    }
    fn checkpoint(&mut self, id: &str) -> String {
        stderr(&self.world.run(&[&PODMAN[..], &["container", "checkpoint", id]].concat()))
    }
    fn remove(&mut self, id: &str) {
        let pod = self.said(&["inspect", "--format={{.Pod}}", id]);
        // The first attempt may fail where a conmon was killed: podman then asks the conmon for the exit code.
        self.world.run(&[&PODMAN[..], &["rm", "--force", "--time=0", id]].concat());
        self.said(&["rm", "--force", "--time=0", "--ignore", id]);
        if !pod.is_empty()
            && self.said(&["ps", "--quiet", "--filter", &format!("pod={pod}")]).lines().count() < 2
        {
            self.said(&["pod", "rm", "--force", &pod]);
        }
    }
}

/// The code, and what was printed; what was complained about where it failed.
fn executed(output: &Output) -> (i32, String) {
    let why = if output.status.success() { String::new() } else { stderr(output) };
    (output.status.code().unwrap(), stdout(output) + &why)
}
