//! Runtimes that call others. Verbgate calls a runtime by a third name; NVIDIA's, which changes the bundle, calls Verbgate.

use crate::common::stderr;
use crate::common::stdout;
use crate::engines::containerd::FILE;
use crate::engines::cri::Container;
use crate::engines::cri::Pod;
use crate::engines::docker;
use crate::engines::docker::docker_run;
use crate::engines::image;
use crate::engines::pods::HANDLER;
use crate::engines::pods::NODE;
use crate::engines::pods::Node;
use crate::engines::world::World;
use crate::nvidia;

const NAME: &str = "third-runtime";
const PATH: &str = "/opt/third/third-runtime";
const PROGRAM: &str = "#!/bin/sh\necho \"$*\" >>/tmp/wrapped\nexec runc \"$@\"\n";
/// NVIDIA's toolkit, as its package has it, on a host with a GPU.
const TOOLKIT: &str = "/etc/nvidia-container-runtime/config.toml";
const SETTINGS: &str =
    "[nvidia-container-runtime]\nmode = \"MODE\"\nruntimes = [\"runc\", \"crun\"]\n";
const MODES: [&str; 2] = ["legacy", "jit-cdi"];
const GPU: &str = "mknod -m 666 /dev/nvidia0 c 1 5";

fn installed(world: &World) {
    world.write(PATH, PROGRAM.as_bytes());
    world.sh(&format!("chmod 755 {PATH}; mkdir -p /usr/local/bin"));
}

fn assert_was_called(world: &World, verbs: &[&str]) {
    let called = world.read("/tmp/wrapped").unwrap_or_default();
    for verb in verbs {
        assert!(called.contains(verb), "{verb}: {called}");
    }
}

/// A host with the toolkit.
fn with_toolkit(mode: &str) -> Option<World> {
    // The suite that has Python.
    let world = World::of("sid")?;
    for name in nvidia::NAMES {
        world.write(&format!("/usr/bin/{name}"), nvidia::STAND_IN.as_bytes());
        world.done(&["chmod", "755", &format!("/usr/bin/{name}")]);
    }
    world.write(TOOLKIT, SETTINGS.replace("MODE", mode).as_bytes());
    world.sh(GPU);
    Some(world)
}

#[test]
fn docker_runs_nvidias_runtime_which_calls_verbgate() {
    for mode in MODES {
        let Some(mut world) = with_toolkit(mode) else { return };
        let nvidia =
            format!("{{\"runtimes\": {{\"nvidia\": {{\"path\": \"{}\"}}}}}}\n", nvidia::NAME);
        world.write(docker::FILE, nvidia.as_bytes());
        let before = world.read(TOOLKIT).unwrap();
        world.done(&docker::CONFIGURE);
        assert!(
            world.read(TOOLKIT).unwrap().contains("verbgate-oci-runc"),
            "{:?}",
            world.read(TOOLKIT)
        );
        let status = stdout(&world.run(&["verbgate", "runtime", "status"]));
        assert!(status.contains("calls verbgate"), "{status}");
        let daemon = docker::start(&mut world);
        if !docker::works(&world) {
            return;
        }
        // The image asks for the NIC, and the container gets a supervised one.
        let image = ["--env=NVIDIA_VISIBLE_DEVICES=all", "--env=NVIDIA_MOFED=enabled"];
        let ours = [&["--runtime=nvidia"], &image[..]].concat();
        let output = docker_run(&world, &ours, &["ls", "/dev/infiniband", "/dev/nvidia0"]);
        assert!(
            stdout(&output).contains("uverbs0") && stdout(&output).contains("nvidia0"),
            "{output:?}"
        );
        let output = docker_run(&world, &ours, &image::ASK);
        assert!(stdout(&output).ends_with(image::ANSWER), "{mode}: {output:?}");
        world.done(&["verbgate", "runtime", "configure", "--runtime=docker", "--undo"]);
        assert_eq!(world.read(TOOLKIT).unwrap(), before);
        assert_eq!(world.read(docker::FILE).unwrap(), nvidia);
        world.assert_nothing_left();
        daemon.stop();
    }
}

