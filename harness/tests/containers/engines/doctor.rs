//! `verbgate doctor` where engines run.

use serde_json::Value;

use crate::common::stdout;
use crate::engines::containerd;
use crate::engines::docker;
use crate::engines::podman;
use crate::engines::world::World;

/// What the doctor finds first under a name: the verdict, and the remedy.
fn found(world: &World, name: &str) -> (String, String) {
    found_all(world, name).into_iter().next().unwrap_or_else(|| panic!("{name}"))
}

fn found_all(world: &World, name: &str) -> Vec<(String, String)> {
    // Its exit code is that of the whole host, which has no RDMA.
    let output = world.run(&["verbgate", "doctor", "--json"]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_name = all["checks"].as_array().unwrap().iter().filter(|one| one["name"] == name);
    let read = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        (text("verdict"), format!("{} {}", text("found"), text("remedy")))
    };
    of_name.map(read).collect()
}

/// Whether `doctor --try` has an engine start a container, and what becomes of it.
fn tries(world: &World, engine: &str) {
    let left = |world: &World| {
        let of = |words: &[&str]| {
            let ids = world.done(&[&[engine], words].concat());
            // Images of one second have no order.
            ids.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
        };
        [of(&["ps", "--all", "--quiet"]), of(&["images", "--quiet"])]
    };
    let before = left(world);
    let tried = || {
        let output = world.run(&["verbgate", "doctor", "--json", "--try", engine]);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = all["checks"].as_array().unwrap();
        // In the end, after all that explains a failure.
        let last = checks.last().unwrap().clone();
        assert_eq!(last["name"], "container");
        (last["verdict"].as_str().unwrap().to_owned(), last["found"].as_str().unwrap().to_owned())
    };
    let (verdict, found) = tried();
    // A sysfs of the container's network, of which the view is made, has no stand-in for a device.
    assert_eq!(verdict, "WARN", "{found}");
    for part in ["/dev/infiniband/uverbs0 opens", "in /sys (fuse) none", "memory to lock: "] {
        assert!(found.contains(part), "{found}");
    }
    // A runtime that gives the container nothing is not called good.
    world.write("/etc/verbgate/config.toml", b"log-levl = \"info\"\n");
    let (verdict, found) = tried();
    assert!(verdict == "FAIL" && found.contains("config.toml"), "{found}");
    world.write("/etc/verbgate/config.toml", b"annotations = \"grant\"\n");
    assert_eq!(left(world), before);
    assert!(world.supervised().is_empty());
}

#[test]
fn docker_starts_a_container_of_the_doctors_own() {
    let Some(mut world) = World::of("trixie") else { return };
    let try_docker = |world: &World| stdout(&world.run(&["verbgate", "doctor", "--try", "docker"]));
    let told = try_docker(&world);
    assert!(told.contains("FAIL container: /var/run/docker.sock does not answer: "), "{told}");
    let daemon = docker::start(&mut world);
    let told = try_docker(&world);
    assert!(told.contains("FAIL container: the engine does not know the runtime"), "{told}");
    daemon.stop();
    world.done(&docker::CONFIGURE);
    let daemon = docker::start(&mut world);
    if docker::works(&world) {
        tries(&world, "docker");
        world.assert_nothing_left();
    }
    daemon.stop();
}

#[test]
fn podman_starts_a_container_of_the_doctors_own() {
    let Some(mut world) = World::of("trixie") else { return };
    world.done(&podman::CONFIGURE);
    // No systemd runs in a world.
    world.write(
        "/etc/containers/containers.conf.d/60-world.conf",
        b"[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
    );
    if podman::works(&world) {
        tries(&world, "podman");
        world.assert_nothing_left();
    }
}

