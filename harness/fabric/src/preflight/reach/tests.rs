//! Peers on the same network and behind a router, each in a network namespace of the test's own.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Instant;

use verbgate_host::netns::Namespace;
use verbgate_wait::until;

use super::*;

#[test]
fn a_nic_on_the_same_network_answers_unless_it_is_told_not_to() {
    let local = |netdev: &str, address: &str, prefix| Local {
        netdev: netdev.to_owned(),
        address: address.parse().unwrap(),
        prefix,
    };
    let locals = [
        local("lo", "127.0.0.1", 8),
        local("a", "10.0.0.1", 24),
        local("b", "10.0.0.2", 24),
        local("c", "10.1.0.1", 16),
    ];
    let of = |netdev, address: &str, ignores: bool| {
        let found = stranger(netdev, address.parse().unwrap(), &locals, |_| ignores);
        found.map(|local| local.netdev.clone())
    };
    assert_eq!(of("a", "10.0.0.1", false).as_deref(), Some("b"));
    assert_eq!(of("b", "10.0.0.2", false).as_deref(), Some("a"));
    assert_eq!(of("a", "10.0.0.1", true), None);
    assert_eq!(of("c", "10.1.0.1", false), None);
    assert!(local("d", "0.0.0.0", 0).holds(Ipv4Addr::new(1, 2, 3, 4)));
}

/// A network namespace, held by a process.
struct Net(Child);

