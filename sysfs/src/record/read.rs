//! Reading single files and directories of a sysfs.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;

use crate::names;
use crate::snapshot::Attrs;
use crate::value::Value;

/// No attribute is longer; lists of processors and raw files can exceed a page.
pub(crate) const ATTRIBUTE_MAX: usize = 64 << 10;

/// The header of a configuration space (type 0 and type 1), which is all that anyone but root can
/// read of it.
const CONFIG_HEADER: u64 = 64;

/// Directories that no attribute is recorded from.
const SKIPPED: &[&str] = &["power"];

/// Attributes that are many, and change: recorded by name alone where they are served live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Every value.
    Values,
    /// The values that decide what is shown, and the names of the others.
    Names,
}

/// A sysfs root, and how much of it to read.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) root: PathBuf,
    pub(super) detail: Detail,
}

impl Reader {
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
        is_attribute(&file).then(|| read(&file)).flatten()
    }

    /// A value that is only shown.
    fn detail(&self, file: &Path) -> Option<Value> {
        match self.detail {
            Detail::Values => read(file),
            Detail::Names => Some(Value::Unread(())),
        }
    }

    /// Takes the listed attributes of `dir`; those that are directories with all that is in them.
    pub(super) fn listed(&self, dir: &str, list: &[&str], prefix: &str, into: &mut Attrs) {
        for name in list {
            let file = self.root.join(dir).join(name);
            let Ok(meta) = fs::symlink_metadata(&file) else {
                continue;
            };
            let key = format!("{prefix}{name}");
            if meta.is_dir() {
                self.all(&format!("{dir}/{name}"), &format!("{key}/"), into);
            } else if meta.is_file() && is_readable(&meta) {
                into.extend(self.detail(&file).map(|value| (key, value)));
            }
        }
    }

    /// Takes every attribute of `dir` and of the directories in it; no symbolic link is followed.
    pub(super) fn all(&self, dir: &str, prefix: &str, into: &mut Attrs) {
        let Ok(entries) = fs::read_dir(self.root.join(dir)) else {
            return;
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if !names::is_name(&name) || SKIPPED.contains(&&*name) {
                continue;
            }
            let key = format!("{prefix}{name}");
            if kind.is_dir() {
                self.all(&format!("{dir}/{name}"), &format!("{key}/"), into);
            } else if kind.is_file() && entry.metadata().is_ok_and(|meta| is_readable(&meta)) {
                into.extend(self.detail(&entry.path()).map(|value| (key, value)));
            }
        }
    }
}

fn is_attribute(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file() && is_readable(&meta))
}

/// `reset` and its like can only be written.
fn is_readable(meta: &fs::Metadata) -> bool {
    meta.permissions().mode() & 0o444 != 0
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
