//! Policies: reading a thousand tenants, and judging a request.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use verbgate_abi::Request;
use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_proxy::policy::FileOwner;
use verbgate_proxy::policy::Policies;
use verbgate_proxy::policy::Policy;

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

/// Prints the table.
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
    let standard = Policy::named("standard")?;
    for (name, request) in requests()? {
        for (of, policy) in [("standard", &standard), ("a tenant with rules", limited)] {
            anyhow::ensure!(policy.check(&request).is_ok(), "{name} does not pass");
            let mut times: Vec<f64> = (0..ROUNDS).map(|_| judge(policy, &request)).collect();
            let each = median(&mut times).unwrap_or(f64::NAN);
            table.row(&[format!("{name} judged by {of}"), format!("{each:.0} ns")]);
        }
    }
    println!("{table}");
    Ok(())
}

fn judge(policy: &Policy, request: &Request) -> f64 {
    let from = Instant::now();
    for _ in 0..JUDGED {
        let _ = black_box(policy.check(black_box(request)));
    }
    from.elapsed().as_secs_f64() * 1e9 / f64::from(JUDGED)
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
fn requests() -> Result<Vec<(&'static str, Request)>> {
    let invoke = table::methods().iter().find(|method| method.is_invoke_write());
    let invoke = invoke.context("no INVOKE_WRITE")?;
    let of = |name, fields: &[(&str, &[u8])], private: &[u8]| -> Result<Request> {
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
        let encoded = builder.build(GuestAddr(0));
        let outline = decode::parse(&encoded.bytes)?;
        // Inputs are at their places in the payload, which begins at 0.
        let mut arena = Vec::with_capacity(outline.arena_len());
        for payload in outline.payloads() {
            let from = usize::try_from(payload.addr.0)?;
            let bytes = encoded.payload.get(from..from + payload.range.len());
            arena.extend_from_slice(bytes.context("a payload")?);
        }
        Ok(outline.with_payloads(arena)?)
    };
    // IB_QP_STATE, AV, PATH_MTU, RQ_PSN, DEST_QPN and what belongs to them.
    let mask = 0x12_1181_u32.to_ne_bytes();
    let gid = std::net::Ipv4Addr::new(10, 9, 1, 2).to_ipv6_mapped().octets();
    let connect: [(&str, &[u8]); 5] = [
        ("attr_mask", &mask),
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
