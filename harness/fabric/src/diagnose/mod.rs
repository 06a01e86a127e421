//! `verbgate fabric diagnose` names what is wrong with a fabric. Each rank checks its rails; the
//! ranks connect the sound rails and try them in rounds of disjoint pairs; and both ends look at
//! each failure once more, while the failure lasts.

mod trial;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use trial::Trial;

use crate::cause::Cause;
use crate::counters;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_INTERRUPTED;
use crate::error::EXIT_TIMEOUT;
use crate::error::Error;
use crate::exchange::Injection;
use crate::exchange::Trouble;
use crate::findings;
use crate::findings::Finding;
use crate::hardware::TUNING;
use crate::hardware::Tuning;
use crate::options;
use crate::options::DiagnoseOptions;
use crate::options::Identity;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::rail::Rail;
use crate::rendezvous::Link;
use crate::rendezvous::Table;
use crate::report::PathReport;
use crate::session;
use crate::session::Session;
use crate::verify;

/// Small, longer than any packet, and many packets: enough for each fault, and soon done.
const SIZES: &[usize] = &[1, 4099, 64 << 10];
/// How long a rank that has gone may take to come back: then it was restarted, not killed.
const RETURN: Duration = Duration::from_secs(5);

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct DiagnoseReport {
    table: Table,
    hash: String,
    strays: u64,
    tuning: Tuning,
    preflight: Vec<Check>,
    /// Of all ranks on rank 0, and of itself on each other.
    paths: Vec<PathReport>,
    causes: Vec<Finding>,
    /// Not when a rank was lost before the others were done: then the paths are this rank's own.
    complete: bool,
}

/// Runs one rank; what to print, and the exit code.
pub(crate) fn run(args: &DiagnoseOptions, me: &Identity) -> Result<(String, u8), Error> {
    let sizes = if args.sizes.is_empty() { SIZES.to_vec() } else { args.sizes.clone() };
    let parameters = format!("diagnose --sizes {}", options::sizes_text(&sizes));
    let lie = |rail: &mut Rail| {
        if args.inject == Some(Injection::RoceV1) {
            rail.gid_type = "IB/RoCE v1".to_owned();
        }
    };
    let Session { server, mut link, table, checks, hardware, .. } =
        Session::open_as(me, parameters, lie)?;
    let mut report = DiagnoseReport {
        hash: link.hash(),
        strays: link.strays(),
        table,
        tuning: TUNING,
        preflight: checks,
        paths: Vec::new(),
        causes: Vec::new(),
        complete: false,
    };
    let outcome = Trial { args, me, sizes }.run(&mut report, &mut link, hardware);
    let (causes, error) = match outcome {
        Ok(causes) => (causes, None),
        Err(error) => (None, Some(error)),
    };
    report.causes = causes.unwrap_or_else(|| findings::all(&report.preflight, &report.paths));
    let lost = error.map(|error| lost(error, &report, &mut link)).transpose()?;
    let code = lost.as_ref().map(|(_, code)| *code);
    let interrupted = link.interrupt.has_come();
    match lost {
        // What those saw who were left behind is no cause.
        Some((finding, _)) => report.causes = vec![finding],
        None => {
            report.complete = true;
            session::leave(link, server)?;
        }
    }
    report.causes.extend(strays(report.strays, &report.table));
    let wrong = report.causes.iter().any(|finding| finding.cause != Cause::StrayConnections);
    let hangs = report.causes.iter().any(|finding| finding.cause == Cause::PeerHangs);
    report.complete &= !interrupted;
    let code = code.unwrap_or(match (wrong, hangs) {
        _ if interrupted => EXIT_INTERRUPTED,
        (false, _) => 0,
        (true, true) => EXIT_TIMEOUT,
        (true, false) => EXIT_CHECK,
    });
    if let (0, Some(file)) = (me.rank, &args.report) {
        session::save(&report, file)?;
    }
    let text = if args.common.json {
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    } else {
        text(&report, me.rank)
    };
    Ok((text, code))
}

