//! Hosts on paper, with links of the same names: InfiniBand, bonds, and sixteen NICs of two rails each;
//! and NICs whose PCIe links are worse than they could be.

use std::fs;
use std::process::Command;

use serde_json::Value;
use verbgate_sysfs_fixtures::Fixture;

use crate::common::stderr;
use crate::common::stdout;
use crate::common::verbgate;
use crate::world::Subnets;
use crate::world::World;

/// A host on paper, with the test's namespaces.
fn host(fixture: &str) -> Option<World> {
    let world = World::new(0, Subnets::Same)?;
    fs::create_dir_all(world.sysfs()).unwrap();
    Fixture::named(fixture).unwrap().write(&world.sysfs()).unwrap();
    Some(world)
}

fn agree(world: &World, manifests: &[Value], options: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(verbgate());
    command.args(["manifest", "agree"]).args(options);
    for (at, manifest) in manifests.iter().enumerate() {
        let file = world.dir.path().join(format!("m{at}.json"));
        fs::write(&file, manifest.to_string()).unwrap();
        command.arg(file);
    }
    let output = command.output().unwrap();
    (output.status.code(), stdout(&output), stderr(&output))
}

fn manifest(world: &World, node: &str) -> Value {
    serde_json::from_str(&world.ok(&["manifest", "--node", node])).unwrap()
}

