//! The lines by which a machine of the lab tells the host how a case goes.

use std::fmt;

/// How a case goes; prints as one line, or as several of which the later ones belong to a report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Said {
    /// The case goes on.
    Alive,
    /// The case did what it should.
    Passed,
    /// The case could not run here, for this reason.
    Skipped(String),
    /// The case did not do what it should; with the report.
    Failed(String),
}

impl Said {
    /// Reads a line that a machine, or the broker of machines, printed; none if the line is no such word.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let text = |rest: &str| rest.replace(SEPARATOR, "\n");
        match line.split_once(": ").unwrap_or((line, "")) {
            ("alive", "") => Some(Self::Alive),
            ("passed", "") => Some(Self::Passed),
            ("skipped", why) => Some(Self::Skipped(text(why))),
            ("failed", why) => Some(Self::Failed(text(why))),
            _ => None,
        }
    }
}

/// Stands for a newline within a line.
pub(crate) const SEPARATOR: char = '\u{1e}';

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one_line = |text: &str| text.replace('\n', &SEPARATOR.to_string());
        match self {
            Self::Alive => f.write_str("alive"),
            Self::Passed => f.write_str("passed"),
            Self::Skipped(why) => write!(f, "skipped: {}", one_line(why)),
            Self::Failed(why) => write!(f, "failed: {}", one_line(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_many_lines_read_back() {
        let report = "`rping` ended with status 1\nstderr:\n  failed: no route".to_owned();
        for said in
            [Said::Alive, Said::Passed, Said::Skipped("no device".to_owned()), Said::Failed(report)]
        {
            let line = said.to_string();
            assert!(!line.contains('\n'), "{line:?}");
            assert_eq!(Said::read(&line), Some(said));
        }
        assert_eq!(Said::read("rping: failed: no route"), None);
        assert_eq!(Said::read("passed by"), None);
    }
}
