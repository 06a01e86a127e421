//! Options from the program that calls this crate: how containers get RDMA, and how hooks call the
//! program again.

use std::ffi::OsString;
use std::path::PathBuf;

use verbgate_sandbox::Expected;

/// The hidden command that hooks give.
pub const HOOK: &str = "oci-hook";
/// The hidden command of supervisors.
pub const SUPERVISOR: &str = "oci-supervisor";

/// The hidden command of what ends a container whose supervisor has died.
pub const WARDEN: &str = "oci-warden";
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

/// What annotations of a container can do. Whoever makes a container, or a pod, writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Annotations {
    /// Select among the devices that the engine gives the container.
    Narrow,
    /// Grant any device of the host, move NICs, show the host's `/sys`: for nodes of one tenant.
    Grant,
}

/// What the operator allows containers.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// Requests that containers may make, unless a container's annotation allows less, where there are
    /// no policy files.
    pub profile: String,
    /// Directory of the operator's policy, whose tenants get the profiles that it says.
    pub policy_dir: PathBuf,
    /// What annotations of a container can do.
    pub annotations: Annotations,
    /// Capabilities about the network that containers keep.
    pub keep: Vec<String>,
    /// Where the audit of containers goes, as [`verbgate_sandbox::Audit`] takes it.
    pub audit: Option<String>,
    /// What is expected of containers that ask for RDMA.
    pub expected: Option<Expected>,
    /// Character devices that stand for RDMA devices, `uverbsN=PATH`, for tests.
    pub stand_in: Vec<OsString>,
    /// Why no container gets RDMA: the configuration cannot be read.
    pub refuse: Option<String>,
}

/// Options of the OCI runtime.
#[derive(Clone, Debug)]
pub struct Options {
    /// The real runtime: a path, or a name to look for in `PATH`; runc, else crun.
    pub runtime: Option<OsString>,
    /// What the operator allows.
    pub allowed: Allowed,
    /// Whether containers see a `/sys` of their own devices.
    pub virtual_sysfs: bool,
    /// Whether 32-bit programs run in containers, without RDMA.
    pub compat: bool,
    /// Whether containers end when their supervisor dies; else they go on without RDMA.
    pub ends_alone: bool,
    /// Directory for the journals of NICs that are in containers.
    pub state_dir: PathBuf,
    /// Directory of sysfs.
    pub sysfs_root: PathBuf,
    /// The real runtime's arguments.
    pub args: Vec<OsString>,
}
