//! A request that has been read in full. `uses.rs` says what a request names.

use std::ops::Range;

use zerocopy::IntoBytes;

use crate::command;
use crate::error::DecodeError;
use crate::generated::ids;
use crate::legacy::LegacySpec;
use crate::table::AttrKind;
use crate::table::AttrSpec;
use crate::table::MethodSpec;
pub use crate::uses::FdUse;
pub use crate::uses::HandleUse;
pub use crate::uses::NewUse;
pub use crate::uses::OutPlace;
pub use crate::uses::Place;
use crate::wire::Attr;
use crate::wire::AttrId;
use crate::wire::GuestAddr;
use crate::wire::INLINE_LEN;
use crate::wire::IoctlHdr;

/// What [`Request::extend_inline_udata`] extends to.
const UDATA_LEN: u16 = 16;

/// An attribute that the method has.
#[derive(Clone, Debug)]
pub struct ReqAttr {
    /// The table's entry.
    pub spec: &'static AttrSpec,
    /// The guest's words. In a complete request `data` of a pointed-to input is of no more use.
    pub attr: Attr,
    /// Position in the guest's array, where the kernel's answers are written back; none for an
    /// attribute that was not in an array (`write(2)`).
    pub index: Option<usize>,
    /// Where the value is in the arena, if it is not in `attr.data`.
    pub(crate) payload: Option<Range<usize>>,
}

impl ReqAttr {
    /// Where the guest wants an output.
    #[must_use]
    pub const fn addr(&self) -> GuestAddr {
        GuestAddr(self.attr.data)
    }

    /// Length of the value in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.attr.len.into()
    }

    /// True for a value of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.attr.len == 0
    }
}

/// The legacy command in an `INVOKE_WRITE`.
#[derive(Clone, Copy, Debug)]
pub struct LegacyRequest {
    /// The command.
    pub spec: &'static LegacySpec,
    /// Position of `CORE_IN`. Its value is in the arena and at least as long as the command's
    /// structure: the rest of a short one is zeros, as the kernel takes it.
    pub core_in: usize,
    /// Position of `CORE_OUT`.
    pub core_out: Option<usize>,
    /// Position of `UHW_IN`.
    pub uhw_in: Option<usize>,
    /// Position of `UHW_OUT`.
    pub uhw_out: Option<usize>,
}

/// A request whose form is right, with all its inputs, in memory that only we write.
#[derive(Clone, Debug)]
pub struct Request {
    hdr: IoctlHdr,
    method: &'static MethodSpec,
    attrs: Vec<ReqAttr>,
    arena: Vec<u8>,
    legacy: Option<LegacyRequest>,
}

impl Request {
    pub(crate) const fn new(
        hdr: IoctlHdr,
        method: &'static MethodSpec,
        attrs: Vec<ReqAttr>,
        arena: Vec<u8>,
    ) -> Self {
        Self { hdr, method, attrs, arena, legacy: None }
    }

    /// Reads the legacy command, if there is one.
    pub(crate) fn with_legacy(mut self) -> Result<Self, DecodeError> {
        if self.method.is_invoke_write() {
            let legacy = command::read(&mut self)?;
            self.legacy = Some(legacy);
            command::check(&self, &legacy)?;
        }
        Ok(self)
    }

    /// The header, as the guest gave it: `length` and `num_attrs` are of the guest's array.
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

    /// The attribute with this id.
    #[must_use]
    pub fn attr(&self, id: AttrId) -> Option<&ReqAttr> {
        self.attrs.iter().find(|attr| attr.spec.id == id)
    }

    /// Position of the attribute with this id.
    #[must_use]
    pub fn position(&self, id: AttrId) -> Option<usize> {
        self.attrs.iter().position(|attr| attr.spec.id == id)
    }

    /// The value of an input: inline or fetched. Nothing for outputs, handles and descriptors.
    #[must_use]
    pub fn bytes<'a>(&'a self, attr: &'a ReqAttr) -> &'a [u8] {
        match &attr.payload {
            Some(range) => self.arena.get(range.clone()).unwrap_or_default(),
            None if attr.spec.is_output() => &[],
            None => attr.attr.data.as_bytes().get(..attr.len()).unwrap_or_default(),
        }
    }

    /// The value as a number: a constant, flags, a handle, a descriptor, or an input of 1, 2, 4 or
    /// 8 bytes.
    #[must_use]
    pub fn u64_of(&self, attr: &ReqAttr) -> Option<u64> {
        match attr.spec.kind {
            AttrKind::Idr { .. } | AttrKind::Fd { .. } | AttrKind::RawFd => Some(attr.attr.data),
            AttrKind::PtrOut { .. } => None,
            _ => match attr.len() {
                len @ (1 | 2 | 4 | 8) => Some(uint(self.bytes(attr), 0, len)),
                _ => None,
            },
        }
    }

    /// [`Request::u64_of`] the attribute with this id, if it is there.
    #[must_use]
    pub fn value(&self, id: AttrId) -> Option<u64> {
        self.u64_of(self.attr(id)?)
    }

    /// The legacy command, if the method is `INVOKE_WRITE`.
    #[must_use]
    pub const fn legacy(&self) -> Option<&LegacyRequest> {
        self.legacy.as_ref()
    }

    /// The legacy command's request structure and what follows it.
    #[must_use]
    pub fn core_in(&self) -> &[u8] {
        self.legacy.and_then(|legacy| self.attrs.get(legacy.core_in)).map_or(&[], |a| self.bytes(a))
    }

