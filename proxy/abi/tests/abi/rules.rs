//! The kernel's rules for the form of a request, one by one, each with the kernel's errno.

use crate::common::BASE;
use crate::common::decode;
use crate::common::method;
use verbgate_abi::DecodeError;
use verbgate_abi::Errno;
use verbgate_abi::decode::check_driver;
use verbgate_abi::decode::header;
use verbgate_abi::decode::parse;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::encode::attr_bytes;
use verbgate_abi::encode::hdr_bytes;
use verbgate_abi::ids;
use verbgate_abi::request::OutPlace;
use verbgate_abi::request::Place;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::AttrId;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::GuestFd;
use verbgate_abi::wire::Handle;
use verbgate_abi::wire::IoctlHdr;

/// `PD_DESTROY` as bytes, by hand: header of 24 and one attribute of 16.
fn pd_destroy() -> Vec<u8> {
    #[rustfmt::skip]
    let bytes: Vec<u8> = vec![
        40, 0,  1, 0,  0, 0,  1, 0,  0, 0, 0, 0, 0, 0, 0, 0,  14, 0, 0, 0,  0, 0, 0, 0,
        0, 0,  0, 0,  1, 0,  0, 0,  7, 0, 0, 0, 0, 0, 0, 0,
    ];
    bytes
}

fn error(bytes: &[u8]) -> (&'static str, Errno) {
    let error = parse(bytes).unwrap_err();
    (error.kind(), error.errno())
}

/// `pd_destroy` with a byte changed.
fn with(at: usize, value: u8) -> Vec<u8> {
    let mut bytes = pd_destroy();
    bytes[at] = value;
    bytes
}

#[test]
fn a_request_by_hand() {
    let outline = parse(&pd_destroy()).unwrap();
    assert_eq!(outline.hdr().driver(), DriverId::RXE);
    assert_eq!(outline.method().name, "UVERBS_METHOD_PD_DESTROY");
    assert_eq!((outline.attrs().len(), outline.arena_len()), (1, 0));
    let request = outline.with_payloads(Vec::new()).unwrap();
    let uses: Vec<_> = request.handles().collect();
    assert_eq!(uses.len(), 1);
    assert_eq!((uses[0].object, uses[0].handle), (ids::UVERBS_OBJECT_PD, Handle(7)));
    assert_eq!(uses[0].place, Place::AttrData(0));
    // Bytes behind the request are not the request's.
    let mut longer = pd_destroy();
    longer.extend([0xff; 16]);
    assert_eq!(parse(&longer).unwrap().attrs().len(), 1);
}

#[test]
fn header_rules() {
    assert_eq!(error(&[]), ("truncated", Errno::EIO));
    assert_eq!(error(&pd_destroy()[..39]), ("truncated", Errno::EIO));
    assert_eq!(error(&with(0, 41)), ("length", Errno::EINVAL));
    assert_eq!(error(&with(6, 0)), ("length", Errno::EINVAL));
    assert_eq!(error(&with(8, 1)), ("header_reserved", Errno::EPROTONOSUPPORT));
    assert_eq!(error(&with(20, 1)), ("header_reserved", Errno::EPROTONOSUPPORT));
    // One page: 254 attributes are 4088 bytes, 255 are 4104.
    let hdr = |num_attrs: u16| {
        hdr_bytes(&IoctlHdr { length: 24 + 16 * num_attrs, num_attrs, ..IoctlHdr::default() })
    };
    assert!(header(&hdr(254)).is_ok());
    assert_eq!(header(&hdr(255)).unwrap_err().kind(), "length");
    // num_attrs * 16 that wraps in 16 bits.
    let wrapped = IoctlHdr { length: 24, num_attrs: 4096, ..IoctlHdr::default() };
    assert_eq!(header(&hdr_bytes(&wrapped)).unwrap_err().kind(), "length");
    // Lengths are looked at before the reserved fields.
    let both = IoctlHdr { length: 25, reserved1: 1, ..IoctlHdr::default() };
    assert_eq!(header(&hdr_bytes(&both)).unwrap_err().kind(), "length");
}

#[test]
fn driver_and_method_rules() {
    let hdr = header(&pd_destroy()).unwrap();
    assert!(check_driver(&hdr, DriverId::RXE).is_ok());
    assert_eq!(check_driver(&hdr, DriverId::SIW).unwrap_err().errno(), Errno::EINVAL);
    let unknown = ("unknown_method", Errno::EPROTONOSUPPORT);
    assert_eq!(error(&with(2, 99)), unknown);
    assert_eq!(error(&with(4, 99)), unknown);
    // A driver's method is not another driver's.
    let mut mlx5 = with(5, 0x10);
    assert_eq!(error(&mlx5), unknown);
    mlx5[16] = 1;
    assert_eq!(error(&mlx5), ("unknown_attr", Errno::EPROTONOSUPPORT), "PD_QUERY has no 0");
}

