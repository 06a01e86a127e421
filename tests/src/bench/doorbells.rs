//! Latency and bandwidth between two NICs whose doorbells programs ring by mmap: Verbgate has no part in a
//! work request, so that both are to be as they are natively.

use anyhow::Context as _;
use anyhow::Result;

use super::lab::result;
use super::median;
use crate::cases::nic::Meeting;
use crate::cases::nic::Two;
use crate::table::Table;
use crate::world::Place;
use crate::world::World;

/// Rounds, by turns, the first place another one each time.
const ROUNDS: usize = 21;
const PLACES: [Place; 3] = [Place::Native, Place::Sandbox, Place::Native];

/// What is measured: the program, and the column of perftest's results.
type Measure = (&'static str, &'static [&'static str], usize);

const DATAGRAMS: &[Measure] = &[
    ("ib_send_lat of SRD, 64 B, typical, us", &["ib_send_lat", "-c", "SRD", "-s", "64"], 4),
    ("ib_read_bw of SRD, 64 KiB, MiB/s", &["ib_read_bw", "-c", "SRD", "-s", "65536"], 3),
];
const CONNECTED: &[Measure] = &[
    ("ib_write_lat, 64 B, typical, us", &["ib_write_lat", "-s", "64"], 4),
    ("ib_write_bw, 64 KiB, MiB/s", &["ib_write_bw", "-s", "65536"], 3),
];

/// Prints the table of the NICs of a model: `efa`, `erdma` or `mlx5`.
pub fn run(world: &World, model: &str) -> Result<()> {
    let two = Two::look(world)?;
    let (measures, meeting, more): (_, _, &[&str]) = match model {
        "efa" => (DATAGRAMS, Meeting::Socket, &["-x", "0"]),
        // Its driver in old kernels is connected by rdma_cm alone.
        "erdma" => (CONNECTED, Meeting::Manager, &[]),
        _ => (CONNECTED, Meeting::Socket, &[]),
    };
    let title = format!("{model}, doorbells by mmap, median of {ROUNDS}");
    let mut table = Table::new(&[&title, "native", "proxied", "ratio", "native to native"]);
    for (name, argv, column) in measures {
        // A second or more: in the first tenth, programs and supervisors are still busy with their start.
        let argv = [argv, more, &["-F", "-n", "10000"]].concat();
        let one = |place| -> Result<f64> {
            let pair = two.start(meeting, &argv, |role, words| {
                // An emulated processor each: what the scheduler chooses costs more than is asked for.
                let own = if role == "server" { "1" } else { "0" };
                let words = [&["taskset", "-c", own], words].concat();
                two.end(role).command(place, &words)
            })?;
            let client = pair.wait()?.client.expect_status(0)?;
            result(&client, *column).with_context(|| format!("no result: {client}"))
        };
        // The last is the first once more: how much two runs differ that are alike.
        let mut runs = [const { Vec::new() }; 3];
        for round in 0..ROUNDS {
            eprintln!("{name}: round {} of {ROUNDS}", round + 1);
            for turn in 0..PLACES.len() {
                let which = (round + turn) % PLACES.len();
                if let (Some(place), Some(run)) = (PLACES.get(which), runs.get_mut(which)) {
                    run.push(one(*place)?);
                }
            }
        }
        let [native, inside, again] = &mut runs;
        let of = |values: &mut Vec<f64>| median(values).unwrap_or(f64::NAN);
        let (bare, proxied, again) = (of(native), of(inside), of(again));
        table.row(&[
            (*name).to_owned(),
            format!("{bare:.1}"),
            format!("{proxied:.1}"),
            format!("{:.3}", proxied / bare),
            format!("{:.3}", again / bare),
        ]);
    }
    println!("{table}");
    Ok(())
}
