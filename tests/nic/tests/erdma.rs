//! The model of an ERDMA, driven from user space: no machine, and every test takes milliseconds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

mod elastic;

use std::sync::Arc;

use elastic::ALL_RIGHTS;
use elastic::Completion;
use elastic::Driver;
use elastic::Pair;
use elastic::ready;
use verbgate_nic::Census;
use verbgate_nic::Event;
use verbgate_nic::Model as _;
use verbgate_nic::erdma::Protocol;
use verbgate_nic::wire::Faults;
use verbgate_nic::wire::Wire;

/// Two devices, with a queue pair on each that is connected to the other's.
struct World {
    wire: Arc<Wire>,
    left: Driver,
    right: Driver,
    here: Pair,
    there: Pair,
    _folder: tempfile::TempDir,
}

fn world(protocol: Protocol) -> World {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(11);
    let mut left = Driver::new(folder.path(), &wire, 1, protocol);
    let mut right = Driver::new(folder.path(), &wire, 2, protocol);
    let (here, there) = (left.make_pair(3), right.make_pair(5));
    left.connect(&here, 1, (2, 5), ready(protocol));
    right.connect(&there, 2, (1, 3), ready(protocol));
    World { wire, left, right, here, there, _folder: folder }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

/// A send that ended well.
fn sent(index: u16, opcode: u8, length: u32) -> Completion {
    Completion { index, queue: 0, opcode, status: 0, length, word: 0 }
}

fn received(index: u16, opcode: u8, length: u32, word: u32) -> Completion {
    Completion { index, queue: 1, opcode, status: 0, length, word }
}

#[test]
fn the_driver_finds_its_device() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(1), 3, Protocol::Roce);
    assert_eq!((driver.register(0), driver.register(0xc)), (1, 1));
    assert_eq!((driver.register(0x18), driver.register(0x1c)), (0x0098_0003, 0x0200));
    let [first, second] = driver.done(0, 0, &[]);
    assert_eq!((first >> 24 & 0xff, second >> 16 & 0xfff), (0xa8, 1));
    // More commands than the queue has entries: the phase turns.
    for _ in 0..200 {
        driver.done(1, 2, &[]);
    }
    assert_eq!(driver.command(0, 7, &[]).0, 1, "no such command");
    assert_eq!(driver.command(0, 2, &77u32.to_le_bytes()).0, 3, "no such queue pair");
    driver.probe();
    assert_eq!(driver.device.census(), Census::default());
}

#[test]
fn messages_arrive_byte_for_byte() {
    for protocol in [Protocol::Tcp, Protocol::Roce] {
        let mut w = world(protocol);
        let message = pattern(9000);
        w.left.fill(0x100, &message);
        w.right.post_receive(&mut w.there, 0x1800, 10_000);
        w.right.post_receive(&mut w.there, 0x8000, 8);
        w.left.post_send(&mut w.here, 2, [0; 4], &[(0x100, 5000), (0x100 + 5000, 4000)]);
        w.left.post_send(&mut w.here, 3, 0x1234_5678_u32.to_be_bytes(), &[(0x100, 8)]);
        assert_eq!(w.left.poll(&mut w.here), Some(sent(0, 2, 9000)));
        assert_eq!(w.left.poll(&mut w.here), Some(sent(2, 3, 8)));
        assert_eq!(w.right.poll(&mut w.there), Some(received(0, 4, 9000, 0)));
        assert_eq!(w.right.poll(&mut w.there), Some(received(1, 12, 8, 0x1234_5678)));
        assert_eq!(w.right.see(0x1800, 9000), message);
        assert_eq!(w.left.poll(&mut w.here), None);
    }
}

#[test]
fn writes_reads_and_atomics() {
    let mut w = world(Protocol::Roce);
    let (data, key) = (pattern(90), w.there.key);
    w.left.post_write(&mut w.here, 0, (0x10, key), &data);
    assert_eq!(w.left.poll(&mut w.here), Some(sent(0, 0, 90)));
    assert_eq!(w.right.see(0x10, 90), data);
    w.right.post_receive(&mut w.there, 0, 0);
    w.left.post_write(&mut w.here, 9, (0x1000, key), &data);
    assert_eq!(w.left.poll(&mut w.here), Some(sent(4, 9, 90)));
    assert_eq!(w.right.poll(&mut w.there), Some(received(0, 5, 90, 0xabcd)));
    let long = pattern(20_000);
    w.right.fill(0x3000, &long);
    w.left.post_read(&mut w.here, (0x3000, key), (0x9000, 20_000));
    assert_eq!(w.left.poll(&mut w.here), Some(sent(8, 1, 20_000)));
    assert_eq!(w.left.see(0x9000, 20_000), long);

    w.right.fill(0x2000, &40u64.to_le_bytes());
    w.left.post_atomic(&mut w.here, 18, [2, 0], (0x2000, key), 0x20);
    w.left.post_atomic(&mut w.here, 17, [7, 42], (0x2000, key), 0x28);
    w.left.post_atomic(&mut w.here, 17, [9, 42], (0x2000, key), 0x30);
    for (index, opcode) in [(10, 18), (12, 17), (14, 17)] {
        assert_eq!(w.left.poll(&mut w.here), Some(sent(index, opcode, 8)));
    }
    let old = [40u64, 42, 7].map(u64::to_le_bytes).concat();
    assert_eq!(w.left.see(0x20, 24), old);
    assert_eq!(w.right.see(0x2000, 8), 7u64.to_le_bytes());
}

