//! Send work requests: from blocks in a ring to messages.

use std::sync::Arc;

use zerocopy::FromBytes as _;
use zerocopy::Immutable;
use zerocopy::KnownLayout;
use zerocopy::Unaligned;

use super::Device;
use super::layout::AtomicSqe;
use super::layout::BLOCK;
use super::layout::DatagramSqe;
use super::layout::ReadSqe;
use super::layout::SendSqe;
use super::layout::Sge;
use super::layout::WriteSqe;
use super::layout::bits64;
use super::layout::opcode;
use super::layout::status;
use super::limits;
use super::objects::Kind;
use crate::wire::Body;
use crate::wire::Change;

/// `ERDMA_SQE_HDR_INLINE_MASK` and the two below.
const INLINE: u64 = 1 << 25;
const SOLICITED: u64 = 1 << 23;
const SIGNALED: u64 = 1 << 22;
/// Lists begin here: after a send in the same block, else in the next one.
const SEND_LIST: usize = 16;
const LIST: usize = BLOCK;
const HEADER: usize = 8;
/// The most buffers that a work request has: `ERDMA_MAX_SEND_SGE`.
const BUFFERS: usize = 6;
/// An atomic operation is on so many bytes.
const WORD: u32 = 8;

/// What may be done with a region: bits of `ERDMA_CMD_REGMR_RIGHT_MASK`, as the command has them.
pub(super) mod access {
    pub(crate) const REMOTE_ATOMIC: u8 = 1 << 1;
    pub(crate) const LOCAL_READ: u8 = 1 << 2;
    pub(crate) const LOCAL_WRITE: u8 = 1 << 3;
    pub(crate) const REMOTE_READ: u8 = 1 << 4;
    pub(crate) const REMOTE_WRITE: u8 = 1 << 5;
}

/// A work request as the program wrote it.
#[derive(Debug)]
pub(super) struct Request {
    /// The block that it begins with, and how many there are.
    pub(super) index: u16,
    pub(super) blocks: u16,
    header: u64,
    bytes: Vec<u8>,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) handle: u32,
    pub(super) qpn: u32,
}

/// What a work request becomes.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) body: Body,
    pub(super) length: u32,
    /// Where what is read goes.
    pub(super) into: Option<Sge>,
    pub(super) target: Option<Target>,
}

impl Request {
    pub(super) fn opcode(&self) -> u8 {
        u8::try_from(bits64(self.header, 27, 5)).unwrap_or(0)
    }

    pub(super) fn signaled(&self) -> bool {
        self.header & SIGNALED != 0
    }

    fn qpn(&self) -> u32 {
        bits64(self.header, 32, 20)
    }

    /// What follows the header.
    fn body<T: zerocopy::FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Result<T, u8> {
        let rest = self.bytes.get(HEADER..).unwrap_or_default();
        T::read_from_prefix(rest).map(|(body, _)| body).map_err(|_| status::SEND_FORMAT)
    }
}

impl Device {
    /// The next work request of a queue pair; nothing if what was rung is none.
    pub(super) fn next_request(&self, qpn: u32) -> Option<Request> {
        let pair = self.qps.get(&qpn)?;
        let left = pair.rung.wrapping_sub(pair.sent);
        let block = |at: u16| pair.sends.entry::<BLOCK>(&self.bus, at.into(), pair.send_depth);
        let first = block(pair.sent)?;
        let header = u64::from_le_bytes(*first.first_chunk()?);
        // `ERDMA_SQE_HDR_WQEBB_CNT_MASK`: one less than there are.
        let blocks = u16::try_from(bits64(header, 52, 3) + 1).ok()?;
        let request = Request { index: pair.sent, blocks, header, bytes: first.to_vec() };
        if blocks > left || u32::from(left) > pair.send_depth || request.qpn() != qpn {
            return None;
        }
        let mut bytes = request.bytes;
        for more in 1..blocks {
            bytes.extend(block(pair.sent.wrapping_add(more))?);
        }
        Some(Request { bytes, ..request })
    }

