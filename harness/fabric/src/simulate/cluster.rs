//! A simulated cluster with faults: the real rendezvous, checks of what ranks say, rounds, reports
//! and findings, and the plan of a benchmark. Rank 0 is this process, and a second process is all
//! others.

use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use serde::Serialize;

use super::faults::SimulatedFault;
use super::most_memory;
use crate::bench;
use crate::bench::BenchOptions;
use crate::diagnose;
use crate::error::Error;
use crate::findings;
use crate::findings::Finding;
use crate::interrupt::Interrupt;
use crate::options::SimulateOptions;
use crate::outcome::Outcome;
use crate::preflight;
use crate::preflight::Check;
use crate::rail::Rail;
use crate::rendezvous::Entry;
use crate::rendezvous::Hello;
use crate::rendezvous::Link;
use crate::rendezvous::Server;
use crate::rendezvous::Table;
use crate::rendezvous::VERSION;
use crate::report::PathReport;
use crate::report::Tally;
use crate::simulate::PATIENCE;
use crate::simulate::STACK;
use crate::sound::Failed;
use crate::sound::Sound;
use crate::steps::rounds;
use crate::trial::Tried;

/// What is printed.
#[derive(Debug, Serialize)]
struct ClusterOutcome {
    ranks: u32,
    rails: usize,
    /// Ends of paths that were tried.
    ends: usize,
    bad: usize,
    causes: Vec<Finding>,
    /// What a benchmark of this cluster would do.
    plan: String,
    /// From the begin to this point, in milliseconds.
    table_ms: u128,
    collected_ms: u128,
    found_ms: u128,
    /// The most memory that rank 0's process had, in KiB.
    server_kib: u64,
}

/// Both halves of a cluster; what to print.
pub(super) fn run(args: &SimulateOptions) -> Result<String, Error> {
    let faults: Result<Vec<SimulatedFault>, String> =
        args.faults.iter().map(|fault| fault.parse()).collect();
    let faults = faults.map_err(Error::Usage)?;
    if let Some(at) = &args.at {
        others(args, at, &faults)?;
        return Ok(String::new());
    }
    let began = Instant::now();
    let io = |what: &str| {
        let what = what.to_owned();
        move |error| Error::Io { what, error }
    };
    let (server, at) = Server::start("127.0.0.1:0", args.ranks, PATIENCE)?;
    let program = std::env::current_exe().map_err(io("cannot find this program"))?;
    let mut command = Command::new(program);
    command.args(["fabric", "simulate", "--at", &at.to_string()]);
    command.args(["--ranks", &args.ranks.to_string(), "--rails", &args.rails.to_string()]);
    command.args(args.faults.iter().flat_map(|fault| ["--fault", fault]));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut others = command.spawn().map_err(io("cannot start the ranks"))?;
    let outcome = zero(args, &at.to_string(), &faults, began);
    if outcome.is_err() {
        let _ = others.kill();
    }
    others.wait().map_err(io("cannot wait for the ranks"))?;
    let outcome = outcome?;
    server.finish();
    Ok(serde_json::to_string(&outcome).unwrap_or_default() + "\n")
}

/// What rank 0 makes of it.
fn zero(
    args: &SimulateOptions,
    at: &str,
    faults: &[SimulatedFault],
    began: Instant,
) -> Result<ClusterOutcome, Error> {
    let mut link = join(args, at, 0, faults)?;
    let table = link.table()?;
    let table_ms = began.elapsed().as_millis();
    let Some((checks, tried)) = take_part(args, &mut link, &table, 0, faults)? else {
        return Err(Error::Check("rank 0 has not heard of the others".to_owned()));
    };
    let collected_ms = began.elapsed().as_millis();
    let causes = findings::all(&checks, &tried, diagnose::lost(&link.lost, &table));
    let plan = bench::plan_words(&BenchOptions::default(), args.ranks, &table)?;
    let passed = causes.is_empty();
    let (tallies, paths) = (&tried.tallies, &tried.paths);
    let view = Outcome::new("diagnose", &table, passed).tried(tallies, paths, &link.lost, &causes);
    args.outputs.write(&view, None, 0.0)?;
    let outcome = ClusterOutcome {
        ranks: args.ranks,
        rails: args.rails,
        ends: tried.tallies.iter().map(|tally| tally.tried).sum(),
        bad: tried.paths.iter().filter(|path| path.trouble.is_some()).count(),
        causes,
        plan,
        table_ms,
        collected_ms,
        found_ms: began.elapsed().as_millis(),
        server_kib: most_memory(),
    };
    link.leave()?;
    Ok(outcome)
}

