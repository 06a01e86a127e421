#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows these in test functions; here the helpers of tests use them, too"
)]
//! The residue: what a guest thread can make of a framed request, found by trying everything.
//!
//! The frame is laid out as for the kernel, the entries behind the boundary are altered as a guest
//! thread could, and the decoder, which has the kernel's rules, says whether the kernel would take
//! the request. The attributes that then are in a request that did not name them must be the
//! residue that the table computes, no more and no less.

use std::collections::BTreeSet;

use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::encode::Encoded;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::encode::attr_bytes;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::residue;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::wire::ATTR_LEN;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::AttrFlags;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::HDR_LEN;
use verbgate_abi::wire::Handle;
use verbgate_proxy::frame::FILLER;
use verbgate_proxy::frame::lay_out;
use verbgate_proxy::translate::Plan;
use verbgate_sys::frame::Frame;
use verbgate_sys::stub::INPUTS;
use verbgate_sys::stub::request_offset;
use verbgate_sys::window::RO_LEN;

/// Where the payloads of the requests are.
const PAYLOAD: GuestAddr = GuestAddr(0x10_0000);
/// Where the guest sees the frame.
const BASE: u64 = 0x6ae0_0010_0000;

/// A valid value of the least length.
fn with(builder: RequestBuilder, spec: &AttrSpec) -> RequestBuilder {
    match spec.kind {
        AttrKind::PtrOut { min, .. } => builder.output(spec.id, GuestAddr(0x9000), min),
        AttrKind::Idr { .. } => builder.handle(spec.id, Handle(1)),
        AttrKind::Fd { .. } | AttrKind::RawFd => builder.fd(spec.id, 1),
        AttrKind::EnumIn { elems } => builder.elem(spec.id, 0, &vec![0; elems[0].min.into()]),
        AttrKind::PtrIn { min, .. } => builder.input(spec.id, &vec![0; min.into()]),
        AttrKind::ConstIn | AttrKind::FlagsIn => builder.constant(spec.id, 0),
        AttrKind::IdrsArray { min, .. } => builder.input(spec.id, &vec![0; 4 * usize::from(min)]),
        // Of addresses: descriptors would have to be translated.
        AttrKind::Umem => builder.input(spec.id, &[1; 32]),
    }
}

fn decoded(encoded: &Encoded) -> Request {
    let outline = decode::parse(&encoded.bytes).unwrap();
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - PAYLOAD.0).unwrap();
        let len = payload.range.len();
        arena[payload.range].copy_from_slice(&encoded.payload[start..start + len]);
    }
    outline.with_payloads(arena).unwrap()
}

/// The request in the frame, as the kernel copies it, and how much of it is immutable.
fn framed(frame: &mut Frame, request: &Request) -> (Vec<u8>, usize) {
    lay_out(frame, BASE, request, &Plan::default()).unwrap();
    let start = request_offset(INPUTS);
    let mut bytes = frame.ro()[start..].to_vec();
    let immutable = bytes.len();
    let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    bytes.resize(length.max(immutable), 0);
    frame.rw_read(0, &mut bytes[immutable..]);
    bytes.truncate(length);
    (bytes, immutable)
}

/// Entries for an attribute that the kernel's parser would take.
fn forgery(id: u16, spec: Option<&AttrSpec>) -> Attr {
    let len = match spec.map(|spec| spec.kind) {
        Some(AttrKind::PtrOut { min, .. } | AttrKind::PtrIn { min, .. }) => min,
        Some(AttrKind::EnumIn { elems }) => elems[0].min,
        Some(AttrKind::IdrsArray { min, .. }) => 4 * min,
        Some(AttrKind::ConstIn | AttrKind::FlagsIn) => 8,
        Some(AttrKind::Umem) => 32,
        Some(AttrKind::Idr { .. } | AttrKind::Fd { .. } | AttrKind::RawFd) | None => 0,
    };
    Attr { attr_id: id, len, ..Attr::default() }
}

