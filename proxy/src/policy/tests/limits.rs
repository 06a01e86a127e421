//! Limits on values, and drivers' private input.

use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::legacy::LegacySpec;
use verbgate_abi::request::Request;
use verbgate_abi::table;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;

use super::super::Policies;
use super::super::Policy;
use crate::pace::Pace;
use crate::pace::VerbClass;
use crate::quota::Resource;

/// A command of a program of `driver`, with numbers in some fields, and with private input.
fn command(name: &str, driver: DriverId, fields: &[(&str, u64)], private: &[u8]) -> Request {
    let invoke = table::methods().iter().find(|method| method.is_invoke_write()).unwrap();
    let spec: &LegacySpec = legacy::commands().iter().find(|spec| spec.short_name == name).unwrap();
    let mut core_in = vec![0; spec.req_size()];
    for (path, number) in fields {
        let field = spec.req.field(path).unwrap();
        let (at, size) = (usize::from(field.offset), usize::from(field.size).min(8));
        core_in[at..at + size].copy_from_slice(&number.to_ne_bytes()[..size]);
    }
    let mut builder = RequestBuilder::new(invoke, driver)
        .input(ids::UVERBS_ATTR_CORE_IN, &core_in)
        .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 64)
        .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd);
    if !private.is_empty() {
        builder = builder.input(ids::UVERBS_ATTR_UHW_IN, private);
    }
    let encoded = builder.build(GuestAddr(0x1_0000));
    let outline = decode::parse(&encoded.bytes).unwrap();
    let mut arena = vec![0; outline.arena_len()];
    for payload in outline.payloads() {
        let start = usize::try_from(payload.addr.0 - 0x1_0000).unwrap();
        let len = payload.range.len();
        arena[payload.range].copy_from_slice(&encoded.payload[start..start + len]);
    }
    outline.with_payloads(arena).unwrap()
}

fn own(rules: &str) -> Policy {
    Policy::read(&format!("name = \"own\"\nextends = \"standard\"\n{rules}\n")).unwrap()
}

fn refused(policy: &Policy, request: &Request) -> Option<String> {
    policy.check(request).err().map(|denial| denial.to_string())
}

const QP_AV: u64 = 1 << 7;
const QP_DEST: u64 = 1 << 20;

#[test]
fn nobody_connects_to_the_managers_queue_pairs() {
    for name in ["standard", "hpc"] {
        let policy = Policy::named(name).unwrap();
        for (number, passes) in [(0, false), (1, false), (2, true), (0xff_ffff, true)] {
            for (command_name, mask, path) in [
                ("MODIFY_QP", "attr_mask", "dest_qp_num"),
                ("EX_MODIFY_QP", "base.attr_mask", "base.dest_qp_num"),
            ] {
                let of = |mask_bits| {
                    let fields = [(mask, mask_bits), (path, number)];
                    command(command_name, DriverId::RXE, &fields, &[])
                };
                assert_eq!(refused(&policy, &of(QP_DEST)).is_none(), passes, "{number}");
                // A number that the kernel does not look at is nobody's.
                assert_eq!(refused(&policy, &of(QP_AV)), None, "{number}");
            }
        }
    }
    let full = Policy::named("full").unwrap();
    let fields = [("attr_mask", QP_DEST), ("dest_qp_num", 1)];
    assert_eq!(refused(&full, &command("MODIFY_QP", DriverId::RXE, &fields, &[])), None);
}

#[test]
fn a_refusal_names_value_and_rule() {
    let policy = own("rules.service_level = { only = [3] }");
    let fields = [("attr_mask", QP_AV), ("dest.sl", 5)];
    let denial = policy.check(&command("MODIFY_QP", DriverId::RXE, &fields, &[])).unwrap_err();
    assert_eq!(denial.reason, "value beyond a limit");
    assert_eq!(denial.errno, verbgate_abi::Errno::EPERM);
    assert_eq!(
        denial.to_string(),
        "dest.sl = 0x5 (rule: service_level = { only = [3] }) is not granted by profile \"own\""
    );
}

