//! The rules of legacy commands: of `UVERBS_METHOD_INVOKE_WRITE` (`uverbs_std_types_device.c`), and
//! of the commands' handlers (`uverbs_cmd.c`) as far as they bound the memory and the objects of a
//! command.

use crate::error::DecodeError;
use crate::generated::ids;
use crate::legacy::FLOW_SPEC_ACTION_COUNT;
use crate::legacy::FLOW_SPEC_ACTION_HANDLE;
use crate::legacy::FLOW_SPEC_HDR_LEN;
use crate::legacy::LegacySpec;
use crate::legacy::MAX_LOG_IND_TBL_SIZE;
use crate::legacy::NoFd;
use crate::legacy::RECV_WR_LEN;
use crate::legacy::SEND_WR_LEN;
use crate::legacy::SGE_LEN;
use crate::legacy::Test;
use crate::legacy::TestOp;
use crate::legacy::Trailing;
use crate::legacy::UhwRole;
use crate::legacy::WC_LEN;
use crate::legacy::is_well_formed;
use crate::legacy::legacy;
use crate::legacy::uhw;
use crate::request::LegacyRequest;
use crate::request::Request;
use crate::request::uint;
use crate::request::words;
use crate::table::Access;
use crate::uses::FdUse;
use crate::uses::HandleUse;
use crate::uses::Place;
use crate::wire::DriverId;
use crate::wire::GuestFd;
use crate::wire::Handle;

/// `USNIC_TRANSPORT_IPV4_UDP` (`hw/usnic/usnic_abi.h`): the private input has a socket.
const USNIC_TRANSPORT_IPV4_UDP: u64 = 2;

/// Finds the command and the parts of the request, and checks their lengths as the kernel does
/// before it calls the handler. Afterwards `CORE_IN` is as long as the structure.
pub(crate) fn read(request: &mut Request) -> Result<LegacyRequest, DecodeError> {
    // Mandatory and of 8 bytes, so it is there.
    let command = request.value(ids::UVERBS_ATTR_WRITE_CMD).unwrap_or(u64::MAX);
    if !is_well_formed(command) {
        return Err(DecodeError::CommandBits { command });
    }
    let spec = legacy(command).ok_or(DecodeError::UnknownCommand { command })?;
    let position = |id| request.position(id);
    let len =
        |pos: Option<usize>| pos.and_then(|pos| request.attrs().get(pos)).map_or(0, |a| a.len());
    let core_in = position(ids::UVERBS_ATTR_CORE_IN);
    let core_out = position(ids::UVERBS_ATTR_CORE_OUT);
    let uhw_in = position(ids::UVERBS_ATTR_UHW_IN);
    let uhw_out = position(ids::UVERBS_ATTR_UHW_OUT);
    let (in_len, out_len) = (len(core_in), len(core_out));

    // The kernel enforces the sizes of plain commands here. An extended command's handler fills a
    // short structure with zeros, unless more follows it (uverbs_request_start).
    let req_min: u16 =
        if spec.min_enforced || spec.trailing_in != Trailing::None { spec.req_min } else { 0 };
    let resp_min = if spec.min_enforced { spec.resp_min.into() } else { 0 };
    // Ours: the kernel would make the object and not say its name.
    let resp_min = result_end(spec).max(resp_min);
    let core_in = core_in.ok_or(DecodeError::RequestShort {
        command: spec.name,
        have: 0,
        need: req_min.max(1).into(),
    })?;
    if in_len < req_min.into() {
        let need = req_min.into();
        return Err(DecodeError::RequestShort { command: spec.name, have: in_len, need });
    }
    check_room(spec, out_len, resp_min)?;
    request.extend(core_in, spec.req.size);
    Ok(LegacyRequest { spec, core_in, core_out, uhw_in, uhw_out })
}

/// End of the last handle or descriptor that the command makes, in the response.
fn result_end(spec: &LegacySpec) -> u64 {
    let handles = spec.handles.iter().filter(|field| field.in_resp).map(|field| field.offset);
    let fds = spec.fds.iter().filter(|field| field.in_resp).map(|field| field.offset);
    handles.chain(fds).max().map_or(0, |offset| u64::from(offset).saturating_add(4))
}

fn check_room(spec: &LegacySpec, have: usize, need: u64) -> Result<(), DecodeError> {
    if u64::try_from(have).is_ok_and(|have| have >= need) {
        return Ok(());
    }
    Err(DecodeError::ResponseShort { command: spec.name, have, need })
}

