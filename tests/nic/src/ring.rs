//! Rings in guest memory that a device fills, with a phase in each entry.

use crate::Bus;
use crate::bus::Abort;

/// Where an entry of a ring is, and the phase that marks it as written in this round.
pub(crate) fn place(base: u64, produced: u32, depth: u32, entry: usize) -> (u64, u8) {
    let index = produced.checked_rem(depth).unwrap_or(0);
    let round = produced.checked_div(depth).unwrap_or(0);
    let offset = u64::from(index) * entry as u64;
    (base.wrapping_add(offset), u8::from(round & 1 == 0))
}

/// Writes an entry whose first word, which has the phase, comes last.
pub(crate) fn publish(bus: &Bus, to: u64, entry: &[u8]) -> Result<(), Abort> {
    let Some((head, rest)) = entry.split_first_chunk::<4>() else { return Ok(()) };
    bus.write(to.wrapping_add(4), rest)?;
    bus.publish(to, u32::from_le_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_change_with_the_rounds() {
        assert_eq!(place(0x1000, 0, 4, 16), (0x1000, 1));
        assert_eq!(place(0x1000, 3, 4, 16), (0x1030, 1));
        assert_eq!(place(0x1000, 4, 4, 16), (0x1000, 0));
        assert_eq!(place(0x1000, 8, 4, 16), (0x1000, 1));
    }
}
