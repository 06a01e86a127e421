//! The uses of a request: objects by handle, descriptors, and the objects and descriptors that the
//! request makes.

use crate::command;
use crate::request::LegacyRequest;
use crate::request::ReqAttr;
use crate::request::Request;
use crate::request::words;
use crate::table::Access;
use crate::table::AttrKind;
use crate::table::FdPayload;
use crate::table::ObjectRef;
use crate::wire::BufferDesc;
use crate::wire::GuestFd;
use crate::wire::Handle;

/// A place in a request's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `attr.data` of the attribute at this position.
    AttrData(usize),
    /// In the value of an attribute.
    Payload {
        /// Position of the attribute in [`Request::attrs`].
        pos: usize,
        /// Bytes from the start of the value.
        offset: usize,
    },
}

/// A place that the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutPlace {
    /// `attr.data` of the attribute at this position, as an i64.
    AttrData(usize),
    /// In the output that an attribute points to, as a u32.
    Output {
        /// Position of the attribute in [`Request::attrs`].
        pos: usize,
        /// Bytes from the start of the output.
        offset: usize,
    },
}

/// An object that the request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleUse {
    /// Its type.
    pub object: ObjectRef,
    /// What is done with it.
    pub access: Access,
    /// Its handle.
    pub handle: Handle,
    /// Where the handle is.
    pub place: Place,
}

/// A descriptor that the request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdUse {
    /// Type of the uverbs object that it must be; none for other files.
    pub object: Option<ObjectRef>,
    /// The number.
    pub fd: GuestFd,
    /// Where the number is.
    pub place: Place,
}

/// An object or descriptor that the request makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewUse {
    /// Its type.
    pub object: ObjectRef,
    /// Where the kernel puts the handle or number.
    pub place: OutPlace,
}

impl Request {
    /// Objects that the request uses by handle, in the order of the attributes. Of a legacy command
    /// only those that the kernel would look up. The AHs in the work requests of `POST_SEND` are
    /// not among them.
    pub fn handles(&self) -> impl Iterator<Item = HandleUse> {
        let mut uses = Vec::new();
        for (pos, attr) in self.attrs().iter().enumerate() {
            match attr.spec.kind {
                AttrKind::Idr { access: Access::New, .. } => {}
                AttrKind::Idr { object, access } => {
                    // Decoding has made sure that it fits.
                    let handle = Handle(u32::try_from(attr.attr.data).unwrap_or(u32::MAX));
                    uses.push(HandleUse { object, access, handle, place: Place::AttrData(pos) });
                }
                AttrKind::IdrsArray { object, access, .. } => {
                    for (offset, handle) in words(self.bytes(attr)) {
                        let place = Place::Payload { pos, offset };
                        uses.push(HandleUse { object, access, handle: Handle(handle), place });
                    }
                }
                _ => {}
            }
        }
        if let Some(legacy) = self.legacy() {
            command::handles(self, legacy, &mut uses);
        }
        uses.into_iter()
    }

    /// Descriptors that the request uses, wherever they are. Fields that say "none" are left out.
    pub fn fds(&self) -> impl Iterator<Item = FdUse> {
        let mut uses = Vec::new();
        for (pos, attr) in self.attrs().iter().enumerate() {
            let object = match attr.spec.kind {
                AttrKind::Fd { access: Access::New, .. } => continue,
                AttrKind::Fd { object, .. } => Some(object),
                AttrKind::RawFd => None,
                _ => {
                    self.payload_fds(pos, attr, &mut uses);
                    continue;
                }
            };
            // Decoding has made sure that it fits.
            let fd = GuestFd(i32::try_from(attr.attr.data_s64()).unwrap_or(-1));
            uses.push(FdUse { object, fd, place: Place::AttrData(pos) });
        }
        if let Some(legacy) = self.legacy() {
            command::fds(self, legacy, &mut uses);
        }
        command::uhw_fds(self, &mut uses);
        uses.into_iter()
    }

    fn payload_fds(&self, pos: usize, attr: &ReqAttr, uses: &mut Vec<FdUse>) {
        let bytes = self.bytes(attr);
        let mut push = |offset, word: u32| {
            let fd = GuestFd(word.cast_signed());
            uses.push(FdUse { object: None, fd, place: Place::Payload { pos, offset } });
        };
        match attr.spec.fd_payload {
            FdPayload::None => {}
            FdPayload::One => words(bytes).take(1).for_each(|(offset, word)| push(offset, word)),
            FdPayload::Array => words(bytes).for_each(|(offset, word)| push(offset, word)),
            FdPayload::BufferDesc => {
                let mut words = words(bytes);
                let of_dmabuf = words.next().is_some_and(|(_, ty)| ty == BufferDesc::DMABUF);
                if let (true, Some((offset, word))) = (of_dmabuf, words.next()) {
                    push(offset, word);
                }
            }
        }
    }

    /// Descriptors that the kernel makes, and where it names them.
    pub fn new_fds(&self) -> impl Iterator<Item = NewUse> {
        let mut uses = Vec::new();
        for (pos, attr) in self.attrs().iter().enumerate() {
            if let AttrKind::Fd { object, access: Access::New } = attr.spec.kind {
                uses.push(NewUse { object, place: OutPlace::AttrData(pos) });
            }
        }
        if let Some(&LegacyRequest { spec, core_out: Some(pos), .. }) = self.legacy() {
            for field in spec.fds.iter().filter(|field| field.in_resp) {
                if let Some(object) = field.object {
                    let place = OutPlace::Output { pos, offset: field.offset.into() };
                    uses.push(NewUse { object, place });
                }
            }
        }
        uses.into_iter()
    }

    /// Objects with handles that the kernel makes, and where it names them.
    pub fn new_handles(&self) -> impl Iterator<Item = NewUse> {
        let mut uses = Vec::new();
        for (pos, attr) in self.attrs().iter().enumerate() {
            if let AttrKind::Idr { object, access: Access::New } = attr.spec.kind {
                uses.push(NewUse { object, place: OutPlace::AttrData(pos) });
            }
        }
        if let Some(&LegacyRequest { spec, core_out: Some(pos), .. }) = self.legacy() {
            for field in spec.handles.iter().filter(|field| field.in_resp) {
                let place = OutPlace::Output { pos, offset: field.offset.into() };
                uses.push(NewUse { object: field.object, place });
            }
        }
        uses.into_iter()
    }
}
