//! A container as NRI shows it, in the form of the `config.json` that its runtime will have, as far as a wish for RDMA
//! and the decision about the wish read it.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use super::messages::LinuxContainer;
use super::messages::LinuxDeviceCgroup;
use super::messages::LinuxSeccomp;
use super::messages::LinuxSeccompArg;
use super::messages::LinuxSyscall;
use super::messages::NriContainer;
use super::messages::OptionalInt64;
use super::messages::OptionalUint32;
use super::messages::PodSandbox;
use crate::agent::profile;
use crate::wish::GRANTED;
use crate::wish::PREFIX;

/// Annotations of the pod that are Verbgate's, and that its containers do not have: the engine passes them only to
/// containers of a runtime that is configured so.
pub(super) fn passed_on(pod: &PodSandbox, container: &NriContainer) -> BTreeMap<String, String> {
    let ours = pod.annotations.iter().filter(|(key, _)| key.starts_with(PREFIX) && *key != GRANTED);
    let missing = ours.filter(|(key, _)| !container.annotations.contains_key(*key));
    missing.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The container's `config.json`, with these annotations beside its own.
pub(super) fn of(container: &NriContainer, more: &BTreeMap<String, String>) -> Value {
    let mut annotations = BTreeMap::from_iter(&container.annotations);
    annotations.extend(more);
    let mounts = container.mounts.iter().map(|mount| {
        json!({
            "destination": mount.destination, "type": mount.kind, "source": mount.source,
            "options": mount.options,
        })
    });
    let hooks = container.hooks.iter().flat_map(|hooks| &hooks.create_runtime);
    let hooks = hooks.map(|hook| json!({"path": hook.path, "args": hook.args}));
    json!({
        "annotations": annotations,
        "process": {"env": container.env},
        "mounts": mounts.collect::<Vec<_>>(),
        "hooks": {"createRuntime": hooks.collect::<Vec<_>>()},
        "linux": container.linux.as_ref().map_or_else(|| json!({}), linux),
    })
}

fn linux(linux: &LinuxContainer) -> Value {
    let devices = linux.devices.iter().map(|device| {
        json!({
            "path": device.path, "type": device.kind, "major": device.major, "minor": device.minor,
        })
    });
    let namespaces = linux.namespaces.iter().map(|namespace| {
        object([("type", Some(json!(namespace.kind))), ("path", text(&namespace.path))])
    });
    let rules = linux.resources.iter().flat_map(|resources| &resources.devices).map(rule);
    // The profile of this agent is no other's.
    let seccomp = linux.seccomp_policy.as_ref();
    let seccomp = seccomp.filter(|one| !profile::is_ours(&one.listener_metadata)).map(|one| {
        let actions = one.syscalls.iter().map(|call| json!({"action": call.action}));
        json!({
            "defaultAction": one.default_action, "listenerPath": one.listener_path,
            "syscalls": actions.collect::<Vec<_>>(),
        })
    });
    object([
        ("devices", Some(devices.collect())),
        ("namespaces", Some(namespaces.collect())),
        ("resources", Some(json!({"devices": rules.collect::<Vec<_>>()}))),
        ("cgroupsPath", text(&linux.cgroups_path)),
        ("seccomp", seccomp),
    ])
}

fn rule(rule: &LinuxDeviceCgroup) -> Value {
    let number = |number: Option<OptionalInt64>| number.map(|number| number.value.into());
    object([
        ("allow", Some(rule.allow.into())),
        ("type", text(&rule.kind)),
        ("access", text(&rule.access)),
        ("major", number(rule.major)),
        ("minor", number(rule.minor)),
    ])
}

/// NRI has an empty text where `config.json` has none.
fn text(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| text.into())
}

/// An object of the fields that are there.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let there = fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(there.collect())
}

/// A seccomp profile as NRI has it.
pub(super) fn seccomp(profile: &Value) -> LinuxSeccomp {
    let list =
        |of: &Value, key: &str| of.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |of: &Value, key: &str| -> Vec<String> {
        list(of, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let number = |of: &Value, key: &str| of.get(key).and_then(Value::as_u64);
    let small =
        |of: &Value, key: &str| number(of, key).and_then(|number| u32::try_from(number).ok());
    let comparison = |arg: &Value| LinuxSeccompArg {
        index: small(arg, "index").unwrap_or_default(),
        value: number(arg, "value").unwrap_or_default(),
        value_two: number(arg, "valueTwo").unwrap_or_default(),
        op: text(arg, "op"),
    };
    let syscall = |one: &Value| LinuxSyscall {
        names: texts(one, "names"),
        action: text(one, "action"),
        errno: small(one, "errnoRet").map(|value| OptionalUint32 { value }),
        args: list(one, "args").iter().map(comparison).collect(),
    };
    LinuxSeccomp {
        default_action: text(profile, "defaultAction"),
        architectures: texts(profile, "architectures"),
        flags: texts(profile, "flags"),
        listener_path: text(profile, "listenerPath"),
        listener_metadata: text(profile, "listenerMetadata"),
        syscalls: list(profile, "syscalls").iter().map(syscall).collect(),
    }
}
