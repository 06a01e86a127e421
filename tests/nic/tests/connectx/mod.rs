//! A driver for the model of a ConnectX in user space: it does what `mlx5_core`, `mlx5_ib` and rdma-core's
//! provider do, over the client of the crate `vfio_user`.
//!
//! Numbers are offsets in bytes in the structures of `mlx5_ifc.h`, a command's head included.

mod objects;
mod own;
mod traffic;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use verbgate_nic::mlx5::Mlx5;
use verbgate_nic::serve::Served;
use verbgate_nic::wire::Wire;
use vfio_user::Client;

const MEMORY: u64 = 16 << 20;
const COMMANDS: u64 = 0x1_0000;
const MAILBOXES: u64 = 0x2_0000;
const ANSWERS: u64 = 0x4_0000;
const EVENTS: u64 = 0x6_0000;
const CQ: u64 = 0x7_0000;
/// Both queues of a queue pair: receives, and after a page sends.
const QUEUES: u64 = 0x8_0000;
const RECORDS: u64 = 0x9_0000;
const SHARED: u64 = 0xa_0000;
/// Where the pages of memory regions are, each followed by one of nobody's.
const DATA: u64 = 0x10_0000;
/// The address that programs know them by.
pub(crate) const IOVA: u64 = 0x7f00_0000_0800;
pub(crate) const REGION: u64 = 0x4_0000;
/// Entries of completion queues, blocks of sends, and receives.
pub(crate) const RING: u32 = 64;
/// A receive is of two segments.
const STRIDE: u64 = 32;
/// Data of a mailbox, and what an entry of the command queue holds itself.
const BLOCK: usize = 512;
const INLINE: usize = 16;
/// Atomic, remote and local writes and reads.
pub(crate) const ALL_RIGHTS: u8 = 0x1f;

pub(crate) struct Driver {
    client: Client,
    pub(crate) memory: File,
    pub(crate) device: Arc<Mlx5>,
    _served: Served,
    token: u8,
    pub(crate) uar: u32,
    pub(crate) eqn: u32,
}

/// A queue pair in its own protection domain, with a completion queue and a region of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) number: u32,
    pub(crate) cqn: u32,
    pub(crate) pd: u32,
    pub(crate) key: u32,
    seen: u32,
    sent: u16,
    posted: u16,
}

/// A completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Completion {
    /// 0 of sends, 2 of receives, 13 and 14 of those that failed.
    pub(crate) of: u8,
    pub(crate) index: u16,
    /// What the work request was.
    pub(crate) opcode: u8,
    pub(crate) syndrome: u8,
    pub(crate) length: u32,
    pub(crate) word: u32,
}

impl Driver {
    pub(crate) fn new(folder: &Path, wire: &Arc<Wire>, number: u16) -> Self {
        let device = Mlx5::new(wire, number);
        let path = folder.join(format!("mlx5-{number}"));
        let served = Served::listen(&path, device.clone()).unwrap();
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let memory = File::from(fd);
        memory.set_len(MEMORY).unwrap();
        let mut client = Client::new(&path).unwrap();
        client.dma_map(0, 0, MEMORY, memory.as_raw_fd()).unwrap();
        let mut driver = Self { client, memory, device, _served: served, token: 0, uar: 0, eqn: 0 };
        driver.probe();
        driver
    }

    /// Sets the device up, as `mlx5_core` does.
    pub(crate) fn probe(&mut self) {
        self.store(0x10, &0u32.to_be_bytes());
        self.store(0x14, &(COMMANDS as u32).to_be_bytes());
        self.done(0x104, 0, &[]);
        let pages = be(&self.done(0x107, 1, &[]), 12);
        self.give_pages(pages);
        self.done(0x102, 0, &[]);
        self.uar = self.make(0x802, &[]);
        // An event queue of 64, of one page, for errors of queue pairs and commands.
        self.put(EVENTS, &[0; 4096]);
        for entry in 0..64 {
            self.put(EVENTS + entry * 64 + 63, &[1]);
        }
        let mut body = vec![0; 0x110];
        set(&mut body, 0x10 + 0xc, 6 << 24 | self.uar);
        set(&mut body, 0x5c, 1 << 0x11 | 1 << 0xa);
        body.extend(EVENTS.to_be_bytes());
        self.eqn = be(&self.done(0x301, 0, &body[8..]), 8) & 0xff;
    }

