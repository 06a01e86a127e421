//! The pairing of rails: which rails of several nodes are the same rail.
//!
//! A wrong pair moves the wrong NIC, and people find that days later, so pairing never guesses. If
//! each node has one rail in a network, the network tells the rail. If nodes have several rails in
//! one network, names or PCI addresses tell the rails apart, if the nodes agree in them. Otherwise
//! people must declare the rails.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use verbgate_netdev::Error;
use verbgate_sysfs::Natural;

use super::node::Manifest;
use super::node::Rail;
use super::node::some;
use crate::cli::By;

/// Key of a rail: the same on every node that has the rail, in the order in which people count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    network: Option<Network>,
    /// Empty where the network alone tells.
    place: Natural,
}

type Network = (IpAddr, u8);
/// The rails that nodes have in one network, or at all.
type OfNodes<'a> = BTreeMap<&'a str, Vec<&'a Rail>>;
/// Each rail, and the rail's NIC on each node that has the rail.
pub(super) type Rails<'a> = BTreeMap<Key, BTreeMap<&'a str, &'a Rail>>;

impl Key {
    /// Whether the rail has its network for itself.
    pub(super) fn is_alone(&self) -> bool {
        self.network.is_some() && self.place.0.is_empty()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((ip, prefix)) = self.network {
            write!(f, "{ip}/{prefix}")?;
            if !self.place.0.is_empty() {
                f.write_str(" ")?;
            }
        }
        f.write_str(&self.place.0)
    }
}

/// Pairs the rails of all nodes.
pub(super) fn up(manifests: &[Manifest], by: By) -> Result<Rails<'_>, Error> {
    let all: OfNodes<'_> = manifests
        .iter()
        .map(|manifest| (manifest.node.as_str(), manifest.rails.iter().collect()))
        .collect();
    match by {
        By::Subnet if is_declared(&all)? => keyed(None, &all, |rail| rail.rail.clone()),
        By::Subnet => by_subnet(&all),
        By::Name => keyed(None, &all, name),
        By::Pci => keyed(None, &all, pci),
        By::Order => by_order(&all),
    }
}

fn name(rail: &Rail) -> Option<String> {
    Some(rail.name())
}

/// The PCI address, and the port where a function has several.
fn pci(rail: &Rail) -> Option<String> {
    let pci = rail.pci.as_ref()?;
    Some(if rail.port == 1 { pci.clone() } else { format!("{pci} port {}", rail.port) })
}

/// InfiniBand: the partition of a port that is in one alone. Fabrics that have nothing to do with each
/// other mostly have the same subnet prefix, the default one.
fn partition(rail: &Rail) -> Option<String> {
    const NUMBER: u16 = 0x7fff;
    let mut numbers = rail.pkeys.iter().map(|(_, key)| key & NUMBER);
    let (first, more) = (numbers.next()?, numbers.next());
    (rail.is_infiniband() && more.is_none()).then(|| format!("partition {first:#06x}"))
}

/// Whether `--rail` was used: for all rails, or it says too little.
fn is_declared(all: &OfNodes<'_>) -> Result<bool, Error> {
    let of = |declared: bool| {
        let rails = all.iter().flat_map(|(node, rails)| rails.iter().map(move |rail| (node, rail)));
        rails.filter(move |(_, rail)| rail.rail.is_some() == declared)
    };
    if of(true).next().is_none() {
        return Ok(false);
    }
    let not: Vec<String> =
        of(false).map(|(node, rail)| format!("{} of {node}", rail.name())).collect();
    if not.is_empty() {
        return Ok(true);
    }
    let not: Vec<&str> = not.iter().map(String::as_str).collect();
    Err(Error::Invalid(format!(
        "--rail declares some rails, and not others: {}; declare all rails, or none",
        some(&not)
    )))
}

fn by_subnet<'a>(all: &OfNodes<'a>) -> Result<Rails<'a>, Error> {
    let mut networks: BTreeMap<Network, OfNodes<'a>> = BTreeMap::new();
    for (node, rails) in all {
        for rail in rails {
            let at = rail.network().ok_or_else(|| {
                let name = rail.name();
                Error::Invalid(format!(
                    "{name} of {node} has neither an address nor a GID; use --by name or --by pci"
                ))
            })?;
            networks.entry(at).or_default().entry(node).or_default().push(rail);
        }
    }
    let mut found = Rails::new();
    for (network, on) in networks {
        let alone = on.values().all(|rails| rails.len() == 1);
        let rails = match alone {
            true => keyed(Some(network), &on, |_| Some(String::new())),
            false => keyed(Some(network), &on, telling(network, &on)?),
        };
        found.extend(rails?);
    }
    Ok(found)
}

