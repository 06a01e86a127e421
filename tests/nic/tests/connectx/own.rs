//! Objects in memory that a program has registered for them (DEVX).

use super::CQ;
use super::Driver;
use super::Pair;
use super::QUEUES;
use super::RECORDS;
use super::RING;
use super::be;
use super::set;

/// Where memory of programs begins in its first page: not at the beginning.
const OFFSET: u64 = 0x40;

/// A queue pair with its completion queue, in memory that a context has registered.
pub(crate) struct Own {
    pub(crate) context: u16,
    /// The completion queue's memory, the queues', and that of records of doorbells.
    pub(crate) umems: [u32; 3],
    pub(crate) pair: Pair,
}

impl Driver {
    /// A command in the name of a context.
    pub(crate) fn own(&mut self, context: u16, opcode: u16, body: &[u8]) -> (u8, Vec<u8>) {
        let mut command = [opcode.to_be_bytes(), context.to_be_bytes(), [0; 2], [0; 2]].concat();
        command.extend(body);
        command.resize(command.len().max(16), 0);
        let (delivered, answer) = self.deliver(&command, 0);
        assert_eq!(delivered, 0, "command {opcode:#x}");
        (answer[0], answer)
    }

    pub(crate) fn make_context(&mut self) -> u16 {
        (be(&self.done(0xa04, 0, &[]), 8) & 0xffff) as u16
    }

    /// Registers a page of memory from the offset on.
    pub(crate) fn make_umem(&mut self, context: u16, page: u64) -> u32 {
        let mut body = vec![0; 0x28];
        set(&mut body, 0x8 + 0x14, OFFSET as u32);
        set(&mut body, 0x8 + 0x1c, 1);
        body.extend((page | 3).to_be_bytes());
        let (status, answer) = self.own(context, 0xa08, &body);
        assert_eq!(status, 0);
        be(&answer, 8)
    }

    /// The command that makes a completion queue of so many entries in memory.
    pub(crate) fn completions(&self, umem: u32, log: u32, at: u64) -> Vec<u8> {
        let mut body = vec![0; 0x110];
        set(&mut body, 0x10 + 0xc, log << 24 | self.uar);
        set(&mut body, 0x10 + 0x14, self.eqn);
        body[0x50..0x58].copy_from_slice(&at.to_be_bytes());
        set(&mut body, 0x58, umem);
        set(&mut body, 0x5c, 1 << 31);
        body.split_off(8)
    }

    pub(crate) fn make_own(&mut self) -> Own {
        let context = self.make_context();
        let umems = [CQ, QUEUES, RECORDS].map(|page| self.make_umem(context, page));
        let mut pair = self.make_pair(None);
        assert_eq!(self.about(0x501, pair.number), 0);
        assert_eq!(self.about(0x401, pair.cqn), 0);
        // Half of the page: the other half holds queues that begin at the offset.
        let log = (RING / 2).ilog2();
        let body = self.completions(umems[0], log, 0);
        let (status, answer) = self.own(context, 0x400, &body);
        assert_eq!(status, 0);
        pair.cqn = be(&answer, 8);
        let (status, answer) = self.own(context, 0x500, &self.queues(&umems, &pair));
        assert_eq!(status, 0);
        pair.number = be(&answer, 8);
        Own { context, umems, pair }
    }

    /// The command that makes a queue pair in memory: 32 receives and as many blocks.
    pub(crate) fn queues(&self, umems: &[u32; 3], pair: &Pair) -> Vec<u8> {
        let log = (RING / 2).ilog2();
        let mut body = vec![0; 0x110];
        set(&mut body, 0x18 + 0x4, pair.pd);
        set(&mut body, 0x18 + 0x8, log << 19 | 1 << 16 | log << 11);
        set(&mut body, 0x18 + 0xc, self.uar);
        set(&mut body, 0x18 + 0x10, 0x1234);
        set(&mut body, 0x18 + 0x7c, pair.cqn);
        set(&mut body, 0x18 + 0x9c, pair.cqn);
        set(&mut body, 0x18 + 0xa4, 8);
        set(&mut body, 0x18 + 0xd0, 1 << 28);
        set(&mut body, 0x18 + 0xe4, umems[2]);
        set(&mut body, 0x100 + 4, 0x40);
        set(&mut body, 0x108, umems[1]);
        set(&mut body, 0x10c, 1 << 31);
        body.split_off(8)
    }

    /// A page of the memory, from the offset on.
    pub(crate) fn own_bytes<const N: usize>(&self, page: u64, at: u64) -> [u8; N] {
        self.get(page + OFFSET + at)
    }

    /// Posts a receive of eight bytes and a send of as many, inline, in memory of a program's.
    pub(crate) fn own_message(&mut self, own: &Own, text: [u8; 8]) {
        let (queues, records) = (QUEUES + OFFSET + 0x40, RECORDS + OFFSET + 8);
        let receive = [8u32.to_be_bytes(), own.pair.key.to_be_bytes()].concat();
        self.put(queues, &[receive, super::IOVA.to_be_bytes().to_vec()].concat());
        self.put(queues + 16, &[[0; 4], 0x100u32.to_be_bytes(), [0; 4], [0; 4]].concat());
        let send =
            [0x0a, own.pair.number << 8 | 2, 8, 0, 1 << 31 | 8].map(u32::to_be_bytes).concat();
        let block = queues + 32 * u64::from(RING / 2);
        self.put(block, &[send, text.to_vec(), vec![0; 4]].concat());
        self.put(records, &[1u32.to_be_bytes(), 1u32.to_be_bytes()].concat());
        self.ring(0x800, 0x0a, own.pair.number << 8 | 2);
    }

    /// The opcodes of the first completions of a queue in memory of a program's.
    pub(crate) fn own_completions(&self) -> Vec<u8> {
        let entry = |index: u64| self.own_bytes::<64>(CQ, index * 64)[63];
        (0..2).map(entry).map(|last| last >> 4).collect()
    }
}
