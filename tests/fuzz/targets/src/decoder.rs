//! Fuzzing of the decoder: the bytes of an ioctl (header, attributes), and behind them the payloads
//! in the order in which they are fetched. Missing bytes are zeros.

use std::borrow::Cow;

use verbgate_abi::DecodeError;
use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::table;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::AttrFlags;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::MAX_LEN;

use crate::exercise::exercise;

/// The most attributes that [`repaired`] gives a request.
const FEW: usize = 40;

/// Decodes the bytes as they are, and with lengths that agree.
pub fn run(data: &[u8]) {
    for bytes in [Cow::Borrowed(data), Cow::Owned(repaired(data))] {
        if let Some(request) = request(&bytes) {
            exercise(request);
        }
    }
}

/// The bytes with the lengths in the header made right, so that most get further than there.
#[must_use]
pub fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if let Some(header) = bytes.get(..HDR_LEN) {
        let wanted = usize::from(header[6]) % (FEW + 1);
        let have = (bytes.len() - HDR_LEN) / ATTR_LEN;
        let count = wanted.min(have);
        let length = u16::try_from(HDR_LEN + ATTR_LEN * count).unwrap();
        bytes[..2].copy_from_slice(&length.to_ne_bytes());
        bytes[6..8].copy_from_slice(&u16::try_from(count).unwrap().to_ne_bytes());
        // Reserved.
        bytes[8..16].fill(0);
        bytes[20..24].fill(0);
    }
    bytes
}

/// The request that the bytes are, if they are one.
#[must_use]
pub fn request(data: &[u8]) -> Option<Request> {
    let outline = match decode::parse(data) {
        Ok(outline) => outline,
        Err(error) => {
            explain(&error);
            return None;
        }
    };
    let hdr = *outline.hdr();
    let length = usize::from(hdr.length);
    assert!(length <= MAX_LEN && length == HDR_LEN + ATTR_LEN * usize::from(hdr.num_attrs));
    assert_eq!((hdr.reserved1, hdr.reserved2), (0, 0));
    let method = table::method(hdr.object(), hdr.method(), hdr.driver()).unwrap();
    assert!(std::ptr::eq(method, outline.method()));
    for spec in method.attrs_of(hdr.driver()) {
        let times = outline.attrs().iter().filter(|attr| attr.spec.id == spec.id).count();
        assert!(times == 1 || times == 0 && !spec.mandatory, "{} {times} times", spec.name);
    }
    for (at, entry) in data[HDR_LEN..length].chunks(ATTR_LEN).enumerate() {
        let taken = outline.attrs().iter().any(|attr| attr.index == Some(at));
        let flags = u16::from_ne_bytes([entry[4], entry[5]]);
        assert!(taken || flags & AttrFlags::MANDATORY.bits() == 0, "entry {at} was dropped");
    }

    let mut arena = data[length..].to_vec();
    arena.resize(outline.arena_len(), 0);
    let mut end = 0;
    for payload in outline.payloads() {
        let attr = &outline.attrs()[payload.pos];
        assert_eq!(payload.range.start, end);
        assert_eq!(payload.range.len(), attr.len());
        assert!(!attr.spec.is_written_by_kernel());
        end = payload.range.end;
    }
    assert_eq!(end, arena.len());
    match outline.with_payloads(arena) {
        Ok(request) => Some(request),
        Err(error) => {
            explain(&error);
            None
        }
    }
}

/// Errors are shown and become an errno: neither may fail.
pub(crate) fn explain(error: &DecodeError) {
    assert!(error.errno().0 > 0 && !error.kind().is_empty());
    assert!(!error.to_string().contains('\n'));
}
