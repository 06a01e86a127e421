//! A simulation of many ranks without verbs: the real rendezvous, and the real logic of endpoints,
//! with numbers in place of queue pairs. `cargo xtask bench` and a test use the simulation. The
//! ranks are threads of a process of their own, so that the memory of rank 0 can be told from
//! theirs.

mod cluster;
mod faults;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use serde::Deserialize;
use serde::Serialize;

use crate::endpoint::Action;
use crate::endpoint::Endpoint;
use crate::endpoint::Message;
use crate::endpoint::Sid;
use crate::endpoint::State;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::matrix;
use crate::options::SimulateOptions;
use crate::outcome::Outcome;
use crate::rail::Rail;
use crate::random;
use crate::rendezvous::Entry;
use crate::rendezvous::Hello;
use crate::rendezvous::Link;
use crate::rendezvous::Server;
use crate::rendezvous::VERSION;
use crate::steps::rounds;

const PATIENCE: Duration = Duration::from_secs(600);
/// By how many percent a value may change, as of a benchmark.
const TOLERANCE: f64 = 10.0;
/// How often time passes for an endpoint.
const TICK: Duration = Duration::from_millis(20);
/// Of a thread that is a rank: frames are parsed on it.
const STACK: usize = 512 << 10;
/// Descriptors of a rank, at its own end and at rank 0's.
const DESCRIPTORS: u64 = 4;

/// What is printed.
#[derive(Debug, Deserialize, Serialize)]
struct RankOutcome {
    ranks: u32,
    /// From the first rank's start until the last has the table, in milliseconds.
    table_ms: u128,
    /// Different hashes of the table: one, if all agree.
    hashes: usize,
    rounds: usize,
    /// Pairs of which both ends say that they are connected to each other's sessions.
    pairs: usize,
    connect_ms: u128,
    /// Queue pairs, if they were some, that were not of a connection in the end.
    left_over: usize,
    /// The most memory that rank 0's process had, and that of all other ranks, in KiB.
    server_kib: u64,
    ranks_kib: u64,
}

/// Both halves; what to print.
pub(crate) fn run(args: &SimulateOptions) -> Result<String, Error> {
    if let Some(file) = &args.outcome {
        // Pages of what was measured elsewhere.
        let outcome = Outcome::load(file)?;
        let baseline = args.outputs.baseline(0)?;
        let changes = args.outputs.write(&outcome, baseline.as_ref(), TOLERANCE)?;
        return Ok(
            matrix::text(&outcome) + &changes.map(|changes| changes.text()).unwrap_or_default()
        );
    }
    let needed = u64::from(args.ranks) * DESCRIPTORS + 64;
    verbgate_sys::process::raise_descriptor_limit();
    if verbgate_sys::process::descriptor_limit() < needed {
        return Err(Error::Usage(format!(
            "--ranks {}: this many ranks need {needed} descriptors: raise `ulimit -Hn`",
            args.ranks
        )));
    }
    if args.rails > 0 {
        return cluster::run(args);
    }
    let outcome = match &args.at {
        Some(at) => ranks(args, at)?,
        None => whole(args)?,
    };
    Ok(serde_json::to_string(&outcome).unwrap_or_default() + "\n")
}

/// Rank 0's half, which starts the others'.
fn whole(args: &SimulateOptions) -> Result<RankOutcome, Error> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |error| Error::Io { what, error }
    };
    let (server, at) = Server::start("127.0.0.1:0", args.ranks, PATIENCE)?;
    let program = std::env::current_exe().map_err(io("cannot find this program"))?;
    let mut command = Command::new(program);
    command.args(["fabric", "simulate", "--at", &at.to_string()]);
    command.args(["--ranks", &args.ranks.to_string(), "--rounds", &args.rounds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().map_err(io("cannot start the ranks"))?;
    let mut outcome: RankOutcome = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::Check(format!("the ranks failed: {error}")))?;
    server.finish();
    outcome.server_kib = most_memory();
    Ok(outcome)
}

/// Of this process, in KiB (`VmHWM`, proc_pid_status(5)).
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// What one rank has to say in the end.
#[derive(Debug)]
struct Done {
    hash: String,
    joined: Instant,
    /// Both sessions with each partner, own first.
    pairs: BTreeMap<u32, (Sid, Sid)>,
    left_over: usize,
}

/// The half of all ranks.
fn ranks(args: &SimulateOptions, at: &str) -> Result<RankOutcome, Error> {
    let began = Instant::now();
    let rank = |rank: u32| {
        let (at, ranks, rounds) = (at.to_owned(), args.ranks, args.rounds);
        let name = format!("rank {rank}");
        let work = move || one(&at, rank, ranks, rounds);
        thread::Builder::new().name(name).stack_size(STACK).spawn(work)
    };
    let started: Result<Vec<_>, _> = (0..args.ranks).map(rank).collect();
    let threads =
        started.map_err(|error| Error::Io { what: "cannot start a thread".into(), error })?;
    let ended = || Error::Check("a rank's thread ended".to_owned());
    let done: Result<Vec<Done>, Error> =
        threads.into_iter().map(|thread| thread.join().map_err(|_| ended())?).collect();
    let done = done?;
    let joined = done.iter().map(|done| done.joined).max().unwrap_or(began);
    let hashes: BTreeSet<&str> = done.iter().map(|done| &*done.hash).collect();
    let mut pairs = 0;
    for (rank, mine) in (0..).zip(&done) {
        for (partner, (own, theirs)) in &mine.pairs {
            let other = usize::try_from(*partner).ok().and_then(|index| done.get(index));
            let agreed = other.and_then(|other| other.pairs.get(&rank)) == Some(&(*theirs, *own));
            pairs += usize::from(agreed && rank < *partner);
        }
    }
    Ok(RankOutcome {
        ranks: args.ranks,
        table_ms: joined.duration_since(began).as_millis(),
        hashes: hashes.len(),
        rounds: args.rounds,
        pairs,
        connect_ms: joined.elapsed().as_millis(),
        left_over: done.iter().map(|done| done.left_over).sum(),
        server_kib: 0,
        ranks_kib: most_memory(),
    })
}

