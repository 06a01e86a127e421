//! The tree as plain files, where nobody wants a daemon.

use std::fs;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;

use crate::contents::Contents;
use crate::tree::Kind;

/// Why a tree was not written.
#[derive(Debug, thiserror::Error)]
pub enum MaterialiseError {
    /// Something is there, and would be mixed with the tree.
    #[error(
        "the directory {} is not empty; give an empty directory, or a path that does not exist",
        .0.display()
    )]
    NotEmpty(PathBuf),
    /// A file, directory or link could not be made.
    #[error("cannot make {}: {source}", .path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// The errno.
        r#source: io::Error,
    },
}

/// What plain files cannot show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Files that were written.
    pub files: usize,
    /// Files whose reads fail on the host: they are left out, since a plain file cannot fail.
    pub failing: usize,
}

/// Writes a tree below `dir`, which is made.
///
/// # Errors
/// See [`MaterialiseError`]; what was written before stays.
pub fn materialise(contents: &Contents<'_>, dir: &Path) -> Result<Written, MaterialiseError> {
    let make = |path: &Path, result: io::Result<()>| {
        result.map_err(|source| MaterialiseError::Make { path: path.to_owned(), source })
    };
    make(dir, fs::create_dir_all(dir))?;
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(MaterialiseError::NotEmpty(dir.to_owned())),
        other => make(dir, other.map(drop))?,
    }
    let mut written = Written::default();
    for id in contents.tree.walk() {
        let path = dir.join(contents.tree.path(id));
        match contents.tree.kind(id) {
            Some(Kind::Dir(_)) => make(&path, fs::create_dir(&path))?,
            Some(Kind::Link(target)) => make(&path, symlink(&**target, &path))?,
            _ => match contents.read(id) {
                Ok(bytes) => {
                    make(&path, fs::write(&path, bytes))?;
                    if let Some(access) = contents.tree.access(id) {
                        // The owner is whoever writes the tree.
                        let mode = Permissions::from_mode((access.mode & 0o444).into());
                        make(&path, fs::set_permissions(&path, mode))?;
                    }
                    written.files += 1;
                }
                Err(_) => written.failing += 1,
            },
        }
    }
    Ok(written)
}
