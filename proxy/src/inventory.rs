//! The inventory: the devices, opens and objects that a supervisor holds, for onlookers; taken at
//! one moment, and never at the guests' expense.

use std::collections::BTreeMap;

use verbgate_sys::Tgid;

use crate::observe::Counts;
use crate::supervisor::Supervisor;

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
    pub ucontext_count: usize,
    /// The oldest of them.
    pub ucontexts: Vec<Held>,
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
    pub objects: BTreeMap<&'static str, u64>,
}

impl Supervisor {
    /// Takes it.
    #[must_use]
    pub fn inventory(&self) -> Inventory {
        let guests = self.registry.lock().all();
        let mut processes: Vec<_> = guests
            .iter()
            .map(|guest| {
                // Of one that is being served now, at least the stub that does it.
                let stubs = self.with_state(guest, |state| state.workers.len()).unwrap_or(1);
                (guest.process.tgid(), stubs)
            })
            .collect();
        processes.sort_unstable_by_key(|(tgid, _)| tgid.0);
        let books = self.books.lock();
        let held = books.held().take(MAX_UCONTEXTS).filter_map(|(id, ucontext)| {
            let holders = guests.iter().filter(|guest| ucontext.is_held_by(guest.key));
            let mut processes: Vec<_> = holders.map(|guest| guest.process.tgid()).collect();
            processes.sort_unstable_by_key(|tgid| tgid.0);
            Some(Held {
                number: id.0,
                device: self.devices.get(ucontext.device)?.name.clone(),
                processes,
                objects: ucontext.live.kinds().map(|(kind, n)| (kind.name(), n)).collect(),
            })
        });
        let (ucontexts, ucontext_count) = (held.collect(), books.held().count());
        Inventory { counts: self.counts(), processes, ucontext_count, ucontexts }
    }
}
