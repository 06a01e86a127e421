//! Commands by their numbers and structures.

use super::*;

#[test]
fn what_a_command_names_lies_in_its_structure() {
    for spec in COMMANDS.iter().flatten() {
        let ends = [
            spec.response.map(|(at, _)| at + 8),
            spec.id.map(|at| at + 4),
            match spec.also {
                Also::Value(at, len) => Some((at + 8).max(len + 4)),
                Also::File(at) => Some(at + 4),
                _ => None,
            },
        ];
        assert!(spec.len <= MAX_LEN, "{spec:?}");
        assert!(ends.into_iter().flatten().all(|end| end <= spec.len), "{spec:?}");
    }
}

#[test]
fn numbers_that_are_none_get_the_kernels_errors() {
    assert_eq!(command(13), Err(crate::Errno::ENOSYS));
    assert_eq!(command(25), Err(crate::Errno::EINVAL));
    assert_eq!(command(u32::MAX), Err(crate::Errno::EINVAL));
    assert_eq!(command(DESTROY_ID).unwrap().name, "CM_DESTROY_ID");
    assert_eq!(command(QUERY).unwrap().name, "CM_QUERY");
    assert_eq!(command(LISTEN).unwrap().name, "CM_LISTEN");
    assert_eq!(command(LEAVE_MCAST).unwrap().name, "CM_LEAVE_MCAST");
}

#[test]
fn a_query_writes_no_more_than_it_has_and_fits() {
    let two = 2_u32.to_ne_bytes();
    assert_eq!(query_len(QUERY_ADDR, &[], 4096), 280);
    assert_eq!(query_len(QUERY_GID, &[], 272), 272);
    assert_eq!(query_len(QUERY_PATH, &two, 4096), 8 + 144);
    assert_eq!(query_len(QUERY_PATH, &two, 100), 80);
    assert_eq!(query_len(QUERY_PATH, &u32::MAX.to_ne_bytes(), 65535), 8 + 910 * 72);
    assert_eq!(query_len(9, &two, 4096), 0);
}

#[test]
fn an_id_without_a_node_guid_may_be_bound() {
    // Offsets of struct rdma_ucm_query_addr_resp: node_guid 0, port_num 8, pkey 10, sizes 12
    // and 14, two addresses of 128 bytes, ibdev_index 272.
    let with = |parts: &[(usize, u8)]| {
        let mut response = [0; QUERY_ADDR_LEN];
        parts.iter().for_each(|(at, byte)| response[*at] = *byte);
        BoundTo::read(&response).unwrap()
    };
    // An id that has an address and no device: its family is AF_INET.
    assert_eq!(with(&[(12, 16), (16, 2)]), BoundTo::Nothing);
    let device = |index, node_guid, port, pkey| BoundTo::Device { index, node_guid, port, pkey };
    // A virtual function without a GUID; the first device there is; port 256 of it.
    assert_eq!(with(&[(8, 1), (272, 3)]), device(3, 0, 1, 0));
    assert_eq!(with(&[(8, 1)]), device(0, 0, 1, 0));
    assert_eq!(with(&[(10, 0xff), (11, 0xff)]), device(0, 0, 0, 0xffff));
    assert_eq!(with(&[(272, 7)]), device(7, 0, 0, 0));
    assert_eq!(with(&[(7, 9), (8, 1), (272, 1)]), device(1, 9, 1, 0));
    assert_eq!(BoundTo::read(&[0; QUERY_ADDR_LEN - 8]), None, "of a kernel before 5.9");
}

#[test]
fn a_peer_is_told_by_the_address_of_the_command() {
    let of = |cmd, at: usize, address: &[u8]| {
        let mut body = vec![0; COMMANDS[usize::try_from(cmd).unwrap()].unwrap().len];
        body[at..at + address.len()].copy_from_slice(address);
        peer(cmd, &body)
    };
    let v4 = [2, 0, 0x12, 0xb7, 10, 7, 1, 2];
    let mapped = Peer::Address("::ffff:10.7.1.2".parse().unwrap());
    for (cmd, at) in [(3, 28), (21, 144), (16, 16), (22, 24)] {
        assert_eq!(of(cmd, at, &v4), mapped, "{cmd}");
        assert_eq!(of(cmd, at, &[99, 0]), Peer::Unknown, "{cmd}");
    }
    let mut ib = vec![27, 0, 0xff, 0xff, 0, 0, 0, 0];
    ib.extend("fe80::1".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(of(21, 144, &ib), Peer::Address("fe80::1".parse().unwrap()));
    assert_eq!(of(23, 0, &[]), Peer::Unknown);
    // src_addr is at 16, and dst_addr behind that.
    let mut response = [0; QUERY_ADDR_LEN];
    response[16..24].copy_from_slice(&v4);
    assert_eq!(peer_of_id(&response), None);
    response[144..152].copy_from_slice(&[2, 0, 0x12, 0xb7, 10, 7, 1, 3]);
    assert_eq!(peer_of_id(&response), Some("::ffff:10.7.1.3".parse().unwrap()));
    assert_eq!(peer(21, &[0; 10]), Peer::Unknown, "a part");
    // Every other command has no address, or its own side's.
    let silent = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 17, 18, 19, 20, 24];
    assert!(silent.iter().all(|cmd| peer(*cmd, &[2; 320]) == Peer::Nobody));
}

