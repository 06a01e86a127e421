//! The cache of built things: built under a temporary name, renamed when complete, stamped with the
//! recipe.

use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde::Deserialize;
use serde::Serialize;

use crate::progress::Progress;

const STAMP: &str = "stamp.json";
const USE_LOCK: &str = "use.lock";
const MIB: u64 = 1 << 20;

/// What an artifact was made from.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Stamp {
    /// Everything that decides the content; a difference means a rebuild.
    recipe: String,
}

/// The cache folder: `$VERBGATE_CACHE`, or `$XDG_CACHE_HOME/verbgate`, or `~/.cache/verbgate`.
pub fn root() -> Result<PathBuf> {
    choose_root(|name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from))
}

fn choose_root(var: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    if let Some(dir) = var("VERBGATE_CACHE") {
        return std::path::absolute(&dir)
            .with_context(|| format!("VERBGATE_CACHE={} is not a path", dir.display()));
    }
    if let Some(dir) = var("XDG_CACHE_HOME").filter(|d| d.is_absolute()) {
        return Ok(dir.join("verbgate"));
    }
    match var("HOME") {
        Some(home) => Ok(home.join(".cache/verbgate")),
        None => bail!("the cache has no place: set VERBGATE_CACHE, XDG_CACHE_HOME or HOME"),
    }
}

/// Removes the whole cache. Waits until no run and no build uses it.
pub fn clean(progress: &Progress) -> Result<()> {
    let root = root()?;
    if !root.exists() {
        progress.say(&format!("{} is not there: nothing to clean", root.display()));
        return Ok(());
    }
    // Builds hold it too, through `Lab::prepare`.
    let _uses = lock(&root, USE_LOCK, Mode::Alone, progress)?;
    progress.say(&format!("removing {}", root.display()));
    fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))
}

/// A held lock; released on drop.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Alone,
    Shared,
}

/// Keeps `clean` away while images are in use.
pub(crate) fn lock_for_use(progress: &Progress) -> Result<Lock> {
    lock(&root()?, USE_LOCK, Mode::Shared, progress)
}

fn lock(root: &Path, name: &str, mode: Mode, progress: &Progress) -> Result<Lock> {
    fs::create_dir_all(root)
        .with_context(|| format!("cannot create the cache folder {}", root.display()))?;
    let path = root.join(name);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot open the lock {}", path.display()))?;
    let tried = if mode == Mode::Alone { file.try_lock() } else { file.try_lock_shared() };
    match tried {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            progress.say(&format!("waiting for another run of the lab ({})", path.display()));
            if mode == Mode::Alone { file.lock()? } else { file.lock_shared()? }
        }
        Err(fs::TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(Lock { _file: file })
}

/// Something the cache can hold.
#[derive(Debug)]
pub(crate) struct Artifact<'a> {
    /// The folder's name in the cache.
    pub(crate) name: &'a str,
    /// What decides its content.
    pub(crate) recipe: String,
    /// What building it needs on disk, at most.
    pub(crate) space_mib: u64,
}

impl Artifact<'_> {
    /// The artifact's folder if it is there and of this recipe.
    pub(crate) fn existing(&self, root: &Path) -> Option<PathBuf> {
        let dir = root.join(self.name);
        let stamp: Stamp = serde_json::from_slice(&fs::read(dir.join(STAMP)).ok()?).ok()?;
        (stamp.recipe == self.recipe).then_some(dir)
    }

    /// The artifact's folder; `build` fills it if it is not there or of another recipe.
    ///
    /// Before: `build` gets an empty folder. After: the folder is complete, or an error and nothing
    /// is left. Two processes never build the same at once.
    pub(crate) fn ensure(
        &self,
        progress: &Progress,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let root = root()?;
        if let Some(dir) = self.existing(&root) {
            return Ok(dir);
        }
        let _lock = lock(&root, &format!("{}.lock", self.name), Mode::Alone, progress)?;
        if let Some(dir) = self.existing(&root) {
            return Ok(dir);
        }
        let prefix = format!("{}.building-", self.name);
        remove_stale(&root, &prefix)?;
        require_space(&root, self.space_mib)?;
        let temporary = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(&root)
            .with_context(|| format!("cannot create a folder in {}", root.display()))?;
        build(temporary.path())
            .with_context(|| format!("cannot build {} for the lab", self.name))?;
        let stamp = serde_json::to_vec_pretty(&Stamp { recipe: self.recipe.clone() })?;
        fs::write(temporary.path().join(STAMP), stamp)?;
        let dir = root.join(self.name);
        if dir.exists() {
            fs::remove_dir_all(&dir)
                .with_context(|| format!("cannot remove the outdated {}", dir.display()))?;
        }
        fs::rename(temporary.path(), &dir)
            .with_context(|| format!("cannot move the result to {}", dir.display()))?;
        // It has its final name: nothing is left for the guard to remove.
        let _ = temporary.keep();
        Ok(dir)
    }
}

/// Removes what an interrupted build left; the artifact's lock is held, so no such folder is alive.
fn remove_stale(root: &Path, prefix: &str) -> Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_dir_all(entry.path()).with_context(|| {
                format!("cannot remove the leftover {}", entry.path().display())
            })?;
        }
    }
    Ok(())
}

/// Free space at `path`, in MiB.
pub(crate) fn free_mib(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)
        .with_context(|| format!("cannot ask {} for its free space", path.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize) / MIB)
}

fn require_space(root: &Path, needed: u64) -> Result<()> {
    let free = free_mib(root)?;
    if free < needed {
        bail!(
            "{} has {free} MiB free, the build needs {needed} MiB: free some space, or set \
             VERBGATE_CACHE to a folder on another file system",
            root.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<PathBuf> + 'a {
        |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v))
    }

    #[test]
    fn the_most_specific_variable_wins() {
        let all = [("VERBGATE_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(choose_root(vars(&all)).unwrap(), Path::new("/a"));
        assert_eq!(choose_root(vars(&all[1..])).unwrap(), Path::new("/b/verbgate"));
        assert_eq!(choose_root(vars(&all[2..])).unwrap(), Path::new("/c/.cache/verbgate"));
        assert!(choose_root(vars(&[])).is_err());
    }

    #[test]
    fn a_relative_xdg_folder_does_not_count() {
        let odd = [("XDG_CACHE_HOME", "b"), ("HOME", "/c")];
        assert_eq!(choose_root(vars(&odd)).unwrap(), Path::new("/c/.cache/verbgate"));
    }

    #[test]
    fn another_recipe_is_no_hit() {
        let root = tempfile::tempdir().unwrap();
        let mut artifact = Artifact { name: "x", recipe: "1".into(), space_mib: 0 };
        assert_eq!(artifact.existing(root.path()), None);
        fs::create_dir(root.path().join("x")).unwrap();
        fs::write(root.path().join("x").join(STAMP), br#"{"recipe":"1"}"#).unwrap();
        assert_eq!(artifact.existing(root.path()), Some(root.path().join("x")));
        artifact.recipe = "2".into();
        assert_eq!(artifact.existing(root.path()), None);
    }

    #[test]
    fn too_little_space_says_how_much() {
        let error = require_space(Path::new("/"), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MiB free") && error.contains("VERBGATE_CACHE"), "{error}");
    }
}
