//! The wish of a container that came by a seccomp profile, and whether the agent can serve the
//! container. The bundle tells both.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Error;
use anyhow::anyhow;
use serde_json::Value;
use verbgate_proxy::policy::WARNED_CAPABILITIES;
use verbgate_sandbox::grant::RDMA_CM;
use verbgate_sys::sandbox::KEEPABLE_CAPABILITIES;
use verbgate_sys::sandbox::cut_capabilities;

use super::super::place::Spec;
use super::super::pod::Pod;
use super::super::wish::NETDEVS;
use super::super::wish::Wish;
use super::state::State;
use crate::device_cgroup::RULES;
use crate::device_cgroup::RuleNumbers;
use crate::device_cgroup::Rules;
use crate::exposed::HostNodes;
use crate::granted;
use crate::granted::Decided;
use crate::options::Allowed;

/// The decision about a container. A container that asks for no devices has none: then the agent
/// serves the filter, and nothing else.
pub(super) fn spec(state: &State, pid: i32, allowed: &Allowed, write: bool) -> Result<Spec, Error> {
    let file = state.bundle.join("config.json");
    let text = fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))
        .map_err(|e| anyhow!("{e:#}"))?;
    let mut config: Value =
        serde_json::from_str(&text).map_err(|e| anyhow!("{} is not JSON: {e}", file.display()))?;
    // The agent that it names is this one.
    if let Some(linux) = config.get_mut("linux").and_then(Value::as_object_mut) {
        linux.remove("seccomp");
    }
    if let Some(root) = config.as_object_mut() {
        let all = root.entry("annotations").or_insert_with(|| Value::Object(Default::default()));
        if let Some(all) = all.as_object_mut() {
            all.extend(state.annotations.clone());
        }
    }
    // The process is in the container's cgroup already.
    let cgroup = granted::cgroup_of(pid);
    let mut decided = decided(&config, allowed, cgroup, &state.id)?
        .unwrap_or_else(|| Decided { profile: allowed.profile.clone(), ..Decided::default() });
    // It is spoken to by write(2) alone.
    decided.devices.retain(|node| write || node.name != RDMA_CM);
    let Decided { devices, profile, tenant, policy, memlock, .. } = decided;
    Ok(Spec {
        id: state.id.clone(),
        bundle: state.bundle.clone(),
        profile,
        tenant,
        policy,
        keep: allowed.keep.clone(),
        compat: false,
        memlock,
        expected: allowed.expected,
        audit: granted::audit(allowed, &config, &state.id),
        devices,
        netdevs: None,
        pod: Pod::of(&config),
        ends_alone: false,
        rootfs: PathBuf::new(),
        sysfs: false,
        runs: false,
    })
}

/// The decision about a container that the agent serves, or will; `None` for one that asks for nothing.
pub(crate) fn decided(
    config: &Value,
    allowed: &Allowed,
    cgroup: Option<String>,
    id: &str,
) -> Result<Option<Decided>, Error> {
    let host = HostNodes::of(&allowed.stand_in);
    let Some(wish) = Wish::of(config, &host)? else { return Ok(None) };
    if !wish.netdevs.is_empty() {
        return Err(anyhow!(
            "annotation {NETDEVS}: an agent hears of a container too late to move NICs; run \
             the container by `verbgate oci`, or let the network plug-in move the NICs"
        ));
    }
    let decided = granted::decided(&wish, allowed, config, cgroup)?;
    let mut numbers = host.numbers.in_rules();
    // The engine's own rule gives these.
    let kept = host.kept(&Rules::of(config));
    numbers.retain(|(major, _)| !kept.iter().any(|(one, _)| one == major));
    let own = decided.devices.iter().filter(|one| one.identity.ibdev().is_some());
    numbers.extend(own.map(|one| (one.rdev.0, Some(one.rdev.1))));
    let refused = &decided.refuse_capabilities;
    for warning in refuse_reach(config, &numbers, &allowed.keep, refused)? {
        log::warn!("container {id}: {warning}");
    }
    Ok(Some(decided))
}

