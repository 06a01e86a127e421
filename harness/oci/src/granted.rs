//! The grant of a container: the part of its wish that the container gets.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;

use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use verbgate_proxy::policy::PROFILES;
use verbgate_sandbox::Audit;
use verbgate_sandbox::Rights;
use verbgate_sandbox::Subject;
use verbgate_sandbox::grant;
use verbgate_sandbox::grant::GrantError;
use verbgate_sandbox::grant::Granted;
use verbgate_sandbox::grant::Host;
use verbgate_sys::Tgid;

use crate::claims;
use crate::options::Allowed;
use crate::options::Annotations;
use crate::place::Place;
use crate::place::Spec;
use crate::wish;
use crate::wish::Wish;

/// The decision about a container.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub(super) devices: Vec<Granted>,
    /// Name of the profile, for people.
    pub(super) profile: String,
    pub(super) tenant: Option<String>,
    /// The tenant's policy; empty where there are no policy files.
    pub(super) policy: Vec<String>,
    /// Bytes that a process of the container's may lock.
    pub(super) memlock: Option<u64>,
    /// Capabilities with which an agent refuses the container.
    pub(super) refuse_capabilities: Vec<String>,
}

/// Decides about a container that is, or will be, in this cgroup.
pub(super) fn decided(
    wish: &Wish,
    operator: &Allowed,
    config: &Value,
    cgroup: Option<String>,
) -> Result<Decided, Error> {
    refuse(operator)?;
    let claims = claims::of(config)?;
    let of_claims = claims.iter().flat_map(|one| one.profiles.iter().map(String::as_str));
    let asked: Vec<&str> = wish.profile.as_deref().into_iter().chain(of_claims).collect();
    let claims = claims.iter().map(Into::into).collect();
    let subject = Subject { annotations: annotations(config), uid: None, cgroup, claims };
    let tenants = verbgate_sandbox::Allowed::of(&operator.policy_dir, &subject, &asked)?;
    let devices = granted(wish, operator)?;
    let Some(tenants) = tenants else {
        let profile = profile(&asked, &operator.profile)?;
        return Ok(Decided { devices, profile, ..Decided::default() });
    };
    let by_name = wish.devices.iter().all(|(name, _)| name != wish::ALL);
    Ok(Decided {
        devices: tenants.devices(devices, by_name)?,
        profile: tenants.policy.name(),
        tenant: Some(tenants.tenant().to_owned()),
        policy: tenants.policy.texts(),
        memlock: tenants.memlock(),
        refuse_capabilities: tenants.refuse_capabilities().to_vec(),
    })
}

/// Refuses everything while the operator's configuration cannot be read.
pub(super) fn refuse(operator: &Allowed) -> Result<(), Error> {
    operator.refuse.as_ref().map_or(Ok(()), |why| Err(anyhow!("{why}")))
}

fn annotations(config: &Value) -> BTreeMap<String, String> {
    let all = config.get("annotations").and_then(Value::as_object).into_iter().flatten();
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    all.filter_map(text).collect()
}

/// The path in the cgroup hierarchy of the container that a configuration asks for: a path, or
/// `SLICE:PREFIX:NAME` for systemd, whose slices stand in each other (systemd.slice(5)).
pub(super) fn cgroup_asked(config: &Value) -> Option<String> {
    let path = config.pointer("/linux/cgroupsPath")?.as_str()?;
    let parts: Vec<&str> = path.split(':').collect();
    let [slice, prefix, name] = parts[..] else { return Some(path.to_owned()) };
    let stem = slice.strip_suffix(".slice").unwrap_or(slice);
    let ends = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    let slices = ends.filter_map(|end| stem.get(..end)).filter(|stem| !stem.is_empty());
    let mut all: String = slices.map(|stem| format!("/{stem}.slice")).collect();
    let scope = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}-{name}") };
    let suffix = if scope.ends_with(".slice") { "" } else { ".scope" };
    all.push_str(&format!("/{scope}{suffix}"));
    Some(all)
}

/// The path in the cgroup hierarchy of a process.
pub(super) fn cgroup_of(pid: i32) -> Option<String> {
    verbgate_sandbox::cgroup_of(Tgid(pid))
}

