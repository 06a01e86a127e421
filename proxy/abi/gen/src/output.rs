//! The Rust text.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Context as _;
use anyhow::bail;
use anyhow::ensure;

use crate::annotations::Annotations;
use crate::annotations::Role;
use crate::facts::Attr;
use crate::facts::Facts;
use crate::facts::Kind;
use crate::facts::Method;
use crate::facts::Object;
use crate::facts::Struct;
use crate::output_legacy;

const HEADER: &str = "\
// Written by `cargo xtask abi` from proxy/abi/data. Do not edit.

use crate::legacy::FieldSpec;
use crate::legacy::FieldType as T;
use crate::legacy::FdField;
use crate::legacy::HandleField;
use crate::legacy::LegacySpec;
use crate::legacy::NoFd;
use crate::legacy::StructSpec;
use crate::legacy::Test;
use crate::legacy::TestOp;
use crate::legacy::Trailing;
use crate::legacy::UhwField;
use crate::legacy::UhwRole;
use crate::legacy::UhwSpec;
use crate::legacy::VaField;
use crate::table::Access;
use crate::table::AttrKind as K;
use crate::table::AttrSpec;
use crate::table::ElemSpec;
use crate::table::FdPayload;
use crate::table::MethodSpec;
use crate::table::ObjectClass;
use crate::table::ObjectRef;
use crate::table::ObjectSpec;
use crate::table::Provider;
use crate::wire::AttrId;
use crate::wire::DriverId;
use crate::wire::MethodId;

";

pub(crate) fn write(facts: &Facts, notes: &Annotations) -> anyhow::Result<String> {
    let facts = &without_left_out(facts, notes);
    let mut out = String::from(HEADER);
    constants(&mut out, facts)?;
    objects(&mut out, facts)?;
    methods(&mut out, facts, notes)?;
    structs(&mut out, facts)?;
    output_legacy::legacy(&mut out, facts, notes)?;
    output_legacy::uhw(&mut out, facts, notes)?;
    ids(&mut out, facts)?;
    Ok(out)
}

/// What is left out is not in the tables, and what is not in the tables is refused.
fn without_left_out(facts: &Facts, notes: &Annotations) -> Facts {
    let mut facts = facts.clone();
    facts.methods.retain(|method| !notes.left_out.contains_key(&method.method));
    for method in &mut facts.methods {
        let name = &method.method;
        method.attrs.retain(|attr| !notes.leaves_out(name, &attr.name));
    }
    let commands = &mut facts.legacy_write_commands;
    commands.retain(|command| !notes.left_out.contains_key(&command.name));
    facts
}

/// The flag of a kernel: `V6_12`.
fn flag_of(series: &str) -> String {
    format!("V{}", series.replace('.', "_"))
}

/// The type of kernels' flags, and short names for what the tables say often.
fn constants(out: &mut String, facts: &Facts) -> anyhow::Result<()> {
    writeln!(out, "\nbitflags::bitflags! {{")?;
    writeln!(out, "    /// Kernel trees that have an entry.")?;
    writeln!(out, "    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]")?;
    writeln!(out, "    pub struct Kernels: u16 {{")?;
    for (at, kernel) in facts.kernels.iter().enumerate() {
        writeln!(out, "        /// Linux {} ({}).", kernel.series, kernel.release)?;
        writeln!(out, "        const {} = 1 << {at};", flag_of(&kernel.series))?;
    }
    writeln!(out, "    }}\n}}\n")?;
    writeln!(out, "/// The kernels by their numbers, oldest first.")?;
    writeln!(out, "pub(crate) const KERNELS: &[(Kernels, &str)] = &[")?;
    for kernel in &facts.kernels {
        writeln!(out, "    (Kernels::{}, {:?}),", flag_of(&kernel.series), kernel.series)?;
    }
    writeln!(out, "];\n")?;
    writeln!(out, "const ALL: Kernels = Kernels::all();")?;
    for (at, kernel) in facts.kernels.iter().enumerate().skip(1) {
        let later: Vec<String> = facts
            .kernels
            .iter()
            .skip(at)
            .map(|k| format!("Kernels::{}", flag_of(&k.series)))
            .collect();
        let name = flag_of(&kernel.series).replacen('V', "SINCE_", 1);
        writeln!(out, "const {name}: Kernels = {};", union(&later))?;
    }
    writeln!(out, "const CORE: Provider = Provider::Core;")?;
    let methods = facts.methods.iter();
    let attrs = facts.methods.iter().flat_map(|method| &method.attrs);
    let all: BTreeSet<String> = methods
        .map(|method| &method.provider)
        .chain(attrs.map(|attr| &attr.provider))
        .filter(|provider| *provider != "core")
        .map(|provider| provider.to_uppercase())
        .collect();
    for driver in all {
        writeln!(out, "const {driver}: Provider = Provider::Driver(DriverId::{driver});")?;
    }
    Ok(())
}

