//! The way back of a dead container's NICs, for any process that finds the container dead: the
//! container's keeper, the `stopped` hook, the next `create`, or `verbgate gc`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::anyhow;
use verbgate_host::link;
use verbgate_host::signals::Signals;
use verbgate_netdev::Error;
use verbgate_netdev::back;
use verbgate_netdev::journal;
use verbgate_netdev::journal::Store;
use verbgate_netdev::plan;
use verbgate_netdev::transfer::Terms;
use verbgate_sysfs::collect;

use super::netdevs;
use super::place;

/// Time for links and GIDs to be back, and for the kernel to give a NIC back: as for `verbgate
/// netdev`.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time for other processes to finish, since one container's NICs are moved at a time.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(10);
/// In a journal's directory: the container's first process.
pub(super) const CONTAINER: &str = "container";
/// Beginnings of the names of all files there.
pub(super) const PARTS: [&str; 2] = [CONTAINER, "netdev"];

/// The terms of a move, which both directions need.
pub(super) fn terms<'a>(sysfs: &'a Path, signals: &'a Signals) -> Terms<'a> {
    Terms { sysfs, patience: PATIENCE, signals, progress: &|line| log::info!("{line}") }
}

/// The turn: one container's NICs are moved at a time, and not while `verbgate netdev` moves NICs.
/// The process with the turn makes and removes a journal's directory; nobody with a journal waits
/// for the turn.
#[derive(Debug)]
pub(super) struct Turn(#[expect(dead_code, reason = "locked as long as it is there")] Store);

impl Turn {
    /// Waits for it; given is a journal's directory.
    pub(super) fn wait(journal: &Path) -> Result<Self, Error> {
        let state = journal.ancestors().nth(2).unwrap_or(Path::new("/"));
        let until = Instant::now() + LOCK_PATIENCE;
        loop {
            match Store::lock(state) {
                Err(Error::Locked { .. }) if Instant::now() < until => std::thread::sleep(LOOK),
                other => return other.map(Self),
            }
        }
    }
}

/// Brings the NICs of a dead container home, and removes the journal's directory, which the caller
/// has locked. Returns what is to be told of it.
pub(super) fn home(
    journal_dir: &Path,
    store: &Store,
    sysfs: &Path,
    _: &Turn,
) -> Result<Vec<String>, anyhow::Error> {
    let mut told = Vec::new();
    if let Some(mut journal) = journal::load(journal_dir)? {
        let signals = Signals::hold();
        let left = back::back(&mut journal, store, &terms(sysfs, &signals))?;
        let here = plan::links()?;
        // With its namespace, the kernel destroys what is no hardware; nobody can bring that home.
        let destroyed: Vec<&str> = journal
            .nics
            .iter()
            .filter(|nic| link::find(&here, &nic.identity).is_none())
            .filter(|nic| nic.state.link.kind.is_some())
            .map(|nic| nic.state.link.name.as_str())
            .collect();
        if left.len() > destroyed.len() {
            return Err(anyhow!(
                "{}; repair the cause, and then: verbgate netdev restore --state-dir {}",
                left.join("; "),
                journal_dir.display()
            ));
        }
        told.extend(destroyed.into_iter().map(|name| {
            format!("{name} was virtual, and is gone with the container's network namespace")
        }));
    }
    match fs::remove_dir_all(journal_dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", journal_dir.display()))
        }
        _ => Ok(told),
    }
}

/// Brings the NICs of a container that is gone home, or waits until its keeper has.
pub(super) fn bring_home(journal: &Path) -> Result<(), anyhow::Error> {
    let until = Instant::now() + LOCK_PATIENCE;
    while journal.exists() {
        let turn = Turn::wait(journal)?;
        match Store::lock(journal) {
            Ok(store) => {
                let told = home(journal, &store, Path::new(collect::SYSFS_ROOT), &turn)?;
                told.iter().for_each(|line| log::warn!("{line}"));
            }
            Err(Error::Locked { .. }) if Instant::now() < until => {
                drop(turn);
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Brings home what dead containers have left in their journals; a line for each, or why not.
pub(super) fn reap(state: &Path) -> Vec<Result<String, anyhow::Error>> {
    let all = netdevs::journals(state);
    let Some(dead) = all.iter().find(|journal| is_dead(journal)) else { return Vec::new() };
    match Turn::wait(dead) {
        Ok(turn) => all.iter().filter_map(|journal| reap_one(journal, &turn).transpose()).collect(),
        Err(error) => vec![Err(error.into())],
    }
}

/// Whether a journal's container is gone.
pub(super) fn is_dead(journal: &Path) -> bool {
    journal.exists() && !place::process_lives(&journal.join(CONTAINER))
}

fn reap_one(journal: &Path, turn: &Turn) -> Result<Option<String>, anyhow::Error> {
    if !is_dead(journal) {
        return Ok(None);
    }
    let name = journal.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let store = match Store::lock(journal) {
        // Its keeper is at it.
        Err(Error::Locked { .. }) => return Ok(None),
        other => other?,
    };
    let nics = journal::load(journal)?.map(|journal| journal.nics).unwrap_or_default();
    let told = home(journal, &store, Path::new(collect::SYSFS_ROOT), turn)
        .with_context(|| format!("NICs of container {name} are not back on the host"))?;
    let here = plan::links()?;
    let home = nics.iter().filter(|nic| link::find(&here, &nic.identity).is_some());
    let home: Vec<&str> = home.map(|nic| nic.state.link.name.as_str()).collect();
    let line = match home.as_slice() {
        [] => format!("{name}: no NIC was away"),
        home => format!("{name}: {} home", home.join(", ")),
    };
    Ok(Some([vec![line], told].concat().join("; ")))
}
