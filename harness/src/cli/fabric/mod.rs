//! The command line of `verbgate fabric` and `verbgate explain`.

mod common;

use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;
use clap::builder::PossibleValue;

use verbgate_fabric::BenchOptions;
use verbgate_fabric::By;
use verbgate_fabric::Common;
use verbgate_fabric::Connect;
use verbgate_fabric::DiagnoseOptions;
use verbgate_fabric::Injection;
use verbgate_fabric::MEMORY_WORDS;
use verbgate_fabric::Memory;
use verbgate_fabric::Outputs;
use verbgate_fabric::SimulateOptions;
use verbgate_fabric::Sweep;
use verbgate_fabric::TRANSPORT_WORDS;
use verbgate_fabric::Transport;
use verbgate_fabric::VerifyOptions;
use verbgate_fabric::message_size;
use verbgate_fabric::size;

use self::common::ChoosingArgs;
use self::common::CommonArgs;
use self::common::OutputArgs;
use self::common::duration;
use self::common::gbps;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum FabricCommand {
    /// Check every rank, connect all pairs on all rails, and compare all received data
    Verify(FabricVerifyArgs),
    /// Measure every path, alone and together, and judge the speed
    Bench(BenchArgs),
    /// Find each fault, and print the name, place, evidence and remedy
    Diagnose(DiagnoseArgs),
    /// Simulate many ranks without verbs, to measure how they meet and connect
    #[command(hide = true)]
    Simulate(SimulateArgs),
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct ExplainArgs {
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
    /// Codes, names or log lines: 12, 0x81, RNR_RETRY, IBV_EVENT_PORT_ERR, ENODEV, out_of_sequence,
    /// or a line of NCCL, UCX or perftest; - reads standard input
    #[arg(value_name = "CODE|LINE", required = true)]
    pub(crate) codes: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is well, 1 a check failed, 2 wrong usage, or ranks that \
                        do not fit together, 3 a rank was missing or did not answer in time, 130 \
                        interrupted."
)]
pub(crate) struct FabricVerifyArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Message sizes in bytes, 0 to 1M; K and M are binary [default: the device's limits and some
    /// sizes between]
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) sizes: Vec<usize>,
    /// Number of reconnections before the exchange, each after random delays
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) reconnects: u32,
    #[command(flatten)]
    pub(crate) choosing: ChoosingArgs,
    /// Time that the exchanges may take, as in 90s, 10m or 2h: fewer rounds are tried, and the plan is
    /// printed first [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) within: Option<f64>,
    /// Seed of the random delays, to repeat a run [default: rank 0 draws a seed and prints the
    /// seed]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Fault to inject on purpose, for tests
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Word<Injection>>,
    /// File for the report of all ranks (JSON); rank 0 writes the file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 nothing is wrong, 1 causes were found, 2 wrong usage, or \
                        ranks that do not fit together, 3 a rank was missing or did not answer in \
                        time, 130 interrupted.")]
pub(crate) struct DiagnoseArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Message sizes in bytes, 0 to 1M; K and M are binary [default: 1, 4099, 64K]
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) sizes: Vec<usize>,
    #[command(flatten)]
    pub(crate) choosing: ChoosingArgs,
    /// Time that the exchanges may take, as in 90s, 10m or 2h: fewer rounds are tried, and the plan is
    /// printed first [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) within: Option<f64>,
    /// Fault to inject on purpose, for tests
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Word<Injection>>,
    /// File for the report of all ranks (JSON); rank 0 writes the file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

