//! containerd with the plug-in, and without a word about Verbgate in its configuration.

use serde_json::Value;

use crate::engines::containerd::FILE;
use crate::engines::cri::Container;
use crate::engines::cri::Pod;
use crate::engines::image;
use crate::engines::pods::CDI;
use crate::engines::pods::NODE;
use crate::engines::pods::Node;
use crate::engines::pods::RDMA;
use crate::engines::pods::box_of;
use crate::engines::world::Daemon;
use crate::engines::world::World;

/// The runtime that every containerd has.
const RUNC: &str = "runc";
const PROFILE: &str = "/var/lib/kubelet/seccomp/verbgate.json";
const LOG: &str = "/tmp/nri.log";
/// The pods' tenant, whose processes may lock so many bytes.
const POLICY: &str = "version = 1
[tenant.pods]
match.annotation.\"io.kubernetes.cri.sandbox-namespace\" = \"default\"
profile = \"standard\"
devices = [{ name = \"mlx5_0\" }]
memlock = 12345
";
const SETTINGS: (&str, &str) = ("org.verbgate.env", "nccl");

/// A pod of one container; its id, and that of the container.
fn run(node: &Node, pod: &Pod, container: Container) -> Result<(String, String), String> {
    let id = node.kubelet.run_pod(pod, RUNC)?;
    match node.kubelet.run(&id, pod, container) {
        Ok(container) => Ok((id, container)),
        Err(why) => {
            node.kubelet.remove_pod(&id);
            Err(why)
        }
    }
}

fn opens(node: &Node, container: &str) -> bool {
    let open = format!("exec 3<>{NODE}");
    node.kubelet.exec(container, &["sh", "-c", &open]).code == 0
}

fn agent(node: &mut Node) -> Daemon {
    let listens = ["test", "-S", "/run/verbgate/agent.sock"];
    node.world.start(&["verbgate", "agent", "--annotations=grant"], &listens)
}

/// A plug-in that has looked at what is there.
fn plug_in(node: &mut Node, found: &str) -> Daemon {
    let words = ["verbgate", "--log", LOG, "nri", "--annotations=grant"];
    let looked = format!("container {found} .*was created without this plug-in");
    node.world.start(&words, &["grep", "-q", "-E", &looked, LOG])
}

#[test]
fn containerd_2_has_pods_served_by_the_plug_in_alone() {
    let Some(world) = World::of("sid") else { return };
    Node::equip(&world);
    let Some(mut node) = Node::unconfigured(world) else { return };
    assert!(!node.world.read(FILE).unwrap().contains("verbgate"));
    node.world.write("/etc/verbgate/policy.d/pods.toml", POLICY.as_bytes());
    node.world.sh(&format!("mkdir -p $(dirname {PROFILE}) && verbgate oci profile >{PROFILE}"));

    // What this test would see without the plug-in: a device plug-in gives a raw device, which is open.
    let raw = Pod::of("raw", &[]);
    let handed = || Container::of("raw-box", image::NAME, &["sleep", "1000"]).with_device(NODE);
    let (before, container) = run(&node, &raw, handed()).unwrap();
    assert!(opens(&node, &container) && node.supervised().is_empty());

    let agent = agent(&mut node);
    let plug_in = plug_in(&mut node, "raw-box");
    node.kubelet.remove_pod(&before);
    let why = run(&node, &raw, handed()).unwrap_err();
    for word in ["raw-box", "default/raw", "linux.resources.devices", "RuntimeClass"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    // Who asks for nothing is left alone.
    let plain = Pod::of("plain", &[]);
    let (plain, container) = run(&node, &plain, box_of("box")).unwrap();
    node.assert_has_none(&container);
    node.assert_volumes_give_nothing(&plain, &Pod::of("plain", &[]));
    // This engine's NRI sets no profile, and says so to nobody: the hook looks, by either way of asking.
    let asks = Pod::of("asks", &[RDMA, SETTINGS]);
    for container in [box_of("box"), box_of("box").with_cdi(CDI)] {
        let why = run(&node, &asks, container).unwrap_err();
        assert!(why.contains("verbgate oci profile"), "{why}");
    }
    // With the profile, neither a handler nor the engine's configuration is needed.
    let (pod, container) = run(&node, &asks, box_of("box").with_profile(PROFILE)).unwrap();
    node.await_supervised(std::slice::from_ref(&container));
    assert_eq!(node.said(&container, &["ls", "/dev/infiniband"]), "uverbs0");
    assert!(node.said(&container, &image::ASK).ends_with(image::ANSWER));
    assert!(node.said(&container, &["sh", "-c", "echo $NCCL_IB_HCA"]).contains("mlx5_0"));
    let info = node.world.done(&["ctr", "--namespace=k8s.io", "container", "info", &container]);
    let info: Value = serde_json::from_str(&info).unwrap();
    // The plug-in's, and that of the CDI device: an engine could drop the device.
    assert_eq!(info["Spec"]["hooks"]["createRuntime"].as_array().unwrap().len(), 2, "{info}");
    let limits = info["Spec"]["process"]["rlimits"].as_array().unwrap();
    let memlock = limits.iter().find(|limit| limit["type"] == "RLIMIT_MEMLOCK").unwrap();
    assert_eq!((&memlock["soft"], &memlock["hard"]), (&12345.into(), &12345.into()));

    // Without the plug-in, the engine goes on, and a CDI device still is of no use without a supervisor.
    plug_in.stop();
    let (unseen, _) = run(&node, &Pod::of("unseen", &[]), box_of("box")).unwrap();
    let why = run(&node, &Pod::of("alone", &[]), box_of("box").with_cdi(CDI)).unwrap_err();
    assert!(why.contains("verbgate oci profile"), "{why}");
    for pod in [plain, unseen, pod] {
        node.kubelet.remove_pod(&pod);
    }
    node.await_supervised(&[]);
    agent.stop();
    node.world.assert_nothing_left();
    node.stop();
}

/// An engine that starts the plug-in by itself ends it with itself.
#[test]
fn containerd_2_starts_the_plug_in() {
    let Some(world) = World::of("sid") else { return };
    Node::equip(&world);
    node_of_plug_ins(&world);
    let Some(mut node) = Node::unconfigured(world) else { return };
    let why = run(&node, &Pod::of("raw", &[]), box_of("box").with_device(NODE)).unwrap_err();
    assert!(why.contains("linux.resources.devices"), "{why}");
    node.stop();
    verbgate_wait::until("the plug-in's end", || {
        node.world.sh("ps -o args | grep -c '[1]0-verbgate' || true") == "0"
    });
}

fn node_of_plug_ins(world: &World) {
    world.sh("mkdir -p /opt/nri/plugins && ln -s /usr/bin/verbgate /opt/nri/plugins/10-verbgate");
}
