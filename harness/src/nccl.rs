//! `verbgate nccl env`: NCCL's settings, from the NICs after the move. The variables are those of
//! NCCL's documentation, "Environment Variables".

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use verbgate_host::netns;
use verbgate_host::netns::Namespace;
use verbgate_host::route::devices;
use verbgate_host::route::is_link_local;
use verbgate_host::uapi::RTM_DST_LEN;
use verbgate_netdev::Error;
use verbgate_netdev::journal;
use verbgate_netdev::journal::Journal;
use verbgate_netdev::plan::open;
use verbgate_netdev::state::Snapshot;
use verbgate_netdev::transfer::is_gid_of;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;
use verbgate_sysfs::natural;

use crate::cli::Format;
use crate::cli::NcclArgs;
use crate::cli::NcclOptions;
use crate::failure::Failure;
use crate::output::print_json;
use verbgate_host::output::print;
use verbgate_host::output::say;

/// Names and values.
pub(crate) type Environment = BTreeMap<String, String>;

/// Variables that `--debug-all` sets.
const DEBUG: &[(&str, &str)] = &[
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "INIT,NET,GRAPH,ENV"),
    ("NCCL_DEBUG_FILE", "nccl.%h.%p.log"),
    ("NCCL_TOPO_DUMP_FILE", "nccl-topo.xml"),
    ("NCCL_GRAPH_DUMP_FILE", "nccl-graph.xml"),
];

/// Prints the environment.
pub(crate) fn env(args: &NcclArgs) -> Result<u8, Failure> {
    let journal = journal::load(&args.host.state_dir)?.filter(|journal| journal.complete);
    let Some(journal) = journal else {
        return Err(Error::Invalid(format!(
            "no NIC is in a container (the journal {} is empty); first: verbgate netdev move",
            args.host.state_dir.display()
        ))
        .into());
    };
    let environment = derive(&journal, &args.options, &args.host.sysfs_root)?;
    match args.format {
        Format::Json => print_json(&environment)?,
        format => print(&lines(&environment, format))?,
    }
    Ok(0)
}

/// The environment as text.
pub(crate) fn lines(environment: &Environment, format: Format) -> String {
    let line = |(name, value): (&String, &String)| match format {
        Format::Sh => format!("export {name}='{}'\n", value.replace('\'', r"'\''")),
        Format::Docker | Format::Json => format!("{name}={value}\n"),
    };
    environment.iter().map(line).collect()
}

/// Works out the environment for the NICs of a journal.
pub(crate) fn derive(
    journal: &Journal,
    options: &NcclOptions,
    sysfs: &Path,
) -> Result<Environment, Error> {
    let mut environment = Environment::new();
    let all = discover::devices(sysfs);
    environment.insert("NCCL_IB_HCA".to_owned(), hcas(journal)?);
    if let Some(index) = gid_index(journal, &all) {
        environment.insert("NCCL_IB_GID_INDEX".to_owned(), index.to_string());
    }
    let socket = match &options.socket_ifname {
        Some(name) => Some(name.clone()),
        None => default_interface(journal)?,
    };
    match socket {
        Some(name) => {
            // NCCL takes a name as a prefix, as it does with devices; Gloo takes it as it is.
            environment.insert("NCCL_SOCKET_IFNAME".to_owned(), format!("={name}"));
            environment.insert("GLOO_SOCKET_IFNAME".to_owned(), name);
        }
        None => say(
            "warning: the container has no default route, so NCCL_SOCKET_IFNAME is not set; give \
             --socket-ifname",
        ),
    }
    topology(&mut environment, &options.topo)?;
    if let Some(dir) = &options.debug_all {
        for (name, value) in DEBUG {
            let value = match name.ends_with("_FILE") {
                true => dir.join(value).display().to_string(),
                false => (*value).to_owned(),
            };
            environment.insert((*name).to_owned(), std::env::var(name).unwrap_or(value));
        }
    }
    Ok(environment)
}

