//! Refusals: one clear line that says the fault and the remedy, and status 125.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::exec::Ended;
use crate::shape;
use crate::world::Place;
use crate::world::World;

/// Failures of `verbgate run` itself.
const OURS: i32 = 125;
/// The user called nobody, who is root of nothing.
const NOBODY: &str = "65534";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("unknown_device", unknown_device),
        Case::new("node_without_permission", no_permission),
        Case::new("sandbox_of_an_ordinary_user", ordinary_user),
        Case::new("supervisor_under_a_tracer", traced_from_outside),
        Case::new("guest_under_a_debugger", traced_inside),
    ]
}

/// One line of Verbgate's own, that holds all the words.
fn one_line(ended: Ended, words: &[&str]) -> Result<Verdict> {
    let ended = ended.expect_status(OURS)?;
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let [line] = lines.as_slice() else {
        bail!("{} lines instead of one: {ended}", lines.len());
    };
    for word in words {
        if !line.contains(word) {
            bail!("the line does not say {word:?}: {line}");
        }
    }
    Ok(Verdict::Ok)
}

fn unknown_device(world: &World) -> Result<Verdict> {
    let mut command = world.program("verbgate");
    command.args(["run", "--device", "no-such0", "--", "true"]);
    // It lists those there are.
    one_line(exec::run(command)?, &["no-such0", &world.device])
}

/// The same command by somebody who is not root.
fn as_nobody(command: &Command) -> Command {
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]);
    nobody.arg(command.get_program()).args(command.get_args());
    nobody
}

/// A mode that is put back.
#[derive(Debug)]
struct ModeOf(String, u32);

impl ModeOf {
    fn set(path: String, mode: u32) -> Result<Self> {
        let before = fs::metadata(&path)?.permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(Self(path, before))
    }
}

impl Drop for ModeOf {
    fn drop(&mut self) {
        let _ = fs::set_permissions(&self.0, fs::Permissions::from_mode(self.1));
    }
}

fn no_permission(world: &World) -> Result<Verdict> {
    let _mode = ModeOf::set(world.node_path(), 0o600)?;
    let command = as_nobody(&world.sandbox(&[], &["true"]));
    one_line(exec::run(command)?, &[&world.node_path(), "permission"])
}

/// No privilege is needed beyond that of the node.
fn ordinary_user(world: &World) -> Result<Verdict> {
    let _mode = ModeOf::set(world.node_path(), 0o666)?;
    let argv = ["ibv_devinfo", "-v", "-d", &world.device];
    let native = exec::run(as_nobody(&world.command(Place::Native, &argv)?))?.expect_status(0)?;
    let inside = exec::run(as_nobody(&world.sandbox(&[], &argv)))?.expect_status(0)?;
    if let Some(difference) = shape::exact_difference(&native.stdout, &inside.stdout) {
        bail!("{difference}");
    }
    Ok(Verdict::Ok)
}

fn strace() -> bool {
    let mut command = Command::new("strace");
    command.arg("-V");
    exec::run(command).is_ok()
}

/// Tracers are told to trace the program inside.
fn traced_from_outside(world: &World) -> Result<Verdict> {
    if !strace() {
        return Ok(Verdict::Skipped("needs strace".to_owned()));
    }
    let verbgate = world.sandbox(&[], &["true"]);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]);
    command.arg(verbgate.get_program()).args(verbgate.get_args());
    one_line(exec::run(command)?, &["traces", "verbgate trace"])
}

/// A process that is traced can be given no descriptor of a device: it fails after the five seconds in
/// which libibverbs tries again, and lines say why.
fn traced_inside(world: &World) -> Result<Verdict> {
    if !strace() {
        return Ok(Verdict::Skipped("needs strace".to_owned()));
    }
    let argv = ["strace", "-f", "-qq", "-o", "/dev/null", "ibv_devinfo", "-d", &world.device];
    let inside = exec::run(world.command(Place::Sandbox, &argv)?)?;
    if inside.status == 0 {
        bail!("it went well, which is better than known: {inside}");
    }
    let told = inside.stderr.lines().filter(|l| l.contains("verbgate") && l.contains("trace"));
    if told.count() == 0 {
        bail!("no line says that a tracer is in the way: {inside}");
    }
    Ok(Verdict::Ok)
}
