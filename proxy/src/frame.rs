//! Frame: the request laid out in memory that the guest cannot change.
//!
//! ```text
//! read-only half                                              │ read-write half
//! control │ payloads … │ header │ inputs and filler │ id, len │ flags, data │ more outputs │ scratch
//!                      └ the request; its address is the same for every request
//! ```
//!
//! The kernel copies header and array once, and reads longer inputs later through their pointers.
//! The kernel writes `flags` and `data` of the attributes that are outputs or new objects, into the
//! array. So every attribute that the kernel only reads comes first, the boundary falls between
//! `len` and `flags` of the first written attribute, and everything that the kernel reads lies
//! before the boundary.
//!
//! A guest thread may race to alter the entries behind the boundary, and so smuggle in an optional
//! attribute that the request did not have, in the place of another optional attribute (if a
//! mandatory attribute is missing, there is no request). So an optional attribute is the first. If
//! there are more, the frame names absent attributes with a neutral value before the boundary,
//! which makes a second naming EINVAL. The rest is in [`residue`].

use verbgate_abi::Errno;
use verbgate_abi::request::OutPlace;
use verbgate_abi::request::Place;
use verbgate_abi::request::ReqAttr;
use verbgate_abi::request::Request;
use verbgate_abi::residue;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::AttrId;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::INLINE_LEN;
use verbgate_abi::wire::IoctlHdr;
use verbgate_sys::control;
use verbgate_sys::frame::Frame;
use verbgate_sys::frame::SPARE;
use verbgate_sys::mem::Range;
use verbgate_sys::stub::INPUTS;
use verbgate_sys::stub::Piece;
use verbgate_sys::stub::request_offset;
use verbgate_sys::window::RO_LEN;
use zerocopy::IntoBytes;

use crate::translate::Plan;

/// An attribute id that no method knows and no kernel will: the largest that a core namespace can
/// hold is smaller (`UVERBS_API_ATTR_KEY_MASK`). Optional, so the kernel skips it.
pub const FILLER: AttrId = AttrId(0x0ffe);

/// Where outputs begin in the read-write half, behind the longest array.
pub const SCRATCH: usize = 4096;

/// An attribute that the kernel writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Its position in the request.
    pub pos: usize,
    /// Offset of its `flags` in the read-write half; `data` follows 4 bytes on.
    pub flags_at: usize,
    /// The supervisor must see this output before the guest does.
    pub scratch: Option<Scratch>,
}

/// An output that goes by way of the supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scratch {
    /// Offset in the read-write half.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Where the guest wants it.
    pub guest: u64,
}

/// Where a framed request's outputs are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    /// In the order of the array.
    pub written: Vec<Written>,
}

impl Layout {
    /// Whether outputs go by way of the supervisor: then all do, and else none.
    #[must_use]
    pub fn is_supervised(&self) -> bool {
        self.written.iter().any(|written| written.scratch.is_some())
    }

    /// What the stub copies from the array to the guest's own, which is at `array`: `flags`, and
    /// `data` of new objects.
    #[must_use]
    pub fn entries(&self, request: &Request, array: u64) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.written.len() * 2);
        for Written { pos, flags_at, .. } in &self.written {
            let Some(attr) = request.attrs().get(*pos) else { continue };
            let Some(index) = attr.index else { continue };
            let to = array.wrapping_add((HDR_LEN + ATTR_LEN * index) as u64);
            pieces.push(Piece { from: *flags_at, len: 2, to: to.wrapping_add(4) });
            if attr.spec.is_new() {
                pieces.push(Piece { from: flags_at + 4, len: 8, to: to.wrapping_add(8) });
            }
        }
        pieces
    }
}

/// The outputs of a request that must be found writable before it is made, where the guest wants
/// them: those that go by way of the supervisor, but one that is only told otherwise.
pub fn touched(request: &Request, plan: &Plan) -> impl Iterator<Item = Range> {
    let outputs = request.attrs().iter().enumerate();
    let outputs = outputs.filter(|(pos, _)| is_touched(request, plan, *pos));
    outputs.map(|(_, attr)| Range { addr: attr.attr.data, len: attr.attr.len.into() })
}

/// Writes across the boundary between the halves.
fn put(frame: &mut Frame, at: usize, bytes: &[u8]) {
    let before = RO_LEN.saturating_sub(at).min(bytes.len());
    let (low, high) = bytes.split_at_checked(before).unwrap_or((bytes, &[]));
    if let Some(to) = frame.ro().get_mut(at..at + before) {
        to.copy_from_slice(low);
    }
    if !high.is_empty() {
        frame.rw_write((at + before).saturating_sub(RO_LEN), high);
    }
}

