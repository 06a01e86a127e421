//! The output of rank 0, cell by cell, so that no measurement is lost.

use std::fmt::Write as _;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::bench::cell::Cell;
use crate::bench::options::BenchOptions;
use crate::bench::options::By;
use crate::bench::options::Sweep;
use crate::bench::plan::Plan;
use crate::bench::plot;
use crate::bench::sums::Sums;
use crate::bench::verdict::Judgement;
use crate::bench::verdict::Verdicts;
use crate::bench::wire;
use crate::bench::wire::Wire;
use crate::error::Error;
use crate::hardware::Tuning;
use crate::matrix;
use crate::outcome::Changes;
use crate::outcome::Outcome;
use crate::outcome::PathView;
use crate::rendezvous::Table;
use verbgate_host::output::print;

/// A line of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Line<'a> {
    Settings {
        table: &'a str,
        strays: u64,
        rank: u32,
        ranks: u32,
        by: By,
        window: u32,
        seconds: f64,
        tuning: Tuning,
        plan: &'a str,
        /// In seconds, about.
        lasts: f64,
    },
    Cell(&'a Cell),
    Verdicts(&'a Verdicts),
    Changes(&'a Changes),
}

/// A column of the table and of the CSV, and what is in it.
type Column = (&'static str, fn(&Cell) -> Option<String>);
/// Columns of the table are at least as wide as this.
const WIDTH: usize = 8;
/// Lines of one verdict.
const LINES: usize = 40;

fn number(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.3}"))
}

#[rustfmt::skip]
const COLUMNS: &[Column] = &[
    ("sweep",        |cell| cell.sweep.map(name)),
    ("from",         |cell| Some(cell.from.to_string())),
    ("to",           |cell| Some(cell.to.to_string())),
    ("rail",         |cell| Some(cell.rail.to_string())),
    ("size",         |cell| Some(cell.size.to_string())),
    ("target_gbps",  |cell| cell.target_gbps.map(|target| target.to_string())),
    ("repeat",       |cell| Some((cell.repeat + 1).to_string())),
    ("gbps",         |cell| cell.gbps.map(|gbps| format!("{gbps:.4}"))),
    ("messages/s",   |cell| number(cell.messages_per_second)),
    ("packets/s",    |cell| number(cell.packets_per_second)),
    ("p50_us",       |cell| number(cell.p50_us)),
    ("p99_us",       |cell| number(cell.p99_us)),
    ("errors",       |cell| Some(cell.completion_errors.to_string())),
    ("rnr_naks",     |cell| cell.rnr_naks.map(|count| count.to_string())),
    ("retransmits",  |cell| cell.retransmits.map(|count| count.to_string())),
];
/// Of these the CSV has more than people want to see.
const OF_CSV: &[Column] = &[
    ("phy_bytes", |cell| cell.phy_bytes.map(|bytes| bytes.to_string())),
    ("lost", |cell| cell.lost.map(|lost| lost.to_string())),
    ("valid", |cell| Some(cell.valid.to_string())),
    ("first_error", |cell| cell.first_error.clone()),
    ("counters", |cell| {
        let moved = cell.counters.iter().map(|(name, delta)| format!("{name}={delta}"));
        Some(moved.collect::<Vec<_>>().join(";"))
    }),
];

fn name(sweep: Sweep) -> String {
    sweep.word().to_owned()
}

/// Where cells go.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    args: &'a BenchOptions,
    csv: Option<(&'a Path, File)>,
    pub(crate) sums: Sums,
    /// Whether each cell is printed.
    shown: bool,
    /// Of each rail's ports, in Gb/s, where the rate is a wire's.
    rates: Vec<Option<f64>>,
    baseline: Option<Outcome>,
}

/// What is said before the first cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) table: &'a str,
    pub(crate) strays: u64,
    pub rank: u32,
    pub ranks: u32,
    pub(crate) plan: &'a Plan,
    /// Whether each cell is printed.
    pub(crate) shown: bool,
}

/// Each rank says this; the rest is rank 0's.
pub(crate) fn begin(args: &BenchOptions, settings: Settings<'_>) -> Result<(), Error> {
    let Settings { table, strays, rank, ranks, plan, shown } = settings;
    let Plan { words: plan, lasts, .. } = plan;
    let (by, window, seconds, tuning) = (args.by, args.window, args.seconds, args.tuning());
    if args.common.json {
        let lasts = *lasts;
        let settings =
            Line::Settings { table, strays, rank, ranks, by, window, seconds, tuning, plan, lasts };
        return json(&settings);
    }
    let mut text = format!("rank table {table}: this is rank {rank} of {ranks}\n");
    if rank == 0 {
        let Tuning { min_rnr_timer, rnr_retry, timeout, retry_cnt } = tuning;
        if strays > 0 {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "{strays} stray connections were dropped");
        }
        let _ = writeln!(
            text,
            "{plan}; by {by:?}, {window} at a time; queue pairs: min_rnr_timer {min_rnr_timer}, \
             rnr_retry {rnr_retry}, timeout {timeout}, retry_cnt {retry_cnt}\nlatency is {}",
            match by {
                By::Read => "a whole round trip: from posting a read to its answer",
                By::Write | By::Send => {
                    "half a round trip: half of the time from posting to the acknowledgement of the \
                     peer's NIC"
                }
            }
        );
        if shown {
            let titles = COLUMNS.iter().map(|(title, _)| padded(title, title));
            let _ = writeln!(text, "{}", titles.collect::<String>());
        }
    }
    Ok(print(&text)?)
}

