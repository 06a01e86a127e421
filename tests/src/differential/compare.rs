//! The answers of two native runs and one sandboxed run, side by side.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;

use super::explain::Side;
use super::explain::explain;
use super::explain::is_unaligned;

/// The answer to one step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// The call's result, or `-errno`; 0 for an `open`.
    pub result: i64,
    /// Memory that it changed.
    pub changes: BTreeMap<u64, u8>,
}

impl Answer {
    /// Reads a line of `verbgate-guest replay`.
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let first = words.next()?;
        let result = if first == "opened" { 0 } else { first.parse().ok()? };
        let mut changes = BTreeMap::new();
        for word in words {
            let (offset, bytes) = word.split_once(':')?;
            let offset = u64::from_str_radix(offset, 16).ok()?;
            for (at, pair) in (offset..).zip(bytes.as_bytes().chunks(2)) {
                let pair = std::str::from_utf8(pair).ok()?;
                changes.insert(at, u8::from_str_radix(pair, 16).ok()?);
            }
        }
        Some(Self { result, changes })
    }

    /// The words whose bytes differ, by offset.
    fn differs(&self, other: &Self) -> BTreeSet<u64> {
        let offsets = self.changes.keys().chain(other.changes.keys());
        let differing = offsets.filter(|at| self.changes.get(at) != other.changes.get(at));
        differing.map(|at| at & !3).collect()
    }
}

/// A difference that nothing explains.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The round.
    pub round: usize,
    /// The step in it, from 0, the `open`.
    pub step: usize,
    /// The script's line.
    pub line: String,
    /// What differs.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, step, line, what } = self;
        write!(f, "round {round} step {step}: {what}\n  {line}")
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Requests compared.
    pub compared: usize,
    /// Of these, requests that the kernel granted natively.
    pub granted: usize,
    /// Requests behind an explained difference that left other objects behind.
    pub behind: usize,
    /// Requests that the kernel itself answered differently the second time.
    pub unsteady: usize,
    /// Explained differences, by reason.
    pub explained: BTreeMap<&'static str, usize>,
    /// The others, the first of each round.
    pub differences: Vec<Difference>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, granted, behind, unsteady, .. } = self;
        let explained: usize = self.explained.values().sum();
        write!(
            f,
            "{compared} requests compared, of which the kernel granted {granted}; {} differ, \
             {explained} for a known reason; {unsteady} that the kernel answers differently each \
             time, {behind} behind a difference",
            self.differences.len() + explained
        )?;
        for (reason, count) in &self.explained {
            write!(f, "\n  {count} times: {reason}")?;
        }
        for difference in self.differences.iter().take(40) {
            write!(f, "\n{difference}")?;
        }
        Ok(())
    }
}

impl Summary {
    /// Adds a round: its lines, and the answers of two native runs and of one in a sandbox.
    pub fn add(&mut self, round: usize, lines: &[String], answers: [&[Answer]; 3]) {
        let [native, again, inside] = answers;
        for (step, line) in lines.iter().enumerate().skip(1) {
            let (Some(native), Some(again), Some(inside)) =
                (native.get(step), again.get(step), inside.get(step))
            else {
                let (line, what) = (line.clone(), "there is no answer".to_owned());
                self.differences.push(Difference { round, step, line, what });
                return;
            };
            if native.result != again.result {
                self.unsteady += 1;
                continue;
            }
            self.compared += 1;
            self.granted += usize::from(native.result >= 0);
            // What the kernel numbers anew each time: keys, queue pairs, places to map.
            let mut vary = native.differs(again);
            if is_unaligned(line) {
                // Of a number across two words only the lower one may have differed so far.
                vary.extend(vary.clone().iter().map(|word| word + 4));
            }
            let mut differ = native.differs(inside);
            differ.retain(|word| !vary.contains(word));
            if native.result == inside.result && differ.is_empty() {
                continue;
            }
            let side = Side { line, native: native.result, inside: inside.result, words: &differ };
            let same_state = (native.result < 0) == (inside.result < 0);
            if let Some(reason) = explain(&side) {
                *self.explained.entry(reason).or_default() += 1;
            } else {
                let what = describe(native, inside, &differ);
                self.differences.push(Difference { round, step, line: line.clone(), what });
                self.behind += lines.len() - step - 1;
                return;
            }
            if !same_state {
                self.behind += lines.len() - step - 1;
                return;
            }
        }
    }
}

fn describe(native: &Answer, inside: &Answer, differ: &BTreeSet<u64>) -> String {
    let mut what = format!("natively {}, in the sandbox {}", native.result, inside.result);
    for word in differ.iter().take(8) {
        let show = |answer: &Answer| {
            let bytes = (*word..word + 4).map(|at| match answer.changes.get(&at) {
                Some(byte) => format!("{byte:02x}"),
                None => "--".to_owned(),
            });
            bytes.collect::<String>()
        };
        what.push_str(&format!("; at {word:x} {} and {}", show(native), show(inside)));
    }
    what
}
