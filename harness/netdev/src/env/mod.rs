//! The settings of communication libraries for a node's rails, each with the reason.
//!
//! The variables are those of NCCL's documentation, "Environment Variables" (2.30), of `ucx_info -f`
//! and of Mooncake's "Advanced Runtime Options".

mod class;
mod nccl;
mod others;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;

use verbgate_host::route::devices;
use verbgate_host::route::is_link_local;
use verbgate_host::route::local;
use verbgate_host::uapi::IFA_INDEX;
use verbgate_host::uapi::RTM_DST_LEN;

pub use self::class::Class;
pub use self::class::of_ports;
use super::Error;
use super::plan::open;
use super::rails::Rail;
use super::state::Snapshot;

/// A library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// NCCL and RCCL
    Nccl,
    /// UCX
    Ucx,
    /// NIXL, whose usual backend is UCX
    Nixl,
    /// Mooncake's transfer engine
    Mooncake,
}

impl Library {
    /// All libraries, by the names that users type.
    pub const ALL: [(&'static str, Self); 4] = [
        ("nccl", Self::Nccl),
        ("ucx", Self::Ucx),
        ("nixl", Self::Nixl),
        ("mooncake", Self::Mooncake),
    ];

    /// The library of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(its, _)| *its == name).map(|(_, library)| *library)
    }
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The value.
    pub value: String,
    /// The reason, for people.
    pub why: String,
}

/// Variables by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(pub BTreeMap<String, Variable>);

impl Environment {
    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: impl ToString, why: impl Into<String>) {
        self.0.insert(name.to_owned(), Variable { value: value.to_string(), why: why.into() });
    }
}

/// The link by which processes find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// The link's name.
    pub name: String,
    /// The link's address, where it is known.
    pub address: Option<IpAddr>,
    /// The reason, for people.
    pub why: &'static str,
}

/// The input besides the rails.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The class of traffic.
    pub class: Class,
    /// The link by which processes find each other.
    pub socket: Option<Socket>,
    /// Whether GIDs are to be told by addresses where a library can, because the NICs have yet to move
    /// and may have other indices then.
    pub by_address: bool,
    /// Whether nothing leads from one rail to another; none: by the rails' routes.
    pub rail_only: Option<bool>,
}

/// The link of the namespace's default route, unless that is a rail; runs in the rails' namespace.
///
/// # Errors
/// There is no netlink socket, or the kernel refuses to list links and routes.
pub fn default_link(rails: &[Rail]) -> Result<Option<Socket>, Error> {
    let snapshot = Snapshot::take(&mut open()?)?;
    let rails: BTreeSet<&str> = rails.iter().filter_map(|rail| rail.netdev.as_deref()).collect();
    let defaults = snapshot.routes.iter().filter(|route| route.byte(RTM_DST_LEN) == 0);
    let mut links = defaults
        .flat_map(devices)
        .filter_map(|index| snapshot.links.iter().find(|link| link.index == index));
    let link = links.find(|link| link.name != "lo" && !rails.contains(link.name.as_str()));
    Ok(link.map(|link| {
        let its = snapshot.addresses.iter().filter(|m| m.word(IFA_INDEX) == link.index);
        Socket {
            name: link.name.clone(),
            address: its.filter_map(local).find(|ip| !is_link_local(*ip)),
            why: "the link of the default route, by which processes find each other",
        }
    }))
}

/// The settings, and warnings for people.
///
/// # Errors
/// There is no rail, or no partition that all rails are in.
pub fn of(
    library: Library,
    rails: &[Rail],
    wish: &Wish,
) -> Result<(Environment, Vec<String>), Error> {
    if rails.is_empty() {
        let why = "no RDMA device belongs to the NICs there".to_owned();
        return Err(Error::Nothing { why });
    }
    let mut rails: Vec<&Rail> = rails.iter().collect();
    rails.sort_by(|a, b| verbgate_sysfs::natural(&a.rdma, &b.rdma).then(a.port.cmp(&b.port)));
    rails.dedup_by(|a, b| a.hca() == b.hca());
    Ok(match library {
        Library::Nccl => nccl::settings(&rails, wish),
        Library::Ucx => others::ucx(&rails, wish),
        Library::Nixl => others::nixl(&rails, wish),
        Library::Mooncake => others::mooncake(&rails, wish),
    })
}

/// The GIDs that a library shall use.
enum Gids {
    /// InfiniBand: the library's own choice is right.
    Own,
    /// The same index on all RoCE ports.
    Index(u32),
    /// Each index, and the ports that have it at that place; none for a port without.
    Differ(BTreeMap<Option<u32>, Vec<String>>),
}

fn gids(rails: &[&Rail]) -> Gids {
    let mut indices: BTreeMap<Option<u32>, Vec<String>> = BTreeMap::new();
    for rail in rails.iter().filter(|rail| !rail.is_infiniband()) {
        indices.entry(rail.gid_index).or_default().push(rail.rdma.clone());
    }
    match indices.iter().collect::<Vec<_>>().as_slice() {
        [] => Gids::Own,
        [(Some(index), _)] => Gids::Index(*index),
        _ => Gids::Differ(indices),
    }
}

fn told(indices: &BTreeMap<Option<u32>, Vec<String>>) -> String {
    let one = |(index, names): (&Option<u32>, &Vec<String>)| {
        let index = index.map_or("none".to_owned(), |index| index.to_string());
        format!("{index} on {}", names.join(", "))
    };
    indices.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The least network that has all rails' networks; none where they are of two families.
fn range(rails: &[&Rail]) -> Option<(IpAddr, u8)> {
    let mut networks = rails.iter().filter(|rail| !rail.is_infiniband()).map(|r| r.network());
    let mut common = networks.next()??;
    for next in networks {
        let (ip, length) = next?;
        if ip.is_ipv4() != common.0.is_ipv4() {
            return None;
        }
        let of = |ip, length| verbgate_host::route::network(ip, length);
        let shortest = length.min(common.1);
        let shared = (0..=shortest).rev().find(|n| of(ip, *n) == of(common.0, *n))?;
        common = (of(common.0, shared), shared);
    }
    Some(common)
}

/// The partition that InfiniBand's ports share: the key's index if it is the same everywhere, and the
/// key. None where there is no such port, or the first entry is the one.
fn partition(rails: &[&Rail]) -> Option<(Option<u32>, u16)> {
    const NUMBER: u16 = 0x7fff;
    let ports: Vec<&&Rail> = rails.iter().filter(|rail| !rail.pkeys.is_empty()).collect();
    let first = ports.first()?;
    let of = |rail: &Rail, key: u16| -> Option<(u32, u16)> {
        let mut own = rail.pkeys.iter();
        own.find(|(_, its)| its & NUMBER == key & NUMBER).copied()
    };
    let (_, shared) =
        first.pkeys.iter().find(|(_, key)| ports.iter().all(|p| of(p, *key).is_some()))?;
    let places: Vec<(u32, u16)> = ports.iter().filter_map(|port| of(port, *shared)).collect();
    let (index, key) = *places.first()?;
    match places.iter().all(|(its, _)| *its == index) {
        true if index == 0 => None,
        true => Some((Some(index), key)),
        false => Some((None, key)),
    }
}
