//! The journal on disk: the state before the move, and each step, written before the step is done.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use nix::fcntl::Flock;
use nix::fcntl::FlockArg;
use nix::sys::signal::Signal;
use serde::Deserialize;
use serde::Serialize;
use verbgate_host::files;
use verbgate_host::link::LinkIdentity;
use verbgate_host::netlink::Message;
use verbgate_host::netns;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;

use super::Error;
use super::state::State;
use super::strict::Arp;

/// Counts changes of the format.
const VERSION: u32 = 1;
/// Default directory of the journal, which must survive a reboot.
pub const STATE_DIR: &str = "/var/lib/verbgate";
/// The directory's mode.
const DIR_MODE: u32 = 0o755;
/// The journals of moves and of links upon NICs.
pub(crate) const JOURNALS: [&str; 2] = ["netdev.json", "share.json"];
/// For the tests: `KILL:N` or `STOP:N`, the signal that the process sends itself at step N. Steps
/// are numbered by how often the journal was to be written or had been.
const SIGNAL_AT: &str = "VERBGATE_TEST_SIGNAL_AT";

/// Progress of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The NIC is home, untouched.
    Captured,
    /// The NIC is on the way to the container.
    Leaving,
    /// The NIC is in the container, and being configured there.
    Dressing,
    /// The NIC is in the container, ready.
    Away,
    /// The NIC is on the way home.
    Returning,
    /// The NIC is home, and being configured.
    Redressing,
}

/// One NIC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Identity by which the NIC is found again.
    pub identity: LinkIdentity,
    /// Configuration before the move.
    pub state: State,
    /// Name of the NIC in the container.
    pub target_name: String,
    /// Progress of the NIC.
    pub step: Step,
    /// The rules made for it in the container: they stay when it goes.
    pub rules: Vec<Message>,
    /// The NIC's own routing table in the container.
    pub table: Option<u32>,
    /// The RDMA devices that have it as a port, with the port's number.
    pub rdma: Vec<(String, u32)>,
}

/// A move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    /// The boot in which the move was begun.
    pub boot_id: String,
    /// The namespace that the NICs came from.
    pub home: netns::NamespaceId,
    pub(crate) home_path: PathBuf,
    /// The namespace that the NICs go to.
    pub target: netns::NamespaceId,
    /// Path at which the target is looked for first.
    pub target_path: PathBuf,
    /// Whether the whole move has been done, and is not being undone.
    pub complete: bool,
    /// Way to keep the NICs apart in the target.
    pub arp: Arp,
    /// Whether the RDMA devices went with their netdevs.
    pub(crate) rdma_exclusive: bool,
    /// The NICs, in the order in which they move.
    pub nics: Vec<Entry>,
}

impl Journal {
    /// A journal of NICs that have not left yet.
    pub fn new(
        home: &netns::Namespace,
        target: &netns::Namespace,
        arp: Arp,
        nics: Vec<Entry>,
    ) -> Result<Self, Error> {
        Ok(Self {
            version: VERSION,
            boot_id: netns::boot_id()?,
            home: home.id,
            // As anyone else sees it, who is in that namespace or who is not.
            home_path: Path::new("/proc/1/ns/net").to_owned(),
            target: target.id,
            target_path: target.path.clone(),
            complete: false,
            arp,
            rdma_exclusive: false,
            nics,
        })
    }

    /// The namespace that has the NICs, if it lives.
    pub fn namespace(&self) -> Option<netns::Namespace> {
        let same_boot = netns::boot_id().is_ok_and(|boot| boot == self.boot_id);
        netns::Namespace::find(self.target, &self.target_path).filter(|_| same_boot)
    }

    /// The names of the NICs at home, for people.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.nics.iter().map(|nic| nic.state.link.name.as_str()).collect();
        names.join(", ")
    }
}

/// The directory of the journal, locked.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    _lock: Flock<File>,
}

impl Store {
    /// Locks the directory, which is made if need be.
    pub fn lock(dir: &Path) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::file(path, source)
        };
        make_dir(dir).map_err(at(dir))?;
        let path = dir.join("netdev.lock");
        let mut options = OpenOptions::new();
        options.create(true).read(true).write(true).truncate(false).mode(0o600);
        let file = foreign::open(&path, &mut options, Owner::Trusted).map_err(at(&path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let pid = std::process::id().to_string();
                lock.set_len(0).and_then(|()| lock.write_all(pid.as_bytes())).map_err(at(&path))?;
                Ok(Self { dir: dir.to_owned(), _lock: lock })
            }
            Err((mut file, nix::Error::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = if pid.is_empty() { "?".to_owned() } else { pid };
                Err(Error::Locked { path: dir.to_owned(), pid })
            }
            Err((_, e)) => Err(Error::file(path, e.into())),
        }
    }

    /// The file of the journal.
    pub fn path(&self) -> PathBuf {
        path(&self.dir)
    }

    /// Writes the journal so that it is there, old or new, whatever happens.
    pub(crate) fn save(&self, journal: &Journal) -> Result<(), Error> {
        step();
        let path = self.path();
        let text = serde_json::to_vec(journal).map_err(io::Error::from);
        let written = text.and_then(|text| files::replace(&path, &text, files::PUBLIC));
        written.map_err(|source| Error::file(path, source))?;
        step();
        Ok(())
    }

    /// All NICs are home.
    pub fn remove(&self) -> Result<(), Error> {
        step();
        let removed = fs::remove_file(self.path())
            .and_then(|()| File::open(&self.dir).and_then(|dir| dir.sync_all()));
        removed.map_err(|source| Error::file(self.path(), source))?;
        step();
        Ok(())
    }
}

