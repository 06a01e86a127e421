//! The comparison of one rail between nodes: what makes a rail unfit, and what merely differs.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::node::DEGRADED;
use super::node::Manifest;
use super::node::Rail;
use super::node::some;

/// Membership in a partition: the top bit of a partition key (InfiniBand specification, 10.9.1.1).
const FULL_MEMBER: u16 = 0x8000;
/// A link that has come and gone this much oftener than most of its rail is told.
const FLAPS: u64 = 10;
/// Wrong symbols beyond the usual that are told.
const SYMBOLS: u64 = 1000;

/// The rail of each node.
type On<'a> = BTreeMap<&'a str, &'a Rail>;
/// A property as text; none where the host does not tell.
type Property = fn(&Rail) -> Option<String>;

/// Properties that must be alike: with different ones, ranks hang, stall or lose packets.
const MUST: &[(&str, Property)] = &[
    ("link", |rail| {
        let speed = rail.speed.map_or("unknown speed".to_owned(), |speed| format!("{speed} Gb/s"));
        let layer = rail.link_layer.clone().unwrap_or_default();
        let mtu = if rail.mtu == 0 { String::new() } else { format!(", MTU {}", rail.mtu) };
        Some(format!("{layer} {speed}{mtu}"))
    }),
    ("lossless classes", |rail| {
        let dcb = rail.facts.dcb.as_ref()?;
        let trust = if dcb.dscp.is_empty() { "PCP" } else { "DSCP" };
        Some(format!(
            "lossless on priorities {:?} by {trust}, DSCPs {:?}",
            dcb.lossless(),
            dcb.lossless_dscp()
        ))
    }),
];

/// Properties that should be alike: a difference explains a slow or a strange node.
const SHOULD: &[(&str, Property)] = &[
    ("model", |rail| rail.facts.hardware.model.clone()),
    ("board", |rail| rail.facts.hardware.board.clone()),
    ("firmware", |rail| rail.facts.hardware.firmware.clone()),
    ("driver", |rail| rail.facts.hardware.driver.clone()),
    ("PCIe slot", |rail| {
        let link = rail.facts.hardware.pcie.as_ref()?;
        Some(format!("x{} {} GT/s", link.able_width, link.able_speed))
    }),
    ("NUMA node", |rail| rail.facts.hardware.numa_node.map(|node| node.to_string())),
    ("nearest GPU", |rail| rail.facts.hardware.gpu.as_ref().map(|gpu| gpu.distance.clone())),
    ("IOMMU", |rail| rail.facts.hardware.iommu.clone()),
    ("relaxed ordering", |rail| {
        rail.facts.hardware.relaxed_ordering.map(|on| if on { "on" } else { "off" }.to_owned())
    }),
    ("ACS redirection", |rail| {
        let known = rail.facts.hardware.pcie.is_some();
        let on = !rail.facts.hardware.acs.is_empty();
        known.then(|| if on { "on" } else { "off" }.to_owned())
    }),
    ("DSCP map", |rail| {
        let map = &rail.facts.dcb.as_ref()?.dscp;
        let pairs: Vec<String> = map.iter().map(|(dscp, prio)| format!("{dscp}:{prio}")).collect();
        Some(if pairs.is_empty() { "none".to_owned() } else { pairs.join(" ") })
    }),
    ("ECN", |rail| {
        let on = rail.facts.ecn.iter().filter(|(_, value)| *value == "1");
        let on: Vec<&str> = on.map(|(name, _)| name.as_str()).collect();
        (!rail.facts.ecn.is_empty()).then(|| on.join(" "))
    }),
    ("FEC", |rail| rail.facts.fec.clone()),
];

/// Why a rail is unfit, a line for each node that is to blame.
pub(super) fn wrong(name: &str, on: &On<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (_, property) in MUST {
        match odd_ones(on, *property) {
            Odd::None => {}
            Odd::Few(few, usual) => found.extend(few.into_iter().map(|(node, rail, is)| {
                let netdev = rail.name();
                format!("rail {name}: {netdev} of {node} is {is}, and others are {usual}")
            })),
            Odd::Undecided(all) => {
                let each: Vec<String> = by_value(&all)
                    .iter()
                    .map(|(is, whose)| format!("{is} on {}", listed(whose)))
                    .collect();
                found.push(format!("rail {name}: nodes differ: {}", each.join("; ")));
            }
        }
    }
    for (node, rail) in on {
        let Some(link) = rail.facts.hardware.pcie.as_ref().filter(|l| l.is_degraded()) else {
            continue;
        };
        found.push(format!(
            "rail {name}: the PCIe link of {} of {node} is x{} {} GT/s, and card and slot allow x{} \
             {} GT/s; {DEGRADED}",
            rail.name(),
            link.width,
            link.speed,
            link.able_width,
            link.able_speed
        ));
    }
    found.extend(partitions(name, on));
    found
}

