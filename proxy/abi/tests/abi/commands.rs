//! The rules of legacy commands, through `INVOKE_WRITE`.

use crate::common::core;
use crate::common::decode;
use crate::common::invoke;
use verbgate_abi::DecodeError;
use verbgate_abi::Errno;
use verbgate_abi::Request;
use verbgate_abi::ids;
use verbgate_abi::request::OutPlace;
use verbgate_abi::request::Place;
use verbgate_abi::table::Access;
use verbgate_abi::table::ObjectRef;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;

const RXE: DriverId = DriverId::RXE;

pub(crate) fn run(cmd: u64, core_in: &[u8], out_len: u16) -> Result<Request, DecodeError> {
    decode(&invoke(cmd, Some(core_in), Some(out_len), None, RXE))
}

fn error(cmd: u64, core_in: &[u8], out_len: u16) -> (&'static str, Errno) {
    let error = run(cmd, core_in, out_len).unwrap_err();
    (error.kind(), error.errno())
}

pub(crate) fn handles(request: &Request) -> Vec<(ObjectRef, Access, u32)> {
    request.handles().map(|used| (used.object, used.access, used.handle.0)).collect()
}

/// What libibverbs asks first (`has_ioctl_write`): any answer but EPROTONOSUPPORT and ENOTTY will do,
/// and a kernel gives ENOSPC.
#[test]
fn the_probe_of_libibverbs() {
    let error =
        decode(&invoke(ids::IB_USER_VERBS_CMD_QUERY_DEVICE, None, None, None, RXE)).unwrap_err();
    assert_eq!((error.kind(), error.errno()), ("request_short", Errno::ENOSPC));
}

#[test]
fn command_numbers() {
    assert_eq!(error(0x100, &[0; 8], 8), ("command_bits", Errno::EINVAL));
    assert_eq!(error(1 << 32, &[0; 8], 8), ("command_bits", Errno::EINVAL));
    assert_eq!(error(0x4000_0001, &[0; 8], 8), ("command_bits", Errno::EINVAL));
    // PEEK_CQ (22) and numbers beyond the table.
    assert_eq!(error(22, &[0; 8], 8), ("unknown_command", Errno::EOPNOTSUPP));
    assert_eq!(error(200, &[0; 8], 8), ("unknown_command", Errno::EOPNOTSUPP));
    assert_eq!(error(0x8000_0000, &[0; 8], 8), ("unknown_command", Errno::EOPNOTSUPP));
}

#[test]
fn sizes_of_plain_commands() {
    let cmd = ids::IB_USER_VERBS_CMD_REG_MR;
    let bytes = core(cmd, &[("pd_handle", 3)]);
    let request = run(cmd, &bytes, 12).unwrap();
    assert_eq!(request.operation(), "REG_MR");
    assert_eq!(handles(&request), [(ids::UVERBS_OBJECT_PD, Access::Read, 3)]);
    let new = request.new_handles().next().unwrap();
    let core_out = request.legacy().unwrap().core_out.unwrap();
    assert_eq!(
        (new.object, new.place),
        (ids::UVERBS_OBJECT_MR, OutPlace::Output { pos: core_out, offset: 0 })
    );
    assert_eq!(error(cmd, &bytes[..39], 12), ("request_short", Errno::ENOSPC));
    assert_eq!(error(cmd, &bytes, 11), ("response_short", Errno::ENOSPC));
    let mut longer = bytes;
    longer.extend([0; 8]);
    assert!(run(cmd, &longer, 12).is_ok());
    longer[47] = 1;
    assert_eq!(error(cmd, &longer, 12), ("request_tail", Errno::EOPNOTSUPP));
}

#[test]
fn short_extended_commands_are_filled_with_zeros() {
    let cmd = ids::IB_USER_VERBS_EX_CMD_CREATE_CQ;
    // Only user_handle and cqe: the kernel takes comp_channel as 0, a descriptor like others.
    let mut request = run(cmd, &[9; 12], 16).unwrap();
    assert_eq!(request.core_in().len(), 32);
    assert_eq!(request.legacy_field("cqe"), Some(0x0909_0909));
    let fd = request.fds().next().unwrap();
    assert_eq!(fd.fd.0, 0);
    assert!(request.set_fd(fd.place, 11));
    assert_eq!(request.legacy_field("comp_channel"), Some(11));
    // Ours: the handle must have a place.
    assert_eq!(error(cmd, &[9; 12], 3), ("response_short", Errno::ENOSPC));
    assert!(run(cmd, &[9; 12], 4).is_ok());
}

