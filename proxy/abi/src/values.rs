//! The fields of requests whose values matter to others than the caller: whom a request speaks to and
//! by what path, which memory it opens to whom, and whose processors it wakes.
//!
//! Each row names a command's field or a method's attribute, and when the kernel looks at it
//! (drivers/infiniband/core/uverbs_cmd.c and uverbs_std_types_*.c). The kernel asks of none of these
//! whose it is: a program that names an index of a port's table speaks as that entry.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::legacy;
use crate::request::Request;
use crate::request::uint;
use crate::table;
use crate::table::AttrSpec;
use crate::table::MethodSpec;
use crate::table::ObjectRef;
use crate::table::Provider;
use crate::wire::AttrId;
use crate::wire::MethodId;

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Meaning {
    /// A port of the device, from 1.
    Port,
    /// An index into the port's table of GIDs: the source.
    SourceGid,
    /// An index into the port's table of P_Keys.
    Pkey,
    /// A GID: the destination.
    PeerGid,
    /// A queue pair's number: the destination.
    PeerQp,
    /// An InfiniBand service level, or a RoCE priority.
    ServiceLevel,
    /// Of the global route.
    TrafficClass,
    /// `enum ib_rate` of the path; 0 for the port's.
    StaticRate,
    /// Kilobits a second of the queue pair.
    RateLimit,
    /// `enum ib_uverbs_access_flags`, of memory or of a queue pair.
    Access,
    /// Bytes of a memory region.
    RegionBytes,
    /// A completion vector: the processor that is interrupted.
    Vector,
}

/// All meanings, with the names by which policies know them.
pub const MEANINGS: [(Meaning, &str); 12] = [
    (Meaning::Port, "port"),
    (Meaning::SourceGid, "source_gid"),
    (Meaning::Pkey, "pkey"),
    (Meaning::PeerGid, "peer_gid"),
    (Meaning::PeerQp, "peer_qp"),
    (Meaning::ServiceLevel, "service_level"),
    (Meaning::TrafficClass, "traffic_class"),
    (Meaning::StaticRate, "static_rate"),
    (Meaning::RateLimit, "rate_limit"),
    (Meaning::Access, "access"),
    (Meaning::RegionBytes, "region_bytes"),
    (Meaning::Vector, "vector"),
];

impl Meaning {
    /// The name by which policies know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        MEANINGS.iter().find(|(known, _)| *known == self).map_or("?", |(_, name)| name)
    }
}

