//! `verbgate fabric diagnose`: what is wrong with a fabric, by name. Each rank looks at its rails;
//! what is sound there is connected and tried in rounds of disjoint pairs; and what fails is looked
//! at once more from both ends, while it fails.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde::Serialize;

use crate::fabric::cause::Cause;
use crate::fabric::connect::Mesh;
use crate::fabric::connect::Open;
use crate::fabric::counters;
use crate::fabric::diagnosis;
use crate::fabric::diagnosis::Finding;
use crate::fabric::error::EXIT_CHECK;
use crate::fabric::error::EXIT_INTERRUPTED;
use crate::fabric::error::EXIT_TIMEOUT;
use crate::fabric::error::Error;
use crate::fabric::exchange::Exchange;
use crate::fabric::exchange::Fault;
use crate::fabric::exchange::INTERRUPTED;
use crate::fabric::exchange::Injection;
use crate::fabric::exchange::Trouble;
use crate::fabric::hardware::Hardware;
use crate::fabric::hardware::TUNING;
use crate::fabric::hardware::Tuning;
use crate::fabric::options;
use crate::fabric::options::DiagnoseArgs;
use crate::fabric::options::Identity;
use crate::fabric::plan::rounds;
use crate::fabric::preflight;
use crate::fabric::preflight::Check;
use crate::fabric::preflight::Verdict;
use crate::fabric::rail::Rail;
use crate::fabric::rendezvous::Link;
use crate::fabric::rendezvous::Table;
use crate::fabric::session;
use crate::fabric::session::Session;
use crate::fabric::verify;
use crate::fabric::verify::PathReport;

/// Small, longer than any packet, and many packets: enough for each fault, and soon done.
const SIZES: &[usize] = &[1, 4099, 64 << 10];
/// How long connections may take. Neighbours and routes have been resolved before.
const CONNECT: Duration = Duration::from_secs(15);
/// `rnr_retry` of ibv_modify_qp(3).
const FOR_EVER: u8 = 7;
/// How long a rank that has gone may take to come back: then it was restarted, not killed.
const RETURN: Duration = Duration::from_secs(5);

/// All that is known in the end.
#[derive(Debug, Serialize)]
struct Report {
    table: Table,
    hash: String,
    strays: u64,
    tuning: Tuning,
    preflight: Vec<Check>,
    paths: Vec<PathReport>,
    causes: Vec<Finding>,
    /// Not when a rank was lost before the others were done: then the paths are this rank's own.
    complete: bool,
}

/// Runs one rank; what to print, and the exit code.
pub(crate) fn run(args: &DiagnoseArgs, me: &Identity) -> Result<(String, u8), Error> {
    let sizes = if args.sizes.is_empty() { SIZES.to_vec() } else { args.sizes.clone() };
    let parameters = format!("diagnose --sizes {}", options::sizes_text(&sizes));
    let lie = |rail: &mut Rail| {
        if args.inject == Some(Injection::RoceV1) {
            rail.gid_type = "IB/RoCE v1".to_owned();
        }
    };
    let Session { server, mut link, table, checks, hardware, .. } =
        Session::open_as(me, parameters, lie)?;
    let mut report = Report {
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
    report.causes = diagnosis::all(&report.preflight, &report.paths);
    let lost =
        outcome.map_or_else(|error| lost(error, &report, &mut link).map(Some), |()| Ok(None))?;
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
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        fs::write(file, text).map_err(|error| Error::Io {
            what: format!("cannot write the report {}", file.display()),
            error,
        })?;
    }
    let text = if args.common.json {
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    } else {
        text(&report, me.rank)
    };
    Ok((text, code))
}

/// What is tried, by one rank.
#[derive(Debug)]
struct Trial<'a> {
    args: &'a DiagnoseArgs,
    me: &'a Identity,
    sizes: Vec<usize>,
}

