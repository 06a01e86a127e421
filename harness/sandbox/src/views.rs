//! The views of a sandbox: its GIDs, and its virtual sysfs.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::OnceLock;

use verbgate_proxy::Counted;
use verbgate_proxy::DeviceView;
use verbgate_proxy::GidView;
use verbgate_proxy::index_of;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::confine;
use verbgate_sys::sandbox::Keep;
use verbgate_sys::sandbox::Served;
use verbgate_sysfs::Identity;
use verbgate_sysfs::select::Names;
use verbgate_sysfs::serve;
use verbgate_sysfs::serve::State;

use crate::grant::Granted;
use crate::threads;

/// What of a served `/sys` is the host's own.
pub const KEEP: Keep<'static> = Keep {
    dirs: verbgate_sysfs::KEPT,
    judged: verbgate_sysfs::JUDGED,
    plain: verbgate_sysfs::PLAIN,
};

/// The RDMA devices that the guest sees: devices that are granted by their own names.
///
/// A stand-in can have the name of a device that is not granted, and has no name of its own in
/// sysfs.
pub fn shown(granted: &[Granted]) -> Vec<Identity> {
    let own = granted.iter().filter(|one| one.identity.uverbs() == Some(&one.name));
    own.map(|one| one.identity.clone()).collect()
}

/// The sandbox's GIDs and counters, as sysfs asks for them.
struct Shown(Views);

impl verbgate_sysfs::GidView for Shown {
    fn shows(&self, ibdev: &str, port: u32, gid: [u8; 16], netdev: Option<&str>) -> bool {
        self.0.gids.shows(ibdev, port, Ipv6Addr::from(gid), netdev)
    }

    fn length(&self, ibdev: &str, port: u32) -> Option<u32> {
        self.0.gids.length(ibdev, port)
    }

    fn slots(&self, ibdev: &str, port: u32) -> Option<u32> {
        self.0.gids.slots(ibdev, port)
    }

    fn is_shared(&self, ibdev: &str, port: u32) -> bool {
        self.0.gids.is_shared(ibdev, port)
    }

    fn counter(&self, ibdev: &str, port: u32, name: &str) -> Option<u64> {
        self.0.counted.as_ref()?.of_port(ibdev, port)?.get(name).copied()
    }
}

/// The views of a sandbox: every question gets the same answer, in whatever way somebody asks.
#[derive(Clone, Debug)]
pub struct Views {
    pub(crate) gids: Arc<GidView>,
    /// What the devices count of the sandbox's own queue pairs, where they do.
    pub(crate) counted: Option<Arc<Counted>>,
    /// The served sysfs.
    sysfs: Arc<OnceLock<Arc<State>>>,
}

impl Views {
    /// The views of a guest that is in the network namespace of a process, and is granted these
    /// devices.
    pub fn of(guest: Tgid, granted: &[Granted]) -> io::Result<Self> {
        let identities = granted.iter().map(|one| one.identity.clone()).collect();
        let gids = GidView::of(Tid(guest.0), identities).map_err(|e| {
            let what = "cannot see the links of the program's network namespace";
            io::Error::new(e.kind(), format!("{what}: {e}"))
        })?;
        let counted = counted(granted)
            .inspect_err(|e| log::debug!("queue pairs are not counted one by one: {e}"));
        let (gids, counted) = (Arc::new(gids), counted.ok().map(Arc::new));
        Ok(Self { gids, counted, sysfs: Arc::default() })
    }

    /// How many served files of `/sys` the sandbox has opened.
    pub(crate) fn files_opened(&self) -> u64 {
        self.sysfs.get().map_or(0, |state| state.files_opened())
    }

    /// Serves sysfs with these RDMA devices and all GPUs (since `run` takes no GPU away), in a
    /// thread of its own, which has no capability and ends with the guest's last mount.
    pub fn serve(&self, served: Served, shown: Vec<Identity>) -> io::Result<()> {
        let view = Arc::new(Shown(self.clone()));
        let state = State::granting(served.root, shown, Names::All, view);
        let state = state.map_err(io::Error::other)?;
        serve(Arc::clone(self.sysfs.get_or_init(|| Arc::new(state))), served.fuse)
    }
}

impl DeviceView for Views {
    fn shows(&self, node: &str) -> bool {
        self.sysfs.get().is_none_or(|sysfs| sysfs.shows(node))
    }
}

/// Has the queue pairs of granted devices counted apart from those of others.
fn counted(granted: &[Granted]) -> io::Result<Counted> {
    let mut known = Vec::new();
    for one in granted {
        if let (Some(name), Some(index)) = (one.identity.ibdev(), index_of(one.rdev)?) {
            known.push((name.to_owned(), index));
        }
    }
    Counted::of(&known)
}

fn serve(state: Arc<State>, fuse: OwnedFd) -> io::Result<()> {
    threads::keep_small();
    let work = move || {
        // Where its own library logs, it is the guest that made it.
        let result = confine::drop_capabilities().and_then(|()| serve::run(state, fuse));
        if let Err(error) = result {
            log::error!("the supervisor no longer serves /sys: {error}; start the sandbox again");
        }
    };
    std::thread::Builder::new().name("sysfs".to_owned()).spawn(work).map(drop)
}
