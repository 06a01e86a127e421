//! A container's directory on the host: `ROOT/oci/NAME`, for root alone.
//!
//! ```text
//! lock           what was decided, as JSON; locked as long as the supervisor lives
//! control        where `verbgate` itself writes to the supervisor
//! nodes/         shown in the container as /dev/infiniband
//! shared/socket  where verbgate-init writes to the supervisor
//! shared/init    covered by verbgate-init
//! ```

use std::ffi::OsStr;
use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;

/// The program that is executed before a container's command.
const INIT: &[u8] = include_bytes!(env!("VERBGATE_INIT"));

/// What was decided when the container was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The container's id, as its runtime knows it.
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    pub(crate) profile: String,
    pub(crate) devices: Vec<Granted>,
    /// Whether CAP_SETPCAP is not the container's own.
    pub(crate) give_up: bool,
}

/// A granted device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Granted {
    pub(crate) name: String,
    pub(crate) rdev: (u32, u32),
    pub(crate) source: PathBuf,
}

/// A container's directory.
#[derive(Clone, Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    /// The one of a container, by its id and the runtime's own state directory: two of these can
    /// have the same id.
    pub(crate) fn of(root: &Path, id: &str, state: Option<&OsStr>) -> Self {
        let name = match state {
            None => id.to_owned(),
            Some(state) => {
                let mut hasher = DefaultHasher::new();
                state.hash(&mut hasher);
                format!("{id}@{:08x}", hasher.finish() & 0xffff_ffff)
            }
        };
        Self(all(root).join(name))
    }

    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    pub(crate) fn nodes(&self) -> PathBuf {
        self.0.join("nodes")
    }

    pub(crate) fn shared(&self) -> PathBuf {
        self.0.join("shared")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("shared/socket")
    }

    fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Makes it, and gives its file, locked; what a dead supervisor has left there is replaced.
    ///
    /// # Errors
    /// `AlreadyExists` when a supervisor lives there; else the file system's.
    pub(crate) fn make(&self, spec: &Spec) -> io::Result<File> {
        if !self.remove_if_dead()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let dir = |mode: u32, path: &Path| {
            let mut builder = DirBuilder::new();
            builder.mode(mode).create(path)?;
            // The umask took its part.
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
        };
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(self.0.parent().unwrap_or(Path::new("/")))?;
        dir(0o700, &self.0)?;
        dir(0o755, &self.nodes())?;
        dir(0o755, &self.shared())?;
        File::create(self.shared().join("init"))?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.lock())?;
        lock.try_lock()?;
        lock.write_all(serde_json::to_string(spec)?.as_bytes())?;
        Ok(lock)
    }

    /// What was decided.
    ///
    /// # Errors
    /// `NotFound` when there is no such container.
    pub(crate) fn spec(&self) -> io::Result<Spec> {
        Ok(serde_json::from_str(&fs::read_to_string(self.lock())?)?)
    }

    /// Removes it unless its supervisor lives; false when it does.
    pub(crate) fn remove_if_dead(&self) -> io::Result<bool> {
        match File::open(self.lock()) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Ok(false),
                Err(fs::TryLockError::Error(e)) => return Err(e),
            },
            // Half-made.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        self.remove()?;
        Ok(true)
    }

    /// Removes it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Where all containers have their directories.
fn all(root: &Path) -> PathBuf {
    root.join("oci")
}

/// The directories of all containers, in the order of their names.
pub(crate) fn list(root: &Path) -> io::Result<Vec<Place>> {
    let entries = match fs::read_dir(all(root)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths.into_iter().map(Place).collect())
}

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
    fs::set_permissions(&unfinished, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    fs::rename(&unfinished, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        let profile = "standard".to_owned();
        Spec { id: "c1".into(), bundle: "/b".into(), profile, devices: vec![], give_up: true }
    }

    #[test]
    fn a_place_belongs_to_whoever_holds_its_lock() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::of(root.path(), "c1", None);
        let lock = place.make(&spec()).unwrap();
        assert_eq!(place.make(&spec()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(place.spec().unwrap().id, "c1");
        drop(lock);
        drop(place.make(&spec()).unwrap());
        assert_eq!(list(root.path()).unwrap().len(), 1);
        assert!(place.remove_if_dead().unwrap());
        assert!(list(root.path()).unwrap().is_empty());
    }

    #[test]
    fn the_same_id_under_two_runtimes_is_two_containers() {
        let root = Path::new("/r");
        let of = |state: &str| Place::of(root, "c1", Some(OsStr::new(state))).path().to_owned();
        assert_ne!(of("/run/runc"), of("/run/crun"));
        assert_eq!(of("/run/runc"), of("/run/runc"));
    }

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
