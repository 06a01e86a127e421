//! The length of a port's GID table for a sandbox: the table ends behind the last shown entry and,
//! where the host's table goes on, one empty slot.
//!
//! Programs walk the table from end to end, some with three files and a request for each slot:
//! Soft-RoCE has 1,024 slots and a NIC 256, of which a few are used. The shorter length changes no
//! index, and every port has slot 0, as natively. Programs look for an empty slot, too: without one,
//! rdma-core's own test of queries by an empty slot skips itself.
//!
//! To find the end takes a read of every slot. So the end is kept until
//! rtnetlink has news; rtnetlink reports everything that can make an entry of the sandbox come or go. The kernel
//! changes the table a moment after the report (by a work queue,
//! drivers/infiniband/core/roce_gid_mgmt.c). So for [`SETTLE`] the table is read again and again,
//! though not as a whole: a new entry takes the first empty slot (`find_gid`,
//! drivers/infiniband/core/cache.c), so no entry comes behind an empty slot that is behind all
//! entries.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;
use std::time::Instant;

use verbgate_abi::wire::GidIndex;

use super::GidView;
use super::MAX_INDEX;
use super::MAX_PORTS;
use super::Port;
use super::Seen;
use super::Sides;
use super::side;

/// How long the kernel may take to follow the links, on a busy machine.
const SETTLE: Duration = Duration::from_secs(2);
/// How old an end may be while it may change; at least [`PAUSES`] times as long as it took to find.
const FRESH: Duration = Duration::from_millis(50);
/// Links that change all the time must not keep the supervisor reading all the time.
const PAUSES: u32 = 4;
/// How old an end may be at all: whatever was overlooked is seen then.
const STALE: Duration = Duration::from_secs(30);
/// Slots behind the last entry in which the next entries come: the first empty one, and at the table's beginning one
/// for each type of GIDs, which the kernel keeps for the port's own (`gid_table_reserve_default`,
/// drivers/infiniband/core/cache.c).
const NEXT: u32 = 8;

/// The end of a port's table, as it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// Slots that the sandbox sees.
    shown: u32,
    /// One behind the last entry of all.
    used: u32,
    /// Whether the sandbox does not see one of them.
    foreign: bool,
    read: Instant,
    took: Duration,
    /// When all slots were read last.
    read_whole: Instant,
}

impl Length {
    /// Whether it can be believed at a moment, if the last news came at another.
    fn holds(&self, changed: Instant, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.read);
        age < FRESH.max(self.took.saturating_mul(PAUSES)) || self.is_settled(changed, now)
    }

    /// Whether all was read when nothing changed any more, not too long ago.
    fn is_settled(&self, changed: Instant, now: Instant) -> bool {
        self.read_whole.saturating_duration_since(changed) >= SETTLE
            && now.saturating_duration_since(self.read_whole) < STALE
    }

    /// Up to where a table may be read in vain, while it may change: all of it, if that was not
    /// done for long, or if now is the time.
    fn in_vain(known: Option<&Self>, changed: Instant, now: Instant) -> u32 {
        let is_due = |known: &Self| now.saturating_duration_since(known.read_whole) >= STALE;
        match known {
            Some(known) if now.saturating_duration_since(changed) < SETTLE && !is_due(known) => {
                known.used
            }
            _ => MAX_INDEX,
        }
    }
}

