//! A request that nobody makes, judged by a policy: as far as the request's bytes decide.

use verbgate_abi::request::Request;
use verbgate_abi::values::Meaning;

use super::CHECKED;
use super::Refusal;
use super::datagram;
use super::refused_port;
use crate::policy::Policy;
use crate::quota::Takes;

/// Judges a request by a policy, and by the ports that the tenant has of the device, if that is known: what
/// the supervisor would refuse whatever it knows besides.
///
/// # Errors
/// The refusal.
pub fn judge(policy: &Policy, ports: Option<&[u32]>, request: &Request) -> Result<(), Refusal> {
    policy
        .check(request)
        .map_err(|refused| Refusal::warn(refused.reason, refused.errno, &refused))?;
    if let Some(ports) = ports
        && let Some(refusal) = refused_port(request, ports)
    {
        return Err(refusal);
    }
    let beyond =
        |(resource, amount): &(_, u64)| policy.quota(*resource).is_some_and(|q| *amount > q);
    match Takes::of(request).charge().some().find(beyond) {
        None => Ok(()),
        Some((resource, amount)) => {
            let (name, most) = (resource.name(), policy.quota(resource).unwrap_or_default());
            let line =
                format!("{amount} of {name} is beyond the quota (rule: quota.{name} = {most})");
            Err(Refusal::warn("quota reached", resource.errno(), line))
        }
    }
}

/// The rules of a policy about this request that its bytes do not decide, each with what is missing.
#[must_use]
pub fn not_judged(policy: &Policy, request: &Request) -> Vec<String> {
    let mut rest = Vec::new();
    let has = |meaning| request.values().any(|value| value.meaning == meaning);
    if has(Meaning::SourceGid) {
        rest.push("whose the source GID is".to_owned());
        if !policy.grants_all_gid_types() {
            rest.push("gid_types (the port's table has the type)".to_owned());
        }
    }
    if has(Meaning::Pkey) && !policy.grants_all_pkeys() {
        rest.push("pkeys (the port's table has the P_Key of the index)".to_owned());
    }
    let source_is_checked = CHECKED.contains(&request.hdr().driver());
    if datagram(request).is_some() && !source_is_checked && !policy.grants_shared_ud() {
        rest.push("shared_ud (whether others speak by the port)".to_owned());
    }
    for (resource, amount) in Takes::of(request).charge().some() {
        if let Some(most) = policy.quota(resource) {
            let name = resource.name();
            rest.push(format!("quota.{name} = {most} (it takes {amount}; what the tenant holds)"));
        }
    }
    if policy.rate().is_some() || policy.has_class_rate() {
        rest.push("rate, rates (the requests before)".to_owned());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vet::tests::world::of;

    fn own(rules: &str) -> Policy {
        let text = format!("name = \"own\"\nextends = \"hpc\"\n{rules}\n");
        Policy::read(&text).unwrap()
    }

    #[test]
    fn what_the_bytes_decide_is_judged_and_the_rest_is_named() {
        let handle = of(
            "CREATE_AH",
            &[("attr.port_num", &[2]), ("attr.is_global", &[1]), ("attr.sl", &[3])],
        );
        let reason = |policy: &Policy, ports: Option<&[u32]>, request: &Request| {
            judge(policy, ports, request).err().map(|refusal| refusal.reason)
        };
        let policy = own("");
        assert_eq!(reason(&policy, None, &handle), None);
        assert_eq!(reason(&policy, Some(&[2]), &handle), None);
        assert_eq!(reason(&policy, Some(&[1]), &handle), Some("port not granted"));
        let level = own("rules.service_level = { only = [0] }");
        assert_eq!(reason(&level, None, &handle), Some("value beyond a limit"));
        // One that a quota would never leave, and one that others may have taken.
        let none = own("rules.quota.ah = 0");
        assert_eq!(reason(&none, None, &handle), Some("quota reached"));
        let some = own("rules.quota.ah = 1");
        assert_eq!(reason(&some, None, &handle), None);
        let rest = |policy: &Policy, request: &Request| not_judged(policy, request).join("; ");
        assert_eq!(rest(&policy, &handle), "whose the source GID is");
        assert!(
            rest(&some, &handle).contains("quota.ah = 1 (it takes 1"),
            "{}",
            rest(&some, &handle)
        );
        for rule in ["gid_types = [\"RoCE v2\"]", "rate = { per_s = 9 }"] {
            let policy = own(&format!("rules.{rule}"));
            let word = rule.split(' ').next().unwrap();
            assert!(rest(&policy, &handle).contains(word), "{rule}: {}", rest(&policy, &handle));
        }
        let init = of("MODIFY_QP", &[("attr_mask", &[0x10])]);
        assert_eq!(rest(&policy, &init), "");
        assert!(rest(&own("rules.pkeys = [0x8001]"), &init).starts_with("pkeys"));
        let datagrams = of("CREATE_QP", &[("qp_type", &[4])]);
        assert!(rest(&policy, &datagrams).starts_with("shared_ud"));
        assert_eq!(rest(&own("rules.shared_ud = true"), &datagrams), "");
        assert_eq!(rest(&policy, &of("ALLOC_PD", &[])), "");
    }
}