#[test]
fn a_commands_own_port_is_told_by_its_address() {
    let of = |cmd, at: usize, address: &[u8]| {
        let mut body = vec![0; command(cmd).unwrap().len];
        // src_size of RESOLVE_ADDR.
        body[8] = 16;
        body[at..at + address.len()].copy_from_slice(address);
        OwnPort::asked(cmd, &body)
    };
    for (cmd, at) in [(BIND_IP, 8), (BIND, 8), (RESOLVE_IP, 0), (RESOLVE_ADDR, 16)] {
        for family in [2, 10] {
            assert_eq!(of(cmd, at, &[family, 0, 0x12, 0xb7]), OwnPort::Number(4791), "{cmd}");
        }
        assert_eq!(of(cmd, at, &[27, 0, 0x12, 0xb7]), OwnPort::Unknown, "{cmd}");
        assert_eq!(of(cmd, at, &[0, 0, 0x12, 0xb7]), OwnPort::Number(0), "{cmd}");
    }
    assert_eq!(OwnPort::asked(LISTEN, &[1; 8]), OwnPort::Number(0));
    assert_eq!(OwnPort::asked(BIND, &[0; 10]), OwnPort::Unknown, "a part");
    let others = (0..25).filter(|cmd| ![2, 3, 7, 20, 21].contains(cmd));
    assert!(others.into_iter().all(|cmd| OwnPort::asked(cmd, &[2; 320]) == OwnPort::Nothing));
    let names = [BIND_IP, BIND, RESOLVE_IP, RESOLVE_ADDR].map(|cmd| command(cmd).unwrap().name);
    assert_eq!(names, ["CM_BIND_IP", "CM_BIND", "CM_RESOLVE_IP", "CM_RESOLVE_ADDR"]);
    let mut response = [0; QUERY_ADDR_LEN];
    response[16..20].copy_from_slice(&[10, 0, 0, 80]);
    assert_eq!(OwnPort::bound(&response), OwnPort::Number(80));
    assert_eq!(OwnPort::bound(&[0; QUERY_ADDR_LEN]), OwnPort::Number(0));
}

#[test]
fn a_header_is_what_was_written() {
    let header = CmHeader { cmd: 19, input: 16, output: 280 };
    assert_eq!(CmHeader::read(&header.bytes()), Some(header));
    assert_eq!(CmHeader::read(&[0; 7]), None);
}

#[test]
fn ports_below_1024_are_known() {
    let ip = |port: u16| {
        let mut body = vec![0; 8];
        body.extend(2_u16.to_ne_bytes());
        body.extend(port.to_be_bytes());
        body
    };
    let ib = |sid: u64, mask: u64| {
        let mut body = vec![0; 8];
        body.extend(27_u16.to_ne_bytes());
        body.resize(8 + 24, 0);
        body.extend(sid.to_be_bytes());
        body.extend(mask.to_be_bytes());
        body
    };
    for (mut body, is_low) in [
        (ip(0), false),
        (ip(1), true),
        (ip(1023), true),
        (ip(1024), false),
        (ib(0x0106_0050, u64::MAX), true),
        (ib(0x0106_1050, u64::MAX), false),
        (ib(0x0106_0050, 0), false),
    ] {
        assert_eq!((is_low_port(BIND_IP, &body), is_low_port(BIND, &body)), (is_low, is_low));
        assert!(!is_low_port(LISTEN, &body));
        let address = body.split_off(8);
        assert_eq!(is_low_port(RESOLVE_IP, &address), is_low);
        // The sizes are 0, and say nothing.
        let behind = [&[0; 16], &*address].concat();
        assert_eq!(is_low_port(RESOLVE_ADDR, &behind), is_low);
    }
}
