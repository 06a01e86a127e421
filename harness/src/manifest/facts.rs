//! The facts of hosts and ports that nodes should have alike.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::dcb;
use verbgate_host::dcb::Dcb;
use verbgate_host::link;
use verbgate_netdev::plan;
use verbgate_netdev::rails;
use verbgate_sysfs::discover::PortDir;
use verbgate_sysfs::hardware;
use verbgate_sysfs::hardware::Hardware;
use verbgate_verbs::ethtool;

use super::node::Rail;

/// Counters of symbols that were wrong on the wire: InfiniBand's, and those of Ethernet drivers.
const SYMBOL_ERRORS: [&str; 3] = ["symbol_error", "rx_symbol_err_phy", "rx_symbol_error_phy"];
/// Modules that let a NIC reach a GPU's memory.
const PEER_MEMORY: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];
/// First driver of NVIDIA's whose memory can be had as a dma-buf.
const DMA_BUF_SINCE: u32 = 515;

/// The facts of a port. What nobody tells is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Facts {
    #[serde(flatten)]
    pub(crate) hardware: Hardware,
    /// The classes of traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dcb: Option<Dcb>,
    /// The forward error correction in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fec: Option<String>,
    /// How often the link has come and gone since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) carrier_changes: Option<u32>,
    /// Wrong symbols since the driver was loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) symbol_errors: Option<u64>,
    /// ECN by priority, where the driver has it in sysfs (`ecn/roce_np/enable`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ecn: BTreeMap<String, String>,
}

/// The facts of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HostFacts {
    pub(crate) kernel: String,
    /// The ways by which a NIC can reach a GPU's memory: a module, or `dma-buf`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gpu_memory: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_driver: Option<String>,
}

impl HostFacts {
    /// Of this host.
    pub(crate) fn of(sysfs: &Path) -> Self {
        let read = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned());
        let module = |name: &str| sysfs.join("module").join(name);
        let mut gpu_memory: Vec<String> =
            PEER_MEMORY.iter().filter(|m| module(m).exists()).map(|m| (*m).to_owned()).collect();
        let gpu_driver = read(&module("nvidia").join("version")).ok();
        let major = gpu_driver.as_ref().and_then(|version| version.split('.').next()?.parse().ok());
        let is_new = major.is_some_and(|major: u32| major >= DMA_BUF_SINCE);
        if is_new || module("amdgpu").exists() {
            gpu_memory.push("dma-buf".to_owned());
        }
        let kernel = read(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        Self { kernel, gpu_memory, gpu_driver }
    }
}

/// Rails with their facts; runs in the rails' network namespace.
pub(super) fn with_facts(found: Vec<rails::Rail>, sysfs: &Path) -> Vec<Rail> {
    found.into_iter().map(|base| Rail { facts: facts(&base, sysfs), base }).collect()
}

fn facts(port: &rails::Rail, sysfs: &Path) -> Facts {
    let hardware = hardware::of(sysfs, &port.rdma);
    let mut found = Facts { hardware, ..Facts::default() };
    let counters = PortDir::new(sysfs, &port.rdma, port.port).counters("counters");
    let mut counters: BTreeMap<String, u64> = counters.into_iter().collect();
    if let Some(netdev) = &port.netdev {
        // What a driver does not tell is no fact.
        counters.extend(ethtool::statistics(netdev).unwrap_or_default());
        found.fec = ethtool::fec(netdev).ok();
        if let Ok(mut netlink) = plan::open() {
            found.dcb = dcb::read(&mut netlink, netdev).ok().flatten();
            let links = plan::links().unwrap_or_default();
            found.carrier_changes = links
                .iter()
                .find(|link| link.name == *netdev)
                .and_then(|link| link::carrier_changes(&mut netlink, link.index).ok().flatten());
        }
        found.ecn = ecn(&sysfs.join("class/net").join(netdev).join("ecn"));
    }
    found.symbol_errors = SYMBOL_ERRORS.iter().find_map(|name| counters.get(*name).copied());
    found
}

/// `ecn/roce_np/enable/3` and the like: the drivers of MLNX_OFED and DOCA have them.
fn ecn(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for side in ["roce_np", "roce_rp"] {
        let entries = fs::read_dir(dir.join(side).join("enable")).into_iter().flatten().flatten();
        for entry in entries {
            if let Ok(value) = fs::read_to_string(entry.path()) {
                let priority = entry.file_name().to_string_lossy().into_owned();
                found.insert(format!("{side}/{priority}"), value.trim().to_owned());
            }
        }
    }
    found
}
