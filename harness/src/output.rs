//! The command's output: data to standard output, and messages to standard error.

use std::io::Write;

use serde::Serialize;

use verbgate_netdev::Error;

/// Data, to standard output.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::file("standard output", e))
        }
        _ => Ok(()),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::Invalid(e.to_string()))?;
    print(&(text + "\n"))
}

/// Talk, to standard error.
pub(crate) fn say(line: &str) {
    eprintln!("verbgate: {line}");
}