/// Exact names with their ports, in the order in which people count: without `=`, mlx5_1 would also
/// mean mlx5_10.
fn hcas(journal: &Journal) -> Result<String, Error> {
    let mut ports: Vec<(String, u32)> =
        journal.nics.iter().flat_map(|nic| nic.rdma.iter().cloned()).collect();
    ports.sort_by(|(a, m), (b, n)| natural(a, b).then(m.cmp(n)));
    ports.dedup();
    if ports.is_empty() {
        return Err(Error::Invalid(
            "no RDMA device belongs to the NICs that were moved".to_owned(),
        ));
    }
    let names: Vec<String> =
        ports.iter().map(|(device, port)| format!("{device}:{port}")).collect();
    Ok(format!("={}", names.join(",")))
}

/// The index that the RoCE v2 entry of each NIC's IPv4 address has, if it is the same everywhere.
fn gid_index(journal: &Journal, all: &[Device]) -> Option<u32> {
    let mut indices: BTreeMap<Option<u32>, Vec<&str>> = BTreeMap::new();
    for nic in journal.nics.iter().filter(|nic| nic.state.link.up) {
        let mut ips = nic.state.ips();
        ips.retain(|(ip, _)| !is_link_local(*ip));
        ips.sort_by_key(|(ip, _)| ip.is_ipv6());
        for (name, number) in &nic.rdma {
            let device = all.iter().find(|device| device.name == *name);
            let port = device.and_then(|d| d.ports.iter().find(|port| port.port == *number));
            let gids = port.map(|port| port.gids.as_slice()).unwrap_or_default();
            let (ip, _) = ips.first()?;
            let index = gids.iter().find(|gid| is_gid_of(gid, *ip)).map(|gid| gid.index);
            indices.entry(index).or_default().push(name);
        }
    }
    match indices.iter().collect::<Vec<_>>().as_slice() {
        [(Some(index), _)] => Some(*index),
        several => {
            let told: Vec<String> = several
                .iter()
                .map(|(index, names)| {
                    let index = index.map_or("none".to_owned(), |index| index.to_string());
                    format!("{index} on {}", names.join(", "))
                })
                .collect();
            say(&format!(
                "warning: NCCL_IB_GID_INDEX is not set, because the RoCE v2 GIDs of the NICs have \
                 no index in common ({}); NCCL chooses for itself",
                told.join("; ")
            ));
            None
        }
    }
}

/// The device of the container's default route.
fn default_interface(journal: &Journal) -> Result<Option<String>, Error> {
    let same_boot = journal.boot_id == netns::boot_id()?;
    let target = Namespace::find(journal.target, &journal.target_path).filter(|_| same_boot);
    let Some(target) = target else {
        return Err(Error::Invalid(format!(
            "the container ({}) is gone; first: verbgate netdev restore",
            journal.target_path.display()
        )));
    };
    target.within(|| {
        let snapshot = Snapshot::take(&mut open()?)?;
        let rails: BTreeSet<&str> =
            journal.nics.iter().map(|nic| nic.target_name.as_str()).collect();
        let defaults = snapshot.routes.iter().filter(|route| route.byte(RTM_DST_LEN) == 0);
        let mut names = defaults.flat_map(devices).filter_map(|index| {
            snapshot.links.iter().find(|link| link.index == index).map(|link| link.name.clone())
        });
        Ok(names.find(|name| name != "lo" && !rails.contains(name.as_str())))
    })
}

fn topology(environment: &mut Environment, topo: &str) -> Result<(), Error> {
    const NAME: &str = "NCCL_TOPO_FILE";
    match topo {
        "none" => {}
        // Without a file NCCL reads sysfs, which shows the sandbox the true places of its devices.
        "auto" => {
            if let Ok(file) = std::env::var(NAME) {
                environment.insert(NAME.to_owned(), file);
            }
        }
        file if Path::new(file).is_file() => {
            environment.insert(NAME.to_owned(), file.to_owned());
        }
        file => {
            let why = "a topology file that is not there makes NCCL fail; --topo auto needs none";
            return Err(Error::Usage(format!("--topo {file:?}: {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_every_value_as_it_is() {
        let environment = Environment::from([("A".to_owned(), "it's $HOME".to_owned())]);
        assert_eq!(lines(&environment, Format::Sh), "export A='it'\\''s $HOME'\n");
        assert_eq!(lines(&environment, Format::Docker), "A=it's $HOME\n");
    }
}
