//! The settings that containerd would really use: `containerd config dump`, which holds
//! containerd's defaults and all imported files.
//!
//! containerd does not always use a runtime that a file names. containerd 1.x keeps its default
//! runtime only as long as no file names any runtime, and of two files that name the CRI plug-in
//! containerd takes the later one whole. So a change is tried on a copy, and is written only if no
//! setting is lost.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use toml_edit::DocumentMut;
use toml_edit::Item;
use toml_edit::TableLike;

use super::ask;
use super::ask::Program;
use super::ask::Trial;
use super::containerd::DEFAULT;
use super::containerd::PLUGINS;

/// Names by which the CRI plug-in is disabled: its short one, and what holds its runtimes.
fn is_cri(name: &str) -> bool {
    name == "cri" || PLUGINS.iter().any(|(_, plugin)| *plugin == name)
}

/// Why a file cannot be used, or could not be used after a change.
#[derive(Debug, thiserror::Error)]
pub(super) enum EffectiveError {
    /// The engine could not be asked.
    #[error(transparent)]
    Ask(#[from] ask::AskError),
    /// The answer is not understood.
    #[error(
        "cannot read the output of containerd config dump: {0}; write the file unchecked by --no-verify"
    )]
    Dump(String),
    /// The CRI is switched off.
    #[error(
        "{place}disabled_plugins names {name:?}: this containerd serves no CRI and reads no runtimes; \
         remove {name:?} from the list first (Docker and ctr need no runtime in this file)"
    )]
    Disabled { place: String, name: String },
    /// An imported file overrides this one.
    #[error(
        "the imported file {} sets the CRI plug-in too, and containerd uses only the later of the two; \
         change the imported file instead: --config {}", .by.display(), .by.display()
    )]
    Overridden { by: PathBuf },
    /// The runtime is not used, and nobody knows why.
    #[error(
        "containerd would ignore the runtime {name:?} in this file; an imported file may override the \
         CRI plug-in: compare containerd config dump"
    )]
    Unused { name: String },
    /// Another runtime would be lost, or be another.
    #[error(
        "with this change containerd would {how} the runtime {name:?}; add that runtime to this file \
         first"
    )]
    Harmed { name: String, how: &'static str },
    /// The default runtime is missing, whatever is changed.
    #[error(
        "default_runtime_name is {name:?}, a runtime that is missing, so the CRI does not load; add that \
         runtime first, or name another"
    )]
    NoDefault { name: String },
}

/// containerd's reading of a file.
#[derive(Debug)]
pub(super) struct Effective {
    dump: DocumentMut,
    plugin: &'static str,
    version: i64,
}

impl Effective {
    /// Asks containerd what it would make of a text in the place of a file; without one, what its
    /// defaults are.
    pub(super) fn of(
        program: &Program,
        file: &Path,
        text: Option<&str>,
    ) -> Result<Self, EffectiveError> {
        let dump = match text {
            None => program.output(&["config", "default"])?,
            Some(text) => {
                let trial = Trial::beside(file, text)?;
                let path = trial.path().as_os_str();
                let words = ["--config".as_ref(), path, "config".as_ref(), "dump".as_ref()];
                program.output(&words).map_err(|e| ask::in_place(e, &trial, file))?
            }
        };
        Self::read(&dump)
    }

    fn read(dump: &str) -> Result<Self, EffectiveError> {
        let dump: DocumentMut = dump
            .parse()
            .map_err(|e: toml_edit::TomlError| EffectiveError::Dump(e.message().to_owned()))?;
        let version = dump.get("version").and_then(Item::as_integer).unwrap_or(1);
        let plugins = dump.get("plugins").and_then(Item::as_table_like);
        // The newer name first: a dump may show settings of the older one, which are of no effect.
        let there = |plugin: &&str| plugins.is_some_and(|all| all.contains_key(plugin));
        let mut names = PLUGINS.iter().rev().map(|(_, plugin)| *plugin);
        let plugin = names.find(there).unwrap_or(PLUGINS[0].1);
        Ok(Self { dump, plugin, version })
    }

