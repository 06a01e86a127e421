//! Requests as text, by the kernel's names, in the manner of strace:
//! `CQ_CREATE(HANDLE=new, CQE=256, USER_HANDLE=0x7f01, COMP_CHANNEL=fd 5, RESP_CQE=0x8000[4])`,
//! `REG_MR(start=0x7f00, length=0x1000, hca_va=0x7f00, pd_handle=0, access_flags=7, CORE_OUT=0x9000[12])`.
//! A number in brackets is a length in bytes.

use std::fmt;

use crate::legacy::FieldType;
use crate::legacy::LegacySpec;
use crate::legacy::StructSpec;
use crate::legacy::uhw;
use crate::request::LegacyRequest;
use crate::request::ReqAttr;
use crate::request::Request;
use crate::request::uint;
use crate::request::words;
use crate::table::Access;
use crate::table::AttrKind;
use crate::table::MethodSpec;

/// Bytes of a value that are shown before it is cut.
const SHOWN: usize = 16;

/// A request that formats itself.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a Request);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_request(self.0, f)
    }
}

/// Writes a request.
///
/// # Errors
///
/// Those of `out`.
pub fn fmt_request(request: &Request, out: &mut impl fmt::Write) -> fmt::Result {
    if let Some(legacy) = request.legacy() {
        return fmt_legacy(request, legacy, out);
    }
    let method = request.method();
    write!(out, "{}(", method.short_name())?;
    for (pos, attr) in request.attrs().iter().enumerate() {
        let comma = if pos == 0 { "" } else { ", " };
        write!(out, "{comma}{}=", attr_name(method, attr))?;
        fmt_attr(request, attr, out)?;
    }
    out.write_char(')')
}

/// The part of an attribute's name that does not repeat the method's: words of the method's name
/// are taken off the front (`CREATE_CQ_CQE` of `CQ_CREATE` is `CQE`).
fn attr_name(method: &MethodSpec, attr: &ReqAttr) -> &'static str {
    let full = attr.spec.short_name();
    if attr.spec.is_uhw_in() || attr.spec.is_uhw_out() {
        return full;
    }
    let mut name = full;
    // Each word once: PORT_NUM is what remains of QUERY_PORT_PORT_NUM.
    let mut words: Vec<&str> = method.short_name().split('_').collect();
    while let Some((head, rest)) = name.split_once('_') {
        let Some(at) = words.iter().position(|word| *word == head) else {
            break;
        };
        words.swap_remove(at);
        name = rest;
    }
    name
}

fn fmt_attr(request: &Request, attr: &ReqAttr, out: &mut impl fmt::Write) -> fmt::Result {
    let bytes = request.bytes(attr);
    match attr.spec.kind {
        AttrKind::Idr { access: Access::New, .. } | AttrKind::Fd { access: Access::New, .. } => {
            out.write_str("new")
        }
        AttrKind::Idr { .. } => write!(out, "{}", attr.attr.data),
        AttrKind::Fd { .. } | AttrKind::RawFd => write!(out, "fd {}", attr.attr.data_s64()),
        AttrKind::ConstIn => write!(out, "{}", attr.attr.data),
        AttrKind::FlagsIn => write!(out, "{:#x}", request.u64_of(attr).unwrap_or_default()),
        AttrKind::PtrOut { .. } => write!(out, "{:#x}[{}]", attr.attr.data, attr.len()),
        AttrKind::EnumIn { .. } => {
            write!(out, "{}", attr.attr.elem_id())?;
            if bytes.is_empty() { Ok(()) } else { fmt_value(request, attr, bytes, out) }
        }
        AttrKind::IdrsArray { .. } => {
            out.write_char('[')?;
            for (offset, handle) in words(bytes) {
                let comma = if offset == 0 { "" } else { ", " };
                write!(out, "{comma}{handle}")?;
            }
            out.write_char(']')
        }
        AttrKind::PtrIn { .. } if attr.spec.is_uhw_in() => fmt_uhw(request, out),
        AttrKind::PtrIn { .. } | AttrKind::Umem => fmt_value(request, attr, bytes, out),
    }
}

fn fmt_value(
    request: &Request,
    attr: &ReqAttr,
    bytes: &[u8],
    out: &mut impl fmt::Write,
) -> fmt::Result {
    match request.u64_of(attr) {
        Some(value) if attr.len() == 8 => write!(out, "{value:#x}"),
        Some(value) => write!(out, "{value}"),
        None => fmt_bytes(bytes, out),
    }
}

