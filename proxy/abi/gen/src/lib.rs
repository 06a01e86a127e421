#![forbid(unsafe_code)]
//! Writes `proxy/abi/src/generated.rs` from `proxy/abi/data/uverbs_methods.json`.
//!
//! The JSON was extracted by compiling the kernel's own `DECLARE_UVERBS_*` tables; what it says
//! only in prose (when a handle is looked up, which payloads carry descriptors) is annotated in
//! `annotate`, with the reason. The output is the same for the same input, byte for byte.

mod annotate;
mod input;
mod output;
mod output_legacy;

use anyhow::Context as _;

/// The text of `generated.rs` for the text of `uverbs_methods.json`.
///
/// # Errors
///
/// When the JSON has not the known form, or names a field, type or object that does not exist.
pub fn generate(json: &str) -> anyhow::Result<String> {
    let tables: input::Tables = serde_json::from_str(json).context("uverbs_methods.json")?;
    output::write(&tables)
}