/// Each remedy is followed, and then there is none left.
#[test]
fn docker_is_seen() {
    let Some(mut world) = World::of("trixie") else { return };
    let daemon = docker::start(&mut world);
    let (verdict, remedy) = found(&world, "Docker");
    assert!(verdict == "WARN" && remedy.contains("runtime configure --runtime=docker"), "{remedy}");
    world.done(&docker::CONFIGURE);
    let (verdict, remedy) = found(&world, "Docker");
    assert!(verdict == "WARN" && remedy.ends_with(" systemctl restart docker"), "{remedy}");
    daemon.stop();
    let daemon = docker::start(&mut world);
    let (verdict, why) = found(&world, "Docker");
    assert!(verdict == "PASS" && why.contains("26."), "{why}");

    let (verdict, remedy) = found(&world, "CDI");
    assert!(verdict == "WARN" && remedy.contains("verbgate cdi refresh"), "{remedy}");
    world.done(&["verbgate", "cdi", "refresh"]);
    assert_eq!(found(&world, "CDI").0, "PASS");
    assert_eq!(found(&world, "/sys of containers").0, "PASS");
    assert!(found(&world, "memlock of containers").1.contains("under "));
    // As the remedy says, with the file's own setting.
    let file = world.read(docker::FILE).unwrap();
    let ulimits =
        r#"{"default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}, "#;
    world.write(docker::FILE, file.replacen('{', ulimits, 1).as_bytes());
    let limits = found_all(&world, "memlock of containers");
    assert!(
        limits.iter().any(|(verdict, why)| verdict == "PASS" && why.contains("default-ulimits")),
        "{limits:?}"
    );
    world.write(docker::FILE, file.as_bytes());
    daemon.stop();
    world.write(docker::FILE, b"{\n  nonsense\n}\n");
    let (verdict, why) = found(&world, "Docker");
    assert!(verdict == "FAIL" && why.contains("line 2"), "{why}");
}

#[test]
fn containerd_is_seen() {
    let Some(mut world) = World::of("trixie") else { return };
    let before = found(&world, "containerd");
    assert!(before.0 == "WARN" && before.1.contains("--runtime=containerd"), "{before:?}");
    world.done(&containerd::CONFIGURE);
    let daemon = containerd::start(&mut world);
    assert_eq!(found(&world, "containerd").0, "PASS");
    let status = ["verbgate", "runtime", "status", "--runtime=containerd"];
    world.done(&status);
    // A change that comes later, beyond the steps in which files and processes count time.
    world.sh(&format!("touch -d @$(( $(date +%s) + 60 )) {}", containerd::FILE));
    let output = world.run(&status);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("has not been restarted since"), "{output:?}");
    daemon.stop();
    // As version 0.1 of Verbgate left Debian's file: the CRI does not load.
    world.write(containerd::FILE, containerd::OURS_ALONE.as_bytes());
    let daemon = containerd::start(&mut world);
    let (verdict, why) = found(&world, "containerd");
    assert!(verdict == "FAIL" && why.contains("CRI plug-in is not up"), "{why}");
    assert!(why.contains("--undo"), "{why}");
    daemon.stop();
}

/// podman is asked for the runtime by its name, as a container is.
#[test]
fn podman_is_seen() {
    let Some(world) = World::of("trixie") else { return };
    let (verdict, remedy) = found(&world, "podman");
    assert!(verdict == "WARN" && remedy.contains("runtime configure --runtime=podman"), "{remedy}");
    world.done(&[&podman::CONFIGURE[..], &["--name", "rdma"]].concat());
    let (verdict, why) = found(&world, "podman");
    assert!(verdict == "PASS" && why.contains("rdma: /usr/bin/verbgate-oci-runc"), "{why}");
    world.done(&["verbgate", "runtime", "status", "--runtime=podman"]);
    // A slip in Verbgate's file is not podman's.
    let config = world.read("/etc/verbgate/config.toml").unwrap();
    world.write("/etc/verbgate/config.toml", b"log-levl = \"info\"\n");
    let (verdict, why) = found(&world, "configuration");
    assert!(verdict == "FAIL" && why.contains("config.toml") && why.contains("log-levl"), "{why}");
    assert_eq!(found(&world, "podman").0, "PASS");
    world.write("/etc/verbgate/config.toml", config.as_bytes());
    // A link that somebody has removed.
    world.done(&["mv", "/usr/bin/verbgate-oci-runc", "/usr/bin/away"]);
    let (verdict, why) = found(&world, "podman");
    assert!(verdict == "FAIL" && why.contains("does not find the runtime rdma"), "{why}");
    world.done(&["mv", "/usr/bin/away", "/usr/bin/verbgate-oci-runc"]);
    world.write(
        "/etc/containers/containers.conf.d/60-site.conf",
        b"[containers]\ndefault_ulimits = [\"memlock=65536:65536\"]\n",
    );
    let (verdict, why) = found(&world, "memlock of containers");
    assert!(verdict == "WARN" && why.contains("65536 bytes under default_ulimits of "), "{why}");
}
