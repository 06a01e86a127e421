//! RoCE netdevs: into a container's network namespace, and back.
//!
//! The RDMA device alone is not enough there: a RoCE GID is an address of a netdev, and the kernel
//! resolves addresses in the network namespace of the caller.

pub(crate) mod back;
pub(crate) mod command;
pub(crate) mod discover;
pub(crate) mod dress;
pub(crate) mod hca;
pub(crate) mod journal;
pub(crate) mod link;
pub(crate) mod netlink;
pub(crate) mod netns;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod rdma;
pub(crate) mod route;
pub(crate) mod select;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod strict;
pub(crate) mod transfer;
#[rustfmt::skip]
#[allow(dead_code, reason = "the kernel's tables, in whole")]
pub(crate) mod uapi;
pub(crate) mod verify;
pub(crate) mod way;

use std::io;
use std::path::PathBuf;

/// What went wrong, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {what}: {source}{}", privilege(.source))]
    Netlink { what: String, r#source: io::Error },
    #[error("cannot enter the network namespace {name}: {source}{}", namespace_hint(.source))]
    Namespace { name: String, r#source: io::Error },
    #[error("{} is no network namespace; give a PID, a file like /run/netns/NAME or /proc/PID/ns/net, or a container", .path.display())]
    NoNamespace { path: PathBuf },
    #[error(
        "{name:?} is no process, no named network namespace (ip netns) and no running container; see: ip netns list, docker ps"
    )]
    UnknownTarget { name: String },
    #[error("{} is the network namespace that the NICs are in already; name the container's", .path.display())]
    SameNamespace { path: PathBuf },
    #[error("no network device is called {name:?} here; there are {}", .have.join(", "))]
    NoSuchNic { name: String, have: Vec<String> },
    #[error("cannot read or write {}: {source}{}", .path.display(), privilege(.source))]
    File { path: PathBuf, r#source: io::Error },
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
    #[error("interrupted")]
    Interrupted,
    #[error("{cause}; {undone}")]
    Undone { cause: Box<Error>, undone: String },
    #[error("{0}")]
    Invalid(String),
    /// The caller's own mistake, for which the exit code is another.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// 2 for what the caller wrote, 1 for the rest.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

fn privilege(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; moving NICs needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN)"
        }
        _ => "",
    }
}

fn namespace_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; the process or the name is gone",
        io::ErrorKind::PermissionDenied => "; entering it needs root (CAP_SYS_ADMIN)",
        io::ErrorKind::InvalidInput => "; it is a namespace of another kind",
        _ => "",
    }
}