    /// What a work request becomes; else how it fails.
    pub(super) fn make(&self, qpn: u32, request: &Request) -> Result<Made, u8> {
        let pair = self.qps.get(&qpn).ok_or(status::GENERAL)?;
        let solicited = request.header & SOLICITED != 0;
        let code = request.opcode();
        if pair.kind == Kind::Datagram {
            let sqe: DatagramSqe = request.body()?;
            let data = self.gathered(qpn, request, LIST, sqe.length.get())?;
            if data.len() > limits::MAX_DATAGRAM
                || !matches!(code, opcode::SEND | opcode::SEND_IMMEDIATE)
            {
                return Err(status::SEND_FORMAT);
            }
            let immediate = (code == opcode::SEND_IMMEDIATE).then(|| u32::from_be_bytes(sqe.word));
            let key = sqe.key.get();
            let (reliable, invalidate) = (false, None);
            return Ok(Made {
                body: Body::Send { data, immediate, key, reliable, solicited, invalidate },
                length: sqe.length.get(),
                into: None,
                target: Some(Target { handle: sqe.handle.get(), qpn: sqe.qpn.get() }),
            });
        }
        let made = |body, length, into| Ok(Made { body, length, into, target: None });
        match code {
            opcode::SEND | opcode::SEND_IMMEDIATE | opcode::SEND_INVALIDATE => {
                let sqe: SendSqe = request.body()?;
                let length = sqe.length.get();
                let data = self.gathered(qpn, request, SEND_LIST, length)?;
                let immediate =
                    (code == opcode::SEND_IMMEDIATE).then(|| u32::from_be_bytes(sqe.word));
                let invalidate =
                    (code == opcode::SEND_INVALIDATE).then(|| u32::from_le_bytes(sqe.word));
                let (key, reliable) = (0, true);
                let body = Body::Send { data, immediate, key, reliable, solicited, invalidate };
                made(body, length, None)
            }
            opcode::WRITE | opcode::WRITE_IMMEDIATE => {
                let sqe: WriteSqe = request.body()?;
                let length = sqe.length.get();
                let data = self.gathered(qpn, request, LIST, length)?;
                let immediate =
                    (code == opcode::WRITE_IMMEDIATE).then(|| u32::from_be_bytes(sqe.word));
                let address = u64::from(sqe.low.get()) | u64::from(sqe.high.get()) << 32;
                let (rkey, key) = (sqe.key.get(), 0);
                let body = Body::Write { rkey, address, data, immediate, key, solicited };
                made(body, length, None)
            }
            opcode::READ => {
                let sqe: ReadSqe = request.body()?;
                let address = u64::from(sqe.low.get()) | u64::from(sqe.high.get()) << 32;
                let (length, key) = (sqe.length, sqe.key);
                let into = Sge { address: address.into(), length, key };
                let count = checked(length.get())?;
                // Before the peer is asked: an answer that has no place cannot be taken back.
                self.place(qpn, &into, access::LOCAL_WRITE).ok_or(status::SEND_KEY)?;
                let (rkey, address) = (sqe.remote.key.get(), sqe.remote.address.get());
                let body = Body::Read { rkey, address, length: count, key: 0 };
                made(body, length.get(), Some(into))
            }
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => {
                let sqe: AtomicSqe = request.body()?;
                let (rkey, address) = (sqe.remote.key.get(), sqe.remote.address.get());
                let into = Sge { length: WORD.into(), ..sqe.local };
                if sqe.local.length.get() < WORD || address % u64::from(WORD) != 0 {
                    return Err(status::SEND_FORMAT);
                }
                self.place(qpn, &into, access::LOCAL_WRITE).ok_or(status::SEND_KEY)?;
                let change = if code == opcode::FETCH_ADD {
                    Change::Add(sqe.operand.get())
                } else {
                    Change::CompareSwap(sqe.compare.get(), sqe.operand.get())
                };
                made(Body::Atomic { rkey, address, change }, WORD, Some(into))
            }
            _ => Err(status::SEND_FORMAT),
        }
    }

