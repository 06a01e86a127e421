//! `verbgate manifest`: a node's rails, and the rails that all nodes of a cluster have alike.
//!
//! Ranks that see different sets of NICs fail in ways that name nothing ("Could not find NET with
//! id N", or a hang at the first collective operation), so the nodes agree on the set before.

mod agree;
mod pair;

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::route::is_link_local;
use verbgate_netdev::Error;
use verbgate_netdev::journal;
use verbgate_netdev::plan;
use verbgate_netdev::select::Shared;
use verbgate_netdev::state::State;
use verbgate_netdev::transfer::is_gid_of;
use verbgate_netdev::verify::Claim;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;

use self::agree::agree;
use crate::cli::AgreeArgs;
use crate::cli::HostArgs;
use crate::cli::ManifestArgs;
use crate::cli::ManifestCommand;
use crate::cli::PairingTerms;
use crate::cli::SelectArgs;
use crate::failure::Failure;
use crate::output::print_json;
use verbgate_host::output::print;
use verbgate_host::output::say;

const VERSION: u32 = 1;
/// A manifest of a node with a hundred rails has a tenth of this.
const SIZE_MAX: u64 = 1 << 20;

/// A node's manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) node: String,
    pub(crate) rails: Vec<Rail>,
}

/// A NIC's place in a node with several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rail {
    pub(crate) netdev: String,
    pub(crate) rdma: String,
    pub(crate) port: u32,
    pub(crate) pci: Option<String>,
    pub(crate) link_layer: Option<String>,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
    /// In Gb/s.
    pub(crate) speed: Option<f64>,
    pub(crate) mtu: u32,
    pub(crate) mac: String,
    /// The RoCE v2 entry of `address`.
    pub(crate) gid_index: Option<u32>,
    pub(crate) gid: Option<Ipv6Addr>,
    /// The rail that the node's operator declared; none where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rail: Option<String>,
}

impl Rail {
    /// The properties that must be alike at both ends of a rail.
    fn properties(&self) -> (String, String, u32) {
        let speed = self.speed.map_or("unknown speed".to_owned(), |speed| format!("{speed} Gb/s"));
        (speed, self.link_layer.clone().unwrap_or_default(), self.mtu)
    }
}

impl Manifest {
    /// Addresses and MACs, for verification.
    pub(crate) fn claims(&self) -> Result<Vec<Claim>, Error> {
        let nic = |rail: &Rail| format!("{} of {}", rail.netdev, self.node);
        Ok(self
            .rails
            .iter()
            .map(|rail| Claim { nic: nic(rail), ip: rail.address, mac: rail.mac.clone() })
            .collect())
    }
}

/// Prints this node's manifest, or what the nodes agree on.
pub(crate) fn run(args: &ManifestArgs) -> Result<u8, Failure> {
    match &args.agree {
        Some(ManifestCommand::Agree(args)) => agree_all(args)?,
        None => print_json(&local(args.node.as_deref(), &args.select, &args.host)?)?,
    }
    Ok(0)
}

/// A manifest in a file.
pub(crate) fn read(path: &Path) -> Result<Manifest, Error> {
    let failed = |source| Error::file(path.to_owned(), source);
    let foreign = |why: String| {
        Error::Invalid(format!(
            "{} is not a manifest of this version of Verbgate: {why}; write the manifest again: \
             verbgate manifest",
            path.display()
        ))
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > SIZE_MAX {
        return Err(foreign(format!("the file has {size} bytes")));
    }
    let text = fs::read(path).map_err(failed)?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| foreign(e.to_string()))?;
    if manifest.version != VERSION {
        return Err(foreign(format!("the manifest's version is {}", manifest.version)));
    }
    Ok(manifest)
}

/// This node's manifest: of the NICs that were moved, or else of the NICs that would be moved.
pub(crate) fn local(
    node: Option<&str>,
    select: &SelectArgs,
    host: &HostArgs,
) -> Result<Manifest, Error> {
    let rails = match journal::load(&host.state_dir)? {
        Some(journal) => {
            let devices = discover::devices(&host.sysfs_root);
            let nics = journal.nics.iter();
            let found = nics.flat_map(|nic| rail(&nic.state, &nic.rdma, &devices)).collect();
            declare(found, &select.pairing.rails)?
        }
        None => selected(select, &host.sysfs_root)?,
    };
    Ok(Manifest { version: VERSION, node: node.map_or_else(host_name, str::to_owned), rails })
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "localhost".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn selected(select: &SelectArgs, sysfs: &Path) -> Result<Vec<Rail>, Error> {
    let devices = discover::devices(sysfs);
    let (candidates, snapshot) = plan::candidates(&select.selection(), sysfs)?;
    let mut rails = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.dropped.is_none()) {
        if let Some(link) = snapshot.link(&candidate.netdev) {
            let ports = candidate.rdma.iter().map(|port| (port.device.clone(), port.port));
            let ports: Vec<_> = ports.collect();
            rails.extend(rail(&snapshot.state(link), &ports, &devices));
        }
    }
    // A NIC that the peers do not have was declared, too.
    let left_out = select.shared.as_ref().map(|shared| &shared.left_out);
    let here = |netdev: &String| left_out.is_none_or(|left_out| !left_out.contains_key(netdev));
    let declared = select.pairing.rails.iter().filter(|(netdev, _)| here(netdev));
    declare(rails, &declared.cloned().collect::<Vec<_>>())
}

