//! A driver for the model of an ERDMA in user space: it does what the kernel's driver and rdma-core's
//! provider do, over the client of the crate `vfio_user`.
//!
//! Numbers are offsets in the structures of the driver's headers, the header of eight bytes included.

mod traffic;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use verbgate_nic::erdma::Erdma;
use verbgate_nic::erdma::Protocol;
use verbgate_nic::serve::Served;
use verbgate_nic::wire::Wire;
use vfio_user::Client;

const MEMORY: u64 = 16 << 20;
const COMMANDS: u64 = 0x1_0000;
const COMPLETIONS: u64 = 0x1_8000;
const EVENTS: u64 = 0x2_0000;
const ASYNCHRONOUS: u64 = 0x2_1000;
const PROGRAM_EVENTS: u64 = 0x2_2000;
const CQ: u64 = 0x3_0000;
const LIST: u64 = 0x4_0000;
const SQ: u64 = 0x5_0000;
const RQ: u64 = 0x6_0000;
/// Where the pages of memory regions are, each followed by one of nobody's.
const DATA: u64 = 0x10_0000;
/// The address that programs know them by.
pub(crate) const IOVA: u64 = 0x7f00_0000_0800;
pub(crate) const REGION: u64 = 0x4_0000;
/// Blocks of the command queue: four for each command.
const DEPTH: u16 = 128;
/// Entries of completion queues and of receives, and blocks of sends.
pub(crate) const RING: u32 = 64;
/// Atomic operations, and all that there is of reads and writes.
pub(crate) const ALL_RIGHTS: u32 = 0x3e;

pub(crate) struct Driver {
    client: Client,
    pub(crate) memory: File,
    pub(crate) device: Arc<Erdma>,
    _served: Served,
    protocol: Protocol,
    rung: u16,
    ended: u32,
}

/// A queue pair in its own protection domain, with a completion queue and a region of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) number: u32,
    pub(crate) pd: u32,
    pub(crate) key: u32,
    /// Pages of doorbells as the command gives them: for sends, and the two that the driver maps the
    /// other way round.
    pages: [u64; 3],
    seen: u32,
    sent: u16,
    posted: u16,
}

/// A completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Completion {
    pub(crate) index: u16,
    /// 0 of sends, 1 of receives.
    pub(crate) queue: u8,
    pub(crate) opcode: u8,
    pub(crate) status: u8,
    pub(crate) length: u32,
    pub(crate) word: u32,
}

/// A state in which a queue pair sends.
pub(crate) fn ready(protocol: Protocol) -> u32 {
    if protocol == Protocol::Roce { 3 } else { 2 }
}

/// A GID, or the end of a stream.
pub(crate) fn gid(number: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    [gid[10], gid[11], gid[12], gid[13], gid[14], gid[15]] = [0xff, 0xff, 10, 98, 0, number];
    gid
}

impl Driver {
    pub(crate) fn new(folder: &Path, wire: &Arc<Wire>, number: u8, protocol: Protocol) -> Self {
        let device = Erdma::new(wire, [2, 0, 0, 0x98, 0, number], protocol);
        let path = folder.join(format!("erdma{number}"));
        let served = Served::listen(&path, device.clone()).unwrap();
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let memory = File::from(fd);
        memory.set_len(MEMORY).unwrap();
        let mut client = Client::new(&path).unwrap();
        client.dma_map(0, 0, MEMORY, memory.as_raw_fd()).unwrap();
        let (rung, ended) = (0, 0);
        let mut driver = Self { client, memory, device, _served: served, protocol, rung, ended };
        driver.probe();
        if protocol == Protocol::Roce {
            let mut set = [0; 20];
            set[4..].copy_from_slice(&gid(number));
            driver.done(0, 14, &set);
        }
        driver
    }

