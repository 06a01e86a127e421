//! Work requests: reading them from a send queue, and making messages of them.

use std::sync::Arc;

use super::Device;
use super::bits::Field;
use super::complete::syndrome;
use super::device_memory::OWN;
use super::layout::qpc;
use super::memory::access;
use super::objects::address;
use crate::wire::Address;
use crate::wire::Body;
use crate::wire::Change;

/// A block of a send queue; and a segment of a work request, of which its control segment counts so many.
const BLOCK: usize = 64;
const SEGMENT: usize = 16;
/// `mlx5_wqe_ctrl_seg`.
const OPMOD_INDEX_OPCODE: Field = Field::new(0, 32);
const SEGMENTS: Field = Field::new(7 * 8 + 2, 6);
const SIGNALED: Field = Field::new(11 * 8 + 4, 2);
const SOLICITED: Field = Field::new(11 * 8 + 6, 1);
const IMMEDIATE: Field = Field::new(12 * 8, 32);
/// `MLX5_WQE_CTRL_CQ_UPDATE`.
const ALWAYS: u64 = 2;

/// `mlx5_wqe_raddr_seg`, `mlx5_wqe_atomic_seg`, `mlx5_wqe_datagram_seg` and `mlx5_wqe_data_seg`.
const REMOTE_ADDRESS: Field = Field::new(0, 64);
const REMOTE_KEY: Field = Field::new(8 * 8, 32);
const OPERAND: Field = Field::new(0, 64);
const COMPARE: Field = Field::new(64, 64);
const DATAGRAM: usize = 48;
const QUEUE_KEY: Field = Field::new(0, 32);
const TO_QP: Field = Field::new(9 * 8, 24);
const TO_LID: Field = Field::new(14 * 8, 16);
const DATA_LENGTH: Field = Field::new(0, 32);
const DATA_KEY: Field = Field::new(32, 32);
const DATA_ADDRESS: Field = Field::new(64, 64);
/// Bytes follow, instead of a key and an address.
const INLINE: u32 = 1 << 31;
/// A queue key whose highest bit is set stands for that of the queue pair.
const OWN_KEY: u32 = 1 << 31;

/// `MLX5_OPCODE_SEND` and others.
pub(super) mod opcode {
    pub(in super::super) const NOP: u8 = 0x00;
    pub(in super::super) const SEND_INVALIDATE: u8 = 0x01;
    pub(in super::super) const WRITE: u8 = 0x08;
    pub(in super::super) const WRITE_IMMEDIATE: u8 = 0x09;
    pub(in super::super) const SEND: u8 = 0x0a;
    pub(in super::super) const SEND_IMMEDIATE: u8 = 0x0b;
    pub(in super::super) const READ: u8 = 0x10;
    pub(in super::super) const COMPARE_SWAP: u8 = 0x11;
    pub(in super::super) const FETCH_ADD: u8 = 0x12;
}

/// A work request as it is in the queue.
#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    pub(super) index: u16,
    pub(super) blocks: u16,
}

impl Request {
    pub(super) fn opcode(&self) -> u8 {
        u8::try_from(OPMOD_INDEX_OPCODE.get(&self.bytes) & 0xff).unwrap_or(0)
    }

    pub(super) fn signaled(&self) -> bool {
        SIGNALED.get(&self.bytes) == ALWAYS
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn immediate(&self) -> u32 {
        IMMEDIATE.word(&self.bytes)
    }
}

/// A scatter list: where it goes, and how many bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sge {
    pub(super) key: u32,
    pub(super) address: u64,
    pub(super) length: usize,
}

impl Sge {
    /// An entry of 16 bytes.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Self {
            key: DATA_KEY.word(bytes),
            address: DATA_ADDRESS.get(bytes),
            length: usize::try_from(DATA_LENGTH.get(bytes)).unwrap_or(usize::MAX),
        }
    }
}

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Made {
    /// Nothing of what has no message.
    pub(super) body: Option<Body>,
    /// Where the answer goes.
    pub(super) into: Vec<(u64, usize)>,
    pub(super) length: u32,
    /// Who a datagram is for.
    pub(super) target: Option<(Address, u32)>,
}

