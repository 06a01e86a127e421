//! Paces: how often a tenant makes requests, all together, and of each class of verbs.
//!
//! Verbs cost a NIC differently: a connection takes the NIC's memory for contexts, a region its
//! translation tables. So a policy can bound the classes apart, and slow a class down further as the
//! tenant holds more of its quota: the class is cold, then warm, then hot.

use verbgate_abi::ids;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::legacy::legacy;
use verbgate_abi::request::Request;
use verbgate_abi::table::Access;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::CmdHdr;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::IoctlHdr;
use zerocopy::FromBytes as _;

use crate::fetch::Form;
use crate::quota::Amounts;
use crate::quota::Bounds;
use crate::quota::Resource;

/// How often a tenant makes requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Requests in a second.
    pub per_s: u64,
    /// Requests at once.
    pub burst: u64,
    /// Whether a request beyond that waits; else the request fails with EAGAIN.
    pub waits: bool,
}

impl Pace {
    /// The slower of two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            per_s: self.per_s.min(other.per_s),
            burst: self.burst.min(other.burst),
            waits: self.waits && other.waits,
        }
    }
}

/// A class of verbs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum VerbClass {
    /// Of memory regions, memory windows and device memory.
    Memory,
    /// Of completion queues, shared receive queues and work queues.
    Queues,
    /// Of queue pairs, address handles, steering rules and XRC domains.
    Connections,
    /// Commands of rdma_cm.
    RdmaCm,
}

/// How many classes there are.
pub const CLASSES: usize = 4;

/// All classes, with their keys in a policy, by their places.
pub const CLASS_NAMES: [(VerbClass, &str); CLASSES] = [
    (VerbClass::Memory, "memory"),
    (VerbClass::Queues, "queues"),
    (VerbClass::Connections, "connections"),
    (VerbClass::RdmaCm, "rdma_cm"),
];

/// Those of verbs devices.
const VERBS: [VerbClass; 3] = [VerbClass::Memory, VerbClass::Queues, VerbClass::Connections];

/// Commands that move data, on devices whose doorbells are commands.
const DATA: [&str; 5] = ["POST_SEND", "POST_RECV", "POST_SRQ_RECV", "POLL_CQ", "REQ_NOTIFY_CQ"];

const OBJECTS: [(ObjectRef, VerbClass); 11] = [
    (ids::UVERBS_OBJECT_MR, VerbClass::Memory),
    (ids::UVERBS_OBJECT_MW, VerbClass::Memory),
    (ids::UVERBS_OBJECT_DM, VerbClass::Memory),
    (ids::UVERBS_OBJECT_CQ, VerbClass::Queues),
    (ids::UVERBS_OBJECT_SRQ, VerbClass::Queues),
    (ids::UVERBS_OBJECT_WQ, VerbClass::Queues),
    (ids::UVERBS_OBJECT_RWQ_IND_TBL, VerbClass::Queues),
    (ids::UVERBS_OBJECT_QP, VerbClass::Connections),
    (ids::UVERBS_OBJECT_AH, VerbClass::Connections),
    (ids::UVERBS_OBJECT_FLOW, VerbClass::Connections),
    (ids::UVERBS_OBJECT_XRCD, VerbClass::Connections),
];

/// Whether a request moves data of objects that live, or ends objects: what a device that the operator
/// has taken away still does.
pub(crate) fn lives_on(request: &Request) -> bool {
    let destroys = request.handles().any(|used| used.access == Access::Destroy);
    DATA.contains(&request.operation()) || destroys && request.new_handles().next().is_none()
}

impl VerbClass {
    /// The key in a policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        CLASS_NAMES.iter().find(|(one, _)| *one == self).map_or("?", |(_, name)| name)
    }

    /// The quantities whose shares make the class warm and hot.
    #[must_use]
    pub fn resources(self) -> &'static [Resource] {
        match self {
            Self::Memory => &[Resource::Mr, Resource::MrBytes],
            Self::Queues => &[Resource::Cq, Resource::Cqe],
            Self::Connections => &[Resource::Qp, Resource::Wr],
            Self::RdmaCm => &[Resource::CmIds],
        }
    }

    /// The classes of a request to a verbs device, by its first bytes: one, or none for requests that
    /// only the whole rate bounds; all for a request whose class these bytes do not show, which
    /// no library makes.
    #[must_use]
    pub fn of(form: Form, bytes: &[u8]) -> &'static [Self] {
        let command = match form {
            Form::Write(_) => {
                CmdHdr::read_from_prefix(bytes).ok().map(|(hdr, _)| hdr.command.into())
            }
            Form::Ioctl(_) => {
                let Ok((hdr, rest)) = IoctlHdr::read_from_prefix(bytes) else { return &VERBS };
                let of_device = hdr.object() == ids::UVERBS_OBJECT_DEVICE.id;
                if !of_device || hdr.method() != ids::UVERBS_METHOD_INVOKE_WRITE {
                    return Self::about(ObjectRef::core(hdr.object_id));
                }
                debug_assert_eq!(bytes.len() - rest.len(), HDR_LEN);
                let attrs = rest.chunks_exact(ATTR_LEN).take(hdr.num_attrs.into());
                let mut attrs = attrs.filter_map(|bytes| Attr::read_from_bytes(bytes).ok());
                attrs
                    .find(|attr| attr.attr_id == ids::UVERBS_ATTR_WRITE_CMD.0)
                    .map(|attr| attr.data)
            }
        };
        command.and_then(legacy).map_or(&VERBS, Self::of_command)
    }

    fn of_command(spec: &'static LegacySpec) -> &'static [Self] {
        if DATA.contains(&spec.short_name) { &[] } else { Self::about(spec.object) }
    }

    fn about(object: ObjectRef) -> &'static [Self] {
        let known = OBJECTS.iter().find(|(one, _)| *one == object);
        known.map_or(&[], |(_, class)| std::slice::from_ref(class))
    }
}

