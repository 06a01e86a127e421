//! The C program that one kernel's declarations become.

use std::fmt::Write as _;
use std::path::Path;

use verbgate_abi_gen::facts::Access;
use verbgate_abi_gen::facts::Attr;
use verbgate_abi_gen::facts::Elem;
use verbgate_abi_gen::facts::Kind;

use crate::Error;
use crate::compile::Program;
use crate::declare::AttrDecl;
use crate::declare::Place;
use crate::legacy;
use crate::small;
use crate::text::tidy;
use crate::tree::Tree;

/// The kernel's framework: what the macros of attributes and commands expand to.
const FRAMEWORK: &str = "include/rdma/uverbs_ioctl.h";
/// The types that those macros fill.
const TYPES: &[(&str, &str)] = &[
    ("enum", "uverbs_attr_type"),
    ("enum", "uverbs_obj_access"),
    ("struct", "uverbs_attr_spec"),
    ("struct", "uverbs_attr_def"),
    ("enum", "uapi_definition_kind"),
    ("enum", "uapi_definition_scope"),
    ("struct", "uapi_definition"),
];
/// Macros of other headers that declarations use.
const MORE_MACROS: &[(&str, &[&str])] =
    &[("include/linux/mlx5/device.h", &["MLX5_ST_SZ_BYTES(", "MLX5_UN_SZ_BYTES("])];
/// Types of other headers whose constants declarations use. Not every kernel has each.
const MORE_TYPES: &[(&str, &str, &str)] = &[("include/linux/pci-tph.h", "enum", "tph_mem_type")];
/// Headers beside those that programs see, where sizes in declarations come from. Not every kernel
/// has each.
pub(crate) const MORE_HEADERS: &[&str] =
    &["include/linux/mlx5/mlx5_ifc.h", "drivers/infiniband/hw/usnic/usnic_abi.h"];

/// What the kernel's own headers give the macros, in a program that is no kernel.
const PRELUDE: &str = "\
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <linux/types.h>
#ifndef __counted_by
#define __counted_by(member)
#endif
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int8_t s8; typedef int16_t s16; typedef int32_t s32; typedef int64_t s64;
#define BIT(nr) (1UL << (nr))
#define BIT_ULL(nr) (1ULL << (nr))
#define DECLARE_FLEX_ARRAY(type, name) struct { struct { } empty_##name; type name[]; }
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define BUILD_BUG_ON_ZERO(condition) 0
#define sizeof_field(type, member) sizeof(((type *)0)->member)
#define offsetofend(type, member) (offsetof(type, member) + sizeof_field(type, member))
";

/// The text before a kernel's declarations.
pub(crate) fn head(tree: &Tree) -> Result<String, Error> {
    let framework = tree.source(FRAMEWORK)?;
    let commands = tree.source(legacy::FILE)?;
    let mut head = PRELUDE.to_owned();
    let mut line = |text: &str| {
        head.push_str(text);
        head.push('\n');
    };
    for header in tree.headers()? {
        let name = Path::new(&header).file_name().unwrap_or_default().to_string_lossy();
        line(&format!("#include <rdma/{name}>"));
    }
    for header in MORE_HEADERS.iter().map(|header| tree.path(header)).filter(|path| path.exists()) {
        let header = std::path::absolute(header).map_err(Error::Scratch)?;
        line(&format!("#include \"{}\"", header.display()));
    }
    for define in &framework.defines {
        line(&format!("#define {define}"));
    }
    for define in commands.defines.iter().filter(|define| define.starts_with("UAPI_DEF_WRITE")) {
        line(&format!("#define {define}"));
    }
    for (keyword, name) in TYPES {
        let body = framework.body_of(keyword, name).ok_or_else(|| Error::Missing {
            file: FRAMEWORK.to_owned(),
            name: format!("{keyword} {name}"),
        })?;
        line(&format!("{keyword} {name} {{ {} }};", tidy(&body)));
    }
    for (file, names) in MORE_MACROS.iter().filter(|(file, _)| tree.path(file).exists()) {
        let wanted = |define: &&String| names.iter().any(|name| define.starts_with(name));
        for define in tree.source(file)?.defines.iter().filter(wanted) {
            line(&format!("#define {define}"));
        }
    }
    for (file, keyword, name) in MORE_TYPES.iter().filter(|(file, ..)| tree.path(file).exists()) {
        if let Some(body) = tree.source(file)?.body_of(keyword, name) {
            line(&format!("{keyword} {name} {{ {} }};", tidy(&body)));
        }
    }
    Ok(head)
}

/// An attribute whose numbers a program will print.
#[derive(Debug)]
pub(crate) struct Pending {
    decl: AttrDecl,
    place: Place,
    /// The place of the first number; the order is [`FIELDS`]'.
    first: usize,
    /// The places of the first numbers of an enum's elements.
    elems: Vec<usize>,
}

/// What is asked of every attribute, in this order.
const FIELDS: &[&str] = &[
    "id",
    "attr.mandatory",
    "attr.is_udata",
    "attr.zero_trailing",
    "attr.alloc_and_copy",
    "attr.u.ptr.min_len",
    "attr.u.ptr.len",
    "attr.u.obj.obj_type",
    "attr.u2.objs_arr.obj_type",
    "attr.u2.objs_arr.min_len",
    "attr.u2.objs_arr.max_len",
];
/// What is asked of every element of an enum.
const ELEM_FIELDS: &[&str] = &["u.ptr.min_len", "u.ptr.len", "zero_trailing", "alloc_and_copy"];

