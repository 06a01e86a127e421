//! Raw requests, good, odd and wrong: the answer must be the kernel's.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use tempfile::TempDir;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::shape;
use crate::world::Place;
use crate::world::World;

const SCRIPT: &str = include_str!("../../scripts/requests.py");
/// How many refused requests are a flood.
const FLOOD: &str = "1000";
/// How many lines a flood may leave in the log: one each second for each kind, and some.
const LINES_OF_A_FLOOD: usize = 20;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("malformed_requests", |world| same(world, "malformed")),
        Case::new("unusual_requests", |world| same(world, "behaviour")),
        Case::new("refused_requests", refused),
        Case::new("flood_of_refused_requests", flood),
        Case::new("trace", trace),
    ]
}

/// The script of raw requests, in a file while this lives.
#[derive(Debug)]
pub(super) struct Script {
    _dir: TempDir,
    path: PathBuf,
}

impl Script {
    pub(super) fn new() -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
        let path = dir.path().join("requests.py");
        fs::write(&path, SCRIPT)?;
        Ok(Self { _dir: dir, path })
    }

    /// A file beside the script.
    pub(super) fn beside(&self, name: &str) -> String {
        self.path.with_file_name(name).to_string_lossy().into_owned()
    }

    /// `python3 SCRIPT ARGUMENTS`.
    pub(super) fn argv(&self, arguments: &[&str]) -> Vec<String> {
        let script = self.path.to_string_lossy();
        let words = ["python3", &script].into_iter().chain(arguments.iter().copied());
        words.map(ToOwned::to_owned).collect()
    }

    /// Runs it.
    pub(super) fn run(
        &self,
        world: &World,
        place: Place,
        arguments: &[&str],
    ) -> Result<exec::Ended> {
        let argv = self.argv(arguments);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        exec::run(world.command(place, &argv)?)
    }
}

/// What fails natively, too, and with another error on a descriptor that stands for no open file.
const OF_FILES: &[&str] = &["ioctl unknown", "ioctl of a terminal", "read of nothing"];

/// The same lines natively and inside: every one is a request and its errno.
fn same(world: &World, mode: &str) -> Result<Verdict> {
    let script = Script::new()?;
    let node = world.node_path();
    let [native, inside] =
        [Place::Native, Place::Sandbox].map(|place| script.run(world, place, &[mode, &node]));
    let (native, inside) = (native?.expect_status(0)?, inside?);
    let without = |line: &str| match OF_FILES.iter().find(|name| line.starts_with(**name)) {
        Some(name) => format!("{name} EBADF\n"),
        None => format!("{line}\n"),
    };
    let expected: String = native.stdout.lines().map(without).collect();
    let mut differences = Vec::new();
    for (left, right) in expected.lines().zip(inside.stdout.lines()) {
        if left != right {
            differences.push(format!("natively {left:?}, in the sandbox {right:?}"));
        }
    }
    if !differences.is_empty() {
        bail!("{} differ:\n{}", differences.len(), differences.join("\n"));
    }
    if let Some(difference) = shape::exact_difference(&expected, &inside.stdout) {
        bail!("{difference}: {inside}");
    }
    inside.expect_status(0)?;
    Ok(Verdict::Ok)
}

/// What the policy does not grant looks as if the kernel had it not, so that libraries fall back.
fn refused(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let inside =
        script.run(world, Place::Sandbox, &["refused", &world.node_path()])?.expect_status(0)?;
    for line in inside.stdout.lines() {
        let errno = line.rsplit(' ').next().unwrap_or_default();
        if !["EPROTONOSUPPORT", "EOPNOTSUPP"].contains(&errno) {
            bail!("{line}: neither EPROTONOSUPPORT nor EOPNOTSUPP");
        }
    }
    if inside.stdout.lines().count() == 0 {
        bail!("nothing was refused: {inside}");
    }
    Ok(Verdict::Ok)
}

fn flood(world: &World) -> Result<Verdict> {
    let script = Script::new()?;
    let inside = script
        .run(world, Place::Sandbox, &["flood", &world.node_path(), FLOOD])?
        .expect_status(0)?;
    if inside.stdout.trim() != "refused EPROTONOSUPPORT" {
        bail!("not all was refused: {inside}");
    }
    let lines = inside.stderr.lines().count();
    if lines > LINES_OF_A_FLOOD {
        bail!("{lines} lines in the log, for twice {FLOOD} refused requests");
    }
    Ok(Verdict::Ok)
}

/// `verbgate trace` shows requests by the kernel's names, and leaves stdout to the program.
fn trace(world: &World) -> Result<Verdict> {
    let argv = ["ibv_devinfo", "-d", &world.device];
    let native = exec::run(world.command(Place::Native, &argv)?)?.expect_status(0)?;
    let mut command = world.program("verbgate");
    command.args(["trace", "--device", &world.device, "--"]).args(argv);
    let traced = exec::run(command)?.expect_status(0)?;
    if let Some(difference) = shape::exact_difference(&native.stdout, &traced.stdout) {
        bail!("another stdout: {difference}");
    }
    for name in ["GET_CONTEXT", "QUERY_PORT", "QUERY_DEVICE"] {
        if !traced.stderr.lines().any(|line| line.contains(name)) {
            bail!("no line of the trace holds {name}: {traced}");
        }
    }
    Ok(Verdict::Ok)
}
