//! The failure of a command: an exit code and one line.

use std::fmt;

use verbgate_sys::sandbox;

/// An error on its way to the user.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code of the process.
    pub(crate) code: u8,
    error: anyhow::Error,
}

/// Exit code of commands that run no program, and whose own result is the point.
const EXIT_TOOL: u8 = 1;

impl Failure {
    /// The failure of such a command.
    pub(crate) fn of_tool(error: anyhow::Error) -> Self {
        Self::new(EXIT_TOOL, error)
    }

    /// A failure of a command that has exit codes of its own.
    pub(crate) fn new(code: u8, error: anyhow::Error) -> Self {
        Self { code, error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With all causes. An error's text holds its cause or has it as its source, never both:
        // tests/house/errors.rs reads every definition.
        write!(f, "{:#}", self.error)
    }
}

/// Verbgate's own failures; 125 as container engines exit, but for the commands that run nothing
/// and are used in scripts: those of NICs and clusters.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let of_netdev = || error.downcast_ref().map(verbgate_netdev::Error::exit_code);
        let of_host = || error.is::<verbgate_host::Error>().then_some(EXIT_TOOL);
        let code = error.downcast_ref().map(verbgate_sandbox::Error::exit_code);
        let of_spawn = || error.downcast_ref().map(sandbox::Error::exit_code);
        let code = code.or_else(of_spawn).or_else(of_netdev).or_else(of_host);
        let code = code.unwrap_or(sandbox::EXIT_OURS);
        Self { code, error }
    }
}