/// Puts an attribute into the program. `unique` is a number that no other attribute has.
pub(crate) fn ask(decl: &AttrDecl, place: &Place, unique: usize, program: &mut Program) -> Pending {
    let what = format!("{} ({place})", decl.name);
    for define in &decl.defines {
        let name: String =
            define.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        program.declare(&what, format!("#undef {name}"));
        program.declare(&what, format!("#define {define}"));
    }
    let mut line = String::new();
    let mut code = decl.code.clone();
    let mut elems = Vec::new();
    if let Some((array, inside)) = &decl.elems {
        // Each use has its own copy, so that nothing is defined twice.
        let own = format!("{array}_{unique}");
        code = code.replacen(array, &own, 1);
        // A String takes all that is written.
        let _ = write!(line, "static const struct uverbs_attr_spec {own}[] = {{ {inside} }}; ");
    }
    let _ = write!(line, "static const struct uverbs_attr_def *const a{unique}[] = {{ {code} }};");
    program.declare(&what, line);
    let attr = format!("a{unique}[{}]", decl.index);
    let kind = program.value(&what, format!("{attr}->attr.type == {}", attr_type(decl.kind)));
    let object = decl.object.as_ref().map_or("0", |(_, access)| access_name(*access));
    let field = if decl.kind == Kind::IdrsArray { "u2.objs_arr.access" } else { "u.obj.access" };
    let field =
        if decl.object.is_some() { format!("{attr}->attr.{field}") } else { "0".to_owned() };
    program.value(&what, format!("{field} == {object}"));
    for field in FIELDS {
        program.value(&what, format!("{attr}->{field}"));
    }
    if let Some((array, inside)) = &decl.elems {
        for at in 0..crate::text::split(inside, ',').len() {
            // Designators may leave gaps: what is beyond the array's end counts as nothing.
            let array = format!("{array}_{unique}");
            let first = program.value(&what, format!("ARRAY_SIZE({array}) > {at}"));
            for field in ELEM_FIELDS {
                program.value(&what, format!("{array}[{at}].{field}"));
            }
            elems.push(first);
        }
    }
    Pending { decl: decl.clone(), place: place.clone(), first: kind, elems }
}

/// The attribute with the numbers that the program has printed.
pub(crate) fn fill(pending: Pending, series: &str, values: &[u64]) -> Result<Attr, Error> {
    let Pending { decl, place, first, elems } = pending;
    let at = |offset: usize| first.saturating_add(offset);
    // The kernel's macro must mean what its name says.
    if small::<u8>(values, at(0))? != 1 || small::<u8>(values, at(1))? != 1 {
        return Err(Error::UnknownMacro { name: decl.code, place: place.to_string() });
    }
    let number = |field: usize| small::<u16>(values, at(field.saturating_add(2)));
    let flag = |field: usize| number(field).map(|value| value != 0);
    let pointer = matches!(
        decl.kind,
        Kind::PtrIn | Kind::PtrOut | Kind::ConstIn | Kind::FlagsIn | Kind::Umem
    );
    let some = |wanted: bool, field: usize| wanted.then(|| number(field)).transpose();
    let some_flag = |field: usize| pointer.then(|| flag(field)).transpose();
    let array = decl.kind == Kind::IdrsArray;
    let single = matches!(decl.kind, Kind::Idr | Kind::Fd);
    let elems = elems.iter().enumerate().map(|(elem_id, first)| {
        let number = |offset: usize| small::<u16>(values, first.saturating_add(offset));
        Ok(Elem {
            elem_id,
            min_len: number(1)?,
            len: number(2)?,
            zero_trailing: number(3)? != 0,
            alloc_and_copy: number(4)? != 0,
        })
    });
    let elems = elems.collect::<Result<Vec<_>, Error>>()?;
    let (obj, access) = decl.object.unzip();
    Ok(Attr {
        id: number(0)?,
        kind: decl.kind,
        ctype: decl.ctype,
        obj,
        obj_type: if array { some(true, 8)? } else { some(single, 7)? },
        access,
        mandatory: flag(1)?,
        is_udata: flag(2)?,
        zero_trailing: some_flag(3)?,
        alloc_and_copy: some_flag(4)?,
        min_len: some(pointer, 5)?,
        len: some(pointer, 6)?,
        min_cnt: some(array, 9)?,
        max_cnt: some(array, 10)?,
        elems: (decl.kind == Kind::EnumIn).then_some(elems),
        provider: place.provider,
        first_seen: series.to_owned(),
        present_in: vec![series.to_owned()],
        changed: Vec::new(),
        name: decl.name,
    })
}

fn attr_type(kind: Kind) -> &'static str {
    match kind {
        Kind::PtrIn | Kind::ConstIn | Kind::FlagsIn | Kind::Umem => "UVERBS_ATTR_TYPE_PTR_IN",
        Kind::PtrOut => "UVERBS_ATTR_TYPE_PTR_OUT",
        Kind::EnumIn => "UVERBS_ATTR_TYPE_ENUM_IN",
        Kind::Idr => "UVERBS_ATTR_TYPE_IDR",
        Kind::IdrsArray => "UVERBS_ATTR_TYPE_IDRS_ARRAY",
        Kind::Fd => "UVERBS_ATTR_TYPE_FD",
        Kind::RawFd => "UVERBS_ATTR_TYPE_RAW_FD",
    }
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "UVERBS_ACCESS_READ",
        Access::Write => "UVERBS_ACCESS_WRITE",
        Access::New => "UVERBS_ACCESS_NEW",
        Access::Destroy => "UVERBS_ACCESS_DESTROY",
    }
}
