//! Routed networks: each rail has a network of two addresses, and routers between the nodes.

use crate::common::has;
use crate::common::is_root;
use crate::common::stderr;
use crate::common::stdout;
use crate::world::Net;
use crate::world::World;

/// Two rails of a node and a peer with two rails, each a /31 to the router.
struct Routed {
    world: World,
    router: Net,
}

impl Routed {
    fn new() -> Option<Self> {
        if !is_root() || !has("ip") || !has("nsenter") || !has("unshare") {
            return None;
        }
        let world = World::bare();
        let router = Net::new();
        router.sh("echo 1 >/proc/sys/net/ipv4/ip_forward");
        let (router_pid, peer_pid) = (router.pid(), world.peer.pid());
        for n in 0..2 {
            let mac = format!("02:00:00:00:00:{n:02x}");
            world.home.ip(&format!(
                "link add rail{n} type veth peer name down{n} netns {router_pid}\n\
                 link set rail{n} address {mac} up\naddr add 10.{n}.0.1/31 dev rail{n}\n\
                 route add 10.{}.0.0/31 via 10.{n}.0.0 dev rail{n}\n",
                n + 100
            ));
            router.ip(&format!(
                "link set down{n} up\naddr add 10.{n}.0.0/31 dev down{n}\n\
                 link add up{n} type veth peer name p{n} netns {peer_pid}\n\
                 link set up{n} up\naddr add 10.{}.0.0/31 dev up{n}\n",
                n + 100
            ));
            world.peer.ip(&format!(
                "link set p{n} up\naddr add 10.{}.0.1/31 dev p{n}\n\
                 route add 10.{n}.0.0/31 via 10.{}.0.0 dev p{n}\n",
                n + 100,
                n + 100
            ));
            world.rdma(n, &[&format!("10.{n}.0.1")]);
        }
        Some(Self { world, router })
    }

    fn prepare(&self) -> std::process::Output {
        let (to, peer) = (self.world.target.pid(), self.world.peer.pid());
        let words = ["prepare", "--role", "a", "--to", &to, "--verify-from", &peer];
        self.world.run(&[&words[..], &["--socket-ifname", "eth0", "--wait", "1"]].concat())
    }
}

#[test]
fn a_peer_behind_a_gateway_verifies_a_move() {
    let Some(routed) = Routed::new() else { return };
    let output = routed.prepare();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("NCCL_IB_HCA='=mlx5_0:1,mlx5_1:1'"), "{text}");
    // Routes lead out of each rail's network, so rails may be crossed.
    assert!(!text.contains("CROSS_NIC"), "{text}");
    // Each rail speaks by its own gateway.
    for n in 0..2 {
        assert!(routed.world.target.reaches(&format!("10.{}.0.1", n + 100)));
    }
    // The peer checks a manifest's addresses, too.
    let manifest = routed.world.dir.path().join("a.json");
    std::fs::write(&manifest, routed.world.ok(&["manifest", "--node", "a"])).unwrap();
    let mut verify = routed.world.peer.command(&[
        crate::common::verbgate(),
        "netdev",
        "verify",
        manifest.to_str().unwrap(),
    ]);
    let output = verify.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    routed.world.restore();
}

#[test]
fn what_is_wrong_behind_a_gateway_is_named() {
    let Some(routed) = Routed::new() else { return };
    let before = routed.world.home.dump();
    let refused = |word: &str| {
        let output = routed.prepare();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(word) && told.contains("everything is as it was"), "{told}");
        assert!(!routed.world.journal().exists());
    };
    // The router does not know the peer's network any more: no answer comes back.
    routed.router.ip("route add blackhole 10.1.0.1/32\n");
    refused("10.1.0.1 does not answer 10.101.0.1 through the gateway 10.101.0.0");
    routed.router.ip("route del blackhole 10.1.0.1/32\n");
    routed.router.ip("link set up0 down\n");
    routed.world.peer.ip("neigh flush dev p0\n");
    refused("gateway 10.100.0.0");
    routed.router.ip("link set up0 up\n");
    routed.world.peer.ip("route del 10.0.0.0/31\n");
    refused("no route to 10.0.0.1");
    crate::world::same(&before, &routed.world.home.dump(), "after refusals");
}

/// Nodes whose networks are all different agree by name, by place or by order, and say so otherwise.
#[test]
fn nodes_with_networks_of_two_addresses_agree() {
    let Some(routed) = Routed::new() else { return };
    let world = &routed.world;
    let own = world.ok(&["manifest", "--node", "a"]);
    let (a, b) = (world.dir.path().join("a.json"), world.dir.path().join("b.json"));
    std::fs::write(&a, &own).unwrap();
    let other = own.replace("\"10.0.0.1\"", "\"10.7.0.1\"").replace("\"10.1.0.1\"", "\"10.8.0.1\"");
    std::fs::write(&b, other.replace("\"a\"", "\"b\"")).unwrap();
    let agree = |options: &[&str]| {
        let words = ["manifest", "agree", a.to_str().unwrap(), b.to_str().unwrap()];
        let mut command = std::process::Command::new(crate::common::verbgate());
        command.args(words).args(options).output().unwrap()
    };
    let refused = agree(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--by name"), "{}", stderr(&refused));
    for by in ["name", "pci", "order"] {
        let output = agree(&["--by", by, "--node", "b", "--options"]);
        let expected = "--iface rail0,rail1 --hca =mlx5_0:1,mlx5_1:1";
        assert_eq!(stdout(&output), expected, "{by}: {}", stderr(&output));
    }
    // A peer's manifest is taken on the same terms.
    let words =
        ["netdev", "list", "--json", "--peer-manifest", b.to_str().unwrap(), "--by", "name"];
    let listed: serde_json::Value = serde_json::from_str(&world.ok(&words)).unwrap();
    assert!(listed.as_array().unwrap().iter().all(|nic| nic["dropped"].is_null()), "{listed}");
}
