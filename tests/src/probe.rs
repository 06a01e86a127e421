//! Guests that try to get at a device node without the supervisor.

use std::fs;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::cm_probe;

/// What a line of an attempt that got the device ends with.
pub const OPENED: &str = "OPENED";

/// The ways to open a file that it tries.
const MODES: &[(&str, OFlags)] =
    &[("O_RDONLY", OFlags::RDONLY), ("O_WRONLY", OFlags::WRONLY), ("O_RDWR", OFlags::RDWR)];

/// `probe escape NAME [GRANTED]`: tries to open the node `/dev/infiniband/NAME` in every way but
/// the one that is served. GRANTED is a node that the guest may open.
///
/// `probe cm`, `probe listen ADDRESS`, `probe networks` and `probe id`: see `cm_probe`.
///
/// `probe fence put` and `probe fence lift`: the fence around this network namespace.
///
/// `probe open PATH`: opens for reading and writing, and prints `0` or the errno.
pub fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["open", path] => {
            let opened = open(path, OFlags::RDWR);
            println!("{}", opened.map_or_else(name, |_| "0".to_owned()));
            Ok(())
        }
        ["fence", "put"] => Ok(verbgate_host::fence::put("lab")?),
        ["fence", "lift"] => Ok(verbgate_host::fence::lift("lab")?),
        ["cm"] => cm_probe::run(),
        ["listen", address] => cm_probe::listen(address),
        ["networks"] => cm_probe::networks(),
        ["id"] => cm_probe::id(),
        ["escape", number, node, rest @ ..] => {
            let rdev = number.parse().context("the device's number")?;
            Attacker { rdev, node, granted: rest.first().copied() }.run()
        }
        _ => bail!(
            "probe cm | fence put | fence lift | id | listen ADDRESS | networks | open PATH | escape RDEV NAME [GRANTED]"
        ),
    }
}

struct Attacker<'a> {
    rdev: u64,
    node: &'a str,
    granted: Option<&'a str>,
}

