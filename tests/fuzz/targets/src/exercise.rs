//! The statements that must hold for every request, however the request came.

use std::collections::HashSet;

use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::encode::encode;
use verbgate_abi::fmt::Shown;
use verbgate_abi::legacy;
use verbgate_abi::request::OutPlace;
use verbgate_abi::request::Place;
use verbgate_abi::wire::GuestAddr;

/// Where payloads of encoded requests are.
const BASE: GuestAddr = GuestAddr(0x10_0000);

/// Uses all that a request offers.
pub(crate) fn exercise(mut request: Request) {
    assert!(!Shown(&request).to_string().contains('\n'));
    places(&request);
    if let Some(legacy) = request.legacy() {
        assert!(request.core_in().len() >= legacy.spec.req_size());
        let room = legacy.core_out.map_or(0, |pos| request.attrs()[pos].len());
        if legacy.spec.trailing_wcs {
            // The kernel writes so many, whatever the length says.
            let wcs = request.legacy_field("ne").unwrap() * legacy::WC_LEN;
            assert!(u64::from(legacy.spec.resp_min) + wcs <= room as u64);
        }
        assert!(request.new_handles().chain(request.new_fds()).all(|new| match new.place {
            OutPlace::Output { pos, offset } => {
                Some(pos) == legacy.core_out && offset + 4 <= room
            }
            OutPlace::AttrData(_) => false,
        }));
    }

    // What is decoded can be encoded, and is the same then. (Attributes that are no outputs must
    // have come from an array for it.)
    let encoded = encode(&request, BASE);
    let outline = decode::parse(&encoded.bytes).unwrap();
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - BASE.0).unwrap();
        let len = payload.range.len();
        arena[payload.range].copy_from_slice(&encoded.payload[start..start + len]);
    }
    let again = outline.with_payloads(arena).unwrap();
    assert!(again.handles().eq(request.handles()));
    assert!(again.fds().eq(request.fds()));
    assert_eq!(again.core_in(), request.core_in());
    assert_eq!(again.uhw_in(), request.uhw_in());

    let used: Vec<_> = request.fds().collect();
    for fd in &used {
        assert!(request.set_fd(fd.place, 3));
    }
    assert!(request.fds().all(|fd| fd.fd.0 == 3));
    assert_eq!(request.fds().count(), used.len());
    request.extend_inline_udata();
    for attr in request.attrs() {
        assert!(attr.spec.is_output() || request.bytes(attr).len() == attr.len());
        assert!(!attr.spec.is_uhw_in() || attr.is_empty() || attr.len() > 8);
    }
}

/// Handles and descriptors are where they are said to be, and no two in the same place.
fn places(request: &Request) {
    let mut taken = HashSet::new();
    let at = |place: Place, value: u32| match place {
        Place::AttrData(pos) => {
            let low = request.attrs()[pos].attr.data & 0xffff_ffff;
            assert_eq!(low, u64::from(value));
        }
        Place::Payload { pos, offset } => {
            let bytes = request.bytes(&request.attrs()[pos]);
            assert_eq!(bytes[offset..offset + 4], value.to_ne_bytes());
        }
    };
    for used in request.handles() {
        at(used.place, used.handle.0);
        assert!(taken.insert(used.place), "{used:?}");
    }
    for used in request.fds() {
        at(used.place, used.fd.0.cast_unsigned());
        assert!(taken.insert(used.place), "{used:?}");
    }
}
