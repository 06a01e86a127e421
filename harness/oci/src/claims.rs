//! Claims of Kubernetes' Dynamic Resource Allocation, between the driver that prepares them (`verbgate dra`) and the
//! runtime that makes a claim's containers.
//!
//! The driver writes a CDI specification for each prepared claim, with one device that adds a hook; the hook's arguments
//! are the record of the claim. Whoever makes a container writes its annotations, variables and mounts. Hooks come from
//! the engine alone, which takes them from directories of root's: so the runtime believes the record, as it believes
//! what was granted with Verbgate's own hook.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use verbgate_host::files;
use verbgate_sandbox::DraClaim;
use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;

use crate::kind::HOOK;
use crate::kind::KIND;

/// The kind of device that a claim is.
const CLAIM: &str = "verbgate.org/claim";
/// The hook's option before the record.
const OPTION: &str = "--claim";
/// Directories of CDI, below the host's root; the driver writes to the last, which a reboot empties.
const DIRS: [&str; 2] = ["etc/cdi", "run/cdi"];
const FILES: &str = "verbgate-claim-";

/// What a runtime is told of a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// `NAMESPACE/NAME`.
    pub claim: String,
    /// The tenant that the claim's DeviceClass names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Profiles by which class and claim narrow the tenant's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
}

impl From<&Record> for DraClaim {
    fn from(record: &Record) -> Self {
        Self { name: record.claim.clone(), tenant: record.tenant.clone() }
    }
}

/// Why a claim cannot be told to the runtime.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// The devices of the node are not described.
    #[error(
        "no CDI specification of {KIND} is in {} or {}, and a claim's devices are among those; run on the node: verbgate \
         cdi refresh", .0.join(DIRS[0]).display(), .0.join(DIRS[1]).display()
    )]
    NotDescribed(PathBuf),
    /// The file cannot be written or removed.
    #[error("{}: {why}; is the node's root at --host-root?", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        why: io::Error,
    },
    /// A hook with a record that no driver of this version writes.
    #[error(
        "hooks.createRuntime: the record of a claim cannot be read ({0}); is verbgate dra of another version? delete the \
         pod and the claim, and create them anew"
    )]
    Record(serde_json::Error),
}

fn path(host: &Path, uid: &str) -> PathBuf {
    host.join(DIRS[1]).join(format!("{FILES}{uid}.json"))
}

/// The program of the hooks that the node's own specification has: its path is the node's, and not that of a pod.
fn program(host: &Path) -> Result<String, ClaimsError> {
    let files = DIRS.iter().filter_map(|dir| fs::read_dir(host.join(dir)).ok()).flatten().flatten();
    let ours = |path: PathBuf| {
        let spec: Value =
            serde_json::from_slice(&foreign::read(&path, Owner::Anybody).ok()?).ok()?;
        spec.get("kind").filter(|kind| *kind == KIND)?;
        spec.pointer("/containerEdits/hooks/0/path")?.as_str().map(str::to_owned)
    };
    let mut found = files.map(|file| file.path()).filter_map(ours);
    found.next().ok_or_else(|| ClaimsError::NotDescribed(host.to_owned()))
}

/// Writes a claim's specification below a host's root; the CDI name that stands for the claim.
///
/// # Errors
/// [`ClaimsError::NotDescribed`] and [`ClaimsError::File`].
pub fn write(host: &Path, uid: &str, record: &Record) -> Result<String, ClaimsError> {
    let (path, name) = (path(host, uid), format!("uid-{uid}"));
    let program = program(host)?;
    let text = serde_json::to_string(record).map_err(ClaimsError::Record)?;
    let hook = json!({
        "hookName": "createRuntime", "path": program, "args": ["verbgate", HOOK, OPTION, text],
    });
    let spec = json!({
        "cdiVersion": "0.3.0",
        "kind": CLAIM,
        "devices": [{ "name": name, "containerEdits": { "hooks": [hook] } }],
    });
    let written = files::replace(&path, spec.to_string().as_bytes(), files::PUBLIC);
    written.map_err(|why| ClaimsError::File { path, why })?;
    Ok(format!("{CLAIM}={name}"))
}

