//! Messages as guests hand them in: addresses, headers and buffers in a guest's memory.

use std::os::fd::OwnedFd;

use rustix::net::AddressFamily;
use rustix::net::RecvFlags;
use verbgate_abi::Errno;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;

use crate::fetch::errno;

use super::kernel::MAX_PART;

/// Bytes of `struct sockaddr_nl`.
const ADDRESS_LEN: usize = 12;
/// Buffers of a guest that are looked at.
const MAX_VECTORS: usize = 16;

/// What a call on a socket comes to.
pub(super) struct Answered {
    pub(super) value: i64,
    /// What its caller is told in its own memory.
    pub(super) pieces: Vec<(u64, Vec<u8>)>,
}

impl From<i64> for Answered {
    fn from(value: i64) -> Self {
        Self { value, pieces: Vec::new() }
    }
}

/// A `struct sockaddr_nl`: family and padding, port, groups.
pub(super) struct Address {
    pub(super) port: u32,
    pub(super) groups: u32,
}

impl Address {
    pub(super) fn read(memory: &impl GuestMemory, addr: u64, len: u64) -> Result<Self, Errno> {
        if len < ADDRESS_LEN as u64 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; ADDRESS_LEN];
        read(memory, addr, &mut bytes)?;
        let [port, groups] = [4, 8].map(|at| word(&bytes, at));
        Ok(Self { port, groups })
    }
}

/// A `struct msghdr` of a guest's.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) name: u64,
    pub(super) name_len: u32,
    pub(super) vectors: Vec<Range>,
}

impl Header {
    const LEN: usize = 56;

    pub(super) fn read(memory: &impl GuestMemory, addr: u64) -> Result<Self, Errno> {
        let mut bytes = [0; Self::LEN];
        read(memory, addr, &mut bytes)?;
        let [name, at, count] = [0, 16, 24].map(|at| long(&bytes, at));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > MAX_VECTORS {
            return Err(Errno(libc::EMSGSIZE));
        }
        let mut vectors = vec![0; count * 16];
        read(memory, at, &mut vectors)?;
        let vectors = vectors.chunks(16).map(|one| range(long(one, 0), long(one, 8))).collect();
        Ok(Self { name, name_len: word(&bytes, 8), vectors })
    }

    /// Tells who sent what was received: the kernel.
    pub(super) fn told(&self, addr: u64, flags: RecvFlags) -> Vec<(u64, Vec<u8>)> {
        let len = u32::try_from(ADDRESS_LEN).unwrap_or(u32::MAX).to_ne_bytes();
        let from = address(0);
        let room = usize::try_from(self.name_len).unwrap_or(usize::MAX).min(ADDRESS_LEN);
        let mut pieces = Vec::new();
        if self.name != 0 {
            pieces.push((self.name, from.get(..room).unwrap_or(&from).to_vec()));
            pieces.push((addr.wrapping_add(8), len.to_vec()));
        }
        // msg_controllen, and msg_flags behind it.
        pieces.push((addr.wrapping_add(40), vec![0; 8]));
        pieces.push((addr.wrapping_add(48), flags.bits().to_ne_bytes().to_vec()));
        pieces
    }
}

pub(super) struct ReceivedMessage {
    pub(super) value: i64,
    pub(super) flags: RecvFlags,
    pub(super) pieces: Vec<(u64, Vec<u8>)>,
}

impl ReceivedMessage {
    pub(super) fn done(self) -> Answered {
        Answered { value: self.value, pieces: self.pieces }
    }
}

/// Takes a message from the guest's own end.
pub(super) fn receive(
    file: &OwnedFd,
    vectors: &[Range],
    flags: u64,
) -> Result<ReceivedMessage, Errno> {
    let flags = RecvFlags::from_bits_truncate(u32::try_from(flags & 0xffff_ffff).unwrap_or(0));
    let room: usize = vectors.iter().map(|vector| vector.len.min(MAX_PART)).sum();
    let mut buffer = vec![0; room.min(MAX_PART)];
    // A guest that waits for what it has not asked for would wait for ever; it is told so.
    let how = flags & (RecvFlags::PEEK | RecvFlags::TRUNC) | RecvFlags::DONTWAIT;
    // Without TRUNC the true length is not told; whether it is longer is.
    let (n, len) = rustix::net::recv(file, &mut *buffer, how | RecvFlags::TRUNC)
        .map_err(|e| errno(e.into()))?;
    let mut rest = buffer.get(..n).unwrap_or_default();
    let mut pieces = Vec::new();
    for vector in vectors {
        let (piece, behind) = rest.split_at_checked(vector.len).unwrap_or((rest, &[]));
        if !piece.is_empty() {
            pieces.push((vector.addr, piece.to_vec()));
        }
        rest = behind;
    }
    let value = if flags.contains(RecvFlags::TRUNC) { len } else { n };
    let cut = if len > n { RecvFlags::TRUNC } else { RecvFlags::empty() };
    Ok(ReceivedMessage { value: i64::try_from(value).unwrap_or(i64::MAX), flags: cut, pieces })
}

