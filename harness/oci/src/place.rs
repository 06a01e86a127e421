//! A container's directory on the host: `ROOT/oci/NAME`, for root alone.
//!
//! ```text
//! lock     what was decided, as JSON; locked as long as the supervisor lives
//! pid      the container's first process, and when it started
//! control  where `verbgate` itself writes to the supervisor
//! judged   the rewritten `config.json`, behind a line with the file's path
//! groups   the control groups that the supervisor made in the pod's
//! nodes/   shown in the container as /dev/infiniband
//! ```

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::fs::Permissions;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use verbgate_sandbox::Expected;
use verbgate_sandbox::Policy;
use verbgate_sandbox::PolicyError;
use verbgate_sandbox::grant::Granted;
use verbgate_sys::Tgid;
use verbgate_sys::Tid;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;
use verbgate_sys::process;
use verbgate_sys::process::PidFd;

use super::netdevs::Netdevs;
use super::pod;
use super::pod::Pod;

/// Begins the name of a directory that is being made; its maker's process id follows. No
/// container's id begins so.
const UNFINISHED: &str = ".new-";

/// Beginnings of the names of all that is in a container's directory.
const PARTS: [&str; 6] = ["lock", "pid", "control", "judged", "groups", "nodes"];

/// How often removing a directory begins anew.
const TRIES: u32 = 20;

/// The decisions of the container's creation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The container's id, as its runtime knows it.
    pub id: String,
    pub(crate) bundle: PathBuf,
    pub profile: String,
    /// The tenant of the operator's policy.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The tenant's policy, as profiles that stand alone: nothing that is written later into the
    /// operator's files changes the policy, but for `verbgate policy reload`.
    #[serde(default)]
    pub(crate) policy: Vec<String>,
    /// Capabilities about the network that its processes keep.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Whether 32-bit programs run in it, without RDMA.
    #[serde(default)]
    pub(crate) compat: bool,
    /// Bytes that a process of the container's may lock, if the tenant's policy says so.
    #[serde(default)]
    pub memlock: Option<u64>,
    /// Where its audit goes, and how the audit calls the container.
    #[serde(default)]
    pub audit: Option<(String, String)>,
    /// What is expected of it.
    #[serde(default)]
    pub expected: Option<Expected>,
    pub devices: Vec<Granted>,
    /// The container's root file system.
    pub(crate) rootfs: PathBuf,
    /// Whether the supervisor serves `/sys`.
    pub sysfs: bool,
    /// Whether the runtime starts the container as soon as the container is made.
    pub runs: bool,
    /// NICs that are moved into it.
    #[serde(default)]
    pub netdevs: Option<Netdevs>,
    /// The pod that the container is of.
    #[serde(default)]
    pub(crate) pod: Option<Pod>,
    /// Whether the container ends when its supervisor dies.
    #[serde(default)]
    pub(crate) ends_alone: bool,
}

impl Spec {
    /// The requests that the container may make.
    pub(crate) fn policy(&self) -> Result<Policy, PolicyError> {
        match self.policy.as_slice() {
            [] => Policy::named(&self.profile),
            texts => Policy::read_all(texts),
        }
    }
}

