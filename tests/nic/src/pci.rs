//! The configuration space that a function shows: identity, BARs, MSI-X and PCI Express.
//!
//! Numbers are those of the PCI Express Base Specification and of `linux/pci_regs.h`.

/// How a BAR is decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decode {
    /// 32 bits.
    Low,
    /// 64 bits: the next BAR is its upper half.
    Wide,
    /// 64 bits, and reads have no side effects, so that the kernel may combine writes.
    WidePrefetchable,
}

/// A BAR of a function.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// 0 to 5.
    pub index: u8,
    /// A power of two, in bytes.
    pub size: u64,
    /// How.
    pub decode: Decode,
}

/// What a function says of itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Of vendor and device.
    pub vendor: u16,
    /// The vendor's number for it.
    pub device: u16,
    /// Class, subclass and programming interface, as `0x020000`.
    pub class: u32,
    /// The BARs that are there.
    pub bars: Vec<Bar>,
    /// The BAR that holds the MSI-X table and, in its second half, the pending bits.
    pub msix_bar: u8,
    /// How many MSI-X vectors.
    pub vectors: u16,
}

/// The size of the configuration space: that of PCI Express, whose second part is empty.
pub const CONFIG_SIZE: u64 = 4096;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const BARS: usize = 0x10;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const MSIX: usize = 0x40;
const EXPRESS: usize = 0x60;

const MSIX_ID: u8 = 0x11;
const EXPRESS_ID: u8 = 0x10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Version 2 of the structure, of an endpoint.
const EXPRESS_FLAGS: u16 = 2;
/// Function level reset.
const EXPRESS_DEVICE: u32 = 1 << 28;
/// 16 GT/s, sixteen lanes: what a 100 Gb/s NIC has.
const LINK: u32 = 4 | 16 << 4;

/// The configuration space of a function, as the machine reads and writes it.
#[derive(Clone, Debug)]
pub struct ConfigSpace(Vec<u8>);

impl ConfigSpace {
    /// A function after reset.
    #[must_use]
    pub fn new(identity: &Identity) -> Self {
        let mut space = Self(vec![0; 4096]);
        space.put(0x00, &identity.vendor.to_le_bytes());
        space.put(0x02, &identity.device.to_le_bytes());
        space.put(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        // The revision is the lowest byte.
        space.put(0x08, &(identity.class << 8).to_le_bytes());
        space.put(0x2c, &identity.vendor.to_le_bytes());
        space.put(0x2e, &identity.device.to_le_bytes());
        for bar in &identity.bars {
            let kind: u32 = match bar.decode {
                Decode::Low => 0,
                Decode::Wide => 0b0100,
                Decode::WidePrefetchable => 0b1100,
            };
            space.put(BARS + 4 * usize::from(bar.index), &kind.to_le_bytes());
        }
        space.put(CAPABILITIES, &low_byte(MSIX));
        space.put(MSIX, &[MSIX_ID]);
        space.put(MSIX + 1, &low_byte(EXPRESS));
        space.put(MSIX + 2, &identity.vectors.saturating_sub(1).to_le_bytes());
        let bar = u32::from(identity.msix_bar);
        space.put(MSIX + 4, &bar.to_le_bytes());
        space.put(MSIX + 8, &(bar | PENDING_BITS).to_le_bytes());
        space.put(EXPRESS, &[EXPRESS_ID]);
        space.put(EXPRESS + 2, &EXPRESS_FLAGS.to_le_bytes());
        space.put(EXPRESS + 4, &EXPRESS_DEVICE.to_le_bytes());
        space.put(EXPRESS + 12, &LINK.to_le_bytes());
        space.put(EXPRESS + 18, &LINK.to_le_bytes()[..2]);
        space
    }

    /// A load. Beyond the end, zeroes.
    pub fn load(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let from = usize::try_from(offset).ok().and_then(|at| self.0.get(at..));
        for (byte, known) in data.iter_mut().zip(from.unwrap_or_default()) {
            *byte = *known;
        }
    }

    /// A store: the command register and the interrupt line keep it. (BARs and MSI-X are kept by the
    /// machine's own side.)
    pub fn store(&mut self, offset: u64, data: &[u8]) {
        let Ok(offset) = usize::try_from(offset) else { return };
        for (index, byte) in data.iter().enumerate() {
            let at = offset.saturating_add(index);
            if [COMMAND, COMMAND + 1, INTERRUPT_LINE].contains(&at) {
                self.put(at, &[*byte]);
            }
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (known, byte) in self.0.iter_mut().skip(at).zip(bytes) {
            *known = *byte;
        }
    }
}

/// Where the pending bits are in the BAR of the MSI-X table.
const PENDING_BITS: u32 = 0x800;

fn low_byte(at: usize) -> [u8; 1] {
    [at.to_le_bytes()[0]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(&Identity {
            vendor: 0x1d0f,
            device: 0xefa1,
            class: 0x02_0000,
            bars: vec![
                Bar { index: 0, size: 0x2000, decode: Decode::Low },
                Bar { index: 2, size: 1 << 20, decode: Decode::WidePrefetchable },
            ],
            msix_bar: 1,
            vectors: 9,
        })
    }

    fn word(space: &ConfigSpace, at: u64) -> u32 {
        let mut bytes = [0; 4];
        space.load(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn capabilities_are_a_list_that_ends() {
        let space = space();
        assert_eq!(word(&space, 0), 0xefa1_1d0f);
        assert_eq!(word(&space, 8), 0x0200_0000);
        assert_eq!(word(&space, 0x18), 0b1100);
        let (mut at, mut seen) = (word(&space, 0x34) & 0xff, Vec::new());
        while at != 0 {
            let head = word(&space, u64::from(at));
            seen.push((head & 0xff, head >> 16));
            at = head >> 8 & 0xff;
        }
        assert_eq!(seen, [(0x11, 8), (0x10, 2)]);
        assert_eq!((word(&space, 0x44), word(&space, 0x48)), (1, 0x801));
    }

    #[test]
    fn only_what_is_writable_is_written() {
        let mut space = space();
        space.store(0, &[0xff; 8]);
        assert_eq!(word(&space, 0), 0xefa1_1d0f);
        assert_eq!(word(&space, 4), 0x0010_ffff);
        assert_eq!(word(&space, CONFIG_SIZE), 0);
        space.store(CONFIG_SIZE - 1, &[1; 8]);
    }
}
