//! Verbs, bandwidth and latency on a real device. Under emulation its numbers are ratios only.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;
use anyhow::Result;

use super::median;
use crate::exec;
use crate::exec::Ended;
use crate::pair::Pair;
use crate::table::Table;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../scripts/verb_costs.py");
/// How often each verb is called in one run of the script.
const CALLS: &str = "100";
/// Rounds, natively and sandboxed by turns, so that a busy machine disturbs both.
const ROUNDS: usize = 3;

/// Figures of one place: name, one value for each round.
type Figures = BTreeMap<String, Vec<f64>>;

/// Prints the tables.
pub fn run(world: &World) -> Result<()> {
    let mut verbs: [(Vec<String>, Figures); 2] = Default::default();
    let mut traffic: [Figures; 2] = Default::default();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for (index, place) in [Place::Native, Place::Sandbox].into_iter().enumerate() {
            if let Some((order, figures)) = verbs.get_mut(index) {
                *order = costs(world, place, figures)?;
            }
            if let Some(figures) = traffic.get_mut(index) {
                exchange(world, place, figures)?;
            }
        }
    }
    let [(order, native), (_, inside)] = verbs;
    println!("{}", table("verb, us", &order, native, inside));
    let [native, inside] = traffic;
    let order: Vec<String> = native.keys().cloned().collect();
    println!("{}", table("traffic", &order, native, inside));
    Ok(())
}

fn table(title: &str, order: &[String], mut native: Figures, mut inside: Figures) -> Table {
    let mut table = Table::new(&[title, "native", "proxied", "ratio"]);
    for name in order {
        let of = |figures: &mut Figures| figures.get_mut(name).and_then(|v| median(v));
        if let (Some(native), Some(inside)) = (of(&mut native), of(&mut inside)) {
            table.row(&[
                name.clone(),
                format!("{native:.1}"),
                format!("{inside:.1}"),
                format!("{:.2}", inside / native),
            ]);
        }
    }
    table
}

/// Runs the script of verbs; the names, in its order.
fn costs(world: &World, place: Place, figures: &mut Figures) -> Result<Vec<String>> {
    let dir = tempfile::tempdir()?;
    let script = dir.path().join("verb_costs.py");
    fs::write(&script, SCRIPT)?;
    let gid = world.gid_index.unwrap_or(0).to_string();
    let argv = ["python3", &script.to_string_lossy(), &world.device, &gid, CALLS];
    let ended = exec::run(world.command(place, &argv)?)?.expect_status(0)?;
    let mut order = Vec::new();
    for line in ended.stdout.lines() {
        if let Some((name, time)) = line.split_once('\t') {
            order.push(name.to_owned());
            figures.entry(name.to_owned()).or_default().push(time.parse()?);
        }
    }
    Ok(order)
}

/// Bandwidth of large writes and latency of small sends.
fn exchange(world: &World, place: Place, figures: &mut Figures) -> Result<()> {
    for (name, argv, column) in [
        ("ib_write_bw -s 65536, MiB/s", ["ib_write_bw", "-s", "65536", "-n", "1000"], 3),
        ("ib_send_lat -s 2, typical, us", ["ib_send_lat", "-s", "2", "-n", "1000"], 4),
    ] {
        let mut argv: Vec<String> = argv.map(ToOwned::to_owned).to_vec();
        argv.extend(world.perftest_options());
        let pair = Pair::start(&argv, |_, words| world.command(place, words))?.wait()?;
        let client = pair.client.expect_status(0)?;
        let value = result(&client, column).with_context(|| format!("no result: {client}"))?;
        figures.entry(name.to_owned()).or_default().push(value);
    }
    Ok(())
}

/// A column of perftest's line of results: the one after its head.
pub(super) fn result(ended: &Ended, column: usize) -> Option<f64> {
    let mut lines = ended.stdout.lines();
    lines.find(|line| line.trim_start().starts_with("#bytes"))?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_perftest_are_found() {
        let ended = Ended {
            name: String::new(),
            status: 0,
            stdout: " Mtu : 4096[B]\n #bytes     #iterations    BW peak[MiB/sec]  BW average[MiB/sec]\n \
                     65536      100              36.88              32.15  \t\t     0.000514\n---\n"
                .to_owned(),
            stderr: String::new(),
            took: std::time::Duration::ZERO,
        };
        assert_eq!(result(&ended, 3), Some(32.15));
        assert_eq!(result(&ended, 9), None);
    }
}