/// A condition: one of these bits is in this field.
type When = (&'static str, u64);

/// A field of a legacy command.
struct Field {
    command: &'static str,
    /// All of these hold, or the kernel does not look.
    when: &'static [When],
    meaning: Meaning,
    path: &'static str,
    /// The field of the port that an index is of. None of a P_Key's, because a later request may name
    /// the port.
    port: Option<&'static str>,
}

const ANY: u64 = u64::MAX;
/// `enum ib_qp_attr_mask`, include/rdma/ib_verbs.h.
const QP_ACCESS: u64 = 1 << 3;
const QP_PKEY: u64 = 1 << 4;
const QP_PORT: u64 = 1 << 5;
const QP_AV: u64 = 1 << 7;
const QP_ALT: u64 = 1 << 14;
const QP_DEST: u64 = 1 << 20;
const QP_RATE: u64 = 1 << 25;
/// `IB_MR_REREG_TRANS` and `IB_MR_REREG_ACCESS`, include/rdma/ib_verbs.h.
const REREG_TRANS: u64 = 1 << 0;
const REREG_ACCESS: u64 = 1 << 2;

const fn f(
    command: &'static str,
    when: &'static [When],
    meaning: Meaning,
    path: &'static str,
) -> Field {
    Field { command, when, meaning, path, port: None }
}

const fn of_port(field: Field, port: &'static str) -> Field {
    Field { port: Some(port), ..field }
}

use Meaning as M;

#[rustfmt::skip]
const FIELDS: &[Field] = &[
    f("CREATE_AH", &[], M::Port, "attr.port_num"),
    of_port(f("CREATE_AH", &[("attr.is_global", ANY)], M::SourceGid, "attr.grh.sgid_index"), "attr.port_num"),
    f("CREATE_AH", &[("attr.is_global", ANY)], M::PeerGid, "attr.grh.dgid"),
    f("CREATE_AH", &[("attr.is_global", ANY)], M::TrafficClass, "attr.grh.traffic_class"),
    f("CREATE_AH", &[], M::ServiceLevel, "attr.sl"),
    f("CREATE_AH", &[], M::StaticRate, "attr.static_rate"),

    f("MODIFY_QP", &[("attr_mask", QP_PORT)], M::Port, "port_num"),
    f("MODIFY_QP", &[("attr_mask", QP_PKEY)], M::Pkey, "pkey_index"),
    f("MODIFY_QP", &[("attr_mask", QP_ACCESS)], M::Access, "qp_access_flags"),
    f("MODIFY_QP", &[("attr_mask", QP_DEST)], M::PeerQp, "dest_qp_num"),
    f("MODIFY_QP", &[("attr_mask", QP_AV)], M::Port, "dest.port_num"),
    of_port(f("MODIFY_QP", &[("attr_mask", QP_AV), ("dest.is_global", ANY)], M::SourceGid, "dest.sgid_index"), "dest.port_num"),
    f("MODIFY_QP", &[("attr_mask", QP_AV), ("dest.is_global", ANY)], M::PeerGid, "dest.dgid"),
    f("MODIFY_QP", &[("attr_mask", QP_AV), ("dest.is_global", ANY)], M::TrafficClass, "dest.traffic_class"),
    f("MODIFY_QP", &[("attr_mask", QP_AV)], M::ServiceLevel, "dest.sl"),
    f("MODIFY_QP", &[("attr_mask", QP_AV)], M::StaticRate, "dest.static_rate"),
    f("MODIFY_QP", &[("attr_mask", QP_ALT)], M::Port, "alt_port_num"),
    f("MODIFY_QP", &[("attr_mask", QP_ALT)], M::Pkey, "alt_pkey_index"),
    f("MODIFY_QP", &[("attr_mask", QP_ALT)], M::Port, "alt_dest.port_num"),
    of_port(f("MODIFY_QP", &[("attr_mask", QP_ALT), ("alt_dest.is_global", ANY)], M::SourceGid, "alt_dest.sgid_index"), "alt_dest.port_num"),
    f("MODIFY_QP", &[("attr_mask", QP_ALT), ("alt_dest.is_global", ANY)], M::PeerGid, "alt_dest.dgid"),
    f("MODIFY_QP", &[("attr_mask", QP_ALT), ("alt_dest.is_global", ANY)], M::TrafficClass, "alt_dest.traffic_class"),
    f("MODIFY_QP", &[("attr_mask", QP_ALT)], M::ServiceLevel, "alt_dest.sl"),
    f("MODIFY_QP", &[("attr_mask", QP_ALT)], M::StaticRate, "alt_dest.static_rate"),

    f("EX_MODIFY_QP", &[("base.attr_mask", QP_PORT)], M::Port, "base.port_num"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_PKEY)], M::Pkey, "base.pkey_index"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ACCESS)], M::Access, "base.qp_access_flags"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_DEST)], M::PeerQp, "base.dest_qp_num"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_AV)], M::Port, "base.dest.port_num"),
    of_port(f("EX_MODIFY_QP", &[("base.attr_mask", QP_AV), ("base.dest.is_global", ANY)], M::SourceGid, "base.dest.sgid_index"), "base.dest.port_num"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_AV), ("base.dest.is_global", ANY)], M::PeerGid, "base.dest.dgid"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_AV), ("base.dest.is_global", ANY)], M::TrafficClass, "base.dest.traffic_class"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_AV)], M::ServiceLevel, "base.dest.sl"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_AV)], M::StaticRate, "base.dest.static_rate"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT)], M::Port, "base.alt_port_num"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT)], M::Pkey, "base.alt_pkey_index"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT)], M::Port, "base.alt_dest.port_num"),
    of_port(f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT), ("base.alt_dest.is_global", ANY)], M::SourceGid, "base.alt_dest.sgid_index"), "base.alt_dest.port_num"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT), ("base.alt_dest.is_global", ANY)], M::PeerGid, "base.alt_dest.dgid"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT), ("base.alt_dest.is_global", ANY)], M::TrafficClass, "base.alt_dest.traffic_class"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT)], M::ServiceLevel, "base.alt_dest.sl"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_ALT)], M::StaticRate, "base.alt_dest.static_rate"),
    f("EX_MODIFY_QP", &[("base.attr_mask", QP_RATE)], M::RateLimit, "rate_limit"),

    f("REG_MR", &[], M::Access, "access_flags"),
    f("REG_MR", &[], M::RegionBytes, "length"),
    f("REREG_MR", &[("flags", REREG_ACCESS)], M::Access, "access_flags"),
    f("REREG_MR", &[("flags", REREG_TRANS)], M::RegionBytes, "length"),
    f("CREATE_CQ", &[], M::Vector, "comp_vector"),
    f("EX_CREATE_CQ", &[], M::Vector, "comp_vector"),
    f("ATTACH_MCAST", &[], M::PeerGid, "gid"),
    f("EX_CREATE_FLOW", &[], M::Port, "flow_attr.port"),
];

