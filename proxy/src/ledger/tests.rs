//! Ledgers of tenants with several sandboxes, of which some end without a word.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::shared::LONGEST;
use super::*;

fn qp(count: u64) -> Amounts {
    Amounts::of(Resource::Qp, count)
}

fn bound(resource: Resource) -> Option<u64> {
    (resource == Resource::Qp).then_some(4)
}

#[test]
fn a_bound_is_met_and_what_is_given_back_can_be_had_again() {
    let ledger = Ledger::default();
    ledger.charge(&qp(3), &bound).unwrap();
    let refused = ledger.charge(&qp(2), &bound).unwrap_err();
    let refusal = refused.refusal("CREATE_QP");
    assert_eq!(refusal.errno, Errno::EAGAIN);
    for word in ["3 of 4", "quota.qp = 4", "raise the quota"] {
        assert!(refusal.line.contains(word), "{}", refusal.line);
    }
    ledger.charge(&Amounts::of(Resource::Pd, 1000), &bound).unwrap();
    ledger.release(&qp(3));
    ledger.charge(&qp(4), &bound).unwrap();
    assert_eq!(ledger.held().get(Resource::Qp), 4);
    let memory = OverQuota { resource: Resource::MrBytes, ..refused };
    assert_eq!(memory.refusal("REG_MR").errno, Errno::ENOMEM);
}

#[test]
fn all_sandboxes_of_a_tenant_have_one_bound_and_another_tenant_has_its_own() {
    let root = tempfile::tempdir().unwrap();
    let open = |tenant: &str| Ledger::open(root.path(), tenant).unwrap();
    let (one, two, other) = (open("team/a"), open("team/a"), open("team/b"));
    one.charge(&qp(3), &bound).unwrap();
    other.charge(&qp(4), &bound).unwrap();
    assert_eq!(two.charge(&qp(2), &bound).unwrap_err().used, 3);
    two.charge(&qp(1), &bound).unwrap();
    one.release(&qp(1));
    two.charge(&qp(1), &bound).unwrap();
    assert!(two.charge(&qp(1), &bound).is_err());
    // As when its supervisor is killed: nobody gives anything back.
    drop(one);
    two.charge(&qp(2), &bound).unwrap();
    // Its record is the next one's, who holds nothing yet.
    let three = open("team/a");
    assert!(three.charge(&qp(1), &bound).is_err());
    drop(two);
    three.charge(&qp(4), &bound).unwrap();
    assert!(Ledger::open(root.path(), &"x".repeat(LONGEST + 1)).is_err());
}

#[test]
fn supervisors_that_charge_at_once_never_hold_more_than_the_bound() {
    let root = tempfile::tempdir().unwrap();
    let open = || Arc::new(Ledger::open(root.path(), "busy").unwrap());
    let ledgers = [open(), open(), open()];
    let most = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for ledger in ledgers.iter().chain(&ledgers) {
            scope.spawn(|| {
                for _ in 0..200 {
                    if ledger.charge(&qp(1), &bound).is_ok() {
                        let order = std::sync::atomic::Ordering::SeqCst;
                        let now = most.fetch_add(1, order) + 1;
                        assert!(now <= 4, "{now}");
                        most.fetch_sub(1, order);
                        ledger.release(&qp(1));
                    }
                }
            });
        }
    });
    assert!(ledgers.iter().all(|ledger| ledger.held() == Amounts::default()));
}

#[test]
fn requests_beyond_the_burst_come_as_often_as_the_rate_says() {
    let root = tempfile::tempdir().unwrap();
    for ledger in [Ledger::default(), Ledger::open(root.path(), "one").unwrap()] {
        let pace = Pace { per_s: 10, burst: 5, waits: false };
        let start = Duration::from_secs(7);
        let go = |at: Duration| (0..20).filter(|_| ledger.may_go(None, &pace, start + at)).count();
        assert_eq!(go(Duration::ZERO), 5);
        assert_eq!(go(Duration::from_millis(300)), 3);
        assert_eq!(go(Duration::from_secs(60)), 5);
        let class = Some(VerbClass::Memory);
        assert!(ledger.may_go(class, &pace, start), "a class has tokens of its own");
    }
}

#[test]
fn tokens_that_were_taken_before_the_tenant_was_hot_are_none_after() {
    let root = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(root.path(), "one").unwrap();
    let [cold, hot] = [1000, 1].map(|per_s| Pace { per_s, burst: per_s, waits: false });
    let now = Duration::from_secs(7);
    // The fourth takes tokens for the next ones, too.
    assert!((0..4).all(|_| ledger.may_go(None, &cold, now)));
    assert!(ledger.may_go(None, &hot, now));
    assert!((0..4).all(|_| !ledger.may_go(None, &hot, now)));
    assert!(!ledger.may_go(None, &cold, now), "the bucket was cut to the burst of the hot");
    assert!(ledger.may_go(None, &cold, now + Duration::from_millis(5)));
}

