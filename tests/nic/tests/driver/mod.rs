//! A driver for the model of an EFA in user space: it does what the kernel's driver and rdma-core's
//! provider do, over the client of the crate `vfio_user`.
//!
//! Numbers are offsets in the structures of the driver's headers.

mod traffic;

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use verbgate_nic::efa::Efa;
use verbgate_nic::serve::Served;
use verbgate_nic::wire::Wire;
use vfio_user::Client;

const MEMORY: u64 = 16 << 20;
const AQ: u64 = 0x1_0000;
const ACQ: u64 = 0x1_2000;
const AENQ: u64 = 0x1_4000;
const RESPONSE: u64 = 0x1_6000;
const EVENTS: u64 = 0x1_7000;
const CQ: u64 = 0x2_0000;
const RQ: u64 = 0x3_0000;
/// Where the pages of memory regions are.
pub(crate) const DATA: u64 = 0x10_0000;
/// The address that programs know them by.
pub(crate) const IOVA: u64 = 0x7f00_0000_0000;
pub(crate) const REGION: u64 = 0x2_0000;
const DEPTH: u32 = 32;
/// Entries of completion queues and rings.
pub(crate) const RING: u32 = 64;
pub(crate) const KEY: u32 = 0x1111;

pub(crate) struct Driver {
    client: Client,
    pub(crate) memory: File,
    pub(crate) device: Arc<Efa>,
    _served: Served,
    commands: u32,
    requests: u16,
}

/// A queue pair in its own protection domain, with a completion queue and a region of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) pd: u16,
    pub(crate) uar: u16,
    pub(crate) cq: u16,
    cq_doorbell: u64,
    pub(crate) handle: u32,
    pub(crate) number: u16,
    send_doorbell: u64,
    receive_doorbell: u64,
    ring: u64,
    pub(crate) key: u32,
    seen: u32,
    sent: u32,
    posted: u32,
}

/// A completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Completion {
    pub(crate) request: u16,
    pub(crate) status: u8,
    /// 1 of sends, 2 of receives.
    pub(crate) queue: u8,
    pub(crate) operation: u8,
    pub(crate) length: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) source: u16,
}

/// What a send work request says beside its buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) handle: u16,
    pub(crate) number: u16,
    pub(crate) immediate: Option<u32>,
    pub(crate) key: u32,
}

pub(crate) fn pair_of_drivers(folder: &std::path::Path, wire: &Arc<Wire>) -> (Driver, Driver) {
    (Driver::new(folder, wire, 1), Driver::new(folder, wire, 2))
}

impl Driver {
    pub(crate) fn new(folder: &std::path::Path, wire: &Arc<Wire>, number: u16) -> Self {
        let device = Efa::new(wire, number);
        let path = folder.join(format!("efa{number}"));
        let served = Served::listen(&path, device.clone()).unwrap();
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let memory = File::from(fd);
        memory.set_len(MEMORY).unwrap();
        let mut client = Client::new(&path).unwrap();
        client.dma_map(0, 0, MEMORY, memory.as_raw_fd()).unwrap();
        let mut driver = Self { client, memory, device, _served: served, commands: 0, requests: 0 };
        driver.probe();
        driver
    }