/// Gives rails the names that were declared by `--rail`.
fn declare(mut rails: Vec<Rail>, declared: &[(String, String)]) -> Result<Vec<Rail>, Error> {
    for (netdev, name) in declared {
        let usage = |why: &str| Error::Usage(format!("--rail {netdev}={name}: {why}"));
        if rails.iter().any(|rail| rail.rail.as_ref() == Some(name)) {
            return Err(usage("another NIC was declared to be this rail"));
        }
        let Some(rail) = rails.iter_mut().find(|rail| rail.netdev == *netdev) else {
            let have: Vec<&str> = rails.iter().map(|rail| rail.netdev.as_str()).collect();
            return Err(usage(&format!("no rail of this node is {netdev}: {}", have.join(", "))));
        };
        rail.rail = Some(name.clone());
    }
    Ok(rails)
}

/// The rail of a NIC: of its first RDMA device and its first address, IPv4 before IPv6.
fn rail(state: &State, ports: &[(String, u32)], devices: &[Device]) -> Option<Rail> {
    let mut ips = state.ips();
    ips.retain(|(ip, _)| !is_link_local(*ip));
    ips.sort_by_key(|(ip, _)| ip.is_ipv6());
    let (address, prefix) = *ips.first()?;
    let (rdma, number) = ports.first()?;
    let device = devices.iter().find(|device| device.name == *rdma);
    let port = device.and_then(|device| device.ports.iter().find(|port| port.port == *number));
    let gid = port.and_then(|port| port.gids.iter().find(|gid| is_gid_of(gid, address)));
    Some(Rail {
        netdev: state.link.name.clone(),
        rdma: rdma.clone(),
        port: *number,
        pci: device.and_then(|device| device.pci.clone()),
        link_layer: port.and_then(|port| port.link_layer.clone()),
        address,
        prefix,
        speed: port.and_then(|port| port.rate),
        mtu: state.link.mtu,
        mac: state.link.mac.clone(),
        gid_index: gid.map(|gid| gid.index),
        gid: gid.map(|gid| gid.gid),
        rail: None,
    })
}

/// The NICs of this node that are rails of the peers too, and the reasons why the others are not.
pub(crate) fn shared(select: &SelectArgs, sysfs: &Path) -> Result<Shared, Error> {
    let own = SelectArgs { peer_manifest: Vec::new(), ..select.clone() };
    // Cannot be a node's name.
    let node = "this node".to_owned();
    let mut all =
        vec![Manifest { version: VERSION, node: node.clone(), rails: selected(&own, sysfs)? }];
    for path in &select.peer_manifest {
        all.push(read(path)?);
    }
    let agreement = agree(&all, select.pairing.terms.by)?;
    agreement.broken.iter().for_each(|line| say(line));
    let set = agreement.of(&node)?;
    Ok(Shared {
        names: set.netdevs.iter().cloned().collect(),
        left_out: set.left_out.clone(),
        dropped: agreement.dropped,
    })
}

/// Refuses to go on with fewer rails than there are, unless the user allows it.
pub(crate) fn allow(dropped: usize, terms: &PairingTerms) -> Result<(), Error> {
    if dropped == 0 || terms.allow_dropped {
        return Ok(());
    }
    let rails = if dropped == 1 { "1 rail is" } else { &format!("{dropped} rails are") };
    Err(Error::Invalid(format!(
        "{rails} not alike on all nodes (see above): repair the difference, leave the NIC out on \
         each node (--iface, --hca), or go on with the other rails by --allow-dropped"
    )))
}

fn agree_all(args: &AgreeArgs) -> Result<(), Error> {
    let manifests: Vec<Manifest> =
        args.manifests.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let agreement = agree(&manifests, args.terms.by)?;
    agreement.broken.iter().for_each(|line| say(line));
    for manifest in &manifests {
        let indices: BTreeSet<_> = manifest.rails.iter().map(|rail| rail.gid_index).collect();
        if indices.len() > 1 {
            say(&format!(
                "{}: the rails have different GID indices, so NCCL_IB_GID_INDEX cannot be set",
                manifest.node
            ));
        }
    }
    let allowed = allow(agreement.dropped, &args.terms);
    if let Some(node) = &args.node {
        // What a script moves by: nothing, if it may not.
        allowed?;
        return Ok(print(&(agreement.of(node)?.netdevs.join(",") + "\n"))?);
    }
    if args.json {
        print_json(&agreement)?;
        return allowed;
    }
    let lines =
        agreement.nodes.iter().map(|set| format!("{} {}\n", set.node, set.netdevs.join(",")));
    print(&lines.collect::<String>())?;
    allowed
}
