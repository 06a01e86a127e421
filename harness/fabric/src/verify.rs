//! `verbgate fabric verify`: preflight, all pairs on all rails, then integrity.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;

use crate::class::Class;
use crate::connect::Mesh;
use crate::endpoint::Counts;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_INTERRUPTED;
use crate::error::EXIT_TIMEOUT;
use crate::error::Error;
use crate::exchange::Trouble;
use crate::findings;
use crate::findings::Finding;
use crate::hardware::TUNING;
use crate::hardware::Tuning;
use crate::options::Identity;
use crate::options::VerifyOptions;
use crate::outcome::Changes;
use crate::outcome::Outcome;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::rail::Rail;
use crate::rendezvous::Link;
use crate::rendezvous::Loss;
use crate::rendezvous::Table;
use crate::reopen;
use crate::reopen::Reopened;
use crate::report::PathReport;
use crate::report::Tally;
use crate::session;
use crate::session::Session;
use crate::trial;
use crate::trial::Trial;
use crate::trial::Tried;

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
    fn of(tried: &Tried) -> Self {
        let ends = tried.tallies.iter().map(|tally| tally.tried).sum();
        let bad = tried.paths.iter().filter(|path| path.trouble.is_some()).count();
        Self { ends, bad, causes: findings::of(tried) }
    }

    /// Rank 0's, on each rank.
    fn agreed(self, rank: u32, link: &mut Link, patience: Duration) -> Result<Self, Error> {
        let brief = || {
            let causes = self.causes.iter().cloned().map(Finding::brief).collect();
            Self { causes, ..self }
        };
        let all = link.gather_quietly("outcome", &(rank == 0).then(brief), patience)?;
        let first = all.into_iter().next().and_then(|(_, first)| first);
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
    class: Class,
    preflight: Vec<Check>,
    /// Ranks that the others went on without.
    lost: BTreeMap<u32, Loss>,
    /// Of all ranks on rank 0, and of itself on each other.
    tallies: Vec<Tally>,
    paths: Vec<PathReport>,
    #[serde(flatten)]
    outcome: Summary,
    /// Of all ranks that are there.
    endpoints: BTreeMap<u32, Counts>,
    reopened: Option<Reopened>,
    /// Not all was tried.
    interrupted: bool,
    passed: bool,
}

/// Runs one rank; what to print, and the exit code.
pub(crate) fn run(args: &VerifyOptions, me: &Identity) -> Result<(String, u8), Error> {
    let baseline = args.outputs.baseline(me.rank)?;
    let needs = args.common.needs();
    let Session { server, mut link, table, checks, sound, hardware } =
        Session::open(me, parameters(args) + &args.choosing.text() + &me.class.text(), needs)?;
    let mut report = VerifyReport {
        hash: link.hash(),
        strays: link.strays(),
        table,
        tuning: TUNING,
        class: me.class,
        preflight: checks,
        lost: BTreeMap::new(),
        tallies: Vec::new(),
        paths: Vec::new(),
        outcome: Summary::default(),
        endpoints: BTreeMap::new(),
        reopened: None,
        interrupted: false,
        passed: false,
    };
    let mut mesh = Mesh::new(me.rank, me.ranks, hardware);
    mesh.cm = session::cm(me, args.inject);
    let table = report.table.clone();
    let (sizes, injection) = (&args.sizes, args.inject);
    let choosing = &args.choosing;
    let trial = Trial { what: "verify", me, table: &table, sizes, injection, choosing };
    let rounds = match trial.plan() {
        Ok(rounds) => rounds,
        Err(error) => {
            session::leave(link, server)?;
            return Err(error);
        }
    };
    trial.leave_out(&mut mesh, &link, &sound, &rounds);
    report.reopened = match args.reconnects {
        0 => None,
        times => Some(reopen::run(times, args.seed, me, &mut mesh, &mut link)?),
    };
    let mut tried = Tried::default();
    trial.run(&mut mesh, &mut link, rounds, &mut tried)?;
    let all = trial.collect(&mut mesh, &mut link, &tried);
    report.interrupted = link.interrupt.has_come();
    match all {
        Ok(all) => {
            let whole = all.unwrap_or(tried);
            // What the others find in their own paths alone is less than rank 0 does in all.
            let own = if me.rank == 0 { Summary::of(&whole) } else { Summary::default() };
            report.outcome = own.agreed(me.rank, &mut link, trial::wait(me, &mesh))?;
            report.endpoints = link.gather_quietly("endpoints", &mesh.counts(), me.patience)?;
            reopen::close(me, &mut mesh, &mut link, "close")?;
            (report.tallies, report.paths) = (whole.tallies, whole.paths);
        }
        // The others do not end: what this rank has seen is better than nothing.
        Err(Error::Interrupted) => {
            report.outcome = Summary::of(&tried);
            (report.tallies, report.paths) = (tried.tallies, tried.paths);
        }
        Err(error) => return Err(error),
    }
    report.lost = link.lost.clone();
    let well = report.outcome.bad == 0 && report.lost.is_empty() && sound.is_whole();
    report.passed = well && !report.interrupted;
    session::leave(link, server)?;
    let changes = outputs(args, me, baseline.as_ref(), &report)?;
    if let (0, Some(file)) = (me.rank, &args.report) {
        session::save(&report, file)?;
    }
    let text = if args.common.json {
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    } else if me.rank == 0 {
        whole(&report)
    } else {
        own(&report, me.rank)
    };
    let hangs = report.lost.values().any(|why| *why == Loss::Silent);
    let code = match &report {
        VerifyReport { interrupted: true, .. } => EXIT_INTERRUPTED,
        VerifyReport { passed: true, .. } => 0,
        _ if hangs => EXIT_TIMEOUT,
        _ => EXIT_CHECK,
    };
    // JSON is one document, and has none of this.
    let changes = changes.filter(|_| !args.common.json);
    let code = if code == 0 && changes.as_ref().is_some_and(|c| !c.worse.is_empty()) {
        EXIT_CHECK
    } else {
        code
    };
    Ok((text + &changes.map_or_else(String::new, |changes| changes.text()), code))
}

