//! The move and the way back, step by step.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::Error;
use super::discover;
use super::dress;
use super::dress::Wardrobe;
use super::journal::Entry;
use super::journal::Journal;
use super::journal::Step;
use super::journal::Store;
use super::link;
use super::link::Link;
use super::netlink::Message;
use super::netns;
use super::netns::Namespace;
use super::plan;
use super::plan::Plan;
use super::plan::free_name;
use super::plan::open;
use super::rdma;
use super::signals::Signals;
use super::state::Route;
use super::state::Snapshot;
use super::state::State;
use super::strict;
use crate::cli::Arp;

const PAUSE: Duration = Duration::from_millis(20);

/// What both directions need to know.
#[allow(missing_debug_implementations, reason = "it holds a function")]
pub(crate) struct Terms<'a> {
    pub(crate) sysfs: &'a Path,
    /// How long a link may take to come up, GIDs to appear, and the kernel to give a NIC back.
    pub(crate) patience: Duration,
    pub(crate) signals: &'a Signals,
    /// Gets a line for each step.
    pub(crate) progress: &'a dyn Fn(&str),
}

/// Moves what is planned; on an error everything is put back.
pub(crate) fn execute(
    plan: Plan,
    store: &Store,
    arp: Arp,
    terms: &Terms<'_>,
    verify: &dyn Fn(&Journal, &Namespace) -> Result<(), Error>,
) -> Result<Journal, Error> {
    let Plan { home, target, entries, rdma_exclusive, .. } = plan;
    let mut journal = Journal::new(&home, &target, arp, entries)?;
    journal.rdma_exclusive = rdma_exclusive;
    store.save(&journal)?;
    let moved = forth(&mut journal, store, &target, terms).and_then(|()| verify(&journal, &target));
    let done = moved.and_then(|()| {
        terms.signals.check()?;
        journal.complete = true;
        store.save(&journal)
    });
    let Err(cause) = done else { return Ok(journal) };
    (terms.progress)(&format!("{cause}; putting everything back"));
    let undone = match back(&mut journal, store, terms) {
        Ok(left) if left.is_empty() => "everything is as it was".to_owned(),
        Ok(left) => format!("all NICs are home, but {}", left.join("; ")),
        Err(e) => format!("and putting it back failed: {e}; then: verbgate netdev restore"),
    };
    Err(Error::Undone { cause: Box::new(cause), undone })
}

fn forth(
    journal: &mut Journal,
    store: &Store,
    target: &Namespace,
    terms: &Terms<'_>,
) -> Result<(), Error> {
    let mut home = open()?;
    let count = journal.nics.len();
    let arp = journal.arp;
    let gids = expected_gids(journal, terms.sysfs);
    for at in 0..count {
        terms.signals.check()?;
        set_step(journal, at, Step::Leaving);
        store.save(journal)?;
        let Some(nic) = journal.nics.get(at) else { break };
        let name = &nic.state.link.name;
        (terms.progress)(&format!("[{}/{count}] {name} to {target}", at + 1));
        let sent = link::send_to(&mut home, nic.state.link.index, target, &nic.target_name);
        let what = || format!("move {name} to {target}");
        sent.map_err(|source| Error::Netlink { what: what(), source })?;
        if journal.rdma_exclusive {
            for (device, _) in &nic.rdma {
                rdma::send_to(device, target)?;
            }
        }
        set_step(journal, at, Step::Dressing);
        store.save(journal)?;
        let Some(nic) = journal.nics.get(at) else { break };
        target.within(|| settle(nic, arp))?;
        set_step(journal, at, Step::Away);
    }
    store.save(journal)?;
    let (nics, patience, signals) = (&journal.nics, terms.patience, terms.signals);
    target.within(|| {
        await_carrier(nics, patience, signals)?;
        let wanted: Vec<(&str, State)> =
            nics.iter().map(|nic| (nic.target_name.as_str(), there(nic, arp))).collect();
        let wanted: Vec<_> = wanted.iter().map(|(name, state)| (*name, state)).collect();
        dress::finish(&mut open()?, &wanted)
    })?;
    for (device, port) in gids.keys() {
        if !terms.sysfs.join("class/infiniband").join(device).exists() {
            log::warn!(
                "{device}/{port} is gone since the move, as is the way of Soft-RoCE; make it again \
                 there: rdma link add"
            );
        }
    }
    await_gids(&gids, terms)
}

