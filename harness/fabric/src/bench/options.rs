//! The options of a benchmark.

use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use verbgate_verbs::Transport;

use crate::error::Error;
use crate::files::Outputs;
use crate::hardware::DEPTH;
use crate::hardware::LARGEST;
use crate::hardware::LONGEST_MESSAGE;
use crate::hardware::Needs;
use crate::hardware::TUNING;
use crate::hardware::Tuning;
use crate::injection::Injection;
use crate::options::Common;
use crate::options::transport_word;
use crate::random;

/// How often each cell of the sweeps of sizes and pace is measured: what collapses now and then does not do so
/// each time.
const REPEATS: u32 = 3;
/// In Gb/s; those that a port cannot reach are left out.
const TARGETS: &[f64] = &[1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 200.0, 400.0, 0.0];

/// A kind of measurement.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// One message at a time, of each size
    Latency,
    /// As many messages as go, of each size
    Sizes,
    /// Targets of bandwidth
    Pace,
    /// Both ends of a pair at the same time
    Bidirectional,
    /// Every rank to every other, on all rails at the same time
    AllToAll,
    /// Every rank to the next, on all rails at the same time
    Ring,
}

impl Sweep {
    /// Each by the word that says it, and what it does.
    pub const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Latency, "latency", "One message at a time, of each size: latency"),
        (Self::Sizes, "sizes", "As many messages as possible, of each size: bandwidth"),
        (Self::Pace, "pace", "Messages at each target bandwidth"),
        (Self::Bidirectional, "bidirectional", "Both ends of a pair at the same time"),
        (Self::AllToAll, "all-to-all", "Every rank to every other, on all rails at the same time"),
        (Self::Ring, "ring", "Every rank to the next, on all rails at the same time"),
    ];

    /// The word.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(of, ..)| *of == self).map_or("", |(_, word, _)| word)
    }
}

/// By what messages are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// To the peer's memory: nothing is needed of its program
    Write,
    /// To receives that the peer's program must post in time
    Send,
    /// From the peer's memory
    Read,
}

impl By {
    /// Each by the word that says it, and what it does.
    pub const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Write, "write", "RDMA write into the peer's memory, without the peer's program"),
        (Self::Send, "send", "Send to receives that the peer's program must post in time"),
        (Self::Read, "read", "RDMA read from the peer's memory"),
    ];
}

/// What to measure, and what is asked of it.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Who this rank is.
    pub common: Common,
    /// Kinds of measurements; all if there are none.
    pub sweeps: Vec<Sweep>,
    /// Sizes of messages in bytes, from 1.
    pub sizes: Vec<usize>,
    /// The size of messages where it is not swept.
    pub message: usize,
    /// Targets of the pace sweep in Gb/s, 0 is unpaced; those that the ports can reach if there are
    /// none.
    pub pace: Vec<f64>,
    /// How often each cell is measured; 3 times in the sweeps of sizes and pace, else once, if it is
    /// not given.
    pub repeat: Option<u32>,
    /// How long each cell is measured, in seconds.
    pub seconds: f64,
    /// By what messages are sent.
    pub by: By,
    /// Messages on their way at a time, on each connection; 1 to [`BenchOptions::WINDOW_MAX`].
    pub window: u32,
    /// Queue pairs of each path, 1 to [`BenchOptions::QUEUE_PAIRS_MAX`]; latency is measured on one.
    pub queue_pairs: u32,
    /// Threads that post and poll, each on queue pairs of its own, 1 to [`BenchOptions::THREADS_MAX`]; at
    /// least as many queue pairs are made.
    pub threads: u32,
    /// Completions are waited for by events, and not polled for.
    pub events: bool,
    /// How far a cell may be from what is expected of it, in percent.
    pub tolerance: f64,
    /// The least that the best cell of a path may have.
    pub min_gbps: Option<f64>,
    /// The most that the smallest size's 99th percentile of latency may be on a path, in
    /// microseconds.
    pub max_p99_us: Option<f64>,
    /// How long a receiver that has no receive lets the sender wait, as the device counts: 0 to 31.
    pub min_rnr_timer: u8,
    /// How often that is repeated: 0 to 6, and 7 is for ever.
    pub rnr_retry: u8,
    /// How long an acknowledgement may take: 4.096 us times 2 to the power of this, 1 to 31.
    pub ack_timeout: u8,
    /// How often what was not acknowledged is repeated: 0 to 7.
    pub retry_cnt: u8,
    /// One round of disjoint pairs and few sizes, and then more where it is slow.
    pub quick: bool,
    /// So many rounds of disjoint pairs; all if it is not given.
    pub sample: Option<u32>,
    /// These pairs alone; all if there are none.
    pub pairs: Vec<(u32, u32)>,
    /// The time that the plan must fit into, in seconds.
    pub within: Option<f64>,
    /// Each rail by itself, and not all at the same time.
    pub one_rail: bool,
    /// The least part of the port's rate that each path must reach, in percent.
    pub min_share: f64,
    /// The least part of the median of all paths that each path must reach, in percent.
    pub min_of_median: f64,
    /// The most that the latency of a path may be, times the least of all paths.
    pub max_times_least: f64,
    /// All cells are printed, however many there are.
    pub details: bool,
    /// What to write beside what is printed.
    pub outputs: Outputs,
    /// File for the cells as CSV, on rank 0.
    pub csv: Option<PathBuf>,
    /// File for a plot of the sweeps, on rank 0 (SVG).
    pub plot: Option<PathBuf>,
    /// A fault to put in, for tests.
    pub inject: Option<Injection>,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            common: Common::default(),
            sweeps: Vec::new(),
            sizes: vec![64, 512, 4 << 10, 8 << 10, 64 << 10, 1 << 20],
            message: 64 << 10,
            pace: Vec::new(),
            repeat: None,
            seconds: 0.5,
            by: By::Write,
            window: 16,
            queue_pairs: 1,
            threads: 1,
            events: false,
            tolerance: 10.0,
            min_gbps: None,
            max_p99_us: None,
            min_rnr_timer: TUNING.min_rnr_timer,
            rnr_retry: TUNING.rnr_retry,
            ack_timeout: TUNING.timeout,
            retry_cnt: TUNING.retry_cnt,
            quick: false,
            sample: None,
            pairs: Vec::new(),
            within: Some(600.0),
            one_rail: false,
            min_share: 80.0,
            min_of_median: 90.0,
            max_times_least: 2.5,
            details: false,
            outputs: Outputs::default(),
            csv: None,
            plot: None,
            inject: None,
        }
    }
}

