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
const PATIENCE: Duration = Duration::from_secs(120);

/// Prints the table; `verbgate` is the program.
pub fn run(verbgate: &Path) -> Result<()> {
    let mut outcomes = Vec::new();
    for _ in 0..REPEATS {
        let mut command = Command::new(verbgate);
        command.args(["fabric", "simulate", "--ranks", &RANKS.to_string()]);
        command.args(["--rounds", &ROUNDS.to_string()]);
        let ended = exec::run(command, PATIENCE)?;
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
    Ok(())
}