fn set_step(journal: &mut Journal, at: usize, step: Step) {
    if let Some(nic) = journal.nics.get_mut(at) {
        nic.step = step;
    }
}

/// Configures a NIC that has arrived; runs in the container's namespace.
fn settle(nic: &Entry, arp: Arp) -> Result<(), Error> {
    let mut netlink = open()?;
    let link = here(nic)?.ok_or_else(|| gone(nic))?;
    let index = link.index;
    Wardrobe { netlink: &mut netlink, link }.dress(&nic.target_name, &there(nic, arp))?;
    let from = nic.state.link.index;
    let number = |device: u32| if device == from { index } else { device };
    if nic.state.link.up {
        let routes = strict::routes(&nic.state, index, nic.table);
        let failed = dress::add_routes(&mut netlink, &routes, &number)?;
        for why in failed {
            log::warn!("{}: a route cannot be had in the container: {why}", nic.target_name);
        }
    }
    dress::add_rules(&mut netlink, &nic.rules)
}

/// What a NIC is to be in the container.
fn there(nic: &Entry, arp: Arp) -> State {
    State { sysctls: strict::sysctls(&nic.state, arp), ..nic.state.clone() }
}

fn gone(nic: &Entry) -> Error {
    let why = "it is in neither namespace any more; was it unplugged or removed?".to_owned();
    Error::Nic { nic: nic.state.link.name.clone(), why }
}

/// The NIC, if it is in the thread's namespace.
fn here(nic: &Entry) -> Result<Option<Link>, Error> {
    Ok(link::find(&plan::links()?, &nic.identity).cloned())
}

/// Waits for the links that were there before.
fn await_carrier(nics: &[Entry], patience: Duration, signals: &Signals) -> Result<(), Error> {
    let until = Instant::now() + patience;
    loop {
        let links = plan::links()?;
        let dark = nics.iter().find(|nic| {
            let had = nic.state.link.up && nic.state.link.carrier;
            had && link::find(&links, &nic.identity).is_some_and(|link| !link.carrier)
        });
        match dark {
            None => return Ok(()),
            Some(_) if patience.is_zero() => return Ok(()),
            Some(nic) if Instant::now() > until => {
                let why = format!(
                    "it had a link before, and has none after {} s of waiting; see --wait",
                    patience.as_secs()
                );
                return Err(Error::Nic { nic: nic.state.link.name.clone(), why });
            }
            Some(_) => thread::sleep(PAUSE),
        }
        signals.check()?;
    }
}

/// The RoCE v2 GIDs that NICs have now by addresses that they take along.
fn expected_gids(journal: &Journal, sysfs: &Path) -> BTreeMap<(String, u32), Vec<IpAddr>> {
    let devices = discover::devices(sysfs);
    let mut found = BTreeMap::new();
    for nic in journal.nics.iter().filter(|nic| nic.state.link.up) {
        for (name, number) in &nic.rdma {
            let ips = nic.state.ips();
            let table = devices.iter().find(|d| d.name == *name).and_then(|device| {
                device.ports.iter().find(|port| port.port == *number).map(|port| &port.gids)
            });
            let had: Vec<IpAddr> = ips
                .iter()
                .map(|(ip, _)| *ip)
                .filter(|ip| table.is_some_and(|gids| gids.iter().any(|gid| is_gid_of(gid, *ip))))
                .collect();
            found.insert((name.clone(), *number), had);
        }
    }
    found
}

/// Whether this is the RoCE v2 GID that an address makes.
pub(crate) fn is_gid_of(gid: &discover::Gid, ip: IpAddr) -> bool {
    let address = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    gid.gid == address && gid.kind.as_deref() == Some(discover::ROCE_V2)
}

