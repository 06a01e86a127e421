//! The lines that a run of cases prints: a line for each event, for people and for the host. The
//! host counts by these lines what has passed, even if the run does not come to its end.

use std::fmt;

use crate::tally::Tally;

/// What the lines that are no case's begin with, so that the closing one is not taken for the whole
/// test's own.
const RUN: &str = "lab: ";
/// What the name of a case holds that attacks: one that fails now and then has failed.
const HOSTILE: &str = "hostile";

/// One line; of a case that failed, the first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Line {
    /// So many cases will be run.
    Chosen(usize),
    /// A case begins.
    Begun(String),
    /// A case has ended.
    Ended(String, End),
    /// All cases have ended.
    Closing(Tally),
}

/// How a case ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// It did what it should.
    Passed,
    /// It did not.
    Failed,
    /// It failed, and passed when it was run again.
    Flaky,
    /// It could not run here.
    Skipped,
}

/// How lines begin that tell of a case's end.
const ENDS: &[(&str, End)] = &[
    ("ok", End::Passed),
    ("FAILED", End::Failed),
    ("flaky", End::Flaky),
    ("skipped", End::Skipped),
];

/// Whether a case is an attack.
#[must_use]
pub fn is_hostile(name: &str) -> bool {
    name.contains(HOSTILE)
}

impl End {
    /// What counts. A boundary that holds when it is tried again does not hold.
    #[must_use]
    pub fn tally(self, name: &str) -> Tally {
        match self {
            Self::Passed => Tally::PASSED,
            Self::Flaky if is_hostile(name) => Tally::FAILED,
            Self::Flaky => Tally::FLAKY,
            Self::Failed => Tally::FAILED,
            Self::Skipped => Tally::SKIPPED,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = ENDS.iter().find(|(_, end)| end == self).map(|(word, _)| *word);
        f.write_str(word.unwrap_or("?"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen(count) => write!(f, "{RUN}{count} cases"),
            Self::Begun(name) => write!(f, "{RUN}begin {name}"),
            Self::Ended(name, end) => write!(f, "{end} {name}"),
            Self::Closing(tally) => write!(f, "{RUN}{tally}"),
        }
    }
}

impl Line {
    /// Reads one; others are none.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(RUN) {
            return match rest.split_once(' ') {
                Some((count, "cases")) => count.parse().ok().map(Self::Chosen),
                Some(("begin", name)) => Some(Self::Begun(name.to_owned())),
                _ => rest.parse().ok().map(Self::Closing),
            };
        }
        let (word, rest) = text.split_once(' ')?;
        let (_, end) = ENDS.iter().find(|(known, _)| *known == word)?;
        let name = rest.split([' ', ':']).next()?;
        Some(Self::Ended(name.to_owned(), *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_reads_back() {
        let named = |end| Line::Ended("a_case".to_owned(), end);
        let ends = ENDS.iter().map(|(_, end)| named(*end));
        let tally = Tally { passed: 2, failed: 1, skipped: 0, flaky: 0 };
        let run = [Line::Chosen(3), Line::Begun("a_case".to_owned()), Line::Closing(tally)];
        for line in ends.chain(run) {
            assert_eq!(Line::read(&line.to_string()), Some(line.clone()), "{line}");
        }
    }

    #[test]
    fn what_follows_the_name_is_for_people() {
        let failed = Some(Line::Ended("a_case".to_owned(), End::Failed));
        assert_eq!(Line::read("FAILED a_case: `true` ended [1.0 s]"), failed);
        assert_eq!(Line::read("FAILED a_case"), failed);
        for other in ["    FAILED a_case: quoted", "again a_case", "", "3 passed", "lab: begun"] {
            assert_eq!(Line::read(other), None, "{other}");
        }
    }

    #[test]
    fn a_flaky_attack_has_failed() {
        assert_eq!(End::Flaky.tally("hostile_reuse"), Tally::FAILED);
        assert_eq!(End::Flaky.tally("ping_pong"), Tally::FLAKY);
        assert_eq!(End::Passed.tally("hostile_reuse"), Tally::PASSED);
    }
}
