//! Accounts against what exists: random requests, of which some fail, some are never answered, and
//! some opens end.

use proptest::prelude::*;

use super::*;
use crate::ledger::OverQuota;
use crate::quota::Bounds;
use crate::quota::NAMES;

#[derive(Clone, Debug)]
enum Op {
    Make {
        open: usize,
        kind: usize,
        size: u64,
        succeeds: bool,
    },
    Destroy {
        open: usize,
        at: usize,
        succeeds: bool,
    },
    Resize {
        open: usize,
        at: usize,
        size: u64,
        succeeds: bool,
    },
    /// The stub is killed with the request in the kernel, which makes the object, or does not.
    Lose {
        open: usize,
        kind: usize,
        size: u64,
    },
    Close {
        open: usize,
    },
}

const KINDS: [Option<Resource>; 5] =
    [Some(Resource::Mr), Some(Resource::Qp), Some(Resource::Pd), Some(Resource::Cq), None];
const OPENS: usize = 3;
const MOST: u64 = 12;

fn op() -> impl Strategy<Value = Op> {
    let (open, size) = (|| 0..OPENS, || prop_oneof![Just(4096_u64), Just(7), 0..100_u64]);
    prop_oneof![
        6 => (open(), 0..KINDS.len(), size(), prop::bool::weighted(0.8))
            .prop_map(|(open, kind, size, succeeds)| Op::Make { open, kind, size, succeeds }),
        4 => (open(), 0..64_usize, prop::bool::weighted(0.8))
            .prop_map(|(open, at, succeeds)| Op::Destroy { open, at, succeeds }),
        1 => (open(), 0..64_usize, size(), any::<bool>())
            .prop_map(|(open, at, size, succeeds)| Op::Resize { open, at, size, succeeds }),
        1 => (open(), 0..KINDS.len(), size()).prop_map(|(open, kind, size)| Op::Lose { open, kind, size }),
        1 => open().prop_map(|open| Op::Close { open }),
    ]
}

fn bounds(resource: Resource) -> Option<u64> {
    match resource {
        Resource::Objects => Some(MOST),
        Resource::MrBytes => Some(20_000),
        _ => None,
    }
}

/// An open, and the objects that truly exist in it.
struct Open {
    account: Account,
    objects: Vec<(Option<Resource>, u64)>,
    lost: bool,
}

fn exists(open: &Open) -> Amounts {
    let none = Amounts::default();
    open.objects.iter().fold(none, |all, (kind, size)| all.plus(&one(*kind, *size)))
}

/// Counts are exact; amounts are never below what exists, and exact where one size is left.
fn check(open: &Open) -> Result<(), TestCaseError> {
    let (held, exists) = (open.account.held(), exists(open));
    for (resource, name) in NAMES {
        let (charged, there) = (held.get(resource), exists.get(resource));
        prop_assert!(charged >= there, "{name}: {charged} charged, {there} there");
        let counted = !matches!(resource, Resource::MrBytes | Resource::Cqe | Resource::Wr);
        let none = KINDS.iter().flatten().all(|kind| {
            kind.sized() != Some(resource) || !open.objects.iter().any(|of| of.0 == Some(*kind))
        });
        if !open.lost && (counted || none) {
            prop_assert_eq!(charged, there, "{}", name);
        }
    }
    Ok(())
}

fn step(open: &mut Open, ledger: &Arc<Ledger>, op: &Op) {
    let bounds: Bounds<'_> = &bounds;
    let takes = match op {
        Op::Make { kind, size, .. } | Op::Lose { kind, size, .. } => {
            Takes { made: vec![(KINDS[*kind], *size)], ..Takes::default() }
        }
        Op::Destroy { at, .. } if !open.objects.is_empty() => {
            let kind = open.objects[at % open.objects.len()].0;
            Takes { destroyed: vec![kind], ..Takes::default() }
        }
        Op::Resize { at, size, .. } if !open.objects.is_empty() => {
            match open.objects[at % open.objects.len()].0 {
                Some(kind) if kind.sized().is_some() => {
                    Takes { resized: Some((kind, *size)), ..Takes::default() }
                }
                _ => return,
            }
        }
        Op::Destroy { .. } | Op::Resize { .. } => return,
        Op::Close { .. } => {
            let account = Account::new(ledger);
            *open = Open { account, objects: Vec::new(), lost: false };
            return;
        }
    };
    if ledger.charge(&takes.charge(), bounds).is_err() {
        return;
    }
    let receipt = open.account.begin(takes);
    match *op {
        Op::Make { kind, size, succeeds, .. } => {
            open.account.end(receipt, succeeds);
            open.objects.extend(succeeds.then_some((KINDS[kind], size)));
        }
        Op::Destroy { at, succeeds, .. } => {
            open.account.end(receipt, succeeds);
            if succeeds {
                let at = at % open.objects.len();
                open.objects.remove(at);
            }
        }
        Op::Resize { at, size, succeeds, .. } => {
            open.account.end(receipt, succeeds);
            let at = at % open.objects.len();
            if succeeds {
                open.objects[at].1 = size;
            }
        }
        Op::Lose { kind, size, .. } => {
            open.objects.push((KINDS[kind], size));
            open.lost = true;
        }
        Op::Close { .. } => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_charged_is_what_exists(ops in prop::collection::vec(op(), 1..120)) {
        let ledger = Arc::new(Ledger::default());
        let new = || Open { account: Account::new(&ledger), objects: Vec::new(), lost: false };
        let mut opens: Vec<Open> = (0..OPENS).map(|_| new()).collect();
        for op in &ops {
            let (Op::Make { open, .. } | Op::Destroy { open, .. } | Op::Resize { open, .. }
                | Op::Lose { open, .. } | Op::Close { open }) = op;
            step(&mut opens[*open], &ledger, op);
            opens.iter().try_for_each(check)?;
            let all = opens.iter().fold(Amounts::default(), |all, one| all.plus(&one.account.held()));
            prop_assert_eq!(ledger.held(), all);
            prop_assert!(all.get(Resource::Objects) <= MOST);
        }
        drop(opens);
        prop_assert_eq!(ledger.held(), Amounts::default());
    }
}

/// The kernel takes a group twice for once, and the results of two requests come in any order: what is charged
/// is never less than what is attached.
#[test]
fn groups_of_queue_pairs_are_counted_by_attach_and_detach() {
    let ledger = Arc::new(Ledger::default());
    let bound = |resource| (resource == Resource::Multicast).then_some(2);
    let mut account = Account::new(&ledger);
    let attach = || Takes { attaches: true, ..Takes::default() };
    let detach = || Takes { detaches: true, ..Takes::default() };
    let mut do_it = |takes: Takes, succeeds| {
        ledger.charge(&takes.charge(), &bound)?;
        let receipt = account.begin(takes);
        account.end(receipt, succeeds);
        Ok::<_, OverQuota>(ledger.held().get(Resource::Multicast))
    };
    assert_eq!(do_it(attach(), true).unwrap(), 1);
    assert_eq!(do_it(attach(), false).unwrap(), 1);
    assert_eq!(do_it(attach(), true).unwrap(), 2);
    assert!(do_it(attach(), true).is_err());
    assert_eq!(do_it(detach(), false).unwrap(), 2);
    assert_eq!(do_it(detach(), true).unwrap(), 1);
    assert_eq!(do_it(attach(), true).unwrap(), 2);
    drop(account);
    assert_eq!(ledger.held(), Amounts::default());
}
