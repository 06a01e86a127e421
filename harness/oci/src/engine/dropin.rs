//! Files for podman and CRI-O, which read directories of files: one whole file is verbgate's.

use std::env;
use std::path::Path;

use anyhow::Error;
use anyhow::anyhow;
use toml_edit::DocumentMut;
use toml_edit::Item;
use toml_edit::Table;
use toml_edit::value;

use super::ask;
use super::ask::Program;
use super::ask::Trial;
use super::containerd::parse;
use super::wanted::Engine;
use super::wanted::Wanted;

/// First line of verbgate's own file.
pub(super) const HEAD: &str =
    "# Made by: verbgate runtime configure. To remove it: the same with --undo.\n";

/// `[engine.runtimes]`: names and the paths at which they may be; containers.conf(5).
pub(super) fn podman(text: Option<&str>, wanted: &Wanted) -> Result<String, Error> {
    let mut runtimes = Table::new();
    let paths: toml_edit::Array = [wanted.called()].into_iter().collect();
    runtimes.insert(&wanted.name, value(paths));
    ours(text, "engine", runtimes)
}

/// `[crio.runtime.runtimes.NAME]`; crio.conf(5).
pub(super) fn crio(text: Option<&str>, wanted: &Wanted) -> Result<String, Error> {
    let mut runtime = Table::new();
    runtime.insert("runtime_path", value(wanted.called()));
    runtime.insert("runtime_type", value("oci"));
    let mut runtimes = Table::new();
    runtimes.set_implicit(true);
    runtimes.insert(&wanted.name, Item::Table(runtime));
    let text = ours(text, "crio.runtime", runtimes)?;
    Ok(text)
}

/// Has podman read a text: each of its commands begins with that.
pub(super) fn check_podman(program: &Program, file: &Path, text: &str) -> Result<(), Error> {
    let trial = Trial::beside(file, text)?;
    let read = program.reads("CONTAINERS_CONF", trial.path(), &["--version"]);
    Ok(read.map_err(|e| ask::in_place(e, &trial, file))?)
}

/// Has CRI-O read a text together with the files of its directory, and show what CRI-O makes of them.
pub(super) fn check_crio(
    program: &Program,
    file: &Path,
    text: &str,
    wanted: &Wanted,
) -> Result<(), Error> {
    // Not beside the file: CRI-O reads whatever is there.
    let trial = Trial::beside(&env::temp_dir().join("crio"), text)?;
    let words = ["--config".as_ref(), trial.path().as_os_str(), "config".as_ref()];
    let shown = program.output(&words).map_err(|e| ask::in_place(e, &trial, file))?;
    if shown.contains(&wanted.called()) {
        return Ok(());
    }
    Err(anyhow!(
        "CRI-O would ignore the runtime {:?} in this file: crio config does not show the runtime; another file in {} \
         may override this file",
        wanted.name,
        file.parent().unwrap_or(file).display()
    ))
}

/// The file, with a table `runtimes` under dotted keys.
fn ours(text: Option<&str>, under: &str, runtimes: Table) -> Result<String, Error> {
    if let Some(text) = text {
        refuse_others(text)?;
    }
    let mut item = Table::new();
    item.set_implicit(true);
    item.insert("runtimes", Item::Table(runtimes));
    for key in under.rsplit('.') {
        let mut outer = Table::new();
        outer.set_implicit(true);
        outer.insert(key, Item::Table(item));
        item = outer;
    }
    let document = DocumentMut::from(item);
    Ok(format!("{HEAD}{document}"))
}

/// The names of a file's runtimes.
pub(super) fn names(engine: Engine, text: &str) -> Vec<String> {
    let path: &[&str] = match engine {
        Engine::Podman => &["engine", "runtimes"],
        Engine::Crio => &["crio", "runtime", "runtimes"],
        Engine::Docker | Engine::Containerd | Engine::Nvidia => return Vec::new(),
    };
    let Ok(document) = parse(text) else { return Vec::new() };
    let all = path.iter().try_fold(document.as_item(), |at, key| at.get(key));
    let all = all.and_then(Item::as_table_like).into_iter().flat_map(toml_edit::TableLike::iter);
    all.map(|(name, _)| name.to_owned()).collect()
}

/// Nothing is left of a file of ours.
pub(super) fn without(text: &str) -> Result<Option<String>, Error> {
    refuse_others(text)?;
    Ok(None)
}

/// Refuses to overwrite somebody else's file.
fn refuse_others(text: &str) -> Result<(), Error> {
    parse(text)?;
    if text.starts_with(HEAD) {
        return Ok(());
    }
    Err(anyhow!(
        "somebody else has made this file, or has changed the first line; name another file by \
         --config"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::wanted::wanted_for_tests;
    use super::*;

    #[test]
    fn the_files_say_where_the_runtime_is() {
        let podman = podman(None, &wanted_for_tests()).unwrap();
        let value: toml::Value = toml::from_str(&podman).unwrap();
        let path = "/usr/bin/verbgate-oci-runc";
        assert_eq!(value["engine"]["runtimes"]["verbgate"][0].as_str(), Some(path));
        let crio = crio(Some(&podman), &wanted_for_tests()).unwrap();
        let value: toml::Value = toml::from_str(&crio).unwrap();
        let ours = &value["crio"]["runtime"]["runtimes"]["verbgate"];
        assert_eq!(ours["runtime_path"].as_str(), Some(path));
        assert_eq!(without(&crio).unwrap(), None);
        assert_eq!(names(Engine::Podman, &podman), ["verbgate"]);
        assert_eq!(names(Engine::Crio, &crio), ["verbgate"]);
        assert_eq!(names(Engine::Crio, "[crio"), [""; 0]);
    }

    /// CRI-O merges the files of its directory by key (crio.conf.d(5)): ours sets its own runtime alone.
    #[test]
    fn crio_reads_one_runtime_and_nothing_else() {
        let wanted = Wanted {
            name: "rdma".into(),
            wrapped: "/usr/libexec/crio/crun".into(),
            ..wanted_for_tests()
        };
        let text = crio(None, &wanted).unwrap();
        assert!(text.starts_with(HEAD), "{text}");
        let value: toml::Table = toml::from_str(&text).unwrap();
        let expected = toml::toml! {
            [crio.runtime.runtimes.rdma]
            runtime_path = "/usr/bin/verbgate-oci-crun"
            runtime_type = "oci"
        };
        assert_eq!(value, expected);
        // Again with another runtime: the file is ours, and has the new one alone.
        let again = crio(Some(&text), &wanted_for_tests()).unwrap();
        assert!(again.contains("verbgate-oci-runc") && !again.contains("rdma"), "{again}");
        assert_eq!(crio(Some(&again), &wanted_for_tests()).unwrap(), again);
        for others in ["[crio.runtime]\ndefault_runtime = 'crun'\n", "\n", "[crio"] {
            let error = crio(Some(others), &wanted).unwrap_err().to_string();
            assert!(error.contains("--config") || error.contains("line 1"), "{error}");
        }
    }

    #[test]
    fn a_file_of_somebody_else_is_left_alone() {
        let error = podman(Some("[engine]\n"), &wanted_for_tests()).unwrap_err().to_string();
        assert!(error.contains("--config"), "{error}");
        let error = without("[engine\n").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