#[test]
fn each_rule_judges_its_values() {
    let peer = "rules.peers = [\"10.7.0.0/16\"]";
    let (inside, outside) = ([10, 7, 3, 4], [10, 8, 0, 1]);
    for (addr, passes) in [(inside, true), (outside, false)] {
        let gid = std::net::Ipv4Addr::from(addr).to_ipv6_mapped().octets();
        let low = u64::from_ne_bytes(gid[..8].try_into().unwrap());
        let mut request = command(
            "MODIFY_QP",
            DriverId::RXE,
            &[("attr_mask", QP_AV), ("dest.is_global", 1), ("dest.dgid", low)],
            &[],
        );
        let core_in = request.position(ids::UVERBS_ATTR_CORE_IN).unwrap();
        let at = legacy::commands().iter().find(|c| c.short_name == "MODIFY_QP").unwrap();
        let at = usize::from(at.req.field("dest.dgid").unwrap().offset);
        assert!(request.patch(core_in, at, &gid));
        assert_eq!(refused(&own(peer), &request).is_none(), passes, "{addr:?}");
        let gid = std::net::Ipv4Addr::from(addr).to_ipv6_mapped();
        assert_eq!(own(peer).check_peer(Some(gid)).is_ok(), passes);
        assert!(own(peer).check_peer(None).is_err() && own("").check_peer(None).is_ok());
    }
    let rules = [
        ("rules.traffic_class = { mask = 0x68 }", "MODIFY_QP", "dest.traffic_class", 0x68, 0x69),
        ("rules.static_rate = { max = 2 }", "MODIFY_QP", "dest.static_rate", 2, 3),
        ("rules.region_bytes = { max = 4096 }", "REG_MR", "length", 4096, 4097),
        ("rules.access = [\"LOCAL_WRITE\"]", "REG_MR", "access_flags", 1, 8),
        ("rules.vector = { only = [0, 2] }", "CREATE_CQ", "comp_vector", 2, 1),
        ("rules.fields.CREATE_CQ.cqe = { max = 7 }", "CREATE_CQ", "cqe", 7, 8),
        (
            "rules.fields.MODIFY_QP.\"dest.hop_limit\" = { max = 1 }",
            "MODIFY_QP",
            "dest.hop_limit",
            1,
            2,
        ),
    ];
    for (rule, name, path, good, bad) in rules {
        let policy = own(rule);
        let of = |number| {
            let mut fields = vec![(path, number)];
            if name == "MODIFY_QP" {
                fields.extend([("attr_mask", QP_AV), ("dest.is_global", 1)]);
            }
            command(name, DriverId::RXE, &fields, &[])
        };
        assert_eq!(refused(&policy, &of(good)), None, "{rule}");
        assert!(refused(&policy, &of(bad)).is_some(), "{rule}");
        assert_eq!(refused(&own(""), &of(bad)), None, "{rule}");
        assert_eq!(Policy::read_all(&policy.texts()).unwrap(), policy, "{rule}");
        // Of two rules, the tenant's counts.
        let text = format!(
            "version = 1\n[profile.p]\nextends = \"standard\"\n{rule}\n[tenant.t]\nmatch.uid = 1\n\
             profile = \"p\"\ndevices = [{{ name = \"*\" }}]\nrules.vector = {{ only = [1] }}\n"
        );
        let policies = Policies::read(std::path::Path::new("/p/x.toml"), &text).unwrap();
        let tenant = &policies.named("t").unwrap().policy;
        let passes = name == "CREATE_CQ" && path == "comp_vector";
        assert_eq!(refused(tenant, &of(bad)).is_none(), passes, "{rule}");
    }
}

#[test]
fn keys_and_types_are_told_apart() {
    let policy = own("rules.pkeys = [0x8001]\nrules.gid_types = [\"RoCE v2\"]");
    // A limited member of the partition, too.
    assert!(
        policy.grants_pkey(0x8001) && policy.grants_pkey(0x0001) && !policy.grants_pkey(0xffff)
    );
    assert!(policy.grants_gid_type(2) && !policy.grants_gid_type(1));
    assert!(!policy.grants_all_pkeys() && !policy.grants_all_gid_types());
    let standard = Policy::named("standard").unwrap();
    assert!(standard.grants_all_pkeys() && standard.grants_all_gid_types());
    let both = standard.and(policy.clone());
    assert!(!both.grants_pkey(0xffff) && !both.grants_all_gid_types());
    assert_eq!(Policy::read_all(&policy.texts()).unwrap(), policy);
}