/// A rank that was lost is a cause; any other error is one of this rank.
fn lost(error: Error, report: &DiagnoseReport, link: &mut Link) -> Result<(Finding, u8), Error> {
    let host = |rank: u32| {
        let entry = report.table.entries.iter().find(|entry| entry.rank == rank);
        entry.map_or_else(String::new, |entry| format!(" on {}", entry.host))
    };
    let done = report.paths.iter().filter(|path| path.trouble.is_none()).count();
    let so_far = format!("this rank had finished {done} of its exchanges");
    let finding = |cause: Cause, what: String, ranks: &[u32]| Finding {
        cause,
        what,
        evidence: vec![error.to_string(), so_far],
        remedy: cause.remedy().to_owned(),
        ranks: ranks.iter().copied().collect(),
        rail: None,
    };
    match &error {
        Error::Gone { rank } | Error::Restarted { rank, .. } => {
            let restarted = matches!(error, Error::Restarted { .. }) || link.returns(*rank, RETURN);
            let (cause, what) = if restarted {
                let what = "was restarted while others were connected to the rank";
                (Cause::PeerRestarted, what)
            } else {
                (Cause::PeerKilled, "ended, killed or crashed, before the others were done")
            };
            let what = format!("rank {rank}{} {what}", host(*rank));
            Ok((finding(cause, what, &[*rank]), EXIT_CHECK))
        }
        Error::Missing { stage, ranks, seconds } => {
            let names: Vec<String> =
                ranks.iter().map(|rank| format!("rank {rank}{}", host(*rank))).collect();
            let names = names.join(", ");
            let what = format!("{names}: waited {seconds} s for it at \"{stage}\"");
            Ok((finding(Cause::PeerHangs, what, ranks), EXIT_TIMEOUT))
        }
        _ => Err(error),
    }
}

/// What does no harm, and is told.
fn strays(count: u64, table: &Table) -> Option<Finding> {
    let cause = Cause::StrayConnections;
    let what = format!(
        "{count} connections to the rendezvous were not of a rank (a port scanner, \
         monitoring, or another program) and were dropped"
    );
    let evidence = vec![format!("all of {} ranks have joined nevertheless", table.entries.len())];
    let (ranks, rail) = (BTreeSet::new(), None);
    let remedy = cause.remedy().to_owned();
    (count > 0).then_some(Finding { cause, what, evidence, remedy, ranks, rail })
}

/// What a rank prints: rank 0 all, the others what is wrong.
fn text(report: &DiagnoseReport, rank: u32) -> String {
    let DiagnoseReport { table, hash, tuning, preflight, paths, causes, .. } = report;
    let mut text = format!("rank table {hash}: {} ranks, this is {rank}\n", table.entries.len());
    if rank == 0 {
        text += &verify::ranks(table, *tuning);
    }
    let failed = preflight.iter().filter(|check| check.verdict == Verdict::Fail);
    for check in failed.filter(|check| rank == 0 || check.rank == rank) {
        text += &verify::line(check);
    }
    for PathReport { rank: from, peer, rail, steps, trouble, evidence, .. } in paths {
        let told = evidence.iter().filter(|(name, _)| counters::sign(name).is_some());
        let told: String = told.map(|(name, delta)| format!("; {name} +{delta}")).collect();
        // Writing to a string cannot fail, here and below.
        let _ = match trouble {
            Some(Trouble { words, .. }) if rank == 0 || *from == rank => {
                writeln!(text, "FAIL  rank {from} with {peer}, rail {rail}: {words}{told}")
            }
            // Each pair has two reports, and one is enough of what is well.
            None if rank == 0 && (from < peer || !told.is_empty()) => {
                writeln!(text, "OK    rank {from} with {peer}, rail {rail}: {steps} steps{told}")
            }
            _ => Ok(()),
        };
    }
    for cause in causes {
        let _ = writeln!(text, "{cause}");
    }
    let names: BTreeMap<Cause, &str> =
        causes.iter().map(|finding| (finding.cause, finding.cause.name())).collect();
    let wrong = names.keys().any(|cause| *cause != Cause::StrayConnections);
    let names = names.into_values().collect::<Vec<_>>().join(", ");
    text + &match (wrong, report.complete) {
        (false, true) => "diagnose: nothing is wrong\n".to_owned(),
        (false, false) => "diagnose: not finished\n".to_owned(),
        (true, true) => format!("diagnose: FOUND {names}\n"),
        (true, false) => format!("diagnose: FOUND {names}; the rest was not tried\n"),
    }
}
