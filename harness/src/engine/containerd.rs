//! containerd: the CRI plug-in's runtimes in config.toml (docs/cri/config.md of containerd), versions 2
//! and 3 of the file.

use anyhow::Error;
use anyhow::anyhow;
use toml_edit::Array;
use toml_edit::DocumentMut;
use toml_edit::Item;
use toml_edit::Table;
use toml_edit::TableLike;
use toml_edit::value;

use super::Wanted;

/// The annotations that are ours, which are not passed on to a runtime unless it is said.
const ANNOTATIONS: &str = "org.verbgate.*";

/// The plug-in by the version of the file.
const PLUGINS: [(i64, &str); 2] =
    [(2, "io.containerd.grpc.v1.cri"), (3, "io.containerd.cri.v1.runtime")];

pub(super) fn parse(text: &str) -> Result<DocumentMut, Error> {
    text.parse().map_err(|e: toml_edit::TomlError| {
        let (line, column) = super::place_of(text, e.span().map_or(0, |span| span.start));
        let why = e.message().replace('\n', ", ");
        anyhow!("line {line}, column {column}: {why}; repair it first")
    })
}

fn plugin(document: &DocumentMut) -> Result<&'static str, Error> {
    let version = document.get("version").map(|version| version.as_integer());
    let known = |wanted: i64| PLUGINS.iter().find(|(version, _)| *version == wanted);
    match version.flatten().and_then(known) {
        Some((_, plugin)) => Ok(plugin),
        None => Err(anyhow!(
            "version: it must be 2 or 3 (without one it is 1, which is out of date); migrate it first: \
             containerd config migrate"
        )),
    }
}

/// A table that is there, or is made, in the style of its surroundings: without a head of its own.
fn table<'a>(parent: &'a mut dyn TableLike, key: &str) -> Result<&'a mut dyn TableLike, Error> {
    let item = parent.entry(key).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    item.as_table_like_mut().ok_or_else(|| anyhow!("{key}: it must be a table; repair it first"))
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

pub(super) fn with(text: Option<&str>, wanted: &Wanted) -> Result<String, Error> {
    let mut document = parse(text.filter(|t| !t.trim().is_empty()).unwrap_or("version = 2\n"))?;
    let plugin = plugin(&document)?;
    let all = runtimes(&mut document, plugin)?;
    if all.get(&wanted.name).is_none() {
        // Of what is wrapped: cgroups by systemd, and whatever else containers have here.
        let like = all.get(wanted.wrapped).and_then(Item::as_table).cloned();
        let mut ours = like.unwrap_or_default();
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
    set(ours, "runtime_type", value("io.containerd.runc.v2"));
    for key in ["pod_annotations", "container_annotations"] {
        let item = ours.entry(key).or_insert_with(|| value(Array::new()));
        let list = item
            .as_array_mut()
            .ok_or_else(|| anyhow!("{key}: it must be an array; repair it first"))?;
        if !list.iter().any(|one| one.as_str() == Some(ANNOTATIONS)) {
            list.push(ANNOTATIONS);
        }
    }
    let options = ours.entry("options").or_insert_with(|| Item::Table(Table::new()));
    let options = options
        .as_table_like_mut()
        .ok_or_else(|| anyhow!("options: it must be a table; repair it first"))?;
    set(options, "BinaryName", value(wanted.called()));
    if wanted.cdi {
        let cri = table(table(document.as_table_mut(), "plugins")?, plugin)?;
        set(cri, "enable_cdi", value(true));
    }
    Ok(document.to_string())
}

pub(super) fn without(text: &str, name: &str) -> Result<String, Error> {
    let mut document = parse(text)?;
    let plugin = plugin(&document)?;
    runtimes(&mut document, plugin)?.remove(name);
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use similar::ChangeTag;
    use similar::TextDiff;

    use super::super::wanted_for_tests;
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
        let after = with(Some(REAL), &wanted_for_tests()).unwrap();
        let ours = read(&after, "io.containerd.grpc.v1.cri");
        assert_eq!(ours["options"]["BinaryName"].as_str(), Some("/usr/bin/verbgate-oci-runc"));
        assert_eq!(ours["options"]["SystemdCgroup"].as_bool(), Some(true));
        assert_eq!(ours["pod_annotations"][0].as_str(), Some(ANNOTATIONS));
        let diff = TextDiff::from_lines(REAL, after.as_str());
        assert!(diff.iter_all_changes().all(|one| one.tag() != ChangeTag::Delete), "{after}");
        assert_eq!(with(Some(&after), &wanted_for_tests()).unwrap(), after);
        assert!(!without(&after, "verbgate").unwrap().contains("verbgate"));
    }

    #[test]
    fn both_versions_and_no_file_are_known() {
        let three = with(Some("version = 3\n"), &wanted_for_tests()).unwrap();
        let ours = read(&three, "io.containerd.cri.v1.runtime");
        assert_eq!(ours["runtime_type"].as_str(), Some("io.containerd.runc.v2"));
        let none = with(None, &wanted_for_tests()).unwrap();
        assert!(none.starts_with("version = 2\n"), "{none}");
        read(&none, "io.containerd.grpc.v1.cri");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused_by_its_line() {
        for (text, needle) in [
            ("version = 2\n[plugins\n", "line 2"),
            ("[plugins]\n", "containerd config migrate"),
            ("version = 4\n", "version"),
            ("version = 2\nplugins = 3\n", "plugins"),
            (
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\ncontainerd = []\n",
                "containerd",
            ),
        ] {
            let error = with(Some(text), &wanted_for_tests()).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
