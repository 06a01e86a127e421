//! The rewriting of a container's `config.json` for the wrapped runtime.
//!
//! JSON values are changed in place, so that fields which this program does not know survive. A
//! second rewriting changes nothing: the additions of the first are taken out before.

use std::path::Path;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use verbgate_sys::sandbox::KEEPABLE_CAPABILITIES;
use verbgate_sys::sandbox::RDMA_DIR;
use verbgate_sys::sandbox::cut_capabilities;

use super::wish::GRANTED;
use crate::device_cgroup::RULES;
use crate::device_cgroup::RuleNumbers;
use crate::device_cgroup::Rules;
use crate::device_cgroup::number;

/// A bundle's file, by its name there.
pub(super) const CONFIG: &str = "config.json";

/// The sets of a process: capabilities(7).
const SETS: [&str; 5] = ["bounding", "effective", "permitted", "inheritable", "ambient"];

/// The limit of locked memory, as OCI names it: getrlimit(2).
pub(crate) const MEMLOCK: &str = "RLIMIT_MEMLOCK";

/// Hooks that run before the container's command does, in the order of runc (`libcontainer/process_linux.go`,
/// `rootfs_linux.go`) and crun. `startContainer` runs in the container, under the container's filter; `poststart` runs on the
/// host, when the command does, and nobody looks at the container after that.
const EARLY: [&str; 3] = ["prestart", "createRuntime", LAST];
const LAST: &str = "createContainer";

/// The additions to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addition<'a> {
    /// The nodes to show.
    pub nodes: &'a Path,
    /// This program, and the arguments of the hooks that tell that the container is made, look at the
    /// container's devices, and tell that the container is gone.
    pub hook: &'a str,
    pub(crate) created: &'a [&'a str],
    pub(crate) mounted: &'a [&'a str],
    pub(crate) stopped: &'a [&'a str],
    /// Capabilities that the container keeps.
    pub keep: &'a [String],
    /// Bytes that a process of the container's may lock, if that is said.
    pub(crate) memlock: Option<u64>,
    /// Names of what is granted.
    pub granted: &'a str,
    /// Numbers of RDMA's hardware.
    pub numbers: &'a [RuleNumbers],
    /// Nodes, of these, that the container keeps.
    pub(crate) kept: &'a [(u32, u32)],
}

/// Why a file cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RewriteError {
    #[error("{0}: must be {1}")]
    Shape(&'static str, &'static str),
    #[error("process.args: there is no command to run")]
    NoCommand,
    #[error(
        "{RULES}: a rule with a wildcard opens the RDMA devices {major}:{} too, and a runtime can take no \
         device from such a rule; name the major number of each device that the container needs",
        .minor.map_or("*".to_owned(), |minor| minor.to_string())
    )]
    Open { major: u32, minor: Option<u32> },
}

/// Rewrites it.
pub(crate) fn config(config: &mut Value, addition: &Addition<'_>) -> Result<(), RewriteError> {
    let root = config.as_object_mut().ok_or(RewriteError::Shape("config.json", "an object"))?;
    let own = root.get_mut("process").ok_or(RewriteError::NoCommand)?;
    process(own, addition.keep, addition.memlock)?;
    mounts(array(root, "mounts")?, addition);
    let hooks = object(root, "hooks")?;
    hook(array(hooks, "createRuntime")?, addition.hook, addition.created);
    hook(array(hooks, LAST)?, addition.hook, addition.mounted);
    hook(array(hooks, "poststop")?, addition.hook, addition.stopped);
    let linux = object(root, "linux")?;
    if linux.contains_key("devices") {
        array(linux, "devices")?.retain(|device| !addition.takes_device(device));
    }
    let resources = object(linux, "resources")?;
    device_rules(array(resources, "devices")?, addition);
    refuse_open(root, addition)?;
    object(root, "annotations")?.insert(GRANTED.to_owned(), addition.granted.into());
    Ok(())
}

