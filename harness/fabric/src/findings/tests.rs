//! What is named, and what is not.

use super::*;

/// All paths between four ranks on two rails; those for which it says so are bad.
fn paths(bad: impl Fn(u32, u32, usize) -> Option<u32>) -> Tried {
    let mut paths = Vec::new();
    for rank in 0..4 {
        for peer in (0..4).filter(|peer| *peer != rank) {
            for rail in 0..2 {
                let status = bad(rank, peer, rail);
                let trouble = status.map(|status| Trouble {
                    status: Some(status),
                    words: "words".to_owned(),
                    cause: Some(Cause::of_status(status)),
                    ..Trouble::default()
                });
                let evidence = BTreeMap::from([("rcvd_rnr_err".to_owned(), 7)]);
                let path = PathReport::of(rank, peer, rail, trouble, evidence);
                paths.push(PathReport { rails: 2, ..path });
            }
        }
    }
    let rails = (0..4).flat_map(|rank| [0, 1].map(|rail| (rank, rail)));
    let tally = |(rank, rail)| Tally { rank, rail, tried: 3, ..Tally::default() };
    Tried { tallies: rails.map(tally).collect(), paths }
}

fn first(bad: impl Fn(u32, u32, usize) -> bool) -> Option<String> {
    let paths = paths(|a, b, rail| bad(a, b, rail).then_some(12));
    of(&paths).first().map(Finding::to_string)
}

#[test]
fn what_bad_paths_share_is_named() {
    assert_eq!(first(|_, _, _| false), None);
    let found = |place: &str, bad: &dyn Fn(u32, u32, usize) -> bool| {
        let first = first(bad).unwrap();
        assert!(first.starts_with(&format!("CAUSE nothing-arrives: {place}: ")), "{first}");
    };
    found("rank 2, with all others", &|a, b, _| a == 2 || b == 2);
    found("rail 1, of all ranks", &|_, _, rail| rail == 1);
    found("rail 1 of rank 3", &|a, b, r| r == 1 && (a == 3 || b == 3));
    found("the way between ranks 1 and 3", &|a, b, _| (a, b) == (1, 3));
    found("all paths of all ranks", &|_, _, _| true);
}

#[test]
fn an_error_is_laid_at_the_door_of_its_class() {
    let findings = of(&paths(|a, b, _| (a == 0 && b == 1).then_some(13)));
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    let text = finding.to_string();
    let begin = "CAUSE no-receives: rank 1: receiving application: RNR_RETRY_EXC_ERR: ";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("rcvd_rnr_err of rank 0, rail 0, rose by 7"), "{text}");
    assert!(text.contains("remedy: post receives"), "{text}");
}

#[test]
fn what_is_lost_without_an_error_and_what_has_changed_since_are_found() {
    let mut lossy = paths(|_, _, _| None);
    for path in &mut lossy.paths {
        if (path.rank, path.peer, path.rail) == (1, 2, 0) {
            path.evidence.insert("out_of_seq_request".to_owned(), 9);
        }
    }
    let [finding] = &of(&lossy)[..] else { panic!() };
    assert_eq!(finding.cause, Cause::PacketLoss);
    assert!(finding.what.starts_with("the way between ranks 1 and 2 on rail 0"));

    let mut changed = paths(|a, b, r| ((a, b, r) == (0, 1, 0)).then_some(12));
    let check = Check {
        rank: 0,
        rail: Some(0),
        check: "neighbours".to_owned(),
        verdict: Verdict::Fail,
        detail: "resolves to another".to_owned(),
        cause: Some(Cause::ArpFlux),
        peer: Some(1),
    };
    changed.paths.iter_mut().filter(|path| path.trouble.is_some()).for_each(|path| {
        path.state = vec![check.clone()];
    });
    let [finding] = &of(&changed)[..] else { panic!() };
    assert_eq!(finding.cause, Cause::ArpFlux);
    assert!(finding.evidence.iter().any(|line| line.contains("resolves to another")));
}

