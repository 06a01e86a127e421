//! How much a tenant may hold, and how often the tenant may make requests.

use super::Policy;
use crate::pace::Pace;
use crate::pace::VerbClass;
use crate::quota::Resource;

impl Policy {
    /// The most that the tenant may hold of a quantity; none where there is no bound.
    #[must_use]
    pub fn quota(&self, resource: Resource) -> Option<u64> {
        let also = self.also.iter().filter_map(|also| also.quota(resource));
        also.chain(self.limits.quota.get(&resource).copied()).min()
    }

    /// Whether there is any quota.
    #[must_use]
    pub fn has_quota(&self) -> bool {
        !self.limits.quota.is_empty() || self.also.iter().any(Self::has_quota)
    }

    /// How often the tenant may make requests; none where there is no bound.
    #[must_use]
    pub fn rate(&self) -> Option<Pace> {
        let also = self.also.iter().filter_map(Self::rate);
        also.chain(self.limits.rate).reduce(Pace::and)
    }

    /// How often a tenant may make requests of a class that holds such a part of its quota, in percent;
    /// none where there is no bound.
    #[must_use]
    pub fn class_rate(&self, class: VerbClass, part: u64) -> Option<Pace> {
        let also = self.also.iter().filter_map(|also| also.class_rate(class, part));
        let own = self.limits.rates.get(&class).map(|rate| rate.at(part));
        also.chain(own).reduce(Pace::and)
    }

    /// Whether some class of verbs has a rate of its own.
    #[must_use]
    pub fn has_class_rate(&self) -> bool {
        !self.limits.rates.is_empty() || self.also.iter().any(Self::has_class_rate)
    }
}
