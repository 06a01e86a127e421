//! What a supervisor says of its container: for `verbgate ps`, `show` and `stats`.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;
use verbgate_proxy::Supervisor;
use verbgate_sys::Tgid;

use super::place::Spec;
use crate::supervise;

/// A container and those who serve its processes.
pub(super) fn shown(
    spec: &Spec,
    first: Option<Tgid>,
    started: bool,
    served: &[Arc<Supervisor>],
) -> Value {
    let counts: Vec<_> = served.iter().map(|one| supervise::counted(&one.counts())).collect();
    let devices: Vec<&str> = spec.devices.iter().map(|device| device.name.as_str()).collect();
    json!({
        "id": spec.id,
        "bundle": spec.bundle,
        "profile": spec.profile,
        "devices": devices,
        "supervisor": std::process::id(),
        "pid": first.map(|tgid| tgid.0),
        "started": started,
        "served": counts,
    })
}
