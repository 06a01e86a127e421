//! The ledger of a tenant: how much of each quantity the tenant's sandboxes hold together, and how
//! many requests a sandbox makes a second.
//!
//! The supervisors of one tenant's sandboxes share a file. Each owns one record of the file, by a lock
//! of one byte, writes nothing but that record, and adds all records up under a lock. The kernel takes
//! the locks of a supervisor back, however the supervisor ends; a record that nobody owns counts for
//! nothing, and is emptied by whoever meets a bound.

use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;
use verbgate_abi::Errno;
use verbgate_sys::range_lock::RangeLocks;

use crate::pace::CLASSES;
use crate::pace::Pace;
use crate::pace::VerbClass;
use crate::quota::Amounts;
use crate::quota::Bounds;
use crate::quota::RESOURCES;
use crate::quota::Resource;
use crate::vet::Refusal;

/// The directory of the files, in the directory of run-time state.
const DIRECTORY: &str = "quota";
/// Sandboxes of one tenant.
const MOST_RECORDS: u64 = 4096;
const RECORD: u64 = (RESOURCES as u64) * 8;
/// The byte whose lock orders the supervisors; record N has byte N + 1.
const ORDER: u64 = 0;
/// How long another supervisor may keep the order, which takes microseconds.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_micros(50);
/// The longest name of a tenant, since its letters become the name of a file.
const LONGEST: usize = 100;

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

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Option<Instant>,
}

/// The ledger of a tenant, as one sandbox sees it.
#[derive(Debug)]
pub struct Ledger {
    own: Mutex<Amounts>,
    /// Held by who charges; what is given back does not wait for it.
    turn: Mutex<()>,
    shared: Option<Shared>,
    /// Of all requests; and of each class.
    buckets: Mutex<[Bucket; CLASSES + 1]>,
}

