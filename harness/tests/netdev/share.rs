//! One NIC for several containers.

use verbgate_host::Error;
use verbgate_host::fence;
use verbgate_host::netns::Namespace;

use crate::common::stderr;
use crate::common::stdout;
use crate::world::Net;
use crate::world::Subnets;
use crate::world::World;
use crate::world::same;
use crate::world::until;

/// The neighbours of the peer: MACs by address.
fn mac_at_peer(world: &World, ip: &str) -> String {
    let text = world.peer.sh(&format!("ip neigh show {ip}"));
    let mut words = text.split_whitespace().skip_while(|word| *word != "lladdr");
    words.nth(1).unwrap_or_default().to_owned()
}

fn has_kind(world: &World, kind: &str) -> bool {
    let made = world.home.command(&["ip", "link", "add", "try0", "link", "rail0", "type", kind]);
    let mut made = made;
    let there = made.output().unwrap().status.success();
    if there {
        world.home.sh("ip link del try0");
    } else {
        eprintln!("SKIPPED: needs the kernel module {kind}");
    }
    there
}

fn share<'a>(kind: &'a str, to: &'a str, address: &'a str) -> Vec<&'a str> {
    let words = ["netdev", "share", "--iface", "rail0", "--kind", kind, "--to", to];
    [&words[..], &["--address", address, "--wait", "2"]].concat()
}

fn two_containers(kind: &str) {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    if !has_kind(&world, kind) {
        return;
    }
    let second = Net::new();
    // The kernel would make the GIDs.
    world.gid(0, 5, "10.0.1.1");
    world.gid(0, 7, "10.0.1.2");
    let before = (world.home.dump(), world.target.dump(), second.dump());
    let (first, other) = (world.target.pid(), second.pid());
    let told = world.ok(&share(kind, &first, "10.0.1.1"));
    assert!(told.contains(&format!("shared: {kind} rail0 upon rail0")), "{told}");
    assert!(told.contains("10.0.1.1/16"), "{told}");
    world.ok(&share(kind, &other, "10.0.1.2/16"));
    // Each answers the peer for its own address alone, and reaches the peer.
    assert!(world.peer.reaches("10.0.1.1") && world.peer.reaches("10.0.1.2"));
    assert!(world.target.reaches("10.0.0.254"));
    let (one, two) = (mac_at_peer(&world, "10.0.1.1"), mac_at_peer(&world, "10.0.1.2"));
    assert_eq!(one == two, kind == "ipvlan", "{one} {two}");
    assert_eq!(world.target.sh("cat /proc/sys/net/ipv4/conf/rail0/arp_ignore").trim(), "1");
    assert!(world.target.sh("ip rule").contains("from 10.0.1.1"));
    // Libraries get the container's own GID, and the NIC's rails stay as they are.
    let inside = world.ok(&["nccl", "env", "--netns", &other, "--socket-ifname", "eth0"]);
    assert!(inside.contains("NCCL_IB_HCA='=mlx5_0:1'"), "{inside}");
    assert!(inside.contains("NCCL_IB_GID_INDEX='7'"), "{inside}");

    // An address is one container's, and a shared NIC is not moved from under its containers.
    for (address, by) in [
        ("10.0.1.1", "rail0 in /proc/"),
        ("10.0.0.2", "rail1 has the address"),
        ("10.0.0.254", "the host with the MAC address"),
    ] {
        let output = world.run(&share(kind, &other, address));
        assert_eq!(output.status.code(), Some(1), "{address}");
        assert!(stderr(&output).contains(by), "{address}: {}", stderr(&output));
    }
    let output = world.move_command(&[]).output().unwrap();
    assert!(stderr(&output).contains("first: verbgate netdev unshare"), "{}", stderr(&output));
    assert!(world.ok(&["netdev", "status"]).contains("shared:"), "status");

    world.ok(&["netdev", "unshare", "--to", &first]);
    assert!(!world.target.sh("ip -o link").contains("rail0"));
    assert!(second.sh("ip -o link").contains("rail0"));
    world.ok(&["netdev", "unshare"]);
    same(&before.0, &world.home.dump(), "home");
    same(&before.1, &world.target.dump(), "the first container");
    same(&before.2, &second.dump(), "the second container");
    assert!(!world.state_dir().join("share.json").exists());
}

#[test]
fn several_containers_share_a_nic_by_macvlan() {
    two_containers("macvlan");
}

#[test]
fn several_containers_share_a_nic_by_ipvlan() {
    two_containers("ipvlan");
}

