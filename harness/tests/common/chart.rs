//! The chart, rendered by Go's own templates.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::common::has;

fn dist() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/dist"))
}

/// The chart's documents with other values, by Go's own templates, which are Helm's.
pub(crate) fn rendered(change: &[(&str, &str)]) -> Option<Vec<Value>> {
    if !has("go") {
        return None;
    }
    let mut values = read(&[dist().join("helm/values.yaml")])?.remove(0);
    change.iter().for_each(|(key, value)| values[*key] = Value::from(*value));
    let dir = tempfile::tempdir().unwrap();
    let [file, out] = ["values.json", "all.yaml"].map(|name| dir.path().join(name));
    fs::write(&file, values.to_string()).unwrap();
    let mut go = Command::new("go");
    go.args(["run", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/render.go")]);
    go.arg(dist().join("helm/templates")).arg(&file).arg("site").env("GO111MODULE", "off");
    go.env("GOCACHE", dir.path().join("cache")).env("HOME", dir.path());
    let output = go.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::write(&out, &output.stdout).unwrap();
    read(&[out]).map(|all| all.into_iter().filter(|one| !one.is_null()).collect())
}

/// Every document of YAML files, as JSON.
pub(crate) fn read(files: &[PathBuf]) -> Option<Vec<Value>> {
    const READ: &str = "import json, sys, yaml\n\
                        docs = [d for f in sys.argv[1:] for d in yaml.safe_load_all(open(f))]\n\
                        print(json.dumps(docs))";
    let read = Command::new("python3").args(["-c", READ]).args(files).output();
    let output = read.ok().filter(|output| output.status.success());
    match output {
        Some(output) => Some(serde_json::from_slice(&output.stdout).unwrap()),
        None => {
            eprintln!("SKIPPED: needs python3 with yaml (python3-yaml)");
            None
        }
    }
}