#[test]
fn a_slip_in_a_rule_is_refused() {
    let slips = [
        ("rules.access = [\"REMOTE_ATOMICS\"]", "REMOTE_ATOMIC"),
        ("rules.gid_types = [\"RoCEv2\"]", "RoCE v2"),
        ("rules.peers = [\"10.7.0.1/16\"]", "zeros behind"),
        ("rules.peers = [\"10.7.0.0/33\"]", "no range"),
        ("rules.vectors = { only = [1] }", "vector"),
        ("rules.vector = { onyl = [1] }", "only"),
        ("rules.vector = \"cpuset\"", "does not tell which processor"),
        ("rules.static_rate = { onyl = [1] }", "only"),
        ("rules.fields.CREATE_CQ.cqes = { max = 7 }", "cqe"),
        ("rules.fields.CREATE_CCQ.cqe = { max = 7 }", "CREATE_CQ"),
        ("rules.fields.MODIFY_QP.\"dest.dgid\" = { max = 7 }", "no number"),
        ("private.\"mlx5:CREATE_CQ\".flag = \"any\"", "flags"),
        ("private.\"mlx5:CRATE_CQ\".flags = \"any\"", "mlx5:CREATE_CQ"),
        ("private.\"mlx5:CREATE_CQ\".flags = \"all\"", "clear_all_but"),
    ];
    for (text, word) in slips {
        let text = format!("name = \"own\"\nextends = \"standard\"\n{text}\n");
        let error = Policy::read(&text).unwrap_err().to_string();
        assert!(error.starts_with("line 3: ") && error.contains(word), "{text}: {error}");
    }
}

