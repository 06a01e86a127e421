//! The ledger of a tenant: how much of each quantity the tenant's sandboxes hold together, and how
//! many requests they make a second.
//!
//! The supervisors of one tenant's sandboxes share a file (`shared`). What a sandbox holds is in a record
//! of its own; the tokens of the tenant's rates are in one place for all (`rate`).

mod rate;
mod shared;

use std::io;
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use verbgate_abi::Errno;

use self::rate::Bucket;
use self::rate::Lease;
use self::shared::Shared;
use crate::pace::CLASSES;
use crate::pace::Pace;
use crate::pace::VerbClass;
use crate::quota::Amounts;
use crate::quota::Bounds;
use crate::quota::Resource;
use crate::vet::Refusal;

/// How long another supervisor may keep a charge waiting, which takes microseconds.
const PATIENCE: Duration = Duration::from_millis(200);
/// The same of a request that asks for a token, while others of this sandbox wait for theirs.
const SHORT: Duration = Duration::from_millis(5);
/// What others hold is looked up so often, where a rate depends on that.
const FRESH: Duration = Duration::from_millis(100);

/// A charge that a quota refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverQuota {
    resource: Resource,
    asked: u64,
    used: u64,
    most: u64,
    /// What kept the ledger from being read.
    unread: Option<String>,
}

impl OverQuota {
    /// How much of a quantity is left, if that is what was refused.
    pub(crate) fn left_of(&self, resource: Resource) -> Option<u64> {
        let of_it = self.resource == resource && self.unread.is_none();
        of_it.then(|| self.most.saturating_sub(self.used))
    }

    /// What the guest sees, and what is said of it.
    pub(crate) fn refusal(&self, request: &str) -> Refusal {
        let Self { resource, asked, used, most, unread } = self;
        let (name, errno) = (resource.name(), resource.errno());
        if let Some(error) = unread {
            let line = format!("{request}: cannot read the tenant's ledger: {error}");
            return Refusal::warn("quota not known", Errno::EAGAIN, line);
        }
        let line = format!(
            "{request}: {asked} more of {name} is beyond the quota: the tenant holds {used} of \
             {most} (rule: quota.{name} = {most}); raise the quota, or let the program free what \
             it does not use"
        );
        Refusal::warn("quota reached", errno, line)
    }
}

/// The ledger of a tenant, as one sandbox sees it.
#[derive(Debug, Default)]
pub struct Ledger {
    own: Mutex<Amounts>,
    /// Held by who uses the file in order; what is given back does not wait for it. Locks of the file are
    /// the process's, and tell no threads apart.
    turn: Mutex<()>,
    shared: Option<Shared>,
    /// Of all requests, and of each class: the buckets of a sandbox that is a tenant by itself.
    buckets: Mutex<[Bucket; RATES]>,
    /// Tokens from the tenant's buckets.
    leases: Mutex<[Lease; RATES]>,
    /// What the tenant's other sandboxes hold, and when that was looked up.
    others: Mutex<Option<(Duration, Amounts)>>,
}

/// The rate of all requests, and those of classes.
const RATES: usize = CLASSES + 1;

/// The time by which tokens come: one clock for all supervisors of a host, from its start.
#[must_use]
pub fn clock() -> Duration {
    // rustix panics where a kernel's vDSO has no getcpu, as User-Mode Linux's.
    nix::time::ClockId::CLOCK_BOOTTIME.now().map(Duration::from).unwrap_or_default()
}

impl Ledger {
    /// The ledger that all sandboxes of a tenant share which have the same directory of run-time
    /// state. Made if need be.
    ///
    /// # Errors
    /// The file system's; `TimedOut` if another supervisor does not go on; more than 4096 sandboxes.
    pub fn open(root: &Path, tenant: &str) -> io::Result<Self> {
        Ok(Self { shared: Some(Shared::open(root, tenant)?), ..Self::default() })
    }

