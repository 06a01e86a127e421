//! Hostile guests on a real device, each in a world of its own: see `tests/hostile`.

use std::process::Command;

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::exec;
use crate::world::World;

pub(super) fn cases() -> Vec<Case> {
    let case = |attack: &'static str| {
        let name: &'static str = Box::leak(format!("hostile_{attack}").into_boxed_str());
        Case::new(name, move |world| holds(world, attack, 3000))
    };
    let mut all: Vec<Case> = verbgate_hostile::names().into_iter().map(case).collect();
    all.push(Case::new("hostile_generated_100000", |world| holds(world, "generated", 100_000)));
    all
}

/// By an attacker without rights; one that is root in its sandbox is tried on stand-ins. A generated attack makes so
/// many calls.
fn holds(world: &World, attack: &str, calls: u64) -> Result<Verdict> {
    let mut command: Command = world.program("verbgate-hostile");
    command.args(["run", attack, "--user", "nobody", "--machine-pid-max", "--real"]);
    command.arg("--calls").arg(calls.to_string());
    command.arg("--device").arg(format!("{}:{}", world.device, world.node));
    if let Ok(address) = world.address() {
        command.args(["--address", &address]);
    }
    command.arg("--verbgate").arg(world.beside("verbgate"));
    let ended = exec::run(command)?;
    match ended.status {
        0 => {
            // These lines tell what the kernel has of what the attack needs, and what became of the attacker.
            let words = [
                "natively: ",
                "a descriptor ",
                "a program ",
                "attacker: ",
                "the attacker ",
                "calls: ",
            ];
            let told = ended.stdout.lines().map(str::trim);
            told.filter(|line| words.iter().any(|word| line.starts_with(word)))
                .for_each(|line| println!("{line}"));
            Ok(Verdict::Ok)
        }
        77 => {
            let why = ended.stdout.lines().find_map(|line| line.trim().strip_prefix("SKIPPED: "));
            Ok(Verdict::Skipped(why.unwrap_or("it does not say why").to_owned()))
        }
        _ => bail!("{}{}", ended.stdout, ended.stderr),
    }
}
