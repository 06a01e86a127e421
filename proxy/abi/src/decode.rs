//! Decoding of an ioctl request: bytes into an [`Outline`], and with the payloads into a
//! [`Request`].
//!
//! The rules, their order and their error numbers are those of `ib_uverbs_ioctl`,
//! `ib_uverbs_cmd_verbs`, `uverbs_set_attr` and `uverbs_process_attr` in
//! `drivers/infiniband/core/uverbs_ioctl.c`. There are two phases, because payloads are in the
//! guest's memory and each byte of it may be read only once:
//!
//! 1. fetch 24 bytes, [`header`]; [`check_driver`]; fetch `hdr.length` bytes, [`parse`];
//! 2. fetch the [`Outline::payloads`] into one arena, [`Outline::with_payloads`].
//!
//! Where this is stricter than the kernel or differs from it:
//! - a guest that breaks two rules may get the error of the other one, when one of them is about
//!   the contents of a payload, which the kernel looks at between attributes;
//! - handles and descriptors are not looked up here, so ENOENT and EBADF come later than in the
//!   kernel, after all errors of form;
//! - unknown attributes that are not mandatory are dropped, as the kernel skips them;
//! - with pages larger than 4096 bytes the kernel takes longer requests.

use std::ops::Range;

use zerocopy::FromBytes;

use crate::error::DecodeError;
use crate::request::ReqAttr;
use crate::request::Request;
use crate::table::Access;
use crate::table::AttrKind;
use crate::table::AttrSpec;
use crate::table::FdPayload;
use crate::table::MethodSpec;
use crate::table::method;
use crate::wire::ATTR_LEN;
use crate::wire::Attr;
use crate::wire::AttrFlags;
use crate::wire::DriverId;
use crate::wire::GuestAddr;
use crate::wire::HDR_LEN;
use crate::wire::INLINE_LEN;
use crate::wire::IoctlHdr;
use crate::wire::MAX_LEN;

/// A request whose form is right and whose payloads have not been fetched.
#[derive(Clone, Debug)]
pub struct Outline {
    hdr: IoctlHdr,
    method: &'static MethodSpec,
    attrs: Vec<ReqAttr>,
    arena_len: usize,
}

/// An input that is behind a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Position in [`Outline::attrs`].
    pub pos: usize,
    /// Where it is in the guest's memory.
    pub addr: GuestAddr,
    /// Where it belongs in the arena; its length is the payload's.
    pub range: Range<usize>,
}

/// Reads and checks the header. `bytes` may go on behind it.
///
/// # Errors
///
/// Lengths that disagree, reserved fields that are not zero, fewer than 24 bytes.
pub fn header(bytes: &[u8]) -> Result<IoctlHdr, DecodeError> {
    let (hdr, _) = IoctlHdr::read_from_prefix(bytes)
        .map_err(|_| DecodeError::Truncated { have: bytes.len(), need: HDR_LEN })?;
    let IoctlHdr { length, num_attrs, reserved1, reserved2, .. } = hdr;
    let need = usize::from(num_attrs).saturating_mul(ATTR_LEN).saturating_add(HDR_LEN);
    if usize::from(length) > MAX_LEN || usize::from(length) != need {
        return Err(DecodeError::Length { length, num_attrs });
    }
    if reserved1 != 0 || reserved2 != 0 {
        return Err(DecodeError::HeaderReserved { reserved1, reserved2 });
    }
    Ok(hdr)
}

/// Checks that the request is for a device of this driver. The kernel does so after the checks
/// of [`header`] and before all that [`parse`] adds.
///
/// # Errors
///
/// It is for another driver.
pub fn check_driver(hdr: &IoctlHdr, device: DriverId) -> Result<(), DecodeError> {
    if hdr.driver() == device {
        Ok(())
    } else {
        Err(DecodeError::Driver { got: hdr.driver(), device })
    }
}

/// Reads and checks header and attributes. `bytes` may go on behind them.
///
/// # Errors
///
/// See [`DecodeError`].
pub fn parse(bytes: &[u8]) -> Result<Outline, DecodeError> {
    let hdr = header(bytes)?;
    let need = usize::from(hdr.length);
    let array =
        bytes.get(HDR_LEN..need).ok_or(DecodeError::Truncated { have: bytes.len(), need })?;
    let driver = hdr.driver();
    let method = method(hdr.object(), hdr.method(), driver).ok_or(DecodeError::UnknownMethod {
        object: hdr.object(),
        method: hdr.method(),
        driver,
    })?;
    let mut outline = Outline { hdr, method, attrs: Vec::new(), arena_len: 0 };
    for (index, bytes) in array.chunks_exact(ATTR_LEN).enumerate() {
        // A chunk is always as long as an attribute, so nothing is skipped.
        let Ok(attr) = Attr::read_from_bytes(bytes) else {
            continue;
        };
        outline.take(index, attr)?;
    }
    outline.finish()?;
    Ok(outline)
}

