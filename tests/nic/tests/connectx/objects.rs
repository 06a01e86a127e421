//! Tests of objects that programs make by themselves, and of memory on the device.

use verbgate_nic::Model as _;
use verbgate_nic::wire::Wire;

use super::Driver;
use super::be;
use super::set;
use crate::World;
use crate::world;

#[test]
fn programs_make_queues_in_memory_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(5), 1);
    let own = driver.make_own();
    driver.connect(&own.pair, (1, own.pair.number));
    driver.own_message(&own, *b"by DEVX!");
    assert_eq!(driver.see(0, 8), b"by DEVX!");
    let mut kinds = driver.own_completions();
    kinds.sort_unstable();
    assert_eq!(kinds, [0, 2], "of a send and of a receive");
    // Memory outlives what is in it, and a context what is its.
    let end =
        |driver: &mut Driver, umem: u32| driver.own(own.context, 0xa0a, &umem.to_be_bytes()).0;
    let context = [[0; 2], own.context.to_be_bytes()].concat();
    assert!(own.umems.iter().all(|umem| end(&mut driver, *umem) == 6), "in use");
    driver.end_pair(&own.pair);
    assert_eq!(driver.command(0xa06, 0, &context).0, 6, "in use");
    assert!(own.umems.iter().all(|umem| end(&mut driver, *umem) == 0));
    assert_eq!(driver.command(0xa06, 0, &context).0, 0);
}

#[test]
fn memory_of_a_context_is_nothing_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(5), 1);
    let own = driver.make_own();
    let other = driver.make_context();
    let body = driver.completions(own.umems[0], 2, 0);
    assert_eq!(driver.own(own.context, 0x400, &body).0, 0);
    assert_eq!(driver.own(other, 0x400, &body).0, 5, "another's memory");
    assert_eq!(driver.own(99, 0x400, &body).0, 5, "a context that is none");
    let body = driver.queues(&own.umems, &own.pair);
    assert_eq!(driver.own(other, 0x500, &body).0, 5, "another's memory");
    assert_eq!(driver.own(other, 0xa0a, &own.umems[0].to_be_bytes()).0, 5);
    // The memory begins 64 bytes after its page, and ends with the page.
    for (log, at) in [(6, 0), (5, 0x7c1), (0, 0xfc0), (0, u64::MAX - 63)] {
        let body = driver.completions(own.umems[0], log, at);
        assert_eq!(driver.own(own.context, 0x400, &body).0, 3, "{log} {at:#x}");
    }
    let body = driver.completions(own.umems[0], 5, 0x7c0);
    assert_eq!(driver.own(own.context, 0x400, &body).0, 0);
}

#[test]
fn general_objects_and_rates_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(5), 1);
    let (mine, other) = (driver.make_context(), driver.make_context());
    let command = |opcode: u16, context: u16, kind: u16, number: u32, body: &[u8]| {
        let head = [opcode, context, 0, kind].map(u16::to_be_bytes).concat();
        [head, number.to_be_bytes().to_vec(), vec![0; 4], body.to_vec()].concat()
    };
    let (_, made) = driver.deliver(&command(0xa00, mine, 0xb, 0, &[7; 64]), 0);
    let number = be(&made, 8);
    assert_eq!((made[0], number != 0), (0, true));
    let (_, said) = driver.deliver(&command(0xa02, mine, 0xb, number, &[]), 0);
    assert_eq!((said[0], &said[16..80]), (0, &[7; 64][..]));
    for (opcode, context, kind, about, status) in [
        (0xa00, mine, 0x20, 0, 3),
        (0xa02, other, 0xb, number, 5),
        (0xa02, mine, 0xc, number, 5),
        (0xa03, other, 0xb, number, 5),
        (0xa01, mine, 0xb, number, 2),
        (0xa03, mine, 0xb, number, 0),
        (0xa03, mine, 0xb, number, 5),
    ] {
        let given = command(opcode, context, kind, about, &[1; 64]);
        assert_eq!(driver.deliver(&given, 0).1[0], status, "{opcode:#x} {kind:#x}");
    }
    let rate = |index: u32| [index.to_be_bytes().to_vec(), vec![0; 4], vec![1; 48]].concat();
    assert_eq!(driver.command(0x780, 0, &rate(127)).0, 0);
    assert_eq!(driver.command(0x780, 0, &rate(0)).0, 3);
    assert_eq!(driver.command(0x780, 0, &rate(128)).0, 3);
    assert_eq!(driver.command(0x780, 0, &rate(1)[..20]).0, 0x50);
}

