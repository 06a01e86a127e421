//! `verbgate manifest`: a node's rails, and those that all nodes of a cluster have alike.
//!
//! Ranks that see different sets of NICs fail in ways that name nothing ("Could not find NET with id
//! N", or a hang at the first collective operation), so the set is agreed on before.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;

use crate::cli::AgreeArgs;
use crate::cli::By;
use crate::cli::HostArgs;
use crate::cli::ManifestArgs;
use crate::cli::ManifestCommand;
use crate::cli::SelectArgs;
use crate::failure::Failure;
use crate::netdev::Error;
use crate::netdev::command::print;
use crate::netdev::command::print_json;
use crate::netdev::command::say;
use crate::netdev::discover;
use crate::netdev::discover::Device;
use crate::netdev::discover::natural;
use crate::netdev::journal;
use crate::netdev::plan;
use crate::netdev::state::State;
use crate::netdev::state::is_link_local;
use crate::netdev::state::network;
use crate::netdev::transfer::is_gid_of;
use crate::netdev::verify::Claim;

const VERSION: u32 = 1;
/// A manifest of a node with a hundred rails has a tenth of this.
const SIZE_MAX: u64 = 1 << 20;

/// What a node tells the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) node: String,
    pub(crate) rails: Vec<Rail>,
}

/// A NIC's place in a node with several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rail {
    pub(crate) netdev: String,
    pub(crate) rdma: String,
    pub(crate) port: u32,
    pub(crate) pci: Option<String>,
    pub(crate) link_layer: Option<String>,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
    /// In Gb/s.
    pub(crate) speed: Option<f64>,
    pub(crate) mtu: u32,
    pub(crate) mac: String,
    /// The RoCE v2 entry of `address`.
    pub(crate) gid_index: Option<u32>,
    pub(crate) gid: Option<Ipv6Addr>,
}

impl Rail {
    fn subnet(&self) -> String {
        format!("{}/{}", network(self.address, self.prefix), self.prefix)
    }

    /// What must be alike at both ends of a rail.
    fn properties(&self) -> (String, String, u32) {
        let speed = self.speed.map_or("unknown speed".to_owned(), |speed| format!("{speed} Gb/s"));
        (speed, self.link_layer.clone().unwrap_or_default(), self.mtu)
    }
}

impl Manifest {
    /// Addresses and MACs, for verification.
    pub(crate) fn claims(&self) -> Result<Vec<Claim>, Error> {
        let nic = |rail: &Rail| format!("{} of {}", rail.netdev, self.node);
        Ok(self
            .rails
            .iter()
            .map(|rail| Claim { nic: nic(rail), ip: rail.address, mac: rail.mac.clone() })
            .collect())
    }
}

/// Prints this node's manifest, or what the nodes agree on.
pub(crate) fn run(args: &ManifestArgs) -> Result<u8, Failure> {
    match &args.agree {
        Some(ManifestCommand::Agree(args)) => agree_all(args)?,
        None => print_json(&local(args.node.as_deref(), &args.select, &args.host)?)?,
    }
    Ok(0)
}

/// A manifest in a file.
pub(crate) fn read(path: &Path) -> Result<Manifest, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let foreign = |why: String| {
        Error::Invalid(format!(
            "{} is no manifest of this version of Verbgate: {why}; write it with: verbgate manifest",
            path.display()
        ))
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > SIZE_MAX {
        return Err(foreign(format!("it has {size} bytes")));
    }
    let text = fs::read(path).map_err(failed)?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| foreign(e.to_string()))?;
    if manifest.version != VERSION {
        return Err(foreign(format!("its version is {}", manifest.version)));
    }
    Ok(manifest)
}

