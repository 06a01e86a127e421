//! The wanted link upon a NIC.

use std::net::IpAddr;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::uapi::*;

use crate::strict::Arp;

/// Kinds of links upon a NIC. The journal has these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A MAC address of its own for each container, mode bridge
    Macvlan,
    /// The NIC's MAC address for all containers, mode l2: for networks that let no other pass
    Ipvlan,
}

impl Kind {
    /// The kernel's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
        }
    }

    pub(super) fn data(self) -> (u16, Vec<u8>) {
        match self {
            Self::Macvlan => (IFLA_MACVLAN_MODE, MACVLAN_MODE_BRIDGE.to_ne_bytes().to_vec()),
            Self::Ipvlan => (IFLA_IPVLAN_MODE, IPVLAN_MODE_L2.to_ne_bytes().to_vec()),
        }
    }
}

/// The wanted link.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The NIC, by its name here.
    pub nic: String,
    /// The link's name in the container; none: the NIC's, or one like it that is free.
    pub name: Option<String>,
    /// Kind of the link.
    pub kind: Kind,
    /// Addresses; without a length, that of the NIC's network which the address is in.
    pub addresses: Vec<(IpAddr, Option<u8>)>,
    /// Gateways of the link's own routing table.
    pub gateways: Vec<IpAddr>,
    /// Way to keep apart links that share a network.
    pub arp: Arp,
}
