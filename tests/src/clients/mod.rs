//! Programs that people run over RDMA, natively and in two sandboxes by turns: whether every byte arrives, and
//! what that costs. The table of the programs is in `list.rs`.

mod list;

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use tempfile::TempDir;

use crate::bench::median;
use crate::exec;
use crate::exec::Deadline;
use crate::exec::Ended;
use crate::exec::Program;
use crate::report::Report;
use crate::table::Table;
use crate::world;
use crate::world::PATIENCE;
use crate::world::Place;
use crate::world::World;
use list::CLIENTS;
use list::Client;
use list::Ends;
use list::SCRIPTS;

/// Rounds, natively and in sandboxes by turns, the first place another one each time.
const ROUNDS: usize = 3;
const PLACES: [Place; 2] = [Place::Native, Place::Sandbox];
/// How long a server may take until it listens.
const LISTEN: Duration = Duration::from_secs(60);
/// How long a server may take to end after its client, if it does.
const FAREWELL: Duration = Duration::from_secs(5);

/// What stands for `{...}` in the words of a client.
#[derive(Debug)]
struct Facts {
    device: String,
    address: String,
    /// Scripts of this crate.
    scripts: TempDir,
    /// Programs that were fetched, unpacked.
    fetched: PathBuf,
}

/// One run of a client.
#[derive(Debug)]
struct Run {
    seconds: f64,
    /// Of the supervisors together.
    notifications: u64,
    requests: u64,
    /// Served files of `/sys` that were opened.
    files: u64,
}

/// Runs the clients whose names hold one of the words, or all, and prints the table. False if one works
/// natively, and not in sandboxes.
pub fn run(world: &World, fetched: &Path, words: &[String]) -> Result<bool> {
    let scripts = tempfile::tempdir().context("cannot make a temporary folder")?;
    for (name, text) in SCRIPTS {
        fs::write(scripts.path().join(name), text)?;
    }
    let (device, address) = (world.device.clone(), world.address()?);
    let facts = Facts { device, address, scripts, fetched: fetched.to_owned() };
    let mut table = Table::new(&[
        "client",
        "bytes compared",
        "native, s",
        "proxied, s",
        "ratio",
        "notifications",
        "requests",
        "files of /sys",
    ]);
    let is_meant = |client: &&Client| {
        words.is_empty() || words.iter().any(|word| client.name.contains(word.as_str()))
    };
    let (mut lost, mut works) = (0, 0);
    for client in CLIENTS.iter().filter(is_meant) {
        let compared = if client.compares { "yes" } else { "no" };
        let row = |cells: [String; 6]| {
            [vec![client.name.to_owned(), compared.to_owned()], cells.to_vec()].concat()
        };
        match measured(world, &facts, client) {
            Ok(Ok((native, inside, last))) => {
                works += 1;
                table.row(&row([
                    format!("{native:.2}"),
                    format!("{inside:.2}"),
                    format!("{:.2}", inside / native),
                    last.notifications.to_string(),
                    last.requests.to_string(),
                    last.files.to_string(),
                ]));
            }
            // Said, and not counted.
            Ok(Err(natively)) => {
                eprintln!("{}: fails natively, now and then at least: {natively:#}", client.name);
                table.row(&row(["fails", "", "", "", "", ""].map(str::to_owned)));
            }
            Err(lost_here) => {
                lost += 1;
                eprintln!("{}: works natively, and not in sandboxes: {lost_here:#}", client.name);
                table.row(&row(["works", "FAILS", "", "", "", ""].map(str::to_owned)));
            }
        }
    }
    println!("{table}");
    println!("clients: {works} work natively and in sandboxes, {lost} are lost");
    Ok(lost == 0)
}

/// Medians natively and in sandboxes, and the last run of these; or why the client fails natively.
fn measured(world: &World, facts: &Facts, client: &Client) -> Result<Result<(f64, f64, Run)>> {
    let mut seconds = [const { Vec::new() }; 2];
    let mut last = match one(world, facts, client, Place::Native) {
        Ok(run) => run,
        Err(natively) => return Ok(Err(natively)),
    };
    for round in 0..ROUNDS {
        for turn in 0..PLACES.len() {
            let which = (round + turn) % PLACES.len();
            let (Some(place), Some(of)) = (PLACES.get(which), seconds.get_mut(which)) else {
                continue;
            };
            eprintln!("{}: round {} of {ROUNDS}, {place:?}", client.name, round + 1);
            let run = match one(world, facts, client, *place) {
                Ok(run) => run,
                Err(natively) if *place == Place::Native => return Ok(Err(natively)),
                Err(inside) => return Err(inside),
            };
            of.push(run.seconds);
            if *place == Place::Sandbox {
                last = run;
            }
        }
    }
    let [native, inside] = &mut seconds;
    let of = |values: &mut Vec<f64>| median(values).context("no round");
    Ok(Ok((of(native)?, of(inside)?, last)))
}