/// Adds the hook alone that looks at a container's devices.
pub(crate) fn look(config: &mut Value, program: &str, args: &[&str]) -> Result<(), RewriteError> {
    let root = config.as_object_mut().ok_or(RewriteError::Shape("config.json", "an object"))?;
    hook(array(object(root, "hooks")?, LAST)?, program, args);
    Ok(())
}

/// Whether hooks can change what a container has, before the container's command runs.
pub(crate) fn has_early_hooks(config: &Value) -> bool {
    let hooks = |kind: &&str| config.get("hooks").and_then(|all| all.get(*kind)?.as_array());
    EARLY.iter().filter_map(hooks).any(|hooks| !hooks.is_empty())
}

/// The first difference of two files, as a path of keys; a key that is missing is as null.
pub(crate) fn difference(one: &Value, other: &Value) -> Option<String> {
    let (Some(all), Some(others)) = (one.as_object(), other.as_object()) else {
        return (one != other).then(String::new);
    };
    all.keys().chain(others.keys()).find_map(|key| {
        let [one, other] = [all, others].map(|of| of.get(key).unwrap_or(&Value::Null));
        let below = difference(one, other)?;
        Some(if below.is_empty() { key.clone() } else { format!("{key}.{below}") })
    })
}

/// Takes from a process what containers with RDMA may not have, and lets the process lock as much memory as
/// is said.
pub(crate) fn process(
    process: &mut Value,
    keep: &[String],
    memlock: Option<u64>,
) -> Result<(), RewriteError> {
    let process = process.as_object_mut().ok_or(RewriteError::Shape("process", "an object"))?;
    if array(process, "args")?.is_empty() {
        return Err(RewriteError::NoCommand);
    }
    if let Some(bytes) = memlock {
        let limits = array(process, "rlimits")?;
        limits.retain(|limit| limit.get("type").is_none_or(|of| of != MEMLOCK));
        limits.push(json!({"type": MEMLOCK, "soft": bytes, "hard": bytes}));
    }
    // Without any sets, runtimes grant none.
    if !process.contains_key("capabilities") {
        return Ok(());
    }
    let capabilities = object(process, "capabilities")?;
    for set in SETS {
        if capabilities.contains_key(set) {
            array(capabilities, set)?
                .retain(|one| !one.as_str().is_some_and(|one| is_cut(one, keep)));
        }
    }
    Ok(())
}

/// Whether containers with RDMA that keep these may not have a capability, by its name in OCI.
pub(crate) fn is_cut(name: &str, keep: &[String]) -> bool {
    let name = name.strip_prefix("CAP_").unwrap_or(name);
    cut_capabilities(keep).any(|(one, _)| one.iter_names().any(|(known, _)| known == name))
}

/// Capabilities that the container's maker has added and the container does not get, in words. Those that engines give
/// every container go without a word.
pub(crate) fn taken(config: &Value, keep: &[String]) -> Option<String> {
    const OF_ENGINES: [&str; 2] = ["CAP_MKNOD", "CAP_NET_RAW"];
    let bounding = config.pointer("/process/capabilities/bounding").and_then(Value::as_array);
    let names = bounding.into_iter().flatten().filter_map(Value::as_str);
    let taken: Vec<&str> =
        names.filter(|name| is_cut(name, keep) && !OF_ENGINES.contains(name)).collect();
    without(&taken)
}

/// Words for capabilities that a process of a container with RDMA does not get.
pub(crate) fn without(taken: &[&str]) -> Option<String> {
    let keepable =
        taken.iter().any(|name| KEEPABLE_CAPABILITIES.iter().any(|one| name.ends_with(one)));
    let remedy =
        if keepable { "; `keep-cap` in config.toml leaves NET_ADMIN to containers" } else { "" };
    (!taken.is_empty()).then(|| {
        format!(
            "the container has RDMA, so it runs without {}, by which it could reach the device past its supervisor; \
             give a container that needs that no RDMA{remedy}",
            taken.join(", ")
        )
    })
}

