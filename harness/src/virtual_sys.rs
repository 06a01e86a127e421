//! What a sandbox sees of RDMA: its GIDs, and the virtual sysfs.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;

use verbgate_proxy::DeviceView;
use verbgate_proxy::GidView;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
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

    fn length(&self, ibdev: &str, port: u32) -> Option<u32> {
        self.0.length(ibdev, port)
    }
}

/// One view, whoever asks and by whichever way.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    pub(crate) gids: Arc<GidView>,
    /// Where it is served.
    sysfs: Arc<OnceLock<Arc<State>>>,
}

impl Views {
    /// Those of who is in the network namespace of a process.
    pub(crate) fn of(guest: Tgid) -> io::Result<Self> {
        let gids = GidView::of(Tid(guest.0)).map_err(|e| {
            let what = "cannot see the links of the program's network namespace";
            io::Error::new(e.kind(), format!("{what}: {e}"))
        })?;
        Ok(Self { gids: Arc::new(gids), sysfs: Arc::default() })
    }

    /// Serves sysfs in a thread of its own, which has no capability and ends with the guest's last
    /// mount.
    pub(crate) fn serve(&self, served: Served, grant: Grant) -> io::Result<()> {
        let view = Arc::new(Shown(Arc::clone(&self.gids)));
        let state = State::live(served.root, grant, view).map_err(io::Error::other)?;
        serve(Arc::clone(self.sysfs.get_or_init(|| Arc::new(state))), served.fuse)
    }
}

impl DeviceView for Views {
    fn shows(&self, node: &str) -> bool {
        self.sysfs.get().is_none_or(|sysfs| sysfs.shows(node))
    }
}

fn serve(state: Arc<State>, fuse: OwnedFd) -> io::Result<()> {
    let work = move || {
        // Where its own library logs, it is the guest that made it.
        let result = confine::drop_capabilities().and_then(|()| serve::run(state, fuse));
        if let Err(error) = result {
            log::error!("/sys is no longer served: {error}");
        }
    };
    std::thread::Builder::new().name("sysfs".to_owned()).spawn(work).map(drop)
}