/// One rail, as long as a real one's entry.
fn entry(rank: u32) -> Entry {
    let rail = Rail {
        device: "mlx5_0".to_owned(),
        port: 1,
        gid_index: 3,
        gid: format!("::ffff:10.0.{}.{}", rank / 256, rank % 256),
        gid_type: "RoCE v2".to_owned(),
        netdev: Some("eth0".to_owned()),
        mac: Some(format!("02:00:00:00:{:02x}:{:02x}", rank / 256, rank % 256)),
        link_layer: "Ethernet".to_owned(),
        rate: "400 Gb/sec (4X NDR)".to_owned(),
        mtu: 5,
        active: true,
        ..Rail::default()
    };
    Entry { rank, host: format!("node{rank:04}"), rails: vec![rail] }
}

/// A rank's end of all its connections.
struct Simulated<'a> {
    link: &'a mut Link,
    began: Instant,
    ends: BTreeMap<u32, Endpoint<u64>>,
    /// Sessions that hold what would be a queue pair.
    live: BTreeSet<Sid>,
}

fn one(at: &str, rank: u32, ranks: u32, count: usize) -> Result<Done, Error> {
    let parameters = format!("simulate --rounds {count}");
    let hello = Hello { version: VERSION, rank, ranks, parameters, entry: entry(rank) };
    let mut link = Link::join(at, hello, PATIENCE, Arc::new(Interrupt::default()))?;
    let (hash, joined) = (link.hash(), Instant::now());
    // All have the table before the first connects: what follows is measured apart.
    link.gather_quietly("table", &hash, PATIENCE)?;
    let (ends, live) = (BTreeMap::new(), BTreeSet::new());
    let mut mine = Simulated { link: &mut link, began: Instant::now(), ends, live };
    for partner in rounds(rank, ranks).into_iter().take(count) {
        mine.connect(partner)?;
    }
    let Simulated { mut ends, mut live, began, .. } = mine;
    // Others may still want an answer.
    link.gather("connected", &(), PATIENCE, |link, from, body| {
        let mut mine = Simulated {
            link,
            began,
            ends: std::mem::take(&mut ends),
            live: std::mem::take(&mut live),
        };
        let heard = mine.hear(from, body);
        (ends, live) = (mine.ends, mine.live);
        heard
    })?;
    let pairs: BTreeMap<u32, (Sid, Sid)> =
        ends.iter().filter_map(|(partner, end)| Some((*partner, end.pair()?))).collect();
    let left_over = live.len() - pairs.len();
    link.leave()?;
    Ok(Done { hash, joined, pairs, left_over })
}

impl Simulated<'_> {
    fn connect(&mut self, partner: u32) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        self.act(partner, |end, now, fresh| end.start(now, fresh))?;
        while self.ends.get(&partner).is_none_or(|end| end.state() != State::Connected) {
            if Instant::now() >= deadline {
                let what = vec![format!("with rank {partner}")];
                return Err(Error::Unconnected { seconds: PATIENCE.as_secs(), what });
            }
            match self.link.receive(TICK)? {
                Some((from, body)) => self.hear(from, body)?,
                None => self.act(partner, |end, now, fresh| end.tick(now, fresh))?,
            }
        }
        Ok(())
    }

    fn hear(&mut self, from: u32, body: serde_json::Value) -> Result<(), Error> {
        let message: Message<u64> = serde_json::from_value(body)
            .map_err(|error| Error::Check(format!("a message of rank {from}: {error}")))?;
        let nonce = unique()?;
        self.act(from, |end, now, fresh| end.receive(message, now, fresh, nonce))
    }

    fn act(
        &mut self,
        partner: u32,
        act: impl FnOnce(
            &mut Endpoint<u64>,
            Duration,
            crate::endpoint::Fresh<'_, u64>,
        ) -> Vec<Action<u64>>,
    ) -> Result<(), Error> {
        let now = self.began.elapsed();
        let live = &mut self.live;
        let mut fresh = || {
            let sid = Sid(unique().ok()?);
            live.insert(sid);
            Some((sid, sid.0))
        };
        let end = self.ends.entry(partner).or_insert_with(Endpoint::new);
        let mut work = act(end, now, &mut fresh);
        while !work.is_empty() {
            let mut more = Vec::new();
            for action in work {
                match action {
                    Action::Send(message) => self.link.send(partner, &message)?,
                    Action::Join { theirs, qp, .. } if qp != theirs.0 => {
                        let what = "joined to another session's queue pair";
                        return Err(Error::Check(what.to_owned()));
                    }
                    Action::Join { .. } => {}
                    Action::Discard(sid) => {
                        self.live.remove(&sid);
                        let live = &mut self.live;
                        let mut fresh = || {
                            let sid = Sid(unique().ok()?);
                            live.insert(sid);
                            Some((sid, sid.0))
                        };
                        if let Some(end) = self.ends.get_mut(&partner) {
                            more.extend(end.discarded(sid, now, &mut fresh));
                        }
                    }
                }
            }
            work = more;
        }
        Ok(())
    }
}

fn unique() -> Result<u64, Error> {
    random::unique().map_err(|error| Error::Io { what: "/dev/urandom".to_owned(), error })
}
