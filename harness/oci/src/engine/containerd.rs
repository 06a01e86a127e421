//! containerd: the CRI plug-in's runtimes in config.toml (docs/cri/config.md of containerd), versions 2
//! to 4 of the file.

use std::path::Path;

use anyhow::Error;
use anyhow::anyhow;
use toml_edit::Array;
use toml_edit::DocumentMut;
use toml_edit::Item;
use toml_edit::Table;
use toml_edit::TableLike;
use toml_edit::value;

use super::ask::Program;
use super::effective::Effective;
use super::effective::is_empty;
use super::shape::check_shape;
use super::shape::place;
use super::wanted::Wanted;

/// The runtime that containerd has by default.
pub(super) const DEFAULT: &str = "runc";
/// What is said with a default runtime, and what runs ours.
const SHIM: &str = "io.containerd.runc.v2";
/// The first containerd that knows CDI, behind a setting; from the other on it needs none.
const KNOWS_CDI: (u32, u32) = (1, 7);

/// The annotations that are ours, which are not passed on to a runtime unless it is said.
const ANNOTATIONS: &str = "org.verbgate.*";
/// Those by which device plug-ins name CDI devices, of a container alone: whoever writes a pod writes the pod's.
/// containerd 1.6 reads none of them, and the runtime then does.
const CDI_ANNOTATIONS: &str = "cdi.k8s.io/*";

/// The plug-in by the version of the file.
pub(super) const PLUGINS: [(i64, &str); 3] = [
    (2, "io.containerd.grpc.v1.cri"),
    (3, "io.containerd.cri.v1.runtime"),
    (4, "io.containerd.cri.v1.runtime"),
];

pub(super) fn parse(text: &str) -> Result<DocumentMut, Error> {
    text.parse().map_err(|e: toml_edit::TomlError| {
        let (line, column) = super::wanted::place_of(text, e.span().map_or(0, |span| span.start));
        let why = e.message().replace('\n', ", ");
        anyhow!("line {line}, column {column}: {why}; repair the file first")
    })
}

fn plugin(document: &DocumentMut, text: &str) -> Result<&'static str, Error> {
    let version = document.get("version").map(|version| version.as_integer());
    let known = |wanted: i64| PLUGINS.iter().find(|(version, _)| *version == wanted);
    match version.flatten().and_then(known) {
        Some((_, plugin)) => Ok(plugin),
        None => Err(anyhow!(
            "{}version: must be 2, 3 or 4 (a file without a version has version 1, which is out of \
             date); migrate the file first: containerd config migrate; containerd 1.6 cannot do \
             that: there, start from containerd config default",
            place(text, &["version"])
        )),
    }
}

/// A table that is there, or is made, in the style of its surroundings: without a head of its own.
pub(super) fn table<'a>(
    parent: &'a mut dyn TableLike,
    key: &str,
) -> Result<&'a mut dyn TableLike, Error> {
    let item = parent.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    item.as_table_like_mut().ok_or_else(|| anyhow!("{key}: must be a table; repair the file first"))
}

/// The runtime of containers that ask for none, by this file.
fn default_runtime(document: &mut DocumentMut, plugin: &str) -> Result<String, Error> {
    let mut at: &mut dyn TableLike = document.as_table_mut();
    for key in ["plugins", plugin, "containerd"] {
        at = table(at, key)?;
    }
    let name = at.get("default_runtime_name").and_then(Item::as_str);
    Ok(name.unwrap_or(DEFAULT).to_owned())
}

fn runtimes<'a>(
    document: &'a mut DocumentMut,
    plugin: &str,
) -> Result<&'a mut dyn TableLike, Error> {
    let mut at: &mut dyn TableLike = document.as_table_mut();
    for key in ["plugins", plugin, "containerd", "runtimes"] {
        at = table(at, key)?;
    }
    Ok(at)
}

/// Sets a value, unless it is that already: what is right keeps its form.
fn set(table: &mut dyn TableLike, key: &str, new: Item) {
    let same = |known: &Item| known.to_string().trim() == new.to_string().trim();
    if !table.get(key).is_some_and(same) {
        table.insert(key, new);
    }
}

/// What is said of the original is not said of its copy.
fn uncomment(table: &mut Table) {
    let decor = table.decor_mut();
    let before = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    let indent = before.rsplit('\n').next().unwrap_or_default();
    let prefix = format!("\n{indent}");
    decor.clear();
    decor.set_prefix(prefix);
}

