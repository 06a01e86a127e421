//! What a supervisor holds, for onlookers: taken at one moment, and never at the guests' expense.

use std::collections::BTreeMap;
use std::time::Duration;

use verbgate_sys::Tgid;

use crate::observe::Counts;
use crate::supervisor::Supervisor;

/// How long the state may be held by who serves (planting a stub takes longest); an onlooker does not
/// wait longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Most ucontexts that are told one by one; of more, the number.
const MAX_UCONTEXTS: usize = 256;

/// What there is.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// What was done so far.
    pub counts: Counts,
    /// Processes that use RDMA, and how many stubs each has.
    pub processes: Vec<(Tgid, usize)>,
    /// How many ucontexts there are.
    pub ucontexts: usize,
    /// The oldest of them.
    pub told: Vec<Held>,
}

/// A ucontext.
#[derive(Clone, Debug)]
pub struct Held {
    /// Its number, which no other of the sandbox ever has.
    pub number: u64,
    /// The device's name in the sandbox.
    pub device: String,
    /// Processes whose descriptors mean it.
    pub processes: Vec<Tgid>,
    /// Live objects by the kernel's name of their kind.
    pub objects: BTreeMap<&'static str, usize>,
}

impl Supervisor {
    /// Takes it; `None` while a request is busy for longer than an onlooker waits.
    #[must_use]
    pub fn inventory(&self) -> Option<Inventory> {
        let state = self.state.try_lock_for(PATIENCE)?;
        let session = &state.session;
        let mut processes: Vec<_> =
            session.processes.values().map(|one| (one.tgid, one.workers.len())).collect();
        processes.sort_unstable_by_key(|(tgid, _)| tgid.0);
        let mut ids: Vec<_> = session.ucontexts.keys().copied().collect();
        ids.sort_unstable();
        let told = ids.iter().take(MAX_UCONTEXTS).filter_map(|id| {
            let ucontext = session.ucontexts.get(id)?;
            let mut processes: Vec<_> = ucontext.holders.iter().map(|(tgid, _)| *tgid).collect();
            processes.sort_unstable_by_key(|tgid| tgid.0);
            processes.dedup();
            let kinds = ucontext.objects.kinds();
            Some(Held {
                number: id.0,
                device: self.devices.get(ucontext.device)?.name.clone(),
                processes,
                objects: kinds.map(|(kind, count)| (kind.name(), count)).collect(),
            })
        });
        let told = told.collect();
        Some(Inventory { counts: state.counts.clone(), processes, ucontexts: ids.len(), told })
    }
}
