//! The model of a ConnectX, driven from user space: no machine, and every test takes milliseconds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

mod connectx;

use std::sync::Arc;

use connectx::ALL_RIGHTS;
use connectx::Completion;
use connectx::Driver;
use connectx::Pair;
use connectx::be;
use verbgate_nic::Model as _;
use verbgate_nic::wire::Faults;
use verbgate_nic::wire::Wire;

const SEND: u8 = 0x0a;
const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const READ: u8 = 0x10;
const COMPARE_SWAP: u8 = 0x11;
const FETCH_ADD: u8 = 0x12;

/// Two devices, with a queue pair on each that is connected to the other's.
struct World {
    wire: Arc<Wire>,
    left: Driver,
    right: Driver,
    here: Pair,
    there: Pair,
    _folder: tempfile::TempDir,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(11);
    let mut left = Driver::new(folder.path(), &wire, 1);
    let mut right = Driver::new(folder.path(), &wire, 2);
    let (here, there) = (left.make_pair(None), right.make_pair(None));
    left.connect(&here, (2, there.number));
    right.connect(&there, (1, here.number));
    World { wire, left, right, here, there, _folder: folder }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

fn sent(index: u16, opcode: u8, length: u32) -> Completion {
    Completion { of: 0, index, opcode, syndrome: 0, length, word: 0 }
}

fn received(index: u16, of: u8, length: u32, word: u32) -> Completion {
    Completion { of, index, opcode: 0, syndrome: 0, length, word }
}

#[test]
fn the_driver_finds_its_device() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(1), 3);
    // The firmware's version, the interface's, and the command queue of 32 entries of 64 bytes.
    assert_eq!((driver.register(0), driver.register(4)), (99 << 16 | 20, 5 << 16 | 1));
    assert_eq!((driver.register(0x14) & 0xff, driver.register(0x1fc)), (0x56, 0));
    let port = driver.done(0x762, 0, &[]);
    assert_eq!((be(&port, 16 + 0x60) >> 16, port[16 + 0x23]), (3, 0x44), "its LID, and active");
    let gid = driver.done(0x764, 0, &[]);
    assert_eq!(gid[16..32], [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0, 3]);
    assert_eq!(driver.command(0x92f, 0, &[]).0, 2, "no such command");
    assert_eq!(driver.command(0x100, 4 << 1, &[]).0, 3, "no such kind of capabilities");
    assert_eq!(driver.about(0x501, 77), 5, "no such queue pair");
    assert_eq!(driver.about(0x803, driver.uar), 6, "a page of doorbells in use");
}

#[test]
fn commands_that_are_not_whole_are_not_executed() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(1), 1);
    let before = driver.device.census();
    let mut long = vec![0; 600];
    long[..2].copy_from_slice(&0x800u16.to_be_bytes());
    assert_eq!(driver.deliver(&long, 0x77).0, 2, "mailboxes of another command");
    assert_eq!(driver.deliver(&[8, 0], 0).0, 6, "shorter than its head");
    assert_eq!(driver.device.census(), before);
    // Too short for its context, or for its list of pages; a context of nothing.
    assert_eq!(driver.command(0x500, 0, &[0; 16]).0, 0x50);
    assert_eq!(driver.command(0x400, 0, &[0; 0x108]).0, 5);
    let pd = driver.make(0x800, &[]);
    let mut key = vec![0; 0x108];
    key[0xa] = 1;
    key[0x14..0x18].copy_from_slice(&pd.to_be_bytes());
    key[0x43] = 12;
    key[0x58..0x5c].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(driver.command(0x200, 0, &key).0, 0x50);
}

#[test]
fn pages_that_were_lent_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(1), 1);
    let lent = be(&driver.done(0x107, 1, &[]), 12);
    driver.give_pages(3);
    let body = [0u32.to_be_bytes(), 100u32.to_be_bytes()].concat();
    let back = driver.done(0x108, 2, &body);
    assert_eq!(be(&back, 8), lent + 3);
    assert_eq!(be(&driver.done(0x108, 2, &body), 8), 0);
}

