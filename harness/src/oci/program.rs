//! `verbgate-init`, the program before a container's command, as a file of the host.

use std::fs;
use std::fs::DirBuilder;
use std::fs::OpenOptions;
use std::fs::Permissions;
use std::io;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

/// The program that is executed before a container's command.
const INIT: &[u8] = include_bytes!(env!("VERBGATE_INIT"));

/// `verbgate-init` as a file of the host, written at its first use.
pub(crate) fn init(root: &Path) -> io::Result<PathBuf> {
    let path = root.join(concat!("init-", env!("VERBGATE_INIT_ID")));
    if path.exists() {
        return Ok(path);
    }
    DirBuilder::new().mode(0o700).recursive(true).create(root)?;
    let unfinished = root.join(format!("init-{}", std::process::id()));
    let _ = fs::remove_file(&unfinished);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o755).open(&unfinished)?.write_all(INIT)?;
    fs::set_permissions(&unfinished, Permissions::from_mode(0o755))?;
    fs::rename(&unfinished, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_written_once_and_runs() {
        let root = tempfile::tempdir().unwrap();
        let path = init(root.path()).unwrap();
        assert_eq!(init(root.path()).unwrap(), path);
        let output = std::process::Command::new(&path).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("verbgate-init: "));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
