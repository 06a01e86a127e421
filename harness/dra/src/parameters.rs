//! The parameters of a claim: opaque configuration of a DeviceClass, which names a tenant of the policy, and of a class
//! or a claim, which narrows the profile.

use serde::Deserialize;
use serde_json::Value;
use verbgate_oci::claims::Record;

use crate::DRIVER;

/// The version of the parameters.
const VERSION: &str = "verbgate.org/v1";
const KIND: &str = "RdmaParameters";
/// Longest name of a tenant or a profile.
const NAME_MAX: usize = 253;

/// Parameters as the cluster has them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Text {
    api_version: String,
    kind: String,
    tenant: Option<String>,
    profile: Option<String>,
}

/// Why parameters are not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParametersError {
    #[error(
        "the parameters for {DRIVER} cannot be read: {0}; they have apiVersion: {VERSION}, kind: {KIND}, and tenant or \
         profile"
    )]
    Text(serde_json::Error),
    #[error("the parameters for {DRIVER} are {0}, and this driver reads {KIND} of {VERSION}")]
    Kind(String),
    #[error("the parameters for {DRIVER} have {key} {value:?}, which is no name")]
    Name { key: &'static str, value: String },
    #[error(
        "the claim's own parameters for {DRIVER} name the tenant {0:?}: who writes a claim may narrow the profile, and only \
         a DeviceClass names a tenant; remove tenant from the claim's spec.devices.config"
    )]
    TenantOfClaim(String),
    #[error(
        "the claim's classes name two tenants, {0:?} and {1:?}, and a claim has one; make two claims, for two containers"
    )]
    Tenants(String, String),
}

/// Adds the parameters of an allocation (`status.allocation.devices.config`) to a claim's record.
pub(crate) fn add(record: &mut Record, config: &Value) -> Result<(), ParametersError> {
    for one in config.as_array().into_iter().flatten() {
        if one.pointer("/opaque/driver").is_none_or(|driver| driver != DRIVER) {
            continue;
        }
        let text = one.pointer("/opaque/parameters").unwrap_or(&Value::Null);
        let text = Text::deserialize(text).map_err(ParametersError::Text)?;
        if text.api_version != VERSION || text.kind != KIND {
            return Err(ParametersError::Kind(format!("{} of {}", text.kind, text.api_version)));
        }
        for (key, value) in [("tenant", &text.tenant), ("profile", &text.profile)] {
            let Some(value) = value else { continue };
            let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            if value.is_empty() || value.len() > NAME_MAX || !value.bytes().all(fits) {
                return Err(ParametersError::Name { key, value: value.clone() });
            }
        }
        if let Some(tenant) = text.tenant {
            // The scheduler says whose word this is.
            if one.get("source").is_none_or(|source| source != "FromClass") {
                return Err(ParametersError::TenantOfClaim(tenant));
            }
            match record.tenant.replace(tenant.clone()) {
                Some(other) if other != tenant => {
                    return Err(ParametersError::Tenants(other, tenant));
                }
                _ => {}
            }
        }
        record.profiles.extend(text.profile);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &[Value]) -> Result<Record, String> {
        let mut record = Record { claim: "ml/nics".to_owned(), tenant: None, profiles: Vec::new() };
        add(&mut record, &config.into()).map_err(|e| e.to_string())?;
        Ok(record)
    }

    fn one(source: &str, more: Value) -> Value {
        let mut parameters = json!({ "apiVersion": VERSION, "kind": KIND });
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "source": source, "opaque": { "driver": DRIVER, "parameters": parameters } })
    }

    #[test]
    fn a_class_names_the_tenant_and_both_narrow() {
        let other = json!({ "source": "FromClaim", "opaque": { "driver": "gpu.example.com" } });
        let class = one("FromClass", json!({ "tenant": "gold", "profile": "hpc" }));
        let claim = one("FromClaim", json!({ "profile": "standard" }));
        let record = read(&[other, class.clone(), claim, class]).unwrap();
        assert_eq!(record.tenant.as_deref(), Some("gold"));
        assert_eq!(record.profiles, ["hpc", "standard", "hpc"]);
        assert_eq!(read(&[]).unwrap().tenant, None);
    }

    #[test]
    fn what_would_grant_or_is_not_understood_is_refused() {
        let gold = || json!({ "tenant": "gold" });
        let mut unsaid = one("", gold());
        unsaid.as_object_mut().unwrap().remove("source");
        let mut newer = one("FromClass", gold());
        newer["opaque"]["parameters"]["apiVersion"] = "verbgate.org/v2".into();
        for (config, needle) in [
            (vec![one("FromClaim", gold())], "only a DeviceClass"),
            (vec![unsaid], "only a DeviceClass"),
            (vec![newer], "verbgate.org/v2"),
            (vec![one("FromClass", json!({ "devices": "all" }))], "unknown field"),
            (vec![one("FromClass", json!({ "tenant": "a b" }))], "no name"),
            (vec![one("FromClass", json!({ "tenant": "" }))], "no name"),
            (vec![one("FromClaim", json!({ "profile": 3 }))], "cannot be read"),
            (
                vec![json!({ "source": "FromClass", "opaque": { "driver": DRIVER } })],
                "cannot be read",
            ),
            (
                vec![one("FromClass", gold()), one("FromClass", json!({ "tenant": "silver" }))],
                "two tenants",
            ),
        ] {
            let error = read(&config).unwrap_err();
            assert!(error.contains(needle), "{error}");
        }
    }
}