#[test]
fn messages_arrive_byte_for_byte() {
    let mut w = world();
    let message = pattern(9000);
    w.left.fill(0x100, &message);
    w.right.post_receive(&mut w.there, 0x1800, 10_000);
    w.left.post_send(&mut w.here, &[(0x100, 5000), (0x100 + 5000, 4000)]);
    assert_eq!(w.left.poll(&mut w.here), Some(sent(0, SEND, 9000)));
    assert_eq!(w.right.poll(&mut w.there), Some(received(0, 2, 9000, 0)));
    assert_eq!(w.right.see(0x1800, 9000), message);
    // Inline, and with immediate data.
    w.right.post_receive(&mut w.there, 0x10, 8);
    let inline = [&(1u32 << 31 | 5).to_be_bytes()[..], b"hello", &[0; 7]].concat();
    w.left.post(&mut w.here, 0x0b, 0x1234_5678, &inline);
    assert_eq!(w.left.poll(&mut w.here), Some(sent(1, 0x0b, 5)));
    assert_eq!(w.right.poll(&mut w.there), Some(received(1, 3, 5, 0x1234_5678)));
    assert_eq!(w.right.see(0x10, 5), b"hello");
    assert_eq!(w.left.poll(&mut w.here), None);
}

#[test]
fn writes_reads_and_atomics() {
    let mut w = world();
    let set = w.right.counted(&w.there);
    let (data, key) = (pattern(20_000), w.there.key);
    w.left.fill(0, &data);
    w.left.post_remote(&mut w.here, WRITE, (0x10, key), &[], (0, 20_000));
    assert_eq!(w.left.poll(&mut w.here), Some(sent(0, WRITE, 20_000)));
    assert_eq!(w.right.see(0x10, 20_000), data);
    w.right.post_receive(&mut w.there, 0, 0);
    w.left.post_remote(&mut w.here, WRITE_IMMEDIATE, (0x9000, key), &[], (0, 90));
    assert_eq!(w.left.poll(&mut w.here), Some(sent(1, WRITE_IMMEDIATE, 90)));
    assert_eq!(w.right.poll(&mut w.there), Some(received(0, 1, 90, 0xabcd)));
    w.left.post_remote(&mut w.here, READ, (0x10, key), &[], (0x8000, 20_000));
    assert_eq!(w.left.poll(&mut w.here), Some(sent(2, READ, 20_000)));
    assert_eq!(w.left.see(0x8000, 20_000), data);

    w.right.fill(0x2000, &40u64.to_le_bytes());
    w.left.post_remote(&mut w.here, FETCH_ADD, (0x2000, key), &[2, 0], (0x20, 8));
    w.left.post_remote(&mut w.here, COMPARE_SWAP, (0x2000, key), &[7, 42], (0x28, 8));
    w.left.post_remote(&mut w.here, COMPARE_SWAP, (0x2000, key), &[9, 42], (0x30, 8));
    for (index, opcode) in [(3, FETCH_ADD), (4, COMPARE_SWAP), (5, COMPARE_SWAP)] {
        assert_eq!(w.left.poll(&mut w.here), Some(sent(index, opcode, 8)));
    }
    assert_eq!(w.left.see(0x20, 24), [40u64, 42, 7].map(u64::to_le_bytes).concat());
    assert_eq!(w.right.see(0x2000, 8), 7u64.to_le_bytes());
    // Writes, reads, atomic operations; and the same again, cleared by the question before.
    assert_eq!(w.right.counts(set, true), Some([2, 1, 3]));
    assert_eq!(w.right.counts(set, false), Some([0; 3]));
    assert_eq!(w.right.counts(set + 1, false), None);
}

#[test]
fn a_ring_goes_round() {
    let mut w = world();
    w.left.fill(0, &[1, 2, 3, 4]);
    for round in 0..300u16 {
        w.right.post_receive(&mut w.there, u64::from(round) * 8, 8);
        w.left.post_send(&mut w.here, &[(0, 4)]);
        assert_eq!(w.left.poll(&mut w.here), Some(sent(round, SEND, 4)));
        assert_eq!(w.right.poll(&mut w.there), Some(received(round, 2, 4, 0)));
    }
}

#[test]
fn nothing_is_reached_without_its_right_or_by_another_domain() {
    for (rights, place) in [(ALL_RIGHTS & !8, 0), (ALL_RIGHTS, connectx::REGION - 8)] {
        let mut w = world();
        w.right.fill(0, &[7; 16]);
        let key = w.right.register_memory(w.there.pd, rights);
        w.left.post_remote(&mut w.here, WRITE, (place, key), &[], (0, 16));
        let failed = Completion { of: 13, syndrome: 0x13, length: 0, ..sent(0, WRITE, 0) };
        assert_eq!(w.left.poll(&mut w.here), Some(failed));
        assert_eq!(w.right.see(0, 16), [7; 16]);
        // The peer's queue pair is in error, and its driver is told.
        let events: Vec<_> = (0..64).filter_map(|index| w.right.event(index)).collect();
        assert!(events.contains(&(0x11, w.there.number)), "{events:x?}");
        w.left.post_send(&mut w.here, &[(0, 4)]);
        assert_eq!(w.left.poll(&mut w.here).unwrap().syndrome, 5, "flushed");
    }
    let mut w = world();
    let pd = w.right.make(0x800, &[]);
    let foreign = w.right.register_memory(pd, ALL_RIGHTS);
    w.left.post_remote(&mut w.here, READ, (0, foreign), &[], (0, 16));
    assert_eq!(w.left.poll(&mut w.here).unwrap().syndrome, 0x13);
    let mut w = world();
    let other_variant = w.there.key ^ 1;
    w.left.post_remote(&mut w.here, READ, (0, other_variant), &[], (0, 16));
    assert_eq!(w.left.poll(&mut w.here).unwrap().syndrome, 0x13);
}

