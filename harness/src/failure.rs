//! How a command fails: an exit code and one line.

use std::fmt;

use verbgate_sys::sandbox;

/// An error on its way to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the process exits with.
    pub(crate) code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// A failure of a command that has exit codes of its own.
    pub(crate) fn new(code: u8, error: anyhow::Error) -> Self {
        Self { code, error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Thiserror's texts hold their sources already.
        write!(f, "{}", self.error)
    }
}

/// Verbgate's own failures; 125 as container engines exit, whatever the command.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let code = error.downcast_ref().map_or(sandbox::EXIT_OURS, sandbox::Error::exit_code);
        Self { code, error }
    }
}
