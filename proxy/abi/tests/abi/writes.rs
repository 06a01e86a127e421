//! Commands given with `write(2)`.

use crate::commands::handles;
use crate::commands::run;
use crate::common::core;
use verbgate_abi::Errno;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::table::Access;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::write::parse_write;

const RXE: DriverId = DriverId::RXE;

/// `struct ib_uverbs_cmd_hdr` and a body.
fn plain(command: u32, in_words: u16, out_words: u16, body: &[u8]) -> Vec<u8> {
    let mut buf = command.to_ne_bytes().to_vec();
    buf.extend(in_words.to_ne_bytes());
    buf.extend(out_words.to_ne_bytes());
    buf.extend(body);
    buf
}

fn write_error(buf: &[u8]) -> (&'static str, Errno) {
    let error = parse_write(buf).unwrap_err();
    (error.kind(), error.errno())
}

/// The 32 bytes that rxe writes for each post.
#[test]
fn the_doorbell_of_rxe() {
    let cmd = ids::IB_USER_VERBS_CMD_POST_SEND;
    let body = core(cmd, &[("response", 0x9000), ("qp_handle", 3)]);
    let request = parse_write(&plain(28, 8, 1, &body)).unwrap().into_request(RXE).unwrap();
    assert_eq!(request.operation(), "POST_SEND");
    assert_eq!(handles(&request), [(ids::UVERBS_OBJECT_QP, Access::Read, 3)]);
    let out: Vec<_> =
        request.outputs().map(|(_, attr)| (attr.addr(), attr.len(), attr.index)).collect();
    assert_eq!(out, [(GuestAddr(0x9000), 4, None)]);
}

#[test]
fn private_data_of_plain_writes() {
    let cmd = ids::IB_USER_VERBS_CMD_CREATE_CQ;
    let mut body = core(cmd, &[("response", 0x9000), ("comp_channel", 5)]);
    body.extend([7; 8]);
    let write = parse_write(&plain(18, 12, 6, &body)).unwrap();
    assert_eq!((write.core_in.len(), write.uhw_in.as_slice()), (32, &[7; 8][..]));
    assert_eq!((write.core_out.addr, write.core_out.len), (GuestAddr(0x9000), 8));
    assert_eq!((write.uhw_out.addr, write.uhw_out.len), (GuestAddr(0x9008), 16));
    let request = write.into_request(RXE).unwrap();
    assert_eq!(request.uhw_in(), [7; 8]);
    assert_eq!(request.fds().next().unwrap().fd.0, 5);
}

#[test]
fn headers_of_plain_writes() {
    let cmd = ids::IB_USER_VERBS_CMD_REG_MR;
    let body = core(cmd, &[]);
    assert!(parse_write(&plain(9, 12, 3, &body)).is_ok());
    assert_eq!(write_error(&[0; 7]), ("write_header", Errno::EINVAL));
    assert_eq!(write_error(&plain(9, 13, 3, &body)), ("write_header", Errno::EINVAL));
    assert_eq!(write_error(&plain(9, 11, 3, &body[..36])), ("request_short", Errno::ENOSPC));
    assert_eq!(write_error(&plain(9, 12, 2, &body)), ("response_short", Errno::ENOSPC));
    assert_eq!(write_error(&plain(0x109, 12, 3, &body)), ("command_bits", Errno::EINVAL));
    assert_eq!(write_error(&plain(22, 12, 3, &body)), ("unknown_command", Errno::EOPNOTSUPP));
    assert_eq!(write_error(&plain(20, 4, 2, &[0; 8])), ("request_short", Errno::ENOSPC));
}

fn extended(number: u32, words: [u16; 4], response: u64, reserved: u32, body: &[u8]) -> Vec<u8> {
    let [in_words, out_words, provider_in, provider_out] = words;
    let mut buf = plain(number | 0x8000_0000, in_words, out_words, &response.to_ne_bytes());
    buf.extend(provider_in.to_ne_bytes());
    buf.extend(provider_out.to_ne_bytes());
    buf.extend(reserved.to_ne_bytes());
    buf.extend(body);
    buf
}

