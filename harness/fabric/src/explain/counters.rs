//! The meanings of counters, for people.

/// A counter by its name, without `netdev` or `ethtool` before it.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(super) name: &'static str,
    /// Of which driver, or of what.
    of: &'static str,
    counts: &'static str,
    remedy: &'static str,
}

const LOST: &str = "look for drops: PFC and ECN on NICs and switch ports, cables, a full receiver; \
                    `verbgate fabric diagnose` names the path";
const UNREADY: &str = "post more receives, and earlier; set rnr_retry and min_rnr_timer";
const SLOWED: &str = "some congestion is normal under load; if the counter rises steadily, look \
                      for a slow receiver or an overloaded switch port";
const LINK: &str = "clean or replace the cable or the transceiver; look at the switch port";
const KEYS: &str = "exchange address, length and rkey again; compare access flags";
const REQUEST: &str = "compare sizes, operations and access flags of both queue pairs";
const NONE: &str = "nothing to do";

macro_rules! counters {
    ($($of:literal { $($name:literal $counts:literal $remedy:ident;)* })*) => {
        pub(super) const COUNTERS: &[Counter] = &[$($(Counter {
            name: $name, of: $of, counts: $counts, remedy: $remedy,
        },)*)*];
    };
}

// Names: rxe_hw_counters.c, counters.c and en_stats.c of mlx5, sysfs.c of the RDMA core, if_link.h.
#[rustfmt::skip]
counters! {
    "Soft-RoCE" {
        "sent_pkts" "packets sent" NONE;
        "rcvd_pkts" "packets received" NONE;
        "duplicate_request" "requests that came twice: the answer was lost or late" LOST;
        "out_of_seq_request" "requests that came out of order: one before was lost" LOST;
        "rcvd_seq_err" "negative acknowledgements: the peer missed a packet" LOST;
        "completer_retry_err" "repetitions because no answer came in time" LOST;
        "retry_exceeded_err" "work requests given up after retry_cnt" LOST;
        "send_err" "packets that could not be sent" LOST;
        "ack_deferred" "acknowledgements sent later" NONE;
        "rcvd_rnr_err" "answers of the peer that it has no receive" UNREADY;
        "send_rnr_err" "answers to the peer that there is no receive here" UNREADY;
        "retry_rnr_exceeded_err" "work requests given up after rnr_retry" UNREADY;
        "rdma_sends" "send operations" NONE;
        "rdma_recvs" "receive operations" NONE;
        "lifespan" "milliseconds for which a reading stays the same" NONE;
    }
    "mlx5 hw_counters" {
        "out_of_sequence" "packets that came out of order: one before was lost, or paths differ" LOST;
        "packet_seq_err" "negative acknowledgements for a missed packet" LOST;
        "local_ack_timeout_err" "acknowledgements that did not come in time" LOST;
        "implied_nak_seq_err" "answers that imply that one before was lost" LOST;
        "roce_adp_retrans" "adaptive repetitions" LOST;
        "roce_adp_retrans_to" "adaptive repetitions after a timeout" LOST;
        "roce_slow_restart" "transmissions started again at a low rate" SLOWED;
        "rx_icrc_encapsulated" "RoCE packets whose checksum is wrong" LINK;
        "rnr_nak_retry_err" "answers of the peer that it has no receive" UNREADY;
        "out_of_buffer" "packets dropped because no receive was posted" UNREADY;
        "np_cnp_sent" "congestion notifications sent to senders" SLOWED;
        "np_ecn_marked_roce_packets" "packets that a switch marked as congested" SLOWED;
        "rp_cnp_handled" "congestion notifications that slowed this sender" SLOWED;
        "rp_cnp_ignored" "congestion notifications that were ignored" SLOWED;
        "resp_remote_access_errors" "requests of peers refused for key or right" KEYS;
        "req_remote_access_errors" "own requests that a peer refused for key or right" KEYS;
        "resp_local_length_error" "messages longer than the receive here" REQUEST;
        "req_remote_invalid_request" "own requests that a peer refused as invalid" REQUEST;
        "req_cqe_error" "own requests that ended with an error" REQUEST;
        "resp_cqe_error" "receives that ended with an error" REQUEST;
        "req_cqe_flush_error" "own requests flushed after an earlier error" NONE;
        "resp_cqe_flush_error" "receives flushed after an earlier error" NONE;
        "req_transport_retries_exceeded" "own requests given up after retry_cnt" LOST;
        "req_rnr_retries_exceeded" "own requests given up after rnr_retry" UNREADY;
        "rx_write_requests" "write requests of peers" NONE;
        "rx_read_requests" "read requests of peers" NONE;
        "rx_atomic_requests" "atomic requests of peers" NONE;
    }
    "the port" {
        "port_rcv_errors" "packets received with an error" LINK;
        "port_rcv_remote_physical_errors" "packets that were marked bad on an earlier link" LINK;
        "port_rcv_switch_relay_errors" "packets that a switch could not pass on" LOST;
        "port_xmit_discards" "packets discarded before they were sent" LOST;
        "port_xmit_wait" "ticks in which there was something to send and no credit" SLOWED;
        "symbol_error" "symbols received with an error" LINK;
        "link_downed" "times that the link went down" LINK;
        "link_error_recovery" "times that the link recovered from an error" LINK;
        "local_link_integrity_errors" "more errors of the link than are allowed" LINK;
        "excessive_buffer_overrun_errors" "overruns of the port's buffers" LINK;
        "VL15_dropped" "management packets that were dropped" LOST;
    }
    "the network device" {
        "rx_dropped" "packets dropped on receipt" LOST;
        "tx_dropped" "packets dropped before they were sent" LOST;
        "rx_errors" "packets received with an error" LINK;
        "tx_errors" "packets that could not be sent" LINK;
        "rx_crc_errors" "frames whose checksum is wrong" LINK;
        "rx_missed_errors" "packets for which the NIC had no buffer" LOST;
        "tx_carrier_errors" "times that there was no carrier" LINK;
    }
    "ethtool" {
        "rx_discards_phy" "packets that the port dropped for lack of buffers" LOST;
        "tx_discards_phy" "packets that the port dropped before they were sent" LOST;
        "rx_out_of_buffer" "packets for which no buffer was posted" LOST;
        "rx_crc_errors_phy" "frames whose checksum is wrong" LINK;
        "rx_symbol_err_phy" "symbols received with an error" LINK;
        "link_down_events_phy" "times that the link went down" LINK;
    }
}