fn union(flags: &[String]) -> String {
    let (first, rest) = match flags {
        [] => return "Kernels::empty()".to_owned(),
        [first, rest @ ..] => (first, rest),
    };
    rest.iter().fold(first.clone(), |text, flag| format!("{text}.union({flag})"))
}

/// The constant, or the union of flags, for the kernels that have an entry.
pub(crate) fn kernels(facts: &Facts, present_in: &[String]) -> anyhow::Result<String> {
    let series: Vec<&String> = facts.kernels.iter().map(|kernel| &kernel.series).collect();
    let unknown = present_in.iter().find(|one| !series.contains(one));
    ensure!(unknown.is_none(), "kernel {unknown:?}");
    let from = series.len().saturating_sub(present_in.len());
    let newest = series.get(from..).unwrap_or_default();
    if newest.iter().copied().eq(present_in) {
        return Ok(match newest.first() {
            Some(first) if from > 0 => flag_of(first).replacen('V', "SINCE_", 1),
            _ => "ALL".to_owned(),
        });
    }
    let flags: Vec<String> =
        present_in.iter().map(|series| format!("Kernels::{}", flag_of(series))).collect();
    Ok(union(&flags))
}

pub(crate) fn object_ref(facts: &Facts, name: &str) -> anyhow::Result<String> {
    if name == "UVERBS_IDR_ANY_OBJECT" {
        return Ok("ObjectRef::ANY".into());
    }
    Ok(format!("ids::{}", facts.object(name)?.object))
}

fn object_value(object: &Object) -> String {
    match object.provider.as_str() {
        "core" => format!("ObjectRef::core({})", object.object_id),
        driver => {
            format!("ObjectRef::of(DriverId::{}, {:#06x})", driver.to_uppercase(), object.object_id)
        }
    }
}