impl Device {
    /// The next work request of a queue pair; nothing if there is no telling what it is.
    pub(super) fn next_request(&self, qpn: u32) -> Option<Request> {
        let pair = self.qps.get(&qpn)?;
        let (stride, receives) = pair.receives();
        let (base, mask) = (stride * u64::from(receives), pair.blocks().checked_sub(1)?);
        let block = |index: u32| -> Option<[u8; BLOCK]> {
            pair.buffer.load(&self.bus, base + u64::from(index & mask) * BLOCK as u64)
        };
        let index = u32::from(pair.sent);
        let mut bytes = block(index)?.to_vec();
        let length = usize::try_from(SEGMENTS.get(&bytes)).ok()? * SEGMENT;
        if length < SEGMENT {
            return None;
        }
        let blocks = u16::try_from(length.div_ceil(BLOCK)).ok()?;
        for more in 1..u32::from(blocks) {
            bytes.extend(block(index.wrapping_add(more))?);
        }
        bytes.truncate(length);
        Some(Request { bytes, index: pair.sent, blocks })
    }

    /// Makes of a work request what is to be sent; or gives the status that it ends with.
    pub(super) fn make(&self, qpn: u32, request: &Request) -> Result<Made, u8> {
        let pair = self.qps.get(&qpn).ok_or(syndrome::OPERATION)?;
        let pd = pair.pd();
        let code = request.opcode();
        let mut made = Made { body: None, into: Vec::new(), length: 0, target: None };
        // Of datagrams, too, without an address: so Linux 6.1 tries whether stores are combined.
        if code == opcode::NOP {
            return Ok(made);
        }
        let mut rest = request.bytes.get(SEGMENT..).unwrap_or_default();
        let mut segment = |size: usize| {
            let (head, tail) = rest.split_at_checked(size).ok_or(syndrome::OPERATION)?;
            rest = tail;
            Ok::<_, u8>(head)
        };
        let reliable = pair.connected();
        let connected = reliable || pair.unreliable();
        let target = match pair.datagrams() {
            true => Some(segment(DATAGRAM)?),
            false => None,
        };
        let solicited = SOLICITED.is_set(&request.bytes);
        let remote = match code {
            opcode::WRITE | opcode::WRITE_IMMEDIATE if connected => Some(segment(SEGMENT)?),
            opcode::READ | opcode::COMPARE_SWAP | opcode::FETCH_ADD if reliable => {
                Some(segment(SEGMENT)?)
            }
            _ => None,
        };
        let (place, rkey) =
            remote.map_or((0, 0), |bytes| (REMOTE_ADDRESS.get(bytes), REMOTE_KEY.word(bytes)));
        let change = match code {
            opcode::COMPARE_SWAP if reliable => {
                let bytes = segment(SEGMENT)?;
                Some(Change::CompareSwap(COMPARE.get(bytes), OPERAND.get(bytes)))
            }
            opcode::FETCH_ADD if reliable => Some(Change::Add(OPERAND.get(segment(SEGMENT)?))),
            _ => None,
        };
        let key = target.map_or(0, |target| match QUEUE_KEY.word(target) {
            own if own & OWN_KEY != 0 => pair.get(qpc::Q_KEY),
            key => key,
        });
        made.target = target.map(|bytes| {
            let lid = u16::try_from(TO_LID.get(bytes)).unwrap_or(0);
            (address(lid), TO_QP.word(bytes))
        });
        let write = |data: Arc<[u8]>, immediate| Body::Write {
            rkey,
            address: place,
            data,
            immediate,
            key: 0,
            solicited,
        };
        let send = |data: Arc<[u8]>, immediate, invalidate| Body::Send {
            data,
            immediate,
            key,
            reliable: connected,
            solicited,
            invalidate,
        };
        let body = match code {
            opcode::SEND => send(self.gather(pd, rest)?, None, None),
            opcode::SEND_IMMEDIATE => send(self.gather(pd, rest)?, Some(request.immediate()), None),
            opcode::SEND_INVALIDATE if reliable => {
                send(self.gather(pd, rest)?, None, Some(request.immediate()))
            }
            opcode::WRITE if connected => write(self.gather(pd, rest)?, None),
            opcode::WRITE_IMMEDIATE if connected => {
                write(self.gather(pd, rest)?, Some(request.immediate()))
            }
            opcode::READ | opcode::COMPARE_SWAP | opcode::FETCH_ADD if reliable => {
                made.into = self.scatter(pd, rest)?;
                let length = made.into.iter().map(|(_, length)| length).sum();
                match change {
                    Some(change) if length == size_of::<u64>() => {
                        Body::Atomic { rkey, address: place, change }
                    }
                    Some(_) => return Err(syndrome::LENGTH),
                    None => Body::Read { rkey, address: place, length, key: 0 },
                }
            }
            // Memory windows, fast registration and what else changes keys.
            _ => return Err(syndrome::OPERATION),
        };
        let length = match &body {
            Body::Send { data, .. } | Body::Write { data, .. } => data.len(),
            Body::Read { length, .. } => *length,
            _ => size_of::<u64>(),
        };
        if length > 1 << super::limits::LOG_MESSAGE {
            return Err(syndrome::LENGTH);
        }
        made.length = u32::try_from(length).map_err(|_| syndrome::LENGTH)?;
        made.body = Some(body);
        Ok(made)
    }

