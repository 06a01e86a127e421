//! `--to` with a container's name, which the container's engine knows.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::stderr;
use crate::world::Subnets;
use crate::world::World;

/// Debian has no crictl, so a script answers for one container. It takes only the call that crictl documents for
/// a template (`crictl inspect --output go-template --template TEMPLATE ID`), and fails as crictl does.
const CRICTL: &str = r#"#!/bin/sh
[ "$*" = "inspect --output=go-template --template={{.info.pid}} -- 3f1c0de" ] || {
    echo "no such container" >&2
    exit 1
}
echo PID
"#;

#[test]
fn a_container_of_a_cri_gets_its_nics() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let bin = world.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let to = |name: &str, pid: &str| {
        let crictl = bin.join("crictl");
        fs::write(&crictl, CRICTL.replace("PID", pid)).unwrap();
        fs::set_permissions(&crictl, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = world.command(&["netdev", "move", "--to", name, "--iface", "rail0"]);
        command.env("PATH", format!("{}:{path}", bin.display())).output().unwrap()
    };
    // Another container; one that does not run.
    for (name, pid) in [("another", world.target.pid().as_str()), ("3f1c0de", "0")] {
        let output = to(name, pid);
        assert!(!output.status.success(), "{output:?}");
        assert!(stderr(&output).contains(name), "{output:?}");
        assert!(world.home.sh("ip -o link").contains("rail0"));
    }
    let output = to("3f1c0de", &world.target.pid());
    assert!(output.status.success(), "{output:?}");
    assert!(world.target.sh("ip -o -4 addr show dev rail0").contains("10.0.0.1/16"));
    world.restore();
    assert!(world.home.sh("ip -o -4 addr show dev rail0").contains("10.0.0.1/16"));
}
