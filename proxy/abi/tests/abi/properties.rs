//! Properties that hold for all bytes.

use proptest::prelude::*;
use verbgate_abi::decode::header;
use verbgate_abi::decode::parse;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::encode::attr_bytes;
use verbgate_abi::encode::encode;
use verbgate_abi::encode::hdr_bytes;
use verbgate_abi::fmt::Shown;
use verbgate_abi::fmt::fmt_struct;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::request::Place;
use verbgate_abi::request::Request;
use verbgate_abi::table;
use verbgate_abi::table::AttrKind;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::IoctlHdr;
use verbgate_abi::write::parse_write;

use crate::common::BASE;
use crate::common::decode;
use crate::common::invoke;

/// Uses all that a request offers: none of it may panic, and places must be places.
fn exercise(mut request: Request) {
    let _ = Shown(&request).to_string();
    let fds: Vec<_> = request.fds().collect();
    for used in fds {
        assert!(request.set_fd(used.place, 3));
    }
    assert!(request.fds().all(|used| used.fd.0 == 3));
    for used in request.handles() {
        if let Place::Payload { pos, offset } = used.place {
            let bytes = request.bytes(&request.attrs()[pos]);
            assert_eq!(bytes[offset..offset + 4], used.handle.0.to_ne_bytes());
        }
    }
    assert!(request.new_handles().count() + request.new_fds().count() <= request.attrs().len() + 1);
    request.extend_inline_udata();
    for attr in request.attrs() {
        assert!(attr.spec.is_output() || request.bytes(attr).len() == attr.len());
    }
}

fn exercise_bytes(bytes: &[u8], fill: u8) {
    let Ok(outline) = parse(bytes) else { return };
    let len = outline.arena_len();
    let mut end = 0;
    for payload in outline.payloads() {
        assert_eq!(payload.range.start, end);
        end = payload.range.end;
    }
    assert_eq!(end, len);
    if let Ok(request) = outline.with_payloads(vec![fill; len]) {
        exercise(request);
    }
}

/// Attributes near those of a method, and values near the rules' borders.
fn near_attr() -> impl Strategy<Value = Attr> {
    let id = prop_oneof![0_u16..24, 0x1000_u16..0x1010, any::<u16>()];
    let len = prop_oneof![Just(0_u16), Just(4), Just(8), 0_u16..64, any::<u16>()];
    let data = prop_oneof![0_u64..8, any::<u64>()];
    let attr_data = prop_oneof![9 => Just(0_u16), 1 => 0_u16..4, 1 => any::<u16>()];
    (id, len, any::<u16>(), attr_data, data).prop_map(|(attr_id, len, flags, attr_data, data)| {
        Attr { attr_id, len, flags, attr_data, data }
    })
}

/// An attribute of the right form for its spec.
fn right_attr(spec: &'static table::AttrSpec) -> impl Strategy<Value = (u8, Vec<u8>, u64)> {
    let (min, max) = match spec.kind {
        AttrKind::PtrIn { min, max, .. } => (min, max.min(64).max(min)),
        AttrKind::ConstIn => (8, 8),
        AttrKind::FlagsIn => (4, 4),
        AttrKind::Umem => (32, 32),
        AttrKind::IdrsArray { min, max, .. } => (4 * min, 4 * max.min(8).max(min)),
        _ => (0, 0),
    };
    let whole = spec.fd_payload != table::FdPayload::None
        || matches!(spec.kind, AttrKind::IdrsArray { .. });
    (
        0_u8..4,
        prop::collection::vec(any::<u8>(), usize::from(min)..=usize::from(max)),
        0..=i32::MAX as u64,
    )
        .prop_map(move |(elem, mut bytes, data)| {
            if whole {
                bytes.truncate(bytes.len() / 4 * 4);
            }
            (elem, bytes, data)
        })
}

/// True when the value is `attr.data` itself.
fn is_word(spec: &table::AttrSpec) -> bool {
    matches!(
        spec.kind,
        AttrKind::PtrOut { .. } | AttrKind::Idr { .. } | AttrKind::Fd { .. } | AttrKind::RawFd
    )
}

type Value = (u8, Vec<u8>, u64);

