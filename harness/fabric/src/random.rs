//! Random numbers: new ones from the kernel, and repeatable ones that both ends can make.

use std::fs::File;
use std::io;
use std::io::Read;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng as _;
use rand_xoshiro::rand_core::SeedableRng as _;

/// A number that nobody has had before (random(4)).
pub(crate) fn unique() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The payload of a message: all ends can make it, so all can compare it.
pub(crate) fn payload(rank: u32, sequence: u64, length: usize) -> Vec<u8> {
    // SplitMix64 takes any seed, and its sequences are the same everywhere.
    let mut words = SplitMix64::seed_from_u64(u64::from(rank) << 40 ^ sequence);
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    while bytes.len() < length {
        bytes.extend_from_slice(&words.next_u64().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo): tells apart what differs by accident, and is the same
/// everywhere.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_make_the_same_payload_and_others_differ() {
        assert_eq!(payload(1, 2, 13), payload(1, 2, 13));
        assert_eq!(payload(1, 2, 13), payload(1, 2, 64)[..13]);
        assert_ne!(payload(1, 2, 13), payload(2, 2, 13));
        assert_ne!(payload(1, 2, 13), payload(1, 3, 13));
        // The generator's published first output for seed 0, and FNV's for "a".
        assert_eq!(SplitMix64::seed_from_u64(0).next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(unique().unwrap(), unique().unwrap());
    }
}
