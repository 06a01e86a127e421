//! Answers for an address: with the kernel's defaults one NIC answers for all, and with verbgate
//! each NIC answers for itself.

use crate::common::stderr;
use crate::common::verbgate;
use crate::world::Subnets;
use crate::world::World;

/// A line with `IP MAC` for each NIC, as the peer's kernel resolves the addresses.
fn resolved(world: &World) -> Vec<String> {
    let script = (1..=world.nics).map(|n| {
        // A datagram to nobody, so that the kernel resolves the address.
        format!(
            "ip neigh flush 10.0.0.{n}
             for try in $(seq 500); do
               bash -c 'echo > /dev/udp/10.0.0.{n}/9' 2>/dev/null || true
               mac=$(ip neigh show 10.0.0.{n} | sed -n 's/.*lladdr \\([^ ]*\\).*/\\1/p')
               test -z \"$mac\" || break
               sleep 0.1
             done
             echo 10.0.0.{n} $mac\n"
        )
    });
    let text = world.peer.sh(&script.collect::<String>());
    text.lines().map(str::to_owned).collect()
}

fn own_macs(world: &World) -> Vec<String> {
    (0..world.nics).map(|n| format!("10.0.0.{} 02:00:00:00:00:{n:02x}", n + 1)).collect()
}

/// `verbgate netdev verify` at the peer, with the NICs' manifest.
fn verify(world: &World) -> std::process::Output {
    let manifest = world.dir.path().join("manifest.json");
    let command = [verbgate(), "netdev", "verify", manifest.to_str().unwrap()];
    world.peer.command(&command).output().unwrap()
}

fn write_manifest(world: &World) {
    let text = world.ok(&["manifest", "--node", "host"]);
    std::fs::write(world.dir.path().join("manifest.json"), text).unwrap();
}

#[test]
fn by_default_one_nic_answers_for_all_and_that_is_found() {
    let Some(world) = World::new(3, Subnets::Same) else { return };
    write_manifest(&world);
    // As one would do it by hand.
    let target = world.target.pid();
    let mut there = String::new();
    for n in 0..3 {
        world.home.ip(&format!("link set rail{n} netns {target}\n"));
        there += &format!("link set rail{n} up\naddr add 10.0.0.{}/16 dev rail{n}\n", n + 1);
    }
    world.target.ip(&there);
    let macs = resolved(&world);
    let of = |line: &str| line.split(' ').nth(1).unwrap().to_owned();
    assert!(!of(&macs[0]).is_empty(), "{macs:?}");
    let wrong = macs.iter().zip(own_macs(&world)).filter(|(is, own)| *is != own).count();
    let output = verify(&world);
    // Which NIC answers first is the kernel's business, but only one of three can be right.
    assert!(wrong > 0, "no fault to be found: {macs:?}");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("02:00:00:00:00:0"), "{}", stderr(&output));
    assert!(stderr(&output).contains("the NIC's own MAC is"), "{}", stderr(&output));
}

fn each_for_itself(prepare: &str, options: &[&str]) {
    let Some(world) = World::new(3, Subnets::Same) else { return };
    write_manifest(&world);
    world.target.sh(prepare);
    let peer = world.peer.pid();
    let told = world.move_command(&[&["--verify-from", &peer], options].concat()).output().unwrap();
    assert!(told.status.success(), "{}", stderr(&told));
    assert!(stderr(&told).contains("each NIC answers for itself"), "{}", stderr(&told));
    assert_eq!(resolved(&world), own_macs(&world));
    let output = verify(&world);
    assert!(output.status.success(), "{}", stderr(&output));
    // The other direction: the peer sees each address come from its own NIC.
    world.peer.sh("ip neigh flush dev br0");
    for n in 1..=3 {
        world.target.sh(&format!(
            "bash -c 'exec 3<>/dev/udp/10.0.0.254/9' && ip route get 10.0.0.254 from 10.0.0.{n} | \
             grep -q 'dev rail{} '",
            n - 1
        ));
    }
    world.restore();
}

#[test]
fn strictly_each_answers_for_itself() {
    each_for_itself("true", &[]);
}

#[test]
fn strictly_also_with_strict_reverse_path_filtering_of_the_whole_container() {
    each_for_itself(
        "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 1 \
         >/proc/sys/net/ipv4/conf/all/arp_filter",
        &[],
    );
}

#[test]
fn a_peer_that_is_not_there_is_told_and_all_is_undone() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    let before = world.home.dump();
    let peer = world.peer.pid();
    world.peer.ip("link set p1 down\nlink set p1 nomaster\nlink set p1 up\n");
    let output = world.move_command(&["--verify-from", &peer, "--wait", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains("nobody answers for the NIC's address 10.0.0.2"), "{told}");
    assert!(told.contains("everything is as it was"), "{told}");
    crate::world::same(&before, &world.home.dump(), "after an unverified move");
}

#[test]
fn what_the_container_undoes_is_refused() {
    let Some(world) = World::new(1, Subnets::Same) else { return };
    world.target.sh("echo 8 >/proc/sys/net/ipv4/conf/all/arp_ignore");
    let output = world.move_command(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("net.ipv4.conf.all.arp_ignore is 8"), "{}", stderr(&output));
    world.target.sh("echo 0 >/proc/sys/net/ipv4/conf/all/arp_ignore");
    world.target.sh("echo 1 >/proc/sys/net/ipv4/conf/all/arp_filter");
    let output = world.move_command(&["--arp", "loose"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--arp strict"), "{}", stderr(&output));
}

#[test]
fn loosely_each_answers_for_itself_but_routes_are_not_separate() {
    let Some(world) = World::new(3, Subnets::Same) else { return };
    world.move_all(&["--arp", "loose"]);
    assert_eq!(resolved(&world), own_macs(&world));
    let rules = world.target.sh("ip rule");
    assert_eq!(rules.lines().count(), 3, "{rules}");
}
