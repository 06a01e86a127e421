//! Files that are written in one step.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::fs::Permissions;
use std::io;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::chown;
use std::path::Path;

/// The mode of a new file that everybody may read.
pub const PUBLIC: u32 = 0o644;
/// The mode of a new file that only its owner may read.
pub const PRIVATE: u32 = 0o600;

/// Writes a file in one step: whoever reads it, also after a crash, finds the old file or the new
/// one, and whole. A file that was there keeps its mode and its owner, a new one has this mode, and
/// either is on the disk when this function returns.
///
/// # Errors
/// The kernel's, of making, writing or renaming; the old file is left as it was.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    put(path, bytes, mode, true)
}

/// The same of a file that nobody needs after a crash of the machine: the disk is not waited for.
///
/// # Errors
/// As [`replace`].
pub fn replace_for_now(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    put(path, bytes, mode, false)
}

fn put(path: &Path, bytes: &[u8], mode: u32, lasts: bool) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let temporary = path.with_extension(format!("verbgate-{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        let mut file = options.open(&temporary)?;
        match fs::metadata(path) {
            Ok(known) => {
                file.set_permissions(known.permissions())?;
                chown(&temporary, Some(known.uid()), Some(known.gid()))?;
            }
            // Whatever the caller's umask is.
            Err(_) => file.set_permissions(Permissions::from_mode(mode))?,
        }
        file.write_all(bytes)?;
        if lasts {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    if lasts { File::open(dir)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_mode_and_a_new_one_has_the_mode_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made/a.json");
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        replace(&file, b"1", PRIVATE).unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"1".to_vec(), 0o600));
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        replace(&file, b"2", PUBLIC).unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"2".to_vec(), 0o640));
        // Nothing is left beside it, and nothing of a failure.
        assert!(replace(&dir.path().join("made"), b"3", PUBLIC).is_err());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