impl BenchOptions {
    /// The largest [`BenchOptions::window`].
    pub const WINDOW_MAX: u32 = DEPTH;
    /// The largest [`BenchOptions::queue_pairs`].
    pub const QUEUE_PAIRS_MAX: u32 = 64;
    /// The largest [`BenchOptions::threads`].
    pub const THREADS_MAX: u32 = 64;
    /// The largest message, in bytes.
    pub const SIZE_MAX: usize = LONGEST_MESSAGE;

    /// What the measurements need of each rail.
    pub(crate) fn needs(&self) -> Needs {
        let longest = self.sizes.iter().copied().chain([self.message, LARGEST]).max();
        let longest = longest.unwrap_or(LARGEST);
        let (threads, events) = (self.threads, self.events);
        let lanes = self.queue_pairs.max(threads);
        Needs { lanes, threads, longest, events, ..self.common.needs() }
    }

    /// # Errors
    /// What cannot be measured.
    pub fn check(&self) -> Result<(), Error> {
        let usage = |text: String| Err(Error::Usage(text));
        if self.sizes.contains(&0) || self.message == 0 {
            return usage("messages of 0 bytes have no bandwidth: give sizes from 1".into());
        }
        let hour = 3600.0;
        if !(self.seconds > 0.0 && self.seconds <= hour) {
            return usage(format!(
                "--seconds {}: give more than 0, and at most {hour}",
                self.seconds
            ));
        }
        for (option, percent) in
            [("--min-share", self.min_share), ("--min-of-median", self.min_of_median)]
        {
            if !(0.0..=100.0).contains(&percent) {
                return usage(format!("{option} {percent}: give a percentage up to 100"));
            }
        }
        if self.max_times_least.is_nan() || self.max_times_least < 1.0 {
            return usage(format!("--max-times-least {}: give 1 or more", self.max_times_least));
        }
        if self.within.is_some_and(|within| within.is_nan() || within <= 0.0) {
            return usage("--within 0: give a time, as in 10m".into());
        }
        if !(self.tolerance > 0.0 && self.tolerance < 100.0) {
            return usage(format!("--tolerance {}: give a percentage below 100", self.tolerance));
        }
        Ok(())
    }