/// The property that tells rails of one network apart.
fn telling(network: Network, on: &OfNodes<'_>) -> Result<fn(&Rail) -> Option<String>, Error> {
    if let Some(why) = contradiction(on) {
        return Err(refusal(network, on, &why));
    }
    for of in [partition, name, pci] {
        if agree_in(on, of) {
            return Ok(of);
        }
    }
    let why = "the nodes agree neither in the NICs' names nor in their PCI addresses";
    Err(refusal(network, on, why))
}

fn refusal((ip, prefix): Network, on: &OfNodes<'_>, why: &str) -> Error {
    const SHOWN: usize = 4;
    let of = |(node, rails): (&&str, &Vec<&Rail>)| {
        let pci = |rail: &Rail| rail.pci.clone().unwrap_or_else(|| "no PCI address".to_owned());
        let rails: Vec<String> =
            rails.iter().map(|rail| format!("{} ({})", rail.name(), pci(rail))).collect();
        format!("{node} has {}", rails.join(", "))
    };
    let nodes: Vec<String> = on.iter().take(SHOWN).map(of).collect();
    Error::Invalid(format!(
        "cannot tell which rails of {ip}/{prefix} are the same: {why}: {}; declare each by --rail \
         NETDEV=RAIL with each node's `verbgate manifest`, or say what counts: --by name, --by \
         pci, or --by order if every node has all rails",
        nodes.join("; ")
    ))
}

/// Whether one node has what any other has: then those others miss some, and nothing has another
/// name.
fn agree_in(on: &OfNodes<'_>, of: fn(&Rail) -> Option<String>) -> bool {
    let sets: Option<Vec<BTreeSet<String>>> =
        on.values().map(|rails| rails.iter().map(|rail| of(rail)).collect()).collect();
    let Some(sets) = sets else { return false };
    let Some(fullest) = sets.iter().max_by_key(|set| set.len()) else { return false };
    let distinct = sets.iter().zip(on.values()).all(|(set, rails)| set.len() == rails.len());
    distinct && sets.iter().all(|set| set.is_subset(fullest))
}

/// Names that a missing NIC has shifted: two nodes of one build whose NICs in one place have two
/// names, of which one is in use elsewhere in the other node.
fn contradiction(on: &OfNodes<'_>) -> Option<String> {
    type Build = BTreeMap<String, String>;
    let mut builds: BTreeMap<Build, &str> = BTreeMap::new();
    for (node, rails) in on {
        let build: Option<Build> =
            rails.iter().map(|rail| Some((pci(rail)?, rail.name()))).collect();
        builds.entry(build?).or_insert(node);
    }
    let within = |a: &Build, b: &Build| a.keys().all(|place| b.contains_key(place));
    let has = |build: &Build, name: &String| build.values().any(|other| other == name);
    let pairs = builds.iter().enumerate();
    let mut pairs = pairs.flat_map(|(at, one)| builds.iter().skip(at + 1).map(move |o| (one, o)));
    pairs.find_map(|((a, a_node), (b, b_node))| {
        if !within(a, b) && !within(b, a) {
            return None;
        }
        let (place, x, y) = a.iter().find_map(|(place, x)| {
            let y = b.get(place).filter(|y| *y != x)?;
            (has(b, x) || has(a, y)).then_some((place, x, y))
        })?;
        Some(format!("the NIC at {place} is {x} on {a_node} and {y} on {b_node}"))
    })
}

fn by_order<'a>(all: &OfNodes<'a>) -> Result<Rails<'a>, Error> {
    let counts: BTreeMap<usize, &str> =
        all.iter().map(|(node, rails)| (rails.len(), *node)).collect();
    if let (Some((few, poor)), Some((many, rich))) =
        (counts.first_key_value(), counts.last_key_value())
        && few != many
    {
        return Err(Error::Invalid(format!(
            "--by order counts rails, and {poor} has {few} of them where {rich} has {many}: behind \
             the missing one each would be paired with the next; use --by name or --by pci, or \
             declare them by --rail NETDEV=RAIL"
        )));
    }
    let mut found = Rails::new();
    for (node, rails) in all {
        let mut rails = rails.clone();
        rails.sort_by_key(|rail| {
            let pci = Natural(rail.pci.clone().unwrap_or_default());
            (pci, Natural(rail.rdma.clone()), rail.port)
        });
        for (at, rail) in rails.into_iter().enumerate() {
            let key = Key { network: None, place: Natural(format!("#{at}")) };
            found.entry(key).or_default().insert(node, rail);
        }
    }
    Ok(found)
}