    /// The file's version that containerd would write.
    pub(super) fn version(&self) -> i64 {
        self.version
    }

    fn cri(&self) -> Option<&dyn TableLike> {
        self.dump.get("plugins")?.get(self.plugin)?.as_table_like()
    }

    fn containerd(&self) -> Option<&dyn TableLike> {
        self.cri()?.get("containerd")?.as_table_like()
    }

    /// The name of the runtime of containers that ask for none.
    pub(super) fn default_runtime(&self) -> Option<&str> {
        self.containerd()?.get("default_runtime_name")?.as_str().filter(|name| !name.is_empty())
    }

    /// All runtimes, by their names.
    pub(super) fn runtimes(&self) -> impl Iterator<Item = (&str, &dyn TableLike)> {
        let all = self.containerd().and_then(|all| all.get("runtimes")?.as_table_like());
        let all = all.into_iter().flat_map(TableLike::iter);
        all.filter_map(|(name, item)| Some((name, item.as_table_like()?)))
    }

    /// The runtime of a name.
    pub(super) fn runtime(&self, name: &str) -> Option<&dyn TableLike> {
        self.runtimes().find(|(known, _)| *known == name).map(|(_, table)| table)
    }

    /// The programs of all runtimes that name one.
    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.runtimes().filter_map(|(_, table)| table.get("options")?.get("BinaryName")?.as_str())
    }

    /// Whether the CRI plug-in has a setting for CDI.
    pub(super) fn knows_cdi(&self) -> bool {
        self.cri().is_some_and(|cri| cri.contains_key("enable_cdi"))
    }

    fn list(&self, key: &str) -> impl Iterator<Item = &str> {
        let list = self.dump.get(key).and_then(Item::as_array);
        list.into_iter().flatten().filter_map(|one| one.as_str())
    }

    /// Refuses a containerd whose CRI is off; `place` finds the line in the file.
    pub(super) fn require_cri(&self, text: Option<&str>) -> Result<(), EffectiveError> {
        let Some(name) = self.list("disabled_plugins").find(|name| is_cri(name)) else {
            return Ok(());
        };
        let document = text.and_then(|text| toml_edit::Document::parse(text).ok());
        let list = document.as_ref().and_then(|all| all.get("disabled_plugins")?.as_array());
        // As the file has it: a dump may have it longer.
        let mut here = list.into_iter().flatten().filter(|one| one.as_str().is_some_and(is_cri));
        let (place, name) = match (text, here.find_map(|one| Some((one.span()?, one.as_str()?)))) {
            (Some(text), Some((span, name))) => {
                (format!("line {}: ", super::wanted::place_of(text, span.start).0), name)
            }
            _ => ("in an imported file, ".to_owned(), name),
        };
        Err(EffectiveError::Disabled { place, name: name.to_owned() })
    }

    /// The runtimes that there were and would be no more; and containerd's own default one, if it is
    /// asked for and was lost before.
    pub(super) fn lost_in(&self, after: &Self, ours: &str) -> Vec<String> {
        let before = self.runtimes().map(|(name, _)| name);
        let default = after.default_runtime().filter(|name| *name == DEFAULT);
        let all = before.chain(default.filter(|name| self.runtime(name).is_none()));
        all.filter(|name| *name != ours && after.runtime(name).is_none()).map(Into::into).collect()
    }

    /// Checks what a change has made of this: our runtime is there by its path, and every other is what
    /// it was.
    pub(super) fn check(&self, after: &Self, ours: &str, path: &str) -> Result<(), EffectiveError> {
        let called = |table: &dyn TableLike| {
            table.get("options").and_then(|options| options.get("BinaryName")?.as_str())
                == Some(path)
        };
        if !after.runtime(ours).is_some_and(called) {
            return Err(after.overriding().map_or_else(
                || EffectiveError::Unused { name: ours.to_owned() },
                |by| EffectiveError::Overridden { by },
            ));
        }
        for (name, was) in self.runtimes().filter(|(name, _)| *name != ours) {
            let name = name.to_owned();
            match after.runtime(&name) {
                None => return Err(EffectiveError::Harmed { name, how: "lose" }),
                Some(is) if settings(is) != settings(was) => {
                    return Err(EffectiveError::Harmed { name, how: "change" });
                }
                Some(_) => {}
            }
        }
        match after.default_runtime() {
            Some(name) if after.runtime(name).is_none() => {
                Err(EffectiveError::NoDefault { name: name.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// All settings but those of our runtime, the switch for CDI, and the names of the files that were read.
    pub(super) fn rest(&self, ours: &str) -> Vec<(String, String)> {
        let runtime = format!(".containerd.runtimes.{ours}.");
        let mut all = settings(self.dump.as_table());
        all.retain(|(key, _)| {
            key != "imports" && !key.contains(&runtime) && !key.ends_with(".enable_cdi")
        });
        all
    }

    /// The last imported file that sets the CRI plug-in.
    fn overriding(&self) -> Option<PathBuf> {
        let files: Vec<PathBuf> = self.list("imports").map(PathBuf::from).collect();
        let sets = |file: &&PathBuf| {
            let is_trial =
                file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(ask::TRIAL));
            let text = fs::read_to_string(file).unwrap_or_default();
            let read = text.parse::<DocumentMut>().ok();
            let plugins = read.as_ref().and_then(|read| read.get("plugins")?.as_table_like());
            !is_trial && plugins.is_some_and(|all| PLUGINS.iter().any(|(_, p)| all.contains_key(p)))
        };
        files.iter().rev().find(sets).cloned()
    }
}

/// What is set in a table and in those below it, in order, without how it is written. What is empty,
/// zero or false is as if it were not there: a newer engine shows more of these.
pub(super) fn settings(table: &dyn TableLike) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (key, item) in table.iter() {
        if let Some(below) = item.as_table_like() {
            let below = settings(below).into_iter();
            all.extend(below.map(|(name, value)| (format!("{key}.{name}"), value)));
        } else if let Some(value) = item.as_value().filter(|value| !is_empty(value)) {
            all.push((key.to_owned(), plain(value)));
        }
    }
    all.sort();
    all
}

/// A value without how it is written.
fn plain(value: &toml_edit::Value) -> String {
    match value {
        toml_edit::Value::String(text) => format!("{:?}", text.value()),
        toml_edit::Value::Array(all) => {
            format!("[{}]", all.iter().map(plain).collect::<Vec<_>>().join(", "))
        }
        other => other.clone().decorated("", "").to_string(),
    }
}

/// Whether a value is what a setting has that nobody has set.
pub(super) fn is_empty(value: &toml_edit::Value) -> bool {
    match value {
        toml_edit::Value::String(text) => text.value().is_empty(),
        toml_edit::Value::Integer(number) => *number.value() == 0,
        toml_edit::Value::Boolean(is) => !is.value(),
        toml_edit::Value::Array(all) => all.is_empty(),
        toml_edit::Value::InlineTable(all) => all.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What containerd 1.7 says, cut to what is read.
    fn dump(head: &str, runtimes: &[(&str, &str)]) -> Effective {
        let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
        let mut text =
            format!("version = 2\n{head}\n[{cri}.containerd]\ndefault_runtime_name = \"runc\"\n");
        for (name, binary) in runtimes {
            text.push_str(&format!(
                "[{cri}.containerd.runtimes.{name}]\nruntime_type = \"io.containerd.runc.v2\"\n\
                 cni_max_conf_num = 0\npod_annotations = []\n\
                 [{cri}.containerd.runtimes.{name}.options]\nBinaryName = \"{binary}\"\n"
            ));
        }
        Effective::read(&text).unwrap()
    }

    #[test]
    fn a_runtime_that_would_be_lost_is_named() {
        let before = dump("", &[("runc", ""), ("nvidia", "/n")]);
        let after = dump("", &[("verbgate", "/v")]);
        assert_eq!(before.lost_in(&after, "verbgate"), ["runc", "nvidia"]);
        let error = before.check(&after, "verbgate", "/v").unwrap_err().to_string();
        assert!(error.contains("lose") && error.contains("runc"), "{error}");
        let changed = dump("", &[("runc", "/x"), ("nvidia", "/n"), ("verbgate", "/v")]);
        let error = before.check(&changed, "verbgate", "/v").unwrap_err().to_string();
        assert!(error.contains("change") && error.contains("runc"), "{error}");
        let good = dump("", &[("verbgate", "/v"), ("nvidia", "/n"), ("runc", "")]);
        before.check(&good, "verbgate", "/v").unwrap();
        assert!(before.lost_in(&good, "verbgate").is_empty());
    }

    /// Such as an older verbgate has left.
    #[test]
    fn a_default_that_was_lost_before_is_lost() {
        let broken = dump("", &[("verbgate", "/v")]);
        assert_eq!(broken.lost_in(&broken, "verbgate"), ["runc"]);
        let error = broken.check(&broken, "verbgate", "/v").unwrap_err();
        assert!(matches!(error, EffectiveError::NoDefault { .. }), "{error}");
    }

    #[test]
    fn who_overrides_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let import = dir.path().join("50-site.toml");
        fs::write(&import, "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\n").unwrap();
        let other = dir.path().join("60-debug.toml");
        fs::write(&other, "version = 2\n[debug]\nlevel = 'debug'\n").unwrap();
        let imports = format!("imports = [{import:?}, {other:?}]");
        let before = dump("", &[("runc", "")]);
        let error = before.check(&dump(&imports, &[("runc", "")]), "verbgate", "/v").unwrap_err();
        assert!(error.to_string().contains("--config"), "{error}");
        assert!(matches!(error, EffectiveError::Overridden { by } if by == import));
        let error = before.check(&dump("", &[("runc", "")]), "verbgate", "/v").unwrap_err();
        assert!(matches!(error, EffectiveError::Unused { .. }), "{error}");
    }

    #[test]
    fn a_cri_that_is_off_is_refused_by_its_line() {
        let off = dump("disabled_plugins = [\"io.containerd.grpc.v1.cri\"]", &[("runc", "")]);
        let text = "# Docker's\n\ndisabled_plugins = [\n  \"cri\"]\n";
        let error = off.require_cri(Some(text)).unwrap_err().to_string();
        assert!(error.starts_with("line 4: ") && error.contains("\"cri\""), "{error}");
        let error = off.require_cri(Some("version = 2\n")).unwrap_err().to_string();
        assert!(error.starts_with("in an imported file, "), "{error}");
        dump("disabled_plugins = [\"io.containerd.snapshotter.v1.zfs\"]", &[("runc", "")])
            .require_cri(None)
            .unwrap();
    }

    #[test]
    fn nothing_set_is_the_same_however_it_is_shown() {
        let known = |text: &str| settings(text.parse::<DocumentMut>().unwrap().as_table());
        let plain = known("a = 'x'\n[options]\nSystemdCgroup = true\n");
        let full = known("b = ''\nc = []\na = \"x\"\n[options]\nSystemdCgroup=true\nIoUid = 0\n");
        assert_eq!(plain, full);
        assert_ne!(plain, known("a = 'x'\n[options]\nSystemdCgroup = false\n"));
    }

    #[test]
    fn the_newer_plugin_is_the_one_that_counts() {
        let text = "version = 3\n[plugins.'io.containerd.grpc.v1.cri']\n\
                    [plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\n\
                    [plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name='r'\n";
        let three = Effective::read(text).unwrap();
        assert_eq!((three.version(), three.default_runtime()), (3, Some("r")));
        assert!(three.knows_cdi() && !dump("", &[]).knows_cdi());
    }
}