pub(super) fn range(addr: u64, len: u64) -> Range {
    Range { addr, len: usize::try_from(len).unwrap_or(usize::MAX) }
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    let long = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    long.map_or(0, |long| u64::from_ne_bytes(*long))
}

pub(super) fn read(memory: &impl GuestMemory, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
    let len = into.len();
    mem::gather(memory, &[Range { addr, len }], into).map_err(|_| Errno::EFAULT)
}

pub(super) fn gather(
    memory: &impl GuestMemory,
    vectors: &[Range],
    most: usize,
) -> Result<Vec<u8>, Errno> {
    let len = vectors.iter().fold(0_usize, |all, vector| all.saturating_add(vector.len));
    if len > most {
        return Err(Errno(libc::EMSGSIZE));
    }
    let mut bytes = vec![0; len];
    mem::gather(memory, vectors, &mut bytes).map_err(|_| Errno::EFAULT)?;
    Ok(bytes)
}

/// `struct sockaddr_nl` of a port.
pub(super) fn address(port: u32) -> [u8; ADDRESS_LEN] {
    let mut bytes = [0; ADDRESS_LEN];
    let family = u32::from(AddressFamily::NETLINK.as_raw()).to_ne_bytes();
    for (to, from) in bytes.iter_mut().zip(family.into_iter().chain(port.to_ne_bytes())) {
        *to = from;
    }
    bytes
}

/// How much room there is for an address.
pub(super) fn room(memory: &impl GuestMemory, len_at: u64) -> Result<usize, Errno> {
    let mut room = [0; 4];
    read(memory, len_at, &mut room)?;
    Ok(usize::try_from(u32::from_ne_bytes(room)).unwrap_or(usize::MAX))
}

/// An address, as much as there is room for, and how long it is.
pub(super) fn put_address(room: usize, addr: u64, len_at: u64, port: u32) -> Vec<(u64, Vec<u8>)> {
    let bytes = address(port);
    let len = u32::try_from(ADDRESS_LEN).unwrap_or(u32::MAX).to_ne_bytes();
    let part = bytes.get(..room.min(ADDRESS_LEN)).unwrap_or(&bytes);
    vec![(len_at, len.to_vec()), (addr, part.to_vec())]
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rustix::net::SocketFlags;
    use rustix::net::SocketType;

    use super::*;

    fn memory(bytes: Vec<u8>) -> mem::FakeMemory {
        mem::FakeMemory { base: 0, bytes: RefCell::new(bytes) }
    }

    #[test]
    fn an_address_is_cut_to_the_room_and_its_length_is_told() {
        let pieces = put_address(8, 100, 16, 7);
        let told = (16, 12_u32.to_ne_bytes().to_vec());
        assert_eq!(pieces, [told, (100, vec![16, 0, 0, 0, 7, 0, 0, 0])]);
    }

    #[test]
    fn a_message_is_spread_over_vectors_and_its_cut_is_told() {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let vectors = [range(0, 2), range(16, 2)];
        for (flags, value) in [(libc::MSG_PEEK | libc::MSG_TRUNC, 5), (0, 4)] {
            if value == 5 {
                rustix::io::write(&ours, b"hello").unwrap();
            }
            let flags = u64::try_from(flags).unwrap();
            let received = receive(&theirs, &vectors, flags).unwrap();
            assert_eq!((received.value, received.flags), (value, RecvFlags::TRUNC));
            assert_eq!(received.pieces, [(0, b"he".to_vec()), (16, b"ll".to_vec())]);
        }
        let nothing = receive(&theirs, &vectors, 0).map(|r| r.value);
        assert_eq!(nothing, Err(Errno::EAGAIN));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let mut bytes = vec![0; 128];
        bytes[24..32].copy_from_slice(&17_u64.to_ne_bytes());
        let header = |bytes: &[u8]| Header::read(&memory(bytes.to_vec()), 0).map(|h| h.vectors);
        assert_eq!(header(&bytes), Err(Errno(libc::EMSGSIZE)));
        bytes[24..32].copy_from_slice(&1_u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&4096_u64.to_ne_bytes());
        assert_eq!(header(&bytes), Err(Errno::EFAULT));
        let huge = [range(0, u64::MAX), range(0, u64::MAX)];
        assert_eq!(gather(&memory(bytes), &huge, 4096), Err(Errno(libc::EMSGSIZE)));
    }
}
