#![forbid(unsafe_code)]
//! The command `verbgate`.

mod abi;
mod cli;
mod config;
mod doctor;
mod fabric;
mod failure;
mod features;
mod logging;
mod manifest;
mod nccl;
mod netdev;
mod oci;
mod output;
mod pages;
mod prepare;
mod run;
mod sysfs;
mod trace;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use verbgate_host::output::say;
use verbgate_sys::process;

use crate::cli::AbiCommand;
use crate::cli::Cli;
use crate::cli::Command;
use crate::cli::NcclCommand;
use crate::failure::Failure;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let args = verbgate_oci::called(&args).unwrap_or(args);
    let args = match config::add(&args, Path::new(config::FILE)) {
        Ok(args) => args,
        Err(error) => return told(&Failure::of_tool(verbgate_oci::untimely(&args, error))),
    };
    let cli = match Cli::of(&args) {
        Ok(cli) => cli,
        Err(error) => return cli::report(&error, args.into_iter()),
    };
    let result = begin(&cli).and_then(|()| match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Oci(args) => oci::run(args, &cli.global),
        Command::Agent(args) => oci::agent(args, &cli.global),
        Command::AgentSupervisor(args) => of_tool(verbgate_oci::agent::supervise(&args.place)),
        Command::Cdi(command) => oci::cdi(command),
        Command::Pages(args) => pages::run(args),
        Command::CdiHook => of_tool(verbgate_oci::cdi::hook()),
        Command::Runtime(command) => oci::runtime(command),
        Command::Ps(args) => of_tool(verbgate_oci::ps(&oci::globals(&cli.global), args.json)),
        Command::Show(args) => {
            of_tool(verbgate_oci::show(&oci::globals(&cli.global), &args.sandbox, args.json))
        }
        Command::Stats(args) => {
            let globals = oci::globals(&cli.global);
            of_tool(verbgate_oci::stats(&globals, args.listen.as_deref(), args.json))
        }
        Command::Gc(args) => {
            of_tool(verbgate_oci::gc(&oci::globals(&cli.global), &args.state_dir, args.json))
        }
        Command::OciHook(args) => oci::hook(args),
        Command::OciSupervisor(args) => {
            let globals = oci::globals(&cli.global);
            of_tool(verbgate_oci::supervise(&args.place, args.runtime, &globals))
        }
        Command::OciNetdevs(args) => of_tool(verbgate_oci::keep(&args.place, args.pid)),
        Command::Features(args) => features::run(args, &cli.global),
        Command::Sysfs(command) => sysfs::run(command),
        Command::Abi(AbiCommand::List(args)) => abi::list(args),
        Command::Netdev(command) => netdev::run(command),
        Command::Nccl(NcclCommand::Env(args)) => nccl::env(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Manifest(args) => manifest::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Fabric(command) => fabric::run(command),
        Command::Explain(args) => fabric::explain(args),
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => told(&failure),
    }
}

fn of_tool(done: Result<u8, anyhow::Error>) -> Result<u8, Failure> {
    done.map_err(Failure::of_tool)
}

fn told(failure: &Failure) -> ExitCode {
    // One line: an error's text may quote others' lines.
    say(&failure.to_string().replace('\n', " "));
    ExitCode::from(failure.code)
}

/// Steps before a command, in this order: closing the descriptors that an own process inherited
/// from an engine, which waits for their end; and then the log, which must not be closed again.
fn begin(cli: &Cli) -> Result<(), Failure> {
    let alone = cli.command.alone();
    if alone.is_some() {
        process::close_from(3)
            .context("cannot close inherited descriptors (Linux 5.9 is needed)")?;
    }
    logging::start(&cli.global, alone)
}
