//! Structures of the kernel's, field by field.

use crate::kernel::addr;

/// Fields of a structure of the kernel's, one after the other.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Vec<u8>);

impl Fields {
    pub(crate) fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn short(self, value: u16) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn word(self, value: u32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn long(self, value: u64) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn zeros(self, count: usize) -> Self {
        self.bytes(&vec![0; count])
    }
}

/// A word of an answer, by its place.
pub(crate) fn word(bytes: &[u8], place: usize) -> u32 {
    let at = place * 4;
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// What an attribute of so many bytes says of them: up to eight are in the attribute itself.
pub(crate) fn payload(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=8 => {
            let mut inline = [0; 8];
            inline[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(inline)
        }
        _ => addr(bytes),
    }
}
