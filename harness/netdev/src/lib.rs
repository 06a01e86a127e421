#![forbid(unsafe_code)]
//! Moves of RoCE NICs into a container's network namespace, and back.
//!
//! The RDMA device alone is not enough in a container: a RoCE GID is an address of a link, and the
//! kernel resolves addresses in the network namespace of the caller. [`select`] says which NICs go
//! and why the others do not, [`plan`] works out a move, [`transfer`] does the move and [`back`]
//! undoes the move, each step after the [`journal`] has the step on disk, and [`verify`] asks
//! afterwards who answers. [`share`] gives a container a link upon a NIC that stays. [`rails`] are a
//! node's ports, and [`mod@env`] the settings of NCCL, UCX and others for them.
//!
//! The NICs that would go, and the reasons why the others stay:
//!
//! ```
//! use std::path::Path;
//!
//! use verbgate_netdev::plan;
//! use verbgate_netdev::select::Selection;
//!
//! let (nics, _) = plan::candidates(&Selection::default(), Path::new("/sys"))?;
//! for nic in nics {
//!     println!("{}: {}", nic.netdev, nic.dropped.as_deref().unwrap_or("goes"));
//! }
//! # Ok::<(), verbgate_netdev::Error>(())
//! ```

pub mod announce;
pub mod back;
pub mod dress;
pub mod env;
mod hca;
pub mod journal;
pub mod plan;
pub mod probe;
pub mod rails;
pub mod select;
pub mod share;
pub mod state;
pub mod strict;
pub mod transfer;
pub mod verify;
mod view;

use std::io;
use std::path::PathBuf;

/// Errors of a move, each with the remedy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says all")]
pub enum Error {
    /// An error of the host.
    #[error(transparent)]
    Host(#[from] verbgate_host::Error),
    #[error(
        "the NICs are in the network namespace {} already; name the container's namespace",
        .path.display()
    )]
    SameNamespace { path: PathBuf },
    #[error("no network device is called {name:?} here; this host has {}", .have.join(", "))]
    NoSuchNic { name: String, have: Vec<String> },
    #[error(
        "{} is not a journal of this version of Verbgate ({why}); if no NIC is away, remove the \
         file",
        .path.display()
    )]
    Foreign { path: PathBuf, why: String },
    #[error(
        "the journal {} names NICs that are not back ({nics}); first: verbgate netdev restore",
        .path.display()
    )]
    NotHome { path: PathBuf, nics: String },
    #[error(
        "another verbgate (process {pid}) works on {}; wait until that process ends",
        .path.display()
    )]
    Locked { path: PathBuf, pid: String },
    #[error("{nic} cannot be moved: {why}")]
    Refused { nic: String, why: String },
    #[error("{nic}: {why}")]
    Nic { nic: String, why: String },
    #[error("there is no NIC to move: {why}")]
    Nothing { why: String },
    #[error("{cause}; {undone}")]
    Undone { cause: Box<Error>, undone: String },
    #[error("{0}")]
    Invalid(String),
    /// The caller's own mistake, for which the exit code is another.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Netlink did not do `what`.
    pub fn netlink(what: impl Into<String>, source: io::Error) -> Self {
        Self::Host(verbgate_host::Error::Netlink { what: what.into(), source })
    }

    /// A file cannot be read or written.
    pub fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Host(verbgate_host::Error::File { path: path.into(), source })
    }

    /// 2 for what the caller wrote, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}