fn await_gids(
    wanted: &BTreeMap<(String, u32), Vec<IpAddr>>,
    terms: &Terms<'_>,
) -> Result<(), Error> {
    let until = Instant::now() + terms.patience;
    loop {
        let missing = wanted.iter().find_map(|((device, port), ips)| {
            let dir = terms.sysfs.join("class/infiniband").join(device);
            // Soft-RoCE removes its device when the netdev leaves; there is nothing to wait for.
            let gids =
                dir.exists().then(|| discover::gids(&dir.join("ports").join(port.to_string())))?;
            let ip = ips.iter().find(|ip| !gids.iter().any(|gid| is_gid_of(gid, **ip)))?;
            Some((device, port, ip))
        });
        match missing {
            None => return Ok(()),
            Some(_) if terms.patience.is_zero() => return Ok(()),
            Some((device, port, ip)) if Instant::now() > until => {
                let why = format!(
                    "port {port} has no RoCE v2 GID of {ip} {} s after the move; see --wait",
                    terms.patience.as_secs()
                );
                return Err(Error::Nic { nic: device.clone(), why });
            }
            Some(_) => thread::sleep(PAUSE),
        }
        terms.signals.check()?;
    }
}

/// Brings all NICs of a journal home, as far as they exist, and gives them what they had. Returns
/// what is not as it was; only when that is nothing is the journal removed.
///
/// Every step looks at what is there and goes on from it, so that it does not matter where an
/// earlier attempt ended.
pub(crate) fn back(
    journal: &mut Journal,
    store: &Store,
    terms: &Terms<'_>,
) -> Result<Vec<String>, Error> {
    let same_boot = journal.boot_id == netns::boot_id()?;
    let home = home_of(journal, same_boot)?;
    let target = match same_boot {
        true => Namespace::find(journal.target, &journal.target_path),
        false => None,
    };
    journal.complete = false;
    let count = journal.nics.len();
    let mut left = Vec::new();
    let mut touched = vec![false; count];
    for at in 0..count {
        set_step_back(journal, at);
        store.save(journal)?;
        let Some(nic) = journal.nics.get(at) else { break };
        let name = &nic.state.link.name;
        (terms.progress)(&format!("[{}/{count}] {name} home", at + 1));
        if !fetch(nic, &home, target.as_ref(), journal.rdma_exclusive, terms)? {
            left.push(format!("{} is gone: {}", name, gone(nic)));
            continue;
        }
        set_step(journal, at, Step::Redressing);
        store.save(journal)?;
        let Some(nic) = journal.nics.get(at) else { break };
        let changed = home.within(|| redress(nic, same_boot))?;
        if let Some(touched) = touched.get_mut(at) {
            *touched = changed;
        }
    }
    if let Some(target) = &target {
        let rules: Vec<Message> = journal.nics.iter().flat_map(|nic| nic.rules.clone()).collect();
        target.within(|| dress::remove_rules(&mut open()?, &rules))?;
    }
    let (nics, patience, signals) = (&journal.nics, terms.patience, terms.signals);
    left.extend(home.within(|| {
        if touched.contains(&true) {
            // What is missing then is told by the comparison.
            let lit = await_carrier(nics, patience, signals);
            let _ = lit.inspect_err(|e| log::warn!("{e}"));
        }
        connect(nics, &touched)
    })?);
    if left.is_empty() {
        store.remove()?;
    } else {
        store.save(journal)?;
    }
    Ok(left)
}

/// A NIC that never left stays what it is.
fn set_step_back(journal: &mut Journal, at: usize) {
    if journal.nics.get(at).is_some_and(|nic| nic.step != Step::Captured) {
        set_step(journal, at, Step::Returning);
    }
}

fn home_of(journal: &Journal, same_boot: bool) -> Result<Namespace, Error> {
    if !same_boot {
        return Namespace::current();
    }
    let current = Namespace::current()?;
    if current.id == journal.home {
        return Ok(current);
    }
    Namespace::find(journal.home, &journal.home_path).ok_or_else(|| {
        let why =
            "the network namespace that the NICs came from is gone; run this in the one they \
                   shall come to, after removing the journal"
                .to_owned();
        Error::Invalid(why)
    })
}