/// Lays a request out. `base` is the guest's address of the frame.
///
/// # Errors
/// `E2BIG` when it does not fit: more inputs than slots, or more bytes than the halves hold.
pub fn lay_out(
    frame: &mut Frame,
    base: u64,
    request: &Request,
    plan: &Plan,
) -> Result<Layout, Errno> {
    let attrs = || request.attrs().iter().enumerate();
    let mut inputs: Vec<Attr> = Vec::with_capacity(INPUTS);
    let mut payload_at = control::END;
    for (pos, attr) in attrs().filter(|(_, a)| !a.spec.is_written_by_kernel()) {
        let mut entry = attr.attr;
        let patches = || {
            plan.patches.iter().filter_map(move |p| match p.place {
                Place::AttrData(at) if at == pos => Some((0, p.number)),
                Place::Payload { pos: at, offset } if at == pos => Some((offset, p.number)),
                _ => None,
            })
        };
        if let Some(payload) = payload(request, attr) {
            let end = payload_at + payload.len();
            if end > request_offset(INPUTS) {
                return Err(Errno::E2BIG);
            }
            put(frame, payload_at, payload);
            for (offset, number) in patches() {
                put(frame, payload_at + offset, &number.to_ne_bytes());
            }
            entry.data = base + payload_at as u64;
            payload_at = end.next_multiple_of(8);
        } else {
            let mut inline = entry.data.to_ne_bytes();
            if is_bytes(attr.spec) {
                // A short value may have come from elsewhere than the attribute itself. What is
                // behind it is not the request's, but drivers that ask for more than there is
                // read it (ib_copy_from_udata() does not look at inlen).
                inline = [0; INLINE_LEN];
                for (to, from) in inline.iter_mut().zip(request.bytes(attr)) {
                    *to = *from;
                }
            }
            for (offset, number) in patches() {
                // A descriptor attribute is 64 bits wide, one inside a value 32.
                let wide = u64::from(number).to_ne_bytes();
                let len = if is_bytes(attr.spec) { 4 } else { 8 };
                for (to, from) in inline.iter_mut().skip(offset).zip(wide.iter().take(len)) {
                    *to = *from;
                }
            }
            entry.data = u64::from_ne_bytes(inline);
        }
        inputs.push(entry);
    }

    let mut outputs: Vec<usize> =
        attrs().filter(|(_, a)| a.spec.is_written_by_kernel()).map(|(pos, _)| pos).collect();
    let spec_at = |pos: &usize| request.attrs().get(*pos).map(|attr| attr.spec);
    outputs.sort_by_key(|pos| spec_at(pos).map(residue::order));
    let optional = outputs.iter().filter_map(spec_at).filter(|spec| !spec.mandatory).count();
    if optional >= residue::OPEN {
        inputs.extend(neutral(request));
    }
    if inputs.len() > INPUTS {
        return Err(Errno::E2BIG);
    }
    inputs.resize(INPUTS, Attr { attr_id: FILLER.0, ..Attr::default() });

    let count = inputs.len() + outputs.len();
    let header = IoctlHdr {
        length: u16::try_from(HDR_LEN + ATTR_LEN * count).map_err(|_| Errno::E2BIG)?,
        num_attrs: u16::try_from(count).map_err(|_| Errno::E2BIG)?,
        ..*request.hdr()
    };
    let start = request_offset(INPUTS);
    put(frame, start, header.as_bytes());
    put(frame, start + HDR_LEN, inputs.as_bytes());
    let mut at = start + HDR_LEN + ATTR_LEN * INPUTS;
    let mut layout = Layout::default();
    let mut scratch_at = SCRATCH;
    for pos in outputs {
        let Some(attr) = request.attrs().get(pos) else { continue };
        let mut entry = attr.attr;
        let scratch = is_supervised(request, plan, pos).then_some(Scratch {
            at: scratch_at,
            len: usize::from(entry.len),
            guest: entry.data,
        });
        if let Some(scratch) = scratch {
            scratch_at = (scratch.at + scratch.len).next_multiple_of(8);
            if scratch_at > SPARE {
                return Err(Errno::E2BIG);
            }
            // What the kernel leaves alone must not be the last request's.
            frame.rw_write(scratch.at, &vec![0; scratch.len]);
            entry.data = base + (RO_LEN + scratch.at) as u64;
        }
        put(frame, at, entry.as_bytes());
        layout.written.push(Written { pos, flags_at: at + 4 - RO_LEN, scratch });
        at += ATTR_LEN;
    }
    Ok(layout)
}

/// Whether the value of an input is bytes, inline or behind a pointer as its length says.
fn is_bytes(spec: &AttrSpec) -> bool {
    matches!(
        spec.kind,
        AttrKind::PtrIn { .. }
            | AttrKind::EnumIn { .. }
            | AttrKind::IdrsArray { .. }
            | AttrKind::Umem
    )
}

/// The value of an input that is behind a pointer.
fn payload<'a>(request: &'a Request, attr: &'a ReqAttr) -> Option<&'a [u8]> {
    let len = usize::from(attr.attr.len);
    if len <= INLINE_LEN || !is_bytes(attr.spec) { None } else { request.bytes(attr).get(..len) }
}

/// Whether an output must be seen by the supervisor before the guest sees it: it carries a new
/// descriptor, whose number is the stub's, or what the guest is told in the kernel's place; or the plan
/// says so of all.
///
/// A new handle is read where the guest has it, afterwards: only a response that the kernel itself
/// cannot write makes it take the new object back.
fn is_supervised(request: &Request, plan: &Plan, pos: usize) -> bool {
    let told = plan.told.as_ref().is_some_and(|told| told.pos == pos);
    told || is_touched(request, plan, pos)
}

fn is_touched(request: &Request, plan: &Plan, pos: usize) -> bool {
    if plan.supervised {
        return request.attrs().get(pos).is_some_and(|attr| attr.spec.is_output());
    }
    let mut places = request.new_fds().map(|new| new.place);
    places.any(|place| matches!(place, OutPlace::Output { pos: at, .. } if at == pos))
}

/// Absent attributes with a value that means the same as their absence.
fn neutral(request: &Request) -> impl Iterator<Item = Attr> {
    let absent = |spec: &&'static AttrSpec| request.attr(spec.id).is_none();
    request.method().attrs_of(request.hdr().driver()).filter(absent).filter_map(residue::neutral)
}