impl Net {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["-n", "sleep", "infinity"]).stdin(Stdio::null()).stdout(Stdio::null());
        let net = Self(command.spawn().unwrap());
        let ours = fs::read_link("/proc/self/ns/net").unwrap();
        until("a namespace", || !fs::read_link(net.path()).is_ok_and(|its| its == ours));
        net
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// A line of shell for each command, which must succeed.
    fn sh(&self, script: &str) -> String {
        let output = self.command("sh").args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// What a check says in here.
    fn says(&self, check: impl FnOnce() -> Said + Send) -> (Verdict, String, Option<Cause>) {
        let said = Namespace::open(&self.path())
            .unwrap()
            .within(|| Ok::<_, verbgate_host::Error>(check()));
        let said = said.unwrap();
        (said.verdict, said.detail, said.cause)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two nodes, and a router between them.
struct Routed {
    a: Net,
    router: Net,
    b: Net,
}

const A4: &str = "10.1.0.1";
const B4: &str = "10.2.0.1";
const A6: &str = "fd01::1";
const B6: &str = "fd02::1";
const B_MAC: &str = "02:00:00:00:02:01";
const ROUTER_MAC: &str = "02:00:00:00:01:fe";

impl Routed {
    /// None where this test cannot run, which it says.
    fn new() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIPPED: needs root, to make network namespaces");
            return None;
        }
        let (a, router, b) = (Net::new(), Net::new(), Net::new());
        for net in [&a, &router, &b] {
            net.sh("echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up");
        }
        router.sh("echo 1 >/proc/sys/net/ipv4/ip_forward
                   echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
        for (net, n, name) in [(&a, 1, "va"), (&b, 2, "vb")] {
            let pid = net.0.id();
            router.sh(&format!(
                "ip link add r{n} type veth peer name {name} netns {pid}
                 ip addr add 10.{n}.0.254/24 dev r{n}; ip addr add fd0{n}::fe/64 dev r{n} nodad
                 ip link set r{n} address 02:00:00:00:0{n}:fe up"
            ));
            net.sh(&format!(
                "ip addr add 10.{n}.0.1/24 dev {name}; ip addr add fd0{n}::1/64 dev {name} nodad
                 ip link set {name} address 02:00:00:00:0{n}:01 up
                 ip route add 10.0.0.0/8 via 10.{n}.0.254
                 ip -6 route add fd00::/8 via fd0{n}::fe"
            ));
        }
        Some(Self { a, router, b })
    }
}

fn rail(netdev: &str, mac: &str) -> Rail {
    let (netdev, mac) = (Some(netdev.to_owned()), Some(mac.to_owned()));
    Rail { netdev, mac, link_layer: "Ethernet".to_owned(), ..Rail::default() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What `neighbour` and `route` say on node A of a peer.
fn both(world: &Routed, from: &str, to: &str) -> [(Verdict, String, Option<Cause>); 2] {
    let (mine, theirs) = (rail("va", "02:00:00:00:00:01"), rail("vb", B_MAC));
    [neighbour as OfPeer, route].map(|check| {
        world.a.says(|| {
            ask_all(ip(from), [ip(to)].into_iter());
            check(&mine, &theirs, (ip(from), ip(to)), Instant::now() + 10 * RESOLVE)
        })
    })
}

#[test]
fn a_peer_behind_a_router_is_reached_by_the_gateway() {
    let Some(world) = Routed::new() else { return };
    for (from, to, gateway) in [(A4, B4, "10.1.0.254"), (A6, B6, "fd01::fe")] {
        for (verdict, detail, _) in both(&world, from, to) {
            assert_eq!(verdict, Verdict::Ok, "{detail}");
            assert!(detail.contains(&format!("through {gateway}")), "{detail}");
        }
    }
    // IPv4 by a gateway that has an IPv6 address (RFC 5549), as BGP between NICs and switches does.
    world.a.sh("ip route replace 10.0.0.0/8 via inet6 fd01::fe dev va");
    for (verdict, detail, _) in both(&world, A4, B4) {
        assert_eq!(verdict, Verdict::Ok, "{detail}");
        assert!(detail.contains("through fd01::fe"), "{detail}");
    }
}

#[test]
fn a_gateway_that_does_not_answer_is_named_and_no_peer() {
    let Some(world) = Routed::new() else { return };
    world.router.sh("ip addr flush dev r1; echo 1 >/proc/sys/net/ipv6/conf/r1/disable_ipv6");
    for (from, to, gateway) in [(A4, B4, "10.1.0.254"), (A6, B6, "fd01::fe")] {
        let [(verdict, detail, cause), (routed, ..)] = both(&world, from, to);
        assert_eq!((verdict, cause), (Verdict::Fail, Some(Cause::NoNeighbour)), "{detail}");
        assert!(detail.contains(&format!("gateway {gateway}")), "{detail}");
        assert_eq!(routed, Verdict::Ok);
    }
    world.a.sh("ip route del 10.0.0.0/8");
    let [(verdict, ..), (routed, detail, cause)] = both(&world, A4, B4);
    assert_eq!((verdict, routed), (Verdict::Skip, Verdict::Fail), "{detail}");
    assert_eq!(cause, Some(Cause::WrongRoute));
}

/// The kernel believes an answer for up to 45 s.
#[test]
fn a_gateway_that_has_answered_and_is_gone_is_not_believed() {
    let Some(world) = Routed::new() else { return };
    for (from, to) in [(A4, B4), (A6, B6)] {
        assert_eq!(both(&world, from, to)[0].0, Verdict::Ok);
    }
    world.router.sh("ip addr flush dev r1; echo 1 >/proc/sys/net/ipv6/conf/r1/disable_ipv6");
    let known = world.a.sh("ip neighbour show 10.1.0.254; ip neighbour show fd01::fe");
    assert_eq!(known.matches("lladdr").count(), 2, "{known}");
    for (from, to, gateway) in [(A4, B4, "10.1.0.254"), (A6, B6, "fd01::fe")] {
        let [(verdict, detail, cause), _] = both(&world, from, to);
        assert_eq!((verdict, cause), (Verdict::Fail, Some(Cause::NoNeighbour)), "{detail}");
        assert!(detail.contains(&format!("gateway {gateway}")), "{detail}");
    }
    // What somebody has set stays as it is set.
    world.a.sh("ip neighbour replace 10.1.0.254 lladdr 02:00:00:00:00:77 dev va nud permanent");
    assert_eq!(both(&world, A4, B4)[0].0, Verdict::Ok);
    assert!(world.a.sh("ip neighbour show 10.1.0.254").ends_with("PERMANENT"));
}

/// The router stands for a peer: it is on the same network.
#[test]
fn a_peer_on_the_same_network_must_answer_with_its_own_mac() {
    let Some(world) = Routed::new() else { return };
    let mine = rail("va", "02:00:00:00:00:01");
    for (from, to) in [(A4, "10.1.0.254"), (A6, "fd01::fe")] {
        let says = |mac: &str| {
            world.a.says(|| {
                neighbour(
                    &mine,
                    &rail("r1", mac),
                    (ip(from), ip(to)),
                    Instant::now() + 10 * RESOLVE,
                )
            })
        };
        let (verdict, detail, _) = says(ROUTER_MAC);
        assert_eq!((verdict, detail), (Verdict::Ok, format!("{to} is {ROUTER_MAC}")));
        let (_, detail, cause) = says("02:00:00:00:00:99");
        assert_eq!(cause, Some(Cause::ArpFlux), "{detail}");
    }
    world.b.sh("ip link add vc type veth peer name vd; ip link set vc up; ip link set vd up
                ip addr add 10.2.0.9/16 dev vc");
    let gid = format!("::ffff:{B4}");
    let (_, detail, cause) =
        world.b.says(|| answers(1, &Rail { gid: gid.clone(), ..rail("vb", B_MAC) }));
    assert_eq!(cause, Some(Cause::ArpFlux), "{detail}");
    assert!(detail.starts_with("vc is on the same network"), "{detail}");
}

/// Images of frameworks have no iproute2: the test below, by itself, where no program is found.
#[test]
fn the_checks_need_no_program() {
    let Some(world) = Routed::new() else { return };
    let mut command = world.a.command("env");
    command.arg("PATH=/nonexistent").arg(std::env::current_exe().unwrap());
    command.args(["--exact", "preflight::reach::tests::where_no_program_is_found"]);
    command.args(["--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
#[ignore = "the_checks_need_no_program runs it in a namespace"]
fn where_no_program_is_found() {
    assert!(Command::new("ip").output().is_err());
    let (mine, theirs) = (rail("va", "02:00:00:00:00:01"), rail("vb", B_MAC));
    for check in [neighbour as OfPeer, route] {
        let said = check(&mine, &theirs, (ip(A4), ip(B4)), Instant::now() + 10 * RESOLVE);
        assert_eq!(said.verdict, Verdict::Ok, "{}", said.detail);
    }
    let said = answers(0, &Rail { gid: format!("::ffff:{A4}"), ..mine });
    assert_eq!(said.verdict, Verdict::Ok, "{}", said.detail);
}
