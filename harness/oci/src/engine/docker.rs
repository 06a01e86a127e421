//! Docker: `runtimes` of daemon.json; dockerd(8).

use std::path::Path;

use anyhow::Error;
use anyhow::anyhow;
use jsonc_parser::CollectOptions;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstInputValue;
use jsonc_parser::cst::CstObject;
use jsonc_parser::cst::CstRootNode;
use serde_json::Value;
use serde_json::json;

use super::ask;
use super::ask::Program;
use super::ask::Trial;
use super::wanted::Wanted;
use super::wanted::place_of;

/// The first Docker that knows CDI, and the first that can check a file.
const KNOWS_CDI: (u32, u32) = (25, 0);
const VALIDATES: (u32, u32) = (23, 0);

const RUNTIMES: &str = "runtimes";
const FEATURES: &str = "features";

/// A tree that keeps every byte; and dockerd's own reading of it, which takes no comments.
fn parse(text: &str) -> Result<(CstRootNode, CstObject, Value), Error> {
    let whole = if text.trim().is_empty() { "{}\n" } else { text };
    let value: Value = serde_json::from_str(whole).map_err(|e| {
        anyhow!("line {}, column {}: {e}; repair the file first", e.line(), e.column())
    })?;
    let root = CstRootNode::parse(whole, &ParseOptions::default())
        .map_err(|e| anyhow!("{e}; repair the file first"))?;
    let object = root.object_value().ok_or_else(|| {
        anyhow!("line 1: the file must hold an object: {{...}}; repair the file first")
    })?;
    Ok((root, object, value))
}

/// An object of the file's, by its key; made where it is missing.
fn object(parent: &CstObject, key: &str, text: &str) -> Result<CstObject, Error> {
    parent.object_value_or_create(key).ok_or_else(|| {
        anyhow!("line {}: {key}: must be an object; repair the file first", line_of(text, key))
    })
}

/// The line of a key.
fn line_of(text: &str, key: &str) -> usize {
    let read =
        jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
    let value = read.ok().and_then(|read| read.value);
    let property = value.as_ref().and_then(|value| value.as_object()?.get(key));
    place_of(text, property.map_or(0, |property| property.range.start)).0
}

fn set(parent: &CstObject, key: &str, value: CstInputValue) {
    match parent.get(key) {
        Some(known) => known.set_value(value),
        None => drop(parent.append(key, value)),
    }
}

/// The file's text with what is wanted, and what is to be said about that. Docker checks the file where
/// it can; without a program nobody is asked.
pub(super) fn configured(
    file: &Path,
    text: Option<&str>,
    wanted: &Wanted,
    program: Option<&Program>,
) -> Result<(String, Vec<String>), Error> {
    let Some(program) = program else {
        let note = "cannot tell Docker's version: before 25.0, --cdi has no effect".to_owned();
        let after = with(text, wanted)?;
        let notes = wanted.cdi.then_some(note).into_iter().chain(default_note(&after, wanted));
        return Ok((after.clone(), notes.collect()));
    };
    let version = program.version()?;
    let without_cdi = wanted.cdi && version.is_before(KNOWS_CDI);
    let note = || {
        format!(
            "--cdi has no effect and is not written: Docker {} knows no CDI devices (25.0 is the \
             first that does); ask for devices by docker run --device /dev/infiniband/uverbs0 \
             instead",
            version.text()
        )
    };
    let mut notes: Vec<String> = without_cdi.then(note).into_iter().collect();
    let after = with(text, &Wanted { cdi: wanted.cdi && !without_cdi, ..wanted.clone() })?;
    check(program, file, &after)?;
    notes.extend(default_note(&after, wanted));
    Ok((after, notes))
}

fn default_note(text: &str, wanted: &Wanted) -> Option<String> {
    let read: Value = serde_json::from_str(text).ok()?;
    let name = read.get("default-runtime")?.as_str()?;
    wanted.note_default(name, read.get(RUNTIMES)?.get(name)?.get("path")?.as_str()?)
}

/// Has Docker check a text in the place of a file, if this Docker can.
pub(super) fn check(program: &Program, file: &Path, text: &str) -> Result<(), Error> {
    if !program.version()?.is_before(VALIDATES) {
        let trial = Trial::beside(file, text)?;
        let words = ["--validate".as_ref(), "--config-file".as_ref(), trial.path().as_os_str()];
        program.output(&words).map_err(|e| ask::in_place(e, &trial, file))?;
    }
    Ok(())
}