/// What the kernel would see, over all ways to alter one or two of the entries in reach.
fn smuggled(frame: &mut Frame, request: &Request) -> BTreeSet<&'static str> {
    let (bytes, immutable) = framed(frame, request);
    let method = request.method();
    let driver = request.hdr().driver();
    let first = (immutable - HDR_LEN) / ATTR_LEN;
    let count = (bytes.len() - HDR_LEN) / ATTR_LEN;
    let mut forgeries: Vec<Attr> =
        method.attrs_of(driver).map(|spec| forgery(spec.id.0, Some(spec))).collect();
    forgeries.push(forgery(FILLER.0, None));
    let place = |at: usize| HDR_LEN + ATTR_LEN * at..HDR_LEN + ATTR_LEN * (at + 1);
    let mut seen = BTreeSet::new();
    let mut look = |bytes: &[u8]| {
        for attr in decode::parse(bytes).map(|o| o.attrs().to_vec()).unwrap_or_default() {
            let named = request.attr(attr.spec.id).is_some();
            let neutral = residue::neutral(attr.spec).is_some_and(|n| {
                (n.attr_id, n.len, n.data) == (attr.attr.attr_id, attr.attr.len, attr.attr.data)
            });
            if !(named || neutral && attr.index.is_some_and(|at| at < first)) {
                seen.insert(attr.spec.name);
            }
        }
    };
    look(&bytes);
    // The entry that straddles the boundary keeps its identity.
    for one in first + 1..count {
        for a in &forgeries {
            let mut altered = bytes.clone();
            altered[place(one)].copy_from_slice(&attr_bytes(a));
            look(&altered);
            for two in one + 1..count {
                for b in &forgeries {
                    altered[place(two)].copy_from_slice(&attr_bytes(b));
                    look(&altered);
                }
                altered[place(two)].copy_from_slice(&bytes[place(two)]);
            }
        }
    }
    seen
}

/// Requests of a method with its mandatory attributes and each set of optional outputs.
fn requests(method: &'static MethodSpec, driver: DriverId) -> Vec<Request> {
    let optional: Vec<_> = method
        .attrs_of(driver)
        .filter(|spec| !spec.mandatory && spec.is_written_by_kernel())
        .collect();
    let sets = 0_u32..1 << optional.len();
    sets.map(|set| {
        let mut builder = RequestBuilder::new(method, driver);
        // Outputs in the guest's worst order: the last first.
        for (at, spec) in optional.iter().enumerate().rev() {
            if set & (1 << at) != 0 {
                builder = with(builder, spec);
            }
        }
        for spec in method.attrs_of(driver).filter(|spec| spec.mandatory) {
            builder = with(builder, spec);
        }
        decoded(&builder.build(PAYLOAD))
    })
    .collect()
}

#[test]
fn a_frame_confines_the_guest_to_the_residue() {
    let (mut frame, _fds) = Frame::new().unwrap();
    let mut requests_seen = 0;
    for method in table::methods().iter().filter(|method| !method.is_invoke_write()) {
        for driver in residue::drivers(method) {
            let mut seen = BTreeSet::new();
            for request in requests(method, driver) {
                requests_seen += 1;
                seen.extend(smuggled(&mut frame, &request));
            }
            let computed: BTreeSet<_> =
                residue::of(method, driver).iter().map(|attr| attr.name).collect();
            assert_eq!(seen, computed, "{} of {driver}", method.name);
        }
    }
    println!("{requests_seen} requests");
}