    /// Charges amounts, all or none. Not to be called with a lock that serves guests: other supervisors
    /// of the tenant have their turns, too.
    pub(crate) fn charge(&self, what: &Amounts, bounds: Bounds<'_>) -> Result<(), OverQuota> {
        let bounded: Vec<_> = what.some().filter_map(|(r, a)| Some((r, a, bounds(r)?))).collect();
        let Some((resource, asked, most)) = bounded.first().copied() else {
            let mut own = self.own.lock();
            *own = own.plus(what);
            return Ok(());
        };
        let over = |all: &Amounts| {
            let is_over =
                |(r, a, most): &&(Resource, u64, u64)| all.get(*r).saturating_add(*a) > *most;
            let (resource, asked, most) = bounded.iter().find(is_over).copied()?;
            Some(OverQuota { resource, asked, used: all.get(resource), most, unread: None })
        };
        let enter = |others: &Amounts| {
            let mut own = self.own.lock();
            match over(&own.plus(others)) {
                Some(refused) => Err(refused),
                None => {
                    *own = own.plus(what);
                    Ok(self.shared.as_ref().map_or(Ok(()), |shared| shared.publish(&own)))
                }
            }
        };
        let Some(shared) = &self.shared else { return enter(&Amounts::default()).map(|_| ()) };
        let _turn = self.turn.lock();
        let entered = shared.in_order(PATIENCE, |shared| {
            let first = enter(&shared.others(false)?);
            Ok(if first.is_err() { enter(&shared.others(true)?) } else { first })
        });
        match entered {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Err(refused)) => Err(refused),
            // Entered here, and not there.
            Ok(Ok(Err(e))) => {
                let mut own = self.own.lock();
                *own = own.minus(what);
                Err(OverQuota { resource, asked, used: 0, most, unread: Some(e.to_string()) })
            }
            Err(e) => {
                Err(OverQuota { resource, asked, used: 0, most, unread: Some(e.to_string()) })
            }
        }
    }

    /// Gives amounts back.
    pub(crate) fn release(&self, what: &Amounts) {
        if *what == Amounts::default() {
            return;
        }
        let mut own = self.own.lock();
        *own = own.minus(what);
        // A record that could not be written says more than there is, until it can be.
        if let Some(shared) = &self.shared
            && let Err(e) = shared.publish(&own)
        {
            log::warn!("cannot write the tenant's ledger: {e}");
        }
    }

    /// Tells the tenant's other sandboxes what this one holds.
    pub(crate) fn publish(&self) {
        let own = self.own.lock();
        if let Some(shared) = &self.shared
            && let Err(e) = shared.publish(&own)
        {
            log::warn!("cannot write the tenant's ledger: {e}");
        }
    }

    /// What this sandbox holds.
    #[must_use]
    pub fn held(&self) -> Amounts {
        *self.own.lock()
    }

    /// What all sandboxes of the tenant hold; of others, as it was a moment ago.
    pub(crate) fn tenant_holds(&self, now: Duration) -> Amounts {
        let own = self.held();
        let Some(shared) = &self.shared else { return own };
        let mut others = self.others.lock();
        let is_fresh = |at: &Duration| now.saturating_sub(*at) < FRESH;
        if !others.as_ref().is_some_and(|(at, _)| is_fresh(at))
            && let Some(_turn) = self.turn.try_lock_for(SHORT)
            && let Ok(found) = shared.in_order(SHORT, |shared| shared.others(true))
        {
            *others = Some((now, found));
        }
        others.map_or(own, |(_, others)| own.plus(&others))
    }

    /// Whether a request may be made now, by the pace of all requests of the tenant or of a class.
    ///
    /// The tenant's tokens are taken from the file by the dozen, if they are used up as fast: a look into
    /// the file takes microseconds. If the file cannot be used, nothing may go.
    pub fn may_go(&self, class: Option<VerbClass>, pace: &Pace, now: Duration) -> bool {
        let place = class.map_or(0, |class| class as usize + 1);
        let Some(shared) = &self.shared else {
            let mut buckets = self.buckets.lock();
            return buckets.get_mut(place).is_none_or(|bucket| bucket.take(pace, now, 1) == 1);
        };
        let mut leases = self.leases.lock();
        let Some(lease) = leases.get_mut(place) else { return true };
        if let Some(goes) = lease.goes(pace, now) {
            return goes;
        }
        let Some(_turn) = self.turn.try_lock_for(SHORT) else { return false };
        let renewed = shared.in_order(SHORT, |shared| {
            let mut bucket = shared.bucket(place)?;
            lease.renew(&mut bucket, pace, now);
            shared.put_bucket(place, bucket)
        });
        match renewed {
            Ok(()) => lease.goes(pace, now).unwrap_or(false),
            Err(e) => {
                log::debug!("cannot read the tenant's rate: {e}");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
