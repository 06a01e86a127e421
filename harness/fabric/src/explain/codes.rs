//! The meanings of statuses, events and errnos: one table, for people and for `diagnose`.

/// A row of the table.
#[derive(Debug)]
pub(crate) struct CodeEntry {
    /// What it is a code of.
    pub of: Of,
    pub number: i32,
    /// As the header has it, without its prefix.
    pub name: &'static str,
    /// Who is at fault.
    pub(crate) class: &'static str,
    /// Likely causes, the likeliest first.
    pub causes: &'static [&'static str],
    pub remedy: &'static str,
    /// Counters that tell, where the driver has them.
    pub(crate) counters: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Of {
    /// `enum ibv_wc_status`.
    Completion,
    /// `enum rdma_cm_event_type`.
    Cm,
    /// `enum ibv_event_type`.
    Event,
    /// errno of `ibv_modify_qp` to RTR.
    Rtr,
    /// errno of `ibv_reg_mr`.
    RegMr,
    /// None at all.
    Stall,
}

impl Of {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Completion => "completion status",
            Self::Cm => "rdma_cm event",
            Self::Event => "asynchronous event of the device",
            Self::Rtr => "errno of ibv_modify_qp to RTR",
            Self::RegMr => "errno of ibv_reg_mr",
            Self::Stall => "no completion at all",
        }
    }
}

macro_rules! table {
    ($($of:ident $number:literal $name:literal $class:literal [$($cause:literal),*] $remedy:literal
        [$($counter:literal),*];)*) => {
        pub(crate) const TABLE: &[CodeEntry] = &[$(CodeEntry {
            of: Of::$of, number: $number, name: $name, class: $class, causes: &[$($cause),*],
            remedy: $remedy, counters: &[$($counter),*],
        }),*];
    };
}