/// An attribute of a method.
struct Attribute {
    method: &'static str,
    name: &'static str,
    meaning: Meaning,
}

const fn a(method: &'static str, name: &'static str, meaning: Meaning) -> Attribute {
    Attribute { method, name, meaning }
}

const ATTRIBUTES: &[Attribute] = &[
    a("MR.REG_MR", "REG_MR_ACCESS_FLAGS", M::Access),
    a("MR.REG_MR", "REG_MR_LENGTH", M::RegionBytes),
    a("MR.REG_DMABUF_MR", "REG_DMABUF_MR_ACCESS_FLAGS", M::Access),
    a("MR.REG_DMABUF_MR", "REG_DMABUF_MR_LENGTH", M::RegionBytes),
    a("MR.DM_MR_REG", "REG_DM_MR_ACCESS_FLAGS", M::Access),
    a("MR.DM_MR_REG", "REG_DM_MR_LENGTH", M::RegionBytes),
    a("CQ.CQ_CREATE", "CREATE_CQ_COMP_VECTOR", M::Vector),
];

/// All values that matter to others: the command or method, by the name that policies know, the field's path
/// or the attribute's name, and what the value is.
pub fn rows() -> impl Iterator<Item = (&'static str, &'static str, Meaning)> {
    let fields = FIELDS.iter().map(|field| (field.command, field.path, field.meaning));
    fields.chain(ATTRIBUTES.iter().map(|row| (row.method, row.name, row.meaning)))
}

/// Where a number is.
#[derive(Clone, Copy, Debug)]
struct Spot {
    offset: usize,
    size: usize,
}

/// A row, with all names looked up once.
#[derive(Debug)]
enum Row {
    Field {
        when: Vec<(Spot, u64)>,
        at: Spot,
        port: Option<Spot>,
        path: &'static str,
        meaning: Meaning,
    },
    Attribute {
        id: AttrId,
        name: &'static str,
        meaning: Meaning,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    Command(u64),
    Method(ObjectRef, MethodId, Provider),
}

fn of_method(method: &MethodSpec) -> Of {
    Of::Method(method.object, method.id, method.provider)
}

/// Whether an attribute is the row's: a driver's own can have the same short name.
fn is_of(row: &Attribute, spec: &AttrSpec) -> bool {
    spec.provider == Provider::Core && spec.short_name() == row.name
}

static ROWS: LazyLock<HashMap<Of, Vec<Row>>> = LazyLock::new(|| {
    let mut rows: HashMap<Of, Vec<Row>> = HashMap::new();
    for field in FIELDS {
        let specs = legacy::commands().iter().filter(|spec| spec.short_name == field.command);
        for spec in specs {
            let spot = |path| {
                let found = spec.req.field(path)?;
                Some(Spot { offset: found.offset.into(), size: found.size.into() })
            };
            // A test proves that every path is one.
            let Some(at) = spot(field.path) else { continue };
            let when = field.when.iter().filter_map(|(path, bits)| Some((spot(path)?, *bits)));
            let (when, port) = (when.collect(), field.port.and_then(spot));
            let row = Row::Field { when, at, port, path: field.path, meaning: field.meaning };
            rows.entry(Of::Command(spec.write_cmd)).or_default().push(row);
        }
    }
    for attribute in ATTRIBUTES {
        let named = table::methods().iter().filter(|spec| spec.full_name() == attribute.method);
        for method in named {
            let specs = method.attrs.iter().filter(|spec| is_of(attribute, spec));
            let row = |id| Row::Attribute { id, name: attribute.name, meaning: attribute.meaning };
            let own = rows.entry(of_method(method)).or_default();
            own.extend(specs.map(|spec| row(spec.id)));
        }
    }
    rows
});

/// Makes the tables that values are found by, which the first request would wait for.
pub fn prepare() {
    LazyLock::force(&ROWS);
}

/// A value of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// What the value is.
    pub meaning: Meaning,
    /// The field's dotted path, or the attribute's name.
    pub name: &'static str,
    /// The number; of a GID, 0.
    pub number: u64,
    /// The GID, as on the wire.
    pub gid: Option<[u8; 16]>,
    /// The port that an index is of.
    pub port: Option<u32>,
}

