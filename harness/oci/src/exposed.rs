//! RDMA devices that a container would get raw, without having asked for RDMA: by a mount of
//! `/dev/infiniband`, by a rule of the device cgroup, or by a device under another name. Each is
//! taken as a wish for RDMA, or refused.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;
use verbgate_sys::sandbox::RDMA_DIR;

use super::wish::ALL;
use super::wish::WishError;

/// The first minor of `uverbsN`: `IB_UVERBS_BASE_MINOR`, drivers/infiniband/core/uverbs_main.c.
const UVERBS_MINOR: u32 = 192;
/// How many of them have the major that RDMA always had; others have a dynamic one.
const UVERBS_MINORS: u32 = 32;

/// The fields of `config.json`, as errors name them.
pub(super) const MOUNTS: &str = "mounts";
pub(super) const RULES: &str = "linux.resources.devices";
pub(super) const DEVICES: &str = "linux.devices";

/// Names of nodes, or [`ALL`], and where each comes from.
pub(super) type Found = Vec<(String, &'static str)>;

/// The devices that the mounts of a container show.
pub(super) fn by_mounts(
    config: &Value,
    numbers: &[(u32, Option<u32>)],
) -> Result<Found, WishError> {
    let mut found = Vec::new();
    for mount in list(config, "/mounts") {
        let text = |key| mount.get(key).and_then(Value::as_str).unwrap_or_default();
        let options: Vec<&str> = mount
            .get("options")
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let binds = text("type") == "bind" || options.iter().any(|o| ["bind", "rbind"].contains(o));
        // Nodes on a mount of this kind cannot be opened: ours in a file that was rewritten.
        if !binds || options.contains(&"nodev") {
            continue;
        }
        let destination = Path::new(text("destination"));
        let source = fs::canonicalize(text("source")).unwrap_or_else(|_| text("source").into());
        let inside = [source.as_path(), destination].into_iter().find_map(name_of);
        if let Some(name) = inside {
            found.push((name, MOUNTS));
        } else if node_number(&source).is_some_and(|number| is_rdma(number, numbers)) {
            return Err(WishError::OtherName { field: MOUNTS, path: source });
        } else if Path::new(RDMA_DIR).starts_with(&source) && may_open_any(config, numbers) {
            // All of /dev, or of the host.
            found.push((ALL.to_owned(), MOUNTS));
        }
    }
    Ok(found)
}

/// The name of a node by its path; [`ALL`] for the directory of the nodes.
fn name_of(path: &Path) -> Option<String> {
    let name = path.strip_prefix(RDMA_DIR).ok()?.to_str()?;
    Some(if name.is_empty() { ALL.to_owned() } else { name.to_owned() })
}

fn node_number(path: &Path) -> Option<(u32, u32)> {
    let meta = fs::metadata(path).ok().filter(|meta| meta.file_type().is_char_device())?;
    let device = meta.rdev();
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}

fn is_rdma((major, minor): (u32, u32), numbers: &[(u32, Option<u32>)]) -> bool {
    numbers.iter().any(|(m, n)| *m == major && n.is_none_or(|n| n == minor))
}

/// What rules about RDMA's own numbers let a container open, whose nodes are not listed.
pub(super) fn by_rules(config: &Value, numbers: &[(u32, Option<u32>)]) -> Found {
    let mut found = Vec::new();
    for rule in list(config, "/linux/resources/devices") {
        let number = |key| number(rule, key);
        let Some(major) = number("major") else { continue };
        // Of the connection manager alone, the minor is among those of others.
        let is_ours = numbers.iter().any(|(m, n)| *m == major && n.is_none());
        if !is_ours || !lets_open(rule) || !may_open_any(config, numbers) {
            continue;
        }
        let listed = list(config, "/linux/devices").any(|device| {
            self::number(device, "major") == Some(major)
                && self::number(device, "minor") == number("minor")
        });
        match number("minor") {
            None => found.push((ALL.to_owned(), RULES)),
            Some(_) if listed => {}
            Some(minor) => {
                let uverbs = minor.checked_sub(UVERBS_MINOR).filter(|n| *n < UVERBS_MINORS);
                let name = uverbs.map_or_else(|| ALL.to_owned(), |n| format!("uverbs{n}"));
                found.push((name, RULES));
            }
        }
    }
    found
}

/// A device of RDMA's that is listed under a path of its own.
pub(super) fn other_name(config: &Value, numbers: &[(u32, Option<u32>)]) -> Option<PathBuf> {
    let mut devices = list(config, "/linux/devices");
    devices.find_map(|device| {
        let path = device.get("path").and_then(Value::as_str).map(Path::new)?;
        let is_char = device.get("type").and_then(Value::as_str).is_none_or(|kind| kind != "b");
        let number = (number(device, "major")?, number(device, "minor")?);
        let hidden = is_char && is_rdma(number, numbers) && !path.starts_with(RDMA_DIR);
        hidden.then(|| path.to_owned())
    })
}

/// Whether the device cgroup lets any of RDMA's devices be read or written: of rules that
/// contradict each other the last counts.
fn may_open_any(config: &Value, numbers: &[(u32, Option<u32>)]) -> bool {
    numbers.iter().any(|(major, minor)| {
        let mut open = false;
        for rule in list(config, "/linux/resources/devices") {
            let kind = rule.get("type").and_then(Value::as_str).unwrap_or("a");
            let about = number(rule, "major").is_none_or(|m| m == *major)
                && number(rule, "minor").is_none_or(|n| minor.is_none_or(|minor| n == minor));
            if !matches!(kind, "a" | "c" | "u" | "") || !about {
                continue;
            }
            let allows = rule.get("allow").and_then(Value::as_bool).unwrap_or(false);
            // That one of several may not be opened says nothing of the others.
            let part = !allows && minor.is_none() && number(rule, "minor").is_some();
            if allows && lets_open(rule) {
                open = true;
            } else if !allows && !part {
                open = false;
            }
        }
        open
    })
}

/// Whether a rule allows more than to make the node.
fn lets_open(rule: &Value) -> bool {
    let access = rule.get("access").and_then(Value::as_str).unwrap_or("rwm");
    let allows = rule.get("allow").and_then(Value::as_bool).unwrap_or(false);
    allows && (access.is_empty() || access.contains(['r', 'w']))
}

fn list<'a>(config: &'a Value, at: &str) -> impl Iterator<Item = &'a Value> {
    config.pointer(at).and_then(Value::as_array).into_iter().flatten()
}

