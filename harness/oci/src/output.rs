//! Output on standard output.

use std::io;
use std::io::Write;

use anyhow::Error;
use anyhow::anyhow;

/// Writes to standard output; that nobody reads it is no error.
pub(crate) fn print(text: &str) -> Result<u8, Error> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow!("cannot write to standard output: {e}"))
        }
        _ => Ok(0),
    }
}
