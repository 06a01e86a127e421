//! One NIC for several containers: a link upon the NIC (macvlan or ipvlan) in each container's network
//! namespace, with addresses of its own. The kernel makes a GID on the NIC's RDMA device for each
//! address of a link upon the NIC (drivers/infiniband/core/roce_gid_mgmt.c), so each container has
//! RDMA by the same port. The NIC itself stays.

mod checks;
mod journal;
mod upon;
mod wanted;

use std::path::Path;
use std::time::Duration;

use verbgate_host::netns;
use verbgate_host::netns::Namespace;

pub use self::journal::Share;
pub use self::journal::load;
use self::journal::save;
pub use self::wanted::Kind;
pub use self::wanted::Wanted;
use super::Error;
use super::journal::Store;
use super::plan;
use super::plan::open;
use super::state::Snapshot;
use super::strict;
use super::strict::Arp;

/// Makes a link upon a NIC in a container's namespace. On an error nothing is left of it.
///
/// # Errors
/// The NIC has no RDMA that such links can use, an address is taken, or the kernel refuses.
pub fn share(
    wanted: &Wanted,
    to: &str,
    dir: &Path,
    sysfs: &Path,
    patience: Duration,
) -> Result<Share, Error> {
    let store = Store::lock(dir)?;
    let target = Namespace::named(to)?;
    let home = Namespace::current()?;
    if home.id == target.id {
        return Err(Error::SameNamespace { path: target.path });
    }
    // What died with its container, or was begun and not finished, goes first.
    let mut shares = swept(dir, &store)?;
    let snapshot = Snapshot::take(&mut open()?)?;
    let nic = snapshot.link(&wanted.nic).ok_or_else(|| Error::NoSuchNic {
        name: wanted.nic.clone(),
        have: snapshot.links.iter().map(|link| link.name.clone()).collect(),
    })?;
    let ports = checks::ports(nic, sysfs)?;
    let addresses = checks::addresses(wanted, nic, &snapshot, &shares)?;
    let there = target.within(|| {
        strict::check_effective(wanted.arp)?;
        Snapshot::take(&mut open()?)
    })?;
    let taken: Vec<String> = there.links.iter().map(|link| link.name.clone()).collect();
    let name = match &wanted.name {
        Some(name) if taken.contains(name) => {
            let why = format!("the container has a link called {name} already; give --name");
            return Err(Error::Refused { nic: nic.name.clone(), why });
        }
        Some(name) => name.clone(),
        None => plan::free_name(&nic.name, &taken),
    };
    let table = strict::free_tables(&there, 1).first().copied();
    let share = Share {
        nic: nic.name.clone(),
        kind: wanted.kind,
        name,
        boot_id: netns::boot_id()?,
        target: target.id,
        target_path: target.path.clone(),
        addresses,
        rdma: ports,
        table: table.filter(|_| wanted.arp == Arp::Strict),
        rules: Vec::new(),
        complete: false,
    };
    shares.push(share);
    save(dir, &store, &shares)?;
    let Some(share) = shares.last_mut() else { return Err(Error::Invalid("no share".into())) };
    let made = upon::make(share, nic, wanted, &target)
        .and_then(|()| upon::await_gids(share, sysfs, patience));
    match made {
        Ok(()) => share.complete = true,
        Err(cause) => {
            let undone = match upon::take_away(share) {
                Ok(()) => "everything is as it was".to_owned(),
                Err(e) => format!("and undoing it failed: {e}; then: verbgate netdev unshare"),
            };
            if undone.starts_with("everything") {
                shares.pop();
            }
            save(dir, &store, &shares)?;
            return Err(Error::Undone { cause: Box::new(cause), undone });
        }
    }
    let share = share.clone();
    save(dir, &store, &shares)?;
    Ok(share)
}

/// Removes links of a container, or all; returns those that were removed.
///
/// # Errors
/// A link cannot be removed; then the journal keeps it.
pub fn unshare(to: Option<&str>, name: Option<&str>, dir: &Path) -> Result<Vec<Share>, Error> {
    let store = Store::lock(dir)?;
    // A container that is gone has no namespace to be found by.
    let target = to.map(Namespace::named).transpose()?;
    let is_meant = |share: &Share| {
        target.as_ref().is_none_or(|target| target.id == share.target)
            && name.is_none_or(|name| share.name == name)
    };
    let (meant, mut rest): (Vec<Share>, Vec<Share>) = load(dir)?.into_iter().partition(is_meant);
    let mut removed = Vec::new();
    let mut failed = None;
    for share in meant {
        match upon::take_away(&share) {
            Ok(()) => removed.push(share),
            Err(e) => {
                failed = Some(e);
                rest.push(share);
            }
        }
    }
    save(dir, &store, &rest)?;
    failed.map_or(Ok(removed), Err)
}

/// Refuses to move NICs that have links upon them in containers: the kernel would let the NIC go.
///
/// # Errors
/// Names the first such NIC, and the remedy.
pub fn refuse_shared(dir: &Path, nics: &[&str]) -> Result<(), Error> {
    let shares = load(dir)?;
    let mut living = shares.iter().filter(|share| share.namespace().is_some());
    match living.find(|share| nics.contains(&share.nic.as_str())) {
        None => Ok(()),
        Some(share) => Err(Error::Refused {
            nic: share.nic.clone(),
            why: format!(
                "containers share the NIC ({} in {}); first: verbgate netdev unshare",
                share.name,
                share.target_path.display()
            ),
        }),
    }
}

fn swept(dir: &Path, store: &Store) -> Result<Vec<Share>, Error> {
    let mut kept = Vec::new();
    for share in load(dir)? {
        match share.namespace() {
            None => {}
            Some(_) if !share.complete => upon::take_away(&share)?,
            Some(_) => kept.push(share),
        }
    }
    save(dir, store, &kept)?;
    Ok(kept)
}
