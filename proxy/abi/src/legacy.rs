//! The legacy commands (`enum ib_uverbs_write_cmds`) and the layout of their structures.
//!
//! Programs give them through `UVERBS_METHOD_INVOKE_WRITE` or with `write(2)`; the structures are
//! those of `include/uapi/rdma/ib_user_verbs.h`.

use crate::generated;
use crate::table::Access;
use crate::table::Kernels;
use crate::table::ObjectRef;
use crate::wire::CMD_COMMAND_MASK;
use crate::wire::CMD_FLAG_EXTENDED;
use crate::wire::DriverId;

/// `sizeof(struct ib_uverbs_wc)`.
pub const WC_LEN: u64 = 48;
/// `sizeof(struct ib_uverbs_sge)`.
pub const SGE_LEN: u64 = 16;
/// `sizeof(struct ib_uverbs_send_wr)`.
pub const SEND_WR_LEN: u64 = 56;
/// `sizeof(struct ib_uverbs_recv_wr)`.
pub const RECV_WR_LEN: u64 = 16;
/// `IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE`.
pub const MAX_LOG_IND_TBL_SIZE: u64 = 13;
/// `sizeof(struct ib_uverbs_flow_spec_hdr)`.
pub const FLOW_SPEC_HDR_LEN: usize = 8;
/// `IB_FLOW_SPEC_ACTION_HANDLE`, whose handle is of a `FLOW_ACTION`.
pub const FLOW_SPEC_ACTION_HANDLE: u64 = 0x1002;
/// `IB_FLOW_SPEC_ACTION_COUNT`, whose handle is of `COUNTERS`.
pub const FLOW_SPEC_ACTION_COUNT: u64 = 0x1003;

/// Type of a field.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    /// `__u8`.
    U8,
    /// `__u16`.
    U16,
    /// `__u32`.
    U32,
    /// `__u64`, `__aligned_u64`.
    U64,
    /// `__s32`.
    I32,
    /// `__be64`: a GUID.
    Be64,
    /// `__u8[N]`.
    Bytes,
    /// A union, whose use other fields decide.
    Union,
    /// A structure.
    Nested(&'static StructSpec),
    /// What follows the structure: `driver_data`, or elements that other fields count. Size 0.
    Trailing,
}

/// A field of a structure.
#[derive(Clone, Copy, Debug)]
pub struct FieldSpec {
    /// The kernel's name.
    pub name: &'static str,
    /// Type.
    pub ty: FieldType,
    /// Bytes from the start of the structure.
    pub offset: u16,
    /// Bytes.
    pub size: u16,
    /// Padding by name.
    pub reserved: bool,
}

/// A structure.
#[derive(Debug)]
pub struct StructSpec {
    /// The kernel's name, without `struct`.
    pub name: &'static str,
    /// Bytes.
    pub size: u16,
    /// Fields by offset.
    pub fields: &'static [FieldSpec],
}

impl StructSpec {
    /// The field at a dotted path (`base.qp_handle`) with its offset from the start of `self`.
    #[must_use]
    pub fn field(&self, path: &str) -> Option<FieldSpec> {
        let (head, rest) = match path.split_once('.') {
            Some((head, rest)) => (head, Some(rest)),
            None => (path, None),
        };
        let field = self.fields.iter().find(|field| field.name == head)?;
        let Some(rest) = rest else {
            return Some(*field);
        };
        let FieldType::Nested(inner) = field.ty else {
            return None;
        };
        let found = inner.field(rest)?;
        Some(FieldSpec { offset: field.offset.checked_add(found.offset)?, ..found })
    }
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOp {
    /// Equal to the value.
    Eq,
    /// Not equal to the value.
    Ne,
    /// Any bit of the value is set.
    AnyBit,
    /// No bit of the value is set.
    NoBit,
}

/// A condition on a field of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Name of the field.
    pub field: &'static str,
    /// Its offset in the request structure.
    pub offset: u16,
    /// Its size, at most 8.
    pub size: u16,
    /// The comparison.
    pub op: TestOp,
    /// With this.
    pub value: u64,
}

