//! The contents of files in the tree: recorded or live, with masked GIDs empty.

use std::fmt;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;

use rustix::fs::AtFlags;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::Stat;

use crate::gids;
use crate::gids::GidView;
use crate::record::read;
use crate::snapshot::Access;
use crate::snapshot::Rdma;
use crate::tree::File;
use crate::tree::GidFile;
use crate::tree::Kind;
use crate::tree::NodeId;
use crate::tree::Tree;

/// Where values come from.
#[derive(Debug)]
pub enum Source {
    /// From the snapshot.
    Recorded,
    /// From the sysfs below this directory, at each read.
    Live(OwnedFd),
}

impl Source {
    /// Reads a file of the host; ENODEV for one that is gone.
    pub(crate) fn host(&self, path: &str) -> Result<Vec<u8>, i32> {
        let Self::Live(root) = self else {
            return Err(libc::ENODEV);
        };
        // What is recorded has no links on its way; the host may be a tree made by hand.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = rustix::fs::openat(root.as_fd(), path, flags, Mode::empty());
        let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let file = open.map_err(|error| match error {
            rustix::io::Errno::NOENT => libc::ENODEV,
            other => other.raw_os_error(),
        })?;
        read::limited(&std::fs::File::from(file), path).map_err(errno)
    }

    /// Who may read a file of the host; none when that is gone.
    pub(crate) fn access(&self, path: &str) -> Option<Access> {
        let Self::Live(root) = self else { return None };
        let file = rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let roots = rustix::fs::fstat(root).ok()?;
        let owner = |stat: &Stat| (stat.st_uid, stat.st_gid);
        Some(Access::of(file.st_mode, owner(&file), owner(&roots)))
    }
}

/// Reads the files of a tree.
pub struct Contents<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// Where values come from.
    pub source: &'a Source,
    /// Which GIDs are shown.
    pub view: &'a dyn GidView,
}

impl fmt::Debug for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Contents<'_> {
    /// What a read of the file gives.
    ///
    /// # Errors
    /// The errno: the host's own; ENODEV for what is gone; EINVAL for the attributes of a masked
    /// GID, as for those of an empty one.
    pub fn read(&self, id: NodeId) -> Result<Vec<u8>, i32> {
        match self.tree.kind(id) {
            Some(Kind::File(file)) => match &file.gid {
                Some(gid) => self.gid_file(id, file, gid),
                None if self.counts_others(id) => self.own_count(id).ok_or(libc::EACCES),
                None => self.raw(id, file),
            },
            Some(Kind::Dir(_)) => Err(libc::EISDIR),
            Some(Kind::Link(_)) => Err(libc::EINVAL),
            None => Err(libc::ENODEV),
        }
    }

    /// What a file of a shared port counts of the sandbox's own.
    fn own_count(&self, id: NodeId) -> Option<Vec<u8>> {
        let path = self.tree.path(id);
        let (ibdev, port) = counter(&path)?;
        let (dir, name) = path.rsplit_once('/')?;
        let value = dir.ends_with("/hw_counters").then(|| self.view.counter(ibdev, port?, name));
        Some(format!("{}\n", value??).into_bytes())
    }

    /// Whether a file counts what goes through a port, and others speak by that port, too. A
    /// device's own counters are those of all of its ports.
    fn counts_others(&self, id: NodeId) -> bool {
        let path = self.tree.path(id);
        let Some((ibdev, port)) = counter(&path) else { return false };
        match port {
            Some(port) => self.view.is_shared(ibdev, port),
            None => {
                let ports =
                    path.rsplit_once("/hw_counters/").map(|(dir, _)| format!("{dir}/ports"));
                let ports = ports.and_then(|ports| self.tree.find(&ports));
                let ports = ports.into_iter().flat_map(|ports| self.tree.entries(ports));
                let numbers = ports.filter_map(|port| self.tree.name(*port).parse().ok());
                numbers.into_iter().any(|port| self.view.is_shared(ibdev, port))
            }
        }
    }

    fn raw(&self, id: NodeId, file: &File) -> Result<Vec<u8>, i32> {
        match self.source {
            Source::Recorded => match &file.value {
                Some(value) => value.read().map(Vec::from),
                None => Err(libc::EIO),
            },
            Source::Live(_) => self.source.host(&self.tree.host_path(id)),
        }
    }

    fn gid_file(&self, id: NodeId, file: &File, gid: &GidFile) -> Result<Vec<u8>, i32> {
        let port_dir = self.tree.path(gid.port_dir);
        let mut names = port_dir.rsplit('/');
        let (port, ibdev) = (names.next().and_then(|port| port.parse().ok()), names.nth(1));
        let (Some(port), Some(ibdev)) = (port, ibdev) else {
            return Err(libc::ENODEV);
        };
        // Read once, and judged by what was read: an entry that comes in between is not shown
        // unjudged.
        let value = self.raw(id, file);
        let own = self.tree.path(id);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let entry = gids::entry(self.view, ibdev, port, gid.index, |name| {
            let path = format!("{port_dir}/{name}");
            if path == own {
                return text(value.as_ref().ok()?);
            }
            let sibling = self.tree.find(&path)?;
            match self.tree.kind(sibling) {
                Some(Kind::File(file)) => text(&self.raw(sibling, file).ok()?),
                _ => None,
            }
        });
        let shown = entry.filter(|entry| entry.shown);
        if !gid.is_gid {
            return if shown.is_some() { value } else { Err(libc::EINVAL) };
        }
        let value = value?;
        Ok(if shown.is_some() { value } else { gids::EMPTY.into() })
    }
}

