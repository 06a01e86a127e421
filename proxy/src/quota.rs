//! Quotas: the quantities that a tenant has a bound of, and how much of each a request takes.
//!
//! A request is charged by what the supervisor has copied and decoded, and by the kernel's result.
//! The handle of a new object comes by way of memory that the guest can write, so nobody here asks
//! which object of a kind a request destroys: of amounts that differ (bytes of regions, entries of
//! completion queues), the smallest is released first. So the charge is never below what exists, and
//! it is what exists when all of a kind are of one size, or none is left.

use verbgate_abi::Errno;
use verbgate_abi::ids;
use verbgate_abi::request::Request;
use verbgate_abi::table::Access;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::values::Meaning;

/// A quantity of which a tenant can have a quota.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Resource {
    /// Opens of verbs devices.
    Ucontexts,
    /// Objects of every kind that has handles, drivers' own included.
    Objects,
    /// Protection domains.
    Pd,
    /// Memory regions.
    Mr,
    /// Memory windows.
    Mw,
    /// Completion queues.
    Cq,
    /// Queue pairs.
    Qp,
    /// Shared receive queues.
    Srq,
    /// Work queues.
    Wq,
    /// Address handles.
    Ah,
    /// Regions of device memory.
    Dm,
    /// Steering rules.
    Flow,
    /// XRC domains.
    Xrcd,
    /// Bytes of memory regions, but for those that are paged on demand.
    MrBytes,
    /// Entries of completion queues.
    Cqe,
    /// Work requests that queue pairs and receive queues hold.
    Wr,
    /// Ids of rdma_cm.
    CmIds,
    /// Multicast groups that ids of rdma_cm have joined, and those that queue pairs are attached to.
    Multicast,
    /// Ids of rdma_cm that have a port of their own.
    Ports,
    /// Connections that may wait at listening ids of rdma_cm.
    Backlog,
}

/// How many quantities there are.
pub const RESOURCES: usize = 20;

/// Quantities with their keys in a policy, by their places.
pub const NAMES: [(Resource, &str); RESOURCES] = [
    (Resource::Ucontexts, "ucontexts"),
    (Resource::Objects, "objects"),
    (Resource::Pd, "pd"),
    (Resource::Mr, "mr"),
    (Resource::Mw, "mw"),
    (Resource::Cq, "cq"),
    (Resource::Qp, "qp"),
    (Resource::Srq, "srq"),
    (Resource::Wq, "wq"),
    (Resource::Ah, "ah"),
    (Resource::Dm, "dm"),
    (Resource::Flow, "flow"),
    (Resource::Xrcd, "xrcd"),
    (Resource::MrBytes, "mr_bytes"),
    (Resource::Cqe, "cqe"),
    (Resource::Wr, "wr"),
    (Resource::CmIds, "cm_ids"),
    (Resource::Multicast, "multicast"),
    (Resource::Ports, "ports"),
    (Resource::Backlog, "backlog"),
];

impl Resource {
    /// The key in a policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(one, _)| *one == self).map_or("?", |(_, name)| name)
    }

    /// The errno of a refusal: objects as the kernel's rdma cgroup refuses them
    /// (`rdmacg_try_charge`, kernel/cgroup/rdma.c), memory as RLIMIT_MEMLOCK does.
    #[must_use]
    pub fn errno(self) -> Errno {
        match self {
            Self::MrBytes | Self::Cqe | Self::Wr => Errno::ENOMEM,
            _ => Errno::EAGAIN,
        }
    }

    /// The count of a kind of object, if there is one of that kind alone.
    fn of(object: ObjectRef) -> Option<Self> {
        KINDS.iter().find(|(kind, _)| *kind == object).map(|(_, resource)| *resource)
    }

    /// What an object of a counted kind has an amount of.
    pub(crate) fn sized(self) -> Option<Self> {
        match self {
            Self::Mr => Some(Self::MrBytes),
            Self::Cq => Some(Self::Cqe),
            Self::Qp | Self::Srq | Self::Wq => Some(Self::Wr),
            _ => None,
        }
    }
}

const KINDS: [(ObjectRef, Resource); 11] = [
    (ids::UVERBS_OBJECT_PD, Resource::Pd),
    (ids::UVERBS_OBJECT_MR, Resource::Mr),
    (ids::UVERBS_OBJECT_MW, Resource::Mw),
    (ids::UVERBS_OBJECT_CQ, Resource::Cq),
    (ids::UVERBS_OBJECT_QP, Resource::Qp),
    (ids::UVERBS_OBJECT_SRQ, Resource::Srq),
    (ids::UVERBS_OBJECT_WQ, Resource::Wq),
    (ids::UVERBS_OBJECT_AH, Resource::Ah),
    (ids::UVERBS_OBJECT_DM, Resource::Dm),
    (ids::UVERBS_OBJECT_FLOW, Resource::Flow),
    (ids::UVERBS_OBJECT_XRCD, Resource::Xrcd),
];

/// An amount of each quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amounts([u64; RESOURCES]);

impl Amounts {
    /// So much of one.
    #[must_use]
    pub fn of(resource: Resource, amount: u64) -> Self {
        let mut all = Self::default();
        all.add(resource, amount);
        all
    }

    /// The amount of one.
    #[must_use]
    pub fn get(&self, resource: Resource) -> u64 {
        self.0.get(resource as usize).copied().unwrap_or(0)
    }

    /// So much more of one. What does not fit is the most that there is.
    pub fn add(&mut self, resource: Resource, amount: u64) {
        if let Some(own) = self.0.get_mut(resource as usize) {
            *own = own.saturating_add(amount);
        }
    }