/// A field that carries a handle.
#[derive(Clone, Copy, Debug)]
pub struct HandleField {
    /// Dotted path in the structure.
    pub path: &'static str,
    /// Bytes from the start of the structure. The field is a u32.
    pub offset: u16,
    /// In the response, else in the request.
    pub in_resp: bool,
    /// Type of the object.
    pub object: ObjectRef,
    /// Use of the object.
    pub access: Access,
    /// The kernel looks only if all of these hold.
    pub when: &'static [Test],
}

/// Which values of a descriptor field mean "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFd {
    /// Every value is a descriptor.
    Never,
    /// -1 alone (`cmd.fd != -1`).
    MinusOne,
    /// Every negative number (`cmd.comp_channel >= 0`).
    Negative,
}

/// A field that carries a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct FdField {
    /// Dotted path in the structure.
    pub path: &'static str,
    /// Bytes from the start of the structure. The field is 32 bits.
    pub offset: u16,
    /// In the response (a new descriptor), else in the request.
    pub in_resp: bool,
    /// Type of the object; none when any file will do.
    pub object: Option<ObjectRef>,
    /// Which values mean no descriptor.
    pub none: NoFd,
}

/// A pair of fields that names guest memory which the kernel pins.
#[derive(Clone, Copy, Debug)]
pub struct VaField {
    /// Field with the address, a u64.
    pub addr: u16,
    /// Field with the length in bytes, a u64.
    pub len: u16,
    /// Only if all of these hold.
    pub when: &'static [Test],
}

/// What follows the request structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trailing {
    /// Nothing but zeros.
    None,
    /// `wr_count` times `wqe_size` bytes of `struct ib_uverbs_send_wr`, then `sge_count` times
    /// `struct ib_uverbs_sge`.
    SendWrs,
    /// The same with `struct ib_uverbs_recv_wr`.
    RecvWrs,
    /// `flow_attr.size` bytes of `struct ib_uverbs_flow_spec_*`.
    FlowSpecs,
    /// `1 << log_ind_tbl_size` u32 handles of WQs.
    WqHandles,
}

/// A legacy command.
#[derive(Debug)]
pub struct LegacySpec {
    /// The kernel's name.
    pub name: &'static str,
    /// The name without its prefix, with `EX_` if it is extended: `REG_MR`, `EX_CREATE_QP`.
    pub short_name: &'static str,
    /// The number, of its own sequence for plain and for extended commands.
    pub number: u8,
    /// It is of the extended sequence.
    pub extended: bool,
    /// The value of `WRITE_CMD`: the number, with bit 31 if extended.
    pub write_cmd: u64,
    /// Type of the object that it is about.
    pub object: ObjectRef,
    /// Request.
    pub req: &'static StructSpec,
    /// Fewest bytes of request that the kernel declares.
    pub req_min: u16,
    /// Response.
    pub resp: Option<&'static StructSpec>,
    /// Fewest bytes of response that the kernel declares.
    pub resp_min: u16,
    /// The kernel enforces `req_min` and `resp_min` before the handler (plain commands only).
    pub min_enforced: bool,
    /// The handler hands private bytes to the driver.
    pub takes_uhw: bool,
    /// The request begins with the u64 `response`, which only `write(2)` uses.
    pub has_resp: bool,
    /// `GET_CONTEXT`.
    pub creates_ucontext: bool,
    /// Where it exists.
    pub kernels: Kernels,
    /// Handles in request and response.
    pub handles: &'static [HandleField],
    /// Descriptors in request and response.
    pub fds: &'static [FdField],
    /// Guest memory that the kernel pins.
    pub user_vas: &'static [VaField],
    /// What follows the request.
    pub trailing_in: Trailing,
    /// `ne` times `struct ib_uverbs_wc` follow the response (`POLL_CQ`).
    pub trailing_wcs: bool,
    /// A capability that the kernel asks for in some cases; empty if none.
    pub cap: &'static str,
}

impl LegacySpec {
    /// Bytes of the request structure.
    #[must_use]
    pub fn req_size(&self) -> usize {
        self.req.size.into()
    }

