#![forbid(unsafe_code)]
//! Writes `proxy/abi/src/generated.rs` from the kernels' facts, `uverbs_methods.json`, and from what
//! a person has decided about them, `annotations.toml`.
//!
//! The output is the same for the same input, byte for byte. An attribute, method, command or field
//! without an annotation is an error that names it ([`check`]).

pub mod annotations;
mod check;
pub mod facts;
mod output;
mod output_legacy;

use annotations::Annotations;
use anyhow::bail;
pub use check::Finding;
pub use check::check;
pub use check::skeleton;
use facts::Facts;

/// The text of `generated.rs` for the texts of `uverbs_methods.json` and `annotations.toml`.
///
/// # Errors
///
/// One of the texts has not the known form, the annotations do not cover the facts, or they name a
/// field, type or object that does not exist.
pub fn generate(json: &str, annotations: &str) -> anyhow::Result<String> {
    let facts = Facts::parse(json)?;
    let annotations = Annotations::parse(annotations)?;
    let findings = check(&facts, &annotations);
    if !findings.is_empty() {
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        bail!("annotations.toml does not fit uverbs_methods.json:\n{}", lines.join("\n"));
    }
    output::write(&facts, &annotations)
}