/// Writes what is asked for beside what is printed; what has changed since the baseline.
fn outputs(
    args: &VerifyOptions,
    me: &Identity,
    baseline: Option<&Outcome>,
    report: &VerifyReport,
) -> Result<Option<Changes>, Error> {
    if me.rank != 0 {
        return Ok(None);
    }
    let outcome = Outcome::new("verify", &report.table, report.passed).tried(
        &report.tallies,
        &report.paths,
        &report.lost,
        &report.outcome.causes,
    );
    args.outputs.write(&outcome, baseline, 0.0)
}

/// What must be the same on all ranks.
fn parameters(args: &VerifyOptions) -> String {
    let sizes: Vec<String> = args.sizes.iter().map(usize::to_string).collect();
    let sizes = if sizes.is_empty() { "default".to_owned() } else { sizes.join(",") };
    let seed = args.seed.map_or_else(String::new, |seed| format!(" --seed {seed}"));
    format!("verify --sizes {sizes} --reconnects {}{seed}", args.reconnects)
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
    text += &ranks(table, *tuning, report.class);
    for check in preflight {
        text += &line(check);
    }
    text += &reopened(report.reopened.as_ref());
    text += &lost(&report.lost);
    for PathReport { rank, peer, rail, trouble, .. } in paths {
        if let Some(Trouble { words, .. }) = trouble {
            let _ = writeln!(text, "FAIL  rank {rank} with {peer}, rail {rail}: {words}");
        }
    }
    text += &tallied(&report.tallies);
    for cause in &report.outcome.causes {
        let _ = writeln!(text, "{cause}");
    }
    text + &verdict(report)
}

/// Ranks that the others went on without.
pub(crate) fn lost(lost: &BTreeMap<u32, Loss>) -> String {
    let line = |(rank, why): (&u32, &Loss)| {
        format!("FAIL  rank {rank} {}: read that rank's output\n", why.words())
    };
    lost.iter().map(line).collect()
}

/// What each rank has found to be well.
pub(crate) fn tallied(tallies: &[Tally]) -> String {
    let mut ranks: BTreeMap<u32, Tally> = BTreeMap::new();
    for Tally { rank, tried, good, steps, bytes, .. } in tallies {
        let all = ranks.entry(*rank).or_default();
        (all.tried, all.good) = (all.tried + tried, all.good + good);
        (all.steps, all.bytes) = (all.steps + steps, all.bytes + bytes);
    }
    let line = |(rank, of): (&u32, &Tally)| {
        let Tally { tried, good, steps, bytes, .. } = of;
        let verdict = if tried == good { "OK" } else { "FAIL" };
        format!(
            "{verdict:<5} rank {rank}: {good} of {tried} paths are well: {steps} steps, {bytes} \
             bytes, both ways\n"
        )
    };
    ranks.iter().filter(|(_, of)| of.tried > 0).map(line).collect()
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
pub(crate) fn ranks(table: &Table, tuning: Tuning, class: Class) -> String {
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
    if class != Class::default() {
        let _ = writeln!(text, "class:{}, DSCP {}", class.text(), class.dscp());
    }
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
    if let (0, 0, gone @ 1..) = (failed, broken, report.lost.len()) {
        return format!(
            "verify: FAILED: {gone} ranks were lost, and the others' {paths} ends of paths are well\n"
        );
    }
    match (failed, broken) {
        (0, broken) => format!("verify: FAILED: {broken} ends of paths\n"),
        (failed, 0) => format!("verify: FAILED: {failed} checks of the preflight\n"),
        _ => format!("verify: FAILED: {failed} checks, {broken} ends of paths\n"),
    }
}