#[test]
fn a_share_without_a_gid_is_undone_and_one_of_a_dead_container_is_forgotten() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    if !has_kind(&world, "macvlan") {
        return;
    }
    let before = world.target.dump();
    let to = world.target.pid();
    let output = world.run(&share("macvlan", &to, "10.0.1.1"));
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("mlx5_0: port 1 has no RoCE v2 GID of 10.0.1.1"), "{told}");
    assert!(told.contains("everything is as it was"), "{told}");
    same(&before, &world.target.dump(), "after a refusal");
    world.gid(0, 5, "10.0.1.1");
    {
        let dies = Net::new();
        world.ok(&share("macvlan", &dies.pid(), "10.0.1.1"));
    }
    // Its namespace ends a little after the container.
    until("the end of a container's link", || {
        world.run(&share("macvlan", &to, "10.0.1.1")).status.success()
    });
    assert_eq!(stdout(&world.run(&["netdev", "status"])).matches("shared:").count(), 1);
    world.ok(&["netdev", "unshare"]);
}

/// Whether a program of the container can send a datagram to a port of the peer.
fn sends(world: &World, port: u16) -> bool {
    let script = format!("echo request >/dev/udp/10.0.0.254/{port}");
    world.target.command(&["bash", "-c", &script]).output().unwrap().status.success()
}

#[test]
fn behind_a_link_upon_a_nic_programs_send_no_roce_and_the_doctor_looks() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    if !has_kind(&world, "macvlan") {
        return;
    }
    world.gid(0, 5, "10.0.1.1");
    let to = world.target.pid();
    let natively = |port: u16| {
        let made = "link add by0 link rail0 type macvlan mode bridge\nlink set by0 netns";
        world.home.ip(&format!("{made} {to}\n"));
        world.target.ip("addr add 10.0.1.9/16 dev by0\nlink set by0 up\n");
        let sent = sends(&world, port);
        world.target.ip("link del by0\n");
        sent
    };
    let root = world.dir.path().join("root");
    let doctor = || {
        let told = stdout(&world.run(&["--root", root.to_str().unwrap(), "doctor"]));
        told.lines().find(|line| line.contains(" container networks: ")).unwrap().to_owned()
    };
    assert!(natively(4791), "natively it goes out");
    assert_eq!(doctor(), "PASS container networks: none has a NIC or RDMA");
    world.ok(&share("macvlan", &to, "10.0.1.1"));
    assert!(sends(&world, 4790) && !sends(&world, 4791));
    // The process that holds the test's namespace has all capabilities.
    let hole = format!("WARN container networks: rail0 upon rail0 (process {to} has CAP_NET_ADMIN");
    assert!(doctor().starts_with(&hole), "{}", doctor());
    let there = Namespace::open(&world.target.path()).unwrap();
    let lifted = there.within(|| {
        fence::lift("rail0")
            .map_err(|source| Error::Namespace { name: "the fence".to_owned(), source })
    });
    lifted.unwrap();
    assert!(sends(&world, 4791));
    assert!(doctor().contains("rail0 upon rail0 (programs can send RoCE by plain"), "{}", doctor());
    world.ok(&["netdev", "unshare"]);
    world.ok(&share("macvlan", &to, "10.0.1.1"));
    assert!(!sends(&world, 4791));
    world.ok(&["netdev", "unshare"]);
    assert!(natively(4791), "the fence goes with the last link");
}

#[test]
fn what_cannot_be_shared_is_named_with_the_reason() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let to = world.target.pid();
    let refused = |args: &[&str], code: i32, word: &str| {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    };
    let with = |iface: &'static str, address: &'static str| {
        let words = ["netdev", "share", "--iface", iface, "--to", &to, "--address", address];
        words.map(str::to_owned)
    };
    let of = |words: &[String; 8], code, word| {
        refused(&words.iter().map(String::as_str).collect::<Vec<_>>(), code, word);
    };
    of(&with("rail9", "10.0.1.1"), 1, "no network device is called \"rail9\"");
    of(&with("rail0", "11.0.0.1"), 2, "in no network of rail0");
    of(&with("rail0", "10.0.1.1/33"), 2, "at most 32");
    of(&with("rail0", "x"), 2, "write ADDRESS");
    of(&with("lo", "10.0.1.1"), 1, "no RDMA device");
    // Soft-RoCE: a device without a function of a bus.
    let device = world.sysfs().join("class/infiniband/mlx5_0");
    std::fs::remove_file(device.join("device")).unwrap();
    of(&with("rail0", "10.0.1.1"), 1, "Soft-RoCE");
    world.put("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
    of(&with("rail0", "10.0.1.1"), 1, "no link is needed");
}

/// Neighbours that remember another MAC learn the right one from the move alone, and from the way back.
#[test]
fn a_move_is_announced() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let forget = || {
        for ip in ["10.0.0.1", "fd00::1"] {
            let wrong = "02:aa:aa:aa:aa:aa";
            world.peer.ip(&format!("neigh replace {ip} lladdr {wrong} nud stale dev br0\n"));
            assert_eq!(mac_at_peer(&world, ip), wrong);
        }
    };
    let learns = |when: &str| {
        for ip in ["10.0.0.1", "fd00::1"] {
            until(&format!("{ip} at the peer {when}"), || {
                mac_at_peer(&world, ip) == "02:00:00:00:00:00"
            });
        }
    };
    forget();
    world.move_all(&[]);
    learns("after the move");
    forget();
    world.restore();
    learns("after the way back");
}
