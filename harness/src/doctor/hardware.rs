//! Checks of NICs as hardware: the PCIe link, the way between NIC and GPU, the link to the switch.

use std::path::Path;

use verbgate_host::dcb;
use verbgate_host::link;
use verbgate_netdev::Error;
use verbgate_netdev::plan;
use verbgate_sysfs::discover::Device;
use verbgate_sysfs::hardware;
use verbgate_sysfs::hardware::Hardware;

use super::Check;
use super::fail;
use super::pass;
use super::some;
use super::warn;
use crate::manifest::DEGRADED;
use crate::manifest::HostFacts;

/// A link that has come and gone so often since the driver was loaded has a fault; a few times are
/// from boots of the switch.
const FLAPS: u32 = 20;

/// All checks of hardware that this host has.
pub(super) fn checks(sysfs: &Path, devices: &[Device]) -> Result<Vec<Check>, Error> {
    let all: Vec<(&str, Hardware)> =
        devices.iter().map(|d| (d.name.as_str(), hardware::of(sysfs, &d.name))).collect();
    let mut found = Vec::new();
    found.extend(pcie(&all));
    found.extend(slots(&all));
    if all.iter().any(|(_, hardware)| hardware.gpu.is_some()) {
        found.extend([gpu_path(&all), iommu(&all), gpu_memory(&HostFacts::of(sysfs))]);
    }
    found.extend(links(devices)?);
    Ok(found)
}

fn joined(lines: &[String]) -> String {
    some(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn pcie(all: &[(&str, Hardware)]) -> Option<Check> {
    const NAME: &str = "PCIe links";
    let linked = || all.iter().filter_map(|(name, h)| Some((name, h.pcie.as_ref()?)));
    linked().next()?;
    let degraded: Vec<String> = linked()
        .filter(|(_, link)| link.is_degraded())
        .map(|(name, link)| {
            let (width, speed) = (link.able_width, link.able_speed);
            format!("{name} x{} {} GT/s of x{width} {speed} GT/s", link.width, link.speed)
        })
        .collect();
    Some(match degraded.is_empty() {
        true => pass(NAME, "all as wide and as fast as card and slot allow"),
        false => fail(NAME, joined(&degraded), DEGRADED),
    })
}

fn slots(all: &[(&str, Hardware)]) -> Option<Check> {
    let narrow: Vec<String> = all
        .iter()
        .filter_map(|(name, hardware)| Some((name, hardware.pcie.as_ref()?)))
        .filter(|(_, link)| link.is_narrow_slot())
        .map(|(name, link)| {
            let (width, speed) = (link.able_width, link.able_speed);
            format!("{name} x{} {} GT/s in x{width} {speed} GT/s", link.card_width, link.card_speed)
        })
        .collect();
    let remedy = "put the card into a slot that has all of its lanes and its speed";
    (!narrow.is_empty()).then(|| warn("PCIe slots", joined(&narrow), remedy))
}

/// Whether traffic between a GPU and a NIC turns round at the nearest switch.
fn gpu_path(all: &[(&str, Hardware)]) -> Check {
    const NAME: &str = "GPU to NIC";
    let redirected: Vec<String> = all
        .iter()
        .filter(|(_, hardware)| !hardware.acs.is_empty())
        .map(|(name, hardware)| format!("{name} by {}", hardware.acs.join(" ")))
        .collect();
    let remedy = "ACS sends traffic between GPU and NIC through the root complex; disable ACS in the \
                  firmware, or on the bridges: setpci -s BRIDGE ECAP_ACS+6.w=0000";
    match redirected.is_empty() {
        true => {
            let near = |(name, hardware): &(&str, Hardware)| {
                let gpu = hardware.gpu.as_ref()?;
                Some(format!("{name} {} {}", gpu.distance, gpu.pci))
            };
            pass(NAME, joined(&all.iter().filter_map(near).collect::<Vec<_>>()))
        }
        false => warn(NAME, joined(&redirected), remedy),
    }
}

fn iommu(all: &[(&str, Hardware)]) -> Check {
    const NAME: &str = "IOMMU";
    let translated: Vec<String> = all
        .iter()
        .filter_map(|(name, hardware)| Some((name, hardware.iommu.as_ref()?)))
        .filter(|(_, mode)| !matches!(mode.as_str(), "none" | "identity"))
        .map(|(name, mode)| format!("{name} {mode}"))
        .collect();
    match translated.is_empty() {
        true => pass(NAME, "off, or passes addresses through"),
        false => warn(
            NAME,
            joined(&translated),
            "boot with iommu=pt: translation slows GPUDirect down, and some GPUs then reach no NIC",
        ),
    }
}

fn gpu_memory(host: &HostFacts) -> Check {
    const NAME: &str = "GPU memory";
    match host.gpu_memory.is_empty() {
        false => pass(NAME, host.gpu_memory.join(", ")),
        true => warn(
            NAME,
            "neither nvidia_peermem nor a driver with dma-buf",
            "modprobe nvidia_peermem, or the open kernel modules from 515 on; without either, NCCL \
             copies through host memory",
        ),
    }
}

/// The links to the switch, as netlink and DCB tell.
fn links(devices: &[Device]) -> Result<Vec<Check>, Error> {
    let mut netlink = plan::open()?;
    let is_rdma = |name: &str| devices.iter().any(|device| device.port_of(name).is_some());
    let (mut flapping, mut lossless, mut lossy) = (Vec::new(), Vec::new(), Vec::new());
    for link in plan::links()?.iter().filter(|link| is_rdma(&link.name)) {
        // What a driver does not tell is not checked.
        let changes = link::carrier_changes(&mut netlink, link.index).ok().flatten();
        if let Some(changes) = changes.filter(|changes| *changes > FLAPS) {
            flapping.push(format!("{} {changes} times", link.name));
        }
        match dcb::read(&mut netlink, &link.name).ok().flatten().map(|dcb| dcb.lossless()) {
            None => {}
            Some(priorities) if priorities.is_empty() => lossy.push(link.name.clone()),
            Some(priorities) => lossless.push(format!("{} {priorities:?}", link.name)),
        }
    }
    let mut found = Vec::new();
    if !flapping.is_empty() {
        let remedy = "the link comes and goes: clean or replace cable and module, look at the \
                      switch's port (ethtool -m, FEC)";
        found.push(warn("link flaps", joined(&flapping), remedy));
    }
    if !lossy.is_empty() {
        let remedy = "dcb pfc set dev NETDEV prio-pfc 3:on, and the same on the switch; not needed on \
                      networks that are made for loss";
        found.push(warn("lossless classes", format!("none on {}", joined(&lossy)), remedy));
    } else if !lossless.is_empty() {
        found.push(pass("lossless classes", joined(&lossless)));
    }
    Ok(found)
}
