//! What is to be measured.

use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;
use serde::Deserialize;
use serde::Serialize;

use crate::fabric::error::Error;
use crate::fabric::exchange::Injection;
use crate::fabric::hardware::DEPTH;
use crate::fabric::hardware::TUNING;
use crate::fabric::hardware::Tuning;
use crate::fabric::options::Common;
use crate::fabric::options::size;

/// How often each target of the pace sweep is measured: what collapses now and then does not do so
/// each time.
const PACE_REPEATS: u32 = 3;
/// In Gb/s; those that a port cannot reach are left out.
const TARGETS: &[f64] = &[1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 200.0, 400.0, 0.0];

/// A kind of measurement.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sweep {
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

/// By what messages are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    /// To the peer's memory: nothing is needed of its program
    Write,
    /// To receives that the peer's program must post in time
    Send,
    /// From the peer's memory
    Read,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is well, 1 a cell failed, a verdict is bad or a threshold \
                        is missed, 2 usage, or ranks that do not fit together, 3 a rank did not come \
                        or answer in time, 130 interrupted."
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// What to measure [default: all]
    #[arg(long = "sweep", value_enum, value_delimiter = ',', value_name = "SWEEP,...")]
    pub(crate) sweeps: Vec<Sweep>,
    /// Sizes of messages in bytes, with K or M; 1 to 1M
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    #[arg(default_value = "64,512,4K,8K,64K,1M")]
    pub(crate) sizes: Vec<usize>,
    /// Size of messages where it is not swept
    #[arg(long, value_parser = size, value_name = "SIZE", default_value = "64K")]
    pub(crate) message: usize,
    /// Targets of the pace sweep in Gb/s; 0 is unpaced [default: 1 to 400 as the ports allow, and 0]
    #[arg(long, value_delimiter = ',', value_parser = gbps, value_name = "GBPS,...")]
    pub(crate) pace: Vec<f64>,
    /// How often each cell is measured [default: 3 for the pace sweep, else 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub(crate) repeat: Option<u32>,
    /// How long each cell is measured, in seconds
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    pub(crate) seconds: f64,
    /// By what messages are sent
    #[arg(long, value_enum, default_value_t = By::Write)]
    pub(crate) by: By,
    /// Messages on their way at a time, on each connection
    #[arg(long, default_value_t = 16, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH)))]
    pub(crate) window: u32,
    /// How far a cell may be from what is expected of it, in percent
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    pub(crate) tolerance: f64,
    /// Fail when the best cell of a path is below this
    #[arg(long, value_name = "GBPS")]
    pub(crate) min_gbps: Option<f64>,
    /// Fail when the smallest size's 99th percentile of latency is above this on a path
    #[arg(long, value_name = "US")]
    pub(crate) max_p99_us: Option<f64>,
    /// How long a receiver that has no receive lets the sender wait: 1 is 0.01 ms, 12 is 0.64 ms, 31
    /// is 491.52 ms, and 0 is 655.36 ms
    #[arg(long, default_value_t = TUNING.min_rnr_timer, value_name = "CODE")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=31))]
    pub(crate) min_rnr_timer: u8,
    /// How often that is repeated; 7 is for ever
    #[arg(long, default_value_t = TUNING.rnr_retry, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) rnr_retry: u8,
    /// How long an acknowledgement may take: 4.096 us times 2 to the power of this
    #[arg(long, default_value_t = TUNING.timeout, value_name = "CODE")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(crate) ack_timeout: u8,
    /// How often what was not acknowledged is repeated
    #[arg(long, default_value_t = TUNING.retry_cnt, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) retry_cnt: u8,
    /// File for the cells as CSV, on rank 0; a cell is in it once it is measured
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// File for a plot of the sweeps, on rank 0 (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Do something wrong, as a test of what is said of it
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Injection>,
}

fn gbps(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("{text:?} is no target: give Gb/s, as 25 or 0.5; 0 is unpaced"))
}

impl BenchArgs {
    /// # Errors
    /// What cannot be measured.
    pub(crate) fn check(&self) -> Result<(), Error> {
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
        if !(self.tolerance > 0.0 && self.tolerance < 100.0) {
            return usage(format!("--tolerance {}: give a percentage below 100", self.tolerance));
        }
        Ok(())
    }

    pub(crate) fn has(&self, sweep: Sweep) -> bool {
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
        self.repeat.unwrap_or(if sweep == Sweep::Pace { PACE_REPEATS } else { 1 })
    }

    pub(crate) fn tuning(&self) -> Tuning {
        Tuning {
            min_rnr_timer: self.min_rnr_timer,
            rnr_retry: self.rnr_retry,
            timeout: self.ack_timeout,
            retry_cnt: self.retry_cnt,
        }
    }

    /// What must be the same on all ranks.
    pub(crate) fn parameters(&self) -> String {
        let Self { sweeps, sizes, message, pace, repeat, seconds, by, window, .. } = self;
        format!(
            "bench --sweep {sweeps:?} --sizes {sizes:?} --message {message} --pace {pace:?} --repeat \
             {repeat:?} --seconds {seconds} --by {by:?} --window {window} {:?}",
            self.tuning()
        )
    }
}