/// Sees to it that the NIC is home; false if it is nowhere.
fn fetch(
    nic: &Entry,
    home: &Namespace,
    target: Option<&Namespace>,
    rdma_exclusive: bool,
    terms: &Terms<'_>,
) -> Result<bool, Error> {
    let taken = || -> Result<Vec<String>, Error> {
        Ok(link::of(home)?.into_iter().map(|link| link.name).collect())
    };
    let send = |from: &Namespace, link: &Link| -> Result<(), Error> {
        let name = free_name(&nic.state.link.name, &taken()?);
        from.within(|| {
            if rdma_exclusive {
                for (device, _) in &nic.rdma {
                    rdma::send_to(device, home)?;
                }
            }
            let what = format!("move {} home", link.name);
            link::send_to(&mut open()?, link.index, home, &name)
                .map_err(|source| Error::Netlink { what, source })
        })
    };
    let until = Instant::now() + terms.patience;
    loop {
        if home.within(|| here(nic))?.is_some() {
            return Ok(true);
        }
        if let Some(target) = target
            && let Some(link) = target.within(|| here(nic))?
        {
            send(target, &link)?;
            return Ok(true);
        }
        // When a namespace ends, the kernel gives its hardware to the initial one, some time later.
        let initial = Namespace::open(Path::new("/proc/1/ns/net")).ok();
        if let Some(initial) = initial.filter(|initial| initial.id != home.id)
            && let Some(link) = initial.within(|| here(nic))?
        {
            send(&initial, &link)?;
            return Ok(true);
        }
        if Instant::now() > until {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
}

/// Gives a NIC at home what it had, unless it has it; says whether anything was done.
fn redress(nic: &Entry, same_boot: bool) -> Result<bool, Error> {
    let mut netlink = open()?;
    let snapshot = Snapshot::take(&mut netlink)?;
    let link = link::find(&snapshot.links, &nic.identity).ok_or_else(|| gone(nic))?;
    if nic.state.difference(&snapshot.state(link)).is_none() {
        return Ok(false);
    }
    let others = snapshot.links.iter().filter(|other| other.index != link.index);
    let taken: Vec<String> = others.map(|other| other.name.clone()).collect();
    let name = free_name(&nic.state.link.name, &taken);
    let mut wardrobe = Wardrobe { netlink: &mut netlink, link: link.clone() };
    if same_boot {
        // What an earlier attempt began is begun anew, for the order of addresses and routes. After
        // a boot the NIC has what the host's own configuration gave it, which is only completed.
        wardrobe.undress()?;
    }
    wardrobe.dress(&name, &nic.state)?;
    Ok(true)
}

/// Adds routes and rules when all NICs are there, and compares; returns what is not as it was.
fn connect(nics: &[Entry], touched: &[bool]) -> Result<Vec<String>, Error> {
    let mut netlink = open()?;
    let links = plan::links()?;
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    for nic in nics {
        for (old, name) in &nic.state.names {
            if let Some(link) = links.iter().find(|link| link.name == *name) {
                numbers.insert(*old, link.index);
            }
        }
    }
    for nic in nics {
        if let Some(link) = link::find(&links, &nic.identity) {
            numbers.insert(nic.state.link.index, link.index);
        }
    }
    let number = |old: u32| numbers.get(&old).copied().unwrap_or(old);
    let home = nics
        .iter()
        .zip(touched)
        .filter(|(nic, touched)| **touched && link::find(&links, &nic.identity).is_some());
    let states: Vec<&State> = home.map(|(nic, _)| &nic.state).collect();
    let routes: Vec<Route> = states.iter().flat_map(|state| state.routes.clone()).collect();
    let named: Vec<(&str, &State)> = nics
        .iter()
        .zip(touched)
        .filter(|(_, touched)| **touched)
        .filter_map(|(nic, _)| {
            let link = link::find(&links, &nic.identity)?;
            Some((link.name.as_str(), &nic.state))
        })
        .collect();
    dress::finish(&mut netlink, &named)?;
    let mut left = dress::add_routes(&mut netlink, &routes, &number)?;
    let now = Snapshot::take(&mut netlink)?;
    for state in states {
        let there: Vec<Message> = now.links.iter().flat_map(|l| now.state(l).rules).collect();
        let missing: Vec<Message> =
            state.rules.iter().filter(|rule| !there.contains(rule)).cloned().collect();
        dress::add_rules(&mut netlink, &missing)?;
    }
    let now = Snapshot::take(&mut netlink)?;
    for nic in nics {
        let Some(link) = link::find(&now.links, &nic.identity) else { continue };
        if let Some(difference) = nic.state.difference(&now.state(link)) {
            left.push(format!("{} is not as it was: {difference}", nic.state.link.name));
        }
    }
    Ok(left)
}