#[test]
fn attribute_rules() {
    // Unknown: refused if the program says mandatory, else skipped, and then PD_HANDLE is missing.
    assert_eq!(error(&with(24, 9)), ("unknown_attr", Errno::EPROTONOSUPPORT));
    let mut optional = with(24, 9);
    optional[28] = 0;
    assert_eq!(error(&optional), ("missing", Errno::EINVAL));
    assert_eq!(error(&with(26, 8)), ("attr_len", Errno::EINVAL));
    assert_eq!(error(&with(30, 1)), ("attr_reserved", Errno::EINVAL));
    assert_eq!(error(&with(39, 0x80)), ("negative_handle", Errno::EINVAL));
    assert_eq!(error(&with(36, 1)), ("handle_range", Errno::ENOENT));
    let mut twice = pd_destroy();
    twice.extend_from_slice(&pd_destroy()[24..]);
    (twice[0], twice[6]) = (56, 2);
    assert_eq!(error(&twice), ("duplicate", Errno::EINVAL));
}

fn cq_create() -> RequestBuilder {
    let create = method(ids::UVERBS_OBJECT_CQ, ids::UVERBS_METHOD_CQ_CREATE, DriverId::MLX5);
    RequestBuilder::new(create, DriverId::MLX5)
        .new_object(ids::UVERBS_ATTR_CREATE_CQ_HANDLE)
        .input(ids::UVERBS_ATTR_CREATE_CQ_CQE, &256_u32.to_ne_bytes())
        .constant(ids::UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0x7f00)
        .input(ids::UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &0_u32.to_ne_bytes())
        .output(ids::UVERBS_ATTR_CREATE_CQ_RESP_CQE, GuestAddr(0x8000), 4)
}

fn cq_error(builder: RequestBuilder) -> (&'static str, Errno) {
    let error = decode(&builder.build(BASE)).unwrap_err();
    (error.kind(), error.errno())
}

#[test]
fn a_method_with_everything() {
    let mut desc = vec![0; 32];
    desc[4..8].copy_from_slice(&8_i32.to_ne_bytes());
    let mut request = decode(
        &cq_create()
            .fd(ids::UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 5)
            .fd(ids::UVERBS_ATTR_CREATE_CQ_BUFFER_FD, 6)
            .input(ids::UVERBS_ATTR_CREATE_CQ_BUF_UMEM, &desc)
            .input(ids::UVERBS_ATTR_UHW_IN, &[1; 24])
            .build(BASE),
    )
    .unwrap();
    assert_eq!(request.value(ids::UVERBS_ATTR_CREATE_CQ_CQE), Some(256));
    assert_eq!(request.value(ids::UVERBS_ATTR_CREATE_CQ_USER_HANDLE), Some(0x7f00));
    assert_eq!(request.value(ids::UVERBS_ATTR_CREATE_CQ_FLAGS), None);
    assert_eq!(request.uhw_in(), [1; 24]);
    assert_eq!(request.outputs().map(|(pos, _)| pos).collect::<Vec<_>>(), [4]);
    assert_eq!(request.inputs().map(|(pos, _)| pos).collect::<Vec<_>>(), [1, 2, 3, 5, 6, 7, 8]);
    assert_eq!(request.handles().count(), 0);
    let new: Vec<_> = request.new_handles().collect();
    assert_eq!((new[0].object, new[0].place), (ids::UVERBS_OBJECT_CQ, OutPlace::AttrData(0)));
    let fds: Vec<_> = request.fds().collect();
    assert_eq!(fds.iter().map(|fd| fd.fd.0).collect::<Vec<_>>(), [5, 6, 8]);
    assert_eq!(fds[0].object, Some(ids::UVERBS_OBJECT_COMP_CHANNEL));
    assert_eq!(fds[1].object, None);
    assert_eq!(fds[2].place, Place::Payload { pos: 7, offset: 4 });
    for (index, fd) in fds.iter().enumerate() {
        assert!(request.set_fd(fd.place, 100 + i32::try_from(index).unwrap()));
    }
    let fds: Vec<_> = request.fds().map(|fd| fd.fd).collect();
    assert_eq!(fds, [GuestFd(100), GuestFd(101), GuestFd(102)]);
    assert!(!request.set_fd(Place::AttrData(99), 1));
    assert!(!request.set_fd(Place::Payload { pos: 7, offset: 29 }, 1));
}