/// The nodes that a container gets.
///
/// Whoever makes a container, or a pod, writes annotations; the devices that the engine lists, shows
/// or opens come from somebody who may grant them. So annotations select among these, unless the
/// operator has said that they grant.
fn granted(wish: &Wish, allowed: &Allowed) -> Result<Vec<Granted>, Error> {
    let grants = allowed.annotations == Annotations::Grant;
    let asks = || wish.devices.iter().filter(|(_, field)| wish::is_asked(field));
    let given = wish.devices.iter().filter(|(_, field)| grants || !wish::is_asked(field));
    let mut nodes: Vec<Granted> = Vec::new();
    let mut closed = None;
    for (name, field) in given {
        match found(name, field, &allowed.stand_in) {
            Ok(found) => add(&mut nodes, found),
            // The device of a network namespace of its own, which an engine lists to a privileged container with all others.
            Err(error) if is_closed(&error) && !wish::is_asked(field) => {
                log::warn!("{error:#}");
                closed = closed.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    if let (true, Some(error)) = (nodes.is_empty(), closed) {
        return Err(error);
    }
    if !grants {
        refuse_what_grants(wish)?;
        // What the operator has named on the command line is the operator's grant.
        let stand_ins = grant::resolve_all(&allowed.stand_in, Host::real())?;
        let mut selected = Vec::new();
        for (name, field) in asks() {
            let named = match name.as_str() {
                wish::ALL if !nodes.is_empty() => nodes.clone(),
                wish::ALL => stand_ins.clone(),
                name => found(name, field, &allowed.stand_in)?,
            };
            if let Some(other) =
                named.iter().find(|one| !nodes.contains(one) && !stand_ins.contains(one))
            {
                return Err(beyond(name, field, other, &nodes));
            }
            if named.is_empty() {
                return Err(beyond_all(field));
            }
            add(&mut selected, named);
        }
        if asks().next().is_some() {
            nodes = selected;
        }
    }
    if nodes.is_empty() {
        let field = wish.devices.first().map_or(wish::DEVICES, |(_, field)| *field);
        return Err(anyhow!("{field}: this host has no RDMA device to grant"));
    }
    if wish.cm || grants && wish.cm_asked {
        nodes.extend(grant::connection_manager(Host::real()));
    }
    Ok(nodes)
}

/// Whether the kernel opens the device for nobody here: `ib_uverbs_open` in drivers/infiniband/core/uverbs_main.c.
fn is_closed(error: &Error) -> bool {
    let Some(GrantError::Open { source, .. }) = error.downcast_ref() else { return false };
    source.kind() == io::ErrorKind::PermissionDenied
}

fn add(nodes: &mut Vec<Granted>, more: Vec<Granted>) {
    for node in more {
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
}

/// The nodes of a name that is asked for in a place.
fn found(name: &str, field: &'static str, stand_in: &[OsString]) -> Result<Vec<Granted>, Error> {
    let of_name = |option: &&OsString| {
        option.to_str().and_then(|text| text.split_once('=')).is_some_and(|(n, _)| n == name)
    };
    let options = match stand_in.iter().find(of_name) {
        Some(stand_in) => vec![stand_in.clone()],
        // Without any, all of the host's.
        None if name == wish::ALL && !stand_in.is_empty() => stand_in.to_vec(),
        None => vec![OsStr::new(name).to_owned()],
    };
    grant::resolve(&options, Host::real()).map_err(|e| {
        let place = match field {
            annotation @ (wish::DEVICES | wish::GRANTED) => format!("annotation {annotation}"),
            field => field.to_owned(),
        };
        Error::from(e).context(place)
    })
}

/// How an operator lets annotations grant.
const GRANT: &str = "on a node of one tenant, let annotations grant (`annotations = \"grant\"` in \
     /etc/verbgate/config.toml, or --annotations grant)";

fn beyond(name: &str, field: &str, other: &Granted, given: &[Granted]) -> Error {
    let given: Vec<&str> = given.iter().map(|node| node.name.as_str()).collect();
    let given = if given.is_empty() { "none".to_owned() } else { given.join(", ") };
    let field =
        if field == wish::DEVICES { format!("annotation {field}") } else { field.to_owned() };
    anyhow!(
        "{field}: {name} ({}) is not among the devices that the engine gives this container \
         ({given}), and an annotation selects among those; have the engine give the device \
         (--device, a device plug-in, CDI), or, {GRANT}",
        other.name
    )
}

fn beyond_all(field: &str) -> Error {
    anyhow!(
        "annotation {field}: the engine gives this container no RDMA device, and an annotation \
         selects among those; have the engine give a device (--device, a device plug-in, CDI), or, \
         {GRANT}"
    )
}

/// What would be more than a selection.
fn refuse_what_grants(wish: &Wish) -> Result<(), Error> {
    let more = [
        (!wish.netdevs.is_empty(), wish::NETDEVS, "takes NICs from the host"),
        (wish.sees_host, wish::SYSFS, "shows the devices of others"),
    ];
    match more.iter().find(|(is, ..)| *is) {
        None => Ok(()),
        Some((_, annotation, does)) => Err(anyhow!(
            "annotation {annotation}: the annotation {does}, and annotations here select and do \
             not grant; remove the annotation, or, {GRANT}"
        )),
    }
}

/// Annotations of containerd and CRI-O for the namespace of a pod.
const NAMESPACE: [&str; 2] = ["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"];

/// Where a container's audit goes, and how the audit calls the container.
pub(super) fn audit(allowed: &Allowed, config: &Value, id: &str) -> Option<(String, String)> {
    let to = allowed.audit.clone()?;
    let text = |key: &&str| config.get("annotations")?.get(*key)?.as_str();
    let space = NAMESPACE.iter().find_map(text);
    Some((to, space.map_or_else(|| id.to_owned(), |space| format!("{space}/{id}"))))
}

/// The rights of a container's supervisor, before it confines itself.
pub(super) fn rights(spec: &Spec, place: &Place) -> Result<Rights, Error> {
    let mut rights = Rights::with_cm(&spec.devices, spec.policy()?)?;
    // ROOT/oci/NAME
    if let Some(root) = place.path().ancestors().nth(2) {
        rights.register_in(root)?;
        if let Some(tenant) = &spec.tenant {
            rights.charge_to(root, tenant)?;
        }
    }
    if let Some((to, name)) = &spec.audit {
        // Without an operator's policy, each container is a tenant.
        let audit = Audit::open(to, spec.tenant.as_deref().unwrap_or(name), Some(name));
        rights.audit(audit.map_err(|e| anyhow!("cannot write the audit to {to}: {e}"))?);
    }
    Ok(rights)
}

/// A container's wishes may narrow what the operator allows, and each profile is a part of the next.
fn profile(wished: &[&str], allowed: &str) -> Result<String, Error> {
    let rank = |name: &str| PROFILES.iter().position(|(known, _)| *known == name);
    let mut least = allowed;
    for name in wished {
        if rank(name).is_none_or(|one| Some(one) > rank(allowed)) {
            return Err(anyhow!(
                "annotation {}, or a claim: the profile {name:?} is not allowed here; the runtime's \
                 option --profile allows {allowed:?}",
                wish::PROFILE
            ));
        }
        if rank(name) < rank(least) {
            least = name;
        }
    }
    Ok(least.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_a_container_is_told_as_the_kernel_will() {
        let of = |path: &str| cgroup_asked(&serde_json::json!({"linux": {"cgroupsPath": path}}));
        assert_eq!(of("/docker/abc").as_deref(), Some("/docker/abc"));
        assert_eq!(
            of("kubepods-burstable-pod1.slice:cri-containerd:abc").as_deref(),
            Some(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice\
                 /cri-containerd-abc.scope"
            )
        );
        assert_eq!(of("system.slice:docker:x").as_deref(), Some("/system.slice/docker-x.scope"));
        assert_eq!(cgroup_asked(&Value::Null), None);
    }

    #[test]
    fn a_container_gets_no_more_than_the_operator_allows() {
        for (wished, allowed, granted) in [
            (&[][..], "hpc", "hpc"),
            (&["standard"], "full", "standard"),
            (&["hpc"], "full", "hpc"),
            (&["full", "hpc"], "full", "hpc"),
            (&["standard", "hpc"], "hpc", "standard"),
        ] {
            assert_eq!(profile(wished, allowed).unwrap(), granted, "{wished:?}");
        }
        for (wished, allowed) in [("hpc", "standard"), ("full", "hpc"), ("nonsense", "full")] {
            let error = profile(&["standard", wished], allowed).unwrap_err().to_string();
            assert!(error.contains(wished) && error.contains(wish::PROFILE), "{error}");
        }
    }
}
