#![forbid(unsafe_code)]
//! Reads the uverbs ABI out of a kernel's source: what `uverbs_methods.json` says.
//!
//! Names and structure come from the text of the kernel's declarations (`DECLARE_UVERBS_*`,
//! `UVERBS_ATTR_*`, the table of write(2)'s commands); every number comes from a C compiler, which
//! is given the declarations with the kernel's own macros and the kernel's own headers. A macro that
//! is not known here is an error, never a gap in the tables.
//!
//! ```no_run
//! use std::path::Path;
//!
//! let old = verbgate_abi_extract::extract(Path::new("linux-6.12"))?;
//! let new = verbgate_abi_extract::extract(Path::new("linux-7.2"))?;
//! let annotations = std::fs::read_to_string("proxy/abi/data/annotations.toml")?;
//! let annotations = verbgate_abi_gen::annotations::Annotations::parse(&annotations)?;
//! for line in verbgate_abi_extract::diff::diff(&old, &new, &annotations) {
//!     println!("{line}");
//! }
//! let union = verbgate_abi_extract::merge(vec![old, new])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compile;
mod declare;
pub mod diff;
mod error;
mod extract;
mod layout;
mod legacy;
mod merge;
mod program;
mod text;
mod tree;

pub use error::Error;
pub use extract::extract;
pub use merge::merge;

use verbgate_abi_gen::facts::Facts;

/// The facts as the text of `uverbs_methods.json`.
///
/// # Errors
///
/// A value has no JSON form.
pub fn to_json(facts: &Facts) -> Result<String, Error> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    serde::Serialize::serialize(facts, &mut serializer).map_err(Error::Json)?;
    text.push(b'\n');
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One of a program's values that must be small.
pub(crate) fn small<T: TryFrom<u64>>(values: &[u64], at: usize) -> Result<T, Error> {
    let value = values.get(at).copied().ok_or(Error::Numbers { wanted: at, got: values.len() })?;
    T::try_from(value).map_err(|_| Error::TooLarge { value })
}
