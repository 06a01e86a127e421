//! JSON on standard output, for all commands.

use serde::Serialize;
use verbgate_host::output;
use verbgate_netdev::Error;

/// Prints a value as JSON that people can read, too.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::Invalid(e.to_string()))?;
    Ok(output::print(&(text + "\n"))?)
}
