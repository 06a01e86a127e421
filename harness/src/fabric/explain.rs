//! What a status, an event or an errno means: one table, for people and for `diagnose`.

use verbgate_sys::rdma;

use crate::fabric::error::Error;

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Entry {
    /// What it is a code of.
    pub(crate) of: Of,
    pub(crate) number: i32,
    /// As the header has it, without its prefix.
    pub(crate) name: &'static str,
    /// Who is at fault.
    pub(crate) class: &'static str,
    /// Likely causes, the likeliest first.
    pub(crate) causes: &'static [&'static str],
    pub(crate) remedy: &'static str,
    /// Counters that tell, where the driver has them.
    pub(crate) counters: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Of {
    /// `enum ibv_wc_status`.
    Completion,
    /// `enum rdma_cm_event_type`.
    Cm,
    /// errno of `ibv_modify_qp` to RTR.
    Rtr,
    /// errno of `ibv_reg_mr`.
    RegMr,
    /// None at all.
    Stall,
}

impl Of {
    fn words(self) -> &'static str {
        match self {
            Self::Completion => "completion status",
            Self::Cm => "rdma_cm event",
            Self::Rtr => "errno of ibv_modify_qp to RTR",
            Self::RegMr => "errno of ibv_reg_mr",
            Self::Stall => "no completion at all",
        }
    }
}

macro_rules! table {
    ($($of:ident $number:literal $name:literal $class:literal [$($cause:literal),*] $remedy:literal
        [$($counter:literal),*];)*) => {
        pub(crate) const TABLE: &[Entry] = &[$(Entry {
            of: Of::$of, number: $number, name: $name, class: $class, causes: &[$($cause),*],
            remedy: $remedy, counters: &[$($counter),*],
        }),*];
    };
}

