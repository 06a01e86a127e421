//! This build and another one, by turns in one run: each row's ratio, and how much a build differs from itself.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::calls;
use super::containers;
use super::host;
use super::host::Place;
use super::host::Programs;
use super::median;
use super::rounds::Figure;
use super::rounds::Rounds;
use crate::table::Table;

/// Each round measures this build first and last, and the other one twice between: what grows
/// steadily with time disturbs both alike.
const ROUNDS: usize = 7;
const TURNS: [usize; 4] = [0, 1, 1, 0];
const THIS: usize = 0;
/// Calls of a kind that are not trapped, and starts, in a turn.
const CALLS: &str = "20000";
const STARTS: usize = 10;

/// Prints a row for each figure; smaller is better in all. The guest programs should be the same in both
/// folders. With `lines`, each row is an object of JSON instead.
///
/// # Errors
///
/// That a program failed.
pub fn run(this: &Programs, other: &Programs, lines: bool) -> Result<()> {
    let mut rounds = Rounds::default();
    for round in 1..=ROUNDS {
        eprintln!("this build and the other one, round {round} of {ROUNDS}");
        for build in TURNS {
            rounds.add(build, figures(if build == THIS { this } else { other })?);
        }
    }
    let mut table = Table::new(&[
        "smaller is better",
        "this",
        "other",
        "ratio",
        "of each round",
        "a build to itself",
        "",
    ]);
    for (name, columns) in rounds.rows() {
        let Some(row) = Row::of(columns) else { continue };
        if lines {
            println!("{}", json!({ "row": name, "figures": row, "verdict": row.verdict() }));
            continue;
        }
        let [least, most] = row.rounds;
        table.row(&[
            name.to_owned(),
            format!("{:.2}", row.this),
            format!("{:.2}", row.other),
            format!("{:.3}", row.ratio),
            format!("{least:.2} to {most:.2}"),
            format!("{:.2}", row.itself),
            row.verdict().to_owned(),
        ]);
    }
    if !lines {
        println!("{table}");
    }
    Ok(())
}

/// Medians of both builds; the median ratio of a round, and the least and the most; and the noise: by how many times
/// two turns of the same build in a round differ at most.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    this: f64,
    other: f64,
    ratio: f64,
    rounds: [f64; 2],
    itself: f64,
}

impl Row {
    fn of(columns: &[Vec<f64>]) -> Option<Self> {
        let [this, other] = columns else { return None };
        let pairs = |of: &[f64]| of.as_chunks::<2>().0.to_vec();
        let (ours, theirs) = (pairs(this), pairs(other));
        let mut ratios: Vec<f64> =
            ours.iter().zip(&theirs).map(|([a, b], [c, d])| (a + b) / (c + d)).collect();
        let itself = ours.iter().chain(&theirs).map(|[one, again]| (again / one).max(one / again));
        let least = ratios.iter().copied().fold(f64::NAN, f64::min);
        let most = ratios.iter().copied().fold(f64::NAN, f64::max);
        Some(Self {
            this: median(&mut this.clone())?,
            other: median(&mut other.clone())?,
            rounds: [least, most],
            itself: itself.fold(1.0, f64::max),
            ratio: median(&mut ratios)?,
        })
    }

    /// A ratio within what a build differs from itself is no difference.
    fn verdict(&self) -> &'static str {
        match self.ratio {
            ratio if ratio > self.itself => "SLOWER",
            ratio if ratio < 1.0 / self.itself => "faster",
            _ => "",
        }
    }
}

/// Figures of a build, one turn of each.
fn figures(programs: &Programs) -> Result<Vec<Figure>> {
    let us = |(name, figure): Figure| (format!("{name}, us"), figure);
    let mut all: Vec<Figure> = [host::INSIDE, host::OTHERS]
        .into_iter()
        .map(|asked| host::answers(programs, Place::Inside, asked))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .map(us)
        .collect();
    all.extend(calls::in_place(programs, &calls::Place::Sandbox, CALLS)?.into_iter().map(us));
    let mut add = |name: &str, figure: f64| all.push((name.to_owned(), figure));
    for (name, processes) in [("one process", 1), ("eight processes at once", host::AT_ONCE)] {
        add(&format!("a request of {name}, us"), 1e6 / host::rate(programs, processes)?);
    }
    add("`verbgate run -- true`, ms", host::starts(programs, Place::Inside, STARTS)?);
    if let Some(start) = containers::start(&programs.0.join("verbgate"), STARTS)? {
        add("`verbgate oci` run of `true` by crun, ms", start);
    }
    let each = programs.count()?;
    add("notifications per request", each.notifications);
    add("system calls of the supervisor per request", each.calls);
    for (name, kib) in host::resident_memory(programs, &[100, 100_000])? {
        add(&format!("{name}, MiB"), kib as f64 / 1024.0);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_within_the_noise_are_none() {
        let row =
            |other: [f64; 4]| Row::of(&[vec![10.0, 11.0, 10.0, 11.0], other.to_vec()]).unwrap();
        assert_eq!(row([10.0, 10.5, 10.5, 10.5]).verdict(), "");
        assert_eq!(row([5.0, 5.0, 5.0, 5.0]).verdict(), "SLOWER");
        assert_eq!(row([20.0, 20.0, 20.0, 20.0]).verdict(), "faster");
        let row = row([5.0, 5.0, 5.0, 10.0]);
        assert_eq!((row.itself, row.rounds), (2.0, [1.4, 2.1]));
    }
}