#[test]
fn headers_of_extended_writes() {
    let body = [0; 48];
    let write = parse_write(&extended(18, [4, 2, 2, 1], 0x9000, 0, &body)).unwrap();
    assert_eq!((write.core_in.len(), write.uhw_in.len()), (32, 16));
    assert_eq!((write.core_out.len, write.uhw_out.len), (16, 8));
    assert_eq!(write.uhw_out.addr, GuestAddr(0x9010));
    assert!(write.into_request(RXE).is_ok());
    let bad = ("write_header", Errno::EINVAL);
    assert_eq!(write_error(&extended(18, [4, 2, 2, 1], 0x9000, 0, &body)[..23]), bad);
    assert_eq!(write_error(&extended(18, [4, 2, 1, 1], 0x9000, 0, &body)), bad);
    assert_eq!(write_error(&extended(18, [4, 2, 2, 1], 0x9000, 1, &body)), bad);
    assert_eq!(write_error(&extended(18, [4, 0, 2, 0], 0x9000, 0, &body)), bad);
    assert_eq!(write_error(&extended(18, [4, 2, 2, 1], 0, 0, &body)), bad);
    assert!(parse_write(&extended(51, [4, 0, 2, 0], 0, 0, &body)).is_ok());
}

#[test]
fn a_write_too_long_for_an_attribute() {
    let cmd = ids::IB_USER_VERBS_CMD_POST_SEND;
    let mut body = core(cmd, &[("wr_count", 1), ("wqe_size", 65536)]);
    body.resize(24 + 65536, 0);
    let words = u16::try_from((body.len() + 8) / 4).unwrap();
    let write = parse_write(&plain(28, words, 1, &body)).unwrap();
    assert_eq!(write.into_request(RXE).unwrap_err().errno(), Errno::E2BIG);
}

#[test]
fn space_for_an_answer_may_be_too_long_for_an_attribute() {
    let cmd = ids::IB_USER_VERBS_CMD_CREATE_CQ;
    let body = core(cmd, &[("response", 0x9000), ("comp_channel", u64::MAX)]);
    let write = parse_write(&plain(18, 10, u16::MAX, &body)).unwrap();
    assert_eq!(write.uhw_out.len, 4 * 0xffff - 8);
    let request = write.into_request(RXE).unwrap();
    let out: Vec<_> = request.outputs().map(|(_, attr)| (attr.addr(), attr.len())).collect();
    assert_eq!(out, [(GuestAddr(0x9000), 8), (GuestAddr(0x9008), 0xffff)]);
}

/// Every command, empty but for its size, in both forms, is the same request.
#[test]
fn both_forms_agree() {
    for spec in legacy::commands() {
        let mut core_in = vec![0; spec.req_size()];
        if let Some(field) = spec.req.field("wqe_size") {
            core_in[usize::from(field.offset)] = 64;
        }
        if spec.trailing_in == legacy::Trailing::WqHandles {
            core_in.extend([0; 8]);
        }
        let out = u16::try_from(spec.resp_size()).unwrap();
        let ioctl =
            run(spec.write_cmd, &core_in, out).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
        let in_words = u16::try_from(core_in.len()).unwrap();
        let buf = if spec.extended {
            let response = if out == 0 { 0 } else { 0x9000 };
            extended(spec.number.into(), [in_words / 8, out / 8, 0, 0], response, 0, &core_in)
        } else {
            plain(spec.number.into(), (in_words + 8) / 4, out / 4, &core_in)
        };
        let write = parse_write(&buf).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
        let write = write.into_request(RXE).unwrap_or_else(|e| panic!("{}: {e}", spec.name));
        assert_eq!(handles(&ioctl), handles(&write), "{}", spec.name);
        assert_eq!(ioctl.new_handles().count(), write.new_handles().count(), "{}", spec.name);
        assert_eq!(ioctl.core_in(), write.core_in(), "{}", spec.name);
    }
}
