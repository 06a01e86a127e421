//! Kills and interruptions of verbgate at every step, after which nothing is lost.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;

use crate::common::stderr;
use crate::round_trip::enrich;
use crate::world::Subnets;
use crate::world::World;
use crate::world::same;
use crate::world::until;

/// See `SIGNAL_AT` of the journal.
const SIGNAL_AT: &str = "VERBGATE_TEST_SIGNAL_AT";
const SIGKILL: i32 = 9;
/// More than the steps of any move here.
const STEPS_MAX: u32 = 100;

/// Whether the command was killed at this step; false if it ended before.
fn killed_at(mut command: Command, step: u32) -> bool {
    let output = command.env(SIGNAL_AT, format!("KILL:{step}")).output().unwrap();
    let killed = output.status.signal() == Some(SIGKILL);
    assert!(killed || output.status.success(), "step {step}: {}", stderr(&output));
    killed
}

/// Does it at every step until there is no such step; tells how many there were.
fn at_every_step(mut once: impl FnMut(u32) -> bool) -> u32 {
    let steps = (1..STEPS_MAX).take_while(|step| once(*step)).last().unwrap_or(0);
    assert!(steps > 8, "only {steps} steps: is the journal written?");
    assert!(steps < STEPS_MAX - 1);
    steps
}

#[test]
fn killed_at_every_step_of_a_move() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    enrich(&world, Subnets::Same);
    let before = world.home.dump();
    let container = world.target.dump();
    at_every_step(|step| {
        let killed = killed_at(world.move_command(&[]), step);
        // Nothing to restore where it was killed before its first word.
        world.ok(&["netdev", "restore"]);
        assert!(!world.journal().exists());
        same(&before, &world.home.dump(), &format!("at home, after a move killed at {step}"));
        same(&container, &world.target.dump(), "in the container");
        killed
    });
}

#[test]
fn killed_at_every_step_of_a_restore() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    enrich(&world, Subnets::Same);
    let before = world.home.dump();
    let container = world.target.dump();
    at_every_step(|step| {
        world.move_all(&[]);
        let killed = killed_at(world.command(&["netdev", "restore"]), step);
        world.ok(&["netdev", "restore"]);
        assert!(!world.journal().exists());
        same(&before, &world.home.dump(), &format!("at home, after a restore killed at {step}"));
        same(&container, &world.target.dump(), "in the container");
        killed
    });
}

#[test]
fn a_move_first_undoes_what_was_interrupted() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    enrich(&world, Subnets::Same);
    let before = world.home.dump();
    // In the midst: one NIC is away, and one is not.
    assert!(killed_at(world.move_command(&[]), 6));
    let status = world.ok(&["netdev", "status"]);
    assert!(status.contains("not finished"), "{status}");
    let output = world.move_command(&[]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("first that is undone"), "{}", stderr(&output));
    world.restore();
    same(&before, &world.home.dump(), "after both");
}

/// A command that has stopped itself at a step.
struct Stopped(Child);

impl Stopped {
    fn at(step: u32, mut command: Command) -> Self {
        command.env(SIGNAL_AT, format!("STOP:{step}")).stderr(Stdio::piped());
        let child = Self(command.spawn().unwrap());
        let stat = format!("/proc/{}/stat", child.0.id());
        until("it to stop", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        });
        child
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn end(mut self) -> std::process::Output {
        self.signal("CONT");
        let mut child = std::mem::replace(&mut self.0, Command::new("true").spawn().unwrap());
        let stderr = child.stderr.take().unwrap();
        let told = std::io::read_to_string(stderr).unwrap();
        let status = child.wait().unwrap();
        std::process::Output { status, stdout: Vec::new(), stderr: told.into_bytes() }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_at_once_do_not_mix() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    let before = world.home.dump();
    let first = Stopped::at(6, world.move_command(&[]));
    for command in [world.move_command(&[]), world.command(&["netdev", "restore"])] {
        let mut command = command;
        let output = command.output().unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        let who = format!("another verbgate (process {})", first.0.id());
        assert!(told.contains(&who), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let output = first.end();
    assert!(output.status.success(), "{}", stderr(&output));
    world.restore();
    same(&before, &world.home.dump(), "after two at once");
}

#[test]
fn an_interruption_undoes() {
    let Some(world) = World::new(3, Subnets::Same) else { return };
    enrich(&world, Subnets::Same);
    let before = world.home.dump();
    for signal in ["INT", "TERM", "HUP"] {
        let stopped = Stopped::at(7, world.move_command(&[]));
        stopped.signal(signal);
        let output = stopped.end();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{signal}: {told}");
        assert!(told.contains("interrupted; everything is as it was"), "{told}");
        assert!(!world.journal().exists());
        same(&before, &world.home.dump(), signal);
    }
}

#[test]
fn a_failure_undoes() {
    let Some(world) = World::new(2, Subnets::Same) else { return };
    enrich(&world, Subnets::Same);
    let before = world.home.dump();
    // A GID that does not come back: it vanishes while the move is under way.
    let stopped = Stopped::at(4, world.move_command(&["--wait", "5"]));
    world.put("class/infiniband/mlx5_1/ports/1/gids/3", "::");
    let output = stopped.end();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("mlx5_1") && told.contains("no RoCE v2 GID of 10.0.0.2"), "{told}");
    assert!(told.contains("everything is as it was"), "{told}");
    same(&before, &world.home.dump(), "after a failure");
}
