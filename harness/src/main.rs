#![forbid(unsafe_code)]
//! The command `verbgate`.

mod abi;
mod cli;
mod fabric;
mod failure;
mod features;
mod grant;
mod logging;
mod run;
mod supervise;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::AbiCommand;
use crate::cli::Cli;
use crate::cli::Command;
use crate::cli::FabricCommand;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::report(&error, std::env::args_os()),
    };
    let result = logging::start(&cli.global).and_then(|()| match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Features(args) => features::run(args, &cli.global),
        Command::Abi(AbiCommand::List(args)) => abi::list(args),
        Command::Fabric(FabricCommand::Verify(args)) => fabric::verify(args),
        Command::Explain(args) => fabric::explain(&args.code),
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            // One line: an error's text may quote others' lines.
            eprintln!("verbgate: {}", failure.to_string().replace('\n', " "));
            ExitCode::from(failure.code)
        }
    }
}
