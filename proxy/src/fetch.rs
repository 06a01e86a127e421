//! Fetch: one copy of a request out of guest memory.
//!
//! Nothing is read twice. The first read takes more than the header asks for, because the
//! attributes always follow the header and the inputs often do (rdma-core builds all of a request
//! on one stack frame). All parts of the request that lie in the first copy are taken from that
//! copy.

use std::io;

use verbgate_abi::Errno;
use verbgate_abi::wire::HDR_LEN;
use verbgate_sys::control;
use verbgate_sys::mem;
use verbgate_sys::mem::GuestMemory;
use verbgate_sys::mem::Range;
use verbgate_sys::shortage;
use verbgate_sys::window::AddrWindow;

/// Bytes of the first read: header, the attributes of every usual method, and then some.
pub const FIRST_READ: usize = 1024;
/// The longest `write(2)` to a device that is looked at: a core and a driver structure of 64 KiB
/// each is what the ioctl form of the same command can carry.
pub const MAX_WRITE: usize = 128 << 10;

/// How a request was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `ioctl`: its array is at this address.
    Ioctl(u64),
    /// `write`, of so many bytes.
    Write(usize),
}

/// The number by which a planted address space names itself ([`control::OWNER`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner(pub u64);

/// Guest memory that was copied, and where from.
#[derive(Debug)]
pub struct Copied {
    addr: u64,
    bytes: Vec<u8>,
}

impl Copied {
    /// A copy of a range; `None` when it cannot be read to its end.
    pub fn read(memory: &impl GuestMemory, addr: u64, len: usize) -> Option<Self> {
        let mut bytes = vec![0; len];
        mem::gather(memory, &[Range { addr, len }], &mut bytes).ok()?;
        Some(Self { addr, bytes })
    }

    /// A copy of what can be read at an address, up to `want` bytes; empty when nothing can.
    #[must_use]
    pub fn beginning(memory: &impl GuestMemory, addr: u64, want: usize) -> Self {
        let mut bytes = vec![0; want];
        let n = memory.read(&mem::pages(Range { addr, len: want }), &mut bytes).unwrap_or(0);
        bytes.truncate(n);
        Self { addr, bytes }
    }

