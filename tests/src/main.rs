#![forbid(unsafe_code)]
//! `verbgate-lab-tests`: the tests, the demonstration and the measurements that need an RDMA device.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use clap::Parser;
use clap::Subcommand;
use verbgate_tests::bench;
use verbgate_tests::cases::Device;
use verbgate_tests::clients;
use verbgate_tests::clients::Wanted;
use verbgate_tests::demo;
use verbgate_tests::differential;
use verbgate_tests::differential::Plan;
use verbgate_tests::probe;
use verbgate_tests::runner;
use verbgate_tests::soak;
use verbgate_tests::world::World;

/// Tests of Verbgate on a real RDMA device.
#[derive(Debug, Parser)]
struct Cli {
    /// The RDMA device. [default: the first]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the cases whose names hold one of these words, or all.
    Run {
        #[arg(value_name = "WORD")]
        words: Vec<String>,
        /// The cases that need NICs of the lab of this model, instead of those for any device.
        #[arg(long, value_name = "MODEL", default_value = "rxe", value_parser = ["efa", "erdma", "mlx5", "rxe"])]
        nics: String,
    },
    /// Run the cases that the lines of stdin name, and say of each how it ends.
    Serve,
    /// Run one case in this process.
    #[command(hide = true)]
    Case { name: String },
    /// Be a guest.
    #[command(hide = true)]
    Probe {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show two sandboxes that talk RDMA, beside two programs that do it natively.
    Demo,
    /// Measure what the proxy costs.
    Bench {
        /// Between two NICs of the lab of this model, instead of on any device.
        #[arg(long, value_name = "MODEL", value_parser = ["efa", "erdma", "mlx5"])]
        nics: Option<String>,
    },
    /// Run programs that people run over RDMA, natively and in sandboxes.
    Clients {
        #[arg(value_name = "WORD")]
        words: Vec<String>,
        /// The folder of unpacked wheels.
        #[arg(long, value_name = "DIR", default_value = "/lab/clients")]
        fetched: PathBuf,
        /// Between two NICs of the lab of this model, instead of on Soft-RoCE.
        #[arg(long, value_name = "MODEL", value_parser = ["efa", "erdma", "mlx5"])]
        nics: Option<String>,
        /// Also between two containers.
        #[arg(long)]
        containers: bool,
        /// Once more, for requests by method and the moments of the start.
        #[arg(long)]
        census: bool,
    },
    /// Have sandboxes work for long, and watch what their supervisors take.
    Soak {
        /// The scenarios whose names hold one of these words, or all.
        #[arg(value_name = "WORD")]
        words: Vec<String>,
        /// Seconds for all of these together.
        #[arg(long, value_name = "S")]
        seconds: u64,
    },
    /// Measure policies, in this process.
    #[command(hide = true)]
    PolicyBench,
    /// Make the same raw requests natively and in a sandbox, and compare the answers.
    Differential {
        /// Names the sequence of requests.
        #[arg(long, default_value_t = differential::SEED)]
        seed: u64,
        /// How many.
        #[arg(long, default_value_t = differential::REQUESTS)]
        requests: usize,
        /// Only this round of them.
        #[arg(long)]
        round: Option<usize>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<u8> {
    let look = || World::look(cli.device.as_deref());
    match &cli.command {
        Command::Run { words, nics } => {
            let device = Device::find(nics).context("a device without cases")?;
            return Ok(u8::from(!runner::run(&look()?, device, words)?));
        }
        Command::Serve => runner::serve(&look()?)?,
        Command::Case { name } => return runner::run_one(&look()?, name),
        Command::Probe { arguments } => probe::run(arguments)?,
        Command::Demo => demo::run(&look()?)?,
        Command::Differential { seed, requests, round } => {
            let plan = Plan { seed: *seed, requests: *requests, round: *round };
            println!("differential: seed {seed}");
            let start = Instant::now();
            let summary = differential::run(&look()?, plan)?;
            println!("differential: {summary}");
            println!("differential: {:.0} s", start.elapsed().as_secs_f64());
            return Ok(u8::from(!summary.differences.is_empty()));
        }
        Command::Clients { words, fetched, nics, containers, census } => {
            let wanted = Wanted {
                words: words.clone(),
                fetched: fetched.clone(),
                nics: nics.clone(),
                containers: *containers,
                census: *census,
            };
            return Ok(u8::from(!clients::run(&look()?, &wanted)?));
        }
        Command::Soak { words, seconds } => {
            let time = Duration::from_secs(*seconds);
            return Ok(u8::from(!soak::run(&look()?, time, words)?));
        }
        Command::PolicyBench => bench::policy::run()?,
        Command::Bench { nics: Some(model) } => bench::doorbells::run(&look()?, model)?,
        Command::Bench { nics: None } => {
            let world = look()?;
            bench::host::mechanism(&bench::host::Programs(world.folder().to_owned()))?;
            bench::starts::run(&world)?;
            bench::sysfs::lab(&world)?;
            bench::lab::run(&world)?;
            bench::storm::run(&world)?;
            bench::neighbours::run(&world)?;
        }
    }
    Ok(0)
}
