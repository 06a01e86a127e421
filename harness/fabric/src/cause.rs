//! Causes: the faults that a fabric can have, each with the name that reports, scripts and tests
//! use.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

/// A cause. In the order of what explains what: a rail that is down also has neighbours that do not
/// answer, and packets that are lost.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// A device that is not there, or does not open.
    NoDevice,
    MemlockTooSmall,
    AsymmetricRails,
    RailDown,
    /// A GID index that is empty, or of no network device of this namespace.
    WrongGid,
    /// A partition key that the port does not have.
    WrongPkey,
    /// RoCE v1 against RoCE v2.
    GidTypeMismatch,
    /// IPv4 against IPv6.
    AddressFamilyMismatch,
    MtuMismatch,
    /// Another NIC answers for the peer's address.
    ArpFlux,
    WrongRoute,
    NoNeighbour,
    /// It did not come to the rendezvous.
    PeerAbsent,
    PeerRestarted,
    PeerKilled,
    PeerHangs,
    SegmentCount,
    WrongRkey,
    NoReceives,
    LocalError,
    CannotConnect,
    /// The events of rdma_cm(7) that tell why there is no connection.
    AddrError,
    RouteError,
    Unreachable,
    Rejected,
    ConnectError,
    Disconnected,
    /// Short packets arrive, and those as long as the path's MTU do not.
    PathMtu,
    /// Packets of the traffic class are dropped under load, at one end or at both.
    LossyClass,
    PacketLoss,
    /// Neighbours and routes are right, and no packet of RDMA arrives.
    NothingArrives,
    Stall,
    DataDiffers,
    /// A completion status of another class, or a verb that failed.
    Failed,
    /// Connections to the rendezvous that were nobody's.
    StrayConnections,
}

