//! Docker, with its default seccomp profile.

use std::process::Output;

use crate::common::stderr;
use crate::common::stdout;
use crate::engines::image;
use crate::engines::world::Daemon;
use crate::engines::world::SYS;
use crate::engines::world::World;
use crate::engines::world::assert_sys_is_ours;

pub(crate) const FILE: &str = "/etc/docker/daemon.json";
pub(crate) const CONFIGURE: [&str; 5] =
    ["verbgate", "runtime", "configure", "--runtime=docker", "--cdi"];

/// Has Docker offer checkpoints.
pub(crate) const EXPERIMENTAL: [&str; 1] = ["--experimental"];

/// Starts Docker, but without rules for packets, which not every host's kernel has.
pub(crate) fn start(world: &mut World) -> Daemon {
    start_with(world, &[])
}

pub(crate) fn start_with(world: &mut World, options: &[&str]) -> Daemon {
    let words = ["dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"];
    world.start(&[&words, options].concat(), &["docker", "version"])
}

/// Whether Docker itself can run a container here, with the image that it is given; says why not.
pub(crate) fn works(world: &World) -> bool {
    image::make(world);
    world.done(&["docker", "load", "-i", image::ARCHIVE]);
    let native = docker_run(world, &[], &["true"]);
    if !native.status.success() {
        eprintln!("SKIPPED: Docker cannot run a container here: {}", stderr(&native));
    }
    native.status.success()
}

/// Runs a container whose program ends a moment after the program's last word: on a busy machine, Docker loses the
/// output of a program that ends before Docker has opened the output ("reading from a closed fifo").
pub(crate) fn docker_run(world: &World, options: &[&str], words: &[&str]) -> Output {
    let run = ["docker", "run", "--rm", "--network=none"];
    let slowly = ["sh", "-c", r#""$@"; status=$?; sleep 0.5; exit $status"#, "sh"];
    world.run(&[&run[..], options, &[image::NAME], &slowly, words].concat())
}

/// The ways in which a container asks for the device; and whether this Docker knows CDI.
fn gives_rdma(suite: &str, version: &str, wishes: &[&str], knows_cdi: bool) {
    let Some(mut world) = World::of(suite) else { return };
    assert!(world.done(&["dockerd", "--version"]).contains(version));
    let output = world.run(&CONFIGURE);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output).contains("--cdi has no effect"), !knows_cdi, "{output:?}");
    assert_eq!(world.read(FILE).unwrap().contains("features"), knows_cdi);
    world.done(&["verbgate", "cdi", "generate", "-o", "/etc/cdi/verbgate.json"]);
    let daemon = start(&mut world);
    if !works(&world) {
        return;
    }
    assert!(world.done(&["docker", "info"]).contains("seccomp"));
    for wish in wishes {
        let ours = ["--runtime=verbgate", wish];
        let output = docker_run(&world, &ours, &["ls", "/dev/infiniband"]);
        assert_eq!(stdout(&output), "uverbs0", "{wish}: {output:?}");
        let output = docker_run(&world, &ours, &image::ASK);
        assert!(stdout(&output).ends_with(image::ANSWER), "{wish}: {output:?}");
    }
    // A device by CDI and another runtime: refused, rather than raw.
    if let Some(cdi) = wishes.iter().find(|wish| wish.contains("verbgate.org/rdma")) {
        let output = docker_run(&world, &[cdi], &["true"]);
        assert!(!output.status.success(), "{output:?}");
        assert!(stderr(&output).contains("--runtime verbgate"), "{output:?}");
    }
    let output = docker_run(
        &world,
        &["-d", "--name=stays", "--runtime=verbgate", wishes[0]],
        &["sleep", "1000"],
    );
    assert!(output.status.success(), "{output:?}");
    assert_eq!(world.supervised().len(), 1);
    assert_eq!(world.done(&["docker", "exec", "stays", "ls", "/dev/infiniband"]), "uverbs0");
    world.done(&["docker", "rm", "--force", "stays"]);
    world.assert_nothing_left();
    daemon.stop();
    // Docker starts without it as before.
    world.done(&["verbgate", "runtime", "unconfigure"]);
    assert_eq!(world.read(FILE), None);
    let daemon = start(&mut world);
    let output = docker_run(&world, &["--runtime=verbgate"], &["true"]);
    assert!(!output.status.success());
    daemon.stop();
}

/// The host's `/sys` is shown to no container, also where the profile keeps it from mounting.
fn keeps_the_hosts_sys(suite: &str) {
    let Some(mut world) = World::of(suite) else { return };
    world.done(&CONFIGURE);
    let daemon = start(&mut world);
    if !works(&world) {
        return;
    }
    let ours = ["--runtime=verbgate", "--device=/dev/infiniband/uverbs0"];
    assert_sys_is_ours(&docker_run(&world, &ours, &["sh", "-c", SYS]));
    daemon.stop();
}

#[test]
fn v20_keeps_the_hosts_sys_under_its_default_profile() {
    keeps_the_hosts_sys("bookworm");
}

#[test]
fn v26_keeps_the_hosts_sys_under_its_default_profile() {
    keeps_the_hosts_sys("trixie");
}

/// As most people pass RDMA today: the folder and a rule for its devices. It is served, or refused.
#[test]
fn v26_gives_no_raw_device_by_a_mount() {
    let Some(mut world) = World::of("trixie") else { return };
    world.done(&CONFIGURE);
    let daemon = start(&mut world);
    if !works(&world) {
        return;
    }
    let raw = ["--volume=/dev/infiniband:/dev/infiniband", "--device-cgroup-rule=c 10:229 rwm"];
    let options = [&raw[..], &["--runtime=verbgate", "--detach", "--name=raw"]].concat();
    let output = docker_run(&world, &options, &["sleep", "1000"]);
    if output.status.success() {
        assert_eq!(world.supervised().len(), 1, "the container has the raw device");
        world.done(&["docker", "rm", "--force", "raw"]);
        world.assert_nothing_left();
    } else {
        assert!(stderr(&output).contains("/dev/infiniband"), "{output:?}");
    }
    daemon.stop();
}

#[test]
fn v20_gives_rdma_under_its_default_profile() {
    gives_rdma("bookworm", " 20.10.", &["--device=/dev/infiniband/uverbs0"], false);
}

const ALL_WISHES: [&str; 3] = [
    "--device=/dev/infiniband/uverbs0",
    "--annotation=org.verbgate.devices=mlx5_0",
    "--device=verbgate.org/rdma=mlx5_0",
];

#[test]
fn v26_gives_rdma_under_its_default_profile() {
    gives_rdma("trixie", " 26.", &ALL_WISHES, true);
}

/// That of Debian's unstable suite.
#[test]
fn newest_gives_rdma_under_its_default_profile() {
    gives_rdma("sid", " ", &ALL_WISHES, true);
}
