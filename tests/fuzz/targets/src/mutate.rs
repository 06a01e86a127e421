//! A small mutator, for machines without a fuzzer.

use verbgate_hostile::Random;

use crate::MAX_LEN;

/// Values at the borders of rules.
const INTERESTING: [u64; 20] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    16,
    0x20,
    0xff,
    0x1000,
    0x1001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x6ae0_0000_0000,
    1 << 48,
    u64::MAX,
];

/// Changes `bytes` in a few places; takes parts from `other`.
pub fn mutate(rng: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=rng.below(4) {
        once(rng, bytes, other);
    }
    bytes.truncate(MAX_LEN);
}

fn once(rng: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        bytes.push(0);
    }
    let at = rng.below(bytes.len());
    // Fields are aligned to their size.
    let size = [1, 2, 4, 8][rng.below(4)];
    let field = at / size * size;
    match rng.below(9) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.draw().to_ne_bytes()[0],
        2..=4 => {
            let value = INTERESTING[rng.below(INTERESTING.len())].to_le_bytes();
            for (to, from) in bytes[field..].iter_mut().zip(&value[..size]) {
                *to = *from;
            }
        }
        5 => {
            let step = [1, 0xff][rng.below(2)];
            bytes[field] = bytes[field].wrapping_add(step);
        }
        6 => {
            // A stretch the size of an attribute, again or away.
            let start = at / 8 * 8;
            let end = (start + 16).min(bytes.len());
            if rng.below(2) == 0 {
                let stretch = bytes[start..end].to_vec();
                bytes.splice(start..start, stretch);
            } else {
                bytes.drain(start..end);
            }
        }
        7 => bytes.truncate(at),
        _ => {
            if let Some(from) = other.len().checked_sub(1).map(|last| rng.below(last + 1)) {
                let from = from / 8 * 8;
                let end = (from + 8 * (1 + rng.below(6))).min(other.len());
                let start = at / 8 * 8;
                bytes.splice(start..start, other[from..end].iter().copied());
            }
        }
    }
}
