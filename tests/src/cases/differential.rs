//! The differential test, as a case: a fixed sequence, and requests that once differed.

use anyhow::Result;
use anyhow::bail;

use super::Case;
use super::Verdict;
use crate::differential;
use crate::differential::Plan;
use crate::differential::REQUESTS;
use crate::differential::SEED;
use crate::world::World;

/// Requests that once showed a difference, each behind what made it possible: steps of scripts, as
/// `verbgate-guest replay` reads them.
const KNOWN: &str = include_str!("../../data/differential.txt");

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("differential", generated), Case::new("differential_of_old", of_old)]
}

fn generated(world: &World) -> Result<Verdict> {
    let plan = Plan { seed: SEED, requests: REQUESTS, round: None };
    let summary = differential::run(world, plan)?;
    println!("differential: seed {SEED}: {summary}");
    if !summary.differences.is_empty() || summary.compared < 20_000 {
        bail!("seed {SEED}: {summary}");
    }
    Ok(Verdict::Ok)
}

fn of_old(world: &World) -> Result<Verdict> {
    let mut rounds: Vec<(usize, Vec<String>)> = Vec::new();
    for line in KNOWN.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line == "open" {
            rounds.push((rounds.len(), Vec::new()));
        }
        if let Some((_, lines)) = rounds.last_mut() {
            lines.push(line.to_owned());
        }
    }
    let summary = differential::compare(world, &rounds)?;
    if !summary.differences.is_empty() || summary.compared == 0 {
        bail!("{summary}");
    }
    Ok(Verdict::Ok)
}
