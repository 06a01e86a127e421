//! What becomes of requests by device, port, GID, P_Key and peer: whole requests, as `vet` has them.

pub(super) mod world;

use std::net::Ipv4Addr;

use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::legacy;
use verbgate_abi::table;

use self::world::*;
use super::*;

/// The forms of MODIFY_QP: how their fields are named.
const MODIFY: [(&str, &str); 2] = [("MODIFY_QP", ""), ("EX_MODIFY_QP", "base.")];

/// MODIFY_QP with one bit of the mask, and fields of the one form.
fn modify(form: (&str, &str), bit: u32, fields: &[(&str, &[u8])]) -> RequestBuilder {
    let (name, prefix) = form;
    let mask = (1_u32 << bit).to_ne_bytes();
    let named: Vec<(String, &[u8])> = [("attr_mask", &mask[..])]
        .iter()
        .chain(fields)
        .map(|(path, bytes)| (format!("{prefix}{path}"), *bytes))
        .collect();
    let named: Vec<(&str, &[u8])> = named.iter().map(|(path, b)| (path.as_str(), *b)).collect();
    request(DriverId::RXE, name, &named)
}

/// `enum ib_qp_attr_mask`.
const PKEY: u32 = 4;
const PORT: u32 = 5;
const AV: u32 = 7;
const ALT_PATH: u32 = 14;

#[test]
fn a_port_that_the_tenant_has_not_is_refused_wherever_a_request_names_one() {
    let (host, policy) = (Host::new(), own(""));
    let gids = host.view();
    let every = rules(&policy, &gids);
    let only = |ports| Rules { ports: Some(ports), ..rules(&policy, &gids) };
    let (first, second) = (only(&[1]), only(&[2]));
    // Each names port 2; and whatever else it names is port 2's, or nothing.
    let mut all =
        vec![("CREATE_AH", request(DriverId::RXE, "CREATE_AH", &[("attr.port_num", &[2])]))];
    for form in MODIFY {
        all.push((form.0, modify(form, PORT, &[("port_num", &[2])])));
        all.push((form.0, modify(form, AV, &[("dest.port_num", &[2])])));
        let path: [(&str, &[u8]); 2] = [("alt_port_num", &[2]), ("alt_dest.port_num", &[2])];
        all.push((form.0, modify(form, ALT_PATH, &path)));
        // One of the two is enough.
        for other in ["alt_port_num", "alt_dest.port_num"] {
            let fields: [(&str, &[u8]); 2] = [("alt_port_num", &[1]), ("alt_dest.port_num", &[1])];
            let mut fields = fields.to_vec();
            fields.push((other, &[2]));
            let request = modify(form, ALT_PATH, &fields);
            assert_eq!(refused(&first, request.clone()), Some("port not granted"), "{other}");
            assert_eq!(refused(&second, request), Some("port not granted"), "{other}");
        }
    }
    for (name, request) in all {
        assert_eq!(refused(&first, request.clone()), Some("port not granted"), "{name}");
        assert_eq!(refused(&second, request.clone()), None, "{name}");
        assert_eq!(refused(&every, request), None, "{name}");
    }
    // Of flow steering, which `full` alone grants.
    let full = Policy::named("full").unwrap();
    let flow = request(DriverId::RXE, "EX_CREATE_FLOW", &[("flow_attr.port", &[2])]);
    let of = |ports| Rules { ports: Some(ports), ..rules(&full, &gids) };
    assert_eq!(refused(&of(&[1]), flow.clone()), Some("port not granted"));
    assert_eq!(refused(&of(&[2]), flow), None);
    // A number that the kernel does not look at is nobody's.
    for form in MODIFY {
        assert_eq!(refused(&first, modify(form, PKEY, &[("port_num", &[2])])), None);
    }
}