impl Trial<'_> {
    /// What was found so far is in the report, also when it ends with an error.
    fn run(
        &self,
        report: &mut Report,
        link: &mut Link,
        hardware: Option<Vec<Hardware>>,
    ) -> Result<(), Error> {
        let (rank, ranks, patience) = (self.me.rank, self.me.ranks, self.me.patience);
        // All have the same checks before them, and so leave out the same.
        let sound = Sound::new(&report.preflight);
        let mut mesh = Mesh::new(rank, ranks, hardware.unwrap_or_default());
        mesh.retain(|peer, rail| sound.path(rank, peer, rail));
        if self.args.inject == Some(Injection::Patient) {
            mesh.tuning.rnr_retry = FOR_EVER;
        }
        let open = mesh.connect_some(link, "connect", patience.min(CONNECT))?;
        self.exchanges(report, &mut mesh, link, &open)?;
        let wait = patience * ranks;
        let own = std::mem::take(&mut report.paths);
        report.paths = own.clone();
        let gathered =
            link.gather("diagnose", &own, wait, |link, from, body| mesh.hear(link, from, body));
        match gathered {
            Ok(gathered) => report.paths = gathered.into_iter().flatten().collect(),
            // The others do not end: what this rank has seen is better than nothing.
            Err(Error::Interrupted) => return Ok(()),
            Err(error) => return Err(error),
        }
        mesh.close(link, "close", patience)?;
        Ok(())
    }

    /// In each round a rank has one partner, so whatever moves on its rails is of that pair.
    fn exchanges(
        &self,
        report: &mut Report,
        mesh: &mut Mesh,
        link: &mut Link,
        open: &[(u32, Open)],
    ) -> Result<(), Error> {
        let rank = self.me.rank;
        for partner in rounds(rank, self.me.ranks) {
            for rail in 0..mesh.hardware.len() {
                let not = unconnected(open, rank, partner, rail);
                let of =
                    |peer: &crate::fabric::connect::Peer| (peer.rank, peer.rail) == (partner, rail);
                let Some(peer) = mesh.peers.iter().position(of) else { continue };
                let before = verify::counted(mesh, rail);
                let (mut steps, mut bytes) = (0, 0);
                let trouble = match not {
                    Some(trouble) => Some(trouble),
                    None => {
                        let (patience, injection) = (self.me.patience, self.args.inject);
                        let mut exchange = Exchange { mesh, link, peer, patience, injection };
                        if exchange.link.interrupt.has_come() {
                            exchange.give_up(INTERRUPTED)?;
                            continue;
                        }
                        match exchange.run(&self.sizes) {
                            Ok((s, b)) => {
                                (steps, bytes) = (s, b);
                                None
                            }
                            Err(Fault::All(error)) => return Err(error),
                            Err(Fault::Step(why)) => {
                                if !why.heard {
                                    exchange.give_up(&why.words)?;
                                }
                                Some(why)
                            }
                        }
                    }
                };
                let evidence = counters::moved(&before, &verify::counted(mesh, rail));
                let entry =
                    usize::try_from(partner).ok().and_then(|at| report.table.entries.get(at));
                let state = match (&trouble, mesh.hardware.get(rail), entry) {
                    (Some(_), Some(hardware), Some(entry)) => {
                        preflight::again(rank, rail, &hardware.rail, entry)
                    }
                    _ => Vec::new(),
                };
                let (rank, peer) = (rank, partner);
                let path = PathReport { rank, peer, rail, steps, bytes, trouble, evidence, state };
                report.paths.push(path);
            }
        }
        Ok(())
    }
}

/// A path that is not connected: what this end says of it, or that the other end says it.
fn unconnected(open: &[(u32, Open)], rank: u32, partner: u32, rail: usize) -> Option<Trouble> {
    let of = |(teller, open): &&(u32, Open)| {
        let pair = (*teller, open.peer);
        open.rail == rail && (pair == (rank, partner) || pair == (partner, rank))
    };
    let all: Vec<&(u32, Open)> = open.iter().filter(of).collect();
    let mine = all.iter().find(|(teller, _)| *teller == rank);
    let (teller, told) = mine.or(all.first())?;
    let heard = *teller != rank || (!told.failed && all.iter().any(|(_, open)| open.failed));
    let words = format!("cannot connect: {}", told.why);
    Some(Trouble { words, heard, cause: Some(Cause::CannotConnect), ..Trouble::default() })
}

/// Which paths passed the preflight.
#[derive(Debug)]
struct Sound {
    /// Ranks that have not all of their rails.
    ranks: BTreeSet<u32>,
    rails: BTreeSet<(u32, usize)>,
    pairs: BTreeSet<(u32, u32, usize)>,
}

