//! The sysfs that shows the RDMA devices of a container.

use std::path::Path;
use std::path::PathBuf;

use verbgate_host::netns::Namespace;
use verbgate_host::netns::Sysfs;

use super::Error;

/// A sysfs, and its mount if that was made for this.
#[derive(Debug)]
pub(crate) struct View {
    path: PathBuf,
    _mount: Option<Sysfs>,
}

impl View {
    /// The given sysfs; or, where RDMA devices belong to namespaces, one of the namespace, since no other shows
    /// what is there.
    pub(crate) fn of(namespace: &Namespace, sysfs: &Path, exclusive: bool) -> Result<Self, Error> {
        if !exclusive {
            return Ok(Self { path: sysfs.to_owned(), _mount: None });
        }
        let mount = namespace.sysfs()?;
        Ok(Self { path: mount.path(), _mount: Some(mount) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