/// The file's text with what is wanted, and what is to be said about that.
///
/// Before and after the change, containerd says what containerd would make of the file; without a
/// program nobody is asked.
pub(super) fn configured(
    file: &Path,
    text: Option<&str>,
    wanted: &Wanted,
    program: Option<&Program>,
) -> Result<(String, Vec<String>), Error> {
    if let Some(text) = text {
        // A mistake is told by its line here, which not every version of containerd does.
        parse(text)?;
    }
    let Some(program) = program else {
        return Ok((with(text, wanted, None, &[])?, Vec::new()));
    };
    let text = text.filter(|text| !text.trim().is_empty());
    let before = Effective::of(program, file, text)?;
    before.require_cri(text)?;
    let (cdi, mut notes) = cdi_for(&before, wanted, program)?;
    let wanted = Wanted { cdi, ..wanted.clone() };
    let path = wanted.called();
    let mut changed = with(text, &wanted, Some(&before), &[])?;
    let mut after = Effective::of(program, file, Some(&changed))?;
    let lost = before.lost_in(&after, &wanted.name);
    if !lost.is_empty() && after.runtime(&wanted.name).is_some() {
        changed = with(text, &wanted, Some(&before), &lost)?;
        after = Effective::of(program, file, Some(&changed))?;
    }
    before.check(&after, &wanted.name, &path)?;
    notes.extend(before.default_runtime().and_then(|name| {
        let program = before.runtime(name)?.get("options")?.get("BinaryName")?.as_str()?;
        wanted.note_default(name, program)
    }));
    Ok((changed, notes))
}

/// Has containerd check a text that takes the runtime of a name out of a file, unless containerd does not take the
/// present one.
pub(super) fn check(
    program: &Program,
    file: &Path,
    now: Option<&str>,
    after: Option<&str>,
    name: &str,
) -> Result<(), Error> {
    let Ok(now) = Effective::of(program, file, now) else { return Ok(()) };
    let then = Effective::of(program, file, after.filter(|text| !text.trim().is_empty()))?;
    match now.lost_in(&then, name).first() {
        Some(lost) => Err(anyhow!("containerd would lose the runtime {lost:?}")),
        None => Ok(()),
    }
}

/// Whether to write the setting for CDI, and what to say.
pub(super) fn cdi_for(
    before: &Effective,
    wanted: &Wanted,
    program: &Program,
) -> Result<(bool, Vec<String>), Error> {
    if !wanted.cdi || before.knows_cdi() {
        return Ok((wanted.cdi, Vec::new()));
    }
    let version = program.version()?;
    let note = if version.is_before(KNOWS_CDI) {
        format!(
            "--cdi has no effect: containerd {} reads no CDI specifications (1.7 is the first that \
             does); ask for devices by the annotation org.verbgate.devices instead",
            version.text()
        )
    } else {
        format!("--cdi changes nothing: containerd {} needs no setting for CDI", version.text())
    };
    Ok((false, vec![note]))
}

/// A runtime as containerd has it, without what is as nobody has set it.
fn copy_of(known: &dyn TableLike) -> Table {
    let mut copy = Table::new();
    for (key, item) in known.iter() {
        if let Some(below) = item.as_table_like() {
            let below = copy_of(below);
            if !below.is_empty() {
                copy.insert(key, Item::Table(below));
            }
        } else if let Some(known) = item.as_value().filter(|value| !is_empty(value)) {
            copy.insert(key, Item::Value(known.clone().decorated(" ", "")));
        }
    }
    copy
}

/// A default runtime that a file with other runtimes has to name.
fn added(known: Option<&Effective>, name: &str) -> Table {
    if let Some(known) = known.and_then(|known| known.runtime(name)) {
        return copy_of(known);
    }
    let mut fresh = Table::new();
    fresh.insert("runtime_type", value(SHIM));
    fresh
}

/// Whether a runtime's program is of this name.
fn runs(table: &dyn TableLike, program: &str) -> bool {
    let path = table.get("options").and_then(|options| options.get("BinaryName")?.as_str());
    path.is_some_and(|path| path.rsplit('/').next() == Some(program))
}

