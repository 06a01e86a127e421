//! A supervisor's answers about its container, for `verbgate ps`, `show` and `stats`.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;
use verbgate_proxy::Supervisor;
use verbgate_proxy::inventory::Held;
use verbgate_proxy::inventory::Inventory;
use verbgate_proxy::observe::Counts;
use verbgate_sandbox::Rights;
use verbgate_sys::Tgid;
use verbgate_sys::process::PidFd;

use super::place::Spec;

/// SIGKILL, signal(7): what programs cannot handle.
const KILL: i32 = 9;

/// The supervisors that serve a container's processes, and the counters of supervisors that are
/// gone.
#[derive(Debug, Default)]
pub(super) struct Served {
    pub(super) all: Vec<Arc<Supervisor>>,
    past: Counts,
    /// When it is to be looked whether the container uses RDMA.
    look: Option<Instant>,
}

impl Served {
    /// The container's command begins.
    pub(super) fn began(&mut self, spec: &Spec) {
        self.look = spec.expected.map(|expected| Instant::now() + expected.patience());
    }

    /// Says, once it is time, if the container has made no queue pair, and ends the container if that
    /// was required.
    pub(super) fn expect(&mut self, spec: &Spec, rights: &Rights, first: Option<&PidFd>) {
        let (Some(look), Some(expected)) = (self.look, spec.expected) else { return };
        let Some(first) = first.filter(|first| !first.has_ended()) else { return };
        if Instant::now() < look {
            return;
        }
        self.look = None;
        let all = self.all.iter().map(|one| one.counts().queue_pairs).sum::<u64>();
        if all + self.past.queue_pairs > 0 {
            return;
        }
        log::warn!("{}", expected.complaint(&format!("container {}", spec.id)));
        rights.say(expected.event());
        if expected.required
            && let Err(e) = first.signal(KILL)
        {
            log::error!("container {}: cannot end the container: {e}", spec.id);
        }
    }

    /// Forgets those who have nobody left to serve.
    pub(super) fn retire(&mut self) {
        let past = &mut self.past;
        self.all.retain(|one| {
            if one.is_over() {
                past.absorb(&one.counts());
            }
            !one.is_over()
        });
    }
}

/// A container and those who serve its processes. Those that are busy are `null` this time.
pub(super) fn shown(spec: &Spec, first: Option<Tgid>, started: bool, of: &Served) -> Value {
    let served = &of.all;
    let served: Vec<Value> = served.iter().map(|one| held(&one.inventory())).collect();
    let devices: Vec<&str> = spec.devices.iter().map(|device| device.name.as_str()).collect();
    let made = of.all.iter().map(|one| one.counts().queue_pairs).sum::<u64>();
    let made = made + of.past.queue_pairs;
    let holds = of.all.first().map(|one| one.holds()).unwrap_or_default();
    let counted = of.all.first().and_then(|one| Some(one.counted()?.all())).unwrap_or_default();
    let counted: Vec<Value> = counted
        .into_iter()
        .map(|(device, port, values)| json!({"device": device, "port": port, "values": values}))
        .collect();
    let holds: BTreeMap<&str, u64> = holds.some().map(|(of, n)| (of.name(), n)).collect();
    json!({
        "id": spec.id,
        "bundle": spec.bundle,
        "profile": spec.profile,
        "pod": spec.pod,
        "devices": devices,
        "supervisor": std::process::id(),
        "pid": first.map(|tgid| tgid.0),
        "started": started,
        "served": served,
        "tenant": spec.tenant,
        "holds": holds,
        "hw_counters": counted,
        "rdma_used": made > 0,
        "past": verbgate_sandbox::counted(&of.past),
    })
}

fn held(all: &Inventory) -> Value {
    let mut value = verbgate_sandbox::counted(&all.counts);
    let ucontext = |one: &Held| {
        let processes: Vec<i32> = one.processes.iter().map(|tgid| tgid.0).collect();
        json!({
            "number": one.number, "device": one.device, "processes": processes,
            "objects": one.objects,
        })
    };
    let processes: Vec<Value> = all
        .processes
        .iter()
        .map(|(tgid, stubs)| json!({"pid": tgid.0, "stubs": stubs, "pinned": pinned(*tgid)}))
        .collect();
    if let Some(object) = value.as_object_mut() {
        object.insert("ucontext_count".to_owned(), all.ucontext_count.into());
        object.insert("ucontexts".to_owned(), all.ucontexts.iter().map(ucontext).collect());
        object.insert("processes".to_owned(), processes.into());
    }
    value
}

/// The bytes of a process that devices may reach, as the kernel counts them (`VmPin`, proc(5)):
/// buffers that were registered, and queues.
fn pinned(process: Tgid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_is_pinned() {
        assert_eq!(pinned(Tgid(std::process::id().cast_signed())), Some(0));
    }
}
