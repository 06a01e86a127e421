//! A runtime by a third name, as NVIDIA's container toolkit brings one: a program that changes the bundle and
//! becomes runc. Verbgate wraps that program.

use crate::common::stderr;
use crate::common::stdout;
use crate::engines::cri::Container;
use crate::engines::cri::LOGS;
use crate::engines::cri::Pod;
use crate::engines::docker;
use crate::engines::docker::docker_run;
use crate::engines::image;
use crate::engines::matrix::until;
use crate::engines::pods::HANDLER;
use crate::engines::pods::NODE;
use crate::engines::pods::Node;
use crate::engines::world::World;

const NAME: &str = "nvidia-container-runtime";
const PATH: &str = "/opt/toolkit/nvidia-container-runtime";
/// Adds a variable to the container, as the real one adds GPUs.
const PROGRAM: &str = r#"#!/bin/sh
echo "$*" >>/tmp/wrapped
bundle= last=
for word; do
    case $last in --bundle | -b) bundle=$word ;; esac
    last=$word
done
[ -z "$bundle" ] || sed -i 's/"env":\[/"env":["WRAPPED=yes",/' "$bundle/config.json"
exec runc "$@"
"#;
const SHOW: [&str; 3] = ["sh", "-c", "echo $WRAPPED; ls /dev/infiniband"];

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

#[test]
fn docker_26_runs_a_runtime_by_a_third_name() {
    let Some(mut world) = World::of("trixie") else { return };
    installed(&world);
    world.done(&[&docker::CONFIGURE[..], &["--wrap", PATH]].concat());
    let daemon = docker::start(&mut world);
    if !docker::works(&world) {
        return;
    }
    let ours = ["--runtime=verbgate", "--device=/dev/infiniband/uverbs0"];
    let output = docker_run(&world, &ours, &SHOW);
    assert_eq!(stdout(&output), "yes\nuverbs0", "{output:?}");
    let output = docker_run(&world, &ours, &image::ASK);
    assert!(stdout(&output).ends_with(image::ANSWER), "{output:?}");
    let detached = [&ours[..], &["--detach", "--name=stays"]].concat();
    let output = docker_run(&world, &detached, &["sleep", "1000"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.supervised().len(), 1);
    assert_eq!(world.done(&["docker", "exec", "stays", "ls", "/dev/infiniband"]), "uverbs0");
    world.done(&["docker", "rm", "--force", "stays"]);
    assert_was_called(&world, &["create", "start", "exec", "kill", "delete"]);
    world.assert_nothing_left();
    daemon.stop();
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
    let container =
        Container::of("box", image::NAME, &["sh", "-c", "echo wrapped: $WRAPPED; sleep 1000"]);
    let container = container.with_device(NODE);
    let container = node.kubelet.run(&id, &pod, container).unwrap();
    assert_eq!(node.world.supervised().len(), 1);
    let done = node.kubelet.exec(&container, &["ls", "/dev/infiniband"]);
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "uverbs0\n");
    // The container's first process has what the wrapped runtime has made of the bundle.
    let log = format!("{LOGS}/box.log");
    until("a line of the log", || {
        node.world.read(&log).is_some_and(|log| log.contains("wrapped: yes"))
    });
    node.kubelet.remove_pod(&id);
    assert_was_called(&node.world, &["create", "start", "exec", "kill", "delete"]);
    node.world.assert_nothing_left();
    assert!(node.world.read(crate::engines::containerd::FILE).unwrap().contains(NAME));
    node.stop();
}
