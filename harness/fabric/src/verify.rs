//! `verbgate fabric verify`: preflight, all pairs on all rails, then integrity.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;

use crate::connect::Mesh;
use crate::counters;
use crate::endpoint::Counts;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_INTERRUPTED;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::exchange::Fault;
use crate::exchange::INTERRUPTED;
use crate::exchange::Trouble;
use crate::findings;
use crate::findings::Finding;
use crate::hardware::TUNING;
use crate::hardware::Tuning;
use crate::options::Identity;
use crate::options::VerifyOptions;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::rail::Rail;
use crate::rendezvous::Link;
use crate::rendezvous::Table;
use crate::reopen;
use crate::reopen::Reopened;
use crate::report::PathReport;
use crate::session;
use crate::session::Session;
use crate::steps::rounds;

/// What all ranks hear from rank 0, which alone has the paths of all.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Summary {
    /// Ends of paths, and how many of them are bad.
    ends: usize,
    bad: usize,
    /// What the failed paths come to.
    causes: Vec<Finding>,
}

impl Summary {
    fn of(paths: &[PathReport]) -> Self {
        let bad = paths.iter().filter(|path| path.trouble.is_some()).count();
        Self { ends: paths.len(), bad, causes: findings::of(paths) }
    }

    /// Rank 0's, on each rank.
    fn agreed(self, rank: u32, link: &mut Link, patience: Duration) -> Result<Self, Error> {
        let brief = || {
            let causes = self.causes.iter().cloned().map(Finding::brief).collect();
            Self { causes, ..self }
        };
        let all = link.gather_quietly("outcome", &(rank == 0).then(brief), patience)?;
        let first = all.into_iter().next().flatten();
        Ok(first.filter(|_| rank != 0).unwrap_or(self))
    }
}

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct VerifyReport {
    table: Table,
    hash: String,
    strays: u64,
    tuning: Tuning,
    preflight: Vec<Check>,
    /// Of all ranks on rank 0, and of itself on each other.
    paths: Vec<PathReport>,
    #[serde(flatten)]
    outcome: Summary,
    /// Of all ranks, in their order.
    endpoints: Vec<Counts>,
    reopened: Option<Reopened>,
    /// Not all was tried.
    interrupted: bool,
    passed: bool,
}

/// Runs one rank; what to print, and the exit code.
pub(crate) fn run(args: &VerifyOptions, me: &Identity) -> Result<(String, u8), Error> {
    let Session { server, mut link, table, checks, sound, hardware } =
        Session::open(me, parameters(args))?;
    let (rank, ranks) = (me.rank, me.ranks);
    let mut report = VerifyReport {
        hash: link.hash(),
        strays: link.strays(),
        table,
        tuning: TUNING,
        preflight: checks,
        paths: Vec::new(),
        outcome: Summary::default(),
        endpoints: Vec::new(),
        reopened: None,
        interrupted: false,
        passed: false,
    };
    // All have the same checks before them, and so decide alike.
    if let Some(hardware) = hardware.filter(|_| sound) {
        let mut mesh = Mesh::new(rank, ranks, hardware);
        report.reopened = match args.reconnects {
            0 => None,
            times => Some(reopen::run(times, args.seed, me, &mut mesh, &mut link)?),
        };
        mesh.connect(&mut link, "connect", me.patience)?;
        let paths = paths(args, me, &mut mesh, &mut link)?;
        let wait = me.patience * ranks;
        let all =
            link.collect("verify", &paths, wait, |link, from, body| mesh.hear(link, from, body));
        report.interrupted = link.interrupt.has_come();
        match all {
            Ok(all) => {
                report.paths = all.unwrap_or(paths);
                // What the others find in their own paths alone is less than rank 0 does in all.
                let own = if rank == 0 { Summary::of(&report.paths) } else { Summary::default() };
                report.outcome = own.agreed(rank, &mut link, wait)?;
                report.endpoints = link.gather_quietly("endpoints", &mesh.counts(), me.patience)?;
                reopen::close(me, &mut mesh, &mut link, "close")?;
            }
            // The others do not end: what this rank has seen is better than nothing.
            Err(Error::Interrupted) => {
                report.outcome = Summary::of(&paths);
                report.paths = paths;
            }
            Err(error) => return Err(error),
        }
        report.passed = report.outcome.bad == 0 && !report.interrupted;
    }
    session::leave(link, server)?;
    if let (0, Some(file)) = (rank, &args.report) {
        session::save(&report, file)?;
    }
    let text = if args.common.json {
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    } else if rank == 0 {
        whole(&report)
    } else {
        own(&report, rank)
    };
    let code = match &report {
        VerifyReport { interrupted: true, .. } => EXIT_INTERRUPTED,
        VerifyReport { passed: true, .. } => 0,
        _ => EXIT_CHECK,
    };
    Ok((text, code))
}

/// What must be the same on all ranks.
fn parameters(args: &VerifyOptions) -> String {
    let sizes: Vec<String> = args.sizes.iter().map(usize::to_string).collect();
    let sizes = if sizes.is_empty() { "default".to_owned() } else { sizes.join(",") };
    let seed = args.seed.map_or_else(String::new, |seed| format!(" --seed {seed}"));
    format!("verify --sizes {sizes} --reconnects {}{seed}", args.reconnects)
}

