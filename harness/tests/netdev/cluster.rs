//! Several nodes: manifests, NCCL's settings, and the preparation in one command.

use std::process::Command;

use crate::common::has;
use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::world::Subnets;
use crate::world::World;
use crate::world::same;

#[test]
fn a_manifest_tells_the_rails_before_the_move_and_after() {
    let Some(world) = World::new(2, Subnets::Different) else { return };
    let before = world.ok(&["manifest", "--node", "a"]);
    let manifest: serde_json::Value = serde_json::from_str(&before).unwrap();
    let rail = &manifest["rails"][1];
    assert_eq!(manifest["node"], "a");
    assert_eq!(rail["netdev"], "rail1");
    assert_eq!(rail["rdma"], "mlx5_1");
    assert_eq!(rail["address"], "10.1.0.2");
    assert_eq!(rail["prefix"], 16);
    assert_eq!(rail["mac"], "02:00:00:00:00:01");
    assert_eq!(rail["gid_index"], 3);
    assert_eq!(rail["link_layer"], "Ethernet");
    world.move_all(&[]);
    // The link came and went, which is all that has changed.
    let rails = |text: &str| {
        let mut manifest: serde_json::Value = serde_json::from_str(text).unwrap();
        for rail in manifest["rails"].as_array_mut().unwrap() {
            assert!(rail["facts"]["carrier_changes"].is_number(), "{rail}");
            rail["facts"]["carrier_changes"].take();
        }
        manifest
    };
    assert_eq!(rails(&world.ok(&["manifest", "--node", "a"])), rails(&before));
    world.restore();
}

#[test]
fn nodes_move_what_they_have_in_common() {
    let Some(world) = World::new(3, Subnets::Different) else { return };
    // The peer has the networks of rail0 and rail2, and the latter is slower.
    let text = world.ok(&["manifest", "--node", "peer"]);
    let mut peer: serde_json::Value = serde_json::from_str(&text).unwrap();
    peer["rails"].as_array_mut().unwrap().remove(1);
    peer["rails"][1]["speed"] = 25.0.into();
    for (rail, name) in peer["rails"].as_array_mut().unwrap().iter_mut().zip(["x0", "x2"]) {
        rail["netdev"] = name.into();
    }
    let file = world.dir.path().join("peer.json");
    std::fs::write(&file, peer.to_string()).unwrap();
    let file = file.to_str().unwrap();
    // Nothing is moved until the user allows that rails are left out.
    let output = world.move_command(&["--peer-manifest", file]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("2 rails are not alike"), "{}", stderr(&output));
    assert!(!world.journal().exists());
    let allowed = ["--peer-manifest", file, "--allow-dropped"];
    let output = world.move_command(&allowed).output().unwrap();
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("rail 10.1.0.0/16 (rail1 of this node): not on peer"), "{told}");
    assert!(told.contains("25 Gb/s"), "{told}");
    let status = world.ok(&["netdev", "status"]);
    assert!(status.contains("rail0") && !status.contains("rail1") && !status.contains("rail2"));
    world.restore();

    peer["rails"][0]["address"] = "11.0.0.1".into();
    std::fs::write(file, peer.to_string()).unwrap();
    let output = world.move_command(&["--peer-manifest", file]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("share no rail"), "{}", stderr(&output));
    assert!(!world.journal().exists());
}