/// A container that can open the raw device by itself needs no supervisor, nor heeds one. What engines
/// give every container, and what reaches other tenants but no device, is a warning, unless the
/// tenant's policy refuses it.
fn refuse_reach(
    config: &Value,
    numbers: &[RuleNumbers],
    keep: &[String],
    refused: &[String],
) -> Result<Vec<String>, Error> {
    let rules = Rules::of(config);
    for (major, minor) in numbers.iter().copied() {
        if rules.open((major, minor)) {
            let minor = minor.map_or("*".to_owned(), |minor| minor.to_string());
            return Err(anyhow!(
                "{RULES}: the container may open {major}:{minor} by itself; run \
                 the container by `verbgate oci`, which takes that away, or give the container the node \
                 with access \"m\" alone, as `verbgate cdi generate` describes it, and no privileged container"
            ));
        }
    }
    let bounding = config.pointer("/process/capabilities/bounding").and_then(Value::as_array);
    let has = |name: &str| {
        bounding.into_iter().flatten().filter_map(Value::as_str).any(|one| one == name)
    };
    // The device cgroup answers for that one.
    let cut = cut_capabilities(keep).flat_map(|(one, why)| {
        one.iter_names().filter(|(name, _)| *name != "MKNOD").map(move |(name, _)| (name, why))
    });
    let mut warnings = Vec::new();
    for (name, why) in cut.filter(|(name, _)| has(&format!("CAP_{name}"))) {
        let is_refused = refused.iter().any(|one| one == name);
        if WARNED_CAPABILITIES.contains(&name) && !is_refused {
            warnings.push(format!(
                "with CAP_{name} the container {why}, and an agent cannot cut capabilities: drop \
                 {name} in the engine (docker and podman: --cap-drop {name}; Kubernetes: \
                 securityContext.capabilities.drop), or run the container by `verbgate oci`, which \
                 cuts it; --keep-cap {name} accepts that, and refuse_capabilities of the tenant's \
                 policy refuses such containers"
            ));
            continue;
        }
        let remedy = match (is_refused, KEEPABLE_CAPABILITIES.contains(&name)) {
            (true, _) => "the tenant's policy refuses that (refuse_capabilities)",
            (false, true) => "--keep-cap of the agent accepts that",
            (false, false) => "an agent cannot cut capabilities",
        };
        return Err(anyhow!(
            "process.capabilities.bounding: with CAP_{name} the container {why}; drop {name} in the \
             engine, or run the container by `verbgate oci`, which cuts it; {remedy}"
        ));
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UVERBS: RuleNumbers = (231, None);

    #[test]
    fn a_container_that_reaches_the_device_is_refused() {
        let mut config = json!({
            "process": {"capabilities": {"bounding": ["CAP_MKNOD", "CAP_KILL"]}},
            "linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}},
        });
        assert!(refuse_reach(&config, &[UVERBS], &[], &[]).unwrap().is_empty());
        config["process"]["capabilities"]["bounding"] = json!(["CAP_SYS_PTRACE"]);
        let error = refuse_reach(&config, &[UVERBS], &[], &[]).unwrap_err().to_string();
        assert!(error.contains("CAP_SYS_PTRACE"), "{error}");
        config["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
        let error = refuse_reach(&config, &[UVERBS], &[], &[]).unwrap_err().to_string();
        assert!(error.contains("linux.resources.devices"), "{error}");
    }
    /// The bounding set of dockerd and containerd.
    const ENGINES: [&str; 14] = [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FSETID",
        "CAP_FOWNER",
        "CAP_MKNOD",
        "CAP_NET_RAW",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETFCAP",
        "CAP_SETPCAP",
        "CAP_NET_BIND_SERVICE",
        "CAP_SYS_CHROOT",
        "CAP_KILL",
        "CAP_AUDIT_WRITE",
    ];

    #[test]
    fn a_container_as_engines_make_them_is_served_with_a_warning() {
        let mut config = json!({
            "process": {"capabilities": {"bounding": ENGINES}},
            "linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}},
        });
        let raw = ["NET_RAW".to_owned()];
        let warnings = refuse_reach(&config, &[UVERBS], &[], &[]).unwrap();
        let [warning] = &*warnings else { panic!("{warnings:?}") };
        for word in ["CAP_NET_RAW", "executes as RDMA", "--cap-drop NET_RAW", "refuse_capabilities"]
        {
            assert!(warning.contains(word), "{word}: {warning}");
        }
        assert!(
            refuse_reach(&config, &[UVERBS], &raw, &[]).unwrap().is_empty(),
            "the operator keeps it"
        );
        let error = refuse_reach(&config, &[UVERBS], &[], &raw).unwrap_err().to_string();
        assert!(error.contains("CAP_NET_RAW") && error.contains("policy refuses"), "{error}");
        config["process"]["capabilities"]["bounding"] = json!(["CAP_NET_RAW", "CAP_NET_ADMIN"]);
        let error = refuse_reach(&config, &[UVERBS], &[], &[]).unwrap_err().to_string();
        assert!(error.contains("CAP_NET_ADMIN") && error.contains("--keep-cap"), "{error}");
    }
}