fn mounts(mounts: &mut Vec<Value>, addition: &Addition<'_>) {
    let ours = |path: &str| path == RDMA_DIR || path.starts_with(&format!("{RDMA_DIR}/"));
    // Raw nodes are shown nowhere, for a runtime that cannot enforce the device cgroup.
    mounts.retain(|mount| {
        let names = |key| {
            let path =
                mount.get(key).and_then(Value::as_str).map(|path| path.trim_end_matches('/'));
            path.is_some_and(ours)
        };
        !names("destination") && !names("source")
    });
    // Shown, and not to be opened: `nodev`.
    mounts.push(json!({
        "destination": RDMA_DIR,
        "type": "bind",
        "source": addition.nodes,
        "options": ["bind", "ro", "nosuid", "nodev", "noexec"],
    }));
}

/// Whether a file has been rewritten, and not for another program's hooks alone.
pub(crate) fn is_ours(config: &Value) -> bool {
    let hooks = config.pointer("/hooks/createRuntime").and_then(Value::as_array);
    hooks
        .into_iter()
        .flatten()
        .any(|hook| hook.pointer("/args/1").is_some_and(|first| first == crate::options::HOOK))
}

fn hook(hooks: &mut Vec<Value>, program: &str, args: &[&str]) {
    // Whatever the container's directory was called.
    let [command, ..] = args else { return };
    hooks.retain(|hook| {
        hook.pointer("/args/1").is_none_or(|first| first != crate::options::HOOK)
            || hook.pointer("/args/2").is_none_or(|event| event != command)
    });
    let mut words = vec![program, crate::options::HOOK];
    words.extend(args);
    hooks.push(json!({"path": program, "args": words}));
}

impl Addition<'_> {
    /// Whether a device of `linux.devices` is RDMA's: shown in its place by a mount, or not at all.
    fn takes_device(&self, device: &Value) -> bool {
        let path = device.get("path").and_then(Value::as_str).unwrap_or_default();
        Path::new(path).starts_with(RDMA_DIR) || self.takes_number(device)
    }

    fn takes_number(&self, value: &Value) -> bool {
        let (major, minor) = (number(value, "major"), number(value, "minor"));
        let is_char = value.get("type").and_then(Value::as_str).is_none_or(|t| t != "b");
        let is_rdma = |(own, one): &RuleNumbers| {
            major == Some(*own) && one.is_none_or(|one| minor == Some(one))
        };
        let is_kept = major.zip(minor).is_some_and(|number| self.kept.contains(&number));
        is_char && self.numbers.iter().any(is_rdma) && !is_kept
    }
}

/// The device cgroup refuses what the mounts do not show, wherever a node of it might come from.
/// Of rules that contradict each other, the last counts.
fn device_rules(rules: &mut Vec<Value>, addition: &Addition<'_>) {
    let rule = |allow: bool, (major, minor): RuleNumbers| {
        let mut rule = json!({"allow": allow, "type": "c", "major": major, "access": "rwm"});
        if let (Some(minor), Some(rule)) = (minor, rule.as_object_mut()) {
            rule.insert("minor".to_owned(), minor.into());
        }
        rule
    };
    let kept = || addition.kept.iter().map(|(major, minor)| (*major, Some(*minor)));
    let is_kept = |rule: &Value| {
        kept()
            .any(|of| number(rule, "major").map(|major| (major, number(rule, "minor"))) == Some(of))
    };
    rules.retain(|rule| !addition.takes_number(rule) && !is_kept(rule));
    rules.extend(addition.numbers.iter().map(|numbers| rule(false, *numbers)));
    rules.extend(kept().map(|numbers| rule(true, numbers)));
}

/// Refuses rules that open a device all the same.
fn refuse_open(root: &Map<String, Value>, addition: &Addition<'_>) -> Result<(), RewriteError> {
    let rules = Rules::of(&json!({"linux": root.get("linux")}));
    let kept = |major| addition.kept.iter().any(|(one, _)| *one == major);
    let mut taken = addition.numbers.iter().filter(|(major, _)| !kept(*major));
    match taken.find(|numbers| rules.open(**numbers)) {
        Some((major, minor)) => Err(RewriteError::Open { major: *major, minor: *minor }),
        None => Ok(()),
    }
}

