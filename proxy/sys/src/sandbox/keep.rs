//! What of a served `/sys` stays the host's own: whole directories, and of each RDMA device that is
//! shown everything but what the server judges at each read.
//!
//! A read that the kernel answers by itself takes a twentieth of a read that the server answers. The
//! server shows which devices there are; a device's own directory is then mounted over the served
//! one, read-only, and what is judged is mounted over that. Such a mount holds on to the device: no
//! other device ever shows in the place, whatever name the other device takes. Where a device cannot be
//! mounted so, it stays served.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::fs::AtFlags;
use rustix::fs::Dir;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::MoveMountFlags;
use rustix::mount::OpenTreeFlags;

use super::mounts;

/// The devices that the server shows, as links.
const CLASS: &str = "class/infiniband";
/// Where such a link leads through, `/sys` itself.
const UP: &str = "../../";
/// A file that every RDMA device has: the server reads the file of no device but the granted one.
const OWN: &str = "node_guid";
/// The directory of an RDMA device's ports.
const PORTS: &str = "ports";

/// What of a guest's `/sys` is the host's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep<'a> {
    /// Directories, relative to `/sys`, that stay as they are. The served tree must have those that the
    /// host has.
    pub dirs: &'a [&'a str],
    /// Directories of an RDMA device whose files the server judges at each read, relative to the device.
    /// The rest of the device's directory stays as it is.
    pub judged: &'a [&'a str],
    /// Directories of a port that stay as they are. The server judges all others, those of a later
    /// kernel too.
    pub plain: &'a [&'a str],
}

impl Keep<'_> {
    /// Mounts what is the host's into the served tree that covers the host's.
    ///
    /// # Errors
    /// When one cannot be mounted; what was is mounted still.
    pub(super) fn place(self, host: BorrowedFd<'_>, served: BorrowedFd<'_>) -> io::Result<()> {
        for name in self.dirs {
            match clone(host, name) {
                Ok(tree) => place(&tree, served, name).map_err(of(name))?,
                Err(Errno::NOENT) => {}
                // Nothing else has what is in there.
                Err(errno) => return Err(of(name)(errno.into())),
            }
        }
        for device in shown(served) {
            if let Some(own) = self.own(host, served, &device) {
                own.place(served).map_err(of(&device))?;
            }
        }
        Ok(())
    }

    /// The host's own directory of a device; none where the device must stay served.
    fn own(self, host: BorrowedFd<'_>, served: BorrowedFd<'_>, device: &str) -> Option<Own> {
        let mount = clone(host, device).ok()?;
        mounts::refuse_changes(mount.as_fd()).ok()?;
        // The directory was there before the server told whose it is, and is there after that: the
        // kernel gives a directory that is made anew a number of its own.
        read(served, &format!("{device}/{OWN}"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let now = rustix::fs::openat(host, device, flags, Mode::empty()).ok()?;
        let [mine, its] = [&mount, &now].map(|fd| rustix::fs::fstat(fd).ok());
        let (mine, its) = (mine?, its?);
        if (mine.st_dev, mine.st_ino) != (its.st_dev, its.st_ino) {
            return None;
        }
        let mut judged = Vec::new();
        for name in served_of(mount.as_fd(), self) {
            match rustix::fs::statat(&mount, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => {
                    // Not shown otherwise: the server may know why.
                    let tree = clone(served, &format!("{device}/{name}")).ok()?;
                    judged.push((name, tree));
                }
                Err(Errno::NOENT) => {}
                Err(_) => return None,
            }
        }
        Some(Own { device: device.to_owned(), mount, judged })
    }
}

/// A device's own directory, and what is judged of it, served.
struct Own {
    device: String,
    mount: OwnedFd,
    judged: Vec<(String, OwnedFd)>,
}

impl Own {
    fn place(self, served: BorrowedFd<'_>) -> io::Result<()> {
        place(&self.mount, served, &self.device)?;
        self.judged.iter().try_for_each(|(name, tree)| place(tree, self.mount.as_fd(), name))
    }
}

fn of(name: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// A copy of a mount below a directory, with all that is mounted in it.
fn clone(below: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    rustix::mount::open_tree(below, name, flags)
}

fn place(tree: &OwnedFd, below: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let by_fd = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, "", below, name, by_fd)?)
}

/// The paths of the devices that the server shows. An error is the server's, which goes on serving.
fn shown(served: BorrowedFd<'_>) -> Vec<String> {
    let class = list(served, CLASS);
    let link = |name: &String| {
        let target = rustix::fs::readlinkat(served, format!("{CLASS}/{name}"), Vec::new()).ok()?;
        let target = target.into_string().ok()?;
        let path = target.strip_prefix(UP)?;
        let is_name = |part: &str| !matches!(part, "" | "." | "..");
        path.split('/').all(is_name).then(|| path.to_owned())
    };
    class.iter().filter_map(link).collect()
}

/// The directories of a device that the server judges.
fn served_of(device: BorrowedFd<'_>, keep: Keep<'_>) -> Vec<String> {
    let mut all: Vec<String> = keep.judged.iter().map(ToString::to_string).collect();
    for port in list(device, PORTS) {
        let port = format!("{PORTS}/{port}");
        for name in list(device, &port).into_iter().filter(|name| !keep.plain.contains(&&**name)) {
            let path = format!("{port}/{name}");
            let stat = rustix::fs::statat(device, &*path, AtFlags::SYMLINK_NOFOLLOW);
            let is_dir = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_dir();
            if stat.is_ok_and(is_dir) {
                all.push(path);
            }
        }
    }
    all
}

fn list(below: BorrowedFd<'_>, name: &str) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(below, name, flags, Mode::empty()).and_then(Dir::new);
    let names = dir.into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| !name.starts_with('.')).collect()
}

fn read(below: BorrowedFd<'_>, name: &str) -> Option<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(below, name, flags, Mode::empty()).ok()?;
    let read = rustix::io::read(file, &mut [0_u8; 64]).ok()?;
    (read > 0).then_some(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// The rest takes a mount namespace: harness/tests/sandbox/sysfs.rs.
    #[test]
    fn devices_are_found_by_links_that_lead_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let class = dir.path().join(CLASS);
        fs::create_dir_all(&class).unwrap();
        for (name, target) in [
            ("mlx5_0", "../../devices/pci0000:00/infiniband/mlx5_0"),
            ("out", "../../../etc"),
            ("in", "../../devices/../../etc"),
            ("absolute", "/etc"),
        ] {
            symlink(target, class.join(name)).unwrap();
        }
        let root = fs::File::open(dir.path()).unwrap();
        assert_eq!(shown(root.as_fd()), ["devices/pci0000:00/infiniband/mlx5_0"]);
    }

    #[test]
    fn every_directory_of_a_port_is_judged_that_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["1/gids", "1/pkeys", "2/gids", "2/of_a_later_kernel"] {
            fs::create_dir_all(dir.path().join("ports").join(name)).unwrap();
        }
        fs::write(dir.path().join("ports/1/state"), "").unwrap();
        let root = fs::File::open(dir.path()).unwrap();
        let keep = Keep { dirs: &[], judged: &["hw_counters"], plain: &["pkeys"] };
        let mut found = served_of(root.as_fd(), keep);
        found.sort_unstable();
        let expected = ["hw_counters", "ports/1/gids", "ports/2/gids", "ports/2/of_a_later_kernel"];
        assert_eq!(found, expected);
    }
}