impl Outline {
    /// `uverbs_set_attr`.
    fn take(&mut self, index: usize, attr: Attr) -> Result<(), DecodeError> {
        let Some(spec) = self.method.attr(attr.id(), self.hdr.driver()) else {
            if attr.flags().contains(AttrFlags::MANDATORY) {
                return Err(DecodeError::UnknownAttr { method: self.method.name, attr: attr.id() });
            }
            return Ok(());
        };
        if self.attrs.iter().any(|seen| seen.spec.id == spec.id) {
            return Err(DecodeError::Duplicate { attr: spec.name });
        }
        let pointed = check(spec, &attr)?;
        let payload = pointed.then(|| {
            let start = self.arena_len;
            self.arena_len = start.saturating_add(attr.len.into());
            start..self.arena_len
        });
        self.attrs.push(ReqAttr { spec, attr, index: Some(index), payload });
        Ok(())
    }

    /// What `ib_uverbs_run_method` checks after all attributes, and then the first things that
    /// every handler does with some of them.
    fn finish(&self) -> Result<(), DecodeError> {
        for spec in self.method.attrs_of(self.hdr.driver()) {
            if spec.mandatory && !self.attrs.iter().any(|attr| attr.spec.id == spec.id) {
                return Err(DecodeError::Missing { method: self.method.name, attr: spec.name });
            }
        }
        for ReqAttr { spec, attr, .. } in &self.attrs {
            // uverbs_get_flags64 takes 4 or 8 bytes; uverbs_attr_ptr_get_array_size whole elements.
            let whole = match (spec.kind, spec.fd_payload) {
                (AttrKind::FlagsIn, _) => attr.len == 4 || attr.len == 8,
                (_, FdPayload::Array) => attr.len.is_multiple_of(4),
                _ => true,
            };
            if !whole {
                return Err(DecodeError::AttrLen { attr: spec.name, len: attr.len });
            }
        }
        Ok(())
    }

    /// The header.
    #[must_use]
    pub const fn hdr(&self) -> &IoctlHdr {
        &self.hdr
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &'static MethodSpec {
        self.method
    }

    /// The attributes that the method has, in the guest's order.
    #[must_use]
    pub fn attrs(&self) -> &[ReqAttr] {
        &self.attrs
    }

    /// Inputs that have to be fetched, each once.
    pub fn payloads(&self) -> impl Iterator<Item = Payload> {
        self.attrs.iter().enumerate().filter_map(|(pos, attr)| {
            let range = attr.payload.clone()?;
            Some(Payload { pos, addr: GuestAddr(attr.attr.data), range })
        })
    }

    /// Length of all payloads together, in bytes. A method's attributes bound it: each is at most
    /// 64 KiB and occurs once.
    #[must_use]
    pub const fn arena_len(&self) -> usize {
        self.arena_len
    }

    /// Completes the request with its payloads, each in its [`Payload::range`] of `arena`.
    ///
    /// # Errors
    ///
    /// Payloads that break a rule; for `INVOKE_WRITE` the rules of the legacy command.
    pub fn with_payloads(self, arena: Vec<u8>) -> Result<Request, DecodeError> {
        if arena.len() != self.arena_len {
            return Err(DecodeError::Arena { have: arena.len(), need: self.arena_len });
        }
        let request = Request::new(self.hdr, self.method, self.attrs, arena);
        for attr in request.attrs() {
            check_tail(attr.spec, attr.attr.elem_id(), request.bytes(attr))?;
        }
        request.with_legacy()
    }
}

