//! Work requests and completions: what the provider does without the kernel.

use super::CQ;
use super::Completion;
use super::Driver;
use super::IOVA;
use super::KEY;
use super::Pair;
use super::RING;
use super::RQ;
use super::To;
use super::number;
use super::word;

/// What providers ring of their counters.
const COUNTER: u32 = 0xffff;

impl Driver {
    /// Posts a receive of buffers: offsets in the region, and lengths.
    pub(crate) fn post_receive(&mut self, pair: &mut Pair, request: u16, buffers: &[(u64, u16)]) {
        for (index, (at, length)) in buffers.iter().enumerate() {
            let first = u32::from(index == 0) << 30;
            let last = u32::from(index + 1 == buffers.len()) << 31;
            let mut descriptor = [0; 16];
            descriptor[..8].copy_from_slice(&(IOVA + at).to_le_bytes());
            descriptor[8..10].copy_from_slice(&request.to_le_bytes());
            descriptor[10..12].copy_from_slice(&length.to_le_bytes());
            descriptor[12..].copy_from_slice(&(pair.key | first | last).to_le_bytes());
            self.put(RQ + u64::from(pair.posted % RING) * 16, &descriptor);
            pair.posted += 1;
        }
        self.store(4, pair.receive_doorbell, pair.posted & COUNTER);
    }

    /// Posts a send of buffers.
    pub(crate) fn post_send(
        &mut self,
        pair: &mut Pair,
        request: u16,
        to: To,
        buffers: &[(u64, u32)],
    ) {
        let list: Vec<u8> =
            buffers.iter().flat_map(|(at, length)| buffer(*length, pair.key, IOVA + at)).collect();
        self.post(pair, request, 0, to, u16::try_from(buffers.len()).unwrap(), &list);
    }

    /// Posts an RDMA read (1) or write (2).
    pub(crate) fn post_rdma(
        &mut self,
        pair: &mut Pair,
        request: u16,
        operation: u8,
        to: To,
        remote: (u64, u32),
        local: (u64, u32),
    ) {
        let there = buffer(remote.1, to.key, IOVA + remote.0);
        let here = buffer(local.1, pair.key, IOVA + local.0);
        self.post(pair, request, operation, to, 1, &[there, here].concat());
    }

    /// Posts a work request whose data is in it.
    pub(crate) fn post_inline(&mut self, pair: &mut Pair, request: u16, to: To, data: &[u8]) {
        let length = u16::try_from(data.len()).unwrap();
        self.post(pair, request, 1 << 5, to, length, data);
    }

    fn post(&mut self, pair: &mut Pair, request: u16, code: u8, to: To, length: u16, data: &[u8]) {
        let mut entry = [0; 64];
        entry[..2].copy_from_slice(&request.to_le_bytes());
        entry[2] = 1 << 7 | code | u8::from(to.immediate.is_some()) << 4;
        entry[3] = 1 << 4 | 1 << 3 | 1 << 2;
        entry[4..6].copy_from_slice(&to.number.to_le_bytes());
        entry[6..8].copy_from_slice(&length.to_le_bytes());
        entry[8..12].copy_from_slice(&to.immediate.unwrap_or(0).to_le_bytes());
        entry[12..14].copy_from_slice(&to.handle.to_le_bytes());
        entry[16..20].copy_from_slice(&KEY.to_le_bytes());
        entry[32..32 + data.len()].copy_from_slice(data);
        let at = pair.ring + u64::from(pair.sent % RING) * 64;
        for (index, part) in entry.chunks(8).enumerate() {
            self.client.region_write(2, at + index as u64 * 8, part).unwrap();
        }
        pair.sent += 1;
        self.store(4, pair.send_doorbell, pair.sent & COUNTER);
    }

    /// Posts what the ring still holds, a ring at a time, until so many were posted in all.
    pub(crate) fn post_again_until(&mut self, pair: &mut Pair, count: u32) {
        while pair.sent < count {
            pair.sent += RING.min(count - pair.sent);
            self.store(4, pair.send_doorbell, pair.sent & COUNTER);
        }
    }

    /// The next completion, if it is there.
    pub(crate) fn poll(&mut self, pair: &mut Pair) -> Option<Completion> {
        let entry: [u8; 32] = self.get(CQ + u64::from(pair.seen % RING) * 32);
        let phase = u8::from((pair.seen / RING).is_multiple_of(2));
        if entry[3] & 1 != phase {
            return None;
        }
        pair.seen += 1;
        assert_eq!(u16::from_le_bytes([entry[4], entry[5]]), pair.number);
        let operation = entry[3] >> 4 & 7;
        let high = if operation == 2 { u32::from(number(&entry, 16)) << 16 } else { 0 };
        let receive = entry[3] >> 1 & 3 == 2;
        Some(Completion {
            request: number(&entry, 0),
            status: entry[2],
            queue: entry[3] >> 1 & 3,
            operation,
            length: if receive { u32::from(number(&entry, 6)) | high } else { 0 },
            immediate: (entry[3] & 8 != 0).then(|| word(&entry, 12)),
            source: if receive { number(&entry, 10) } else { 0 },
        })
    }

    pub(crate) fn wait(&mut self, pair: &mut Pair) -> Completion {
        verbgate_wait::until(&format!("a completion of {pair:?}"), || self.poll(pair))
    }
}

fn buffer(length: u32, key: u32, address: u64) -> [u8; 16] {
    let mut buffer = [0; 16];
    buffer[..4].copy_from_slice(&length.to_le_bytes());
    buffer[4..8].copy_from_slice(&key.to_le_bytes());
    buffer[8..].copy_from_slice(&address.to_le_bytes());
    buffer
}