#[test]
fn a_source_whose_gid_is_of_another_type_is_refused() {
    let host = Host::new();
    let gids = host.view();
    let v2 = own("rules.gid_types = [\"RoCE v2\"]");
    let v1 = own("rules.gid_types = [\"RoCE v1\"]");
    let ib = own("rules.gid_types = [\"IB\"]");
    let any = own("");
    let of = |policy, request| refused(&rules(policy, &gids), request);
    for (at, index, policy, other) in [(1, 0, &v2, &v1), (1, 1, &v1, &v2), (2, 0, &ib, &v2)] {
        let mut requests = vec![request(
            DriverId::RXE,
            "CREATE_AH",
            &[
                ("attr.port_num", &[at]),
                ("attr.is_global", &[1]),
                ("attr.grh.sgid_index", &[index]),
            ],
        )];
        for form in MODIFY {
            for (bit, path) in [(AV, "dest"), (ALT_PATH, "alt_dest")] {
                let names =
                    ["port_num", "is_global", "sgid_index"].map(|of| format!("{path}.{of}"));
                let [port, global, gid] = [0, 1, 2].map(|at| names[at].as_str());
                let mut fields: Vec<(&str, &[u8])> = vec![(global, &[1])];
                let (at, index) = ([at], [index]);
                fields.extend([(port, &at[..]), (gid, &index[..]), ("alt_port_num", &at[..])]);
                requests.push(modify(form, bit, &fields));
            }
        }
        for request in requests {
            assert_eq!(of(other, request.clone()), Some("GID type not granted"), "{at} {index}");
            assert_eq!(of(policy, request.clone()), None, "{at} {index}");
            assert_eq!(of(&any, request.clone()), None, "{at} {index}");
            // Narrowed, too.
            let narrowed = Rules { narrowed: Some(other), ..rules(&any, &gids) };
            assert_eq!(refused(&narrowed, request), Some("GID type not granted"));
        }
    }
    // What nobody can tell the type of is of none.
    let empty = request(
        DriverId::RXE,
        "CREATE_AH",
        &[("attr.port_num", &[1]), ("attr.is_global", &[1]), ("attr.grh.sgid_index", &[7])],
    );
    assert_eq!(of(&v2, empty.clone()), Some("GID type not granted"));
    let without = Rules { gids: None, ..rules(&v2, &gids) };
    assert_eq!(refused(&without, empty), Some("GID type not granted"));
}

#[test]
fn a_partition_that_the_tenant_has_not_is_refused() {
    let host = Host::new();
    let gids = host.view();
    let policies = ["[]", "[0x8001]", "[0x7fff]", "[0x8001, 0xffff, 0x8002]"]
        .map(|keys| own(&format!("rules.pkeys = {keys}")));
    // By index and by the ports that are granted: which of the policies let it pass.
    for (index, ports, passes) in [
        (0, &[1][..], [false, false, true, true]),
        (1, &[1], [false, true, false, true]),
        (0, &[2], [false, false, false, true]),
        // Of both ports, since a later request may name the port.
        (0, &[1, 2], [false, false, false, true]),
        (1, &[1, 2], [false, true, false, true]),
        // No entry: nobody can tell what comes there.
        (5, &[1, 2], [false; 4]),
    ] {
        for (policy, passes) in policies.iter().zip(passes) {
            let rules = Rules { ports: Some(ports), ..rules(policy, &gids) };
            let index = u16::to_ne_bytes(index);
            for form in MODIFY {
                let port = ports[0].to_ne_bytes();
                let alt: [(&str, &[u8]); 3] = [
                    ("alt_pkey_index", &index),
                    ("alt_port_num", &port[..1]),
                    ("alt_dest.port_num", &port[..1]),
                ];
                let requests =
                    [modify(form, PKEY, &[("pkey_index", &index)]), modify(form, ALT_PATH, &alt)];
                for request in requests {
                    let expected = (!passes).then_some("P_Key not granted");
                    let of = format!("{form:?} {index:?} {ports:?} {}", policy.texts()[0]);
                    assert_eq!(refused(&rules, request), expected, "{of}");
                }
            }
        }
    }
}

#[test]
fn a_peer_beyond_the_ranges_is_refused_in_every_way_to_name_one() {
    let host = Host::new();
    let gids = host.view();
    let policy = own("rules.peers = [\"10.7.0.0/16\"]");
    let hpc =
        Policy::read("name = \"h\"\nextends = \"hpc\"\nrules.peers = [\"10.7.0.0/16\"]\n").unwrap();
    let of = |policy, request| refused(&rules(policy, &gids), request);
    let gid = |addr: [u8; 4]| Ipv4Addr::from(addr).to_ipv6_mapped().octets();
    for (addr, expected) in [([10, 7, 3, 4], None), ([10, 8, 0, 1], Some("value beyond a limit"))] {
        let gid = gid(addr);
        let handle = request(
            DriverId::RXE,
            "CREATE_AH",
            &[("attr.port_num", &[1]), ("attr.is_global", &[1]), ("attr.grh.dgid", &gid)],
        );
        assert_eq!(of(&policy, handle), expected, "{addr:?}");
        let group = request(DriverId::RXE, "ATTACH_MCAST", &[("gid", &gid)]);
        assert_eq!(of(&hpc, group), expected, "{addr:?}");
        for form in MODIFY {
            for (bit, path) in [(AV, "dest"), (ALT_PATH, "alt_dest")] {
                let names = ["port_num", "is_global", "dgid"].map(|of| format!("{path}.{of}"));
                let [port, global, dgid] = [0, 1, 2].map(|at| names[at].as_str());
                let fields: [(&str, &[u8]); 4] =
                    [(port, &[1]), (global, &[1]), (dgid, &gid), ("alt_port_num", &[1])];
                assert_eq!(of(&policy, modify(form, bit, &fields)), expected, "{form:?} {path}");
            }
        }
    }
}