/// A node's rail, and the value of a property there.
type Told<'a> = (&'a str, &'a Rail, String);

/// Who differs in a property.
enum Odd<'a> {
    None,
    /// These, from what most have.
    Few(Vec<Told<'a>>, String),
    /// All, since no value has more nodes than any other: of two nodes, nobody knows which is right.
    Undecided(Vec<Told<'a>>),
}

/// The value that more have than any other; none if two values have as many.
fn usual<T: Ord>(counts: &BTreeMap<T, usize>) -> Option<&T> {
    let (most, count) = counts.iter().max_by_key(|(_, count)| **count)?;
    let alike = counts.values().filter(|other| *other == count).count();
    (alike == 1).then_some(most)
}

/// Compares a property between the nodes that tell it.
fn odd_ones<'a>(on: &On<'a>, property: Property) -> Odd<'a> {
    let values: Vec<Told<'a>> =
        on.iter().filter_map(|(node, rail)| Some((*node, *rail, property(rail)?))).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, _, value) in &values {
        *counts.entry(value.clone()).or_default() += 1;
    }
    match (counts.len(), usual(&counts)) {
        (0 | 1, _) => Odd::None,
        (_, None) => Odd::Undecided(values),
        (_, Some(usual)) => {
            let few = values.into_iter().filter(|(_, _, value)| value != usual).collect();
            Odd::Few(few, usual.clone())
        }
    }
}

/// The rails of each value, as `rail0 of node1`.
fn by_value(all: &[Told<'_>]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, rail, is) in all {
        found.entry(is.clone()).or_default().push(format!("{} of {node}", rail.name()));
    }
    found
}

fn listed(whose: &[String]) -> String {
    some(&whose.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A partition that all ports of a rail are in: of two limited members neither hears the other.
fn partitions(name: &str, on: &On<'_>) -> Option<String> {
    let number = |key: u16| key & !FULL_MEMBER;
    let ports: Vec<(&str, &Rail)> = on
        .iter()
        .filter(|(_, rail)| rail.is_infiniband() && !rail.pkeys.is_empty())
        .map(|(node, rail)| (*node, *rail))
        .collect();
    let of =
        |rail: &Rail| -> BTreeSet<u16> { rail.pkeys.iter().map(|(_, key)| number(*key)).collect() };
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for number in ports.iter().flat_map(|(_, rail)| of(rail)) {
        *counts.entry(number).or_default() += 1;
    }
    let limited = |wanted: u16| -> Vec<&str> {
        let is_limited = |rail: &Rail| {
            let mut keys = rail.pkeys.iter().filter(|(_, key)| number(*key) == wanted);
            keys.all(|(_, key)| key & FULL_MEMBER == 0)
        };
        ports.iter().filter(|(_, rail)| is_limited(rail)).map(|(node, _)| *node).collect()
    };
    let shared = counts.iter().filter(|(_, count)| **count == ports.len());
    if shared.clone().any(|(number, _)| limited(*number).len() <= 1) {
        return None;
    }
    let (usual, _) = counts.iter().max_by_key(|(_, count)| **count)?;
    let without: Vec<&str> =
        ports.iter().filter(|(_, rail)| !of(rail).contains(usual)).map(|(node, _)| *node).collect();
    let why = match without.is_empty() {
        false => format!("partition {usual:#06x} is missing on {}", some(&without)),
        true => format!(
            "{} are limited members of partition {usual:#06x}, and limited members cannot talk to \
             each other",
            some(&limited(*usual))
        ),
    };
    Some(format!("rail {name}: {why}; have the subnet manager change the partition"))
}

/// Differences of all rails, gathered by what differs.
#[derive(Debug, Default)]
pub(super) struct Parity {
    /// Property, odd and usual value; and whose the odd one is.
    found: BTreeMap<(&'static str, String, String), Vec<String>>,
    /// Property and value, where no value is the usual one; and whose the value is.
    undecided: BTreeMap<&'static str, BTreeMap<String, Vec<String>>>,
}

impl Parity {
    /// Adds one rail.
    pub(super) fn add(&mut self, on: &On<'_>) {
        for (what, property) in SHOULD {
            match odd_ones(on, *property) {
                Odd::None => {}
                Odd::Few(few, usual) => {
                    for (is, whose) in by_value(&few) {
                        self.found.entry((what, is, usual.clone())).or_default().extend(whose);
                    }
                }
                Odd::Undecided(all) => {
                    let of = self.undecided.entry(what).or_default();
                    for (is, whose) in by_value(&all) {
                        of.entry(is).or_default().extend(whose);
                    }
                }
            }
        }
        let flaps = |rail: &Rail| rail.facts.carrier_changes.map(u64::from);
        self.outliers("carrier changes (a link that comes and goes)", on, flaps, FLAPS);
        self.outliers("symbol errors", on, |rail| rail.facts.symbol_errors, SYMBOLS);
    }

    /// Nodes whose counter is above the rail's median by more than `most`.
    fn outliers(
        &mut self,
        what: &'static str,
        on: &On<'_>,
        of: impl Fn(&Rail) -> Option<u64>,
        most: u64,
    ) {
        let mut values: Vec<u64> = on.values().filter_map(|rail| of(rail)).collect();
        values.sort_unstable();
        // Of two nodes the better one is the measure.
        let Some(usual) = values.get(values.len().saturating_sub(1) / 2).copied() else { return };
        for (node, rail) in on {
            let Some(value) = of(rail).filter(|value| *value > usual.saturating_add(most)) else {
                continue;
            };
            let whose = format!("{} of {node}", rail.name());
            self.found.entry((what, value.to_string(), usual.to_string())).or_default().push(whose);
        }
    }

    /// A line for each difference.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |((what, is, usual), whose): (&(&str, String, String), &Vec<String>)| {
            format!("{what}: {is} on {}, and {usual} on the others", listed(whose))
        };
        let undecided = self.undecided.iter().map(|(what, all)| differ(what, all.iter()));
        self.found.iter().map(line).chain(undecided).collect()
    }
}

/// All values, where nobody knows which is right.
fn differ<'a>(what: &str, all: impl Iterator<Item = (&'a String, &'a Vec<String>)>) -> String {
    let told = |value: &str| if value.is_empty() { "none".to_owned() } else { value.to_owned() };
    let each: Vec<String> =
        all.map(|(is, whose)| format!("{} on {}", told(is), listed(whose))).collect();
    format!("{what} differs: {}", each.join("; "))
}