    /// These, and others.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut all = *self;
        other.some().for_each(|(resource, amount)| all.add(resource, amount));
        all
    }

    /// These without others.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut all = *self;
        for (own, less) in all.0.iter_mut().zip(other.0) {
            *own = own.saturating_sub(less);
        }
        all
    }

    /// Those of which there is some.
    pub fn some(&self) -> impl Iterator<Item = (Resource, u64)> {
        NAMES.iter().map(|(resource, _)| (*resource, self.get(*resource))).filter(|one| one.1 > 0)
    }

    /// As bytes, in the order of [`NAMES`].
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|amount| amount.to_ne_bytes()).collect()
    }

    /// What [`Amounts::bytes`] gave.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        for (own, word) in all.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *own = u64::from_ne_bytes(*word);
        }
        all
    }
}

/// The bounds in force: none where there is no bound.
pub(crate) type Bounds<'a> = &'a dyn Fn(Resource) -> Option<u64>;

/// What a request changes, if the kernel makes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Takes {
    /// New objects of counted kinds, and how large each is.
    pub(crate) made: Vec<(Option<Resource>, u64)>,
    /// Kinds of objects that are destroyed.
    pub(crate) destroyed: Vec<Option<Resource>>,
    /// The kind of an object that gets another size.
    pub(crate) resized: Option<(Resource, u64)>,
    /// Whether a queue pair is attached to a multicast group. The kernel takes a group twice for once, so
    /// there are never more than were attached and not detached, in whatever order results come.
    pub(crate) attaches: bool,
    /// Whether a queue pair is detached.
    pub(crate) detaches: bool,
}

impl Takes {
    /// What a request takes and gives back.
    pub(crate) fn of(request: &Request) -> Self {
        let made = request.new_handles().map(|new| Resource::of(new.object));
        let made = made.map(|kind| (kind, size(request, kind))).collect();
        let destroyed = request.handles().filter(|used| used.access == Access::Destroy);
        let destroyed = destroyed.map(|used| Resource::of(used.object)).collect();
        let is = |name| request.operation() == name;
        let (attaches, detaches) = (is("ATTACH_MCAST"), is("DETACH_MCAST"));
        Self { made, destroyed, resized: resized(request), attaches, detaches }
    }

    /// Whether nothing changes.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What is charged before the request is made.
    pub(crate) fn charge(&self) -> Amounts {
        let mut all = Amounts::default();
        for (kind, size) in &self.made {
            all = all.plus(&one(*kind, *size));
        }
        if let Some((kind, size)) = self.resized
            && let Some(sized) = kind.sized()
        {
            all.add(sized, size);
        }
        all.add(Resource::Multicast, self.attaches.into());
        all
    }
}

/// What an object of a kind and a size counts.
pub(crate) fn one(kind: Option<Resource>, size: u64) -> Amounts {
    let mut all = Amounts::of(Resource::Objects, 1);
    if let Some(kind) = kind {
        all.add(kind, 1);
        if let Some(sized) = kind.sized() {
            all.add(sized, size);
        }
    }
    all
}

/// `IB_ACCESS_ON_DEMAND`: pages are not pinned.
const ON_DEMAND: u64 = 1 << 6;

/// How large an object is that a request makes.
fn size(request: &Request, kind: Option<Resource>) -> u64 {
    let field = |path| request.legacy_field(path);
    let word = |id| request.value(id);
    match kind {
        Some(Resource::Mr) => region(request),
        Some(Resource::Cq) => field("cqe").or_else(|| word(ids::UVERBS_ATTR_CREATE_CQ_CQE)),
        Some(Resource::Qp) => match request.legacy() {
            Some(_) => {
                let of = |path| field(path).unwrap_or(0);
                Some(of("max_send_wr").saturating_add(of("max_recv_wr")))
            }
            None => request.attr(ids::UVERBS_ATTR_CREATE_QP_CAP).map(|cap| {
                // struct ib_uverbs_qp_cap: max_send_wr and max_recv_wr are the first.
                let words = request.bytes(cap).as_chunks::<4>().0.iter().take(2);
                words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
            }),
        },
        Some(Resource::Srq) => field("max_wr").or_else(|| word(ids::UVERBS_ATTR_CREATE_SRQ_MAX_WR)),
        Some(Resource::Wq) => field("max_wr").or_else(|| word(ids::UVERBS_ATTR_CREATE_WQ_MAX_WR)),
        _ => None,
    }
    .unwrap_or(0)
}

/// Bytes that a request registers.
fn region(request: &Request) -> Option<u64> {
    // A part of the device's own memory.
    if request.operation() == "DM_MR_REG" {
        return None;
    }
    let of = |meaning| request.values().find(|value| value.meaning == meaning);
    let on_demand = of(Meaning::Access).is_some_and(|access| access.number & ON_DEMAND != 0);
    of(Meaning::RegionBytes).filter(|_| !on_demand).map(|value| value.number)
}

/// `IB_MR_REREG_TRANS`, include/rdma/ib_verbs.h.
const REREG_TRANS: u64 = 1;
/// `IB_SRQ_MAX_WR`, include/rdma/ib_verbs.h.
const SRQ_MAX_WR: u64 = 1;

/// The object that gets another size by a request.
fn resized(request: &Request) -> Option<(Resource, u64)> {
    let field = |path| request.legacy_field(path).unwrap_or(0);
    match request.operation() {
        "REREG_MR" if field("flags") & REREG_TRANS != 0 => Some((Resource::Mr, field("length"))),
        "RESIZE_CQ" => Some((Resource::Cq, field("cqe"))),
        "MODIFY_SRQ" if field("attr_mask") & SRQ_MAX_WR != 0 => {
            Some((Resource::Srq, field("max_wr")))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "quota/tests.rs"]
mod tests;
