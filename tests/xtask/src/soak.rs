//! `cargo xtask soak`: sandboxes work for long, in the lab.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;

use crate::guest::Programs;
use crate::guest::TESTS;

/// For the boot, and for the last rounds of guests, which end after the time is over.
const FAREWELL: Duration = Duration::from_secs(90 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel of the virtual machine.
    #[arg(long, default_value = "6.12", value_name = "K")]
    kernel: String,
    /// Minutes for all scenarios that are run; each of them has the same share.
    #[arg(long, default_value_t = 60, value_name = "N")]
    minutes: u64,
    /// Only the scenarios whose names hold WORD; may be repeated.
    #[arg(long = "scenario", value_name = "WORD")]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let kernel = Kernel::find(&args.kernel)?;
    let time = Duration::from_secs(args.minutes * 60);
    let programs = Programs::build()?;
    println!("$ cargo xtask soak --kernel {} --minutes {}", kernel.name, args.minutes);
    let seconds = time.as_secs().to_string();
    let mut argv = vec![TESTS, "soak", "--seconds", &seconds];
    argv.extend(args.words.iter().map(String::as_str));
    let limit = Limit::Whole(time + FAREWELL);
    let mut stdout = std::io::stdout().lock();
    let status = programs.run_in_lab(kernel, &argv, limit, &mut stdout)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}
