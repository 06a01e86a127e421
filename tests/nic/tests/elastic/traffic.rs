//! Work requests and completions: what the provider does without the kernel.

use super::CQ;
use super::Completion;
use super::Driver;
use super::IOVA;
use super::Pair;
use super::RING;
use super::RQ;
use super::SQ;
use super::be;
use super::le;

/// Bits of a work request's header.
pub(crate) const INLINE: u64 = 1 << 25;
const SIGNALED: u64 = 1 << 22;

impl Driver {
    /// Posts a receive: an offset in the region, and a length.
    pub(crate) fn post_receive(&mut self, pair: &mut Pair, at: u64, length: u32) {
        let index = pair.posted;
        pair.posted = index.wrapping_add(1);
        let head = u64::from(pair.posted) | u64::from(pair.number) << 32;
        let mut entry = [0; 32];
        entry[..8].copy_from_slice(&head.to_le_bytes());
        entry[16..24].copy_from_slice(&(IOVA + at).to_le_bytes());
        entry[24..28].copy_from_slice(&length.to_le_bytes());
        entry[28..].copy_from_slice(&pair.key.to_le_bytes());
        self.put(RQ + u64::from(index) % u64::from(RING) * 32, &entry);
        self.store(pair.pages[2] * 4096, head);
    }

    /// Posts a work request of an opcode: what follows the header, and how many buffers or bytes inline.
    pub(crate) fn post(
        &mut self,
        pair: &mut Pair,
        opcode: u64,
        flags: u64,
        count: usize,
        body: &[u8],
    ) {
        let blocks = (body.len() + 8).div_ceil(32) as u64;
        let end = pair.sent.wrapping_add(blocks as u16);
        let head = (count as u64) << 56
            | (blocks - 1) << 52
            | u64::from(pair.number) << 32
            | opcode << 27
            | flags
            | SIGNALED
            | u64::from(end);
        let mut bytes = head.to_le_bytes().to_vec();
        bytes.extend(body);
        bytes.resize(blocks as usize * 32, 0);
        for (index, block) in bytes.chunks(32).enumerate() {
            let at = (u64::from(pair.sent) + index as u64) % u64::from(RING);
            self.put(SQ + at * 32, block);
        }
        pair.sent = end;
        self.ring(pair, end, pair.pages[0]);
    }

    /// Rings for sends on a page.
    pub(crate) fn ring(&mut self, pair: &Pair, end: u16, page: u64) {
        self.store(page * 4096, u64::from(end) | u64::from(pair.number) << 32);
    }

    /// Posts a send (2), one with immediate data (3), or one that invalidates a key (13).
    pub(crate) fn post_send(
        &mut self,
        pair: &mut Pair,
        opcode: u64,
        word: [u8; 4],
        buffers: &[(u64, u32)],
    ) {
        let mut body = word.to_vec();
        body.extend(buffers.iter().map(|(_, length)| length).sum::<u32>().to_le_bytes());
        body.extend(buffers.iter().flat_map(|(at, length)| buffer(IOVA + at, *length, pair.key)));
        self.post(pair, opcode, 0, buffers.len(), &body);
    }

    /// Posts a write (0), or one with immediate data (9), of data that is in the work request.
    pub(crate) fn post_write(
        &mut self,
        pair: &mut Pair,
        opcode: u64,
        remote: (u64, u32),
        data: &[u8],
    ) {
        let address = (IOVA + remote.0).to_le_bytes();
        let mut body = 0xabcd_u32.to_be_bytes().to_vec();
        body.extend((data.len() as u32).to_le_bytes());
        body.extend(remote.1.to_le_bytes());
        body.extend(address);
        body.extend([0; 4]);
        body.extend(data);
        self.post(pair, opcode, INLINE, data.len(), &body);
    }

    /// Posts a read of the peer's memory into ours.
    pub(crate) fn post_read(&mut self, pair: &mut Pair, remote: (u64, u32), local: (u64, u32)) {
        let mut body = vec![0; 4];
        body.extend(local.1.to_le_bytes());
        body.extend(pair.key.to_le_bytes());
        body.extend((IOVA + local.0).to_le_bytes());
        body.extend([0; 4]);
        body.extend(buffer(IOVA + remote.0, local.1, remote.1));
        self.post(pair, 1, 0, 0, &body);
    }

    /// Posts a comparison and swap (17), or a fetch and add (18).
    pub(crate) fn post_atomic(
        &mut self,
        pair: &mut Pair,
        opcode: u64,
        operands: [u64; 2],
        remote: (u64, u32),
        local: u64,
    ) {
        let mut body = vec![0; 8];
        body.extend(operands.iter().flat_map(|operand| operand.to_le_bytes()));
        body.extend(buffer(IOVA + remote.0, 0, remote.1));
        body.extend(buffer(IOVA + local, 8, pair.key));
        self.post(pair, opcode, 0, 0, &body);
    }

    /// Asks for an event at the next completion, or at the next that is solicited.
    pub(crate) fn arm(&mut self, pair: &Pair, solicited: bool) {
        let word = u64::from(pair.number) << 32 | 1 << 31 | u64::from(solicited) << 30;
        self.store(pair.pages[1] * 4096, word | u64::from(pair.seen));
    }

    /// The next completion, if it is there.
    pub(crate) fn poll(&mut self, pair: &mut Pair) -> Option<Completion> {
        let entry: [u8; 32] = self.get(CQ + u64::from(pair.seen % RING) * 32);
        if entry[0] >> 7 != u8::from((pair.seen / RING).is_multiple_of(2)) {
            return None;
        }
        pair.seen += 1;
        assert_eq!(be(&entry, 8), pair.number);
        Some(Completion {
            index: be(&entry, 4) as u16,
            queue: entry[2],
            opcode: entry[1],
            status: entry[3],
            length: be(&entry, 16),
            word: le(&entry, 12),
        })
    }

    pub(crate) fn wait(&mut self, pair: &mut Pair) -> Completion {
        verbgate_wait::until(&format!("a completion of {pair:?}"), || self.poll(pair))
    }
}

fn buffer(address: u64, length: u32, key: u32) -> Vec<u8> {
    [&address.to_le_bytes()[..], &length.to_le_bytes(), &key.to_le_bytes()].concat()
}
