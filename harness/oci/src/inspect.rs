//! `verbgate ps` and `verbgate gc`: the containers with RDMA, seen from the host.

use std::path::Path;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use serde_json::json;
use verbgate_sys::post;

use super::home;
use super::letter::PATIENCE_MS;
use super::place;
use super::place::Place;
use crate::options::Globals;
use crate::pod;
use verbgate_host::output::print;

/// Directory of root's containers.
const ROOTS: &str = "/run/verbgate";

/// Lists containers.
pub fn ps(globals: &Globals, as_json: bool) -> Result<u8, Error> {
    let all = all(globals)?;
    if as_json {
        print(&format!("{}\n", json!(all)))?;
        return Ok(0);
    }
    let mut text = format!(
        "{:<24} {:<8} {:<10} {:<9} {:<10} {:<20} POD\n",
        "CONTAINER", "PID", "SUPERVISOR", "PROCESSES", "PROFILE", "DEVICES"
    );
    for one in &all {
        let word = |key: &str| match one.get(key) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            }
            Some(other) => other.to_string(),
        };
        let [id, pid, supervisor, profile, devices] =
            ["id", "pid", "supervisor", "profile", "devices"].map(word);
        let processes = with_rdma(one);
        let pod = pod(one);
        text += &format!(
            "{id:<24} {pid:<8} {supervisor:<10} {processes:<9} {profile:<10} {devices:<20} {pod}\n"
        );
    }
    print(&text)?;
    Ok(0)
}

/// A container's place in a cluster, as namespace, pod and container; `-` for a container of no pod.
pub(super) fn pod(one: &Value) -> String {
    let text = |key: &str| one.get("pod")?.get(key)?.as_str();
    match (text("namespace"), text("name"), text("container")) {
        (Some(namespace), Some(name), Some("") | None) => format!("{namespace}/{name}"),
        (Some(namespace), Some(name), Some(container)) => format!("{namespace}/{name}/{container}"),
        _ => "-".to_owned(),
    }
}

/// Number of the container's processes that use RDMA.
fn with_rdma(one: &Value) -> usize {
    let served = one.get("served").and_then(Value::as_array).into_iter().flatten();
    served.filter_map(|one| one.get("processes")?.as_array()).map(Vec::len).sum()
}

/// The ids and first processes of the containers that a supervisor serves.
///
/// # Errors
/// The directory of run-time state cannot be read.
pub fn processes(globals: &Globals) -> Result<Vec<(String, u32)>, Error> {
    let of = |one: Value| {
        let pid = one.get("pid")?.as_u64()?.try_into().ok()?;
        Some((one.get("id")?.as_str()?.to_owned(), pid))
    };
    Ok(all(globals)?.into_iter().filter_map(of).collect())
}

/// The report on all containers.
pub(super) fn all(globals: &Globals) -> Result<Vec<Value>, Error> {
    Ok(places(globals)?.iter().filter_map(shown).collect())
}

/// The supervisor's answers about a container; without a supervisor, the recorded facts.
fn shown(place: &Place) -> Option<Value> {
    let answer = post::ask(&place.control(), br#""show""#, PATIENCE_MS);
    if let Some(value) = answer.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
        return Some(value);
    }
    // Removed meanwhile.
    let spec = place.spec().ok()?;
    let devices: Vec<&str> = spec.devices.iter().map(|d| d.name.as_str()).collect();
    Some(json!({
        "id": spec.id, "bundle": spec.bundle, "profile": spec.profile, "pod": spec.pod,
        "tenant": spec.tenant, "devices": devices, "supervisor": Value::Null,
    }))
}

/// Removes what is left of containers whose supervisor is gone, and brings their NICs home.
pub fn gc(globals: &Globals, state_dir: &Path, as_json: bool) -> Result<u8, Error> {
    let (mut removed, mut failed) = (Vec::new(), None);
    let mut home = Vec::new();
    for one in home::reap(state_dir) {
        match one {
            Ok(line) => home.push(line),
            // The other containers' come home all the same.
            Err(error) => {
                log::error!("{error:#}");
                failed = Some(error);
            }
        }
    }
    for place in places(globals)? {
        let name = place.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let dead = place
            .remove_if_dead()
            .map_err(|e| anyhow!("cannot remove {}: {e}", place.path().display()))?;
        if dead {
            removed.push(name);
        }
    }
    pod::remove_held(&globals.root);
    if as_json {
        print(&format!("{}\n", json!({ "removed": removed, "home": home })))?;
    } else {
        print(&home.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        print(&removed.iter().map(|name| format!("removed {name}\n")).collect::<String>())?;
    }
    failed.map_or(Ok(0), Err)
}

/// A user who has no containers asks about those of root, which nobody else sees.
fn places(globals: &Globals) -> Result<Vec<Place>, Error> {
    let root = &globals.root;
    let listed = place::list(root);
    let of_root = Path::new(ROOTS);
    let is_anothers = !verbgate_host::is_root() && root != of_root && of_root.exists();
    if is_anothers && listed.as_ref().is_ok_and(Vec::is_empty) {
        return Err(anyhow!(
            "{} has no containers, and only root sees those in {ROOTS}; run this command as root",
            root.display()
        ));
    }
    listed.with_context(|| format!("cannot read {} (root's containers need root)", root.display()))
}