// Many ranks in two processes, without verbs.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    #[arg(long, default_value_t = 1000)]
    pub(crate) ranks: u32,
    /// Number of other ranks that each rank connects to, one after the other
    #[arg(long, default_value_t = 10)]
    pub(crate) rounds: usize,
    /// Address of a running rendezvous: run the ranks alone, which meet there
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) at: Option<String>,
    /// Rails of each rank: simulate a cluster with checks, rounds, reports and findings, too
    #[arg(long, default_value_t = 0)]
    pub(crate) rails: usize,
    /// Fault of the cluster, as in nothing-arrives@rank=5,rail=2; may be repeated
    #[arg(long = "fault", value_name = "CAUSE@PLACE")]
    pub(crate) faults: Vec<String>,
    /// Outcome of an earlier run (--save): write its outputs, and simulate nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) outcome: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is well, 1 a cell failed, a verdict is bad or a threshold \
                        is missed, 2 wrong usage, or ranks that do not fit together, 3 a rank was \
                        missing or did not answer in time, 130 interrupted."
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Measurements to make [default: all]
    #[arg(long = "sweep", value_enum, value_delimiter = ',', value_name = "SWEEP,...")]
    pub(crate) sweeps: Vec<Word<Sweep>>,
    /// Message sizes in bytes, 1 to 1G; K, M and G are binary
    #[arg(long, value_delimiter = ',', value_parser = message_size, value_name = "SIZE,...")]
    #[arg(default_value = "64,512,4K,8K,64K,1M")]
    pub(crate) sizes: Vec<usize>,
    /// Message size for the sweeps that do not vary the size
    #[arg(long, value_parser = message_size, value_name = "SIZE", default_value = "64K")]
    pub(crate) message: usize,
    /// Target bandwidths of the pace sweep in Gb/s; 0 is unpaced [default: 1 to 400 as the ports
    /// allow, and 0]
    #[arg(long, value_delimiter = ',', value_parser = gbps, value_name = "GBPS,...")]
    pub(crate) pace: Vec<f64>,
    #[command(flatten)]
    pub(crate) choosing: ChoosingArgs,
    /// Time that the plan must fit into, as in 90s, 10m or 2h: fewer rounds, repeats and sizes are
    /// measured, and the plan is printed first
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub(crate) within: f64,
    /// Measure without a limit of time
    #[arg(long, conflicts_with = "within")]
    pub(crate) all: bool,
    /// Measure rails one after another, and not at the same time
    #[arg(long)]
    pub(crate) one_rail: bool,
    /// Fail if a path reaches less of its ports' rate than this
    #[arg(long, default_value_t = BenchOptions::default().min_share, value_name = "PERCENT")]
    pub(crate) min_share: f64,
    /// Fail if a path reaches less of the median of all paths than this
    #[arg(long, default_value_t = BenchOptions::default().min_of_median, value_name = "PERCENT")]
    pub(crate) min_of_median: f64,
    /// Fail if a path's latency is above this many times the least of all paths
    #[arg(long, default_value_t = BenchOptions::default().max_times_least, value_name = "TIMES")]
    pub(crate) max_times_least: f64,
    /// Print every cell, however many there are
    #[arg(long)]
    pub(crate) details: bool,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
    /// Number of times to measure each cell [default: 3 for the sweeps of sizes and pace, else 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub(crate) repeat: Option<u32>,
    /// Seconds to measure each cell
    #[arg(long, default_value_t = BenchOptions::default().seconds, value_name = "SECONDS")]
    pub(crate) seconds: f64,
    /// Verb that sends the messages; with --transport ud always send
    #[arg(long, value_enum, default_value_t = Word(By::Write))]
    pub(crate) by: Word<By>,
    /// Messages in flight at a time, on each connection
    #[arg(long, default_value_t = BenchOptions::default().window, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(BenchOptions::WINDOW_MAX)))]
    pub(crate) window: u32,
    /// Queue pairs of each path; latency is measured on one
    #[arg(long = "qps", default_value_t = BenchOptions::default().queue_pairs, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(BenchOptions::QUEUE_PAIRS_MAX)))]
    pub(crate) queue_pairs: u32,
    /// Threads that post and poll, each on queue pairs of its own
    #[arg(long, default_value_t = BenchOptions::default().threads, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(BenchOptions::THREADS_MAX)))]
    pub(crate) threads: u32,
    /// Sleep until a completion event comes, as programs that do not poll
    #[arg(long)]
    pub(crate) events: bool,
    /// Percent by which a cell may miss the expected value
    #[arg(long, default_value_t = BenchOptions::default().tolerance, value_name = "PERCENT")]
    pub(crate) tolerance: f64,
    /// Fail if the best cell of a path is below this bandwidth
    #[arg(long, value_name = "GBPS")]
    pub(crate) min_gbps: Option<f64>,
    /// Fail if the 99th percentile of a path's latency, at the smallest size, is above this
    #[arg(long, value_name = "US")]
    pub(crate) max_p99_us: Option<f64>,
    /// Time that a sender waits when the receiver has posted no receive: 1 is 0.01 ms, 12 is 0.64
    /// ms, 31 is 491.52 ms, and 0 is 655.36 ms
    #[arg(long, default_value_t = BenchOptions::default().min_rnr_timer, value_name = "CODE")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=31))]
    pub(crate) min_rnr_timer: u8,
    /// Retries when the receiver has posted no receive; 7 is for ever
    #[arg(long, default_value_t = BenchOptions::default().rnr_retry, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) rnr_retry: u8,
    /// Time to wait for an acknowledgement: 4.096 us times 2 to the power of CODE
    #[arg(long, default_value_t = BenchOptions::default().ack_timeout, value_name = "CODE")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(crate) ack_timeout: u8,
    /// Retries when no acknowledgement comes
    #[arg(long, default_value_t = BenchOptions::default().retry_cnt, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) retry_cnt: u8,
    /// File for the cells (CSV); rank 0 writes each cell as soon as the cell is measured
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// File for a plot of the sweeps (SVG); rank 0 writes the file
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Fault to inject on purpose, for tests
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Word<Injection>>,
}

