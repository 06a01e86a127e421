//! `cargo xtask abi generate`: writes the kernel's tables, `proxy/abi/src/generated.rs`, from the reference's
//! JSON, or checks that they are as written.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use anyhow::bail;
use verbgate_host::files;

/// Writes `out` from `json`; with `check`, only compares.
///
/// # Errors
///
/// The JSON cannot be read or has not the known form; `out` cannot be written; with `check`, `out`
/// is not what would be written.
pub(crate) fn generate(json: &Path, out: &Path, check: bool) -> anyhow::Result<()> {
    let text = fs::read_to_string(json).with_context(|| json.display().to_string())?;
    let tables = verbgate_abi_gen::generate(&text)?;
    let current = fs::read_to_string(out).unwrap_or_default();
    if current == tables {
        return Ok(());
    }
    if check {
        bail!("{} is not up to date: run `cargo xtask abi generate`", out.display());
    }
    files::replace(out, tables.as_bytes(), files::PUBLIC).with_context(|| out.display().to_string())
}