/// Many NICs in one large network, of which the peer has all but one: the NIC behind it in the row
/// must not be taken for it.
#[test]
fn on_one_network_a_rail_that_the_peer_lacks_stays_and_no_other() {
    let Some(world) = World::new(4, Subnets::Same) else { return };
    let mut peer: serde_json::Value =
        serde_json::from_str(&world.ok(&["manifest", "--node", "peer"])).unwrap();
    peer["rails"].as_array_mut().unwrap().remove(1);
    let file = world.dir.path().join("peer.json");
    std::fs::write(&file, peer.to_string()).unwrap();
    let with = |options: &[&str]| {
        let words = ["netdev", "list", "--json", "--peer-manifest", file.to_str().unwrap()];
        let output = world.run(&[&words, options].concat());
        let nics: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).unwrap_or_default();
        let stays = |nic: &serde_json::Value| {
            let why = nic["dropped"].as_str()?;
            Some(format!("{}: {why}", nic["netdev"].as_str()?))
        };
        let stays: Vec<String> = nics.iter().filter_map(stays).collect();
        (output.status.code(), stays.join("\n"), stderr(&output))
    };
    let (code, stays, told) = with(&[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("--allow-dropped"), "{told}");
    let expected = "rail1: rail 10.0.0.0/16 rail1 (rail1 of this node): not on peer";
    assert_eq!(stays, expected, "{told}");
    assert_eq!(with(&["--allow-dropped"]).0, Some(0));

    // Neither names nor places are the same, so nobody can tell which one is missing.
    for (at, rail) in peer["rails"].as_array_mut().unwrap().iter_mut().enumerate() {
        rail["netdev"] = format!("x{at}").into();
        rail["pci"] = format!("0000:f{at}:00.0").into();
    }
    std::fs::write(&file, peer.to_string()).unwrap();
    let (code, _, told) = with(&["--allow-dropped"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("cannot tell which rails") && told.contains("peer has x0 (0000:f0:00.0)"),
        "{told}"
    );
    assert!(told.contains("--rail NETDEV=RAIL"), "{told}");
    // The remedy: both declare.
    for (rail, name) in peer["rails"].as_array_mut().unwrap().iter_mut().zip(["r0", "r2", "r3"]) {
        rail["rail"] = name.into();
    }
    std::fs::write(&file, peer.to_string()).unwrap();
    let declare = ["--rail", "rail0=r0", "--rail", "rail1=r1", "--rail", "rail2=r2"];
    let declare = [&declare[..], &["--rail", "rail3=r3", "--allow-dropped"]].concat();
    let (code, stays, told) = with(&declare);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(stays, "rail1: rail r1 (rail1 of this node): not on peer");
    let own = world.dir.path().join("own.json");
    let to = world.target.pid();
    let words = ["prepare", "--role", "a", "--to", &to, "--socket-ifname", "eth0", "--manifest"];
    let words = [&words[..], &[own.to_str().unwrap(), "--peer-manifest", file.to_str().unwrap()]];
    let told = world.ok(&[&words.concat()[..], &declare].concat());
    // What was declared is told to NCCL, too.
    assert!(told.contains("NCCL_IB_HCA='=mlx5_0:1:0,mlx5_2:1:2,mlx5_3:1:3'"), "{told}");
    let own = std::fs::read_to_string(own).unwrap();
    assert!(own.contains("\"r3\"") && !own.contains("\"r1\""), "{own}");
    world.restore();
    let output = world.run(&["manifest", "--node", "a", "--rail", "rail9=r0"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let declared = world.ok(&["manifest", "--node", "a", "--rail", "rail0=r0"]);
    assert!(declared.contains("\"rail\": \"r0\""), "{declared}");
}

/// As many nodes as a large cluster has, from files.
#[test]
fn a_thousand_nodes_agree() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(verbgate());
    command.args(["manifest", "agree"]);
    for node in 0..1000 {
        let rail = |n: u32| {
            let mtu = if (node, n) == (77, 5) { 1500 } else { 9000 };
            serde_json::json!({
                "netdev": format!("rail{n}"), "rdma": format!("mlx5_{n}"), "port": 1,
                "pci": format!("0000:{n:02x}:00.0"), "link_layer": "Ethernet",
                "address": format!("10.{n}.{}.{}", node / 250, node % 250 + 1), "prefix": 16,
                "speed": 400.0, "mtu": mtu, "mac": "02:00:00:00:00:01", "gid_index": 3, "gid": null,
            })
        };
        let rails: Vec<_> = (0..16).map(rail).collect();
        let manifest =
            serde_json::json!({ "version": 2, "node": format!("n{node}"), "rails": rails });
        let file = dir.path().join(format!("{node}.json"));
        std::fs::write(&file, manifest.to_string()).unwrap();
        command.arg(file);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 rail is not alike on all nodes"), "{}", stderr(&output));
    let output = command.arg("--allow-dropped").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("rail5 of n77"), "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1000);
    let (_, list) = text.lines().next().unwrap().split_once(' ').unwrap();
    assert_eq!(list.split(',').count(), 15);
    assert!(!list.contains("rail5") && list.ends_with("rail14,rail15"), "{list}");
}

#[test]
fn nccl_is_told_what_is_there() {
    let Some(world) = World::new(2, Subnets::Different) else { return };
    world.target.ip("link add boot0 type veth peer name boot1\naddr add 10.99.0.1/24 dev boot0\n");
    world.target.ip("link set boot0 up\nroute add default via 10.99.0.254 dev boot0\n");
    // On the host's network nothing need be moved.
    let in_place = world.run(&["nccl", "env"]);
    assert!(in_place.status.success(), "{}", stderr(&in_place));
    assert!(stdout(&in_place).contains("NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{in_place:?}");
    assert!(stderr(&in_place).contains("verbgate netdev move"), "{}", stderr(&in_place));
    world.move_all(&[]);
    let text = world.ok(&["nccl", "env"]);
    let (reasons, exports): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("# "));
    let expected = [
        "export GLOO_SOCKET_IFNAME='boot0'",
        "export NCCL_CROSS_NIC='0'",
        "export NCCL_IB_GID_INDEX='3'",
        "export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'",
        "export NCCL_SOCKET_IFNAME='=boot0'",
    ];
    assert_eq!((exports.as_slice(), reasons.len()), (&expected[..], 5));
    // Whoever moved the NICs: the container's namespace tells.
    let to = world.target.pid();
    let inside = world.ok(&["nccl", "env", "--netns", &to, "--state-dir", "/nonexistent"]);
    assert_eq!(inside, text);
    let ucx = world.ok(&["ucx", "env"]);
    assert!(ucx.contains("UCX_NET_DEVICES='mlx5_0:1,mlx5_1:1'"), "{ucx}");
    let mooncake = world.ok(&["mooncake", "env", "--traffic-class", "104"]);
    assert!(
        mooncake.contains("MC_IB_TC='104'") && mooncake.contains("MC_MTU='1024'"),
        "{mooncake}"
    );
    let docker = world.ok(&["nccl", "env", "--format", "docker", "--socket-ifname", "x1"]);
    assert!(docker.contains("NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\n"), "{docker}");
    assert!(docker.contains("GLOO_SOCKET_IFNAME=x1\n"), "{docker}");
    let json = world.ok(&["nccl", "env", "--format", "json", "--debug-all=/logs"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["NCCL_DEBUG"], "INFO");
    assert_eq!(json["NCCL_TOPO_DUMP_FILE"], "/logs/nccl-topo.xml");
    let mut quiet = world.command(&["nccl", "env", "--debug-all"]);
    let quiet = stdout(&quiet.env("NCCL_DEBUG", "WARN").output().unwrap());
    assert!(quiet.contains("NCCL_DEBUG='WARN'"), "{quiet}");

    // A topology file is passed on only if it is there.
    let file = world.dir.path().join("topo.xml");
    std::fs::write(&file, "<system/>").unwrap();
    let topo = world.ok(&["nccl", "env", "--topo", file.to_str().unwrap()]);
    assert!(topo.contains("NCCL_TOPO_FILE="), "{topo}");
    let output = world.run(&["nccl", "env", "--topo", "/absent.xml"]);
    assert_eq!(output.status.code(), Some(2));

    // The indices shift on one of the NICs.
    world.put("class/infiniband/mlx5_1/ports/1/gids/3", "::");
    world.gid(1, 5, "10.1.0.2");
    let told = world.ok(&["nccl", "env"]);
    assert!(!told.contains("export NCCL_IB_GID_INDEX"), "{told}");
    assert!(told.contains("3 on mlx5_0; 5 on mlx5_1"), "{told}");
    assert!(told.contains("export NCCL_IB_ADDR_RANGE='10.0.0.0/15'"), "{told}");
    world.restore();
}

#[test]
fn a_node_is_prepared_in_one_command() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    let before = world.home.dump();
    let (to, peer) = (world.target.pid(), world.peer.pid());
    let file = world.dir.path().join("own.json");
    let words = ["prepare", "--role", "a", "--to", &to, "--verify-from", &peer, "--manifest"];
    let words = [&words[..], &[file.to_str().unwrap(), "--socket-ifname", "eth0"]].concat();
    let output = world.run(&words);
    let (text, told) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{told}");
    assert!(text.contains("rail1 mlx5_1:1 10.0.0.2/16"), "{text}");
    assert!(text.contains("export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{text}");
    assert!(text.contains("verbgate prepare --role PEER --peer-ifaces rail0,rail1"), "{text}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"node\": \"a\""));
    // It is shell, to be evaluated as it is.
    let shell = Command::new("sh").args(["-ec", &format!("{text}\necho $NCCL_IB_HCA")]).output();
    assert_eq!(stdout(&shell.unwrap()), "=mlx5_0:1,mlx5_1:1");
    world.restore();
    same(&before, &world.home.dump(), "after a preparation");

    let output = world.run(&["prepare", "--role", "../x", "--to", &to]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn the_doctor_names_what_lacks_and_the_remedy() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let output = world.run(&["doctor", "--json"]);
    let all: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let checks = all["checks"].as_array().unwrap();
    let find = |checks: &[serde_json::Value], name: &str| {
        checks.iter().find(|check| check["name"] == name).unwrap().clone()
    };
    assert_eq!(find(checks, "privilege")["verdict"], "PASS");
    assert_eq!(find(checks, "RDMA devices")["verdict"], "PASS");
    assert_eq!(find(checks, "GIDs")["verdict"], "PASS");
    assert_eq!(find(checks, "MTU")["verdict"], "WARN");
    assert_eq!(find(checks, "journal")["verdict"], "PASS");
    assert!(checks.iter().all(|c| c["verdict"] == "PASS" || c["remedy"] != ""), "{checks:?}");

    world.put("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    world.put("class/infiniband/mlx5_7/ports/1/link_layer", "InfiniBand");
    world.put("class/infiniband/mlx5_7/ports/1/pkeys/0", "0x7fff");
    let output = world.run(&["doctor"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("WARN ports: mlx5_0/1 DOWN"), "{text}");
    assert!(text.contains("FAIL partitions: a port is full member of none (0x7fff)"), "{text}");
    assert!(text.contains("     remedy: have the subnet manager"), "{text}");
}

#[test]
fn a_path_that_swallows_large_packets_is_found() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let bootstrap = || {
        let output = world.run(&["doctor", "--peer", "10.0.0.254"]);
        let text = stdout(&output);
        text.lines().find(|line| line.contains("bootstrap path")).unwrap().to_owned()
    };
    assert!(bootstrap().starts_with("PASS"), "{}", bootstrap());
    world.peer.ip("link set p0 mtu 1400\n");
    assert!(bootstrap().contains("but not packets of that device's MTU 1500"), "{}", bootstrap());
    world.peer.ip("link set p0 down\n");
    assert!(bootstrap().contains("does not answer"), "{}", bootstrap());
}

/// By a stand-in for the engine, of which there is none in a test.
#[test]
fn a_container_is_found_by_its_name() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let engine = world.dir.path().join("docker");
    let script = format!("#!/bin/sh\ntest \"$5\" = box && echo {}\n", world.target.pid());
    std::fs::write(&engine, script).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&engine).status().unwrap().success());
    let path = format!("{}:{}", world.dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = world.command(&["netdev", "move", "--to", "box"]);
    let output = command.env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(world.target.sh("ip -o link").contains("rail0"));
    world.restore();
}

/// A network namespace that a script makes for a role.
struct Made(String);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

#[test]
fn the_script_for_ssh_prepares_and_restores_nodes() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    let before = world.home.dump();
    let node = format!("test-{}", std::process::id());
    let made = Made(format!("verbgate-{node}"));
    // Stands for ssh: the node is a namespace here.
    let bin = world.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let ssh = format!(
        "#!/bin/sh\nshift 2\nexec nsenter --net={} -- \"$@\" --sysfs-root {} --state-dir {}\n",
        world.home.path().display(),
        world.sysfs().display(),
        world.state_dir().display()
    );
    std::fs::write(bin.join("ssh"), ssh).unwrap();
    std::os::unix::fs::symlink(verbgate(), bin.join("verbgate")).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(bin.join("ssh")).status().unwrap().success());
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/dist/cluster-ssh.sh");
    let run = |words: &[&str]| {
        let output = Command::new("sh").arg(script).args(words).env("PATH", &path).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stdout(&output)
    };
    let told = run(&[&node]);
    assert!(told.contains("NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{told}");
    let inside = Command::new("ip").args(["-n", &made.0, "-o", "addr"]).output().unwrap();
    assert!(stdout(&inside).contains("10.0.0.2/16"), "{}", stderr(&inside));
    run(&["--restore", &node]);
    same(&before, &world.home.dump(), "after the script");
}

#[test]
fn the_scripts_are_shell() {
    if !has("sh") {
        return;
    }
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("dist");
    let mut scripts = 0;
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "sh") {
            let output = Command::new("sh").arg("-n").arg(&path).output().unwrap();
            assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
            scripts += 1;
        }
    }
    assert!(scripts >= 3);
}
