//! The text of policies, as serde reads it: every key is known, and every name has its place.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use toml::Spanned;

use super::private::PrivateText;
use super::ranges::Predicate;
use crate::pace::CLASS_NAMES;
use crate::pace::VerbClass;
use crate::quota::NAMES;
use crate::quota::Resource;

/// A name with its place.
pub(super) type Name = Spanned<String>;

/// A file of `policy.d`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct FileText {
    pub(super) version: Spanned<u32>,
    #[serde(default)]
    pub(super) profile: BTreeMap<Name, ProfileText>,
    #[serde(default)]
    pub(super) tenant: BTreeMap<Name, TenantText>,
}

/// A profile.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileText {
    /// Of a profile that stands alone; in a file, the heading is the name.
    pub(super) name: Option<Name>,
    /// Another profile, all of which is granted too.
    pub(super) extends: Option<Name>,
    /// Every method, command and queue pair type.
    #[serde(default)]
    pub(super) everything: bool,
    /// The connection manager, `/dev/infiniband/rdma_cm`.
    pub(super) rdma_cm: Option<bool>,
    #[serde(default)]
    pub(super) qp_types: Vec<Name>,
    #[serde(default)]
    pub(super) methods: Vec<Name>,
    #[serde(default)]
    pub(super) commands: Vec<Name>,
    /// What is taken from the profile that this one extends.
    #[serde(default)]
    pub(super) remove: NamesText,
    /// Limits on values.
    #[serde(default)]
    pub(super) rules: RulesText,
    /// What is granted of drivers' private input.
    #[serde(default)]
    pub(super) private: PrivateText,
}

impl ProfileText {
    /// Whether the profile grants and removes nothing by itself.
    pub(super) fn grants_nothing(&self) -> bool {
        let Self { everything, rdma_cm, qp_types, methods, commands, remove, private, .. } = self;
        let lists =
            [qp_types, methods, commands, &remove.qp_types, &remove.methods, &remove.commands];
        !everything
            && rdma_cm.is_none()
            && private.is_empty()
            && lists.iter().all(|list| list.is_empty())
    }
}

/// Limits on values, each by what the value is.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RulesText {
    /// Access flags that memory and queue pairs may have.
    pub(super) access: Option<Vec<Name>>,
    /// Bytes of a memory region.
    pub(super) region_bytes: Option<Predicate>,
    /// Ranges of the destinations' addresses.
    pub(super) peers: Option<Vec<Name>>,
    /// Ranges of ports that rdma_cm's ids are bound to.
    pub(super) ports: Option<Vec<Name>>,
    /// Numbers of destination queue pairs.
    pub(super) peer_qp: Option<Predicate>,
    pub(super) service_level: Option<Predicate>,
    pub(super) traffic_class: Option<Predicate>,
    /// `enum ib_rate` of paths.
    pub(super) static_rate: Option<Predicate>,
    /// Kilobits a second of a queue pair.
    pub(super) rate_limit: Option<Predicate>,
    /// Completion vectors.
    pub(super) vector: Option<Spanned<VectorText>>,
    /// P_Keys that a queue pair may have.
    pub(super) pkeys: Option<Vec<u16>>,
    /// Types of the source's GID.
    pub(super) gid_types: Option<Vec<Name>>,
    /// The most that the tenant may hold of each quantity.
    pub(super) quota: Option<QuotaText>,
    /// How often the tenant makes requests.
    pub(super) rate: Option<Spanned<RateText>>,
    /// The same of classes of verbs.
    #[serde(default)]
    pub(super) rates: RatesText,
    /// Whether UD passes where others speak by the port.
    pub(super) shared_ud: Option<bool>,
    /// Any number in a request, by command or method, and by field or attribute.
    #[serde(default)]
    pub(super) fields: BTreeMap<Name, BTreeMap<Name, Predicate>>,
}

/// Which completion vectors pass.
#[derive(Deserialize, Debug)]
#[serde(untagged, expecting = "write a table of only, min, max or mask")]
pub(super) enum VectorText {
    /// These.
    Numbers(Predicate),
    /// Those of some processors, which nobody can tell.
    Word(String),
}

/// Quotas, by the names of quantities.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaText {
    pub(super) ucontexts: Option<u64>,
    pub(super) objects: Option<u64>,
    pub(super) pd: Option<u64>,
    pub(super) mr: Option<u64>,
    pub(super) mw: Option<u64>,
    pub(super) cq: Option<u64>,
    pub(super) qp: Option<u64>,
    pub(super) srq: Option<u64>,
    pub(super) wq: Option<u64>,
    pub(super) ah: Option<u64>,
    pub(super) dm: Option<u64>,
    pub(super) flow: Option<u64>,
    pub(super) xrcd: Option<u64>,
    pub(super) mr_bytes: Option<u64>,
    pub(super) cqe: Option<u64>,
    pub(super) wr: Option<u64>,
    pub(super) cm_ids: Option<u64>,
    pub(super) multicast: Option<u64>,
    pub(super) ports: Option<u64>,
    pub(super) backlog: Option<u64>,
}

