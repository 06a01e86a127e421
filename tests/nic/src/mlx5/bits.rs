//! Fields of the device's structures, by the bit that they begin with, as the Programmer's Reference Manual
//! and `mlx5_ifc.h` count bits: the first is the highest of the first byte.

/// A field of up to 64 bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Field {
    at: usize,
    width: usize,
}

impl Field {
    /// The field that begins with this bit, and has so many.
    pub(super) const fn new(at: usize, width: usize) -> Self {
        Self { at, width }
    }

    /// The value; of what the bytes do not hold, zeros.
    pub(super) fn get(self, bytes: &[u8]) -> u64 {
        (self.at..self.at + self.width).fold(0, |value, bit| {
            let byte = bytes.get(bit / 8).copied().unwrap_or(0);
            value << 1 | u64::from(byte >> (7 - bit % 8) & 1)
        })
    }

    /// The value of a field of at most 32 bits.
    pub(super) fn word(self, bytes: &[u8]) -> u32 {
        u32::try_from(self.get(bytes)).unwrap_or(u32::MAX)
    }

    /// Whether a field of one bit is set.
    pub(super) fn is_set(self, bytes: &[u8]) -> bool {
        self.get(bytes) != 0
    }

    /// Sets the value, as far as the bytes hold the field.
    pub(super) fn set(self, bytes: &mut [u8], value: u64) {
        for (index, bit) in (self.at..self.at + self.width).enumerate() {
            let Some(byte) = bytes.get_mut(bit / 8) else { return };
            let mask = 1 << (7 - bit % 8);
            match value >> (self.width - 1 - index) & 1 {
                0 => *byte &= !mask,
                _ => *byte |= mask,
            }
        }
    }

    /// Takes the value from another structure of the same kind.
    pub(super) fn copy(self, from: &[u8], to: &mut [u8]) {
        self.set(to, self.get(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian_and_may_begin_anywhere() {
        let bytes = [0x12, 0x34, 0x56, 0x78];
        assert_eq!(Field::new(0, 16).get(&bytes), 0x1234);
        assert_eq!(Field::new(4, 8).get(&bytes), 0x23);
        assert_eq!(Field::new(28, 8).get(&bytes), 0x80);
        assert_eq!(Field::new(64, 8).get(&bytes), 0);
    }

    #[test]
    fn setting_leaves_the_rest() {
        let mut bytes = [0xff; 4];
        Field::new(5, 6).set(&mut bytes, 0);
        assert_eq!(bytes, [0xf8, 0x1f, 0xff, 0xff]);
        Field::new(5, 6).set(&mut bytes, 0b10_0001);
        assert_eq!(Field::new(5, 6).word(&bytes), 0b10_0001);
        Field::new(40, 8).set(&mut bytes, 1);
    }
}