#[test]
fn infiniband_has_rails_and_settings_without_any_move() {
    let Some(world) = host("infiniband") else { return };
    let env = world.ok(&["nccl", "env", "--socket-ifname", "eth0"]);
    assert!(env.contains("export NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{env}");
    assert!(!env.contains("GID_INDEX") && !env.contains("PKEY"), "{env}");
    // A container sees the same ports, because they belong to no namespace.
    let to = world.target.pid();
    let inside = world.ok(&["nccl", "env", "--socket-ifname", "eth0", "--netns", &to]);
    assert_eq!(inside, env);
    let prepared = world.ok(&["prepare", "--role", "a", "--to", &to, "--socket-ifname", "eth0"]);
    assert!(prepared.contains("2 rails, and no NIC to move"), "{prepared}");
    assert!(prepared.contains("NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{prepared}");
    assert!(!world.journal().exists());

    let a = manifest(&world, "a");
    assert_eq!(a["rails"].as_array().unwrap().len(), 2);
    assert_eq!(a["rails"][0]["facts"]["firmware"], "28.41.1000");
    assert_eq!(a["rails"][0]["facts"]["gpu"]["distance"], "PHB");
    let b = manifest(&world, "b");
    let words = ["--node", "b", "--options"];
    let (code, text, told) = agree(&world, &[a.clone(), b.clone()], &words);
    assert_eq!((code, text.as_str()), (Some(0), "--hca =mlx5_0:1,mlx5_1:1"), "{told}");

    // Partitions: another one, and two limited members.
    let mut other = b.clone();
    other["rails"][1]["pkeys"] = serde_json::json!([[0, 0x8002]]);
    let (code, _, told) = agree(&world, &[a.clone(), b.clone(), other], &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("node \"b\" has two manifests"), "{told}");
    let mut other = manifest(&world, "c");
    other["rails"][1]["pkeys"] = serde_json::json!([[0, 0x8002]]);
    let (code, _, told) = agree(&world, &[a.clone(), b.clone(), other.clone()], &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("partition 0x7fff is missing on c"), "{told}");
    assert!(!told.contains("mlx5_0:1 of"), "{told}");
    let mut limited = [a, b];
    for node in &mut limited {
        node["rails"][0]["pkeys"] = serde_json::json!([[0, 0x7fff]]);
    }
    let (code, _, told) = agree(&world, &limited, &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("a, b are limited members of partition 0x7fff"), "{told}");
}

/// The first port of the second card is missing on one node: with names that the kernel gave by place.
#[test]
fn sixteen_nics_of_two_rails_each_agree() {
    let Some(world) = host("sixteen_nics") else { return };
    let mut lines = String::new();
    let name = |n: u32| format!("enp{}s0np{}", 0x10 + n / 2 * 8, n % 2);
    for n in 0..32 {
        let (link, peer) = (name(n), world.peer.pid());
        lines += &format!("link add {link} type veth peer name p{n} netns {peer}\n");
        lines += &format!("link set {link} up\naddr add 10.0.0.{n}/12 dev {link}\n");
    }
    world.home.ip(&lines);
    let a = manifest(&world, "a");
    let rails = a["rails"].as_array().unwrap();
    assert_eq!(rails.len(), 32);
    let places: Vec<String> =
        rails.iter().map(|rail| format!("{}:{}", rail["rdma"], rail["port"])).collect();
    assert_eq!((places[0].as_str(), places[31].as_str()), ("\"mlx5_0\":1", "\"mlx5_15\":2"));
    assert_eq!(rails[2]["facts"]["gpu"]["distance"], "PHB");
    // 32 ports are what NCCL reads, and no more.
    let env = world.ok(&["nccl", "env", "--socket-ifname", "eth0"]);
    assert!(env.contains("=mlx5_0:1,mlx5_0:2,mlx5_1:1") && env.contains("mlx5_15:2'"), "{env}");
    assert!(env.contains("NCCL_IB_GID_INDEX='3'"), "{env}");

    let mut b = manifest(&world, "b");
    b["rails"].as_array_mut().unwrap().remove(2);
    let (code, text, told) = agree(&world, &[a, b], &["--json"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("(enp24s0np0 of a): not on b"), "{told}");
    let agreement: Value = serde_json::from_str(&text).unwrap();
    let sets = agreement["nodes"].as_array().unwrap();
    assert_eq!(sets[0]["netdevs"], sets[1]["netdevs"]);
    assert_eq!(sets[0]["hcas"].as_array().unwrap().len(), 31);
}

#[test]
fn a_bond_stays_and_has_settings() {
    let Some(world) = host("bonded") else { return };
    let made =
        world.home.command(&["ip", "link", "add", "bond0", "type", "bond"]).output().unwrap();
    if !made.status.success() {
        eprintln!("SKIPPED: needs the kernel module bonding");
        return;
    }
    let mut lines = String::new();
    for n in 0..2 {
        if n > 0 {
            lines += &format!("link add bond{n} type bond\n");
        }
        for port in 0..2 {
            let (link, peer) = (format!("enp{}s0f{port}np{port}", 12 + n * 30), world.peer.pid());
            lines += &format!("link add {link} type veth peer name p{n}{port} netns {peer}\n");
            lines += &format!("link set {link} master bond{n}\n");
        }
        lines += &format!("link set bond{n} up\naddr add 10.0.0.{}/16 dev bond{n}\n", n * 2);
    }
    world.home.ip(&lines);
    let env = world.ok(&["nccl", "env", "--socket-ifname", "eth0"]);
    assert!(env.contains("NCCL_IB_HCA='=mlx5_bond_0:1,mlx5_bond_1:1'"), "{env}");
    assert!(env.contains("NCCL_IB_MERGE_NICS='0'"), "{env}");
    let a = manifest(&world, "a");
    let (code, text, told) = agree(&world, &[a], &["--node", "a", "--options"]);
    assert_eq!((code, text.as_str()), (Some(0), "--hca =mlx5_bond_0:1,mlx5_bond_1:1"), "{told}");
}

/// The NIC of a node whose card sits badly.
#[test]
fn a_nic_trained_at_a_quarter_of_its_lanes_fails() {
    let Some(world) = host("infiniband") else { return };
    let good = manifest(&world, "a");
    let passes = stdout(&world.run(&["doctor"]));
    assert!(passes.contains("PASS PCIe links"), "{passes}");
    assert!(!passes.contains("GIDs:"), "no RoCE port is here: {passes}");
    let function = world.sysfs().join("class/infiniband/mlx5_1/device");
    fs::write(function.join("current_link_width"), "4\n").unwrap();
    fs::write(function.join("current_link_speed"), "8.0 GT/s PCIe\n").unwrap();
    let output = world.run(&["doctor"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1));
    let expected = "FAIL PCIe links: mlx5_1 x4 8 GT/s of x16 32 GT/s\n     remedy: reseat the card";
    assert!(text.contains(expected), "{text}");
    let bad = manifest(&world, "b");
    let (code, _, told) = agree(&world, &[good.clone(), bad], &[]);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("FAIL rail") && told.contains("mlx5_1:1 of b is x4 8 GT/s"), "{told}");
    assert!(!told.contains("of a is"), "{told}");
    // A slot that has no more lanes is worth a warning, and the rail is fit.
    let slot = fs::canonicalize(&function).unwrap().parent().unwrap().to_owned();
    fs::write(slot.join("max_link_width"), "4\n").unwrap();
    fs::write(slot.join("max_link_speed"), "8.0 GT/s PCIe\n").unwrap();
    let text = stdout(&world.run(&["doctor"]));
    assert!(text.contains("WARN PCIe slots: mlx5_1 x16 32 GT/s in x4 8 GT/s"), "{text}");
    let (code, _, told) = agree(&world, &[good, manifest(&world, "b")], &[]);
    assert_eq!(code, Some(0), "{told}");
    // Of two nodes that differ, neither is called the odd one.
    let differ = "WARN PCIe slot differs: x16 32 GT/s on mlx5_1:1 of a; x4 8 GT/s on mlx5_1:1 of b";
    assert!(told.contains(differ), "{told}");
}

/// A virtual machine that tells of no link has none to complain of.
#[test]
fn a_width_of_nothing_is_no_fault() {
    let Some(world) = host("vm_width_0") else { return };
    let text = stdout(&world.run(&["doctor"]));
    assert!(!text.contains("PCIe links"), "{text}");
}

#[test]
fn a_topology_for_nccl_has_the_rails_and_the_gpus_in_their_places() {
    let Some(world) = host("infiniband") else { return };
    let file = world.dir.path().join("topo.xml");
    let words = ["nccl", "env", "--hca", "=mlx5_1:1:0", "--socket-ifname", "eth0", "--write-topo"];
    let env = world.ok(&[&words[..], &[file.to_str().unwrap()]].concat());
    assert!(env.contains(&format!("NCCL_TOPO_FILE='{}'", file.display())), "{env}");
    let text = fs::read_to_string(file).unwrap();
    // Bridges, NIC and GPU of the second socket; the first has a GPU and no rail that was chosen.
    let second = text.split("<cpu numaid=\"1\"").nth(1).unwrap();
    assert!(second.contains("busid=\"0000:86:00.0\" class=\"0x020700\""), "{text}");
    assert!(second.contains("busid=\"0000:88:00.0\" class=\"0x030200\""), "{text}");
    assert!(!text.contains("0000:0c:00.0"), "{text}");
    assert_eq!(
        text.matches("<pci ").count(),
        text.matches("/>").count() + text.matches("</pci>").count()
    );
}

/// 128 nodes of 8 rails, with faults of every kind: each is told of the node that has the fault, and of
/// no other.
#[test]
fn of_a_hundred_and_twenty_eight_nodes_each_fault_is_named() {
    let Some(world) = World::new(0, Subnets::Same) else { return };
    let mut nodes: Vec<Value> = (0..128)
        .map(|node| {
            let rail = |n: u32| {
                serde_json::json!({
                    "netdev": format!("rail{n}"), "rdma": format!("mlx5_{n}"), "port": 1,
                    "pci": format!("0000:{n:02x}:00.0"), "link_layer": "Ethernet",
                    "address": format!("10.0.{n}.{node}"), "prefix": 12, "speed": 400.0, "mtu": 9000,
                    "mac": "02:00:00:00:00:01", "gid_index": 3, "gid": null,
                    "facts": {
                        "model": "MT4129", "firmware": "28.41.1000", "driver": "mlx5_core",
                        "pcie": { "width": 16, "speed": 32.0, "able_width": 16, "able_speed": 32.0,
                                  "card_width": 16, "card_speed": 32.0 },
                        "numa_node": n / 4, "iommu": "identity", "relaxed_ordering": true,
                        "gpu": { "pci": "0000:01:00.0", "distance": "PIX" },
                        "dcb": { "pfc": 8, "dscp": { "26": 3, "48": 6 } },
                        "fec": "rs", "carrier_changes": 2, "symbol_errors": 10,
                    },
                })
            };
            let rails: Vec<Value> = (0..8).map(rail).collect();
            let host = serde_json::json!({ "kernel": "6.12.1", "gpu_memory": ["nvidia_peermem"] });
            serde_json::json!({ "version": 2, "node": format!("n{node}"), "host": host, "rails": rails })
        })
        .collect();
    let (code, _, told) = agree(&world, &nodes, &[]);
    assert_eq!((code, told.as_str()), (Some(0), ""));

    // Node, rail, the place and the value, and words that the finding has.
    let faults: &[(usize, usize, &str, Value, &str)] = &[
        (
            3,
            0,
            "/mtu",
            1500.into(),
            "FAIL rail 10.0.0.0/12 rail0: rail0 of n3 is Ethernet 400 Gb/s, MTU 1500",
        ),
        (9, 1, "/speed", 200.0.into(), "rail1 of n9 is Ethernet 200 Gb/s"),
        (14, 2, "/facts/pcie/width", 4.into(), "rail2 of n14 is x4 32 GT/s"),
        (20, 3, "/facts/dcb/pfc", 0.into(), "rail3 of n20 is lossless on priorities []"),
        (
            33,
            4,
            "/facts/dcb/dscp",
            serde_json::json!({}),
            "rail4 of n33 is lossless on priorities [3] by PCP",
        ),
        (
            40,
            5,
            "/facts/firmware",
            "28.39.2048".into(),
            "WARN firmware: 28.39.2048 on rail5 of n40,",
        ),
        (41, 5, "/facts/model", "MT4125".into(), "WARN model: MT4125 on rail5 of n41,"),
        (55, 6, "/facts/iommu", "DMA".into(), "WARN IOMMU: DMA on rail6 of n55,"),
        (60, 6, "/facts/relaxed_ordering", false.into(), "relaxed ordering: off on rail6 of n60,"),
        (61, 6, "/facts/numa_node", 0.into(), "NUMA node: 0 on rail6 of n61,"),
        (62, 6, "/facts/gpu/distance", "SYS".into(), "nearest GPU: SYS on rail6 of n62,"),
        (
            63,
            7,
            "/facts/carrier_changes",
            400.into(),
            "carrier changes (a link that comes and goes): 400 on rail7 of n63,",
        ),
        (64, 7, "/facts/symbol_errors", 70_000.into(), "symbol errors: 70000 on rail7 of n64,"),
        (65, 7, "/facts/fec", "off".into(), "FEC: off on rail7 of n65,"),
        (66, 7, "/facts/driver", "mlx5_old".into(), "driver: mlx5_old on rail7 of n66,"),
        (
            70,
            7,
            "/facts/acs",
            serde_json::json!(["0000:00:01.0"]),
            "ACS redirection: on on rail7 of n70,",
        ),
        (71, 7, "/gid_index", 5.into(), "{3, 5} on n71"),
    ];
    let wrong =
        |nodes: &mut Vec<Value>,
         (node, rail, place, value, _): &(usize, usize, &str, Value, &str)| {
            let (dir, name) = place.rsplit_once('/').unwrap();
            let rail = nodes[*node]["rails"][*rail].pointer_mut(dir).unwrap();
            rail[name] = value.clone();
        };
    let innocent = |told: &str, guilty: &[usize]| {
        for node in (0..128).filter(|node| !guilty.contains(node)) {
            let named = |end: &str| told.contains(&format!(" of n{node}{end}"));
            assert!(!named(" ") && !named(",") && !named(":"), "n{node}: {told}");
        }
    };
    for fault in faults {
        let mut nodes = nodes.clone();
        wrong(&mut nodes, fault);
        let (code, _, told) = agree(&world, &nodes, &[]);
        assert!(told.contains(fault.4), "{}: {told}", fault.4);
        assert_eq!(code, Some(i32::from(told.contains("FAIL"))), "{told}");
        innocent(&told, &[fault.0]);
    }
    // All at once, with a node that lacks a rail and one with another kernel.
    faults.iter().for_each(|fault| wrong(&mut nodes, fault));
    nodes[100]["rails"].as_array_mut().unwrap().remove(6);
    nodes[101]["host"]["kernel"] = "5.15.0".into();
    let (code, _, told) = agree(&world, &nodes, &["--allow-dropped"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("rail6 of n0): not on n100") && told.contains("kernel: 5.15.0 on n101"),
        "{told}"
    );
    // A rail that is left out anyway is compared no further.
    for fault in faults.iter().filter(|fault| fault.1 != 6) {
        assert!(told.contains(fault.4), "{}: {told}", fault.4);
    }
}
