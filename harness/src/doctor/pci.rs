//! NICs with RDMA on the PCI bus whose modules are not loaded: no driver has them, or none gives them RDMA.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::preflight::Preflight;
use crate::check::Finding;
use crate::check::pass;
use crate::check::some;
use crate::check::warn;

/// Class codes of Ethernet and InfiniBand controllers.
const CLASSES: [&str; 2] = ["0x0200", "0x0207"];

/// Vendors of NICs with RDMA, and for each kind of NIC the kernel's modules for the NIC and for its RDMA devices. The
/// first kind of a vendor is the newest.
const NICS: [(&str, &str, &str); 14] = [
    ("0x15b3", "mlx5_core", "mlx5_ib"),
    ("0x15b3", "mlx4_core", "mlx4_ib"),
    ("0x8086", "ice", "irdma"),
    ("0x8086", "i40e", "irdma"),
    ("0x8086", "idpf", "irdma"),
    ("0x14e4", "bnxt_en", "bnxt_re"),
    ("0x1077", "qede", "qedr"),
    ("0x1425", "cxgb4", "iw_cxgb4"),
    ("0x19e5", "hns3", "hns_roce_hw_v2"),
    ("0x1dd8", "ionic", "ionic_rdma"),
    ("0x1414", "mana", "mana_ib"),
    ("0x1d0f", "efa", "efa"),
    ("0x1ded", "erdma", "erdma"),
    ("0x15ad", "vmw_pvrdma", "vmw_pvrdma"),
];

/// A NIC without a driver, or a driver without RDMA; and the modules that are missing.
pub(super) fn drivers(facts: &Preflight<'_>) -> Option<Finding> {
    let all = facts.host.sysfs_root.join("bus/pci/devices");
    let mut names: Vec<_> = fs::read_dir(all).ok()?.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let nics: Vec<(String, Vec<&str>)> =
        names.iter().filter_map(|nic| missing(nic, facts)).collect();
    if nics.iter().all(|(_, modules)| modules.is_empty()) {
        return (!nics.is_empty()).then(|| pass("every NIC that can have RDMA has its driver"));
    }
    let without = nics.iter().filter(|(_, modules)| !modules.is_empty());
    let found: Vec<&str> = without.clone().map(|(found, _)| found.as_str()).collect();
    let mut modules: Vec<&str> = without.flat_map(|(_, modules)| modules.iter().copied()).collect();
    modules.sort_unstable();
    modules.dedup();
    let remedy = format!(
        "modprobe -a {}; where that changes nothing, the kernel's log says why: dmesg",
        modules.join(" ")
    );
    Some(warn(some(&found), remedy))
}

/// The NIC for people, and the modules that are missing; nothing where the function is no NIC with RDMA.
fn missing(function: &Path, facts: &Preflight<'_>) -> Option<(String, Vec<&'static str>)> {
    let read = |file: &str| {
        fs::read_to_string(function.join(file)).ok().map(|text| text.trim().to_owned())
    };
    let (class, vendor) = (read("class")?, read("vendor")?);
    let mut kinds = NICS.iter().filter(|(of, ..)| *of == vendor).peekable();
    if !CLASSES.iter().any(|known| class.starts_with(known)) || kinds.peek().is_none() {
        return None;
    }
    let name = function.file_name()?.to_string_lossy();
    let name = format!(
        "{name} ({}:{})",
        vendor.trim_start_matches("0x"),
        read("device")?.trim_start_matches("0x")
    );
    let driver = fs::read_link(function.join("driver")).ok();
    let driver = driver.as_ref().and_then(|link| link.file_name()?.to_str());
    let Some(driver) = driver else {
        let known = modules(&read("modalias").unwrap_or_default());
        // The vendor's newest module, where the kernel's own table has no answer.
        let (_, nic, rdma) = match known.is_empty() {
            true => kinds.next(),
            false => kinds.find(|(_, nic, _)| known.iter().any(|one| one == nic)),
        }?;
        return Some((format!("{name} has no driver"), vec![nic, rdma]));
    };
    // Other drivers are for other NICs of the vendor, or have given the NIC to a virtual machine.
    let (_, _, rdma) = kinds.find(|(_, nic, _)| *nic == driver)?;
    // One device can be that of several functions (RoCE over a bond), so none of the driver's is there, or all may be.
    match facts.hardware.iter().any(|(_, one)| one.driver.as_deref() == Some(driver)) {
        true => Some((name, Vec::new())),
        false => Some((format!("{name} has the driver {driver} and no RDMA device"), vec![rdma])),
    }
}

/// The modules that the running kernel has for a device: modprobe(8).
fn modules(alias: &str) -> Vec<String> {
    let output = Command::new("/sbin/modprobe").args(["--resolve-alias", "--", alias]).output();
    let output = output.ok().filter(|output| output.status.success());
    let text = output.map_or_else(String::new, |o| String::from_utf8_lossy(&o.stdout).into_owned());
    text.lines().map(|line| line.trim().replace('-', "_")).collect()
}
