//! NICs that go into containers by annotation, and come back whatever dies: with crun and runc,
//! veth for NICs, and a tree of files for `/sys`.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::common::bundle;
use crate::common::bundle::Bundle;
use crate::common::bundle::Runtime;
use crate::common::stderr;
use crate::common::stdout;
use crate::world::Subnets;
use crate::world::World;
use crate::world::same;
use crate::world::until;

/// Where a test runs: a runtime, and a host with two NICs of the null device.
struct Scene {
    runtime: &'static Runtime,
    world: World,
    before: String,
}

/// One for each runtime that can run.
fn scenes() -> impl Iterator<Item = Scene> {
    bundle::runtimes().filter_map(|runtime| {
        let world = World::new(2, Subnets::Same)?;
        world.put("class/infiniband_verbs/uverbs9/ibdev", "mlx5_0");
        world.put("class/infiniband_verbs/uverbs9/dev", "1:3");
        world.put("class/infiniband_verbs/uverbs9/abi_version", "1");
        world.put("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/9", "rail1");
        world.put("class/infiniband/mlx5_0/ports/1/gids/9", "::ffff:10.0.0.2");
        let before = world.home.dump();
        Some(Scene { runtime, world, before })
    })
}

impl Scene {
    fn bundle(&self, netdevs: &str, args: &[&str]) -> Bundle {
        let mut bundle = Bundle::new(self.runtime, args);
        bundle.edit(|config| config["annotations"]["org.verbgate.netdevs"] = netdevs.into());
        bundle.options.extend(["--annotations".to_owned(), "grant".to_owned()]);
        let of_home = format!("--net={}", self.world.home.path().display());
        bundle.prefix = vec!["nsenter".into(), of_home];
        for (option, dir) in
            [("--state-dir", self.world.state_dir()), ("--sysfs-root", self.world.sysfs())]
        {
            bundle.options.extend([option.to_owned(), dir.to_str().unwrap().to_owned()]);
        }
        bundle
    }

    /// The same in the network namespace of the world's container, which outlives it.
    fn in_lasting_namespace(&self, mut bundle: Bundle) -> Bundle {
        let path = self.world.target.path();
        bundle.edit(|config| {
            for one in config["linux"]["namespaces"].as_array_mut().unwrap() {
                if one["type"] == "network" {
                    one["path"] = path.to_str().unwrap().into();
                }
            }
        });
        bundle
    }

    fn journals(&self) -> Vec<PathBuf> {
        let dir = fs::read_dir(self.world.state_dir().join("oci")).into_iter().flatten().flatten();
        dir.map(|entry| entry.path()).collect()
    }

    fn has_rails(&self) -> bool {
        self.world.home.sh("ip -o link").matches(": rail").count() == 2
    }

    /// All is as it was, and nothing is left.
    fn assert_home(&self, bundle: &Bundle, when: &str) {
        until("the NICs to be home", || self.journals().is_empty());
        same(&self.before, &self.world.home.dump(), when);
        bundle.assert_nothing_left();
    }
}