/// Whatever of EX_MODIFY_QP the kernel looks at is judged as MODIFY_QP's, and its rate limit besides.
#[test]
fn the_longer_form_of_modify_qp_is_judged_as_the_short_one() {
    let host = Host::new();
    let gids = host.view();
    let of = |rule: &str, request| refused(&rules(&own(rule), &gids), request);
    for form in MODIFY {
        for (rule, bit, path) in [
            ("peer_qp = { only = [9] }", 20, "dest_qp_num"),
            ("access = []", 3, "qp_access_flags"),
            ("service_level = { only = [3] }", AV, "dest.sl"),
            ("static_rate = { only = [3] }", AV, "dest.static_rate"),
            ("traffic_class = { only = [3] }", AV, "dest.traffic_class"),
            ("service_level = { only = [3] }", ALT_PATH, "alt_dest.sl"),
            ("static_rate = { only = [3] }", ALT_PATH, "alt_dest.static_rate"),
            ("traffic_class = { only = [3] }", ALT_PATH, "alt_dest.traffic_class"),
        ] {
            let mut fields: Vec<(&str, &[u8])> = vec![(path, &[2])];
            let path = path.rsplit_once('.').map_or("", |(path, _)| path);
            let (port, global) = (format!("{path}.port_num"), format!("{path}.is_global"));
            if !path.is_empty() {
                fields.extend([(port.as_str(), &[1][..]), (global.as_str(), &[1])]);
                fields.push(("alt_port_num", &[1]));
            }
            let rule = format!("rules.{rule}");
            let refusal = Some("value beyond a limit");
            assert_eq!(of(&rule, modify(form, bit, &fields)), refusal, "{form:?} {rule}");
            assert_eq!(of("", modify(form, bit, &fields)), None, "{form:?} {rule}");
            // Without its bit the kernel does not look.
            let state = modify(form, 0, &fields);
            assert_eq!(of(&rule, state), None, "{form:?} {rule}");
        }
    }
    let mask = (1_u32 << 25).to_ne_bytes();
    let limited = |kilobits: u8| {
        let fields: [(&str, &[u8]); 2] = [("base.attr_mask", &mask), ("rate_limit", &[kilobits])];
        of("rules.rate_limit = { max = 9 }", request(DriverId::RXE, "EX_MODIFY_QP", &fields))
    };
    assert_eq!([limited(9), limited(10)], [None, Some("value beyond a limit")]);
}

/// A program that opens a ConnectX must not read of it on its terminal; one that makes objects by DEVX must.
#[test]
fn what_libmlx5_tries_at_every_open_is_no_warning() {
    let standard = Policy::named("standard").unwrap();
    let devx: Vec<_> =
        table::methods().iter().filter(|method| method.name.contains("DEVX")).collect();
    assert!(devx.len() > 5 && devx.iter().all(|method| !standard.grants_method(method)));
    let quiet: Vec<&str> = devx
        .iter()
        .filter(|method| is_tried_by_libraries(&AskedFor::Method(method)))
        .map(|method| method.name)
        .collect();
    assert_eq!(quiet, ["MLX5_IB_METHOD_DEVX_OTHER"]);
    assert!(!is_tried_by_libraries(&AskedFor::SourceQpn));
}

