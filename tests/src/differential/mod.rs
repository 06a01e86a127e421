//! The differential test: the same raw requests natively and in a sandbox, and the same answers.
//!
//! A seed stands for a sequence of requests: valid requests, and mutations of valid requests. The
//! sequence is written down as a script, which `verbgate-guest replay` runs natively, natively
//! again, and in a sandbox, in one boot. Values in which the two native runs differ are the
//! kernel's numbering, and are not compared. Everything else (results, outputs, and every other
//! byte of the caller's memory) must be the same, and so must the handles that exist in the end.

mod borders;
pub mod catalogue;
pub mod compare;
pub mod draft;
pub mod explain;
pub mod mutate;
pub mod sequence;
mod written;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use verbgate_abi::wire::DriverId;

use crate::exec;
use crate::world::Place;
use crate::world::World;
use catalogue::Device;
use compare::Answer;
use compare::Summary;

/// The sequence that the suite runs.
pub const SEED: u64 = 1;
/// So many requests it has.
pub const REQUESTS: usize = 20_800;
/// The profile that grants everything, and the capability for raw packets, so that what is refused is
/// the kernel's refusal.
const PROFILE: [&str; 4] = ["--profile", "full", "--keep-cap", "NET_RAW"];

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Names the sequence.
    pub seed: u64,
    /// At least so many requests.
    pub requests: usize,
    /// Only this round of them.
    pub round: Option<usize>,
}

/// Runs a plan.
pub fn run(world: &World, plan: Plan) -> Result<Summary> {
    let device = device(world)?;
    let mut rounds: Vec<(usize, Vec<String>)> = Vec::new();
    match plan.round {
        Some(number) => rounds.push((number, sequence::round(&device, plan.seed, number))),
        None => {
            let mut requests = 0;
            while requests < plan.requests {
                let round = sequence::round(&device, plan.seed, rounds.len());
                requests += round.len() - 1;
                rounds.push((rounds.len(), round));
            }
        }
    }
    compare(world, &rounds)
}

/// Runs rounds natively twice and in a sandbox, and compares.
pub fn compare(world: &World, rounds: &[(usize, Vec<String>)]) -> Result<Summary> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let script = folder.path().join("script");
    let lines: Vec<&str> = rounds.iter().flat_map(|(_, lines)| lines).map(String::as_str).collect();
    fs::write(&script, lines.join("\n")).context("cannot write the script")?;
    let native = replay(world, Place::Native, &script)?;
    let again = replay(world, Place::Native, &script)?;
    let inside = replay(world, Place::Sandbox, &script)?;
    let mut summary = Summary::default();
    let mut start = 0;
    for (number, lines) in rounds {
        let end = start + lines.len();
        let of = |answers: &[Answer]| {
            answers.get(start..end.min(answers.len())).unwrap_or_default().to_vec()
        };
        summary.add(*number, lines, [&of(&native), &of(&again), &of(&inside)]);
        start = end;
    }
    Ok(summary)
}

fn replay(world: &World, place: Place, script: &Path) -> Result<Vec<Answer>> {
    let guest = world.beside("verbgate-guest");
    let guest = guest.to_string_lossy();
    let (node, script) = (world.node_path(), script.to_string_lossy());
    let argv = [&*guest, "replay", &node, &script];
    let command = match place {
        Place::Native => world.command(place, &argv)?,
        Place::Sandbox => world.sandbox(&PROFILE, &argv),
    };
    let ended = exec::run(command)?;
    if ended.status != 0 {
        let said = ended.stdout.lines().count();
        bail!("after {said} answers {} ended with {}: {}", ended.name, ended.status, ended.stderr);
    }
    let answers = ended.stdout.lines().map(Answer::read);
    answers.collect::<Option<_>>().context("an answer cannot be read")
}

fn device(world: &World) -> Result<Device> {
    let driver = driver(&world.device);
    let index = world.gid_index.context("the device has no GID of an IPv4 address")?;
    let path = format!("/sys/class/infiniband/{}/ports/1/gids/{index}", world.device);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let gid = u128::from_str_radix(&digits, 16).context("a GID is 32 digits")?.to_be_bytes();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let context_by_method = !release.starts_with("6.") && !release.starts_with("5.");
    Ok(Device { driver, gid, gid_index: u8::try_from(index)?, context_by_method })
}

/// Devices of software drivers are named after them.
fn driver(device: &str) -> DriverId {
    let name = device.trim_end_matches(|c: char| c.is_ascii_digit());
    DriverId::from_name(name).unwrap_or(DriverId::RXE)
}
