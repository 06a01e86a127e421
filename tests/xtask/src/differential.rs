//! `cargo xtask differential`: the same raw requests natively and in a sandbox, in the lab.

use std::process::ExitCode;
use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;
use verbgate_tests::differential;

use crate::guest::Programs;
use crate::guest::TESTS;

/// From boot to power-off.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(60 * 60));

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel of the virtual machine.
    #[arg(long, default_value = "6.12", value_name = "K")]
    kernel: String,
    /// Number that names the sequence of requests.
    #[arg(long, default_value_t = differential::SEED, value_name = "N")]
    seed: u64,
    /// Run a new sequence, under a random seed.
    #[arg(long, conflicts_with = "seed")]
    new_seed: bool,
    /// Number of requests.
    #[arg(long, default_value_t = differential::REQUESTS, value_name = "N")]
    requests: usize,
    /// Round of the sequence to run, without the others.
    #[arg(long, value_name = "N")]
    round: Option<usize>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kernel = Kernel::find(&args.kernel)?;
    let programs = Programs::build()?;
    let seed = if args.new_seed { now() } else { args.seed };
    let mut argv = vec![TESTS.to_owned(), "differential".to_owned()];
    argv.extend(["--seed".to_owned(), seed.to_string()]);
    argv.extend(["--requests".to_owned(), args.requests.to_string()]);
    argv.extend(args.round.map(|round| format!("--round={round}")));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut stdout = std::io::stdout().lock();
    let status = programs.run_in_lab(kernel, &argv, LIMIT, &mut stdout)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
