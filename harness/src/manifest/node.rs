//! A node's manifest, as it is written.

use std::ops::Deref;

use serde::Deserialize;
use serde::Serialize;
use verbgate_netdev::rails;
use verbgate_netdev::verify::Claim;

use super::facts::Facts;
use super::facts::HostFacts;

/// Counts changes of the format.
pub(super) const VERSION: u32 = 2;
/// The remedy for a link that was trained below what it could be.
pub(crate) const DEGRADED: &str = "reseat the card and its riser, compare the firmware's settings of \
                                   the slot (bifurcation, link speed), then look at AER errors \
                                   (dmesg)";

/// A node's manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) node: String,
    #[serde(default)]
    pub(crate) host: HostFacts,
    pub(crate) rails: Vec<Rail>,
}

/// A rail, and the properties that nodes should have alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rail {
    #[serde(flatten)]
    pub(crate) base: rails::Rail,
    #[serde(default)]
    pub(crate) facts: Facts,
}

impl Deref for Rail {
    type Target = rails::Rail;

    fn deref(&self) -> &rails::Rail {
        &self.base
    }
}

impl Manifest {
    /// Addresses and MACs, for verification.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let claim = |rail: &Rail| {
            let nic = format!("{} of {}", rail.name(), self.node);
            Some(Claim { nic, ip: rail.address?, mac: rail.mac.clone() })
        };
        self.rails.iter().filter_map(claim).collect()
    }
}

/// The first few, and how many more.
pub(super) fn some(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).copied().collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