/// Re-registration: rights and the protection domain change, by a work request of the driver's own queue pair.
#[test]
fn the_driver_changes_keys() {
    const RIGHTS: u64 = 0x1f << 17;
    const DOMAIN: u64 = 1 << 7;
    let change = |key: &Pair, mask: u64, rights: u32, pd: u32| {
        let mut body = vec![0; 112];
        body[8..16].copy_from_slice(&mask.to_be_bytes());
        connectx::set(&mut body, 48, rights << 10);
        connectx::set(&mut body, 48 + 12, pd);
        (key.key, body)
    };
    let mut w = world();
    let mut own = w.right.make_pair_of(0xc, None);
    w.right.connect(&own, (1, 0));
    let write_only = change(&w.there, RIGHTS, 0xb, 0);
    w.right.post(&mut own, 0x25, write_only.0, &write_only.1);
    assert_eq!(w.right.poll(&mut own).unwrap().syndrome, 0);
    let key = w.there.key;
    w.left.post_remote(&mut w.here, WRITE, (0, key), &[], (0, 16));
    assert_eq!(w.left.poll(&mut w.here), Some(sent(0, WRITE, 16)));
    w.left.post_remote(&mut w.here, READ, (0, key), &[], (0, 16));
    assert_eq!(w.left.poll(&mut w.here).unwrap().syndrome, 0x13, "no right to read any more");

    // To another domain, which the connection is not of; to one that is none; and nothing else.
    let mut w = world();
    let mut own = w.right.make_pair_of(0xc, None);
    w.right.connect(&own, (1, 0));
    let moved = change(&w.there, DOMAIN, 0, own.pd);
    w.right.post(&mut own, 0x25, moved.0, &moved.1);
    assert_eq!(w.right.poll(&mut own).unwrap().syndrome, 0);
    let key = w.there.key;
    w.left.post_remote(&mut w.here, WRITE, (0, key), &[], (0, 16));
    assert_eq!(w.left.poll(&mut w.here).unwrap().syndrome, 0x13);
    let nowhere = change(&w.there, DOMAIN, 0, 0xffff);
    w.right.post(&mut own, 0x25, nowhere.0, &nowhere.1);
    assert_eq!(w.right.poll(&mut own).unwrap().syndrome, 2);
    // On a queue pair of a program's, there is no such work request.
    let mut w = world();
    let everything = change(&w.here, RIGHTS, 0x1f, 0);
    w.left.post(&mut w.here, 0x25, everything.0, &everything.1);
    assert_eq!(w.left.poll(&mut w.here).unwrap().syndrome, 2);
}

#[test]
fn doorbells_of_other_pages_ring_nothing() {
    let mut w = world();
    let own = w.left.uar;
    w.left.uar = w.left.make(0x802, &[]);
    w.right.post_receive(&mut w.there, 0, 8);
    w.left.post_send(&mut w.here, &[(0, 4)]);
    assert_eq!(w.left.poll(&mut w.here), None);
    w.left.uar = own;
    w.left.ring(0x900, 0, w.here.number << 8);
    assert_eq!(w.left.poll(&mut w.here), Some(sent(0, SEND, 4)));
}

#[test]
fn who_asks_is_told_of_completions() {
    let mut w = world();
    let completions = |driver: &Driver, cqn| {
        let events = (0..64).filter_map(|index| driver.event(index));
        events.filter(|event| *event == (0, cqn)).count()
    };
    w.right.arm(&w.there, 0);
    for round in 1..=2 {
        w.right.post_receive(&mut w.there, 0, 8);
        w.left.post_send(&mut w.here, &[(0, 4)]);
        assert_eq!(completions(&w.right, w.there.cqn), 1, "asked once");
        w.right.wait(&mut w.there);
        assert_eq!(w.left.poll(&mut w.here).unwrap().index, round - 1);
    }
    // There is one already that was not read.
    w.right.arm(&w.there, 1);
    assert_eq!(completions(&w.right, w.there.cqn), 2);
}

