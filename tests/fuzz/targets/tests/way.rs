#![forbid(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "clippy.toml allows it in test functions")]
//! The way of random and of changed requests, through every kind of world: see
//! `verbgate_fuzz_targets::way` for what must hold.

use std::sync::LazyLock;

use proptest::prelude::*;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::residue;
use verbgate_abi::table;
use verbgate_abi::wire::Attr;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_fuzz_targets::corpus;
use verbgate_fuzz_targets::mutate::mutate;
use verbgate_fuzz_targets::way;
use verbgate_fuzz_targets::way::POLICIES_LEN;
use verbgate_fuzz_targets::way::World;
use verbgate_hostile::Random;
use verbgate_proxy::executor::recorded::ScriptedAnswer;
use verbgate_sys::GuestFd;

static REQUESTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| bytes(corpus::requests()));
static WRITES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| bytes(corpus::writes()));

fn bytes(seeds: Vec<(String, Vec<u8>)>) -> Vec<Vec<u8>> {
    seeds.into_iter().map(|(_, seed)| seed).collect()
}

fn world() -> impl Strategy<Value = World> {
    let result = prop_oneof![4 => 0_i64..8, 1 => -133_i64..0];
    let fd = prop::option::weighted(0.8, (0..1024).prop_map(GuestFd));
    let answer = (result, any::<Option<u8>>(), any::<u32>(), fd, prop::bool::weighted(0.8));
    let answer = answer.prop_map(|(result, fill, handle, fd, writable)| ScriptedAnswer {
        result,
        fill,
        handle,
        fd,
        writable,
    });
    let fds = prop::bool::weighted(0.9);
    (0..POLICIES_LEN, any::<bool>(), any::<bool>(), fds, answer).prop_map(
        |(policy, known_driver, near, open_fds, answer)| World {
            policy,
            known_driver,
            near,
            open_fds,
            answer,
        },
    )
}

/// A seed, by its place among all, after some changes; none for a seed of 0.
fn changed(seeds: &[Vec<u8>], which: usize, changes: u64) -> Vec<u8> {
    let mut bytes = seeds[which % seeds.len()].clone();
    let mut rng = Random::new(changes);
    if changes > 0 {
        let other = rng.below(seeds.len());
        mutate(&mut rng, &mut bytes, &seeds[other]);
    }
    bytes
}

fn changes() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 3 => any::<u64>()]
}

/// Words near those of a request.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..16, Just(0x5500_0000_0100), Just(0x6ae0_0010_0000), any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests(which: usize, changes in changes(), world in world()) {
        way::ioctl(&changed(&REQUESTS, which, changes), world);
    }

    #[test]
    fn commands(which: usize, changes in changes(), driver in 0_u32..24, world in world()) {
        way::write(&changed(&WRITES, which, changes), DriverId(driver), world);
    }

    /// Attributes that a method has, in any order, with any words.
    #[test]
    fn made_up_requests(
        which in 0..table::methods().len(),
        words in prop::collection::vec((any::<prop::sample::Index>(), 0_u16..96, word()), 0..12),
        world in world(),
    ) {
        let method = &table::methods()[which];
        let driver = residue::drivers(method).into_iter().next().unwrap();
        let specs: Vec<_> = method.attrs_of(driver).collect();
        let mut builder = RequestBuilder::new(method, driver);
        for (index, len, data) in words {
            let Some(spec) = specs.get(index.index(specs.len().max(1))) else { continue };
            builder = builder.raw(Attr { attr_id: spec.id.0, len, data, ..Attr::default() });
        }
        way::ioctl(&builder.build(GuestAddr(0x10_0000)).bytes, world);
    }
}

/// Most seeds are executed in a world that grants everything: the properties are about something.
#[test]
fn seeds_are_executed() {
    let answer = ScriptedAnswer { fill: Some(7), fd: Some(GuestFd(9)), ..ScriptedAnswer::of(0) };
    let world = World { policy: 2, known_driver: true, near: true, open_fds: true, answer };
    let refused: Vec<_> = corpus::requests()
        .into_iter()
        .filter(|(_, seed)| !way::executes(seed, world))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(refused, Vec::<String>::new());
    let none = World { policy: POLICIES_LEN - 1, ..world };
    assert!(corpus::requests().iter().all(|(_, seed)| !way::executes(seed, none)));
}