/// Makes a directory of state, which every user may read, whatever the caller's umask is: `nccl env` of a job, which
/// another user runs, reads where the NICs are, and the kernel tells every user as much.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(DIR_MODE))
}

/// Lets every user read a directory of state and the journals in it, if an earlier version kept the directory to root.
/// Other files stay root's: the records of engines' configuration files can hold passwords.
pub fn show_to_all(dir: &Path) -> io::Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(meta) if meta.is_dir() && meta.mode() & 0o077 == 0 => {}
        _ => return Ok(()),
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_public = JOURNALS.iter().any(|name| entry.file_name() == *name);
        let mode = if is_public { files::PUBLIC } else { files::PRIVATE };
        if entry.file_type()?.is_file() {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode))?;
        }
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(DIR_MODE))
}

fn path(dir: &Path) -> PathBuf {
    dir.join(JOURNALS[0])
}

/// The journal in a directory, if there is one.
pub fn load(dir: &Path) -> Result<Option<Journal>, Error> {
    let path = path(dir);
    let text = match foreign::read(&path, Owner::Trusted) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| Error::file(path.clone(), source))?,
    };
    let journal: Journal = serde_json::from_slice(&text)
        .map_err(|e| Error::Foreign { path: path.clone(), why: e.to_string() })?;
    if journal.version != VERSION {
        let why = format!("the journal's version is {}", journal.version);
        return Err(Error::Foreign { path, why });
    }
    Ok(Some(journal))
}

fn step() {
    static STEPS: AtomicU64 = AtomicU64::new(0);
    let number = STEPS.fetch_add(1, Ordering::Relaxed) + 1;
    let Ok(wish) = std::env::var(SIGNAL_AT) else { return };
    let signal = match wish.split_once(':') {
        Some(("KILL", at)) if at == number.to_string() => Signal::SIGKILL,
        Some(("STOP", at)) if at == number.to_string() => Signal::SIGSTOP,
        _ => return,
    };
    // A signal to oneself cannot be refused.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal in the form of the first version of Verbgate.
    const OLD: &str = r#"{"version":1,"boot_id":"b","home":{"device":4,"inode":4026531840},
        "home_path":"/proc/1/ns/net","target":{"device":4,"inode":4026532281},
        "target_path":"/run/netns/pod1","complete":true,"arp":"loose","rdma_exclusive":false,
        "nics":[{"identity":{"parent":"0000:81:00.0","permanent":"02:00:00:00:00:01",
        "mac":"02:00:00:00:00:01","port":0},"state":{"link":{"index":7,"name":"rail0",
        "mac":"02:00:00:00:00:01","permanent":"02:00:00:00:00:01","parent":"0000:81:00.0",
        "kind":null,"up":true,"carrier":true,"mtu":9000,"txqlen":1000,"alias":null,"altnames":[],
        "qdisc":"mq","master":null,"lower":null},"addresses":[{"kind":20,
        "header":"0218000007000000","attributes":[{"kind":1,"value":"0a000001"}]}],"routes":[],
        "rank":null,"rules":[],"neighbours":[],"sysctls":{"ipv4/conf/rp_filter":"2"},"names":{}},
        "target_name":"rail0","step":"away","rules":[],"table":null,"rdma":[["mlx5_0",1]]}]}"#;

    #[test]
    fn a_directory_that_root_kept_is_shown_without_the_records_of_engines() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("state");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        make_dir(&dir).unwrap();
        let names = ["netdev.json", "share.json", "netdev.lock", "configure-0.json"];
        let files = names.map(|name| dir.join(name));
        let modes = || files.clone().map(|file| mode(&file));
        files.iter().for_each(|file| fs::write(file, "{}").unwrap());
        assert_eq!((mode(&dir), modes()), (0o755, [0o644; 4]));
        // A directory that is open already is left as it is.
        show_to_all(&dir).unwrap();
        assert_eq!(modes(), [0o644; 4]);
        fs::set_permissions(&files[0], fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        show_to_all(&dir).unwrap();
        assert_eq!((mode(&dir), modes()), (0o755, [0o644, 0o644, 0o600, 0o600]));
        show_to_all(&dir.join("missing")).unwrap();
    }

    #[test]
    fn an_old_journal_is_read_and_written_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(path(dir.path()), OLD).unwrap();
        let journal = load(dir.path()).unwrap().unwrap();
        assert_eq!((journal.arp, journal.nics[0].step), (Arp::Loose, Step::Away));
        let again: serde_json::Value = serde_json::to_value(&journal).unwrap();
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(OLD).unwrap());
    }
}
