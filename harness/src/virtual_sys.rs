//! Serving the virtual sysfs of `verbgate run`.

use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;

use verbgate_proxy::GidView;
use verbgate_sys::confine;
use verbgate_sys::sandbox::DeviceNode;
use verbgate_sys::sandbox::Served;
use verbgate_sysfs::DevNumber;
use verbgate_sysfs::collect;
use verbgate_sysfs::collect::SYSFS_ROOT;
use verbgate_sysfs::select::Grant;
use verbgate_sysfs::select::Names;
use verbgate_sysfs::serve;
use verbgate_sysfs::serve::State;

/// What the guest is shown: the granted devices, and all GPUs, since `run` takes none away.
///
/// A stand-in can have the name of a device that is not granted: the number tells them apart.
pub(crate) fn grant(nodes: &[DeviceNode]) -> Grant {
    let known = collect::devices(Path::new(SYSFS_ROOT)).unwrap_or_default();
    let is_device = |node: &&DeviceNode| {
        let number = DevNumber { major: node.rdev.0, minor: node.rdev.1 };
        known.iter().any(|device| device.uverbs == node.name && device.dev == number)
    };
    let rdma = nodes.iter().filter(is_device).map(|node| node.name.clone());
    Grant { rdma: Names::Only(rdma.collect()), gpus: Names::All }
}

/// The sandbox's GIDs, as sysfs asks for them.
struct Shown(Arc<GidView>);

impl verbgate_sysfs::GidView for Shown {
    fn shows(&self, ibdev: &str, port: u32, gid: [u8; 16], netdev: Option<&str>) -> bool {
        self.0.shows(ibdev, port, Ipv6Addr::from(gid), netdev)
    }
}

/// Serves in a thread of its own, which has no capability and ends with the guest's last mount.
pub(crate) fn serve(served: Served, grant: Grant, gids: Arc<GidView>) -> io::Result<()> {
    let state = State::live(served.root, grant, Arc::new(Shown(gids)))
        .map(Arc::new)
        .map_err(io::Error::other)?;
    let fuse = served.fuse;
    let work = move || {
        // Where its own library logs, it is the guest that made it.
        let result = confine::drop_capabilities().and_then(|()| serve::run(state, fuse));
        if let Err(error) = result {
            log::error!("/sys is no longer served: {error}");
        }
    };
    std::thread::Builder::new().name("sysfs".to_owned()).spawn(work).map(drop)
}
