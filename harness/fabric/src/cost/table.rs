//! Both ways side by side.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::Work;

const START: &str = "start and end of a program";

/// An operation's samples of both ways, in nanoseconds.
#[derive(Debug)]
struct Row {
    operation: String,
    native: Vec<u64>,
    sandboxed: Vec<u64>,
}

/// What is written for programs.
#[derive(Serialize)]
struct Compared<'a> {
    operation: &'a str,
    native_us: f64,
    sandboxed_us: f64,
    ratio: f64,
}

/// All operations, in the order in which they were measured.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    rows: Vec<Row>,
    no_data: Option<String>,
}

fn median(samples: &[u64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let nanoseconds = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
    Duration::from_nanos(nanoseconds).as_secs_f64() * 1e6
}

impl Comparison {
    pub(super) fn add(&mut self, native: bool, work: Work) {
        for sample in work.samples {
            self.put(native, &sample.operation, sample.nanoseconds);
        }
        self.no_data = self.no_data.take().or(work.no_data);
    }

    pub(super) fn add_start(&mut self, native: bool, took: Duration) {
        self.put(native, START, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn put(&mut self, native: bool, operation: &str, nanoseconds: u64) {
        let at = self.rows.iter().position(|row| row.operation == operation).unwrap_or_else(|| {
            let operation = operation.to_owned();
            self.rows.push(Row { operation, native: Vec::new(), sandboxed: Vec::new() });
            self.rows.len() - 1
        });
        if let Some(row) = self.rows.get_mut(at) {
            if native { &mut row.native } else { &mut row.sandboxed }.push(nanoseconds);
        }
    }

    /// Those that were measured in both ways.
    fn compared(&self) -> impl Iterator<Item = Compared<'_>> {
        self.rows.iter().filter(|row| !row.native.is_empty() && !row.sandboxed.is_empty()).map(
            |row| {
                let (native_us, sandboxed_us) = (median(&row.native), median(&row.sandboxed));
                let ratio = sandboxed_us / native_us.max(f64::MIN_POSITIVE);
                Compared { operation: &row.operation, native_us, sandboxed_us, ratio }
            },
        )
    }

    pub(super) fn text(&self, rail: &str, rounds: u32) -> String {
        let width = self.rows.iter().map(|row| row.operation.len()).max().unwrap_or(0);
        let mut text = format!("{rail}: medians of {rounds} rounds, in microseconds\n");
        let head = ("operation", "native", "sandboxed", "ratio");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:width$}  {:>10}  {:>10}  {:>6}", head.0, head.1, head.2, head.3);
        for Compared { operation, native_us, sandboxed_us, ratio } in self.compared() {
            let _ = writeln!(
                text,
                "{operation:width$}  {native_us:>10.1}  {sandboxed_us:>10.1}  {ratio:>6.2}"
            );
        }
        if let Some(why) = &self.no_data {
            let _ = writeln!(text, "no data was written: {why}");
        }
        text
    }

    pub(super) fn json(&self, rail: &str) -> String {
        let rows: Vec<Compared<'_>> = self.compared().collect();
        let value =
            serde_json::json!({ "rail": rail, "operations": rows, "no_data": self.no_data });
        format!("{value}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::*;

    fn work(nanoseconds: u64) -> Work {
        let sample =
            |operation: &str, nanoseconds| Sample { operation: operation.to_owned(), nanoseconds };
        let samples = vec![sample("open", nanoseconds), sample("write", 2 * nanoseconds)];
        Work { samples, no_data: None }
    }

    #[test]
    fn medians_of_both_ways_are_compared() {
        let mut table = Comparison::default();
        for (native, sandboxed) in [(1000, 3000), (900_000, 2000), (800, 2000)] {
            table.add(true, work(native));
            table.add(false, work(sandboxed));
        }
        let text = table.text("rxe0:1@1", 3);
        let row = text.lines().find(|line| line.starts_with("open")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["open", "1.0", "2.0", "2.00"]);
        let json: serde_json::Value = serde_json::from_str(&table.json("rxe0:1@1")).unwrap();
        assert_eq!(json["operations"][1]["ratio"], 2.0, "{json}");
    }

    #[test]
    fn what_was_measured_in_one_way_alone_is_not_compared_and_the_reason_is_given() {
        let mut table = Comparison::default();
        table.add(true, work(1));
        table
            .add(false, Work { samples: Vec::new(), no_data: Some("the port is down".to_owned()) });
        let text = table.text("mlx5_0:1@3", 1);
        assert!(!text.contains("write  ") && text.contains("the port is down"), "{text}");
    }
}
