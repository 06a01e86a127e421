//! The peers of a request that changes a queue pair: whom a connected queue pair speaks with.
//!
//! A queue pair takes packets by number and sequence number; whoever else names that number in a
//! queue pair of the same address can speak in its peer's name.

use crate::request::Request;
use crate::wire::GidIndex;
use crate::wire::Handle;

/// `enum ib_qp_attr_mask`, include/rdma/ib_verbs.h.
const STATE: u64 = 1 << 0;
const AV: u64 = 1 << 7;
const ALT_PATH: u64 = 1 << 14;
const DEST_QPN: u64 = 1 << 20;
/// `IB_QPS_RESET`.
const RESET: u64 = 0;

/// Where the peer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Destination {
    /// By a global route.
    Gid([u8; 16]),
    /// In the subnet of an InfiniBand port.
    Lid(u16),
}

/// A path to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerPath {
    /// The port that it begins at, from 1.
    pub port: u32,
    /// The entry of that port's GID table, with a global route.
    pub source: Option<GidIndex>,
    /// Where it leads.
    pub destination: Destination,
}

/// What MODIFY_QP says of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect {
    /// The queue pair.
    pub qp: Handle,
    /// Whether it forgets its peer.
    pub resets: bool,
    /// The number of the peer's queue pair, if it is set.
    pub number: Option<u32>,
    /// The paths that are set: the primary one, and the alternate one.
    pub paths: Vec<PeerPath>,
}

/// The commands, and where their `struct ib_uverbs_modify_qp` is.
const COMMANDS: &[(&str, &str)] = &[("MODIFY_QP", ""), ("EX_MODIFY_QP", "base.")];

impl Request {
    /// What it says of a queue pair's peer; nothing of any other request.
    #[must_use]
    pub fn connect(&self) -> Option<Connect> {
        let name = self.legacy()?.spec.short_name;
        let (_, base) = COMMANDS.iter().find(|(command, _)| *command == name)?;
        let number = |path: &str| self.legacy_field(&format!("{base}{path}")).unwrap_or_default();
        let small = |path: &str| u32::try_from(number(path)).unwrap_or(u32::MAX);
        let mask = number("attr_mask");
        let path = |bit: u64, of: &str| {
            let is_global = number(&format!("{of}.is_global")) != 0;
            let lid = u16::try_from(number(&format!("{of}.dlid"))).unwrap_or(u16::MAX);
            (mask & bit != 0).then(|| PeerPath {
                port: small(&format!("{of}.port_num")),
                source: is_global.then(|| GidIndex(small(&format!("{of}.sgid_index")))),
                destination: match is_global {
                    true => Destination::Gid(self.gid_at(&format!("{base}{of}.dgid"))),
                    false => Destination::Lid(lid),
                },
            })
        };
        Some(Connect {
            qp: Handle(small("qp_handle")),
            resets: mask & STATE != 0 && number("qp_state") == RESET,
            number: (mask & DEST_QPN != 0).then(|| small("dest_qp_num")),
            paths: [(AV, "dest"), (ALT_PATH, "alt_dest")]
                .into_iter()
                .filter_map(|(bit, of)| path(bit, of))
                .collect(),
        })
    }

    fn gid_at(&self, path: &str) -> [u8; 16] {
        let field = self.legacy().and_then(|legacy| legacy.spec.req.field(path));
        let bytes = field.and_then(|field| self.core_in().get(usize::from(field.offset)..));
        bytes.and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy;

    #[test]
    fn every_field_is_one_of_its_command() {
        for (command, base) in COMMANDS {
            let mut specs = legacy::commands().iter();
            let spec = specs.find(|spec| spec.short_name == *command).unwrap();
            let dest = ["dgid", "dlid", "is_global", "port_num", "sgid_index"];
            let dest = dest.iter().flat_map(|f| [format!("dest.{f}"), format!("alt_dest.{f}")]);
            let own = ["attr_mask", "qp_handle", "qp_state", "dest_qp_num"].map(str::to_owned);
            for path in own.into_iter().chain(dest) {
                assert!(spec.req.field(&format!("{base}{path}")).is_some(), "{command}: {path}");
            }
            let gid = spec.req.field(&format!("{base}alt_dest.dgid")).unwrap();
            assert_eq!(
                (gid.size, gid.offset),
                (16, spec.req.field(&format!("{base}dest.dgid")).unwrap().offset + 32)
            );
        }
    }

    #[test]
    fn no_command_names_another_queue_pair() {
        let named = legacy::commands().iter().filter(|spec| {
            ["", "base."].iter().any(|b| spec.req.field(&format!("{b}dest_qp_num")).is_some())
        });
        assert_eq!(named.count(), COMMANDS.len());
    }
}