#[test]
fn a_ring_goes_round() {
    let mut w = world(Protocol::Tcp);
    w.left.fill(0, &[1, 2, 3, 4]);
    for round in 0..300u16 {
        w.right.post_receive(&mut w.there, u64::from(round) * 8, 8);
        w.left.post_send(&mut w.here, 2, [0; 4], &[(0, 4)]);
        assert_eq!(w.left.poll(&mut w.here), Some(sent(round, 2, 4)));
        assert_eq!(w.right.poll(&mut w.there), Some(received(round, 4, 4, 0)));
    }
}

#[test]
fn what_is_not_allowed_fails_at_both_ends() {
    // A key without the right, one of another domain, one that is none, an address beyond.
    for (rights, pd, key, at) in [
        (ALL_RIGHTS & !(1 << 5), 105, 9 << 8, 0x10),
        (ALL_RIGHTS, 106, 9 << 8, 0x10),
        (ALL_RIGHTS, 105, 10 << 8, 0x10),
        (ALL_RIGHTS, 105, 9 << 8, elastic::REGION - 10),
    ] {
        let mut w = world(Protocol::Roce);
        w.right.register_memory(9, pd, rights);
        w.right.post_receive(&mut w.there, 0, 8);
        w.left.post_write(&mut w.here, 0, (at, key), &[1; 20]);
        w.left.post_write(&mut w.here, 0, (at, key), &[1; 20]);
        let done = w.left.poll(&mut w.here).unwrap();
        assert_eq!((done.status, done.index), (3, 0), "{rights:#x} {pd} {key:#x} {at:#x}");
        assert_eq!(w.left.poll(&mut w.here).unwrap().status, 15, "the second is flushed");
        assert_eq!(w.right.poll(&mut w.there).unwrap().status, 15, "receives are flushed");
        assert_eq!(w.right.asynchronous(0), Some((2, 5)));
        assert_eq!(w.right.see(0x10, 20), [0; 20]);
        // What is posted later is flushed, too.
        w.left.post_write(&mut w.here, 0, (at, key), &[1; 4]);
        assert_eq!(w.left.poll(&mut w.here).unwrap().status, 15);
    }
}

#[test]
fn keys_of_our_own_are_looked_at_before_anything_is_sent() {
    let mut w = world(Protocol::Roce);
    w.left.post_send(&mut w.here, 2, [0; 4], &[(elastic::REGION - 2, 4)]);
    assert_eq!(w.left.poll(&mut w.here).unwrap().status, 10);
    let mut w = world(Protocol::Roce);
    w.right.post_receive(&mut w.there, 0, 3);
    w.left.post_send(&mut w.here, 2, [0; 4], &[(0, 4)]);
    assert_eq!(w.right.poll(&mut w.there).unwrap().status, 4, "too small a receive");
    assert_eq!(w.left.poll(&mut w.here).unwrap().status, 1);
    // An opcode that is none, and a request that ends behind what was rung.
    let mut w = world(Protocol::Roce);
    w.left.post(&mut w.here, 31, 0, 0, &[0; 24]);
    assert_eq!(w.left.poll(&mut w.here).unwrap().status, 8);
}

#[test]
fn an_invalidated_key_names_nothing() {
    let mut w = world(Protocol::Roce);
    let key = w.right.register_memory(9, w.there.pd, ALL_RIGHTS);
    w.right.post_receive(&mut w.there, 0, 8);
    w.left.post_send(&mut w.here, 13, key.to_le_bytes(), &[(0, 4)]);
    assert_eq!(w.right.poll(&mut w.there), Some(received(0, 6, 4, key.swap_bytes())));
    w.left.poll(&mut w.here).unwrap();
    w.left.post_write(&mut w.here, 0, (0, key), &[1]);
    assert_eq!(w.left.poll(&mut w.here).unwrap().status, 3);
}

