//! A program that walks a port's table, against a sysfs made by hand.

use std::fs;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use verbgate_abi::decode;
use verbgate_abi::encode::RequestBuilder;
use verbgate_abi::ids;
use verbgate_abi::legacy;
use verbgate_abi::request::Request;
use verbgate_abi::table;
use verbgate_abi::wire::DriverId;
use verbgate_abi::wire::GuestAddr;
use verbgate_abi::write;

use super::*;

const RDEV: (u32, u32) = (231, 192);
/// As long as Soft-RoCE's.
const SLOTS: u32 = 1024;
const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000\n";
/// Where answers go.
const ANSWER: u64 = 0x9000;
/// The number of the loopback device, whose GIDs are the sandbox's here.
const LO: u32 = 1;

/// The view of a sandbox in this network namespace, on a device of one port.
struct Scene {
    sysfs: tempfile::TempDir,
    view: GidView,
    /// What is sent here, rtnetlink has said.
    news: UnixDatagram,
}

impl Scene {
    fn new(link_layer: &str, node_type: &str) -> Self {
        let sysfs = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let put = |path: &str, text: &str| put(sysfs.path(), path, text);
        put("dev/char/231:192/ibdev", "made0\n");
        put("class/infiniband/made0/node_type", node_type);
        put("class/infiniband/made0/ports/1/link_layer", link_layer);
        for index in 0..SLOTS {
            put(&format!("class/infiniband/made0/ports/1/gids/{index}"), EMPTY);
        }
        let (news, heard) = UnixDatagram::pair().unwrap();
        heard.set_nonblocking(true).unwrap();
        let mut network = Network::here().unwrap();
        network.sysfs = File::open(sysfs.path()).unwrap().into();
        network.news = heard.into();
        network.rdma = None;
        let number = DevNumber { major: RDEV.0, minor: RDEV.1 };
        let granted = vec![Identity::below(sysfs.path(), number).unwrap()];
        let sides = Mutex::new(Sides::new(Side { network, links: None }, None));
        let scene = Self { sysfs, view: GidView { sides, granted }, news };
        scene.own(LO);
        scene
    }

    /// Makes a link the port's.
    fn own(&self, ifindex: u32) {
        let port = self.sysfs.path().join("class/infiniband/made0/ports/1");
        let id = fs::metadata(port).unwrap().ino();
        self.view.sides.lock().of_ports.insert(id, vec![ifindex]);
    }

    /// Fills a slot with the GID of 127.0.0.1.
    fn fill(&self, index: u32, netdev: &str) {
        let port = "class/infiniband/made0/ports/1";
        let gid = "0000:0000:0000:0000:0000:ffff:7f00:0001\n";
        put(self.sysfs.path(), &format!("{port}/gids/{index}"), gid);
        put(self.sysfs.path(), &format!("{port}/gid_attrs/ndevs/{index}"), netdev);
        put(self.sysfs.path(), &format!("{port}/gid_attrs/types/{index}"), "RoCE v2\n");
    }

    fn clear(&self, index: u32) {
        let port = "class/infiniband/made0/ports/1";
        put(self.sysfs.path(), &format!("{port}/gids/{index}"), EMPTY);
    }

    /// What every way says of the table's length: QUERY_PORT in its three forms, and sysfs.
    fn lengths(&self) -> [Option<u32>; 4] {
        let [method, invoke, written] = queries(1).map(|query| self.asked(&query));
        [method, invoke, written, self.view.length("made0", 1)]
    }

    /// What is put into the answer to QUERY_PORT.
    fn asked(&self, query: &Request) -> Option<u32> {
        match self.view.judge(query, RDEV, true) {
            Judged::Patched(patch) => {
                let answer = &query.attrs()[patch.pos].attr;
                assert_eq!(answer.data, ANSWER);
                let mut output = vec![0xaa; answer.len.into()];
                patch.put(&mut output);
                // struct ib_uverbs_query_port_resp: behind four counters of 32 bits.
                let (before, rest) = output.split_at(16);
                let (length, behind) = rest.split_at(4);
                assert!(before.iter().chain(behind).all(|byte| *byte == 0xaa));
                Some(u32::from_ne_bytes(length.try_into().unwrap()))
            }
            Judged::Passed => None,
            other => panic!("{other:?}"),
        }
    }

