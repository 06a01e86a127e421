//! The model of an EFA, driven from user space: no machine, and every test takes milliseconds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests; clippy sees only the test functions themselves as such"
)]

mod driver;

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use driver::Completion;
use driver::Driver;
use driver::IOVA;
use driver::KEY;
use driver::Pair;
use driver::To;
use driver::pair_of_drivers;
use driver::word;
use verbgate_nic::Census;
use verbgate_nic::Event;
use verbgate_nic::Model as _;
use verbgate_nic::wire::Faults;
use verbgate_nic::wire::Wire;

/// Two devices, with a queue pair on each that knows the other's.
struct World {
    wire: Arc<Wire>,
    left: Driver,
    right: Driver,
    here: Pair,
    there: Pair,
    to: To,
    _folder: tempfile::TempDir,
}

fn world(kind: u8) -> World {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(11);
    let (mut left, mut right) = pair_of_drivers(folder.path(), &wire);
    let (here, there) = (left.make_pair(kind), right.make_pair(kind));
    let address = right.address();
    let handle = left.handle(&here, address);
    let to = To { handle, number: there.number, immediate: None, key: there.key };
    World { wire, left, right, here, there, to, _folder: folder }
}

fn sent(request: u16, operation: u8, status: u8) -> Completion {
    Completion { request, status, queue: 1, operation, length: 0, immediate: None, source: 0 }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

#[test]
fn the_driver_finds_its_device() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(1), 3);
    assert_eq!(driver.configuration(0), 0xefa1_1d0f);
    assert_eq!(driver.register(0), 1);
    let (status, attributes) = driver.command(11, &[(17, &[1])]);
    assert_eq!((status, word(&attributes, 8), attributes[36]), (0, 0b1111_1110, 4));
    let mut address = [0; 16];
    [address[0], address[1], address[8], address[15]] = [0xfe, 0x80, 2, 3];
    assert_eq!(driver.address(), address);
    // More commands than the queue has entries: the phase turns.
    for _ in 0..100 {
        driver.address();
    }
    for statistics in 0..5 {
        assert_eq!(driver.command(13, &[(16, &[statistics])]).0, 0);
    }
    assert_eq!(driver.command(13, &[(16, &[5])]).0, 5, "no such statistics");
    assert_eq!(driver.command(99, &[]).0, 2, "a bad opcode");
    assert_eq!(driver.command(11, &[(17, &[60])]).0, 3, "an unsupported feature");
}

#[test]
fn a_message_arrives_byte_for_byte() {
    let mut w = world(2);
    let message = pattern(8000);
    w.left.fill(0x100, &message);
    w.right.post_receive(&mut w.there, 77, &[(0x1800, 4000), (0x8000, 4500)]);
    w.left.post_send(&mut w.here, 55, w.to, &[(0x100, 5000), (0x100 + 5000, 3000)]);
    assert_eq!(w.left.poll(&mut w.here), Some(sent(55, 0, 0)));
    let got = w.right.poll(&mut w.there).unwrap();
    assert_eq!((got.request, got.status, got.queue, got.length), (77, 0, 2, 8000));
    assert_eq!(got.source, w.here.number);
    assert_eq!(w.right.see(0x1800, 4000), message[..4000]);
    assert_eq!(w.right.see(0x8000, 4000), message[4000..]);
}

#[test]
fn inline_data_and_immediate_data_arrive() {
    let mut w = world(2);
    w.right.post_receive(&mut w.there, 1, &[(0, 64)]);
    w.left.post_inline(&mut w.here, 2, To { immediate: Some(0x1234_5678), ..w.to }, b"within");
    assert_eq!(w.left.poll(&mut w.here), Some(sent(2, 0, 0)));
    let got = w.right.poll(&mut w.there).unwrap();
    assert_eq!((got.immediate, got.length), (Some(0x1234_5678), 6));
    assert_eq!(w.right.see(0, 6), b"within");
}

#[test]
fn a_datagram_has_room_for_a_header_and_may_be_lost() {
    let mut w = world(1);
    w.left.post_inline(&mut w.here, 1, w.to, b"nobody waits");
    assert_eq!(w.left.poll(&mut w.here), Some(sent(1, 0, 0)));
    w.right.post_receive(&mut w.there, 9, &[(0, 100)]);
    w.left.post_inline(&mut w.here, 2, w.to, b"datagram");
    let got = w.right.poll(&mut w.there).unwrap();
    assert_eq!((got.request, got.length, w.right.see(40, 8)), (9, 48, b"datagram".to_vec()));
    assert_eq!(w.right.poll(&mut w.there), None);
}