/// `uverbs_process_attr`: checks one attribute but for the contents of its payload. True if it
/// has one.
fn check(spec: &'static AttrSpec, attr: &Attr) -> Result<bool, DecodeError> {
    let len_error = DecodeError::AttrLen { attr: spec.name, len: attr.len };
    let reserved = || match attr.attr_data {
        0 => Ok(()),
        value => Err(DecodeError::AttrReserved { attr: spec.name, value }),
    };
    let pointed = usize::from(attr.len) > INLINE_LEN;
    match spec.kind {
        AttrKind::EnumIn { elems } => {
            let elem = attr.elem_id();
            let shape =
                elems.get(usize::from(elem)).ok_or(DecodeError::Elem { attr: spec.name, elem })?;
            if attr.enum_reserved() != 0 {
                let value = attr.enum_reserved().into();
                return Err(DecodeError::AttrReserved { attr: spec.name, value });
            }
            check_inline_tail(spec, attr)?;
            check_len(spec, attr, shape.min, shape.max, shape.zero_trailing)?;
            Ok(pointed)
        }
        AttrKind::PtrIn { min, max, zero_trailing, .. } => {
            check_inline_tail(spec, attr)?;
            check_len(spec, attr, min, max, zero_trailing)?;
            reserved()?;
            Ok(pointed)
        }
        AttrKind::ConstIn => {
            check_len(spec, attr, 8, 8, false)?;
            reserved()?;
            Ok(false)
        }
        AttrKind::FlagsIn => {
            check_len(spec, attr, 4, 8, false)?;
            reserved()?;
            Ok(false)
        }
        AttrKind::Umem => {
            check_len(spec, attr, 32, 32, false)?;
            reserved()?;
            Ok(true)
        }
        AttrKind::PtrOut { min, max, zero_trailing } => {
            check_len(spec, attr, min, max, zero_trailing)?;
            reserved()?;
            Ok(false)
        }
        AttrKind::Idr { access, .. } => {
            reserved()?;
            if attr.len != 0 {
                return Err(len_error);
            }
            if access != Access::New {
                check_handle(spec, attr)?;
            }
            Ok(false)
        }
        AttrKind::Fd { access, .. } => {
            reserved()?;
            if attr.len != 0 {
                return Err(len_error);
            }
            if access != Access::New {
                check_fd(spec, attr)?;
            }
            Ok(false)
        }
        AttrKind::RawFd => {
            reserved()?;
            if attr.len != 0 {
                return Err(len_error);
            }
            check_fd(spec, attr)?;
            Ok(false)
        }
        AttrKind::IdrsArray { min, max, .. } => {
            reserved()?;
            let count = attr.len.checked_div(4).unwrap_or_default();
            if !attr.len.is_multiple_of(4) || count < min || count > max {
                return Err(len_error);
            }
            Ok(pointed)
        }
    }
}

fn check_len(
    spec: &'static AttrSpec,
    attr: &Attr,
    min: u16,
    max: u16,
    zero_trailing: bool,
) -> Result<(), DecodeError> {
    if attr.len < min || (!zero_trailing && attr.len > max) {
        return Err(DecodeError::AttrLen { attr: spec.name, len: attr.len });
    }
    Ok(())
}

/// The rule of zeros for an inline value: the kernel knows it before it looks at the length.
fn check_inline_tail(spec: &'static AttrSpec, attr: &Attr) -> Result<(), DecodeError> {
    match attr.data.to_ne_bytes().get(..attr.len.into()) {
        Some(bytes) => check_tail(spec, attr.elem_id(), bytes),
        None => Ok(()),
    }
}

/// `uverbs_is_attr_cleared`: what is longer than the known structure ends in zeros.
fn check_tail(spec: &'static AttrSpec, elem: u8, bytes: &[u8]) -> Result<(), DecodeError> {
    let known = match spec.kind {
        AttrKind::PtrIn { max, zero_trailing: true, .. } => max,
        AttrKind::EnumIn { elems } => match elems.get(usize::from(elem)) {
            Some(shape) if shape.zero_trailing => shape.max,
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    match bytes.get(known.into()..) {
        Some(tail) if tail.iter().any(|byte| *byte != 0) => {
            Err(DecodeError::TrailingNonZero { attr: spec.name })
        }
        _ => Ok(()),
    }
}

/// `lookup_get_idr_uobject`, without the look-up.
fn check_handle(spec: &'static AttrSpec, attr: &Attr) -> Result<(), DecodeError> {
    let value = attr.data_s64();
    if value < 0 {
        return Err(DecodeError::NegativeHandle { attr: spec.name, value });
    }
    if u32::try_from(attr.data).is_err() {
        return Err(DecodeError::HandleRange { attr: spec.name, value: attr.data });
    }
    Ok(())
}

/// `lookup_get_fd_uobject` and `UVERBS_ATTR_TYPE_RAW_FD`, without the look-up.
fn check_fd(spec: &'static AttrSpec, attr: &Attr) -> Result<(), DecodeError> {
    let value = attr.data_s64();
    match i32::try_from(value) {
        Ok(_) => Ok(()),
        Err(_) => Err(DecodeError::FdRange { attr: spec.name, value }),
    }
}