/// A slower pace of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tier {
    /// From this part of a quota on, in percent.
    pub from: u64,
    /// Requests in a second, and at once.
    pub per_s: u64,
}

/// How often a tenant makes requests of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassPace {
    /// While the class is cold.
    pub cold: Pace,
    /// When the tenant holds some of the quota.
    pub warm: Option<Tier>,
    /// When the tenant holds most of the quota.
    pub hot: Option<Tier>,
}

impl ClassPace {
    /// The pace of a tenant that holds such a part of a quota, in percent.
    #[must_use]
    pub fn at(&self, part: u64) -> Pace {
        let tiers = [self.warm, self.hot].into_iter().flatten();
        let reached = tiers.filter(|tier| part >= tier.from);
        reached.fold(self.cold, |pace, Tier { per_s, .. }| {
            pace.and(Pace { per_s, burst: per_s, waits: true })
        })
    }
}

/// The largest part of its quotas that a class holds, in percent.
pub(crate) fn part(class: VerbClass, held: &Amounts, bounds: Bounds<'_>) -> u64 {
    let of = |resource: &Resource| {
        let most = bounds(*resource)?;
        held.get(*resource).saturating_mul(100).checked_div(most)
    };
    class.resources().iter().filter_map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use verbgate_abi::legacy;
    use verbgate_abi::table;
    use zerocopy::IntoBytes as _;

    use super::*;

    fn ioctl(object: u16, method: u16, attrs: &[Attr]) -> Vec<u8> {
        let count = u16::try_from(attrs.len()).unwrap();
        let hdr = IoctlHdr {
            object_id: object,
            method_id: method,
            num_attrs: count,
            ..IoctlHdr::default()
        };
        [hdr.as_bytes(), attrs.as_bytes()].concat()
    }

    fn invoke(command: u64, before: usize) -> Vec<u8> {
        let mut attrs = vec![Attr { attr_id: 0x700, ..Attr::default() }; before];
        let attr_id = ids::UVERBS_ATTR_WRITE_CMD.0;
        attrs.push(Attr { attr_id, len: 8, data: command, ..Attr::default() });
        ioctl(ids::UVERBS_OBJECT_DEVICE.id.0, ids::UVERBS_METHOD_INVOKE_WRITE.0, &attrs)
    }

    #[test]
    fn a_request_is_of_one_class_however_it_is_made() {
        let mut seen = Vec::new();
        for spec in legacy::commands() {
            let word = u32::try_from(spec.write_cmd).unwrap().to_ne_bytes();
            let written = [&word[..], &[0; 4]].concat();
            let class = VerbClass::of(Form::Write(8), &written);
            assert_eq!(VerbClass::of(Form::Ioctl(0), &invoke(spec.write_cmd, 3)), class);
            assert_eq!(
                class.is_empty() && !DATA.contains(&spec.short_name),
                VerbClass::about(spec.object).is_empty()
            );
            seen.extend(class);
        }
        for method in table::methods().iter().filter(|method| !method.is_invoke_write()) {
            let bytes = ioctl(method.object.id.0, method.id.0, &[]);
            assert!(VerbClass::of(Form::Ioctl(0), &bytes).len() <= 1, "{}", method.full_name());
        }
        assert!(VERBS.iter().all(|class| seen.contains(class)));
    }

    #[test]
    fn a_request_that_hides_its_class_is_of_all() {
        for bytes in [&[][..], &[7], &invoke(0x1ff, 0), &invoke(3, 80)[..1024]] {
            assert_eq!(VerbClass::of(Form::Ioctl(0), bytes), VERBS);
        }
        assert_eq!(VerbClass::of(Form::Write(4), &[0xff, 0, 0, 0]), VERBS);
    }

    #[test]
    fn a_class_is_slower_the_more_of_the_quota_is_held() {
        let cold = Pace { per_s: 100, burst: 1000, waits: false };
        let tier = |from, per_s| Some(Tier { from, per_s });
        let pace = ClassPace { cold, warm: tier(50, 10), hot: tier(80, 2) };
        let held = |qp| Amounts::of(Resource::Qp, qp);
        let bound = |resource| (resource == Resource::Qp).then_some(40);
        let at = |qp| pace.at(part(VerbClass::Connections, &held(qp), &bound));
        assert_eq!(at(19), cold);
        assert_eq!(at(20), Pace { per_s: 10, burst: 10, waits: false });
        assert_eq!(at(40), Pace { per_s: 2, burst: 2, waits: false });
        assert_eq!(pace.at(part(VerbClass::Memory, &held(40), &bound)), cold);
        for (at, (class, _)) in CLASS_NAMES.iter().enumerate() {
            assert_eq!(*class as usize, at);
        }
    }
}
