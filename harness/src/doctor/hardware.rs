//! Checks of NICs as hardware: the PCIe link, the way between NIC and GPU, the link to the switch.

use verbgate_host::dcb;
use verbgate_host::link;
use verbgate_host::link::Link;
use verbgate_host::netlink::Netlink;
use verbgate_netdev::Error;
use verbgate_netdev::plan;

use super::preflight::Preflight;
use crate::check::Finding;
use crate::check::fail;
use crate::check::pass;
use crate::check::some;
use crate::check::warn;
use crate::manifest::DEGRADED;
use crate::manifest::HostFacts;

/// A link that has come and gone so often since the driver was loaded has a fault; a few times are
/// from boots of the switch.
const FLAPS: u32 = 20;

fn joined(lines: &[String]) -> String {
    some(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(super) fn pcie(facts: &Preflight<'_>) -> Option<Finding> {
    let linked = || facts.hardware.iter().filter_map(|(name, h)| Some((name, h.pcie.as_ref()?)));
    linked().next()?;
    let degraded: Vec<String> = linked()
        .filter(|(_, link)| link.is_degraded())
        .map(|(name, link)| {
            let (width, speed) = (link.able_width, link.able_speed);
            format!("{name} x{} {} GT/s of x{width} {speed} GT/s", link.width, link.speed)
        })
        .collect();
    Some(match degraded.is_empty() {
        true => pass("all as wide and as fast as card and slot allow"),
        false => fail(joined(&degraded), DEGRADED),
    })
}

pub(super) fn slots(facts: &Preflight<'_>) -> Option<Finding> {
    let narrow: Vec<String> = facts
        .hardware
        .iter()
        .filter_map(|(name, hardware)| Some((name, hardware.pcie.as_ref()?)))
        .filter(|(_, link)| link.is_narrow_slot())
        .map(|(name, link)| {
            let (width, speed) = (link.able_width, link.able_speed);
            format!("{name} x{} {} GT/s in x{width} {speed} GT/s", link.card_width, link.card_speed)
        })
        .collect();
    let remedy = "put the card into a slot that has all of its lanes and its speed";
    (!narrow.is_empty()).then(|| warn(joined(&narrow), remedy))
}

/// Whether traffic between a GPU and a NIC turns round at the nearest switch.
pub(super) fn gpu_path(facts: &Preflight<'_>) -> Option<Finding> {
    let all = facts.hardware.iter();
    let redirected: Vec<String> = all
        .clone()
        .filter(|(_, hardware)| !hardware.acs.is_empty())
        .map(|(name, hardware)| format!("{name} by {}", hardware.acs.join(" ")))
        .collect();
    let near: Vec<String> = all
        .filter_map(|(name, hardware)| Some((name, hardware.gpu.as_ref()?)))
        .map(|(name, gpu)| format!("{name} {} {}", gpu.distance, gpu.pci))
        .collect();
    let remedy = "ACS sends traffic between GPU and NIC through the root complex; disable ACS in the \
                  firmware, or on the bridges: setpci -s BRIDGE ECAP_ACS+6.w=0000";
    (!near.is_empty()).then(|| match redirected.is_empty() {
        true => pass(joined(&near)),
        false => warn(joined(&redirected), remedy),
    })
}

pub(super) fn iommu(facts: &Preflight<'_>) -> Option<Finding> {
    let translated: Vec<String> = facts
        .hardware
        .iter()
        .filter_map(|(name, hardware)| Some((name, hardware.iommu.as_ref()?)))
        .filter(|(_, mode)| !matches!(mode.as_str(), "none" | "identity"))
        .map(|(name, mode)| format!("{name} {mode}"))
        .collect();
    has_gpu(facts).then(|| match translated.is_empty() {
        true => pass("off, or passes addresses through"),
        false => warn(
            joined(&translated),
            "boot with iommu=pt: translation slows GPUDirect down, and some GPUs then reach no NIC",
        ),
    })
}

pub(super) fn gpu_memory(facts: &Preflight<'_>) -> Option<Finding> {
    let ways = || HostFacts::of(&facts.host.sysfs_root).gpu_memory;
    has_gpu(facts).then(ways).map(|ways| match ways.is_empty() {
        false => pass(ways.join(", ")),
        true => warn(
            "neither nvidia_peermem nor a driver with dma-buf",
            "modprobe nvidia_peermem, or the open kernel modules from 515 on; without either, NCCL \
             copies through host memory",
        ),
    })
}

fn has_gpu(facts: &Preflight<'_>) -> bool {
    facts.hardware.iter().any(|(_, hardware)| hardware.gpu.is_some())
}

/// The links of RDMA devices, with something of each that netlink tells; what a driver does not tell is not checked.
fn links<T>(
    facts: &Preflight<'_>,
    of: impl Fn(&mut Netlink, &Link) -> Option<T>,
) -> Result<Vec<(String, T)>, Error> {
    let mut netlink = plan::open()?;
    let links = plan::links()?.into_iter().filter(|link| facts.is_rdma(&link.name));
    Ok(links.filter_map(|link| Some((link.name.clone(), of(&mut netlink, &link)?))).collect())
}

pub(super) fn flaps(facts: &Preflight<'_>) -> Result<Option<Finding>, Error> {
    let changes = |netlink: &mut Netlink, link: &Link| {
        link::carrier_changes(netlink, link.index).ok().flatten()
    };
    let flapping: Vec<String> = links(facts, changes)?
        .into_iter()
        .filter(|(_, changes)| *changes > FLAPS)
        .map(|(name, changes)| format!("{name} {changes} times"))
        .collect();
    let remedy = "the link comes and goes: clean or replace cable and module, look at the switch's port \
                  (ethtool -m, FEC)";
    Ok((!flapping.is_empty()).then(|| warn(joined(&flapping), remedy)))
}

pub(super) fn lossless(facts: &Preflight<'_>) -> Result<Option<Finding>, Error> {
    let dcb = |netlink: &mut Netlink, link: &Link| dcb::read(netlink, &link.name).ok().flatten();
    let all = links(facts, dcb)?.into_iter().map(|(name, dcb)| (name, dcb.lossless()));
    let (lossy, lossless): (Vec<_>, Vec<_>) = all.partition(|(_, classes)| classes.is_empty());
    let lossy: Vec<String> = lossy.into_iter().map(|(name, _)| name).collect();
    let lossless: Vec<String> =
        lossless.iter().map(|(name, classes)| format!("{name} {classes:?}")).collect();
    let remedy = "dcb pfc set dev NETDEV prio-pfc 3:on, and the same on the switch; not needed on \
                  networks that are made for loss";
    Ok(match (lossy.is_empty(), lossless.is_empty()) {
        (false, _) => Some(warn(format!("none on {}", joined(&lossy)), remedy)),
        (true, false) => Some(pass(joined(&lossless))),
        (true, true) => None,
    })
}