/// This node's manifest: of the NICs that were moved, or else of those that would be.
pub(crate) fn local(
    node: Option<&str>,
    select: &SelectArgs,
    host: &HostArgs,
) -> Result<Manifest, Error> {
    let rails = match journal::load(&host.state_dir)? {
        Some(journal) => {
            let devices = discover::devices(&host.sysfs_root);
            let nics = journal.nics.iter();
            nics.flat_map(|nic| rail(&nic.state, &nic.rdma, &devices)).collect()
        }
        None => selected(select, &host.sysfs_root)?,
    };
    Ok(Manifest { version: VERSION, node: node.map_or_else(host_name, str::to_owned), rails })
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "localhost".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn selected(select: &SelectArgs, sysfs: &Path) -> Result<Vec<Rail>, Error> {
    let devices = discover::devices(sysfs);
    let (candidates, snapshot) = plan::candidates(select, sysfs)?;
    let mut rails = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.dropped.is_none()) {
        if let Some(link) = snapshot.link(&candidate.netdev) {
            let ports = candidate.rdma.iter().map(|port| (port.device.clone(), port.port));
            let ports: Vec<_> = ports.collect();
            rails.extend(rail(&snapshot.state(link), &ports, &devices));
        }
    }
    Ok(rails)
}

/// The rail of a NIC: of its first RDMA device and its first address, IPv4 before IPv6.
fn rail(state: &State, ports: &[(String, u32)], devices: &[Device]) -> Option<Rail> {
    let mut ips = state.ips();
    ips.retain(|(ip, _)| !is_link_local(*ip));
    ips.sort_by_key(|(ip, _)| ip.is_ipv6());
    let (address, prefix) = *ips.first()?;
    let (rdma, number) = ports.first()?;
    let device = devices.iter().find(|device| device.name == *rdma);
    let port = device.and_then(|device| device.ports.iter().find(|port| port.port == *number));
    let gid = port.and_then(|port| port.gids.iter().find(|gid| is_gid_of(gid, address)));
    Some(Rail {
        netdev: state.link.name.clone(),
        rdma: rdma.clone(),
        port: *number,
        pci: device.and_then(|device| device.pci.clone()),
        link_layer: port.and_then(|port| port.link_layer.clone()),
        address,
        prefix,
        speed: port.and_then(|port| port.rate),
        mtu: state.link.mtu,
        mac: state.link.mac.clone(),
        gid_index: gid.map(|gid| gid.index),
        gid: gid.map(|gid| gid.gid),
    })
}

/// The NICs of this node that are rails of the peers, too.
pub(crate) fn shared(select: &SelectArgs, sysfs: &Path) -> Result<Vec<String>, Error> {
    let own = SelectArgs { peer_manifest: Vec::new(), ..select.clone() };
    // Cannot be a node's name.
    let node = "this node".to_owned();
    let mut all =
        vec![Manifest { version: VERSION, node: node.clone(), rails: selected(&own, sysfs)? }];
    for path in &select.peer_manifest {
        all.push(read(path)?);
    }
    let agreement = agree(&all, By::Subnet)?;
    for line in &agreement.broken {
        say(line);
    }
    agreement.of(&node).map(|node| node.netdevs.clone())
}

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
    fn of(&self, node: &str) -> Result<&NodeSet, Error> {
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

fn agree_all(args: &AgreeArgs) -> Result<(), Error> {
    let manifests: Vec<Manifest> =
        args.manifests.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let agreement = agree(&manifests, args.by)?;
    for line in &agreement.broken {
        say(line);
    }
    for manifest in &manifests {
        let indices: BTreeSet<_> = manifest.rails.iter().map(|rail| rail.gid_index).collect();
        if indices.len() > 1 {
            say(&format!(
                "{}: its rails have different GID indices, so NCCL_IB_GID_INDEX cannot be set",
                manifest.node
            ));
        }
    }
    if let Some(node) = &args.node {
        return print(&(agreement.of(node)?.netdevs.join(",") + "\n"));
    }
    if args.json {
        return print_json(&agreement);
    }
    let lines =
        agreement.nodes.iter().map(|set| format!("{} {}\n", set.node, set.netdevs.join(",")));
    print(&lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

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