/// A container's directory.
#[derive(Clone, Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    /// The place of a container, by its id and the runtime's own state directory: containers of two
    /// state directories can have the same id.
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

    fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Makes it, and gives its file, locked; what a dead container has left there is replaced.
    ///
    /// # Errors
    /// `AlreadyExists` when the container lives; else the file system's.
    pub(crate) fn make(&self, spec: &Spec) -> io::Result<File> {
        let all = self.0.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().mode(0o700).recursive(true).create(all)?;
        for place in of(all)? {
            // Another's; `verbgate gc` says what is wrong with it.
            let _ = place.remove_if_dead();
        }
        // Under another name until it is locked, or somebody would take it for a dead one's.
        let unfinished = Self(all.join(format!("{UNFINISHED}{}", std::process::id())));
        unfinished.remove()?;
        let made = unfinished.fill(spec).and_then(|lock| {
            fs::rename(&unfinished.0, &self.0)?;
            Ok(lock)
        });
        made.map_err(|e| {
            // A directory that cannot be removed is not the error to tell of.
            let _ = unfinished.remove();
            let taken = e.kind() == io::ErrorKind::DirectoryNotEmpty;
            if taken { io::ErrorKind::AlreadyExists.into() } else { e }
        })
    }

    fn fill(&self, spec: &Spec) -> io::Result<File> {
        let dir = |mode: u32, path: &Path| {
            DirBuilder::new().mode(mode).create(path)?;
            // The umask took its part.
            fs::set_permissions(path, Permissions::from_mode(mode))
        };
        dir(0o700, &self.0)?;
        dir(0o755, &self.nodes())?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let mut lock = options.open(self.lock())?;
        lock.try_lock()?;
        lock.write_all(serde_json::to_string(spec)?.as_bytes())?;
        Ok(lock)
    }

    /// The recorded decisions.
    ///
    /// # Errors
    /// `NotFound` when there is no such container.
    pub(crate) fn spec(&self) -> io::Result<Spec> {
        Ok(serde_json::from_slice(&foreign::read(&self.lock(), Owner::Trusted)?)?)
    }

    /// Remembers a file as it was judged, before the runtime reads the file.
    pub(crate) fn note_judged(&self, file: &Path, text: &str) -> io::Result<()> {
        write_own(&self.0.join("judged"), &format!("{}\n{text}", file.display()))
    }

    /// The file's path, and the text that was judged.
    pub(crate) fn judged(&self) -> io::Result<(PathBuf, String)> {
        let noted = fs::read_to_string(self.0.join("judged"))?;
        let (file, text) = noted.split_once('\n').unwrap_or_default();
        Ok((file.into(), text.to_owned()))
    }

    /// Remembers the container's first process.
    pub(crate) fn set_process(&self, pid: i32) -> io::Result<()> {
        note_process(&self.0.join("pid"), pid)
    }

    /// Whether the container's first process lives, supervised or not.
    fn has_process(&self) -> bool {
        process_lives(&self.0.join("pid"))
    }

    /// Removes it unless the container lives; false when it does.
    ///
    /// A container whose supervisor has died keeps its directory: without the directory, nobody
    /// would know that programs executed in the container need a filter.
    pub(crate) fn remove_if_dead(&self) -> io::Result<bool> {
        if self.has_process() {
            return Ok(false);
        }
        self.remove_if_unsupervised()
    }

    /// Removes it unless its supervisor lives; false when it does.
    pub(crate) fn remove_if_unsupervised(&self) -> io::Result<bool> {
        // Another remover may be faster: a directory that is empty, or gone, is nobody's.
        if entries(&self.0).any(|name| !is_part(&name, &PARTS)) {
            return Err(io::Error::other(
                "something else than Verbgate has put files there; look at them, and remove them",
            ));
        }
        match foreign::open(&self.lock(), File::options().read(true), Owner::Trusted) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Ok(false),
                Err(fs::TryLockError::Error(e)) => return Err(e),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        self.remove()?;
        Ok(true)
    }

    /// Removes it, if it is still the one whose file is given: another container of the same id
    /// may have come.
    pub(crate) fn remove_own(&self, lock: BorrowedFd<'_>) -> io::Result<()> {
        let ours = rustix::fs::fstat(lock)?;
        match fs::metadata(self.lock()) {
            Ok(its) if (its.dev(), its.ino()) == (ours.st_dev, ours.st_ino) => self.remove(),
            _ => Ok(()),
        }
    }

    /// Removes it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if let Some(root) = self.0.ancestors().nth(2) {
            pod::remove_held(root);
            pod::remove(&self.0, root);
        }
        let mut tries = 0;
        loop {
            match fs::remove_dir_all(&self.0) {
                // Somebody else puts a file there, or removes one, at the same time: a hook, and a
                // supervisor whose runtime was killed.
                Err(e) if self.0.exists() && tries < TRIES => {
                    log::debug!("{} is removed once more: {e}", self.0.display());
                    tries += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => return other,
            }
        }
    }
}

/// Writes down a process, so that it is known from another one of its number.
pub(super) fn note_process(file: &Path, pid: i32) -> io::Result<()> {
    let started = process::started(Tid(pid))?;
    write_own(file, &format!("{pid} {started}"))
}

/// Writes a file that is nobody else's, whatever the caller's umask is: a runtime's hook has that of the engine's caller.
fn write_own(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

/// Whether the recorded process lives.
pub(super) fn process_lives(file: &Path) -> bool {
    let text = match foreign::read_text(file, Owner::Trusted) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return false,
        // A process of which the record cannot be read may live.
        Err(_) => return true,
    };
    let Some((pid, started)) = text.split_once(' ') else { return false };
    let (Ok(pid), Ok(started)) = (pid.parse(), started.parse::<u64>()) else { return false };
    // Not one that has ended, and that nobody waits for.
    let lives = PidFd::open(Tgid(pid)).is_ok_and(|pidfd| !pidfd.has_ended());
    lives && process::started(Tid(pid)).is_ok_and(|now| now == started)
}

/// The directory of all containers' directories.
fn all(root: &Path) -> PathBuf {
    root.join("oci")
}

