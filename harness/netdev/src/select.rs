//! The selection of NICs that go into a container, and the reasons why the others stay.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use regex_lite::Regex;
use serde::Serialize;
use verbgate_host::link::Link;
use verbgate_host::netlink::Message;
use verbgate_host::netlink::Netlink;
use verbgate_host::route::hops;
use verbgate_host::route::is_link_local;
use verbgate_host::uapi::*;
use verbgate_host::way;
use verbgate_sysfs::discover;
use verbgate_sysfs::discover::Device;
use verbgate_sysfs::discover::ETHERNET;
use verbgate_sysfs::discover::Gid;
use verbgate_sysfs::natural;

use super::Error;
use super::hca::Filter;
use super::state::Snapshot;

/// Kinds of links that are no use moving: what the kernel does not let go, or what stands on others.
const UNMOVABLE: &[&str] = &["bridge", "bond", "vrf", "vxlan", "ipoib", "hsr"];

/// The wanted NICs. The default is every NIC that the host can do without.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// These NICs and no others, separated by commas; wins over `exclude`.
    pub iface: Option<String>,
    /// Only NICs of these RDMA devices, as in NCCL_IB_HCA: `[^][=]NAME[:PORT],...`
    pub hca: Option<String>,
    /// Not the NICs whose names match this regular expression; empty turns it off.
    pub exclude: String,
    /// Only NICs that the peer has, too, by these names.
    pub peer_ifaces: Option<String>,
    /// Whether a NIC without an IPv4 address is an error, instead of staying here.
    pub require_ipv4: bool,
    /// Not the NIC with this address, by which the nodes find each other.
    pub bootstrap: Option<IpAddr>,
    /// Not the NIC by which this address is reached.
    pub peer: Option<IpAddr>,
    /// The peers' manifests' view of this node's NICs, once they have been read.
    pub shared: Option<Shared>,
}

/// The view of peers' manifests on this node's NICs.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The netdevs of rails that all have.
    pub names: BTreeSet<String>,
    /// Why the others are none.
    pub left_out: BTreeMap<String, String>,
    /// Number of rails, of whichever node, that are not common.
    pub dropped: usize,
}

impl Shared {
    /// Why a NIC is no common rail.
    pub(crate) fn objection(&self, netdev: &str) -> Option<String> {
        let why = || self.left_out.get(netdev).cloned();
        let none = || "the NIC is not a rail of this node".to_owned();
        (!self.names.contains(netdev)).then(|| why().unwrap_or_else(none))
    }
}

/// A NIC that has RDMA, and what becomes of it.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The link's name.
    pub netdev: String,
    /// The RDMA devices and ports that have it; usually one.
    pub rdma: Vec<Port>,
    /// The bus address of its device.
    pub pci: Option<String>,
    /// The NUMA node; -1 where the machine does not tell.
    pub numa_node: Option<i32>,
    /// In Gb/s.
    pub speed: Option<f64>,
    /// The largest packet, in bytes.
    pub mtu: Option<u32>,
    /// The MAC address.
    pub mac: Option<String>,
    /// Whether the link is set up.
    pub up: bool,
    /// The IP addresses, with the lengths of their networks.
    pub addresses: Vec<String>,
    /// The entries of the GID tables that are of this link.
    pub gids: Vec<Gid>,
    /// Why it stays.
    pub dropped: Option<String>,
    /// It is a bond, which stays and is of use where it is.
    #[serde(skip)]
    pub stays_of_use: bool,
    /// The IP addresses, as `addresses` has them.
    #[serde(skip)]
    pub ips: Vec<(IpAddr, u8)>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// The name of the RDMA device, as rdma(8) has it.
    #[serde(rename = "ifname")]
    pub device: String,
    /// The port's number; the first is 1.
    pub port: u32,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: Option<String>,
    /// `ACTIVE`, `DOWN` and so on.
    pub state: Option<String>,
}

/// All of a host that selection asks for.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub sysfs: &'a Path,
    pub snapshot: &'a Snapshot,
    pub devices: &'a [Device],
}