    /// The same, as far as datagrams of this length carry it: sends that are no longer, and no latency of
    /// what nobody acknowledges.
    ///
    /// # Errors
    /// When nothing is left.
    pub(crate) fn fitted(&self, longest: usize) -> Result<Self, Error> {
        let mut args = self.clone();
        match (args.common.transport, args.by) {
            (Transport::Rc, _) | (Transport::Srd, By::Write | By::Read) => return Ok(args),
            (Transport::Srd, By::Send) => {}
            (Transport::Ud, _) => {
                args.by = By::Send;
                if args.sweeps.is_empty() {
                    args.sweeps = Sweep::WORDS.iter().map(|(sweep, ..)| *sweep).collect();
                }
                args.sweeps.retain(|sweep| *sweep != Sweep::Latency);
            }
        }
        args.sizes.retain(|size| *size <= longest);
        args.message = args.message.min(longest);
        if args.sizes.is_empty() || args.sweeps.is_empty() && !self.sweeps.is_empty() {
            return Err(Error::Usage(format!(
                "--transport {}: a datagram has at most {longest} bytes here, and no latency if it is not \
                 reliable: give smaller --sizes, and another --sweep",
                transport_word(args.common.transport)
            )));
        }
        Ok(args)
    }

    /// Whether this kind of measurement is asked for.
    pub fn has(&self, sweep: Sweep) -> bool {
        self.sweeps.is_empty() || self.sweeps.contains(&sweep)
    }

    /// Targets in Gb/s on a port of this rate; none is unpaced.
    pub(crate) fn targets(&self, rate: Option<f64>) -> Vec<Option<f64>> {
        let reachable = |target: &&f64| rate.is_none_or(|rate| **target <= rate);
        let targets: Vec<f64> = match self.pace.as_slice() {
            [] => TARGETS.iter().filter(reachable).copied().collect(),
            given => given.to_vec(),
        };
        targets.into_iter().map(|target| Some(target).filter(|target| *target > 0.0)).collect()
    }

    pub(crate) fn repeats(&self, sweep: Sweep) -> u32 {
        self.repeat.unwrap_or(if matches!(sweep, Sweep::Pace | Sweep::Sizes) { REPEATS } else { 1 })
    }

    pub(crate) fn tuning(&self) -> Tuning {
        Tuning {
            min_rnr_timer: self.min_rnr_timer,
            rnr_retry: self.rnr_retry,
            timeout: self.ack_timeout,
            retry_cnt: self.retry_cnt,
        }
    }

    /// The smallest and the largest size alone, each once.
    pub(crate) fn shorten(&mut self) {
        self.repeat = Some(1);
        self.sizes.sort_unstable();
        if let (Some(first), Some(last)) = (self.sizes.first().copied(), self.sizes.last().copied())
        {
            self.sizes = vec![first, last];
            self.sizes.dedup();
        }
    }

    /// What must be the same on all ranks.
    pub(crate) fn parameters(&self) -> String {
        let Self { sweeps, sizes, message, pace, repeat, seconds, by, window, .. } = self;
        let Self { quick, sample, pairs, within, one_rail, queue_pairs, threads, events, .. } =
            self;
        let pairs = random::hash(format!("{pairs:?}").as_bytes());
        format!(
            "bench --sweep {sweeps:?} --sizes {sizes:?} --message {message} --pace {pace:?} \
             --repeat {repeat:?} --seconds {seconds} --by {by:?} --window {window} {:?} --quick \
             {quick} --sample {sample:?} --pairs {pairs:x} --within {within:?} --one-rail {one_rail} \
             --qps {queue_pairs} --threads {threads} --events {events}",
            self.tuning()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_datagrams_that_is_measured_which_they_carry() {
        let of = |transport, by| BenchOptions {
            common: Common { transport, ..Common::default() },
            by,
            ..BenchOptions::default()
        };
        let ud = of(Transport::Ud, By::Write).fitted(4096).unwrap();
        assert_eq!((ud.by, ud.message, ud.sizes.last()), (By::Send, 4096, Some(&4096)));
        assert!(!ud.has(Sweep::Latency) && ud.has(Sweep::Ring));
        let srd = of(Transport::Srd, By::Write).fitted(4096).unwrap();
        assert!(srd.sizes.contains(&(1 << 20)) && srd.has(Sweep::Latency));
        assert_eq!(of(Transport::Srd, By::Send).fitted(8928).unwrap().message, 8928);
        let latency = BenchOptions { sweeps: vec![Sweep::Latency], ..of(Transport::Ud, By::Send) };
        for (options, longest) in [(latency, 4096), (of(Transport::Ud, By::Send), 32)] {
            let error = options.fitted(longest).unwrap_err();
            assert!(
                error.to_string().contains("--transport ud: a datagram has at most"),
                "{error}"
            );
        }
    }

    /// What is told by a word is written by the same word.
    #[test]
    fn words_are_those_of_the_reports() {
        for (sweep, word, _) in Sweep::WORDS {
            assert_eq!(serde_json::to_value(sweep).unwrap(), *word);
        }
        for (by, word, _) in By::WORDS {
            assert_eq!(serde_json::to_value(by).unwrap(), *word);
        }
    }
}