impl QuotaText {
    /// The quotas that are given.
    pub(super) fn given(&self) -> impl Iterator<Item = (Resource, u64)> {
        let of = |resource| match resource {
            Resource::Ucontexts => self.ucontexts,
            Resource::Objects => self.objects,
            Resource::Pd => self.pd,
            Resource::Mr => self.mr,
            Resource::Mw => self.mw,
            Resource::Cq => self.cq,
            Resource::Qp => self.qp,
            Resource::Srq => self.srq,
            Resource::Wq => self.wq,
            Resource::Ah => self.ah,
            Resource::Dm => self.dm,
            Resource::Flow => self.flow,
            Resource::Xrcd => self.xrcd,
            Resource::MrBytes => self.mr_bytes,
            Resource::Cqe => self.cqe,
            Resource::Wr => self.wr,
            Resource::CmIds => self.cm_ids,
            Resource::Multicast => self.multicast,
            Resource::Ports => self.ports,
            Resource::Backlog => self.backlog,
        };
        NAMES.iter().filter_map(move |(resource, _)| Some((*resource, of(*resource)?)))
    }
}

/// A rate of requests.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct RateText {
    pub(super) per_s: u64,
    /// `per_s`, if there is none.
    pub(super) burst: Option<u64>,
    #[serde(default)]
    pub(super) exceed: Exceed,
}

/// Rates of classes of verbs.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RatesText {
    pub(super) memory: Option<Spanned<ClassRateText>>,
    pub(super) queues: Option<Spanned<ClassRateText>>,
    pub(super) connections: Option<Spanned<ClassRateText>>,
    pub(super) rdma_cm: Option<Spanned<ClassRateText>>,
}

impl RatesText {
    /// The rates that are given.
    pub(super) fn given(&self) -> impl Iterator<Item = (VerbClass, &Spanned<ClassRateText>)> {
        let of = |class| match class {
            VerbClass::Memory => self.memory.as_ref(),
            VerbClass::Queues => self.queues.as_ref(),
            VerbClass::Connections => self.connections.as_ref(),
            VerbClass::RdmaCm => self.rdma_cm.as_ref(),
        };
        CLASS_NAMES.iter().filter_map(move |(class, _)| Some((*class, of(*class)?)))
    }
}

/// A rate of requests of a class.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassRateText {
    pub(super) per_s: u64,
    /// `per_s`, if there is none.
    pub(super) burst: Option<u64>,
    #[serde(default)]
    pub(super) exceed: Exceed,
    pub(super) warm: Option<TierText>,
    pub(super) hot: Option<TierText>,
}

/// A slower rate.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct TierText {
    /// Percent of a quota.
    pub(super) from: u64,
    pub(super) per_s: u64,
}

/// The fate of a request beyond the rate.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Exceed {
    #[default]
    #[serde(rename = "wait")]
    Wait,
    #[serde(rename = "EAGAIN")]
    Again,
}

/// Names to take away.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct NamesText {
    #[serde(default)]
    pub(super) qp_types: Vec<Name>,
    #[serde(default)]
    pub(super) methods: Vec<Name>,
    #[serde(default)]
    pub(super) commands: Vec<Name>,
}

/// A tenant.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantText {
    pub(super) r#match: Spanned<MatchText>,
    pub(super) profile: Name,
    /// Limits on values, in the place of those that the profile has for the same values.
    #[serde(default)]
    pub(super) rules: RulesText,
    pub(super) devices: Spanned<Vec<Spanned<DeviceText>>>,
    /// Bytes that a process may lock.
    pub(super) memlock: Option<u64>,
    /// Capabilities with which the agent refuses a container.
    #[serde(default)]
    pub(super) refuse_capabilities: Vec<Name>,
}

/// Who is the tenant; all conditions that are given must hold.
#[derive(Deserialize, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(super) struct MatchText {
    /// Annotations of a container, and patterns of their values.
    #[serde(default)]
    pub(super) annotation: BTreeMap<String, String>,
    /// The user who starts `verbgate run`.
    pub(super) uid: Option<u32>,
    /// Pattern of the systemd unit.
    pub(super) unit: Option<String>,
    /// Pattern of the path in the cgroup hierarchy.
    pub(super) cgroup: Option<String>,
    /// Pattern of the names of all of a container's claims.
    pub(super) claim: Option<String>,
    /// Pattern of the tenants that all their classes name.
    pub(super) claim_tenant: Option<String>,
}

/// A device; all that is given must be the device's.
#[derive(Deserialize, Serialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceText {
    /// The PCI function, as `0000:3b:00.2`.
    pub(super) pci: Option<String>,
    /// Pattern of the device's name, or of its node's.
    pub(super) name: Option<String>,
    /// Ports, from 1; all when there are none.
    pub(super) ports: Option<Vec<u32>>,
}