fn json(line: &Line<'_>) -> Result<(), Error> {
    let text = serde_json::to_string(line).map_err(|e| Error::Check(e.to_string()))?;
    Ok(print(&(text + "\n"))?)
}

impl<'a> Output<'a> {
    /// # Errors
    /// When the file for the CSV cannot be made.
    pub(super) fn new(args: &'a BenchOptions, rank: u32) -> Result<Self, Error> {
        let baseline = args.outputs.baseline(rank)?;
        let csv = match args.csv.as_deref().filter(|_| rank == 0) {
            Some(path) => {
                let file = File::create(path).map_err(|error| cannot_write(path, error))?;
                Some((path, file))
            }
            None => None,
        };
        let (sums, rates) = (Sums::default(), Vec::new());
        let mut output = Self { args, csv, sums, shown: true, rates, baseline };
        let titles: Vec<&str> = COLUMNS.iter().chain(OF_CSV).map(|(title, _)| *title).collect();
        output.save(&titles.join(","))?;
        Ok(output)
    }

    /// One more.
    pub(super) fn cell(&mut self, cell: Cell) -> Result<(), Error> {
        if self.args.common.json {
            json(&Line::Cell(&cell))?;
        } else if self.shown {
            print(&row(&cell))?;
        }
        self.save(&csv(&cell))?;
        self.sums.add(cell);
        Ok(())
    }

    /// The sweeps that went on are over.
    pub(super) fn settle(&mut self) {
        self.sums.settle(self.args);
    }

    fn save(&mut self, line: &str) -> Result<(), Error> {
        let Some((path, file)) = &mut self.csv else { return Ok(()) };
        writeln!(file, "{line}").map_err(|error| cannot_write(path, error))
    }

    /// How cells are shown and judged.
    pub(super) fn prepare(&mut self, shown: bool, rates: Vec<Option<f64>>) {
        (self.shown, self.rates) = (shown, rates);
    }

    pub(super) fn wire(&self) -> Wire {
        wire::judge(self.args, &self.sums, &self.rates)
    }