    /// The provider's private input, of a legacy command or of a method.
    #[must_use]
    pub fn uhw_in(&self) -> &[u8] {
        self.attrs.iter().find(|attr| attr.spec.is_uhw_in()).map_or(&[], |attr| self.bytes(attr))
    }

    /// A field of the legacy command's request by its dotted path, zero-extended.
    #[must_use]
    pub fn legacy_field(&self, path: &str) -> Option<u64> {
        let field = self.legacy?.spec.req.field(path)?;
        let size = usize::from(field.size);
        (size <= INLINE_LEN).then(|| uint(self.core_in(), field.offset.into(), size))
    }

    /// Whether it makes the ucontext of a device that was opened.
    #[must_use]
    pub fn makes_ucontext(&self) -> bool {
        match &self.legacy {
            Some(legacy) => legacy.spec.creates_ucontext,
            None => {
                self.method.object == ids::UVERBS_OBJECT_DEVICE
                    && self.method.id == ids::UVERBS_METHOD_GET_CONTEXT
            }
        }
    }

    /// The legacy command's name, else the method's, without prefix: `REG_MR`, `QP_CREATE`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match &self.legacy {
            Some(legacy) => legacy.spec.short_name,
            None => self.method.short_name(),
        }
    }

    /// Attributes that the kernel only reads, with their positions.
    pub fn inputs(&self) -> impl Iterator<Item = (usize, &ReqAttr)> {
        self.attrs.iter().enumerate().filter(|(_, attr)| !attr.spec.is_written_by_kernel())
    }

    /// Attributes with which the guest asks for an output (not new objects), with their positions.
    pub fn outputs(&self) -> impl Iterator<Item = (usize, &ReqAttr)> {
        self.attrs.iter().enumerate().filter(|(_, attr)| attr.spec.is_output())
    }

    /// Puts another descriptor in the place of one that [`Request::fds`] named. False if there is
    /// no such place.
    #[must_use]
    pub fn set_fd(&mut self, place: Place, fd: i32) -> bool {
        match place {
            Place::AttrData(pos) => match self.attrs.get_mut(pos) {
                Some(attr) => {
                    attr.attr.data = i64::from(fd).cast_unsigned();
                    true
                }
                None => false,
            },
            Place::Payload { pos, offset } => self.patch(pos, offset, &fd.to_ne_bytes()),
        }
    }

    /// Overwrites a part of an input's value. False if it has no such part.
    #[must_use]
    pub fn patch(&mut self, pos: usize, offset: usize, bytes: &[u8]) -> bool {
        let Some(attr) = self.attrs.get_mut(pos) else {
            return false;
        };
        let len = attr.len();
        let value = match &attr.payload {
            Some(range) => self.arena.get_mut(range.clone()),
            None if attr.spec.is_output() => None,
            None => attr.attr.data.as_mut_bytes().get_mut(..len),
        };
        let end = offset.saturating_add(bytes.len());
        match value.and_then(|value| value.get_mut(offset..end)) {
            Some(part) => {
                part.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Gives the attribute a value in the arena: its own, and zeros up to `len` bytes. Longer
    /// values stay as they are.
    pub(crate) fn extend(&mut self, pos: usize, len: u16) {
        let Some(attr) = self.attrs.get(pos) else {
            return;
        };
        if attr.payload.is_some() && attr.attr.len >= len {
            return;
        }
        let mut value = self.bytes(attr).to_vec();
        value.resize(value.len().max(len.into()), 0);
        let start = self.arena.len();
        self.arena.append(&mut value);
        let end = self.arena.len();
        if let Some(attr) = self.attrs.get_mut(pos) {
            attr.attr.len = attr.attr.len.max(len);
            attr.payload = Some(start..end);
        }
    }

    /// Makes `UHW_IN` and `CORE_IN` of 1 to 8 bytes 16 bytes long, with zeros, which the handlers
    /// take: the kernel reads such short ones from the attribute array itself, and more than once
    /// (`uverbs_fill_udata`). A caller whose array can change while the kernel runs needs this.
    ///
    /// 16 and not 9: mlx5's `alloc_ucontext` knows 8 bytes and 16 or more, and nothing between.
    pub fn extend_inline_udata(&mut self) {
        let core_in = self.legacy.map(|legacy| legacy.core_in);
        let uhw_in = self.attrs.iter().position(|attr| attr.spec.is_uhw_in());
        for pos in core_in.into_iter().chain(uhw_in) {
            if self.attrs.get(pos).is_some_and(|attr| !attr.is_empty()) {
                self.extend(pos, UDATA_LEN);
            }
        }
    }
}

/// The number of `size` bytes at `offset`, with zeros for what is missing. Sizes that no number has
/// give 0.
pub(crate) fn uint(bytes: &[u8], offset: usize, size: usize) -> u64 {
    let mut buf = [0; INLINE_LEN];
    let tail = bytes.get(offset..).unwrap_or_default();
    for (to, from) in buf.iter_mut().zip(tail.iter().take(size)) {
        *to = *from;
    }
    let [b0, b1, b2, b3, ..] = buf;
    match size {
        1 => b0.into(),
        2 => u16::from_ne_bytes([b0, b1]).into(),
        4 => u32::from_ne_bytes([b0, b1, b2, b3]).into(),
        8 => u64::from_ne_bytes(buf),
        _ => 0,
    }
}

/// The whole u32s in `bytes`, with their offsets.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = (usize, u32)> {
    (0..bytes.len()).step_by(4).zip(bytes.chunks_exact(4)).map(|(offset, word)| {
        let mut buf = [0; 4];
        buf.copy_from_slice(word);
        (offset, u32::from_ne_bytes(buf))
    })
}
