//! A tally of passed, failed, skipped and flaky cases.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

/// How many tests passed, failed, and were skipped. Prints as the closing line of a run, in which
/// flaky ones are not: they are listed before it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Did what they should.
    pub passed: usize,
    /// Did not.
    pub failed: usize,
    /// Could not run here, and said why.
    pub skipped: usize,
    /// Failed once and passed once: counted with neither.
    pub flaky: usize,
}

impl Tally {
    /// One that passed.
    pub const PASSED: Tally = Tally { passed: 1, ..Tally::NONE };
    /// One that failed.
    pub const FAILED: Tally = Tally { failed: 1, ..Tally::NONE };
    /// One that was skipped.
    pub const SKIPPED: Tally = Tally { skipped: 1, ..Tally::NONE };
    /// One that failed once and passed once.
    pub const FLAKY: Tally = Tally { flaky: 1, ..Tally::NONE };
    /// Nothing.
    pub const NONE: Tally = Tally { passed: 0, failed: 0, skipped: 0, flaky: 0 };

    /// How many in all.
    pub fn total(&self) -> usize {
        self.passed + self.failed + self.skipped + self.flaky
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.flaky += other.flaky;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped, flaky: _ } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Not a closing line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoTally;

impl FromStr for Tally {
    type Err = NoTally;

    fn from_str(line: &str) -> Result<Self, NoTally> {
        let mut counts = [0; 3];
        let mut parts = line.split(", ");
        for (count, word) in counts.iter_mut().zip(["passed", "failed", "skipped"]) {
            let part = parts.next().ok_or(NoTally)?;
            let number = part.strip_suffix(word).and_then(|n| n.strip_suffix(' '));
            *count = number.and_then(|n| n.parse().ok()).ok_or(NoTally)?;
        }
        let [passed, failed, skipped] = counts;
        match parts.next() {
            None => Ok(Self { passed, failed, skipped, flaky: 0 }),
            Some(_) => Err(NoTally),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closing_line_reads_back() {
        let tally = Tally { passed: 12, skipped: 3, ..Tally::NONE };
        assert_eq!(tally.to_string(), "12 passed, 0 failed, 3 skipped");
        assert_eq!(tally.to_string().parse(), Ok(tally));
        assert_eq!(tally.total(), 15);
        assert_eq!(Tally { flaky: 2, ..tally }.to_string(), tally.to_string());
        assert_eq!(Tally { flaky: 2, ..tally }.total(), 17);
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in [
            "",
            "12 passed",
            "12 passed, 0 failed, 3 skipped, 1 lost",
            "lab: 12 passed, 0 failed, 3 skipped",
            "12 passed, x failed, 3 skipped",
        ] {
            assert_eq!(line.parse::<Tally>(), Err(NoTally), "{line}");
        }
    }
}
