//! Which GIDs a sandbox may see.

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
}

/// Shows every GID.
#[derive(Clone, Copy, Default, Debug)]
pub struct AllGids;

impl GidView for AllGids {
    fn shows(&self, _: &str, _: u32, _: [u8; 16], _: Option<&str>) -> bool {
        true
    }
}