impl From<&FabricVerifyArgs> for VerifyOptions {
    fn from(args: &FabricVerifyArgs) -> Self {
        Self {
            common: Common::from(&args.common),
            sizes: args.sizes.clone(),
            reconnects: args.reconnects,
            seed: args.seed,
            choosing: args.choosing.with(args.within),
            inject: args.inject.map(|word| word.0),
            report: args.report.clone(),
            outputs: Outputs::from(&args.outputs),
        }
    }
}

impl From<&DiagnoseArgs> for DiagnoseOptions {
    fn from(args: &DiagnoseArgs) -> Self {
        Self {
            common: Common::from(&args.common),
            sizes: args.sizes.clone(),
            choosing: args.choosing.with(args.within),
            inject: args.inject.map(|word| word.0),
            report: args.report.clone(),
            outputs: Outputs::from(&args.outputs),
        }
    }
}

impl From<&SimulateArgs> for SimulateOptions {
    fn from(args: &SimulateArgs) -> Self {
        Self {
            ranks: args.ranks,
            rounds: args.rounds,
            at: args.at.clone(),
            rails: args.rails,
            faults: args.faults.clone(),
            outcome: args.outcome.clone(),
            outputs: Outputs::from(&args.outputs),
        }
    }
}

impl From<&BenchArgs> for BenchOptions {
    fn from(args: &BenchArgs) -> Self {
        Self {
            common: Common::from(&args.common),
            sweeps: args.sweeps.iter().map(|word| word.0).collect(),
            sizes: args.sizes.clone(),
            message: args.message,
            pace: args.pace.clone(),
            repeat: args.repeat,
            seconds: args.seconds,
            by: args.by.0,
            window: args.window,
            queue_pairs: args.queue_pairs,
            threads: args.threads,
            events: args.events,
            tolerance: args.tolerance,
            min_gbps: args.min_gbps,
            max_p99_us: args.max_p99_us,
            min_rnr_timer: args.min_rnr_timer,
            rnr_retry: args.rnr_retry,
            ack_timeout: args.ack_timeout,
            retry_cnt: args.retry_cnt,
            quick: args.choosing.quick,
            sample: args.choosing.sample,
            pairs: args.choosing.with(None).pairs,
            within: Some(args.within).filter(|_| !args.all),
            one_rail: args.one_rail,
            min_share: args.min_share,
            min_of_median: args.min_of_median,
            max_times_least: args.max_times_least,
            details: args.details,
            outputs: Outputs::from(&args.outputs),
            csv: args.csv.clone(),
            plot: args.plot.clone(),
            inject: args.inject.map(|word| word.0),
        }
    }
}

/// A word of the library, as the value of an option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<T>(pub(crate) T);

/// Makes the library's words the values of an option; the library says what each word means.
macro_rules! words {
    ($($of:ident in $words:expr => { $($value:ident)+ })+) => {$(
        impl ValueEnum for Word<$of> {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self($of::$value)),+]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                let (_, word, help) = $words.iter().find(|(of, ..)| *of == self.0)?;
                Some(PossibleValue::new(word).help(help))
            }
        }
    )+};
}

words! {
    Sweep in Sweep::WORDS => { Latency Sizes Pace Bidirectional AllToAll Ring }
    By in By::WORDS => { Write Send Read }
    Connect in Connect::WORDS => { Rendezvous RdmaCm }
    Transport in TRANSPORT_WORDS => { Rc Ud Srd }
    Memory in MEMORY_WORDS => { Host DmaBuf }
    Injection in Injection::WORDS => {
        NoReceives WrongRkey Segments Exit Hang Patient RoceV1 WrongData ForeignMemory LongInline
        Unsignaled WrongAddress Lossy NoListener SilentAddress DeadQueuePair Disconnect
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parsed(words: &[&str]) -> BenchOptions {
        let line = Line::try_parse_from(["x"].iter().chain(words)).unwrap();
        BenchOptions::from(&line.bench)
    }

    #[test]
    fn what_is_not_asked_for_is_the_librarys_default() {
        let (told, default) = (parsed(&[]), BenchOptions::default());
        assert_eq!(format!("{told:?}"), format!("{default:?}"));
    }

    #[test]
    fn every_word_of_the_library_can_be_said() {
        for (sweep, word, _) in Sweep::WORDS {
            assert_eq!(parsed(&["--sweep", word]).sweeps, [*sweep]);
        }
        for (by, word, _) in By::WORDS {
            assert_eq!(parsed(&["--by", word]).by, *by);
        }
        for (fault, word, _) in Injection::WORDS {
            assert_eq!(parsed(&["--inject", word]).inject, Some(*fault));
        }
    }
}