/// Runs a client once.
fn one(world: &World, facts: &Facts, client: &Client, place: Place) -> Result<Run> {
    let port = world::free_port()?;
    let reports = tempfile::tempdir()?;
    let fill = |role: &str, words: &[&str]| -> Vec<String> {
        let scripts = facts.scripts.path().to_string_lossy();
        let fetched = facts.fetched.to_string_lossy();
        let filled = words.iter().map(|word| {
            let word = word.replace("{port}", &port.to_string()).replace("{role}", role);
            let word = word.replace("{device}", &facts.device).replace("{scripts}", &scripts);
            word.replace("{address}", &facts.address).replace("{fetched}", &fetched)
        });
        filled.collect()
    };
    let end = |role: &str, words: &[String]| -> Command {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let report = reports.path().join(role);
        let mut command = match place {
            Place::Sandbox => world.sandbox(&["--report", &report.to_string_lossy()], &words),
            Place::Native => Command::new("env"),
        };
        if place == Place::Native {
            command.args(&words);
        }
        for (name, value) in client.env {
            command.env(name, fill(role, &[value]).concat());
        }
        command
    };
    let ended = match client.ends {
        Ends::Pair { server, client: other, ready } => {
            let mut server = Program::start(end("server", &fill("server", server)))?;
            let address = listening(&mut server, port, ready)?;
            let words: Vec<String> = fill("client", other)
                .iter()
                .map(|word| word.replace("{server}", &address))
                .collect();
            let ended = Program::start(end("client", &words))?.wait(PATIENCE * 3);
            let ended = match ended {
                Ok(ended) if ended.status == 0 => ended,
                Ok(ended) => bail!("{ended}\nand its server {}", server.describe()?),
                Err(error) => bail!("{error:#}\nand its server {}", server.describe()?),
            };
            // Some wait for the next client, until they are told to end.
            if !ends(&mut server)? {
                server.terminate()?;
                ends(&mut server)?;
            }
            ended
        }
        Ends::Ranks { launcher, rank } => {
            // Each rank in a sandbox of its own; the launcher is no RDMA program.
            let ranks: Vec<String> = (0..2)
                .flat_map(|number| {
                    let command = end(&format!("rank-{number}"), &fill("client", rank));
                    let program = command.get_program().to_string_lossy().into_owned();
                    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
                    let separator = (number > 0).then(|| ":".to_owned());
                    let one = ["-np", "1"].map(str::to_owned);
                    separator
                        .into_iter()
                        .chain(one)
                        .chain([program])
                        .chain(words)
                        .collect::<Vec<_>>()
                })
                .collect();
            let words = [fill("server", launcher), ranks].concat();
            let mut command = Command::new("env");
            command.args(&words);
            for (name, value) in client.env {
                command.env(name, fill("server", &[value]).concat());
            }
            exec::run(command, PATIENCE * 3)?
        }
    };
    finished(client, place, &ended, reports.path())
}

/// Whether a program ends within a while.
fn ends(program: &mut Program) -> Result<bool> {
    let mut left = Deadline::after(FAREWELL);
    while !program.has_ended()? {
        if left.is_over() {
            return Ok(false);
        }
        thread::sleep(exec::TICK);
    }
    Ok(true)
}

/// Waits until a server can be spoken with; gives the address that it tells, or that of this machine.
fn listening(server: &mut Program, port: u16, ready: Option<&str>) -> Result<String> {
    let mut deadline = Deadline::after(LISTEN);
    loop {
        let said = server.stdout_so_far()? + &server.stderr_so_far()?;
        match ready {
            Some(word) => {
                if let Some((_, rest)) = said.split_once(word) {
                    return Ok(rest.split_whitespace().next().unwrap_or_default().to_owned());
                }
            }
            None if world::is_listening(port) => return Ok("127.0.0.1".to_owned()),
            None => {}
        }
        if server.has_ended()? || deadline.is_over() {
            // What listens by the connection manager alone, nobody sees.
            return Ok("127.0.0.1".to_owned());
        }
        thread::sleep(exec::TICK);
    }
}

fn finished(client: &Client, place: Place, ended: &Ended, reports: &Path) -> Result<Run> {
    if ended.status != 0 || !ended.stdout.contains(client.says) {
        bail!("not {:?}: {ended}", client.says);
    }
    let mut run =
        Run { seconds: ended.took.as_secs_f64(), notifications: 0, requests: 0, files: 0 };
    if place == Place::Sandbox {
        for entry in fs::read_dir(reports)?.flatten() {
            let report = Report::read(&entry.path())?;
            run.notifications += report.notifications;
            run.files += report.sysfs_files;
            run.requests += report.executed;
        }
        if run.requests == 0 {
            bail!("the client has made no request of a device: {ended}");
        }
    }
    Ok(run)
}
