//! `verbgate fabric diagnose` names what is wrong with a fabric. Each rank checks its rails; the
//! ranks connect the sound rails and try them in rounds of disjoint pairs; and both ends look at
//! each failure once more, while the failure lasts.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::time::Duration;

use serde::Serialize;
use verbgate_host::dcb::Dcb;

use crate::cause::Cause;
use crate::class::Class;
use crate::connect::Mesh;
use crate::counters;
use crate::error::EXIT_CHECK;
use crate::error::EXIT_INTERRUPTED;
use crate::error::EXIT_TIMEOUT;
use crate::error::Error;
use crate::exchange::Trouble;
use crate::findings;
use crate::findings::Finding;
use crate::hardware::Tuning;
use crate::injection::Injection;
use crate::options;
use crate::options::DiagnoseOptions;
use crate::options::Identity;
use crate::outcome::Changes;
use crate::outcome::Outcome;
use crate::preflight::Check;
use crate::preflight::Verdict;
use crate::rail::Rail;
use crate::rendezvous::Loss;
use crate::rendezvous::Table;
use crate::report::PathReport;
use crate::report::Tally;
use crate::session;
use crate::session::Session;
use crate::trial;
use crate::trial::Trial;
use crate::trial::Tried;
use crate::verify;

/// `rnr_retry` of ibv_modify_qp(3).
const FOR_EVER: u8 = 7;
/// Small, longer than any packet, and many packets: enough for each fault, and soon done.
const SIZES: &[usize] = &[1, 4099, 64 << 10];
/// How long a rank that has gone may take to come back: then it was restarted, not killed.
const RETURN: Duration = Duration::from_secs(5);

/// Of documentation (RFC 3849): no route leads there, and none from a GID of IPv4.
const NOWHERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Another address of the same network.
fn silent(own: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(own) & !0xff | 250)
}

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct DiagnoseReport {
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
    causes: Vec<Finding>,
    /// Not when the command was interrupted: then the paths are this rank's own.
    complete: bool,
}

/// PFC for priority 3 alone, and each DSCP's priority by its three highest bits.
fn another_class() -> Dcb {
    Dcb { pfc: 1 << 3, dscp: (0..64).map(|dscp| (dscp, dscp >> 3)).collect() }
}

