//! The rails that all nodes have alike.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Serialize;

use super::Manifest;
use super::Rail;
use crate::cli::By;
use crate::netdev::Error;
use crate::netdev::discover::natural;

/// What nodes agree on.
#[derive(Debug, Serialize)]
pub(crate) struct Agreement {
    /// The rails, by what makes them the same.
    pub(crate) rails: Vec<String>,
    /// Why other rails are left out, a line each.
    pub(crate) broken: Vec<String>,
    pub(crate) nodes: Vec<NodeSet>,
}

/// One node's part.
#[derive(Debug, Serialize)]
pub(crate) struct NodeSet {
    pub(crate) node: String,
    /// In the order of the rails.
    pub(crate) netdevs: Vec<String>,
    /// Ports as `NCCL_IB_HCA` names them.
    pub(crate) hcas: Vec<String>,
}

impl Agreement {
    pub(super) fn of(&self, node: &str) -> Result<&NodeSet, Error> {
        self.nodes.iter().find(|set| set.node == node).ok_or_else(|| {
            Error::Usage(format!("no manifest is of node {node:?}; see the \"node\" in each"))
        })
    }
}

/// The name of a rail on every node that has it, in the order in which people count.
type Key = Vec<(u64, String)>;

/// Works out the rails that all nodes have, with the same speed, MTU and link layer.
pub(crate) fn agree(manifests: &[Manifest], by: By) -> Result<Agreement, Error> {
    let mut rails: BTreeMap<Key, (String, BTreeMap<&str, &Rail>)> = BTreeMap::new();
    let mut nodes = BTreeSet::new();
    for manifest in manifests {
        if !nodes.insert(manifest.node.as_str()) {
            let node = &manifest.node;
            return Err(Error::Invalid(format!(
                "two manifests are of node {node:?}; name one otherwise: verbgate manifest --node"
            )));
        }
        for (name, rail) in keyed(manifest, by) {
            let entry = rails.entry(natural(&name)).or_insert_with(|| (name, BTreeMap::new()));
            entry.1.insert(&manifest.node, rail);
        }
    }
    let mut agreement = Agreement { rails: Vec::new(), broken: Vec::new(), nodes: Vec::new() };
    let mut chosen: BTreeMap<&str, Vec<&Rail>> = nodes.iter().map(|n| (*n, Vec::new())).collect();
    for (name, on) in rails.values() {
        let missing: Vec<&str> = nodes.iter().filter(|n| !on.contains_key(*n)).copied().collect();
        let odd = odd_ones(name, on);
        if !missing.is_empty() {
            agreement.broken.push(format!("rail {name}: not on {}", some(&missing)));
        }
        agreement.broken.extend(odd.iter().cloned());
        if missing.is_empty() && odd.is_empty() {
            agreement.rails.push(name.clone());
            for (node, rail) in on {
                chosen.entry(node).or_default().push(rail);
            }
        }
    }
    agreement.nodes = chosen
        .into_iter()
        .map(|(node, rails)| NodeSet {
            node: node.to_owned(),
            netdevs: rails.iter().map(|rail| rail.netdev.clone()).collect(),
            hcas: rails.iter().map(|rail| format!("{}:{}", rail.rdma, rail.port)).collect(),
        })
        .collect();
    if agreement.rails.is_empty() {
        let why = agreement.broken.first().map_or("there are no rails at all", String::as_str);
        return Err(Error::Invalid(format!(
            "the {} nodes share no rail ({why}); where nodes have networks of their own, try --by \
             name or --by order",
            nodes.len()
        )));
    }
    Ok(agreement)
}

/// A node's rails with the names that make them the same as those of others.
fn keyed(manifest: &Manifest, by: By) -> Vec<(String, &Rail)> {
    let mut rails: Vec<&Rail> = manifest.rails.iter().collect();
    rails.sort_by_key(|rail| {
        (natural(rail.pci.as_deref().unwrap_or_default()), natural(&rail.rdma), rail.port)
    });
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let keyed = rails.into_iter().enumerate().map(|(at, rail)| {
        let name = match by {
            By::Name => rail.netdev.clone(),
            By::Order => format!("#{at}"),
            By::Subnet => {
                let subnet = rail.subnet();
                let count = seen.entry(subnet.clone()).or_insert(0);
                *count += 1;
                format!("{subnet} #{count}")
            }
        };
        (name, rail)
    });
    keyed.collect()
}

