//! Two facts of a PCI function's configuration space; PCI Express Base 7.5.3.4 and 7.7.11.

use std::fs;
use std::path::Path;

/// Where the list of capabilities begins, and the bit of the status that says that there is one.
const STATUS: usize = 0x06;
const HAS_LIST: u8 = 0x10;
const LIST: usize = 0x34;
/// Where the list of extended capabilities begins.
const EXTENDED: usize = 0x100;
/// As many as fit in the space.
const MOST: usize = 1024;
const PCI_EXPRESS: u8 = 0x10;
/// Device Control, from the capability on, and the bit of relaxed ordering.
const DEVICE_CONTROL: usize = 8;
const RELAXED: u8 = 0x10;
const ACS: u16 = 0x000d;
/// ACS Control, from the capability on; P2P request and completion redirect.
const ACS_CONTROL: usize = 6;
const REDIRECT: u8 = 0x0c;

/// The configuration space, as far as this process may read it: 64 bytes without CAP_SYS_ADMIN.
pub(crate) struct Config(Vec<u8>);

impl Config {
    pub(crate) fn read(function: &Path) -> Option<Self> {
        fs::read(function.join("config")).ok().map(Self)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte(at)?, self.byte(at + 1)?]))
    }

    /// Whether the function may set the attribute of relaxed ordering; none where that cannot be read.
    pub(crate) fn relaxed_ordering(&self) -> Option<bool> {
        if self.byte(STATUS)? & HAS_LIST == 0 {
            return None;
        }
        let mut at = usize::from(self.byte(LIST)? & 0xfc);
        for _ in 0..MOST {
            if at < 0x40 {
                return None;
            }
            if self.byte(at)? == PCI_EXPRESS {
                return Some(self.byte(at + DEVICE_CONTROL)? & RELAXED != 0);
            }
            at = usize::from(self.byte(at + 1)? & 0xfc);
        }
        None
    }

    /// Whether a bridge sends what one device below it writes to another up to the root complex.
    pub(crate) fn redirects(&self) -> bool {
        let mut at = EXTENDED;
        for _ in 0..MOST {
            let (Some(id), Some(next)) = (self.word(at), self.word(at + 2)) else { return false };
            if id == ACS {
                return self.byte(at + ACS_CONTROL).is_some_and(|bits| bits & REDIRECT != 0);
            }
            at = usize::from(next >> 4 & 0xffc);
            if at < EXTENDED {
                return false;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(set: &[(usize, &[u8])]) -> Config {
        let mut bytes = vec![0; 4096];
        for (at, value) in set {
            bytes[*at..at + value.len()].copy_from_slice(value);
        }
        Config(bytes)
    }

    #[test]
    fn relaxed_ordering_is_found_behind_other_capabilities() {
        let with = |control: u8| {
            space(&[
                (6, &[0x10]),
                (0x34, &[0x40]),
                (0x40, &[0x01, 0x60]),
                (0x60, &[0x10, 0]),
                (0x68, &[control]),
            ])
        };
        assert_eq!(with(0x10).relaxed_ordering(), Some(true));
        assert_eq!(with(0x2f).relaxed_ordering(), Some(false));
        assert_eq!(space(&[]).relaxed_ordering(), None);
        // What an ordinary user may read of it.
        assert_eq!(Config(with(0x10).0[..64].to_vec()).relaxed_ordering(), None);
        // A list that never ends.
        assert_eq!(
            space(&[(6, &[0x10]), (0x34, &[0x40]), (0x40, &[1, 0x40])]).relaxed_ordering(),
            None
        );
    }

    #[test]
    fn acs_redirects_only_with_its_bits() {
        let with = |control: u8| {
            space(&[(0x100, &[1, 0, 1, 0x20]), (0x200, &[0x0d, 0, 1, 0]), (0x206, &[control])])
        };
        assert!(with(0x04).redirects() && with(0x1d).redirects());
        assert!(!with(0x11).redirects() && !space(&[]).redirects());
        assert!(!Config(vec![0xff; 4096]).redirects());
    }
}