impl Host<'_> {
    /// Every netdev with RDMA, and those that were asked for by name.
    pub(crate) fn candidates(
        &self,
        args: &Selection,
        netlink: &mut Netlink,
    ) -> Result<Vec<Candidate>, Error> {
        let exclude = match args.exclude.as_str() {
            "" => None,
            pattern => Some(Regex::new(pattern).map_err(|e| {
                Error::Usage(format!("--exclude {pattern:?} is not a regular expression: {e}"))
            })?),
        };
        let hca: Option<Filter> = args.hca.as_deref().map(str::parse).transpose()?;
        let peers = args.peer_ifaces.as_deref().map(list);
        let asked = args.iface.as_deref().map(list);
        let mut names: BTreeSet<String> = self
            .devices
            .iter()
            .flat_map(|device| &device.ports)
            .flat_map(|port| port.netdevs.iter().cloned())
            .collect();
        for name in asked.iter().flatten() {
            let link = self.snapshot.link(name).ok_or_else(|| self.unknown(name))?;
            names.insert(link.name.clone());
        }
        let guarded = self.guarded(args, netlink)?;
        let mut found: Vec<Candidate> = names.iter().map(|name| self.candidate(name)).collect();
        found.sort_by(|a, b| natural(&a.netdev, &b.netdev));
        for candidate in &mut found {
            let name = candidate.netdev.clone();
            let link = self.snapshot.link(&name);
            let chosen = asked.as_ref().map(|asked| {
                asked.iter().any(|n| self.snapshot.link(n).is_some_and(|l| l.name == name))
            });
            candidate.stays_of_use = link.is_some_and(|link| {
                let pattern = exclude.as_ref().filter(|_| chosen.is_none());
                chosen != Some(false)
                    && serves_as_bond(candidate, link, pattern, hca.as_ref())
                    && !guarded.iter().any(|(index, _)| *index == link.index)
            });
            candidate.dropped = match link {
                None => Some("the NIC is not in this network namespace".to_owned()),
                Some(_) if chosen == Some(false) => Some("not named by --iface".to_owned()),
                Some(link) => {
                    let pattern = exclude.as_ref().filter(|_| chosen.is_none());
                    self.objection(candidate, link, pattern, hca.as_ref())
                        .or_else(|| {
                            let (_, why) =
                                guarded.iter().find(|(index, _)| *index == link.index)?;
                            Some(why.clone())
                        })
                        .or_else(|| {
                            let peers = peers.as_ref()?;
                            let known = peers.contains(&name);
                            (!known).then(|| "the peer has none of this name".to_owned())
                        })
                        .or_else(|| args.shared.as_ref()?.objection(&name))
                }
            };
            let refused = candidate.dropped.as_ref().filter(|_| chosen == Some(true));
            if let Some(why) = refused {
                return Err(Error::Refused { nic: name, why: why.clone() });
            }
            if args.require_ipv4 && candidate.dropped.as_deref() == Some(NO_ADDRESS) {
                let why = "the NIC has no IPv4 address, and --require-ipv4 is given".to_owned();
                return Err(Error::Refused { nic: name, why });
            }
        }
        Ok(found)
    }

    fn unknown(&self, name: &str) -> Error {
        let have = self.snapshot.links.iter().map(|link| link.name.clone()).collect();
        Error::NoSuchNic { name: name.to_owned(), have }
    }

    fn candidate(&self, name: &str) -> Candidate {
        let having: Vec<(&Device, &discover::Port)> = self
            .devices
            .iter()
            .filter_map(|device| Some((device, device.port_of(name)?)))
            .collect();
        let link = self.snapshot.link(name);
        let ips = link.map(|link| self.snapshot.addresses_of(link.index)).unwrap_or_default();
        let first = having.first();
        let its_gids = having.iter().flat_map(|(_, port)| &port.gids);
        Candidate {
            netdev: name.to_owned(),
            rdma: having
                .iter()
                .map(|(device, port)| Port {
                    device: device.name.clone(),
                    port: port.port,
                    link_layer: port.link_layer.clone(),
                    state: port.state.clone(),
                })
                .collect(),
            pci: first.and_then(|(device, _)| device.pci.clone()),
            numa_node: first.and_then(|(device, _)| device.numa_node),
            speed: discover::speed(self.sysfs, name)
                .map(|mbit| f64::from(mbit) / 1000.0)
                .or_else(|| first.and_then(|(_, port)| port.rate)),
            mtu: link.map(|link| link.mtu),
            mac: link.map(|link| link.mac.clone()),
            up: link.is_some_and(|link| link.up),
            addresses: ips.iter().map(|(ip, length)| format!("{ip}/{length}")).collect(),
            gids: its_gids
                .filter(|gid| gid.netdev.as_deref().is_none_or(|netdev| netdev == name))
                .cloned()
                .collect(),
            dropped: None,
            stays_of_use: false,
            ips,
        }
    }

    /// The reason against a NIC that lies in the NIC itself, if there is one.
    fn objection(
        &self,
        candidate: &Candidate,
        link: &Link,
        exclude: Option<&Regex>,
        hca: Option<&Filter>,
    ) -> Option<String> {
        if candidate.rdma.is_empty() {
            return Some("no RDMA device belongs to the NIC".to_owned());
        }
        let ethernet =
            |port: &Port| port.link_layer.as_deref().is_none_or(|layer| layer == ETHERNET);
        if !candidate.rdma.iter().any(ethernet) {
            return Some("InfiniBand: GIDs are not bound to a network namespace".to_owned());
        }
        if exclude.is_some_and(|pattern| pattern.is_match(&link.name)) {
            return Some("the NIC's name matches --exclude".to_owned());
        }
        if hca.is_some_and(|f| !candidate.rdma.iter().any(|p| f.allows(&p.device, p.port))) {
            return Some("--hca does not choose the NIC's RDMA device".to_owned());
        }
        if let Some(kind) = link.kind.as_deref().filter(|kind| UNMOVABLE.contains(kind)) {
            return Some(format!("the NIC is a {kind}, which cannot leave its namespace"));
        }
        if let Some(master) = link.master {
            return Some(format!("the NIC is a part of {}", self.name_of(master)));
        }
        let upper = self.snapshot.links.iter().find(|other| other.lower == Some(link.index));
        // The ends of a veth pair in one namespace name each other.
        let is_pair = |other: &Link| link.lower == Some(other.index);
        if let Some(upper) = upper.filter(|upper| !is_pair(upper)) {
            let kind = upper.kind.as_deref().unwrap_or("device");
            return Some(format!("the {kind} {} stands on the NIC", upper.name));
        }
        let routable = |(ip, _): &(IpAddr, u8)| !is_link_local(*ip);
        if !candidate.ips.iter().any(routable) {
            return Some(NO_ADDRESS.to_owned());
        }
        None
    }

    fn name_of(&self, index: u32) -> String {
        let found = self.snapshot.links.iter().find(|link| link.index == index);
        found.map_or_else(|| format!("device {index}"), |link| link.name.clone())
    }

    /// Devices that the host cannot do without.
    fn guarded(
        &self,
        args: &Selection,
        netlink: &mut Netlink,
    ) -> Result<Vec<(u32, String)>, Error> {
        let mut found = Vec::new();
        for route in self.snapshot.routes.iter().filter(|r| is_default(r)) {
            for device in verbgate_host::route::devices(route) {
                found.push((device, "the default route leads through the NIC".to_owned()));
            }
        }
        let mut by_address = |ip: IpAddr, why: &str| {
            let its = self.snapshot.links.iter().filter(|link| {
                self.snapshot.addresses_of(link.index).iter().any(|(own, _)| *own == ip)
            });
            found.extend(its.map(|link| (link.index, why.to_owned())));
        };
        if let Some(ip) = args.bootstrap {
            by_address(ip, "the NIC has the bootstrap address");
        }
        if let Some(ip) = ssh_server() {
            by_address(ip, "this SSH session uses the NIC");
        }
        if let Some(peer) = args.peer
            && let Some(device) = route_to(netlink, peer, None)
        {
            found.push((device, format!("the route to the peer {peer} leads through the NIC")));
        }
        // What stands on another device uses that, too.
        for link in &self.snapshot.links {
            let why = found.iter().find(|(index, _)| *index == link.index).map(|(_, w)| w.clone());
            if let (Some(lower), Some(why)) = (link.lower, why)
                && link.kind.as_deref() != Some("veth")
            {
                found.push((lower, format!("below {}: {why}", link.name)));
            }
        }
        Ok(found)
    }
}