/// A line for each node whose rail is not as that of most.
fn odd_ones(name: &str, on: &BTreeMap<&str, &Rail>) -> Vec<String> {
    let mut counts: BTreeMap<(String, String, u32), usize> = BTreeMap::new();
    for rail in on.values() {
        *counts.entry(rail.properties()).or_default() += 1;
    }
    let Some((usual, _)) = counts.iter().max_by_key(|(_, count)| **count) else {
        return Vec::new();
    };
    let describe =
        |(speed, layer, mtu): &(String, String, u32)| format!("{layer} {speed}, MTU {mtu}");
    let odd = on.iter().filter(|(_, rail)| rail.properties() != *usual);
    odd.map(|(node, rail)| {
        let (is, usual) = (describe(&rail.properties()), describe(usual));
        format!("rail {name}: {} of {node} is {is}, and others are {usual}", rail.netdev)
    })
    .collect()
}

/// The first few, and how many more.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::manifest::VERSION;

    fn rail(n: u8, host: u16) -> Rail {
        let [high, low] = host.to_be_bytes();
        Rail {
            netdev: format!("rail{n}"),
            rdma: format!("mlx5_{n}"),
            port: 1,
            pci: Some(format!("0000:{n:02x}:00.0")),
            link_layer: Some("Ethernet".to_owned()),
            address: IpAddr::from([10, n, high, low]),
            prefix: 16,
            speed: Some(400.0),
            mtu: 9000,
            mac: format!("02:00:00:{n:02x}:{high:02x}:{low:02x}"),
            gid_index: Some(3),
            gid: None,
        }
    }

    fn node(host: u16) -> Manifest {
        let rails = (0..16).map(|n| rail(n, host)).collect();
        Manifest { version: VERSION, node: format!("node{host}"), rails }
    }

    #[test]
    fn alike_nodes_agree_on_all_rails_in_order() {
        let all: Vec<Manifest> = (1..=3).map(node).collect();
        let agreement = agree(&all, By::Subnet).unwrap();
        assert_eq!(agreement.rails.len(), 16);
        assert_eq!(agreement.rails[10], "10.10.0.0/16 #1");
        let expected: Vec<String> = (0..16).map(|n| format!("rail{n}")).collect();
        assert!(agreement.nodes.iter().all(|set| set.netdevs == expected));
        assert!(agreement.broken.is_empty());
    }

    #[test]
    fn of_a_thousand_nodes_the_odd_ones_are_named() {
        let mut all: Vec<Manifest> = (1..=1000).map(node).collect();
        all[41].rails[3].mtu = 1500;
        all[499].rails.remove(7);
        all[999].rails[9].speed = Some(200.0);
        let agreement = agree(&all, By::Subnet).unwrap();
        assert_eq!(agreement.rails.len(), 13);
        assert_eq!(agreement.broken.len(), 3, "{:?}", agreement.broken);
        let told = agreement.broken.join("\n");
        assert!(told.contains("rail3 of node42") && told.contains("MTU 1500"), "{told}");
        assert!(told.contains("10.7.0.0/16 #1: not on node500"), "{told}");
        assert!(told.contains("rail9 of node1000") && told.contains("200 Gb/s"), "{told}");
        assert!(agreement.nodes.iter().all(|set| set.netdevs.len() == 13));
        let hcas = &agreement.of("node500").unwrap().hcas;
        assert!(!hcas.contains(&"mlx5_7:1".to_owned()) && hcas.contains(&"mlx5_8:1".to_owned()));
    }

    #[test]
    fn rails_of_one_network_are_counted() {
        let mut all: Vec<Manifest> = (1..=2).map(node).collect();
        for manifest in &mut all {
            manifest.rails.iter_mut().for_each(|rail| rail.prefix = 8);
        }
        let agreement = agree(&all, By::Subnet).unwrap();
        assert_eq!(agreement.rails.len(), 16);
        assert_eq!(agreement.rails[15], "10.0.0.0/8 #16");
    }

    #[test]
    fn nodes_with_networks_of_their_own_agree_by_order() {
        let mut all: Vec<Manifest> = (1..=2).map(node).collect();
        all[1].rails.iter_mut().for_each(|rail| rail.address = IpAddr::from([11, 0, 0, 1]));
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