#[test]
fn doorbells_are_of_their_context() {
    let mut w = world(Protocol::Tcp);
    let other = w.left.make_pair(4);
    w.right.post_receive(&mut w.there, 0, 8);
    let before = w.left.device.counters().doorbells;
    // Another context rings for this queue pair, on its own page and on one that all share.
    let mut stolen = other;
    stolen.number = w.here.number;
    for page in [1, 256 + 3] {
        w.left.ring(&stolen, 1, page);
    }
    assert_eq!(w.left.device.counters().doorbells, before + 2);
    assert_eq!(w.left.poll(&mut w.here), None);
    assert_eq!(w.right.poll(&mut w.there), None);
}

#[test]
fn a_program_is_told_when_it_asked() {
    let mut w = world(Protocol::Tcp);
    w.right.arm(&w.there, false);
    w.right.post_receive(&mut w.there, 0, 8);
    w.right.post_receive(&mut w.there, 0, 8);
    assert_eq!(w.right.event(0), None);
    w.left.post_send(&mut w.here, 2, [0; 4], &[(0, 4)]);
    assert_eq!(w.right.event(0), Some(5));
    w.left.post_send(&mut w.here, 2, [0; 4], &[(0, 4)]);
    assert_eq!(w.right.event(1), None, "asked once, told once");
    // Two are there that it has not seen: it is told at once.
    w.right.arm(&w.there, false);
    assert_eq!(w.right.event(1), Some(5));
    while w.right.poll(&mut w.there).is_some() {}
    // Of what is not solicited it does not want to hear.
    w.right.arm(&w.there, true);
    w.right.post_receive(&mut w.there, 0, 8);
    w.left.post_send(&mut w.here, 2, [0; 4], &[(0, 4)]);
    assert_eq!(w.right.event(2), None);
    w.right.post_receive(&mut w.there, 0, 8);
    w.left.post(&mut w.here, 2, 1 << 23, 0, &[0; 8]);
    assert_eq!(w.right.event(2), Some(5));
}

#[test]
fn a_send_waits_for_a_receive() {
    let mut w = world(Protocol::Roce);
    w.left.fill(0, &pattern(300));
    for at in 0..20 {
        w.left.post_send(&mut w.here, 2, [0; 4], &[(at, 100)]);
    }
    assert_eq!(w.left.poll(&mut w.here), None);
    std::thread::sleep(std::time::Duration::from_millis(10));
    for at in 0..20 {
        w.right.post_receive(&mut w.there, at * 128, 100);
    }
    for at in 0..20u16 {
        assert_eq!(w.left.wait(&mut w.here), sent(at, 2, 100));
        assert_eq!(w.right.wait(&mut w.there), received(at, 4, 100, 0));
        assert_eq!(w.right.see(u64::from(at) * 128, 100), w.left.see(at.into(), 100));
    }
}

#[test]
fn a_bad_wire_changes_nothing_but_time() {
    let mut w = world(Protocol::Roce);
    let faults = Faults { loss: 0.1, duplicate: 0.1, reorder: 0.1, ..Faults::default() };
    w.wire.set_faults(faults);
    w.right.fill(0, &0u64.to_le_bytes());
    let key = w.there.key;
    for round in 0..100u16 {
        w.left.post_atomic(&mut w.here, 18, [1, 0], (0, key), 0x100);
        assert_eq!(w.left.wait(&mut w.here), sent(round * 2, 18, 8));
        assert_eq!(w.left.see(0x100, 8), u64::from(round).to_le_bytes(), "executed once");
    }
    assert!(w.left.device.counters().repeated > 0);
}

#[test]
fn nobody_at_the_other_end() {
    let mut w = world(Protocol::Tcp);
    w.right.end_pair(&w.there);
    w.left.post_send(&mut w.here, 2, [0; 4], &[(0, 4)]);
    assert_eq!(w.left.wait(&mut w.here).status, 16);
}

#[test]
fn nothing_is_left_of_a_program_that_ended() {
    let mut w = world(Protocol::Roce);
    let one = Census { uars: 1, mrs: 1, cqs: 1, qps: 1, ..Census::default() };
    assert_eq!(w.left.device.census(), one);
    w.left.raise_and_end(&w.here);
    assert_eq!(w.left.device.census(), Census::default());
    assert_eq!(w.left.asynchronous(0), Some((0, 3)));
}

impl Driver {
    /// A device that breaks ends its connections; what was made can be ended all the same.
    fn raise_and_end(&mut self, pair: &Pair) {
        self.device.raise(Event::FatalError);
        self.end_pair(pair);
    }
}
