//! Bad input: one line that says the fault and the remedy; nothing changes.

use std::process::Command;

use crate::common::stderr;
use crate::world::Subnets;
use crate::world::World;
use crate::world::same;

/// The one line that a command fails with.
fn refused(mut command: Command, code: i32) -> String {
    let output = command.output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {told}");
    let last = told.lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("verbgate: "), "{told}");
    last
}

#[test]
fn wrong_words_are_named_with_the_remedy() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let (before, container) = (world.home.dump(), world.target.dump());
    let to = world.target.pid();
    let own = world.home.pid();
    let bad_manifest = world.dir.path().join("bad.json");
    std::fs::write(&bad_manifest, "{}").unwrap();
    let bad_manifest = bad_manifest.to_str().unwrap();
    let cases: &[(i32, &[&str], &str)] = &[
        (1, &["--to", "no-such-container"], "nor a running container"),
        (1, &["--to", "4194999"], "the process or the name is gone"),
        (1, &["--to", "/etc/passwd"], "is not a network namespace"),
        (1, &["--to", "/proc/self/ns/mnt"], "another kind"),
        (1, &["--to", &own], "the NICs are in the network namespace"),
        (1, &["--to", &to, "--iface", "eth77"], "no network device is called \"eth77\""),
        (
            1,
            &["--to", &to, "--hca", "mlx4"],
            "there is no NIC to move: rail0: --hca does not choose",
        ),
        (2, &["--to", &to, "--hca", "mlx5:x"], "--hca"),
        (2, &["--to", &to, "--exclude", "("], "not a regular expression"),
        (2, &["--to", &to, "--arp", "lax"], "strict"),
        (2, &["--nonsense"], "--nonsense"),
        (2, &[], "--to"),
        (1, &["--to", &to, "--peer-manifest", "/absent"], "/absent"),
        (1, &["--to", &to, "--peer-manifest", bad_manifest], "is not a manifest"),
        (1, &["--to", &to, "--verify-from", "no-such-peer"], "no-such-peer"),
    ];
    for (code, options, expected) in cases {
        let told = refused(world.command(&[&["netdev", "move"], *options].concat()), *code);
        assert!(told.contains(expected), "{options:?}: {told}");
        assert!(!world.journal().exists(), "{options:?}");
    }
    same(&before, &world.home.dump(), "at home");
    same(&container, &world.target.dump(), "in the container");
}

#[test]
fn a_root_that_is_no_sysfs_is_named() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let mut command = world.home.command(&[crate::common::verbgate(), "netdev", "list"]);
    command.args(["--sysfs-root", "/absent"]);
    assert!(refused(command, 2).contains("/absent has no class/"));
}

#[test]
fn a_foreign_journal_is_not_touched() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    std::fs::create_dir(world.state_dir()).unwrap();
    for text in ["", "not JSON", "{\"version\": 99}", "[]"] {
        std::fs::write(world.journal(), text).unwrap();
        let restore = world.command(&["netdev", "restore"]);
        let status = world.command(&["netdev", "status"]);
        for command in [world.move_command(&[]), restore, status] {
            let told = refused(command, 1);
            assert!(told.contains("is not a journal of this version"), "{told}");
        }
        assert_eq!(std::fs::read_to_string(world.journal()).unwrap(), text);
    }
}

#[test]
fn a_journal_of_another_host_says_home_of_no_nic_that_is_not_there() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    world.move_all(&[]);
    let journal = std::fs::read_to_string(world.journal()).unwrap();
    world.restore();
    let mut of_other: serde_json::Value = serde_json::from_str(&journal).unwrap();
    for key in ["mac", "permanent"] {
        of_other["nics"][0]["identity"][key] = "02:00:00:00:00:99".into();
    }
    std::fs::write(world.journal(), of_other.to_string()).unwrap();
    let output = world.command(&["netdev", "restore", "--wait", "0"]).output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("rail0 is gone") && !told.contains("are home"), "{told}");
    assert!(!told.contains("] rail0 home"), "{told}");
    // A journal that nobody could read is not waited for.
    std::fs::remove_file(world.journal()).unwrap();
    assert!(Command::new("mkfifo").arg(world.journal()).status().unwrap().success());
    assert!(refused(world.command(&["netdev", "restore"]), 1).contains("no regular file"));
    std::fs::remove_file(world.journal()).unwrap();
}

#[test]
fn nics_that_are_away_are_not_forgotten() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    world.move_all(&["--iface", "rail0"]);
    let told = refused(world.move_command(&["--iface", "rail1"]), 1);
    assert!(told.contains("rail0") && told.contains("verbgate netdev restore"), "{told}");
    world.restore();
}

#[test]
fn what_cannot_be_put_back_is_not_taken() {
    let Some(world) = World::new(2, Subnets::Different) else { return };
    world.home.ip("nexthop add id 7 via 10.0.0.254 dev rail0\nroute add 192.168.1.0/24 nhid 7\n\
         route add 192.168.2.0/24 via 10.1.0.254 dev rail1\n");
    let told = refused(world.move_command(&[]), 1);
    assert!(told.contains("rail0") && told.contains("nexthop object"), "{told}");
    world.home.ip("route del 192.168.1.0/24\n");

    world.target.ip("link add x type veth peer name y\nlink property add dev x altname dear\n");
    world.home.ip("link property add dev rail0 altname dear\n");
    let told = refused(world.move_command(&[]), 1);
    assert!(told.contains("alternative name dear"), "{told}");
    assert!(!world.journal().exists());
}

#[test]
fn without_privilege_nothing_is_begun() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let to = world.target.path();
    let sysfs = world.sysfs();
    std::os::unix::fs::chown(world.dir.path(), Some(65534), Some(65534)).unwrap();
    // The program itself may be where others cannot go.
    let program = world.dir.path().join("verbgate");
    std::fs::copy(crate::common::verbgate(), &program).unwrap();
    let mut command = world.home.command(&["setpriv", "--reuid=65534", "--regid=65534"]);
    command.arg("--clear-groups").arg(program).args(["netdev", "move"]);
    command.arg("--to").arg(to).arg("--sysfs-root").arg(sysfs).arg("--state-dir");
    command.arg(world.state_dir());
    let told = refused(command, 1);
    assert!(told.contains("needs root"), "{told}");
    assert!(!world.journal().exists());
}
