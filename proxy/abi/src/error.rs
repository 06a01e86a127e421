//! Reasons why a request is malformed: the kernel would not run the request.

use crate::errno::Errno;
use crate::wire::AttrId;
use crate::wire::DriverId;
use crate::wire::MAX_LEN;
use crate::wire::MethodId;
use crate::wire::ObjectId;

/// A request that cannot be decoded. What the guest sees is [`DecodeError::errno`], the kernel's
/// own answer unless the variant says "ours".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes were given than the header says. Ours: the caller did not fetch them.
    #[error("the request has {have} bytes, and needs {need}")]
    Truncated {
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// `ib_uverbs_ioctl`: the lengths disagree, or are more than a page.
    #[error(
        "the header's length is {length} with {num_attrs} attributes: must be 24 + 16 each, at \
         most {MAX_LEN}"
    )]
    Length {
        /// `hdr.length`.
        length: u16,
        /// `hdr.num_attrs`.
        num_attrs: u16,
    },
    /// `ib_uverbs_ioctl`: a reserved field of the header is not zero.
    #[error("reserved fields of the header are {reserved1:#x} and {reserved2:#x}, not zero")]
    HeaderReserved {
        /// `hdr.reserved1`.
        reserved1: u64,
        /// `hdr.reserved2`.
        reserved2: u32,
    },
    /// `ib_uverbs_cmd_verbs`: the request is for another driver.
    #[error("the request is for driver {got}, the device is {device}")]
    Driver {
        /// `hdr.driver_id`.
        got: DriverId,
        /// The device's.
        device: DriverId,
    },
    /// `ib_uverbs_cmd_verbs`: no such method.
    #[error("object {object} method {method} of driver {driver} is not in the table")]
    UnknownMethod {
        /// `hdr.object_id`.
        object: ObjectId,
        /// `hdr.method_id`.
        method: MethodId,
        /// `hdr.driver_id`.
        driver: DriverId,
    },
    /// `uverbs_set_attr`: no such attribute, and the program insists on it.
    #[error("{method} has no attribute {attr}, and the request marks that attribute as mandatory")]
    UnknownAttr {
        /// Name of the method.
        method: &'static str,
        /// The attribute.
        attr: AttrId,
    },
    /// `uverbs_set_attr`: the attribute was there before.
    #[error("attribute {attr} occurs twice")]
    Duplicate {
        /// Name of the attribute.
        attr: &'static str,
    },
    /// `uverbs_process_attr`: the reserved field is not zero.
    #[error("{attr}: reserved field is {value:#x}, not zero")]
    AttrReserved {
        /// Name of the attribute.
        attr: &'static str,
        /// The field.
        value: u16,
    },
    /// `uverbs_process_attr`: the length is not allowed.
    #[error("{attr}: length {len} is not allowed")]
    AttrLen {
        /// Name of the attribute.
        attr: &'static str,
        /// `attr.len`.
        len: u16,
    },
    /// `uverbs_process_attr`: no such alternative.
    #[error("{attr}: no alternative {elem}")]
    Elem {
        /// Name of the attribute.
        attr: &'static str,
        /// `attr.attr_data.enum_data.elem_id`.
        elem: u8,
    },
    /// `uverbs_process_attr`: bytes beyond the known structure are not zero.
    #[error("{attr}: bytes beyond the known structure are not zero")]
    TrailingNonZero {
        /// Name of the attribute.
        attr: &'static str,
    },
    /// `lookup_get_idr_uobject`: no object has a negative number.
    #[error("{attr}: handle {value} is negative")]
    NegativeHandle {
        /// Name of the attribute.
        attr: &'static str,
        /// `attr.data_s64`.
        value: i64,
    },
    /// `lookup_get_idr_uobject`: handles are 32 bits, so there is no such object.
    #[error("{attr}: no object can have the handle {value:#x}")]
    HandleRange {
        /// Name of the attribute.
        attr: &'static str,
        /// `attr.data`.
        value: u64,
    },
    /// `lookup_get_fd_uobject` and `uverbs_process_attr`: not an int.
    #[error("{attr}: descriptor {value} is not an int")]
    FdRange {
        /// Name of the attribute.
        attr: &'static str,
        /// `attr.data_s64`.
        value: i64,
    },
    /// `ib_uverbs_run_method`: a mandatory attribute is absent.
    #[error("{method} needs the attribute {attr}")]
    Missing {
        /// Name of the method.
        method: &'static str,
        /// Name of the attribute.
        attr: &'static str,
    },
    /// Payloads do not fill the arena. Ours: the caller's mistake.
    #[error("an arena of {have} bytes for payloads of {need}")]
    Arena {
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// `uapi_get_method`: `WRITE_CMD` has bits that no command has.
    #[error("command {command:#x} has unknown bits")]
    CommandBits {
        /// The command.
        command: u64,
    },
    /// `uapi_get_method`, `ib_uverbs_notsupp`: no such command.
    #[error("command {command:#x} is not in the table")]
    UnknownCommand {
        /// The command.
        command: u64,
    },
    /// The request is shorter than the command's structure and what it says follows.
    #[error("{command}: request of {have} bytes, needs {need}")]
    RequestShort {
        /// Name of the command.
        command: &'static str,
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: u64,
    },
    /// The response has no room for what the kernel would write, or (ours) for the work
    /// completions of `POLL_CQ`, which the kernel writes unchecked, and for the handle or
    /// descriptor that the command makes, which would otherwise be lost.
    #[error("{command}: room for {have} bytes of response, needs {need}")]
    ResponseShort {
        /// Name of the command.
        command: &'static str,
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: u64,
    },
    /// `uverbs_request`, `uverbs_request_finish`: bytes beyond the request are not zero.
    #[error("{command}: bytes beyond the request are not zero")]
    RequestTail {
        /// Name of the command.
        command: &'static str,
    },
    /// A field that says what follows the request has a value that cannot be.
    #[error("{command}: {field} is {value}")]
    Field {
        /// Name of the command.
        command: &'static str,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// `ib_uverbs_write`, `verify_hdr`: the words in the header of a `write(2)` do not agree.
    #[error("write of {count} bytes: {what}")]
    WriteHeader {
        /// Bytes of the write.
        count: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Input or output of a `write(2)` is more than an attribute can say (65535). Ours.
    #[error("{command}: {len} bytes do not fit an attribute")]
    WriteLong {
        /// Name of the command.
        command: &'static str,
        /// Bytes.
        len: usize,
    },
}

impl DecodeError {
    /// What the guest gets.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Length { .. }
            | Self::Driver { .. }
            | Self::Duplicate { .. }
            | Self::AttrReserved { .. }
            | Self::AttrLen { .. }
            | Self::NegativeHandle { .. }
            | Self::FdRange { .. }
            | Self::Missing { .. }
            | Self::CommandBits { .. }
            | Self::Field { .. }
            | Self::WriteHeader { .. } => Errno::EINVAL,
            Self::HeaderReserved { .. } | Self::UnknownMethod { .. } | Self::UnknownAttr { .. } => {
                Errno::EPROTONOSUPPORT
            }
            Self::Elem { .. }
            | Self::TrailingNonZero { .. }
            | Self::UnknownCommand { .. }
            | Self::RequestTail { .. } => Errno::EOPNOTSUPP,
            Self::HandleRange { .. } => Errno::ENOENT,
            Self::RequestShort { .. } | Self::ResponseShort { .. } => Errno::ENOSPC,
            Self::WriteLong { .. } => Errno::E2BIG,
            Self::Truncated { .. } | Self::Arena { .. } => Errno::EIO,
        }
    }

    /// A name for counters: stable, one for each variant.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::Length { .. } => "length",
            Self::HeaderReserved { .. } => "header_reserved",
            Self::Driver { .. } => "driver",
            Self::UnknownMethod { .. } => "unknown_method",
            Self::UnknownAttr { .. } => "unknown_attr",
            Self::Duplicate { .. } => "duplicate",
            Self::AttrReserved { .. } => "attr_reserved",
            Self::AttrLen { .. } => "attr_len",
            Self::Elem { .. } => "elem",
            Self::TrailingNonZero { .. } => "trailing_non_zero",
            Self::NegativeHandle { .. } => "negative_handle",
            Self::HandleRange { .. } => "handle_range",
            Self::FdRange { .. } => "fd_range",
            Self::Missing { .. } => "missing",
            Self::Arena { .. } => "arena",
            Self::CommandBits { .. } => "command_bits",
            Self::UnknownCommand { .. } => "unknown_command",
            Self::RequestShort { .. } => "request_short",
            Self::ResponseShort { .. } => "response_short",
            Self::RequestTail { .. } => "request_tail",
            Self::Field { .. } => "field",
            Self::WriteHeader { .. } => "write_header",
            Self::WriteLong { .. } => "write_long",
        }
    }
}