impl Sides {
    /// The number of slots that a sandbox is told; none for a port that is shown as a whole.
    pub(super) fn length(&mut self, port: &Port) -> io::Result<Option<u32>> {
        if !port.roce {
            return Ok(None);
        }
        let now = Instant::now();
        let known = self.lengths.get(&port.id).copied();
        if let Some(known) = known.filter(|known| known.holds(self.changed, now)) {
            return Ok(Some(known.shown));
        }
        let in_vain = Length::in_vain(known.as_ref(), self.changed, now);
        let (mut shown, mut used, mut foreign) = (0, 0, false);
        // A search of the whole path for each slot would take longer.
        let table = side::known(self.sandbox.directory(&port.directory("gids")))?;
        for index in 0..MAX_INDEX {
            let Some(table) = &table else { break };
            let Some(gid) = side::gid(table.as_fd(), &index.to_string())? else { break };
            if gid.is_unspecified() {
                if index >= in_vain {
                    break;
                }
                continue;
            }
            used = index.saturating_add(1);
            match self.shown(port, GidIndex(index), gid)? {
                Seen::Entry(_) => shown = used,
                _ => foreign = true,
            }
        }
        // Whatever the next slot holds, the sandbox sees an empty slot there. Every port has slot 0.
        if shown == 0 || self.gid(port, GidIndex(shown))?.is_some() {
            shown += 1;
        }
        let whole = known.filter(|_| in_vain < MAX_INDEX);
        let read_whole = whole.map_or(now, |known| known.read_whole);
        let took = now.elapsed();
        let length = Length { shown, used, foreign, read: now, took, read_whole };
        self.lengths.insert(port.id, length);
        Ok(Some(shown))
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

    /// The number of slots of a port's table, from the first, of which there is anything to know, for a device by
    /// its name: entries of anybody, and room for the next ones. None where that is not known.
    #[must_use]
    pub fn slots(&self, ibdev: &str, port: u32) -> Option<u32> {
        let mut sides = self.sides.lock();
        let port = sides.hear().and_then(|()| sides.named(ibdev, port)).ok()??;
        sides.length(&port).ok()?;
        sides.lengths.get(&port.id).map(|length| length.used.max(length.shown).saturating_add(NEXT))
    }

    /// Whether others speak by a port, too: what the port counts is then of others as well. A port
    /// without GIDs of network devices is taken for nobody else's.
    #[must_use]
    pub fn is_shared(&self, ibdev: &str, port: u32) -> bool {
        let mut sides = self.sides.lock();
        let Ok(port) = sides.hear().and_then(|()| sides.named(ibdev, port)) else { return true };
        let Some(port) = port.filter(|port| port.roce) else { return false };
        sides.length(&port).is_err() || sides.lengths.get(&port.id).is_none_or(|of| of.foreign)
    }

    /// Whether others speak by one of a device's ports, of those that are granted. What cannot be told is
    /// taken for shared.
    #[must_use]
    pub(crate) fn shares(&self, rdev: (u32, u32), granted: Option<&[u32]>) -> bool {
        let mut sides = self.sides.lock();
        if sides.hear().is_err() {
            return true;
        }
        let granted = |number: &u32| granted.is_none_or(|granted| granted.contains(number));
        for number in (1..=MAX_PORTS).filter(granted) {
            let Ok(port) = sides.port(rdev, number) else { return true };
            let Some(port) = port.filter(|port| port.roce) else { continue };
            if sides.length(&port).is_err()
                || sides.lengths.get(&port.id).is_none_or(|of| of.foreign)
            {
                return true;
            }
        }
        self.check(&sides, rdev).is_err()
    }

    /// The number of slots for a device by its node.
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
        let took = Duration::from_millis(1);
        let read = |ms: u64| Length {
            shown: 3,
            used: 5,
            foreign: false,
            read: at(ms),
            took,
            read_whole: at(ms),
        };
        let settled = read(5_000);
        assert!(settled.holds(at(1_000), at(20_000)));
        assert!(!settled.holds(at(1_000), at(40_000)), "too old");
        assert!(!settled.holds(at(5_100), at(5_200)), "there was news since");
        let early = read(1_010);
        assert!(early.holds(at(1_000), at(1_050)));
        assert!(!early.holds(at(1_000), at(1_070)), "the kernel may not have been ready");
        let partly = Length { read: at(5_000), ..read(1_010) };
        assert!(!partly.holds(at(1_000), at(6_000)), "not all was read since");
        let slow = Length { took: Duration::from_millis(500), ..early };
        assert!(slow.holds(at(1_000), at(2_900)) && !slow.holds(at(1_000), at(3_100)));
    }

    #[test]
    fn all_is_read_at_first_and_when_nothing_changes_any_more() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let took = Duration::from_millis(1);
        let known =
            Length { shown: 3, used: 5, foreign: false, read: at(0), took, read_whole: at(0) };
        assert_eq!(Length::in_vain(None, at(0), at(1)), MAX_INDEX);
        assert_eq!(Length::in_vain(Some(&known), at(100), at(200)), 5);
        assert_eq!(Length::in_vain(Some(&known), at(100), at(2_200)), MAX_INDEX);
        assert_eq!(Length::in_vain(Some(&known), at(39_900), at(40_000)), MAX_INDEX);
    }
}