/// Differences between hosts.
pub(super) fn of_hosts(manifests: &[Manifest]) -> Vec<String> {
    type Fact = fn(&Manifest) -> String;
    let facts: [(&str, Fact); 3] = [
        ("kernel", |manifest| manifest.host.kernel.clone()),
        ("GPU driver", |manifest| manifest.host.gpu_driver.clone().unwrap_or_default()),
        ("GPU memory for NICs", |manifest| manifest.host.gpu_memory.join(" ")),
    ];
    let mut found = Vec::new();
    for (what, of) in facts {
        let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for manifest in manifests {
            nodes.entry(of(manifest)).or_default().push(manifest.node.clone());
        }
        let counts = nodes.iter().map(|(value, on)| (value, on.len())).collect();
        let Some(usual) = usual(&counts) else {
            found.extend((nodes.len() > 1).then(|| differ(what, nodes.iter())));
            continue;
        };
        let told = |value: &str| if value.is_empty() { "none" } else { value }.to_owned();
        for (value, on) in nodes.iter().filter(|(value, _)| value != usual) {
            let (is, usual) = (told(value), told(usual));
            found.push(format!("{what}: {is} on {}, and {usual} on the others", listed(on)));
        }
    }
    found
}

/// Nodes whose GIDs have other indices than those of most: one value of NCCL_IB_GID_INDEX for all
/// ranks is wrong there.
pub(super) fn of_gids(manifests: &[Manifest]) -> Vec<String> {
    let mut nodes: BTreeMap<BTreeSet<u32>, Vec<&str>> = BTreeMap::new();
    for manifest in manifests {
        let own: BTreeSet<u32> = manifest.rails.iter().filter_map(|rail| rail.gid_index).collect();
        if !own.is_empty() {
            nodes.entry(own).or_default().push(&manifest.node);
        }
    }
    let remedy = "do not pass one NCCL_IB_GID_INDEX to all ranks: each node's `verbgate nccl env` \
                  tells its own";
    match nodes.iter().collect::<Vec<_>>().as_slice() {
        [] => Vec::new(),
        [(indices, _)] if indices.len() == 1 => Vec::new(),
        several => {
            let one = |(indices, on): &(&BTreeSet<u32>, &Vec<&str>)| {
                format!("{indices:?} on {}", some(on))
            };
            let told: Vec<String> = several.iter().map(one).collect();
            vec![format!("GID indices: {}; {remedy}", told.join(", "))]
        }
    }
}
