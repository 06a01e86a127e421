#![forbid(unsafe_code)]
//! Programs in a sandbox with RDMA but without the RDMA devices.
//!
//! [`Sandbox`] is the front door: a sandbox starts an unmodified program as a child. This process's
//! threads serve the child's `open` and `ioctl` of the granted devices, and of no other device, as
//! far as a [`Policy`] allows. An [`Observer`] sees each request.
//!
//! ```no_run
//! use verbgate_sandbox::Host;
//! use verbgate_sandbox::Policy;
//! use verbgate_sandbox::Program;
//! use verbgate_sandbox::Sandbox;
//! use verbgate_sandbox::resolve;
//!
//! let devices = resolve(&["mlx5_0".into()], Host::real())?;
//! let sandbox = Sandbox::new(devices, Policy::named("standard")?)?;
//! let argv = ["ibv_devinfo".into()];
//! let mut running = sandbox.start(&Program::new(&argv), None)?;
//! let exit = running.wait()?;
//! println!("exit code {}, {} requests", exit.code(), running.counts().executed());
//! # Ok::<(), verbgate_sandbox::Error>(())
//! ```
//!
//! A container's runtime starts its programs itself. For that case the parts are public: the
//! runtime's process comes under a [`Guard`], whose listener goes to a supervisor that [`Rights`]
//! make, with the [`Views`] that belong to the container's network namespace; [`start`] serves the
//! supervisor.

mod audit;
pub mod grant;
mod guard;
mod recorded;
mod reload;
mod rights;
mod sandbox;
mod summary;
mod tenant;
mod threads;
mod tracer;
mod usage;
mod views;

use std::io;
use std::path::PathBuf;

pub use verbgate_abi::Errno;
pub use verbgate_proxy::Siblings;
pub use verbgate_proxy::Supervisor;
pub use verbgate_proxy::observe::CmDone;
pub use verbgate_proxy::observe::Counts;
pub use verbgate_proxy::observe::Done;
pub use verbgate_proxy::observe::Observer;
pub use verbgate_proxy::observe::Verdict;
pub use verbgate_proxy::observe::name;
pub use verbgate_proxy::policy::DraClaim;
pub use verbgate_proxy::policy::Narrowing;
pub use verbgate_proxy::policy::Policy;
pub use verbgate_proxy::policy::PolicyError;
pub use verbgate_proxy::policy::Subject;
pub use verbgate_sys::GuestFd;
pub use verbgate_sys::Tgid;
pub use verbgate_sys::Tid;
pub use verbgate_sys::sandbox::Exit;
use verbgate_sys::seccomp::bpf::AssembleError;

pub use crate::audit::Audit;
pub use crate::grant::Granted;
pub use crate::grant::Host;
pub use crate::grant::resolve;
pub use crate::guard::Guard;
pub use crate::guard::Windows;
pub use crate::recorded::RecordError;
pub use crate::recorded::Recorded;
pub use crate::reload::Reloaded;
pub use crate::reload::reload;
pub use crate::rights::Rights;
pub use crate::sandbox::Program;
pub use crate::sandbox::Running;
pub use crate::sandbox::Sandbox;
pub use crate::summary::Summary;
pub use crate::tenant::Allowed;
pub use crate::tenant::cgroup_of;
pub use crate::threads::counted;
pub use crate::threads::serve;
pub use crate::threads::start;
pub use crate::tracer::Tracer;
pub use crate::usage::Expected;
pub use crate::views::KEEP;
pub use crate::views::Views;
pub use crate::views::shown;

/// Reasons why a program gets no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device is missing, or the caller may not use the device.
    #[error(transparent)]
    Grant(#[from] grant::GrantError),
    /// The policy has a mistake.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The filter is longer than the kernel takes.
    #[error(transparent)]
    Filter(#[from] AssembleError),
    /// Another supervisor's filter is in the way.
    #[error("a sandbox cannot be started inside another; start both from outside")]
    Nested,
    /// The address space of this process is full where the stub must be.
    #[error(
        "cannot map the stub: this kernel offers none of the addresses that the stub needs: {0}"
    )]
    Addresses(io::Error),
    /// A granted node cannot be opened.
    #[error(
        "cannot open {} for {name}: {source}; the device node must exist, and you must be allowed \
         to read and write the node",
        .path.display()
    )]
    Device {
        /// The node on the host.
        path: PathBuf,
        /// The node in the sandbox.
        name: String,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// RDMA netlink does not know the device.
    #[error("RDMA netlink does not know the device {name}; see: rdma dev")]
    Index {
        /// The node.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The grant misses facts that grants have now.
    #[error("another version of verbgate granted the device {name}; create the container again")]
    Older {
        /// The node.
        name: String,
    },
    /// Another device has replaced the granted device.
    #[error("{name}")]
    Replaced {
        /// The node.
        name: String,
        /// The replacement.
        source: verbgate_sysfs::Replaced,
    },
    /// The register of connections cannot be opened.
    #[error(
        "cannot open the register of connections in {}; --root names a directory that you may write \
         to",
        .path.display()
    )]
    Register {
        /// The directory of run-time state.
        path: PathBuf,
        /// The file system's answer.
        source: io::Error,
    },
    /// The ledger of the tenant's quotas cannot be opened.
    #[error(
        "cannot open the ledger of tenant {tenant:?} in {}; --root names a directory that you may \
         write to",
        .path.display()
    )]
    Ledger {
        /// The directory of run-time state.
        path: PathBuf,
        /// The tenant.
        tenant: String,
        /// The file system's answer.
        source: io::Error,
    },
    /// A reload of the policy could not reach the program.
    #[error(
        "cannot make a socket in {}, by which a reload of the policy reaches the program; --root \
         names a directory that you may write to, with a short path",
        .path.display()
    )]
    Reload {
        /// The directory of the sockets.
        path: PathBuf,
        /// The file system's answer.
        source: io::Error,
    },
    /// The program could not be started.
    #[error(transparent)]
    Spawn(#[from] verbgate_sys::sandbox::Error),
    /// The program's view of the host cannot be made.
    #[error(transparent)]
    Views(io::Error),
    /// The supervisor's threads could not be started, or could not be confined.
    #[error("cannot start the supervisor")]
    Supervisor(#[source] io::Error),
    /// The signals that must be passed on to the program cannot be caught.
    #[error("cannot take charge of signals: {0}")]
    Signals(io::Error),
    /// The program's end cannot be observed.
    #[error("cannot wait for the program: {0}")]
    Wait(io::Error),
}

impl Error {
    /// Exit code of a command that runs programs, for this failure; the same as that of container
    /// engines.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Spawn(error) => error.exit_code(),
            _ => verbgate_sys::sandbox::EXIT_OURS,
        }
    }
}