/// A number; wildcards are negative, or missing.
fn number(value: &Value, key: &str) -> Option<u32> {
    value.get(key).and_then(Value::as_i64).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NUMBERS: &[(u32, Option<u32>)] = &[(231, None), (10, Some(121))];

    fn mounts(mount: &Value, rules: &Value) -> Result<Found, WishError> {
        let config = json!({"mounts": [mount], "linux": {"resources": {"devices": rules}}});
        by_mounts(&config, NUMBERS)
    }

    fn bind(source: &str, destination: &str) -> Value {
        json!({"type": "bind", "source": source, "destination": destination, "options": ["rbind"]})
    }

    #[test]
    fn a_mount_of_the_nodes_is_a_wish_for_them() {
        let none = json!([]);
        let all = vec![(ALL.to_owned(), MOUNTS)];
        assert_eq!(mounts(&bind("/dev/infiniband", "/x"), &none), Ok(all.clone()));
        assert_eq!(mounts(&bind("/dev/infiniband/", "/dev/infiniband/"), &none), Ok(all.clone()));
        let one = Ok(vec![("uverbs7".to_owned(), MOUNTS)]);
        assert_eq!(mounts(&bind("/dev/infiniband/uverbs7", "/dev/x"), &none), one);
        assert_eq!(mounts(&bind("/dev/null", "/dev/infiniband/uverbs7"), &none), one);
        // Ours, in a file that was rewritten; another file system; what shows no device.
        let mut ours = bind("/run/verbgate/oci/c/nodes", "/dev/infiniband");
        ours["options"] = json!(["bind", "nodev"]);
        let tmpfs = json!({"type": "tmpfs", "source": "tmpfs", "destination": "/dev/infiniband"});
        for mount in [ours, tmpfs, bind("/usr", "/usr"), bind("/dev/null", "/dev/x")] {
            assert_eq!(mounts(&mount, &json!([{"allow": true, "access": "rwm"}])), Ok(vec![]));
        }
        // All of /dev matters where its devices can be opened.
        let deny = json!([{"allow": false, "access": "rwm"}]);
        assert_eq!(mounts(&bind("/dev", "/dev"), &deny), Ok(vec![]));
        assert_eq!(mounts(&bind("/", "/host"), &json!([{"allow": true, "type": "a"}])), Ok(all));
    }

    #[test]
    fn a_rule_about_rdma_is_a_wish() {
        let found = |rule: Value| {
            let deny = json!({"allow": false, "access": "rwm"});
            by_rules(&json!({"linux": {"resources": {"devices": [deny, rule]}}}), NUMBERS)
        };
        let rule = |minor: Option<i64>, access: &str| json!({"allow": true, "type": "c", "major": 231, "minor": minor, "access": access});
        assert_eq!(found(rule(None, "rwm")), [(ALL.to_owned(), RULES)]);
        assert_eq!(found(rule(Some(-1), "rw")), [(ALL.to_owned(), RULES)]);
        assert_eq!(found(rule(Some(194), "rw")), [("uverbs2".to_owned(), RULES)]);
        assert_eq!(found(rule(Some(194), "m")), []);
        assert_eq!(found(json!({"allow": true, "access": "rwm"})), []);
        assert_eq!(found(json!({"allow": true, "type": "c", "major": 10, "minor": 229})), []);
        // Listed beside it, as engines do.
        let config = json!({"linux": {
            "devices": [{"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192}],
            "resources": {"devices": [rule(Some(192), "rwm")]},
        }});
        assert_eq!(by_rules(&config, NUMBERS), []);
    }

    #[test]
    fn a_device_under_another_name_is_found() {
        let device = |path: &str, major: u32| json!({"linux": {"devices": [{"path": path, "type": "c", "major": major, "minor": 192}]}});
        assert_eq!(other_name(&device("/dev/x", 231), NUMBERS), Some("/dev/x".into()));
        assert_eq!(other_name(&device("/dev/infiniband/uverbs0", 231), NUMBERS), None);
        assert_eq!(other_name(&device("/dev/x", 1), NUMBERS), None);
    }
}
