//! The networks of containers: which have no fence, or processes that can go around the fence.

use std::path::Path;

use verbgate_host::fence;
use verbgate_host::netns::Namespace;
use verbgate_host::netns::NamespaceId;
use verbgate_netdev::journal;
use verbgate_netdev::share;
use verbgate_oci::Globals;

/// A network namespace, and the names of whatever has RDMA there.
struct Occupied {
    space: Namespace,
    names: Vec<String>,
}

/// Of the network namespaces that NICs were moved into, that have links upon NICs, or that containers with
/// RDMA are in: how many have a fence that nobody can go around, and for each other one a line that says why.
pub(crate) fn look(state_dir: &Path, globals: &Globals) -> (u32, Vec<String>) {
    let (mut fenced, mut open) = (0, Vec::new());
    for one in networks(state_dir, globals) {
        let holes = holes(&one.space);
        match holes.is_empty() {
            true => fenced += 1,
            false => open.push(format!("{} ({})", one.names.join(", "), holes.join(", "))),
        }
    }
    (fenced, open)
}

fn networks(state_dir: &Path, globals: &Globals) -> Vec<Occupied> {
    let mut found: Vec<Occupied> = Vec::new();
    let mut add = |space: Option<Namespace>, name: String| {
        let Some(space) = space else { return };
        match found.iter_mut().find(|known| known.space.id == space.id) {
            Some(known) => known.names.push(name),
            None => found.push(Occupied { space, names: vec![name] }),
        }
    };
    let mut journals = verbgate_oci::journals(state_dir);
    journals.push(state_dir.to_owned());
    for journal in journals.iter().filter_map(|dir| journal::load(dir).ok().flatten()) {
        add(Namespace::find(journal.target, &journal.target_path), journal.names());
    }
    for share in share::load(state_dir).unwrap_or_default() {
        add(share.namespace(), format!("{} upon {}", share.name, share.nic));
    }
    for (id, pid) in verbgate_oci::processes(globals).unwrap_or_default() {
        let path = Path::new("/proc").join(pid.to_string()).join("ns/net");
        add(Namespace::open(&path).ok(), format!("container {id}"));
    }
    found
}

fn holes(space: &Namespace) -> Vec<String> {
    if Namespace::current().is_ok_and(|ours| ours.id == space.id) {
        return vec!["shares the host's network, which verbgate makes no rules for".to_owned()];
    }
    let mut holes = Vec::new();
    let stands = space.within(|| Ok::<_, verbgate_host::Error>(fence::stands()));
    if !matches!(stands, Ok(Ok(true))) {
        holes.push("programs can send RoCE by plain sockets, and from any address".to_owned());
    }
    for (name, bit) in [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13)] {
        if let Some(pid) = holder(space.id, bit) {
            holes.push(format!("process {pid} has {name}"));
        }
    }
    holes
}

/// A process of a network namespace that has a capability, by the capability's number.
fn holder(space: NamespaceId, bit: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let dir = Path::new("/proc").join(pid.to_string());
        let status = std::fs::read_to_string(dir.join("status")).unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        set & (1 << bit) != 0
            && Namespace::open(&dir.join("ns/net")).is_ok_and(|found| found.id == space)
    })
}