    /// Bytes of the response structure.
    #[must_use]
    pub fn resp_size(&self) -> usize {
        self.resp.map_or(0, |resp| resp.size.into())
    }
}

/// All legacy commands.
#[must_use]
pub fn commands() -> &'static [LegacySpec] {
    generated::LEGACY
}

/// All structures of legacy commands, their parts, and the records that are read from event
/// descriptors.
#[must_use]
pub fn structs() -> &'static [&'static StructSpec] {
    generated::STRUCTS
}

/// The command that this value of `WRITE_CMD` names.
#[must_use]
pub fn legacy(write_cmd: u64) -> Option<&'static LegacySpec> {
    generated::LEGACY.iter().find(|spec| spec.write_cmd == write_cmd)
}

/// True when only the bits are set that a command may have (`uapi_get_method`).
#[must_use]
pub const fn is_well_formed(write_cmd: u64) -> bool {
    write_cmd & !((CMD_COMMAND_MASK | CMD_FLAG_EXTENDED) as u64) == 0
}

/// What a driver does with a field of its private input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UhwRole {
    /// Address of memory that is pinned.
    VaPin,
    /// Address within one page that is pinned.
    VaPinPage,
    /// Part of the length of pinned memory.
    Len,
    /// An address that must equal an earlier registration's and is not dereferenced.
    VaKey,
    /// Address of more input, which the kernel reads.
    NestedIn,
    /// Address that the kernel writes to.
    NestedOut,
    /// A descriptor.
    Fd,
    /// Anything else: cookies, keys, kinds.
    Other,
    /// Flags, numbers, reserved words: granted by name, or zero.
    Plain,
}

/// A field of a driver's private input.
#[derive(Clone, Copy, Debug)]
pub struct UhwField {
    /// The driver's name for it.
    pub name: &'static str,
    /// Bytes from the start.
    pub offset: u16,
    /// Bytes.
    pub size: u16,
    /// Use.
    pub role: UhwRole,
    /// The reference's words on the use.
    pub note: &'static str,
}

/// A driver's private input (`UHW_IN`) to one operation, as a header of the kernel has the structure
/// (`include/uapi/rdma/*-abi.h`). A policy judges the input by this table: bytes that are no field's
/// that the policy grants must be zero.
#[derive(Debug)]
pub struct UhwSpec {
    /// Drivers that have it.
    pub drivers: &'static [DriverId],
    /// Operations, by [`LegacySpec::short_name`] without `EX_`.
    pub operations: &'static [&'static str],
    /// The driver's structure.
    pub name: &'static str,
    /// Bytes.
    pub size: u16,
    /// Fields that the operation cannot do without: addresses, lengths, handles.
    pub fields: &'static [UhwField],
    /// The other fields.
    pub plain: &'static [UhwField],
    /// How long the pinned memory is.
    pub length_rule: &'static str,
}

/// All private inputs that are known.
#[must_use]
pub fn uhw_specs() -> &'static [UhwSpec] {
    generated::UHW
}

/// The operation of [`UhwSpec::operations`] that a command or a method is, by the short name.
#[must_use]
pub fn operation_of(name: &str) -> &str {
    match name.strip_prefix("EX_").unwrap_or(name) {
        "CQ_CREATE" => "CREATE_CQ",
        "QP_CREATE" => "CREATE_QP",
        "SRQ_CREATE" | "CREATE_XSRQ" => "CREATE_SRQ",
        "WQ_CREATE" => "CREATE_WQ",
        other => other,
    }
}

/// The private input of `len` bytes that `driver` takes for an operation, named as in
/// [`UhwSpec::operations`] or by the ioctl method's short name (`QP_CREATE`). Of several forms the
/// one of just this length is taken, else the first.
#[must_use]
pub fn uhw(driver: DriverId, operation: &str, len: usize) -> Option<&'static UhwSpec> {
    let operation = operation_of(operation);
    let mut of_driver = generated::UHW
        .iter()
        .filter(|spec| spec.drivers.contains(&driver) && spec.operations.contains(&operation));
    let first = of_driver.clone().next();
    of_driver.find(|spec| usize::from(spec.size) == len).or(first)
}