/// Runs one rank; what to print, and the exit code.
pub(crate) fn run(args: &DiagnoseOptions, me: &Identity) -> Result<(String, u8), Error> {
    let baseline = args.outputs.baseline(me.rank)?;
    let sizes = if args.sizes.is_empty() { SIZES.to_vec() } else { args.sizes.clone() };
    let (said, choosing) = (options::sizes_text(&sizes), args.choosing.text());
    let parameters = format!("diagnose --sizes {said}{choosing}{}", me.class.text());
    let lie = |rail: &mut Rail| match args.inject {
        Some(Injection::RoceV1) => rail.gid_type = "IB/RoCE v1".to_owned(),
        Some(Injection::Lossy) => rail.dcb = Some(another_class()),
        _ => {}
    };
    let needs = args.common.needs();
    let Session { server, mut link, table, checks, sound, mut hardware } =
        Session::open_as(me, parameters, needs, lie)?;
    match args.inject {
        Some(Injection::WrongAddress) => hardware.pretend(|_| NOWHERE),
        Some(Injection::SilentAddress) => hardware.pretend(silent),
        _ => {}
    }
    let mut mesh = Mesh::new(me.rank, me.ranks, hardware);
    mesh.cm = session::cm(me, args.inject);
    if args.inject == Some(Injection::Patient) {
        mesh.tuning.rnr_retry = FOR_EVER;
    }
    let (sizes, choosing, injection) = (&sizes, &args.choosing, args.inject);
    let trial = Trial { what: "diagnose", me, table: &table, sizes, injection, choosing };
    let rounds = match trial.plan() {
        Ok(rounds) => rounds,
        Err(error) => {
            session::leave(link, server)?;
            return Err(error);
        }
    };
    trial.leave_out(&mut mesh, &link, &sound, &rounds);
    let mut tried = Tried::default();
    let all = trial
        .run(&mut mesh, &mut link, rounds, &mut tried)
        .and_then(|()| trial.collect(&mut mesh, &mut link, &tried));
    let mut report = DiagnoseReport {
        hash: link.hash(),
        strays: link.strays(),
        tuning: mesh.tuning,
        class: me.class,
        preflight: checks,
        lost: BTreeMap::new(),
        tallies: Vec::new(),
        paths: Vec::new(),
        causes: Vec::new(),
        complete: true,
        table: table.clone(),
    };
    match all {
        Ok(all) => {
            if me.rank == 0 {
                link.await_returns(RETURN);
            }
            let whole = all.unwrap_or(tried);
            report.lost = link.lost.clone();
            let causes = match me.rank {
                0 => findings::all(&report.preflight, &whole, lost(&report.lost, &table)),
                _ => Vec::new(),
            };
            let brief: Vec<Finding> = causes.iter().cloned().map(Finding::brief).collect();
            let wait = trial::wait(me, &mesh) + RETURN;
            let told = link
                .gather("causes", &brief, wait, |link, from, body| mesh.hear(link, from, body))?;
            let told = told.into_iter().next().map(|(_, told)| told).filter(|_| me.rank != 0);
            report.causes = told.unwrap_or(causes);
            mesh.close(&mut link, "close", me.patience)?;
            (report.tallies, report.paths) = (whole.tallies, whole.paths);
        }
        // The others do not end: what this rank has seen is better than nothing.
        Err(Error::Interrupted) => {
            report.lost = link.lost.clone();
            report.causes = findings::all(&report.preflight, &tried, lost(&report.lost, &table));
            (report.tallies, report.paths) = (tried.tallies, tried.paths);
        }
        Err(error) => return Err(error),
    }
    report.complete = !link.interrupt.has_come();
    session::leave(link, server)?;
    report.causes.extend(strays(report.strays, &report.table));
    let wrong = report.causes.iter().any(|finding| finding.cause != Cause::StrayConnections);
    let hangs = report.causes.iter().any(|finding| finding.cause == Cause::PeerHangs);
    let code = match (wrong, hangs) {
        _ if !report.complete => EXIT_INTERRUPTED,
        (false, _) => 0,
        (true, true) => EXIT_TIMEOUT,
        (true, false) => EXIT_CHECK,
    };
    let changes = outputs(args, me, baseline.as_ref(), &report, wrong)?;
    if let (0, Some(file)) = (me.rank, &args.report) {
        session::save(&report, file)?;
    }
    let text = if args.common.json {
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    } else {
        text(&report, me.rank)
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
    args: &DiagnoseOptions,
    me: &Identity,
    baseline: Option<&Outcome>,
    report: &DiagnoseReport,
    wrong: bool,
) -> Result<Option<Changes>, Error> {
    if me.rank != 0 {
        return Ok(None);
    }
    let outcome = Outcome::new("diagnose", &report.table, !wrong && report.complete).tried(
        &report.tallies,
        &report.paths,
        &report.lost,
        &report.causes,
    );
    args.outputs.write(&outcome, baseline, 0.0)
}

/// Ranks that were lost, each as a cause.
pub(crate) fn lost(lost: &BTreeMap<u32, Loss>, table: &Table) -> Vec<Finding> {
    let finding = |(rank, why): (&u32, &Loss)| {
        let entry = table.entries.iter().find(|entry| entry.rank == *rank);
        let host = entry.map_or_else(String::new, |entry| format!(" on {}", entry.host));
        let (cause, what) = match why {
            Loss::Absent => (Cause::PeerAbsent, "did not come to the rendezvous"),
            Loss::Ended => {
                (Cause::PeerKilled, "ended, killed or crashed, before the others were done")
            }
            Loss::Restarted => {
                (Cause::PeerRestarted, "was restarted while others were connected to the rank")
            }
            Loss::Silent => (Cause::PeerHangs, "said nothing for as long as the others wait"),
        };
        Finding {
            cause,
            what: format!("rank {rank}{host} {what}"),
            evidence: vec![format!("rank {rank} {}", why.words())],
            remedy: cause.remedy().to_owned(),
            ranks: BTreeSet::from([*rank]),
            rail: None,
        }
    };
    lost.iter().map(finding).collect()
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
        text += &verify::ranks(table, *tuning, report.class);
    }
    let failed = preflight.iter().filter(|check| check.verdict == Verdict::Fail);
    for check in failed.filter(|check| rank == 0 || check.rank == rank) {
        text += &verify::line(check);
    }
    for PathReport { rank: from, peer, rail, trouble, evidence, .. } in paths {
        if rank != 0 && *from != rank {
            continue;
        }
        let told = evidence.iter().filter(|(name, _)| counters::sign(name).is_some());
        let told: String = told.map(|(name, delta)| format!("; {name} +{delta}")).collect();
        // Writing to a string cannot fail, here and below.
        let _ = match trouble {
            Some(Trouble { words, .. }) => {
                writeln!(text, "FAIL  rank {from} with {peer}, rail {rail}: {words}{told}")
            }
            None => writeln!(text, "OK    rank {from} with {peer}, rail {rail}{told}"),
        };
    }
    text += &verify::tallied(&report.tallies);
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