#[test]
fn reads_and_writes_move_memory() {
    let mut w = world(2);
    let data = pattern(70_000);
    w.right.fill(0x333, &data);
    w.left.post_rdma(&mut w.here, 3, 1, w.to, (0x333, 70_000), (0x10, 70_000));
    assert_eq!(w.left.poll(&mut w.here), Some(sent(3, 1, 0)));
    assert!(w.left.see(0x10, 70_000) == data, "what was read differs");
    w.left.fill(0, &pattern(100));
    w.left.post_rdma(&mut w.here, 4, 2, w.to, (0x1f000, 100), (0, 100));
    assert_eq!(w.left.poll(&mut w.here), Some(sent(4, 2, 0)));
    assert_eq!(w.right.see(0x1f000, 100), pattern(100));
    assert_eq!(w.right.poll(&mut w.there), None);
    // With immediate data, a write takes a receive.
    w.right.post_receive(&mut w.there, 8, &[]);
    w.right.post_receive(&mut w.there, 8, &[(0, 1)]);
    let to = To { immediate: Some(5), ..w.to };
    w.left.post_rdma(&mut w.here, 5, 2, to, (0, 66_000), (0, 66_000));
    let got = w.right.poll(&mut w.there).unwrap();
    assert_eq!((got.request, got.operation, got.length, got.immediate), (8, 2, 66_000, Some(5)));
}

#[test]
fn errors_have_the_status_that_providers_know() {
    let mut w = world(2);
    let far = 0x8000_0000;
    let end = |w: &mut World, post: &mut dyn FnMut(&mut World)| {
        post(w);
        w.left.wait(&mut w.here).status
    };
    let no_handle = To { handle: 77, ..w.to };
    assert_eq!(end(&mut w, &mut |w| w.left.post_inline(&mut w.here, 1, no_handle, b"x")), 4);
    assert_eq!(end(&mut w, &mut |w| w.left.post_send(&mut w.here, 1, w.to, &[(far, 1)])), 5);
    assert_eq!(end(&mut w, &mut |w| w.left.post_send(&mut w.here, 1, w.to, &[(0, 9000)])), 6);
    let rdma = |w: &mut World, to: To, there| {
        w.left.post_rdma(&mut w.here, 1, 1, to, (there, 8), (0, 8));
    };
    assert_eq!(end(&mut w, &mut |w| rdma(w, w.to, far)), 7);
    let no_key = To { key: 12345, ..w.to };
    assert_eq!(end(&mut w, &mut |w| rdma(w, no_key, 0)), 7);
    let no_pair = To { number: w.to.number + 1, ..w.to };
    assert_eq!(end(&mut w, &mut |w| rdma(w, no_pair, 0)), 9);
    w.right.post_receive(&mut w.there, 1, &[(0, 4)]);
    assert_eq!(end(&mut w, &mut |w| w.left.post_inline(&mut w.here, 1, w.to, b"longer")), 11);
    assert_eq!(w.right.poll(&mut w.there).map(|got| got.status), Some(6));
    // Nobody at the address.
    let nowhere = w.left.handle(&w.here, [9; 16]);
    let nowhere = To { handle: nowhere, ..w.to };
    assert_eq!(end(&mut w, &mut |w| w.left.post_inline(&mut w.here, 1, nowhere, b"x")), 13);
    // And all goes on.
    w.right.post_receive(&mut w.there, 2, &[(0, 4)]);
    assert_eq!(end(&mut w, &mut |w| w.left.post_inline(&mut w.here, 1, w.to, b"fits")), 0);
}

#[test]
fn a_send_waits_for_a_receive_as_long_as_it_may() {
    let mut w = world(2);
    w.left.post_inline(&mut w.here, 1, w.to, b"early");
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(w.left.poll(&mut w.here), None);
    w.right.post_receive(&mut w.there, 2, &[(0, 64)]);
    assert_eq!(w.left.wait(&mut w.here), sent(1, 0, 0));
    assert_eq!(w.right.wait(&mut w.there).length, 5);
    let fields = [1u32 << 5, w.here.handle, 0, 0, 0, 0].map(u32::to_le_bytes).concat();
    assert_eq!(w.left.command(2, &[(4, &fields), (29, &[3])]).0, 0);
    w.left.post_inline(&mut w.here, 2, w.to, b"never");
    assert_eq!(w.left.wait(&mut w.here), sent(2, 0, 10));
}