/// Checks what the handlers check, as far as lengths go.
pub(crate) fn check(request: &Request, legacy: &LegacyRequest) -> Result<(), DecodeError> {
    let spec = legacy.spec;
    let bytes = request.core_in();
    if spec.trailing_wcs {
        let out = legacy.core_out.and_then(|pos| request.attrs().get(pos)).map_or(0, |a| a.len());
        let ne = request.legacy_field("ne").unwrap_or_default();
        let need = ne.saturating_mul(WC_LEN).saturating_add(spec.resp_min.into());
        check_room(spec, out, need)?;
    }
    let end = trailing_end(request, spec)?;
    match usize::try_from(end).ok().and_then(|end| bytes.get(end..)) {
        None => Err(DecodeError::RequestShort { command: spec.name, have: bytes.len(), need: end }),
        Some(rest) if rest.iter().any(|byte| *byte != 0) => {
            Err(DecodeError::RequestTail { command: spec.name })
        }
        Some(_) => match spec.trailing_in {
            Trailing::FlowSpecs => flow_specs(request).map(drop),
            _ => Ok(()),
        },
    }
}

/// Bytes of the structure and of what its fields say follows it.
fn trailing_end(request: &Request, spec: &LegacySpec) -> Result<u64, DecodeError> {
    let field = |path| request.legacy_field(path).unwrap_or_default();
    let invalid = |name, value| Err(DecodeError::Field { command: spec.name, field: name, value });
    let size = u64::from(spec.req.size);
    let wrs = || {
        let wrs = field("wr_count").saturating_mul(field("wqe_size"));
        let sges = field("sge_count").saturating_mul(SGE_LEN);
        size.saturating_add(wrs).saturating_add(sges)
    };
    match spec.trailing_in {
        Trailing::None => Ok(size),
        // Ours: the kernel reads a whole ib_uverbs_send_wr of each, however short they are.
        Trailing::SendWrs if field("wr_count") != 0 && field("wqe_size") < SEND_WR_LEN => {
            invalid("wqe_size", field("wqe_size"))
        }
        // ib_uverbs_unmarshall_recv, even for no work requests.
        Trailing::RecvWrs if field("wqe_size") < RECV_WR_LEN => {
            invalid("wqe_size", field("wqe_size"))
        }
        Trailing::SendWrs | Trailing::RecvWrs => Ok(wrs()),
        Trailing::FlowSpecs if field("flow_attr.num_of_specs") == 0 => Ok(size),
        Trailing::FlowSpecs => Ok(size.saturating_add(field("flow_attr.size"))),
        Trailing::WqHandles => match field("log_ind_tbl_size") {
            log @ 0..=MAX_LOG_IND_TBL_SIZE => {
                let count = u32::try_from(log).ok().and_then(|log| 1_u64.checked_shl(log));
                Ok(count.unwrap_or_default().saturating_mul(4).saturating_add(size))
            }
            log => invalid("log_ind_tbl_size", log),
        },
    }
}

/// The flow specs that carry handles, as offset in `CORE_IN` and type; walks them as
/// `ib_uverbs_ex_create_flow` does.
fn flow_specs(request: &Request) -> Result<Vec<(usize, u64)>, DecodeError> {
    let Some(legacy) = request.legacy() else {
        return Ok(Vec::new());
    };
    let bytes = request.core_in();
    let count = request.legacy_field("flow_attr.num_of_specs").unwrap_or_default();
    let size = request.legacy_field("flow_attr.size").unwrap_or_default();
    let mut left = usize::try_from(size).unwrap_or_default();
    let mut offset = legacy.spec.req_size();
    let mut found = Vec::new();
    if count == 0 {
        return Ok(found);
    }
    let invalid = |value| {
        Err(DecodeError::Field { command: legacy.spec.name, field: "flow_attr.size", value })
    };
    for _ in 0..count {
        let kind = uint(bytes, offset, 4);
        let len = usize::try_from(uint(bytes, offset.saturating_add(4), 2)).unwrap_or_default();
        if left < FLOW_SPEC_HDR_LEN || left < len {
            return invalid(size);
        }
        if kind == FLOW_SPEC_ACTION_HANDLE || kind == FLOW_SPEC_ACTION_COUNT {
            found.push((offset, kind));
        }
        left = left.saturating_sub(len);
        offset = offset.saturating_add(len);
    }
    if left != 0 {
        return invalid(size);
    }
    Ok(found)
}

