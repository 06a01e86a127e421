//! `cargo xtask api`: writes the public API of each library as a text that is checked in, so that a
//! review sees each change.
//!
//! rustdoc gives it as JSON, which is not stable yet: hence the switch below, for rustdoc alone, so
//! that what `cargo check` has built is used. A new toolchain may need another version of the crate
//! `public-api`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_host::files;

use crate::host;
use crate::stream;
use crate::stream::cargo;

/// The libraries that programs of others build upon.
const CRATES: &[&str] = &["verbgate-sandbox"];
/// Where the texts are.
const LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/public-api");
/// Where this program finds rustdoc when cargo calls this program in its place.
const RUSTDOC: &str = "VERBGATE_RUSTDOC";
/// Lines that differ, of which so many are shown.
const SHOWN: usize = 20;

/// Is rustdoc, with its unstable options, if cargo has called it in place of rustdoc.
pub(crate) fn as_rustdoc() -> Option<ExitCode> {
    let rustdoc = std::env::var_os(RUSTDOC)?;
    let mut command = Command::new(rustdoc);
    let error = command.args(std::env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").exec();
    eprintln!("error: cannot start {:?}: {error}", command.get_program());
    Some(ExitCode::FAILURE)
}

/// rustdoc of the toolchain that runs this.
fn rustdoc() -> Result<OsString> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.current_dir(stream::workspace()).args(["--print", "sysroot"]);
    let sysroot = stream::answer(&mut command).context("`rustc --print sysroot` failed")?;
    Ok(Path::new(&sysroot).join("bin/rustdoc").into())
}

/// Writes the lists, or only checks them; tells what is not as it should be.
pub(crate) fn lists(check: bool, show: fn(&str)) -> Result<bool> {
    let mut command = cargo();
    command.args(["doc", "--quiet", "--no-deps", "--lib"]);
    for name in CRATES {
        command.args(["-p", name]);
    }
    command.env("RUSTDOC", std::env::current_exe()?).env(RUSTDOC, rustdoc()?);
    command.env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json --cap-lints=allow");
    if !stream::lines(command, show)? {
        bail!("rustdoc failed");
    }
    let docs = host::target_directory()?.join("doc");
    let mut current = true;
    for name in CRATES {
        let list = list(&docs.join(format!("{}.json", name.replace('-', "_"))))?;
        let path = Path::new(LISTS).join(format!("{name}.txt"));
        let known = fs::read_to_string(&path).unwrap_or_default();
        if known == list {
            continue;
        }
        if check {
            current = false;
            difference(&known, &list).iter().take(SHOWN).for_each(|line| show(line));
            show(&format!("{} is not current: run `cargo xtask api`", path.display()));
        } else {
            let written = files::replace(&path, list.as_bytes(), files::PUBLIC);
            written.with_context(|| path.display().to_string())?;
        }
    }
    Ok(current)
}

/// A line for each item, in one order.
fn list(json: &Path) -> Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(|| json.display().to_string())?;
    let mut lines: Vec<String> = api.items().map(ToString::to_string).collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(lines.iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    }))
}

/// The lines that only one has.
fn difference(before: &str, after: &str) -> Vec<String> {
    let only = |sign: char, one: &str, other: &str| -> Vec<String> {
        let others: std::collections::BTreeSet<&str> = other.lines().collect();
        let own = one.lines().filter(|line| !others.contains(line));
        own.map(|line| format!("{sign} {line}")).collect()
    };
    [only('-', before, after), only('+', after, before)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_what_went_is_shown() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
        assert!(difference("a\nb\n", "a\nb\n").is_empty());
    }

    /// A library that is added has its list.
    #[test]
    fn every_library_has_a_list_and_nothing_else_has() {
        let mut found: Vec<String> = fs::read_dir(LISTS)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort_unstable();
        let wanted: Vec<String> = CRATES.iter().map(|name| format!("{name}.txt")).collect();
        assert_eq!(found, wanted);
    }
}
