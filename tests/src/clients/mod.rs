//! Programs that people run over RDMA, natively, in two sandboxes and in two containers by turns: whether every byte
//! arrives, and what that costs. The table of the programs is in `list.rs`.

mod ends;
mod list;
mod start;

use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;

use crate::bench::median;
use crate::table::Table;
use crate::world::World;
use ends::Between;
use ends::Facts;
use ends::Once;
use list::CLIENTS;
use list::Card;
use list::Client;

/// Rounds, in all places by turns, the first place another one each time.
const ROUNDS: usize = 3;

/// What is to be run, and where.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The clients whose names hold one of these words, or all.
    pub words: Vec<String>,
    /// The folder of unpacked wheels.
    pub fetched: PathBuf,
    /// Between two NICs of the lab of this model, instead of on Soft-RoCE.
    pub nics: Option<String>,
    /// Also between two containers.
    pub containers: bool,
    /// Once more, to see where the time of each goes.
    pub census: bool,
}

/// Medians of a client, in seconds, and its last run in sandboxes.
#[derive(Debug)]
struct Medians {
    native: f64,
    inside: f64,
    /// Between containers, or why the client fails there; none if no containers were asked for.
    contained: Option<Result<f64>>,
    last: Once,
}

/// Runs the clients, and prints the table. False if one works natively, and not in sandboxes or containers.
pub fn run(world: &World, wanted: &Wanted) -> Result<bool> {
    let card = Card::find(wanted.nics.as_deref())?;
    let facts = Facts::look(world, card, &wanted.fetched)?;
    let mut head = vec!["client", "bytes compared", "native, s", "sandboxes, s", "ratio"];
    if wanted.containers {
        head.extend(["containers, s", "ratio"]);
    }
    head.extend(["notifications", "requests", "files of /sys"]);
    let mut table = Table::new(&head);
    let is_meant = |client: &&Client| {
        let words = &wanted.words;
        let is_named =
            words.is_empty() || words.iter().any(|word| client.name.contains(word.as_str()));
        is_named && client.on.contains(&card)
    };
    let (mut lost, mut works) = (0, 0);
    let mut start = start::Starts::default();
    for client in CLIENTS.iter().filter(is_meant) {
        let compared = if client.compares { "yes" } else { "no" };
        let row = |cells: Vec<String>| {
            [vec![client.name.to_owned(), compared.to_owned()], cells].concat()
        };
        let short = |native: &str, inside: &str| row(vec![native.to_owned(), inside.to_owned()]);
        match measured(&facts, client, wanted.containers) {
            Ok(Ok(Medians { native, inside, contained, last })) => {
                let mut cells = timed(inside, native).to_vec();
                cells.insert(0, format!("{native:.2}"));
                match contained {
                    Some(Ok(seconds)) => cells.extend(timed(seconds, native)),
                    Some(Err(lost_there)) => {
                        lost += 1;
                        eprintln!("{}: fails between two containers: {lost_there:#}", client.name);
                        cells.extend(["FAILS", ""].map(str::to_owned));
                    }
                    None => {}
                }
                let counts = [last.notifications, last.requests, last.files];
                cells.extend(counts.map(|count| count.to_string()));
                table.row(&row(cells));
                works += 1;
                // The table comes at the end, which a run that is stopped does not reach.
                eprintln!("{}: {native:.2} s natively, {inside:.2} s in sandboxes", client.name);
                if wanted.census {
                    match facts.traced(client) {
                        Ok(ends) => start.add(client.name, &ends),
                        Err(error) => {
                            lost += 1;
                            eprintln!("{}: fails under verbgate trace: {error:#}", client.name);
                        }
                    }
                }
            }
            // Said, and not counted.
            Ok(Err(natively)) => {
                eprintln!("{}: fails natively, now and then at least: {natively:#}", client.name);
                table.row(&short("fails", ""));
            }
            Err(lost_here) => {
                lost += 1;
                eprintln!("{}: works natively, and not in sandboxes: {lost_here:#}", client.name);
                table.row(&short("works", "FAILS"));
            }
        }
    }
    println!("{table}");
    if wanted.census {
        println!("{start}");
    }
    println!(
        "clients: {works} work natively and in sandboxes, {lost} are lost there or in containers"
    );
    Ok(lost == 0)
}

/// Seconds, and how many times the native ones these are.
fn timed(seconds: f64, native: f64) -> [String; 2] {
    [format!("{seconds:.2}"), format!("{:.2}", seconds / native)]
}

/// Medians in each place; or why the client fails natively.
fn measured(facts: &Facts, client: &Client, containers: bool) -> Result<Result<Medians>> {
    let mut places = vec![Between::Programs, Between::Sandboxes];
    if containers {
        places.push(Between::Containers);
    }
    let (mut seconds, mut out_of_containers) = (vec![Vec::new(); places.len()], None);
    let mut last = match facts.once(client, Between::Programs) {
        Ok(run) => run,
        Err(natively) => return Ok(Err(natively)),
    };
    for round in 0..ROUNDS {
        for turn in 0..places.len() {
            let which = (round + turn) % places.len();
            let (Some(place), Some(of)) = (places.get(which), seconds.get_mut(which)) else {
                continue;
            };
            if *place == Between::Containers && out_of_containers.is_some() {
                continue;
            }
            eprintln!("{}: round {} of {ROUNDS}, {place}", client.name, round + 1);
            let run = match facts.once(client, *place) {
                Ok(run) => run,
                Err(natively) if *place == Between::Programs => return Ok(Err(natively)),
                Err(contained) if *place == Between::Containers => {
                    out_of_containers = Some(contained);
                    continue;
                }
                Err(inside) => return Err(inside),
            };
            of.push(run.seconds);
            if *place == Between::Sandboxes {
                last = run;
            }
        }
    }
    let mut medians = seconds.iter_mut().map(|values| median(values));
    let mut next = || medians.next().flatten();
    let (native, inside) = (next().context("no round")?, next().context("no round")?);
    let contained = match out_of_containers {
        Some(error) => Some(Err(error)),
        None => next().map(Ok),
    };
    Ok(Ok(Medians { native, inside, contained, last }))
}
