//! The plan of a move, worked out before anything changes.

use std::path::Path;

use verbgate_host::link;
use verbgate_host::link::Link;
use verbgate_host::netlink::Netlink;
use verbgate_host::netns::Namespace;
use verbgate_host::rdma;
use verbgate_host::route::devices;
use verbgate_host::uapi::RTA_NH_ID;
use verbgate_sysfs::discover;

use super::Error;
use super::dress::describe;
use super::journal::Entry;
use super::journal::Step;
use super::select::Candidate;
use super::select::Host;
use super::select::Selection;
use super::state::Snapshot;
use super::state::State;
use super::strict;
use super::strict::Arp;

/// `IFNAMSIZ` without its NUL.
const NAME_MAX: usize = 15;
/// Queueing disciplines that the kernel itself gives, and so gives again.
const OWN_QDISCS: &[&str] = &["noqueue", "noop", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo"];

/// A planned move.
#[derive(Debug)]
pub struct Plan {
    /// The namespace that the NICs leave.
    pub home: Namespace,
    /// The namespace that the NICs go to.
    pub target: Namespace,
    /// Every NIC that has RDMA, those that stay with the reason.
    pub candidates: Vec<Candidate>,
    /// In the order in which they move.
    pub entries: Vec<Entry>,
    /// Losses that the move cannot prevent.
    pub warnings: Vec<String>,
    pub(crate) rdma_exclusive: bool,
}

/// The NICs of this host, without a target.
pub fn candidates(args: &Selection, sysfs: &Path) -> Result<(Vec<Candidate>, Snapshot), Error> {
    if !sysfs.join("class").is_dir() {
        let why = "has no class/, and so is not a sysfs; see --sysfs-root";
        return Err(Error::Usage(format!("{} {why}", sysfs.display())));
    }
    let mut netlink = open()?;
    let snapshot = Snapshot::take(&mut netlink)?;
    let devices = discover::devices(sysfs);
    let host = Host { sysfs, snapshot: &snapshot, devices: &devices };
    let found = host.candidates(args, &mut netlink)?;
    Ok((found, snapshot))
}

/// A netlink socket of the thread's namespace.
pub fn open() -> Result<Netlink, Error> {
    let what = || "open a netlink socket".to_owned();
    Netlink::route().map_err(|source| Error::netlink(what(), source))
}

/// Plans a move of the selected NICs to a namespace.
pub fn plan(args: &Selection, sysfs: &Path, to: &str, arp: Arp) -> Result<Plan, Error> {
    let home = Namespace::current()?;
    let target = Namespace::named(to)?;
    if home.id == target.id {
        return Err(Error::SameNamespace { path: target.path });
    }
    let there = target.within(|| {
        strict::check_effective(arp)?;
        Snapshot::take(&mut open()?)
    })?;
    let (candidates, snapshot) = candidates(args, sysfs)?;
    let mut chosen: Vec<(&Candidate, State)> = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.dropped.is_none()) {
        if let Some(link) = snapshot.link(&candidate.netdev) {
            let state = snapshot.state(link);
            refuse(&state, &there)?;
            chosen.push((candidate, state));
        }
    }
    if chosen.is_empty() {
        let dropped = candidates
            .iter()
            .filter_map(|c| Some(format!("{}: {}", c.netdev, c.dropped.as_deref()?)));
        let reasons: Vec<String> = dropped.collect();
        let why = match reasons.is_empty() {
            true => "no NIC on this host has RDMA (see: verbgate netdev list)".to_owned(),
            false => reasons.join("; "),
        };
        return Err(Error::Nothing { why });
    }
    // The order of the kernel's own routes to a network that several NICs are in.
    chosen.sort_by_key(|(_, state)| (state.rank.is_none(), state.rank, state.link.index));
    let moved: Vec<u32> = chosen.iter().map(|(_, state)| state.link.index).collect();
    let warnings = chosen.iter().flat_map(|(_, state)| losses(state, &moved)).collect();
    let tables = strict::free_tables(&there, chosen.len());
    let mut taken: Vec<String> = there.links.iter().map(|link| link.name.clone()).collect();
    let mut entries = Vec::new();
    for ((candidate, state), table) in chosen.into_iter().zip(tables) {
        let name = free_name(&state.link.name, &taken);
        taken.push(name.clone());
        let table = (arp == Arp::Strict).then_some(table);
        entries.push(Entry {
            identity: state.link.identity(discover::dev_port(sysfs, &state.link.name)),
            rules: table.map(|table| strict::rules(&state, &name, table)).unwrap_or_default(),
            table,
            rdma: candidate.rdma.iter().map(|port| (port.device.clone(), port.port)).collect(),
            target_name: name,
            state,
            step: Step::Captured,
        });
    }
    let rdma_exclusive = rdma::mode() == rdma::Mode::Exclusive;
    if rdma_exclusive {
        whole_devices(&entries, sysfs)?;
    }
    Ok(Plan { home, target, candidates, entries, warnings, rdma_exclusive })
}