// Numbers: infiniband/verbs.h, rdma/rdma_cma.h and asm-generic/errno*.h.
#[rustfmt::skip]
table! {
    Completion 0 "SUCCESS" "none" [] "nothing to do" [];
    Completion 1 "LOC_LEN_ERR" "local application" ["a message longer than the receive that was posted for it", "a local buffer longer than the port's largest message"] "post receives as large as the largest message" [];
    Completion 2 "LOC_QP_OP_ERR" "local application" ["an operation that the queue pair's type or state does not have", "more reads outstanding than max_rd_atomic"] "check the operation against the queue pair's type and limits" [];
    Completion 3 "LOC_EEC_OP_ERR" "local application" ["reliable datagrams, which no device has"] "use another type of queue pair" [];
    Completion 4 "LOC_PROT_ERR" "local application" ["an lkey of memory that was deregistered, or of another protection domain", "a piece outside of its region", "a receive or read into memory without local write"] "check lkey, address and length of each piece" [];
    Completion 5 "WR_FLUSH_ERR" "noise" ["an earlier error moved the queue pair to the error state: look for the first other status", "the peer or this end closed the connection"] "look at the first error that is not this one" [];
    Completion 6 "MW_BIND_ERR" "local application" ["a memory window bound without the right to, or with one that is not its region's"] "register the region with memory-window binding" [];
    Completion 7 "BAD_RESP_ERR" "fabric or peer" ["a peer whose queue pair was made anew under the same number", "a damaged answer"] "connect anew; if it comes back, look at the switches' error counters" ["rx_icrc_encapsulated"];
    Completion 8 "LOC_ACCESS_ERR" "local application" ["an rkey given to this end's own memory that does not allow it"] "check the access flags of the region" [];
    Completion 9 "REM_INV_REQ_ERR" "remote application" ["a message longer than the peer's posted receive", "an operation that the peer's queue pair does not allow", "an atomic that is not aligned to 8 bytes"] "compare sizes and access flags of both queue pairs" ["resp_local_length_error"];
    Completion 10 "REM_ACCESS_ERR" "rkey or permission" ["a wrong or stale rkey: the peer registered anew, or restarted", "an address outside of the peer's region", "a region without the remote right that the operation needs"] "exchange address, length and rkey anew; check the peer's access flags" ["resp_remote_access_errors"];
    Completion 11 "REM_OP_ERR" "remote application" ["the peer could not finish the operation: its receive has a wrong lkey", "an atomic at an odd address"] "look at the peer's first completion error" [];
    Completion 12 "RETRY_EXC_ERR" "fabric" ["the peer is gone, or its queue pair is", "ARP flux: the peer's address resolves to another NIC's MAC", "RoCE v1 against RoCE v2, or a wrong GID index", "no source route: packets leave by another rail", "loss: drops at a switch without PFC or ECN, a bad cable", "the path MTU is larger than a link's on the way"] "at the very first message look at neighbour entries, routes and GID types; later look at drops" ["local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "retry_exceeded_err", "rcvd_seq_err"];
    Completion 13 "RNR_RETRY_EXC_ERR" "receiving application" ["the peer posts no receives, or too few", "the peer is too slow, or stopped"] "post receives before the peer may send; set rnr_retry and min_rnr_timer" ["rnr_nak_retry_err", "out_of_buffer", "rcvd_rnr_err", "send_rnr_err"];
    Completion 14 "LOC_RDD_VIOL_ERR" "local application" ["reliable datagrams, which no device has"] "use another type of queue pair" [];
    Completion 15 "REM_INV_RD_REQ_ERR" "remote application" ["reliable datagrams, which no device has"] "use another type of queue pair" [];
    Completion 16 "REM_ABORT_ERR" "remote application" ["the peer ended the operation"] "look at the peer's first completion error" [];
    Completion 17 "INV_EECN_ERR" "local application" ["reliable datagrams, which no device has"] "use another type of queue pair" [];
    Completion 18 "INV_EEC_STATE_ERR" "local application" ["reliable datagrams, which no device has"] "use another type of queue pair" [];
    Completion 19 "FATAL_ERR" "device" ["the device or its driver failed"] "look at the kernel's log; reset the device" [];
    Completion 20 "RESP_TIMEOUT_ERR" "fabric or peer" ["no answer in time"] "as for RETRY_EXC_ERR" ["local_ack_timeout_err"];
    Completion 21 "GENERAL_ERR" "device" ["a failure that the device does not name"] "look at the vendor error and the kernel's log" [];
    Completion 22 "TM_ERR" "local application" ["tag matching failed"] "check the tags" [];
    Completion 23 "TM_RNDV_INCOMPLETE" "local application" ["a rendezvous that the device cannot finish alone"] "finish it in software" [];
    Cm 0 "ADDR_RESOLVED" "none" [] "nothing to do" [];
    Cm 1 "ADDR_ERROR" "configuration" ["no route to the address", "the address is of a network device without RDMA", "the device is not granted or in another network namespace"] "`ip route get` the address; `rdma link` shows which devices have RDMA" [];
    Cm 2 "ROUTE_RESOLVED" "none" [] "nothing to do" [];
    Cm 3 "ROUTE_ERROR" "configuration" ["no path record (InfiniBand), or the neighbour does not answer"] "check the subnet manager, or the neighbour entry" [];
    Cm 4 "CONNECT_REQUEST" "none" [] "rdma_accept or rdma_reject it" [];
    Cm 5 "CONNECT_RESPONSE" "none" [] "establish the connection: only an id without a queue pair sees it" [];
    Cm 6 "CONNECT_ERROR" "configuration" ["a queue pair that could not be made or moved"] "look at the errno in the event's status" [];
    Cm 7 "UNREACHABLE" "fabric" ["the peer does not answer: loss, a firewall on UDP port 4791, a wrong route"] "ping from the rail's address; look at drops" [];
    Cm 8 "REJECTED" "remote application" ["nobody listens on that port", "the peer refused it; status 28 is the application's own reason"] "check that the server runs and listens on this device" [];
    Cm 9 "ESTABLISHED" "none" [] "nothing to do" [];
    Cm 10 "DISCONNECTED" "link or peer" ["the peer closed the connection or ended", "the link went down"] "look at the peer's first error" [];
    Cm 11 "DEVICE_REMOVAL" "device" ["the driver was unloaded, or the NIC moved to another network namespace"] "make the connections anew" [];
    Cm 12 "MULTICAST_JOIN" "none" [] "nothing to do" [];
    Cm 13 "MULTICAST_ERROR" "fabric" ["the subnet manager refused the group, or the group ended", "the port has no MGID table entry left"] "check the subnet manager and the group's parameters; join again" [];
    Cm 14 "ADDR_CHANGE" "configuration" ["the network device behind the address changed (bonding, failover)"] "make the connections anew" [];
    Cm 15 "TIMEWAIT_EXIT" "none" [] "the queue pair may be used again" [];
    Rtr 1 "EPERM" "configuration" ["a quota or a profile of Verbgate refuses it", "a device that may not be opened here"] "look at what the supervisor logs" [];
    Rtr 12 "ENOMEM" "device" ["the device has no room for another address handle or queue pair context"] "use fewer connections; look at the kernel's log" [];
    Rtr 19 "ENODEV" "configuration" ["the GID's network device is in another network namespace"] "move the NIC into this namespace, or choose a GID whose network device is here" [];
    Rtr 22 "EINVAL" "configuration" ["RoCE v1 against RoCE v2", "an address of IPv4 against one of IPv6", "a path MTU larger than the port's", "a GID index that is empty", "no neighbour entry or route that the kernel could use"] "use the same GID type, address family and MTU on both sides" [];
    Rtr 61 "ENODATA" "configuration" ["the source GID is empty, or another network namespace's"] "choose a GID of this namespace" [];
    Rtr 97 "EAFNOSUPPORT" "configuration" ["an address of IPv4 against one of IPv6"] "use GIDs of one address family on both sides" [];
    Rtr 101 "ENETUNREACH" "configuration" ["no route to the peer's GID from this GID"] "add the route, and a source rule for the rail" [];
    Rtr 110 "ETIMEDOUT" "fabric" ["the peer's address does not resolve to a MAC"] "look at `ip neigh`; ping from the rail's address" [];
    Rtr 113 "EHOSTUNREACH" "fabric" ["the peer's address does not resolve to a MAC"] "look at `ip neigh`; ping from the rail's address" [];
    RegMr 1 "EPERM" "configuration" ["the limit of locked memory is 0"] "raise `ulimit -l`, or LimitMEMLOCK of the service" [];
    RegMr 12 "ENOMEM" "configuration" ["RLIMIT_MEMLOCK is too small", "a quota of Verbgate or of the rdma control group", "the machine has no memory left"] "raise `ulimit -l` (container engines give 64 KiB to 8 MiB), then the quota" [];
    RegMr 14 "EFAULT" "local application" ["an address that is not mapped, or not writable"] "register memory that is there" [];
    RegMr 22 "EINVAL" "local application" ["access flags that the device lacks, or remote write without local write", "a length of 0, or one that wraps around"] "check length and access flags" [];
    RegMr 95 "EOPNOTSUPP" "device" ["on-demand paging, or a dma-buf, that the device does not have"] "register ordinary memory" [];
    Stall 0 "STALL" "receiving application" ["min_rnr_timer is 0, which is 655 ms, and rnr_retry 7, which is for ever: one missing receive stalls everything", "the peer posts no receives", "PFC pauses the sender"] "set min_rnr_timer to 12 and rnr_retry below 7; look at RNR and pause counters" ["rnr_nak_retry_err", "out_of_buffer", "rcvd_rnr_err", "send_rnr_err"];
}

/// The row of a completion's status.
pub(crate) fn completion(status: u32) -> Option<&'static Entry> {
    let number = i32::try_from(status).ok()?;
    TABLE.iter().find(|entry| entry.of == Of::Completion && entry.number == number)
}