/// The directories of all containers, in the order of their names.
pub(crate) fn list(root: &Path) -> io::Result<Vec<Place>> {
    match of(&all(root)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

fn of(all: &Path) -> io::Result<Vec<Place>> {
    let names = fs::read_dir(all)?.flatten().map(|entry| entry.file_name());
    let mut names: Vec<OsString> = names.filter(|name| !is_being_made(name)).collect();
    names.sort();
    let places = names.into_iter().map(|name| Place(all.join(name)));
    let is_place = |place: &Place| {
        let is_dir = place.path().symlink_metadata().is_ok_and(|meta| meta.is_dir());
        is_dir && place.lock().symlink_metadata().is_ok() || is_made(place.path(), &PARTS)
    };
    Ok(places.filter(is_place).collect())
}

/// Whether Verbgate has made a directory, all of which may be removed then: what is there has names that begin with
/// one of these, and somebody else than root or this user can have put nothing there.
pub(super) fn is_made(dir: &Path, parts: &[&str]) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |meta: fs::Metadata| meta.is_dir() && (meta.uid() == 0 || meta.uid() == own);
    let has_name =
        || dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED));
    fs::symlink_metadata(dir).is_ok_and(is_own)
        && entries(dir).all(|name| is_part(&name, parts))
        // An empty directory may be anybody's.
        && (has_name() || entries(dir).next().is_some())
}

fn entries(dir: &Path) -> impl Iterator<Item = OsString> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

fn is_part(name: &OsStr, parts: &[&str]) -> bool {
    parts.contains(&name.to_string_lossy().split('.').next().unwrap_or_default())
}

/// Whether a directory is not a container's yet, and its maker is at it.
fn is_being_made(name: &OsStr) -> bool {
    let maker = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED));
    maker.is_some_and(|pid| Path::new("/proc").join(pid).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        let profile = "standard".to_owned();
        Spec {
            id: "c1".into(),
            bundle: "/b".into(),
            profile,
            tenant: None,
            policy: vec![],
            keep: Vec::new(),
            compat: false,
            memlock: None,
            audit: None,
            expected: None,
            devices: vec![],
            rootfs: "/b/rootfs".into(),
            sysfs: true,
            runs: false,
            netdevs: None,
            pod: None,
            ends_alone: false,
        }
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
        // Somebody else may remove the directory at the same time, and be faster.
        assert!(place.remove_if_dead().unwrap());
        fs::create_dir(place.path()).unwrap();
        assert!(place.remove_if_dead().unwrap());
    }

    #[test]
    fn a_container_that_lost_its_supervisor_keeps_its_place() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::of(root.path(), "c1", None);
        drop(place.make(&spec()).unwrap());
        place.set_process(std::process::id().cast_signed()).unwrap();
        // All that is in a container's directory while the container lives.
        place.note_judged(Path::new("/b/config.json"), "{}").unwrap();
        for part in ["control", "groups"] {
            fs::write(place.path().join(part), "").unwrap();
        }
        assert!(!place.remove_if_dead().unwrap());
        assert_eq!(place.make(&spec()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::write(place.path().join("pid"), format!("{} 1", std::process::id())).unwrap();
        drop(Place::of(root.path(), "c2", None).make(&spec()).unwrap());
        assert_eq!(list(root.path()).unwrap().len(), 1);
    }

    #[test]
    fn what_others_made_is_no_place_and_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let place = Place::of(root.path(), "c1", None);
        drop(place.make(&spec()).unwrap());
        let other = all(root.path()).join("photos");
        fs::create_dir(&other).unwrap();
        fs::write(all(root.path()).join("file"), "").unwrap();
        std::os::unix::fs::symlink(place.path(), all(root.path()).join("link")).unwrap();
        let names = || -> Vec<PathBuf> {
            list(root.path()).unwrap().iter().map(|place| place.path().to_owned()).collect()
        };
        assert_eq!(names(), [place.path()]);
        fs::write(other.join("lock.jpg"), "").unwrap();
        fs::write(other.join("photo"), "").unwrap();
        assert_eq!(names(), [place.path()]);
        // A place in which somebody has put a file is listed, and stays.
        fs::write(place.path().join("notes"), "").unwrap();
        assert_eq!(names(), [place.path()]);
        assert!(place.remove_if_dead().unwrap_err().to_string().contains("something else"));
        drop(Place::of(root.path(), "c2", None).make(&spec()).unwrap());
        assert!(other.join("photo").exists() && place.path().join("notes").exists());
        // A lock that nobody could open is not waited for.
        fs::remove_file(place.path().join("notes")).unwrap();
        fs::remove_file(place.lock()).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            place.lock(),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        assert!(place.spec().is_err() && place.remove_if_dead().is_err());
    }

    #[test]
    fn the_same_id_under_two_runtimes_is_two_containers() {
        let root = Path::new("/r");
        let of = |state: &str| Place::of(root, "c1", Some(OsStr::new(state))).path().to_owned();
        assert_ne!(of("/run/runc"), of("/run/crun"));
        assert_eq!(of("/run/runc"), of("/run/runc"));
    }
}
