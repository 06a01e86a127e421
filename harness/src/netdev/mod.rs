//! RoCE netdevs: into a container's network namespace, and back.
//!
//! The RDMA device alone is not enough there: a RoCE GID is an address of a netdev, and the kernel
//! resolves addresses in the network namespace of the caller.

pub(crate) mod back;
pub(crate) mod dress;
pub(crate) mod hca;
pub(crate) mod journal;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod select;
pub(crate) mod state;
pub(crate) mod strict;
pub(crate) mod transfer;
pub(crate) mod verify;

use std::io;
use std::path::PathBuf;

/// What went wrong, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// What the host did not do.
    #[error(transparent)]
    Host(#[from] verbgate_host::Error),
    #[error("{} is the network namespace that the NICs are in already; name the container's", .path.display())]
    SameNamespace { path: PathBuf },
    #[error("no network device is called {name:?} here; there are {}", .have.join(", "))]
    NoSuchNic { name: String, have: Vec<String> },
    #[error("{} is no journal of this version of Verbgate ({why}); if no NIC is away, remove it", .path.display())]
    Foreign { path: PathBuf, why: String },
    #[error("{} describes NICs that are not home ({nics}); first: verbgate netdev restore", .path.display())]
    NotHome { path: PathBuf, nics: String },
    #[error("another verbgate (process {pid}) is at work on {}; wait for it to end", .path.display())]
    Locked { path: PathBuf, pid: String },
    #[error("{nic} cannot be moved: {why}")]
    Refused { nic: String, why: String },
    #[error("{nic}: {why}")]
    Nic { nic: String, why: String },
    #[error("nothing to move: {why}")]
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
    pub(crate) fn netlink(what: impl Into<String>, source: io::Error) -> Self {
        Self::Host(verbgate_host::Error::Netlink { what: what.into(), source })
    }

    /// A file cannot be read or written.
    pub(crate) fn file(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Host(verbgate_host::Error::File { path: path.into(), source })
    }

    /// 2 for what the caller wrote, 1 for the rest.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}