    /// Resets the device and sets its queues up, as `efa_device_init` and `efa_com_admin_init` do.
    pub(crate) fn probe(&mut self) {
        self.commands = 0;
        self.write_register(0x60, RESPONSE);
        assert_eq!(self.register(0x58) & 1, 1, "not ready");
        self.write32(0x54, 1);
        self.write_register(0x60, RESPONSE);
        assert_eq!(self.register(0x58) & 8, 8, "no reset");
        self.write32(0x54, 0);
        assert_eq!(self.register(0x58), 1);
        for at in [ACQ, AENQ] {
            self.put(at, &[0; 0x2000]);
        }
        self.write_register(0x10, AQ);
        self.write32(0x18, DEPTH | 64 << 16);
        self.write_register(0x20, ACQ);
        self.write32(0x28, DEPTH | 64 << 16);
        self.write_register(0x38, AENQ);
        self.write32(0x34, DEPTH | 64 << 16);
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    pub(crate) fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn store(&mut self, bar: u32, at: u64, word: u32) {
        self.client.region_write(bar, at, &word.to_le_bytes()).unwrap();
    }

    fn write32(&mut self, at: u64, word: u32) {
        self.store(0, at, word);
    }

    fn write_register(&mut self, low: u64, address: u64) {
        let [a, b, c, d, e, f, g, h] = address.to_le_bytes();
        self.write32(low, u32::from_le_bytes([a, b, c, d]));
        self.write32(low + 4, u32::from_le_bytes([e, f, g, h]));
    }

    /// Reads a register by DMA.
    pub(crate) fn register(&mut self, at: u32) -> u32 {
        self.requests += 1;
        self.write32(0x5c, at << 16 | u32::from(self.requests));
        assert_eq!(u16::from_le_bytes(self.get(RESPONSE)), self.requests);
        u32::from_le_bytes(self.get(RESPONSE + 4))
    }

    pub(crate) fn configuration(&mut self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(7, at, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// Puts a command on the queue: an opcode, and bytes at offsets.
    pub(crate) fn submit(&mut self, opcode: u8, flags: u8, fields: &[(usize, &[u8])]) -> u64 {
        let mut entry = [0; 64];
        entry[0] = u8::try_from(self.commands % 256).unwrap();
        entry[2] = opcode;
        entry[3] = flags;
        for (at, bytes) in fields {
            entry[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        let index = u64::from(self.commands % DEPTH);
        self.put(AQ + index * 64, &entry);
        self.commands += 1;
        self.write32(0x2c, self.commands);
        ACQ + index * 64
    }

    /// A command's status and response.
    pub(crate) fn command(&mut self, opcode: u8, fields: &[(usize, &[u8])]) -> (u8, [u8; 64]) {
        self.command_with(opcode, 0, fields)
    }

    pub(crate) fn command_with(
        &mut self,
        opcode: u8,
        flags: u8,
        fields: &[(usize, &[u8])],
    ) -> (u8, [u8; 64]) {
        let at = self.submit(opcode, flags, fields);
        let response: [u8; 64] = self.get(at);
        let phase = u8::from(((self.commands - 1) / DEPTH).is_multiple_of(2));
        assert_eq!(response[3] & 1, phase, "no completion of command {opcode}");
        assert_eq!(u32::from(response[0]), (self.commands - 1) % 256);
        (response[2], response)
    }

    fn done(&mut self, opcode: u8, fields: &[(usize, &[u8])]) -> [u8; 64] {
        let (status, response) = self.command(opcode, fields);
        assert_eq!(status, 0, "command {opcode}");
        response
    }

    pub(crate) fn address(&mut self) -> [u8; 16] {
        self.done(11, &[(17, &[3])])[8..24].try_into().unwrap()
    }

    pub(crate) fn handle(&mut self, pair: &Pair, address: [u8; 16]) -> u16 {
        number(&self.done(5, &[(4, &address), (20, &pair.pd.to_le_bytes())]), 8)
    }

    /// Makes what a program makes; of a kind (1 datagrams, 2 reliable).
    pub(crate) fn make_pair(&mut self, kind: u8) -> Pair {
        let pd = number(&self.done(14, &[]), 8);
        let uar = number(&self.done(16, &[]), 8);
        let eq = self.done(
            18,
            &[(4, &DEPTH.to_le_bytes()[..2]), (6, &[1, 4]), (8, &low(EVENTS)), (16, &[1])],
        );
        let cq = self.done(
            9,
            &[
                (4, &[1 << 5, 8 | 1 << 5]),
                (6, &RING.to_le_bytes()[..2]),
                (8, &eq[8..10]),
                (12, &low(CQ)),
                (24, &[1]),
                (26, &uar.to_le_bytes()),
            ],
        );
        self.put(CQ, &[0; 64 * 32]);
        let pages: Vec<u8> =
            (0..REGION / 4096).flat_map(|page| (DATA + page * 8192).to_le_bytes()).collect();
        self.put(RQ + 0x8000, &pages);
        let length = u32::try_from(pages.len()).unwrap().to_le_bytes();
        let region = self.command_with(
            7,
            2,
            &[
                (4, &pd.to_le_bytes()),
                (8, &length),
                (12, &low(RQ + 0x8000)),
                (40, &REGION.to_le_bytes()),
                (48, &[12, 7]),
                (56, &IOVA.to_le_bytes()),
            ],
        );
        assert_eq!(region.0, 0);
        let (cq_number, key) = (number(&cq, 8), word(&region.1, 8));
        let made = self.done(
            1,
            &[
                (4, &pd.to_le_bytes()),
                (6, &[kind]),
                (16, &RQ.to_le_bytes()),
                (24, &cq_number.to_le_bytes()),
                (28, &cq_number.to_le_bytes()),
                (40, &(RING * 64).to_le_bytes()),
                (44, &RING.to_le_bytes()),
                (48, &(RING * 16).to_le_bytes()),
                (52, &RING.to_le_bytes()),
                (56, &uar.to_le_bytes()),
            ],
        );
        let handle = word(&made, 8);
        for state in 1..=3u32 {
            let fields = [1u32 | 4, handle, state, 0, KEY].map(u32::to_le_bytes).concat();
            self.done(2, &[(4, &fields)]);
        }
        Pair {
            pd,
            uar,
            cq: cq_number,
            cq_doorbell: word(&cq, 12).into(),
            handle,
            number: number(&made, 12),
            send_doorbell: word(&made, 20).into(),
            receive_doorbell: word(&made, 24).into(),
            ring: word(&made, 28).into(),
            key,
            seen: 0,
            sent: 0,
            posted: 0,
        }
    }

    /// Ends what [`Driver::make_pair`] has made.
    pub(crate) fn end_pair(&mut self, pair: &Pair) {
        self.done(4, &[(4, &pair.handle.to_le_bytes())]);
        self.done(10, &[(4, &pair.cq.to_le_bytes())]);
        self.done(8, &[(4, &pair.key.to_le_bytes())]);
        self.done(17, &[(4, &pair.uar.to_le_bytes())]);
    }

    /// Asks for an event at the next completion.
    pub(crate) fn arm(&mut self, pair: &Pair) {
        self.store(4, pair.cq_doorbell, pair.seen & 0xffff | 1 << 31);
    }

    /// The completion queue that an event is about, if the event is there.
    pub(crate) fn event(&self, index: u64) -> Option<u16> {
        let entry: [u8; 16] = self.get(EVENTS + index * 16);
        (entry[0] & 1 == 1).then(|| number(&entry, 8))
    }

    /// The group of an asynchronous event, if it is there.
    pub(crate) fn asynchronous(&self, index: u64) -> Option<u16> {
        let entry: [u8; 64] = self.get(AENQ + index * 64);
        (entry[4] & 1 == 1).then(|| number(&entry, 0))
    }
}

fn low(address: u64) -> [u8; 4] {
    u32::try_from(address).unwrap().to_le_bytes()
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Where a byte of the region is in memory: each of its pages is followed by one of nobody's.
pub(crate) fn physical(offset: u64) -> u64 {
    DATA + offset / 4096 * 8192 + offset % 4096
}

impl Driver {
    /// Writes to the region as the program sees it.
    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        for (at, piece) in pieces(offset, bytes.len()) {
            self.put(physical(offset + at as u64), &bytes[at..at + piece]);
        }
    }

    /// Reads the region as the program sees it.
    pub(crate) fn see(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (at, piece) in pieces(offset, length) {
            let into = &mut bytes[at..at + piece];
            self.memory.read_exact_at(into, physical(offset + at as u64)).unwrap();
        }
        bytes
    }
}

/// The pieces of a part of the region that lie in one page: where they begin in the part, and lengths.
fn pieces(offset: u64, length: usize) -> Vec<(usize, usize)> {
    let (mut pieces, mut done) = (Vec::new(), 0);
    while done < length {
        let in_page = usize::try_from((offset + done as u64) % 4096).unwrap();
        let piece = (4096 - in_page).min(length - done);
        pieces.push((done, piece));
        done += piece;
    }
    pieces
}
