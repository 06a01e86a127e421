//! The tests that need no device: form, lints, tables, and the tests of every crate.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use anyhow::Result;
use serde::Deserialize;
use verbgate_lab::ENGINE_SUITES;
use verbgate_lab::Engines;
use verbgate_lab::Progress;
use verbgate_lab::require_programs;

use crate::abi;
use crate::api;
use crate::guestbin;
use crate::house;
use crate::image;
use crate::outcome::Outcome;
use crate::stream;
use crate::stream::cargo;
use crate::stream::lines;

/// A step: what it is called, and what does it.
pub(crate) type Step = (&'static str, fn() -> Result<Outcome>);

/// Checks that run nothing of ours.
pub(crate) const CHECKS: &[Step] = &[
    ("formatting", formatting),
    ("generated ABI tables", tables),
    ("lints", lints),
    ("public API", public_api),
];

/// Checks of the whole house, which take longer, and run nothing of ours either.
pub(crate) const HOUSE: &[Step] = &[
    ("dependencies", house::dependencies),
    ("documentation without warnings", house::documentation),
    ("the oldest compiler", house::oldest_compiler),
];

/// A check that building the lab's programs for arm64 makes, too.
pub(crate) const ARM64: &[Step] = &[("compiling for aarch64", house::other_processor)];

/// What runs code of ours and measures no time.
pub(crate) const EXAMPLES: &[Step] =
    &[("a sandbox on this machine", sandbox), ("examples in the documentation", examples)];

pub(crate) fn show(line: &str) {
    println!("    {line}");
}

/// Whether cargo has this command: a minimal toolchain lacks some.
pub(crate) fn has(subcommand: &str) -> bool {
    stream::answer(cargo().args([subcommand, "--version"])).is_some()
}

fn formatting() -> Result<Outcome> {
    if !has("fmt") {
        return Ok(Outcome::skipped("needs rustfmt: rustup component add rustfmt"));
    }
    let mut command = cargo();
    command.args(["fmt", "--all", "--", "--check", "--files-with-diff"]);
    Ok(Outcome::of(lines(command, show)?))
}

fn tables() -> Result<Outcome> {
    let done = abi::generate(true);
    if let Err(error) = &done {
        show(&format!("{error:#}"));
    }
    Ok(Outcome::of(done.is_ok()))
}

fn public_api() -> Result<Outcome> {
    let current = api::lists(true, show);
    if let Err(error) = &current {
        show(&format!("{error:#}"));
    }
    Ok(Outcome::of(current.unwrap_or(false)))
}

fn lints() -> Result<Outcome> {
    if !has("clippy") {
        return Ok(Outcome::skipped("needs clippy: rustup component add clippy"));
    }
    let mut command = cargo();
    command.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
    command.args(["--", "-D", "warnings"]);
    Ok(Outcome::of(lines(command, show)?))
}

/// Without it most tests of the crates fail, and none says as plainly why.
fn sandbox() -> Result<Outcome> {
    let built = guestbin::of_tests()?;
    let verbgate = || built.get("verbgate").map(Command::new).context("cargo built no verbgate");
    let mut command = verbgate()?;
    command.args(["run", "--device", "uverbs9=/dev/null", "--", "cat", "/proc/self/status"]);
    let mut status = Vec::new();
    let started = lines(command, |line| status.push(line.to_owned()))?;
    if !started {
        status.iter().for_each(|line| show(line));
        let mut features = verbgate()?;
        features.arg("features");
        lines(features, show)?;
    }
    Ok(Outcome::of(started))
}

/// Programs that tests run, and the packages they come from.
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    // The declarations of ours are compared with it.
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
    ("crun", "crun"),
    ("runc", "runc"),
    ("strace", "strace"),
    ("mandoc", "mandoc"),
    ("shellcheck", "shellcheck"),
    ("zsh", "zsh"),
    ("systemd-analyze", "systemd"),
    // By which Kubernetes' files are read.
    ("/usr/lib/python3/dist-packages/yaml/__init__.py", "python3-yaml"),
    ("lstopo-no-graphics", "hwloc-nox"),
    ("ibv_devices", "ibverbs-utils"),
    // By which the package says what it depends on.
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("rpmbuild", "rpm"),
    // By which a chart is rendered.
    ("go", "golang-go"),
    // Which looks at the pages of `fabric`.
    ("chromium-headless-shell", "chromium-headless-shell"),
    // Two launchers of ranks.
    ("mpirun.openmpi", "openmpi-bin"),
    ("mpiexec.hydra", "mpich"),
    ("checkmodule", "checkpolicy"),
    ("semodule_package", "semodule-utils"),
    // By which libibverbs knows ConnectX devices.
    ("/etc/libibverbs.d/mlx5.driver", "ibverbs-providers"),
];

/// Fetches what tests of this machine run: packages, container engines, the base of the chart's image.
pub(crate) fn prepare() -> Outcome {
    let progress = Progress::stderr();
    // The tests that need one of these say so and skip themselves.
    let mut skipped = Vec::new();
    let mut note = |done: Result<()>| skipped.extend(done.err().map(|error| format!("{error:#}")));
    note(require_programs(PROGRAMS, &progress));
    for suite in ENGINE_SUITES {
        note(Engines::of(suite, &progress).map(drop));
    }
    note(image::prepare());
    Outcome { skipped, ..Outcome::default() }
}

fn examples() -> Result<Outcome> {
    let mut command = cargo();
    command.args(["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    Ok(Outcome::of(lines(command, show)?))
}

#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
}

/// Where cargo builds, whatever says so.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let text = stream::answer(&mut command).context("`cargo metadata` failed")?;
    Ok(serde_json::from_str::<Metadata>(&text)?.target_directory)
}
