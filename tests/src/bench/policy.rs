//! Policies: reading a thousand tenants, judging a request, and the token of a tenant's rate.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::encode::Encoded;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_proxy::Ledger;
use verbgate_proxy::fetch::Copied;
use verbgate_proxy::fetch::Form;
use verbgate_proxy::ledger;
use verbgate_proxy::pace::Pace;
use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Policies;
use verbgate_proxy::policy::Policy;
use verbgate_proxy::vet::Rules;
use verbgate_proxy::vet::Vetted;
use verbgate_proxy::vet::vet;
use verbgate_sys::mem::FakeMemory;

use super::median;
use crate::table::Table;

const TENANTS: usize = 1000;
const FILES: usize = 10;
const ROUNDS: usize = 7;
const JUDGED: u32 = 20_000;

/// Rules on every value that a rule can be on, but for what is looked up in sysfs.
const RULES: &str = "rules.peers = [\"10.7.0.0/16\", \"10.9.0.0/16\", \"fd00::/8\"]
rules.service_level = { only = [0, 3] }
rules.traffic_class = { mask = 0xff }
rules.static_rate = { max = 20 }
rules.access = [\"LOCAL_WRITE\", \"REMOTE_WRITE\", \"REMOTE_READ\"]
rules.region_bytes = { max = 17179869184 }
rules.vector = { max = 64 }
rules.fields.CREATE_CQ.cqe = { max = 1048576 }
";

/// The most that reading all tenants may take, and judging a request.
const MOST_MS: f64 = 50.0;
const MOST_NS: f64 = 1000.0;

/// Sandboxes of one tenant, who share a rate.
const SANDBOXES: usize = 64;

/// Where a request is, and its payload.
const REQUEST: u64 = 0x1_0000;
const PAYLOAD: u64 = REQUEST + 4096;

/// Prints the table, and whether the figures are within their bounds.
///
/// # Errors
///
/// That files cannot be written, or a policy cannot be read.
pub fn run() -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    write(dir.path())?;
    let mut table = Table::new(&["policies", "median of 7"]);
    let load = || -> Result<f64> {
        let from = Instant::now();
        let policies = Policies::load(dir.path(), FileOwner::Anybody)?.context("no policy")?;
        let took = from.elapsed().as_secs_f64();
        anyhow::ensure!(policies.tenants().len() == TENANTS, "not all tenants were read");
        Ok(took)
    };
    let mut loads = (0..ROUNDS).map(|_| load()).collect::<Result<Vec<_>>>()?;
    let loaded = median(&mut loads).unwrap_or(f64::NAN) * 1000.0;
    table.row(&[format!("{TENANTS} tenants in {FILES} files, read"), format!("{loaded:.1} ms")]);
    let policies = Policies::load(dir.path(), FileOwner::Anybody)?.context("no policy")?;
    let limited = &policies.named("tenant-7")?.policy;
    let narrowed = &policies.named("tenant-8")?.policy;
    let standard = Policy::named("standard")?;
    let mut dearest: f64 = 0.0;
    for (name, encoded) in requests()? {
        let request = decoded(&encoded)?;
        for (of, policy) in [("standard", &standard), ("a tenant with rules", limited)] {
            anyhow::ensure!(policy.check(&request).is_ok(), "{name} does not pass");
            let each = measured(|| drop(black_box(policy.check(black_box(&request)))));
            dearest = dearest.max(each);
            table.row(&[format!("{name} judged by {of}"), format!("{each:.0} ns")]);
        }
        // As the supervisor has it: a copy is decoded, and judged by both policies.
        let memory = memory(&encoded);
        let [plain, both] = [None, Some(narrowed)].map(|narrowed| Rules {
            driver: DriverId::MLX5,
            policy: limited,
            narrowed,
            withdrawn: false,
            ports: Some(&[1]),
            gids: None,
            rdev: (231, 192),
            asked: true,
        });
        let vet = |rules: &Rules<'_>| vetted(&memory, &encoded, rules);
        for rules in [&plain, &both] {
            match vet(rules)? {
                Vetted::Execute(..) => {}
                other => anyhow::bail!("{name} is not vetted: {other:?}"),
            }
        }
        // By turns, so that a busy machine disturbs both.
        let turns =
            (0..ROUNDS).map(|_| [&plain, &both].map(|rules| round(|| drop(black_box(vet(rules))))));
        let turns: Vec<[f64; 2]> = turns.collect();
        let of = |which: fn(&[f64; 2]) -> f64| {
            let mut values: Vec<f64> = turns.iter().map(which).collect();
            median(&mut values).unwrap_or(f64::NAN)
        };
        let (plain, both) = (of(|[plain, _]| *plain), of(|[_, both]| *both));
        dearest = dearest.max(of(|[plain, both]| both - plain));
        table.row(&[format!("{name} copied, decoded and vetted"), format!("{plain:.0} ns")]);
        table.row(&["  and narrowed by another such policy".to_owned(), format!("{both:.0} ns")]);
    }
    for (name, each) in rates()? {
        table.row(&[name, format!("{each:.0} ns")]);
    }
    let verdict = |within: bool| if within { "within" } else { "BEYOND" };
    table.row(&[
        format!("reading {TENANTS} tenants: {} {MOST_MS:.0} ms", verdict(loaded <= MOST_MS)),
        format!("{loaded:.1} ms"),
    ]);
    table.row(&[
        format!("judging a request: {} {MOST_NS:.0} ns", verdict(dearest <= MOST_NS)),
        format!("{dearest:.0} ns"),
    ]);
    println!("{table}");
    Ok(())
}

