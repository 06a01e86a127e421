//! Limits on values: the numbers and addresses that a request of a granted kind may carry.
//!
//! A limit is data: what the value is ([`Meaning`]) or where the value is (a command or method, and a
//! path), and a [`Predicate`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use toml::Spanned;
use verbgate_abi::legacy;
use verbgate_abi::request::Request;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::values::Meaning;
use verbgate_abi::values::Value;

use super::error::PolicyError;
use super::error::Source;
use super::error::hint;
use super::paces::class_pace;
use super::paces::pace;
use super::paces::words;
use super::ranges::Beyond;
use super::ranges::Net;
use super::ranges::Ports;
use super::ranges::Predicate;
use super::text::Name;
use super::text::QuotaText;
use super::text::RateText;
use super::text::RulesText;
use super::text::VectorText;
use crate::pace::ClassPace;
use crate::pace::Pace;
use crate::pace::Tier;
use crate::pace::VerbClass;
use crate::quota::Resource;

/// `enum ib_uverbs_access_flags`, include/uapi/rdma/ib_user_ioctl_verbs.h.
const ACCESS: [(&str, u64); 11] = [
    ("LOCAL_WRITE", 1 << 0),
    ("REMOTE_WRITE", 1 << 1),
    ("REMOTE_READ", 1 << 2),
    ("REMOTE_ATOMIC", 1 << 3),
    ("MW_BIND", 1 << 4),
    ("ZERO_BASED", 1 << 5),
    ("ON_DEMAND", 1 << 6),
    ("HUGETLB", 1 << 7),
    ("FLUSH_GLOBAL", 1 << 8),
    ("FLUSH_PERSISTENT", 1 << 9),
    ("RELAXED_ORDERING", 1 << 20),
];

/// `enum ib_uverbs_gid_type`, include/uapi/rdma/ib_user_ioctl_verbs.h, as sysfs writes the types.
const GID_TYPES: [(&str, u32); 3] = [("IB", 0), ("RoCE v1", 1), ("RoCE v2", 2)];

/// Limits on values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Limits {
    numbers: BTreeMap<Meaning, Predicate>,
    peers: Option<Vec<Net>>,
    ports: Option<Vec<Ports>>,
    pub(super) pkeys: Option<Vec<u16>>,
    pub(super) gid_types: Option<Vec<u32>>,
    pub(super) quota: BTreeMap<Resource, u64>,
    pub(super) rate: Option<Pace>,
    pub(super) rates: BTreeMap<VerbClass, ClassPace>,
    pub(super) shared_ud: Option<bool>,
    /// By command or method, and by field or attribute.
    fields: BTreeMap<String, BTreeMap<String, Predicate>>,
}

impl Limits {
    /// These limits, with those of a text in the place of those for the same value.
    pub(super) fn with(
        mut self,
        text: &RulesText,
        source: Source<'_>,
    ) -> Result<Self, PolicyError> {
        let numbers = [
            (Meaning::PeerQp, &text.peer_qp),
            (Meaning::ServiceLevel, &text.service_level),
            (Meaning::TrafficClass, &text.traffic_class),
            (Meaning::StaticRate, &text.static_rate),
            (Meaning::RateLimit, &text.rate_limit),
            (Meaning::RegionBytes, &text.region_bytes),
        ];
        if let Some(vector) = &text.vector {
            self.numbers.insert(Meaning::Vector, vectors(vector, source)?);
        }
        for (meaning, predicate) in numbers {
            self.numbers.extend(predicate.clone().map(|predicate| (meaning, predicate)));
        }
        if let Some(names) = &text.access {
            let bits = |known: &(&str, u64)| known.1;
            let mask = names
                .iter()
                .map(|name| named(name, &ACCESS, "access flag", source).map(|known| bits(&known)))
                .try_fold(0, |all, bit| Ok(all | bit?))?;
            let predicate = Predicate { mask: Some(mask), ..Predicate::default() };
            self.numbers.insert(Meaning::Access, predicate);
        }
        if let Some(types) = &text.gid_types {
            let of = |name| named(name, &GID_TYPES, "GID type", source).map(|known| known.1);
            self.gid_types = Some(types.iter().map(of).collect::<Result<_, _>>()?);
        }
        if let Some(peers) = &text.peers {
            let of = |name: &Name| {
                Net::read(name.get_ref()).ok_or_else(|| {
                    let slip = format!(
                        "{:?} is no range of addresses; write one as 10.7.0.0/16 or fe80::/64, with \
                         zeros behind the prefix",
                        name.get_ref()
                    );
                    source.slip(&name.span(), slip)
                })
            };
            self.peers = Some(peers.iter().map(of).collect::<Result<_, _>>()?);
        }
        if let Some(ports) = &text.ports {
            let of = |name: &Name| {
                Ports::read(name.get_ref()).ok_or_else(|| {
                    let slip = format!(
                        "{:?} is no range of ports; write one as 1024-65535, or a port as 18515",
                        name.get_ref()
                    );
                    source.slip(&name.span(), slip)
                })
            };
            self.ports = Some(ports.iter().map(of).collect::<Result<_, _>>()?);
        }
        if let Some(pkeys) = &text.pkeys {
            self.pkeys = Some(pkeys.clone());
        }
        self.quota.extend(text.quota.iter().flat_map(QuotaText::given));
        self.shared_ud = text.shared_ud.or(self.shared_ud);
        if let Some(rate) = &text.rate {
            let RateText { per_s, burst, exceed } = *rate.get_ref();
            self.rate = Some(pace((per_s, burst, exceed), &rate.span(), source)?);
        }
        for (class, rate) in text.rates.given() {
            self.rates.insert(class, class_pace(class, rate, &self.quota, source)?);
        }
        for (of, fields) in &text.fields {
            for (path, predicate) in fields {
                known_field(of, path, source)?;
                let own = self.fields.entry(of.get_ref().clone()).or_default();
                own.insert(path.get_ref().clone(), predicate.clone());
            }
        }
        Ok(self)
    }

