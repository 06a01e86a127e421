//! A kernel's source on disk.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use verbgate_abi_gen::facts::Kernel;

use crate::Error;
use crate::text::Source;

/// Where the kernel declares its tables.
const DECLARATIONS: &str = "drivers/infiniband";
/// The headers that programs see.
pub(crate) const UAPI: &str = "include/uapi/rdma";

/// A kernel's source.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    /// Its version.
    pub(crate) kernel: Kernel,
}

impl Tree {
    /// Looks whether this is a kernel's source, and of which.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        let makefile = root.join("Makefile");
        let text = fs::read_to_string(&makefile)
            .map_err(|source| Error::NoTree { path: root.to_owned(), source })?;
        let number = |key: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim().to_owned())
                .filter(|value| !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| Error::NoVersion { path: makefile.clone(), key: key.to_owned() })
        };
        let series = format!("{}.{}", number("VERSION")?, number("PATCHLEVEL")?);
        let release = format!("{series}.{}", number("SUBLEVEL")?);
        Ok(Self { root: root.to_owned(), kernel: Kernel { series, release } })
    }

    /// A folder or file of the tree.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A file of the tree.
    pub(crate) fn source(&self, path: &str) -> Result<Source, Error> {
        let file = self.root.join(path);
        // Some authors' names in comments are in no encoding of today's.
        let text = fs::read(&file).map_err(|source| Error::Read { path: file, source })?;
        Ok(Source::new(path.into(), &String::from_utf8_lossy(&text)))
    }

    /// The C files that may declare something, in order.
    pub(crate) fn declarations(&self) -> Result<Vec<Source>, Error> {
        let mut files = Vec::new();
        self.collect(DECLARATIONS, "c", true, &mut files)?;
        files.iter().map(|file| self.source(file)).collect()
    }

    /// The headers that programs see, in order, as paths in the tree.
    pub(crate) fn headers(&self) -> Result<Vec<String>, Error> {
        let mut files = Vec::new();
        self.collect(UAPI, "h", false, &mut files)?;
        Ok(files)
    }

    fn collect(
        &self,
        folder: &str,
        extension: &str,
        deep: bool,
        to: &mut Vec<String>,
    ) -> Result<(), Error> {
        let path = self.root.join(folder);
        let failed = |source| Error::Read { path: path.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_folder = entry.file_type().map_err(failed)?.is_dir();
            names.push((format!("{folder}/{}", entry.file_name().to_string_lossy()), is_folder));
        }
        names.sort();
        for (name, is_folder) in names {
            if is_folder && deep {
                self.collect(&name, extension, deep, to)?;
            } else if !is_folder && Path::new(&name).extension().is_some_and(|e| e == extension) {
                to.push(name);
            }
        }
        Ok(())
    }
}

/// Whose a file is: `core`, or the driver's folder below `hw` or `sw`.
pub(crate) fn provider(path: &Path) -> Option<&str> {
    let rest = path.strip_prefix(DECLARATIONS).ok()?;
    let mut parts = rest.iter().filter_map(|part| part.to_str());
    match parts.next()? {
        "core" => Some("core"),
        "hw" | "sw" => parts.next(),
        _ => None,
    }
}
