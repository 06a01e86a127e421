//! Records of the original files, in the state directory. The records are not beside the files,
//! because engines read every file of some directories.

use std::fs;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::anyhow;
use serde::Deserialize;
use serde::Serialize;
use verbgate_host::files;
use verbgate_netdev::journal;
use verbgate_sys::foreign;

use super::wanted::Engine;

/// Beginning and end of the records' names.
const PREFIX: &str = "configure-";
const SUFFIX: &str = ".json";

/// The record of a file.
#[derive(Debug)]
pub(super) struct Undo {
    file: PathBuf,
    path: PathBuf,
}

/// The runtime that was added to a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) engine: Engine,
    pub(super) name: String,
}

/// A record of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    /// Whose file it is, and the runtime's name in it; records of version 0.1 do not say.
    #[serde(default)]
    pub(super) entry: Option<Entry>,
    /// `None`: there was no file.
    pub(super) before: Option<String>,
    /// Whether the change was asked for by itself, and not with another engine's.
    #[serde(default)]
    pub(super) alone: bool,
    /// The changed text: if the file still has this text, nobody else has changed the file.
    pub(super) after: String,
}

impl Undo {
    pub(super) fn of(state: &Path, path: &Path) -> Self {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let name = format!("{PREFIX}{:016x}{SUFFIX}", hasher.finish());
        Self { file: state.join(name), path: path.to_owned() }
    }

    /// All records of a state directory, in a fixed order.
    pub(super) fn all(state: &Path) -> Result<Vec<Self>, Error> {
        let entries = match fs::read_dir(state) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| anyhow!("cannot read {}: {e}", state.display()))?,
        };
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| anyhow!("cannot read {}: {e}", state.display()))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                files.push(entry.path());
            }
        }
        files.sort();
        let record = |file: PathBuf| {
            let undo = Self { file, path: PathBuf::new() };
            let path = undo.load()?.map(|kept| kept.path);
            Ok(path.map(|path| Self { path, ..undo }))
        };
        files.into_iter().filter_map(|file| record(file).transpose()).collect()
    }

    /// The file that the record is about.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn load(&self) -> Result<Option<Kept>, Error> {
        match foreign::read_text(&self.file, foreign::Owner::Trusted) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| {
                anyhow!("the record {} cannot be read: {e}; remove the record", self.file.display())
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(anyhow!("cannot read {}: {e}", self.file.display())),
        }
    }

    /// Keeps it, before the file is changed. What was before the first change is kept through those
    /// that follow it.
    pub(super) fn keep(
        &self,
        entry: Entry,
        alone: bool,
        before: Option<&str>,
        after: &str,
    ) -> Result<(), Error> {
        let last = self.load()?;
        let alone = alone || last.as_ref().is_some_and(|kept| kept.alone);
        let first = match last {
            Some(kept) if Some(kept.after.as_str()) == before => kept.before,
            _ => before.map(str::to_owned),
        };
        let (path, entry, after) = (self.path.clone(), Some(entry), after.to_owned());
        self.write(&Kept { path, entry, before: first, alone, after })
    }

    /// Notes that a change that is there is now asked for by itself, too.
    pub(super) fn keep_alone(&self) -> Result<(), Error> {
        match self.load()? {
            Some(kept) if !kept.alone => self.write(&Kept { alone: true, ..kept }),
            _ => Ok(()),
        }
    }

    fn write(&self, kept: &Kept) -> Result<(), Error> {
        let failed = |e: io::Error| anyhow!("cannot write {}: {e}", self.file.display());
        if let Some(dir) = self.file.parent() {
            journal::make_dir(dir).map_err(failed)?;
        }
        // The file can hold passwords, as those of registries and of proxies.
        files::replace(&self.file, &serde_json::to_vec(kept)?, files::PRIVATE).map_err(failed)?;
        Ok(())
    }

    pub(super) fn forget(&self) -> Result<(), Error> {
        match fs::remove_file(&self.file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(anyhow!("cannot remove {}: {e}", self.file.display()))
            }
            _ => Ok(()),
        }
    }
}
