//! Commands given with `write(2)` on a uverbs descriptor, turned into the equal `INVOKE_WRITE`.
//!
//! The rules, their order and their error numbers are those of `ib_uverbs_write` and `verify_hdr`
//! in `drivers/infiniband/core/uverbs_main.c`. Differences:
//! - a command that does not exist is EOPNOTSUPP even if its header is wrong, too;
//! - the 16-byte `DESTROY_CQ` of rdma-core 18 and 19 (2018), for which the kernel reads 8 bytes
//!   beyond the end of the write, is ENOSPC like every other short command;
//! - inputs of 64 KiB and more, and so much space for the core's own response, do not fit
//!   `INVOKE_WRITE` and are E2BIG.

use std::ops::Range;

use zerocopy::FromBytes;

use crate::error::DecodeError;
use crate::generated::ids;
use crate::legacy::LegacySpec;
use crate::legacy::is_well_formed;
use crate::legacy::legacy;
use crate::request::ReqAttr;
use crate::request::Request;
use crate::request::uint;
use crate::table::method;
use crate::wire::Attr;
use crate::wire::AttrId;
use crate::wire::CmdHdr;
use crate::wire::DriverId;
use crate::wire::ExCmdHdr;
use crate::wire::GuestAddr;
use crate::wire::IoctlHdr;

/// A place in the guest's memory for an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Address.
    pub addr: GuestAddr,
    /// Bytes.
    pub len: usize,
}

/// A command from `write(2)`, in the parts that `INVOKE_WRITE` has.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// The command.
    pub spec: &'static LegacySpec,
    /// Request structure and what follows it.
    pub core_in: Vec<u8>,
    /// The provider's private input.
    pub uhw_in: Vec<u8>,
    /// Place for the response.
    pub core_out: Output,
    /// Place for the provider's private output.
    pub uhw_out: Output,
}

/// Reads the bytes of one write, all of them.
///
/// # Errors
///
/// See [`DecodeError`].
pub fn parse_write(buf: &[u8]) -> Result<WriteRequest, DecodeError> {
    let count = buf.len();
    let invalid = |what| DecodeError::WriteHeader { count, what };
    let (hdr, body) = CmdHdr::read_from_prefix(buf)
        .map_err(|_| invalid("shorter than struct ib_uverbs_cmd_hdr"))?;
    let command = hdr.command.into();
    if !is_well_formed(command) {
        return Err(DecodeError::CommandBits { command });
    }
    let spec = legacy(command).ok_or(DecodeError::UnknownCommand { command })?;
    if spec.extended {
        let (ex, body) = ExCmdHdr::read_from_prefix(body)
            .map_err(|_| invalid("shorter than struct ib_uverbs_ex_cmd_hdr"))?;
        extended(spec, hdr, ex, body, count)
    } else {
        plain(spec, hdr, body, count)
    }
}

fn plain(
    spec: &'static LegacySpec,
    hdr: CmdHdr,
    body: &[u8],
    count: usize,
) -> Result<WriteRequest, DecodeError> {
    if usize::from(hdr.in_words).checked_mul(4) != Some(count) {
        return Err(DecodeError::WriteHeader { count, what: "in_words * 4 is not the length" });
    }
    let req_min = usize::from(spec.req_min);
    if body.len() < req_min {
        let (have, need) = (body.len(), spec.req_min.into());
        return Err(DecodeError::RequestShort { command: spec.name, have, need });
    }
    let out_len = usize::from(hdr.out_words).saturating_mul(4);
    let resp_min = usize::from(spec.resp_min);
    if out_len < resp_min {
        let need = spec.resp_min.into();
        return Err(DecodeError::ResponseShort { command: spec.name, have: out_len, need });
    }
    // A response starts the structure of every command that has one.
    let response = if spec.has_resp { uint(body, 0, 8) } else { 0 };
    let out_len = if spec.has_resp { out_len } else { 0 };
    // With private data the core's part is exactly the structure; without, it is all there is.
    let (in_split, out_split) =
        if spec.takes_uhw { (req_min, resp_min.min(out_len)) } else { (body.len(), out_len) };
    let (core_in, uhw_in) = split(body, in_split);
    let (core_out, uhw_out) = split_output(response, out_len, out_split);
    Ok(WriteRequest { spec, core_in, uhw_in, core_out, uhw_out })
}

