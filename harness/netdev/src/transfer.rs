//! The move, step by step.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use verbgate_host::fence;
use verbgate_host::link;
use verbgate_host::link::Link;
use verbgate_host::netns::Namespace;
use verbgate_host::rdma;
use verbgate_host::signals::Signals;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::PortDir;

use super::Error;
use super::announce;
use super::back::back;
use super::dress;
use super::dress::Wardrobe;
use super::journal::Entry;
use super::journal::Journal;
use super::journal::Step;
use super::journal::Store;
use super::plan;
use super::plan::Plan;
use super::plan::open;
use super::state::State;
use super::strict;
use super::strict::Arp;
use super::view::View;

pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Facts that both directions need.
#[allow(missing_debug_implementations, reason = "a step holds a function")]
pub struct Terms<'a> {
    /// Directory of sysfs.
    pub sysfs: &'a Path,
    /// Time for a link to come up, for GIDs to appear, and for the kernel to give a NIC back.
    pub patience: Duration,
    /// Signals that ask for the end between two steps.
    pub signals: &'a Signals,
    /// Gets a line for each step.
    pub progress: &'a dyn Fn(&str),
}

/// Moves what is planned; on an error everything is put back.
pub fn execute(
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
    let Err(cause) = done else {
        let waits = !terms.patience.is_zero();
        target.within(|| {
            let nics = journal.nics.iter().filter(|nic| nic.state.link.up);
            let links = nics.map(|nic| (nic.target_name.as_str(), nic.state.ips()));
            announce::all(&links.collect::<Vec<_>>(), waits);
            Ok::<(), Error>(())
        })?;
        return Ok(journal);
    };
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
        target.within(|| fence(&nic.target_name))?;
        let sent = link::send_to(&mut home, nic.state.link.index, target, &nic.target_name);
        let what = || format!("move {name} to {target}");
        sent.map_err(|source| Error::netlink(what(), source))?;
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
    let view = View::of(target, terms.sysfs, journal.rdma_exclusive)?;
    for (device, port) in gids.keys() {
        if !discover::is_there(view.path(), device) {
            log::warn!(
                "the RDMA device {device}/{port} is gone since the move, as always with Soft-RoCE; \
                 make the device again in the container: rdma link add"
            );
        }
    }
    await_gids(&gids, view.path(), terms)
}

/// Puts the fence around the container's namespace before the NIC, or the link upon one, is there.
pub(crate) fn fence(name: &str) -> Result<(), Error> {
    match fence::put(name).map_err(|e| (e.raw_os_error(), e)) {
        Ok(()) => Ok(()),
        Err((Some(code), e)) if fence::is_absent(code) => {
            log::warn!(
                "{name}: this kernel cannot filter packets ({e}), so programs in the container can \
                 send RoCE by plain sockets; modprobe nf_tables, and nft_fib_inet"
            );
            Ok(())
        }
        Err((_, source)) => Err(Error::netlink(format!("filter packets of {name}"), source)),
    }
}

/// Takes the fence of a NIC, or of a link upon one, away when that has left the namespace.
pub(crate) fn lift(name: &str) -> Result<(), Error> {
    fence::lift(name).map_err(|e| Error::netlink(format!("remove the filter of {name}"), e))
}

pub(crate) fn set_step(journal: &mut Journal, at: usize, step: Step) {
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
            log::warn!("{}: the container cannot have a route: {why}", nic.target_name);
        }
    }
    dress::add_rules(&mut netlink, &nic.rules)
}

/// The NIC's configuration in the container.
fn there(nic: &Entry, arp: Arp) -> State {
    State { sysctls: strict::sysctls(&nic.state, arp), ..nic.state.clone() }
}

/// The error that a NIC is nowhere.
pub fn gone(nic: &Entry) -> Error {
    let why = "the NIC is in neither namespace; was the NIC unplugged or removed?".to_owned();
    Error::Nic { nic: nic.state.link.name.clone(), why }
}

/// The NIC, if it is in the thread's namespace.
pub fn here(nic: &Entry) -> Result<Option<Link>, Error> {
    Ok(link::find(&plan::links()?, &nic.identity).cloned())
}

/// Waits for the links that were there before.
pub(crate) fn await_carrier(
    nics: &[Entry],
    patience: Duration,
    signals: &Signals,
) -> Result<(), Error> {
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
                    "the NIC had a link before, and has no link after {} s of waiting; see --wait",
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
pub fn is_gid_of(gid: &discover::Gid, ip: IpAddr) -> bool {
    let address = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    gid.gid == address && gid.kind.as_deref() == Some(discover::ROCE_V2)
}

fn await_gids(
    wanted: &BTreeMap<(String, u32), Vec<IpAddr>>,
    sysfs: &Path,
    terms: &Terms<'_>,
) -> Result<(), Error> {
    let until = Instant::now() + terms.patience;
    loop {
        let missing = wanted.iter().find_map(|((device, port), ips)| {
            // Soft-RoCE removes its device when the netdev leaves; there is nothing to wait for.
            let there = discover::is_there(sysfs, device);
            let gids = there.then(|| PortDir::new(sysfs, device, *port).gids())?;
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
