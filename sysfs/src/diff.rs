//! The differences between two snapshots.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::snapshot::Access;
use crate::snapshot::Snapshot;
use crate::value::Value;

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Change {
    /// The path of a device, or of one of its attributes.
    pub path: String,
    /// What it was; `None` for what is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it is; `None` for what is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (None, Some(after)) => write!(f, "+ {} {after}", self.path),
            (Some(before), None) => write!(f, "- {} {before}", self.path),
            (before, after) => {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                write!(f, "~ {} {} -> {}", self.path, text(before), text(after))
            }
        }
    }
}

/// The differences, in the order of their paths.
#[must_use]
pub fn diff(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let (mut before, after) = (facts(before), facts(after));
    let mut changes = Vec::new();
    for (path, new) in after {
        let old = before.remove(&path);
        if old.as_ref() != Some(&new) {
            changes.push(Change { path, before: old, after: Some(new) });
        }
    }
    let gone = before.into_iter();
    changes.extend(gone.map(|(path, old)| Change { path, before: Some(old), after: None }));
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    changes
}

/// Everything a snapshot says, by path.
fn facts(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut take = |path: &str, kind: &str, attrs: &BTreeMap<String, Value>| {
        facts.insert(path.to_owned(), kind.to_owned());
        for (name, value) in attrs {
            facts.insert(format!("{path}/{name}"), shown(value));
        }
    };
    for device in &snapshot.devices {
        let kind = device.subsystem.as_deref().unwrap_or("root complex");
        let driver = device.driver.as_ref().map(|driver| format!(", driver {driver}"));
        take(&device.path, &format!("({kind}{})", driver.unwrap_or_default()), &device.attrs);
    }
    for rdma in &snapshot.rdma {
        take(&rdma.path, "(RDMA device)", &rdma.attrs);
    }
    for verbs in &snapshot.verbs {
        take(&verbs.path, &format!("(opens {})", verbs.ibdev), &verbs.attrs);
    }
    for netdev in &snapshot.netdevs {
        take(&netdev.path, "(interface)", &netdev.attrs);
    }
    for (path, access) in &snapshot.access {
        let Access { mode, uid, gid } = access;
        facts.insert(format!("{path} (access)"), format!("{mode:04o} {uid}:{gid}"));
    }
    let rest = snapshot.attrs.iter().map(|(path, value)| (path.clone(), shown(value)));
    facts.extend(rest);
    facts
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{:?}", text.trim_end_matches('\n')),
        Value::Hex { hex } => format!("{} bytes {:02x?}", hex.len(), hex.get(..16).unwrap_or(hex)),
        Value::Failed { errno } => std::io::Error::from_raw_os_error(*errno).to_string(),
        Value::Unread(()) => "not read".to_owned(),
    }
}
