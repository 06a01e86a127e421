//! The script of the chart on a node with containerd. A program that writes its words down stands for curl, by which
//! the script speaks to the cluster: no cluster is here.

use crate::common::stderr;
use crate::engines::containerd;
use crate::engines::image;
use crate::engines::world::World;

const LABELS: &str = "/tmp/labels";
const CURL: &str = "#!/bin/sh\necho \"$*\" >>/tmp/labels\n";
pub(crate) const SCRIPT: &str = include_str!("../../../dist/kubernetes/node.sh");
pub(crate) const PRERM: &str = include_str!("../../../dist/debian/prerm");
const ENVIRONMENT: [&str; 9] = [
    "env",
    "NODE=node1",
    "ENGINE=containerd",
    "RUNTIME=verbgate",
    "RESTART=no",
    "DRA=no",
    "KUBELET=/var/lib/kubelet",
    "KUBERNETES_SERVICE_HOST=192.0.2.1",
    "KUBERNETES_SERVICE_PORT=443",
];

pub(crate) fn program(world: &World, path: &str, text: &str) {
    world.write(path, text.as_bytes());
    world.done(&["chmod", "755", path]);
}

/// Runs the script until it has labelled the node, and then ends it.
fn labelled(world: &mut World, verb: &str) -> String {
    world.write(LABELS, b"");
    let words = [&ENVIRONMENT[..], &["/usr/bin/verbgate-node", verb]].concat();
    let script = world.start(&words, &["grep", "-q", "labels", LABELS]);
    script.stop();
    let told = world.read(LABELS).unwrap();
    assert!(told.contains("api/v1/nodes/node1"), "{told}");
    // Every user of the host can read a program's arguments.
    assert!(!told.contains("not-to-be-seen"), "{told}");
    told
}

#[test]
fn is_made_ready_and_taken_back() {
    let Some(mut world) = World::of("trixie") else { return };
    program(&world, "/usr/bin/verbgate-node", SCRIPT);
    program(&world, "/usr/libexec/verbgate/prerm", PRERM);
    program(&world, "/usr/bin/curl", CURL);
    world.write("/var/run/secrets/kubernetes.io/serviceaccount/token", b"not-to-be-seen");
    // A pod sees the host's folder of programs there.
    world.sh("mkdir -p /usr/local/bin && ln -s / /host");
    let found = world.read(containerd::FILE).unwrap();
    let daemon = containerd::start(&mut world);
    // The engine has to be restarted first, and nobody was asked to do that.
    assert!(labelled(&mut world, "run").contains("runtime\": null"));
    assert!(world.read("/run/cdi/verbgate.json").unwrap().contains("mlx5_0"));
    daemon.stop();
    let daemon = containerd::start(&mut world);
    // The GPU operator's toolkit comes later.
    world.sh("mkdir -p /etc/nvidia-container-runtime");
    let toolkit = "/etc/nvidia-container-runtime/config.toml";
    let written = "[nvidia-container-runtime]\nruntimes = [\"runc\"]\n";
    world.write(toolkit, written.as_bytes());
    assert!(labelled(&mut world, "run").contains("runtime\": \"true\""));
    let ours = "runtimes = [\"/usr/local/bin/verbgate-oci-runc\", \"runc\"]";
    assert!(world.read(toolkit).unwrap().contains(ours));

    image::make(&world);
    world.done(&["ctr", "image", "import", image::ARCHIVE]);
    let run = [
        "ctr",
        "run",
        "--detach",
        "--null-io",
        "--runc-binary",
        "/usr/local/bin/verbgate-oci-runc",
    ];
    let rdma =
        ["--annotation", "org.verbgate.devices=mlx5_0", image::NAME, "stays", "sleep", "1000"];
    let output = world.run(&[&run[..], &rdma].concat());
    if !output.status.success() {
        eprintln!("SKIPPED: containerd cannot run a container here: {}", stderr(&output));
        return;
    }
    let uninstall = [&ENVIRONMENT[..], &["/usr/bin/verbgate-node", "uninstall"]].concat();
    let output = world.run(&uninstall);
    let why = stderr(&output);
    assert!(
        !output.status.success() && why.contains("only this package can end cleanly: 1"),
        "{why}"
    );
    assert_eq!(world.supervised().len(), 1);
    assert!(world.read(containerd::FILE).unwrap().contains("verbgate"));
    world.done(&["ctr", "task", "kill", "--signal", "SIGKILL", "stays"]);
    world.sh("until ctr task ls | grep -q STOPPED; do sleep 1; done");
    world.done(&["ctr", "task", "rm", "stays"]);
    world.done(&["ctr", "container", "rm", "stays"]);

    world.write(LABELS, b"");
    let traces = "find /usr/local/bin /run/cdi ! -type d 2>/dev/null
        ls -d /run/verbgate /var/lib/verbgate 2>/dev/null; true";
    let script = world.start(&uninstall, &["sh", "-c", &format!("test -z \"$({traces})\"")]);
    script.stop();
    assert!(world.read(LABELS).unwrap().contains("runtime\": null"));
    assert_eq!(world.read(containerd::FILE), Some(found));
    assert_eq!(world.read(toolkit).as_deref(), Some(written));
    daemon.stop();
}