    /// The copy of a range, if it was copied.
    #[must_use]
    pub fn get(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(addr.checked_sub(self.addr)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }

    /// Everything that was copied.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads who owns an address space.
///
/// `None`: no stub lives in it, or none that could be read without fetching the page. The filter lets
/// nobody map anything where the owner stands, but the kernel may; so this says whom to ask, and
/// proves nothing.
pub fn owner(memory: &impl GuestMemory, window: AddrWindow) -> Option<Owner> {
    let addr = window.slot(0) + control::OWNER as u64;
    let mut word = [0; 8];
    let n = memory.read_at_hand(&[Range { addr, len: word.len() }], &mut word).ok()?;
    let owner = Owner(u64::from_ne_bytes(word));
    // 0 is left by a planting that failed halfway.
    (n == word.len() && owner != Owner(0)).then_some(owner)
}

/// The first bytes at an address: `want` of them, or as many as are at hand if these are `least` at
/// least. Empty when nothing can be read there.
pub fn first(memory: &impl GuestMemory, addr: u64, (least, want): (usize, usize)) -> Copied {
    let ranges = mem::pages(Range { addr, len: want });
    let mut bytes = vec![0; want];
    let mut n = memory.read_at_hand(&ranges, &mut bytes).unwrap_or(0);
    if n < least {
        n = memory.read(&ranges, &mut bytes).unwrap_or(0);
    }
    bytes.truncate(n);
    Copied { addr, bytes }
}

/// The errno of a read that failed: `EFAULT`, but for a shortage of the supervisor's own.
pub(crate) fn fault(e: io::Error) -> Errno {
    Errno(shortage::errno_or(&e, libc::EFAULT))
}

/// The errno of an error of the kernel's.
pub(crate) fn errno(e: io::Error) -> Errno {
    Errno(e.raw_os_error().unwrap_or(libc::EIO))
}

/// The whole of header and attributes, whose length the header tells.
///
/// # Errors
/// `EFAULT` when they end in memory that cannot be read.
pub fn array(memory: &impl GuestMemory, first: Copied, length: usize) -> Result<Copied, Errno> {
    if first.bytes.len() < HDR_LEN {
        return Err(Errno::EFAULT);
    }
    if first.bytes.len() >= length {
        return Ok(first);
    }
    let Copied { addr, mut bytes } = first;
    let have = bytes.len();
    bytes.resize(length, 0);
    let rest = Range { addr: addr.wrapping_add(have as u64), len: length - have };
    let into = bytes.get_mut(have..).unwrap_or_default();
    mem::gather(memory, &[rest], into).map_err(fault)?;
    Ok(Copied { addr, bytes })
}

/// Inputs of a request, one after the other: from the first copy where it holds them, else read
/// now.
///
/// # Errors
/// `EFAULT` when one of them cannot be read.
pub fn inputs(
    memory: &impl GuestMemory,
    first: &Copied,
    ranges: &[Range],
) -> Result<Vec<u8>, Errno> {
    let missing: Vec<Range> =
        ranges.iter().filter(|r| first.get(r.addr, r.len).is_none()).copied().collect();
    let mut bytes = vec![0; missing.iter().map(|r| r.len).sum()];
    mem::gather(memory, &missing, &mut bytes).map_err(fault)?;
    let mut rest = bytes.as_slice();
    let mut all = Vec::with_capacity(ranges.iter().map(|r| r.len).sum());
    for range in ranges {
        if let Some(copied) = first.get(range.addr, range.len) {
            all.extend_from_slice(copied);
        } else {
            let (now, later) = rest.split_at_checked(range.len).ok_or(Errno::EFAULT)?;
            all.extend_from_slice(now);
            rest = later;
        }
    }
    Ok(all)
}

/// The first buffer of a `writev`: the device takes each as a command of its own, and a short
/// count tells the caller to come again with the rest.
pub(crate) fn first_vector(memory: &impl GuestMemory, addr: u64, count: u64) -> (u64, u64) {
    let mut vector = [0; 16];
    let range = [Range { addr, len: vector.len() }];
    if mem::gather(memory, &range, &mut vector).is_err() {
        // Nothing can be read there, either, so that it ends in EFAULT.
        return (u64::MAX, 1);
    }
    if count == 0 {
        return (0, 0);
    }
    let [base, len] = [0, 8].map(|at| {
        let word = vector.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or_default();
        u64::from_ne_bytes(word)
    });
    (base, len)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const WINDOW: AddrWindow = AddrWindow::at(0);

    /// One memory that holds both the owner and, right behind, the request.
    fn memory(after_owner: &[u8]) -> mem::FakeMemory {
        let base = WINDOW.slot(0) + control::OWNER as u64;
        let mut bytes = 7_u64.to_ne_bytes().to_vec();
        bytes.extend(after_owner);
        mem::FakeMemory { base, bytes: RefCell::new(bytes) }
    }

    #[test]
    fn the_owner_comes_with_the_first_bytes() {
        let memory = memory(&[9; 100]);
        let at = memory.base + 8;
        assert_eq!(owner(&memory, WINDOW), Some(Owner(7)));
        assert_eq!(first(&memory, at, (50, 50)).bytes(), [9; 50]);
        assert!(first(&memory, 1, (8, 8)).bytes().is_empty());
        assert_eq!(owner(&mem::FakeMemory::default(), WINDOW), None);
    }

    /// Memory of which only so many bytes are at hand.
    struct Partly(mem::FakeMemory, usize);

    impl GuestMemory for Partly {
        fn read(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
            self.0.read(from, into)
        }

        fn read_at_hand(&self, from: &[Range], into: &mut [u8]) -> io::Result<usize> {
            let there = |range: &&Range| range.addr + range.len as u64 <= self.1 as u64;
            let there: Vec<Range> = from.iter().take_while(there).copied().collect();
            if there.is_empty() { Ok(0) } else { self.0.read(&there, into) }
        }
    }

    #[test]
    fn the_first_read_fetches_no_page_that_may_not_be_needed() {
        let bytes = RefCell::new(vec![5; 3 * 4096]);
        let memory = Partly(mem::FakeMemory { base: 0, bytes }, 4096);
        assert_eq!(first(&memory, 4000, (24, 200)).bytes().len(), 96);
        assert_eq!(first(&memory, 4000, (200, 200)).bytes().len(), 200);
        assert_eq!(first(&memory, 4090, (24, 200)).bytes().len(), 200);
    }

    #[test]
    fn inputs_are_taken_from_the_first_copy() {
        let memory = memory(&(0..200).collect::<Vec<u8>>());
        let at = memory.base + 8;
        let copied = first(&memory, at, (100, 100));
        // Changed after the first read: the copy counts, the rest is read now.
        memory.bytes.borrow_mut()[8 + 10] = 255;
        memory.bytes.borrow_mut()[8 + 150] = 254;
        let ranges = [Range { addr: at + 150, len: 2 }, Range { addr: at + 10, len: 3 }];
        let got = inputs(&memory, &copied, &ranges).unwrap();
        assert_eq!(got, [254, 151, 10, 11, 12]);
        let gone = [Range { addr: 3, len: 2 }];
        assert_eq!(inputs(&memory, &copied, &gone).unwrap_err(), Errno::EFAULT);
    }

    #[test]
    fn a_long_array_is_completed() {
        let memory = memory(&(0..200).collect::<Vec<u8>>());
        let at = memory.base + 8;
        let copied = first(&memory, at, (30, 30));
        let whole = array(&memory, copied, 190).unwrap();
        assert_eq!(whole.bytes(), (0..190).collect::<Vec<u8>>());
    }
}