    pub(super) fn write(&self, text: &mut String) {
        // Writing to a string cannot fail.
        for (meaning, predicate) in &self.numbers {
            let _ = match (meaning, predicate.mask) {
                (Meaning::Access, Some(mask)) => {
                    let names = ACCESS.iter().filter(|(_, bit)| mask & bit != 0);
                    let names: Vec<&str> = names.map(|(name, _)| *name).collect();
                    writeln!(text, "rules.access = {names:?}")
                }
                _ => writeln!(text, "rules.{} = {predicate}", meaning.name()),
            };
        }
        if let Some(peers) = &self.peers {
            let peers: Vec<String> = peers.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "rules.peers = {peers:?}");
        }
        if let Some(ports) = &self.ports {
            let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "rules.ports = {ports:?}");
        }
        if let Some(pkeys) = &self.pkeys {
            let _ = writeln!(text, "rules.pkeys = {pkeys:?}");
        }
        if let Some(types) = &self.gid_types {
            let names = GID_TYPES.iter().filter(|(_, number)| types.contains(number));
            let names: Vec<&str> = names.map(|(name, _)| *name).collect();
            let _ = writeln!(text, "rules.gid_types = {names:?}");
        }
        for (resource, most) in &self.quota {
            let _ = writeln!(text, "rules.quota.{} = {most}", resource.name());
        }
        if let Some(shared_ud) = self.shared_ud {
            let _ = writeln!(text, "rules.shared_ud = {shared_ud}");
        }
        if let Some(rate) = &self.rate {
            let _ = writeln!(text, "rules.rate = {{ {} }}", words(rate));
        }
        for (class, ClassPace { cold, warm, hot }) in &self.rates {
            let _ = write!(text, "rules.rates.{} = {{ {}", class.name(), words(cold));
            for (name, tier) in [("warm", warm), ("hot", hot)] {
                if let Some(Tier { from, per_s }) = tier {
                    let _ = write!(text, ", {name} = {{ from = {from}, per_s = {per_s} }}");
                }
            }
            text.push_str(" }\n");
        }
        for (of, fields) in &self.fields {
            for (path, predicate) in fields {
                let _ = writeln!(text, "rules.fields.{of:?}.{path:?} = {predicate}");
            }
        }
    }

    /// The first value of a request that does not pass.
    pub(super) fn beyond(&self, request: &Request) -> Option<Beyond> {
        if *self == Self::default() {
            return None;
        }
        request.values().find_map(|value| self.judge(&value)).or_else(|| self.field(request))
    }

    fn judge(&self, value: &Value) -> Option<Beyond> {
        if let (Meaning::PeerGid, Some(gid)) = (value.meaning, value.gid) {
            return self.peer(Ipv6Addr::from(gid), value.name);
        }
        let predicate = self.numbers.get(&value.meaning)?;
        (!predicate.holds(value.number)).then(|| Beyond {
            name: value.name.to_owned(),
            value: format!("{:#x}", value.number),
            rule: format!("{} = {predicate}", value.meaning.name()),
        })
    }

    /// Whether a peer's address does not pass.
    pub(super) fn peer(&self, gid: Ipv6Addr, name: &str) -> Option<Beyond> {
        let peers = self.peers.as_ref()?;
        (!peers.iter().any(|net| net.holds(gid))).then(|| {
            let all: Vec<String> = peers.iter().map(ToString::to_string).collect();
            Beyond {
                name: name.to_owned(),
                value: gid.to_string(),
                rule: format!("peers = {all:?}"),
            }
        })
    }

    /// Whether the port of an id of rdma_cm does not pass; none for one that is not known.
    pub(super) fn port(&self, port: Option<u16>) -> Option<Beyond> {
        let ports = self.ports.as_ref()?;
        let holds = |port| ports.iter().any(|range| range.holds(port));
        (!port.is_some_and(holds)).then(|| {
            let all: Vec<String> = ports.iter().map(ToString::to_string).collect();
            Beyond {
                name: "port".to_owned(),
                value: port.map_or_else(|| "no port".to_owned(), |port| port.to_string()),
                rule: format!("ports = {all:?}"),
            }
        })
    }

    /// Whether peers are limited at all.
    pub(super) fn has_peers(&self) -> bool {
        self.peers.is_some()
    }

    fn field(&self, request: &Request) -> Option<Beyond> {
        if self.fields.is_empty() {
            return None;
        }
        let (of, legacy) = match request.legacy() {
            Some(legacy) => (legacy.spec.short_name.to_owned(), true),
            None => (request.method().full_name(), false),
        };
        self.fields.get(&of)?.iter().find_map(|(path, predicate)| {
            let numbers: Vec<Option<u64>> = if legacy {
                vec![request.legacy_field(path)]
            } else {
                // Of the core's and of a driver's, if both have one of the name.
                let named = request.attrs().iter().filter(|attr| attr.spec.short_name() == path);
                named.map(|attr| request.u64_of(attr)).collect()
            };
            let passes = |number: &Option<u64>| number.is_some_and(|one| predicate.holds(one));
            let number = numbers.into_iter().find(|number| !passes(number))?;
            Some(Beyond {
                name: path.clone(),
                value: number.map_or_else(|| "no number".to_owned(), |n| format!("{n:#x}")),
                rule: format!("fields.{of:?}.{path:?} = {predicate}"),
            })
        })
    }
}

