//! The FUSE server of the tree.
//!
//! Names are cached by the guest's kernel for a minute, classes and links for a moment, values
//! never: each read of an attribute is a read of the host's. What is not judged at each read
//! ([`JUDGED`]) need not be served: whoever mounts the tree mounts the host's directories over it. When the server dies, its descriptor
//! closes, and the kernel answers what waits, and all that comes later, with ENOTCONN.

mod guards;
mod numbered;
mod server;
mod state;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use fuser::Config;
use fuser::MountOption;
use fuser::Session;
use fuser::SessionACL;

use self::server::SysfsServer;
pub use self::state::JUDGED;
pub use self::state::PLAIN;
pub use self::state::State;

/// Two, so that an attribute whose driver takes its time holds up nobody else.
const THREADS: usize = 2;

fn session_config() -> Config {
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    config
}

/// Serves on a descriptor of `/dev/fuse` that is mounted already, until it is unmounted.
///
/// # Errors
/// read(2)'s and write(2)'s of `/dev/fuse`.
pub fn run(state: Arc<State>, fuse: OwnedFd) -> io::Result<()> {
    let server = SysfsServer::new(state);
    Session::from_fd(server, fuse, SessionACL::All, session_config())?.run()
}

/// A mount of ours; unmounted when it is dropped.
pub struct Mounted {
    session: Session<SysfsServer>,
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted").finish_non_exhaustive()
    }
}

/// Mounts on a directory, read-only, for every user.
///
/// # Errors
/// mount(2)'s, and those of fusermount3(1) for a caller without privileges.
pub fn mount(state: Arc<State>, dir: &Path) -> io::Result<Mounted> {
    let mut config = session_config();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
        MountOption::DefaultPermissions,
        MountOption::FSName("verbgate".to_owned()),
        MountOption::CUSTOM("max_read=4096".to_owned()),
    ];
    Ok(Mounted { session: Session::new(SysfsServer::new(state), dir, &config)? })
}

impl Mounted {
    /// What unmounts it, from another thread; [`Mounted::run`] returns then.
    pub fn unmounter(&mut self) -> impl FnOnce() -> io::Result<()> + Send + 'static + use<> {
        let mut unmounter = self.session.unmount_callable();
        move || unmounter.unmount()
    }

    /// Serves until it is unmounted.
    ///
    /// # Errors
    /// read(2)'s and write(2)'s of `/dev/fuse`.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}
