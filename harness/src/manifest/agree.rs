//! The rails that all nodes have alike.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Serialize;
use verbgate_netdev::Error;

use super::node::Manifest;
use super::node::Rail;
use super::node::some;
use super::pair;
use super::parity;
use super::parity::Parity;
use crate::cli::By;

/// The agreement of nodes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Agreement {
    /// The rails, by what makes them the same.
    pub(crate) rails: Vec<String>,
    /// Why other rails are left out, a line each.
    pub(crate) broken: Vec<String>,
    /// Number of the rails.
    pub(crate) dropped: usize,
    /// Properties that nodes do not have alike and that a rail can do without, a line each.
    pub(crate) differs: Vec<String>,
    /// Whether each rail has a network of its own, on every node, and no route leads out of it.
    pub(crate) rail_only: bool,
    pub(crate) nodes: Vec<NodeSet>,
}

/// One node's part.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NodeSet {
    pub(crate) node: String,
    /// In the order of the rails.
    pub(crate) netdevs: Vec<String>,
    /// Ports as `NCCL_IB_HCA` names them.
    pub(crate) hcas: Vec<String>,
    /// Those of the ports that no move concerns: InfiniBand, and bonds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stay: Vec<String>,
    /// Why other NICs are no common rails, by their netdevs.
    #[serde(skip)]
    pub(crate) left_out: BTreeMap<String, String>,
}

impl NodeSet {
    fn new(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    fn take(&mut self, rail: &Rail) {
        match rail.stays {
            true => self.stay.push(rail.name()),
            false => self.netdevs.push(rail.name()),
        }
        self.hcas.push(rail.hca());
    }

    /// All rails, for people.
    pub(super) fn names(&self) -> Vec<String> {
        self.netdevs.iter().chain(&self.stay).cloned().collect()
    }

    /// The options of `prepare` that choose these rails, and say whether a rail reaches other rails.
    pub(super) fn options(&self, rail_only: bool) -> String {
        let hca = format!("--hca ={}", self.hcas.join(","));
        let iface = match self.netdevs.is_empty() {
            true => String::new(),
            false => format!("--iface {} ", self.netdevs.join(",")),
        };
        // A node's own routes say nothing of InfiniBand, or of the other nodes.
        iface + &hca + if rail_only { " --rail-only" } else { "" }
    }
}

impl Agreement {
    /// The findings, for people.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let broken = self.broken.iter().map(|line| format!("FAIL {line}"));
        broken.chain(self.differs.iter().map(|line| format!("WARN {line}")))
    }

    pub(super) fn of(&self, node: &str) -> Result<&NodeSet, Error> {
        self.nodes.iter().find(|set| set.node == node).ok_or_else(|| {
            Error::Usage(format!(
                "node {node:?} has no manifest among the files; see the field \"node\" in each \
                 manifest"
            ))
        })
    }
}