/// Each cause, its name, and the remedy for whoever knows no more.
#[rustfmt::skip]
const TABLE: &[(Cause, &str, &str)] = &[
    (Cause::NoDevice, "no-device", "load the driver, and grant the device to the sandbox"),
    (Cause::MemlockTooSmall, "memlock-too-small", "raise `ulimit -l`, or LimitMEMLOCK of the \
                                                   service"),
    (Cause::AsymmetricRails, "asymmetric-rails", "name the same number of rails of one kind on \
                                                  each rank, by --device"),
    (Cause::RailDown, "rail-down", "bring the network device up, and look at cable and switch port"),
    (Cause::WrongGid, "wrong-gid", "choose a RoCE v2 GID of a network device of this namespace, by --device DEVICE@INDEX"),
    (Cause::WrongPkey, "wrong-pkey", "put the port into the partition at the subnet manager, or choose another by --pkey"),
    (Cause::GidTypeMismatch, "gid-type-mismatch", "choose a RoCE v2 index on each rank, by --device DEVICE@INDEX"),
    (Cause::AddressFamilyMismatch, "address-family-mismatch", "choose GIDs of IPv4 addresses, or of IPv6, on all ranks, by --device DEVICE@INDEX"),
    (Cause::MtuMismatch, "mtu-mismatch", "set the same MTU on each rail's network devices and on the switches between"),
    (Cause::ArpFlux, "arp-flux", "set arp_ignore=1 and arp_announce=2 on the NICs of the rank that is asked for (`verbgate netdev move` does), then `ip neighbour flush all`"),
    (Cause::WrongRoute, "wrong-route", "give each rail a routing table and a source rule (`verbgate netdev move` does)"),
    (Cause::NoNeighbour, "no-neighbour", "look at cable, VLAN and switch: the peer's address is not answered for"),
    (Cause::PeerAbsent, "peer-absent", "look whether the rank was started, and whether its host reaches the rendezvous"),
    (Cause::PeerRestarted, "peer-restarted", "start all ranks again: the queue pairs of a process that has ended are gone"),
    (Cause::PeerKilled, "peer-killed", "read the rank's output, and the kernel log of the rank's host (out of memory?)"),
    (Cause::PeerHangs, "peer-hangs", "look where the rank waits: `cat /proc/PID/stack`"),
    (Cause::SegmentCount, "segment-count", "build messages by one table of kinds on both sides"),
    (Cause::WrongRkey, "wrong-rkey", "exchange address, length and rkey again; check the peer's access flags"),
    (Cause::NoReceives, "no-receives", "post receives before the peer may send; set rnr_retry and min_rnr_timer"),
    (Cause::LocalError, "local-error", "check keys, addresses, lengths and operations of the work request"),
    (Cause::CannotConnect, "cannot-connect", "look at GID type, address family, route and neighbour of both ends"),
    (Cause::AddrError, "addr-error", "look at address, route and neighbour of the peer (`ip route get`, `ip neighbour`), and that the route's network device has an RDMA device"),
    (Cause::RouteError, "route-error", "look at the subnet manager on InfiniBand, and at link and MTU of the network device on RoCE"),
    (Cause::Unreachable, "unreachable", "let UDP port 4791 through firewalls both ways; look at MTU, VLANs and link counters, and that the peer's process answers"),
    (Cause::Rejected, "rejected", "start the listener before the peers, at the port and address that they use; see the reason for a program that refuses"),
    (Cause::ConnectError, "connect-error", "look at GID, P_Key and MTU of both ends; the error names the step"),
    (Cause::Disconnected, "disconnected", "read the output of the rank that ended the connection"),
    (Cause::PathMtu, "path-mtu", "set the MTU of every switch and router on the way to that of the NICs and more (RoCE adds up to 100 bytes), or the NICs' MTU to the way's"),
    (Cause::LossyClass, "lossy-class", "give the class that is lossless, by --traffic-class and to the job (`verbgate nccl env`), and set PFC, trust and DSCP maps alike on all ports"),
    (Cause::PacketLoss, "packet-loss", "look at drops and pauses of the NICs and switch ports between them: PFC, ECN, cables"),
    (Cause::NothingArrives, "nothing-arrives", "let UDP port 4791 through firewalls, and look at VLANs and the switch"),
    (Cause::Stall, "stall", "set min_rnr_timer to 12 and rnr_retry below 7; look at RNR and pause counters"),
    (Cause::DataDiffers, "data-differs", "look at memory, IOMMU and the NIC's firmware: the checksums on the wire were right"),
    (Cause::Failed, "failed", "see `verbgate explain` for the status"),
    (Cause::StrayConnections, "stray-connections", "they do no harm; keep port scanners and monitoring off the rendezvous port"),
];

impl Cause {
    fn row(self) -> (&'static str, &'static str) {
        let found = TABLE.iter().find(|(cause, ..)| *cause == self);
        found.map_or(("", ""), |(_, name, remedy)| (name, remedy))
    }

    pub(crate) fn name(self) -> &'static str {
        self.row().0
    }

    pub(crate) fn remedy(self) -> &'static str {
        self.row().1
    }

    /// Paths of which this is known are used nevertheless.
    pub(crate) fn is_usable(self) -> bool {
        self == Self::LossyClass
    }

    /// Of an `enum ibv_wc_status` that is no success.
    pub(crate) fn of_status(status: u32) -> Self {
        match status {
            10 => Self::WrongRkey,
            13 => Self::NoReceives,
            1..=4 | 6 | 8 => Self::LocalError,
            // What it is of is decided by what else is known.
            7 | 12 | 20 => Self::NothingArrives,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_the_name_that_json_gives_it_and_a_remedy() {
        for (cause, name, remedy) in TABLE {
            assert_eq!(serde_json::to_value(cause).unwrap(), *name);
            assert!(!remedy.is_empty());
            assert_eq!(cause.to_string(), *name);
        }
        let last = Cause::StrayConnections as usize;
        assert_eq!(TABLE.len(), last + 1);
        assert!(TABLE.is_sorted_by_key(|(cause, ..)| *cause));
    }
}
