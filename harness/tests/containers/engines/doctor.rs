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
    let of_name = all.as_array().unwrap().iter().filter(|one| one["name"] == name);
    let read = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        (text("verdict"), format!("{} {}", text("found"), text("remedy")))
    };
    of_name.map(read).collect()
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
