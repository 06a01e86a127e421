//! Names of runtimes' programs, and whose each is.

use std::fs;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::anyhow;

use crate::runtime;

/// The runtime, and what the names of its variants (`.cdi`, `.legacy`) begin with.
pub(super) const PROGRAM: &str = "nvidia-container-runtime";

/// Whether a path is this program's, by any of its names.
#[must_use]
pub fn is_ours(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name == "verbgate" || name.starts_with("verbgate-oci")
}

/// Whether a program is NVIDIA's runtime, by its name or by what a link leads to.
pub(super) fn is_nvidias(path: &str) -> bool {
    let real = runtime::find(Some(path.as_ref())).and_then(|found| Ok(fs::canonicalize(found)?));
    [Some(PathBuf::from(path)), real.ok()].iter().flatten().any(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PROGRAM))
    })
}

/// Refuses NVIDIA's runtime as one that Verbgate calls.
pub(crate) fn refuse_nvidias(option: &str, path: &str) -> Result<(), Error> {
    if !is_nvidias(path) {
        return Ok(());
    }
    Err(anyhow!(
        "{option} {path}: NVIDIA's runtime would change the container after verbgate has judged the container; have \
         NVIDIA's runtime call verbgate instead, by verbgate runtime configure --runtime=nvidia: the engine's runtime \
         nvidia then gives GPUs and RDMA"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidias_runtimes_are_known_by_their_names() {
        for name in ["nvidia-container-runtime", "/opt/nvidia-container-runtime.cdi"] {
            assert!(is_nvidias(name), "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join(PROGRAM), dir.path().join("gpu"));
        fs::copy(runtime::find(Some("sh".as_ref())).unwrap(), &real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(is_nvidias(link.to_str().unwrap()));
        assert!(!is_nvidias("runc") && !is_nvidias("/no/such"));
    }
}
