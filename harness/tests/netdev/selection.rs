//! The selection of NICs, and the reasons for the others.

use crate::common::stderr;
use crate::world::Subnets;
use crate::world::World;

/// What `list` says of each NIC: `move`, or why not.
fn verdicts(world: &World, options: &[&str]) -> Vec<(String, String)> {
    let text = world.ok(&[&["netdev", "list", "--json"], options].concat());
    let nics: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let verdict = |nic: &serde_json::Value| {
        let name = nic["netdev"].as_str().unwrap().to_owned();
        (name, nic["dropped"].as_str().unwrap_or("move").to_owned())
    };
    nics.iter().map(verdict).collect()
}

fn taken(world: &World, options: &[&str]) -> Vec<String> {
    let all = verdicts(world, options).into_iter();
    all.filter(|(_, verdict)| verdict == "move").map(|(name, _)| name).collect()
}

fn why(world: &World, name: &str, options: &[&str]) -> String {
    let all = verdicts(world, options);
    all.into_iter().find(|(nic, _)| nic == name).unwrap().1
}

#[test]
fn all_of_a_nic_is_told() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    world.put("devices/pci0000:00/0000:00:00.0/numa_node", "1");
    // A second RDMA device of the same netdev.
    world.put("class/infiniband/mlx5_9/ports/1/gids/0", "fe80::1");
    world.put("class/infiniband/mlx5_9/ports/1/gid_attrs/ndevs/0", "rail0");
    let text = world.ok(&["netdev", "list", "--json"]);
    let nics: serde_json::Value = serde_json::from_str(&text).unwrap();
    let nic = &nics[0];
    assert_eq!(nic["pci"], "0000:00:00.0");
    assert_eq!(nic["numa_node"], 1);
    assert_eq!(nic["speed"], 100.0);
    assert_eq!(nic["mtu"], 1500);
    let devices: Vec<&str> =
        nic["rdma"].as_array().unwrap().iter().map(|p| p["ifname"].as_str().unwrap()).collect();
    assert_eq!(devices, ["mlx5_0", "mlx5_9"]);
    assert_eq!(nic["gids"][0]["index"], 3);
    assert_eq!(nic["gids"][0]["type"], "RoCE v2");
    let table = world.ok(&["netdev", "list"]);
    assert!(
        table.contains("mlx5_0/1 ACTIVE,mlx5_9/1 ?") && table.contains("10.0.0.1/16"),
        "{table}"
    );
}

#[test]
fn what_the_host_needs_stays() {
    let Some(world) = World::new(7, Subnets::Different) else { return };
    assert_eq!(taken(&world, &[]).len(), 7);
    world.home.ip("link set rail0 down\nlink set rail0 name eth0\nlink set eth0 up\n\
         route add default via 10.1.0.254\n\
         link add br0 type bridge\nlink set rail2 master br0\n\
         link add mv0 link rail3 type macvlan\n\
         addr flush dev rail4\n");
    world.put("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", "eth0");
    assert_eq!(why(&world, "eth0", &[]), "the NIC's name matches --exclude");
    assert_eq!(why(&world, "eth0", &["--exclude", ""]), "move");
    assert!(why(&world, "rail0", &[]).contains("not in this network namespace"));
    assert!(why(&world, "rail1", &[]).contains("default route"));
    assert_eq!(why(&world, "rail2", &[]), "the NIC is a part of br0");
    assert_eq!(why(&world, "rail3", &[]), "the macvlan mv0 stands on the NIC");
    assert!(why(&world, "rail4", &[]).contains("no IPv4 address"));
    assert!(why(&world, "rail5", &["--bootstrap", "10.5.0.6"]).contains("bootstrap address"));
    assert!(why(&world, "rail6", &["--peer", "10.6.0.99"]).contains("the peer 10.6.0.99"));
    assert_eq!(taken(&world, &[]), ["rail5", "rail6"]);
    let output = world.run(&["netdev", "list", "--require-ipv4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("rail4") && stderr(&output).contains("--require-ipv4"));

    let mut ssh = world.command(&["netdev", "list"]);
    let output = ssh.env("SSH_CONNECTION", "10.5.0.99 4321 10.5.0.6 22").output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("stays: this SSH session uses the NIC"), "{table}");
}

#[test]
fn nics_are_named_in_three_ways() {
    let Some(world) = World::new(3, Subnets::Different) else { return };
    assert_eq!(taken(&world, &["--iface", "rail2,rail0"]), ["rail0", "rail2"]);
    assert_eq!(taken(&world, &["--hca", "mlx5_1"]), ["rail1"]);
    assert_eq!(taken(&world, &["--hca", "^=mlx5_1"]), ["rail0", "rail2"]);
    assert_eq!(taken(&world, &["--hca", "mlx5:2"]), [""; 0]);
    assert_eq!(taken(&world, &["--peer-ifaces", "rail1 rail7"]), ["rail1"]);
    // An explicit name wins over the pattern, but not over what the host needs.
    assert_eq!(taken(&world, &["--exclude", "rail", "--iface", "rail1"]), ["rail1"]);
    world.home.ip("route add default via 10.1.0.254\n");
    let output = world.run(&["netdev", "list", "--iface", "rail1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("rail1 cannot be moved: the default route"));
}

#[test]
fn a_move_explains_each_nic_that_stays() {
    let Some(world) = World::new(2, Subnets::Different) else { return };
    let output = world.move_command(&["--hca", "=mlx5_1"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("rail0 stays: --hca does not choose the NIC's RDMA device"));
    world.restore();
}

#[test]
fn infiniband_stays_and_need_not_go() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    world.put("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
    assert!(why(&world, "rail0", &[]).starts_with("InfiniBand:"));
}