/// A method, a driver that has it, and a value for each attribute.
fn right_request() -> impl Strategy<Value = (&'static table::MethodSpec, DriverId, Vec<Value>)> {
    let methods: Vec<_> = table::methods().iter().filter(|spec| !spec.is_invoke_write()).collect();
    prop::sample::select(methods).prop_flat_map(|method| {
        let driver = match method.provider {
            table::Provider::Driver(driver) => driver,
            table::Provider::Core => DriverId::MLX5,
        };
        let values: Vec<_> = method.attrs_of(driver).map(right_attr).collect();
        (Just(method), Just(driver), values)
    })
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = header(&bytes);
        let _ = parse(&bytes);
        let _ = parse_write(&bytes);
        for spec in legacy::structs() {
            fmt_struct(spec, &bytes, &mut String::new()).unwrap();
        }
    }

    #[test]
    fn near_requests_never_panic(
        which in 0..table::methods().len(),
        attrs in prop::collection::vec(near_attr(), 0..24),
        driver in 0_u32..24,
        fill: u8,
    ) {
        let method = &table::methods()[which];
        let num_attrs = u16::try_from(attrs.len()).unwrap();
        let mut bytes = hdr_bytes(&IoctlHdr {
            length: 24 + 16 * num_attrs,
            object_id: method.object.id.0,
            method_id: method.id.0,
            num_attrs,
            driver_id: driver,
            ..IoctlHdr::default()
        }).to_vec();
        attrs.iter().for_each(|attr| bytes.extend(attr_bytes(attr)));
        exercise_bytes(&bytes, fill);
    }

    /// parse(encode(x)) = x, for each method with all its attributes, and again from the request.
    #[test]
    fn decoding_undoes_encoding((method, driver, values) in right_request()) {
        let mut builder = RequestBuilder::new(method, driver);
        let mut expected = Vec::new();
        for (spec, (elem, mut bytes, data)) in method.attrs_of(driver).zip(values) {
            builder = match spec.kind {
                AttrKind::PtrOut { min, .. } => builder.output(spec.id, GuestAddr(data), min),
                AttrKind::Idr { .. } | AttrKind::Fd { .. } | AttrKind::RawFd => {
                    builder.fd(spec.id, i32::try_from(data).unwrap())
                }
                AttrKind::EnumIn { elems } => {
                    let elem = elem.min(u8::try_from(elems.len()).unwrap() - 1);
                    bytes.resize(elems[usize::from(elem)].min.into(), 1);
                    builder.elem(spec.id, elem, &bytes)
                }
                _ => builder.input(spec.id, &bytes),
            };
            expected.push((spec.id, bytes, data));
        }
        let encoded = builder.build(BASE);
        let request = decode(&encoded).unwrap();
        prop_assert_eq!(request.attrs().len(), expected.len());
        for (attr, (id, bytes, data)) in request.attrs().iter().zip(&expected) {
            prop_assert_eq!(attr.spec.id, *id);
            if is_word(attr.spec) {
                prop_assert_eq!(attr.attr.data, *data);
            } else {
                prop_assert_eq!(request.bytes(attr), bytes.as_slice());
            }
        }
        prop_assert_eq!(encode(&request, BASE), encoded);
        exercise(request);
    }

    #[test]
    fn commands_never_panic(
        which in 0..legacy::commands().len(),
        mut core_in in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 0_u8..4, 1 => any::<u8>()], 4..200),
        out_len in 0_u16..600,
        uhw in prop::collection::vec(any::<u8>(), 0..20),
        usnic: bool,
        short: bool,
    ) {
        let spec = &legacy::commands()[which];
        if !short {
            core_in.resize(core_in.len().max(spec.req_size()), 0);
        }
        let driver = if usnic { DriverId::USNIC } else { DriverId::RXE };
        let encoded = invoke(spec.write_cmd, Some(&core_in), Some(out_len), Some(&uhw), driver);
        if let Ok(request) = decode(&encoded) {
            prop_assert!(request.core_in().len() >= spec.req_size());
            prop_assert!(request.core_in().starts_with(&core_in));
            // What is decoded can be encoded, and is the same then.
            let again = decode(&encode(&request, BASE)).unwrap();
            prop_assert_eq!(again.core_in(), request.core_in());
            prop_assert!(again.handles().eq(request.handles()));
            prop_assert!(again.fds().eq(request.fds()));
            exercise(request);
        }
    }

    #[test]
    fn writes_never_panic(
        which in 0..legacy::commands().len(),
        body in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..128),
        out_words in 0_u16..64,
        provider_in: u8,
    ) {
        let spec = &legacy::commands()[which];
        let mut buf = u32::try_from(spec.write_cmd).unwrap().to_ne_bytes().to_vec();
        let mut body = body;
        if spec.extended {
            body.truncate(body.len() / 8 * 8);
            let words = u16::try_from(body.len() / 8).unwrap();
            let provider = u16::from(provider_in % 4).min(words);
            buf.extend((words - provider).to_ne_bytes());
            buf.extend(out_words.to_ne_bytes());
            buf.extend(u64::from(out_words).to_ne_bytes());
            buf.extend(provider.to_ne_bytes());
            buf.extend([0; 6]);
        } else {
            body.truncate(body.len() / 4 * 4);
            buf.extend(u16::try_from(body.len() / 4 + 2).unwrap().to_ne_bytes());
            buf.extend(out_words.to_ne_bytes());
        }
        buf.extend(&body);
        if let Ok(write) = parse_write(&buf) {
            prop_assert_eq!(write.core_in.len() + write.uhw_in.len(), body.len());
            if let Ok(request) = write.into_request(DriverId::RXE) {
                prop_assert!(request.attr(ids::UVERBS_ATTR_WRITE_CMD).is_some());
                exercise(request);
            }
        }
    }
}
