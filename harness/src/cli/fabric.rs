//! The command line of `verbgate fabric` and `verbgate explain`.

use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;
use clap::builder::PossibleValue;

use verbgate_fabric::BenchOptions;
use verbgate_fabric::By;
use verbgate_fabric::Choice;
use verbgate_fabric::Common;
use verbgate_fabric::DiagnoseOptions;
use verbgate_fabric::Injection;
use verbgate_fabric::SimulateOptions;
use verbgate_fabric::Sweep;
use verbgate_fabric::VerifyOptions;
use verbgate_fabric::size;

#[derive(Debug, Subcommand)]
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
    /// Codes, names or log lines: 12, 0x81, RNR_RETRY, IBV_EVENT_PORT_ERR, ENODEV, out_of_sequence,
    /// or a line of NCCL, UCX or perftest; - reads standard input
    #[arg(value_name = "CODE|LINE", required = true)]
    pub(crate) codes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Address on rank 0's host where the ranks meet [default: $VERBGATE_RENDEZVOUS, or torchrun's
    /// $MASTER_ADDR and the port after $MASTER_PORT]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) rendezvous: Option<String>,
    /// Address that rank 0 listens on [default: the address of --rendezvous]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bind: Option<String>,
    /// Number of this rank, from 0 [default: from Slurm, Open MPI or torchrun]
    #[arg(long)]
    pub(crate) rank: Option<u32>,
    /// Number of ranks [default: from Slurm, Open MPI or torchrun]
    #[arg(long)]
    pub(crate) ranks: Option<u32>,
    /// Device to use as the next rail; may be repeated, in the same order on all ranks [default:
    /// all devices, in the order of their names]
    #[arg(long = "device", value_name = "DEVICE[:PORT][@GID_INDEX]")]
    pub(crate) devices: Vec<Choice>,
    /// Seconds that a stage may wait for the slowest rank
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is well, 1 a check failed, 2 wrong usage, or ranks that \
                        do not fit together, 3 a rank was missing or did not answer in time."
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
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 nothing is wrong, 1 causes were found, 2 wrong usage, or \
                        ranks that do not fit together, 3 a rank was missing or did not answer in \
                        time.")]
pub(crate) struct DiagnoseArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Message sizes in bytes, 0 to 1M; K and M are binary [default: 1, 4099, 64K]
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) sizes: Vec<usize>,
    /// Fault to inject on purpose, for tests
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Word<Injection>>,
    /// File for the report of all ranks (JSON); rank 0 writes the file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Many ranks in two processes, without verbs.
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
    /// Message sizes in bytes, 1 to 1M; K and M are binary
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    #[arg(default_value = "64,512,4K,8K,64K,1M")]
    pub(crate) sizes: Vec<usize>,
    /// Message size for the sweeps that do not vary the size
    #[arg(long, value_parser = size, value_name = "SIZE", default_value = "64K")]
    pub(crate) message: usize,
    /// Target bandwidths of the pace sweep in Gb/s; 0 is unpaced [default: 1 to 400 as the ports
    /// allow, and 0]
    #[arg(long, value_delimiter = ',', value_parser = gbps, value_name = "GBPS,...")]
    pub(crate) pace: Vec<f64>,
    /// Number of times to measure each cell [default: 3 for the pace sweep, else 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub(crate) repeat: Option<u32>,
    /// Seconds to measure each cell
    #[arg(long, default_value_t = BenchOptions::default().seconds, value_name = "SECONDS")]
    pub(crate) seconds: f64,
    /// Verb that sends the messages
    #[arg(long, value_enum, default_value_t = Word(By::Write))]
    pub(crate) by: Word<By>,
    /// Messages in flight at a time, on each connection
    #[arg(long, default_value_t = BenchOptions::default().window, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(BenchOptions::WINDOW_MAX)))]
    pub(crate) window: u32,
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

fn gbps(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| number.is_finite() && *number >= 0.0).ok_or_else(|| {
        format!("{text:?} is not a target bandwidth: give Gb/s, as in 25 or 0.5; 0 is unpaced")
    })
}

impl From<&CommonArgs> for Common {
    fn from(args: &CommonArgs) -> Self {
        Self {
            rendezvous: args.rendezvous.clone(),
            bind: args.bind.clone(),
            rank: args.rank,
            ranks: args.ranks,
            devices: args.devices.clone(),
            timeout: args.timeout,
            json: args.json,
        }
    }
}

impl From<&FabricVerifyArgs> for VerifyOptions {
    fn from(args: &FabricVerifyArgs) -> Self {
        Self {
            common: Common::from(&args.common),
            sizes: args.sizes.clone(),
            reconnects: args.reconnects,
            seed: args.seed,
            inject: args.inject.map(|word| word.0),
            report: args.report.clone(),
        }
    }
}

impl From<&DiagnoseArgs> for DiagnoseOptions {
    fn from(args: &DiagnoseArgs) -> Self {
        Self {
            common: Common::from(&args.common),
            sizes: args.sizes.clone(),
            inject: args.inject.map(|word| word.0),
            report: args.report.clone(),
        }
    }
}

impl From<&SimulateArgs> for SimulateOptions {
    fn from(args: &SimulateArgs) -> Self {
        Self { ranks: args.ranks, rounds: args.rounds, at: args.at.clone() }
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
            tolerance: args.tolerance,
            min_gbps: args.min_gbps,
            max_p99_us: args.max_p99_us,
            min_rnr_timer: args.min_rnr_timer,
            rnr_retry: args.rnr_retry,
            ack_timeout: args.ack_timeout,
            retry_cnt: args.retry_cnt,
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
    ($($of:ident { $($value:ident)+ })+) => {$(
        impl ValueEnum for Word<$of> {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self($of::$value)),+]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                let (_, word, help) = $of::WORDS.iter().find(|(of, ..)| *of == self.0)?;
                Some(PossibleValue::new(word).help(help))
            }
        }
    )+};
}

words! {
    Sweep { Latency Sizes Pace Bidirectional AllToAll Ring }
    By { Write Send Read }
    Injection { NoReceives WrongRkey Segments Exit Hang Patient RoceV1 }
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
