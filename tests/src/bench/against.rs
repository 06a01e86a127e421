//! This build and another one, by turns in one run: each row's ratio, and how much a build differs from itself.

use anyhow::Result;
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

/// In each round, this build is measured first and last, and the other one twice between: what grows
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
            let Row { this, other, ratio, rounds, itself } = row;
            let verdict = row.verdict();
            println!(
                "{}",
                json!({ "row": name, "this": this, "other": other, "ratio": ratio,
                "rounds": rounds, "itself": itself, "verdict": verdict })
            );
            continue;
        }
        let span = |[least, most]: [f64; 2]| format!("{least:.2} to {most:.2}");
        table.row(&[
            name.to_owned(),
            format!("{:.2}", row.this),
            format!("{:.2}", row.other),
            format!("{:.3}", row.ratio),
            span(row.rounds),
            span(row.itself),
            row.verdict().to_owned(),
        ]);
    }
    if !lines {
        println!("{table}");
    }
    Ok(())
}

/// Medians of both builds; the median ratio of a round, and the least and the most; and the least and the most
/// ratio of two turns of the same build in a round, which is the noise.
#[derive(Clone, Copy, Debug)]
struct Row {
    this: f64,
    other: f64,
    ratio: f64,
    rounds: [f64; 2],
    itself: [f64; 2],
}

impl Row {
    fn of(columns: &[Vec<f64>]) -> Option<Self> {
        let [this, other] = columns else { return None };
        let pairs = |of: &[f64]| of.as_chunks::<2>().0.to_vec();
        let (ours, theirs) = (pairs(this), pairs(other));
        let mut ratios: Vec<f64> =
            ours.iter().zip(&theirs).map(|([a, b], [c, d])| (a + b) / (c + d)).collect();
        let itself: Vec<f64> = ours.iter().chain(&theirs).map(|[one, again]| again / one).collect();
        let span = |of: &[f64]| {
            [
                of.iter().copied().fold(f64::NAN, f64::min),
                of.iter().copied().fold(f64::NAN, f64::max),
            ]
        };
        Some(Self {
            this: median(&mut this.clone())?,
            other: median(&mut other.clone())?,
            rounds: span(&ratios),
            itself: span(&itself),
            ratio: median(&mut ratios)?,
        })
    }

    /// A ratio within what a build differs from itself is no difference.
    fn verdict(&self) -> &'static str {
        let [least, most] = self.itself;
        match self.ratio {
            ratio if ratio > most => "SLOWER",
            ratio if ratio < least => "faster",
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
        assert_eq!((row.itself, row.rounds), ([1.0, 2.0], [1.4, 2.1]));
    }
}
