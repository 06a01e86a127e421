//! The kernel modules to load before the root is there, and their order.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// What the initial root loads: the disk, its file system, the shares, the output port.
pub(crate) const EARLY: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "virtio_rng",
    "crc32c_generic",
    "crc32c",
    "ext4",
    "9p",
    "9pnet_virtio",
];

/// Folders of modules for hardware that the machine does not have. Without them the image is a
/// quarter of the size.
pub(crate) const UNUSED: &[&str] = &[
    "kernel/sound",
    "kernel/drivers/gpu",
    "kernel/drivers/media",
    "kernel/drivers/net/wireless",
    "kernel/drivers/staging",
    "kernel/drivers/iio",
    "kernel/drivers/hwmon",
    "kernel/drivers/usb",
    "kernel/drivers/scsi",
    "kernel/drivers/input",
    "kernel/drivers/hid",
    "kernel/drivers/bluetooth",
    "kernel/drivers/mfd",
    "kernel/drivers/ata",
    "kernel/drivers/comedi",
    "kernel/drivers/isdn",
    "kernel/drivers/mtd",
    "kernel/drivers/platform",
    "kernel/drivers/thunderbolt",
    "kernel/drivers/accel",
    "kernel/net/bluetooth",
    "kernel/net/wireless",
    "kernel/net/mac80211",
];

/// The files to load, in order, for the wanted modules that the kernel has as modules. `dep` is the
/// text of `modules.dep`: `path: dependency dependency`, each dependency's own included.
///
/// A wanted module that is not there is built in, or of another kernel version.
pub(crate) fn load_order(dep: &str, wanted: &[&str]) -> Vec<String> {
    let mut by_name: BTreeMap<String, (&str, Vec<&str>)> = BTreeMap::new();
    for line in dep.lines() {
        if let Some((path, needs)) = line.split_once(':') {
            by_name.insert(name(path), (path, needs.split_whitespace().collect()));
        }
    }
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for module in wanted {
        if let Some((path, needs)) = by_name.get(&module.replace('-', "_")) {
            // modules.dep lists what must be loaded last first.
            for file in needs.iter().rev().chain([path]) {
                if seen.insert(*file) {
                    order.push((*file).to_owned());
                }
            }
        }
    }
    order
}

/// A module's name from its path: `kernel/fs/9p/9p.ko.xz` is `9p`.
pub(crate) fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/fs/mbcache.ko.xz kernel/lib/crc16.ko.xz\n\
        kernel/fs/jbd2/jbd2.ko.xz:\n\
        kernel/net/9p/9pnet.ko.xz:\n\
        kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
        kernel/drivers/char/virtio-rng.ko.xz:\n";

    #[test]
    fn dependencies_come_first_and_once() {
        let order = load_order(DEP, &["ext4", "jbd2", "not-there", "virtio_rng", "9p"]);
        let names: Vec<String> = order.iter().map(|p| name(p)).collect();
        assert_eq!(
            names,
            ["crc16", "mbcache", "jbd2", "ext4", "virtio_rng", "netfs", "9pnet", "9p"]
        );
    }

    #[test]
    fn names_are_normal() {
        assert_eq!(name("kernel/drivers/char/virtio-rng.ko.zst"), "virtio_rng");
        assert_eq!(name("kernel/fs/9p/9p.ko"), "9p");
    }
}
