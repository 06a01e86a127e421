//! Requests as text.

use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::fmt::Shown;
use verbgate_abi::fmt::fmt_struct;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::wire::Handle;

use crate::common::BASE;
use crate::common::core;
use crate::common::decode;
use crate::common::invoke;
use crate::common::method;

#[test]
fn a_method() {
    let create = method(ids::UVERBS_OBJECT_CQ, ids::UVERBS_METHOD_CQ_CREATE, DriverId::MLX4);
    let uhw = [0x7f00_u64.to_ne_bytes(), 0x8000_u64.to_ne_bytes()].concat();
    let request = RequestBuilder::new(create, DriverId::MLX4)
        .new_object(ids::UVERBS_ATTR_CREATE_CQ_HANDLE)
        .input(ids::UVERBS_ATTR_CREATE_CQ_CQE, &256_u32.to_ne_bytes())
        .constant(ids::UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0x7f00)
        .fd(ids::UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 5)
        .input(ids::UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &0_u32.to_ne_bytes())
        .output(ids::UVERBS_ATTR_CREATE_CQ_RESP_CQE, GuestAddr(0x8000), 4)
        .input(ids::UVERBS_ATTR_UHW_IN, &uhw);
    let request = decode(&request.build(BASE)).unwrap();
    assert_eq!(
        Shown(&request).to_string(),
        "CQ_CREATE(HANDLE=new, CQE=256, USER_HANDLE=0x7f00, COMP_CHANNEL=fd 5, COMP_VECTOR=0, \
         RESP_CQE=0x8000[4], UHW_IN=mlx4_ib_create_cq{buf_addr=0x7f00, db_addr=0x8000}[16])"
    );
}

#[test]
fn names_of_attributes() {
    let destroy = method(ids::UVERBS_OBJECT_PD, ids::UVERBS_METHOD_PD_DESTROY, DriverId::RXE);
    let request = RequestBuilder::new(destroy, DriverId::RXE)
        .handle(ids::UVERBS_ATTR_DESTROY_PD_HANDLE, Handle(7));
    let request = decode(&request.build(BASE)).unwrap();
    assert_eq!(Shown(&request).to_string(), "PD_DESTROY(HANDLE=7)");
    let query = method(ids::UVERBS_OBJECT_DEVICE, ids::UVERBS_METHOD_QUERY_PORT, DriverId::RXE);
    let request = RequestBuilder::new(query, DriverId::RXE)
        .constant(ids::UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
        .output(ids::UVERBS_ATTR_QUERY_PORT_RESP, GuestAddr(0x9000), 48);
    let request = decode(&request.build(BASE)).unwrap();
    assert_eq!(Shown(&request).to_string(), "QUERY_PORT(PORT_NUM=1, RESP=0x9000[48])");
}

#[test]
fn a_command() {
    let cmd = ids::IB_USER_VERBS_CMD_REG_MR;
    let fields = [("start", 0x7f00), ("length", 4096), ("hca_va", 0x7f00), ("access_flags", 7)];
    let core_in = core(cmd, &fields);
    let encoded = invoke(cmd, Some(&core_in), Some(12), Some(&[1; 20]), DriverId::RXE);
    assert_eq!(
        Shown(&decode(&encoded).unwrap()).to_string(),
        "REG_MR(start=0x7f00, length=0x1000, hca_va=0x7f00, pd_handle=0, access_flags=7, \
         UHW_IN=01010101010101010101010101010101...[20], CORE_OUT=0x9000[12])"
    );
    let core_in = core(ids::IB_USER_VERBS_CMD_DEALLOC_PD, &[("pd_handle", 3)]);
    let encoded =
        invoke(ids::IB_USER_VERBS_CMD_DEALLOC_PD, Some(&core_in), None, None, DriverId::RXE);
    assert_eq!(Shown(&decode(&encoded).unwrap()).to_string(), "DEALLOC_PD(pd_handle=3)");
}

#[test]
fn structures() {
    let text = |cmd, bytes: &[u8]| {
        let mut out = String::new();
        fmt_struct(legacy::legacy(cmd).unwrap().resp.unwrap(), bytes, &mut out).unwrap();
        out
    };
    let bytes = [1_u32, 42, 43].map(u32::to_ne_bytes).concat();
    let cmd = ids::IB_USER_VERBS_CMD_REG_MR;
    assert_eq!(text(cmd, &bytes), "{mr_handle=1, lkey=42, rkey=43}");
    assert_eq!(text(cmd, &bytes[..5]), "{mr_handle=1}");
    assert_eq!(text(cmd, &[]), "{}");
    let cmd = ids::IB_USER_VERBS_EX_CMD_CREATE_CQ;
    let nested = "{base={cq_handle=1, cqe=42}, comp_mask=43, response_length=0}";
    assert_eq!(text(cmd, &[bytes, vec![0; 4]].concat()), nested);
}