fn objects(out: &mut String, facts: &Facts) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static OBJECTS: &[ObjectSpec] = &[")?;
    for object in &facts.objects {
        writeln!(
            out,
            "    ObjectSpec {{ name: {:?}, object: ids::{}, class: ObjectClass::{:?}, kernels: {} }},",
            object.object,
            object.object,
            object.class,
            kernels(facts, &object.present_in)?,
        )?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn methods(out: &mut String, facts: &Facts, notes: &Annotations) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static METHODS: &[MethodSpec] = &[")?;
    for method in &facts.methods {
        write_method(out, facts, notes, method).with_context(|| method.method.clone())?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn write_method(
    out: &mut String,
    facts: &Facts,
    notes: &Annotations,
    method: &Method,
) -> anyhow::Result<()> {
    let newest = facts.kernels.iter().rev();
    let source = newest
        .filter_map(|kernel| method.source.get(&kernel.series))
        .find_map(|places| places.first())
        .context("no source")?;
    writeln!(
        out,
        "    MethodSpec {{ object: {}, name: {:?}, id: ids::{}, provider: {}, kernels: {}, has_uhw: {}, source: {:?}, attrs: &[",
        object_ref(facts, &method.object)?,
        method.method,
        method.method,
        method.provider.to_uppercase(),
        kernels(facts, &method.present_in)?,
        method.has_uhw,
        source,
    )?;
    let mut attrs: Vec<&Attr> = method.attrs.iter().collect();
    attrs.sort_by_key(|attr| (attr.id, attr.provider != "core", attr.provider.clone()));
    for attr in attrs {
        write_attr(out, facts, notes, &method.method, attr).with_context(|| attr.name.clone())?;
    }
    writeln!(out, "    ] }},")?;
    Ok(())
}

fn write_attr(
    out: &mut String,
    facts: &Facts,
    notes: &Annotations,
    method: &str,
    attr: &Attr,
) -> anyhow::Result<()> {
    let role = notes.role(method, &attr.name).context("no annotation")?;
    writeln!(
        out,
        "        AttrSpec {{ name: {:?}, id: ids::{}, provider: {}, kind: {}, mandatory: {}, kernels: {}, fd_payload: FdPayload::{}, ctype: {:?} }},",
        attr.name,
        attr.name,
        attr.provider.to_uppercase(),
        kind(facts, attr, role)?,
        attr.mandatory,
        kernels(facts, &attr.present_in)?,
        fd_payload(attr.kind, role),
        attr.ctype.as_deref().unwrap_or_default(),
    )?;
    Ok(())
}

/// Descriptors in the value, which the kind does not tell.
fn fd_payload(kind: Kind, role: Role) -> &'static str {
    match (kind, role) {
        (Kind::PtrIn | Kind::ConstIn, Role::Fd) => "One",
        (_, Role::Fds) => "Array",
        (_, Role::Buffer) => "BufferDesc",
        _ => "None",
    }
}

fn kind(facts: &Facts, attr: &Attr, role: Role) -> anyhow::Result<String> {
    let len = |value: Option<u16>| value.context("no length");
    let flag = |value: Option<bool>| value.context("no flag");
    let object = || -> anyhow::Result<String> {
        let object = object_ref(facts, attr.obj.as_deref().context("no object")?)?;
        let access = attr.access.context("no access")?;
        Ok(format!("object: {object}, access: Access::{access:?}"))
    };
    let fixed = |wanted: (u16, u16)| -> anyhow::Result<()> {
        ensure!((attr.min_len, attr.len) == (Some(wanted.0), Some(wanted.1)), "another length");
        Ok(())
    };
    Ok(match attr.kind {
        Kind::PtrIn if role != Role::OutputDeclaredAsInput => format!(
            "K::PtrIn {{ min: {}, max: {}, zero_trailing: {}, alloc_and_copy: {} }}",
            len(attr.min_len)?,
            len(attr.len)?,
            flag(attr.zero_trailing)?,
            flag(attr.alloc_and_copy)?,
        ),
        Kind::PtrIn | Kind::PtrOut => format!(
            "K::PtrOut {{ min: {}, max: {}, zero_trailing: {} }}",
            len(attr.min_len)?,
            len(attr.len)?,
            flag(attr.zero_trailing)?,
        ),
        Kind::ConstIn => fixed((8, 8)).map(|()| "K::ConstIn".to_owned())?,
        Kind::FlagsIn => fixed((4, 8)).map(|()| "K::FlagsIn".to_owned())?,
        Kind::Umem => fixed((32, 32)).map(|()| "K::Umem".to_owned())?,
        Kind::RawFd => "K::RawFd".into(),
        Kind::Idr => format!("K::Idr {{ {} }}", object()?),
        Kind::Fd => format!("K::Fd {{ {} }}", object()?),
        Kind::IdrsArray => format!(
            "K::IdrsArray {{ {}, min: {}, max: {} }}",
            object()?,
            len(attr.min_cnt)?,
            len(attr.max_cnt)?
        ),
        Kind::EnumIn => {
            let mut text = String::new();
            for (index, elem) in attr.elems.as_deref().context("no elements")?.iter().enumerate() {
                ensure!(elem.elem_id == index, "elements out of order");
                write!(
                    text,
                    "ElemSpec {{ min: {}, max: {}, zero_trailing: {} }}, ",
                    elem.min_len, elem.len, elem.zero_trailing,
                )?;
            }
            format!("K::EnumIn {{ elems: &[{}] }}", text.trim_end_matches(", "))
        }
    })
}

pub(crate) fn static_name(name: &str) -> String {
    name.to_uppercase()
}

fn field_type(facts: &Facts, ctype: &str) -> anyhow::Result<String> {
    Ok(match ctype {
        "__u8" => "T::U8".into(),
        "__u16" => "T::U16".into(),
        "__u32" => "T::U32".into(),
        "__u64" | "__aligned_u64" => "T::U64".into(),
        "__s32" => "T::I32".into(),
        "__be64" => "T::Be64".into(),
        "union {...}" => "T::Union".into(),
        "__be16" | "__be32" | "struct {...}" => "T::Bytes".into(),
        _ if ctype.ends_with("[]") || ctype.ends_with("[0]") => "T::Trailing".into(),
        _ if ctype.starts_with("__u8[") => "T::Bytes".into(),
        _ if ctype.starts_with("struct ") => {
            format!("T::Nested(&{})", static_name(facts.struct_of(ctype)?.0))
        }
        other => bail!("type {other}"),
    })
}

fn structs(out: &mut String, facts: &Facts) -> anyhow::Result<()> {
    for (name, spec) in &facts.legacy_structs {
        write_struct(out, facts, name, spec).with_context(|| name.clone())?;
    }
    writeln!(out, "\npub(crate) static STRUCTS: &[&StructSpec] = &[")?;
    for name in facts.legacy_structs.keys() {
        writeln!(out, "    &{},", static_name(name))?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn write_struct(out: &mut String, facts: &Facts, name: &str, spec: &Struct) -> anyhow::Result<()> {
    writeln!(
        out,
        "\nstatic {}: StructSpec = StructSpec {{ name: {name:?}, size: {}, fields: &[",
        static_name(name),
        spec.size,
    )?;
    // Of fields that lie upon each other, alternatives of a union, the first stands for all.
    let mut end = 0;
    for field in &spec.fields {
        if field.offset < end || field.name.contains('.') {
            continue;
        }
        end = field.offset + field.size;
        writeln!(
            out,
            "    FieldSpec {{ name: {:?}, ty: {}, offset: {}, size: {}, reserved: {} }},",
            field.name,
            field_type(facts, &field.r#type)?,
            field.offset,
            field.size,
            field.name.contains("reserved"),
        )?;
    }
    writeln!(out, "] }};")?;
    Ok(())
}

/// The kernel's names as constants.
fn ids(out: &mut String, facts: &Facts) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n/// The kernel's names of objects, methods, attributes and commands, as constants."
    )?;
    writeln!(out, "pub mod ids {{")?;
    writeln!(
        out,
        "    use super::AttrId;\n    use super::DriverId;\n    use super::MethodId;\n    use super::ObjectRef;\n"
    )?;
    for object in &facts.objects {
        writeln!(out, "    /// Object, `{}`.", object.provider)?;
        writeln!(out, "    pub const {}: ObjectRef = {};", object.object, object_value(object))?;
    }
    for method in &facts.methods {
        writeln!(out, "    /// Method of `{}`.", method.object)?;
        writeln!(
            out,
            "    pub const {}: MethodId = MethodId({:#06x});",
            method.method, method.method_id
        )?;
    }
    let mut attrs: BTreeMap<&str, (u16, &str)> = BTreeMap::new();
    for method in &facts.methods {
        for attr in &method.attrs {
            let (id, _) = *attrs.entry(&attr.name).or_insert((attr.id, &method.method));
            ensure!(id == attr.id, "{} has two ids", attr.name);
        }
    }
    for (name, (id, method)) in attrs {
        writeln!(out, "    /// Attribute of `{method}`.")?;
        writeln!(out, "    pub const {name}: AttrId = AttrId({id:#06x});")?;
    }
    for command in &facts.legacy_write_commands {
        writeln!(out, "    /// `{}`.", command.req_struct)?;
        writeln!(out, "    pub const {}: u64 = {:#x};", command.name, command.write_cmd_attr)?;
    }
    writeln!(out, "}}")?;
    Ok(())
}