fn keyed<'a>(
    network: Option<Network>,
    on: &OfNodes<'a>,
    of: impl Fn(&Rail) -> Option<String>,
) -> Result<Rails<'a>, Error> {
    let mut found = Rails::new();
    for (node, rails) in on {
        for rail in rails {
            let netdev = rail.name();
            let place = of(rail).ok_or_else(|| {
                Error::Invalid(format!("{netdev} of {node} has no PCI address: use --by name"))
            })?;
            let key = Key { network, place: Natural(place) };
            let told = key.to_string();
            if let Some(other) = found.entry(key).or_default().insert(node, rail) {
                let other = other.name();
                return Err(Error::Invalid(format!(
                    "{other} and {netdev} of {node} are both rail {told}; declare each by --rail \
                     NETDEV=RAIL"
                )));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::node::VERSION;

    /// A node whose rails are all in 10.0.0.0/12: netdevs and the numbers of their PCI buses.
    fn node(name: &str, nics: &[(&str, u8)]) -> Manifest {
        let rail = |(netdev, bus): &(&str, u8)| Rail {
            base: verbgate_netdev::rails::Rail {
                netdev: Some((*netdev).to_owned()),
                rdma: format!("mlx5_{bus}"),
                port: 1,
                pci: Some(format!("0000:{bus:02x}:00.0")),
                address: Some(IpAddr::from([10, 1, *bus, 1])),
                prefix: 12,
                ..Default::default()
            },
            ..Rail::default()
        };
        let rails = nics.iter().map(rail).collect();
        Manifest { version: VERSION, node: name.to_owned(), rails, ..Manifest::default() }
    }

    /// Each rail, and the rail's netdevs.
    fn pairs(nodes: &[Manifest], by: By) -> Result<Vec<(String, Vec<String>)>, String> {
        let rails = up(nodes, by).map_err(|e| e.to_string())?;
        let netdevs = |on: BTreeMap<&str, &Rail>| on.values().map(|r| r.name()).collect();
        Ok(rails.into_iter().map(|(key, on)| (key.to_string(), netdevs(on))).collect())
    }

    fn refused(nodes: &[Manifest], by: By, words: &[&str]) {
        let error = pairs(nodes, by).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    const FOUR: &[(&str, u8)] = &[("rdma0", 12), ("rdma1", 26), ("rdma2", 60), ("rdma10", 77)];

    #[test]
    fn on_one_network_a_missing_rail_does_not_shift_the_others() {
        let poor = node("b", &[("rdma0", 12), ("rdma2", 60), ("rdma10", 77)]);
        for by in [By::Subnet, By::Name, By::Pci] {
            let pairs = pairs(&[node("a", FOUR), poor.clone()], by).unwrap();
            let of: Vec<Vec<&str>> =
                pairs.iter().map(|(_, on)| on.iter().map(String::as_str).collect()).collect();
            let expected: [&[&str]; 4] =
                [&["rdma0", "rdma0"], &["rdma1"], &["rdma2", "rdma2"], &["rdma10", "rdma10"]];
            assert_eq!(of, expected, "{by:?}");
        }
        refused(&[node("a", FOUR), poor], By::Order, &["b has 3", "a has 4", "--rail"]);
    }

    #[test]
    fn other_names_in_the_same_places_are_told_apart_by_place_and_other_places_by_name() {
        let named = node("b", &[("x0", 12), ("x2", 60)]);
        let by_place = pairs(&[node("a", FOUR), named], By::Subnet).unwrap();
        assert_eq!(
            by_place[0],
            ("10.0.0.0/12 0000:0c:00.0".into(), vec!["rdma0".into(), "x0".into()])
        );
        assert_eq!(by_place[2].1, ["rdma2", "x2"]);
        let placed = node("b", &[("rdma1", 1), ("rdma2", 2)]);
        let by_name = pairs(&[node("a", FOUR), placed], By::Subnet).unwrap();
        assert_eq!(by_name[1], ("10.0.0.0/12 rdma1".into(), vec!["rdma1".into(), "rdma1".into()]));
    }

    /// Names that the kernel counts move up when a NIC is missing: they agree, and are wrong.
    #[test]
    fn names_that_a_missing_nic_has_shifted_are_refused() {
        let all = node("a", &[("eth2", 12), ("eth3", 26), ("eth4", 60)]);
        let shifted = node("b", &[("eth2", 12), ("eth3", 60)]);
        refused(
            &[all.clone(), shifted.clone()],
            By::Subnet,
            &["the NIC at 0000:3c:00.0 is eth", "b has eth2 (0000:0c:00.0)", "--by name", "--rail"],
        );
        let by_place = pairs(&[all, shifted], By::Pci).unwrap();
        assert_eq!(by_place[2].1, ["eth4", "eth3"]);
    }

    #[test]
    fn nothing_is_guessed_where_nodes_agree_in_nothing() {
        let other = node("b", &[("x0", 1), ("x1", 2), ("x2", 3), ("x3", 4)]);
        let nodes = [node("a", FOUR), other];
        refused(
            &nodes,
            By::Subnet,
            &["10.0.0.0/12", "rdma10 (0000:4d:00.0)", "b has x0", "--rail"],
        );
        // Who says so may count: all are there.
        assert_eq!(pairs(&nodes, By::Order).unwrap()[3].1, ["rdma10", "x3"]);
    }

    /// An InfiniBand port of the default subnet.
    fn port(device: &str, number: u32, pkeys: &[u16]) -> Rail {
        Rail {
            base: verbgate_netdev::rails::Rail {
                rdma: device.to_owned(),
                port: number,
                pci: Some("0000:0c:00.0".to_owned()),
                link_layer: Some("InfiniBand".to_owned()),
                gid: Some("fe80::506b:4b03:0:1".parse().unwrap()),
                pkeys: (0..).zip(pkeys.iter().copied()).collect(),
                stays: true,
                ..Default::default()
            },
            ..Rail::default()
        }
    }

    #[test]
    fn two_ports_in_one_subnet_are_told_apart_by_partition_or_by_port() {
        let of =
            |name: &str, rails: [Rail; 2]| Manifest { rails: rails.to_vec(), ..node(name, &[]) };
        // Both in the default partition: the port's number tells.
        let alike = || [port("mlx5_0", 1, &[0xffff]), port("mlx5_0", 2, &[0xffff])];
        let found = pairs(&[of("a", alike()), of("b", alike())], By::Subnet).unwrap();
        assert_eq!(found[1].0, "fe80::/64 mlx5_0:2");
        assert_eq!(found[1].1, ["mlx5_0:2", "mlx5_0:2"]);
        // Cables are crossed on one node: the partition tells which fabric a port is in.
        let straight = [port("mlx5_0", 1, &[0x8001]), port("mlx5_0", 2, &[0x8002])];
        let crossed = [port("mlx5_0", 1, &[0x8002]), port("mlx5_0", 2, &[0x0001])];
        let found = pairs(&[of("a", straight.clone()), of("b", crossed)], By::Subnet).unwrap();
        assert_eq!(found[0].0, "fe80::/64 partition 0x0001");
        assert_eq!(found[0].1, ["mlx5_0:1", "mlx5_0:2"]);
        // A port that is in several partitions says nothing by them.
        let several = [port("mlx5_0", 1, &[0xffff, 0x8001]), port("mlx5_0", 2, &[0x8002])];
        let found = pairs(&[of("a", straight), of("b", several)], By::Subnet).unwrap();
        assert_eq!(found[0].0, "fe80::/64 mlx5_0:1");
    }

    #[test]
    fn what_is_declared_counts_and_must_be_declared_of_all() {
        let mut nodes = [node("a", FOUR), node("b", &[("x0", 1), ("x1", 2), ("x2", 3), ("x3", 4)])];
        for (at, rail) in nodes[0].rails.iter_mut().enumerate() {
            rail.base.rail = Some(format!("r{at}"));
        }
        refused(&nodes, By::Subnet, &["x0 of b", "declare all rails"]);
        for (at, rail) in nodes[1].rails.iter_mut().enumerate() {
            rail.base.rail = Some(format!("r{}", 3 - at));
        }
        let pairs = pairs(&nodes, By::Subnet).unwrap();
        assert_eq!(pairs[0], ("r0".into(), vec!["rdma0".into(), "x3".into()]));
        nodes[1].rails[0].base.rail = Some("r2".to_owned());
        refused(&nodes, By::Subnet, &["x0 and x1 of b are both rail r2"]);
    }
}
