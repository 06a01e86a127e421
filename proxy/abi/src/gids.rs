//! The source addresses of a request: entries of a port's GID table that the request speaks by.
//!
//! The kernel does not ask in whose network namespace an entry's network device is
//! (drivers/infiniband/core/uverbs_cmd.c, verbs.c): a program that names an index speaks as that
//! entry.

use crate::request::Request;
use crate::wire::GidIndex;

/// `IB_QP_AV`, `enum ib_qp_attr_mask`, include/rdma/ib_verbs.h.
const QP_AV: u64 = 1 << 7;
/// `IB_QP_ALT_PATH`.
const QP_ALT_PATH: u64 = 1 << 14;

/// Where a legacy command names one.
struct Field {
    command: &'static str,
    /// It is looked at when one of these bits is in this field.
    when: Option<(&'static str, u64)>,
    /// Not looked at when this is 0: there is no global route.
    is_global: &'static str,
    port: &'static str,
    index: &'static str,
}

#[rustfmt::skip]
const FIELDS: &[Field] = &[
    Field { command: "CREATE_AH", when: None, is_global: "attr.is_global", port: "attr.port_num", index: "attr.grh.sgid_index" },
    Field { command: "MODIFY_QP", when: Some(("attr_mask", QP_AV)), is_global: "dest.is_global", port: "dest.port_num", index: "dest.sgid_index" },
    Field { command: "MODIFY_QP", when: Some(("attr_mask", QP_ALT_PATH)), is_global: "alt_dest.is_global", port: "alt_dest.port_num", index: "alt_dest.sgid_index" },
    Field { command: "EX_MODIFY_QP", when: Some(("base.attr_mask", QP_AV)), is_global: "base.dest.is_global", port: "base.dest.port_num", index: "base.dest.sgid_index" },
    Field { command: "EX_MODIFY_QP", when: Some(("base.attr_mask", QP_ALT_PATH)), is_global: "base.alt_dest.is_global", port: "base.alt_dest.port_num", index: "base.alt_dest.sgid_index" },
];

/// An entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceGid {
    /// The port, from 1.
    pub port: u32,
    /// The entry.
    pub index: GidIndex,
}

impl Request {
    /// The entries that it speaks by.
    pub fn source_gids(&self) -> impl Iterator<Item = SourceGid> {
        let name = self.legacy().map(|legacy| legacy.spec.short_name);
        let fields = FIELDS.iter().filter(move |field| Some(field.command) == name);
        let number = |path| self.legacy_field(path).unwrap_or_default();
        fields.filter_map(move |field| {
            let looked_at = field.when.is_none_or(|(mask, bits)| number(mask) & bits != 0);
            let small = |path| u32::try_from(number(path)).unwrap_or(u32::MAX);
            (looked_at && number(field.is_global) != 0)
                .then(|| SourceGid { port: small(field.port), index: GidIndex(small(field.index)) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy;
    use crate::legacy::FieldType;
    use crate::legacy::StructSpec;

    #[test]
    fn every_field_is_one_of_its_command() {
        for field in FIELDS {
            let mut specs = legacy::commands().iter();
            let spec = specs.find(|spec| spec.short_name == field.command).unwrap();
            let mask = field.when.map(|(mask, _)| mask);
            for path in [field.is_global, field.port, field.index].into_iter().chain(mask) {
                assert!(spec.req.field(path).is_some(), "{}: {path}", spec.name);
            }
        }
    }

    fn paths(spec: &StructSpec, name: &str) -> usize {
        let own = spec.fields.iter().filter(|field| field.name == name).count();
        let nested = spec.fields.iter().map(|field| match field.ty {
            FieldType::Nested(inner) => paths(inner, name),
            _ => 0,
        });
        own + nested.sum::<usize>()
    }

    #[test]
    fn no_command_names_another() {
        for spec in legacy::commands() {
            let known = FIELDS.iter().filter(|field| field.command == spec.short_name).count();
            assert_eq!(known, paths(spec.req, "sgid_index"), "{}", spec.name);
        }
    }
}
