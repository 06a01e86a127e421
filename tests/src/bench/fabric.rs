//! Many ranks that meet, without verbs: the rendezvous and the endpoints' logic alone.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use super::median;
use crate::exec;
use crate::table::Table;

const RANKS: u32 = 1000;
/// With how many others each rank connects.
const ROUNDS: u32 = 10;
const REPEATS: usize = 5;

/// A cluster on two processors, and the bounds that it must keep.
const NODES: u32 = 128;
const RAILS: u32 = 8;
const PROCESSORS: &str = "0,1";
const LONGEST: Duration = Duration::from_secs(120);
const MOST_KIB: f64 = 256.0 * 1024.0;
/// Three at a time, of which none hides another, and the causes in the order in which they are told.
const INJECTED: &[(&str, &str)] = &[
    ("path-mtu@pair=5-99,rail=2", "path-mtu"),
    ("packet-loss@rail=3", "packet-loss"),
    ("nothing-arrives@rank=17", "nothing-arrives"),
];

/// Prints the table; `verbgate` is the program.
pub fn run(verbgate: &Path) -> Result<()> {
    let mut outcomes = Vec::new();
    for _ in 0..REPEATS {
        let mut command = Command::new(verbgate);
        command.args(["fabric", "simulate", "--ranks", &RANKS.to_string()]);
        command.args(["--rounds", &ROUNDS.to_string()]);
        let ended = exec::run(command)?;
        if ended.status == 2 {
            println!("{RANKS} ranks are left out: {}", ended.stderr.trim());
            return Ok(());
        }
        let ended = ended.expect_status(0)?;
        let outcome: Value = serde_json::from_str(&ended.stdout).context("fabric simulate")?;
        let of = |name: &str| outcome.get(name).and_then(Value::as_u64);
        if (of("hashes"), of("left_over")) != (Some(1), Some(0)) {
            bail!("the ranks do not agree: {outcome}");
        }
        outcomes.push(outcome);
    }
    let of = |name: &str| {
        let numbers = outcomes.iter().filter_map(|outcome| outcome.get(name)?.as_f64());
        median(&mut numbers.collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    };
    let title = format!("{RANKS} ranks without verbs, in one process beside rank 0's");
    let mut table = Table::new(&[&title, "median of 5"]);
    let mib = |kib: f64| format!("{:.0} MiB", kib / 1024.0);
    let seconds = |ms: f64| format!("{:.1} s", ms / 1000.0);
    table.row(&["all have the rank table".to_owned(), seconds(of("table_ms"))]);
    let pairs = format!("{} pairs are connected, {ROUNDS} of each rank", of("pairs"));
    table.row(&[pairs, seconds(of("connect_ms"))]);
    table.row(&["most memory of rank 0".to_owned(), mib(of("server_kib"))]);
    table.row(&["most memory of all other ranks".to_owned(), mib(of("ranks_kib"))]);
    println!("{table}");
    cluster(verbgate)
}

/// From the first rank to the named causes and the plan of a benchmark; fails above the bounds.
fn cluster(verbgate: &Path) -> Result<()> {
    let mut command = Command::new("taskset");
    command.args(["-c", PROCESSORS]).arg(verbgate);
    command.args(["fabric", "simulate", "--ranks", &NODES.to_string()]);
    command.args(["--rails", &RAILS.to_string()]);
    command.args(INJECTED.iter().flat_map(|(fault, _)| ["--fault", fault]));
    let ended = exec::run(command).context("taskset, of util-linux")?.expect_status(0)?;
    let outcome: Value = serde_json::from_str(&ended.stdout).context("fabric simulate")?;
    let causes = outcome.get("causes").and_then(Value::as_array).context("no causes")?;
    let names: Vec<&str> = causes.iter().filter_map(|one| one["cause"].as_str()).collect();
    let expected: Vec<&str> = INJECTED.iter().map(|(_, cause)| *cause).collect();
    if names != expected {
        bail!("it names {names:?} instead of {expected:?}");
    }
    let number = |name: &str| outcome.get(name).and_then(Value::as_f64);
    let of = |name: &str| number(name).with_context(|| format!("no {name}"));
    let (memory, took) = (of("server_kib")?, ended.took);
    if took > LONGEST || memory > MOST_KIB {
        bail!(
            "verdict on {NODES} nodes: FAIL: {took:?} and {memory} KiB are more than {LONGEST:?} and \
             {MOST_KIB} KiB: {outcome}"
        );
    }
    let title = format!("{NODES} nodes of {RAILS} rails without verbs, on two processors");
    let mut table = Table::new(&[&title, "one run"]);
    let seconds = |ms: f64| format!("{:.1} s", ms / 1000.0);
    table.row(&["all have the rank table".to_owned(), seconds(of("table_ms")?)]);
    let ends = format!("{} ends of paths are reported", of("ends")?);
    table.row(&[ends, seconds(of("collected_ms")?)]);
    table.row(&[
        "the causes are named, and a bench is planned".to_owned(),
        seconds(of("found_ms")?),
    ]);
    table.row(&["all have ended".to_owned(), format!("{:.1} s", took.as_secs_f64())]);
    table.row(&["most memory of rank 0".to_owned(), format!("{:.0} MiB", memory / 1024.0)]);
    println!("{table}");
    println!(
        "verdict on {NODES} nodes: PASS: {:.1} s of {} s, {:.0} MiB of {:.0} MiB, and each injected cause \
         is named and no other",
        took.as_secs_f64(),
        LONGEST.as_secs(),
        memory / 1024.0,
        MOST_KIB / 1024.0
    );
    Ok(())
}