fn object<'a>(
    parent: &'a mut Map<String, Value>,
    key: &'static str,
) -> Result<&'a mut Map<String, Value>, RewriteError> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or(RewriteError::Shape(key, "an object"))
}

fn array<'a>(
    parent: &'a mut Map<String, Value>,
    key: &'static str,
) -> Result<&'a mut Vec<Value>, RewriteError> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or(RewriteError::Shape(key, "an array"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition() -> Addition<'static> {
        Addition {
            nodes: Path::new("/run/v/nodes"),
            hook: "/usr/bin/verbgate",
            created: &["created", "/run/v"],
            mounted: &["mounted", "/b/rootfs"],
            stopped: &["stopped", "/run/v"],
            keep: &[],
            memlock: None,
            granted: "uverbs0,rdma_cm",
            numbers: &[(231, None), (243, None), (10, Some(121))],
            kept: &[(243, 0)],
        }
    }

    fn bundle() -> Value {
        json!({
            "unknown": {"kept": [1, 2]},
            "process": {
                "args": ["sh", "-c", "true"],
                "capabilities": {"bounding": ["CAP_KILL", "CAP_MKNOD"], "effective": ["CAP_KILL"]},
            },
            "mounts": [{"destination": "/proc"}, {"destination": "/dev/infiniband/", "source": "/x"},
                {"destination": "/x", "source": "/dev/infiniband/"}],
            "hooks": {"poststop": [{"path": "/usr/bin/other"}]},
            "linux": {
                "devices": [
                    {"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192},
                    {"path": "/dev/infiniband/umad0", "type": "c", "major": 231, "minor": 0},
                    {"path": "/dev/elsewhere", "type": "c", "major": 231, "minor": 193},
                    {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229},
                    {"path": "/dev/hfi1_0", "type": "c", "major": 243, "minor": 0},
                    {"path": "/dev/hfi1_1", "type": "c", "major": 243, "minor": 1},
                ],
                "resources": {"devices": [
                    {"allow": false, "access": "rwm"},
                    {"allow": true, "type": "c", "major": 231, "minor": 192, "access": "rwm"},
                    {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm"},
                    {"allow": true, "type": "c", "major": 243, "minor": 0, "access": "rw"},
                ]},
            },
        })
    }

    fn rewritten() -> Value {
        let mut value = bundle();
        config(&mut value, &addition()).unwrap();
        value
    }

    #[test]
    fn raw_nodes_are_taken_and_shown_ones_are_mounted() {
        let value = rewritten();
        let devices = value["linux"]["devices"].as_array().unwrap();
        let paths: Vec<_> = devices.iter().map(|device| &device["path"]).collect();
        assert_eq!(paths, ["/dev/fuse", "/dev/hfi1_0"]);
        let rules = Rules::of(&value);
        for (numbers, open) in
            [((231, None), false), ((10, Some(121)), false), ((10, Some(229)), true)]
        {
            assert_eq!(rules.open(numbers), open, "{numbers:?}");
        }
        assert!(rules.open((243, Some(0))) && !rules.open((243, Some(1))));
        let destinations: Vec<_> =
            value["mounts"].as_array().unwrap().iter().map(|m| &m["destination"]).collect();
        assert_eq!(destinations, ["/proc", RDMA_DIR]);
    }

    #[test]
    fn the_command_stays_and_capabilities_only_go() {
        let (before, after) = (bundle(), rewritten());
        assert_eq!(after["process"]["args"], before["process"]["args"]);
        let sets = json!({"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"]});
        assert_eq!(after["process"]["capabilities"], sets);
        let mut bare = json!({"args": ["sh"]});
        process(&mut bare, &[], None).unwrap();
        assert_eq!(bare, json!({"args": ["sh"]}));
        assert!(is_ours(&after) && !is_ours(&before));
    }

    #[test]
    fn capabilities_that_go_are_told_unless_every_container_has_them() {
        let of = |names: &[&str], keep: &[String]| {
            taken(&json!({"process": {"capabilities": {"bounding": names}}}), keep)
        };
        assert_eq!(of(&["CAP_KILL", "CAP_MKNOD", "CAP_NET_RAW"], &[]), None);
        let told = of(&["CAP_SYS_PTRACE", "CAP_KILL", "CAP_NET_RAW"], &[]).unwrap();
        assert!(told.contains("CAP_SYS_PTRACE,") && !told.contains("NET_"), "{told}");
        assert!(of(&["CAP_NET_ADMIN"], &[]).unwrap().contains("keep-cap"));
        assert_eq!(of(&["CAP_NET_ADMIN"], &["NET_ADMIN".to_owned()]), None);
        assert_eq!(taken(&json!({}), &[]), None);
    }

    #[test]
    fn the_limit_of_locked_memory_is_the_tenants() {
        let limit = |bytes: u64| json!({"type": "RLIMIT_MEMLOCK", "soft": bytes, "hard": bytes});
        let files = json!({"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2});
        let mut value = json!({"args": ["sh"], "rlimits": [limit(65536), files]});
        for _ in 0..2 {
            process(&mut value, &[], Some(1 << 30)).unwrap();
            assert_eq!(value["rlimits"], json!([files, limit(1 << 30)]));
        }
        let mut bare = json!({"args": ["sh"]});
        process(&mut bare, &[], Some(9)).unwrap();
        assert_eq!(bare["rlimits"], json!([limit(9)]));
    }

    /// Engines write null where runtimes leave a key out.
    #[test]
    fn a_difference_is_named_by_its_keys() {
        let of = |one: Value, other: Value| difference(&one, &other);
        let judged = rewritten();
        assert_eq!(of(judged.clone(), judged.clone()), None);
        assert_eq!(of(json!({"a": null}), json!({})), None);
        let mut added = judged.clone();
        added["linux"]["devices"].as_array_mut().unwrap().push(json!({}));
        assert_eq!(of(judged.clone(), added).unwrap(), "linux.devices");
        let mut without = judged.clone();
        without.as_object_mut().unwrap().remove("hooks");
        assert_eq!(of(judged, without).unwrap(), "hooks");
    }

    #[test]
    fn the_look_at_devices_is_the_last_hook() {
        let mut value = json!({"hooks": {"createContainer": [{"path": "/other"}]}});
        assert!(has_early_hooks(&value) && !has_early_hooks(&bundle()));
        for _ in 0..2 {
            look(&mut value, "/v", &["mounted-unasked", "/r"]).unwrap();
            let hooks = value["hooks"]["createContainer"].as_array().unwrap();
            assert_eq!((hooks.len(), &hooks[1]["path"]), (2, &json!("/v")));
        }
    }

    #[test]
    fn twice_is_once_and_the_rest_survives() {
        let once = rewritten();
        let mut twice = once.clone();
        let mut other = addition();
        other.created = &["created", "/run/v"];
        config(&mut twice, &other).unwrap();
        assert_eq!(once, twice);
        assert_eq!(once["unknown"], bundle()["unknown"]);
        assert_eq!(once["hooks"]["poststop"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_file_of_another_shape_is_refused_by_field() {
        let with_rule = |rule: Value| {
            let deny = json!({"allow": false, "access": "rwm"});
            json!({
                "process": {"args": ["sh"]}, "linux": {"resources": {"devices": [deny, rule]}},
            })
        };
        for (value, field) in [
            (json!([]), "config.json"),
            (json!({}), "process.args"),
            (json!({"process": {"args": []}}), "process.args"),
            (json!({"process": {"args": "sh"}}), "args"),
            (json!({"process": {"args": ["sh"]}, "mounts": {}}), "mounts"),
            (json!({"process": {"args": ["sh"]}, "linux": 3}), "linux"),
            (with_rule(json!({"allow": true, "type": "c", "access": "rwm"})), "a wildcard"),
            (with_rule(json!({"allow": true, "type": "c", "minor": 192, "access": "r"})), "231:*"),
            (with_rule(json!({"allow": true, "type": "c", "major": 10, "access": "rw"})), "10:121"),
        ] {
            let error = config(&mut value.clone(), &addition()).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
