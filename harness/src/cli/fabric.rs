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
    /// Check every rank, connect all pairs on all rails, and compare what they exchange
    Verify(FabricVerifyArgs),
    /// Measure all paths alone and together, and judge whether they are as fast as they should be
    Bench(BenchArgs),
    /// Find out what is wrong, and where: by name, with the evidence and the remedy
    Diagnose(DiagnoseArgs),
    /// Let many ranks meet and connect without verbs, for measurements
    #[command(hide = true)]
    Simulate(SimulateArgs),
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct ExplainArgs {
    /// Numbers, names or lines: 12, 0x81, RNR_RETRY, IBV_EVENT_PORT_ERR, ENODEV, out_of_sequence, or
    /// what NCCL, UCX or perftest wrote; - reads standard input
    #[arg(value_name = "CODE|LINE", required = true)]
    pub(crate) codes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Where the ranks meet, on rank 0's host [default: $VERBGATE_RENDEZVOUS, or torchrun's
    /// $MASTER_ADDR and the port after $MASTER_PORT]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) rendezvous: Option<String>,
    /// Where rank 0 listens, if that is not the address by which the others find it
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bind: Option<String>,
    /// This process's number, from 0 [default: as Slurm, Open MPI or torchrun say]
    #[arg(long)]
    pub(crate) rank: Option<u32>,
    /// How many processes there are [default: as Slurm, Open MPI or torchrun say]
    #[arg(long)]
    pub(crate) ranks: Option<u32>,
    /// A rail; may be repeated, in the same order on all ranks. Without it, all devices in the
    /// order of their names
    #[arg(long = "device", value_name = "DEVICE[:PORT][@GID_INDEX]")]
    pub(crate) devices: Vec<Choice>,
    /// How long a stage may wait for the slowest rank, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Print JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all is well, 1 a check failed, 2 usage, or ranks that do \
                        not fit together, 3 a rank did not come or answer in time.")]
pub(crate) struct FabricVerifyArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Sizes of messages in bytes, with K or M for binary thousands or millions; 0 to 1M [default:
    /// the edges of the device and some between]
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) sizes: Vec<usize>,
    /// Connect and disconnect this often before, each time with random delays
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) reconnects: u32,
    /// What those delays are made of, to have the same again [default: drawn by rank 0, and shown]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Do something wrong, as a test of what is said of it
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Word<Injection>>,
    /// File to write the report of all ranks to, on rank 0 (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 nothing is wrong, 1 causes were found, 2 usage, or ranks that \
                        do not fit together, 3 a rank did not come or answer in time."
)]
pub(crate) struct DiagnoseArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Sizes of messages in bytes, with K or M for binary thousands or millions; 0 to 1M [default:
    /// 1, 4099, 64K]
    #[arg(long, value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) sizes: Vec<usize>,
    /// Do something wrong, as a test of what is said of it
    #[arg(long, hide = true, value_name = "FAULT")]
    pub(crate) inject: Option<Word<Injection>>,
    /// File to write the report of all ranks to, on rank 0 (JSON)
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

/// Many ranks in two processes, without verbs.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    #[arg(long, default_value_t = 1000)]
    pub(crate) ranks: u32,
    /// With how many others each rank connects, one after the other
    #[arg(long, default_value_t = 10)]
    pub(crate) rounds: usize,
    /// Only the ranks, which meet here
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) at: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is well, 1 a cell failed, a verdict is bad or a threshold \
                        is missed, 2 usage, or ranks that do not fit together, 3 a rank did not come \
                        or answer in time, 130 interrupted."
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// What to measure [default: all]
    #[arg(long = "sweep", value_enum, value_delimiter = ',', value_name = "SWEEP,...")]
    pub(crate) sweeps: Vec<Word<Sweep>>,
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
    #[arg(long, default_value_t = BenchOptions::default().seconds, value_name = "SECONDS")]
    pub(crate) seconds: f64,
    /// By what messages are sent
    #[arg(long, value_enum, default_value_t = Word(By::Write))]
    pub(crate) by: Word<By>,
    /// Messages on their way at a time, on each connection
    #[arg(long, default_value_t = BenchOptions::default().window, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(BenchOptions::WINDOW_MAX)))]
    pub(crate) window: u32,
    /// How far a cell may be from what is expected of it, in percent
    #[arg(long, default_value_t = BenchOptions::default().tolerance, value_name = "PERCENT")]
    pub(crate) tolerance: f64,
    /// Fail when the best cell of a path is below this
    #[arg(long, value_name = "GBPS")]
    pub(crate) min_gbps: Option<f64>,
    /// Fail when the smallest size's 99th percentile of latency is above this on a path
    #[arg(long, value_name = "US")]
    pub(crate) max_p99_us: Option<f64>,
    /// How long a receiver that has no receive lets the sender wait: 1 is 0.01 ms, 12 is 0.64 ms, 31
    /// is 491.52 ms, and 0 is 655.36 ms
    #[arg(long, default_value_t = BenchOptions::default().min_rnr_timer, value_name = "CODE")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=31))]
    pub(crate) min_rnr_timer: u8,
    /// How often that is repeated; 7 is for ever
    #[arg(long, default_value_t = BenchOptions::default().rnr_retry, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) rnr_retry: u8,
    /// How long an acknowledgement may take: 4.096 us times 2 to the power of this
    #[arg(long, default_value_t = BenchOptions::default().ack_timeout, value_name = "CODE")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=31))]
    pub(crate) ack_timeout: u8,
    /// How often what was not acknowledged is repeated
    #[arg(long, default_value_t = BenchOptions::default().retry_cnt, value_name = "N")]
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
    pub(crate) inject: Option<Word<Injection>>,
}

fn gbps(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("{text:?} is no target: give Gb/s, as 25 or 0.5; 0 is unpaced"))
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

/// One of a library's words, as the value of an option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<T>(pub(crate) T);

/// Which words there are, and what they mean, is the library's to say.
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
