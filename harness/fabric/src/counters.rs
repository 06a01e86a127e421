//! Counters of a rail: of the port, of the device (`hw_counters`), of the network device, and of
//! its driver as ethtool(8) shows them; and the meaning of a counter that has moved.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::explain::Counter;
pub(crate) use crate::explain::Sign;
use crate::rail::Rail;

/// What a counter tells, if it is one that does: drivers have names of their own.
pub(crate) fn sign(name: &str) -> Option<Sign> {
    if name.starts_with("ethtool ") && name.contains("pause") {
        return Some(Sign::Congestion);
    }
    Counter::named(name)?.sign()
}

/// How much counters of a kind moved, all told.
pub(crate) fn total(moved: &BTreeMap<String, u64>, of: Sign) -> u64 {
    moved.iter().filter(|(name, _)| sign(name) == Some(of)).map(|(_, delta)| *delta).sum()
}

/// All that can be read.
pub(crate) fn of(rail: &Rail) -> BTreeMap<String, u64> {
    let mut counters = rail.counters();
    counters.extend(by_netlink(rail));
    let Some(name) = &rail.netdev else { return counters };
    let folder = Path::new("/sys/class/net").join(name).join("statistics");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        if let Ok(value) = text.trim().parse() {
            counters.insert(format!("netdev {}", entry.file_name().to_string_lossy()), value);
        }
    }
    // A driver without them, or a network device that is not visible here.
    let driver = verbgate_verbs::ethtool::statistics(name).unwrap_or_default();
    counters.extend(driver.into_iter().map(|(name, value)| (format!("ethtool {name}"), value)));
    counters
}

/// `hw_counters` as RDMA netlink has them (rdma-statistic(8)): sysfs has none of devices that are
/// visible in a network namespace other than the first (drivers/infiniband/core/sysfs.c, of devices
/// that are no "full" ones).
fn by_netlink(rail: &Rail) -> BTreeMap<String, u64> {
    if rail.place().has("hw_counters") {
        return BTreeMap::new();
    }
    verbgate_host::rdma::counters(&rail.device, rail.port.into()).unwrap_or_else(|error| {
        // A driver without them, or a sandbox that may not ask.
        log::debug!("netlink has no counters of {}:{}: {error}", rail.device, rail.port);
        BTreeMap::new()
    })
}

/// Which have moved, and by how much.
pub(crate) fn moved(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let moved = |(name, value): (&String, &u64)| {
        let delta = delta(*before.get(name)?, *value).filter(|delta| *delta > 0)?;
        Some((name.clone(), delta))
    };
    after.iter().filter_map(moved).collect()
}

/// From one reading to the next. Some counters have 32 bits and begin again at 0; one that has fallen
/// by more than that explains was reset, of which nothing is known.
pub(crate) fn delta(before: u64, after: u64) -> Option<u64> {
    const BITS: u64 = 1 << 32;
    let wrapped = || {
        let delta = (after + BITS).checked_sub(before)?;
        (before < BITS && delta < BITS / 2).then_some(delta)
    };
    after.checked_sub(before).or_else(wrapped)
}

/// Parts of names of counters that are not in the table, and tell of errors all the same.
const ERRORS: &[&str] = &["err", "drop", "discard", "timeout", "retrans", "nak", "retr", "down"];

/// Those that tell something. A healthy path moves counters of packets and bytes by the dozen, which
/// are most of a report; of a path that failed, those are kept, too, that sound like errors.
pub(crate) fn telling(mut moved: BTreeMap<String, u64>, failed: bool) -> BTreeMap<String, u64> {
    let sounds = |name: &str| ERRORS.iter().any(|part| name.contains(part));
    moved.retain(|name, _| sign(name).is_some() || failed && sounds(name));
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_moved_are_told_by_kind() {
        let map = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let before = map(&[("duplicate_request", 1), ("rcvd_pkts", 5), ("send_rnr_err", 2)]);
        let after = map(&[("duplicate_request", 4), ("rcvd_pkts", 9), ("send_rnr_err", 2)]);
        let moved = moved(&before, &after);
        assert_eq!(moved, map(&[("duplicate_request", 3), ("rcvd_pkts", 4)]));
        assert_eq!(total(&moved, Sign::Loss), 3);
        assert_eq!(sign("ethtool rx_prio3_pause"), Some(Sign::Congestion));
        assert_eq!(sign("ethtool rx_packets"), None);
        // Each driver by its own names, and what has the same name elsewhere is something else.
        for name in [
            "to_retransmits",
            "packet_seq_err",
            "RetransSegs",
            "retrans_timeout_events",
            "responder_oos",
            "resp_rx_outouf_seq",
            "out_of_sequence",
            "netdev rx_dropped",
            "ethtool rx_discards_phy",
        ] {
            assert_eq!(sign(name), Some(Sign::Loss), "{name}");
        }
        assert_eq!((sign("rx_dropped"), sign("netdev out_of_sequence")), (None, None));
        assert_eq!(sign("rx_err_pkt"), Some(Sign::Link));
        // 32 bits that begin again, and a driver that was loaded again.
        assert_eq!(delta(u64::from(u32::MAX) - 1, 3), Some(5));
        assert_eq!((delta(100, 3), delta(1 << 40, 3), delta(3, 3)), (None, None, Some(0)));
        let some = map(&[("sent_pkts", 9), ("rcvd_seq_err", 1), ("ethtool rx_new_errors", 2)]);
        assert_eq!(telling(some.clone(), false), map(&[("rcvd_seq_err", 1)]));
        let of_failed = map(&[("rcvd_seq_err", 1), ("ethtool rx_new_errors", 2)]);
        assert_eq!(telling(some, true), of_failed);
    }
}
