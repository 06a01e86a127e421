//! Network namespaces: finding one by a user's word, comparing two, and working in one.

use std::fmt;
use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use nix::sched::CloneFlags;
use rustix::mount::FsMountFlags;
use rustix::mount::FsOpenFlags;
use rustix::mount::MountAttrFlags;
use serde::Deserialize;
use serde::Serialize;

use crate::Error;

/// Where named namespaces are: of ip-netns(8), of Docker, of containers' network plug-ins.
const NAMED: &[&str] = &["/run/netns", "/var/run/netns", "/run/docker/netns"];

/// How long a container engine may take to answer.
const ENGINE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// The identity of a namespace, as long as the machine runs and the namespace lives: the device and
/// inode numbers of namespaces(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceId {
    /// The device number of nsfs.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

/// A network namespace, kept alive by its descriptor.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    /// The namespace's identity.
    pub id: NamespaceId,
    /// For people, and where to look first the next time.
    pub path: PathBuf,
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

impl Namespace {
    /// The one of this thread.
    pub fn current() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// A file of /proc/PID/ns or one that ip-netns(8) mounted.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Namespace { name: path.display().to_string(), source };
        let file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        // nsfs has no device of its own: every file of it is on the same one as this thread's.
        let ours = fs::metadata("/proc/thread-self/ns/net").map_err(failed)?;
        if meta.dev() != ours.dev() {
            return Err(Error::NoNamespace { path: path.to_owned() });
        }
        let id = NamespaceId { device: meta.dev(), inode: meta.ino() };
        Ok(Self { file, id, path: path.to_owned() })
    }

    /// What `--to` names: a process, a path, a name of ip-netns(8), or a container.
    pub fn named(name: &str) -> Result<Self, Error> {
        if name.contains('/') {
            return Self::open(Path::new(name));
        }
        if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
            let path = Path::new("/proc").join(name).join("ns/net");
            return Self::open(&path);
        }
        for dir in NAMED {
            let path = Path::new(dir).join(name);
            if path.exists() {
                return Self::open(&path);
            }
        }
        let pid = container(name).ok_or_else(|| Error::UnknownTarget { name: name.to_owned() })?;
        Self::open(&Path::new("/proc").join(pid.to_string()).join("ns/net"))
    }

    /// The namespace with this identity, if it lives: first where it was, then wherever a name or a
    /// process holds it.
    pub fn find(id: NamespaceId, hint: &Path) -> Option<Self> {
        let is_it = |path: &Path| Self::open(path).ok().filter(|found| found.id == id);
        if let Some(found) = is_it(hint) {
            return Some(found);
        }
        let entries = |dir: &str| fs::read_dir(dir).into_iter().flatten().flatten();
        let named = NAMED.iter().flat_map(|dir| entries(dir)).map(|entry| entry.path());
        let numeric = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        let processes = entries("/proc")
            .filter(|entry| entry.file_name().to_str().is_some_and(numeric))
            .map(|entry| entry.path().join("ns/net"));
        named.chain(processes).find_map(|path| is_it(&path))
    }

    /// The descriptor that keeps the namespace alive.
    pub fn raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// A sysfs that shows what is in this namespace, mounted nowhere. Links, and RDMA devices where these belong
    /// to namespaces, are in no other's.
    ///
    /// # Errors
    /// The namespace cannot be entered, or sysfs not be mounted: that needs CAP_SYS_ADMIN.
    pub fn sysfs(&self) -> Result<Sysfs, Error> {
        let mounted = || -> rustix::io::Result<OwnedFd> {
            let context = rustix::mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_create(&context)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let failed = |source: rustix::io::Errno| {
            let name = self.path.display().to_string();
            Error::Namespace { name, source: source.into() }
        };
        self.within(|| mounted().map(Sysfs).map_err(failed))
    }

    /// Runs `work` in this namespace, on a thread of its own: the others stay where they are.
    pub fn within<T: Send, E: From<Error> + Send>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        let entered = || -> Result<T, E> {
            nix::sched::setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|e| {
                Error::Namespace { name: self.path.display().to_string(), source: e.into() }
            })?;
            work()
        };
        thread::scope(|scope| scope.spawn(entered).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// A mount of sysfs, for as long as this lives.
#[derive(Debug)]
pub struct Sysfs(OwnedFd);

impl Sysfs {
    /// Where this process finds the mount.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string())
    }
}

/// The process of a container, as its engine knows it.
fn container(name: &str) -> Option<u32> {
    const FORMAT: &str = "{{.State.Pid}}";
    // A CRI's container is known to crictl alone, with other words for the same; ids may be cut short there, too.
    const CRICTL: [&str; 4] = ["inspect", "--output=go-template", "--template={{.info.pid}}", "--"];
    let docker = ["inspect", "--format", FORMAT, "--"];
    let engines = ["docker", "podman", "nerdctl"].map(|engine| (engine, docker));
    engines.into_iter().chain([("crictl", CRICTL)]).find_map(|(engine, words)| {
        let pid = inspect(engine, &words, name)?.trim().parse().ok()?;
        // 0: there is such a container, and it does not run.
        (pid != 0).then_some(pid)
    })
}

/// What an engine says of a container's process; nothing if it does not answer in time.
fn inspect(engine: &str, words: &[&str], name: &str) -> Option<String> {
    let mut child = Command::new(engine)
        .args(words)
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + ENGINE;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() > until {
            log::warn!(
                "{engine} has not answered for {} s whether {name} is a container",
                ENGINE.as_secs()
            );
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(PAUSE);
    }
    // A number: it fits into the pipe.
    io::read_to_string(child.stdout?).ok()
}

/// Changes with every boot: random(4).
pub fn boot_id() -> Result<String, Error> {
    let path = "/proc/sys/kernel/random/boot_id";
    let read = |source: io::Error| Error::File { path: path.into(), source };
    Ok(fs::read_to_string(path).map_err(read)?.trim().to_owned())
}