/// `struct mlx5_ib_alloc_ucontext_req_v2`.
fn mlx5_context(flags: u32, lib_caps: u64, at: Option<usize>) -> Request {
    let mut bytes = vec![0; 32];
    bytes[..4].copy_from_slice(&16_u32.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[24..].copy_from_slice(&lib_caps.to_ne_bytes());
    if let Some(at) = at {
        bytes[at] = 1;
    }
    command("GET_CONTEXT", DriverId::MLX5, &[], &bytes)
}

#[test]
fn private_input_passes_as_far_as_a_profile_names_it() {
    let [standard, full] = ["standard", "full"].map(|name| Policy::named(name).unwrap());
    assert_eq!(refused(&standard, &mlx5_context(0, 1, None)), None);
    let devx = refused(&standard, &mlx5_context(1, 1, None)).unwrap();
    assert!(devx.contains("private input flags = 0x1"), "{devx}");
    assert_eq!(refused(&full, &mlx5_context(1, 3, Some(20))), None);
    let reserved = refused(&standard, &mlx5_context(0, 0, Some(20))).unwrap();
    assert!(reserved.contains("private input reserved2"), "{reserved}");
    // What an older kernel would overlook is cleared, and the rest stays.
    let mut request = mlx5_context(0, 3, None);
    standard.clear(&mut request);
    assert_eq!(request.uhw_in()[24..], 1_u64.to_ne_bytes());
    assert_eq!(request.uhw_in()[..4], 16_u32.to_ne_bytes());
    assert_eq!(refused(&standard, &request), None);
    // In the short form there is nothing to clear.
    let mut short = command("GET_CONTEXT", DriverId::MLX5, &[], &[1; 8]);
    standard.clear(&mut short);
    assert_eq!(short.uhw_in(), [1; 8]);
    assert_eq!(refused(&standard, &short), None);
}

#[test]
fn a_doorbell_page_is_not_named_by_its_hardware_number() {
    // `struct mlx5_ib_create_cq`: flags at 22, uar_page_index at 24. Of `mlx5_ib_create_qp`: flags at 28.
    let cq = |flags: u8, page: u8| {
        let mut bytes = vec![7; 20];
        bytes.extend([0, 0, flags, 0, page, 0, 0, 0, 0, 0, 0, 0]);
        command("CREATE_CQ", DriverId::MLX5, &[], &bytes)
    };
    let qp = |flags: u32| {
        let mut bytes = vec![7; 28];
        bytes.extend(flags.to_ne_bytes());
        bytes.resize(56, 0);
        command("CREATE_QP", DriverId::MLX5, &[("qp_type", 2)], &bytes)
    };
    for name in ["standard", "hpc"] {
        let policy = Policy::named(name).unwrap();
        assert_eq!(refused(&policy, &cq(5, 0)), None);
        assert!(refused(&policy, &cq(2, 9)).unwrap().contains("flags"));
        assert!(refused(&policy, &cq(0, 9)).unwrap().contains("uar_page_index"));
        assert_eq!(refused(&policy, &qp(0x8)), None);
        assert!(refused(&policy, &qp(0x400)).unwrap().contains("flags"));
        // The ends of DC are types, and no pages.
        assert_eq!(refused(&policy, &qp(0x10)), None);
    }
}

#[test]
fn an_input_that_no_table_has_is_zeros() {
    let standard = Policy::named("standard").unwrap();
    for driver in [DriverId::RXE, DriverId::MLX4, DriverId::UNKNOWN] {
        let of = |byte| command("ALLOC_PD", driver, &[], &[0, 0, 0, 0, 0, byte, 0, 0]);
        assert_eq!(refused(&standard, &of(0)), None);
        let line = refused(&standard, &of(1)).unwrap();
        assert!(line.contains("private input at byte 5"), "{line}");
    }
    // Behind the structure, too.
    let mut bytes = vec![0; 40];
    bytes[39] = 1;
    let long = command("GET_CONTEXT", DriverId::MLX5, &[], &bytes);
    assert!(refused(&standard, &long).unwrap().contains("byte 39"));
}

#[test]
fn quotas_and_rates_are_read_written_and_narrowed() {
    let read = |rules: &str| Policy::read(&format!("name = \"a\"\n[rules]\n{rules}\n"));
    let wide = read("quota = { qp = 8, mr_bytes = 4096 }\nrate = { per_s = 100 }").unwrap();
    assert_eq!(Policy::read_all(&wide.texts()).unwrap(), wide);
    assert_eq!((wide.quota(Resource::Qp), wide.quota(Resource::Pd)), (Some(8), None));
    assert_eq!(wide.rate(), Some(Pace { per_s: 100, burst: 100, waits: true }));
    let tight =
        read("quota = { qp = 9, pd = 1 }\nrate = { per_s = 7, exceed = \"EAGAIN\" }").unwrap();
    let both = wide.and(tight);
    assert_eq!((both.quota(Resource::Qp), both.quota(Resource::Pd)), (Some(8), Some(1)));
    assert_eq!(both.rate(), Some(Pace { per_s: 7, burst: 7, waits: false }));
    let classes = read(
        "quota.qp = 8\nrates.connections = { per_s = 100, burst = 500, hot = { from = 75, per_s = 9 } }",
    );
    let classes = classes.unwrap();
    assert_eq!(Policy::read_all(&classes.texts()).unwrap(), classes);
    let of = |part| classes.class_rate(VerbClass::Connections, part);
    assert_eq!(of(74), Some(Pace { per_s: 100, burst: 500, waits: true }));
    assert_eq!(of(75), Some(Pace { per_s: 9, burst: 9, waits: true }));
    assert_eq!(classes.class_rate(VerbClass::Memory, 99), None);
    for (slip, word) in [
        ("quota = { qps = 8 }", "qps"),
        ("quota = { qp = -1 }", "-1"),
        ("rate = { burst = 8 }", "per_s"),
        ("rate = { per_s = 0 }", "at least 1"),
        ("rate = { per_s = 100, burst = 3 }", "burst is at least a 5th"),
        ("rate = { per_s = 100, exceed = \"kill\" }", "kill"),
        ("rates.memry = { per_s = 1 }", "memry"),
        ("rates.queues = { per_s = 0 }", "at least 1"),
        ("rates.queues = { per_s = 9, hot = { from = 50, per_s = 3 } }", "add quota.cq"),
        (
            "quota.cq = 9\nrates.queues = { per_s = 9, hot = { from = 101, per_s = 3 } }",
            "percentage",
        ),
        (
            "quota.cq = 9\nrates.queues = { per_s = 9, hot = { from = 50, per_s = 10 } }",
            "no more than",
        ),
        (
            "quota.cq = 9\nrates.queues = { per_s = 9, warm = { from = 60, per_s = 5 }, \
             hot = { from = 50, per_s = 3 } }",
            "more than that of warm",
        ),
    ] {
        let error = read(slip).unwrap_err().to_string();
        assert!(error.contains(word), "{slip}: {error}");
    }
}