    fn indices(&self) -> Option<Vec<u32>> {
        let table = self.view.table(RDEV).unwrap();
        table.map(|entries| entries.iter().map(|entry| entry.index.0).collect())
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// QUERY_PORT as a method, as a command that a method carries, and as a command given with `write`.
fn queries(port: u8) -> [Request; 3] {
    let device = ids::UVERBS_OBJECT_DEVICE.id;
    let method = |id| RequestBuilder::new(table::method(device, id, RXE).unwrap(), RXE);
    let asked = method(ids::UVERBS_METHOD_QUERY_PORT)
        .constant(ids::UVERBS_ATTR_QUERY_PORT_PORT_NUM, port.into())
        .output(ids::UVERBS_ATTR_QUERY_PORT_RESP, GuestAddr(ANSWER), 48)
        .build(GuestAddr(0x1_0000));
    let spec = legacy::commands().iter().find(|spec| spec.short_name == "QUERY_PORT").unwrap();
    let mut core_in = vec![0; spec.req_size()];
    core_in[..8].copy_from_slice(&ANSWER.to_ne_bytes());
    core_in[8] = port;
    let invoke = method(ids::UVERBS_METHOD_INVOKE_WRITE)
        .input(ids::UVERBS_ATTR_CORE_IN, &core_in)
        .output(ids::UVERBS_ATTR_CORE_OUT, GuestAddr(ANSWER), 40)
        .constant(ids::UVERBS_ATTR_WRITE_CMD, spec.write_cmd)
        .build(GuestAddr(0x1_0000));
    // struct ib_uverbs_cmd_hdr: the command, and words in and out.
    let words = u16::try_from((8 + core_in.len()) / 4).unwrap();
    let mut written = u32::try_from(spec.write_cmd).unwrap().to_ne_bytes().to_vec();
    written.extend(words.to_ne_bytes());
    written.extend(10_u16.to_ne_bytes());
    written.extend(core_in);
    let written = write::parse_write(&written).unwrap().into_request(RXE).unwrap();
    let [asked, invoke] = [asked, invoke].map(|encoded| {
        let outline = decode::parse(&encoded.bytes).unwrap();
        let mut arena = vec![0; outline.arena_len()];
        for payload in outline.payloads() {
            let start = usize::try_from(payload.addr.0 - 0x1_0000).unwrap();
            let end = start + payload.range.len();
            arena[payload.range].copy_from_slice(&encoded.payload[start..end]);
        }
        outline.with_payloads(arena).unwrap()
    });
    [asked, invoke, written]
}

const RXE: DriverId = DriverId::RXE;

/// Soft-RoCE has 1,024 slots: natively a walk makes as many requests, and reads as many files
/// three times.
#[test]
fn a_table_ends_behind_its_last_entry_whoever_asks() {
    let scene = Scene::new("Ethernet\n", "1: CA\n");
    scene.fill(3, "lo\n");
    scene.fill(5, "lo\n");
    // Another's, which is masked.
    scene.fill(9, "eth7\n");
    // With the empty slot behind.
    assert_eq!(scene.lengths(), [Some(7); 4]);
    assert_eq!(scene.indices(), Some(vec![3, 5]));
    // Indices are the host's, and behind the end they are as empty ones.
    let at = |index| scene.view.at(RDEV, 1, GidIndex(index)).unwrap();
    assert!(matches!(at(5), Seen::Entry(Entry { index: GidIndex(5), ifindex: LO, .. })));
    assert_eq!([at(4), at(6), at(9), at(SLOTS - 1)], [Seen::Nothing; 4]);
    // The kernel says what is wrong with these.
    assert_eq!(at(SLOTS), Seen::Anything);
    assert!(queries(2).iter().all(|query| scene.asked(query).is_none()));
    let [query, ..] = queries(1);
    assert!(matches!(scene.view.judge(&query, RDEV, false), Judged::Passed));
}

/// Nothing comes behind the end of the host's.
#[test]
fn a_full_table_has_no_empty_slot() {
    let scene = Scene::new("Ethernet\n", "1: CA\n");
    scene.fill(SLOTS - 1, "lo\n");
    assert_eq!(scene.lengths(), [Some(SLOTS); 4]);
}

#[test]
fn the_end_moves_with_the_entries() {
    let scene = Scene::new("Ethernet\n", "1: CA\n");
    assert_eq!(scene.lengths(), [Some(1); 4]);
    assert_eq!(scene.indices(), Some(Vec::new()));
    // Another's, and so nothing of the sandbox's.
    scene.fill(0, "eth7\n");
    // Which rtnetlink tells of, as of an address.
    let news = || assert_eq!(scene.news.send(&[0; 16]).unwrap(), 16);
    let until = |wanted: u32| {
        verbgate_wait::until(&format!("a length of {wanted}"), || {
            // What belongs to the port is not remembered after news.
            scene.view.sides.lock().hear().unwrap();
            scene.own(LO);
            scene.lengths() == [Some(wanted); 4]
        });
    };
    news();
    until(1);
    // Each takes the first empty slot.
    scene.fill(1, "lo\n");
    news();
    until(3);
    assert_eq!(scene.indices(), Some(vec![1]));
    scene.fill(2, "eth7\n");
    scene.fill(3, "lo\n");
    news();
    until(5);
    assert_eq!(scene.indices(), Some(vec![1, 3]));
    scene.clear(1);
    news();
    until(5);
    scene.clear(3);
    news();
    until(1);
    assert_eq!(scene.indices(), Some(Vec::new()));
}

/// InfiniBand, iWARP, and what has no name (EFA): nothing is masked, and nothing is cut.
#[test]
fn other_ports_are_shown_as_they_are() {
    for (link_layer, node_type) in [
        ("InfiniBand\n", "1: CA\n"),
        ("Ethernet\n", "4: RNIC\n"),
        ("Unknown\n", "7: unspecified\n"),
    ] {
        let scene = Scene::new(link_layer, node_type);
        scene.fill(0, "");
        assert_eq!(scene.lengths(), [None; 4], "{link_layer}");
        assert_eq!(scene.indices(), None, "{link_layer}");
        let seen = scene.view.at(RDEV, 1, GidIndex(0)).unwrap();
        assert!(matches!(seen, Seen::Entry(Entry { ifindex: 0, .. })), "{link_layer} {seen:?}");
        assert!(scene.view.shows("made0", 1, Ipv6Addr::LOCALHOST, None), "{link_layer}");
    }
}

#[test]
fn an_answer_that_ends_before_has_nothing_put_into_it() {
    for offset in [46, 48, usize::MAX] {
        let mut output = [0; 48];
        GidPatch { pos: 1, offset, bytes: [1; 4] }.put(&mut output);
        assert_eq!(output, [0; 48], "{offset}");
    }
}