/// What ours is made of where the file does not have the runtime that it wraps: cgroups by systemd, and
/// whatever else containers have by default here.
fn made_like(known: &Effective, wrapped: &str) -> Table {
    let by_program = || Some(known.runtimes().find(|(_, table)| runs(*table, wrapped))?.1);
    let like = known.runtime(wrapped).or_else(by_program);
    let like = like.or_else(|| known.runtime(known.default_runtime()?));
    let mut copy = like.map(copy_of).unwrap_or_default();
    for key in ["runtime_path", "runtime_engine", "runtime_root"] {
        copy.remove(key);
    }
    copy
}

/// The text with our runtime in it, and with those that have to be added for it to do no harm.
pub(super) fn with(
    text: Option<&str>,
    wanted: &Wanted,
    known: Option<&Effective>,
    add: &[String],
) -> Result<String, Error> {
    let version = known.map_or(2, |known| known.version().max(2));
    let fresh = format!("version = {version}\n");
    let text = text.filter(|text| !text.trim().is_empty()).unwrap_or(&fresh);
    let mut document = parse(text)?;
    let plugin = plugin(&document, text)?;
    check_shape(text, plugin, &wanted.name)?;
    let default = default_runtime(&mut document, plugin)?;
    let all = runtimes(&mut document, plugin)?;
    for name in add {
        all.insert(name, Item::Table(added(known, name)));
    }
    if known.is_none() && default == DEFAULT && all.get(DEFAULT).is_none() {
        // Nobody can be asked whether it stays; where it would, it is only said twice.
        all.insert(DEFAULT, Item::Table(added(None, DEFAULT)));
    }
    if all.get(&wanted.name).is_none() {
        // Of what is wrapped: cgroups by systemd, and whatever else containers have here.
        let wrapped = wanted.wrapped_name();
        let by_program = || {
            let mut tables = all.iter().filter_map(|(_, item)| item.as_table());
            tables.find(|table| runs(*table, wrapped))
        };
        let like = all.get(wrapped).and_then(Item::as_table).or_else(by_program).cloned();
        let made = || known.map(|known| made_like(known, wrapped));
        let mut ours = like.or_else(made).unwrap_or_default();
        ours.set_implicit(false);
        // Behind everything else, not among what it was copied from.
        ours.set_position(None);
        uncomment(&mut ours);
        if let Some(options) = ours.get_mut("options").and_then(Item::as_table_mut) {
            options.set_position(None);
            uncomment(options);
        }
        all.insert(&wanted.name, Item::Table(ours));
    }
    let ours = table(all, &wanted.name)?;
    set(ours, "runtime_type", value(SHIM));
    let passed: [(&str, &[&str]); 2] = [
        ("pod_annotations", &[ANNOTATIONS]),
        ("container_annotations", &[ANNOTATIONS, CDI_ANNOTATIONS]),
    ];
    for (key, wanted) in passed {
        let item = ours.entry(key).or_insert_with(|| value(Array::new()));
        let list = item
            .as_array_mut()
            .ok_or_else(|| anyhow!("{key}: must be an array; repair the file first"))?;
        for annotations in wanted {
            if !list.iter().any(|one| one.as_str() == Some(annotations)) {
                list.push(*annotations);
            }
        }
    }
    let options = ours.entry("options").or_insert_with(|| Item::Table(Table::new()));
    let options = options
        .as_table_like_mut()
        .ok_or_else(|| anyhow!("options: must be a table; repair the file first"))?;
    set(options, "BinaryName", value(wanted.called()));
    if wanted.cdi {
        let cri = table(table(document.as_table_mut(), "plugins")?, plugin)?;
        set(cri, "enable_cdi", value(true));
    }
    Ok(document.to_string())
}