/// Requests of sandboxes at times, in the order of time: which of them may go.
fn admitted(ledgers: &[Ledger], pace: &Pace, asked: &[(usize, u64)]) -> Vec<bool> {
    let mut now = Duration::from_secs(7);
    let mut go = |(sandbox, after): &(usize, u64)| {
        now += Duration::from_micros(*after);
        ledgers[sandbox % ledgers.len()].may_go(None, pace, now)
    };
    asked.iter().map(&mut go).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// However many sandboxes ask, and whatever their supervisors have taken when they end: no more go than
    /// the burst, and what the rate brings; and a tenant that keeps asking gets nearly as many.
    #[test]
    fn a_tenants_sandboxes_have_one_rate(
        sandboxes in 1..6_usize,
        (per_s, burst) in (1..5000_u64, 1..3000_u64),
        asked in vec((0..6_usize, prop_oneof![Just(0), 0..300_u64, 0..50_000_u64]), 1..800),
        ends in vec(0..6_usize, 0..3),
    ) {
        let root = tempfile::tempdir().unwrap();
        let pace = Pace { per_s, burst, waits: false };
        let mut ledgers: Vec<Ledger> =
            (0..sandboxes).map(|_| Ledger::open(root.path(), "t").unwrap()).collect();
        let half = asked.len() / 2;
        let mut goes = admitted(&ledgers, &pace, &asked[..half]);
        // Killed, with what they had taken; others come in their place.
        for at in ends {
            ledgers[at % sandboxes] = Ledger::open(root.path(), "t").unwrap();
        }
        let passed: u64 = asked[..half].iter().map(|(_, after)| *after).sum();
        // The clock of the second half goes on where the first has ended.
        let mut rest = asked[half..].to_vec();
        rest[0].1 += passed;
        goes.extend(admitted(&ledgers, &pace, &rest));
        let all: u64 = asked.iter().map(|(_, after)| *after).sum();
        let count = goes.iter().filter(|goes| **goes).count() as u64;
        let most = burst + per_s * all / 1_000_000 + 1;
        prop_assert!(count <= most, "{count} of {most}");
    }
}

#[test]
fn a_tenant_that_keeps_asking_gets_what_its_rate_says() {
    let root = tempfile::tempdir().unwrap();
    let ledgers: Vec<Ledger> = (0..4).map(|_| Ledger::open(root.path(), "t").unwrap()).collect();
    let pace = Pace { per_s: 2000, burst: 400, waits: false };
    // Ten seconds, in which each asks every millisecond; one of them ten times as often.
    let asked: Vec<(usize, u64)> = (0..10_000)
        .flat_map(|_| (0..13).map(|at| (at.min(3), u64::from(at == 0) * 1000)))
        .collect();
    let count = admitted(&ledgers, &pace, &asked).iter().filter(|goes| **goes).count();
    assert!((20_000..=20_401).contains(&count), "{count}");
    // Of a bucket that is written as nonsense, nothing comes but what comes with time.
    let [one, ..] = &ledgers[..] else { unreachable!() };
    let file = std::fs::read_dir(root.path().join("quota.2")).unwrap().next().unwrap().unwrap();
    let mut bytes = std::fs::read(file.path()).unwrap();
    bytes[..8].copy_from_slice(&f64::NAN.to_bits().to_ne_bytes());
    bytes[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
    std::fs::write(file.path(), bytes).unwrap();
    let later = Duration::from_secs(60);
    let count = (0..1000).filter(|_| one.may_go(None, &pace, later)).count();
    assert!(count <= 400, "{count}");
    let count = (0..1000).filter(|_| one.may_go(None, &pace, later + later)).count();
    assert_eq!(count, 400);
}

#[test]
fn what_a_tenant_holds_is_what_all_its_living_sandboxes_hold() {
    let root = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| Ledger::open(root.path(), "t").unwrap());
    let at = |ms: u64| Duration::from_millis(1000 + ms);
    two.charge(&qp(3), &bound).unwrap();
    one.charge(&qp(1), &bound).unwrap();
    let holds = |ledger: &Ledger, ms| ledger.tenant_holds(at(ms)).get(Resource::Qp);
    assert_eq!((holds(&one, 0), holds(&two, 0)), (4, 4));
    two.release(&qp(2));
    // Of others, as it was a moment ago.
    assert_eq!((holds(&one, 99), holds(&two, 99)), (4, 2));
    assert_eq!(holds(&one, 100), 2);
    drop(two);
    assert_eq!(holds(&one, 200), 1);
    assert_eq!(holds(&Ledger::default(), 0), 0);
}

#[test]
fn a_supervisor_that_does_not_go_on_keeps_others_no_longer_than_a_moment() {
    let root = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| Ledger::open(root.path(), "t").unwrap());
    let pace = Pace { per_s: 1000, burst: 1000, waits: false };
    let held = two.shared.as_ref().unwrap().in_order(SHORT, |_| {
        let refused = one.may_go(None, &pace, Duration::from_secs(1));
        let over = one.charge(&qp(1), &bound).unwrap_err();
        Ok((refused, over.unread.is_some()))
    });
    assert_eq!(held.unwrap(), (false, true));
    assert!(one.may_go(None, &pace, Duration::from_secs(1)));
    // The kernel takes the order back from one that is killed.
    assert!(two.shared.as_ref().unwrap().hold().is_ok());
    assert!(!one.may_go(Some(VerbClass::Memory), &pace, Duration::from_secs(1)));
    drop(two);
    assert!(one.may_go(Some(VerbClass::Memory), &pace, Duration::from_secs(1)));
}