/// What a request's token costs: of a sandbox that is a tenant by itself, and of one of many.
fn rates() -> Result<Vec<(String, f64)>> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    let open = || Ledger::open(dir.path(), "bench").context("cannot open a ledger");
    let ledgers = (0..SANDBOXES).map(|_| open()).collect::<Result<Vec<_>>>()?;
    let shared = ledgers.first().context("no ledger")?;
    let own = Ledger::default();
    let pace = Pace { per_s: 1_000_000, burst: 1_000_000, waits: true };
    let mut rows = Vec::new();
    let mut now = ledger::clock();
    for (name, ledger, step) in [
        ("a sandbox alone".to_owned(), &own, Duration::from_micros(1)),
        (format!("one of {SANDBOXES} that makes many requests"), shared, Duration::from_micros(1)),
        (format!("one of {SANDBOXES} that makes few"), shared, Duration::from_secs(1)),
    ] {
        let each = measured(|| {
            now += step;
            black_box(ledger.may_go(None, &pace, now));
        });
        rows.push((format!("a request's token: {name}"), each));
    }
    Ok(rows)
}

/// Nanoseconds of one.
fn measured(mut one: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| round(&mut one)).collect();
    median(&mut times).unwrap_or(f64::NAN)
}

/// The same, in one round.
fn round(mut one: impl FnMut()) -> f64 {
    let from = Instant::now();
    (0..JUDGED).for_each(|_| one());
    from.elapsed().as_secs_f64() * 1e9 / f64::from(JUDGED)
}

fn memory(encoded: &Encoded) -> FakeMemory {
    let mut bytes = encoded.bytes.clone();
    bytes.resize(4096, 0);
    bytes.extend(&encoded.payload);
    FakeMemory { base: REQUEST, bytes: bytes.into() }
}

fn vetted(memory: &FakeMemory, encoded: &Encoded, rules: &Rules<'_>) -> Result<Vetted> {
    let copied = Copied::read(memory, REQUEST, encoded.bytes.len()).context("no copy")?;
    Ok(vet(memory, Form::Ioctl(REQUEST), copied, rules))
}