    /// The bytes that the rest of a work request names or holds.
    fn gather(&self, pd: u32, mut rest: &[u8]) -> Result<Arc<[u8]>, u8> {
        let mut data = Vec::new();
        while let Some(head) = rest.first_chunk::<4>() {
            let word = u32::from_be_bytes(*head);
            if word & INLINE != 0 {
                let length = usize::try_from(word & 0x3ff).unwrap_or(0);
                data.extend(rest.get(4..4 + length).ok_or(syndrome::OPERATION)?);
                rest = rest.get((4 + length).next_multiple_of(SEGMENT)..).unwrap_or_default();
                continue;
            }
            let (segment, tail) = rest.split_at_checked(SEGMENT).ok_or(syndrome::OPERATION)?;
            rest = tail;
            let sge = Sge::read(segment);
            let pieces = self.local(pd, &sge, access::LOCAL_READ)?;
            data.extend(self.collect(&pieces).ok_or(syndrome::PROTECTION)?);
        }
        Ok(data.into())
    }

    /// The memory that the rest of a work request names.
    fn scatter(&self, pd: u32, rest: &[u8]) -> Result<Vec<(u64, usize)>, u8> {
        let mut pieces = Vec::new();
        for segment in rest.as_chunks::<SEGMENT>().0 {
            pieces.extend(self.local(pd, &Sge::read(segment), access::LOCAL_WRITE)?);
        }
        Ok(pieces)
    }

    /// The memory of an entry of a list.
    pub(super) fn local(&self, pd: u32, sge: &Sge, rights: u8) -> Result<Vec<(u64, usize)>, u8> {
        let found = self.behind(pd, sge.key, rights, sge.address, sge.length);
        found.ok_or(syndrome::PROTECTION)
    }

    /// The guest memory that a key and an address name. Of no bytes, any will do.
    pub(super) fn behind(
        &self,
        pd: u32,
        key: u32,
        rights: u8,
        address: u64,
        length: usize,
    ) -> Option<Vec<(u64, usize)>> {
        if length == 0 {
            return Some(Vec::new());
        }
        let found =
            self.keys.get(&(key >> 8)).filter(|found| u32::from(found.variant) == key & 0xff);
        found?.pieces(pd, rights, address, length)
    }

    pub(super) fn collect(&self, pieces: &[(u64, usize)]) -> Option<Vec<u8>> {
        let mut data = vec![0; pieces.iter().map(|(_, length)| length).sum()];
        let mut rest = &mut data[..];
        for (at, length) in pieces {
            let (here, next) = rest.split_at_mut_checked(*length)?;
            match at & OWN {
                0 => self.bus.read(*at, here).ok()?,
                _ => self.memory.load(at & !OWN, here)?,
            }
            rest = next;
        }
        Some(data)
    }

    /// Writes data to pieces, which may have room for more.
    pub(super) fn spread(&mut self, pieces: &[(u64, usize)], data: &[u8]) -> Option<()> {
        let mut rest = data;
        for (at, length) in pieces {
            let (here, next) = rest.split_at(rest.len().min(*length));
            match at & OWN {
                0 => self.bus.write(*at, here).ok()?,
                _ => self.memory.store(at & !OWN, here)?,
            }
            rest = next;
        }
        rest.is_empty().then_some(())
    }
}
