//! Options from the program that calls this crate: how containers get RDMA, and how hooks call the
//! program again.

use std::ffi::OsString;
use std::path::PathBuf;

/// The hidden command that hooks give.
pub const HOOK: &str = "oci-hook";
/// The hidden command of supervisors.
pub const SUPERVISOR: &str = "oci-supervisor";

/// The hidden command of what moves NICs.
pub const KEEPER: &str = "oci-netdevs";

/// The part of a command line that goes to the command's own processes too.
#[derive(Clone, Debug)]
pub struct Globals {
    /// The directory of run-time state.
    pub root: PathBuf,
    /// The options of the log, before the command.
    pub log: Vec<OsString>,
}

/// Options of the OCI runtime.
#[derive(Clone, Debug)]
pub struct Options {
    /// The real runtime: a path, or a name to look for in `PATH`; runc, else crun.
    pub runtime: Option<OsString>,
    /// Requests that containers may make, unless a container's annotation allows less.
    pub profile: String,
    /// Whether containers see a `/sys` of their own devices.
    pub virtual_sysfs: bool,
    /// Character devices that stand for RDMA devices, `uverbsN=PATH`, for tests.
    pub stand_in: Vec<OsString>,
    /// Directory for the journals of NICs that are in containers.
    pub state_dir: PathBuf,
    /// Directory of sysfs.
    pub sysfs_root: PathBuf,
    /// The real runtime's arguments.
    pub args: Vec<OsString>,
}
