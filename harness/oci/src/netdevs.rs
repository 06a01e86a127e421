//! The NICs that a container takes along.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::anyhow;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use verbgate_host::netns::Namespace;
use verbgate_netdev::journal;
use verbgate_netdev::plan;
use verbgate_netdev::select::Selection;
use verbgate_sandbox::grant::Granted;
use verbgate_sysfs::collect;
use verbgate_sysfs::discover;
use verbgate_sysfs::natural;

use super::home;
use super::place;
use super::place::Place;
use super::wish;
use super::wish::ALL;
use crate::options::Options;

/// In the directory of state: a journal's directory for each container.
const JOURNALS: &str = "oci";

/// The decision about a container's NICs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Netdevs {
    pub names: Vec<String>,
    /// The directory of the journal.
    pub journal: PathBuf,
    pub(super) sysfs: PathBuf,
}

/// The decided NICs of a container; none if the container asks for none, or if the NICs are there
/// already.
pub(super) fn wanted(
    wished: &[String],
    nodes: &[Granted],
    config: &Value,
    place: &Place,
    options: &Options,
) -> Result<Option<Netdevs>, anyhow::Error> {
    if wished.is_empty() {
        return Ok(None);
    }
    let state = std::path::absolute(&options.state_dir)?;
    let journal = state.join(JOURNALS).join(place.path().file_name().unwrap_or_default());
    // What a dead container has may be what this one asks for; that of this id may be on the way.
    if home::is_dead(&journal) {
        home::bring_home(&journal)?;
    }
    home::reap(&state).into_iter().for_each(|one| match one {
        Ok(line) => log::warn!("{line}"),
        Err(error) => log::error!("{error:#}"),
    });
    if are_there(wished, config, &state) {
        return Ok(None);
    }
    decide(wished, nodes, config, journal, &options.sysfs_root).map(Some)
}

/// Decides which NICs go, and refuses what is known now to fail then.
fn decide(
    wished: &[String],
    nodes: &[Granted],
    config: &Value,
    journal: PathBuf,
    sysfs: &Path,
) -> Result<Netdevs, anyhow::Error> {
    let failed = |why: String| anyhow!("annotation {}: {why}", wish::NETDEVS);
    let namespaces = config.pointer("/linux/namespaces").and_then(Value::as_array);
    let network = |one: &Value| one.get("type").and_then(Value::as_str) == Some("network");
    if !namespaces.into_iter().flatten().any(network) {
        return Err(failed(
            "the container shares the host's network namespace, in which the NICs are already; \
             give the container a network namespace of its own (linux.namespaces)"
                .to_owned(),
        ));
    }
    let own = of_devices(nodes, sysfs)?;
    let all = wished.iter().any(|name| name == ALL);
    if let Some(other) = wished.iter().find(|name| !all && !own.contains(name)) {
        let own = if own.is_empty() { "none".to_owned() } else { own.join(", ") };
        return Err(failed(format!(
            "{other} is not a NIC of a device that this container is granted (the NICs of those \
             devices: {own})"
        )));
    }
    let names: Vec<String> = if all {
        let (found, _) =
            plan::candidates(&selection(None), sysfs).map_err(|e| failed(e.to_string()))?;
        let fit = found.iter().filter(|one| one.dropped.is_none() && own.contains(&one.netdev));
        fit.map(|one| one.netdev.clone()).collect()
    } else {
        plan::candidates(&selection(Some(wished)), sysfs).map_err(|e| failed(e.to_string()))?;
        wished.to_vec()
    };
    if names.is_empty() {
        return Err(failed(
            "no NIC of the granted devices can be moved; verbgate netdev list says why".to_owned(),
        ));
    }
    Ok(Netdevs { names, journal, sysfs: sysfs.to_owned() })
}

/// Whether another container of the same network namespace has brought them, as in a pod, whose
/// annotations all of its containers have.
fn are_there(wished: &[String], config: &Value, state: &Path) -> bool {
    let namespaces = config.pointer("/linux/namespaces").and_then(Value::as_array);
    let network = namespaces.into_iter().flatten().find(|one| one["type"] == "network");
    let path = network.and_then(|one| one.get("path")).and_then(Value::as_str);
    let Some(Ok(target)) = path.map(|path| Namespace::open(Path::new(path))) else { return false };
    journals(state).iter().filter_map(|dir| journal::load(dir).ok().flatten()).any(|journal| {
        let has = |name: &String| journal.nics.iter().any(|nic| nic.state.link.name == *name);
        journal.complete
            && journal.target == target.id
            && wished.iter().all(|name| name == ALL || has(name))
    })
}

/// The directories of all journals.
pub fn journals(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.join(JOURNALS)).into_iter().flatten().flatten();
    let mut journals: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| place::is_made(path, &home::PARTS))
        .collect();
    journals.sort();
    journals
}

/// The NICs of granted devices' ports.
fn of_devices(nodes: &[Granted], sysfs: &Path) -> Result<Vec<String>, anyhow::Error> {
    let known = collect::devices(sysfs)?;
    let granted = known.iter().filter(|one| nodes.iter().any(|node| node.name == one.uverbs));
    let mut names: Vec<String> = granted
        .flat_map(|one| discover::device(sysfs, &one.ibdev).ports)
        .flat_map(|port| port.netdevs)
        .collect();
    names.sort_by(|a, b| natural(a, b));
    names.dedup();
    Ok(names)
}

/// A selection of these NICs, or of all.
pub(super) fn selection(names: Option<&[String]>) -> Selection {
    Selection { iface: names.map(|names| names.join(",")), ..Selection::default() }
}