#[test]
fn sends_without_receives_leave_the_device_time() {
    let mut w = world(2);
    for request in 0..60 {
        w.left.post_inline(&mut w.here, request, w.to, b"early");
    }
    let (before, begun) = (w.left.device.counters().repeated, Instant::now());
    let tries = || w.left.device.counters().repeated - before;
    verbgate_wait::until("a try of each", || tries() >= 60);
    std::thread::sleep(Duration::from_millis(500));
    // A pause of a millisecond would make each send a thousand tries a second.
    let (tries, seconds) = (tries(), begun.elapsed().as_secs() + 1);
    assert!(tries < 60 * 100 * seconds, "{tries} in {seconds} s");
    for request in 0..60 {
        w.right.post_receive(&mut w.there, request, &[(0, 8)]);
    }
    for _ in 0..60 {
        assert_eq!(w.right.wait(&mut w.there).status, 0);
    }
}

#[test]
fn a_bad_wire_loses_nothing_and_executes_nothing_twice() {
    let mut w = world(2);
    let delay = Duration::from_micros(200);
    w.wire.set_faults(Faults { loss: 0.2, duplicate: 0.2, reorder: 0.2, delay });
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for request in 0..200u16 {
        w.right.post_receive(&mut w.there, request, &[(0, 8)]);
        w.left.post_inline(&mut w.here, request, w.to, &request.to_le_bytes());
        left.push(w.left.wait(&mut w.here));
        right.push(w.right.wait(&mut w.there).request);
    }
    assert!(left.iter().all(|it| it.status == 0), "{left:?}");
    assert_eq!(right, (0..200).collect::<Vec<u16>>());
    assert_eq!(w.right.poll(&mut w.there), None);
    let (carried, ours, theirs) =
        (w.wire.carried(), w.left.device.counters(), w.right.device.counters());
    assert!(carried.lost > 20 && carried.duplicated > 20 && carried.reordered > 20);
    assert!(ours.repeated > 10 && theirs.ignored > 10, "{ours:?} {theirs:?}");
}

#[test]
fn an_unresponsive_receiver_is_named() {
    let mut w = world(2);
    w.wire.set_faults(Faults { loss: 1.0, ..Faults::default() });
    w.left.post_rdma(&mut w.here, 1, 1, w.to, (0, 8), (0, 8));
    assert_eq!(w.left.wait(&mut w.here), sent(1, 1, 13));
}

#[test]
fn events_come_once_and_only_when_asked_for() {
    let mut w = world(2);
    for request in 0..4 {
        w.right.post_receive(&mut w.there, request, &[(0, 8)]);
    }
    w.left.post_inline(&mut w.here, 1, w.to, b"x");
    assert_eq!(w.right.event(0), None);
    // What is there already tells at once.
    w.right.arm(&w.there);
    assert_eq!(w.right.event(0), Some(w.there.cq));
    w.left.post_inline(&mut w.here, 1, w.to, b"x");
    assert_eq!(w.right.event(1), None);
    while w.right.poll(&mut w.there).is_some() {}
    w.right.arm(&w.there);
    assert_eq!(w.right.event(1), None);
    w.left.post_inline(&mut w.here, 1, w.to, b"x");
    assert_eq!(w.right.event(1), Some(w.there.cq));
}

#[test]
fn a_failed_pair_flushes_what_is_posted() {
    let mut w = world(2);
    w.left.post_receive(&mut w.here, 7, &[(0, 8)]);
    w.left.post_inline(&mut w.here, 6, w.to, b"no receive");
    let fields = [1u32, w.here.handle, 6].map(u32::to_le_bytes).concat();
    assert_eq!(w.left.command(2, &[(4, &fields)]).0, 0);
    assert_eq!(w.left.poll(&mut w.here), Some(sent(6, 0, 1)));
    let receive = w.left.poll(&mut w.here).unwrap();
    assert_eq!((receive.request, receive.status, receive.queue), (7, 1, 2));
}

#[test]
fn doorbells_count_in_sixteen_bits() {
    let mut w = world(1);
    // Providers ring a counter of 16 bits, which turns after 65,536 work requests. The ring keeps
    // those that were posted, and nobody receives them.
    for _ in 0..driver::RING {
        w.left.post_inline(&mut w.here, 1, w.to, b"nobody listens");
    }
    w.left.post_again_until(&mut w.here, (1 << 16) - 2);
    for request in 0..4 {
        w.right.post_receive(&mut w.there, request, &[(0, 100)]);
        w.left.post_inline(&mut w.here, request, w.to, b"over the turn");
        let got = w.right.poll(&mut w.there).map(|got| (got.request, got.length));
        assert_eq!(got, Some((request, 53)));
    }
}