    /// What it comes to; whether all is well. `before`: what was wrong before anything was measured.
    pub(crate) fn end(
        &mut self,
        complete: bool,
        table: &Table,
        before: &[String],
    ) -> Result<bool, Error> {
        self.settle();
        let mut wire = self.wire();
        let paths = std::mem::take(&mut wire.paths);
        let mut verdicts = Verdicts::of(self.args, &self.sums, wire, complete);
        verdicts.faults.extend_from_slice(before);
        verdicts.passed &= before.is_empty();
        let mut outcome = Outcome::new("bench", table, verdicts.passed);
        let of = |path: &PathView| [(path.from, path.rail), (path.to, path.rail)];
        outcome.tested = paths.iter().flat_map(of).collect();
        outcome.paths = paths;
        let judged = [&verdicts.wire, &verdicts.sizes, &verdicts.pace];
        let findings = judged.into_iter().flat_map(|verdict| verdict.findings.iter());
        outcome.findings = findings.chain(&verdicts.faults).cloned().collect();
        if let Some(path) = &self.args.plot {
            let drawn = plot::svg(&self.sums).map_err(|e| Error::Check(e.to_string()))?;
            fs::write(path, drawn).map_err(|error| cannot_write(path, error))?;
        }
        if self.args.common.json {
            json(&Line::Verdicts(&verdicts))?;
        } else {
            print(&(plot::bars(&self.sums) + &matrix::text(&outcome) + &text(&verdicts)))?;
        }
        let tolerance = self.args.tolerance;
        let changes = self.args.outputs.write(&outcome, self.baseline.as_ref(), tolerance)?;
        if let Some(changes) = &changes {
            if self.args.common.json {
                json(&Line::Changes(changes))?;
            } else {
                print(&changes.text())?;
            }
        }
        Ok(verdicts.passed && changes.is_none_or(|changes| changes.worse.is_empty()))
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> Error {
    Error::Io { what: format!("cannot write {}", path.display()), error }
}

fn padded(title: &str, text: &str) -> String {
    let width = title.len().max(WIDTH);
    format!(" {text:>width$}")
}

/// For people: `-` is not known, and nothing that failed is a zero.
fn row(cell: &Cell) -> String {
    let field = |(title, of): &Column| padded(title, of(cell).as_deref().unwrap_or("-"));
    let text = COLUMNS.iter().map(field).collect::<String>();
    match &cell.first_error {
        Some(why) => format!("{text}  FAILED: {why}\n"),
        None => text + "\n",
    }
}

/// RFC 4180; what failed or is not known is empty.
fn csv(cell: &Cell) -> String {
    let quoted = |field: String| {
        if field.contains(['"', ',', '\n']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field
        }
    };
    let fields = COLUMNS.iter().chain(OF_CSV).map(|(_, of)| quoted(of(cell).unwrap_or_default()));
    fields.collect::<Vec<_>>().join(",")
}

/// Lines of a kind; of very many the first, since the report and the page have all.
fn lines(mark: &str, of: &[String]) -> String {
    let mut text: String =
        of.iter().take(LINES).map(|line| format!("{mark:<5} {line}\n")).collect();
    if let more @ 1.. = of.len().saturating_sub(LINES) {
        text += &format!("{mark:<5} and {more} more: see --csv, --html or --details\n");
    }
    text
}

fn text(verdicts: &Verdicts) -> String {
    let Verdicts { sizes, pace, wire, slowest, faults, cells, complete, passed } = verdicts;
    let mut text = String::new();
    for Judgement { findings, explained, .. } in [wire, sizes, pace] {
        text += &lines("FAIL", findings);
        text += &lines("NOTE", explained);
    }
    text += &lines("FAIL", faults);
    if !slowest.is_empty() {
        text += "the slowest paths:\n";
        slowest.iter().for_each(|path| text += &format!("      {path}\n"));
    }
    let _ = writeln!(text, "verdict on sizes: {}", sizes.words);
    let _ = writeln!(text, "verdict on pace: {}", pace.words);
    let _ = writeln!(text, "verdict on the wire: {}", wire.words);
    let end = match (complete, passed) {
        (false, _) => "not all was measured",
        (true, true) => "all is well",
        (true, false) => "FAILED",
    };
    let _ = writeln!(text, "bench: {end}: {cells} cells");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_marked_and_what_is_not_known_is_no_zero() {
        let why = "a \"b\", c";
        let mut cell = Cell {
            sweep: Some(Sweep::AllToAll),
            to: 1,
            size: 4096,
            completion_errors: 3,
            first_error: Some(why.to_owned()),
            ..Cell::default()
        };
        assert_eq!(csv(&cell), "all-to-all,0,1,0,4096,,1,,,,,,3,,,,,false,\"a \"\"b\"\", c\",");
        assert!(row(&cell).ends_with(&format!("  FAILED: {why}\n")));
        assert_eq!(row(&cell).matches(" -").count(), 8);
        cell.counters.insert("sent_pkts".to_owned(), 9);
        assert!(csv(&cell).ends_with(",sent_pkts=9"));
        let columns = COLUMNS.len() + OF_CSV.len();
        cell.first_error = None;
        assert_eq!(csv(&cell).split(',').count(), columns);
        let line = serde_json::to_value(Line::Cell(&cell)).unwrap();
        assert_eq!(line["kind"], "cell");
        assert_eq!(line["sweep"], "all-to-all");
        assert!(line["gbps"].is_null());
    }
}