impl Default for Ledger {
    /// Of a sandbox that is a tenant by itself.
    fn default() -> Self {
        let buckets = Mutex::new([const { Bucket { tokens: 0.0, filled: None } }; CLASSES + 1]);
        Self { own: Mutex::default(), turn: Mutex::default(), shared: None, buckets }
    }
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
        let entered = shared.in_order(|shared| {
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

    /// Whether a request may be made now, by the pace of all requests or of a class.
    pub(crate) fn may_go(&self, class: Option<VerbClass>, pace: &Pace, now: Instant) -> bool {
        let mut buckets = self.buckets.lock();
        let place = class.map_or(0, |class| class as usize + 1);
        let Some(bucket) = buckets.get_mut(place) else { return true };
        #[expect(clippy::cast_precision_loss, reason = "beyond 2^53 nobody counts")]
        let (per_s, burst) = (pace.per_s as f64, pace.burst as f64);
        let since = bucket.filled.map(|at| now.saturating_duration_since(at).as_secs_f64());
        bucket.tokens = since.map_or(burst, |since| (bucket.tokens + since * per_s).min(burst));
        bucket.filled = Some(now);
        let goes = bucket.tokens >= 1.0;
        if goes {
            bucket.tokens -= 1.0;
        }
        goes
    }
}

/// The file of a tenant, and the record of this sandbox.
#[derive(Debug)]
struct Shared {
    locks: RangeLocks,
    /// Another open of the same file: locks belong to opens.
    data: File,
    record: u64,
}

impl Shared {
    fn open(root: &Path, tenant: &str) -> io::Result<Self> {
        if tenant.len() > LONGEST {
            let error = format!("the tenant's name is longer than {LONGEST} bytes: {tenant:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let dir = root.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let mut name = String::new();
        for byte in tenant.bytes() {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let (locks, data) = (options.open(dir.join(&name))?, options.open(dir.join(&name))?);
        let mut shared = Self { locks: RangeLocks::new(locks), data, record: 0 };
        shared
            .in_order(|shared| {
                for record in 0..MOST_RECORDS {
                    if shared.locks.take(record + 1)? {
                        shared.data.write_all_at(&Amounts::default().bytes(), record * RECORD)?;
                        return Ok(record);
                    }
                }
                Err(io::Error::other(format!("the tenant has {MOST_RECORDS} sandboxes already")))
            })
            .map(|record| shared.record = record)?;
        Ok(shared)
    }

    fn in_order<T>(&self, work: impl FnOnce(&Self) -> io::Result<T>) -> io::Result<T> {
        let begun = Instant::now();
        while !self.locks.take(ORDER)? {
            if begun.elapsed() > PATIENCE {
                let error = "another supervisor of the tenant does not go on";
                return Err(io::Error::new(io::ErrorKind::TimedOut, error));
            }
            std::thread::sleep(PAUSE);
        }
        let done = work(self);
        self.locks.give(ORDER)?;
        done
    }

    fn publish(&self, own: &Amounts) -> io::Result<()> {
        self.data.write_all_at(&own.bytes(), self.record * RECORD)
    }

    /// What the tenant's other sandboxes hold; without those that are gone, if that is looked at.
    fn others(&self, look: bool) -> io::Result<Amounts> {
        let mut bytes = vec![0; usize::try_from(self.data.metadata()?.len()).unwrap_or(0)];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.data.read_at(rest, filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        let mut all = Amounts::default();
        let size = usize::try_from(RECORD).unwrap_or(usize::MAX);
        for (record, bytes) in (0_u64..).zip(bytes.chunks(size)) {
            let amounts = Amounts::read(bytes);
            if record == self.record || amounts == Amounts::default() {
                continue;
            }
            if look && self.locks.take(record + 1)? {
                self.data.write_all_at(&Amounts::default().bytes(), record * RECORD)?;
                self.locks.give(record + 1)?;
                continue;
            }
            all = all.plus(&amounts);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn qp(count: u64) -> Amounts {
        Amounts::of(Resource::Qp, count)
    }

    fn bound(resource: Resource) -> Option<u64> {
        (resource == Resource::Qp).then_some(4)
    }

    #[test]
    fn a_bound_is_met_and_what_is_given_back_can_be_had_again() {
        let ledger = Ledger::default();
        ledger.charge(&qp(3), &bound).unwrap();
        let refused = ledger.charge(&qp(2), &bound).unwrap_err();
        let refusal = refused.refusal("CREATE_QP");
        assert_eq!(refusal.errno, Errno::EAGAIN);
        for word in ["3 of 4", "quota.qp = 4", "raise the quota"] {
            assert!(refusal.line.contains(word), "{}", refusal.line);
        }
        ledger.charge(&Amounts::of(Resource::Pd, 1000), &bound).unwrap();
        ledger.release(&qp(3));
        ledger.charge(&qp(4), &bound).unwrap();
        assert_eq!(ledger.held().get(Resource::Qp), 4);
        let memory = OverQuota { resource: Resource::MrBytes, ..refused };
        assert_eq!(memory.refusal("REG_MR").errno, Errno::ENOMEM);
    }

    #[test]
    fn all_sandboxes_of_a_tenant_have_one_bound_and_another_tenant_has_its_own() {
        let root = tempfile::tempdir().unwrap();
        let open = |tenant: &str| Ledger::open(root.path(), tenant).unwrap();
        let (one, two, other) = (open("team/a"), open("team/a"), open("team/b"));
        one.charge(&qp(3), &bound).unwrap();
        other.charge(&qp(4), &bound).unwrap();
        assert_eq!(two.charge(&qp(2), &bound).unwrap_err().used, 3);
        two.charge(&qp(1), &bound).unwrap();
        one.release(&qp(1));
        two.charge(&qp(1), &bound).unwrap();
        assert!(two.charge(&qp(1), &bound).is_err());
        // As when its supervisor is killed: nobody gives anything back.
        drop(one);
        two.charge(&qp(2), &bound).unwrap();
        // Its record is the next one's, who holds nothing yet.
        let three = open("team/a");
        assert!(three.charge(&qp(1), &bound).is_err());
        drop(two);
        three.charge(&qp(4), &bound).unwrap();
        assert!(Ledger::open(root.path(), &"x".repeat(LONGEST + 1)).is_err());
    }

    #[test]
    fn supervisors_that_charge_at_once_never_hold_more_than_the_bound() {
        let root = tempfile::tempdir().unwrap();
        let open = || Arc::new(Ledger::open(root.path(), "busy").unwrap());
        let ledgers = [open(), open(), open()];
        let most = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for ledger in ledgers.iter().chain(&ledgers) {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if ledger.charge(&qp(1), &bound).is_ok() {
                            let order = std::sync::atomic::Ordering::SeqCst;
                            let now = most.fetch_add(1, order) + 1;
                            assert!(now <= 4, "{now}");
                            most.fetch_sub(1, order);
                            ledger.release(&qp(1));
                        }
                    }
                });
            }
        });
        assert!(ledgers.iter().all(|ledger| ledger.held() == Amounts::default()));
    }

    #[test]
    fn requests_beyond_the_burst_come_as_often_as_the_rate_says() {
        let ledger = Ledger::default();
        let pace = Pace { per_s: 10, burst: 5, waits: false };
        let start = Instant::now();
        let go = |at: Duration| (0..20).filter(|_| ledger.may_go(None, &pace, start + at)).count();
        assert_eq!(go(Duration::ZERO), 5);
        assert_eq!(go(Duration::from_millis(300)), 3);
        assert_eq!(go(Duration::from_secs(60)), 5);
        let class = Some(VerbClass::Memory);
        assert!(ledger.may_go(class, &pace, start), "a class has tokens of its own");
    }
}