/// Refuses NICs whose configuration cannot be put back, or cannot be moved.
fn refuse(state: &State, there: &Snapshot) -> Result<(), Error> {
    let refused = |why: String| Err(Error::Refused { nic: state.link.name.clone(), why });
    if let Some(route) = state.routes.iter().find(|route| route.message.get(RTA_NH_ID).is_some()) {
        let route = describe(&route.message);
        return refused(format!(
            "the NIC's route {route} uses a nexthop object (ip nexthop), which goes with the NIC \
             and is not put back; write the route without"
        ));
    }
    if let Some(route) = state.routes.iter().find(|route| route.dead) {
        let route = describe(&route.message);
        return refused(format!(
            "the NIC's route {route} leads through a device that is down, and the kernel would not \
             take the route again; remove the route, or set the device up"
        ));
    }
    let names = |link: &Link| -> Vec<String> {
        link.altnames.iter().chain([&link.name]).cloned().collect()
    };
    let taken: Vec<String> = there.links.iter().flat_map(names).collect();
    if let Some(clash) = state.link.altnames.iter().find(|alt| taken.contains(alt)) {
        return refused(format!(
            "the container already has a device with the NIC's alternative name {clash}; remove \
             either device"
        ));
    }
    Ok(())
}

fn losses(state: &State, moved: &[u32]) -> Vec<String> {
    let nic = &state.link.name;
    let mut found = Vec::new();
    for route in &state.routes {
        let stay: Vec<&str> = devices(&route.message)
            .iter()
            .filter(|device| !moved.contains(device))
            .filter_map(|device| state.names.get(device).map(String::as_str))
            .collect();
        if !stay.is_empty() {
            let (route, stay) = (describe(&route.message), stay.join(", "));
            found.push(format!("{nic}: while this NIC is away, {route} is lost for {stay} too"));
        }
    }
    if let Some(qdisc) = state.link.qdisc.as_deref().filter(|q| !OWN_QDISCS.contains(q)) {
        found.push(format!("{nic}: the NIC's queueing discipline {qdisc} (tc) is not put back"));
    }
    found
}

/// In exclusive mode a device goes with all of its ports.
fn whole_devices(entries: &[Entry], sysfs: &Path) -> Result<(), Error> {
    let moved = |netdev: &String| entries.iter().any(|entry| entry.state.link.name == *netdev);
    for device in discover::devices(sysfs) {
        let netdevs = || device.ports.iter().flat_map(|port| &port.netdevs);
        if let (Some(nic), Some(other)) =
            (netdevs().find(|n| moved(n)), netdevs().find(|n| !moved(n)))
        {
            let why = format!(
                "RDMA devices belong to namespaces here (rdma system: exclusive), and {} is that \
                 of {other}, too, which stays; move both, or: rdma system set netns shared",
                device.name
            );
            return Err(Error::Refused { nic: nic.clone(), why });
        }
    }
    Ok(())
}

/// The name, or one like it that is free.
pub(crate) fn free_name(name: &str, taken: &[String]) -> String {
    let is_free = |name: &str| !taken.iter().any(|other| other == name);
    if is_free(name) {
        return name.to_owned();
    }
    let like = |n: u32| {
        let suffix = format!("r{n}");
        let front: String = name.chars().take(NAME_MAX - suffix.len()).collect();
        front + &suffix
    };
    (0..).map(like).find(|name| is_free(name)).unwrap_or_default()
}

/// Links of this namespace.
pub fn links() -> Result<Vec<Link>, Error> {
    let what = || "list the network devices".to_owned();
    link::all(&mut open()?).map_err(|source| Error::netlink(what(), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_gets_a_number_and_stays_a_name() {
        let taken = ["rail0".to_owned(), "enp12s0f0np0abc".to_owned(), "rail0r0".to_owned()];
        assert_eq!(free_name("rail1", &taken), "rail1");
        assert_eq!(free_name("rail0", &taken), "rail0r1");
        let long = free_name("enp12s0f0np0abc", &taken);
        assert_eq!(long, "enp12s0f0np0ar0");
        assert!(long.len() <= NAME_MAX);
    }
}
