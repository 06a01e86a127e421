//! Output of all commands: data to standard output, and messages to standard error.

use std::io;
use std::io::Write;

use crate::Error;

/// Writes data to standard output. A reader that has gone away is no error.
///
/// # Errors
/// [`Error::Unwritten`], with the kernel's.
pub fn print(text: &str) -> Result<(), Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Error::Unwritten(e)),
        _ => Ok(()),
    }
}

/// Writes a line of talk to standard error.
pub fn say(line: &str) {
    // Nobody is left to be told of a standard error that takes nothing.
    let _ = writeln!(io::stderr(), "verbgate: {line}");
}
