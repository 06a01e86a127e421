//! Pseudo-random numbers for all tests, the same for the same seed on every machine.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::Rng as _;
use rand_xoshiro::rand_core::SeedableRng as _;

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The sequence of a seed; any will do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// The next number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % (end as u64).max(1)) as usize
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}
