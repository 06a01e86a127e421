//! The rails of a node: the ports by which programs reach the same ports of other nodes. RoCE rails go
//! into a container with their NICs; InfiniBand's and those of bonds serve every network namespace, or
//! stay where they are.

use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::netns::Namespace;
use verbgate_host::rdma;
use verbgate_host::route::devices;
use verbgate_host::route::is_link_local;
use verbgate_host::route::network;
use verbgate_host::uapi::RTA_GATEWAY;
use verbgate_host::uapi::RTA_VIA;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;
use verbgate_sysfs::discover::INFINIBAND;
use verbgate_sysfs::natural;

use super::Error;
use super::hca::Filter;
use super::journal::Journal;
use super::plan;
use super::plan::open;
use super::select::Selection;
use super::select::list;
use super::state::Snapshot;
use super::state::State;
use super::transfer::is_gid_of;
use super::view::View;

/// A NIC's place in a node with several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rail {
    /// The link; InfiniBand needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev: Option<String>,
    /// The RDMA device.
    pub rdma: String,
    /// The port's number; the first is 1.
    pub port: u32,
    /// The bus address of the device's function.
    pub pci: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: Option<String>,
    /// The link's first address, IPv4 before IPv6; none on InfiniBand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Length of the address's network.
    #[serde(default)]
    pub prefix: u8,
    /// In Gb/s.
    pub speed: Option<f64>,
    /// The largest packet of the link, in bytes; 0 where there is no link.
    #[serde(default)]
    pub mtu: u32,
    /// The link's MAC address; empty where there is no link.
    #[serde(default)]
    pub mac: String,
    /// The RoCE v2 entry of `address`; none on InfiniBand.
    pub gid_index: Option<u32>,
    /// That entry, or on InfiniBand the port's first.
    pub gid: Option<Ipv6Addr>,
    /// InfiniBand: the partition keys in use, each behind its index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pkeys: Vec<(u32, u16)>,
    /// The rail that the node's operator declared; none where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<String>,
    /// RDMA works without a move, or the link cannot be moved.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stays: bool,
    /// Routes lead through the link to other networks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub routed: bool,
    /// The link is a bond of several ports.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bonded: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Rail {
    /// The link's name, or device and port where there is none.
    pub fn name(&self) -> String {
        self.netdev.clone().unwrap_or_else(|| self.hca())
    }

    /// Device and port, as NCCL_IB_HCA and UCX_NET_DEVICES name them.
    pub fn hca(&self) -> String {
        format!("{}:{}", self.rdma, self.port)
    }

    /// Whether the port is one of InfiniBand.
    pub fn is_infiniband(&self) -> bool {
        self.link_layer.as_deref() == Some(INFINIBAND)
    }

    /// The network of the address; on InfiniBand the subnet, which is the upper half of a GID.
    pub fn network(&self) -> Option<(IpAddr, u8)> {
        const SUBNET_PREFIX: u8 = 64;
        match self.address {
            Some(address) => Some((network(address, self.prefix), self.prefix)),
            None => Some((network(self.gid?.into(), SUBNET_PREFIX), SUBNET_PREFIX)),
        }
    }
}

/// The rails of this namespace: NICs that would be moved, bonds, and InfiniBand's ports.
///
/// # Errors
/// Those of [`plan::candidates`].
pub fn here(selection: &Selection, sysfs: &Path) -> Result<Vec<Rail>, Error> {
    let all = discover::devices(sysfs);
    let (candidates, snapshot) = plan::candidates(selection, sysfs)?;
    let mut rails = Vec::new();
    for candidate in candidates.iter().filter(|c| c.dropped.is_none() || c.stays_of_use) {
        let Some(link) = snapshot.link(&candidate.netdev) else { continue };
        let ports = candidate.rdma.iter().map(|port| (port.device.clone(), port.port));
        let ports: Vec<_> = ports.collect();
        rails.extend(of_state(&snapshot.state(link), &ports, &all));
    }
    rails.extend(infiniband(selection, &all)?);
    Ok(rails)
}

/// The rails of NICs that were moved, as they are now, and InfiniBand's ports.
///
/// # Errors
/// A wrong option.
pub fn of_journal(
    journal: &Journal,
    selection: &Selection,
    sysfs: &Path,
) -> Result<Vec<Rail>, Error> {
    let there = journal.namespace().filter(|_| journal.rdma_exclusive);
    let view = there.map(|namespace| View::of(&namespace, sysfs, true)).transpose()?;
    let all = discover::devices(view.as_ref().map_or(sysfs, View::path));
    let nics = journal.nics.iter();
    let mut rails: Vec<Rail> =
        nics.filter_map(|nic| of_state(&nic.state, &nic.rdma, &all)).collect();
    rails.extend(infiniband(selection, &all)?);
    Ok(rails)
}

