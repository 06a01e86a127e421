//! A file of verbgate's own for a containerd whose file imports a folder (`imports = ["/etc/containerd/conf.d/*.toml"]`).
//!
//! The engine's file then stays as the operator has it. containerd 1.x takes the CRI plug-in's settings from one file
//! only: a file that names our runtime there would take all other settings away, now or with the operator's next change.
//! So the folder is used only if containerd says that nothing but our runtime is added; otherwise the engine's own file
//! is edited.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use toml_edit::Array;
use toml_edit::DocumentMut;
use toml_edit::Item;
use toml_edit::value;

use super::ask::Program;
use super::ask::Trial;
use super::containerd;
use super::dropin::HEAD;
use super::effective::Effective;
use super::wanted::Wanted;

/// Behind what others add: containerd reads a folder's files by their names.
const NAME: &str = "99-verbgate.toml";
/// What is read of a folder.
const FILES: &str = "*.toml";

/// A folder that the engine's file imports.
#[derive(Debug, PartialEq)]
struct Folder {
    pattern: String,
    path: PathBuf,
}

/// Our file, and what it was and is to be.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) file: PathBuf,
    pub(super) before: Option<String>,
    pub(super) after: String,
    pub(super) notes: Vec<String>,
}

/// Our file for an engine's file of this text, if the engine reads one.
pub(super) fn file(text: &str) -> Option<PathBuf> {
    Some(Folder::of(&containerd::parse(text).ok()?)?.file())
}

impl Folder {
    /// The last folder of those that are imported.
    fn of(document: &DocumentMut) -> Option<Self> {
        let all = document.get("imports")?.as_array()?;
        let all: Vec<&str> = all.iter().filter_map(|one| one.as_str()).collect();
        all.into_iter().rev().find_map(|pattern| {
            let path = pattern.strip_suffix(FILES)?.strip_suffix('/')?;
            let plain = path.starts_with('/') && !path.contains(['*', '?', '[', '\\']);
            let path = PathBuf::from(path);
            (plain && path.is_dir()).then(|| Self { pattern: pattern.to_owned(), path })
        })
    }

    fn file(&self) -> PathBuf {
        self.path.join(NAME)
    }

    /// The engine's file with the folder's files by their names, of which ours is another, or none.
    fn expanded(&self, document: &DocumentMut, ours: Option<&Path>) -> Result<String, Error> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".toml") && name != NAME {
                let file = self.path.join(&name);
                files.push((name, file));
            }
        }
        files.extend(ours.map(|ours| (NAME.to_owned(), ours.to_owned())));
        files.sort();
        let known = document.get("imports").and_then(|imports| imports.as_array());
        let mut imports = Array::new();
        for one in known.into_iter().flatten() {
            if one.as_str() == Some(&self.pattern) {
                imports.extend(files.iter().map(|(_, file)| file.to_string_lossy().into_owned()));
            } else {
                imports.push(one.clone());
            }
        }
        let mut document = document.clone();
        document.insert("imports", value(imports));
        Ok(document.to_string())
    }
}

/// The change by a file of our own; `None` where the engine reads none, or would lose something by one.
pub(super) fn configured(
    main: &Path,
    text: &str,
    wanted: &Wanted,
    program: &Program,
) -> Result<Option<Change>, Error> {
    // What is wrong with the engine's file is told by who edits that file.
    let Ok(document) = containerd::parse(text) else { return Ok(None) };
    let Some(folder) = Folder::of(&document) else { return Ok(None) };
    if main.parent() == Some(&folder.path) {
        return Ok(None);
    }
    let Ok(known) = Effective::of(program, main, Some(&folder.expanded(&document, None)?)) else {
        return Ok(None);
    };
    // Somebody has named our runtime elsewhere already.
    if known.require_cri(None).is_err() || known.runtime(&wanted.name).is_some() {
        return Ok(None);
    }
    let file = folder.file();
    let before = super::read(&file)?;
    let (cdi, notes) = containerd::cdi_for(&known, wanted, program)?;
    let wanted = Wanted { cdi, ..wanted.clone() };
    // In the version of the engine's file: of files of two versions, containerd 2 takes the newer's settings alone.
    let Some(version) = document.get("version").and_then(Item::as_integer) else { return Ok(None) };
    let fresh = format!("{HEAD}version = {version}\n");
    let text = before.as_deref().unwrap_or(&fresh);
    let Ok(after) = containerd::with(Some(text), &wanted, Some(&known), &[]) else {
        return Ok(None);
    };
    let trial = Trial::beside(&file, &after)?;
    let read = folder.expanded(&document, Some(trial.path()))?;
    let Ok(then) = Effective::of(program, main, Some(&read)) else { return Ok(None) };
    let good = known.check(&then, &wanted.name, &wanted.called()).is_ok()
        && known.rest(&wanted.name) == then.rest(&wanted.name);
    Ok(good.then_some(Change { file, before, after, notes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> DocumentMut {
        containerd::parse(text).unwrap()
    }

    #[test]
    fn our_file_is_in_the_last_folder_and_read_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        for name in ["10-a.toml", "99-z.toml", "notes.txt", NAME] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let text = format!(
            "imports = ['/no/such/*.toml', '{path}/*.toml', '/a.toml', 'b/*.toml', '{path}/*/*.toml']\n"
        );
        let folder = Folder::of(&read(&text)).unwrap();
        assert_eq!(file(&text).unwrap(), dir.path().join(NAME));
        let imports = |ours: Option<&Path>| {
            let all = read(&folder.expanded(&read(&text), ours).unwrap());
            let all = all["imports"].as_array().unwrap().clone();
            all.iter()
                .map(|one| one.as_str().unwrap().replace(&format!("{path}/"), ""))
                .collect::<Vec<_>>()
        };
        let others =
            ["/no/such/*.toml", "10-a.toml", "99-z.toml", "/a.toml", "b/*.toml", "*/*.toml"];
        assert_eq!(imports(None), others);
        let with = [
            "/no/such/*.toml",
            "10-a.toml",
            "/trial",
            "99-z.toml",
            "/a.toml",
            "b/*.toml",
            "*/*.toml",
        ];
        assert_eq!(imports(Some(Path::new("/trial"))), with);
    }

    #[test]
    fn a_file_that_imports_no_folder_has_none() {
        for text in [
            "",
            "imports = []\n",
            "imports = ['/etc/x.toml']\n",
            "imports = 3\n",
            "[",
            "imports = ['*.toml']\n",
        ] {
            assert_eq!(file(text), None, "{text}");
        }
    }
}