/// Whether a NIC is a bond that nothing speaks against but that a bond cannot be moved.
fn serves_as_bond(
    candidate: &Candidate,
    link: &Link,
    exclude: Option<&Regex>,
    hca: Option<&Filter>,
) -> bool {
    let chosen = |port: &Port| hca.is_none_or(|filter| filter.allows(&port.device, port.port));
    link.kind.as_deref() == Some("bond")
        && candidate.rdma.iter().any(chosen)
        && candidate.ips.iter().any(|(ip, _)| !is_link_local(*ip))
        && !exclude.is_some_and(|pattern| pattern.is_match(&link.name))
}

const NO_ADDRESS: &str = "the NIC has no IPv4 address and no routable IPv6 address";

/// Words between commas or blanks.
pub fn list(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn is_default(route: &Message) -> bool {
    let main = route.u32(RTA_TABLE) == Some(RT_TABLE_MAIN.into());
    let somewhere = route.get(RTA_GATEWAY).is_some()
        || route.get(RTA_VIA).is_some()
        || route.u32(RTA_OIF).is_some()
        || !hops(route).is_empty();
    main && route.byte(RTM_DST_LEN) == 0 && route.byte(RTM_TYPE) == RTN_UNICAST && somewhere
}

/// The device by which the kernel would send to an address.
pub fn route_to(netlink: &mut Netlink, to: IpAddr, from: Option<IpAddr>) -> Option<u32> {
    Some(way::to(netlink, to, from).ok()?.device)
}

/// This host's address in the operator's SSH session: `SSH_CONNECTION` of this process, or of one
/// above it, because sudo(8) takes it away.
pub(crate) fn ssh_server() -> Option<IpAddr> {
    let server = |text: &str| text.split_whitespace().nth(2)?.parse().ok();
    if let Ok(text) = std::env::var("SSH_CONNECTION") {
        return server(&text);
    }
    let mut pid = std::os::unix::process::parent_id();
    // As deep as process trees are.
    for _ in 0..64 {
        let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mut variables = environ.split(|byte| *byte == 0);
        if let Some(text) = variables.find_map(|v| v.strip_prefix(b"SSH_CONNECTION=".as_slice())) {
            return server(&String::from_utf8_lossy(text));
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        pid = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        if pid <= 1 {
            break;
        }
    }
    None
}
