//! Claims into CDI devices.

use std::path::Path;

use serde_json::Value;
use verbgate_oci::claims;
use verbgate_oci::claims::ClaimsError;
use verbgate_oci::claims::Record;

use crate::DRIVER;
use crate::cluster::Cluster;
use crate::cluster::ClusterError;
use crate::cluster::GROUP;
use crate::cluster::is_name;
use crate::devices::Device;
use crate::messages::Claim;
use crate::messages::Prepared;
use crate::parameters;
use crate::parameters::ParametersError;

/// Why a claim's devices cannot be given to a pod. The kubelet shows the text in the pod's events, and asks again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("the kubelet asks about a claim of an impossible name: {0:?}")]
    Name(String),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(
        "the claim {name} was made anew: the kubelet asks for {asked}, the cluster has {found}"
    )]
    Another { name: String, asked: String, found: String },
    #[error("the claim {0} has no allocation yet")]
    NotAllocated(String),
    #[error(
        "the claim {0} has an allocation that cannot be read: a driver, a pool, a device or a request is missing; is the \
         cluster newer than this driver?"
    )]
    Allocation(String),
    #[error(
        "the device {device} is in the pool {pool}, and this node is {node}; another driver of the name {DRIVER}?"
    )]
    Pool { device: String, pool: String, node: String },
    #[error(
        "the device {0} is claimed with adminAccess, which would give one device to two pods unseen; claim the device \
         without adminAccess"
    )]
    Admin(String),
    #[error("the parameters of the claim {name} are refused")]
    Parameters { name: String, source: ParametersError },
    #[error(transparent)]
    Record(#[from] ClaimsError),
    #[error(
        "the device {0} is gone from this node; delete the pod, so that the claim is allocated anew"
    )]
    Gone(String),
}

/// What the kubelet shall add to the containers of a claim.
pub(crate) fn prepare(
    cluster: &Cluster,
    node: &str,
    devices: &[Device],
    claim: &Claim,
    host: &Path,
) -> Result<Vec<Prepared>, ClaimError> {
    for name in [&claim.namespace, &claim.name, &claim.uid] {
        if !is_name(name) {
            return Err(ClaimError::Name(name.clone()));
        }
    }
    let version = cluster.version()?;
    let (namespace, name) = (&claim.namespace, &claim.name);
    let path = format!("/apis/{GROUP}/{version}/namespaces/{namespace}/resourceclaims/{name}");
    let (mut all, record) = granted(&cluster.get(&path)?, node, devices, claim)?;
    // Of none of this driver's devices, nothing is said.
    if !all.is_empty() {
        let claimed = claims::write(host, &claim.uid, &record)?;
        for one in &mut all {
            one.cdi_device_ids.push(claimed.clone());
        }
    }
    Ok(all)
}

/// Takes back what [`prepare`] wrote.
pub(crate) fn unprepare(claim: &Claim, host: &Path) -> Result<(), ClaimError> {
    if !is_name(&claim.uid) {
        return Err(ClaimError::Name(claim.uid.clone()));
    }
    Ok(claims::forget(host, &claim.uid)?)
}

