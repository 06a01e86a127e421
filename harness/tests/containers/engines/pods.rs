//! containerd as a kubelet drives it: pods by the Container Runtime Interface.

use serde_json::json;

use crate::common::stderr;
use crate::engines::containerd::CONFIGURE;
use crate::engines::containerd::FILE;
use crate::engines::containerd::start;
use crate::engines::cri::Container;
use crate::engines::cri::Kubelet;
use crate::engines::cri::Pod;
use crate::engines::image;
use crate::engines::package;
use crate::engines::world::Daemon;
use crate::engines::world::SYS;
use crate::engines::world::World;

const PLUGIN: &str = "[plugins.\"io.containerd.grpc.v1.cri\"]";
const DIR: &str = "/dev/infiniband";
pub(crate) const NODE: &str = "/dev/infiniband/uverbs0";
/// Where the kubelet makes a pod's volumes.
const VOLUMES: &str = "/var/lib/kubelet/pods/volumes";
pub(crate) const CDI: &str = "verbgate.org/rdma=mlx5_0";
const CDI_ANNOTATION: (&str, &str) = ("cdi.k8s.io/verbgate", CDI);
pub(crate) const RDMA: (&str, &str) = ("org.verbgate.devices", "mlx5_0");
pub(crate) const HANDLER: &str = "verbgate";
/// What each container does.
const STAYS: [&str; 2] = ["sleep", "1000"];
/// Where Debian's configuration has the plug-ins for the network, and the names that are wanted there.
const NETWORK: (&str, [&str; 2]) = ("/usr/lib/cni", ["loopback", "alone"]);
const NETWORK_FILE: &str = "/etc/cni/net.d/10-alone.conf";
/// The network of a pod that reaches itself: no plug-ins are in the packages.
const NETWORK_PLUGIN: &str = r#"#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "0.3.1", "supportedVersions": ["0.3.1"]}' ;;
ADD)
    nsenter --net="$CNI_NETNS" ip link set lo up >&2 || exit 1
    interface="{\"name\": \"$CNI_IFNAME\", \"sandbox\": \"$CNI_NETNS\"}"
    address='{"version": "4", "address": "192.0.2.2/24", "interface": 0}'
    echo "{\"cniVersion\": \"0.3.1\", \"interfaces\": [$interface], \"ips\": [$address]}"
    ;;
esac
"#;

/// A node of a cluster: configured as its owner does it, and with the images that its pods need.
pub(crate) struct Node {
    pub(crate) kubelet: Kubelet,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) world: World,
}

impl Node {
    /// Says why where there can be none, or where runc alone can run no pod.
    pub(crate) fn of(world: World) -> Option<Self> {
        Self::with(world, &[])
    }

    /// The same with further options of `runtime configure`.
    pub(crate) fn with(world: World, options: &[&str]) -> Option<Self> {
        Self::equip(&world);
        world.done(&[&CONFIGURE[..], &["--cdi"], options].concat());
        Self::unconfigured(world)
    }

    /// The same, whose engine is left as its owner has it, after [`Self::equip`].
    pub(crate) fn unconfigured(mut world: World) -> Option<Self> {
        let kubelet = Kubelet::of(&world)?;
        world.done(&["verbgate", "cdi", "generate", "-o", "/etc/cdi/verbgate.json"]);
        let daemon = start(&mut world);
        world.done(&["ctr", "--namespace=k8s.io", "image", "import", image::ARCHIVE]);
        let node = Self { kubelet, daemon: Some(daemon), world };
        node.works().then_some(node)
    }

    /// What a node has before Verbgate comes: a configuration, a network for pods, and images to import.
    pub(crate) fn equip(world: &World) {
        let debian = world.read(FILE).unwrap();
        assert!(debian.contains(PLUGIN), "{debian}");
        // A node of one tenant, on which a pod's annotation grants.
        world.write("/etc/verbgate/config.toml", b"annotations = \"grant\"\n");
        // Machines in containers may prefer no process to others when memory is short.
        let more = format!("sandbox_image = \"{}\"\nrestrict_oom_score_adj = true\n", image::PAUSE);
        world.write(FILE, debian.replacen(PLUGIN, &[PLUGIN, &more].join("\n"), 1).as_bytes());
        let (dir, names) = NETWORK;
        for name in names {
            let path = format!("{dir}/{name}");
            world.write(&path, NETWORK_PLUGIN.as_bytes());
            world.done(&["chmod", "755", &path]);
        }
        // containerd makes a pod's files of the host's.
        for file in ["/etc/hosts", "/etc/resolv.conf"] {
            world.write(file, b"");
        }
        let network = json!({"cniVersion": "0.3.1", "name": "alone", "type": "alone"});
        world.write(NETWORK_FILE, network.to_string().as_bytes());
        image::make(world);
    }

