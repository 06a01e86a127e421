//! The Rust text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use anyhow::bail;
use anyhow::ensure;

use crate::annotate;
use crate::input::Attr;
use crate::input::Method;
use crate::input::Object;
use crate::input::Struct;
use crate::input::Tables;
use crate::output_legacy;

const HEADER: &str = "\
// Written by `cargo xtask abi` from proxy/abi/data/uverbs_methods.json. Do not edit.

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
use crate::table::Kernels;
use crate::table::MethodSpec;
use crate::table::ObjectClass;
use crate::table::ObjectRef;
use crate::table::ObjectSpec;
use crate::table::Provider;
use crate::wire::AttrId;
use crate::wire::DriverId;
use crate::wire::MethodId;

const ALL: Kernels = Kernels::all();
const SINCE_6_12: Kernels = Kernels::V6_12.union(Kernels::V7_2);
const SINCE_7_2: Kernels = Kernels::V7_2;
const CORE: Provider = Provider::Core;
const MLX5: Provider = Provider::Driver(DriverId::MLX5);
const BNXT_RE: Provider = Provider::Driver(DriverId::BNXT_RE);
const EFA: Provider = Provider::Driver(DriverId::EFA);
";

pub(crate) fn write(tables: &Tables) -> anyhow::Result<String> {
    let mut out = String::from(HEADER);
    objects(&mut out, tables)?;
    methods(&mut out, tables)?;
    structs(&mut out, tables)?;
    output_legacy::legacy(&mut out, tables)?;
    output_legacy::uhw(&mut out, tables)?;
    ids(&mut out, tables)?;
    Ok(out)
}

pub(crate) fn kernels(present_in: &[String]) -> anyhow::Result<&'static str> {
    let present: Vec<&str> = present_in.iter().map(String::as_str).collect();
    Ok(match present.as_slice() {
        ["6.1", "6.12", "7.2"] => "ALL",
        ["6.12", "7.2"] => "SINCE_6_12",
        ["7.2"] => "SINCE_7_2",
        other => bail!("kernels {other:?}"),
    })
}

/// Nothing that a tree has is missing in a later one, so the first tree says all.
fn since(first_seen: &str) -> anyhow::Result<&'static str> {
    Ok(match first_seen {
        "6.1" => "ALL",
        "6.12" => "SINCE_6_12",
        "7.2" => "SINCE_7_2",
        other => bail!("kernel {other}"),
    })
}

pub(crate) fn object_ref(tables: &Tables, name: &str) -> anyhow::Result<String> {
    if name == "UVERBS_IDR_ANY_OBJECT" {
        return Ok("ObjectRef::ANY".into());
    }
    Ok(format!("ids::{}", tables.object(name)?.object))
}

fn object_value(object: &Object) -> String {
    match object.provider.as_str() {
        "core" => format!("ObjectRef::core({})", object.object_id),
        driver => {
            format!("ObjectRef::of(DriverId::{}, {:#06x})", driver.to_uppercase(), object.object_id)
        }
    }
}

pub(crate) fn access(name: &str) -> anyhow::Result<&'static str> {
    Ok(match name {
        "READ" => "Access::Read",
        "WRITE" => "Access::Write",
        "NEW" => "Access::New",
        "DESTROY" => "Access::Destroy",
        other => bail!("access {other}"),
    })
}