/// All pairs on all rails; each rank has one partner at a time.
fn paths(
    args: &VerifyOptions,
    me: &Identity,
    mesh: &mut Mesh,
    link: &mut Link,
) -> Result<Vec<PathReport>, Error> {
    let mut reports = Vec::new();
    for partner in rounds(me.rank, me.ranks) {
        for rail in 0..mesh.hardware.len() {
            let of = |peer: &crate::connect::Peer| (peer.rank, peer.rail) == (partner, rail);
            let Some(peer) = mesh.peers.iter().position(of) else { continue };
            let patience = me.patience;
            let before = counted(mesh, rail);
            let mut exchange = Exchange { mesh, link, peer, patience, injection: args.inject };
            if exchange.link.interrupt.has_come() {
                exchange.give_up(INTERRUPTED)?;
                continue;
            }
            let (mut steps, mut bytes, mut trouble) = (0, 0, None);
            match exchange.run(&args.sizes) {
                Ok((s, b)) => (steps, bytes) = (s, b),
                Err(Fault::All(error)) => return Err(error),
                Err(Fault::Step(why)) => {
                    if !why.heard {
                        exchange.give_up(&why.words)?;
                    }
                    trouble = Some(why);
                }
            }
            let evidence = trouble
                .as_ref()
                .map(|_| counters::telling(counters::moved(&before, &counted(mesh, rail)), true))
                .unwrap_or_default();
            let (rank, peer) = (me.rank, partner);
            let state = Vec::new();
            reports.push(PathReport { rank, peer, rail, steps, bytes, trouble, evidence, state });
        }
    }
    Ok(reports)
}

pub(crate) fn counted(mesh: &Mesh, rail: usize) -> BTreeMap<String, u64> {
    mesh.hardware.get(rail).map(|hardware| counters::of(&hardware.rail)).unwrap_or_default()
}

/// What rank 0 prints.
fn whole(report: &VerifyReport) -> String {
    let VerifyReport { table, hash, strays, tuning, preflight, paths, .. } = report;
    let mut text = format!("rank table {hash}: {} ranks", table.entries.len());
    if *strays > 0 {
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, "; {strays} stray connections were dropped");
    }
    text.push('\n');
    text += &ranks(table, *tuning);
    for check in preflight {
        text += &line(check);
    }
    text += &reopened(report.reopened.as_ref());
    for PathReport { rank, peer, rail, steps, bytes, trouble, .. } in paths {
        match trouble {
            Some(Trouble { words, .. }) => {
                let _ = writeln!(text, "FAIL  rank {rank} with {peer}, rail {rail}: {words}");
            }
            // Each pair has two reports, and one is enough of what is well.
            None if rank < peer => {
                let _ = writeln!(
                    text,
                    "OK    rank {rank} with {peer}, rail {rail}: {steps} steps, {bytes} bytes, both \
                     ways"
                );
            }
            None => {}
        }
    }
    for cause in &report.outcome.causes {
        let _ = writeln!(text, "{cause}");
    }
    text + &verdict(report)
}

fn reopened(reopened: Option<&Reopened>) -> String {
    let Some(Reopened { times, seed, counted }) = reopened else { return String::new() };
    let by = match counted {
        Some(counted) => format!("by the kernel's count, too ({counted} times)"),
        None => "by this program's count; the kernel's is not to be had here".to_owned(),
    };
    format!(
        "OK    opened and closed {times} times, --seed {seed}: no queue pair is left over, {by}\n"
    )
}

/// All ranks and rails, and how hard queue pairs try.
pub(crate) fn ranks(table: &Table, tuning: Tuning) -> String {
    let mut text = String::new();
    for entry in &table.entries {
        let _ = writeln!(text, "rank {} on {}", entry.rank, entry.host);
        for (index, rail) in entry.rails.iter().enumerate() {
            let Rail { device, port, gid_index, gid, gid_type, .. } = rail;
            let mtu = rail.mtu_bytes();
            let _ = writeln!(
                text,
                "  rail {index}: {device}:{port}@{gid_index} {gid} {gid_type} MTU {mtu}"
            );
        }
    }
    let Tuning { min_rnr_timer, rnr_retry, timeout, retry_cnt } = tuning;
    let _ = writeln!(
        text,
        "queue pairs: min_rnr_timer {min_rnr_timer}, rnr_retry {rnr_retry}, timeout {timeout}, \
         retry_cnt {retry_cnt}"
    );
    text
}

pub(crate) fn line(check: &Check) -> String {
    let Check { rank, rail, check, verdict, detail, .. } = check;
    let verdict = match verdict {
        Verdict::Ok => "OK",
        Verdict::Fail => "FAIL",
        Verdict::Skip => "SKIP",
    };
    let rail = rail.map_or_else(String::new, |rail| format!(", rail {rail}"));
    format!("{verdict:<5} rank {rank}{rail}: {check}: {detail}\n")
}

/// What the other ranks print: what concerns them.
fn own(report: &VerifyReport, rank: u32) -> String {
    let mut text = format!("rank table {}: this is rank {rank}\n", report.hash);
    let failed = |check: &&Check| check.rank == rank && check.verdict == Verdict::Fail;
    report.preflight.iter().filter(failed).for_each(|check| text += &line(check));
    text + &verdict(report)
}

fn verdict(report: &VerifyReport) -> String {
    let failed = report.preflight.iter().filter(|check| check.verdict == Verdict::Fail).count();
    let Summary { ends: paths, bad: broken, .. } = report.outcome;
    if report.interrupted {
        return format!("verify: interrupted after {paths} ends of paths, {broken} of them bad\n");
    }
    if report.passed {
        return format!("verify: all is well: {paths} ends of paths\n");
    }
    match (failed, broken) {
        (0, broken) => format!("verify: FAILED: {broken} ends of paths\n"),
        (failed, 0) => format!("verify: FAILED: {failed} checks of the preflight\n"),
        _ => format!("verify: FAILED: {failed} checks, {broken} ends of paths\n"),
    }
}
