//! The account of one open: the quantities that the open holds, charged to the ledger of its tenant
//! before a request is made, and given back when objects are destroyed, or the open is over.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use crate::ledger::Ledger;
use crate::quota::Amounts;
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
    pub(crate) ledger: Arc<Ledger>,
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
            back.add(Resource::Multicast, takes.detaches.into());
        } else {
            for (kind, size) in &takes.made {
                let size = kind.map_or(0, |kind| self.forget(kind, *size));
                back = back.plus(&one(*kind, size));
            }
            if let Some((kind, size)) = takes.resized {
                back = back.plus(&resizes(self.forget(kind, size), kind));
            }
            back.add(Resource::Multicast, takes.attaches.into());
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

    pub(crate) fn give_back(&mut self, what: &Amounts) {
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

#[cfg(test)]
#[path = "account/tests.rs"]
mod tests;
