//! How long a port's GID table is for a sandbox: it ends right behind the last entry that is shown.
//!
//! Programs walk it from end to end, some with three files and a request for each slot: Soft-RoCE
//! has 1,024 slots and a NIC 256, of which a few are used. No index changes by that, and every port
//! has slot 0, as natively.
//!
//! To find the end takes a read of every slot. So it is kept until rtnetlink has news, which it has of
//! whatever can make an entry of the sandbox's come or go. The kernel changes its table a moment
//! after that (by a work queue, drivers/infiniband/core/roce_gid_mgmt.c), so what is read within
//! [`SETTLE`] of the news is not kept for long.

use std::io;
use std::time::Duration;
use std::time::Instant;

use verbgate_abi::wire::GidIndex;

use super::GidView;
use super::MAX_INDEX;
use super::Port;
use super::Seen;
use super::Sides;

/// How long the kernel may take to follow the links, on a busy machine.
const SETTLE: Duration = Duration::from_secs(2);
/// How old an end may be while it may change.
const FRESH: Duration = Duration::from_millis(50);
/// How old an end may be at all: whatever was overlooked is seen then.
const STALE: Duration = Duration::from_secs(30);

/// The end of a port's table, as it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    value: u32,
    read: Instant,
}

impl Length {
    /// Whether it can be believed at a moment, if the last news came at another.
    fn holds(&self, changed: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.read);
        let has_settled = self.read.saturating_duration_since(changed) >= SETTLE;
        age < FRESH || (has_settled && age < STALE)
    }
}

impl Sides {
    /// The number of slots that a sandbox is told; none for a port that is shown as a whole.
    pub(super) fn length(&mut self, port: &Port) -> io::Result<Option<u32>> {
        if !port.roce {
            return Ok(None);
        }
        let now = Instant::now();
        let known = self.lengths.get(&port.id).filter(|known| known.holds(self.changed, now));
        if let Some(known) = known {
            return Ok(Some(known.value));
        }
        let mut value = 1;
        for index in 0..MAX_INDEX {
            match self.at(port, GidIndex(index))? {
                Seen::Entry(_) => value = index.saturating_add(1),
                Seen::Nothing => {}
                Seen::Anything => break,
            }
        }
        self.lengths.insert(port.id, Length { value, read: now });
        Ok(Some(value))
    }
}

impl GidView {
    /// The number of slots of a port's table, for a device by its name; none where it is the
    /// host's own, whatever that is.
    #[must_use]
    pub fn length(&self, ibdev: &str, port: u32) -> Option<u32> {
        let mut sides = self.sides.lock();
        let port = sides.hear().and_then(|()| sides.named(ibdev, port)).ok()??;
        // Whose entries are cannot be told then, and none is shown.
        sides.length(&port).unwrap_or(Some(1))
    }

    /// The same for a device by its node.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn length_of(&self, rdev: (u32, u32), port: u32) -> io::Result<Option<u32>> {
        let mut sides = self.sides.lock();
        sides.hear()?;
        let length = match sides.port(rdev, port)? {
            Some(port) => sides.length(&port)?,
            None => None,
        };
        self.check(&sides, rdev)?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_while_it_changed_is_read_again() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let settled = Length { value: 3, read: at(5_000) };
        assert!(settled.holds(at(1_000), at(20_000)));
        assert!(!settled.holds(at(1_000), at(40_000)), "too old");
        assert!(!settled.holds(at(5_100), at(5_200)), "there was news since");
        let early = Length { value: 3, read: at(1_010) };
        assert!(early.holds(at(1_000), at(1_050)));
        assert!(!early.holds(at(1_000), at(1_070)), "the kernel may not have been ready");
    }
}
