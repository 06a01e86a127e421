//! `verbgate fabric` between two NICs, natively and in two sandboxes.

use std::path::Path;

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Two;
use super::traffic::DMABUF_MAKER;
use crate::cases::Verdict;
use crate::cases::fabric::PATIENT;
use crate::cases::fabric::PROGRAM;
use crate::exec::Program;
use crate::world;
use crate::world::Place;
use crate::world::World;

/// A case, what both ranks are told, their status, and what rank 0 must say.
type Run = (&'static str, &'static [&'static str], i32, &'static [&'static str]);

const WELL: &[&str] = &["verify: all is well"];
const NOTHING: &[&str] = &["diagnose: nothing is wrong"];
/// What is measured of a model says nothing of a wire.
const BENCH: &[&str] = &["bench: all is well"];

/// On InfiniBand: paths by LIDs, and partitions.
#[rustfmt::skip]
const PORTS: &[Run] = &[
    ("nic_mlx5_fabric_verify",     &["verify"], 0, WELL),
    ("nic_mlx5_fabric_diagnose",   &["diagnose"], 0, NOTHING),
    ("nic_mlx5_fabric_bench",      &["bench", "--sweep", "latency,sizes,bidirectional", "--sizes", "4K",
                                     "--message", "4K", "--repeat", "1", "--seconds", "0.2", "--tolerance", "90",
                                     "--max-times-least", "10000"], 0, BENCH),
    ("nic_mlx5_fabric_pkey",       &["verify", "--sizes", "1,4K", "--pkey", "0x7fff"], 0,
                                   &["partition: 0x7fff at index 0", "verify: all is well"]),
    ("nic_mlx5_fabric_wrong_pkey", &["diagnose", "--pkey", "0x8123"], 1, &["CAUSE wrong-pkey"]),
    ("nic_mlx5_fabric_ud",         &["verify", "--transport", "ud"], 0, WELL),
    ("nic_mlx5_fabric_threads",    &["bench", "--sweep", "sizes", "--sizes", "4K", "--repeat", "1", "--seconds",
                                     "0.2", "--tolerance", "90", "--threads", "2", "--qps", "4"], 0, BENCH),
];

/// On EFA: datagrams, reliable and not.
#[rustfmt::skip]
const DATAGRAMS: &[Run] = &[
    ("nic_fabric_srd",           &["verify", "--transport", "srd"], 0, WELL),
    ("nic_fabric_srd_diagnose",  &["diagnose", "--transport", "srd"], 0, NOTHING),
    ("nic_fabric_ud",            &["verify", "--transport", "ud"], 0, WELL),
    ("nic_fabric_srd_dma_buf",   &["verify", "--transport", "srd", "--memory", "dma-buf"], 0, WELL),
    ("nic_fabric_srd_bench",     &["bench", "--transport", "srd", "--sweep", "latency,sizes", "--sizes", "4K",
                                   "--repeat", "1", "--seconds", "0.2", "--tolerance", "90",
                                   "--max-times-least", "10000", "--by", "send"], 0, BENCH),
    ("nic_fabric_is_no_rc",      &["diagnose", "--timeout", "30"], 1, &["CAUSE cannot-connect"]),
];

pub(super) fn infiniband() -> Vec<Case> {
    let mut cases = cases(PORTS);
    cases.push(Case::new("nic_mlx5_fabric_cross_rail", crossed));
    cases
}

/// Both ranks have both devices, and each device speaks to the other.
fn crossed(world: &World) -> Result<Verdict> {
    let two = Two::look(world)?;
    let [first, second] = ["server", "client"].map(|role| two.end(role).device.as_str());
    let program = world.beside(PROGRAM);
    if !program.exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    let program = program.to_string_lossy().into_owned();
    for place in [Place::Native, Place::Sandbox] {
        let at = format!("127.0.0.1:{}", world::free_port()?);
        let start = |rank: &str| {
            let words = ["--sizes", "1,4K", "--cross-rail", "1", "--timeout", PATIENT];
            let meet = ["--rendezvous", &at, "--rank", rank, "--ranks", "2"];
            let rails = ["--device", first, "--device", second];
            let argv =
                [&[&*program, "fabric", "verify"], &words[..], &meet[..], &rails[..]].concat();
            Program::start(match place {
                Place::Native => world.command(place, &argv)?,
                Place::Sandbox => world.sandbox(&["--device", second], &argv),
            })
        };
        let (zero, one) = (start("0")?, start("1")?);
        let zero = zero.wait()?.expect_status(0)?;
        one.wait()?.expect_status(0)?;
        for rail in [format!("  rail 0: {first}:"), format!("  rail 0: {second}:")] {
            if zero.stdout.matches(&rail).count() != 1 {
                bail!("{place:?}: rails speak to themselves: {zero}");
            }
        }
        if !zero.stdout.contains("rank 0: 2 of 2 paths are well") {
            bail!("{place:?}: not both rails: {zero}");
        }
    }
    Ok(Verdict::Ok)
}

pub(super) fn datagrams() -> Vec<Case> {
    cases(DATAGRAMS)
}

fn cases(runs: &'static [Run]) -> Vec<Case> {
    runs.iter().map(|run| Case::new(run.0, move |world| ranks(world, run))).collect()
}

fn ranks(world: &World, (_, command, status, said): &Run) -> Result<Verdict> {
    if command.contains(&"dma-buf") && !Path::new(DMABUF_MAKER).exists() {
        return Ok(Verdict::Skipped(format!("this kernel has no {DMABUF_MAKER}")));
    }
    of_two(&Two::look(world)?, command, *status, said)
}

/// Two ranks, each on a device of its own.
pub(super) fn of_two(two: &Two, command: &[&str], status: i32, said: &[&str]) -> Result<Verdict> {
    let program = two.end("server").beside(PROGRAM);
    if !program.exists() {
        return Ok(Verdict::Skipped(format!("needs {PROGRAM} beside this program")));
    }
    let program = program.to_string_lossy().into_owned();
    for place in [Place::Native, Place::Sandbox] {
        let at = format!("127.0.0.1:{}", world::free_port()?);
        let rank = |rank: &str, world: &World| {
            let rail = match world.gid_index {
                Some(index) => format!("{}@{index}", world.device),
                None => world.device.clone(),
            };
            let meet = ["--rendezvous", &at, "--rank", rank, "--ranks", "2"];
            let patience: &[&str] =
                if command.contains(&"--timeout") { &[] } else { &["--timeout", PATIENT] };
            let argv = [&[&*program, "fabric"], command, patience, &meet[..], &["--device", &rail]]
                .concat();
            Program::start(world.command(place, &argv)?)
        };
        let (first, second) = (rank("0", two.end("server"))?, rank("1", two.end("client"))?);
        let first = first.wait()?.expect_status(status)?;
        second.wait()?.expect_status(status)?;
        if let Some(missing) = said.iter().find(|words| !first.stdout.contains(**words)) {
            bail!("{place:?}: nothing is said of {missing:?}: {first}");
        }
    }
    Ok(Verdict::Ok)
}