/// All ranks but rank 0, each a thread.
fn others(args: &SimulateOptions, at: &str, faults: &[SimulatedFault]) -> Result<(), Error> {
    let rank = |rank: u32| {
        let (args, at, faults) = (args.clone(), at.to_owned(), faults.to_vec());
        let work = move || -> Result<(), Error> {
            let mut link = join(&args, &at, rank, &faults)?;
            let table = link.table()?;
            let gone = |fault: &SimulatedFault| fault.lost().is_some_and(|(of, _)| of == rank);
            if faults.iter().any(gone) {
                link.vanish();
                return Ok(());
            }
            take_part(&args, &mut link, &table, rank, &faults)?;
            link.leave()
        };
        thread::Builder::new().name(format!("rank {rank}")).stack_size(STACK).spawn(work)
    };
    let started: Result<Vec<_>, _> = (1..args.ranks).map(rank).collect();
    let threads =
        started.map_err(|error| Error::Io { what: "cannot start a thread".into(), error })?;
    let ended = || Error::Check("a rank's thread ended".to_owned());
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| ended())?)
}

fn join(
    args: &SimulateOptions,
    at: &str,
    rank: u32,
    faults: &[SimulatedFault],
) -> Result<Link, Error> {
    let entry = entry(rank, args.rails, faults);
    let parameters = format!("simulate --rails {}", args.rails);
    let hello = Hello { version: VERSION, rank, ranks: args.ranks, parameters, entry };
    Link::join(at, hello, PATIENCE, Arc::new(Interrupt::default()))
}

/// One rank's part, from the checks to the report; on rank 0 what all found.
fn take_part(
    args: &SimulateOptions,
    link: &mut Link,
    table: &Table,
    rank: u32,
    faults: &[SimulatedFault],
) -> Result<Option<(Vec<Check>, Tried)>, Error> {
    let me = entry(rank, args.rails, faults);
    let mine = checks(&me, table, args.ranks, faults);
    let all = link.collect_quietly("preflight", &mine, PATIENCE)?;
    let failed = link.gather_quietly("failed checks", &Failed::of(&mine), PATIENCE)?;
    let sound = Sound::new(&failed);
    let tried = tried(rank, args.ranks, args.rails, faults, &|peer, rail| {
        link.has(peer) && sound.path(rank, peer, rail)
    });
    let tallies = link.collect_quietly("tallies", &tried.tallies, PATIENCE)?;
    let paths = link.collect_quietly("diagnose", &tried.paths, PATIENCE)?;
    let whole = tallies.zip(paths).map(|(tallies, paths)| Tried { tallies, paths });
    Ok(all.zip(whole))
}

/// All checks of one rank.
pub(super) fn checks(
    me: &Entry,
    table: &Table,
    ranks: u32,
    faults: &[SimulatedFault],
) -> Vec<Check> {
    let mut checks = preflight::of_table(me, table);
    checks.extend(faults.iter().flat_map(|fault| fault.checks(me, ranks)));
    checks
}

/// A node's entry, with what faults change of it.
pub(super) fn entry(rank: u32, rails: usize, faults: &[SimulatedFault]) -> Entry {
    let (high, low) = (rank / 256, rank % 256);
    let rail = |index: usize| Rail {
        device: format!("mlx5_{index}"),
        port: 1,
        gid_index: 3,
        gid: format!("::ffff:10.{index}.{high}.{low}"),
        gid_type: "RoCE v2".to_owned(),
        netdev: Some(format!("eth{index}")),
        mac: Some(format!("02:00:00:{index:02x}:{high:02x}:{low:02x}")),
        link_layer: "Ethernet".to_owned(),
        rate: "400 Gb/sec (4X NDR)".to_owned(),
        mtu: 5,
        active: true,
        ..Rail::default()
    };
    let mut entry =
        Entry { rank, host: format!("node{rank:04}"), rails: (0..rails).map(rail).collect() };
    faults.iter().for_each(|fault| fault.change(&mut entry));
    entry
}

/// What one rank finds on all its paths.
pub(super) fn tried(
    rank: u32,
    ranks: u32,
    rails: usize,
    faults: &[SimulatedFault],
    sound: &dyn Fn(u32, usize) -> bool,
) -> Tried {
    let mut tried = Tried::default();
    let tallies = (0..rails).map(|rail| Tally { rank, rail, ..Tally::default() });
    tried.tallies = tallies.collect();
    for peer in rounds(rank, ranks) {
        let on: Vec<usize> = (0..rails).filter(|rail| sound(peer, *rail)).collect();
        for rail in &on {
            let Some(tally) = tried.tallies.get_mut(*rail) else { continue };
            tally.tried += 1;
            // Whoever hangs tells nothing.
            if faults.iter().any(|fault| fault.hangs(rank, *rail)) {
                continue;
            }
            let of = |fault: &SimulatedFault| Some((fault.cause, fault.path(rank, peer, *rail)?));
            // Of two faults of one path the harder one shows, and of two hard ones what explains others.
            let worst = faults
                .iter()
                .filter_map(of)
                .min_by_key(|(cause, (trouble, _))| (trouble.is_none(), *cause));
            let Some((_, (trouble, evidence))) = worst else {
                tally.good += 1;
                continue;
            };
            let (rail, rails, state) = (*rail, on.len(), Vec::new());
            tried.paths.push(PathReport { rank, peer, rail, rails, trouble, evidence, state });
        }
    }
    tried
}