    pub(crate) fn stop(&mut self) {
        self.daemon.take().unwrap().stop();
    }

    pub(crate) fn restart(&mut self) {
        self.stop();
        self.daemon = Some(start(&mut self.world));
    }

    /// Whether a pod can be run here by runc alone; says why not.
    fn works(&self) -> bool {
        let pod = Pod::of("native", &[]);
        let run = || {
            let id = self.kubelet.run_pod(&pod, "runc")?;
            let ran = self.kubelet.run(&id, &pod, box_of("box"));
            self.kubelet.remove_pod(&id);
            ran
        };
        let ran = run();
        if let Err(why) = &ran {
            eprintln!("SKIPPED: containerd cannot run a pod here: {why}");
        }
        ran.is_ok()
    }

    pub(crate) fn said(&self, container: &str, command: &[&str]) -> String {
        let executed = self.kubelet.exec(container, command);
        let [stdout, stderr] =
            [executed.stdout, executed.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(executed.code, 0, "{command:?}: {stdout} {stderr}");
        stdout.trim().to_owned()
    }

    /// The containers that have a supervisor.
    pub(crate) fn supervised(&self) -> Vec<String> {
        let mut ids: Vec<String> = self
            .world
            .supervised()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    }

    /// Waits until these containers have a supervisor, and no others.
    pub(crate) fn await_supervised(&self, ids: &[String]) {
        verbgate_wait::until(&format!("{ids:?}"), || self.supervised() == ids);
    }

    /// A container that was granted the device: it has the node, can use it, has a `/sys` of ours, and two filters, of
    /// which one is the default profile.
    fn assert_has_rdma(&self, container: &str) {
        assert_eq!(self.said(container, &["ls", "/dev/infiniband"]), "uverbs0");
        assert!(self.said(container, &image::ASK).ends_with(image::ANSWER));
        let sys = self.said(container, &["sh", "-c", SYS]);
        assert_eq!(sys.split(' ').nth(2), Some("fuse"), "{sys}");
        assert_eq!(self.filters(container), 2);
    }

    /// Any other container: the default profile, and nothing of ours.
    pub(crate) fn assert_has_none(&self, container: &str) {
        assert!(!self.said(container, &["ls", "/dev"]).contains("infiniband"));
        let sys = self.said(container, &["sh", "-c", SYS]);
        assert_eq!(sys.split(' ').nth(2), Some("sysfs"), "{sys}");
        assert_eq!(self.filters(container), 1);
    }

    /// What a pod's author writes gives nothing: volumes where RDMA's nodes would be (an empty one, a file, a node that a
    /// container made), and variables.
    pub(crate) fn assert_volumes_give_nothing(&self, id: &str, pod: &Pod) {
        let makes =
            "mkdir -p empty && echo text >file && rm -f node && mknod -m 666 node c 231 192";
        self.world.sh(&format!("mkdir -p {VOLUMES} && cd {VOLUMES} && {makes}"));
        for (volume, inside) in [("empty", DIR), ("file", NODE), (".", DIR)] {
            let asks = box_of(&format!("volume-{}", volume.replace('.', "all")));
            let asks = asks
                .with_volume(&format!("{VOLUMES}/{volume}"), inside)
                .with_env(("NVIDIA_MOFED", "enabled"));
            let container = self.kubelet.run(id, pod, asks).unwrap();
            assert_eq!(self.filters(&container), 1, "{volume}");
            assert!(!self.supervised().contains(&container), "{volume}");
        }
    }

    /// How many filters are upon what is executed in a container, beyond those upon this test.
    pub(crate) fn filters(&self, container: &str) -> u32 {
        let grep = ["grep", "^Seccomp_filters:", "/proc/self/status"];
        let [inside, outside] = [self.said(container, &grep), self.world.done(&grep)]
            .map(|line| line.split_whitespace().last().unwrap().parse::<u32>().unwrap());
        inside - outside
    }
}

pub(crate) fn box_of(name: &str) -> Container {
    Container::of(name, image::NAME, &STAYS)
}

/// Who writes a pod can annotate it: its containers are served, its pause container is not.
fn annotated(node: &Node) -> (String, Vec<String>) {
    let pod = Pod::of("annotated", &[RDMA]);
    let id = node.kubelet.run_pod(&pod, HANDLER).unwrap();
    assert!(node.supervised().is_empty());
    let container = node.kubelet.run(&id, &pod, box_of("box")).unwrap();
    assert_eq!(node.supervised(), [container.as_str()]);
    (id, vec![container])
}

/// What hands devices out asks for one container of a pod. The same said by who writes the pod gives nothing.
fn handed(node: &Node, knows_cdi: bool) -> (String, Vec<String>) {
    let pod = Pod::of("handed", &[CDI_ANNOTATION]);
    let id = node.kubelet.run_pod(&pod, HANDLER).unwrap();
    let run = |container| node.kubelet.run(&id, &pod, container).unwrap();
    node.assert_has_none(&run(box_of("plain")));
    let mut served = vec![
        run(box_of("device").with_device(NODE)),
        run(box_of("plug-in").with_annotation(CDI_ANNOTATION)),
    ];
    served.extend(knows_cdi.then(|| run(box_of("cdi").with_cdi(CDI))));
    (id, served)
}

/// Who writes a pod chooses where its volumes are mounted, and what is in them.
fn with_volumes(node: &Node) -> (String, Vec<String>) {
    let pod = Pod::of("volumes", &[]);
    let id = node.kubelet.run_pod(&pod, HANDLER).unwrap();
    node.assert_volumes_give_nothing(&id, &pod);
    (id, Vec::new())
}

/// A container that ends takes its supervisor along, and the pod stays.
fn in_the_hosts_network(node: &Node) -> (String, Vec<String>) {
    let pod = Pod::of("host", &[RDMA]).in_the_hosts_network();
    let id = node.kubelet.run_pod(&pod, HANDLER).unwrap();
    let ends = Container::of("ends", image::NAME, &["true"]);
    node.kubelet.run(&id, &pod, ends).unwrap();
    let container = node.kubelet.run(&id, &pod, box_of("box")).unwrap();
    let network = ["readlink", "/proc/self/ns/net"];
    assert_eq!(node.said(&container, &network), node.world.done(&network));
    (id, vec![container])
}

/// Pods, by every way in which their containers ask for the device.
fn serves_pods(suite: &str, knows_cdi: bool) {
    let Some(mut node) = World::of(suite).and_then(Node::of) else { return };
    let before = node.world.traces();
    // What this test would see if the runtime were not configured.
    let why = node.kubelet.run_pod(&Pod::of("absent", &[]), "absent").unwrap_err();
    assert!(why.contains("no runtime for") && why.contains("absent"), "{why}");

    let asking = [annotated(&node), handed(&node, knows_cdi), in_the_hosts_network(&node)];
    let pods = [asking.as_slice(), &[with_volumes(&node)]].concat();
    let mut served: Vec<String> = pods.iter().flat_map(|(_, served)| served.clone()).collect();
    served.sort();
    node.await_supervised(&served);
    served.iter().for_each(|id| node.assert_has_rdma(id));
    // containerd goes and comes, and knows its pods again.
    node.restart();
    assert_eq!(node.supervised(), served);
    served.iter().for_each(|id| node.assert_has_rdma(id));

    assert_ne!(node.world.traces(), before);
    for (pod, ended) in pods {
        node.kubelet.remove_pod(&pod);
        served.retain(|id| !ended.contains(id));
        node.await_supervised(&served);
    }
    assert_eq!(node.kubelet.list(), Vec::<String>::new());
    node.world.assert_nothing_left();
    assert_eq!(node.world.traces(), before);
    node.stop();
}

#[test]
fn containerd_1_6_serves_pods_of_a_kubelet() {
    serves_pods("bookworm", false);
}

#[test]
fn containerd_1_7_serves_pods_of_a_kubelet() {
    serves_pods("trixie", true);
}

#[test]
fn containerd_2_serves_pods_of_a_kubelet() {
    serves_pods("sid", true);
}

/// containerd ends by our runtime also what has no RDMA: a pause container, which every pod has.
#[test]
fn package_is_not_removed_under_running_pods() {
    let Some(world) = World::with("trixie", "") else { return };
    if !package::make(&world) {
        return;
    }
    assert!(package::dpkg(&world, &["--install", package::DEB]).status.success());
    let Some(mut node) = Node::of(world) else { return };
    let pod = Pod::of("stays", &[RDMA]);
    let pause = node.kubelet.run_pod(&pod, HANDLER).unwrap();
    let refused = |node: &Node, needles: &[&str]| {
        let output = package::dpkg(&node.world, &["--remove", "verbgate"]);
        let why = stderr(&output);
        assert!(!output.status.success() && package::is_installed(&node.world), "{why}");
        for needle in [needles, &[&pause, "crictl rmp --force"]].concat() {
            assert!(why.contains(needle), "{needle}: {why}");
        }
    };
    refused(&node, &["cannot end without the runtime: 1"]);
    let container = node.kubelet.run(&pause, &pod, box_of("box")).unwrap();
    refused(
        &node,
        &[
            &container,
            "which only this package can end cleanly: 1",
            "cannot end without the runtime: 1",
        ],
    );
    node.assert_has_rdma(&container);
    // As the messages say.
    node.kubelet.remove_pod(&pause);
    node.world.assert_nothing_left();
    let output = package::dpkg(&node.world, &["--remove", "verbgate"]);
    assert!(output.status.success(), "{output:?}");
    node.restart();
    assert!(node.works());
    node.stop();
}
