//! Encoding of requests into bytes: for executors, tests and clients of our own.

use zerocopy::IntoBytes;

use crate::request::Request;
use crate::table::AttrKind;
use crate::table::MethodSpec;
use crate::wire::ATTR_LEN;
use crate::wire::Attr;
use crate::wire::AttrFlags;
use crate::wire::AttrId;
use crate::wire::DriverId;
use crate::wire::GuestAddr;
use crate::wire::HDR_LEN;
use crate::wire::Handle;
use crate::wire::INLINE_LEN;
use crate::wire::IoctlHdr;

/// A request as bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Header and attributes: what the ioctl's argument points to.
    pub bytes: Vec<u8>,
    /// Inputs behind pointers, each at a multiple of 8. The pointers are right if this is at the
    /// address that the encoder was given.
    pub payload: Vec<u8>,
}

/// An attribute's bytes.
#[must_use]
pub fn attr_bytes(attr: &Attr) -> [u8; ATTR_LEN] {
    zerocopy::transmute!(*attr)
}

/// A header's bytes.
#[must_use]
pub fn hdr_bytes(hdr: &IoctlHdr) -> [u8; HDR_LEN] {
    zerocopy::transmute!(*hdr)
}

/// `hdr` with the lengths that `attrs` attributes need. Meaningless for more than
/// [`crate::wire::MAX_ATTRS`].
#[must_use]
pub fn sized(hdr: &IoctlHdr, attrs: usize) -> IoctlHdr {
    let len = attrs.saturating_mul(ATTR_LEN).saturating_add(HDR_LEN);
    IoctlHdr {
        length: u16::try_from(len).unwrap_or(u16::MAX),
        num_attrs: u16::try_from(attrs).unwrap_or(u16::MAX),
        ..*hdr
    }
}

/// A decoded request as bytes again, with its payloads at `payload_base`. Attributes that the
/// method does not have are gone; outputs point where the guest wants them.
#[must_use]
pub fn encode(request: &Request, payload_base: GuestAddr) -> Encoded {
    let mut builder =
        RequestBuilder { hdr: *request.hdr(), attrs: Vec::new(), payload: Vec::new() };
    for attr in request.attrs() {
        let bytes = request.bytes(attr);
        let data = match attr.spec.kind {
            AttrKind::PtrOut { .. } => Data::Word(attr.attr.data),
            _ if bytes.is_empty() => Data::Word(attr.attr.data),
            _ => builder.place(bytes),
        };
        builder.attrs.push((attr.attr, data));
    }
    builder.build(payload_base)
}

/// Where an attribute's value is.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// In the attribute.
    Word(u64),
    /// At this offset of the payload.
    Offset(usize),
}

/// Builds a request attribute by attribute. It checks nothing: tests need wrong requests, too.
#[derive(Clone, Debug)]
pub struct RequestBuilder {
    hdr: IoctlHdr,
    attrs: Vec<(Attr, Data)>,
    payload: Vec<u8>,
}

impl RequestBuilder {
    /// A request for this method of a device of `driver`.
    #[must_use]
    pub fn new(method: &MethodSpec, driver: DriverId) -> Self {
        let hdr = IoctlHdr {
            object_id: method.object.id.0,
            method_id: method.id.0,
            driver_id: driver.0,
            ..IoctlHdr::default()
        };
        Self { hdr, attrs: Vec::new(), payload: Vec::new() }
    }

    /// An attribute as it stands.
    #[must_use]
    pub fn raw(mut self, attr: Attr) -> Self {
        self.attrs.push((attr, Data::Word(attr.data)));
        self
    }

    /// An input of bytes: inline up to 8, else in the payload. More than 65535 are cut off.
    #[must_use]
    pub fn input(self, id: AttrId, bytes: &[u8]) -> Self {
        self.elem(id, 0, bytes)
    }

    /// An input of an alternative of an enumeration.
    #[must_use]
    pub fn elem(mut self, id: AttrId, elem: u8, bytes: &[u8]) -> Self {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let bytes = bytes.get(..len.into()).unwrap_or(bytes);
        let data = self.place(bytes);
        let attr_data = u16::from_ne_bytes([elem, 0]);
        let flags = AttrFlags::MANDATORY.bits();
        self.attrs.push((Attr { attr_id: id.0, len, flags, attr_data, data: 0 }, data));
        self
    }

    /// A constant, or 64 bits of flags.
    #[must_use]
    pub fn constant(self, id: AttrId, value: u64) -> Self {
        self.input(id, &value.to_ne_bytes())
    }

    /// A handle of an existing object.
    #[must_use]
    pub fn handle(self, id: AttrId, handle: Handle) -> Self {
        self.word(id, handle.0.into())
    }

    /// A descriptor.
    #[must_use]
    pub fn fd(self, id: AttrId, fd: i32) -> Self {
        self.word(id, i64::from(fd).cast_unsigned())
    }

    /// An object or descriptor to be made.
    #[must_use]
    pub fn new_object(self, id: AttrId) -> Self {
        self.word(id, 0)
    }

    /// An output.
    #[must_use]
    pub fn output(self, id: AttrId, addr: GuestAddr, len: u16) -> Self {
        let flags = AttrFlags::MANDATORY.bits();
        self.raw(Attr { attr_id: id.0, len, flags, attr_data: 0, data: addr.0 })
    }

    fn word(self, id: AttrId, data: u64) -> Self {
        let flags = AttrFlags::MANDATORY.bits();
        self.raw(Attr { attr_id: id.0, len: 0, flags, attr_data: 0, data })
    }

    /// Puts a value where one of its length belongs.
    fn place(&mut self, bytes: &[u8]) -> Data {
        if bytes.len() <= INLINE_LEN {
            let mut word = [0; INLINE_LEN];
            word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            return Data::Word(u64::from_ne_bytes(word));
        }
        self.payload.resize(self.payload.len().next_multiple_of(8), 0);
        let offset = self.payload.len();
        self.payload.extend_from_slice(bytes);
        Data::Offset(offset)
    }

    /// The bytes, for a payload that will be at `payload_base`.
    #[must_use]
    pub fn build(self, payload_base: GuestAddr) -> Encoded {
        let mut bytes = sized(&self.hdr, self.attrs.len()).as_bytes().to_vec();
        for (attr, data) in self.attrs {
            let data = match data {
                Data::Word(word) => word,
                Data::Offset(offset) => {
                    payload_base.0.wrapping_add(u64::try_from(offset).unwrap_or_default())
                }
            };
            bytes.extend_from_slice(&attr_bytes(&Attr { data, ..attr }));
        }
        Encoded { bytes, payload: self.payload }
    }
}