fn with(text: Option<&str>, wanted: &Wanted) -> Result<String, Error> {
    let (root, config, read) = parse(text.unwrap_or_default())?;
    let whole = text.unwrap_or_default();
    let runtimes = object(&config, RUNTIMES, whole)?;
    let args = ["oci", "--runtime", wanted.wrapped.as_str(), "--"];
    // What is right already keeps its form.
    let ours = json!({"path": wanted.program, "runtimeArgs": args});
    if read.get(RUNTIMES).and_then(|all| all.get(&wanted.name)) != Some(&ours) {
        let text = |text: &str| CstInputValue::String(text.to_owned());
        let ours = CstInputValue::Object(vec![
            ("path".to_owned(), text(&wanted.program)),
            ("runtimeArgs".to_owned(), CstInputValue::Array(args.map(text).to_vec())),
        ]);
        set(&runtimes, &wanted.name, ours);
    }
    if wanted.cdi {
        let features = object(&config, FEATURES, whole)?;
        if read.pointer("/features/cdi") != Some(&Value::Bool(true)) {
            set(&features, "cdi", CstInputValue::Bool(true));
        }
    }
    Ok(root.to_string())
}

/// The paths of all runtimes.
pub(super) fn programs(text: &str) -> Result<Vec<String>, Error> {
    let (_, _, read) = parse(text)?;
    let runtimes = read.get(RUNTIMES).and_then(Value::as_object).into_iter().flatten();
    let path = |(_, runtime): (_, &Value)| Some(runtime.get("path")?.as_str()?.to_owned());
    Ok(runtimes.filter_map(path).collect())
}

pub(super) fn without(text: &str, name: &str) -> Result<String, Error> {
    let (root, config, read) = parse(text)?;
    if read.get("default-runtime").and_then(Value::as_str) == Some(name) {
        return Err(anyhow!(
            "default-runtime is {name:?}, and Docker does not start without the default runtime; \
             name another runtime first"
        ));
    }
    if let Some(runtimes) = config.object_value(RUNTIMES) {
        if let Some(ours) = runtimes.get(name) {
            ours.remove();
        }
        if runtimes.properties().is_empty()
            && let Some(empty) = config.get(RUNTIMES)
        {
            empty.remove();
        }
    }
    Ok(root.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::wanted::wanted_for_tests;
    use super::*;

    const REAL: &str = r#"{
    "default-runtime":   "nvidia",
    "runtimes": {
        "nvidia": { "args": [], "path": "nvidia-container-runtime" }
    },
    "log-opts": {"max-size": "10m"}, "exec-opts": ["native.cgroupdriver=systemd"]
}
"#;

    #[test]
    fn the_rest_stays_as_it_is_written() {
        let after = with(Some(REAL), &wanted_for_tests()).unwrap();
        for line in
            REAL.lines().filter(|line| line.contains("default") || line.contains("log-opts"))
        {
            assert!(after.contains(line.trim_end_matches(',')), "{after}");
        }
        let value: Value = serde_json::from_str(&after).unwrap();
        assert_eq!(value["runtimes"]["verbgate"]["path"], "/usr/bin/verbgate");
        assert_eq!(value["runtimes"]["nvidia"]["path"], "nvidia-container-runtime");
        assert_eq!(value["features"]["cdi"], true);
        assert_eq!(with(Some(&after), &wanted_for_tests()).unwrap(), after);
        let undone = without(&after, "verbgate").unwrap();
        assert!(!undone.contains("verbgate") && undone.contains("nvidia-container"), "{undone}");
    }

    #[test]
    fn a_file_is_made_where_there_is_none() {
        for text in [None, Some(""), Some("\n"), Some("{}")] {
            let after = with(text, &wanted_for_tests()).unwrap();
            let value: Value = serde_json::from_str(&after).unwrap();
            assert_eq!(value["runtimes"]["verbgate"]["runtimeArgs"][2], "runc");
        }
    }

    #[test]
    fn the_default_runtime_is_not_taken_away() {
        let text = "{\"default-runtime\": \"verbgate\"}";
        let error = without(text, "verbgate").unwrap_err().to_string();
        assert!(error.contains("default-runtime"), "{error}");
    }

    #[test]
    fn a_file_that_docker_would_not_read_is_refused_by_its_line() {
        for (text, needle) in [
            ("{\n  \"a\": 1,\n}\n", "line 3"),
            ("{\n  // no\n}\n", "line 2"),
            ("[]", "object"),
            ("{\n\n \"runtimes\": []}", "line 3: runtimes"),
            ("{\"a\": 1,\n\"features\": 7}", "line 2: features"),
        ] {
            let error = with(Some(text), &wanted_for_tests()).unwrap_err().to_string();
            assert!(error.contains(needle) && error.contains("repair"), "{error}");
        }
    }
}
