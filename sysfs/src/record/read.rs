//! Readers of single files and directories of a sysfs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::fs::DirEntry;
use std::fs::File;
use std::fs::Metadata;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::path::PathBuf;

use crate::names;
use crate::snapshot::Access;
use crate::snapshot::Attrs;
use crate::value::Value;

use super::lists;

/// No attribute is longer; lists of processors and raw files can exceed a page.
pub(crate) const ATTRIBUTE_MAX: usize = 64 << 10;

/// The header of a configuration space (type 0 and type 1), which is all that anyone but root can
/// read of it.
const CONFIG_HEADER: u64 = 64;

/// Directories that no attribute is recorded from.
const SKIPPED: &[&str] = &["power"];

/// How much of the attributes is recorded. Where they are served live, their names will do. The recorder then makes
/// no call for any single attribute: a large host has tens of thousands, and the start of a sandbox waits for the
/// recorder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Every value, and who may read which.
    Values,
    /// The values that decide what is shown, and the names of the others.
    Names,
    /// Of those the ones that a sandbox does not have from the host itself, by mounts of [`super::KEPT`].
    Served,
}

/// A sysfs root, and how much of it to read.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) root: PathBuf,
    pub(super) detail: Detail,
    /// Owner and group of the root, and so of nearly all that is below: root's, or in a user
    /// namespace without root's number, nobody's.
    owner: (u32, u32),
    /// Of what was read: that which not everyone may, or which is not that owner's.
    access: RefCell<BTreeMap<String, Access>>,
    /// By the paths of ports: how many slots of their GID tables are recorded, where that is not all of them.
    slots: RefCell<BTreeMap<String, u32>>,
}

impl Reader {
    /// Of the sysfs at `root`.
    ///
    /// # Errors
    /// stat(2)'s.
    pub(super) fn new(root: &Path, detail: Detail) -> io::Result<Self> {
        let meta = fs::metadata(root)?;
        let owner = (meta.uid(), meta.gid());
        let (access, slots) = (RefCell::default(), RefCell::default());
        Ok(Self { root: root.to_owned(), detail, owner, access, slots })
    }

    /// Records no more than so many slots of a port's GID table: thousands of names, of which a host uses dozens.
    pub(super) fn bound_slots(&self, port: String, slots: u32) {
        self.slots.borrow_mut().insert(port, slots);
    }

    /// The number of slots of which a directory has files: a port's `gids`, or one of its `gid_attrs`.
    fn slots_of(&self, dir: &str) -> Option<u32> {
        let attribute = || dir.rsplit_once('/')?.0.strip_suffix("/gid_attrs");
        let port = dir.strip_suffix("/gids").or_else(attribute)?;
        self.slots.borrow().get(port).copied()
    }

    /// What is to be known of who may read what was read.
    pub(super) fn access(self) -> BTreeMap<String, Access> {
        self.access.into_inner()
    }

    /// Names in a directory, ordered; none where there is no such directory.
    pub(super) fn names(&self, dir: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(dir)) else {
            return Vec::new();
        };
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| names::is_name(name)).collect();
        names.sort_unstable_by(|a, b| names::natural(a, b));
        names
    }

    /// Where the symbolic link `path` leads, one step.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        let target = names::follow(path, target.to_str()?)?;
        names::is_path(&target).then_some(target)
    }

    pub(super) fn is_dir(&self, path: &str) -> bool {
        self.root.join(path).is_dir()
    }

    /// Where an entry of a class or bus leads: the kernel makes links, a tree made by hand may
    /// have directories.
    pub(super) fn entry(&self, path: &str) -> Option<String> {
        let place = self.link(path).unwrap_or_else(|| path.to_owned());
        self.is_dir(&place).then_some(place)
    }

    /// A value that decides what is shown.
    pub(super) fn value(&self, path: &str) -> Option<Value> {
        let file = self.root.join(path);
        let meta = fs::symlink_metadata(&file).ok()?;
        self.is_attribute(path, &meta).then(|| read(&file)).flatten()
    }

    /// Whether a file holds something to be read, by somebody; and if not by everyone, by whom.
    fn is_attribute(&self, path: &str, file: &Metadata) -> bool {
        let access = Access::of(file.mode(), (file.uid(), file.gid()), self.owner);
        // `reset` and its like can only be written.
        let is = file.is_file() && access.mode & 0o444 != 0;
        if is && !access.is_common() {
            self.access.borrow_mut().insert(path.to_owned(), access);
        }
        is
    }

    /// Takes the listed attributes of `dir`; those that are directories with all that is in them.
    pub(super) fn listed(&self, dir: &str, list: &[&str], prefix: &str, into: &mut Attrs) {
        self.take(dir, prefix, |name| list.contains(&name), into);
    }

    /// Takes every attribute of `dir` and of the directories in it; no symbolic link is followed.
    pub(super) fn all(&self, dir: &str, prefix: &str, into: &mut Attrs) {
        let slots = self.slots_of(dir);
        let is_there = |name: &str| {
            slots.is_none_or(|slots| name.parse().is_ok_and(|index: u32| index < slots))
        };
        let is_meant = |name: &str| {
            names::is_name(name)
                && !SKIPPED.contains(&name)
                && !is_serial(dir, name)
                && is_there(name)
        };
        self.take(dir, prefix, is_meant, into);
    }

    fn take(&self, dir: &str, prefix: &str, is_meant: impl Fn(&str) -> bool, into: &mut Attrs) {
        let is_kept = |kept: &&str| *kept == dir || names::is_below(dir, kept);
        if self.detail == Detail::Served && lists::KEPT.iter().any(is_kept) {
            return;
        }
        let Ok(entries) = fs::read_dir(self.root.join(dir)) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().into_string();
            let (Some(name), Ok(kind)) =
                (name.ok().filter(|name| is_meant(name)), entry.file_type())
            else {
                continue;
            };
            let (path, key) = (format!("{dir}/{name}"), format!("{prefix}{name}"));
            if kind.is_dir() {
                self.all(&path, &format!("{key}/"), into);
            } else if kind.is_file() {
                into.extend(self.detail(&entry, &path).map(|value| (key, value)));
            }
        }
    }

    /// A value that is only shown.
    fn detail(&self, entry: &DirEntry, path: &str) -> Option<Value> {
        if self.detail != Detail::Values {
            return Some(Value::Unread(()));
        }
        let meta = entry.metadata().ok()?;
        self.is_attribute(path, &meta).then(|| read(&entry.path())).flatten()
    }
}

/// Whether a file of the SMBIOS tables tells one machine from every other of its kind: no program
/// needs that to use a NIC (drivers/firmware/dmi-id.c).
fn is_serial(dir: &str, name: &str) -> bool {
    dir == lists::DMI && (name.ends_with("_serial") || name == "product_uuid")
}

/// `None` for what vanished since it was listed: an attribute that errs is recorded as one that
/// errs.
fn read(file: &Path) -> Option<Value> {
    match contents(file) {
        Ok(bytes) => Some(Value::from(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Value::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) }),
    }
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    limited(&file, &path.to_string_lossy())
}

/// Reads as much of an attribute as is shown of it.
pub(crate) fn limited(file: &File, path: &str) -> io::Result<Vec<u8>> {
    let limit = match names::last(path) {
        "config" => CONFIG_HEADER,
        _ => ATTRIBUTE_MAX as u64,
    };
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