/// True when all conditions hold on the request structure.
pub(crate) fn holds(tests: &[Test], core_in: &[u8]) -> bool {
    tests.iter().all(|test| {
        let value = uint(core_in, test.offset.into(), test.size.into());
        match test.op {
            TestOp::Eq => value == test.value,
            TestOp::Ne => value != test.value,
            TestOp::AnyBit => value & test.value != 0,
            TestOp::NoBit => value & test.value == 0,
        }
    })
}

fn handle_at(bytes: &[u8], offset: usize) -> Handle {
    Handle(u32::try_from(uint(bytes, offset, 4)).unwrap_or_default())
}

/// Objects that the command uses.
pub(crate) fn handles(request: &Request, legacy: &LegacyRequest, uses: &mut Vec<HandleUse>) {
    let bytes = request.core_in();
    let pos = legacy.core_in;
    for field in legacy.spec.handles {
        if !field.in_resp && holds(field.when, bytes) {
            let offset = field.offset.into();
            uses.push(HandleUse {
                object: field.object,
                access: field.access,
                handle: handle_at(bytes, offset),
                place: Place::Payload { pos, offset },
            });
        }
    }
    match legacy.spec.trailing_in {
        Trailing::WqHandles => {
            let size = legacy.spec.req_size();
            // check() has made sure that they are all there; what follows them is padding.
            let count = request
                .legacy_field("log_ind_tbl_size")
                .and_then(|log| 1_usize.checked_shl(u32::try_from(log).ok()?));
            let tail = bytes.get(size..).unwrap_or_default();
            for (offset, handle) in words(tail).take(count.unwrap_or_default()) {
                uses.push(HandleUse {
                    object: ids::UVERBS_OBJECT_WQ,
                    access: Access::Read,
                    handle: Handle(handle),
                    place: Place::Payload { pos, offset: size.saturating_add(offset) },
                });
            }
        }
        Trailing::FlowSpecs => {
            for (offset, kind) in flow_specs(request).unwrap_or_default() {
                let object = if kind == FLOW_SPEC_ACTION_HANDLE {
                    ids::UVERBS_OBJECT_FLOW_ACTION
                } else {
                    ids::UVERBS_OBJECT_COUNTERS
                };
                let offset = offset.saturating_add(FLOW_SPEC_HDR_LEN);
                uses.push(HandleUse {
                    object,
                    access: Access::Read,
                    handle: handle_at(bytes, offset),
                    place: Place::Payload { pos, offset },
                });
            }
        }
        Trailing::None | Trailing::SendWrs | Trailing::RecvWrs => {}
    }
}

/// Descriptors that the command uses.
pub(crate) fn fds(request: &Request, legacy: &LegacyRequest, uses: &mut Vec<FdUse>) {
    for field in legacy.spec.fds.iter().filter(|field| !field.in_resp) {
        let offset = field.offset.into();
        let fd = handle_at(request.core_in(), offset).0.cast_signed();
        let absent = match field.none {
            NoFd::Never => false,
            NoFd::MinusOne => fd == -1,
            NoFd::Negative => fd < 0,
        };
        if !absent {
            let place = Place::Payload { pos: legacy.core_in, offset };
            uses.push(FdUse { object: field.object, fd: GuestFd(fd), place });
        }
    }
}

/// Descriptors in the provider's private input: only usnic has one (`usnic_ib_create_qp_cmd`).
pub(crate) fn uhw_fds(request: &Request, uses: &mut Vec<FdUse>) {
    if request.hdr().driver() != DriverId::USNIC {
        return;
    }
    let Some(pos) = request.attrs().iter().position(|attr| attr.spec.is_uhw_in()) else {
        return;
    };
    let bytes = request.uhw_in();
    let Some(spec) = uhw(DriverId::USNIC, request.operation(), bytes.len()) else {
        return;
    };
    if uint(bytes, 0, 4) != USNIC_TRANSPORT_IPV4_UDP {
        return;
    }
    for field in spec.fields.iter().filter(|field| field.role == UhwRole::Fd) {
        let offset: usize = field.offset.into();
        // Too short for one: there is no place to put another number in.
        if bytes.len() < offset.saturating_add(4) {
            continue;
        }
        let fd = GuestFd(handle_at(bytes, offset).0.cast_signed());
        uses.push(FdUse { object: None, fd, place: Place::Payload { pos, offset } });
    }
}