    /// The data of a work request: in it, or in the buffers that it lists.
    fn gathered(
        &self,
        qpn: u32,
        request: &Request,
        list: usize,
        length: u32,
    ) -> Result<Arc<[u8]>, u8> {
        let length = checked(length)?;
        let listed = request.bytes.get(list..).unwrap_or_default();
        // `ERDMA_SQE_HDR_SGL_LEN_MASK`: of inline data the bytes, else the buffers.
        let count = usize::try_from(bits64(request.header, 56, 8)).unwrap_or(0);
        let data = if request.header & INLINE != 0 {
            listed.get(..count).ok_or(status::SEND_FORMAT)?.to_vec()
        } else {
            let (buffers, _) = listed.as_chunks::<{ size_of::<Sge>() }>();
            if count > BUFFERS {
                return Err(status::SEND_FORMAT);
            }
            let mut data = Vec::with_capacity(length);
            for buffer in buffers.get(..count).ok_or(status::SEND_FORMAT)? {
                let buffer = Sge::read_from_bytes(buffer).map_err(|_| status::SEND_FORMAT)?;
                data.extend(self.load(qpn, &buffer).ok_or(status::SEND_KEY)?);
            }
            data
        };
        if data.len() != length {
            return Err(status::SEND_FORMAT);
        }
        Ok(data.into())
    }

    /// The guest memory behind a buffer of a queue pair's; nothing if its key is not for this.
    fn place(&self, qpn: u32, buffer: &Sge, access: u8) -> Option<Vec<(u64, usize)>> {
        let (key, address) = (buffer.key.get(), buffer.address.get());
        let length = usize::try_from(buffer.length.get()).ok()?;
        if length == 0 {
            return Some(Vec::new());
        }
        let pair = self.qps.get(&qpn)?;
        if pair.privileged && key == limits::PHYSICAL_KEY {
            return Some(vec![(address, length)]);
        }
        self.behind(pair.pd, key, access, address, length)
    }

    /// The guest memory behind an address of a region; nothing if the key is not for this.
    pub(super) fn behind(
        &self,
        pd: u32,
        key: u32,
        access: u8,
        address: u64,
        length: usize,
    ) -> Option<Vec<(u64, usize)>> {
        let mapped = self.regions.get(&key).filter(|mapped| mapped.valid)?;
        if !mapped.physical {
            return mapped.region.pieces(pd, access, address, length);
        }
        let allowed = mapped.region.pd == pd && mapped.region.permissions & access == access;
        allowed.then(|| vec![(address, length)])
    }

    fn load(&self, qpn: u32, buffer: &Sge) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        for (at, length) in self.place(qpn, buffer, access::LOCAL_READ)? {
            let from = data.len();
            data.resize(from + length, 0);
            self.bus.read(at, data.get_mut(from..)?).ok()?;
        }
        Some(data)
    }

    /// Puts what has arrived into a buffer of a queue pair's.
    pub(super) fn keep(&self, qpn: u32, buffer: &Sge, data: &[u8]) -> Option<()> {
        let length = u32::try_from(data.len()).ok()?;
        let buffer = Sge { length: length.into(), ..*buffer };
        let pieces = self.place(qpn, &buffer, access::LOCAL_WRITE)?;
        self.spread(&pieces, data)
    }

    /// Writes data to pieces of guest memory.
    pub(super) fn spread(&self, pieces: &[(u64, usize)], data: &[u8]) -> Option<()> {
        let mut rest = data;
        for (at, length) in pieces {
            let (here, next) = rest.split_at_checked(*length)?;
            self.bus.write(*at, here).ok()?;
            rest = next;
        }
        Some(())
    }
}

fn checked(length: u32) -> Result<usize, u8> {
    if length > limits::MAX_MESSAGE {
        return Err(status::SEND_FORMAT);
    }
    usize::try_from(length).map_err(|_| status::SEND_FORMAT)
}
