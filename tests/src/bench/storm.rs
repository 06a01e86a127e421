//! Many connections at once: by rdma_cm in one process, and queue pairs that become ready to send in one process
//! and in eight.

use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;

use super::median;
use crate::exec;
use crate::exec::Program;
use crate::table::Table;
use crate::world::Place;
use crate::world::World;
use crate::world::new_listener;

/// Rounds of everything, natively and in sandboxes by turns.
const ROUNDS: usize = 3;
/// Connections of one client to one server.
const CONNECTIONS: &str = "1000";
/// Processes, and queue pairs of each: ten thousand.
const PROCESSES: u32 = 8;
const PAIRS: u32 = 1250;

/// Prints the table.
///
/// # Errors
///
/// That a program failed.
pub fn run(world: &World) -> Result<()> {
    let names = [
        format!("{CONNECTIONS} connections by rdma_cm, one client (ucmatose)"),
        format!("{PAIRS} queue pairs to RTS in one process"),
        format!("{PAIRS} in each of {PROCESSES} processes at once"),
    ];
    let mut times = [const { [const { Vec::new() }; 2] }; 3];
    for round in 1..=ROUNDS {
        eprintln!("storms, round {round} of {ROUNDS}");
        for (at, place) in [Place::Native, Place::Sandbox].into_iter().enumerate() {
            let all = [
                connections(world, place)?,
                pairs(world, place, 1)?,
                pairs(world, place, PROCESSES)?,
            ];
            for (times, took) in times.iter_mut().zip(all) {
                times.iter_mut().skip(at).take(1).for_each(|of| of.push(took));
            }
        }
    }
    let mut table = Table::new(&["many at once, seconds", "native", "proxied", "ratio"]);
    let times = times.map(|of| of.map(|mut times| median(&mut times).unwrap_or(f64::NAN)));
    for (name, [native, inside]) in names.iter().zip(times) {
        let ratio = format!("{:.2}", inside / native);
        table.row(&[&**name, &format!("{native:.2}"), &format!("{inside:.2}"), &ratio]);
    }
    let [_, one, many] = times;
    let of = |at: usize| {
        let of = |times: [f64; 2]| times.get(at).copied().unwrap_or(f64::NAN);
        format!("{:.2}", f64::from(PROCESSES) * of(one) / of(many))
    };
    table.row(&[
        "eight processes to one: how many times the queue pairs a second",
        &of(0),
        &of(1),
        "",
    ]);
    println!("{table}");
    Ok(())
}

/// Seconds from the start of the client to its end, in which it connects, sends one message, and disconnects.
fn connections(world: &World, place: Place) -> Result<f64> {
    let address = world.address()?;
    let both = ["ucmatose", "-c", CONNECTIONS, "-C", "1"];
    let listens = new_listener(&world.device);
    let server = Program::start(world.command(place, &[&both[..], &["-b", &address]].concat())?)?;
    exec::wait_until("a server that listens", || Ok(listens()))?;
    let begun = Instant::now();
    let client = world.command(place, &[&both[..], &["-s", &address]].concat())?;
    exec::run(client)?.expect_status(0)?;
    let took = begun.elapsed().as_secs_f64();
    server.wait()?.expect_status(0)?;
    Ok(took)
}

/// Seconds until so many processes have all their queue pairs ready; the slowest counts.
fn pairs(world: &World, place: Place, processes: u32) -> Result<f64> {
    let node = world.node_path();
    let index = world.gid_index.unwrap_or(0);
    let gid = format!("/sys/class/infiniband/{}/ports/1/gids/{index}", world.device);
    let gid = std::fs::read_to_string(gid)?;
    let script = format!(
        "for i in $(seq {processes}); do echo pairs {PAIRS} {index} | \
         verbgate-guest neighbour {node} {} 0 & done; wait",
        gid.trim()
    );
    let said = exec::run(world.command(place, &["sh", "-c", &script])?)?.expect_status(0)?;
    let times = said.stdout.lines().filter_map(|line| line.strip_prefix("pairs after "));
    let times: Vec<f64> = times.filter_map(|ms| ms.split(' ').next()?.parse().ok()).collect();
    let all = usize::try_from(processes)? == times.len();
    let slowest = times.into_iter().reduce(f64::max).filter(|_| all);
    slowest.map(|ms| ms / 1000.0).with_context(|| format!("not all processes were done: {said}"))
}