pub(super) fn without(text: &str, name: &str) -> Result<String, Error> {
    let mut document = parse(text)?;
    let plugin = plugin(&document, text)?;
    if default_runtime(&mut document, plugin)? == name {
        return Err(anyhow!(
            "default_runtime_name is {name:?}, and the CRI does not load without the default \
             runtime; name another runtime first"
        ));
    }
    runtimes(&mut document, plugin)?.remove(name);
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use similar::ChangeTag;
    use similar::TextDiff;

    use super::super::wanted::wanted_for_tests;
    use super::*;

    /// As `kubeadm` and the NVIDIA toolkit leave it.
    const REAL: &str = r#"# by hand, do not touch
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.9" # pinned
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "runc"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
            SystemdCgroup = true

[timeouts]
  "io.containerd.timeout.shim.cleanup" = "5s"
"#;

    fn read(text: &str, plugin: &str) -> toml::Value {
        let value: toml::Value = toml::from_str(text).unwrap();
        value["plugins"][plugin]["containerd"]["runtimes"]["verbgate"].clone()
    }

    #[test]
    fn the_rest_stays_and_the_wrapped_ones_settings_are_taken_over() {
        let after = with(Some(REAL), &wanted_for_tests(), None, &[]).unwrap();
        let ours = read(&after, "io.containerd.grpc.v1.cri");
        assert_eq!(ours["options"]["BinaryName"].as_str(), Some("/usr/bin/verbgate-oci-runc"));
        assert_eq!(ours["options"]["SystemdCgroup"].as_bool(), Some(true));
        assert_eq!(ours["pod_annotations"][0].as_str(), Some(ANNOTATIONS));
        assert_eq!(ours["container_annotations"][1].as_str(), Some(CDI_ANNOTATIONS));
        assert_eq!(ours["pod_annotations"].as_array().unwrap().len(), 1);
        let diff = TextDiff::from_lines(REAL, after.as_str());
        assert!(diff.iter_all_changes().all(|one| one.tag() != ChangeTag::Delete), "{after}");
        assert_eq!(with(Some(&after), &wanted_for_tests(), None, &[]).unwrap(), after);
        assert!(!without(&after, "verbgate").unwrap().contains("verbgate"));
    }

    /// A runtime by another name than its program's, as the NVIDIA toolkit names its own.
    #[test]
    fn the_settings_are_those_of_the_wrapped_program() {
        let other = REAL.replace("runtimes.runc", "runtimes.nvidia").replace(
            "SystemdCgroup = true",
            "BinaryName = \"/usr/bin/nvidia-container-runtime\"\nSystemdCgroup = true",
        );
        let wanted = Wanted { wrapped: "nvidia-container-runtime".into(), ..wanted_for_tests() };
        let ours = read(&with(Some(&other), &wanted, None, &[]).unwrap(), PLUGINS[0].1);
        assert_eq!(ours["options"]["SystemdCgroup"].as_bool(), Some(true));
        let program = "/usr/bin/verbgate-oci-nvidia-container-runtime";
        assert_eq!(ours["options"]["BinaryName"].as_str(), Some(program));
    }

    /// containerd 1.x keeps its default runtime only as long as no file names another one.
    #[test]
    fn the_default_runtime_is_named_where_nobody_can_be_asked() {
        for text in [None, Some("version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\n")] {
            let after = with(text, &wanted_for_tests(), None, &[]).unwrap();
            let value: toml::Value = toml::from_str(&after).unwrap();
            let cri = &value["plugins"]["io.containerd.grpc.v1.cri"];
            let runc = &cri["containerd"]["runtimes"]["runc"];
            assert_eq!(runc["runtime_type"].as_str(), Some(SHIM), "{after}");
        }
        let other = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\n\
                     default_runtime_name = 'kata'\n";
        let after = with(Some(other), &wanted_for_tests(), None, &[]).unwrap();
        assert!(!after.contains("runtimes.runc]"), "{after}");
    }

    #[test]
    fn the_default_runtime_is_not_taken_away() {
        let text = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\n\
                    default_runtime_name = 'verbgate'\n";
        let error = without(text, "verbgate").unwrap_err().to_string();
        assert!(error.contains("default_runtime_name"), "{error}");
    }

    #[test]
    fn all_versions_and_no_file_are_known() {
        let four = with(Some("version = 4\n"), &wanted_for_tests(), None, &[]).unwrap();
        read(&four, "io.containerd.cri.v1.runtime");
        let three = with(Some("version = 3\n"), &wanted_for_tests(), None, &[]).unwrap();
        let ours = read(&three, "io.containerd.cri.v1.runtime");
        assert_eq!(ours["runtime_type"].as_str(), Some("io.containerd.runc.v2"));
        let none = with(None, &wanted_for_tests(), None, &[]).unwrap();
        assert!(none.starts_with("version = 2\n"), "{none}");
        read(&none, "io.containerd.grpc.v1.cri");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_by_its_line() {
        for (text, needle) in [
            ("version = 2\n[plugins\n", "line 2"),
            ("[plugins]\n", "containerd config migrate"),
            ("version = 5\n", "version"),
            ("version = 2\nplugins = 3\n", "plugins"),
            (
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\ncontainerd = []\n",
                "containerd",
            ),
        ] {
            let error = with(Some(text), &wanted_for_tests(), None, &[]).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
