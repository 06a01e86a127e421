//! What is wrong with files of the configuration, for the commands that check them.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use verbgate_proxy::policy::PolicyError;

/// What is wrong with a file of the configuration.
#[derive(Debug, Serialize)]
pub(crate) struct Slip {
    pub(crate) file: PathBuf,
    /// Line, from 1; none of a file that cannot be read.
    pub(crate) line: Option<usize>,
    pub(crate) slip: String,
}

impl fmt::Display for Slip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map_or_else(String::new, |line| format!(":{line}"));
        write!(f, "{}{line}: {}", self.file.display(), self.slip)
    }
}

impl From<PolicyError> for Slip {
    fn from(error: PolicyError) -> Self {
        let of = |file: PathBuf, slip: String| Self { file, line: None, slip };
        match error {
            PolicyError::Slip { place, slip } => {
                Self { line: Some(place.line), ..of(place.file.unwrap_or_default(), slip) }
            }
            PolicyError::Unreadable { path, source } => of(path, source.to_string()),
            PolicyError::Writable { path, owner, mode } => of(
                path,
                format!(
                    "belongs to user {owner} and has mode {mode:04o}; run chown root and chmod go-w on it"
                ),
            ),
            other => of(PathBuf::new(), other.to_string()),
        }
    }
}