/// Pauses, by whatever name: `rx_prio3_pause`, `tx_pause_ctrl_phy`.
static RECEIVED: Counter = Counter {
    name: "rx_*_pause",
    of: "ethtool",
    counts: "pauses that the other end of the link asked for",
    remedy: SLOWED,
};
static SENT: Counter = Counter {
    name: "tx_*_pause",
    of: "ethtool",
    counts: "pauses that this end asked for, because more arrives than this end can take",
    remedy: SLOWED,
};

/// A counter by its name, as tools print it or with its folder.
pub(super) fn find(name: &str) -> Option<&'static Counter> {
    let name = name.rsplit(['/', ' ']).next().unwrap_or(name);
    let known = COUNTERS.iter().find(|counter| counter.name.eq_ignore_ascii_case(name));
    let lower = name.to_ascii_lowercase();
    let pause = || match lower.get(..3).filter(|_| lower.contains("pause"))? {
        "rx_" => Some(&RECEIVED),
        "tx_" => Some(&SENT),
        _ => None,
    };
    known.or_else(pause)
}

/// A counter in words.
pub(super) fn text(counter: &Counter) -> String {
    let Counter { name, of, counts, remedy } = counter;
    format!("{name}, counter of {of}\n  counts: {counts}\n  remedy: {remedy}\n")
}
