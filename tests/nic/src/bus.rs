//! What a function reaches of its machine: memory by DMA, and interrupts by MSI-X.

use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use parking_lot::RwLock;
use vm_memory::Bytes as _;
use vm_memory::FileOffset;
use vm_memory::GuestAddress;
use vm_memory::GuestMemoryRegion as _;
use vm_memory::GuestRegionMmap;
use vm_memory::MemoryRegionAddress;

/// An access to guest memory that no mapping covers. A device on a PCI bus sees a master abort.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("nothing is mapped for DMA at {address:#x}, {length} bytes")]
pub struct Abort {
    /// Where.
    pub address: u64,
    /// How much was wanted.
    pub length: usize,
}

/// A function's view of its machine.
#[derive(Debug, Default)]
pub struct Bus {
    memory: RwLock<Vec<GuestRegionMmap>>,
    vectors: Mutex<Vectors>,
}

#[derive(Debug, Default)]
struct Vectors {
    files: Vec<Option<File>>,
    /// Interrupts get lost, as a broken platform would lose them.
    deaf: bool,
}

impl Bus {
    /// Reads guest memory.
    ///
    /// # Errors
    /// Not all of it is mapped.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Abort> {
        let abort = Abort { address, length: into.len() };
        self.at(address, into.len(), |region, at| region.read_slice(into, at).map_err(|_| abort))
    }

    /// Writes guest memory.
    ///
    /// # Errors
    /// Not all of it is mapped; then nothing is written.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), Abort> {
        let abort = Abort { address, length: from.len() };
        self.at(address, from.len(), |region, at| region.write_slice(from, at).map_err(|_| abort))
    }

    /// Writes an aligned word after all that was written before: the word by which a driver sees
    /// that the rest is there.
    ///
    /// # Errors
    /// It is not mapped.
    pub fn publish(&self, address: u64, word: u32) -> Result<(), Abort> {
        let abort = Abort { address, length: size_of::<u32>() };
        self.at(address, size_of::<u32>(), |region, at| {
            region.store(word.to_le(), at, Ordering::Release).map_err(|_| abort)
        })
    }

    /// Raises an MSI-X interrupt. One that the driver has not set up is lost.
    pub fn interrupt(&self, vector: usize) {
        let vectors = self.vectors.lock();
        let file = vectors.files.get(vector).and_then(Option::as_ref);
        if let (Some(mut file), false) = (file, vectors.deaf)
            && let Err(error) = file.write_all(&1u64.to_ne_bytes())
        {
            log::warn!("interrupt {vector} is lost: {error}");
        }
    }

    /// Loses all interrupts from now on, or none.
    pub fn lose_interrupts(&self, lose: bool) {
        self.vectors.lock().deaf = lose;
    }

    /// Takes memory that the machine shares.
    pub(crate) fn map(&self, address: u64, size: u64, file: File, offset: u64) -> Option<()> {
        let size = usize::try_from(size).ok()?;
        let file = FileOffset::new(file, offset);
        let region = GuestRegionMmap::from_range(GuestAddress(address), size, Some(file)).ok()?;
        self.memory.write().push(region);
        Some(())
    }

    /// Gives back all mappings that begin in this range.
    pub(crate) fn unmap(&self, address: u64, size: u64) {
        self.memory.write().retain(|region| {
            region.start_addr().0.checked_sub(address).is_none_or(|distance| distance >= size)
        });
    }

    /// Gives back all.
    pub(crate) fn disconnect(&self) {
        self.memory.write().clear();
        self.vectors.lock().files.clear();
    }

    /// Sets up vectors from `start` on: one for each file, or `count` that are off.
    pub(crate) fn set_vectors(&self, start: usize, count: usize, files: Vec<File>) {
        let known = &mut self.vectors.lock().files;
        if files.is_empty() && start == 0 && count == 0 {
            known.clear();
            return;
        }
        let count = count.max(files.len());
        let mut files = files.into_iter();
        for vector in start..start.saturating_add(count).min(MOST_VECTORS) {
            if known.len() <= vector {
                known.resize_with(vector + 1, || None);
            }
            if let Some(slot) = known.get_mut(vector) {
                *slot = files.next();
            }
        }
    }

    fn at<T>(
        &self,
        address: u64,
        length: usize,
        access: impl FnOnce(&GuestRegionMmap, MemoryRegionAddress) -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        let abort = Abort { address, length };
        let memory = self.memory.read();
        let found = memory.iter().find_map(|region| {
            let at = address.checked_sub(region.start_addr().0)?;
            let end = at.checked_add(u64::try_from(length).ok()?)?;
            (end <= region.len()).then_some((region, MemoryRegionAddress(at)))
        });
        let (region, at) = found.ok_or(abort)?;
        access(region, at)
    }
}

/// What MSI-X can number.
const MOST_VECTORS: usize = 2048;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn bus() -> (Bus, File) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x3000).unwrap();
        let bus = Bus::default();
        bus.map(0x10_0000, 0x2000, file.try_clone().unwrap(), 0x1000).unwrap();
        (bus, file)
    }

    #[test]
    fn memory_is_the_machines_own() {
        let (bus, file) = bus();
        bus.write(0x10_0ffe, b"over the page").unwrap();
        let mut read = [0; 13];
        file.read_exact_at(&mut read, 0x1ffe).unwrap();
        assert_eq!(&read, b"over the page");
        bus.publish(0x10_1ffc, 7).unwrap();
        bus.read(0x10_1ffc, &mut read[..4]).unwrap();
        assert_eq!(read[..4], 7u32.to_le_bytes());
    }

    #[test]
    fn what_is_not_mapped_aborts() {
        let (bus, _file) = bus();
        for (address, length) in [(0xf_ffff, 1), (0x10_0000, 0x2001), (0x10_2000, 1), (u64::MAX, 2)]
        {
            let error = bus.read(address, &mut vec![0; length]).unwrap_err();
            assert_eq!(error, Abort { address, length });
        }
        bus.unmap(0, u64::MAX);
        assert!(bus.write(0x10_0000, b"x").is_err());
    }

    #[test]
    fn interrupts_reach_who_set_them_up() {
        let (bus, _file) = bus();
        let (theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let ours = File::from(std::os::fd::OwnedFd::from(ours));
        let heard = || {
            let mut word = [0; 8];
            std::io::Read::read(&mut &theirs, &mut word).unwrap_or(0)
        };
        bus.set_vectors(2, 1, vec![ours]);
        bus.interrupt(1);
        assert_eq!(heard(), 0);
        bus.interrupt(2);
        assert_eq!(heard(), 8);
        bus.lose_interrupts(true);
        bus.interrupt(2);
        assert_eq!(heard(), 0);
        bus.lose_interrupts(false);
        bus.set_vectors(0, 0, Vec::new());
        bus.interrupt(2);
        assert_eq!(heard(), 0);
    }
}
