//! Requests made by hand, byte by byte.

use verbgate_abi::DecodeError;
use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::encode::Encoded;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::MethodId;

/// Where the payloads of hand-made requests are.
pub(crate) const BASE: GuestAddr = GuestAddr(0x10_0000);

pub(crate) fn method(object: ObjectRef, id: MethodId, driver: DriverId) -> &'static MethodSpec {
    table::method(object.id, id, driver).unwrap()
}

/// Decodes, with the encoded payload as the guest's memory.
pub(crate) fn decode(encoded: &Encoded) -> Result<Request, DecodeError> {
    let outline = decode::parse(&encoded.bytes)?;
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - BASE.0).unwrap();
        let end = start + payload.range.len();
        arena[payload.range].copy_from_slice(&encoded.payload[start..end]);
    }
    outline.with_payloads(arena)
}

/// An `INVOKE_WRITE` with these parts; no attribute for an absent part.
pub(crate) fn invoke(
    write_cmd: u64,
    core_in: Option<&[u8]>,
    out_len: Option<u16>,
    uhw_in: Option<&[u8]>,
    driver: DriverId,
) -> Encoded {
    let method = method(ids::UVERBS_OBJECT_DEVICE, ids::UVERBS_METHOD_INVOKE_WRITE, driver);
    let mut builder = RequestBuilder::new(method, driver);
    if let Some(bytes) = core_in {
        builder = builder.input(ids::UVERBS_ATTR_CORE_IN, bytes);
    }
    if let Some(len) = out_len {
        builder = builder.output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), len);
    }
    builder = builder.constant(ids::UVERBS_ATTR_WRITE_CMD, write_cmd);
    if let Some(bytes) = uhw_in {
        builder = builder.input(ids::UVERBS_ATTR_UHW_IN, bytes);
    }
    builder.build(BASE)
}

/// The structure of a command with these fields set.
pub(crate) fn core(write_cmd: u64, fields: &[(&str, u64)]) -> Vec<u8> {
    let spec = legacy::legacy(write_cmd).unwrap();
    let mut bytes = vec![0; spec.req_size()];
    for (path, value) in fields {
        let field = spec.req.field(path).expect(path);
        let (offset, size) = (usize::from(field.offset), usize::from(field.size));
        let value = value.to_le_bytes();
        bytes[offset..offset + size].copy_from_slice(&value[..size]);
    }
    bytes
}