impl Attacker<'_> {
    fn run(&self) -> Result<()> {
        let (major, minor) = (rustix::fs::major(self.rdev), rustix::fs::minor(self.rdev));
        let place = format!("dev/infiniband/{}", self.node);
        self.by_path("the node", &format!("/{place}"));
        self.by_path("the node by its number", &format!("/dev/char/{major}:{minor}"));
        self.by_path("the node by another way", &format!("/dev/../{place}"));
        self.by_path("by /proc/self/root", &format!("/proc/self/root/{place}"));
        self.by_path("by /proc/thread-self/root", &format!("/proc/thread-self/root/{place}"));
        let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
        for pid in [1, parent] {
            self.by_path(
                &format!("by the root of process {pid}"),
                &format!("/proc/{pid}/root/{place}"),
            );
            self.by_path(
                &format!("by the folder of process {pid}"),
                &format!("/proc/{pid}/cwd/../../../../{place}"),
            );
            self.descriptors_of(pid);
        }
        self.made_elsewhere(major, minor);
        self.by_link(&place);
        self.by_folder(&place);
        self.by_handle(&place);
        self.mounted(&place);
        if let Some(granted) = self.granted {
            self.reopened(granted)?;
        }
        Ok(())
    }

    /// Whether the descriptor is the device.
    fn is_it(&self, file: &OwnedFd) -> bool {
        let stat = rustix::fs::fstat(file);
        stat.is_ok_and(|s| {
            FileType::from_raw_mode(s.st_mode).is_char_device() && s.st_rdev == self.rdev
        })
    }

    fn say(&self, how: &str, opened: Result<OwnedFd, Errno>) {
        let result = match opened {
            Ok(file) if self.is_it(&file) => OPENED.to_owned(),
            Ok(_) => "another file".to_owned(),
            Err(errno) => name(errno),
        };
        println!("{how}: {result}");
    }

    /// Whether opening this path so is what the supervisor serves.
    fn is_served(&self, flags: OFlags) -> bool {
        flags == OFlags::RDWR && self.granted == Some(self.node)
    }

    fn by_path(&self, how: &str, path: &str) {
        for (mode, flags) in MODES {
            if !self.is_served(*flags) {
                self.say(&format!("{how}, {path}, {mode}"), open(path, *flags));
            }
        }
        // A descriptor that only names the file, opened anew.
        if let Ok(named) = open(path, OFlags::PATH) {
            let again = format!("/proc/self/fd/{}", named.as_raw_fd());
            for (mode, flags) in MODES {
                self.say(&format!("{how}, {path}, O_PATH, then {mode}"), open(&again, *flags));
            }
        }
    }

    fn descriptors_of(&self, pid: i32) {
        let folder = format!("/proc/{pid}/fd");
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries {
            let leads_to_it = fs::metadata(entry.path())
                .is_ok_and(|m| m.file_type().is_char_device() && m.rdev() == self.rdev);
            if leads_to_it {
                self.by_path("a descriptor of another process", &entry.path().to_string_lossy());
            }
        }
    }

    /// A node of the same number, made by the guest.
    fn made_elsewhere(&self, major: u32, minor: u32) {
        for folder in ["/tmp", "/run", "/dev", "/dev/shm", "/root", "/var/tmp"] {
            let path = format!("{folder}/verbgate-tests-node");
            let _ = fs::remove_file(&path);
            let device = rustix::fs::makedev(major, minor);
            let made = rustix::fs::mknodat(
                CWD,
                &*path,
                FileType::CharacterDevice,
                Mode::from_raw_mode(0o666),
                device,
            );
            match made {
                Ok(()) => self.by_path("a node of its own", &path),
                Err(errno) => println!("a node of its own, {path}: {}", name(errno)),
            }
            let _ = fs::remove_file(&path);
        }
    }

    /// A link, symbolic or not, from elsewhere.
    fn by_link(&self, place: &str) {
        let target = format!("/{place}");
        let link = "/tmp/verbgate-tests-link";
        let _ = fs::remove_file(link);
        if std::os::unix::fs::symlink(&target, link).is_ok() {
            self.by_path("a link to it", link);
        }
        let hard = "/dev/verbgate-tests-link";
        let _ = fs::remove_file(hard);
        if fs::hard_link(&target, hard).is_ok() {
            self.by_path("a second name of it", hard);
        }
        for path in [link, hard] {
            let _ = fs::remove_file(path);
        }
    }

    /// Relative to a folder.
    fn by_folder(&self, place: &str) {
        let path = Path::new("/").join(place);
        let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else {
            return;
        };
        let Ok(folder) = open(&folder.to_string_lossy(), OFlags::DIRECTORY) else {
            return println!("its folder: cannot be opened");
        };
        for (mode, flags) in MODES {
            if !self.is_served(*flags) {
                let opened =
                    rustix::fs::openat(&folder, file, *flags | OFlags::CLOEXEC, Mode::empty());
                self.say(&format!("relative to its folder, {mode}"), opened);
                let opened = rustix::fs::openat2(
                    &folder,
                    file,
                    *flags | OFlags::CLOEXEC,
                    Mode::empty(),
                    rustix::fs::ResolveFlags::empty(),
                );
                self.say(&format!("relative to its folder by openat2, {mode}"), opened);
            }
        }
    }

    /// By way of every mapped or mounted view that names it.
    fn by_handle(&self, place: &str) {
        for view in ["/proc/self/cwd", "/proc/self/task/self/root", "/proc/1/task/1/root"] {
            self.by_path("by a view", &format!("{view}/../../../{place}"));
        }
    }

    /// A file system of devices of its own.
    fn mounted(&self, place: &str) {
        let folder = "/tmp/verbgate-tests-mount";
        let _ = fs::create_dir(folder);
        let mounted =
            rustix::mount::mount("verbgate-tests", folder, "devtmpfs", MountFlags::empty(), None);
        match mounted {
            Ok(()) => {
                let inside = place.strip_prefix("dev/").unwrap_or(place);
                self.by_path("a devtmpfs of its own", &format!("{folder}/{inside}"));
                let _ = rustix::mount::unmount(folder, rustix::mount::UnmountFlags::DETACH);
            }
            Err(errno) => println!("a devtmpfs of its own: {}", name(errno)),
        }
        let _ = fs::remove_dir(folder);
    }

    /// The descriptor that the supervisor gave, opened anew: that file has no supervisor.
    fn reopened(&self, granted: &str) -> Result<()> {
        let path = format!("/dev/infiniband/{granted}");
        let given = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open the granted {path}"))?;
        for way in ["/proc/self/fd", "/dev/fd", "/proc/thread-self/fd"] {
            let again = format!("{way}/{}", given.as_raw_fd());
            for (mode, flags) in MODES {
                self.say(&format!("the granted descriptor by {way}, {mode}"), open(&again, *flags));
            }
        }
        Ok(())
    }
}

fn open(path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    // Never wait: a path may lead to a pipe.
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// `EACCES`, as far as they are known here.
fn name(errno: Errno) -> String {
    let known = [
        (Errno::ACCESS, "EACCES"),
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NXIO, "ENXIO"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOSYS, "ENOSYS"),
    ];
    let found = known.iter().find(|(known, _)| *known == errno);
    found.map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}
