//! A topology file for NCCL (`NCCL_TOPO_FILE`), from the PCI tree that /sys shows: the GPUs, the rails'
//! NICs and the bridges above. Inside a sandbox /sys has that sandbox's devices alone. NCCL's
//! src/graph/xml.cc reads the file, and looks up what is missing.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use verbgate_netdev::Error;
use verbgate_netdev::rails::Rail;
use verbgate_sysfs::Snapshot;
use verbgate_sysfs::record::Detail;
use verbgate_sysfs::record::record;
use verbgate_sysfs::snapshot::Attrs;
use verbgate_sysfs::snapshot::TreeDevice;

/// VGA and 3D controllers, and processing accelerators: base class and subclass.
const GPUS: [u32; 3] = [0x0300, 0x0302, 0x1200];

/// The file's text.
pub(crate) fn of(sysfs: &Path, rails: &[Rail]) -> Result<String, Error> {
    let snapshot = record(sysfs, Detail::Values).map_err(|e| Error::Invalid(e.to_string()))?;
    let functions: BTreeMap<&str, &TreeDevice> = snapshot
        .devices
        .iter()
        .filter(|device| device.is_function())
        .map(|device| (device.path.as_str(), device))
        .collect();
    let nics: BTreeSet<&str> = rails.iter().filter_map(|rail| rail.pci.as_deref()).collect();
    let is_gpu = |device: &TreeDevice| device.class().is_some_and(|class| GPUS.contains(&class));
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    for (path, device) in &functions {
        if is_gpu(device) || nics.contains(device.name()) {
            let above = functions.keys().filter(|at| path.starts_with(&format!("{at}/")));
            shown.extend(above);
            shown.insert(path);
        }
    }
    if !shown.iter().any(|path| functions.get(path).is_some_and(|d| nics.contains(d.name()))) {
        return Err(Error::Invalid(
            "--write-topo: no rail has a PCI function in /sys, so there is no topology to write"
                .to_owned(),
        ));
    }
    let mut nodes: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
    for path in &shown {
        let is_top = !shown.iter().any(|at| path.starts_with(&format!("{at}/")));
        if let (true, Some(device)) = (is_top, functions.get(path)) {
            // A machine that does not tell (-1) has one node.
            let node = value(&device.attrs, "numa_node").parse().unwrap_or(0).max(0);
            nodes.entry(node).or_default().push(path);
        }
    }
    let tree = Tree { snapshot: &snapshot, functions, shown };
    let mut text = "<system version=\"1\">\n".to_owned();
    for (node, tops) in nodes {
        let arch = std::env::consts::ARCH;
        let file = format!("devices/system/node/node{node}/cpumap");
        let affinity = value(&tree.snapshot.attrs, &file);
        text += &format!("  <cpu numaid=\"{node}\" affinity=\"{affinity}\" arch=\"{arch}\">\n");
        tops.iter().for_each(|top| tree.write(top, 2, &mut text));
        text += "  </cpu>\n";
    }
    Ok(text + "</system>\n")
}

struct Tree<'a> {
    snapshot: &'a Snapshot,
    functions: BTreeMap<&'a str, &'a TreeDevice>,
    shown: BTreeSet<&'a str>,
}

impl Tree<'_> {
    /// A function with all that is below.
    fn write(&self, path: &str, depth: usize, text: &mut String) {
        let Some(device) = self.functions.get(path) else { return };
        let (indent, of) = ("  ".repeat(depth), |name: &str| value(&device.attrs, name));
        // As NCCL asks for them: the link at its best, since GPUs rest at a low speed.
        *text += &format!(
            "{indent}<pci busid=\"{}\" class=\"{}\" link_speed=\"{}\" link_width=\"{}\"",
            device.name(),
            of("class"),
            of("max_link_speed"),
            of("max_link_width")
        );
        let below: Vec<&str> = self
            .shown
            .iter()
            .filter(|at| at.rsplit_once('/').is_some_and(|(parent, _)| parent == path))
            .copied()
            .collect();
        if below.is_empty() {
            *text += "/>\n";
            return;
        }
        *text += ">\n";
        below.iter().for_each(|path| self.write(path, depth + 1, text));
        *text += &format!("{indent}</pci>\n");
    }
}

/// An attribute, fit for XML.
fn value(attrs: &Attrs, name: &str) -> String {
    let text = attrs.get(name).and_then(|value| value.text()).unwrap_or_default().trim();
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}