fn sorted(dump: &str) -> String {
    let mut lines: Vec<&str> = dump.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn kill(pid: &str) {
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-KILL", pid]).output().unwrap();
}

/// Shows the NICs that there are, their addresses and rules.
const LOOK: &str = "ip -o link; ip -4 -o addr; ip rule";

#[test]
fn nics_are_in_the_container_and_come_home_when_it_is_deleted() {
    for scene in scenes() {
        let bundle = scene.bundle("rail0,rail1", &["sh", "-c", LOOK]);
        let output = bundle.run();
        let text = stdout(&output);
        for line in ["rail0@", "rail1@", "10.0.0.1/16", "10.0.0.2/16", "from 10.0.0.1"] {
            assert!(text.contains(line), "{line}: {output:?}");
        }
        scene.assert_home(&bundle, "run");
        // Of those of its devices.
        let bundle = scene.bundle("all", &["sh", "-c", LOOK]);
        let output = bundle.run();
        assert!(stdout(&output).contains("rail1@"), "{output:?}");
        scene.assert_home(&bundle, "all");
        let bundle = scene.bundle("rail1", &["sleep", "infinity"]);
        bundle.create();
        assert!(!scene.has_rails());
        bundle.delete();
        scene.assert_home(&bundle, "never started");
    }
}

/// Settings are in the environment before the NICs are in the container, and what the image has set
/// stays.
#[test]
fn a_container_gets_settings_by_annotation() {
    for scene in scenes() {
        let mut bundle = scene.bundle("rail0,rail1", &["sh", "-c", "env"]);
        bundle.edit(|config| {
            config["annotations"]["org.verbgate.env"] = "nccl,ucx".into();
            let env = config["process"]["env"].as_array_mut().unwrap();
            env.push("UCX_IB_GID_INDEX=9".into());
        });
        let output = bundle.run();
        let text = stdout(&output);
        for line in [
            "NCCL_IB_HCA==mlx5_0:1",
            "NCCL_IB_ADDR_RANGE=10.0.0.0/16",
            "UCX_NET_DEVICES=mlx5_0:1",
            "UCX_IB_GID_INDEX=9",
        ] {
            assert!(text.lines().any(|its| its == line), "{line}: {output:?}");
        }
        assert!(!text.contains("NCCL_IB_GID_INDEX"), "{text}");
        scene.assert_home(&bundle, "settings");
        bundle.edit(|config| config["annotations"]["org.verbgate.env"] = "nccl,x".into());
        let refused = bundle.run();
        assert!(stderr(&refused).contains("\"x\" is none of nccl, ucx"), "{refused:?}");
        scene.assert_home(&bundle, "a wrong word");
    }
}

#[test]
fn nics_come_home_when_the_container_ends_and_nobody_deletes_it() {
    for scene in scenes() {
        let bundle = scene.bundle("rail0,rail1", &["sleep", "infinity"]);
        bundle.start();
        assert!(!scene.has_rails());
        let pid = bundle.ps()[0]["pid"].to_string();
        kill(&pid);
        until("the NICs to be home", || scene.journals().is_empty());
        same(&scene.before, &scene.world.home.dump(), "ended");
        bundle.delete();
        scene.assert_home(&bundle, "deleted");
    }
}

#[test]
fn whatever_is_killed_gc_brings_the_nics_home_and_the_next_create_works() {
    for scene in scenes() {
        let bundle =
            scene.in_lasting_namespace(scene.bundle("rail0,rail1", &["sleep", "infinity"]));
        bundle.start();
        let supervisor = bundle.ps()[0]["supervisor"].to_string();
        let container = bundle.ps()[0]["pid"].to_string();
        let keepers = bundle.processes("oci-netdevs");
        assert_eq!(keepers.len(), 1, "{keepers:?}");
        kill(&keepers[0]);
        kill(&supervisor);
        until("them to be dead", || {
            bundle.processes("oci-netdevs").is_empty()
                && !Path::new(&format!("/proc/{supervisor}/fd/0")).exists()
        });
        // It lives, and keeps its NICs.
        assert_eq!(stdout(&bundle.gc()), "");
        assert!(!scene.has_rails());
        kill(&container);
        // Its last thread takes a moment to end.
        until("gc to bring them home", || {
            let told = bundle.gc();
            assert!(told.status.success(), "{told:?}");
            stdout(&told).contains("rail0, rail1 home")
        });
        same(&scene.before, &scene.world.home.dump(), "gc");
        bundle.forget();
        bundle.start();
        assert!(!scene.has_rails());
        bundle.delete();
        scene.assert_home(&bundle, "created again");
    }
}

#[test]
fn containers_of_one_network_namespace_share_its_nics() {
    for scene in scenes() {
        let first = scene.in_lasting_namespace(scene.bundle("rail0,rail1", &["sleep", "infinity"]));
        first.start();
        for netdevs in ["rail0,rail1", "rail1", "all"] {
            let second = scene.in_lasting_namespace(scene.bundle(netdevs, &["sh", "-c", LOOK]));
            let output = second.run();
            assert!(stdout(&output).contains("rail1@"), "{output:?}");
            second.assert_nothing_left();
            assert!(!scene.has_rails());
        }
        first.delete();
        scene.assert_home(&first, "the first of the pod is deleted");
    }
}

#[test]
fn containers_with_nics_come_and_go_at_once() {
    for scene in scenes() {
        let bundles = ["rail0", "rail1"].map(|nic| scene.bundle(nic, &["sh", "-c", LOOK]));
        std::thread::scope(|scope| {
            for (bundle, nic) in bundles.iter().zip(["rail0@", "rail1@"]) {
                scope.spawn(move || {
                    for _ in 0..4 {
                        let output = bundle.run();
                        assert!(stdout(&output).contains(nic), "{output:?}");
                    }
                });
            }
        });
        same(&sorted(&scene.before), &sorted(&scene.world.home.dump()), "by turns");
        assert!(scene.journals().is_empty());
        bundles.iter().for_each(Bundle::assert_nothing_left);
    }
}

#[test]
fn a_move_that_is_cut_short_is_undone() {
    for scene in scenes() {
        for delay in [0, 10, 20, 40, 80, 160] {
            let bundle =
                scene.in_lasting_namespace(scene.bundle("rail0,rail1", &["sleep", "infinity"]));
            let mut creating = bundle.begin_to_create();
            let mut keepers = Vec::new();
            until("the move to begin", || {
                keepers = bundle.processes("oci-netdevs");
                !keepers.is_empty() || creating.try_wait().unwrap().is_some()
            });
            std::thread::sleep(Duration::from_millis(delay));
            keepers.iter().for_each(|pid| kill(pid));
            creating.wait().unwrap();
            bundle.delete_if_there();
            let told = bundle.gc();
            assert!(told.status.success(), "{told:?}");
            // The kernel's own routes of a NIC that had not left yet stand first afterwards.
            let now = sorted(&scene.world.home.dump());
            same(&sorted(&scene.before), &now, &format!("killed after {delay} ms"));
            assert!(scene.journals().is_empty());
            bundle.assert_nothing_left();
        }
    }
}

#[test]
fn a_nic_that_may_not_go_is_one_line_and_nothing_is_left() {
    for scene in scenes() {
        for (netdevs, needle) in [
            ("lo", "lo is not a NIC of a device that this container is granted"),
            ("rail7", "the NICs of those devices: rail0, rail1"),
            ("rail0,,", "does not name a NIC"),
        ] {
            let bundle = scene.bundle(netdevs, &["true"]);
            let output = bundle.run();
            let line = stderr(&output);
            assert!(line.contains("annotation org.verbgate.netdevs: "), "{line}");
            assert!(line.contains(needle) && line.lines().count() == 1, "{line}");
            assert_eq!(output.status.code(), Some(1));
            scene.assert_home(&bundle, netdevs);
        }
        let mut bundle = scene.bundle("rail0", &["true"]);
        bundle.edit(|config| {
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.retain(|one| one["type"] != "network");
        });
        let line = stderr(&bundle.run());
        assert!(line.contains("shares the host's network namespace"), "{line}");
        // Refused when the container is there: its name of another device is taken.
        scene.world.target.ip(
            "link add other type veth peer name far\nlink property add dev other altname known",
        );
        scene.world.home.ip("link property add dev rail1 altname known");
        let bundle = scene.in_lasting_namespace(scene.bundle("rail0,rail1", &["true"]));
        let output = bundle.run();
        assert!(!output.status.success());
        let line = stderr(&output);
        assert!(
            line.contains("rail1 cannot be moved") && line.contains("org.verbgate.netdevs"),
            "{line}"
        );
        scene.world.home.ip("link property del dev rail1 altname known");
        scene.assert_home(&bundle, "refused");
    }
}