fn fmt_legacy(request: &Request, legacy: &LegacyRequest, out: &mut impl fmt::Write) -> fmt::Result {
    let LegacySpec { req, .. } = legacy.spec;
    write!(out, "{}(", legacy.spec.short_name)?;
    let core_in = request.core_in();
    // INVOKE_WRITE ignores the field `response`; what is shown is where CORE_OUT points.
    let mut first = fmt_fields(req, core_in, 0, &["response"], out)?;
    let mut comma = |out: &mut dyn fmt::Write| {
        let text = if first { "" } else { ", " };
        first = false;
        out.write_str(text)
    };
    if let Some(tail) = core_in.len().checked_sub(req.size.into()).filter(|tail| *tail != 0) {
        comma(out)?;
        write!(out, "+{tail} B")?;
    }
    if legacy.uhw_in.is_some() {
        comma(out)?;
        out.write_str("UHW_IN=")?;
        fmt_uhw(request, out)?;
    }
    for (name, pos) in [("CORE_OUT", legacy.core_out), ("UHW_OUT", legacy.uhw_out)] {
        if let Some(attr) = pos.and_then(|pos| request.attrs().get(pos)) {
            comma(out)?;
            write!(out, "{name}={:#x}[{}]", attr.attr.data, attr.len())?;
        }
    }
    out.write_char(')')
}

/// The provider's private input: by the provider's names where they are known.
fn fmt_uhw(request: &Request, out: &mut impl fmt::Write) -> fmt::Result {
    let bytes = request.uhw_in();
    let spec = uhw(request.hdr().driver(), request.operation(), bytes.len());
    let Some(spec) = spec else {
        return fmt_bytes(bytes, out);
    };
    write!(out, "{}{{", spec.name)?;
    for (index, field) in spec.fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let value = uint(bytes, field.offset.into(), field.size.into());
        write!(out, "{comma}{}={value:#x}", field.name)?;
    }
    write!(out, "}}[{}]", bytes.len())
}

/// Writes a structure: `{mr_handle=1, lkey=42, rkey=42}`. Fields that the bytes do not reach are
/// left out, and so are padding and what follows the structure.
///
/// # Errors
///
/// Those of `out`.
pub fn fmt_struct(spec: &StructSpec, bytes: &[u8], out: &mut impl fmt::Write) -> fmt::Result {
    out.write_char('{')?;
    fmt_fields(spec, bytes, 0, &[], out)?;
    out.write_char('}')
}

/// Writes the fields of a structure that starts at `base`; true if there were none.
fn fmt_fields(
    spec: &StructSpec,
    bytes: &[u8],
    base: usize,
    skip: &[&str],
    out: &mut impl fmt::Write,
) -> Result<bool, fmt::Error> {
    let mut first = true;
    for field in spec.fields {
        let offset = base.saturating_add(field.offset.into());
        let end = offset.saturating_add(field.size.into());
        let Some(value) = bytes.get(offset..end) else {
            continue;
        };
        let trailing = matches!(field.ty, FieldType::Trailing);
        if field.reserved || trailing || skip.contains(&field.name) {
            continue;
        }
        if !first {
            out.write_str(", ")?;
        }
        first = false;
        write!(out, "{}=", field.name)?;
        let number = uint(bytes, offset, field.size.into());
        match field.ty {
            FieldType::I32 => {
                let number = u32::try_from(number).unwrap_or_default().cast_signed();
                write!(out, "{number}")?;
            }
            FieldType::U64 => write!(out, "{number:#x}")?,
            FieldType::Be64 => write!(out, "{:#018x}", u64::from_be(number))?,
            FieldType::U8 | FieldType::U16 | FieldType::U32 => write!(out, "{number}")?,
            FieldType::Bytes | FieldType::Union => fmt_bytes(value, out)?,
            FieldType::Nested(inner) => {
                out.write_char('{')?;
                fmt_fields(inner, bytes, offset, &[], out)?;
                out.write_char('}')?;
            }
            FieldType::Trailing => {}
        }
    }
    Ok(first)
}

/// Writes bytes in hexadecimal, cut after [`SHOWN`], with their number.
fn fmt_bytes(bytes: &[u8], out: &mut impl fmt::Write) -> fmt::Result {
    for byte in bytes.iter().take(SHOWN) {
        write!(out, "{byte:02x}")?;
    }
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    write!(out, "{more}[{}]", bytes.len())
}