fn decoded(encoded: &Encoded) -> Result<Request> {
    let outline = decode::parse(&encoded.bytes)?;
    let mut arena = Vec::with_capacity(outline.arena_len());
    for payload in outline.payloads() {
        let from = usize::try_from(payload.addr.0 - PAYLOAD)?;
        let bytes = encoded.payload.get(from..from + payload.range.len());
        arena.extend_from_slice(bytes.context("a payload")?);
    }
    Ok(outline.with_payloads(arena)?)
}

fn write(dir: &Path) -> Result<()> {
    for file in 0..FILES {
        let mut text = format!(
            "version = 1\n[profile.p{file}]\nextends = \"standard\"\nremove.qp_types = [\"UD\"]\n{RULES}"
        );
        for tenant in (file..TENANTS).step_by(FILES) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "[tenant.tenant-{tenant}]\nmatch.annotation.\"io.kubernetes.cri.sandbox-namespace\" \
                 = \"team-{tenant}\"\nprofile = \"p{file}\"\ndevices = [{{ pci = \
                 \"0000:3b:00.2\" }}, {{ name = \"mlx5_{tenant}\", ports = [1] }}]\n\
                 rules.peers = [\"10.7.0.0/16\", \"10.9.0.0/16\", \"fd00::/8\"]"
            );
        }
        fs::write(dir.join(format!("{file}.toml")), text)?;
    }
    Ok(())
}

/// Requests of a program that connects, by their names.
fn requests() -> Result<Vec<(&'static str, Encoded)>> {
    let invoke = table::methods().iter().find(|method| method.is_invoke_write());
    let invoke = invoke.context("no INVOKE_WRITE")?;
    let of = |name, fields: &[(&str, &[u8])], private: &[u8]| -> Result<Encoded> {
        let spec = legacy::commands().iter().find(|spec| spec.short_name == name);
        let spec = spec.context("no such command")?;
        let mut core_in = vec![0; spec.req_size()];
        for (path, bytes) in fields {
            let at = usize::from(spec.req.field(path).context("no such field")?.offset);
            core_in.get_mut(at..at + bytes.len()).context("a field")?.copy_from_slice(bytes);
        }
        let mut builder = RequestBuilder::new(invoke, DriverId::MLX5)
            .input(ids::UVERBS_ATTR_CORE_IN, &core_in)
            .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(0x9000), 64)
            .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd);
        if !private.is_empty() {
            builder = builder.input(ids::UVERBS_ATTR_UHW_IN, private);
        }
        Ok(builder.build(GuestAddr(PAYLOAD)))
    };
    // IB_QP_STATE, AV, PATH_MTU, RQ_PSN, DEST_QPN and what belongs to them.
    let mask = 0x12_1181_u32.to_ne_bytes();
    let gid = std::net::Ipv4Addr::new(10, 9, 1, 2).to_ipv6_mapped().octets();
    let connect: [(&str, &[u8]); 6] = [
        ("attr_mask", &mask),
        ("dest.port_num", &[1]),
        ("dest.is_global", &[1]),
        ("dest.dgid", &gid),
        ("dest.sl", &[3]),
        ("dest_qp_num", &[99]),
    ];
    let mut qp = vec![7; 28];
    qp.extend([8, 0, 0, 0]);
    qp.resize(56, 0);
    let mut cq = vec![7; 20];
    cq.resize(32, 0);
    Ok(vec![
        ("MODIFY_QP to RTR", of("MODIFY_QP", &connect, &[])?),
        ("REG_MR", of("REG_MR", &[("access_flags", &[7]), ("length", &[0, 16])], &[])?),
        ("CREATE_QP of mlx5", of("CREATE_QP", &[("qp_type", &[2])], &qp)?),
        ("CREATE_CQ of mlx5", of("CREATE_CQ", &[("cqe", &[64])], &cq)?),
        ("DEALLOC_PD", of("DEALLOC_PD", &[], &[])?),
    ])
}