impl Request {
    /// The values that the kernel looks at, and that matter to others than the caller.
    pub fn values(&self) -> impl Iterator<Item = Value> {
        let of = match self.legacy() {
            Some(legacy) => Of::Command(legacy.spec.write_cmd),
            None => of_method(self.method()),
        };
        let rows = ROWS.get(&of).map(Vec::as_slice).unwrap_or_default();
        rows.iter().filter_map(|row| self.value_of(row))
    }

    fn value_of(&self, row: &Row) -> Option<Value> {
        let number = |spot: &Spot| uint(self.core_in(), spot.offset, spot.size);
        match row {
            Row::Field { when, at, port, path, meaning } => {
                if !when.iter().all(|(spot, bits)| number(spot) & bits != 0) {
                    return None;
                }
                let bytes = self.core_in().get(at.offset..at.offset.saturating_add(at.size));
                let gid = bytes.and_then(|bytes| bytes.try_into().ok());
                let port = port.as_ref().map(number);
                Some(Value {
                    meaning: *meaning,
                    name: path,
                    number: if gid.is_some() { 0 } else { number(at) },
                    gid,
                    port: port.map(|port| u32::try_from(port).unwrap_or(u32::MAX)),
                })
            }
            Row::Attribute { id, name, meaning } => {
                let number = self.value(*id)?;
                Some(Value { meaning: *meaning, name, number, gid: None, port: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::FieldType;
    use crate::legacy::StructSpec;

    #[test]
    fn every_row_is_of_a_command_or_method_that_has_it() {
        for field in FIELDS {
            let mut specs = legacy::commands().iter();
            let spec = specs.find(|spec| spec.short_name == field.command).unwrap();
            let when = field.when.iter().map(|(path, _)| *path);
            for path in when.chain([field.path]).chain(field.port) {
                let found = spec.req.field(path).unwrap();
                let gid = field.meaning == Meaning::PeerGid && path == field.path;
                assert_eq!(found.size == 16, gid, "{}: {path}", spec.name);
            }
        }
        for attribute in ATTRIBUTES {
            let mut methods = table::methods().iter();
            let method = methods.find(|spec| spec.full_name() == attribute.method).unwrap();
            let named = method.attrs.iter().filter(|spec| is_of(attribute, spec));
            assert_eq!(named.count(), 1, "{} {}", attribute.method, attribute.name);
        }
        assert_eq!(ROWS.values().map(Vec::len).sum::<usize>(), FIELDS.len() + ATTRIBUTES.len());
    }

    /// Names of fields that have these meanings in every structure.
    const TELLING: [(&str, Meaning); 10] = [
        ("sgid_index", Meaning::SourceGid),
        ("dgid", Meaning::PeerGid),
        ("dest_qp_num", Meaning::PeerQp),
        ("sl", Meaning::ServiceLevel),
        ("traffic_class", Meaning::TrafficClass),
        ("static_rate", Meaning::StaticRate),
        ("pkey_index", Meaning::Pkey),
        ("access_flags", Meaning::Access),
        ("comp_vector", Meaning::Vector),
        ("rate_limit", Meaning::RateLimit),
    ];

    fn paths(spec: &StructSpec, name: &str) -> usize {
        let own = spec.fields.iter().filter(|field| field.name == name).count();
        let nested = spec.fields.iter().map(|field| match field.ty {
            FieldType::Nested(inner) => paths(inner, name),
            _ => 0,
        });
        own + nested.sum::<usize>()
    }

    #[test]
    fn no_command_has_another_field_of_a_telling_name() {
        for spec in legacy::commands() {
            for (name, meaning) in TELLING {
                let ends = |path: &str| path.rsplit('.').next() == Some(name);
                let known = FIELDS.iter().filter(|field| {
                    field.command == spec.short_name && field.meaning == meaning && ends(field.path)
                });
                assert_eq!(known.count(), paths(spec.req, name), "{}: {name}", spec.name);
            }
        }
    }

    #[test]
    fn no_method_of_the_core_has_another_attribute_of_a_telling_name() {
        for method in table::methods().iter().filter(|method| method.provider == Provider::Core) {
            for spec in method.attrs.iter().filter(|spec| spec.provider == Provider::Core) {
                let telling = ["_ACCESS_FLAGS", "_COMP_VECTOR"];
                if telling.iter().any(|end| spec.short_name().ends_with(end)) {
                    let known = ATTRIBUTES.iter().any(|known| {
                        known.method == method.full_name() && known.name == spec.short_name()
                    });
                    assert!(known, "{} {}", method.full_name(), spec.short_name());
                }
            }
        }
    }
}
