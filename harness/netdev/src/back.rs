//! The way back of NICs, from wherever an earlier attempt ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Instant;

use verbgate_host::link;
use verbgate_host::link::Link;
use verbgate_host::netlink::Message;
use verbgate_host::netns;
use verbgate_host::netns::Namespace;
use verbgate_host::rdma;
use verbgate_host::route::Route;

use super::Error;
use super::announce;
use super::dress;
use super::dress::Wardrobe;
use super::journal::Entry;
use super::journal::Journal;
use super::journal::Step;
use super::journal::Store;
use super::plan;
use super::plan::free_name;
use super::plan::open;
use super::state::Snapshot;
use super::state::State;
use super::transfer::PAUSE;
use super::transfer::Terms;
use super::transfer::await_carrier;
use super::transfer::gone;
use super::transfer::here;
use super::transfer::lift;
use super::transfer::set_step;

/// Brings all NICs of a journal home, as far as they exist, and gives them what they had. Returns
/// what is not as it was; only when that is nothing is the journal removed.
///
/// Every step looks at what is there and goes on from it, so that it does not matter where an
/// earlier attempt ended.
pub fn back(journal: &mut Journal, store: &Store, terms: &Terms<'_>) -> Result<Vec<String>, Error> {
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
        (terms.progress)(&format!("[{}/{count}] bringing {name} home", at + 1));
        if !fetch(nic, &home, target.as_ref(), terms)? {
            left.push(format!("{} is gone: {}", name, gone(nic)));
            continue;
        }
        if journal.rdma_exclusive {
            let lost = fetch_rdma(nic, &home, target.as_ref(), terms)?;
            left.extend(lost.iter().map(|device| {
                format!("{name} is home, and the RDMA device {device} is in no network namespace")
            }));
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
        target.within(|| {
            for nic in &journal.nics {
                lift(&nic.target_name)?;
            }
            dress::remove_rules(&mut open()?, &rules)
        })?;
    }
    let (nics, patience, signals) = (&journal.nics, terms.patience, terms.signals);
    left.extend(home.within(|| {
        if touched.contains(&true) {
            // What is missing then is told by the comparison.
            let lit = await_carrier(nics, patience, signals);
            let _ = lit.inspect_err(|e| log::warn!("{e}"));
        }
        connect(nics, &touched, !patience.is_zero())
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
        return Ok(Namespace::current()?);
    }
    let current = Namespace::current()?;
    if current.id == journal.home {
        return Ok(current);
    }
    Namespace::find(journal.home, &journal.home_path).ok_or_else(|| {
        let why =
            "the network namespace that the NICs came from is gone; remove the journal, and run \
             this command in the namespace that shall get the NICs"
                .to_owned();
        Error::Invalid(why)
    })
}

/// Sees to it that the NIC is home; false if it is nowhere.
fn fetch(
    nic: &Entry,
    home: &Namespace,
    target: Option<&Namespace>,
    terms: &Terms<'_>,
) -> Result<bool, Error> {
    let taken = || -> Result<Vec<String>, Error> {
        Ok(link::of(home)?.into_iter().map(|link| link.name).collect())
    };
    let send = |from: &Namespace, link: &Link| -> Result<(), Error> {
        let name = free_name(&nic.state.link.name, &taken()?);
        from.within(|| {
            let what = format!("move {} home", link.name);
            link::send_to(&mut open()?, link.index, home, &name)
                .map_err(|source| Error::netlink(what, source))
        })
    };
    let initial = initial(home);
    let until = Instant::now() + terms.patience;
    loop {
        if home.within(|| here(nic))?.is_some() {
            return Ok(true);
        }
        for from in target.into_iter().chain(&initial) {
            if let Some(link) = from.within(|| here(nic))? {
                send(from, &link)?;
                return Ok(true);
            }
        }
        // The kernel destroys what is no hardware with its namespace.
        let destroyed = target.is_none() && nic.state.link.kind.is_some();
        if destroyed || Instant::now() > until {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
}

/// The initial namespace, if that is not home: when a namespace ends, the kernel gives its hardware to the
/// initial one, some time later.
fn initial(home: &Namespace) -> Option<Namespace> {
    let initial = Namespace::open(Path::new("/proc/1/ns/net")).ok();
    initial.filter(|initial| initial.id != home.id)
}

/// Sees to it that the RDMA devices of a NIC that is home are there, too; gives those that are nowhere. When a
/// namespace ends, the kernel moves them later than the NIC.
fn fetch_rdma(
    nic: &Entry,
    home: &Namespace,
    target: Option<&Namespace>,
    terms: &Terms<'_>,
) -> Result<Vec<String>, Error> {
    let initial = initial(home);
    let (until, mut tried) = (Instant::now() + terms.patience, false);
    let failed = |source| Error::netlink("list the RDMA devices".to_owned(), source);
    loop {
        let mut away = Vec::new();
        for (device, _) in &nic.rdma {
            if home.within(|| rdma::index(device).map_err(failed))?.is_none() {
                away.push(device.clone());
            }
        }
        if away.is_empty() || (tried && Instant::now() > until) {
            return Ok(away);
        }
        for from in target.into_iter().chain(&initial) {
            for device in &away {
                from.within(|| rdma::send_to(device, home))?;
            }
        }
        tried = true;
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
fn connect(nics: &[Entry], touched: &[bool], waits: bool) -> Result<Vec<String>, Error> {
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
    let up = named.iter().filter(|(_, state)| state.link.up);
    let up: Vec<_> = up.map(|(name, state)| (*name, state.ips())).collect();
    announce::all(&up, waits);
    Ok(left)
}
