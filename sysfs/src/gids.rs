//! The GIDs that a sandbox may see.

use std::collections::BTreeSet;

use crate::snapshot::Rdma;

/// Which GIDs of a port a sandbox may see.
///
/// A GID that is not shown is masked, never renumbered: its index reads as that of an empty entry
/// does (drivers/infiniband/core/sysfs.c: `gids/I` all zeros; `gid_attrs/types/I` and
/// `gid_attrs/ndevs/I` fail with EINVAL).
pub trait GidView: Send + Sync {
    /// Whether the sandbox may see `gid` of port `port` (from 1) of the device `ibdev`.
    ///
    /// `netdev` is the interface that `gid_attrs/ndevs/I` names, by its name in its own network
    /// namespace; InfiniBand ports have none.
    fn shows(&self, ibdev: &str, port: u32, gid: [u8; 16], netdev: Option<&str>) -> bool;

    /// The number of entries that the port's table has for the sandbox: no file tells of those
    /// behind. None where that is the host's own.
    fn length(&self, _ibdev: &str, _port: u32) -> Option<u32> {
        None
    }

    /// The number of slots of the host's table, from the first, of which there is anything to know: entries of
    /// anybody, and room for the next ones. None where that is not known.
    fn slots(&self, _ibdev: &str, _port: u32) -> Option<u32> {
        None
    }

    /// Whether others speak by the port, too, so that its counters tell of others.
    fn is_shared(&self, _ibdev: &str, _port: u32) -> bool {
        false
    }

    /// One of the `hw_counters` of a shared port, over the sandbox's own queue pairs alone; none
    /// where the device does not count them apart.
    fn counter(&self, _ibdev: &str, _port: u32, _name: &str) -> Option<u64> {
        None
    }
}

/// Shows every GID.
#[derive(Clone, Copy, Default, Debug)]
pub struct AllGids;

impl GidView for AllGids {
    fn shows(&self, _: &str, _: u32, _: [u8; 16], _: Option<&str>) -> bool {
        true
    }
}

/// What an empty or masked index reads as.
pub const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000\n";

/// An entry of a port's table that is not empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The interface it belongs to.
    pub netdev: Option<String>,
    /// Whether the sandbox may see it.
    pub shown: bool,
}

/// The tables of GIDs.
pub trait Ports {
    /// The entry at an index; `None` for an empty one.
    fn gid(&self, rdma: &Rdma, port: u32, index: u32) -> Option<Entry>;

    /// See [`GidView::length`].
    fn length(&self, _rdma: &Rdma, _port: u32) -> Option<u32> {
        None
    }

    /// The interfaces that any GID of the device names, masked ones included.
    fn netdevs(&self, rdma: &Rdma) -> BTreeSet<String> {
        let ports = rdma.ports().flat_map(|port| rdma.gids(port).map(move |index| (port, index)));
        ports.filter_map(|(port, index)| self.gid(rdma, port, index)?.netdev).collect()
    }
}

/// Reads a GID as sysfs writes it: eight groups of four hex digits.
#[must_use]
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let mut gid = [0u8; 16];
    let mut groups = text.trim().split(':');
    for pair in gid.chunks_exact_mut(2) {
        let group = groups.next().filter(|group| group.len() == 4)?;
        pair.copy_from_slice(&u16::from_str_radix(group, 16).ok()?.to_be_bytes());
    }
    groups.next().is_none().then_some(gid)
}

/// Reads one entry; `raw` reads a file of the port's directory.
pub(crate) fn entry(
    view: &dyn GidView,
    ibdev: &str,
    port: u32,
    index: u32,
    raw: impl Fn(&str) -> Option<String>,
) -> Option<Entry> {
    let gid = parse(&raw(&format!("gids/{index}"))?)?;
    if gid == [0; 16] {
        return None;
    }
    let netdev = raw(&format!("gid_attrs/ndevs/{index}")).map(|name| name.trim().to_owned());
    let netdev = netdev.filter(|name| !name.is_empty());
    let shown = view.shows(ibdev, port, gid, netdev.as_deref());
    Some(Entry { netdev, shown })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_read_as_sysfs_writes_them() {
        let gid = parse("0000:0000:0000:0000:0000:ffff:0a63:0001\n").unwrap();
        assert_eq!(gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 1]);
        assert_eq!(parse(EMPTY), Some([0; 16]));
        for bad in ["", "fe80::1", "0000:0000", "00000:000:0000:0000:0000:0000:0000:0000"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
