//! Binaries for the lab's guests: linked statically, because a guest's libc may be older than this
//! machine's, except for the program that must load the guest's own libraries.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use serde::Deserialize;
use verbgate_lab::Arch;
use verbgate_lab::Progress;

use crate::house;
use crate::stream;
use crate::stream::cargo;

/// Naming the target keeps the flags away from build scripts and procedural macros, which cannot
/// be static.
const fn target(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "x86_64-unknown-linux-gnu",
        Arch::Arm64 => "aarch64-unknown-linux-gnu",
    }
}

/// The linker for arm64, and the packages of it and of the C library to link with.
const CROSS: &[(&str, &str)] = &[
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/lib/libc.a", "libc6-dev-arm64-cross"),
];

/// What cargo says of one thing that it built; most fields are of no interest.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    #[serde(default)]
    profile: Built,
}

#[derive(Debug, Default, Deserialize)]
struct Built {
    test: bool,
}

/// How long the compiler may take for how good a program (`[profile.*]` in Cargo.toml).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Profile {
    /// As users install it.
    Release,
    /// Soon: without optimization across crates, and with little within them.
    Quick,
    /// As soon as can be, like tests: what runs a few short cases.
    Dev,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Quick => "quick",
            Self::Dev => "dev",
        }
    }
}

/// Builds the tests of all crates and the programs that they run; gives each program by its name. The lab runs the
/// same programs: with checks for overflows and debug assertions, and linked as the fabric commands need it, which
/// load the guest's libibverbs.
pub(crate) fn of_tests() -> Result<BTreeMap<String, PathBuf>> {
    let mut command = cargo();
    // nextest builds the same: another set of features would build and link everything anew.
    command.args(["test", "--no-run", "--workspace"]);
    executables_of(command, "the tests", "")
}

/// Builds the executables of workspace packages, linked statically; gives each by its name.
pub(crate) fn build(
    arch: Arch,
    profile: Profile,
    packages: &[&str],
) -> Result<BTreeMap<String, PathBuf>> {
    let target = target(arch);
    let mut command = cargo();
    command
        .args(["build", "--profile", profile.name(), "--target", target])
        .arg("--config")
        .arg(format!(r#"target.{target}.rustflags=["-C","target-feature=+crt-static"]"#));
    if arch == Arch::Arm64 {
        cross()?;
        command.arg("--config").arg(Path::new(stream::workspace()).join("tests/xtask/arm64.toml"));
    }
    for package in packages {
        command.args(["-p", package]);
    }
    let remedy = format!(" (is the target there? `rustup target add {target}`)");
    executables_of(command, &packages.join(", "), &remedy)
}

/// Fetches what programs for arm64 are built with.
pub(crate) fn cross() -> Result<()> {
    verbgate_lab::require_programs(CROSS, &Progress::stderr())?;
    match house::target(target(Arch::Arm64)) {
        Some(missing) => bail!(missing.skipped.join("; ")),
        None => Ok(()),
    }
}

/// Has cargo build, and gives each executable by its name.
fn executables_of(
    mut command: Command,
    what: &str,
    remedy: &str,
) -> Result<BTreeMap<String, PathBuf>> {
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = command.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cannot build {what}: cargo says why above{remedy}");
    }
    Ok(executables(&String::from_utf8_lossy(&output.stdout)))
}

fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.reason == "compiler-artifact")
        // A program with its own unit tests in it has the program's name, too.
        .filter(|message| !message.profile.test);
    built
        .filter_map(|message| {
            let path = message.executable?;
            Some((path.file_name()?.to_str()?.to_owned(), path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executables_are_taken() {
        let messages = r#"{"reason":"compiler-artifact","executable":null}
{"reason":"compiler-artifact","executable":"/t/release/verbgate","fresh":true}
{"reason":"build-finished","success":true}"#;
        let built = executables(messages);
        assert_eq!(built.len(), 1);
        assert_eq!(built["verbgate"], PathBuf::from("/t/release/verbgate"));
    }
}
