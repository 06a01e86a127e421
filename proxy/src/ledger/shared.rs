//! The file that the supervisors of one tenant's sandboxes share.
//!
//! The buckets of the tenant's rates come first, then records. Each supervisor owns one record, by a lock
//! of one byte, writes nothing but that record and the buckets, and uses the buckets and adds all records
//! up under a lock. The kernel takes the locks of a supervisor back, however the supervisor ends; a record
//! that nobody owns counts for nothing, and is emptied by whoever meets a bound.

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

use verbgate_sys::foreign;
use verbgate_sys::foreign::Owner;
use verbgate_sys::range_lock::RangeLocks;

use super::PATIENCE;
use super::RATES;
use super::rate::BUCKET;
use super::rate::Bucket;
use crate::quota::Amounts;
use crate::quota::RESOURCES;

/// The directory of the files, in the directory of run-time state: with the number of their form, so that
/// supervisors of two versions do not take each other's records for something else.
const DIRECTORY: &str = "quota.2";
/// Sandboxes of one tenant.
const MOST_RECORDS: u64 = 4096;
const RECORD: u64 = (RESOURCES as u64) * 8;
/// The byte whose lock orders the supervisors; record N has byte N + 1.
const ORDER: u64 = 0;
const PAUSE: Duration = Duration::from_micros(50);
/// The longest name of a tenant, since its letters become the name of a file.
pub(super) const LONGEST: usize = 100;

/// The file of a tenant, and the record of this sandbox.
#[derive(Debug)]
pub(super) struct Shared {
    locks: RangeLocks,
    /// Another open of the same file: locks belong to opens.
    data: File,
    record: u64,
}

impl Shared {
    pub(super) fn open(root: &Path, tenant: &str) -> io::Result<Self> {
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
        let mut open = || foreign::open(&dir.join(&name), &mut options, Owner::Trusted);
        let (locks, data) = (open()?, open()?);
        let mut shared = Self { locks: RangeLocks::new(locks), data, record: 0 };
        shared
            .in_order(PATIENCE, |shared| {
                for record in 0..MOST_RECORDS {
                    if shared.locks.take(record + 1)? {
                        shared.data.write_all_at(&Amounts::default().bytes(), place_of(record))?;
                        return Ok(record);
                    }
                }
                Err(io::Error::other(format!("the tenant has {MOST_RECORDS} sandboxes already")))
            })
            .map(|record| shared.record = record)?;
        Ok(shared)
    }

    pub(super) fn in_order<T>(
        &self,
        patience: Duration,
        work: impl FnOnce(&Self) -> io::Result<T>,
    ) -> io::Result<T> {
        let begun = Instant::now();
        while !self.locks.take(ORDER)? {
            if begun.elapsed() > patience {
                let error = "another supervisor of the tenant does not go on";
                return Err(io::Error::new(io::ErrorKind::TimedOut, error));
            }
            std::thread::sleep(PAUSE);
        }
        let done = work(self);
        self.locks.give(ORDER)?;
        done
    }

    pub(super) fn publish(&self, own: &Amounts) -> io::Result<()> {
        self.data.write_all_at(&own.bytes(), place_of(self.record))
    }

    /// What the tenant's other sandboxes hold; without those that are gone, if that is looked at.
    pub(super) fn others(&self, look: bool) -> io::Result<Amounts> {
        let len = self.data.metadata()?.len().saturating_sub(place_of(0));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.data.read_at(rest, place_of(0) + filled as u64)? {
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
                self.data.write_all_at(&Amounts::default().bytes(), place_of(record))?;
                self.locks.give(record + 1)?;
                continue;
            }
            all = all.plus(&amounts);
        }
        Ok(all)
    }

    /// A bucket of the tenant's: full, if nobody has used it yet.
    pub(super) fn bucket(&self, place: usize) -> io::Result<Bucket> {
        let mut bytes = [0; BUCKET];
        match self.data.read_exact_at(&mut bytes, (place * BUCKET) as u64) {
            Ok(()) => Ok(Bucket::read(bytes)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Bucket::default()),
            Err(e) => Err(e),
        }
    }

    pub(super) fn put_bucket(&self, place: usize, bucket: Bucket) -> io::Result<()> {
        self.data.write_all_at(&bucket.bytes(), (place * BUCKET) as u64)
    }
}

#[cfg(test)]
impl Shared {
    /// Keeps the order until the end.
    pub(super) fn hold(&self) -> io::Result<bool> {
        self.locks.take(ORDER)
    }
}

/// Where a record is: behind the buckets.
const fn place_of(record: u64) -> u64 {
    (RATES * BUCKET) as u64 + record * RECORD
}