impl Sound {
    fn new(checks: &[Check]) -> Self {
        let mut bad =
            Self { ranks: BTreeSet::new(), rails: BTreeSet::new(), pairs: BTreeSet::new() };
        for check in checks.iter().filter(|check| check.verdict == Verdict::Fail) {
            let opens = check.check == "device opens" || check.check == "memory registers";
            match (check.rail, check.peer) {
                (Some(rail), Some(peer)) => {
                    bad.pairs.insert((check.rank.min(peer), check.rank.max(peer), rail));
                }
                (Some(rail), None) if !opens => {
                    bad.rails.insert((check.rank, rail));
                }
                _ => {
                    bad.ranks.insert(check.rank);
                }
            }
        }
        bad
    }

    fn path(&self, a: u32, b: u32, rail: usize) -> bool {
        let good = |rank| !self.ranks.contains(&rank) && !self.rails.contains(&(rank, rail));
        good(a) && good(b) && !self.pairs.contains(&(a.min(b), a.max(b), rail))
    }
}

/// A rank that was lost is a cause; any other error is one of this rank.
fn lost(error: Error, report: &Report, link: &mut Link) -> Result<(Finding, u8), Error> {
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
                let what = "was restarted while the others were connected to it";
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
        "{count} connections to the rendezvous did not speak its language (a port scanner, \
         monitoring, or another program) and were dropped"
    );
    let evidence = vec![format!("all of {} ranks have joined in spite of it", table.entries.len())];
    let (ranks, rail) = (BTreeSet::new(), None);
    let remedy = cause.remedy().to_owned();
    (count > 0).then_some(Finding { cause, what, evidence, remedy, ranks, rail })
}

/// What a rank prints: rank 0 all, the others what is wrong.
fn text(report: &Report, rank: u32) -> String {
    let Report { table, hash, tuning, preflight, paths, causes, .. } = report;
    let mut text = format!("rank table {hash}: {} ranks, this is {rank}\n", table.entries.len());
    if rank == 0 {
        text += &verify::ranks(table, *tuning);
    }
    let failed = preflight.iter().filter(|check| check.verdict == Verdict::Fail);
    for check in failed.filter(|check| rank == 0 || check.rank == rank) {
        text += &verify::line(check);
    }
    for PathReport { rank: from, peer, rail, steps, trouble, .. } in paths {
        // Writing to a string cannot fail, here and below.
        let _ = match trouble {
            Some(Trouble { words, .. }) if rank == 0 || *from == rank => {
                writeln!(text, "FAIL  rank {from} with {peer}, rail {rail}: {words}")
            }
            None if rank == 0 && from < peer => {
                writeln!(text, "OK    rank {from} with {peer}, rail {rail}: {steps} steps")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_before_is_not_tried_and_the_rest_is() {
        let check = |rank, rail, name: &str, peer| Check {
            rank,
            rail,
            check: name.to_owned(),
            verdict: Verdict::Fail,
            detail: String::new(),
            cause: None,
            peer,
        };
        let sound = Sound::new(&[
            check(0, Some(1), "port active", None),
            check(1, Some(0), "neighbours", Some(2)),
            check(3, Some(0), "device opens", None),
            check(4, None, "rails symmetric", None),
        ]);
        assert!(!sound.path(0, 1, 1) && sound.path(0, 1, 0));
        assert!(!sound.path(2, 1, 0) && sound.path(2, 1, 1) && sound.path(2, 0, 0));
        assert!(!sound.path(3, 0, 1) && !sound.path(1, 4, 1));
    }

    #[test]
    fn of_a_path_that_is_not_connected_the_end_tells_where_a_verb_failed() {
        let open = |peer, failed| Open { peer, rail: 0, failed, why: "why".to_owned() };
        let both = [(0, open(1, false)), (1, open(0, true))];
        assert!(unconnected(&both, 0, 1, 0).unwrap().heard);
        assert!(!unconnected(&both, 1, 0, 0).unwrap().heard);
        assert!(unconnected(&both[1..], 0, 1, 0).unwrap().heard);
        assert_eq!(unconnected(&both, 0, 2, 0), None);
        assert_eq!(unconnected(&both, 0, 1, 1), None);
    }
}