    pub(crate) fn give_pages(&mut self, count: u32) {
        let mut body = [0u32.to_be_bytes(), count.to_be_bytes()].concat();
        body.extend((0..u64::from(count)).flat_map(|page| (0xc_0000 + page * 4096).to_be_bytes()));
        self.done(0x108, 1, &body);
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    pub(crate) fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn store(&mut self, at: u64, bytes: &[u8]) {
        self.client.region_write(0, at, bytes).unwrap();
    }

    pub(crate) fn register(&mut self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(0, at, &mut bytes).unwrap();
        u32::from_be_bytes(bytes)
    }

    /// Rings a doorbell of eight bytes on the driver's page.
    pub(crate) fn ring(&mut self, at: u64, first: u32, second: u32) {
        let bytes = [first.to_be_bytes(), second.to_be_bytes()].concat();
        self.store(u64::from(self.uar) * 4096 + at, &bytes);
    }

    /// Gives a command, whose body follows its opcode and modifier, to the device: gives how it was
    /// delivered, and the answer.
    pub(crate) fn deliver(&mut self, command: &[u8], token: u8) -> (u8, Vec<u8>) {
        self.token = self.token.wrapping_add(1);
        let room = 0x1200;
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(command.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&MAILBOXES.to_be_bytes());
        let (head, rest) = command.split_at(command.len().min(INLINE));
        entry[16..16 + head.len()].copy_from_slice(head);
        entry[48..56].copy_from_slice(&ANSWERS.to_be_bytes());
        entry[56..60].copy_from_slice(&(room as u32).to_be_bytes());
        (entry[60], entry[63]) = (token, 1);
        self.mailboxes(MAILBOXES, rest, rest.len(), self.token);
        self.mailboxes(ANSWERS, &[], room - INLINE, self.token);
        if token == 0 {
            entry[60] = self.token;
        }
        self.put(COMMANDS, &entry);
        self.store(0x18, &1u32.to_be_bytes());
        let entry: [u8; 64] = self.get(COMMANDS);
        assert_eq!(entry[63] & 1, 0, "the device keeps the entry");
        let mut answer = entry[32..48].to_vec();
        for block in 0..(room - INLINE).div_ceil(BLOCK) as u64 {
            answer.extend(self.get::<BLOCK>(ANSWERS + block * 1024));
        }
        answer.truncate(room);
        (entry[63] >> 1, answer)
    }

    /// Puts data into mailboxes that name each other.
    fn mailboxes(&self, first: u64, data: &[u8], length: usize, token: u8) {
        for index in 0..length.div_ceil(BLOCK) {
            let at = first + index as u64 * 1024;
            let mut block = [0; 576];
            let piece = data.iter().skip(index * BLOCK).take(BLOCK);
            block.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            block[560..568].copy_from_slice(&(at + 1024).to_be_bytes());
            block[568..572].copy_from_slice(&(index as u32).to_be_bytes());
            block[573] = token;
            self.put(at, &block);
        }
    }

    /// A command's status, and its answer. The body follows the first eight bytes.
    pub(crate) fn command(&mut self, opcode: u16, op_mod: u16, body: &[u8]) -> (u8, Vec<u8>) {
        let mut command = vec![0; 8];
        command[..2].copy_from_slice(&opcode.to_be_bytes());
        command[6..8].copy_from_slice(&op_mod.to_be_bytes());
        command.extend(body);
        command.resize(command.len().max(16), 0);
        let (delivered, answer) = self.deliver(&command, 0);
        assert_eq!(delivered, 0, "command {opcode:#x}");
        (answer[0], answer)
    }

    pub(crate) fn done(&mut self, opcode: u16, op_mod: u16, body: &[u8]) -> Vec<u8> {
        let (status, answer) = self.command(opcode, op_mod, body);
        assert_eq!(status, 0, "command {opcode:#x}");
        answer
    }

    /// Makes an object; gives its number.
    pub(crate) fn make(&mut self, opcode: u16, body: &[u8]) -> u32 {
        be(&self.done(opcode, 0, body), 8) & 0xff_ffff
    }

    /// A command about an object.
    pub(crate) fn about(&mut self, opcode: u16, number: u32) -> u8 {
        self.command(opcode, 0, &number.to_be_bytes()).0
    }

    /// Makes what a program makes, with receives of its own or shared ones.
    pub(crate) fn make_pair(&mut self, srq: Option<u32>) -> Pair {
        self.make_pair_of(0, srq)
    }

    /// The same, of another type than reliable connections.
    pub(crate) fn make_pair_of(&mut self, kind: u32, srq: Option<u32>) -> Pair {
        let pd = self.make(0x800, &[]);
        let key = self.register_memory(pd, ALL_RIGHTS);
        self.put(CQ, &[0; 64 * 64]);
        for entry in 0..u64::from(RING) {
            self.put(CQ + entry * 64 + 63, &[0xf1]);
        }
        let mut body = vec![0; 0x110];
        set(&mut body, 0x10 + 0xc, RING.ilog2() << 24 | self.uar);
        set(&mut body, 0x10 + 0x14, self.eqn);
        body.extend(CQ.to_be_bytes());
        let cqn = self.make(0x400, &body[8..]);
        self.put(RECORDS, &[0; 8]);
        let mut body = vec![0; 0x110];
        let log = RING.ilog2();
        // Receives of 32 bytes, two to a segment; sends; one page for both.
        set(&mut body, 0x18, kind << 16);
        set(&mut body, 0x18 + 0x4, pd);
        set(&mut body, 0x18 + 0x8, log << 19 | 1 << 16 | log << 11);
        set(&mut body, 0x18 + 0xc, self.uar);
        set(&mut body, 0x18 + 0x10, 0x1234);
        set(&mut body, 0x18 + 0x14, 1 << 24);
        set(&mut body, 0x18 + 0x7c, cqn);
        set(&mut body, 0x18 + 0x9c, cqn);
        set(&mut body, 0x18 + 0xa4, RECORDS as u32);
        let shared = srq.map_or(0, |srq| 1 << 24 | srq);
        set(&mut body, 0x18 + 0xac, shared);
        body.extend(QUEUES.to_be_bytes());
        let number = self.make(0x500, &body[8..]);
        Pair { number, cqn, pd, key, seen: 0, sent: 0, posted: 0 }
    }

    /// Registers memory: its pages are in the command.
    pub(crate) fn register_memory(&mut self, pd: u32, rights: u8) -> u32 {
        let count = REGION / 4096 + 1;
        let mut body = vec![0; 0x110];
        set(&mut body, 0x10, u32::from(rights) << 10 | 1 << 8);
        set(&mut body, 0x14, 0x5a);
        set(&mut body, 0x10 + 0xc, pd);
        body[0x20..0x28].copy_from_slice(&IOVA.to_be_bytes());
        body[0x28..0x30].copy_from_slice(&REGION.to_be_bytes());
        set(&mut body, 0x10 + 0x38, 12);
        set(&mut body, 0x60, count.div_ceil(2) as u32);
        body.extend((0..count).flat_map(|page| ((DATA + page * 8192) | 3).to_be_bytes()));
        body.resize(body.len().next_multiple_of(16), 0);
        self.make(0x200, &body[8..]) << 8 | 0x5a
    }

    /// Makes a shared queue of receives, each of which names the next.
    pub(crate) fn make_shared(&mut self, pd: u32) -> u32 {
        let mut body = vec![0; 0x110];
        // `log_wq_stride` and `log_wq_sz`.
        set(&mut body, 0x50 + 0x8, pd);
        set(&mut body, 0x50 + 0x14, (RECORDS + 64) as u32);
        set(&mut body, 0x50 + 0x20, 5 << 16 | RING.ilog2());
        body.extend(SHARED.to_be_bytes());
        self.make(0x90c, &body[8..])
    }

    /// Changes the state of a queue pair.
    pub(crate) fn modify(&mut self, opcode: u16, pair: &Pair, fields: &[(usize, u32)]) -> u8 {
        let mut body = vec![0; 0x110];
        set(&mut body, 8, pair.number);
        for (at, value) in fields {
            set(&mut body, 0x18 + at, *value);
        }
        self.command(opcode, 0, &body[8..]).0
    }

    /// Connects a queue pair to a peer's, by LID and number.
    pub(crate) fn connect(&mut self, pair: &Pair, peer: (u16, u32)) {
        // The peer may read, write and change.
        assert_eq!(self.modify(0x502, pair, &[(0x90, 0xe000)]), 0);
        let route = [(0x14, peer.1), (0x1c, u32::from(peer.0))];
        assert_eq!(self.modify(0x503, pair, &route), 0);
        // A timeout, and seven retries of each kind.
        assert_eq!(self.modify(0x504, pair, &[(0x20, 1 << 27), (0x70, 0x0007_e000)]), 0);
    }

    /// Makes a set of counters, and binds a queue pair to it (RTS2RTS with `MLX5_QP_OPTPAR_COUNTER_SET_ID`).
    pub(crate) fn counted(&mut self, pair: &Pair) -> u8 {
        let set_number = self.done(0x771, 0, &[])[11];
        let mut body = vec![0; 0x110];
        set(&mut body, 8, pair.number);
        set(&mut body, 0x10, 1 << 25);
        set(&mut body, 0x18 + 0xc, u32::from(set_number) << 24);
        assert_eq!(self.command(0x505, 0, &body[8..]).0, 0);
        set_number
    }

    /// How many writes, reads and atomic operations a set has counted; and begins anew.
    pub(crate) fn counts(&mut self, number: u8, clear: bool) -> Option<[u32; 3]> {
        let mut body = [0; 24];
        (body[16], body[23]) = (u8::from(clear) << 7, number);
        let (status, answer) = self.command(0x773, 0, &body);
        (status == 0).then(|| [16, 24, 32].map(|at| be(&answer, at)))
    }

    /// Ends what [`Driver::make_pair`] has made.
    pub(crate) fn end_pair(&mut self, pair: &Pair) {
        assert_eq!(self.about(0x501, pair.number), 0);
        assert_eq!(self.about(0x401, pair.cqn), 0);
        assert_eq!(self.about(0x202, pair.key >> 8), 0);
        assert_eq!(self.about(0x801, pair.pd), 0);
    }

    /// The type of an event and the number in it, if it is there.
    pub(crate) fn event(&self, index: u64) -> Option<(u8, u32)> {
        let entry: [u8; 64] = self.get(EVENTS + index * 64);
        (entry[63] & 1 == 0).then(|| (entry[1], be(&entry, 56)))
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

/// Where a byte of the region is in memory.
fn physical(offset: u64) -> u64 {
    let at = offset + IOVA % 4096;
    DATA + at / 4096 * 8192 + at % 4096
}

pub(crate) fn set(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

pub(crate) fn be(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}