#[test]
fn shared_receives_are_taken_in_the_order_of_their_list() {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(3);
    let mut left = Driver::new(folder.path(), &wire, 1);
    let mut right = Driver::new(folder.path(), &wire, 2);
    let pd = right.make(0x800, &[]);
    let (srq, key) = (right.make_shared(pd), right.register_memory(pd, ALL_RIGHTS));
    let mut here = left.make_pair(None);
    let mut there = right.make_pair(Some(srq));
    left.connect(&here, (2, there.number));
    right.connect(&there, (1, here.number));
    right.post_shared(key, &[0, 5, 3], 64);
    for (round, index) in [0, 5, 3].into_iter().enumerate() {
        left.fill(0, &[round as u8 + 1; 8]);
        left.post_send(&mut here, &[(0, 8)]);
        assert_eq!(right.poll(&mut there), Some(received(index, 2, 8, 0)));
        assert_eq!(right.see(u64::from(index) * 0x100, 8), [round as u8 + 1; 8]);
    }
    assert_eq!(right.about(0x90e, srq), 6, "in use");
    right.end_pair(&there);
    assert_eq!(right.about(0x90e, srq), 0);
}

#[test]
fn a_bad_wire_loses_nothing() {
    let mut w = world();
    let mean = Faults { loss: 0.1, duplicate: 0.1, reorder: 0.1, ..Faults::default() };
    w.wire.set_faults(mean);
    for round in 0..100u16 {
        w.left.fill(0, &round.to_le_bytes());
        w.right.post_receive(&mut w.there, u64::from(round) * 16, 8);
        w.left.post_send(&mut w.here, &[(0, 2)]);
        assert_eq!(w.left.wait(&mut w.here), sent(round, SEND, 2));
        assert_eq!(w.right.wait(&mut w.there), received(round, 2, 2, 0));
        assert_eq!(w.right.see(u64::from(round) * 16, 2), round.to_le_bytes());
    }
    assert!(w.left.device.counters().repeated > 0);
}

#[test]
fn a_peer_that_is_gone_is_told_of() {
    let mut w = world();
    w.right.end_pair(&w.there);
    // The shortest timeout, and one retry.
    assert_eq!(w.left.about(0x50a, w.here.number), 0);
    assert_eq!(w.left.modify(0x504, &w.here, &[]), 0x10, "not from this state");
    assert_eq!(w.left.modify(0x502, &w.here, &[]), 0);
    assert_eq!(w.left.modify(0x503, &w.here, &[(0x14, w.there.number), (0x1c, 2)]), 0);
    assert_eq!(w.left.modify(0x504, &w.here, &[(0x20, 1 << 27), (0x70, 1 << 16)]), 0);
    w.left.post_send(&mut w.here, &[(0, 4)]);
    assert_eq!(w.left.wait(&mut w.here).syndrome, 0x15);
}

#[test]
fn all_is_gone_after_a_teardown() {
    let mut w = world();
    let mut left = w.left.device.census();
    left.uars = 0;
    assert!(left.qps == 1 && left.cqs == 1 && left.mrs == 1 && left.pds == 1);
    w.left.end_pair(&w.here);
    assert_eq!(w.left.device.census().qps + w.left.device.census().mrs, 0);
    w.left.done(0x103, 0, &[]);
    assert_eq!(w.left.device.census(), verbgate_nic::Census::default());
    w.left.probe();
    w.here = w.left.make_pair(None);
    assert_eq!(w.left.device.census().qps, 1);
}

#[test]
fn a_device_that_failed_is_set_up_anew() {
    let World { mut left, here, .. } = world();
    let low = |left: &mut Driver| left.register(0x14) >> 8 & 7;
    assert_eq!(low(&mut left), 0);
    left.device.raise(verbgate_nic::Event::FatalError);
    assert_eq!(
        (low(&mut left), left.register(0x1010)),
        (1, 0),
        "disabled, and its health stands still"
    );
    let before = left.device.census();
    left.device.raise(verbgate_nic::Event::KeepAlive);
    left.probe();
    assert_eq!(low(&mut left), 0);
    assert!(left.device.census().qps < before.qps, "what was there before is forgotten");
    assert_ne!(left.about(0x501, here.number), 0);
    let again = left.make_pair(None);
    assert_eq!(left.about(0x501, again.number), 0);
}
