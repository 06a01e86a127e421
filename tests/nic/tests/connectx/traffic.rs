//! Work requests and completions: what the provider does without the kernel.

use super::CQ;
use super::Completion;
use super::Driver;
use super::IOVA;
use super::Pair;
use super::QUEUES;
use super::RECORDS;
use super::RING;
use super::SHARED;
use super::STRIDE;
use super::be;

/// A completion is wanted.
const SIGNALED: u8 = 8;

impl Driver {
    /// Posts a receive: an offset in the region, and a length.
    pub(crate) fn post_receive(&mut self, pair: &mut Pair, at: u64, length: u32) {
        let entry = [segment(pair.key, at, length), segment(0x100, 0, 0)].concat();
        self.put(QUEUES + u64::from(pair.posted) % u64::from(RING) * STRIDE, &entry);
        pair.posted = pair.posted.wrapping_add(1);
        self.put(RECORDS, &u32::from(pair.posted).to_be_bytes());
    }

    /// Posts receives to a shared queue, in an order of one's own: each names the next.
    pub(crate) fn post_shared(&mut self, key: u32, order: &[u16], length: u32) {
        for (index, at) in order.iter().enumerate() {
            let next = order.get(index + 1).copied().unwrap_or(0);
            let mut entry = vec![0; 16];
            entry[2..4].copy_from_slice(&next.to_be_bytes());
            entry.extend(segment(key, u64::from(*at) * 0x100, length));
            self.put(SHARED + u64::from(*at) * STRIDE, &entry);
        }
        self.put(RECORDS + 64, &(order.len() as u32).to_be_bytes());
    }

    /// Posts a work request: what follows its first segment, and the immediate data or key in that.
    pub(crate) fn post(&mut self, pair: &mut Pair, opcode: u8, word: u32, body: &[u8]) {
        let segments = 1 + body.len().div_ceil(16) as u32;
        let mut bytes = (u32::from(pair.sent) << 8 | u32::from(opcode)).to_be_bytes().to_vec();
        bytes.extend((pair.number << 8 | segments).to_be_bytes());
        bytes.extend([0, 0, 0, SIGNALED]);
        bytes.extend(word.to_be_bytes());
        bytes.extend(body);
        let head = [be(&bytes, 0), be(&bytes, 4)];
        for block in bytes.chunks(64) {
            let at = u64::from(pair.sent) % u64::from(RING) * 64;
            self.put(QUEUES + u64::from(RING) * STRIDE + at, block);
            pair.sent = pair.sent.wrapping_add(1);
        }
        self.put(RECORDS + 4, &u32::from(pair.sent).to_be_bytes());
        self.ring(0x800, head[0], head[1]);
    }

    /// Sends pieces of the region.
    pub(crate) fn post_send(&mut self, pair: &mut Pair, pieces: &[(u64, u32)]) {
        let body: Vec<u8> =
            pieces.iter().flat_map(|(at, length)| segment(pair.key, *at, *length)).collect();
        self.post(pair, 0x0a, 0, &body);
    }

    /// Writes, reads or changes the peer's memory: its place and key, what goes between, and a piece here.
    pub(crate) fn post_remote(
        &mut self,
        pair: &mut Pair,
        opcode: u8,
        (place, key): (u64, u32),
        between: &[u64],
        (at, length): (u64, u32),
    ) {
        let mut body = (IOVA + place).to_be_bytes().to_vec();
        body.extend(key.to_be_bytes());
        body.extend([0; 4]);
        body.extend(between.iter().flat_map(|word| word.to_be_bytes()));
        body.extend(segment(pair.key, at, length));
        self.post(pair, opcode, 0xabcd, &body);
    }

    /// Reads one completion.
    pub(crate) fn poll(&mut self, pair: &mut Pair) -> Option<Completion> {
        let at = CQ + u64::from(pair.seen % RING) * 64;
        let entry: [u8; 64] = self.get(at);
        let round = u8::from(!(pair.seen / RING).is_multiple_of(2));
        if entry[63] & 1 != round || entry[63] >> 4 == 15 {
            return None;
        }
        pair.seen += 1;
        assert_eq!((be(&entry, 32), be(&entry, 56) & 0xff_ffff), (0x1234, pair.number));
        let of = entry[63] >> 4;
        Some(Completion {
            of,
            index: u16::from_be_bytes([entry[60], entry[61]]),
            opcode: entry[56],
            syndrome: if of >= 13 { entry[55] } else { 0 },
            length: be(&entry, 44),
            word: be(&entry, 36),
        })
    }

    /// The same, which may be late.
    pub(crate) fn wait(&mut self, pair: &mut Pair) -> Completion {
        verbgate_wait::until("a completion", || self.poll(pair))
    }

    /// Asks for an event of the next completion.
    pub(crate) fn arm(&mut self, pair: &Pair, read: u32) {
        self.ring(0x20, read & 0xff_ffff, pair.cqn);
    }
}

/// A piece of the region that a key names.
fn segment(key: u32, at: u64, length: u32) -> Vec<u8> {
    let address = if key == 0x100 { 0 } else { IOVA + at };
    [&length.to_be_bytes()[..], &key.to_be_bytes(), &address.to_be_bytes()].concat()
}