#[test]
fn memory_on_the_device_is_given_out_stored_and_sent() {
    const START: u64 = 2016 * 4096;
    let mut w = world();
    let give = |driver: &mut Driver, start: u64, range: u32, size: u32| {
        let head = [[0; 8].to_vec(), start.to_be_bytes().to_vec()].concat();
        let body = [head, range.to_be_bytes().to_vec(), size.to_be_bytes().to_vec()].concat();
        driver.command(0x205, 0, &body)
    };
    w.left.store(START, b"nobody's");
    let (status, answer) = give(&mut w.left, START, 4096, 128);
    assert_eq!((status, be(&answer, 12)), (0, START as u32));
    for (start, range, size, status) in [
        (START, 4096, 64, 6),
        (START - 4096, 4096, 64, 3),
        (START + 31 * 4096, 8192, 64, 3),
        (START + 4096 + 64, 4096, 64, 3),
        (START + 4096, 4096, 8192, 3),
        (u64::MAX - 4095, 4096, 64, 3),
    ] {
        assert_eq!(give(&mut w.left, start, range, size).0, status, "{start:#x}");
    }
    let loaded = [w.left.register(START), w.left.register(START + 4)];
    assert_eq!(loaded, [0, 0], "what was stored before the memory was anybody's");
    w.left.store(START + 64, b"on board");
    // A key of what begins 64 bytes later, and of no more than eight bytes.
    let mut key = vec![0; 0x110];
    set(&mut key, 0x10, 1 << 26 | 0x1f << 10 | 1 << 8);
    set(&mut key, 0x14, 0x77);
    set(&mut key, 0x1c, w.here.pd);
    key[0x20..0x28].copy_from_slice(&(START + 64).to_be_bytes());
    key[0x28..0x30].copy_from_slice(&8u64.to_be_bytes());
    let key = w.left.make(0x200, &key[8..]) << 8 | 0x77;
    let send = |w: &mut World, address: u64, length: u32| {
        let data = [length.to_be_bytes(), key.to_be_bytes()].concat();
        w.left.post(&mut w.here, 0x0a, 0, &[data, address.to_be_bytes().to_vec()].concat());
        w.left.wait(&mut w.here).syndrome
    };
    w.right.post_receive(&mut w.there, 0, 8);
    assert_eq!(send(&mut w, 0, 8), 0);
    assert_eq!(w.right.see(0, 8), b"on board");
    assert_eq!(send(&mut w, 1, 8), 4, "beyond the region");
    let end = [[0; 8].to_vec(), START.to_be_bytes().to_vec()].concat();
    assert_eq!(w.left.command(0x206, 0, &end).0, 0);
    assert_eq!(w.left.command(0x206, 0, &end).0, 5, "given back already");
    assert_eq!(w.left.register(START + 64), 0);
}

#[test]
fn unreliable_connections_lose_what_nobody_takes() {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(7);
    let mut left = Driver::new(folder.path(), &wire, 1);
    let mut right = Driver::new(folder.path(), &wire, 2);
    let (mut here, mut there) = (left.make_pair_of(1, None), right.make_pair_of(1, None));
    left.connect(&here, (2, there.number));
    right.connect(&there, (1, here.number));
    let data = |key: u32| {
        let head = [8u32.to_be_bytes(), key.to_be_bytes()].concat();
        [head, super::IOVA.to_be_bytes().to_vec()].concat()
    };
    let (own, theirs) = (data(here.key), there.key);
    left.fill(0, b"lost? no");
    let send = |left: &mut Driver, here: &mut _, opcode: u8, body: &[u8]| {
        left.post(here, opcode, 0, body);
        left.wait(here).syndrome
    };
    assert_eq!(send(&mut left, &mut here, 0x0a, &own), 0, "sent, and nobody takes it");
    right.post_receive(&mut there, 0, 8);
    assert_eq!(right.poll(&mut there), None);
    assert_eq!(send(&mut left, &mut here, 0x0a, &own), 0);
    assert_eq!((right.wait(&mut there).length, right.see(0, 8)), (8, b"lost? no".to_vec()));
    // A write, and one without a right, of which nobody hears.
    let target = |key: u32| {
        let place =
            [(super::IOVA + 64).to_be_bytes().to_vec(), key.to_be_bytes().to_vec()].concat();
        [place, vec![0; 4], own.clone()].concat()
    };
    assert_eq!(send(&mut left, &mut here, 0x08, &target(theirs)), 0);
    assert_eq!(right.see(64, 8), b"lost? no");
    assert_eq!(send(&mut left, &mut here, 0x08, &target(theirs ^ 1)), 0);
    assert_eq!(left.device.counters().repeated, 0, "nothing is sent again");
    assert_eq!(send(&mut left, &mut here, 0x10, &target(theirs)), 2, "no reads");
}
