//! The account of one open: the quantities that the open holds, charged to the ledger of its tenant
//! before a request is made, and given back when objects are destroyed, or the open is over.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::ledger::Ledger;
use crate::ledger::OverQuota;
use crate::quota::Amounts;
use crate::quota::Bounds;
use crate::quota::Resource;
use crate::quota::Takes;
use crate::quota::one;

/// Names what a request has been charged; 0 for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Receipt(u64);

/// The quantities that an open holds. What a request in flight was charged stays charged until the
/// result is known, or the open is over.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    held: Amounts,
    /// How many objects of a kind there are of each size.
    sizes: HashMap<Resource, BTreeMap<u64, u64>>,
    pending: HashMap<u64, Takes>,
    made: u64,
}

impl Account {
    /// An account that holds nothing.
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            held: Amounts::default(),
            sizes: HashMap::new(),
            pending: HashMap::new(),
            made: 0,
        }
    }

    /// Enters amounts, which last as long as the open, and have been charged to the ledger.
    pub(crate) fn keep(&mut self, what: &Amounts) {
        self.held = self.held.plus(what);
    }

    /// Enters what a request will take, which has been charged to the ledger.
    pub(crate) fn begin(&mut self, takes: Takes) -> Receipt {
        if takes.is_nothing() {
            return Receipt::default();
        }
        self.keep(&takes.charge());
        let resized = takes.resized.map(|(kind, size)| (Some(kind), size));
        for (kind, size) in takes.made.iter().copied().chain(resized) {
            if let Some(kind) = kind {
                *self.sizes.entry(kind).or_default().entry(size).or_default() += 1;
            }
        }
        self.made += 1;
        self.pending.insert(self.made, takes);
        Receipt(self.made)
    }

    /// A request has been made, or never will be.
    ///
    /// As many sizes are remembered as there are objects, those included that are perhaps being made. Of
    /// each size there are as many as that or larger as there are such objects, whichever objects are
    /// destroyed: the smallest is forgotten for any of them.
    pub(crate) fn end(&mut self, receipt: Receipt, succeeded: bool) {
        let Some(takes) = self.pending.remove(&receipt.0) else { return };
        let mut back = Amounts::default();
        let resizes = |size, kind| one(Some(kind), size).minus(&one(Some(kind), 0));
        if succeeded {
            for kind in &takes.destroyed {
                let size = kind.map_or(0, |kind| self.smallest(kind));
                back = back.plus(&one(*kind, size));
            }
            if let Some((kind, _)) = takes.resized {
                back = back.plus(&resizes(self.smallest(kind), kind));
            }
        } else {
            for (kind, size) in &takes.made {
                let size = kind.map_or(0, |kind| self.forget(kind, *size));
                back = back.plus(&one(*kind, size));
            }
            if let Some((kind, size)) = takes.resized {
                back = back.plus(&resizes(self.forget(kind, size), kind));
            }
        }
        self.give_back(&back);
    }

    /// Forgets a size of a kind: this one, or the smallest if somebody's destruction has taken it.
    fn forget(&mut self, kind: Resource, size: u64) -> u64 {
        let Some(count) = self.sizes.get_mut(&kind).and_then(|sizes| sizes.get_mut(&size)) else {
            return self.smallest(kind);
        };
        *count -= 1;
        if *count == 0
            && let Some(sizes) = self.sizes.get_mut(&kind)
        {
            sizes.remove(&size);
        }
        size
    }

    /// The smallest of a kind, which is forgotten.
    fn smallest(&mut self, kind: Resource) -> u64 {
        let first = self.sizes.get(&kind).and_then(|sizes| sizes.keys().next().copied());
        first.map_or(0, |size| self.forget(kind, size))
    }

    fn give_back(&mut self, what: &Amounts) {
        // What was never charged here is not given back.
        let left = self.held.minus(what);
        self.ledger.release(&self.held.minus(&left));
        self.held = left;
    }

    /// All that the open holds.
    #[cfg(test)]
    pub(crate) fn held(&self) -> Amounts {
        self.held
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.ledger.release(&self.held);
    }
}

/// The ids of an open of the connection manager, with the groups that each has joined. The kernel
/// tells them to the supervisor, who gives the commands, and no guest can change what it says.
#[derive(Debug)]
pub(crate) struct CmAccount {
    account: Account,
    ids: HashMap<u32, HashSet<u32>>,
}

impl CmAccount {
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        Self { account: Account::new(ledger), ids: HashMap::new() }
    }

    /// Charges an id, or a group, that is about to be made.
    pub(crate) fn charge(&mut self, what: Resource, bounds: Bounds<'_>) -> Result<(), OverQuota> {
        self.account.ledger.charge(&Amounts::of(what, 1), bounds)?;
        self.account.keep(&Amounts::of(what, 1));
        Ok(())
    }

    /// What was charged came to nothing.
    pub(crate) fn uncharge(&mut self, what: Resource) {
        self.account.give_back(&Amounts::of(what, 1));
    }

    /// An id that is charged is there.
    pub(crate) fn made(&mut self, id: u32) {
        if self.ids.insert(id, HashSet::new()).is_some() {
            self.uncharge(Resource::CmIds);
        }
    }

    /// An id is there that somebody else's connection has made: it counts, beyond a bound, too.
    pub(crate) fn came(&mut self, id: u32) {
        if self.charge(Resource::CmIds, &|_| None).is_ok() {
            self.made(id);
        }
    }

    /// An id has joined a group that is charged.
    pub(crate) fn joined(&mut self, id: u32, group: u32) {
        let known = self.ids.get_mut(&id).is_some_and(|groups| groups.insert(group));
        if !known {
            self.uncharge(Resource::Multicast);
        }
    }

    /// A group was left.
    pub(crate) fn left(&mut self, group: u32) {
        if self.ids.values_mut().any(|groups| groups.remove(&group)) {
            self.uncharge(Resource::Multicast);
        }
    }

    /// An id is gone, and its groups.
    pub(crate) fn destroyed(&mut self, id: u32) {
        if let Some(groups) = self.ids.remove(&id) {
            self.uncharge(Resource::CmIds);
            groups.iter().for_each(|_| self.uncharge(Resource::Multicast));
        }
    }

    /// An id leaves for another open.
    pub(crate) fn give(&mut self, id: u32) -> Option<HashSet<u32>> {
        let groups = self.ids.get(&id).cloned()?;
        self.destroyed(id);
        Some(groups)
    }

    /// An id comes from another open.
    pub(crate) fn take(&mut self, id: u32, groups: HashSet<u32>) {
        self.came(id);
        for group in groups {
            if self.charge(Resource::Multicast, &|_| None).is_ok() {
                self.joined(id, group);
            }
        }
    }
}

#[cfg(test)]
#[path = "account/tests.rs"]
mod tests;
