//! Counters of a rail: of the port, of the device (`hw_counters`), of the network device, and of
//! its driver as ethtool(8) shows them; and the meaning of a counter that has moved.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::rail::Rail;

/// What a counter that moves tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sign {
    /// Packets did not arrive, or were repeated.
    Loss,
    /// The receiver had no buffers.
    Unready,
    /// Somebody was told to slow down.
    Congestion,
    /// The link was down, or damages.
    Link,
    /// Keys and rights.
    Access,
}

/// Counters that tell, by the names of the drivers that have them: rxe (rxe_hw_counters.h), mlx5
/// (counters.c), the ports of InfiniBand (sysfs.c), network devices (if_link.h), and ethtool of mlx5
/// and others.
#[rustfmt::skip]
const TELLING: &[(&str, Sign)] = &[
    // rxe
    ("duplicate_request", Sign::Loss),
    ("out_of_seq_request", Sign::Loss),
    ("rcvd_seq_err", Sign::Loss),
    ("completer_retry_err", Sign::Loss),
    ("retry_exceeded_err", Sign::Loss),
    ("send_err", Sign::Loss),
    ("rcvd_rnr_err", Sign::Unready),
    ("send_rnr_err", Sign::Unready),
    ("retry_rnr_exceeded_err", Sign::Unready),
    // mlx5
    ("out_of_sequence", Sign::Loss),
    ("packet_seq_err", Sign::Loss),
    ("local_ack_timeout_err", Sign::Loss),
    ("implied_nak_seq_err", Sign::Loss),
    ("roce_adp_retrans", Sign::Loss),
    ("rx_icrc_encapsulated", Sign::Link),
    ("rnr_nak_retry_err", Sign::Unready),
    ("out_of_buffer", Sign::Unready),
    ("np_cnp_sent", Sign::Congestion),
    ("np_ecn_marked_roce_packets", Sign::Congestion),
    ("rp_cnp_handled", Sign::Congestion),
    ("resp_remote_access_errors", Sign::Access),
    ("req_remote_access_errors", Sign::Access),
    ("resp_local_length_error", Sign::Access),
    // ports
    ("port_rcv_errors", Sign::Link),
    ("port_rcv_remote_physical_errors", Sign::Link),
    ("port_xmit_discards", Sign::Loss),
    ("port_xmit_wait", Sign::Congestion),
    ("symbol_error", Sign::Link),
    ("link_downed", Sign::Link),
    ("link_error_recovery", Sign::Link),
    ("local_link_integrity_errors", Sign::Link),
    ("excessive_buffer_overrun_errors", Sign::Link),
    // network devices
    ("netdev rx_dropped", Sign::Loss),
    ("netdev tx_dropped", Sign::Loss),
    ("netdev rx_errors", Sign::Link),
    ("netdev tx_errors", Sign::Link),
    ("netdev rx_crc_errors", Sign::Link),
    ("netdev rx_missed_errors", Sign::Loss),
    ("netdev tx_carrier_errors", Sign::Link),
    // ethtool
    ("ethtool rx_discards_phy", Sign::Loss),
    ("ethtool tx_discards_phy", Sign::Loss),
    ("ethtool rx_out_of_buffer", Sign::Loss),
    ("ethtool rx_crc_errors_phy", Sign::Link),
    ("ethtool rx_symbol_err_phy", Sign::Link),
    ("ethtool link_down_events_phy", Sign::Link),
];

/// What a counter tells, if it is one that does.
pub(crate) fn sign(name: &str) -> Option<Sign> {
    if name.starts_with("ethtool ") && name.contains("pause") {
        return Some(Sign::Congestion);
    }
    TELLING.iter().find(|(known, _)| *known == name).map(|(_, sign)| *sign)
}

/// The names of all that tell, for those who explain them.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TELLING.iter().map(|(name, _)| *name)
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
    let delta = |(name, value): (&String, &u64)| {
        let delta = value.checked_sub(*before.get(name)?).filter(|delta| *delta > 0)?;
        Some((name.clone(), delta))
    };
    after.iter().filter_map(delta).collect()
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
        let some = map(&[("sent_pkts", 9), ("rcvd_seq_err", 1), ("ethtool rx_new_errors", 2)]);
        assert_eq!(telling(some.clone(), false), map(&[("rcvd_seq_err", 1)]));
        let of_failed = map(&[("rcvd_seq_err", 1), ("ethtool rx_new_errors", 2)]);
        assert_eq!(telling(some, true), of_failed);
    }
}