#[test]
fn an_old_number_does_not_reach_a_new_pair() {
    let mut w = world(2);
    w.right.end_pair(&w.there);
    let mut new = w.right.make_pair(2);
    assert_ne!(new.number, w.there.number);
    w.right.post_receive(&mut new, 1, &[(0, 8)]);
    w.left.post_inline(&mut w.here, 1, w.to, b"stale");
    assert_eq!(w.left.wait(&mut w.here).status, 9);
    assert_eq!(w.right.poll(&mut new), None);
}

#[test]
fn objects_in_use_stay_and_ended_ones_are_gone() {
    let mut w = world(2);
    assert_eq!(w.left.command(10, &[(4, &w.here.cq.to_le_bytes())]).0, 7, "a queue in use");
    assert_eq!(w.left.command(15, &[(4, &w.here.pd.to_le_bytes())]).0, 7, "a domain in use");
    w.left.end_pair(&w.here);
    assert_eq!(
        w.left.command(6, &[(4, &[w.to.handle.to_le_bytes(), w.here.pd.to_le_bytes()].concat())]).0,
        0
    );
    assert_eq!(w.left.command(15, &[(4, &w.here.pd.to_le_bytes())]).0, 0);
    assert_eq!(w.left.device.census(), Census::default());
    assert_eq!(w.left.command(8, &[(4, &w.here.key.to_le_bytes())]).0, 5, "a key that is gone");
}

#[test]
fn long_lists_of_pages_are_chained() {
    let mut w = world(2);
    // 600 lists of 512 pages: more than a chunk of 510 pointers holds. All pages are one.
    let (lists, pages) = (600u64, 600u64 * 512);
    let (page, list, first, second) = (0x90_0000u64, 0x90_1000u64, 0x90_2000u64, 0x90_3000u64);
    w.left.put(list, &page.to_le_bytes().repeat(512));
    w.left.put(first, &list.to_le_bytes().repeat(510));
    let link = [4092u32, 0x90_3000, 0].map(u32::to_le_bytes).concat();
    w.left.put(first + 510 * 8, &link);
    w.left.put(second, &list.to_le_bytes().repeat(usize::try_from(lists - 510).unwrap()));
    let iova = IOVA + (1 << 40);
    let (status, region) = w.left.command_with(
        7,
        6,
        &[
            (4, &w.here.pd.to_le_bytes()),
            (8, &4092u32.to_le_bytes()),
            (12, &0x90_2000u32.to_le_bytes()),
            (40, &(pages * 4096).to_le_bytes()),
            (48, &[12, 7]),
            (56, &iova.to_le_bytes()),
        ],
    );
    assert_eq!(status, 0);
    w.left.put(page, b"the last page of all");
    let (key, last) = (word(&region, 8), (1u64 << 40) + (pages - 1) * 4096);
    w.right.post_receive(&mut w.there, 1, &[(0, 64)]);
    let mut here = w.here;
    here.key = key;
    w.left.post_send(&mut here, 1, w.to, &[(last, 20)]);
    assert_eq!(w.right.wait(&mut w.there).length, 20);
    assert_eq!(w.right.see(0, 20), b"the last page of all");
}

#[test]
fn a_stalled_queue_answers_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(1), 1);
    driver.device.stall(true);
    let at = driver.submit(14, 0, &[]);
    assert_eq!(driver.get::<4>(at)[3], 0);
    driver.device.stall(false);
    assert_eq!(driver.get::<4>(at)[3] & 1, 1);
}

#[test]
fn events_of_the_device_reach_who_enabled_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(folder.path(), &Wire::new(1), 1);
    driver.device.raise(Event::FatalError);
    assert_eq!(driver.asynchronous(0), None);
    assert_eq!(driver.command(12, &[(17, &[2]), (24, &0b10010u32.to_le_bytes())]).0, 0);
    driver.device.raise(Event::Warning);
    driver.device.raise(Event::KeepAlive);
    assert_eq!((driver.asynchronous(0), driver.asynchronous(1)), (Some(4), None));
}

#[test]
fn a_reset_leaves_nothing() {
    let mut w = world(2);
    w.left.post_inline(&mut w.here, 1, w.to, b"unanswered");
    w.left.probe();
    assert_eq!(w.left.device.census(), Census::default());
    let here = w.left.make_pair(2);
    assert_ne!(here.number, w.here.number);
    assert_eq!(KEY, 0x1111);
}
