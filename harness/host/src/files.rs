//! Files that are written in one step.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::chown;
use std::path::Path;

/// Writes a file in one step, so that a program that watches the directory reads a whole file. The
/// file keeps its mode and its owner, and is on the disk when this function returns.
///
/// # Errors
/// The kernel's, of making, writing or renaming; the old file is left as it was.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let temporary = path.with_extension(format!("verbgate-{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        if let Ok(known) = fs::metadata(path) {
            file.set_permissions(known.permissions())?;
            chown(&temporary, Some(known.uid()), Some(known.gid()))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))
}
