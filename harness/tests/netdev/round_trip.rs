//! The round trip: everything is as before, to the byte.

use std::process::Command;

use crate::common::stderr;
use crate::common::stdout;
use crate::world::Subnets;
use crate::world::World;
use crate::world::same;
use crate::world::until;

/// Everything that a NIC can have, on as many NICs as there are.
pub(crate) fn enrich(world: &World, subnets: Subnets) {
    let last = world.nics - 1;
    let net = |n: u8| if subnets == Subnets::Same { 0 } else { n };
    let (last_net, last_ip) = (net(last), last + 1);
    let mut lines = String::new();
    // Static routes: one needs another, one has attributes, one is in a table of its own.
    lines += "route add 192.168.0.0/24 via 10.0.0.254 dev rail0 metric 50 mtu 1400\n";
    lines += "route add 192.168.77.1/32 dev rail0 scope link\n";
    lines += "route add 192.168.78.0/24 via 192.168.77.1 dev rail0 onlink\n";
    lines += "route add 192.168.79.0/24 via 10.0.0.254 dev rail0 table 100\n";
    lines += "route add default via 10.0.0.254 dev rail0 table 100 src 10.0.0.1\n";
    lines += "route add unreachable 192.168.80.0/24\n";
    lines += "-6 route add fdaa::/48 via fd00::ff dev rail0 metric 77\n";
    lines += "-6 route add default via fd00::ff dev rail0 table 100\n";
    // Policy routing.
    lines += "rule add from 10.0.0.1 lookup 100 pref 1000\n";
    lines += "rule add iif rail0 lookup 100 pref 1001\n";
    lines += "rule add to 10.0.0.1 oif lo lookup 100 pref 1002\n";
    lines += "-6 rule add from fd00::1 lookup 100 pref 1003\n";
    // Addresses: secondary, with a label, a peer, a metric, flags, a lifetime; link-local.
    lines += "addr add 10.0.1.1/16 dev rail0 label rail0:web brd +\n";
    lines += "addr add 172.16.0.1 peer 172.16.0.2/32 dev rail0\n";
    lines += "addr add 172.17.0.1/24 dev rail0 metric 300\n";
    lines += "addr add 172.18.0.1/24 dev rail0 noprefixroute\n";
    lines += "addr add 172.19.0.1/24 dev rail0 valid_lft 90000 preferred_lft 80000\n";
    lines += "addr add 169.254.3.3/16 dev rail0 scope link\n";
    lines += "addr add fdbb::1/64 dev rail0 nodad noprefixroute\n";
    lines += "addr add fdbb::2/64 dev rail0 nodad preferred_lft 0\n";
    lines += "addr add fe80::77/64 dev rail0 nodad\n";
    // Permanent neighbours.
    lines += "neigh add 10.0.0.200 lladdr 02:aa:00:00:00:01 dev rail0 nud permanent\n";
    lines += "-6 neigh add fd00::200 lladdr 02:aa:00:00:00:02 dev rail0 nud permanent\n";
    // The device itself, last in the list of its MTU's users.
    lines += &format!("link set rail{last} mtu 9000 txqueuelen 777 alias back\n");
    lines += &format!("link property add dev rail{last} altname the-last-of-the-rails\n");
    if last > 0 {
        // Multipath, over two that go.
        lines += &format!(
            "route add 192.168.90.0/24 nexthop via 10.0.0.254 dev rail0 weight 3 nexthop via \
             10.{last_net}.0.254 dev rail{last} weight 5\n"
        );
        lines += &format!(
            "-6 route add fdcc::/48 nexthop via fd00::ff dev rail0 nexthop via fd0{last_net:x}::ff \
             dev rail{last}\n"
        );
    }
    if last > 1 {
        // One that is down, with its address.
        lines += "link set rail1 down\n";
    }
    world.home.ip(&lines);
    world.home.sh(&format!(
        "cd /proc/sys/net
         echo 2 >ipv4/conf/rail{last}/rp_filter; echo 1 >ipv4/conf/rail0/forwarding
         echo 0 >ipv6/conf/rail{last}/accept_ra; echo 1 >ipv6/conf/rail0/keep_addr_on_down
         echo 1 >ipv6/conf/rail0/accept_dad
         echo 4321 >ipv4/neigh/rail0/base_reachable_time_ms; echo 1280 >ipv6/conf/rail0/mtu
         test {last_ip} -gt 0"
    ));
}