/// What a completion says.
pub(crate) fn words(of: &rdma::Completion) -> String {
    let rdma::Completion { status, vendor_err, .. } = of;
    let name = completion(*status).map_or("an unknown status", |entry| entry.name);
    format!("{name} ({status}, vendor {vendor_err:#x})")
}

/// The row of a verb's errno.
pub(crate) fn verb(of: Of, errno: i32) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.of == of && entry.number == errno)
}

/// The rows that a user may mean: a number, or a name with or without prefix and `_ERR`.
fn find(code: &str) -> Vec<&'static Entry> {
    let plain = |name: &str| {
        let name = name.to_ascii_uppercase();
        let name = ["IBV_WC_", "RDMA_CM_EVENT_"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(&name);
        name.strip_suffix("_ERR").unwrap_or(name).to_owned()
    };
    let number: Option<i32> = code.parse().ok();
    let is = |entry: &&Entry| number == Some(entry.number) || plain(entry.name) == plain(code);
    TABLE.iter().filter(is).collect()
}

/// A row in words.
pub(crate) fn text(entry: &Entry) -> String {
    let Entry { of, number, name, class, causes, remedy, counters } = entry;
    let mut text = format!("{name} ({number}), {}\n  class: {class}\n", of.words());
    for (index, cause) in causes.iter().enumerate() {
        text += &format!("  cause {}: {cause}\n", index + 1);
    }
    if !counters.is_empty() {
        text += &format!("  counters: {}\n", counters.join(", "));
    }
    text + &format!("  remedy: {remedy}\n")
}

/// `verbgate explain CODE`.
pub(crate) fn run(code: &str) -> Result<String, Error> {
    let found = find(code);
    if found.is_empty() {
        return Err(Error::Usage(format!(
            "{code:?} is no completion status, rdma_cm event or errno that is known: give a number \
             or a name, as 12, RETRY_EXC, UNREACHABLE or ENODEV"
        )));
    }
    Ok(found.into_iter().map(text).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_completion_status_has_its_row_and_names_are_found_in_any_form() {
        // IBV_WC_SUCCESS to IBV_WC_TM_RNDV_INCOMPLETE.
        for status in 0..=23 {
            let entry = completion(status).unwrap();
            assert!(status == 0 || !entry.causes.is_empty(), "{entry:?}");
        }
        // RDMA_CM_EVENT_ADDR_RESOLVED to RDMA_CM_EVENT_TIMEWAIT_EXIT.
        for event in 0..=15 {
            let is = |entry: &&Entry| (entry.of, entry.number) == (Of::Cm, event);
            assert!(TABLE.iter().any(|entry| is(&entry)), "event {event}");
        }
        for name in ["RETRY_EXC", "retry_exc_err", "IBV_WC_RETRY_EXC_ERR"] {
            let [entry] = find(name)[..] else { panic!("{name}") };
            assert_eq!(entry.number, 12);
        }
        let of = |code: &str| find(code).iter().map(|entry| entry.of).collect::<Vec<_>>();
        assert_eq!(of("12"), [Of::Completion, Of::Cm, Of::Rtr, Of::RegMr]);
        assert_eq!(of("RDMA_CM_EVENT_REJECTED"), [Of::Cm]);
        assert_eq!(of("ENODEV"), [Of::Rtr]);
        assert_eq!(run("nonsense").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn no_row_is_there_twice() {
        for (index, entry) in TABLE.iter().enumerate() {
            let same = |other: &Entry| (other.of, other.number) == (entry.of, entry.number);
            assert_eq!(TABLE.iter().position(same), Some(index), "{entry:?}");
        }
    }
}
