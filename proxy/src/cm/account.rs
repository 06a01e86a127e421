//! The account of an open of the connection manager: its ids, with all that each holds. The kernel tells
//! them to the supervisor, who gives the commands, and no guest can change what the kernel says.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use crate::account::Account;
use crate::ledger::Ledger;
use crate::ledger::OverQuota;
use crate::quota::Amounts;
use crate::quota::Bounds;
use crate::quota::Resource;

/// What an id holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct CmId {
    /// Groups that the id has joined.
    groups: HashSet<u32>,
    /// Whether the id has a port of its own, or perhaps has.
    port: bool,
    /// Connections that may wait.
    backlog: u64,
}

impl CmId {
    fn amounts(&self) -> Amounts {
        let mut all = Amounts::of(Resource::CmIds, 1);
        all.add(Resource::Multicast, self.groups.len().try_into().unwrap_or(u64::MAX));
        all.add(Resource::Ports, self.port.into());
        all.add(Resource::Backlog, self.backlog);
        all
    }
}

/// The ids of an open. What is charged is entered with an id when the kernel has said that it is there, or
/// given back.
#[derive(Debug)]
pub(crate) struct CmAccount {
    account: Account,
    ids: HashMap<u32, CmId>,
}

impl CmAccount {
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        Self { account: Account::new(ledger), ids: HashMap::new() }
    }

    /// Charges what is about to be made.
    pub(crate) fn charge(&mut self, what: &Amounts, bounds: Bounds<'_>) -> Result<(), OverQuota> {
        self.account.ledger.charge(what, bounds)?;
        self.account.keep(what);
        Ok(())
    }

    /// What was charged came to nothing.
    pub(crate) fn uncharge(&mut self, what: &Amounts) {
        self.account.give_back(what);
    }

    /// An id that is charged is there.
    pub(crate) fn made(&mut self, id: u32) {
        if let Some(before) = self.ids.insert(id, CmId::default()) {
            self.uncharge(&before.amounts());
        }
    }

    /// An id is there that somebody else's connection has made: it counts, beyond a bound, too.
    pub(crate) fn came(&mut self, id: u32) {
        self.take(id, CmId::default());
    }

    /// An id has joined a group that is charged.
    pub(crate) fn joined(&mut self, id: u32, group: u32) {
        if !self.ids.get_mut(&id).is_some_and(|id| id.groups.insert(group)) {
            self.uncharge(&Amounts::of(Resource::Multicast, 1));
        }
    }

    /// A group was left.
    pub(crate) fn left(&mut self, group: u32) {
        if self.ids.values_mut().any(|id| id.groups.remove(&group)) {
            self.uncharge(&Amounts::of(Resource::Multicast, 1));
        }
    }

    /// Whether an id that gets an address takes a port thereby.
    pub(crate) fn takes_port(&self, id: u32) -> bool {
        self.ids.get(&id).is_none_or(|id| !id.port)
    }

    /// An id has, or perhaps has, a port that is charged.
    pub(crate) fn bound(&mut self, id: u32) {
        match self.ids.get_mut(&id) {
            Some(id) if !id.port => id.port = true,
            _ => self.uncharge(&Amounts::of(Resource::Ports, 1)),
        }
    }

    /// An id listens, with a backlog that is charged.
    pub(crate) fn listens(&mut self, id: u32, backlog: u64) {
        match self.ids.get_mut(&id) {
            Some(id) => id.backlog = id.backlog.saturating_add(backlog),
            None => self.uncharge(&Amounts::of(Resource::Backlog, backlog)),
        }
    }

    /// An id is gone, with all that it held.
    pub(crate) fn destroyed(&mut self, id: u32) {
        if let Some(id) = self.ids.remove(&id) {
            self.uncharge(&id.amounts());
        }
    }

    /// An id leaves for another open.
    pub(crate) fn give(&mut self, id: u32) -> Option<CmId> {
        let held = self.ids.get(&id).cloned()?;
        self.destroyed(id);
        Some(held)
    }

    /// An id comes from another open.
    pub(crate) fn take(&mut self, id: u32, held: CmId) {
        if self.charge(&held.amounts(), &|_| None).is_ok()
            && let Some(before) = self.ids.insert(id, held)
        {
            self.uncharge(&before.amounts());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(ledger: &Ledger) -> [u64; 4] {
        [Resource::CmIds, Resource::Multicast, Resource::Ports, Resource::Backlog]
            .map(|resource| ledger.held().get(resource))
    }

    #[test]
    fn ids_and_what_they_hold_come_and_go_together() {
        let ledger = Arc::new(Ledger::default());
        let bound = |resource| (resource == Resource::CmIds).then_some(2);
        let (mut one, mut other) = (CmAccount::new(&ledger), CmAccount::new(&ledger));
        let of = Amounts::of;
        for id in [7, 8] {
            one.charge(&of(Resource::CmIds, 1), &bound).unwrap();
            one.made(id);
        }
        assert!(other.charge(&of(Resource::CmIds, 1), &bound).is_err());
        for group in [1, 2] {
            one.charge(&of(Resource::Multicast, 1), &bound).unwrap();
            one.joined(7, group);
        }
        one.left(1);
        one.left(1);
        assert_eq!(amounts(&ledger), [2, 1, 0, 0]);
        // A port once, however often the id is bound; and none of an id that there is not.
        assert!(one.takes_port(7));
        for id in [7, 7, 99] {
            one.charge(&of(Resource::Ports, 1), &bound).unwrap();
            one.bound(id);
        }
        assert!(!one.takes_port(7) && one.takes_port(8));
        for (id, backlog) in [(7, 16), (99, 5)] {
            one.charge(&of(Resource::Backlog, backlog), &bound).unwrap();
            one.listens(id, backlog);
        }
        assert_eq!(amounts(&ledger), [2, 1, 1, 16]);
        // As when an id migrates, and then its first file is closed.
        let held = one.give(7).unwrap();
        other.take(7, held);
        assert!(one.give(7).is_none());
        drop(one);
        assert_eq!(amounts(&ledger), [1, 1, 1, 16]);
        assert!(!other.takes_port(7));
        // A peer's connection is there already, beyond the bound or not.
        (20..30).for_each(|id| other.came(id));
        assert_eq!(amounts(&ledger), [11, 1, 1, 16]);
        assert!(other.charge(&of(Resource::CmIds, 1), &bound).is_err());
        other.destroyed(7);
        other.destroyed(7);
        assert_eq!(amounts(&ledger), [10, 0, 0, 0]);
        drop(other);
        assert_eq!(amounts(&ledger), [0; 4]);
    }
}
