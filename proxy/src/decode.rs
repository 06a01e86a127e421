//! Decode: bytes and the kernel's table make a typed request, or the kernel's errno.

use verbgate_abi::DecodeError;
use verbgate_abi::Errno;
use verbgate_abi::decode;
use verbgate_abi::request::Request;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::write;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;

use crate::fetch;
use crate::fetch::Copied;

/// Why a request is not one.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It cannot be read.
    #[error("the memory of the request cannot be read")]
    Fault(Errno),
    /// It breaks a rule of the ABI.
    #[error(transparent)]
    Rule(#[from] DecodeError),
}

impl Malformed {
    /// What the kernel answers.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Fault(errno) => *errno,
            Self::Rule(error) => error.errno(),
        }
    }

    /// For counters.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Fault(_) => "unreadable request",
            Self::Rule(error) => error.kind(),
        }
    }
}

/// A request made by `ioctl` for a device of `driver`, of which the first bytes have been copied.
///
/// # Errors
/// See [`Malformed`].
pub fn ioctl(
    memory: &impl GuestMemory,
    first: Copied,
    driver: DriverId,
) -> Result<Request, Malformed> {
    let head = first.bytes().get(..HDR_LEN).ok_or(Malformed::Fault(Errno::EFAULT))?;
    let header = decode::header(head)?;
    let length = usize::from(header.length);
    let copied = fetch::array(memory, first, length).map_err(Malformed::Fault)?;
    let array = copied.bytes().get(..length).ok_or(Malformed::Fault(Errno::EFAULT))?;
    // Of a device whose driver has no name here the kernel alone knows the number.
    if driver != DriverId::UNKNOWN {
        decode::check_driver(&header, driver)?;
    }
    let outline = decode::parse(array)?;
    // The arena holds the payloads in order, one after the other.
    let ranges: Vec<Range> =
        outline.payloads().map(|p| Range { addr: p.addr.0, len: p.range.len() }).collect();
    let arena = fetch::inputs(memory, &copied, &ranges).map_err(Malformed::Fault)?;
    Ok(outline.with_payloads(arena)?)
}

/// A command given with `write`, copied whole.
///
/// # Errors
/// See [`Malformed`].
pub fn write(copied: &Copied, count: usize, driver: DriverId) -> Result<Request, Malformed> {
    let buf = copied.bytes().get(..count).ok_or(Malformed::Fault(Errno::EFAULT))?;
    Ok(write::parse_write(buf)?.into_request(driver)?)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use verbgate_abi::encode::RequestBuilder;
    use verbgate_abi::ids;
    use verbgate_abi::table;
    use verbgate_abi::wire::GuestAddr;
    use verbgate_sys::control;
    use verbgate_sys::mem::FakeMemory;
    use verbgate_sys::window::AddrWindow;

    use super::*;

    /// QUERY_CONTEXT as a program of `program` asks it, decoded for a device of `device`.
    fn asked(program: DriverId, device: DriverId) -> Result<Request, Malformed> {
        let (object, id) = (ids::UVERBS_OBJECT_DEVICE.id, ids::UVERBS_METHOD_QUERY_CONTEXT);
        let method = table::method(object, id, program).unwrap();
        let encoded = RequestBuilder::new(method, program).build(GuestAddr(0));
        let window = AddrWindow::at(0);
        let base = window.slot(0) + control::OWNER as u64;
        let mut bytes = 7_u64.to_ne_bytes().to_vec();
        bytes.extend(encoded.bytes);
        let memory = FakeMemory { base, bytes: RefCell::new(bytes) };
        let copied = fetch::first(&memory, base + 8, (HDR_LEN, HDR_LEN));
        ioctl(&memory, copied, device)
    }

    #[test]
    fn a_request_for_another_driver_is_refused_first() {
        let refused = asked(DriverId::MLX5, DriverId::RXE).unwrap_err();
        assert_eq!(refused.errno(), Errno::EINVAL);
        assert!(asked(DriverId::RXE, DriverId::RXE).is_ok());
        assert!(asked(DriverId::RXE, DriverId::UNKNOWN).is_ok());
    }
}