/// The predicate of completion vectors. A driver spreads its vectors over the processors within the kernel
/// (`ib_get_vector_affinity`), and tells programs nothing but names of interrupts of its own making. So
/// vectors of a tenant's processors cannot be told from others, and a policy that asks for them is refused:
/// it would bind nobody.
fn vectors(text: &Spanned<VectorText>, source: Source<'_>) -> Result<Predicate, PolicyError> {
    match text.get_ref() {
        VectorText::Numbers(predicate) => Ok(predicate.clone()),
        VectorText::Word(word) => {
            let slip = format!(
                "vector = {word:?}: the kernel does not tell which processor a completion vector \
                 interrupts; look at /proc/interrupts, and write the numbers, as vector = {{ only = [0, 1] }}"
            );
            Err(source.slip(&text.span(), slip))
        }
    }
}

fn named<T: Copy>(
    name: &Name,
    known: &[(&'static str, T)],
    what: &str,
    source: Source<'_>,
) -> Result<(&'static str, T), PolicyError> {
    known.iter().find(|(one, _)| *one == name.get_ref().as_str()).copied().ok_or_else(|| {
        let hint = hint(name.get_ref(), known.iter().map(|(one, _)| *one));
        source.slip(&name.span(), format!("there is no {what} {:?}; {hint}", name.get_ref()))
    })
}

/// Whether an input of this kind can be a number ([`Request::u64_of`]).
fn can_be_number(kind: &AttrKind) -> bool {
    let fits = |min: u16, max: u16| [1, 2, 4, 8].iter().any(|len| (min..=max).contains(len));
    match *kind {
        AttrKind::PtrIn { min, max, .. } => fits(min, max),
        AttrKind::EnumIn { elems } => elems.iter().any(|elem| fits(elem.min, elem.max)),
        AttrKind::IdrsArray { max, .. } => max > 0,
        AttrKind::PtrOut { .. } | AttrKind::Umem => false,
        _ => true,
    }
}

/// Refuses a rule on a field that no command has, or that is no number.
fn known_field(of: &Name, path: &Name, source: Source<'_>) -> Result<(), PolicyError> {
    let (name, field) = (of.get_ref(), path.get_ref());
    let known: Vec<String> =
        if let Some(spec) = legacy::commands().iter().find(|spec| spec.short_name == name) {
            if spec.req.field(field).is_some_and(|field| matches!(field.size, 1 | 2 | 4 | 8)) {
                return Ok(());
            }
            spec.req.fields.iter().map(|field| field.name.to_owned()).collect()
        } else if let Some(spec) = table::methods().iter().find(|spec| spec.full_name() == *name) {
            let named = |attr: &&AttrSpec| attr.short_name() == field;
            if spec.attrs.iter().filter(named).any(|attr| can_be_number(&attr.kind)) {
                return Ok(());
            }
            let numbers = spec.attrs.iter().filter(|attr| can_be_number(&attr.kind));
            numbers.map(|attr| attr.short_name().to_owned()).collect()
        } else {
            let known: Vec<String> = (legacy::commands().iter().map(|c| c.short_name.to_owned()))
                .chain(table::methods().iter().map(table::MethodSpec::full_name))
                .collect();
            let hint = hint(name, known.iter().map(String::as_str));
            let slip = format!("there is no command or method {name:?}; {hint}");
            return Err(source.slip(&of.span(), slip));
        };
    let hint = hint(field, known.iter().map(String::as_str));
    Err(source.slip(&path.span(), format!("{name} has no number {field:?}; {hint}")))
}
