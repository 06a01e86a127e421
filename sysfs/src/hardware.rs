//! The hardware of an RDMA device, as far as nodes of a cluster should have it alike: model, firmware
//! and driver, the PCIe link as trained and as possible, and what stands between the NIC and a GPU.
//! Documentation/ABI/testing/sysfs-bus-pci, sysfs-class-infiniband and sysfs-kernel-iommu_groups.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;

use crate::config::Config;
use crate::discover::attribute;
use crate::discover::dir_of;
use crate::discover::names;

/// Bridge between PCI buses: base class and subclass.
const BRIDGE: &str = "0x0604";
/// VGA and 3D controllers, and processing accelerators.
const GPUS: [&str; 3] = ["0x0300", "0x0302", "0x1200"];

/// The hardware of an RDMA device. What the host does not tell is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// `hca_type`, or vendor and device as PCI numbers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `board_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<String>,
    /// `fw_ver`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// The name of the PCI function's driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The PCIe link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Link>,
    /// -1 where the machine does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<i32>,
    /// Type of the function's IOMMU group (`DMA`, `DMA-FQ`, `identity`), or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iommu: Option<String>,
    /// Whether the function may order its writes loosely (PCIe Device Control, bit 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relaxed_ordering: Option<bool>,
    /// The bridges above the NIC that send traffic between devices through the root complex (ACS P2P
    /// request or completion redirect).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acs: Vec<String>,
    /// The nearest GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
}

/// A PCIe link: as it is, and as card and slot allow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Number of lanes in use.
    pub width: u32,
    /// In GT/s.
    pub speed: f64,
    /// Number of lanes that card and slot both have.
    pub able_width: u32,
    /// In GT/s.
    pub able_speed: f64,
    /// Number of lanes that the card has.
    pub card_width: u32,
    /// In GT/s.
    pub card_speed: f64,
}

impl Link {
    /// Whether the link carries less than card and slot allow.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.width < self.able_width || self.speed < self.able_speed
    }

    /// Whether the slot carries less than the card could.
    #[must_use]
    pub fn is_narrow_slot(&self) -> bool {
        self.able_width < self.card_width || self.able_speed < self.card_speed
    }
}

/// A GPU, and how far from a NIC the GPU is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// PCI address.
    pub pci: String,
    /// `PIX` below one switch, `PXB` over several bridges, `PHB` at one root complex, `NODE` at one
    /// NUMA node, `SYS` between nodes: the words of `nvidia-smi topo`.
    pub distance: String,
}

/// The hardware of a device below a sysfs root.
#[must_use]
pub fn of(root: &Path, device: &str) -> Hardware {
    let own = |file: &str| attribute(&dir_of(root, device).join(file));
    let mut found =
        Hardware { board: own("board_id"), firmware: own("fw_ver"), ..Hardware::default() };
    let Some(function) = function(root, device) else {
        found.model = own("hca_type");
        return found;
    };
    let of = |file: &str| attribute(&function.join(file));
    let ids = || Some(format!("{}:{}", of("vendor")?, of("device")?));
    found.model = own("hca_type").or_else(ids);
    found.driver = target(&function.join("driver"));
    found.pcie = link(&function);
    found.numa_node = of("numa_node").and_then(|text| text.parse().ok());
    found.iommu = Some(match function.join("iommu_group").exists() {
        true => of("iommu_group/type").unwrap_or_else(|| "unknown".to_owned()),
        false => "none".to_owned(),
    });
    found.relaxed_ordering = Config::read(&function).and_then(|config| config.relaxed_ordering());
    found.acs = bridges(&function)
        .filter(|bridge| Config::read(bridge).is_some_and(|config| config.redirects()))
        .filter_map(|bridge| Some(bridge.file_name()?.to_str()?.to_owned()))
        .collect();
    found.gpu = nearest(root, &function, found.numa_node);
    found
}

/// The PCI function of an RDMA device: the device's parent, or what the parent hangs on (auxiliary
/// devices).
fn function(root: &Path, device: &str) -> Option<PathBuf> {
    let place = fs::canonicalize(dir_of(root, device).join("device")).ok()?;
    let root = fs::canonicalize(root).ok()?;
    let mut above = place.ancestors().take_while(|at| at.starts_with(&root));
    above.find(|at| at.join("vendor").exists() && at.join("class").exists()).map(Path::to_owned)
}

/// The bridges above a function, the nearest first.
fn bridges(function: &Path) -> impl Iterator<Item = &Path> {
    let is_bridge =
        |at: &&Path| attribute(&at.join("class")).is_some_and(|class| class.starts_with(BRIDGE));
    function.ancestors().skip(1).take_while(is_bridge)
}

fn target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

/// None where the function has no link, or a virtual machine tells of none (width 0, speed Unknown).
fn link(function: &Path) -> Option<Link> {
    let of = |at: &Path, what: &str| -> Option<(u32, f64)> {
        let width = attribute(&at.join(format!("{what}_link_width")))?.parse().ok()?;
        let speed = attribute(&at.join(format!("{what}_link_speed")))?;
        let speed = speed.split_whitespace().next()?.parse().ok()?;
        // 63 and 255: what the kernel makes of registers that nobody answers for.
        (1..=32).contains(&width).then_some((width, speed))
    };
    let (width, speed) = of(function, "current")?;
    let (card_width, card_speed) = of(function, "max")?;
    let slot = bridges(function).next().and_then(|bridge| of(bridge, "max"));
    let (slot_width, slot_speed) = slot.unwrap_or((card_width, card_speed));
    Some(Link {
        width,
        speed,
        able_width: card_width.min(slot_width),
        able_speed: card_speed.min(slot_speed),
        card_width,
        card_speed,
    })
}

/// The GPU that is nearest to a function; the first of several.
fn nearest(root: &Path, function: &Path, numa: Option<i32>) -> Option<Gpu> {
    let all = root.join("bus/pci/devices");
    let gpus = names(&all).unwrap_or_default().into_iter().filter(|name| {
        let class = attribute(&all.join(name).join("class")).unwrap_or_default();
        GPUS.iter().any(|gpu| class.starts_with(gpu))
    });
    let rank = |name: String| {
        let gpu = fs::canonicalize(all.join(&name)).ok()?;
        let node = attribute(&gpu.join("numa_node")).and_then(|text| text.parse().ok());
        Some((distance(function, &gpu, numa == node && numa.is_some_and(|n| n >= 0)), name))
    };
    let (distance, pci) = gpus.filter_map(rank).min_by_key(|(distance, _)| *distance)?;
    let words = ["PIX", "PXB", "PHB", "NODE", "SYS"];
    Some(Gpu { pci, distance: (*words.get(distance)?).to_owned() })
}

/// Place among the words of [`Gpu::distance`].
fn distance(nic: &Path, gpu: &Path, same_node: bool) -> usize {
    /// A port of a switch, and the device.
    const BELOW_ONE_SWITCH: usize = 2;
    let common = nic.components().zip(gpu.components()).take_while(|(a, b)| a == b).count();
    let meets_at: PathBuf = nic.components().take(common).collect();
    let left = |path: &Path| path.components().count() - common;
    let name = meets_at.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match () {
        () if meets_at.join("class").exists() => {
            usize::from(left(nic).max(left(gpu)) > BELOW_ONE_SWITCH)
        }
        () if name.starts_with("pci") => 2,
        () if same_node => 3,
        () => 4,
    }
}
