//! Standard output.

use std::io::Write;

use crate::error::Error;

/// Writes to standard output; that nobody reads there is no error.
///
/// # Errors
/// The kernel's.
pub fn print(text: &str) -> Result<(), Error> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { what: "cannot write to standard output".to_owned(), error })
        }
        _ => Ok(()),
    }
}
