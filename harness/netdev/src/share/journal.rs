//! The journal of links upon NICs.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use verbgate_host::files;
use verbgate_host::netlink::Message;
use verbgate_host::netns;
use verbgate_host::netns::Namespace;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;

use super::wanted::Kind;
use crate::Error;
use crate::journal::JOURNALS;
use crate::journal::Store;

/// Counts changes of the format.
const VERSION: u32 = 1;

/// A link that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The NIC.
    pub nic: String,
    /// Kind of the link.
    pub kind: Kind,
    /// The link's name in the container.
    pub name: String,
    /// The boot in which the link was made.
    pub boot_id: String,
    /// The container's network namespace.
    pub target: netns::NamespaceId,
    /// Path at which the namespace is looked for first.
    pub target_path: PathBuf,
    /// The addresses.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The NIC's RDMA devices and ports.
    pub rdma: Vec<(String, u32)>,
    /// The link's routing table in the container.
    pub table: Option<u32>,
    /// The rules made for the link: they stay when the link goes.
    pub rules: Vec<Message>,
    /// Whether all was done.
    pub complete: bool,
}

impl Share {
    /// The container's namespace, if it lives.
    #[must_use]
    pub fn namespace(&self) -> Option<Namespace> {
        let same_boot = netns::boot_id().is_ok_and(|boot| boot == self.boot_id);
        Namespace::find(self.target, &self.target_path).filter(|_| same_boot)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Shares {
    version: u32,
    shares: Vec<Share>,
}

fn path(dir: &Path) -> PathBuf {
    dir.join(JOURNALS[1])
}

/// The links that were made and not removed.
///
/// # Errors
/// The journal cannot be read, or is of another version.
pub fn load(dir: &Path) -> Result<Vec<Share>, Error> {
    let path = path(dir);
    let text = match foreign::read(&path, Owner::Trusted) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|source| Error::file(path.clone(), source))?,
    };
    let found: Shares = serde_json::from_slice(&text)
        .map_err(|e| Error::Foreign { path: path.clone(), why: e.to_string() })?;
    if found.version != VERSION {
        let why = format!("the journal's version is {}", found.version);
        return Err(Error::Foreign { path, why });
    }
    Ok(found.shares)
}

/// `_store` is the lock of the directory.
pub(super) fn save(dir: &Path, _store: &Store, shares: &[Share]) -> Result<(), Error> {
    let path = path(dir);
    let failed = |source| Error::file(path.clone(), source);
    if shares.is_empty() {
        return match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(&Shares { version: VERSION, shares: shares.to_vec() })
        .map_err(|e| failed(e.into()))?;
    files::replace(&path, &text, files::PUBLIC).map_err(failed)
}
