//! The meanings of counters, for people and for `diagnose`.

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

const NETDEV: &str = "the network device";
const ETHTOOL: &str = "ethtool";

macro_rules! counters {
    ($($of:literal { $($name:literal $counts:literal $remedy:ident;)* })*) => {
        pub(super) const COUNTERS: &[Counter] = &[$($(Counter {
            name: $name, of: $of, counts: $counts, remedy: $remedy,
        },)*)*];
    };
}

// Names: rxe_hw_counters.c, counters.c and en_stats.c of mlx5, hw_counters.c of bnxt_re (whose names
// Linux 7 changed to those of mlx5), verbs.c of irdma, efa_verbs.c, counters.c of mana,
// hns_roce_main.c, sysfs.c of the RDMA core, if_link.h. Those of ionic are its firmware's.
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
    "bnxt_re hw_counters" {
        "to_retransmits" "packets repeated because no acknowledgement came in time" LOST;
        "seq_err_naks_rcvd" "negative acknowledgements for a missed packet" LOST;
        "max_retry_exceeded" "work requests given up after retry_cnt" LOST;
        "missing_resp" "answers that did not come" LOST;
        "dup_req" "requests that came twice: the answer was lost or late" LOST;
        "oos_drop_count" "packets dropped because one before was lost" LOST;
        "rx_roce_discards" "RoCE packets dropped on receipt" LOST;
        "tx_roce_discards" "RoCE packets dropped before they were sent" LOST;
        "rx_roce_errors" "RoCE packets received with an error" LINK;
        "tx_roce_errors" "RoCE packets that could not be sent" LINK;
        "rnr_naks_rcvd" "answers of the peer that it has no receive" UNREADY;
        "np_cnp_pkts" "congestion notifications sent to senders" SLOWED;
        "remote_access_err" "own requests that a peer refused for key or right" KEYS;
        "res_rx_invalid_rkey" "requests of peers with an rkey that is not known here" KEYS;
        "res_rx_no_perm" "requests of peers that the memory does not allow" KEYS;
        "res_rx_range_err" "requests of peers outside of the memory" KEYS;
        "local_protection_err" "local keys, addresses or lengths that are wrong" REQUEST;
        "remote_invalid_req_err" "own requests that a peer refused as invalid" REQUEST;
        "remote_op_err" "own requests that a peer could not finish" REQUEST;
        "unrecoverable_err" "queue pairs that ended with an error" REQUEST;
        "bad_resp_err" "answers that do not fit their requests" REQUEST;
        "res_length_mismatch" "messages whose length does not fit" REQUEST;
        "res_exceed_max" "messages longer than the receive here" REQUEST;
    }
    "irdma hw_counters" {
        "RetransSegs" "segments that were repeated" LOST;
        "RTO" "repetitions because no answer came in time" LOST;
        "ip4InDiscards" "packets dropped on receipt" LOST;
        "ip6InDiscards" "packets dropped on receipt" LOST;
        "ip4OutNoRoutes" "packets that had no route" LOST;
        "ip6OutNoRoutes" "packets that had no route" LOST;
        "rxVlanErrors" "packets of a VLAN that is not this one" LOST;
        "ip4InTruncatedPkts" "packets that were cut short" LINK;
        "ip6InTruncatedPkts" "packets that were cut short" LINK;
        "InOptErrors" "packets whose options are wrong" LINK;
        "InProtoErrors" "packets whose protocol is wrong" LINK;
        "RxECNMrkd" "packets that a switch marked as congested" SLOWED;
        "cnpHandled" "congestion notifications that slowed this sender" SLOWED;
        "cnpSent" "congestion notifications sent to senders" SLOWED;
        "cnpIgnored" "congestion notifications that were ignored" SLOWED;
    }
    "efa hw_counters" {
        "rx_drops" "packets dropped for lack of receives" UNREADY;
        "retrans_pkts" "packets that were repeated" LOST;
        "retrans_timeout_events" "repetitions because no answer came in time" LOST;
        "impaired_remote_conn_events" "times that the way to a peer got bad" LOST;
        "unresponsive_remote_events" "peers that did not answer any more" LOST;
        "rdma_read_wr_err" "reads that ended with an error" REQUEST;
        "rdma_write_wr_err" "writes that ended with an error" REQUEST;
        "cmds_err" "commands that the device refused" REQUEST;
        "no_completion_cmds" "commands that the device did not finish" REQUEST;
        "create_ah_err" "address handles that could not be made" REQUEST;
    }
    "mana hw_counters" {
        "requester_timeout" "acknowledgements that did not come in time" LOST;
        "requester_oos_nak" "negative acknowledgements for a missed packet" LOST;
        "requester_implicit_nak" "answers that imply that one before was lost" LOST;
        "requester_readresp_psn_mismatch" "answers to reads that came out of order" LOST;
        "requester_retries_exceeded" "work requests given up after retry_cnt" LOST;
        "responder_oos" "packets that came out of order: one before was lost" LOST;
        "responder_dup_request" "requests that came twice: the answer was lost or late" LOST;
        "requester_rnr_nak" "answers of the peer that it has no receive" UNREADY;
        "responder_rnr_nak" "answers to the peer that there is no receive here" UNREADY;
        "requester_rnr_nak_retries_exceeded" "work requests given up after rnr_retry" UNREADY;
        "sent_cnps" "congestion notifications sent to senders" SLOWED;
        "received_cnps" "congestion notifications that slowed this sender" SLOWED;
        "received_ecns" "packets that a switch marked as congested" SLOWED;
        "qp_congested_events" "queue pairs that were slowed" SLOWED;
        "nak_access_error" "requests refused for key or right" KEYS;
        "responder_rem_access_error" "requests of peers refused for key or right" KEYS;
        "nak_inv_req" "requests refused as invalid" REQUEST;
        "nak_opp_error" "requests that could not be finished" REQUEST;
        "nak_inv_read" "reads refused as invalid" REQUEST;
        "responder_local_len_error" "messages longer than the receive here" REQUEST;
        "requestor_local_prot_error" "local keys, addresses or lengths that are wrong" REQUEST;
        "total_fatal_error" "queue pairs that ended with an error" REQUEST;
    }
    "hns hw_counters" {
        "rx_err_pkt" "packets received with an error" LINK;
        "tx_err_pkt" "packets that could not be sent" LINK;
        "rx_cnp_pkt" "congestion notifications that slowed this sender" SLOWED;
        "tx_cnp_pkt" "congestion notifications sent to senders" SLOWED;
        "trp_get_mpt_err_pkt" "packets with a key that is not known here" KEYS;
        "trp_get_irrl_err_pkt" "answers to reads that nobody asked for" REQUEST;
    }
    "ionic hw_counters" {
        "req_rx_pkt_seq_err" "negative acknowledgements for a missed packet" LOST;
        "req_rx_impl_nak_seq_err" "answers that imply that one before was lost" LOST;
        "req_tx_retry_excd_err" "work requests given up after retry_cnt" LOST;
        "resp_rx_dup_request" "requests that came twice: the answer was lost or late" LOST;
        "resp_rx_outouf_seq" "packets that came out of order: one before was lost" LOST;
        "resp_tx_pkt_seq_err" "negative acknowledgements to the peer for a missed packet" LOST;
        "tx_rdma_ack_timeout" "acknowledgements that did not come in time" LOST;
        "tx_rdma_retx_pkts" "packets that were repeated" LOST;
        "req_rx_rnr_retry_err" "answers of the peer that it has no receive" UNREADY;
        "resp_rx_outof_buf" "packets dropped because no receive was posted" UNREADY;
        "resp_tx_rnr_retry_err" "answers to the peer that there is no receive here" UNREADY;
        "rx_rdma_cnp_pkts" "congestion notifications that slowed this sender" SLOWED;
        "tx_rdma_cnp_pkts" "congestion notifications sent to senders" SLOWED;
        "rx_rdma_ecn_pkts" "packets that a switch marked as congested" SLOWED;
        "req_rx_rmt_acc_err" "own requests that a peer refused for key or right" KEYS;
        "resp_tx_rmt_acc_err" "requests of peers refused for key or right" KEYS;
        "req_rx_rmt_req_err" "own requests that a peer refused as invalid" REQUEST;
        "resp_rx_loc_len_err" "messages longer than the receive here" REQUEST;
        "req_rx_cqe_err" "own requests that ended with an error" REQUEST;
        "resp_rx_cqe_err" "receives that ended with an error" REQUEST;
    }
    "the port" {
        "port_rcv_errors" "packets received with an error" LINK;
        "port_rcv_remote_physical_errors" "packets that were marked bad on an earlier link" LINK;
        "port_rcv_switch_relay_errors" "packets that a switch could not pass on, also the port's own multicasts" NONE;
        "port_xmit_discards" "packets discarded before they were sent" LOST;
        "port_xmit_wait" "ticks in which there was something to send and no credit" SLOWED;
        "symbol_error" "symbols received with an error" LINK;
        "link_downed" "times that the link went down" LINK;
        "link_error_recovery" "times that the link recovered from an error" LINK;
        "local_link_integrity_errors" "more errors of the link than are allowed" LINK;
        "excessive_buffer_overrun_errors" "overruns of the port's buffers" LINK;
        "VL15_dropped" "management packets that were dropped" NONE;
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

impl Counter {
    /// What the counter tells when it moves; nothing, if it does not tell of a fault.
    pub(crate) fn sign(&self) -> Option<Sign> {
        match self.remedy {
            LOST => Some(Sign::Loss),
            UNREADY => Some(Sign::Unready),
            SLOWED => Some(Sign::Congestion),
            LINK => Some(Sign::Link),
            KEYS => Some(Sign::Access),
            _ => None,
        }
    }

    /// Of a name as `diagnose` has it: with `netdev` or `ethtool` before it, if it is of those.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let (bare, of) = match name.split_once(' ') {
            Some(("netdev", bare)) => (bare, NETDEV),
            Some(("ethtool", bare)) => (bare, ETHTOOL),
            _ => (name, ""),
        };
        let is = |counter: &&Self| {
            let of_folder = [NETDEV, ETHTOOL].contains(&counter.of);
            counter.name == bare && if of.is_empty() { !of_folder } else { counter.of == of }
        };
        COUNTERS.iter().find(is)
    }
}

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

/// A counter for programs.
pub(super) fn json(counter: &Counter) -> serde_json::Value {
    let Counter { name, of, counts, remedy } = counter;
    serde_json::json!({
        "kind": format!("counter of {of}"), "name": name, "counts": counts, "remedy": remedy,
    })
}