#[test]
fn a_framed_command_has_no_residue() {
    let (mut frame, _fds) = Frame::new().unwrap();
    let id = ids::UVERBS_METHOD_INVOKE_WRITE;
    let method = table::method(ids::UVERBS_OBJECT_DEVICE.id, id, DriverId::MLX5).unwrap();
    for spec in legacy::commands() {
        for uhw_in in [false, true] {
            let mut builder = RequestBuilder::new(method, DriverId::MLX5)
                .output(ids::UVERBS_ATTR_UHW_OUT, GuestAddr(0x9000), 64)
                .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0xa000), 512)
                .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd)
                .input(ids::UVERBS_ATTR_CORE_IN, &core_in(spec));
            if uhw_in {
                builder = builder.input(ids::UVERBS_ATTR_UHW_IN, &[1; 24]);
            }
            let request = decoded(&builder.build(PAYLOAD));
            let seen = smuggled(&mut frame, &request);
            assert!(seen.is_empty(), "{}: {seen:?}", spec.name);
            // The response, in which the supervisor looks for handles, has its length before the
            // boundary, although the guest named it last.
            let (bytes, immutable) = framed(&mut frame, &request);
            let entry = HDR_LEN + (immutable - HDR_LEN) / ATTR_LEN * ATTR_LEN;
            assert_eq!(immutable - entry, 4, "id and len");
            assert_eq!(bytes[entry..entry + 2], ids::UVERBS_ATTR_CORE_OUT.0.to_ne_bytes());
        }
    }
}

/// The least structure of a command that decodes.
fn core_in(spec: &legacy::LegacySpec) -> Vec<u8> {
    let mut bytes = vec![0; spec.req_size()];
    match spec.trailing_in {
        // sizeof(struct ib_uverbs_recv_wr), even for none.
        legacy::Trailing::RecvWrs => {
            let at = usize::from(spec.req.field("wqe_size").unwrap().offset);
            bytes[at] = 16;
        }
        legacy::Trailing::WqHandles => bytes.extend([0; 4]),
        _ => {}
    }
    bytes
}

/// Every attribute of a method at once fits, with the neutral ones.
#[test]
fn every_method_has_room() {
    let (mut frame, _fds) = Frame::new().unwrap();
    let mut most = 0;
    for method in table::methods().iter().filter(|method| !method.is_invoke_write()) {
        for driver in residue::drivers(method) {
            let inputs =
                method.attrs_of(driver).filter(|spec| !spec.is_written_by_kernel()).count();
            assert!(inputs <= INPUTS, "{} of {driver}: {inputs} inputs", method.name);
            most = most.max(inputs);
            let builder = RequestBuilder::new(method, driver);
            let all = method.attrs_of(driver).fold(builder, with);
            let (bytes, immutable) = framed(&mut frame, &decoded(&all.build(PAYLOAD)));
            assert!(decode::parse(&bytes).is_ok(), "{}", method.name);
            assert_eq!(immutable, RO_LEN - request_offset(INPUTS));
        }
    }
    println!("at most {most} inputs");
}

#[test]
fn no_method_knows_the_filler() {
    for method in table::methods() {
        assert!(method.attrs.iter().all(|attr| attr.id != FILLER), "{}", method.name);
    }
    // Nor can it: uapi_key_attr() has 32 keys for core ids. And a kernel that knows better is told
    // that it may skip it.
    assert!(!table::is_driver_id(FILLER.0) && FILLER.0 >= 32);
    let (mut frame, _fds) = Frame::new().unwrap();
    let method =
        table::methods().iter().find(|method| method.name.ends_with("PD_DESTROY")).unwrap();
    let request = &requests(method, DriverId::RXE)[0];
    let (bytes, _) = framed(&mut frame, request);
    let filler: Vec<_> = bytes[HDR_LEN..]
        .chunks(ATTR_LEN)
        .filter(|entry| entry[..2] == FILLER.0.to_ne_bytes())
        .collect();
    assert_eq!(filler.len(), INPUTS - 1);
    let mandatory = AttrFlags::MANDATORY.bits();
    assert!(filler.iter().all(|entry| u16::from_ne_bytes([entry[4], entry[5]]) & mandatory == 0));
}