fn there_and_back(nics: u8, subnets: Subnets, options: &[&str]) {
    let Some(world) = World::new(nics, subnets) else { return };
    enrich(&world, subnets);
    let before = world.home.dump();
    let container = world.target.dump();
    world.move_all(options);

    let gone = world.home.sh("ip -o link");
    assert!(!gone.contains("rail"), "{gone}");
    let addresses = world.target.sh("ip -o addr");
    for n in 0..nics {
        let net = if subnets == Subnets::Same { 0 } else { n };
        let ip = format!("inet 10.{net}.0.{}/16", n + 1);
        assert!(addresses.contains(&ip), "{ip} is missing: {addresses}");
    }
    let links = world.target.sh("ip -o link");
    let line = |name: &str| links.lines().find(|l| l.contains(name)).unwrap().to_owned();
    let last = format!("rail{}@", nics - 1);
    assert!(line(&last).contains("mtu 9000"), "{links}");
    if nics > 2 {
        assert!(!line("rail1@").contains(",UP"), "set up though it was down: {links}");
    }

    world.restore();
    same(&before, &world.home.dump(), "at home");
    same(&container, &world.target.dump(), "in the container");
}

#[test]
fn one_nic() {
    there_and_back(1, Subnets::Same, &[]);
}

#[test]
fn three_nics_of_one_network() {
    there_and_back(3, Subnets::Same, &[]);
}

#[test]
fn three_nics_of_networks_of_their_own() {
    there_and_back(3, Subnets::Different, &[]);
}

/// The kernel makes an address of its own for a link that has a carrier, which the link may have only later.
#[test]
fn a_nic_comes_back_though_its_carrier_came_meanwhile() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    world.peer.ip("link set p0 down\n");
    until("the end of the carrier", || world.home.sh("ip link show rail0").contains("NO-CARRIER"));
    world.home.ip("-6 addr flush dev rail0 scope link\n");
    world.move_all(&[]);
    world.peer.ip("link set p0 up\n");
    world.restore();
    until("the kernel's own address", || {
        let addresses = world.home.sh("ip -o addr show rail0");
        addresses.lines().count() == 3 && addresses.contains("fe80::")
    });
}

#[test]
fn sixteen_nics_of_one_network() {
    there_and_back(16, Subnets::Same, &[]);
}

#[test]
fn sixteen_nics_of_networks_of_their_own() {
    there_and_back(16, Subnets::Different, &[]);
}

#[test]
fn loosely() {
    there_and_back(3, Subnets::Same, &["--arp", "loose"]);
}

#[test]
fn again_and_again() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    let before = world.home.dump();
    for _ in 0..3 {
        world.move_all(&[]);
        world.restore();
    }
    same(&before, &world.home.dump(), "after three times");
    let output = world.run(&["netdev", "restore"]);
    assert!(output.status.success() && stderr(&output).contains("all NICs are home"));
}

#[test]
fn a_container_that_dies_gives_its_nics_back_bare() {
    let Some(mut world) = World::new(2, Subnets::Same) else { return };
    enrich(&world, Subnets::Same);
    let before = world.home.dump();
    world.move_all(&[]);
    // What the kernel does with hardware when a namespace ends; a veth it would remove.
    let home = world.home.pid();
    world.target.ip(&format!(
        "link set rail1 netns {home} name dev9\nlink set rail0 netns {home} name dev8\n"
    ));
    world.target = World::new(0, Subnets::Same).unwrap().target;
    let status = world.ok(&["netdev", "status"]);
    assert!(status.contains("which is gone") && status.contains(", home"), "{status}");
    // It must not be forgotten what they were.
    let output = world.move_command(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("verbgate netdev restore"), "{}", stderr(&output));
    world.restore();
    same(&before, &world.home.dump(), "after the container's death");
}