// Numbers and names: infiniband/verbs.h, rdma/rdma_cma.h and asm-generic/errno*.h.
#[rustfmt::skip]
table! {
    Completion 0 "SUCCESS" "none" [] "nothing to do" [];
    Completion 1 "LOC_LEN_ERR" "local application" ["a message longer than the posted receive", "a local buffer longer than the port's largest message"] "post receives as large as the largest message" [];
    Completion 2 "LOC_QP_OP_ERR" "local application" ["an operation that the queue pair's type or state does not have", "more reads outstanding than max_rd_atomic"] "check the operation against the queue pair's type and limits" [];
    Completion 3 "LOC_EEC_OP_ERR" "local application" ["reliable datagrams, which no device has"] "use another type of queue pair" [];
    Completion 4 "LOC_PROT_ERR" "local application" ["an lkey of memory that was deregistered, or of another protection domain", "a piece outside of its region", "a receive or read into memory without local write"] "check lkey, address and length of each piece" [];
    Completion 5 "WR_FLUSH_ERR" "noise" ["an earlier error moved the queue pair to the error state: look for the first other status", "the peer or this end closed the connection"] "look at the first error that is not this one" [];
    Completion 6 "MW_BIND_ERR" "local application" ["a memory window bound without the right to bind, or for another region"] "register the region with memory-window binding" [];
    Completion 7 "BAD_RESP_ERR" "fabric or peer" ["a peer that has a new queue pair under the same number", "a damaged answer"] "connect again; if the status comes back, look at the switches' error counters" ["rx_icrc_encapsulated"];
    Completion 8 "LOC_ACCESS_ERR" "local application" ["an rkey given to this end's own memory that does not allow it"] "check the access flags of the region" [];
    Completion 9 "REM_INV_REQ_ERR" "remote application" ["a message longer than the peer's posted receive", "an operation that the peer's queue pair does not allow", "an atomic that is not aligned to 8 bytes"] "compare sizes and access flags of both queue pairs" ["resp_local_length_error"];
    Completion 10 "REM_ACCESS_ERR" "rkey or permission" ["a wrong or stale rkey: the peer registered its memory again, or restarted", "an address outside of the peer's region", "a region without the remote right that the operation needs"] "exchange address, length and rkey again; check the peer's access flags" ["resp_remote_access_errors"];
    Completion 11 "REM_OP_ERR" "remote application" ["the peer could not finish the operation: the peer's receive has a wrong lkey", "an atomic at an odd address"] "look at the peer's first completion error" [];
    Completion 12 "RETRY_EXC_ERR" "fabric" ["the peer is gone, or the peer's queue pair is gone", "ARP flux: the peer's address resolves to another NIC's MAC", "RoCE v1 against RoCE v2, or a wrong GID index", "no source route: packets leave by another rail", "loss: drops at a switch without PFC or ECN, a bad cable", "the path MTU is larger than a link's on the way"] "at the very first message look at neighbour entries, routes and GID types; later look at drops" ["local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "retry_exceeded_err", "rcvd_seq_err"];
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
    Completion 23 "TM_RNDV_INCOMPLETE" "local application" ["a rendezvous that the device cannot finish alone"] "finish the operation in software" [];
    Cm 0 "ADDR_RESOLVED" "none" [] "nothing to do" [];
    Cm 1 "ADDR_ERROR" "configuration" ["no route to the address", "the address is of a network device without RDMA", "the device is not granted or in another network namespace"] "`ip route get` the address; `rdma link` shows which devices have RDMA" [];
    Cm 2 "ROUTE_RESOLVED" "none" [] "nothing to do" [];
    Cm 3 "ROUTE_ERROR" "configuration" ["no path record (InfiniBand), or the neighbour does not answer"] "check the subnet manager, or the neighbour entry" [];
    Cm 4 "CONNECT_REQUEST" "none" [] "call rdma_accept or rdma_reject" [];
    Cm 5 "CONNECT_RESPONSE" "none" [] "establish the connection: only an id without a queue pair sees this event" [];
    Cm 6 "CONNECT_ERROR" "configuration" ["a queue pair that could not be made or moved"] "look at the errno in the event's status" [];
    Cm 7 "UNREACHABLE" "fabric" ["the peer does not answer: loss, a firewall on UDP port 4791, a wrong route", "an MTU that differs between the ends, or is smaller on the way: replies are dropped", "the link is down or flaps"] "ping from the rail's address with the MTU's length and no fragments (`ping -M do -s`); look at drops and link counters" ["link_downed", "port_rcv_errors"];
    Cm 8 "REJECTED" "remote application" ["nobody listens on that port", "the peer refused the connection; status 28 is the application's own reason", "both ends run different versions of the application or library, whose private data do not fit together"] "check that the server runs and listens on this device, and that both ends have the same version" [];
    Cm 9 "ESTABLISHED" "none" [] "nothing to do" [];
    Cm 10 "DISCONNECTED" "link or peer" ["the link went down or flaps: look at the link counters first", "the peer closed the connection or ended", "retries were exceeded: loss, or an MTU that is smaller on the way"] "look at the link counters of both ends, and then at the peer's first error" ["link_downed", "symbol_error", "port_rcv_errors"];
    Cm 11 "DEVICE_REMOVAL" "device" ["the driver was unloaded, or the NIC moved to another network namespace"] "make the connections again" [];
    Cm 12 "MULTICAST_JOIN" "none" [] "nothing to do" [];
    Cm 13 "MULTICAST_ERROR" "fabric" ["the subnet manager refused the group, or the group ended", "the port has no MGID table entry left"] "check the subnet manager and the group's parameters; join again" [];
    Cm 14 "ADDR_CHANGE" "configuration" ["the network device behind the address changed (bonding, failover)"] "make the connections again" [];
    Cm 15 "TIMEWAIT_EXIT" "none" [] "the queue pair may be used again" [];
    Event 0 "CQ_ERR" "local application" ["the completion queue overran: more requests completed than the queue holds"] "make the queue as long as all outstanding work requests, or poll the queue more often" [];
    Event 1 "QP_FATAL" "local application or device" ["a work request that the device cannot read or execute", "a device that failed"] "look at the first completion error of the queue pair, and at the kernel's log" [];
    Event 2 "QP_REQ_ERR" "remote application" ["the peer asked for an operation that the queue pair does not allow"] "compare operations and access flags of both queue pairs" [];
    Event 3 "QP_ACCESS_ERR" "rkey or permission" ["the peer used a wrong rkey, or memory that does not allow it"] "exchange address, length and rkey again; check the region's access flags" ["resp_remote_access_errors"];
    Event 4 "COMM_EST" "none" ["a packet came before the queue pair was set to RTS"] "nothing to do" [];
    Event 5 "SQ_DRAINED" "none" [] "nothing to do: the send queue was drained as was asked" [];
    Event 6 "PATH_MIG" "none" [] "nothing to do: the connection goes on by its alternate path" [];
    Event 7 "PATH_MIG_ERR" "fabric" ["the alternate path cannot be used"] "check the alternate path's port and address" [];
    Event 8 "DEVICE_FATAL" "device" ["the device or its firmware failed"] "look at the kernel's log; reset the device, and update the firmware if the event comes back" [];
    Event 9 "PORT_ACTIVE" "none" [] "nothing to do; if the event comes often, the link flaps: look at cable, transceiver and switch port" ["link_downed"];
    Event 10 "PORT_ERR" "link" ["the link went down: the cable, the transceiver, the switch port, or somebody set the device down"] "look at `ip link` and at the link counters of both ends; connections time out if the link stays down" ["link_downed", "link_error_recovery", "symbol_error"];
    Event 11 "LID_CHANGE" "configuration" ["the subnet manager gave the port another LID"] "make the connections again" [];
    Event 12 "PKEY_CHANGE" "configuration" ["the subnet manager changed the partition table"] "check that both ends are in the partition that the queue pairs use" [];
    Event 13 "SM_CHANGE" "none" ["another subnet manager took over"] "nothing to do, unless the event comes often" [];
    Event 14 "SRQ_ERR" "local application" ["a shared receive queue failed"] "look at the first completion error, and at the kernel's log" [];
    Event 15 "SRQ_LIMIT_REACHED" "local application" ["fewer receives are left than the limit that was set"] "post receives to the shared receive queue" ["out_of_buffer"];
    Event 16 "QP_LAST_WQE_REACHED" "none" ["a queue pair with a shared receive queue is in the error state and drained"] "nothing to do: the queue may be destroyed now" [];
    Event 17 "CLIENT_REREGISTER" "none" ["the subnet manager asks clients to register again"] "join multicast groups and register services again" [];
    Event 18 "GID_CHANGE" "configuration" ["an address of the network device was added or removed, or the device changed the network namespace"] "look whether the GID index in use still holds the same address; if not, make the connections again" [];
    Event 19 "WQ_FATAL" "device" ["a work queue failed"] "look at the kernel's log" [];
    Rtr 1 "EPERM" "configuration" ["a quota or a profile of Verbgate refuses the request", "a device that may not be opened here"] "read the supervisor's log" [];
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
    RegMr 22 "EINVAL" "local application" ["access flags that the device does not have, or remote write without local write", "a length of 0, or one that wraps around"] "check length and access flags" [];
    RegMr 95 "EOPNOTSUPP" "device" ["access rights (remote write, atomics), on-demand paging, or a dma-buf, that the device does not have"] "register ordinary memory, with rights that the device has" [];
    Stall 0 "STALL" "receiving application" ["min_rnr_timer is 0, which is 655 ms, and rnr_retry 7, which is for ever: one missing receive stalls everything", "the peer posts no receives", "PFC pauses the sender"] "set min_rnr_timer to 12 and rnr_retry below 7; look at RNR and pause counters" ["rnr_nak_retry_err", "out_of_buffer", "rcvd_rnr_err", "send_rnr_err"];
}

/// What libraries write in place of a number: `ibv_wc_status_str`, `ibv_event_type_str`, UCX.
#[rustfmt::skip]
pub(super) const PHRASES: &[(Of, i32, &str)] = &[
    (Of::Completion, 1, "local length error"),
    (Of::Completion, 2, "local qp operation"),
    (Of::Completion, 4, "local protection"),
    (Of::Completion, 5, "work request flushed"),
    (Of::Completion, 5, "wr flushed"),
    (Of::Completion, 6, "memory management operation error"),
    (Of::Completion, 6, "memory window bind"),
    (Of::Completion, 7, "bad response"),
    (Of::Completion, 8, "local access error"),
    (Of::Completion, 9, "remote invalid request"),
    (Of::Completion, 10, "remote access"),
    (Of::Completion, 11, "remote operation error"),
    (Of::Completion, 11, "remote qp on"),
    (Of::Completion, 12, "transport retry count"),
    (Of::Completion, 13, "rnr retry count"),
    (Of::Completion, 13, "receive-no-ready retry count"),
    (Of::Completion, 16, "aborted error"),
    (Of::Completion, 20, "response timeout error"),
    (Of::Event, 0, "cq error"),
    (Of::Event, 1, "local work queue catastrophic error"),
    (Of::Event, 2, "invalid request local work queue error"),
    (Of::Event, 3, "local access violation work queue error"),
    (Of::Event, 7, "path migration request error"),
    (Of::Event, 8, "local catastrophic error"),
    (Of::Event, 9, "port active"),
    (Of::Event, 10, "port error"),
    (Of::Event, 11, "lid change"),
    (Of::Event, 12, "p_key change"),
    (Of::Event, 13, "sm change"),
    (Of::Event, 14, "srq catastrophic error"),
    (Of::Event, 15, "srq limit reached"),
    (Of::Event, 16, "last wqe reached"),
    (Of::Event, 17, "client reregistration"),
    (Of::Event, 18, "gid table change"),
];

/// What strerror(3) writes in place of an errno.
pub(super) const ERRNOS: &[(i32, &str)] = &[
    (1, "operation not permitted"),
    (12, "cannot allocate memory"),
    (14, "bad address"),
    (19, "no such device"),
    (22, "invalid argument"),
    (61, "no data available"),
    (95, "operation not supported"),
    (97, "address family not supported"),
    (101, "network is unreachable"),
    (110, "connection timed out"),
    (113, "no route to host"),
];

/// Codes of mlx5 behind a completion's status: its number, whether it is the completion's
/// `vendor_err` (or else the syndrome beside it), the status with which it comes, and what it tells.
/// Syndromes: `enum mlx5_cqe_syndrome` of linux/mlx5/device.h. No document lists vendor errors: these
/// are those that logs of users have, each always with its status.
#[rustfmt::skip]
pub(super) const MLX5: &[(i32, bool, i32, &str)] = &[
    (0x01, false, 1, "local length error"),
    (0x02, false, 2, "local queue pair operation error"),
    (0x04, false, 4, "local protection error"),
    (0x05, false, 5, "flushed"),
    (0x06, false, 6, "memory window bind error"),
    (0x10, false, 7, "bad response"),
    (0x11, false, 8, "local access error"),
    (0x12, false, 9, "remote invalid request"),
    (0x13, false, 10, "remote access error"),
    (0x14, false, 11, "remote operation error"),
    (0x15, false, 12, "transport retries exceeded"),
    (0x16, false, 13, "RNR retries exceeded"),
    (0x22, false, 16, "aborted by the peer"),
    (0x51, true, 4, "a local key, address or length is wrong; with GPU memory, the NIC cannot reach the GPU (peer memory, ACS, IOMMU)"),
    (0x81, true, 12, "no acknowledgement came within timeout and retry_cnt"),
    (0x87, true, 13, "the peer had no receive within rnr_retry"),
    (0x88, true, 10, "the peer refused key, address or right"),
    (0x89, true, 11, "the peer could not finish the operation"),
    (0x8a, true, 9, "the peer refused the request as invalid"),
    (0xf5, true, 5, "flushed after an earlier error"),
    (0xf9, true, 5, "flushed after an earlier error"),
];