/// The class `nvidia` of a cluster, as the GPU operator makes it: a handler that runs NVIDIA's runtime.
#[test]
fn pods_of_the_class_nvidia_have_a_supervised_device() {
    let Some(world) = with_toolkit("jit-cdi") else { return };
    Node::equip(&world);
    let handler = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes";
    let shim = "runtime_type = \"io.containerd.runc.v2\"";
    let tables = format!(
        "{handler}.runc]\n{shim}\n{handler}.nvidia]\n{shim}\n{handler}.nvidia.options]\nBinaryName = \"/usr/bin/{}\"\n",
        nvidia::NAME
    );
    let file = world.read(FILE).unwrap() + &tables;
    world.write(FILE, file.as_bytes());
    let before = world.read(TOOLKIT).unwrap();
    world.done(&["verbgate", "runtime", "configure", "--runtime=containerd"]);
    let Some(mut node) = Node::unconfigured(world) else { return };
    let pod = Pod::of("gpu", &[]);
    for (handler, gpu) in [("nvidia", true), (HANDLER, false)] {
        let id = node.kubelet.run_pod(&pod, handler).unwrap();
        let asks = Container::of("box", image::NAME, &["sleep", "1000"]);
        let asks =
            asks.with_env(("NVIDIA_VISIBLE_DEVICES", "all")).with_env(("NVIDIA_MOFED", "enabled"));
        let container = node.kubelet.run(&id, &pod, asks).unwrap();
        // Verbgate alone takes no environment for a wish.
        assert_eq!(node.world.supervised().len(), usize::from(gpu), "{handler}");
        let dev = node.said(&container, &["ls", "/dev"]);
        for name in ["nvidia0", "infiniband"] {
            assert_eq!(dev.lines().any(|line| line == name), gpu, "{handler}: {dev}");
        }
        node.kubelet.remove_pod(&id);
    }
    node.world.assert_nothing_left();
    node.stop();
    node.world.done(&["verbgate", "runtime", "configure", "--runtime=containerd", "--undo"]);
    assert_eq!((node.world.read(TOOLKIT).unwrap(), node.world.read(FILE).unwrap()), (before, file));
}

#[test]
fn containerd_1_7_runs_a_runtime_by_a_third_name() {
    let Some(world) = World::of("trixie") else { return };
    installed(&world);
    // containerd calls Verbgate by a name that says what is wrapped: the refusal says how that is found.
    let wrap = ["--wrap", PATH];
    let configure = ["verbgate", "runtime", "configure", "--runtime=containerd"];
    let output = world.run(&[&configure[..], &wrap].concat());
    let why = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{why}");
    let link = why.split_once("make a link: ").unwrap().1;
    world.sh(link);
    let output = world.run(&[&configure[..], &wrap, &["--dry-run"]].concat());
    let said = stderr(&output);
    world.sh(said.split_once("make the link: ").unwrap().1);
    let Some(mut node) = Node::with(world, &wrap) else { return };
    let pod = Pod::of("wraps", &[]);
    let id = node.kubelet.run_pod(&pod, HANDLER).unwrap();
    let container = Container::of("box", image::NAME, &["sleep", "1000"]).with_device(NODE);
    let container = node.kubelet.run(&id, &pod, container).unwrap();
    assert_eq!(node.world.supervised().len(), 1);
    let done = node.kubelet.exec(&container, &["ls", "/dev/infiniband"]);
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "uverbs0\n");
    node.kubelet.remove_pod(&id);
    assert_was_called(&node.world, &["create", "start", "exec", "kill", "delete"]);
    node.world.assert_nothing_left();
    assert!(node.world.read(FILE).unwrap().contains(NAME));
    node.stop();
}