/// Works out the rails that all nodes have, with the same speed, MTU and link layer.
pub(crate) fn agree(manifests: &[Manifest], by: By) -> Result<Agreement, Error> {
    let mut nodes = BTreeSet::new();
    for manifest in manifests {
        if !nodes.insert(manifest.node.as_str()) {
            let node = &manifest.node;
            return Err(Error::Invalid(format!(
                "node {node:?} has two manifests; give one node another name: verbgate manifest \
                 --node"
            )));
        }
    }
    let mut agreement = Agreement { rail_only: true, ..Agreement::default() };
    let mut parity = Parity::default();
    let mut sets: BTreeMap<&str, NodeSet> =
        nodes.iter().map(|node| (*node, NodeSet::new(node))).collect();
    for (key, on) in pair::up(manifests, by)? {
        let name = key.to_string();
        let missing: Vec<&str> = nodes.iter().filter(|n| !on.contains_key(*n)).copied().collect();
        let mut wrong = Vec::new();
        if let (false, Some((node, rail))) = (missing.is_empty(), on.first_key_value()) {
            let (netdev, missing) = (rail.name(), some(&missing));
            wrong.push(format!("rail {name} ({netdev} of {node}): not on {missing}"));
        }
        wrong.extend(parity::wrong(&name, &on));
        if wrong.is_empty() {
            parity.add(&on);
        }
        agreement.rail_only &= key.is_alone() && on.values().all(|rail| !rail.routed);
        for (node, rail) in on {
            let Some(set) = sets.get_mut(node) else { continue };
            match wrong.first() {
                Some(why) => drop(set.left_out.insert(rail.name(), why.clone())),
                None => set.take(rail),
            }
        }
        match wrong.is_empty() {
            true => agreement.rails.push(name),
            false => agreement.dropped += 1,
        }
        agreement.broken.extend(wrong);
    }
    agreement.differs = parity.lines();
    agreement.differs.extend(parity::of_hosts(manifests));
    agreement.differs.extend(parity::of_gids(manifests));
    agreement.rail_only &= agreement.rails.len() > 1;
    agreement.nodes = sets.into_values().collect();
    if agreement.rails.is_empty() {
        let why = agreement.broken.first().map_or("no node has a rail", String::as_str);
        return Err(Error::Invalid(format!(
            "the {} nodes share no rail ({why}); where nodes have networks of their own, try --by \
             name, --by pci or --by order",
            nodes.len()
        )));
    }
    Ok(agreement)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::manifest::node::VERSION;

    fn rail(n: u8, host: u16) -> Rail {
        let [high, low] = host.to_be_bytes();
        let base = verbgate_netdev::rails::Rail {
            netdev: Some(format!("rail{n}")),
            rdma: format!("mlx5_{n}"),
            port: 1,
            pci: Some(format!("0000:{n:02x}:00.0")),
            link_layer: Some("Ethernet".to_owned()),
            address: Some(IpAddr::from([10, n, high, low])),
            prefix: 16,
            speed: Some(400.0),
            mtu: 9000,
            mac: format!("02:00:00:{n:02x}:{high:02x}:{low:02x}"),
            gid_index: Some(3),
            ..Default::default()
        };
        Rail { base, ..Rail::default() }
    }

    fn node(host: u16) -> Manifest {
        let rails = (0..16).map(|n| rail(n, host)).collect();
        Manifest { version: VERSION, node: format!("node{host}"), rails, ..Manifest::default() }
    }

    #[test]
    fn alike_nodes_agree_on_all_rails_in_order() {
        let all: Vec<Manifest> = (1..=3).map(node).collect();
        let agreement = agree(&all, By::Subnet).unwrap();
        assert_eq!(agreement.rails.len(), 16);
        assert_eq!(agreement.rails[10], "10.10.0.0/16");
        let expected: Vec<String> = (0..16).map(|n| format!("rail{n}")).collect();
        assert!(agreement.nodes.iter().all(|set| set.netdevs == expected));
        assert!(agreement.broken.is_empty());
    }

    #[test]
    fn scripts_are_told_whether_a_rail_reaches_no_other() {
        let mut all: Vec<Manifest> = (1..=3).map(node).collect();
        let told = |all: &[Manifest]| {
            let agreement = agree(all, By::Subnet).unwrap();
            agreement.of("node1").unwrap().options(agreement.rail_only)
        };
        assert!(told(&all).ends_with("mlx5_15:1 --rail-only"), "{}", told(&all));
        // A gateway of another node may lead from rail to rail.
        all[1].rails[4].base.routed = true;
        assert!(told(&all).ends_with("mlx5_15:1"), "{}", told(&all));
    }

    #[test]
    fn of_a_thousand_nodes_the_odd_ones_are_named() {
        let mut all: Vec<Manifest> = (1..=1000).map(node).collect();
        all[41].rails[3].base.mtu = 1500;
        all[499].rails.remove(7);
        all[999].rails[9].base.speed = Some(200.0);
        let agreement = agree(&all, By::Subnet).unwrap();
        assert_eq!(agreement.rails.len(), 13);
        assert_eq!((agreement.broken.len(), agreement.dropped), (3, 3), "{:?}", agreement.broken);
        let told = agreement.broken.join("\n");
        assert!(told.contains("rail3 of node42") && told.contains("MTU 1500"), "{told}");
        assert!(told.contains("rail 10.7.0.0/16 (rail7 of node1): not on node500"), "{told}");
        assert!(told.contains("rail9 of node1000") && told.contains("200 Gb/s"), "{told}");
        assert!(agreement.nodes.iter().all(|set| set.netdevs.len() == 13));
        let hcas = &agreement.of("node500").unwrap().hcas;
        assert!(!hcas.contains(&"mlx5_7:1".to_owned()) && hcas.contains(&"mlx5_8:1".to_owned()));
    }

    /// A fault of one rail of one node: what it is, and what is done.
    type Fault = (&'static str, fn(&mut Manifest, usize));

    const FAULTS: &[Fault] = &[
        ("MTU 1500", |node, rail| node.rails[rail].base.mtu = 1500),
        ("200 Gb/s", |node, rail| node.rails[rail].base.speed = Some(200.0)),
        ("InfiniBand", |node, rail| {
            node.rails[rail].base.link_layer = Some("InfiniBand".to_owned());
        }),
        ("not on", |node, rail| drop(node.rails.remove(rail))),
        ("lossless on priorities [0]", |node, rail| {
            let dcb = verbgate_host::dcb::Dcb { pfc: 1, ..Default::default() };
            node.rails[rail].facts.dcb = Some(dcb);
        }),
        ("28.1", |node, rail| node.rails[rail].facts.hardware.firmware = Some("28.1".to_owned())),
        ("mlx4", |node, rail| node.rails[rail].facts.hardware.driver = Some("mlx4".to_owned())),
    ];

    /// Each property that nodes should have alike, of hosts and of rails: the words, and the change.
    const DIFFERENCES: &[Fault] = &[
        ("ECN: roce_np/3", |node, rail| {
            let on = [("roce_np/3", "1"), ("roce_rp/3", "0")];
            let on = on.map(|(name, value)| (name.to_owned(), value.to_owned()));
            node.rails[rail].facts.ecn = on.into();
        }),
        ("board: MT_0000000838", |node, rail| {
            node.rails[rail].facts.hardware.board = Some("MT_0000000838".to_owned());
        }),
        ("kernel: 6.1.0", |node, _| node.host.kernel = "6.1.0".to_owned()),
        ("GPU driver: 535.1", |node, _| node.host.gpu_driver = Some("535.1".to_owned())),
        ("GPU driver: none", |node, _| node.host.gpu_driver = None),
        ("GPU memory for NICs: nvidia_peermem", |node, _| {
            node.host.gpu_memory = vec!["nvidia_peermem".to_owned()];
        }),
        ("GPU memory for NICs: none", |node, _| node.host.gpu_memory.clear()),
    ];

    /// A node with what the table above changes.
    fn whole(host: u16) -> Manifest {
        let mut node = node(host);
        node.host.kernel = "6.12.1".to_owned();
        node.host.gpu_driver = Some("570.2".to_owned());
        node.host.gpu_memory = vec!["dma-buf".to_owned()];
        for rail in &mut node.rails {
            rail.facts.hardware.board = Some("MT_0000000970".to_owned());
            let on = ["roce_np/3", "roce_rp/3"].map(|name| (name.to_owned(), "1".to_owned()));
            rail.facts.ecn = on.into();
        }
        node
    }

    #[test]
    fn what_should_be_alike_is_told_of_the_node_that_differs() {
        let all: Vec<Manifest> = (1..=3).map(whole).collect();
        assert_eq!(agree(&all, By::Subnet).unwrap().lines().next(), None);
        for (words, change) in DIFFERENCES {
            let mut all = all.clone();
            change(&mut all[1], 4);
            let lines: Vec<String> = agree(&all, By::Subnet).unwrap().lines().collect();
            let [line] = &lines[..] else { panic!("{words}: {lines:#?}") };
            let told = line.starts_with(&format!("WARN {words} on ")) && line.contains("node2");
            assert!(told && line.ends_with("on the others"), "{words}: {line}");
            assert!(!line.contains("node1") && !line.contains("node3"), "{line}");
        }
    }

    /// Of two nodes nobody knows which is right, whichever value stands later in the alphabet.
    #[test]
    fn of_two_nodes_that_differ_neither_is_called_usual() {
        for (words, change) in DIFFERENCES.iter().chain(FAULTS).filter(|(w, _)| *w != "not on") {
            for odd in 0..2 {
                let mut all: Vec<Manifest> = (1..=2).map(whole).collect();
                for rail in all.iter_mut().flat_map(|node| &mut node.rails) {
                    rail.facts.dcb = Some(verbgate_host::dcb::Dcb { pfc: 8, ..Default::default() });
                    rail.facts.hardware.firmware = Some("28.2".to_owned());
                    rail.facts.hardware.driver = Some("mlx5_core".to_owned());
                }
                change(&mut all[odd], 4);
                let lines: Vec<String> = agree(&all, By::Subnet).unwrap().lines().collect();
                let [line] = &lines[..] else { panic!("{words}: {lines:#?}") };
                let both = line.contains("node1") && line.contains("node2");
                assert!(both && line.contains("differ"), "{words}: {line}");
                assert!(!line.contains("others"), "{words}: {line}");
            }
        }
    }

    /// On two nodes and on two rails; each is told of its own node, and nothing is told of another.
    #[test]
    fn each_pair_of_faults_is_told_apart_on_128_nodes_of_8_rails() {
        let mut good: Vec<Manifest> = (1..=128).map(node).collect();
        for rail in good.iter_mut().flat_map(|node| {
            node.rails.truncate(8);
            &mut node.rails
        }) {
            rail.facts.dcb = Some(verbgate_host::dcb::Dcb { pfc: 8, ..Default::default() });
            rail.facts.hardware.firmware = Some("28.2".to_owned());
            rail.facts.hardware.driver = Some("mlx5_core".to_owned());
        }
        assert_eq!(agree(&good, By::Subnet).unwrap().lines().next(), None);
        for (index, one) in FAULTS.iter().enumerate() {
            for other in &FAULTS[index..] {
                let mut all = good.clone();
                (one.1)(&mut all[16], 3);
                (other.1)(&mut all[98], 5);
                let lines: Vec<String> = agree(&all, By::Subnet).unwrap().lines().collect();
                for (words, node) in [(one.0, "node17"), (other.0, "node99")] {
                    let told = lines.iter().filter(|line| line.contains(words));
                    let told: Vec<_> = told.filter(|line| line.contains(node)).collect();
                    assert_eq!(told.len(), 1, "{words} of {node}: {lines:#?}");
                }
                // What differs in the same way is told once, of both.
                let alike = std::ptr::eq(one, other) && lines.len() == 1;
                assert!(alike || lines.len() == 2, "{lines:#?}");
            }
        }
    }

    #[test]
    fn rails_of_one_network_are_told_apart_by_their_names() {
        let mut all: Vec<Manifest> = (1..=2).map(node).collect();
        for manifest in &mut all {
            manifest.rails.iter_mut().for_each(|rail| rail.base.prefix = 8);
        }
        let agreement = agree(&all, By::Subnet).unwrap();
        assert_eq!(agreement.rails.len(), 16);
        assert_eq!(agreement.rails[15], "10.0.0.0/8 rail15");
    }

    #[test]
    fn nodes_with_networks_of_their_own_agree_by_order() {
        let mut all: Vec<Manifest> = (1..=2).map(node).collect();
        all[1]
            .rails
            .iter_mut()
            .for_each(|rail| rail.base.address = Some(IpAddr::from([11, 0, 0, 1])));
        let error = agree(&all, By::Subnet).unwrap_err().to_string();
        assert!(error.contains("share no rail") && error.contains("--by order"), "{error}");
        assert_eq!(agree(&all, By::Order).unwrap().rails.len(), 16);
    }

    #[test]
    fn a_node_counts_once() {
        let error = agree(&[node(1), node(1)], By::Subnet).unwrap_err().to_string();
        assert!(error.contains("node1"), "{error}");
    }
}