#[test]
fn a_nic_that_is_gone_for_good_is_told_and_can_be_forgotten() {
    let Some(mut world) = World::new(1, Subnets::Same) else { return };
    world.move_all(&[]);
    world.target = World::new(0, Subnets::Same).unwrap().target;
    let output = world.run(&["netdev", "restore", "--wait", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("rail0 is gone"), "{}", stderr(&output));
    assert!(world.journal().exists());
    world.ok(&["netdev", "restore", "--wait", "0", "--forget"]);
    assert!(!world.journal().exists());
}

#[test]
fn after_a_reboot_what_is_missing_is_added() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let before = world.home.dump();
    world.move_all(&[]);
    // As after a boot: the NIC is at home with a part of what it had, and the identities of
    // namespaces mean nothing.
    let home = world.home.pid();
    world.target.ip(&format!("link set rail0 netns {home}\n"));
    world.home.ip("addr add 10.0.0.1/16 dev rail0\nlink set rail0 up\n");
    let journal = std::fs::read_to_string(world.journal()).unwrap();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = journal.replace(boot_id.trim(), "00000000-0000-0000-0000-000000000000");
    assert_ne!(journal, other);
    std::fs::write(world.journal(), other).unwrap();
    world.restore();
    same(&before, &world.home.dump(), "after a reboot");
}

#[test]
fn names_that_are_taken_are_evaded() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    let before = world.home.dump();
    world.target.ip("link add rail0 type veth peer name other\n");
    world.move_all(&[]);
    let addresses = world.target.sh("ip -o -4 addr show dev rail0r0");
    assert!(addresses.contains("10.0.0.1/16"), "{addresses}");
    let status = world.ok(&["netdev", "status", "--json"]);
    assert!(status.contains("\"target_name\": \"rail0r0\""), "{status}");
    world.restore();
    same(&before, &world.home.dump(), "after another name");

    // Somebody took the name at home.
    world.move_all(&[]);
    world.home.ip("link add rail0 type veth peer name squatter\n");
    let output = world.run(&["netdev", "restore"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("it is called rail0r0"), "{}", stderr(&output));
    assert!(world.home.sh("ip -4 addr show dev rail0r0").contains("10.0.0.1/16"));
    world.home.ip("link del rail0\n");
    world.restore();
    same(&before, &world.home.dump(), "after the name came free");
}

#[test]
fn a_part_of_a_multipath_route_is_told_of_and_comes_back() {
    let Some(world) = World::new(2, Subnets::Different) else { return };
    world.home.ip(
        "route add 192.168.90.0/24 nexthop via 10.0.0.254 dev rail0 nexthop via 10.1.0.254 dev \
         rail1\n-6 route add fdcc::/48 nexthop via fd00::ff dev rail0 nexthop via fd01::ff dev \
         rail1\n",
    );
    let before = world.home.dump();
    let output = world.move_command(&["--iface", "rail0"]).output().unwrap();
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("192.168.90.0/24") && told.contains("lost for rail1"), "{told}");
    world.restore();
    // Routes of one network count in their order, and rail1's own stand before rail0's now.
    let sorted = |dump: &str| {
        let mut lines: Vec<&str> = dump.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    same(&sorted(&before), &sorted(&world.home.dump()), "after a part of the NICs");
}

#[test]
fn a_plan_changes_nothing() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    let (before, container) = (world.home.dump(), world.target.dump());
    let to = world.target.pid();
    let text = world.ok(&["netdev", "plan", "--to", &to]);
    assert!(text.contains("rail0 as rail0") && text.contains("10.0.0.2/16"), "{text}");
    let json = world.ok(&["netdev", "plan", "--to", &to, "--json"]);
    assert!(json.contains("\"target_name\": \"rail1\""), "{json}");
    assert!(!world.state_dir().exists());
    same(&before, &world.home.dump(), "at home");
    same(&container, &world.target.dump(), "in the container");
}

/// Not asserted on, because no test is timed: `move` tells how long it took.
#[test]
fn progress_is_shown() {
    let Some(world) = World::new(16, Subnets::Same) else { return };
    let mut command: Command = world.move_command(&["--wait", "0"]);
    let output = command.output().unwrap();
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("[1/16] rail0") && told.contains("[16/16] rail15"), "{told}");
    assert!(told.contains("16 NICs moved in "), "{told}");
    assert_eq!(stdout(&output), "");
}