/// The devices of an allocation that are this driver's, and what the runtime is told of the claim.
fn granted(
    object: &Value,
    node: &str,
    devices: &[Device],
    claim: &Claim,
) -> Result<(Vec<Prepared>, Record), ClaimError> {
    let name = format!("{}/{}", claim.namespace, claim.name);
    let found = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    if found != claim.uid {
        let (asked, found) = (claim.uid.clone(), found.to_owned());
        return Err(ClaimError::Another { name, asked, found });
    }
    let allocated = object.pointer("/status/allocation/devices");
    let allocated = allocated.ok_or_else(|| ClaimError::NotAllocated(name.clone()))?;
    let list = |key: &str| allocated.get(key).and_then(Value::as_array).into_iter().flatten();
    let mut record = Record { claim: name.clone(), tenant: None, profiles: Vec::new() };
    parameters::add(&mut record, allocated.get("config").unwrap_or(&Value::Null))
        .map_err(|source| ClaimError::Parameters { name: name.clone(), source })?;
    let mut all = Vec::new();
    for result in list("results") {
        let text = |key: &str| {
            let text = result.get(key).and_then(Value::as_str);
            text.ok_or_else(|| ClaimError::Allocation(name.clone()))
        };
        if text("driver")? != DRIVER {
            continue;
        }
        let (pool, device, request) = (text("pool")?, text("device")?, text("request")?);
        if pool != node {
            let (device, pool, node) = (device.to_owned(), pool.to_owned(), node.to_owned());
            return Err(ClaimError::Pool { device, pool, node });
        }
        if result.get("adminAccess").is_some_and(|admin| *admin != false) {
            return Err(ClaimError::Admin(device.to_owned()));
        }
        let known = devices.iter().find(|known| known.name == device);
        let known = known.ok_or_else(|| ClaimError::Gone(device.to_owned()))?;
        all.push(Prepared {
            // Of alternatives, pods name the request and not the chosen one: `nic/fast`.
            request_names: request.split('/').take(1).map(str::to_owned).collect(),
            pool_name: pool.to_owned(),
            device_name: device.to_owned(),
            cdi_device_ids: vec![verbgate_oci::cdi::name_of(&known.ibdev)],
        });
    }
    Ok((all, record))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn claim() -> Claim {
        Claim { namespace: "ml".into(), uid: "u1".into(), name: "nics".into() }
    }

    fn of(object: &Value) -> Result<Vec<Prepared>, String> {
        let device = |n: u32| Device {
            name: format!("mlx5-{n}"),
            ibdev: format!("mlx5_{n}"),
            attributes: BTreeMap::new(),
        };
        let all = granted(object, "n1", &[device(0), device(1)], &claim());
        all.map(|(all, _)| all).map_err(|e| e.to_string())
    }

    fn object(results: Value) -> Value {
        json!({ "metadata": { "uid": "u1" }, "status": { "allocation": { "devices": { "results": results } } } })
    }

    fn result(device: &str) -> Value {
        json!({ "request": "nic/fast", "driver": DRIVER, "pool": "n1", "device": device })
    }

    #[test]
    fn a_claim_is_the_cdi_devices_that_it_was_given() {
        let others =
            json!({ "request": "gpu", "driver": "gpu.example.com", "pool": "x", "device": "g0" });
        let all = of(&object(json!([others, result("mlx5-1")]))).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].cdi_device_ids, ["verbgate.org/rdma=mlx5_1"]);
        assert_eq!(all[0].request_names, ["nic"]);
        assert_eq!((all[0].pool_name.as_str(), all[0].device_name.as_str()), ("n1", "mlx5-1"));
    }

    #[test]
    fn what_is_not_understood_gives_nothing() {
        let with = |key: &str, value: Value| {
            let mut one = result("mlx5-0");
            one[key] = value;
            object(json!([result("mlx5-1"), one]))
        };
        let mut parameters = object(json!([result("mlx5-0")]));
        parameters["status"]["allocation"]["devices"]["config"] =
            json!([{ "opaque": { "driver": DRIVER, "parameters": {} } }]);
        for (object, needle) in [
            (json!({ "metadata": { "uid": "u2" } }), "made anew"),
            (json!({}), "made anew"),
            (json!({ "metadata": { "uid": "u1" } }), "no allocation"),
            (with("pool", json!("n2")), "pool n2"),
            (with("pool", json!(3)), "cannot be read"),
            (with("driver", Value::Null), "cannot be read"),
            (with("adminAccess", json!(true)), "adminAccess"),
            (with("adminAccess", json!("true")), "adminAccess"),
            (with("device", json!("mlx5-7")), "gone"),
            (with("device", json!("mlx5_0")), "gone"),
            (parameters, "parameters"),
        ] {
            let error = of(&object).unwrap_err();
            assert!(error.contains(needle), "{error}");
        }
        assert!(of(&with("adminAccess", json!(false))).is_ok());
    }

    /// The name becomes a part of a path.
    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let host = Path::new("/nonexistent");
        let cluster = Cluster::of(Some("http://127.0.0.1:1"), "/nonexistent".into()).unwrap();
        for name in ["../secrets", "a?b", ""] {
            let error = prepare(&cluster, "n1", &[], &Claim { name: name.into(), ..claim() }, host);
            assert!(matches!(error.unwrap_err(), ClaimError::Name(odd) if odd == name));
            let odd = Claim { uid: name.into(), ..claim() };
            assert!(prepare(&cluster, "n1", &[], &odd, host).is_err());
            assert!(matches!(unprepare(&odd, host), Err(ClaimError::Name(odd)) if odd == name));
        }
    }
}
