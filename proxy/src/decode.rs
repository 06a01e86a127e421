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
    #[error("its memory cannot be read")]
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

/// A request made by `ioctl`, of which the first bytes have been copied.
///
/// # Errors
/// See [`Malformed`].
pub fn ioctl(memory: &impl GuestMemory, first: Copied) -> Result<Request, Malformed> {
    let head = first.bytes().get(..HDR_LEN).ok_or(Malformed::Fault(Errno::EFAULT))?;
    let length = usize::from(decode::header(head)?.length);
    let copied = fetch::array(memory, first, length).map_err(Malformed::Fault)?;
    let array = copied.bytes().get(..length).ok_or(Malformed::Fault(Errno::EFAULT))?;
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