    /// Sets the device's queues up, as `erdma_probe_dev` does.
    pub(crate) fn probe(&mut self) {
        (self.rung, self.ended) = (0, 0);
        for at in [COMPLETIONS, EVENTS, ASYNCHRONOUS, PROGRAM_EVENTS] {
            self.put(at, &[0; 0x1000]);
        }
        self.write32(0x10, 1);
        assert_eq!(self.register(0x14), 1);
        for (at, value) in [
            (0x20, COMMANDS as u32),
            (0x28, COMPLETIONS as u32),
            (0x30, DEPTH.into()),
            (0x34, 128),
            (0x38, EVENTS as u32),
            (0x40, ASYNCHRONOUS as u32),
            (0x48, 256),
            (0x10, 2),
        ] {
            self.write32(at, value);
        }
        assert_eq!(self.register(0x14) & 2, 2, "not ready");
        // An event queue of 128, with interrupt 1.
        let mut command = [0; 24];
        command[..8].copy_from_slice(&PROGRAM_EVENTS.to_le_bytes());
        command[8..12].copy_from_slice(&[1, 1, 7, 1]);
        self.done(1, 0, &command);
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    pub(crate) fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn write32(&mut self, at: u64, word: u32) {
        self.client.region_write(0, at, &word.to_le_bytes()).unwrap();
    }

    /// Rings a doorbell, or stores eight bytes to a register.
    pub(crate) fn store(&mut self, at: u64, word: u64) {
        self.client.region_write(0, at, &word.to_le_bytes()).unwrap();
    }

    pub(crate) fn register(&mut self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(0, at, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// Puts a command of four blocks on the queue; gives its status and the two words of its answer.
    pub(crate) fn command(&mut self, module: u8, opcode: u8, body: &[u8]) -> (u8, [u64; 2]) {
        let mut entry = [0; 128];
        [entry[2], entry[3], entry[6]] = [opcode, module, 3 << 4];
        entry[8..8 + body.len()].copy_from_slice(body);
        let index = self.rung;
        self.put(COMMANDS + u64::from(index % DEPTH) * 32, &entry);
        self.rung = index.wrapping_add(4);
        self.store(0x200, self.rung.into());
        let entry: [u8; 32] = self.get(COMPLETIONS + u64::from(self.ended % u32::from(DEPTH)) * 32);
        let round = self.ended / u32::from(DEPTH);
        assert_eq!(entry[0] >> 7, u8::from(round.is_multiple_of(2)), "no completion of {opcode}");
        assert_eq!((entry[2], be(&entry, 4)), (2, index.into()));
        self.ended += 1;
        let long = |at| u64::from(be(&entry, at)) | u64::from(be(&entry, at + 4)) << 32;
        (entry[3], [long(8), long(16)])
    }

    pub(crate) fn done(&mut self, module: u8, opcode: u8, body: &[u8]) -> [u64; 2] {
        let (status, answer) = self.command(module, opcode, body);
        assert_eq!(status, 0, "command {module}, {opcode}");
        answer
    }

    /// Makes what a program makes: each number of its own is `number`.
    pub(crate) fn make_pair(&mut self, number: u32) -> Pair {
        let [pages, _] = self.done(1, 8, &7u32.to_le_bytes());
        let pages = [pages & 0xffff, pages >> 48, pages >> 32 & 0xffff];
        let short = |page: u64| page as u32;
        self.put(CQ, &[0; 64 * 32]);
        // Two pages, found by a list; or, as Linux 6.1 says it, one that is called indirect and is named
        // itself. The completion queue of events 1.
        let list = [CQ.to_le_bytes(), (CQ + 4096).to_le_bytes()].concat();
        self.put(LIST + 0x8000, &list);
        let (pages_at, count) = match self.protocol {
            Protocol::Tcp => (CQ, 1),
            Protocol::Roce => (LIST + 0x8000, 2),
        };
        let depth = RING.ilog2();
        self.done(
            0,
            4,
            &words(&[
                depth << 24 | number,
                short(pages_at),
                0,
                count << 16 | 1 << 15 | 1 << 11 | 1,
                0,
                0,
                0,
                short(pages[2]),
            ]),
        );
        let pd = number + 100;
        let key = self.register_memory(number, pd, ALL_RIGHTS);
        let (sq, rq) = (SQ as u32, RQ as u32);
        let cqn = 1 << 25 | number;
        let mut body = words(&[
            depth << 20 | number,
            depth << 20 | pd,
            cqn,
            cqn,
            sq,
            0,
            rq,
            0,
            // One page each, in the command.
            1 << 1,
            1 << 1,
            0,
            0,
            0,
            0,
        ]);
        body.extend([0; 48]);
        body.extend(words(&[short(pages[0]) << 16 | short(pages[1]), 0]));
        assert_eq!(self.done(0, 1, &body)[0], u64::from(number));
        Pair { number, pd, key, pages, seen: 0, sent: 0, posted: 0 }
    }

    /// Registers memory: its pages are in a list of lists.
    pub(crate) fn register_memory(&mut self, index: u32, pd: u32, rights: u32) -> u32 {
        let count = REGION / 4096 + 1;
        let pages: Vec<u8> =
            (0..count).flat_map(|page| (DATA + page * 8192).to_le_bytes()).collect();
        self.put(LIST + 0x1000, &pages);
        self.put(LIST, &(LIST + 0x1000).to_le_bytes());
        let cfg1 = pd << 12 | rights;
        let cfg2 = 12 << 27 | 2 << 20 | count as u32;
        let (low, high) = (IOVA as u32, (IOVA >> 32) as u32);
        let list = LIST as u32;
        let body = words(&[
            1 << 31 | 1 << 28 | index,
            cfg1,
            low,
            high,
            REGION as u32,
            cfg2,
            list,
            0,
            0,
            0,
            0,
            0,
        ]);
        self.done(0, 8, &body);
        index << 8
    }

    /// Changes the state of a queue pair that is connected to a number at an address.
    pub(crate) fn connect(&mut self, pair: &Pair, own: u8, peer: (u8, u32), state: u32) {
        let cfg = state << 24 | pair.number;
        if self.protocol == Protocol::Tcp {
            // Ports are those of the queue pairs.
            let port = |number: u32| (number as u16).to_be_bytes();
            let (to, from) = ([10, 98, 0, peer.0], [10, 98, 0, own]);
            let ports = [port(pair.number), port(peer.1)].concat();
            let body = [words(&[cfg, 0]), to.into(), from.into(), ports, vec![0; 8]].concat();
            self.done(0, 3, &body);
            return;
        }
        let mut body = words(&[cfg, peer.1, 0x3d, 0, 0x77, 0x77, 0, 0, 0]);
        body.extend([0; 8]);
        body.extend(gid(peer.0));
        self.done(0, 3, &body);
    }

    /// Ends what [`Driver::make_pair`] has made.
    pub(crate) fn end_pair(&mut self, pair: &Pair) {
        self.done(0, 2, &pair.number.to_le_bytes());
        self.done(0, 5, &pair.number.to_le_bytes());
        self.done(0, 9, &pair.number.to_le_bytes());
        let [send, first, second] = pair.pages.map(|page| page as u16);
        let body = [&7u32.to_le_bytes()[..], &pages(first, send, second)].concat();
        self.done(1, 9, &body);
    }

    /// The completion queue that an event is about, if the event is there.
    pub(crate) fn event(&self, index: u64) -> Option<u32> {
        let entry: [u8; 16] = self.get(PROGRAM_EVENTS + index * 16);
        (entry[3] & 0x80 != 0).then(|| le(&entry, 0) & 0xf_ffff)
    }

    /// The kind of an asynchronous event, and the queue pair, if it is there.
    pub(crate) fn asynchronous(&self, index: u64) -> Option<(u8, u32)> {
        let entry: [u8; 16] = self.get(ASYNCHRONOUS + index * 16);
        (entry[3] & 0x80 != 0).then(|| (entry[2], le(&entry, 4)))
    }

    /// Writes to the region as the program sees it.
    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            self.put(physical(offset + index as u64), &[*byte]);
        }
    }

    /// Reads the region as the program sees it.
    pub(crate) fn see(&self, offset: u64, length: usize) -> Vec<u8> {
        (0..length as u64).map(|index| self.get::<1>(physical(offset + index))[0]).collect()
    }
}

fn pages(first: u16, send: u16, second: u16) -> Vec<u8> {
    [first, send, 0, second].iter().flat_map(|page| page.to_le_bytes()).collect()
}

/// Where a byte of the region is in memory.
fn physical(offset: u64) -> u64 {
    let at = offset + IOVA % 4096;
    DATA + at / 4096 * 8192 + at % 4096
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn be(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn le(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
