//! Requests as JSON: `verbgate trace --json` writes them, and `verbgate policy test` reads them.

use std::fmt::Write as _;

use serde::Deserialize;
use serde::Serialize;
use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::AttrFlags;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_proxy::observe;

/// Where inputs of a request that is put together again are taken to be.
const PAYLOAD: GuestAddr = GuestAddr(0x10_0000);

/// A request. Other keys of a line of the trace are about how the request ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// The kernel's number of the driver: `enum rdma_driver_id`.
    driver: u32,
    /// The method, as profiles name it.
    method: String,
    /// The legacy command, as profiles name it; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// The device's name in the sandbox; the tracer writes it with how the request ended.
    #[serde(default, skip_serializing)]
    device: Option<String>,
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Attribute {
    /// The kernel's name; for people.
    name: String,
    id: u16,
    /// Bytes of an output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    room: Option<u16>,
    /// Which alternative of the attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    choice: Option<u8>,
    /// An input, in hexadecimal digits, first byte first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
    /// A handle or a descriptor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
}

/// Reasons why a line is no request.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says all")]
pub enum RecordError {
    #[error(
        "the request is no line of verbgate trace --json: {0}; give one line that has the keys \
         driver, method and attributes"
    )]
    Json(String),
    #[error("driver {driver} has no method {method:?}; `verbgate abi list` prints all methods")]
    NoMethod { method: String, driver: u32 },
    #[error("attribute {0:?}: bytes must be pairs of hexadecimal digits, at most 65535 of them")]
    Bytes(String),
    #[error("the request is malformed, and refused under every policy: {0}")]
    Malformed(verbgate_abi::DecodeError),
}

impl From<&Request> for Recorded {
    fn from(request: &Request) -> Self {
        let attribute = |attr: &verbgate_abi::request::ReqAttr| {
            let mut one = Attribute {
                name: attr.spec.name.to_owned(),
                id: attr.attr.attr_id,
                room: None,
                choice: None,
                bytes: None,
                number: None,
            };
            match attr.spec.kind {
                AttrKind::PtrOut { .. } => one.room = Some(attr.attr.len),
                AttrKind::Idr { .. } | AttrKind::Fd { .. } | AttrKind::RawFd => {
                    one.number = Some(attr.attr.data);
                }
                kind => {
                    if let AttrKind::EnumIn { .. } = kind {
                        let [elem, _] = attr.attr.attr_data.to_ne_bytes();
                        one.choice = Some(elem);
                    }
                    one.bytes = Some(hex(request.bytes(attr)));
                }
            }
            one
        };
        Self {
            driver: request.hdr().driver_id,
            method: request.method().full_name(),
            command: request.legacy().map(|_| observe::name(request).to_owned()),
            device: None,
            attributes: request.attrs().iter().map(attribute).collect(),
        }
    }
}

impl Recorded {
    /// Reads a line.
    ///
    /// # Errors
    /// [`RecordError::Json`].
    pub fn read(line: &str) -> Result<Self, RecordError> {
        serde_json::from_str(line).map_err(|e| RecordError::Json(e.to_string()))
    }

    /// The device's name in the sandbox, such as `uverbs0`, if the line has it.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// The request, decoded as the supervisor decodes what a guest asks.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn request(&self) -> Result<Request, RecordError> {
        let driver = DriverId(self.driver);
        let named = |method: &&MethodSpec| {
            method.full_name() == self.method
                && method.provider.serves(driver)
                && method.object.provider.serves(driver)
        };
        let method = table::methods().iter().find(named).ok_or_else(|| RecordError::NoMethod {
            method: self.method.clone(),
            driver: self.driver,
        })?;
        let mut builder = RequestBuilder::new(method, driver);
        for one in &self.attributes {
            let flags = AttrFlags::MANDATORY.bits();
            let raw = |len, data| Attr { attr_id: one.id, len, flags, attr_data: 0, data };
            let id = verbgate_abi::wire::AttrId(one.id);
            builder = match (&one.bytes, one.room, one.number) {
                (Some(digits), ..) => {
                    let bytes =
                        unhex(digits).ok_or_else(|| RecordError::Bytes(one.name.clone()))?;
                    builder.elem(id, one.choice.unwrap_or(0), &bytes)
                }
                (None, Some(room), _) => builder.raw(raw(room, PAYLOAD.0)),
                (None, None, number) => builder.raw(raw(0, number.unwrap_or_default())),
            };
        }
        let encoded = builder.build(PAYLOAD);
        let outline = decode::parse(&encoded.bytes).map_err(RecordError::Malformed)?;
        let mut arena = vec![0; outline.arena_len()];
        for payload in outline.payloads() {
            let start = payload.addr.0.checked_sub(PAYLOAD.0).and_then(|n| usize::try_from(n).ok());
            let from =
                start.and_then(|start| encoded.payload.get(start..start + payload.range.len()));
            if let (Some(to), Some(from)) = (arena.get_mut(payload.range.clone()), from) {
                to.copy_from_slice(from);
            }
        }
        outline.with_payloads(arena).map_err(RecordError::Malformed)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
            u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
        }
        _ => None,
    };
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    bytes.filter(|bytes| u16::try_from(bytes.len()).is_ok())
}

#[cfg(test)]
mod tests {
    use verbgate_abi::ids;
    use verbgate_abi::legacy;

    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let invoke = table::methods().iter().find(|method| method.is_invoke_write()).unwrap();
        let spec = legacy::commands().iter().find(|spec| spec.short_name == "REG_MR").unwrap();
        let bytes: Vec<u8> = (0..spec.req_size()).map(|n| u8::try_from(n).unwrap()).collect();
        let line = format!(
            "{{\"driver\": 1, \"method\": \"{}\", \"result\": 0, \"attributes\": [\
             {{\"name\": \"CORE_IN\", \"id\": {}, \"bytes\": \"{}\"}}, \
             {{\"name\": \"CORE_OUT\", \"id\": {}, \"room\": 12}}, \
             {{\"name\": \"WRITE_CMD\", \"id\": {}, \"bytes\": \"{}\"}}]}}",
            invoke.full_name(),
            ids::UVERBS_ATTR_CORE_IN.0,
            hex(&bytes),
            ids::UVERBS_ATTR_CORE_OUT.0,
            ids::UVERBS_ATTR_WRITE_CMD.0,
            hex(&spec.write_cmd.to_ne_bytes()),
        );
        let request = Recorded::read(&line).unwrap().request().unwrap();
        assert_eq!(request.core_in(), bytes);
        let again = Recorded::from(&request);
        assert_eq!(again.command.as_deref(), Some("REG_MR"));
        let text = serde_json::to_string(&again).unwrap();
        assert_eq!(Recorded::read(&text).unwrap(), again);
        assert_eq!(again.request().unwrap().core_in(), bytes);
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        let of = |line: &str| Recorded::read(line).and_then(|one| one.request()).unwrap_err();
        assert!(matches!(of("REG_MR(start=0)"), RecordError::Json(_)));
        let line = "{\"driver\": 1, \"method\": \"QP.QP_CRATE\", \"attributes\": []}";
        assert!(matches!(of(line), RecordError::NoMethod { .. }));
        let line = "{\"driver\": 1, \"method\": \"QP.QP_CREATE\", \"attributes\": []}";
        assert!(matches!(of(line), RecordError::Malformed(_)));
        assert_eq!(unhex("0g"), None);
        assert_eq!(unhex("012"), None);
        assert_eq!(unhex("00ff"), Some(vec![0, 255]));
    }
}