/// Removes a claim's specification, if there is one.
///
/// # Errors
/// [`ClaimsError::File`].
pub fn forget(host: &Path, uid: &str) -> Result<(), ClaimsError> {
    let path = path(host, uid);
    match fs::remove_file(&path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(ClaimsError::File { path, why }),
        _ => Ok(()),
    }
}

/// Removes the specifications of all claims.
///
/// # Errors
/// [`ClaimsError::File`].
pub fn forget_all(host: &Path) -> Result<(), ClaimsError> {
    let all = fs::read_dir(host.join(DIRS[1])).into_iter().flatten().flatten();
    for name in all.filter_map(|entry| entry.file_name().into_string().ok()) {
        if let Some(uid) = name.strip_prefix(FILES).and_then(|rest| rest.strip_suffix(".json")) {
            forget(host, uid)?;
        }
    }
    Ok(())
}

/// The claims of a container, by its hooks.
pub(crate) fn of(config: &Value) -> Result<Vec<Record>, ClaimsError> {
    let hooks = config.pointer("/hooks/createRuntime").and_then(Value::as_array);
    let mut all: Vec<Record> = Vec::new();
    for args in hooks.into_iter().flatten().filter_map(|hook| hook.get("args")?.as_array()) {
        let arg = |at: usize| args.get(at).and_then(Value::as_str).unwrap_or_default();
        if (arg(1), arg(2)) != (HOOK, OPTION) {
            continue;
        }
        let record = serde_json::from_str(arg(3)).map_err(ClaimsError::Record)?;
        if !all.contains(&record) {
            all.push(record);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let (claim, tenant) = ("ml/nics".to_owned(), Some("gold".to_owned()));
        Record { claim, tenant, profiles: vec!["hpc".to_owned()] }
    }

    #[test]
    fn a_record_comes_back_by_the_hook_of_its_file_alone() {
        let host = tempfile::tempdir().unwrap();
        let error = write(host.path(), "u1", &record()).unwrap_err().to_string();
        assert!(error.contains("verbgate cdi refresh"), "{error}");
        let own = host.path().join("etc/cdi/site.json");
        let spec = json!({"kind": KIND, "containerEdits": {"hooks": [{"path": "/opt/v"}]}});
        files::replace(&own, spec.to_string().as_bytes(), files::PUBLIC).unwrap();
        let name = write(host.path(), "u1", &record()).unwrap();
        assert_eq!(name, "verbgate.org/claim=uid-u1");
        let file = host.path().join("run/cdi/verbgate-claim-u1.json");
        let spec: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let hook = &spec["devices"][0]["containerEdits"]["hooks"][0];
        assert_eq!((&hook["path"], &hook["hookName"]), (&"/opt/v".into(), &"createRuntime".into()));
        assert_eq!(of(&json!({"hooks": {"createRuntime": [hook, hook]}})).unwrap(), [record()]);
        // The same text anywhere else is a container's own word.
        let args = hook["args"].clone();
        for other in [
            json!({"hooks": {"createContainer": [hook]}}),
            json!({"annotations": {"org.verbgate.claim": args[3]}}),
            json!({"process": {"args": args, "env": args}}),
        ] {
            assert_eq!(of(&other).unwrap(), []);
        }
        forget(host.path(), "u1").unwrap();
        forget(host.path(), "u1").unwrap();
        assert!(!file.exists());
        for uid in ["u2", "u3"] {
            write(host.path(), uid, &record()).unwrap();
        }
        forget_all(host.path()).unwrap();
        assert_eq!(fs::read_dir(host.path().join("run/cdi")).unwrap().count(), 0);
        assert!(own.exists());
    }

    #[test]
    fn a_record_of_another_shape_refuses_the_container() {
        for text in ["", "{}", r#"{"claim": "a/b", "devices": "all"}"#, r#"{"claim": 3}"#] {
            let hook = json!({"path": "/v", "args": ["v", HOOK, OPTION, text]});
            let error = of(&json!({"hooks": {"createRuntime": [hook]}})).unwrap_err();
            assert!(error.to_string().contains("record of a claim"), "{error}");
        }
    }
}
