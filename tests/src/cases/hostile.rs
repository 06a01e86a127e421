//! Hostile guests on a real device, each in a world of its own: see `tests/hostile`.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::world::World;

/// A world ends after 90 s, whatever happens in it; two of them, and the emulator's slowness.
const LIMIT: Duration = Duration::from_secs(240);
/// How long a bystander may wait, in milliseconds: under emulation everything takes ten times as
/// long.
const BOUND: &str = "3000";

pub(super) fn cases() -> Vec<Case> {
    let case = |attack: &'static str| {
        let name: &'static str = Box::leak(format!("hostile_{attack}").into_boxed_str());
        Case { limit: LIMIT, ..Case::new(name, move |world| holds(world, attack)) }
    };
    verbgate_hostile::names().into_iter().map(case).collect()
}

fn holds(world: &World, attack: &str) -> Result<Verdict> {
    let mut skipped = None;
    for user in ["nobody", "root"] {
        let mut command: Command = world.program("verbgate-hostile");
        command.args(["run", attack, "--user", user, "--bound-ms", BOUND]);
        command.args(["--machine-pid-max", "--real"]);
        command.arg("--device").arg(format!("{}:{}", world.device, world.node));
        if let Ok(address) = world.address() {
            command.args(["--address", &address]);
        }
        command.arg("--verbgate").arg(world.beside("verbgate"));
        let ended = exec::run(command, LIMIT)?;
        match ended.status {
            0 => {}
            77 => {
                skipped = ended
                    .stdout
                    .lines()
                    .find_map(|l| l.trim().strip_prefix("SKIPPED: "))
                    .map(str::to_owned)
            }
            _ => bail!("by {user}:\n{}{}", ended.stdout, ended.stderr),
        }
    }
    Ok(skipped.map_or(Verdict::Ok, Verdict::Skipped))
}