#[test]
fn a_umem_of_addresses_has_no_descriptor() {
    let mut desc = vec![0; 32];
    desc[0] = 1;
    let request =
        decode(&cq_create().input(ids::UVERBS_ATTR_CREATE_CQ_BUF_UMEM, &desc).build(BASE)).unwrap();
    assert_eq!(request.fds().count(), 0);
}

#[test]
fn rules_of_the_kinds() {
    let flags = ids::UVERBS_ATTR_CREATE_CQ_FLAGS;
    for len in [4, 8] {
        assert!(decode(&cq_create().input(flags, &vec![1; len]).build(BASE)).is_ok());
    }
    for len in [0, 3, 5, 7, 9] {
        let got = cq_error(cq_create().input(flags, &vec![1; len]));
        assert_eq!(got, ("attr_len", Errno::EINVAL), "flags of {len}");
    }
    let umem = ids::UVERBS_ATTR_CREATE_CQ_BUF_UMEM;
    assert_eq!(cq_error(cq_create().input(umem, &[0; 31])).0, "attr_len");
    assert_eq!(cq_error(cq_create().input(umem, &[0; 33])).0, "attr_len");
    let raw = |id: AttrId, len, attr_data, data: i64| {
        let data = data.cast_unsigned();
        cq_create().raw(Attr { attr_id: id.0, len, flags: 0, attr_data, data })
    };
    let fd = ids::UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL;
    let raw_fd = ids::UVERBS_ATTR_CREATE_CQ_BUFFER_FD;
    for id in [fd, raw_fd] {
        assert_eq!(cq_error(raw(id, 4, 0, 5)).0, "attr_len");
        assert_eq!(cq_error(raw(id, 0, 1, 5)).0, "attr_reserved");
        assert_eq!(cq_error(raw(id, 0, 0, 1 << 31)), ("fd_range", Errno::EINVAL));
        // Which descriptors exist is not known here: a negative one is EBADF later.
        let request = decode(&raw(id, 0, 0, -1).build(BASE)).unwrap();
        assert_eq!(request.fds().next().unwrap().fd, GuestFd(-1));
    }
    // A new object's input value is ignored.
    let create =
        method(ids::UVERBS_OBJECT_COUNTERS, ids::UVERBS_METHOD_COUNTERS_CREATE, DriverId::RXE);
    let builder =
        RequestBuilder::new(create, DriverId::RXE).raw(Attr { data: u64::MAX, ..Attr::default() });
    assert!(decode(&builder.build(BASE)).is_ok());
}

/// `UVERBS_ATTR_STRUCT`: `ib_uverbs_qp_cap` is 20 bytes; longer is allowed if the rest is zero.
#[test]
fn structures_may_grow_by_zeros() {
    let create = method(ids::UVERBS_OBJECT_QP, ids::UVERBS_METHOD_QP_CREATE, DriverId::RXE);
    let qp = |cap: &[u8], resp_cap: u16| {
        decode(
            &RequestBuilder::new(create, DriverId::RXE)
                .new_object(ids::UVERBS_ATTR_CREATE_QP_HANDLE)
                .handle(ids::UVERBS_ATTR_CREATE_QP_PD_HANDLE, Handle(0))
                .constant(ids::UVERBS_ATTR_CREATE_QP_USER_HANDLE, 1)
                .input(ids::UVERBS_ATTR_CREATE_QP_CAP, cap)
                .constant(ids::UVERBS_ATTR_CREATE_QP_TYPE, 2)
                .output(ids::UVERBS_ATTR_CREATE_QP_RESP_CAP, GuestAddr(1), resp_cap)
                .output(ids::UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, GuestAddr(1), 4)
                .build(BASE),
        )
    };
    assert!(qp(&[1; 20], 20).is_ok());
    assert_eq!(qp(&[1; 19], 20).unwrap_err().kind(), "attr_len");
    let mut longer = vec![1; 20];
    longer.extend([0; 12]);
    assert!(qp(&longer, 64).is_ok());
    longer[31] = 1;
    let error = qp(&longer, 20).unwrap_err();
    assert_eq!((error.kind(), error.errno()), ("trailing_non_zero", Errno::EOPNOTSUPP));
    assert_eq!(qp(&[1; 20], 19).unwrap_err().kind(), "attr_len");
}

