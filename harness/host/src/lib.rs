#![forbid(unsafe_code)]
//! The host that Verbgate runs on, as far as several crates need the host: network namespaces
//! ([`netns`]), links and routes ([`link`], [`route`], [`way`]), classes of traffic ([`dcb`]) and RDMA
//! devices ([`rdma`]) by the one netlink socket ([`netlink`]), the rules around a namespace
//! ([`fence`]), signals between steps ([`signals`]), files that are written in
//! one step ([`files`]), this program, to be executed again ([`program`]), and the one way to print
//! ([`output`]).
//!
//! The links of this process's network namespace:
//!
//! ```
//! use verbgate_host::netlink::Netlink;
//!
//! let links = verbgate_host::link::all(&mut Netlink::route()?)?;
//! for link in links.iter().filter(|link| link.up) {
//!     println!("{}: {} MTU {}", link.name, link.mac, link.mtu);
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod dcb;
pub mod fence;
pub mod files;
pub mod link;
pub mod netlink;
pub mod netns;
pub mod output;
pub mod program;
pub mod rdma;
pub mod route;
pub mod signals;
#[rustfmt::skip]
#[allow(missing_docs, reason = "the kernel's names, by which its headers explain them")]
pub mod uapi;
pub mod way;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What the kernel did not do, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Netlink refused or failed.
    #[error("cannot {what}: {source}{}", privilege(.source))]
    Netlink {
        /// What was to be done.
        what: String,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// A network namespace cannot be opened or entered.
    #[error("cannot enter the network namespace {name}: {source}{}", namespace_hint(.source))]
    Namespace {
        /// As it was given.
        name: String,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// A file is of another kind.
    #[error(
        "{} is not a network namespace; give a PID, a file like /run/netns/NAME or \
         /proc/PID/ns/net, or a container", .path.display())]
    NoNamespace {
        /// The file.
        path: PathBuf,
    },
    /// A name is nobody's.
    #[error(
        "{name:?} is neither a process, nor a named network namespace (ip netns), nor a running \
         container; see: ip netns list, docker ps"
    )]
    UnknownTarget {
        /// As it was given.
        name: String,
    },
    /// A file cannot be read or written.
    #[error("cannot read or write {}: {source}{}", .path.display(), privilege(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// Standard output takes nothing.
    #[error("cannot write to standard output")]
    Unwritten(#[source] io::Error),
    /// A signal came that asks for the end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The kernel's answer, if an answer of the kernel is the cause.
    #[must_use]
    pub fn kernels(&self) -> Option<&io::Error> {
        match self {
            Self::Netlink { source, .. }
            | Self::Namespace { source, .. }
            | Self::File { source, .. }
            | Self::Unwritten(source) => Some(source),
            Self::NoNamespace { .. } | Self::UnknownTarget { .. } | Self::Interrupted => None,
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
        io::ErrorKind::InvalidInput => "; the namespace is of another kind",
        _ => "",
    }
}

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}