/// Only rank 0's gateway is gone: the path is dead for both, and rank 1 is innocent.
#[test]
fn a_gateway_that_went_away_is_laid_at_the_door_of_its_own_rank() {
    let mut gone = paths(|a, b, r| (a + b == 1 && r == 0).then_some(12));
    for path in gone.paths.iter_mut().filter(|path| path.trouble.is_some() && path.rank == 0) {
        path.state = vec![Check {
            rank: 0,
            rail: Some(0),
            check: "neighbours".to_owned(),
            verdict: Verdict::Fail,
            detail: "the gateway 10.0.0.254 of eth0 does not answer".to_owned(),
            cause: Some(Cause::NoNeighbour),
            peer: None,
        }];
    }
    let [finding] = &of(&gone)[..] else { panic!() };
    let text = finding.to_string();
    let begin = "CAUSE no-neighbour: rank 0: the gateway 10.0.0.254 of eth0 does not answer";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(finding.ranks, BTreeSet::from([0]));
}

#[test]
fn what_is_repeated_for_ever_does_not_arrive() {
    let mut stalled = paths(|a, b, r| ((a, b, r) == (0, 1, 0)).then_some(12));
    for path in stalled.paths.iter_mut().filter(|path| path.trouble.is_some()) {
        path.evidence = BTreeMap::from([("completer_retry_err".to_owned(), 36)]);
        path.trouble.iter_mut().for_each(|t| (t.status, t.cause) = (None, Some(Cause::Stall)));
    }
    for path in &mut stalled.paths {
        path.evidence.remove("rcvd_rnr_err");
    }
    let [finding] = &of(&stalled)[..] else { panic!() };
    assert_eq!(finding.cause, Cause::NothingArrives);
}

#[test]
fn failed_checks_are_one_cause_each_and_what_follows_is_evidence() {
    let check = |rank, rail, cause, detail: &str, peer| Check {
        rank,
        rail,
        check: "check".to_owned(),
        verdict: Verdict::Fail,
        detail: detail.to_owned(),
        cause: Some(cause),
        peer,
    };
    let checks = [
        check(0, Some(0), Cause::RailDown, "fa is up and has no carrier", None),
        check(1, Some(0), Cause::RailDown, "fb is set down", None),
        check(0, Some(0), Cause::NoNeighbour, "10.0.0.2 does not answer", Some(1)),
        check(2, None, Cause::MemlockTooSmall, "RLIMIT_MEMLOCK is 1", None),
        check(2, Some(0), Cause::MemlockTooSmall, "ibv_reg_mr failed", None),
    ];
    let found = all(&checks, &Tried::default(), Vec::new());
    let [memory, zero, one] = &found[..] else { panic!("{found:?}") };
    assert_eq!((memory.cause, one.cause), (Cause::MemlockTooSmall, Cause::RailDown));
    assert_eq!(zero.what, "rank 0: rail 0: fa is up and has no carrier");
    assert_eq!(one.what, "rank 1: rail 0: fb is set down");
    assert!(zero.evidence.iter().any(|line| line.starts_with("hence no-neighbour")));
    // Two ends of one cable see one fault.
    let two = all(&checks[..3], &Tried::default(), Vec::new());
    let [rail] = &two[..] else { panic!("{two:?}") };
    assert_eq!(rail.what, "rail 0: rank 1: fb is set down");
    assert!(rail.evidence.iter().any(|line| line.starts_with("hence no-neighbour")));
    // The one that differs is named, not those that are alike.
    let odd = [check(1, Some(0), Cause::MtuMismatch, "MTU is 1024", None)];
    let [mtu] = &all(&odd, &Tried::default(), Vec::new())[..] else { panic!() };
    assert!(mtu.what.ends_with("rail 0: rank 1: MTU is 1024"), "{}", mtu.what);
}