#[test]
fn rules_of_enumerations() {
    let create = method(
        ids::MLX5_IB_OBJECT_FLOW_MATCHER,
        ids::MLX5_IB_METHOD_FLOW_MATCHER_CREATE,
        DriverId::MLX5,
    );
    let id = ids::MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE;
    let matcher = |elem, bytes: &[u8]| {
        decode(&RequestBuilder::new(create, DriverId::MLX5).elem(id, elem, bytes).build(BASE))
            .unwrap_err()
    };
    assert_eq!(matcher(4, &[]).errno(), Errno::EOPNOTSUPP);
    assert_eq!(matcher(0, &[]).kind(), "attr_len");
    assert_eq!(matcher(1, &[0; 2]).kind(), "attr_len");
    // Right in itself: others are missing then.
    assert_eq!(matcher(0, &[0; 2]).kind(), "missing");
    assert_eq!(matcher(3, &[]).kind(), "missing");
    let attr = Attr { attr_id: id.0, attr_data: u16::from_ne_bytes([1, 1]), ..Attr::default() };
    let builder = RequestBuilder::new(create, DriverId::MLX5).raw(attr);
    let error = decode(&builder.build(BASE)).unwrap_err();
    assert_eq!(
        error,
        DecodeError::AttrReserved { attr: "MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE", value: 1 }
    );
}

#[test]
fn rules_of_arrays_of_handles() {
    let create = method(ids::UVERBS_OBJECT_FLOW, ids::MLX5_IB_METHOD_CREATE_FLOW, DriverId::MLX5);
    let id = ids::MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS;
    let flow = |bytes: &[u8]| {
        let builder = RequestBuilder::new(create, DriverId::MLX5)
            .new_object(ids::MLX5_IB_ATTR_CREATE_FLOW_HANDLE)
            .input(ids::MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, &[0; 16])
            .handle(ids::MLX5_IB_ATTR_CREATE_FLOW_MATCHER, Handle(1));
        decode(&builder.input(id, bytes).build(BASE))
    };
    for len in [0, 3, 6, 12] {
        assert_eq!(flow(&vec![0; len]).unwrap_err().kind(), "attr_len", "{len}");
    }
    let request = flow(&[3, 0, 0, 0, 4, 0, 0, 0]).unwrap();
    let handles: Vec<_> = request.handles().map(|used| used.handle.0).collect();
    assert!(handles.ends_with(&[3, 4]), "{handles:?}");
}

#[test]
fn descriptors_in_payloads() {
    let get = method(ids::UVERBS_OBJECT_DEVICE, ids::UVERBS_METHOD_GET_CONTEXT, DriverId::RXE);
    let array = |bytes: &[u8]| {
        let builder = RequestBuilder::new(get, DriverId::RXE);
        decode(&builder.input(ids::UVERBS_ATTR_GET_CONTEXT_FD_ARR, bytes).build(BASE))
    };
    let bytes = [1_i32, 2, 3].map(i32::to_ne_bytes).concat();
    let fds: Vec<_> = array(&bytes).unwrap().fds().map(|used| used.fd.0).collect();
    assert_eq!(fds, [1, 2, 3]);
    assert_eq!(array(&bytes[..10]).unwrap_err().kind(), "attr_len");
    // Inline, and rewritten there.
    let mut inline = array(&bytes[..8]).unwrap();
    let place = inline.fds().nth(1).unwrap().place;
    assert!(inline.set_fd(place, 77));
    assert_eq!(inline.fds().map(|used| used.fd.0).collect::<Vec<_>>(), [1, 77]);

    let alloc =
        method(ids::UVERBS_OBJECT_ASYNC_EVENT, ids::UVERBS_METHOD_ASYNC_EVENT_ALLOC, DriverId::RXE);
    let builder = RequestBuilder::new(alloc, DriverId::RXE);
    let request =
        decode(&builder.new_object(ids::UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE).build(BASE))
            .unwrap();
    assert_eq!(request.fds().count(), 0);
    assert_eq!(request.new_fds().next().unwrap().object, ids::UVERBS_OBJECT_ASYNC_EVENT);
}

#[test]
fn the_arena_must_be_full() {
    let encoded = cq_create().input(ids::UVERBS_ATTR_UHW_IN, &[1; 24]).build(BASE);
    let outline = parse(&encoded.bytes).unwrap();
    assert_eq!(outline.arena_len(), 24);
    assert_eq!(outline.with_payloads(vec![0; 23]).unwrap_err().kind(), "arena");
}

#[test]
fn wire_structures_have_the_kernel_s_bytes() {
    let attr = Attr { attr_id: 0x102, len: 0x304, flags: 0x506, attr_data: 0x708, data: 9 };
    assert_eq!(attr_bytes(&attr), [2, 1, 4, 3, 6, 5, 8, 7, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((attr.elem_id(), attr.enum_reserved()), (8, 7));
}