/// The rails of a container's namespace, whoever brought the NICs there: a network plug-in, a DRA
/// driver, or a move. A NIC is there if the GID of one of its addresses is a port's.
///
/// # Errors
/// The namespace cannot be entered, or netlink fails.
pub fn within(
    namespace: &Namespace,
    selection: &Selection,
    sysfs: &Path,
) -> Result<Vec<Rail>, Error> {
    let view = View::of(namespace, sysfs, rdma::mode() == rdma::Mode::Exclusive)?;
    let all = discover::devices(view.path());
    let filter = filter(selection)?;
    let asked = selection.iface.as_deref().map(list);
    let mut rails = namespace.within(|| -> Result<Vec<Rail>, Error> {
        let snapshot = Snapshot::take(&mut open()?)?;
        let mut found = Vec::new();
        for (device, port) in all.iter().flat_map(|d| d.ports.iter().map(move |p| (d, p))) {
            let owns = |link: &&verbgate_host::link::Link| {
                let its = snapshot.addresses_of(link.index);
                port.gids.iter().any(|gid| {
                    gid.netdev.as_deref().is_none_or(|netdev| netdev == link.name)
                        && its.iter().any(|(ip, _)| !is_link_local(*ip) && is_gid_of(gid, *ip))
                })
            };
            let wanted = |link: &&verbgate_host::link::Link| {
                asked.as_ref().is_none_or(|asked| asked.contains(&link.name))
            };
            if filter.as_ref().is_some_and(|f| !f.allows(&device.name, port.port)) {
                continue;
            }
            if let Some(link) = snapshot.links.iter().filter(wanted).find(owns) {
                let port = (device.name.clone(), port.port);
                found.extend(of_state(&snapshot.state(link), &[port], &all));
            }
        }
        Ok(found)
    })?;
    rails.extend(infiniband(selection, &all)?);
    Ok(rails)
}

fn filter(selection: &Selection) -> Result<Option<Filter>, Error> {
    selection.hca.as_deref().map(str::parse).transpose()
}

/// InfiniBand's ports that are up. Their GIDs belong to no network namespace, so no move concerns
/// them. `--iface` alone asks for links, of which these have none but IPoIB.
fn infiniband(selection: &Selection, all: &[Device]) -> Result<Vec<Rail>, Error> {
    let filter = filter(selection)?;
    let asked = selection.iface.as_deref().map(list);
    let mut found = Vec::new();
    for (device, port) in all.iter().flat_map(|d| d.ports.iter().map(move |port| (d, port))) {
        let is_wanted = match (&filter, &asked) {
            (Some(filter), _) => filter.allows(&device.name, port.port),
            (None, Some(asked)) => asked.iter().any(|name| port.netdevs.contains(name)),
            (None, None) => true,
        };
        let is_up = port.state.as_deref() == Some("ACTIVE");
        let is_infiniband = port.link_layer.as_deref() == Some(INFINIBAND);
        if is_wanted && is_up && is_infiniband {
            found.push(Rail {
                rdma: device.name.clone(),
                port: port.port,
                pci: device.pci.clone(),
                link_layer: port.link_layer.clone(),
                speed: port.rate,
                gid: port.gids.first().map(|gid| gid.gid),
                pkeys: port.pkeys.iter().map(|(index, key)| (*index, *key)).collect(),
                stays: true,
                ..Rail::default()
            });
        }
    }
    found.sort_by(|a, b| natural(&a.rdma, &b.rdma).then(a.port.cmp(&b.port)));
    Ok(found)
}

/// The rail of a NIC: of its first RDMA device and its first address, IPv4 before IPv6.
fn of_state(state: &State, ports: &[(String, u32)], all: &[Device]) -> Option<Rail> {
    let mut ips = state.ips();
    ips.retain(|(ip, _)| !is_link_local(*ip));
    ips.sort_by_key(|(ip, _)| ip.is_ipv6());
    let (address, prefix) = *ips.first()?;
    let (rdma, number) = ports.first()?;
    let device = all.iter().find(|device| device.name == *rdma);
    let port = device.and_then(|device| device.ports.iter().find(|port| port.port == *number));
    let gid = port.and_then(|port| port.gids.iter().find(|gid| is_gid_of(gid, address)));
    let index = state.link.index;
    let bonded = state.link.kind.as_deref() == Some("bond");
    Some(Rail {
        netdev: Some(state.link.name.clone()),
        rdma: rdma.clone(),
        port: *number,
        pci: device.and_then(|device| device.pci.clone()),
        link_layer: port.and_then(|port| port.link_layer.clone()),
        address: Some(address),
        prefix,
        speed: port.and_then(|port| port.rate),
        mtu: state.link.mtu,
        mac: state.link.mac.clone(),
        gid_index: gid.map(|gid| gid.index),
        gid: gid.map(|gid| gid.gid),
        stays: bonded,
        bonded,
        routed: state.routes.iter().any(|route| {
            let message = &route.message;
            devices(message).contains(&index)
                && [RTA_GATEWAY, RTA_VIA].iter().any(|kind| message.get(*kind).is_some())
        }),
        ..Rail::default()
    })
}

/// Gives rails the names that were declared, `(NETDEV, RAIL)` each; InfiniBand's ports are named as
/// NCCL does, `mlx5_0:1`.
///
/// # Errors
/// A NIC that is none of the rails, or a name given twice.
pub fn declare(mut rails: Vec<Rail>, declared: &[(String, String)]) -> Result<Vec<Rail>, Error> {
    for (netdev, name) in declared {
        let usage = |why: &str| Error::Usage(format!("--rail {netdev}={name}: {why}"));
        if rails.iter().any(|rail| rail.rail.as_ref() == Some(name)) {
            return Err(usage("another NIC was declared to be this rail"));
        }
        let Some(rail) = rails.iter_mut().find(|rail| rail.name() == *netdev) else {
            let have: Vec<String> = rails.iter().map(Rail::name).collect();
            return Err(usage(&format!("no rail of this node is {netdev}: {}", have.join(", "))));
        };
        rail.rail = Some(name.clone());
    }
    Ok(rails)
}