/// The device, and the port, of a file of counters: `DEVICE/ports/P/counters/NAME`,
/// `DEVICE/ports/P/hw_counters/NAME` and `DEVICE/hw_counters/NAME`
/// (Documentation/ABI/stable/sysfs-class-infiniband). Messages of connections are counted, too, in
/// `DEVICE/ports/P/cm_rx_msgs` and the like (drivers/infiniband/core/cm.c), and whatever another kernel
/// or driver has below a port is taken for counters.
fn counter(path: &str) -> Option<(&str, Option<u32>)> {
    const TABLES: &[&str] = &["gids", "gid_attrs", "pkeys"];
    let (_, rest) = path.split_once("/infiniband/")?;
    let names: Vec<&str> = rest.split('/').collect();
    match *names {
        [device, "ports", port, dir, _, ..] if !TABLES.contains(&dir) => {
            Some((device, Some(port.parse().ok()?)))
        }
        [device, "hw_counters", _] => Some((device, None)),
        _ => None,
    }
}

/// The tables of GIDs, for [`crate::select::select`].
pub struct Tables<'a> {
    /// Where values come from.
    pub source: &'a Source,
    /// Which GIDs are shown.
    pub view: &'a dyn GidView,
}

impl fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("source", &self.source).finish_non_exhaustive()
    }
}

impl gids::Ports for Tables<'_> {
    fn length(&self, rdma: &Rdma, port: u32) -> Option<u32> {
        self.view.length(&rdma.name, port)
    }

    fn gid(&self, rdma: &Rdma, port: u32, index: u32) -> Option<gids::Entry> {
        gids::entry(self.view, &rdma.name, port, index, |file| {
            let key = format!("ports/{port}/{file}");
            match self.source {
                Source::Recorded => {
                    let bytes = rdma.attrs.get(&key)?.read().ok()?.into_owned();
                    String::from_utf8(bytes).ok()
                }
                Source::Live(_) => {
                    let bytes = self.source.host(&format!("{}/{key}", rdma.path)).ok()?;
                    String::from_utf8(bytes).ok()
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_known_by_their_place() {
        let of =
            |rest: &str| counter(&format!("devices/pci0/infiniband/mlx5_0/{rest}")).map(|c| c.1);
        assert_eq!(of("ports/2/counters/port_xmit_data"), Some(Some(2)));
        assert_eq!(of("ports/1/hw_counters/out_of_sequence"), Some(Some(1)));
        assert_eq!(of("ports/1/cm_rx_msgs/req"), Some(Some(1)));
        assert_eq!(of("hw_counters/lifespan"), Some(None));
        assert_eq!(of("ports/1/of_a_later_kernel/x"), Some(Some(1)));
        for other in ["ports/1/gids/0", "ports/1/gid_attrs/types/0", "ports/1/pkeys/0"] {
            assert_eq!(of(other), None, "{other}");
        }
        for other in ["ports/1/state", "node_guid", "ports/1/counters"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