#[test]
fn inline_requests_are_in_the_arena() {
    let cmd = ids::IB_USER_VERBS_CMD_DEALLOC_PD;
    let mut request = run(cmd, &[5, 0, 0, 0], 0).unwrap();
    assert_eq!(request.core_in(), [5, 0, 0, 0]);
    assert_eq!(handles(&request), [(ids::UVERBS_OBJECT_PD, Access::Destroy, 5)]);
    request.extend_inline_udata();
    assert_eq!(request.core_in().len(), 16);
    assert_eq!(handles(&request), [(ids::UVERBS_OBJECT_PD, Access::Destroy, 5)]);
}

/// Drivers tell "no private input" from one of zeros.
#[test]
fn empty_private_input_stays_empty() {
    let core_in = core(ids::IB_USER_VERBS_CMD_ALLOC_PD, &[]);
    let encoded = invoke(ids::IB_USER_VERBS_CMD_ALLOC_PD, Some(&core_in), Some(8), Some(&[]), RXE);
    let mut request = decode(&encoded).unwrap();
    request.extend_inline_udata();
    assert!(request.uhw_in().is_empty());
    assert_eq!(request.core_in(), [0; 16]);
}

#[test]
fn extending_inline_udata_leaves_other_attributes_alone() {
    let core_in = core(ids::IB_USER_VERBS_CMD_RESIZE_CQ, &[("cq_handle", 1)]);
    let encoded =
        invoke(ids::IB_USER_VERBS_CMD_RESIZE_CQ, Some(&core_in), Some(8), Some(&[7; 8]), RXE);
    let mut request = decode(&encoded).unwrap();
    request.extend_inline_udata();
    assert_eq!(request.uhw_in(), [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(request.core_in(), core_in);
    let query =
        crate::common::method(ids::UVERBS_OBJECT_DEVICE, ids::UVERBS_METHOD_QUERY_PORT, RXE);
    let builder = verbgate_abi::encode::RequestBuilder::new(query, RXE)
        .constant(ids::UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
        .output(ids::UVERBS_ATTR_QUERY_PORT_RESP, GuestAddr(1), 48);
    let mut request = decode(&builder.build(crate::common::BASE)).unwrap();
    request.extend_inline_udata();
    assert_eq!(request.attr(ids::UVERBS_ATTR_QUERY_PORT_PORT_NUM).unwrap().len(), 8);
}

#[test]
fn descriptors_of_commands() {
    let cmd = ids::IB_USER_VERBS_CMD_CREATE_CQ;
    let fds = |cmd, field, value: i32| {
        let core_in = core(cmd, &[(field, u64::from(value.cast_unsigned()))]);
        run(cmd, &core_in, 64).unwrap().fds().map(|used| used.fd.0).collect::<Vec<_>>()
    };
    assert_eq!(fds(cmd, "comp_channel", 5), [5]);
    assert!(fds(cmd, "comp_channel", -1).is_empty());
    assert!(fds(cmd, "comp_channel", -2).is_empty());
    let cmd = ids::IB_USER_VERBS_CMD_OPEN_XRCD;
    assert_eq!(fds(cmd, "fd", 5), [5]);
    assert!(fds(cmd, "fd", -1).is_empty());
    assert_eq!(fds(cmd, "fd", -2), [-2]);
    for (cmd, object) in [
        (ids::IB_USER_VERBS_CMD_GET_CONTEXT, ids::UVERBS_OBJECT_ASYNC_EVENT),
        (ids::IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ids::UVERBS_OBJECT_COMP_CHANNEL),
    ] {
        let request = run(cmd, &[0; 8], 8).unwrap();
        let new = request.new_fds().next().unwrap();
        assert_eq!((new.object, new.place), (object, OutPlace::Output { pos: 1, offset: 0 }));
    }
}

#[test]
fn usnic_s_socket() {
    let cmd = ids::IB_USER_VERBS_CMD_CREATE_QP;
    let core_in = core(cmd, &[("qp_type", 4)]);
    let fds = |driver, uhw: &[u8]| {
        let encoded = invoke(cmd, Some(&core_in), Some(32), Some(uhw), driver);
        decode(&encoded).unwrap().fds().map(|used| (used.fd.0, used.place)).collect::<Vec<_>>()
    };
    let udp = [2, 0, 0, 0, 9, 0, 0, 0];
    assert_eq!(fds(DriverId::USNIC, &udp), [(9, Place::Payload { pos: 3, offset: 4 })]);
    assert!(fds(DriverId::USNIC, &[1, 0, 0, 0, 9, 0, 0, 0]).is_empty());
    // Too short for a socket, found by the fuzzer.
    assert!(fds(DriverId::USNIC, &udp[..4]).is_empty());
    assert!(fds(RXE, &udp).is_empty());
}

#[test]
fn create_qp_names_what_its_type_needs() {
    let qp = |cmd, fields: &[(&str, u64)]| {
        let mut all =
            vec![("pd_handle", 1), ("send_cq_handle", 2), ("recv_cq_handle", 3), ("srq_handle", 4)];
        all.extend_from_slice(fields);
        let request = run(cmd, &core(cmd, &all), 64).unwrap();
        let mut names: Vec<_> =
            request.handles().map(|used| format!("{} {}", used.object, used.handle)).collect();
        names.sort();
        names.join(", ")
    };
    let cmd = ids::IB_USER_VERBS_CMD_CREATE_QP;
    assert_eq!(qp(cmd, &[("qp_type", 2)]), "CQ 2, CQ 3, PD 1");
    assert_eq!(qp(cmd, &[("qp_type", 2), ("is_srq", 1)]), "CQ 2, CQ 3, PD 1, SRQ 4");
    assert_eq!(qp(cmd, &[("qp_type", 9), ("is_srq", 1)]), "CQ 2, PD 1");
    assert_eq!(qp(cmd, &[("qp_type", 10), ("is_srq", 1)]), "XRCD 1");
    let cmd = ids::IB_USER_VERBS_EX_CMD_CREATE_QP;
    let table = ("rwq_ind_tbl_handle", 5);
    assert_eq!(qp(cmd, &[("qp_type", 2), table]), "CQ 2, CQ 3, PD 1");
    assert_eq!(qp(cmd, &[("qp_type", 8), table, ("comp_mask", 1)]), "PD 1, RWQ_IND_TBL 5");
    let with_sq = &[("qp_type", 8), table, ("comp_mask", 1), ("max_send_wr", 1)];
    assert_eq!(qp(cmd, with_sq), "CQ 2, PD 1, RWQ_IND_TBL 5");
    let open = run(
        ids::IB_USER_VERBS_CMD_OPEN_QP,
        &core(ids::IB_USER_VERBS_CMD_OPEN_QP, &[("pd_handle", 6)]),
        32,
    );
    assert_eq!(handles(&open.unwrap()), [(ids::UVERBS_OBJECT_XRCD, Access::Read, 6)]);
}

#[test]
fn other_conditions() {
    let cmd = ids::IB_USER_VERBS_CMD_REREG_MR;
    let rereg = |flags| {
        let core_in = core(cmd, &[("flags", flags), ("mr_handle", 1), ("pd_handle", 2)]);
        run(cmd, &core_in, 8).unwrap().handles().count()
    };
    assert_eq!((rereg(1), rereg(2), rereg(7)), (1, 2, 2));
    let cmd = ids::IB_USER_VERBS_CMD_CREATE_XSRQ;
    let xsrq = |kind| run(cmd, &core(cmd, &[("srq_type", kind)]), 16).unwrap().handles().count();
    assert_eq!((xsrq(0), xsrq(1), xsrq(2)), (1, 3, 2));
}

#[test]
fn poll_cq_must_have_room() {
    let cmd = ids::IB_USER_VERBS_CMD_POLL_CQ;
    assert!(run(cmd, &core(cmd, &[("ne", 2)]), 8 + 96).is_ok());
    assert_eq!(error(cmd, &core(cmd, &[("ne", 2)]), 8 + 95), ("response_short", Errno::ENOSPC));
    let most = u64::from(u32::MAX);
    assert_eq!(
        error(cmd, &core(cmd, &[("ne", most)]), u16::MAX),
        ("response_short", Errno::ENOSPC)
    );
}

#[test]
fn work_requests_must_be_there() {
    let cmd = ids::IB_USER_VERBS_CMD_POST_SEND;
    let post = |wrs, size, sges, tail: usize| {
        let fields = [("wr_count", wrs), ("wqe_size", size), ("sge_count", sges)];
        let mut core_in = core(cmd, &fields);
        core_in.resize(core_in.len() + tail, 1);
        run(cmd, &core_in, 4).map(drop).map_err(|error| error.kind())
    };
    // The doorbell of rxe and siw.
    assert_eq!(post(0, 0, 0, 0), Ok(()));
    assert_eq!(post(0, 128, 0, 0), Ok(()));
    assert_eq!(post(1, 56, 2, 88), Ok(()));
    assert_eq!(post(1, 56, 2, 87), Err("request_short"));
    assert_eq!(post(1, 56, 1, 88), Err("request_tail"));
    assert_eq!(post(1, 55, 0, 55), Err("field"));
    // wr_count * wqe_size that is 0 in 32 bits.
    assert_eq!(post(1 << 16, 1 << 16, 0, 0), Err("request_short"));
    let max = u64::from(u32::MAX);
    assert_eq!(post(max, max, max, 0), Err("request_short"));
    let cmd = ids::IB_USER_VERBS_CMD_POST_RECV;
    assert_eq!(error(cmd, &core(cmd, &[]), 4), ("field", Errno::EINVAL));
    assert!(run(cmd, &core(cmd, &[("wqe_size", 16)]), 4).is_ok());
}

#[test]
fn indirection_tables_name_their_queues() {
    let cmd = ids::IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL;
    let mut core_in = core(cmd, &[("log_ind_tbl_size", 1)]);
    core_in.extend([7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    let request = run(cmd, &core_in, 16).unwrap();
    let wq = ids::UVERBS_OBJECT_WQ;
    assert_eq!(handles(&request), [(wq, Access::Read, 7), (wq, Access::Read, 8)]);
    assert_eq!(error(cmd, &core_in[..12], 16), ("request_short", Errno::ENOSPC));
    assert_eq!(error(cmd, &core_in[..4], 16), ("request_short", Errno::ENOSPC));
    assert_eq!(error(cmd, &core(cmd, &[("log_ind_tbl_size", 14)]), 16), ("field", Errno::EINVAL));
}

#[test]
fn flow_specs_name_actions_and_counters() {
    let cmd = ids::IB_USER_VERBS_EX_CMD_CREATE_FLOW;
    let flow = |count, size, specs: &[(u32, u16, u32)]| {
        let fields =
            [("qp_handle", 1), ("flow_attr.num_of_specs", count), ("flow_attr.size", size)];
        let mut core_in = core(cmd, &fields);
        for (kind, len, handle) in specs {
            core_in.extend(kind.to_ne_bytes());
            core_in.extend(len.to_ne_bytes());
            core_in.extend([0; 2]);
            core_in.extend(handle.to_ne_bytes());
            core_in.extend([0; 4]);
        }
        run(cmd, &core_in, 8)
    };
    let request = flow(3, 48, &[(0x20, 16, 9), (0x1002, 16, 4), (0x1003, 16, 5)]).unwrap();
    let read = Access::Read;
    assert_eq!(
        handles(&request),
        [
            (ids::UVERBS_OBJECT_QP, read, 1),
            (ids::UVERBS_OBJECT_FLOW_ACTION, read, 4),
            (ids::UVERBS_OBJECT_COUNTERS, read, 5)
        ]
    );
    let kind = |result: Result<Request, DecodeError>| result.unwrap_err().kind();
    assert_eq!(kind(flow(2, 32, &[(0x20, 16, 0)])), "request_short");
    assert_eq!(kind(flow(2, 16, &[(0x20, 16, 0)])), "field", "one spec too few");
    assert_eq!(kind(flow(1, 32, &[(0x20, 16, 0), (0x20, 16, 0)])), "field", "bytes left");
    assert_eq!(kind(flow(1, 16, &[(0x20, 0, 0)])), "field", "a spec of no length");
    assert_eq!(kind(flow(0, 0, &[(0x20, 16, 0)])), "request_tail");
    assert!(flow(0, 0, &[]).is_ok());
}