#[test]
fn datagrams_are_refused_where_others_speak_by_the_port() {
    let (alone, host) = (Host::new(), Host::new());
    let (own_port, number) = (alone.view(), DEVICE.number);
    assert!(!own_port.shares(number, None));
    // With an entry of somebody else's interface.
    host.put("ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:7f00:0002\n");
    host.put("ports/1/gid_attrs/ndevs/2", "nobodys9\n");
    host.put("ports/1/gid_attrs/types/2", "RoCE v2\n");
    let shared = host.view();
    assert!(shared.shares(number, None) && shared.shares(number, Some(&[1])));
    assert!(!shared.shares(number, Some(&[2])), "the port is not granted");
    let (standard, trusting) = (own(""), own("rules.shared_ud = true"));
    let kind = |policy: &Policy, gids: &GidView, driver, qp_type: u8| {
        let request = request(driver, "CREATE_QP", &[("qp_type", &[qp_type])]);
        refused(&Rules { driver, ..rules(policy, gids) }, request)
    };
    for driver in (0..=30).map(DriverId) {
        // Where the kernel has made the handle with which a sender names the source.
        let checked = ["efa", "irdma", "bnxt_re", "ionic"].contains(&driver.name().unwrap_or(""));
        let refused_on_shared = (!checked).then_some("UD on a shared port");
        assert_eq!(kind(&standard, &shared, driver, 4), refused_on_shared, "{driver}");
        let narrowed = Rules { driver, narrowed: Some(&standard), ..rules(&trusting, &shared) };
        let ud = request(driver, "CREATE_QP", &[("qp_type", &[4])]);
        assert_eq!(refused(&narrowed, ud), refused_on_shared, "{driver}");
        assert_eq!(kind(&standard, &own_port, driver, 4), None, "{driver}");
        assert_eq!(kind(&standard, &shared, driver, 2), None, "{driver}");
        assert_eq!(kind(&trusting, &shared, driver, 4), None, "{driver}");
    }
    // mlx5's DC reaches anybody, too; EFA's SRD has a source that was judged.
    let dc = |policy, gids| kind(policy, gids, DriverId::MLX5, 255);
    assert_eq!(dc(&standard, &shared), Some("DC on a shared port"));
    assert_eq!([dc(&standard, &own_port), dc(&trusting, &shared)], [None, None]);
    assert_eq!(kind(&standard, &shared, DriverId::EFA, 255), None);
    let removed = own("remove.qp_types = [\"mlx5:DC\"]");
    assert_eq!(dc(&removed, &own_port), Some("QP type not granted"));
}

/// The ends of mlx5's dynamically connected transport are told by private input, of which nothing else passes.
#[test]
fn of_dc_a_profile_grants_the_ends_and_the_key() {
    let host = Host::new();
    let (gids, standard) = (host.view(), own(""));
    // struct mlx5_ib_create_qp: flags at 28, access_key at 40.
    let dc = |flags: u32, at: usize| {
        let mut private = vec![0; 64];
        private[28..32].copy_from_slice(&flags.to_ne_bytes());
        private[at] |= 1;
        let request = request(DriverId::MLX5, "CREATE_QP", &[("qp_type", &[255])]);
        let rules = Rules { driver: DriverId::MLX5, ..rules(&standard, &gids) };
        refused(&rules, request.input(ids::UVERBS_ATTR_UHW_IN, &private))
    };
    // MLX5_QP_FLAG_TYPE_DCT, _DCI, and _DCI with streams.
    for flags in [0x10, 0x20, 0x820] {
        assert_eq!(dc(flags, 40), None, "{flags:#x}");
    }
    // MLX5_QP_FLAG_UAR_PAGE_INDEX, and bytes that nobody knows.
    let refusal = Some("private input not granted");
    assert_eq!([dc(0x410, 40), dc(0x8010, 40), dc(0x10, 60)], [refusal; 3]);
}

/// A device that the operator has taken away still moves the data of what lives, and ends objects.
#[test]
fn of_a_device_that_was_taken_away_only_what_lives_goes_on() {
    let host = Host::new();
    let (gids, full) = (host.view(), Policy::named("full").unwrap());
    let (granted, taken) = (rules(&full, &gids), Rules { withdrawn: true, ..rules(&full, &gids) });
    let (mut on, mut off) = (Vec::new(), 0);
    for spec in legacy::commands() {
        let fields: &[(&str, &[u8])] =
            if spec.req.field("wqe_size").is_some() { &[("wqe_size", &[128])] } else { &[] };
        let request = || request(DriverId::RXE, spec.short_name, fields);
        if refused(&granted, request()).is_some() {
            continue;
        }
        match refused(&taken, request()) {
            None => on.push(spec.short_name),
            Some(reason) => {
                assert_eq!(reason, "device taken away", "{}", spec.short_name);
                off += 1;
            }
        }
    }
    on.sort_unstable();
    let ends = |name: &&&str| {
        ["DESTROY", "DEALLOC", "DEREG", "CLOSE"].iter().any(|word| name.contains(word))
    };
    let data: Vec<_> = on.iter().filter(|name| !ends(name)).copied().collect();
    assert_eq!(data, ["POLL_CQ", "POST_RECV", "POST_SEND", "POST_SRQ_RECV", "REQ_NOTIFY_CQ"]);
    assert!(on.len() >= 15 && off > 20, "{on:?} {off}");
}