fn objects(out: &mut String, tables: &Tables) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static OBJECTS: &[ObjectSpec] = &[")?;
    for object in &tables.objects {
        let class = match object.class.as_str() {
            "NONE" => "None",
            "IDR" => "Idr",
            "FD" => "Fd",
            other => bail!("class {other}"),
        };
        writeln!(
            out,
            "    ObjectSpec {{ name: {:?}, object: ids::{}, class: ObjectClass::{class}, kernels: {} }},",
            object.object,
            object.object,
            kernels(&object.present_in)?,
        )?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn methods(out: &mut String, tables: &Tables) -> anyhow::Result<()> {
    writeln!(out, "\npub(crate) static METHODS: &[MethodSpec] = &[")?;
    for method in &tables.methods {
        write_method(out, tables, method).with_context(|| method.method.clone())?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn write_method(out: &mut String, tables: &Tables, method: &Method) -> anyhow::Result<()> {
    let source = ["7.2", "6.12", "6.1"]
        .iter()
        .find_map(|tree| method.source.get(*tree).and_then(|lines| lines.first()))
        .context("no source")?;
    writeln!(
        out,
        "    MethodSpec {{ object: {}, name: {:?}, id: ids::{}, provider: {}, kernels: {}, has_uhw: {}, source: {:?}, attrs: &[",
        object_ref(tables, &method.object)?,
        method.method,
        method.method,
        method.provider.to_uppercase(),
        kernels(&method.present_in)?,
        method.has_uhw,
        source,
    )?;
    let mut attrs: Vec<&Attr> = method.attrs.iter().collect();
    attrs.sort_by_key(|attr| (attr.id, attr.provider != "core", attr.provider.clone()));
    for attr in attrs {
        write_attr(out, tables, attr).with_context(|| attr.name.clone())?;
    }
    writeln!(out, "    ] }},")?;
    Ok(())
}

fn write_attr(out: &mut String, tables: &Tables, attr: &Attr) -> anyhow::Result<()> {
    writeln!(
        out,
        "        AttrSpec {{ name: {:?}, id: ids::{}, provider: {}, kind: {}, mandatory: {}, kernels: {}, fd_payload: FdPayload::{}, ctype: {:?} }},",
        attr.name,
        attr.name,
        attr.provider.to_uppercase(),
        kind(tables, attr)?,
        attr.mandatory,
        since(&attr.first_seen)?,
        annotate::fd_payload(&attr.name, &attr.kind),
        attr.ctype,
    )?;
    Ok(())
}

fn kind(tables: &Tables, attr: &Attr) -> anyhow::Result<String> {
    let len = |value: Option<u16>| value.context("no length");
    let flag = |value: Option<u8>| value.unwrap_or(0) != 0;
    let object = || -> anyhow::Result<String> {
        let object = object_ref(tables, attr.obj.as_deref().context("no object")?)?;
        let access = access(attr.access.as_deref().context("no access")?)?;
        Ok(format!("object: {object}, access: {access}"))
    };
    Ok(match attr.kind.as_str() {
        "PTR_IN" => format!(
            "K::PtrIn {{ min: {}, max: {}, zero_trailing: {}, alloc_and_copy: {} }}",
            len(attr.min_len)?,
            len(attr.len)?,
            flag(attr.zero_trailing),
            flag(attr.alloc_and_copy),
        ),
        "PTR_OUT" => format!(
            "K::PtrOut {{ min: {}, max: {}, zero_trailing: {} }}",
            len(attr.min_len)?,
            len(attr.len)?,
            flag(attr.zero_trailing),
        ),
        "CONST_IN" => {
            ensure!((attr.min_len, attr.len) == (Some(8), Some(8)), "constant of another length");
            "K::ConstIn".into()
        }
        "FLAGS_IN" => {
            ensure!((attr.min_len, attr.len) == (Some(4), Some(8)), "flags of another length");
            "K::FlagsIn".into()
        }
        "UMEM" => {
            ensure!((attr.min_len, attr.len) == (Some(32), Some(32)), "UMEM of another length");
            "K::Umem".into()
        }
        "RAW_FD" => "K::RawFd".into(),
        "IDR" => format!("K::Idr {{ {} }}", object()?),
        "FD" => format!("K::Fd {{ {} }}", object()?),
        "IDRS_ARRAY" => format!(
            "K::IdrsArray {{ {}, min: {}, max: {} }}",
            object()?,
            len(attr.min_cnt)?,
            len(attr.max_cnt)?
        ),
        "ENUM_IN" => {
            let mut text = String::new();
            for (index, elem) in attr.elems.as_deref().context("no elements")?.iter().enumerate() {
                ensure!(elem.elem_id == index, "elements out of order");
                write!(
                    text,
                    "ElemSpec {{ min: {}, max: {}, zero_trailing: {} }}, ",
                    elem.min_len,
                    elem.len,
                    elem.zero_trailing != 0,
                )?;
            }
            format!("K::EnumIn {{ elems: &[{}] }}", text.trim_end_matches(", "))
        }
        other => bail!("kind {other}"),
    })
}

pub(crate) fn static_name(name: &str) -> String {
    name.to_uppercase()
}

fn field_type(tables: &Tables, ctype: &str) -> anyhow::Result<String> {
    Ok(match ctype {
        "__u8" => "T::U8".into(),
        "__u16" => "T::U16".into(),
        "__u32" => "T::U32".into(),
        "__u64" | "__aligned_u64" => "T::U64".into(),
        "__s32" => "T::I32".into(),
        "__be64" => "T::Be64".into(),
        "union {...}" => "T::Union".into(),
        _ if ctype.ends_with("[]") || ctype.ends_with("[0]") => "T::Trailing".into(),
        _ if ctype.starts_with("__u8[") => "T::Bytes".into(),
        // Some capability structures within responses are not in the JSON: bytes will do.
        _ if ctype.starts_with("struct ") => match tables.struct_of(ctype) {
            Ok((name, _)) => format!("T::Nested(&{})", static_name(name)),
            Err(_) => "T::Bytes".into(),
        },
        other => bail!("type {other}"),
    })
}

fn structs(out: &mut String, tables: &Tables) -> anyhow::Result<()> {
    for (name, spec) in &tables.legacy_structs {
        write_struct(out, tables, name, spec).with_context(|| name.clone())?;
    }
    writeln!(out, "\npub(crate) static STRUCTS: &[&StructSpec] = &[")?;
    for name in tables.legacy_structs.keys() {
        writeln!(out, "    &{},", static_name(name))?;
    }
    writeln!(out, "];")?;
    Ok(())
}

fn write_struct(
    out: &mut String,
    tables: &Tables,
    name: &str,
    spec: &Struct,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "\nstatic {}: StructSpec = StructSpec {{ name: {name:?}, size: {}, fields: &[",
        static_name(name),
        spec.size,
    )?;
    for field in &spec.fields {
        writeln!(
            out,
            "    FieldSpec {{ name: {:?}, ty: {}, offset: {}, size: {}, reserved: {} }},",
            field.name,
            field_type(tables, &field.r#type)?,
            field.offset,
            field.size,
            field.name.contains("reserved"),
        )?;
    }
    writeln!(out, "] }};")?;
    Ok(())
}

/// The kernel's names as constants.
fn ids(out: &mut String, tables: &Tables) -> anyhow::Result<()> {
    writeln!(
        out,
        "\n/// The kernel's names of objects, methods, attributes and commands, as constants."
    )?;
    writeln!(out, "pub mod ids {{")?;
    writeln!(
        out,
        "    use super::AttrId;\n    use super::DriverId;\n    use super::MethodId;\n    use super::ObjectRef;\n"
    )?;
    for object in &tables.objects {
        writeln!(out, "    /// Object, `{}`.", object.provider)?;
        writeln!(out, "    pub const {}: ObjectRef = {};", object.object, object_value(object))?;
    }
    for method in &tables.methods {
        writeln!(out, "    /// Method of `{}`.", method.object)?;
        writeln!(
            out,
            "    pub const {}: MethodId = MethodId({:#06x});",
            method.method, method.method_id
        )?;
    }
    let mut attrs: BTreeMap<&str, (u16, &str)> = BTreeMap::new();
    for method in &tables.methods {
        for attr in &method.attrs {
            let (id, _) = *attrs.entry(&attr.name).or_insert((attr.id, &method.method));
            ensure!(id == attr.id, "{} has two ids", attr.name);
        }
    }
    for (name, (id, method)) in attrs {
        writeln!(out, "    /// Attribute of `{method}`.")?;
        writeln!(out, "    pub const {name}: AttrId = AttrId({id:#06x});")?;
    }
    for command in &tables.legacy_write_commands {
        writeln!(out, "    /// `{}`.", command.req_struct)?;
        writeln!(out, "    pub const {}: u64 = {:#x};", command.name, command.write_cmd_attr)?;
    }
    writeln!(out, "}}")?;
    Ok(())
}