fn extended(
    spec: &'static LegacySpec,
    hdr: CmdHdr,
    ex: ExCmdHdr,
    body: &[u8],
    count: usize,
) -> Result<WriteRequest, DecodeError> {
    let invalid = |what| Err(DecodeError::WriteHeader { count, what });
    let bytes = |words: u16| usize::from(words).saturating_mul(8);
    let in_split = bytes(hdr.in_words);
    if in_split.saturating_add(bytes(ex.provider_in_words)) != body.len() {
        return invalid("(in_words + provider_in_words) * 8 is not the length");
    }
    if ex.reserved != 0 {
        return invalid("cmd_hdr_reserved is not zero");
    }
    let out_split = bytes(hdr.out_words);
    let out_len = out_split.saturating_add(bytes(ex.provider_out_words));
    if ex.response != 0 && out_len == 0 {
        return invalid("a response of no words");
    }
    if ex.response == 0 && out_len != 0 {
        return invalid("words of no response");
    }
    let (core_in, uhw_in) = split(body, in_split);
    let (core_out, uhw_out) = split_output(ex.response, out_len, out_split);
    Ok(WriteRequest { spec, core_in, uhw_in, core_out, uhw_out })
}

fn split(body: &[u8], at: usize) -> (Vec<u8>, Vec<u8>) {
    match body.split_at_checked(at) {
        Some((core, uhw)) => (core.to_vec(), uhw.to_vec()),
        None => (body.to_vec(), Vec::new()),
    }
}

fn split_output(response: u64, len: usize, at: usize) -> (Output, Output) {
    let offset = u64::try_from(at).unwrap_or_default();
    (
        Output { addr: GuestAddr(response), len: at },
        // The kernel adds without a check, too: an address that wraps faults when it is used.
        Output { addr: GuestAddr(response.wrapping_add(offset)), len: len.saturating_sub(at) },
    )
}

impl WriteRequest {
    /// The `INVOKE_WRITE` that does the same on a device of `driver`. Parts of no bytes are left
    /// out, and no attribute has an [`ReqAttr::index`].
    ///
    /// # Errors
    ///
    /// Inputs that break a rule of the command.
    pub fn into_request(self, driver: DriverId) -> Result<Request, DecodeError> {
        let spec = self.spec;
        let object = ids::UVERBS_OBJECT_DEVICE.id;
        let id = ids::UVERBS_METHOD_INVOKE_WRITE;
        // The method is in the table; a test says so.
        let unknown = DecodeError::UnknownMethod { object, method: id, driver };
        let method = method(object, id, driver).ok_or(unknown)?;
        let mut attrs = Vec::new();
        let mut push = |id: AttrId, data: u64, len: usize, payload: Option<Range<usize>>| {
            let Ok(attr_len) = u16::try_from(len) else {
                return Err(DecodeError::WriteLong { command: spec.name, len });
            };
            let attr = Attr { attr_id: id.0, len: attr_len, flags: 0, attr_data: 0, data };
            if let (Some(spec), true) = (method.attr(id, driver), len != 0) {
                attrs.push(ReqAttr { spec, attr, index: None, payload });
            }
            Ok(())
        };
        let mut arena = self.core_in;
        let core_len = arena.len();
        arena.extend_from_slice(&self.uhw_in);
        push(ids::UVERBS_ATTR_CORE_IN, 0, core_len, Some(0..core_len))?;
        push(ids::UVERBS_ATTR_UHW_IN, 0, self.uhw_in.len(), Some(core_len..arena.len()))?;
        push(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd, 8, None)?;
        push(ids::UVERBS_ATTR_CORE_OUT, self.core_out.addr.0, self.core_out.len, None)?;
        // A driver writes a structure of its own and leaves the rest alone, so that a place of more
        // than an attribute can tell is as good as one of just so much.
        let uhw_out = self.uhw_out.len.min(u16::MAX.into());
        push(ids::UVERBS_ATTR_UHW_OUT, self.uhw_out.addr.0, uhw_out, None)?;
        let hdr = IoctlHdr {
            object_id: object.0,
            method_id: id.0,
            driver_id: driver.0,
            ..IoctlHdr::default()
        };
        Request::new(hdr, method, attrs, arena).with_legacy()
    }
}
